"""Torch models of two-layer networks with scalar inputs or outputs, sample by sample.

Each function takes samples and returns the loss 1/(2n) Σ_i ‖f(x_i) − y_i‖² as a function of the
list of weight tensors, for the oracle to differentiate. Nothing here knows a moment of the data.
"""

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

Loss = Callable[[list[Tensor]], Tensor]


def two_layer_loss(x: ArrayLike, y: ArrayLike) -> Loss:
    """The loss of f(x) = wᵀ(vx) on samples x, y (n,), as a function of [v, w], both (m,).

    >>> loss = two_layer_loss([1.0, 2.0], [1.0, 1.0])
    >>> loss([torch.ones(1, dtype=torch.float64), torch.ones(1, dtype=torch.float64)]).item()
    0.25
    """
    inputs, targets = _samples(x, y)

    def loss(weights: list[Tensor]) -> Tensor:
        v, w = weights
        return _half_mean_square(w @ torch.outer(v, inputs) - targets)

    return loss


def relu_loss(x: ArrayLike, y: ArrayLike) -> Loss:
    """The loss of f(x) = wᵀ(vx)₊ on samples x, y (n,), as a function of [v, w], both (m,).

    >>> loss = relu_loss([1.0, -2.0], [1.0, 1.0])
    >>> loss([torch.ones(1, dtype=torch.float64), torch.ones(1, dtype=torch.float64)]).item()
    0.25
    """
    inputs, targets = _samples(x, y)

    def loss(weights: list[Tensor]) -> Tensor:
        v, w = weights
        return _half_mean_square(w @ torch.relu(torch.outer(v, inputs)) - targets)

    return loss


def bias_loss(x: ArrayLike, y: ArrayLike) -> Loss:
    """The loss of f(x) = wᵀ(vx + b) on samples x, y (n,), as a function of [v, b, w], all (m,).

    >>> loss = bias_loss([1.0, 2.0], [1.0, 1.0])
    >>> loss([torch.ones(1, dtype=torch.float64)] * 3).item()
    1.25
    """
    inputs, targets = _samples(x, y)

    def loss(weights: list[Tensor]) -> Tensor:
        v, b, w = weights
        return _half_mean_square(w @ (torch.outer(v, inputs) + b[:, None]) - targets)

    return loss


def many_inputs_loss(X: ArrayLike, y: ArrayLike) -> Loss:
    """The loss of f(x) = wᵀVx on the columns of X (D, n) and y (n,), as a function of [V, w] with
    V (m, D) and w (m,).

    >>> loss = many_inputs_loss([[1.0, 2.0], [0.0, 1.0]], [1.0, 1.0])
    >>> loss([torch.ones(1, 2, dtype=torch.float64), torch.ones(1, dtype=torch.float64)]).item()
    1.0
    """
    inputs, targets = _samples(X, y)

    def loss(weights: list[Tensor]) -> Tensor:
        first, w = weights
        return _half_mean_square(w @ (first @ inputs) - targets)

    return loss


def separate_inputs_loss(X: ArrayLike, y: ArrayLike) -> Loss:
    """The loss of f(x) = Σ_e ⟨w_e, v_e⟩ x_e on the columns of X (D, n) and y (n,), as a function of
    [v_1, w_1, …, v_D, w_D], all (m,).

    >>> loss = separate_inputs_loss([[1.0, 2.0], [0.0, 1.0]], [1.0, 1.0])
    >>> loss([torch.ones(1, dtype=torch.float64)] * 4).item()
    1.0
    """
    inputs, targets = _samples(X, y)

    def loss(weights: list[Tensor]) -> Tensor:
        terms = [w @ torch.outer(v, row) for v, w, row in _pairs(weights, inputs)]
        return _half_mean_square(torch.stack(terms).sum(dim=0) - targets)

    return loss


def heads_loss(x: ArrayLike, Y: ArrayLike) -> Loss:
    """The loss of the K outputs f_k(x) = ⟨w_k, v_k⟩ x on x (n,) and the columns of Y (K, n), as a
    function of [v_1, w_1, …, v_K, w_K], all (m,).

    >>> loss = heads_loss([1.0, 2.0], [[1.0, 1.0], [0.0, 2.0]])
    >>> loss([torch.ones(1, dtype=torch.float64)] * 4).item()
    0.5
    """
    inputs, targets = _samples(x, Y)

    def loss(weights: list[Tensor]) -> Tensor:
        terms = [
            _half_mean_square(w @ torch.outer(v, inputs) - row)
            for v, w, row in _pairs(weights, targets)
        ]
        return torch.stack(terms).sum()

    return loss


def _samples(x: ArrayLike, y: ArrayLike) -> tuple[Tensor, Tensor]:
    inputs = torch.from_numpy(np.array(x, dtype=np.float64))
    targets = torch.from_numpy(np.array(y, dtype=np.float64))
    if inputs.shape[-1] != targets.shape[-1] or not inputs.numel():
        raise ValueError(
            "x and y must have the same number of samples, at least one, "
            f"got shapes {tuple(inputs.shape)} and {tuple(targets.shape)}"
        )
    return inputs, targets


def _pairs(weights: list[Tensor], rows: Tensor) -> list[tuple[Tensor, Tensor, Tensor]]:
    """(v_k, w_k, row k) for each row of a data matrix."""
    return list(zip(weights[::2], weights[1::2], rows, strict=True))


def _half_mean_square(residual: Tensor) -> Tensor:
    return (residual**2).mean() / 2
