"""The deep linear unconstrained feature model with cross-entropy, and its collapsed points.

The features H_1 (d, Kn) and the weights W_1..W_{L−1} (d, d), W_L (K, d) are all free. The loss is
the mean cross-entropy of the logits Z = W_L ⋯ W_1 H_1 plus ½λ of the squared norm of everything.
At collapse Z = α S ⊗ 1_nᵀ with S = I − 1 1ᵀ/K, and all factors share the singular value t, K−1
times. Throughout

    s_c is column c of S,  Γ = K − 1 + e^α,  p = e^α/Γ is the probability of the right class,
    τ = p − 1/Γ is its margin,  t = (α√n)^{1/(L+1)},  N = L + 1 is the number of factors, k = K − 1.
"""

from dataclasses import dataclass
from functools import reduce
from operator import matmul

import numpy as np
from scipy.optimize import brentq
from scipy.special import log_softmax

from exacthessian.inputs import Array, nonnegative_number, whole_number
from exacthessian.spectrum import Spectrum
from exacthessian.ufm import Layer, Point

ROUNDING = 4 * float(np.finfo(np.float64).eps)


@dataclass(frozen=True, eq=False)
class CrossEntropyUFM(Point):
    """Any point of the model: H_1, W_1, …, W_L (`weights`) and λ (`ridge`).

    >>> point = CrossEntropyUFM([[[0.0, 0.0]], [[1.0], [1.0]]], ridge=1.0)
    >>> bool(abs(point.loss() - np.log(2) - 1) < 1e-15)
    True
    """

    @property
    def logits(self) -> Array:
        """Z = W_L ⋯ W_1 H_1, (K, Kn)."""
        return reduce(matmul, reversed(self.weights))

    def loss(self) -> float:
        """Equation (7): the mean of −log softmax(z_ic)_c, plus ½λ‖·‖²."""
        surprise = -np.vdot(self.labels, log_softmax(self.logits, axis=0))
        return float(surprise) / self.labels.shape[1] + self._decay()

    def gradient(self) -> Array:
        """The gradient (P,): A_{l+1}ᵀ (P − Y) H_lᵀ/(Kn) + λW_l for layer l.

        >>> CrossEntropyUFM([[[1.0, -1.0]], [[0.0], [0.0]]]).gradient()
        array([ 0. ,  0. , -0.5,  0.5])
        """
        states = [self.weights[0]]
        for weight in self.weights[1:]:
            states.append(weight @ states[-1])
        error = (np.exp(log_softmax(states[-1], axis=0)) - self.labels) / self.labels.shape[1]
        slopes = []
        for weight, received in zip(self.weights[:0:-1], states[-2::-1], strict=True):
            slopes.append(error @ received.T)
            error = weight.T @ error
        return self._with_decay([error, *slopes[::-1]])


