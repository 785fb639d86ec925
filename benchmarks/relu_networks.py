"""ReLU networks without bias in torch, for the studies in `kept_studies`."""

import torch
from numpy.typing import ArrayLike
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
