"""Torch losses of the small networks of `exacthessian.scalar`, from their samples and moments.

The linear network is a `LinearChain` and has that loss. Several networks that share no parameter
are a list: its loss is the sum of theirs.
"""

from itertools import accumulate, pairwise

import torch
from torch import Tensor

from exacthessian.autograd.models import loss_of
from exacthessian.autograd.oracle import Function, tensors
from exacthessian.scalar import ReluNetwork, SeparateInputs


@loss_of.register
def _(model: ReluNetwork) -> tuple[Function, list[Tensor]]:
    x, y = tensors([model.x, model.y])

    def loss(weights: list[Tensor]) -> Tensor:
        v, w = weights
        return ((w @ torch.relu(torch.outer(v, x)) - y) ** 2).mean() / 2

    return loss, tensors([model.v, model.w])


@loss_of.register
def _(model: SeparateInputs) -> tuple[Function, list[Tensor]]:
    sigma, yx = tensors([model.sigma, model.yx])

    def loss(weights: list[Tensor]) -> Tensor:
        slopes = torch.stack([w @ v for v, w in zip(weights[::2], weights[1::2], strict=True)])
        return slopes @ sigma @ slopes / 2 - slopes @ yx

    pairs = zip(model.v, model.w, strict=True)
    return loss, tensors([weight for pair in pairs for weight in pair])


@loss_of.register
def _(model: list) -> tuple[Function, list[Tensor]]:  # type: ignore[type-arg]
    losses, parameters = zip(*(loss_of(one) for one in model), strict=True)
    ends = [0, *accumulate(len(own) for own in parameters)]

    def loss(weights: list[Tensor]) -> Tensor:
        parts = (weights[low:high] for low, high in pairwise(ends))
        return torch.stack([own(part) for own, part in zip(losses, parts, strict=True)]).sum()

    return loss, [tensor for own in parameters for tensor in own]
