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

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse.linalg import LinearOperator
from torch import Tensor
from torch.nn import functional

from exacthessian.autograd.oracle import gauss_newton_operator, hessian_operator
from exacthessian.inputs import whole_number

ALPHABET = " ,.abcdefghijklmnopqrstuvwxyz"
MIXERS = ("softmax", "mlp", "fixed")


def primer() -> str:
    """The text that comes with the package: plain English about curvature, written for the book.

    >>> primer()[:29]
    'A vector is a list of numbers'
    """
    return files("exacthessian").joinpath("data", "primer.txt").read_text(encoding="utf-8")


def encode(text: str) -> NDArray[np.int64]:
    """A text as the numbers 0..28 of its lower-case letters, commas, full stops and spaces, (n,).

    Whatever else there is, and any run of spaces, becomes one space.

    >>> "".join(ALPHABET[code] for code in encode("Is 2 x 2\\n= 4? Yes."))
    'is x yes.'
    """
    plain = "".join(letter if letter in ALPHABET else " " for letter in text.lower())
    return np.array([ALPHABET.index(letter) for letter in " ".join(plain.split())], dtype=np.int64)


def windows(
    codes: NDArray[np.int64], context: int, count: int, rng: np.random.Generator
) -> tuple[Tensor, Tensor]:
    """`count` random windows of a text (n,), and the same windows one place later, to be predicted.

    Both are int64 tensors of shape (count, context).

    >>> inputs, targets = windows(encode("abcd"), context=3, count=1, rng=np.random.default_rng(0))
    >>> inputs, targets
    (tensor([[3, 4, 5]]), tensor([[4, 5, 6]]))
    """
    if len(codes) <= context:
        raise ValueError(
            f"codes must hold at least {context + 1} characters, one more than the context, "
            f"got {len(codes)}"
        )
    first = rng.integers(0, len(codes) - context, size=count)
    taken = torch.from_numpy(codes[first[:, None] + np.arange(context + 1)])
    return taken[:, :-1], taken[:, 1:]


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
        return [
            torch.from_numpy(scale / np.sqrt(shape[1]) * rng.standard_normal(shape))
            for scale, shape in zip(scales, self.shapes, strict=True)
        ]

    def logits(
        self,
        weights: Sequence[Tensor],
        inputs: Tensor,
        sink: float = 0.0,
        massive: float = 1.0,
        anchors: Sequence[Tensor] | None = None,
    ) -> Tensor:
        """The prediction for each next character, (count, context, 29), of inputs (count, context).

        `sink` is added to the score of the first token in the first head of every block, and its
        value there is multiplied by `massive`. `anchors`
        are the scores of some weights, one tensor per block: softmax is then replaced by its
        tangent there, which agrees with it at the anchors to first order and has no curvature.

        >>> net = Transformer("fixed", context=3)
        >>> net.logits(net.start(np.random.default_rng(0)), torch.tensor([[3, 4, 5]])).shape
        torch.Size([1, 3, 29])
        """
        return self._forward(weights, inputs, sink, massive, anchors)[0]

    def scores(
        self, weights: Sequence[Tensor], inputs: Tensor, sink: float = 0.0, massive: float = 1.0
    ) -> list[Tensor]:
        """What softmax is applied to, one tensor (count, heads, context, context) per block.

        Row i holds the scores that token i gives to all tokens; those of the future are not used.

        >>> net = Transformer("softmax", context=3)
        >>> tables = net.scores(net.start(np.random.default_rng(0)), torch.tensor([[3, 4, 5]]))
        >>> len(tables), tables[0].shape
        (2, torch.Size([1, 2, 3, 3]))
        """
        return self._forward(weights, inputs, sink, massive, None)[1]

    def attention_on_first(
        self, weights: Sequence[Tensor], inputs: Tensor, sink: float = 0.0
    ) -> float:
        """The attention weight of the first token in the first head, averaged over everything else.

        >>> net = Transformer("softmax")
        >>> weights, inputs = net.start(np.random.default_rng(0)), torch.zeros(1, 32).long()
        >>> round(net.attention_on_first(weights, inputs, sink=100.0), 6)
        1.0
        """
        tables = [_attention(table, None) for table in self.scores(weights, inputs, sink)]
        return float(torch.stack(tables)[:, :, 0, :, 0].mean())

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
        return _attention(-rate * (place[:, None] - place), None)

    def _forward(
        self,
        weights: Sequence[Tensor],
        inputs: Tensor,
        sink: float,
        massive: float,
        anchors: Sequence[Tensor] | None,
    ) -> tuple[Tensor, list[Tensor]]:
        """The logits, and the scores met on the way."""
        self._check(weights, inputs)
        token, position, *inner, read = weights
        per_block = len(inner) // self.blocks
        stream = token[inputs] + position
        tables: list[Tensor] = []
        for b in range(self.blocks):
            *mixer, up, down = inner[b * per_block : (b + 1) * per_block]
            x = self._normal(stream)
            if self.mixer == "softmax":
                query, key, value, out = mixer
                tables.append(self._score(x @ query.T, x @ key.T, sink))
                a = _attention(tables[b], None if anchors is None else anchors[b])
                values = self._by_head(x @ value.T) * self._size_of_values(massive)
                stream = stream + self._joined(a @ values) @ out.T
            else:
                hidden = x @ mixer[0].T
                if self.mixer == "fixed":
                    hidden = self._joined(self.constant_weights() @ self._by_head(hidden))
                stream = stream + functional.relu(hidden) @ mixer[1].T
            stream = stream + functional.relu(self._normal(stream) @ up.T) @ down.T
        return self._normal(stream) @ read.T, tables

    def _score(self, queries: Tensor, keys: Tensor, sink: float) -> Tensor:
        """⟨q_i, k_j⟩ / √(width of a head), plus the sink for j = 0 in head 0."""
        q, k = self._by_head(queries), self._by_head(keys)
        first = torch.zeros(self.heads, 1, self.context, dtype=torch.float64)
        first[0, 0, 0] = sink
        scale: float = (self.width // self.heads) ** -0.5
        return scale * (q @ k.transpose(-1, -2)) + first

    def _size_of_values(self, massive: float) -> Tensor:
        """What the value of each token is multiplied by: `massive` for the first one in head 0."""
        sizes = torch.ones(self.heads, self.context, 1, dtype=torch.float64)
        sizes[0, 0] = massive
        return sizes

    def _normal(self, stream: Tensor) -> Tensor:
        """The stream of each token, shifted and scaled to mean 0 and variance 1."""
        return functional.layer_norm(stream, (self.width,))

    def _by_head(self, x: Tensor) -> Tensor:
        """(count, context, m) as (count, heads, context, m / heads)."""
        return x.reshape(*x.shape[:-1], self.heads, -1).transpose(-2, -3)

    def _joined(self, x: Tensor) -> Tensor:
        """The inverse of `_by_head`."""
        return x.transpose(-2, -3).flatten(-2)

    def _check(self, weights: Sequence[Tensor], inputs: Tensor) -> None:
        given = [tuple(weight.shape) for weight in weights]
        if given != self.shapes:
            raise ValueError(f"weights must have the shapes {self.shapes}, got {given}")
        if inputs.ndim != 2 or inputs.shape[1] != self.context:
            raise ValueError(
                f"inputs must have shape (count, {self.context}), got {tuple(inputs.shape)}"
            )


def cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    """The loss, −log of the probability given to the right character, averaged over all tokens.

    >>> round(cross_entropy(torch.zeros(1, 3, 29), torch.tensor([[0, 1, 2]])).exp().item(), 4)
    29.0
    """
    return functional.cross_entropy(logits.flatten(0, -2), targets.flatten())


def residual_norm(logits: Tensor, targets: Tensor) -> float:
    """The mean over all tokens of ‖p − e_y‖, p the predicted probabilities and y the right one.

    p − e_y is the derivative of a token's loss with respect to its logits.

    >>> round(residual_norm(torch.zeros(1, 3, 2), torch.tensor([[0, 1, 1]])), 6)
    0.707107
    """
    right = functional.one_hot(targets, logits.shape[-1])
    return float((torch.softmax(logits, -1) - right).norm(dim=-1).mean())


def train(
    net: Transformer,
    weights: Sequence[Tensor],
    codes: NDArray[np.int64],
    checkpoints: Sequence[int],
    rng: np.random.Generator,
    batch: int = 16,
    rate: float = 3e-3,
) -> list[list[Tensor]]:
    """The weights after each number of steps in `checkpoints`, which ascend.

    A step is Adam's, at learning rate `rate`, on the loss of `batch` random windows of the text.

    >>> net = Transformer("mlp", width=4, blocks=1, context=4)
    >>> rng, codes = np.random.default_rng(0), encode(primer())
    >>> kept = train(net, net.start(rng), codes, [0, 60], rng)
    >>> inputs, targets = windows(codes, net.context, 8, rng)
    >>> before, after = (cross_entropy(net.logits(w, inputs), targets) for w in kept)
    >>> bool(after < before)
    True
    """
    steps = [0, *checkpoints]
    moving = [weight.detach().clone().requires_grad_() for weight in weights]
    adam = torch.optim.Adam(moving, lr=rate)
    kept = []
    for early, late in pairwise(steps):
        for _ in range(late - early):
            inputs, targets = windows(codes, net.context, batch, rng)
            adam.zero_grad()
            torch.autograd.backward(cross_entropy(net.logits(moving, inputs), targets))
            adam.step()
        kept.append([weight.detach().clone() for weight in moving])
    return kept


def curvature(
    net: Transformer,
    weights: Sequence[Tensor],
    inputs: Tensor,
    targets: Tensor,
    sink: float = 0.0,
    massive: float = 1.0,
    tangent: bool = False,
) -> tuple[LinearOperator, LinearOperator]:
    """The Hessian and the Gauss–Newton matrix of the loss at these weights, as operators.

    With `tangent` softmax is replaced by its tangent at these weights: every first derivative
    stays, so the Gauss–Newton matrix does, and the Hessian loses exactly the terms that contain
    the second derivative of softmax.

    >>> net, rng = Transformer("mlp", width=4, blocks=1, context=4), np.random.default_rng(0)
    >>> batch = windows(encode(primer()), net.context, 2, rng)
    >>> hessian, gauss_newton = curvature(net, net.start(rng), *batch)
    >>> hessian.shape == gauss_newton.shape == (net.size, net.size)
    True
    """
    anchors = net.scores(weights, inputs, sink, massive) if tangent else None

    def model(moved: list[Tensor]) -> Tensor:
        return net.logits(moved, inputs, sink, massive, anchors)

    def loss(logits: Tensor) -> Tensor:
        return cross_entropy(logits, targets)

    return (
        hessian_operator(lambda moved: loss(model(moved)), weights),
        gauss_newton_operator(model, loss, weights),
    )


def _attention(scores: Tensor, anchor: Tensor | None) -> Tensor:
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