@dataclass(frozen=True)
class Collapse:
    """The collapsed point of Definition 3 with K = `classes`, n = `samples` per class, L = `depth`,
    d = `width` and logit scale `alpha`, up to the choice of its orthogonal frames. The scale fixes
    the regularisation through (9); `papers.deep_linear_ufm.equation_9` goes the other way.

    >>> point = Collapse(classes=4, samples=2, depth=3, width=5, alpha=3.0)
    >>> round(point.ridge, 6)
    0.06309
    """

    classes: int
    samples: int
    depth: int
    width: int
    alpha: float

    def __post_init__(self) -> None:
        whole_number("classes", self.classes, least=2)
        whole_number("samples", self.samples, least=1)
        whole_number("depth", self.depth, least=1)
        if whole_number("width", self.width, least=1) < self.classes - 1:
            raise ValueError(
                f"width must be at least classes − 1 = {self.classes - 1}, because collapsed "
                f"class means span that many directions, got {self.width}"
            )
        if nonnegative_number("alpha", self.alpha) == 0:
            raise ValueError("alpha must be positive, got 0: that is the zero solution")

    @property
    def confidence(self) -> float:
        """p = e^α/(K − 1 + e^α), the probability that every sample gives its own class.

        >>> round(Collapse(2, 1, 1, 1, alpha=np.log(3)).confidence, 12)
        0.75
        """
        return float(1 / (1 + (self.classes - 1) * np.exp(-self.alpha)))

    @property
    def wrong(self) -> float:
        """1/Γ = 1/(K − 1 + e^α), the probability of each wrong class.

        >>> round(Collapse(4, 1, 1, 3, alpha=np.log(3)).wrong, 12)
        0.166666666667
        """
        return float(np.exp(-self.alpha) * self.confidence)

    @property
    def margin(self) -> float:
        """τ = p − 1/Γ.

        >>> round(Collapse(2, 1, 1, 1, alpha=np.log(3)).margin, 12)
        0.5
        """
        return self.confidence - self.wrong

    @property
    def ridge(self) -> float:
        """λ = n^{−1/(L+1)} α^{(L−1)/(L+1)} / Γ, which is (9).

        >>> round(Collapse(2, 4, 1, 1, alpha=np.log(3)).ridge, 12)
        0.125
        """
        factors = self.depth + 1
        power = self.alpha ** ((self.depth - 1) / factors)
        return float(self.samples ** (-1 / factors) * power * self.wrong)

    @property
    def singular_value(self) -> float:
        """t = (α√n)^{1/(L+1)}, shared by H_1, W_1, …, W_L.

        >>> round(Collapse(3, 4, 2, 2, alpha=4.0).singular_value, 12)
        2.0
        """
        return float((self.alpha * np.sqrt(self.samples)) ** (1 / (self.depth + 1)))

    def loss(self) -> float:
        """The value of (7): log(1 + (K−1)e^{−α}) + ½λ(L+1)(K−1)t².

        >>> round(Collapse(2, 1, 1, 1, alpha=np.log(3)).loss(), 6)
        0.562335
        """
        penalty = (self.depth + 1) * (self.classes - 1) * self.singular_value**2
        return float(-np.log(self.confidence) + self.ridge * penalty / 2)

    def point(self, rng: np.random.Generator) -> CrossEntropyUFM:
        """The factors H_1, W_1, …, W_L of (10) in random orthogonal frames.

        >>> Collapse(3, 2, 2, 4, alpha=2.0).point(np.random.default_rng(0)).logits[:, :2].round(6)
        array([[ 1.333333,  1.333333],
               [-0.666667, -0.666667],
               [-0.666667, -0.666667]])
        """
        shape = (self.width, self.classes - 1)
        # Any orthonormal basis of the zero-sum vectors serves as the first K − 1 columns of U_L.
        logits = np.linalg.eigh(simplex(self.classes))[1][:, 1:]
        hidden = [np.linalg.qr(rng.standard_normal(shape))[0] for _ in range(self.depth)]
        right = np.repeat(logits, self.samples, axis=0) / np.sqrt(self.samples)
        pairs = zip([*hidden, logits], [right, *hidden], strict=True)
        weights = [self.singular_value * left @ other.T for left, other in pairs]
        return CrossEntropyUFM(tuple(weights), self.ridge)

    def layers(self, rng: np.random.Generator) -> "list[Layer[Collapse]]":
        """The layers l = 1, …, L of the point in random frames."""
        point = self.point(rng)
        return [Layer(self, point, number) for number in range(1, self.depth + 1)]

    @property
    def levels(self) -> tuple[float, float, float]:
        """β_1 = λαp, β_2 = (λα/K)(1 + (K−2)τ) and β_3 = λα/K, the eigenvalues of one layer.

        >>> [round(level, 6) for level in Collapse(4, 2, 3, 5, alpha=3.0).levels]
        [0.164675, 0.125556, 0.047318]
        """
        unit = self.ridge * self.alpha / self.classes
        top = self.ridge * self.alpha * self.confidence
        return top, unit * (1 + (self.classes - 2) * self.margin), unit

    @property
    def counts(self) -> tuple[int, int, int, int]:
        """How often β_1, β_2 and, on symmetric and antisymmetric directions, β_3 occur: 1, K−1,
        K(K−3)/2 and (K−1)(K−2)/2; for K = 2 the first alone.

        >>> Collapse(4, 2, 3, 5, alpha=3.0).counts, Collapse(2, 2, 3, 5, alpha=3.0).counts
        ((1, 3, 2, 3), (1, 0, 0, 0))
        """
        K = self.classes
        return (1, K - 1, K * (K - 3) // 2, (K - 1) * (K - 2) // 2) if K > 2 else (1, 0, 0, 0)

    def layer_spectrum(self, layer: int) -> Spectrum:
        """The spectrum of the Hessian of W_l, l = `layer`, without its ridge term.

        >>> Collapse(2, 1, 2, 3, alpha=np.log(3)).layer_spectrum(1)
        Spectrum(0.21255 × 1, 0 × 8)
        """
        (b1, b2, b3), (top, ring, walks, turns) = self.levels, self.counts
        rows = self.classes if layer == self.depth else self.width
        return Spectrum.of(
            (b1, top, "top"),
            (b2, ring, "class"),
            (b3, walks + turns, "mini-bulk"),
            (0.0, rows * self.width - top - ring - walks - turns, "zero"),
        )

    def spectrum(self) -> Spectrum:
        """All eigenvalues of the Hessian of (7), in H_1 and W_1..W_L, ridge term included.

        With q = α/K the class directions couple to the global mean of H_1 through the block
        λ[[Nq(1+(K−2)τ) − N + 2, qτ√(N(K−2))], [·, q(1+τ) + 1]].

        >>> Collapse(2, 1, 1, 1, alpha=np.log(3)).spectrum()
        Spectrum(0.5 × 1, 0.45599 × 1, 0.41198 × 1, 0.25 × 1)
        """
        K, n, L, d, lam = self.classes, self.samples, self.depth, self.width, self.ridge
        N, free = L + 1, d - K + 1
        even, odd, corner = self._dimensions
        (b1, _, b3), (_, ring, walks, turns) = self.levels, self.counts
        q, m = self.alpha / K, self.margin
        coupling = q * m * np.sqrt(N * (K - 2))
        mean = q * (1 + m) + 1
        block = [[N * q * (1 + (K - 2) * m) - N + 2, coupling], [coupling, mean]]
        low, high = lam * np.linalg.eigvalsh(block)
        return Spectrum.of(
            (N * (b1 - lam) + 2 * lam, 1, "top"),
            (high, ring, "class, upper"),
            (low, ring, "class, lower"),
            (lam * mean, K - 1 - ring, "global mean"),
            (N * (b3 - lam) + 2 * lam, walks, "mini-bulk, symmetric"),
            (N * (b3 + lam), turns, "mini-bulk, antisymmetric"),
            (b1 + lam, K * (n - 1), "within"),
            (b3 + lam, K * (n - 1) * (K - 2), "within"),
            (2 * lam, L * (even + corner), "balance"),
            (lam, (L - 1) * free**2 + d + free * (K * n - K + 1), "idle"),
            (0.0, L * (odd + corner), "orbit"),
        )

    def weights_spectrum(self) -> Spectrum:
        """The same in the weights W_1..W_L alone and without ridge: L β_i − (L−1)λ on symmetric
        directions, L β_3 + (L−1)λ on antisymmetric ones, ±λ for moves that compensate each other
        in two layers, 0 for the rest.

        >>> Collapse(2, 1, 2, 3, alpha=np.log(3)).weights_spectrum()
        Spectrum(0.257961 × 3, 0.167138 × 1, 0 × 9, -0.257961 × 2)
        """
        L, d, lam = self.depth, self.width, self.ridge
        even, odd, corner = self._dimensions
        (b1, b2, b3), (top, ring, walks, turns) = self.levels, self.counts
        shift = (L - 1) * lam
        return Spectrum.of(
            (L * b1 - shift, top, "top"),
            (L * b2 - shift, ring, "class"),
            (L * b3 - shift, walks, "mini-bulk, symmetric"),
            (L * b3 + shift, turns, "mini-bulk, antisymmetric"),
            (lam, (L - 1) * (even + corner), "balance"),
            (-lam, (L - 1) * (odd + corner), "orbit"),
            (0.0, corner + d + (L - 1) * (d - self.classes + 1) ** 2, "idle"),
        )

    def papyan(self, layer: int) -> dict[str, Spectrum]:
        """Papyan's parts of the Hessian of W_l without its ridge term. With g_cc' the gradient for
        a sample of class c if its label were c', and weights p_cc'/(Kn): "own" has c' = c, "class"
        the means over c' ≠ c, "cross" the covariance around them; within the classes nothing is
        left. On K×K matrices M with zero row and column sums, with Δ M = Σ_c M_cc s_c s_cᵀ,

            own = λα K p/Γ Δ,  class = λα K p²/(K−1) Δ,  cross = λα (I/K − Δ/(K−1)).

        >>> for name, part in Collapse(3, 1, 2, 2, alpha=3.0).papyan(layer=1).items():
        ...     print(name, part)
        own 0.0161343 × 1, 0.00806717 × 2, 0 × 1
        class 0.162033 × 1, 0.0810167 × 2, 0 × 1
        cross 0.0653029 × 1, 0.0326514 × 2, 0 × 1
        """
        K, p, unit = self.classes, self.confidence, self.ridge * self.alpha
        _, ring, walks, turns = self.counts
        rest = (K if layer == self.depth else self.width) * self.width - 1 - ring
        parts = {"own": unit * K * p * self.wrong, "class": unit * K * p**2 / (K - 1)}
        diagonal = {
            name: Spectrum.of(
                (size * (K - 1) / K, 1, "top"),
                (size * (K - 2) / K, ring, "class"),
                (0, rest, "zero"),
            )
            for name, size in parts.items()
        }
        cross = Spectrum.of(
            (unit / (K * (K - 1)), ring, "class"),
            (unit / K, walks + turns, "mini-bulk"),
            (0.0, rest + 1 - walks - turns, "zero"),
        )
        return diagonal | {"cross": cross}

    @property
    def _dimensions(self) -> tuple[int, int, int]:
        """Of symmetric and of antisymmetric k×k matrices, and k(d − k)."""
        k = self.classes - 1
        return k * (k + 1) // 2, k * (k - 1) // 2, k * (self.width - k)


def simplex(classes: int) -> Array:
    """S = I − 1 1ᵀ/K, (K, K), the projector onto vectors of sum zero; its columns are s_1..s_K.

    >>> simplex(2)
    array([[ 0.5, -0.5],
           [-0.5,  0.5]])
    """
    return np.eye(classes) - 1 / classes


def fold(classes: int, depth: int) -> float:
    """The scale at which the two solutions of (9) meet: αp = (L−1)/(L+1). It is 0 for L = 1.

    >>> round(fold(classes=4, depth=3), 3)
    1.034
    """
    level = (depth - 1) / (depth + 1)
    if level == 0:
        return 0.0
    # p lies between 1/K and 1, so α lies between the level and K times it.
    return float(
        brentq(
            lambda alpha: alpha / (1 + (classes - 1) * np.exp(-alpha)) - level,
            level,
            classes * level,
            xtol=ROUNDING,
            rtol=ROUNDING,
        )
    )


def positive_scale(classes: int, depth: int) -> float:
    """The least α at which the Hessian in all of H_1, W_1..W_L, ridge included, has no negative
    eigenvalue; it has none at any larger α.

    K ≥ 4: K(L−1)/(L+1). K = 2: the fold. K = 3: the zero of the determinant of the 2×2 block that
    couples the class directions to the global mean of H_1.

    >>> positive_scale(4, depth=3), round(positive_scale(3, depth=3), 3)
    (2.0, 1.101)
    """
    N = depth + 1
    bound = classes * (N - 2) / N
    if classes >= 4 or depth == 1:
        return float(bound)
    if classes == 2:
        return fold(classes, depth)

    def determinant(alpha: float) -> float:
        q = alpha / 3
        gain = q * float(np.expm1(alpha) / (2 + np.exp(alpha)))
        return (N * q - N + 2) * (q + gain + 1) + N * gain * (q + 1)

    return float(brentq(determinant, fold(3, depth), bound, xtol=ROUNDING, rtol=ROUNDING))


def polytope(point: Collapse) -> CrossEntropyUFM:
    """A point of lower rank at the n, L, d, λ and α of `point`: Z = α G ⊗ 1_nᵀ with the Gram
    matrix G of the first K corners e_1, −e_1, e_2, −e_2, … of a cross-polytope, rank ⌈K/2⌉, as
    balanced factors, whose singular values are the (L+1)-th roots of those of Z.

    >>> point = Collapse(4, 2, 3, 5, alpha=3.0)
    >>> polytope(point).loss() < point.loss()
    True
    """
    K, n, d = point.classes, point.samples, point.width
    axes = np.repeat(np.eye((K + 1) // 2), 2, axis=0)[:K]
    corners = axes * np.where(np.arange(K) % 2, -1.0, 1.0)[:, None]
    logits = point.alpha * np.kron(corners @ corners.T, np.ones(n))
    left, values, right = np.linalg.svd(logits, full_matrices=False)
    rank = corners.shape[1]
    root = values[:rank, None] ** (1 / (point.depth + 1))
    into, middle, out = np.zeros((d, K * n)), np.zeros((d, d)), np.zeros((K, d))
    into[:rank] = root * right[:rank]
    middle[:rank, :rank] = np.diag(root[:, 0])
    out[:, :rank] = left[:, :rank] * root.T
    return CrossEntropyUFM((into, *[middle] * (point.depth - 1), out), point.ridge)
