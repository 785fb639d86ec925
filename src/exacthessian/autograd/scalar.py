"""The torch loss of the ReLU network of `exacthessian.scalar`, from its samples.

The linear network is a `LinearChain` and has that loss. Several networks that share no parameter
are a list: its loss is the sum of theirs.
"""

from itertools import accumulate, pairwise

import torch
from torch import Tensor

from exacthessian.autograd.models import loss_of
from exacthessian.autograd.oracle import Function, tensors
from exacthessian.scalar import ReluNetwork


@loss_of.register
def _(model: ReluNetwork) -> tuple[Function, list[Tensor]]:
    x, y = tensors([model.x, model.y])

    def loss(weights: list[Tensor]) -> Tensor:
        v, w = weights
        return ((w @ torch.relu(torch.outer(v, x)) - y) ** 2).mean() / 2

    return loss, tensors([model.v, model.w])


@loss_of.register
def _(model: list) -> tuple[Function, list[Tensor]]:  # type: ignore[type-arg]
    losses, parameters = zip(*(loss_of(one) for one in model), strict=True)
    ends = [0, *accumulate(len(own) for own in parameters)]

    def loss(weights: list[Tensor]) -> Tensor:
        parts = (weights[low:high] for low, high in pairwise(ends))
        return torch.stack([own(part) for own, part in zip(losses, parts, strict=True)]).sum()

    return loss, [tensor for own in parameters for tensor in own]
