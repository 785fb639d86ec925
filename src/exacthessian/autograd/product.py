"""The gradient of a torch loss with respect to the product W₂W₁."""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from exacthessian.autograd.oracle import Function


def product_gradient(loss: Function, weights: Sequence[Tensor]) -> NDArray[np.float64]:
    """The gradient (K, D) of a loss that sees W₂W₁ only, with respect to it, the others held fixed.

    The loss sees the same product when W₁ is replaced by the identity and W₂ by W₂W₁.

    >>> weights = [torch.full((1, 1), w, dtype=torch.float64) for w in (2.0, 3.0)]
    >>> product_gradient(lambda w: (w[1] @ w[0]).sum() ** 2, weights)
    array([[12.]])
    """
    product = (weights[1] @ weights[0]).detach().requires_grad_()
    identity = torch.eye(product.shape[1], dtype=torch.float64)
    (gradient,) = torch.autograd.grad(loss([identity, product, *weights[2:]]), product)
    return np.asarray(gradient.numpy(), dtype=np.float64)
