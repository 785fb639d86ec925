"""Torch models of the deep linear unconstrained feature model with squared loss.

Features H (d, Kn) and weights W_1, …, W_L are plain tensors; columns are ordered by class, n for
each of K classes. Everything is differentiated sample by sample, and no closed form is known here.
"""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor
from torch.func import jacrev

from exacthessian.autograd.oracle import Function, tensors


def ufm_loss(
    classes: int,
    samples: int,
    ridge: float | Sequence[float] = 0.0,
    features: ArrayLike | None = None,
) -> Function:
    """The loss 1/(2Kn) Σ_ic ‖W_L ⋯ W_1 h_ic − y_c‖² + ½ Σ_l λ_l ‖·‖² as a function of the list
    [H, W_1, …, W_L], or of [W_1, …, W_L] when `features` (d, Kn) are given and stay fixed.

    `ridge` is one λ for all tensors in the list or one for each.

    >>> loss = ufm_loss(classes=2, samples=1, ridge=0.5)
    >>> loss(tensors([np.eye(2), 3 * np.eye(2)])).item()
    7.0
    """
    fixed = [] if features is None else tensors([features])
    targets = _targets(classes, samples)

    def loss(parameters: list[Tensor]) -> Tensor:
        hidden, *weights = [*fixed, *parameters]
        for weight in weights:
            hidden = weight @ hidden
        each = np.broadcast_to(np.asarray(ridge, dtype=float), len(parameters)).tolist()
        decay = [strength * (w**2).sum() / 2 for strength, w in zip(each, parameters, strict=True)]
        return ((hidden - targets) ** 2).sum() / (2 * classes * samples) + torch.stack(decay).sum()

    return loss


def output_jacobians(
    features: ArrayLike, weights: Sequence[ArrayLike], layer: int
) -> NDArray[np.float64]:
    """∂f_x(h_ic)/∂(W_l)_ab for every sample and output, shape (Kn, K, rows, columns of W_l).

    >>> output_jacobians([[2.0]], [[[3.0]], [[5.0]]], layer=1).ravel()
    array([10.])
    """
    hidden, *layers = tensors([features, *weights])

    def outputs(weight: Tensor) -> Tensor:
        moved = hidden
        for place, own in enumerate(layers, start=1):
            moved = (weight if place == layer else own) @ moved
        return moved.T

    return np.asarray(jacrev(outputs)(layers[layer - 1]).numpy())


def sample_gradients(
    features: ArrayLike, weights: Sequence[ArrayLike], samples: int, layer: int
) -> NDArray[np.float64]:
    """The gradient of ½‖f(h_ic) − y_c‖² in W_l, one row for each sample, shape (Kn, size of W_l).

    >>> sample_gradients([[2.0]], [[[3.0]], [[5.0]]], samples=1, layer=1).ravel()
    array([290.])
    """
    hidden, *layers = tensors([features, *weights])
    targets = _targets(len(layers[-1]), samples)

    def losses(weight: Tensor) -> Tensor:
        moved = hidden
        for place, own in enumerate(layers, start=1):
            moved = (weight if place == layer else own) @ moved
        return ((moved - targets) ** 2).sum(dim=0) / 2

    gradients = jacrev(losses)(layers[layer - 1])
    return np.asarray(gradients.reshape(len(gradients), -1).numpy())


def extended_errors(
    features: ArrayLike, weights: Sequence[ArrayLike], layer: int
) -> NDArray[np.float64]:
    """δ = ∂ ½‖f(h) − y_c'‖² / ∂h^(l) for every sample and every label c', true or not, as rows:
    shape (K·Kn, width of h^(l)).

    >>> extended_errors(np.eye(2), [2 * np.eye(2)], layer=1)[:2]
    array([[ 2.,  0.],
           [ 4., -2.]])
    """
    hidden, *layers = tensors([features, *weights])
    for weight in layers[: layer - 1]:
        hidden = weight @ hidden
    classes = len(layers[-1])
    labels = torch.eye(classes, dtype=torch.float64)

    def losses(columns: Tensor) -> Tensor:
        moved = columns
        for weight in layers[layer - 1 :]:
            moved = weight @ moved
        gaps = moved.T[:, None, :] - labels[None, :, :]
        return (gaps**2).sum(dim=(0, 2)) / 2

    # A sample's error depends on its own column only, so summing over samples loses nothing.
    errors = jacrev(losses)(hidden)
    return np.asarray(errors.permute(2, 0, 1).reshape(-1, hidden.shape[0]).numpy())


def _targets(classes: int, samples: int) -> Tensor:
    """Y (K, Kn), column by column the label of each sample."""
    return torch.eye(classes, dtype=torch.float64).repeat_interleave(samples, dim=1)
