"""The oracle: torch models, and exact second derivatives of any torch function of their parameters.

`oracle` differentiates; each other module holds the torch models of one part of the book. Nothing
here knows a closed form. This is the only part of the package that imports torch.
"""

from exacthessian.autograd.oracle import (
    dense_gauss_newton,
    dense_hessian,
    gauss_newton_operator,
    hessian_operator,
    linear_chain_loss,
    linear_chain_sample_loss,
    module_function,
    tensors,
)

__all__ = [
    "dense_gauss_newton",
    "dense_hessian",
    "gauss_newton_operator",
    "hessian_operator",
    "linear_chain_loss",
    "linear_chain_sample_loss",
    "module_function",
    "tensors",
]
