"""Torch losses that see their first two layers through the product W₂W₁, and ReLU networks.

Each function takes data and returns a loss of a list of weight tensors in order of application.
"""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from exacthessian.autograd.oracle import Function, _real_matrix


def cross_entropy_loss(X: ArrayLike, labels: ArrayLike) -> Function:
    """The mean cross-entropy of the logits W₂W₁x + b against class `labels` (N,), and a smooth
    penalty on W₂W₁ and b that is not quadratic either; weights [W₁ (m, D), W₂ (K, m), b (K,)].

    >>> loss = cross_entropy_loss([[0.0]], [1])
    >>> weights = [torch.zeros(s, dtype=torch.float64) for s in ((1, 1), (2, 1), (2,))]
    >>> round(loss(weights).item(), 6)
    0.693147
    """
    x = torch.from_numpy(_real_matrix("X", X))
    wanted = torch.as_tensor(labels, dtype=torch.int64)
    if wanted.shape != x.shape[1:]:
        raise ValueError(f"labels must have {x.shape[1]} entries, got shape {tuple(wanted.shape)}")

    def loss(weights: list[Tensor]) -> Tensor:
        product = weights[1] @ weights[0]
        logits = (product @ x).T + weights[2]
        penalty = (product.sum() * weights[2].sum()).sin() + (product**4).sum() / 10
        return torch.nn.functional.cross_entropy(logits, wanted) + penalty

    return loss


def attention_loss(X: ArrayLike, Y: ArrayLike, scale: float) -> Function:
    """½ mean of the squared entries of softmax(X W_Q W_Kᵀ Xᵀ/scale) X W_V − Y, for one sequence X
    (T, d) and Y (T, d); weights [W_Kᵀ (d_K, d), W_Q (d, d_K), W_V (d, d)].

    >>> loss = attention_loss([[1.0], [-1.0]], [[0.0], [0.0]], scale=1.0)
    >>> loss([torch.ones(s, dtype=torch.float64) for s in ((1, 1), (1, 1), (1, 1))]).item() > 0
    True
    """
    x, y = torch.from_numpy(_real_matrix("X", X)), torch.from_numpy(_real_matrix("Y", Y))
    if x.shape != y.shape:
        raise ValueError(f"Y must have the shape of X, {tuple(x.shape)}, got {tuple(y.shape)}")

    def loss(weights: list[Tensor]) -> Tensor:
        keys, queries, values = weights
        scores = x @ (queries @ keys) @ x.T / scale
        return ((torch.softmax(scores, 1) @ x @ values - y) ** 2).mean() / 2

    return loss


def relu_network_loss(X: ArrayLike, Y: ArrayLike) -> Function:
    """1/(2N) Σ_n ‖W_B(⋯(W₁x_n)₊⋯)₊ − y_n‖²: a ReLU network of any depth without bias.

    >>> loss = relu_network_loss([[1.0, -1.0]], [[5.0, 1.0]])
    >>> loss([torch.full((1, 1), w, dtype=torch.float64) for w in (2.0, 3.0)]).item()
    0.5
    """
    x, y = torch.from_numpy(_real_matrix("X", X)), torch.from_numpy(_real_matrix("Y", Y))
    if x.shape[1] != y.shape[1] or x.shape[1] == 0:
        raise ValueError(
            "X and Y must have the same number of columns, at least one, "
            f"got {x.shape[1]} and {y.shape[1]}"
        )

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
