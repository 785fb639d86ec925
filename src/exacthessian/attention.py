"""Self-attention with one head on sequences of numbers, and its exact Hessian.

The layer of section 3.3 of "Cracking the Hessian" maps a sequence x (n,) to w_V A x with

    A = softmax(x ⟨w_Q, w_K⟩ xᵀ / √d_K + bias), row by row.

It reads w_Q and w_K only through c = ⟨w_Q, w_K⟩, so every loss is some φ(w_V, c), and its Hessian
is made of four numbers: α = φ_11, β = φ_12, γ = φ_2, ζ = φ_22 (a 1 stands for a derivative in w_V,
a 2 for one in c). `Head` turns them into the full spectrum: ±γ, d_K − 1 times each, and three
outliers, the eigenvalues of a 3×3 matrix. `ScalarAttention` finds the four numbers for batches of
sequences of different lengths, with weights, additive biases and a causal mask.

Parameters are ordered (w_V, w_Q, w_K).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from exacthessian.inputs import Array, nonnegative_number, real_array
from exacthessian.spectrum import Spectrum


@dataclass(frozen=True, eq=False)
class Head:
    """A loss φ(w_V, c), c = ⟨w_Q, w_K⟩, at one point, to second order: α = ∂²φ/∂w_V²,
    β = ∂²φ/∂w_V∂c, γ = ∂φ/∂c, ζ = ∂²φ/∂c², and the weights `query` w_Q and `key` w_K, both (d_K,).

    >>> Head(alpha=1, beta=0, gamma=0.5, zeta=2, query=[1, 0, 0], key=[0, 1, 0]).spectrum()
    Spectrum(4.06155 × 1, 1 × 1, 0.5 × 2, -0.0615528 × 1, -0.5 × 2)
    """

    alpha: float
    beta: float
    gamma: float
    zeta: float
    query: Array
    key: Array

    def __post_init__(self) -> None:
        query, key = _query_and_key(self.query, self.key)
        object.__setattr__(self, "query", query)
        object.__setattr__(self, "key", key)

    @classmethod
    def mixing(
        cls,
        value: float,
        moments: Sequence[ArrayLike],
        target: ArrayLike,
        query: ArrayLike,
        key: ArrayLike,
    ) -> "Head":
        """The head with loss 1/(2n) |w_V m(c) − y|², from m, m', m'' at c, (n,) each.

        With δ = w_V m − y the scalars are α = |m|²/n, β = ⟨w_V m + δ, m'⟩/n, γ = w_V ⟨δ, m'⟩/n and
        ζ = (w_V² |m'|² + w_V ⟨δ, m''⟩)/n. Any rule that mixes the tokens with weights that depend
        on c alone fits: softmax is one of them.

        >>> head = Head.mixing(2.0, ([1.0], [3.0], [5.0]), [1.0], [1.0], [1.0])
        >>> head.alpha, head.beta, head.gamma, head.zeta
        (1.0, 9.0, 6.0, 46.0)
        """
        m, first, second = (np.asarray(moment, dtype=float) for moment in moments)
        delta, n = value * m - np.asarray(target, dtype=float), m.size
        return cls(
            alpha=float(m @ m) / n,
            beta=float((value * m + delta) @ first) / n,
            gamma=value * float(delta @ first) / n,
            zeta=(value**2 * float(first @ first) + value * float(delta @ second)) / n,
            query=np.asarray(query),
            key=np.asarray(key),
        )

    @property
    def product(self) -> float:
        """c = ⟨w_Q, w_K⟩."""
        return float(self.query @ self.key)

    @property
    def norm(self) -> float:
        """N = |w_Q|² + |w_K|²."""
        return float(self.query @ self.query + self.key @ self.key)

    def head(self) -> "Head":
        """This head: what has a head can be asked for it, a `ScalarAttention` too."""
        return self

    def block(self) -> Array:
        """The Hessian on the three-dimensional space that holds the outliers, (3, 3).

        With P = |w_Q + w_K|/√2 and R = |w_Q − w_K|/√2 it is

            [[α, βP, βR], [βP, ζP² + γ, ζPR], [βR, ζPR, ζR² − γ]].

        >>> Head(1, 2, 3, 4, [1], [1]).block()
        array([[ 1.        ,  2.82842712,  0.        ],
               [ 2.82842712, 11.        ,  0.        ],
               [ 0.        ,  0.        , -3.        ]])
        """
        plus = float(np.linalg.norm(self.query + self.key)) / np.sqrt(2)
        minus = float(np.linalg.norm(self.query - self.key)) / np.sqrt(2)
        alpha, beta, gamma, zeta = self.alpha, self.beta, self.gamma, self.zeta
        return np.array(
            [
                [alpha, beta * plus, beta * minus],
                [beta * plus, zeta * plus**2 + gamma, zeta * plus * minus],
                [beta * minus, zeta * plus * minus, zeta * minus**2 - gamma],
            ]
        )

    def outliers(self) -> Array:
        """The three outlier eigenvalues of Theorem 3.5, descending, (3,).

        >>> Head(1, 0, 0.5, 2, [0, 1], [1, 0]).outliers().round(4)
        array([ 4.0616,  1.    , -0.0616])
        """
        return np.asarray(np.linalg.eigvalsh(self.block())[::-1])

    def spectrum(self) -> Spectrum:
        """All 2d_K + 1 eigenvalues: three labelled "outlier", and γ and −γ, labelled "bulk",
        d_K − 1 times each (Theorem 3.5).

        >>> Head(1, 0, 0.5, 2, [0, 1], [1, 0]).spectrum().select("bulk")
        Spectrum(0.5 × 1, -0.5 × 1)
        """
        copies = len(self.query) - 1
        bulk = ((sign * self.gamma, copies, "bulk") for sign in (1, -1))
        return Spectrum.of(*((value, 1, "outlier") for value in self.outliers()), *bulk)

    def hessian(self) -> Array:
        """The dense Hessian (2d_K + 1, 2d_K + 1) in the order (w_V, w_Q, w_K), appendix B.5.

        >>> Head(1, 2, 3, 4, [1], [5]).hessian()
        array([[  1.,  10.,   2.],
               [ 10., 100.,  23.],
               [  2.,  23.,   4.]])
        """
        width = len(self.query)
        direction = np.concatenate([self.key, self.query])  # ∂c/∂(w_Q, w_K)
        swap = np.kron([[0.0, 1.0], [1.0, 0.0]], np.eye(width))  # ∂²c
        dense = np.empty((2 * width + 1, 2 * width + 1))
        dense[0, 0] = self.alpha
        dense[0, 1:] = dense[1:, 0] = self.beta * direction
        dense[1:, 1:] = self.zeta * np.outer(direction, direction) + self.gamma * swap
        return dense


def softmax_rows(scores: ArrayLike) -> Array:
    """Each row of `scores` (n, k) as a probability distribution; −∞ gets probability 0.

    >>> softmax_rows([[0.0, 0.0], [0.0, -np.inf]])
    array([[0.5, 0.5],
           [1. , 0. ]])
    """
    given = np.asarray(scores, dtype=np.float64)
    powers = np.exp(given - given.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


def attention_moments(attention: ArrayLike, sequence: ArrayLike) -> tuple[Array, Array, Array]:
    """m_1, m_2, m_3 of Definition B.1, each (n,): the mean of `sequence` (k,) under each row of
    `attention` (n, k), and its second and third central moments.

    >>> attention_moments([[0.75, 0.25]], [0.0, 4.0])
    (array([1.]), array([3.]), array([6.]))
    """
    rows, x = np.asarray(attention, dtype=float), np.asarray(sequence, dtype=float)
    mean = rows @ x
    deviation = x - mean[:, None]
    return mean, np.sum(rows * deviation**2, axis=1), np.sum(rows * deviation**3, axis=1)


@dataclass(frozen=True, eq=False)
class ScalarAttention:
    """The loss Σ_b ω_b/(2n_b) |w_V A_b x_b − y_b|² of one attention head on B sequences of numbers.

    `value` is w_V; `query` and `key` are w_Q, w_K (d_K,); `inputs` and `targets` hold x_b and y_b
    (n_b,), lengths may differ; `weights` are the ω_b ≥ 0 (B,), by default 1/B each; `biases` are
    added to the scores of each sequence, (n_b,) for the same row everywhere or (n_b, n_b); with
    `causal` token i attends only to tokens j ≤ i.

    >>> layer = ScalarAttention(1.0, [1, 0], [0, 1], [[1, 3]], [[2, 4]])
    >>> layer.loss()
    1.0
    >>> layer.spectrum()
    Spectrum(6.18518 × 1, 3.61897 × 1, 2.12132 × 1, -0.804147 × 1, -2.12132 × 1)
    """

    value: float
    query: Array
    key: Array
    inputs: tuple[Array, ...]
    targets: tuple[Array, ...]
    weights: Array = None  # type: ignore[assignment]  # 1/B each
    biases: tuple[Array, ...] = None  # type: ignore[assignment]  # zeros
    causal: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "value", float(real_array("value", self.value, ndim=0)))
        query, key = _query_and_key(self.query, self.key)
        inputs = tuple(real_array(f"inputs[{b}]", x, ndim=1) for b, x in enumerate(self.inputs))
        targets = tuple(real_array(f"targets[{b}]", y, ndim=1) for b, y in enumerate(self.targets))
        lengths = [x.size for x in inputs]
        if not inputs or min(lengths) == 0 or [y.size for y in targets] != lengths:
            raise ValueError(
                "inputs and targets must hold at least one sequence, of the same lengths, at least "
                f"1, got lengths {lengths} and {[y.size for y in targets]}"
            )
        given = np.full(len(inputs), 1 / len(inputs)) if self.weights is None else self.weights
        weights = real_array("weights", given, ndim=1)
        if weights.size != len(inputs) or np.any(weights < 0):
            raise ValueError(
                f"weights must be {len(inputs)} numbers, one per sequence, none negative, "
                f"got {weights}"
            )
        rows = [np.zeros(n) for n in lengths] if self.biases is None else self.biases
        biases = tuple(real_array(f"biases[{b}]", row, ndim=None) for b, row in enumerate(rows))
        if len(biases) != len(inputs) or any(
            bias.shape not in ((n,), (n, n)) for bias, n in zip(biases, lengths, strict=True)
        ):
            raise ValueError(
                f"biases must have shapes (n,) or (n, n) for the lengths n = {lengths}, "
                f"got {[bias.shape for bias in biases]}"
            )
        for name, made in (
            *(("query", query), ("key", key), ("inputs", inputs), ("targets", targets)),
            *(("weights", weights), ("biases", biases)),
        ):
            object.__setattr__(self, name, made)

    @property
    def product(self) -> float:
        """c = ⟨w_Q, w_K⟩."""
        return float(self.query @ self.key)

    def attention(self) -> tuple[Array, ...]:
        """The attention matrices A_b, each (n_b, n_b).

        >>> ScalarAttention(1.0, [0], [0], [[1, 3]], [[2, 4]], causal=True).attention()[0]
        array([[1. , 0. ],
               [0.5, 0.5]])
        """
        matrices = []
        for x, bias in zip(self.inputs, self.biases, strict=True):
            scores = self.product / np.sqrt(self.query.size) * np.outer(x, x) + bias
            if self.causal:
                scores[np.triu_indices(x.size, 1)] = -np.inf
            matrices.append(softmax_rows(scores))
        return tuple(matrices)

    def heads(self) -> tuple[Head, ...]:
        """The four scalars of each sequence, section 3.3: m = m_1, m' = x ⊙ m_2 / √d_K and
        m'' = x ⊙ x ⊙ m_3 / d_K.

        >>> ScalarAttention(2.0, [1, 0], [0, 1], [[1, 3]], [[4, 4]]).heads()[0].alpha
        4.0
        """
        width, each = self.query.size, []
        for x, y, rows in zip(self.inputs, self.targets, self.attention(), strict=True):
            m_1, m_2, m_3 = attention_moments(rows, x)
            moments = m_1, x * m_2 / np.sqrt(width), x**2 * m_3 / width
            each.append(Head.mixing(self.value, moments, y, self.query, self.key))
        return tuple(each)

    def head(self) -> Head:
        """The four scalars of the whole loss: the weighted sums over the sequences.

        >>> layer = ScalarAttention(2.0, [1, 0], [0, 1], [[1, 3], [6]], [[4, 4], [5]])
        >>> layer.head().alpha
        20.0
        """
        rows = np.array([[h.alpha, h.beta, h.gamma, h.zeta] for h in self.heads()])
        alpha, beta, gamma, zeta = (float(number) for number in self.weights @ rows)
        return Head(alpha, beta, gamma, zeta, self.query, self.key)

    def gauss_newton(self) -> Head:
        """The four scalars of the Gauss–Newton part JᵀJ: those at targets equal to the outputs.

        >>> ScalarAttention(2.0, [1, 0], [0, 1], [[1, 3]], [[0, 0]]).gauss_newton().gamma
        0.0
        """
        return replace(self, targets=self.outputs()).head()

    def outputs(self) -> tuple[Array, ...]:
        """w_V A_b x_b for each sequence, (n_b,).

        >>> ScalarAttention(2.0, [1, 0], [0, 1], [[1, 3]], [[4, 4]]).outputs()
        (array([4., 4.]),)
        """
        pairs = zip(self.attention(), self.inputs, strict=True)
        return tuple(self.value * attention_moments(rows, x)[0] for rows, x in pairs)

    def loss(self) -> float:
        """Σ_b ω_b/(2n_b) |w_V A_b x_b − y_b|².

        >>> ScalarAttention(2.0, [1, 0], [0, 1], [[1, 3]], [[4, 6]]).loss()
        1.0
        """
        terms = zip(self.weights, self.outputs(), self.targets, strict=True)
        return float(sum(w * np.mean((f - y) ** 2) / 2 for w, f, y in terms))

    def gradient(self) -> Array:
        """The gradient (φ_1, γ w_K, γ w_Q), (2d_K + 1,).

        >>> ScalarAttention(2.0, [1], [0], [[1, 3]], [[4, 2]]).gradient() + 0.0
        array([2., 0., 6.])
        """
        slope = 0.0
        for w, rows, x, y in zip(
            self.weights, self.attention(), self.inputs, self.targets, strict=True
        ):
            mean = attention_moments(rows, x)[0]
            slope += float(w * np.mean((self.value * mean - y) * mean))
        gamma = self.head().gamma
        return np.concatenate([[slope], gamma * self.key, gamma * self.query])

    def hessian(self) -> Array:
        """The dense Hessian, (2d_K + 1, 2d_K + 1).

        >>> ScalarAttention(2.0, [1], [0], [[1, 3]], [[4, 4]]).hessian().diagonal()
        array([ 4.,  0., 20.])
        """
        return self.head().hessian()

    def spectrum(self) -> Spectrum:
        """All 2d_K + 1 eigenvalues of the Hessian, labelled "outlier" and "bulk" (Theorem 3.5).

        >>> ScalarAttention(2.0, [1, 0], [0, 1], [[1, 3]], [[4, 6]]).spectrum().size
        5
        """
        return self.head().spectrum()

    def sharpness(self) -> float:
        """The largest eigenvalue of the Hessian.

        >>> round(ScalarAttention(2.0, [1], [0], [[1, 3]], [[4, 4]]).sharpness(), 6)
        23.313708
        """
        return float(self.spectrum().values.max())

    def step(self, eta: float) -> "ScalarAttention":
        """One step of gradient descent with learning rate `eta`.

        >>> ScalarAttention(2.0, [1, 0], [0, 1], [[1, 3]], [[4, 6]]).step(0.1).value
        2.2
        """
        move = nonnegative_number("eta", eta) * self.gradient()
        value, query, key = np.split(move, [1, 1 + self.query.size])
        return replace(
            self, value=self.value - value[0], query=self.query - query, key=self.key - key
        )

    def with_sink(self, strength: float) -> "ScalarAttention":
        """The layer with `strength` added to every score of the first token: an attention sink.

        >>> layer = ScalarAttention(1.0, [0], [0], [[1, 3]], [[2, 4]])
        >>> layer.with_sink(50.0).outputs()[0].round(6)
        array([1., 1.])
        """
        biases = [bias + strength * (np.arange(bias.shape[-1]) == 0) for bias in self.biases]
        return replace(self, biases=tuple(biases))


def _query_and_key(query: ArrayLike, key: ArrayLike) -> tuple[Array, Array]:
    w_q, w_k = real_array("query", query, ndim=1), real_array("key", key, ndim=1)
    if w_q.size == 0 or w_k.size != w_q.size:
        raise ValueError(
            f"query and key must have one length, at least 1, got {w_q.size} and {w_k.size}"
        )
    return w_q, w_k
