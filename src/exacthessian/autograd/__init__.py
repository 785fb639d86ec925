"""The oracle: exact second derivatives of every model of the book, and of any torch function.

`hessian(model)` and `spectrum(model)` take a model of any room; `oracle` differentiates, and each
other module here writes the losses of one room in torch. Nothing here knows a closed form. This is
the only part of the package that imports torch.
"""

from importlib import import_module
from pkgutil import iter_modules

from exacthessian.autograd.models import hessian as hessian
from exacthessian.autograd.models import loss_of as loss_of
from exacthessian.autograd.models import spectrum as spectrum
from exacthessian.autograd.oracle import dense_hessian as dense_hessian
from exacthessian.autograd.oracle import gauss_newton_operator as gauss_newton_operator
from exacthessian.autograd.oracle import hessian_operator as hessian_operator
from exacthessian.autograd.oracle import linear_chain_loss as linear_chain_loss
from exacthessian.autograd.oracle import linear_chain_sample_loss as linear_chain_sample_loss
from exacthessian.autograd.oracle import tensors as tensors

# Every module here is imported, so that the losses it registers with `loss_of` are known.
for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")
