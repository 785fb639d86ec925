"""Unconstrained feature models in torch: the losses of their points and of single layers.

The matrices H_1 (d, Kn), W_1, …, W_L are plain tensors; columns are ordered by class, n for each of
K classes. Everything is differentiated sample by sample, and no closed form is known here.
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.func import jacrev

from exacthessian.autograd.models import loss_of
from exacthessian.autograd.oracle import Function, dense_hessian, tensors
from exacthessian.ufm import Layer, ReluUFM
from exacthessian.ufm_cross_entropy import CrossEntropyUFM

Matrix: TypeAlias = NDArray[np.float64]
Activation: TypeAlias = Callable[[Tensor], Tensor]


@loss_of.register
def _(model: ReluUFM) -> tuple[Function, list[Tensor]]:
    return _penalised(_squares, _activation(model), model.ridge), tensors(model.weights)


@loss_of.register
def _(model: CrossEntropyUFM) -> tuple[Function, list[Tensor]]:
    return _penalised(_cross_entropy, _identity, model.ridge), tensors(model.weights)


@loss_of.register(Layer)
def _(layer: Layer[Any]) -> tuple[Function, list[Tensor]]:
    """The loss of the data as a function of W_l alone, all else fixed, without ridge."""
    outputs, weight = _of_layer(layer)
    fit = _cross_entropy if isinstance(layer.point, CrossEntropyUFM) else _squares
    return lambda own: fit(outputs(own[0])), [weight]


def output_jacobians(layer: Layer[Any]) -> Matrix:
    """∂(z_ic)_x/∂(W_l)_ab for every sample and output, shape (Kn, K, rows, columns of W_l).

    >>> point = ReluUFM([[[2.0]], [[3.0]], [[5.0]]])
    >>> output_jacobians(Layer(None, point, 1)).ravel()
    array([10.])
    """
    outputs, weight = _of_layer(layer)
    return np.asarray(jacrev(lambda own: outputs(own).T)(weight).numpy())


def sample_gradients(layer: Layer[Any]) -> Matrix:
    """The gradient of ½‖z_ic − y_c‖² in W_l, one row for each sample, shape (Kn, size of W_l).

    >>> point = ReluUFM([[[2.0]], [[3.0]], [[5.0]]])
    >>> sample_gradients(Layer(None, point, 1)).ravel()
    array([290.])
    """
    outputs, weight = _of_layer(layer)

    def losses(own: Tensor) -> Tensor:
        z = outputs(own)
        return ((z - _labels(z)) ** 2).sum(dim=0) / 2

    gradients = jacrev(losses)(weight)
    return np.asarray(gradients.reshape(len(gradients), -1).numpy())


def extended_errors(layer: Layer[Any]) -> Matrix:
    """δ = ∂ ½‖z − y_c'‖² / ∂h^(l) for every sample and every label c', true or not, as rows:
    shape (K·Kn, width of h^(l)).

    >>> point = ReluUFM([np.eye(2), 2 * np.eye(2)])
    >>> extended_errors(Layer(None, point, 1))[:2]
    array([[ 2.,  0.],
           [ 4., -2.]])
    """
    weights = tensors(layer.point.weights)
    received = _forward(weights[: layer.number], _identity)
    labels = torch.eye(layer.classes, dtype=torch.float64)

    def losses(columns: Tensor) -> Tensor:
        z = _forward([columns, *weights[layer.number :]], _identity)
        return ((z.T[:, None, :] - labels[None]) ** 2).sum(dim=(0, 2)) / 2

    # A sample's error depends on its own column only, so summing over samples loses nothing.
    errors = jacrev(losses)(received)
    return np.asarray(errors.permute(2, 0, 1).reshape(-1, len(received)).numpy())


def softmax_curvature(logits: Matrix, label: int) -> Matrix:
    """The Hessian of −log softmax(z)_label in the logits z (K,), shape (K, K).

    >>> softmax_curvature(np.zeros(2), label=0)
    array([[ 0.25, -0.25],
           [-0.25,  0.25]])
    """
    target = torch.tensor([label])
    loss = torch.nn.functional.cross_entropy
    return dense_hessian(lambda z: loss(z[0][None], target), tensors([logits]))


def label_gradients(layer: Layer[Any]) -> tuple[Matrix, Matrix]:
    """For each sample and each label c', the gradient of −log softmax(z_ic)_c' in W_l:
    (Kn, K, size of W_l); and the probability that the model gives to that label: (Kn, K).

    >>> point = CrossEntropyUFM([[[1.0, 1.0]], [[0.0], [0.0]]])
    >>> gradients, probabilities = label_gradients(Layer(None, point, 1))
    >>> gradients[0], probabilities[0]
    (array([[-0.5,  0.5],
           [ 0.5, -0.5]]), array([0.5, 0.5]))
    """
    outputs, weight = _of_layer(layer)

    def surprise(own: Tensor) -> Tensor:
        return -torch.log_softmax(outputs(own).T, dim=1)

    gradients = jacrev(surprise)(weight).reshape(-1, layer.classes, weight.numel())
    return gradients.numpy(), torch.exp(-surprise(weight)).numpy()


def _of_layer(layer: Layer[Any]) -> tuple[Callable[[Tensor], Tensor], Tensor]:
    """The outputs Z as a function of W_l, and W_l."""
    weights, activate = tensors(layer.point.weights), _activation(layer.point)

    def outputs(own: Tensor) -> Tensor:
        return _forward([*weights[: layer.number], own, *weights[layer.number + 1 :]], activate)

    return outputs, weights[layer.number]


def _activation(point: object) -> Activation:
    """The ReLU of a point with its σ'(0), 0 or 1, or the identity."""
    if not isinstance(point, ReluUFM):
        return _identity
    kept = torch.ge if point.slope_at_zero else torch.gt
    return lambda hidden: torch.where(kept(hidden, 0.0), hidden, torch.zeros_like(hidden))


def _forward(weights: Sequence[Tensor], activate: Activation) -> Tensor:
    """Z from H_1, W_1, …, W_L."""
    hidden = weights[0]
    for place, weight in enumerate(weights[1:]):
        hidden = weight @ (activate(hidden) if place else hidden)
    return hidden


def _penalised(
    fit: Callable[[Tensor], Tensor], activate: Activation, ridge: float | Sequence[float]
) -> Function:
    lambdas = torch.tensor(ridge, dtype=torch.float64)

    def loss(weights: list[Tensor]) -> Tensor:
        squares = torch.stack([(weight**2).sum() for weight in weights])
        return fit(_forward(weights, activate)) + lambdas @ squares / 2

    return loss


def _squares(z: Tensor) -> Tensor:
    return ((z - _labels(z)) ** 2).sum() / (2 * z.shape[1])


def _cross_entropy(z: Tensor) -> Tensor:
    return torch.nn.functional.cross_entropy(z.T, _labels(z).T)


def _labels(z: Tensor) -> Tensor:
    """Y (K, Kn), column by column the label of each sample."""
    return torch.eye(len(z), dtype=z.dtype).repeat_interleave(z.shape[1] // len(z), dim=1)


def _identity(hidden: Tensor) -> Tensor:
    return hidden
