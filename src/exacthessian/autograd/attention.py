"""The torch loss of self-attention with one head, for sequences of numbers or of vectors."""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from exacthessian.attention import Head, ScalarAttention
from exacthessian.autograd.models import loss_of
from exacthessian.autograd.oracle import Function, tensors

Map = Callable[[Tensor], Tensor]


def self_attention_loss(
    inputs: Sequence[ArrayLike],
    targets: Sequence[ArrayLike],
    weights: ArrayLike | None = None,
    biases: Sequence[ArrayLike] | None = None,
    causal: bool = False,
    key_width: int | None = None,
    rows: Map = lambda scores: torch.softmax(scores, dim=-1),
    cost: Map = lambda residual: residual**2 / 2,
) -> Function:
    """The loss of a self-attention layer as a function of [W_V, W_Q, W_K].

    Sequence b is `inputs[b]`, (n_b,) or (n_b, d), and the layer computes A X W_V for each, with
    A = rows(X W_Q W_Kᵀ Xᵀ / √d_K + bias). W_V is (d, d) or, for d = 1, a number; W_Q and W_K are
    (d, d_K) or (d_K,). The loss is Σ_b ω_b times the mean over all n_b d outputs of `cost`, a
    function of output − target; the `weights` ω_b are 1/B by default. `key_width` replaces d_K in
    the scale √d_K only.

    >>> loss = self_attention_loss([[1.0, 3.0]], [[2.0, 4.0]])
    >>> loss([torch.tensor(1.0).double(), torch.zeros(2).double(), torch.ones(2).double()]).item()
    1.0
    """
    count = len(inputs)
    given = [0.0] * count if biases is None else biases
    omega = np.full(count, 1 / count) if weights is None else np.asarray(weights, dtype=float)
    xs, ys = ([t.reshape(len(t), -1) for t in tensors(part)] for part in (inputs, targets))
    shifts = tensors([np.broadcast_to(b, (len(x),) * 2) for b, x in zip(given, xs, strict=True)])
    one_length = len({x.shape for x in xs}) == 1  # then one batch, which is much faster
    groups = [
        tuple(torch.stack([part[b] for b in batch]) for part in (xs, ys, shifts, tensors(omega)))
        for batch in ([range(count)] if one_length else [[b] for b in range(count)])
    ]

    def loss(parameters: list[Tensor]) -> Tensor:
        w_v, w_q, w_k = (weight.reshape(xs[0].shape[1], -1) for weight in parameters)
        scale, terms = (key_width or w_q.shape[1]) ** 0.5, []
        for x, y, shift, weight in groups:
            scores = (x @ w_q) @ (x @ w_k).mT / scale + shift
            if causal:
                hidden = torch.ones(scores.shape, dtype=torch.bool).triu(1)
                scores = scores.masked_fill(hidden, -torch.inf)
            residual = rows(scores) @ (x @ w_v) - y
            terms.append(weight @ cost(residual).mean(dim=(1, 2)))
        return torch.stack(terms).sum()

    return loss


@loss_of.register
def _(model: ScalarAttention) -> tuple[Function, list[Tensor]]:
    data = model.inputs, model.targets, model.weights, model.biases, model.causal
    return self_attention_loss(*data), tensors([model.value, model.query, model.key])


@loss_of.register
def _(model: Head) -> tuple[Function, list[Tensor]]:
    """The quadratic function of w_V and c with the head's derivatives, at w_V = 0."""
    here = model.product

    def loss(weights: list[Tensor]) -> Tensor:
        value, step = weights[0], weights[1] @ weights[2] - here
        curved = model.alpha * value**2 / 2 + model.beta * value * step + model.zeta * step**2 / 2
        return curved + model.gamma * step

    return loss, tensors([0.0, model.query, model.key])
