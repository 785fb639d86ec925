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
from exacthessian.autograd.oracle import Function, tensors
from exacthessian.ufm import Layer, Point

Matrix: TypeAlias = NDArray[np.float64]


@loss_of.register
def _(model: Point) -> tuple[Function, list[Tensor]]:
    lambdas = torch.tensor(model.ridge, dtype=torch.float64)

    def loss(weights: list[Tensor]) -> Tensor:
        squares = torch.stack([(weight**2).sum() for weight in weights])
        return _fit(model, _outputs(model, weights)) + lambdas @ squares / 2

    return loss, tensors(model.weights)


@loss_of.register(Layer)
def _(layer: Layer[Any]) -> tuple[Function, list[Tensor]]:
    """The loss of the data as a function of W_l alone, all else fixed, without ridge."""
    outputs, weight = _of_layer(layer)
    return lambda own: _fit(layer.point, outputs(own[0])), [weight]


def output_jacobians(layer: Layer[Any]) -> Matrix:
    """∂(z_ic)_x/∂(W_l)_ab for every sample and output, shape (Kn, K, rows, columns of W_l).

    >>> point = Point([[[2.0]], [[3.0]], [[5.0]]])
    >>> output_jacobians(Layer(None, point, 1)).ravel()
    array([10.])
    """
    outputs, weight = _of_layer(layer)
    return np.asarray(jacrev(lambda own: outputs(own).T)(weight).numpy())


def label_gradients(layer: Layer[Any]) -> Matrix:
    """The gradient in W_l of the loss of each sample if its label were c', for every c', true or
    not: ½‖z_ic − e_c'‖² or −log softmax(z_ic)_c'. Shape (Kn, K, rows, columns of W_l).

    >>> label_gradients(Layer(None, Point([[[2.0]], [[3.0]], [[5.0]]]), 1)).ravel()
    array([290.])
    >>> point = Point([[[1.0, 1.0]], [[0.0], [0.0]]], cross_entropy=True)
    >>> label_gradients(Layer(None, point, 1))[0, :, :, 0]
    array([[-0.5,  0.5],
           [ 0.5, -0.5]])
    """
    outputs, weight = _of_layer(layer)

    def losses(own: Tensor) -> Tensor:
        z = outputs(own).T
        if layer.point.cross_entropy:
            return -torch.log_softmax(z, dim=1)
        return ((z[:, None, :] - torch.eye(layer.classes, dtype=z.dtype)) ** 2).sum(dim=2) / 2

    return np.asarray(jacrev(losses)(weight).numpy())


def sample_gradients(layer: Layer[Any]) -> Matrix:
    """The gradient in W_l of the loss of each sample, one row for each, shape (Kn, size of W_l).

    >>> sample_gradients(Layer(None, Point([[[2.0]], [[3.0]], [[5.0]]]), 1))
    array([[290.]])
    """
    own = label_gradients(layer)[layer.point.labels.T == 1]
    return own.reshape(len(own), -1)


def _of_layer(layer: Layer[Any]) -> tuple[Callable[[Tensor], Tensor], Tensor]:
    """The outputs Z as a function of W_l, and W_l."""
    weights, here = tensors(layer.point.weights), layer.number

    def outputs(own: Tensor) -> Tensor:
        return _outputs(layer.point, [*weights[:here], own, *weights[here + 1 :]])

    return outputs, weights[here]


def _outputs(point: Point, weights: Sequence[Tensor]) -> Tensor:
    """Z from H_1, W_1, …, W_L, with ReLU and its σ'(0), 0 or 1, or without."""
    kept = torch.ge if point.slope_at_zero else torch.gt
    hidden = weights[0]
    for place, weight in enumerate(weights[1:]):
        if place and point.relu:
            hidden = torch.where(kept(hidden, 0.0), hidden, torch.zeros_like(hidden))
        hidden = weight @ hidden
    return hidden


def _fit(point: Point, z: Tensor) -> Tensor:
    """The loss of the data, from the outputs."""
    y = torch.eye(len(z), dtype=z.dtype).repeat_interleave(z.shape[1] // len(z), dim=1)
    if point.cross_entropy:
        return torch.nn.functional.cross_entropy(z.T, y.T)
    return ((z - y) ** 2).sum() / (2 * z.shape[1])
