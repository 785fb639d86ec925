"""ReLU networks in torch, and the gradient of a loss with respect to the product W₂W₁."""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from exacthessian.autograd.oracle import Function, tensors


def relu_network_loss(X: ArrayLike, Y: ArrayLike) -> Function:
    """1/(2N) Σ_n ‖W_B(⋯(W₁x_n)₊⋯)₊ − y_n‖²: a ReLU network of any depth without bias.

    >>> loss = relu_network_loss([[1.0, -1.0]], [[5.0, 1.0]])
    >>> loss([torch.full((1, 1), w, dtype=torch.float64) for w in (2.0, 3.0)]).item()
    0.5
    """
    x, y = tensors([X, Y])

    def loss(weights: list[Tensor]) -> Tensor:
        hidden = x
        for weight in weights[:-1]:
            hidden = torch.relu(weight @ hidden)
        return ((weights[-1] @ hidden - y) ** 2).sum() / (2 * x.shape[1])

    return loss


def product_gradient(loss: Function, weights: Sequence[Tensor]) -> NDArray[np.float64]:
    """The gradient (K, D) of such a loss with respect to the product W₂W₁, the others held fixed.

    The loss sees the same product when W₁ is replaced by the identity and W₂ by W₂W₁.

    >>> weights = [torch.full((1, 1), w, dtype=torch.float64) for w in (2.0, 3.0)]
    >>> product_gradient(lambda w: (w[1] @ w[0]).sum() ** 2, weights)
    array([[12.]])
    """
    product = (weights[1] @ weights[0]).detach().requires_grad_()
    identity = torch.eye(product.shape[1], dtype=torch.float64)
    (gradient,) = torch.autograd.grad(loss([identity, product, *weights[2:]]), product)
    return np.asarray(gradient.numpy(), dtype=np.float64)
