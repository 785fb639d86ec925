"""Self-attention with one head on sequences of numbers, and its exact Hessian.

The layer of section 3.3 of "Cracking the Hessian" maps a sequence x (n,) to w_V A x with

    A = softmax(x ⟨w_Q, w_K⟩ xᵀ / √d_K + bias), row by row.

It reads w_Q and w_K only through c = ⟨w_Q, w_K⟩, so every loss is some φ(w_V, c), and its Hessian
is made of four numbers: α = φ_11, β = φ_12, γ = φ_2, ζ = φ_22 (a 1 stands for a derivative in w_V,
a 2 for one in c). `Curvature` turns them into the full spectrum: ±γ, d_K − 1 times each, and three
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


@dataclass(frozen=True)
class Curvature:
    """α = ∂²φ/∂w_V², β = ∂²φ/∂w_V∂c, γ = ∂φ/∂c, ζ = ∂²φ/∂c² of a loss φ(w_V, c), c = ⟨w_Q, w_K⟩.

    >>> Curvature(alpha=1, beta=0, gamma=0.5, zeta=2).spectrum([1, 0, 0], [0, 1, 0])
    Spectrum(4.06155 × 1, 1 × 1, 0.5 × 2, -0.0615528 × 1, -0.5 × 2)
    """

    alpha: float
    beta: float
    gamma: float
    zeta: float

    def __post_init__(self) -> None:
        for name in ("alpha", "beta", "gamma", "zeta"):
            number = float(real_array(name, getattr(self, name), ndim=0))
            object.__setattr__(self, name, number)

    @classmethod
    def mean(cls, curvatures: Sequence["Curvature"], weights: ArrayLike) -> "Curvature":
        """The curvature of Σ_b weights[b] φ_b: each of the four scalars is added up.

        >>> Curvature.mean([Curvature(1, 2, 3, 4), Curvature(3, 2, 1, 0)], [0.5, 0.5])
        Curvature(alpha=2.0, beta=2.0, gamma=2.0, zeta=2.0)
        """
        omega = real_array("weights", weights, ndim=1)
        if len(omega) != len(curvatures):
            raise ValueError(
                f"weights must have one number per curvature ({len(curvatures)}), got {len(omega)}"
            )
        rows = np.array([[c.alpha, c.beta, c.gamma, c.zeta] for c in curvatures])
        alpha, beta, gamma, zeta = omega @ rows.reshape(-1, 4)
        return cls(alpha, beta, gamma, zeta)

    def block(self, query: ArrayLike, key: ArrayLike) -> Array:
        """The Hessian on the three-dimensional space that holds the outliers, (3, 3).

        With P = |w_Q + w_K|/√2 and R = |w_Q − w_K|/√2 it is

            [[α, βP, βR], [βP, ζP² + γ, ζPR], [βR, ζPR, ζR² − γ]].

        >>> Curvature(1, 2, 3, 4).block([1], [1])
        array([[ 1.        ,  2.82842712,  0.        ],
               [ 2.82842712, 11.        ,  0.        ],
               [ 0.        ,  0.        , -3.        ]])
        """
        w_q, w_k = query_and_key(query, key)
        plus = float(np.linalg.norm(w_q + w_k)) / np.sqrt(2)
        minus = float(np.linalg.norm(w_q - w_k)) / np.sqrt(2)
        alpha, beta, gamma, zeta = self.alpha, self.beta, self.gamma, self.zeta
        return np.array(
            [
                [alpha, beta * plus, beta * minus],
                [beta * plus, zeta * plus**2 + gamma, zeta * plus * minus],
                [beta * minus, zeta * plus * minus, zeta * minus**2 - gamma],
            ]
        )

    def outliers(self, query: ArrayLike, key: ArrayLike) -> Array:
        """The three outlier eigenvalues of Theorem 3.5, descending, (3,).

        >>> Curvature(1, 0, 0.5, 2).outliers([0, 1], [1, 0]).round(4)
        array([ 4.0616,  1.    , -0.0616])
        """
        return np.array(np.linalg.eigvalsh(self.block(query, key))[::-1], dtype=np.float64)

    def spectrum(self, query: ArrayLike, key: ArrayLike) -> Spectrum:
        """All 2d_K + 1 eigenvalues: three labelled "outlier", and γ and −γ, labelled "bulk",
        d_K − 1 times each (Theorem 3.5).

        >>> Curvature(1, 0, 0.5, 2).spectrum([0, 1], [1, 0]).select("bulk")
        Spectrum(0.5 × 1, -0.5 × 1)
        """
        width = query_and_key(query, key)[0].size
        return with_bulk(self.outliers(query, key), self.gamma, width - 1)

    def hessian(self, query: ArrayLike, key: ArrayLike) -> Array:
        """The dense Hessian (2d_K + 1, 2d_K + 1) in the order (w_V, w_Q, w_K), appendix B.5.

        >>> Curvature(1, 2, 3, 4).hessian([1], [5])
        array([[  1.,  10.,   2.],
               [ 10., 100.,  23.],
               [  2.,  23.,   4.]])
        """
        w_q, w_k = query_and_key(query, key)
        width = w_q.size
        direction = np.concatenate([w_k, w_q])  # ∂c/∂(w_Q, w_K)
        swap = np.kron([[0.0, 1.0], [1.0, 0.0]], np.eye(width))  # ∂²c
        dense = np.empty((2 * width + 1, 2 * width + 1))
        dense[0, 0] = self.alpha
        dense[0, 1:] = dense[1:, 0] = self.beta * direction
        dense[1:, 1:] = self.zeta * np.outer(direction, direction) + self.gamma * swap
        return dense


def with_bulk(outliers: ArrayLike, gamma: float, copies: int) -> Spectrum:
    """The outliers together with γ and −γ, `copies` times each, labelled "outlier" and "bulk".

    >>> with_bulk([3.0], gamma=0.5, copies=2).labels
    ('outlier', 'bulk', 'bulk')
    """
    alone = Spectrum.from_values(outliers, "outlier")
    if copies == 0:
        return alone
    values, counts = np.array([gamma, -gamma]), np.array([copies, copies])
    return Spectrum.merge([alone, Spectrum(values, counts, ("bulk", "bulk"))])


def query_and_key(query: ArrayLike, key: ArrayLike) -> tuple[Array, Array]:
    """w_Q and w_K as float64 vectors (d_K,) of one length, at least one.

    >>> query_and_key([1, 2], [3, 4])
    (array([1., 2.]), array([3., 4.]))
    """
    w_q, w_k = real_array("query", query, ndim=1), real_array("key", key, ndim=1)
    if w_q.size == 0:
        raise ValueError("query must have at least one entry, got length 0")
    if w_k.size != w_q.size:
        raise ValueError(f"key must have length {w_q.size} to match query, got length {w_k.size}")
    return w_q, w_k


def mixing_curvature(
    value: float, mix: ArrayLike, first: ArrayLike, second: ArrayLike, target: ArrayLike
) -> Curvature:
    """The four scalars of 1/(2n) |w_V m(c) − y|² from `mix` m, `first` m', `second` m'' at c, (n,).

    With δ = w_V m − y they are α = |m|²/n, β = ⟨w_V m + δ, m'⟩/n, γ = w_V ⟨δ, m'⟩/n and
    ζ = (w_V² |m'|² + w_V ⟨δ, m''⟩)/n. Any rule that mixes the tokens with weights that depend on
    c alone fits: softmax is one of them.

    >>> mixing_curvature(2.0, [1.0], [3.0], [5.0], [1.0])
    Curvature(alpha=1.0, beta=9.0, gamma=6.0, zeta=46.0)
    """
    w_v = float(real_array("value", value, ndim=0))
    m, m_1 = real_array("mix", mix, ndim=1), real_array("first", first, ndim=1)
    m_2, y = real_array("second", second, ndim=1), real_array("target", target, ndim=1)
    if m.size == 0:
        raise ValueError("mix must have at least one entry, got length 0")
    for name, array in (("first", m_1), ("second", m_2), ("target", y)):
        if array.size != m.size:
            raise ValueError(
                f"{name} must have length {m.size} to match mix, got length {array.size}"
            )
    delta, n = w_v * m - y, m.size
    return Curvature(
        alpha=float(m @ m) / n,
        beta=float((w_v * m + delta) @ m_1) / n,
        gamma=w_v * float(delta @ m_1) / n,
        zeta=(w_v**2 * float(m_1 @ m_1) + w_v * float(delta @ m_2)) / n,
    )


def softmax_rows(scores: ArrayLike) -> Array:
    """Each row of `scores` (n, k) as a probability distribution; −∞ gets probability 0.

    >>> softmax_rows([[0.0, 0.0], [0.0, -np.inf]])
    array([[0.5, 0.5],
           [1. , 0. ]])
    """
    given = np.asarray(scores, dtype=np.float64)
    powers = np.exp(given - given.max(axis=-1, keepdims=True))
    rows: Array = powers / powers.sum(axis=-1, keepdims=True)
    return rows


def attention_moments(attention: ArrayLike, sequence: ArrayLike) -> tuple[Array, Array, Array]:
    """m_1, m_2, m_3 of Definition B.1, each (n,): the mean of `sequence` (k,) under each row of
    `attention` (n, k), and its second and third central moments.

    >>> attention_moments([[0.75, 0.25]], [0.0, 4.0])
    (array([1.]), array([3.]), array([6.]))
    """
    rows = real_array("attention", attention, ndim=2)
    x = real_array("sequence", sequence, ndim=1)
    if rows.shape[1] != x.size:
        raise ValueError(
            f"sequence must have length {rows.shape[1]} to match attention "
            f"({rows.shape[0]}×{rows.shape[1]}), got length {x.size}"
        )
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
        query, key = query_and_key(self.query, self.key)
        object.__setattr__(self, "query", query)
        object.__setattr__(self, "key", key)
        inputs = tuple(real_array(f"inputs[{b}]", x, ndim=1) for b, x in enumerate(self.inputs))
        targets = tuple(real_array(f"targets[{b}]", y, ndim=1) for b, y in enumerate(self.targets))
        if not inputs:
            raise ValueError("inputs must hold at least one sequence, got none")
        if len(targets) != len(inputs):
            raise ValueError(
                f"targets must hold {len(inputs)} sequences to match inputs, got {len(targets)}"
            )
        for b, (x, y) in enumerate(zip(inputs, targets, strict=True)):
            if x.size == 0:
                raise ValueError(f"inputs[{b}] must have at least one token, got length 0")
            if y.size != x.size:
                raise ValueError(
                    f"targets[{b}] must have length {x.size} to match inputs[{b}], "
                    f"got length {y.size}"
                )
        object.__setattr__(self, "inputs", inputs)
        object.__setattr__(self, "targets", targets)
        given = np.full(len(inputs), 1 / len(inputs)) if self.weights is None else self.weights
        weights = real_array("weights", given, ndim=1)
        if weights.size != len(inputs):
            raise ValueError(
                f"weights must have one number per sequence ({len(inputs)}), got {weights.size}"
            )
        if np.any(weights < 0):
            raise ValueError(f"weights must not be negative, got {weights.min()}")
        object.__setattr__(self, "weights", weights)
        rows = [np.zeros(x.size) for x in inputs] if self.biases is None else self.biases
        biases = tuple(real_array(f"biases[{b}]", row, ndim=None) for b, row in enumerate(rows))
        if len(biases) != len(inputs):
            raise ValueError(
                f"biases must hold {len(inputs)} arrays, one per sequence, got {len(biases)}"
            )
        for b, (bias, x) in enumerate(zip(biases, inputs, strict=True)):
            if bias.shape not in ((x.size,), (x.size, x.size)):
                raise ValueError(
                    f"biases[{b}] must have shape ({x.size},) or ({x.size}, {x.size}) "
                    f"to match inputs[{b}], got {bias.shape}"
                )
        object.__setattr__(self, "biases", biases)
        if not isinstance(self.causal, bool):
            raise TypeError(f"causal must be True or False, got {self.causal!r}")

    @property
    def product(self) -> float:
        """c = ⟨w_Q, w_K⟩."""
        return float(self.query @ self.key)

    @property
    def norm(self) -> float:
        """N = |w_Q|² + |w_K|²."""
        return float(self.query @ self.query + self.key @ self.key)

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

    def curvatures(self) -> tuple[Curvature, ...]:
        """The four scalars of each sequence, section 3.3: m = m_1, m' = x ⊙ m_2 / √d_K and
        m'' = x ⊙ x ⊙ m_3 / d_K.

        >>> ScalarAttention(2.0, [1, 0], [0, 1], [[1, 3]], [[4, 4]]).curvatures()[0].alpha
        4.0
        """
        width = self.query.size
        each = []
        for x, y, rows in zip(self.inputs, self.targets, self.attention(), strict=True):
            m_1, m_2, m_3 = attention_moments(rows, x)
            first, second = x * m_2 / np.sqrt(width), x**2 * m_3 / width
            each.append(mixing_curvature(self.value, m_1, first, second, y))
        return tuple(each)

    def curvature(self) -> Curvature:
        """The four scalars of the whole loss: the weighted sum over the sequences.

        >>> layer = ScalarAttention(2.0, [1, 0], [0, 1], [[1, 3], [6]], [[4, 4], [5]])
        >>> layer.curvature().alpha
        20.0
        """
        return Curvature.mean(self.curvatures(), self.weights)

    def gauss_newton_curvature(self) -> Curvature:
        """The four scalars of the Gauss–Newton part Jᵀ J: those at targets equal to the outputs.

        >>> layer = ScalarAttention(2.0, [1, 0], [0, 1], [[1, 3]], [[0, 0]])
        >>> layer.gauss_newton_curvature().gamma
        0.0
        """
        return replace(self, targets=self.outputs()).curvature()

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
        gamma = self.curvature().gamma
        return np.concatenate([[slope], gamma * self.key, gamma * self.query])

    def hessian(self) -> Array:
        """The dense Hessian, (2d_K + 1, 2d_K + 1).

        >>> ScalarAttention(2.0, [1], [0], [[1, 3]], [[4, 4]]).hessian().diagonal()
        array([ 4.,  0., 20.])
        """
        return self.curvature().hessian(self.query, self.key)

    def spectrum(self) -> Spectrum:
        """All 2d_K + 1 eigenvalues of the Hessian, labelled "outlier" and "bulk" (Theorem 3.5).

        >>> ScalarAttention(2.0, [1, 0], [0, 1], [[1, 3]], [[4, 6]]).spectrum().size
        5
        """
        return self.curvature().spectrum(self.query, self.key)

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
        extra = float(real_array("strength", strength, ndim=0))
        biases = [bias + extra * (np.arange(bias.shape[-1]) == 0) for bias in self.biases]
        return replace(self, biases=tuple(biases))
