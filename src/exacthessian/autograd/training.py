"""Gradient descent on any torch loss, its distance from the edge of stability, and adapters.

What the experiments of the edge-of-stability chapter need, for any torch model: nothing here knows
which data or which network it works on.
"""

from collections.abc import Iterator, Sequence
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse.linalg import eigsh
from torch import Tensor

from exacthessian.autograd.oracle import Function, hessian_operator


def descent(
    loss: Function, parameters: Sequence[Tensor], eta: float | Tensor, steps: int
) -> Iterator[tuple[list[Tensor], NDArray[np.float64]]]:
    """The parameters and the loss at the steps 0, …, `steps` of gradient descent with step `eta`.

    The loss may have an axis of independent runs; then each parameter carries that axis first, and
    `eta` may be a tensor that gives every run its own step.

    >>> square = lambda theta: theta[0] ** 2 / 2
    >>> start = [torch.tensor(1.0, dtype=torch.float64)]
    >>> [float(value) for _, value in descent(square, start, eta=0.5, steps=2)]
    [0.5, 0.125, 0.03125]
    """
    current = list(parameters)
    for _ in range(steps + 1):
        current = [parameter.detach().requires_grad_() for parameter in current]
        value = loss(current)
        slopes = torch.autograd.grad(value.sum(), current)
        current = [parameter.detach() for parameter in current]
        yield current, value.detach().numpy()
        current = [old - eta * slope for old, slope in zip(current, slopes, strict=True)]


def edge_ratio(loss: Function, parameters: Sequence[Tensor], eta: float) -> float:
    """ε = η λ_max / 2, with λ_max the largest Hessian eigenvalue to three digits, from
    Hessian–vector products alone: the edge of stability is at 1.

    >>> bowl = lambda theta: 3 * theta[0].square().sum() / 2
    >>> round(edge_ratio(bowl, [torch.zeros(4, dtype=torch.float64)], eta=0.5), 6)
    0.75
    """
    hessian = hessian_operator(loss, parameters)
    start = np.ones(hessian.shape[0])
    top = eigsh(hessian, k=1, which="LA", v0=start, tol=1e-3, return_eigenvectors=False)
    return float(eta * top[0] / 2)


class Adapted(torch.nn.Module):
    """A frozen linear layer plus a trainable product of low rank: x ↦ linear(x) + B A x, with A of
    shape (rank, in) and B of shape (out, rank), both Gaussian times `scale` at the start.
    """

    def __init__(
        self, linear: torch.nn.Linear, rank: int, scale: float, rng: np.random.Generator
    ) -> None:
        super().__init__()
        self.linear = linear
        kind = linear.weight.dtype
        down = scale * rng.standard_normal((rank, linear.in_features))
        up = scale * rng.standard_normal((linear.out_features, rank))
        self.down = torch.nn.Parameter(torch.tensor(down, dtype=kind))
        self.up = torch.nn.Parameter(torch.tensor(up, dtype=kind))

    def forward(self, x: Tensor) -> Tensor:
        """The layer's output with its adapter, (…, in) → (…, out)."""
        return cast(Tensor, self.linear(x) + x @ self.down.mT @ self.up.mT)


def adapt(
    module: torch.nn.Module, rank: int, scale: float, rng: np.random.Generator
) -> list[Tensor]:
    """Freeze `module`, give every linear layer in it an adapter in place, and return the adapters'
    parameters: the only ones left to train.

    >>> net = torch.nn.Sequential(torch.nn.Linear(5, 3), torch.nn.Tanh(), torch.nn.Linear(3, 2))
    >>> [tuple(p.shape) for p in adapt(net, rank=1, scale=1e-3, rng=np.random.default_rng(0))]
    [(1, 5), (3, 1), (1, 3), (2, 1)]
    """
    if rank < 1:
        raise ValueError(f"rank must be at least 1, got {rank}")
    module.requires_grad_(False)
    places = [
        (parent, name, child)
        for parent in module.modules()
        for name, child in parent.named_children()
        if isinstance(child, torch.nn.Linear)
    ]
    if not places:
        raise ValueError("module must contain a linear layer to adapt, got none")
    adapters: list[Tensor] = []
    for parent, name, child in places:
        adapted = Adapted(child, rank, scale, rng)
        setattr(parent, name, adapted)
        adapters += [adapted.down, adapted.up]
    return adapters
