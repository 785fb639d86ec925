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

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from exacthessian import inputs as given
from exacthessian.inputs import (
    Array,
    equal_vectors,
    guard,
    real_array,
    real_arrays,
    require,
    settle,
)
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
        query, key = equal_vectors(query=self.query, key=self.key)
        settle(self, query=query, key=key)

    @classmethod
    def mixing(
        cls, value: float, moments: ArrayLike, target: ArrayLike, query: Array, key: Array
    ) -> "Head":
        """The head with loss 1/(2n) |w_V m(c) − y|², from m, m', m'' at c, (3, n).

        With δ = w_V m − y the scalars are α = |m|²/n, β = ⟨w_V m + δ, m'⟩/n, γ = w_V ⟨δ, m'⟩/n and
        ζ = (w_V² |m'|² + w_V ⟨δ, m''⟩)/n. Any rule that mixes the tokens with weights that depend
        on c alone fits: softmax is one of them.

        >>> head = Head.mixing(2.0, [[1.0], [3.0], [5.0]], [1.0], [1.0], [1.0])
        >>> head.alpha, head.beta, head.gamma, head.zeta
        (1.0, 9.0, 6.0, 46.0)
        """
        m, first, second = np.asarray(moments, dtype=float)
        delta, n = value * m - np.asarray(target, dtype=float), m.size
        beta, gamma = float((value * m + delta) @ first) / n, value * float(delta @ first) / n
        zeta = (value**2 * float(first @ first) + value * float(delta @ second)) / n
        return cls(float(m @ m) / n, beta, gamma, zeta, query, key)

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
        """The Hessian on the three-dimensional space that holds the outliers, (3, 3): `matrix` with
        P = |w_Q + w_K|/√2 and R = |w_Q − w_K|/√2.

        >>> Head(1, 2, 3, 4, [1], [1]).block()
        array([[ 1.        ,  2.82842712,  0.        ],
               [ 2.82842712, 11.        ,  0.        ],
               [ 0.        ,  0.        , -3.        ]])
        """
        p, r = np.linalg.norm([self.query + self.key, self.query - self.key], axis=1) / np.sqrt(2)
        return self.matrix(self.alpha, self.beta, self.gamma, self.zeta, p, r)

    @staticmethod
    def matrix(*scalars: ArrayLike) -> Array:
        """[[α, βP, βR], [βP, ζP² + γ, ζPR], [βR, ζPR, ζR² − γ]] from α, β, γ, ζ, P, R, numbers or
        arrays of one shape: (…, 3, 3).

        >>> Head.matrix(1, 0, 1, 0, 2, 2).diagonal()
        array([ 1.,  1., -1.])
        """
        a, b, g, z, p, r = np.broadcast_arrays(*scalars)
        rows = [
            [a, b * p, b * r],
            [b * p, z * p**2 + g, z * p * r],
            [b * r, z * p * r, z * r**2 - g],
        ]
        return np.moveaxis(np.array(rows, dtype=float), (0, 1), (-2, -1))

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
        query, key = equal_vectors(query=self.query, key=self.key)
        inputs = real_arrays("inputs", self.inputs, ndim=1)
        targets = real_arrays("targets", self.targets, ndim=1)
        count, lengths, others = len(inputs), [len(x) for x in inputs], [len(y) for y in targets]
        expected = "inputs and targets must have the same lengths, at least 1"
        require(min(lengths) > 0 and lengths == others, expected, f"{lengths} and {others}")
        equal = np.full(count, 1 / count)
        weights = real_array("weights", equal if self.weights is None else self.weights, ndim=1)
        fit = len(weights) == count and np.all(weights >= 0)
        require(fit, f"weights must be {count} numbers, one per sequence, none negative", weights)
        rows = [np.zeros(n) for n in lengths] if self.biases is None else self.biases
        biases = real_arrays("biases", rows, ndim=None)
        shapes, square = [bias.shape for bias in biases], [((n,), (n, n)) for n in lengths]
        fits = len(shapes) == count and all(s in ok for s, ok in zip(shapes, square, strict=True))
        require(fits, f"biases must be (n,) or (n, n) for the lengths n = {lengths}", shapes)
        value = float(real_array("value", self.value, ndim=0))
        settle(self, value=value, query=query, key=key, inputs=inputs, targets=targets)
        settle(self, weights=weights, biases=biases)

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
            powers = np.exp(scores - scores.max(axis=1, keepdims=True))
            matrices.append(powers / powers.sum(axis=1, keepdims=True))
        return tuple(matrices)

    def moments(self) -> tuple[Array, ...]:
        """m_1, m_2, m_3 of Definition B.1 for each sequence, (3, n_b): the mean of x_b under each
        row of A_b, and its second and third central moments.

        >>> ScalarAttention(1.0, [0], [0], [[0, 4]], [[2, 4]], biases=[[np.log(3), 0]]).moments()
        (array([[1., 1.],
               [3., 3.],
               [6., 6.]]),)
        """
        found = []
        for x, rows in zip(self.inputs, self.attention(), strict=True):
            mean = rows @ x
            deviation = x - mean[:, None]
            central = [np.sum(rows * deviation**power, axis=1) for power in (2, 3)]
            found.append(np.array([mean, *central]))
        return tuple(found)

    def heads(self) -> tuple[Head, ...]:
        """The four scalars of each sequence, section 3.3: m = m_1, m' = x ⊙ m_2 / √d_K and
        m'' = x ⊙ x ⊙ m_3 / d_K.

        >>> ScalarAttention(2.0, [1, 0], [0, 1], [[1, 3]], [[4, 4]]).heads()[0].alpha
        4.0
        """
        each = []
        for x, y, moments in zip(self.inputs, self.targets, self.moments(), strict=True):
            rate = x / np.sqrt(self.query.size)
            derivatives = moments * np.array([np.ones_like(x), rate, rate**2])
            each.append(Head.mixing(self.value, derivatives, y, self.query, self.key))
        return tuple(each)

    def head(self) -> Head:
        """The four scalars of the whole loss: the weighted sums over the sequences.

        >>> layer = ScalarAttention(2.0, [1, 0], [0, 1], [[1, 3], [6]], [[4, 4], [5]])
        >>> layer.head().alpha
        20.0
        """
        rows = np.array([[h.alpha, h.beta, h.gamma, h.zeta] for h in self.heads()])
        alpha, beta, gamma, zeta = (self.weights @ rows).tolist()
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
        return tuple(self.value * moments[0] for moments in self.moments())

    def loss(self) -> float:
        """Σ_b ω_b/(2n_b) |w_V A_b x_b − y_b|².

        >>> ScalarAttention(2.0, [1, 0], [0, 1], [[1, 3]], [[4, 6]]).loss()
        1.0
        """
        pairs = zip(self.outputs(), self.targets, strict=True)
        return float(self.weights @ [np.mean((f - y) ** 2) / 2 for f, y in pairs])

    def gradient(self) -> Array:
        """The gradient (φ_1, γ w_K, γ w_Q), (2d_K + 1,).

        >>> ScalarAttention(2.0, [1], [0], [[1, 3]], [[4, 2]]).gradient() + 0.0
        array([2., 0., 6.])
        """
        pairs = zip(self.moments(), self.targets, strict=True)
        slope = self.weights @ [np.mean((self.value * m[0] - y) * m[0]) for m, y in pairs]
        gamma = self.head().gamma
        return np.concatenate([[slope], gamma * self.key, gamma * self.query])

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
        theta = given.stepped(np.array([self.value, *self.query, *self.key]), eta, self.gradient())
        query, key = np.split(theta[1:], 2)
        return replace(self, value=theta[0], query=query, key=key)

    def with_sink(self, strength: float) -> "ScalarAttention":
        """The layer with `strength` added to every score of the first token: an attention sink.

        >>> layer = ScalarAttention(1.0, [0], [0], [[1, 3]], [[2, 4]])
        >>> layer.with_sink(50.0).outputs()[0].round(6)
        array([1., 1.])
        """
        biases = [bias + strength * (np.arange(bias.shape[-1]) == 0) for bias in self.biases]
        return replace(self, biases=tuple(biases))


guard(globals())
