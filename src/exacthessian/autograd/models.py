"""The oracle of a model: its Hessian and spectrum by automatic differentiation, in one call.

`loss_of` is told, once for each class of models, how to write the loss in torch from the raw data
of the model: weights, moments, samples. A module of this folder does so for the classes of its room
with `@loss_of.register`.
"""

from functools import singledispatch
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from exacthessian.aligned import AlignedChain
from exacthessian.autograd.oracle import Function, dense_hessian, linear_chain_loss, tensors
from exacthessian.chain import LinearChain
from exacthessian.spectrum import Spectrum


def hessian(model: object) -> NDArray[np.float64]:
    """The Hessian (P, P) of the loss of a model of ours, exactly symmetric, with the parameters in
    the model's own order.

    >>> hessian(LinearChain([[[3.0]], [[5.0]]], sigma_xx=[[1.0]], sigma_yx=[[7.0]]))
    array([[25., 23.],
           [23.,  9.]])
    """
    raw = dense_hessian(*loss_of(model))
    return (raw + raw.T) / 2


def spectrum(model: object) -> Spectrum:
    """All P eigenvalues of the Hessian of a model of ours.

    >>> spectrum(AlignedChain.balanced((3, 4, 4, 3), lam=[1.0, 1.0], target=[1.0, 1.0]))
    Spectrum(3 × 4, 1 × 4, 0 × 32)
    """
    return Spectrum.from_matrix(hessian(model))


@singledispatch
def loss_of(model: object) -> tuple[Function, list[Tensor]]:
    """The loss of a model as a torch function of a list of tensors, and that list: the parameters.

    >>> loss, parameters = loss_of(LinearChain([[[2.0]], [[3.0]]], [[1.0]], [[1.0]], half_y2=0.5))
    >>> loss(parameters).item()
    12.5
    """
    known = sorted(cls.__name__ for cls in loss_of.registry if cls is not object)
    raise TypeError(f"model must be one of {', '.join(known)}, got {type(model).__name__}")


@loss_of.register
def _(model: LinearChain) -> tuple[Function, list[Tensor]]:
    loss = linear_chain_loss(model.sigma_xx, model.sigma_yx, model.half_y2, model.ridge)
    return loss, tensors(model.weights)


@loss_of.register
def _(model: AlignedChain) -> tuple[Function, list[Tensor]]:
    bases = tensors(model.bases or (np.eye(width) for width in model.widths))
    pairs = zip(tensors(model.singular_values), pairwise(bases), strict=True)
    layers = [_turned(left, diagonal, right) for diagonal, (right, left) in pairs]
    data, target = tensors([model.data, model.target])
    moments = _turned(bases[0], data, bases[0]), _turned(bases[-1], target, bases[0])
    return linear_chain_loss(*moments, model.half_y2, model.ridge), layers


def _turned(left: Tensor, diagonal: Tensor, right: Tensor) -> Tensor:
    """left · S · rightᵀ with the rectangular diagonal matrix S."""
    middle = left.new_zeros(len(left), len(right))
    middle.diagonal().copy_(diagonal)
    return left @ middle @ right.T
