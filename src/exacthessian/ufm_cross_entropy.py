"""The deep linear unconstrained feature model with cross-entropy, and its collapsed points.

The features H_1 (d, Kn) and the weights W_1..W_{L−1} (d, d), W_L (K, d) are all free. The loss is
the mean cross-entropy of the logits Z = W_L ⋯ W_1 H_1 plus ½λ of the squared norm of everything.
At collapse Z = α S ⊗ 1_nᵀ with S = I − 1 1ᵀ/K, and all factors share the singular value t, K−1
times. Throughout

    s_c is column c of S,  Γ = K − 1 + e^α,  p = e^α/Γ is the probability of the right class,
    τ = p − 1/Γ is its margin,  t = (α√n)^{1/(L+1)},  N = L + 1 is the number of factors, k = K − 1.
"""

from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq

from exacthessian.inputs import guard, nonnegative_number, require, whole_number
from exacthessian.spectrum import Spectrum
from exacthessian.ufm import Layer, Point

ROUNDING = 4 * float(np.finfo(np.float64).eps)


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
        for name, least in (("classes", 2), ("samples", 1), ("depth", 1), ("width", 1)):
            whole_number(name, getattr(self, name), least)
        k, why = self.classes - 1, "because collapsed class means span that many directions"
        require(self.width >= k, f"width must be at least classes − 1 = {k}, {why}", self.width)
        alpha = nonnegative_number("alpha", self.alpha)
        require(alpha, "alpha must be positive", "0: that is the zero solution")

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

    def point(self, rng: np.random.Generator) -> Point:
        """The factors H_1, W_1, …, W_L of (10) in random orthogonal frames.

        >>> Collapse(3, 2, 2, 4, alpha=2.0).point(np.random.default_rng(0)).outputs[:, :2].round(6)
        array([[ 1.333333,  1.333333],
               [-0.666667, -0.666667],
               [-0.666667, -0.666667]])
        """
        shape = (self.width, self.classes - 1)
        # Any orthonormal basis of the zero-sum vectors serves as the first K − 1 columns of U_L.
        logits = np.linalg.eigh(np.eye(self.classes) - 1 / self.classes)[1][:, 1:]
        hidden = [np.linalg.qr(rng.standard_normal(shape))[0] for _ in range(self.depth)]
        right = np.repeat(logits, self.samples, axis=0) / np.sqrt(self.samples)
        pairs = zip([*hidden, logits], [right, *hidden], strict=True)
        weights = [self.singular_value * left @ other.T for left, other in pairs]
        return Point(tuple(weights), self.ridge, cross_entropy=True)

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
        """The spectrum of the Hessian of W_l, l = `layer`, without its ridge term: on K×K matrices
        M with zero row and column sums it is λα(I/K + τΔ), with Δ M = Σ_c M_cc s_c s_cᵀ.

        >>> Collapse(2, 1, 2, 3, alpha=np.log(3)).layer_spectrum(1)
        Spectrum(0.21255 × 1, 0 × 8)
        """
        return self._of_map(layer, 1 / self.classes, self.margin)

    def papyan(self, layer: int) -> dict[str, Spectrum]:
        """Papyan's parts of the Hessian of W_l without its ridge term. With g_cc' the gradient for
        a sample of class c if its label were c', and weights p_cc'/(Kn): "own" has c' = c, "class"
        the means over c' ≠ c, "cross" the covariance around them; within the classes nothing is
        left. With Δ as in `layer_spectrum`,

            own = λα K p/Γ Δ,  class = λα K p²/(K−1) Δ,  cross = λα (I/K − Δ/(K−1)).

        >>> for name, part in Collapse(3, 1, 2, 2, alpha=3.0).papyan(layer=1).items():
        ...     print(name, part)
        own 0.0161343 × 1, 0.00806717 × 2, 0 × 1
        class 0.162033 × 1, 0.0810167 × 2, 0 × 1
        cross 0.0653029 × 1, 0.0326514 × 2, 0 × 1
        """
        K, p = self.classes, self.confidence
        return {
            "own": self._of_map(layer, 0.0, K * p * self.wrong),
            "class": self._of_map(layer, 0.0, K * p**2 / (K - 1)),
            "cross": self._of_map(layer, 1 / K, -1 / (K - 1)),
        }

    def spectrum(self, features: bool = True) -> Spectrum:
        """All eigenvalues of the Hessian of (7): in H_1 and W_1..W_L, ridge term included, or in
        the weights alone and without ridge.

        On m moved factors β_i becomes mβ_i − (m−1)λ on symmetric directions and mβ_i + (m−1)λ on
        antisymmetric ones; moves that compensate each other have ±λ. With q = α/K the class
        directions couple to the global mean of H_1 through the block
        λ[[Nq(1+(K−2)τ) − N + 2, qτ√(N(K−2))], [·, q(1+τ) + 1]].

        >>> Collapse(2, 1, 1, 1, alpha=np.log(3)).spectrum()
        Spectrum(0.5 × 1, 0.45599 × 1, 0.41198 × 1, 0.25 × 1)
        >>> Collapse(2, 1, 2, 3, alpha=np.log(3)).spectrum(features=False)
        Spectrum(0.257961 × 3, 0.167138 × 1, 0 × 9, -0.257961 × 2)
        """
        K, n, d, lam, k = self.classes, self.samples, self.width, self.ridge, self.classes - 1
        m, shift = (self.depth + 1, lam) if features else (self.depth, 0.0)
        (b1, b2, b3), (_, ring, walks, turns), free = self.levels, self.counts, d - k
        entries = [
            (m * b1 - (m - 1) * lam + shift, 1, "top"),
            (m * b3 - (m - 1) * lam + shift, walks, "mini-bulk, symmetric"),
            (m * b3 + (m - 1) * lam + shift, turns, "mini-bulk, antisymmetric"),
            (shift + lam, (m - 1) * (k * (k + 1) // 2 + k * free), "balance"),
            (shift - lam, (m - 1) * (k * (k - 1) // 2 + k * free), "orbit"),
            (shift, (self.depth - 1) * free**2 + d, "idle"),
        ]
        if not features:
            first = (m * b2 - (m - 1) * lam, ring, "class")
            return Spectrum.of(*entries, first, (0.0, k * free, "idle"))
        q, tau = self.alpha / K, self.margin
        coupling, mean = q * tau * np.sqrt(m * (K - 2)), q * (1 + tau) + 1
        block = [[m * q * (1 + (K - 2) * tau) - m + 2, coupling], [coupling, mean]]
        low, high = lam * np.linalg.eigvalsh(block)
        return Spectrum.of(
            *entries,
            (high, ring, "class, upper"),
            (low, ring, "class, lower"),
            (lam * mean, K - 1 - ring, "global mean"),
            (b1 + lam, K * (n - 1), "within"),
            (b3 + lam, K * (n - 1) * (K - 2), "within"),
            (lam, free * (K * n - k), "idle"),
        )

    def _of_map(self, layer: int, plain: float, diagonal: float) -> Spectrum:
        """The spectrum of λα(plain·I + diagonal·Δ) on the parameters of W_l: Δ is (K−1)/K once,
        (K−2)/K on K−1 directions and 0 on the others.
        """
        K, unit, (_, ring, walks, turns) = self.classes, self.ridge * self.alpha, self.counts
        rows = K if layer == self.depth else self.width
        return Spectrum.of(
            (unit * (plain + diagonal * (K - 1) / K), 1, "top"),
            (unit * (plain + diagonal * (K - 2) / K), ring, "class"),
            (unit * plain, walks + turns, "mini-bulk"),
            (0.0, rows * self.width - 1 - ring - walks - turns, "zero"),
        )


def critical_scales(classes: int, depth: int) -> tuple[float, float]:
    """Two logit scales of the collapsed point, both 0 for L = 1. First the fold, where the two
    solutions of (9) meet: αp = (L−1)/(L+1). Then α_+, the least α at which the Hessian in all of
    H_1, W_1..W_L, ridge included, has no negative eigenvalue; it has none at any larger α.

    K ≥ 4: α_+ = K(L−1)/(L+1). K = 2: the fold. K = 3: the zero of the lower eigenvalue of the block
    that couples the class directions to the global mean of H_1.

    >>> [round(scale, 3) for scale in (*critical_scales(4, depth=3), *critical_scales(3, depth=3))]
    [1.034, 2.0, 0.905, 1.101]
    """
    K, level = classes, (depth - 1) / (depth + 1)
    if level == 0:
        return 0.0, 0.0

    def excess(alpha: float) -> float:
        return float(alpha / (1 + (K - 1) * np.exp(-alpha)) - level)

    def lower(alpha: float) -> float:
        return Collapse(K, 1, depth, K, alpha).spectrum().select("class, lower").values[0]

    # p lies between 1/K and 1, so α lies between the level and K times it.
    fold = float(brentq(excess, level, K * level, xtol=ROUNDING, rtol=ROUNDING))
    if K == 3:
        return fold, float(brentq(lower, fold, 3 * level, xtol=ROUNDING, rtol=ROUNDING))
    return fold, fold if K == 2 else K * level


guard(globals())
