"""A tiny character-level transformer, in three variants of equal size, for the question of
section 4.3 of "Cracking the Hessian": what does attention do to the Hessian?

Every variant reads a window of characters, keeps a stream of `width` numbers for each of them and
predicts each next character. A block adds to the stream a *mixer* and then an MLP. The mixers:

`softmax` is causal attention, x ↦ W_o [A_h W_v x]_h, A_h the softmax of the scores of head h.
`mlp` is an MLP of the same size in its place, x ↦ D relu(U x), which never sees another character.
`fixed` is the same MLP, whose hidden units are averaged over the past with constant weights,
x ↦ D relu([A_h U x]_h). It mixes characters without softmax of anything that is learned.

There are no biases and no trainable normalisations, and everything is float64.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse.linalg import LinearOperator
from torch import Tensor
from torch.nn import functional

from exacthessian.autograd.oracle import gauss_newton_operator, hessian_operator
from exacthessian.inputs import whole_number

Weights: TypeAlias = Sequence[Tensor]
Codes: TypeAlias = NDArray[np.int64]

ALPHABET = " ,.abcdefghijklmnopqrstuvwxyz"
MIXERS = ("softmax", "mlp", "fixed")
PRIMER = files("exacthessian").joinpath("data", "primer.txt").read_text(encoding="utf-8")
"""Plain English about curvature, written for the book."""


def encode(text: str = PRIMER) -> Codes:
    """A text as the numbers 0..28 of its lower-case letters, commas, full stops and spaces, (n,).

    Whatever else there is, and any run of spaces, becomes one space.

    >>> "".join(ALPHABET[code] for code in encode("Is 2 x 2\\n= 4? Yes."))
    'is x yes.'
    """
    plain = "".join(letter if letter in ALPHABET else " " for letter in text.lower())
    return np.array([ALPHABET.index(letter) for letter in " ".join(plain.split())], dtype=np.int64)


@dataclass(frozen=True)
class Transformer:
    """The mixer and the sizes of a network. Its weights are a list of float64 tensors:

    the token embedding (29, d) and the position embedding (context, d), where d is the width; for
    each block the mixer's matrices, then the MLP's (4d, d) and (d, 4d); the read-out (29, d).
    The mixer is W_q, W_k, W_v, W_o, all (d, d), or U (2d, d) and D (d, 2d): 4d² numbers each way.

    >>> [Transformer(mixer).size for mixer in MIXERS]
    [7584, 7584, 7584]
    """

    mixer: str
    width: int = 16
    heads: int = 2
    blocks: int = 2
    context: int = 32

    def __post_init__(self) -> None:
        if self.mixer not in MIXERS:
            raise ValueError(f"mixer must be one of {', '.join(MIXERS)}, got {self.mixer!r}")
        for name in ("width", "heads", "blocks", "context"):
            whole_number(name, getattr(self, name), least=1)
        if self.width % self.heads:
            raise ValueError(f"heads must divide the width {self.width}, got {self.heads}")

    @property
    def shapes(self) -> list[tuple[int, int]]:
        """The shapes of the weights, in order.

        >>> Transformer("mlp", blocks=1).shapes
        [(29, 16), (32, 16), (32, 16), (16, 32), (64, 16), (16, 64), (29, 16)]
        """
        d, ends = self.width, (len(ALPHABET), self.width)
        mixer = [(d, d)] * 4 if self.mixer == "softmax" else [(2 * d, d), (d, 2 * d)]
        return [ends, (self.context, d), *[*mixer, (4 * d, d), (d, 4 * d)] * self.blocks, ends]

    @property
    def size(self) -> int:
        """The number of parameters.

        >>> Transformer("softmax", width=768, heads=12, blocks=12, context=1024).size
        85765632
        """
        return sum(rows * columns for rows, columns in self.shapes)

    def start(self, rng: np.random.Generator) -> list[Tensor]:
        """Random weights: normal, of variance 1/columns, so that sums of inputs keep their size.

        The two matrices of a block that write into the stream are divided by √(2·blocks), as in
        GPT-2, so that the stream keeps its size too.

        >>> [len(w) for w in Transformer("mlp", blocks=1).start(np.random.default_rng(0))]
        [29, 32, 32, 16, 64, 16, 29]
        """
        quiet = 1 / np.sqrt(2 * self.blocks)
        mixer = [1.0, 1.0, 1.0, quiet] if self.mixer == "softmax" else [1.0, quiet]
        scales = [1.0, 1.0, *[*mixer, 1.0, quiet] * self.blocks, 1.0]
        spread = [s / np.sqrt(shape[1]) for s, shape in zip(scales, self.shapes, strict=True)]
        pairs = zip(spread, self.shapes, strict=True)
        return [torch.from_numpy(s * rng.standard_normal(shape)) for s, shape in pairs]

    def windows(self, codes: Codes, count: int, rng: np.random.Generator) -> tuple[Tensor, Tensor]:
        """`count` random windows of a text (n,), n > context, and the same windows one place later,
        to be predicted: two int64 tensors (count, context).

        >>> net, rng = Transformer("mlp", context=3), np.random.default_rng(0)
        >>> net.windows(encode("abcd"), 1, rng)
        (tensor([[3, 4, 5]]), tensor([[4, 5, 6]]))
        """
        first = rng.integers(0, len(codes) - self.context, size=count)
        taken = torch.from_numpy(codes[first[:, None] + np.arange(self.context + 1)])
        return taken[:, :-1], taken[:, 1:]

    def logits(self, weights: Weights, inputs: Tensor, **edits: Any) -> Tensor:
        """The prediction for each next character, (count, context, 29), of inputs (count, context).

        Three edits: `sink` is added to the score of the first token in the first head of every
        block, and its value there is multiplied by `massive`. `anchors` are the scores of some
        weights, one tensor per block: softmax is then replaced by its tangent there, which agrees
        with it at the anchors to first order and has no curvature.

        >>> net = Transformer("fixed", context=3)
        >>> net.logits(net.start(np.random.default_rng(0)), torch.tensor([[3, 4, 5]])).shape
        torch.Size([1, 3, 29])
        """
        return self._forward(weights, inputs, **edits)[0]

    def scores(self, weights: Weights, inputs: Tensor, **edits: Any) -> list[Tensor]:
        """What softmax is applied to, one tensor (count, heads, context, context) per block.

        Row i holds the scores that token i gives to all tokens; those of the future are not used.

        >>> net = Transformer("softmax", context=3)
        >>> tables = net.scores(net.start(np.random.default_rng(0)), torch.tensor([[3, 4, 5]]))
        >>> len(tables), tables[0].shape
        (2, torch.Size([1, 2, 3, 3]))
        """
        return self._forward(weights, inputs, **edits)[1]

    def attention_on_first(self, weights: Weights, inputs: Tensor, **edits: Any) -> float:
        """The attention weight of the first token in the first head, averaged over everything else.

        >>> net = Transformer("softmax")
        >>> weights, inputs = net.start(np.random.default_rng(0)), torch.zeros(1, 32).long()
        >>> round(net.attention_on_first(weights, inputs, sink=100.0), 6)
        1.0
        """
        tables = [_attention(table) for table in self.scores(weights, inputs, **edits)]
        return float(torch.stack(tables)[:, :, 0, :, 0].mean())

    def loss(self, weights: Weights, inputs: Tensor, targets: Tensor, **edits: Any) -> Tensor:
        """−log of the probability given to the right character, averaged over all tokens; `edits`
        as in `logits`.

        >>> net = Transformer("mlp", context=1)
        >>> still = [torch.zeros(shape) for shape in net.shapes]
        >>> round(net.loss(still, torch.tensor([[0]]), torch.tensor([[1]])).exp().item(), 4)
        29.0
        """
        return _cross_entropy(self.logits(weights, inputs, **edits), targets)

    def train(
        self,
        weights: Weights,
        codes: Codes,
        checkpoints: Sequence[int],
        rng: np.random.Generator,
        batch: int = 16,
        rate: float = 3e-3,
    ) -> list[list[Tensor]]:
        """The weights after each number of steps in `checkpoints`, which ascend. A step is Adam's,
        at learning rate `rate`, on the loss of `batch` random windows of the text.

        >>> net, rng = Transformer("mlp", width=4, blocks=1, context=4), np.random.default_rng(0)
        >>> kept = net.train(net.start(rng), encode(), [0, 60], rng)
        >>> before, after = (net.loss(w, *net.windows(encode(), 8, rng)) for w in kept)
        >>> bool(after < before)
        True
        """
        moving = [weight.detach().clone().requires_grad_() for weight in weights]
        adam = torch.optim.Adam(moving, lr=rate)
        kept = []
        for early, late in pairwise([0, *checkpoints]):
            for _ in range(late - early):
                adam.zero_grad()
                torch.autograd.backward(self.loss(moving, *self.windows(codes, batch, rng)))
                adam.step()
            kept.append([weight.detach().clone() for weight in moving])
        return kept

    def curvature(
        self, weights: Weights, inputs: Tensor, targets: Tensor, tangent: bool = False, **edits: Any
    ) -> tuple[LinearOperator, LinearOperator]:
        """The Hessian and the Gauss–Newton matrix of the loss at these weights, as operators.

        With `tangent` softmax is replaced by its tangent at these weights: every first derivative
        stays, so the Gauss–Newton matrix does, and the Hessian loses exactly the terms that contain
        the second derivative of softmax.

        >>> net, rng = Transformer("mlp", width=4, blocks=1, context=4), np.random.default_rng(0)
        >>> hessian, newton = net.curvature(net.start(rng), *net.windows(encode(), 2, rng))
        >>> hessian.shape == newton.shape == (net.size, net.size)
        True
        """
        if tangent:
            edits["anchors"] = self.scores(weights, inputs, **edits)
        newton = gauss_newton_operator(
            lambda moved: self.logits(moved, inputs, **edits),
            lambda logits: _cross_entropy(logits, targets),
            weights,
        )
        return hessian_operator(lambda w: self.loss(w, inputs, targets, **edits), weights), newton

    def constant_weights(self) -> Tensor:
        """The averages of the fixed mixer, (heads, context, context): in head h = 0, 1, … a token
        counts e^(−h·age), and the weights of a row add up to one. Head 0 is the plain mean.

        >>> Transformer("fixed", heads=1, context=3).constant_weights().numpy().round(2)
        array([[[1.  , 0.  , 0.  ],
                [0.5 , 0.5 , 0.  ],
                [0.33, 0.33, 0.33]]])
        """
        place = torch.arange(self.context, dtype=torch.float64)
        rate = torch.arange(self.heads, dtype=torch.float64)[:, None, None]
        return _attention(-rate * (place[:, None] - place))

    def _forward(
        self, w: Weights, inputs: Tensor, sink: float = 0, massive: float = 1, anchors: Weights = ()
    ) -> tuple[Tensor, list[Tensor]]:
        """The logits, and the scores ⟨q_i, k_j⟩ / √(width of a head) + sink met on the way."""
        token, position, *inner, read = w
        per_block = len(inner) // self.blocks
        stream = token[inputs] + position
        first = torch.zeros(self.heads, 1, self.context, dtype=torch.float64)
        first[0, 0, 0] = 1.0  # the first token, in the first head
        tables: list[Tensor] = []
        for b in range(self.blocks):
            *mixer, up, down = inner[b * per_block : (b + 1) * per_block]
            x = self._normal(stream)
            if self.mixer == "softmax":
                q, k, v = (self._by_head(x @ matrix.T) for matrix in mixer[:3])
                tables.append((self.width // self.heads) ** -0.5 * (q @ k.mT) + sink * first)
                a = _attention(tables[b], anchors[b] if anchors else None)
                v = v * (1 + (massive - 1) * first.mT)
                stream = stream + self._joined(a @ v) @ mixer[3].T
            else:
                hidden = x @ mixer[0].T
                if self.mixer == "fixed":
                    hidden = self._joined(self.constant_weights() @ self._by_head(hidden))
                stream = stream + functional.relu(hidden) @ mixer[1].T
            stream = stream + functional.relu(self._normal(stream) @ up.T) @ down.T
        return self._normal(stream) @ read.T, tables

    def _normal(self, stream: Tensor) -> Tensor:
        """The stream of each token, shifted and scaled to mean 0 and variance 1."""
        return functional.layer_norm(stream, (self.width,))

    def _by_head(self, x: Tensor) -> Tensor:
        """(count, context, m) as (count, heads, context, m / heads)."""
        return x.reshape(*x.shape[:-1], self.heads, -1).transpose(-2, -3)

    def _joined(self, x: Tensor) -> Tensor:
        """The inverse of `_by_head`."""
        return x.transpose(-2, -3).flatten(-2)


def _cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    return functional.cross_entropy(logits.flatten(0, -2), targets.flatten())


def _attention(scores: Tensor, anchor: Tensor | None = None) -> Tensor:
    """Softmax over the past: a_ij = e^(s_ij) / Σ_{k ≤ i} e^(s_ik) for j ≤ i, else 0.

    With an anchor s⁰ its tangent instead, a_ij = a⁰_ij (1 + m_ij − Σ_k a⁰_ik m_ik), m = s − s⁰.
    """
    size = scores.shape[-1]
    future = torch.ones(size, size, dtype=torch.bool).triu(1)
    at = scores if anchor is None else anchor
    weights = torch.softmax(at.masked_fill(future, -torch.inf), -1)
    if anchor is None:
        return weights
    move = scores - anchor
    return weights * (1 + move - (weights * move).sum(-1, keepdim=True))
