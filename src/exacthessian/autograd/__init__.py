"""The oracle: exact second derivatives of every model of the book, and of any torch function.

`hessian(model)` and `spectrum(model)` take a model of any room; `oracle` differentiates, and each
other module here writes the losses of one room in torch. Nothing here knows a closed form. This is
the only part of the package that imports torch.
"""

from importlib import import_module
from pkgutil import iter_modules

from exacthessian.autograd.models import hessian, loss_of, spectrum
from exacthessian.autograd.oracle import (
    dense_hessian,
    gauss_newton_operator,
    hessian_operator,
    linear_chain_loss,
    linear_chain_sample_loss,
    module_function,
    tensors,
)

__all__ = [
    "dense_hessian",
    "gauss_newton_operator",
    "hessian",
    "hessian_operator",
    "linear_chain_loss",
    "linear_chain_sample_loss",
    "loss_of",
    "module_function",
    "spectrum",
    "tensors",
]

# Every module here is imported, so that the losses it registers with `loss_of` are known.
for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")
