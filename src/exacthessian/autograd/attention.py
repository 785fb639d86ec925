"""Torch models of self-attention with one head, for sequences of numbers or of vectors."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from exacthessian.attention import Head, ScalarAttention
from exacthessian.autograd.models import loss_of
from exacthessian.autograd.oracle import Function, tensors

Model = Callable[[list[Tensor]], Tensor]
Rows = Callable[[Tensor], Tensor]


def self_attention(
    inputs: Sequence[ArrayLike],
    targets: Sequence[ArrayLike],
    weights: ArrayLike | None = None,
    biases: Sequence[ArrayLike] | None = None,
    causal: bool = False,
    rows: Rows | None = None,
    key_width: int | None = None,
) -> tuple[Model, Callable[[Tensor], Tensor]]:
    """A self-attention layer as (model, risk): the loss is risk(model([W_V, W_Q, W_K])).

    Sequence b is `inputs[b]`, (n_b,) or (n_b, d), and the model computes A X W_V for each, with
    A = rows(X W_Q W_Kᵀ Xᵀ / √d_K + bias), `rows` being softmax along the last axis by default. W_V
    is (d, d) or, for d = 1, a number; W_Q and W_K are (d, d_K) or (d_K,). All outputs are returned
    one after the other. The risk is Σ_b ω_b/(2 n_b d) |outputs − targets|² with `weights` ω_b, 1/B
    by default. `key_width` replaces d_K in the scale √d_K only.

    >>> model, risk = self_attention([[1.0, 3.0]], [[2.0, 4.0]])
    >>> w = [torch.tensor(1.0), torch.zeros(2), torch.ones(2)]
    >>> outputs = model([t.double() for t in w])
    >>> outputs, risk(outputs)
    (tensor([2., 2.], dtype=torch.float64), tensor(1., dtype=torch.float64))
    """
    xs = [torch.from_numpy(_matrix(f"inputs[{b}]", x)) for b, x in enumerate(inputs)]
    ys = [torch.from_numpy(_matrix(f"targets[{b}]", y)) for b, y in enumerate(targets)]
    if not xs or [x.shape for x in xs] != [y.shape for y in ys]:
        raise ValueError(
            "inputs and targets must hold at least one sequence and have the same shapes, "
            f"got {[tuple(x.shape) for x in xs]} and {[tuple(y.shape) for y in ys]}"
        )
    omega = np.full(len(xs), 1 / len(xs)) if weights is None else np.asarray(weights, float)
    given = [0.0] * len(xs) if biases is None else biases
    if omega.shape != (len(xs),) or len(given) != len(xs):
        raise ValueError(f"weights and biases must have one entry per sequence, {len(xs)}")
    squares = [(len(x), len(x)) for x in xs]
    shifts = [
        torch.tensor(np.broadcast_to(b, n)).double() for b, n in zip(given, squares, strict=True)
    ]
    groups = list(zip(xs, shifts, strict=True))
    if len({x.shape for x in xs}) == 1:  # equal lengths: one batch, much faster
        groups = [(torch.stack(xs), torch.stack(shifts))]
    normalise: Rows = rows or (lambda scores: torch.softmax(scores, dim=-1))

    def model(parameters: list[Tensor]) -> Tensor:
        d = xs[0].shape[1]
        w_v, w_q, w_k = (weight.reshape(d, -1) for weight in parameters)
        scale = (key_width or w_q.shape[1]) ** 0.5
        outputs = []
        for x, shift in groups:
            scores = (x @ w_q) @ (x @ w_k).mT / scale + shift
            if causal:
                hidden = torch.ones(scores.shape, dtype=torch.bool).triu(1)
                scores = scores.masked_fill(hidden, -torch.inf)
            outputs.append((normalise(scores) @ (x @ w_v)).reshape(-1))
        return torch.cat(outputs)

    def risk(outputs: Tensor) -> Tensor:
        parts = torch.split(outputs, [y.numel() for y in ys])
        terms = [
            float(w) * ((part - y.reshape(-1)) ** 2).mean() / 2
            for w, part, y in zip(omega, parts, ys, strict=True)
        ]
        return torch.stack(terms).sum()

    return model, risk


def self_attention_loss(*arguments: Any, **options: Any) -> Model:
    """The loss of `self_attention`, with the same arguments, as one function of [W_V, W_Q, W_K].

    >>> loss = self_attention_loss([[1.0, 3.0]], [[2.0, 4.0]])
    >>> loss([torch.tensor(1.0).double(), torch.zeros(2).double(), torch.ones(2).double()]).item()
    1.0
    """
    model, risk = self_attention(*arguments, **options)
    return lambda parameters: risk(model(parameters))


@loss_of.register
def _(model: ScalarAttention) -> tuple[Function, list[Tensor]]:
    loss = self_attention_loss(
        model.inputs, model.targets, model.weights, model.biases, model.causal
    )
    return loss, tensors([model.value, model.query, model.key])


@loss_of.register
def _(model: Head) -> tuple[Function, list[Tensor]]:
    """The quadratic function of w_V and c with the head's derivatives, at w_V = 0."""
    here = model.product

    def loss(weights: list[Tensor]) -> Tensor:
        value, step = weights[0], weights[1] @ weights[2] - here
        curved = model.alpha * value**2 / 2 + model.beta * value * step + model.zeta * step**2 / 2
        return curved + model.gamma * step

    return loss, tensors([0.0, model.query, model.key])


def _matrix(name: str, value: ArrayLike) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    """A sequence of numbers (n,) or of vectors (n, d) as an (n, d) array."""
    array = np.array(value, dtype=np.float64)
    if array.ndim not in (1, 2) or array.size == 0 or not np.isfinite(array).all():
        raise ValueError(
            f"{name} must be a sequence of at least one finite number or vector, "
            f"got shape {array.shape}"
        )
    return array.reshape(array.shape[0], -1)
