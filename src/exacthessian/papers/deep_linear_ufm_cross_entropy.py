"""Closed forms of the cross-entropy part of the deep linear UFM (appendices B and F of the paper),
each in the form that holds.

The features H_1 (d, Kn) and the weights W_1..W_{L−1} (d, d), W_L (K, d) are all free. The loss is
the mean cross-entropy of the logits Z = W_L ⋯ W_1 H_1 plus ½λ of the squared norm of everything.
At collapse Z = α S ⊗ 1_nᵀ with S = I − 1 1ᵀ/K, and all factors share the singular value t, K−1
times. Throughout

    s_c is column c of S,  D = K − 1 + e^α,  p = e^α/D is the probability of the right class,
    t = (α√n)^{1/(L+1)},  N = L + 1 is the number of factors,  k = K − 1.

Where the printed form differs, `as_printed=True` gives it. Classes in the code count from 0.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import brentq

from exacthessian.inputs import Array, nonnegative_number, real_array, whole_number
from exacthessian.spectrum import Spectrum

ROUNDING = 4 * float(np.finfo(np.float64).eps)


@dataclass(frozen=True)
class Collapse:
    """The collapsed point of Definition 3 with K = `classes`, n = `samples` per class, L = `depth`,
    d = `width` and logit scale `alpha`, up to the choice of its orthogonal frames.

    The scale fixes the regularisation through (9). `Collapse.at_ridge` goes the other way.

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
        _sizes(self.classes, self.samples, self.depth)
        whole_number("width", self.width, least=1)
        if self.width < self.classes - 1:
            raise ValueError(
                f"width must be at least classes − 1 = {self.classes - 1}, because collapsed "
                f"class means span that many directions, got {self.width}"
            )
        if nonnegative_number("alpha", self.alpha) == 0:
            raise ValueError("alpha must be positive, got 0: that is the zero solution")

    @classmethod
    def at_ridge(
        cls, classes: int, samples: int, depth: int, width: int, ridge: float
    ) -> "Collapse":
        """The point of Definition 3 for the regularisation λ = `ridge`: α by `equation_9`.

        >>> round(Collapse.at_ridge(4, 2, 3, 5, ridge=0.06309).alpha, 3)
        3.0
        """
        alpha = equation_9(classes, samples, depth, ridge)
        return cls(classes, samples, depth, width, alpha)

    @property
    def confidence(self) -> float:
        """p = e^α/(K − 1 + e^α), the probability that every sample gives its own class.

        >>> round(Collapse(2, 1, 1, 1, alpha=np.log(3)).confidence, 12)
        0.75
        """
        return float(1 / (1 + (self.classes - 1) * np.exp(-self.alpha)))

    @property
    def inverse_d(self) -> float:
        """1/D = 1/(K − 1 + e^α), the probability of each wrong class.

        >>> round(Collapse(4, 1, 1, 3, alpha=np.log(3)).inverse_d, 12)
        0.166666666667
        """
        return float(np.exp(-self.alpha) * self.confidence)

    @property
    def ridge(self) -> float:
        """λ = n^{−1/(L+1)} α^{(L−1)/(L+1)} / D, which is (9).

        >>> round(Collapse(2, 4, 1, 1, alpha=np.log(3)).ridge, 12)
        0.125
        """
        factors = self.depth + 1
        power = self.alpha ** ((self.depth - 1) / factors)
        return float(self.samples ** (-1 / factors) * power * self.inverse_d)

    @property
    def singular_value(self) -> float:
        """t = (α√n)^{1/(L+1)}, shared by H_1, W_1, …, W_L.

        >>> round(Collapse(3, 4, 2, 2, alpha=4.0).singular_value, 12)
        2.0
        """
        return float((self.alpha * np.sqrt(self.samples)) ** (1 / (self.depth + 1)))

    @property
    def beta(self) -> float:
        """β = e^α (α√n)^{2L/(L+1)} / (n D²) of Theorem 9, which equals λαp.

        >>> point = Collapse(4, 2, 3, 5, alpha=3.0)
        >>> bool(abs(point.beta - point.ridge * point.alpha * point.confidence) < 1e-15)
        True
        """
        scale = self.singular_value ** (2 * self.depth) / self.samples
        return float(scale * self.confidence * self.inverse_d)

    @property
    def loss(self) -> float:
        """The value of (7): log(1 + (K−1)e^{−α}) + ½λ(L+1)(K−1)t².

        >>> round(Collapse(2, 1, 1, 1, alpha=np.log(3)).loss, 6)
        0.562335
        """
        penalty = (self.depth + 1) * (self.classes - 1) * self.singular_value**2
        return float(-np.log(self.confidence) + self.ridge * penalty / 2)

    def parameters(self, rng: np.random.Generator) -> list[Array]:
        """The factors H_1, W_1, …, W_L of (10) in random orthogonal frames: shapes (d, Kn),
        (d, d), …, (K, d).

        >>> point = Collapse(3, 2, 2, 4, alpha=2.0)
        >>> features, first, last = point.parameters(np.random.default_rng(0))
        >>> (last @ first @ features)[:, :2].round(6)
        array([[ 1.333333,  1.333333],
               [-0.666667, -0.666667],
               [-0.666667, -0.666667]])
        """
        rank, width = self.classes - 1, self.width
        labels = np.kron(np.eye(self.classes), np.ones(self.samples))
        # Any orthonormal basis of the zero-sum vectors serves as the first K − 1 columns of U_L.
        logits = np.linalg.eigh(simplex(self.classes))[1][:, 1:]
        frames = [
            np.linalg.qr(rng.standard_normal((width, rank)))[0] for _ in range(self.depth)
        ] + [logits]
        right = labels.T @ logits / np.sqrt(self.samples)
        pairs = zip(frames, [right, *frames[:-1]], strict=True)
        return [self.singular_value * left @ other.T for left, other in pairs]


def simplex(classes: int) -> Array:
    """S = I − 1 1ᵀ/K, (K, K), the projector onto vectors of sum zero; its columns are s_1..s_K.

    >>> simplex(2)
    array([[ 0.5, -0.5],
           [-0.5,  0.5]])
    """
    whole_number("classes", classes, least=2)
    return np.eye(classes) - 1 / classes


def fold(classes: int, depth: int) -> float:
    """The scale at which the two solutions of (9) meet: αp = (L−1)/(L+1). It is 0 for L = 1.

    The larger solution of (9) is the one at or above this scale.

    >>> round(fold(classes=4, depth=3), 3)
    1.034
    """
    _sizes(classes, 1, depth)
    level = (depth - 1) / (depth + 1)
    if level == 0:
        return 0.0

    def excess(alpha: float) -> float:
        return float(alpha / (1 + (classes - 1) * np.exp(-alpha))) - level

    # p lies between 1/K and 1, so α lies between the level and K times it.
    return float(brentq(excess, level, classes * level, xtol=ROUNDING, rtol=ROUNDING))


def largest_ridge(classes: int, samples: int, depth: int) -> float:
    """The largest λ for which (9) has a solution, attained at the fold. For L = 1 it is the limit
    1/(K√n) of λ as α → 0, which is not attained.

    >>> round(largest_ridge(classes=2, samples=4, depth=1), 12)
    0.25
    """
    _sizes(classes, samples, depth)
    if depth == 1:
        return float(1 / (classes * np.sqrt(samples)))
    return Collapse(classes, samples, depth, classes, fold(classes, depth)).ridge


def equation_9(classes: int, samples: int, depth: int, ridge: float) -> float:
    """The logit scale α: the larger solution of λ n^{1/(L+1)} = α^{(L−1)/(L+1)}/(K − 1 + e^α).

    It is found from the logarithm of the equation, so that a tiny λ does no harm.

    >>> round(equation_9(classes=2, samples=4, depth=1, ridge=0.125), 12)
    1.098612288668
    """
    _sizes(classes, samples, depth)
    if nonnegative_number("ridge", ridge) == 0:
        raise ValueError("ridge must be positive, got 0: the logit scale would be infinite")
    most = largest_ridge(classes, samples, depth)
    if ridge > most or (depth == 1 and ridge == most):
        relation = "below" if depth == 1 else "at most"
        raise ValueError(
            f"ridge must be {relation} {most:.6g} for equation (9) to have a solution with "
            f"{classes} classes, {samples} samples per class and depth {depth}, got {ridge:.6g}"
        )
    power = (depth - 1) / (depth + 1)
    target = np.log(ridge) + np.log(samples) / (depth + 1)

    def excess(alpha: float) -> float:
        growth = power * np.log(alpha) if depth > 1 else 0.0
        return float(growth - alpha - np.log1p((classes - 1) * np.exp(-alpha)) - target)

    low = fold(classes, depth)
    if excess(low) <= 0:
        return low  # the largest λ itself, up to rounding
    high = 2 * low + 1
    while excess(high) > 0:
        high *= 2
    return float(brentq(excess, low, high, xtol=ROUNDING, rtol=ROUNDING))


def positive_scale(classes: int, depth: int) -> float:
    """The least α at which the Hessian in all of H_1, W_1..W_L, ridge included, has no negative
    eigenvalue; it has none at any larger α.

    K ≥ 4: K(L−1)/(L+1). K = 2: the fold. K = 3: the zero of the determinant of the 2×2 block that
    couples the class directions to the global mean of H_1.

    >>> positive_scale(4, depth=3), round(positive_scale(3, depth=3), 3)
    (2.0, 1.101)
    """
    _sizes(classes, 1, depth)
    factors = depth + 1
    bound = classes * (factors - 2) / factors
    if classes >= 4 or depth == 1:
        return float(bound)
    lower = fold(classes, depth)
    if classes == 2:
        return lower

    def determinant(alpha: float) -> float:
        q = alpha / 3
        gain = q * float(np.expm1(alpha) / (2 + np.exp(alpha)))
        return (factors * q - factors + 2) * (q + gain + 1) + factors * gain * (q + 1)

    return float(brentq(determinant, lower, bound, xtol=ROUNDING, rtol=ROUNDING))


def equation_23(classes: int, alpha: float, label: int, as_printed: bool = False) -> Array:
    """ρ_c = diag(p_c) − p_c p_cᵀ, (K, K), for a sample of class c = `label` at collapse:
    ρ_c = S/D + K(e^α − 1)/D² s_c s_cᵀ, exactly.

    As printed: the leading term (e^α/D²) ρ'_c. The two differ by ((K−1)S − K s_c s_cᵀ)/D².

    >>> equation_23(2, np.log(3), label=0).round(6)
    array([[ 0.1875, -0.1875],
           [-0.1875,  0.1875]])
    """
    point = Collapse(classes, 1, 1, classes, alpha)
    p, inverse = point.confidence, point.inverse_d
    if as_printed:
        return p * inverse * lemma_7(classes, label)
    s = _column(classes, label)
    return inverse * simplex(classes) + classes * (p - inverse) * inverse * np.outer(s, s)


def lemma_7(classes: int, label: int) -> Array:
    """ρ'_c = K s_c s_cᵀ + S, (K, K).

    >>> lemma_7(3, label=0).round(12)
    array([[ 2., -1., -1.],
           [-1.,  1.,  0.],
           [-1.,  0.,  1.]])
    """
    s = _column(classes, label)
    return classes * np.outer(s, s) + simplex(classes)


def equation_24(classes: int) -> Array:
    """Av_c{ρ'_c ⊗ s_c s_cᵀ} = T + (1/K) S ⊗ S, (K², K²), with T = Σ_c (s_c ⊗ s_c)(s_c ⊗ s_c)ᵀ.

    >>> print(Spectrum.from_matrix(equation_24(3)))
    1 × 1, 0.666667 × 2, 0.333333 × 1, 0 × 5
    """
    S = simplex(classes)
    diagonal = np.array([np.kron(s, s) for s in S])
    average: Array = diagonal.T @ diagonal + np.kron(S, S) / classes
    return average


def theorem_9_eigenvalues(point: Collapse, as_printed: bool = False) -> tuple[float, float, float]:
    """The three non-zero eigenvalues of a layer's Hessian without its ridge term:
    β, β(K−1+e^{−α})/K and β(1+(K−1)e^{−α})/K. The last one is λα/K.

    As printed, to leading order: β, β(K−1)/K and β/K.

    >>> point = Collapse(4, 2, 3, 5, alpha=3.0)
    >>> [round(value / point.beta, 4) for value in theorem_9_eigenvalues(point)]
    [1.0, 0.7624, 0.2873]
    """
    beta, K = point.beta, point.classes
    small = 0.0 if as_printed else float(np.exp(-point.alpha))
    return beta, beta * (K - 1 + small) / K, beta * (1 + (K - 1) * small) / K


def theorem_9_multiplicities(classes: int, as_printed: bool = False) -> tuple[int, int, int]:
    """How often they occur: 1, K − 1 and K² − 3K + 1 for K ≥ 3; 1, 0 and 0 for K = 2.

    As printed: the first list for every K.

    >>> theorem_9_multiplicities(4), theorem_9_multiplicities(2)
    ((1, 3, 5), (1, 0, 0))
    >>> theorem_9_multiplicities(2, as_printed=True)
    (1, 1, -1)
    """
    K = whole_number("classes", classes, least=2)
    if K == 2 and not as_printed:
        return 1, 0, 0
    return 1, K - 1, K * K - 3 * K + 1


def theorem_9(point: Collapse, layer: int) -> Spectrum:
    """The spectrum of the Hessian of W_l, l = `layer`, 1 ≤ l ≤ L, without its ridge term: d² or,
    for the last layer, Kd eigenvalues.

    >>> theorem_9(Collapse(2, 1, 2, 3, alpha=np.log(3)), layer=1)
    Spectrum(0.21255 × 1, 0 × 8)
    """
    _layer(point, layer)
    rows = point.classes if layer == point.depth else point.width
    counts = theorem_9_multiplicities(point.classes)
    zeros = rows * point.width - sum(counts)
    values = (*theorem_9_eigenvalues(point), 0.0)
    return _spectrum(values, (*counts, zeros), ("top", "class", "mini-bulk", "zero"))


def theorem_9_matrix(
    point: Collapse, upper: ArrayLike, lower: ArrayLike, as_printed: bool = False
) -> Array:
    """The Hessian of W_l without its ridge term, from the class means of layers l + 1 (`upper`,
    (d, K)) and l (`lower`, (d, K)), whose lengths do not matter; for l = L use `upper` = S:

        β((K−1)/K)² [(1−e^{−α}) Σ_c v_cc v_ccᵀ + (1+(K−1)e^{−α})/K Σ_cc' v_cc' v_cc'ᵀ]

    with v_cc' = μ̂_c ⊗ μ̂_c'. As printed, to leading order: without the two terms in e^{−α}.

    >>> point = Collapse(3, 1, 2, 3, alpha=2.0)
    >>> hessian = theorem_9_matrix(point, simplex(3), simplex(3))
    >>> Spectrum.from_matrix(hessian).distance(theorem_9(point, layer=1)) < 1e-14
    True
    """
    K = point.classes
    small = 0.0 if as_printed else float(np.exp(-point.alpha))
    top, bottom = _unit_columns("upper", upper, K), _unit_columns("lower", lower, K)
    equal = np.array([np.kron(top[:, c], bottom[:, c]) for c in range(K)])
    every = np.kron(top @ top.T, bottom @ bottom.T)
    bracket: Array = (1 - small) * equal.T @ equal + (1 + (K - 1) * small) / K * every
    return point.beta * ((K - 1) / K) ** 2 * bracket


def theorem_9_eigenvectors(classes: int, as_printed: bool = False) -> tuple[Array, Array, Array]:
    """Spanning sets of the three eigenspaces, as K×K matrices M with zero row and column sums,
    shape (m, K, K) each; in the parameters of W_l such a matrix is Σ_cc' M_cc' μ̂_c μ̂_c'ᵀ.

    First S, then S(E_aa − E_bb)S, then the matrices of zero diagonal: antisymmetric
    s_a s_bᵀ − s_b s_aᵀ, and symmetric (s_a − s_b)(s_c − s_d)ᵀ plus its transpose for four
    different classes. As printed the symmetric ones are missing. For K = 2 the last two sets hold
    zero matrices or nothing.

    >>> [len(group) for group in theorem_9_eigenvectors(4)]
    [1, 6, 9]
    >>> [len(group) for group in theorem_9_eigenvectors(4, as_printed=True)]
    [1, 6, 6]
    """
    S = simplex(classes)
    pairs = [(a, b) for a in range(classes) for b in range(a + 1, classes)]
    squares = np.einsum("ca,cb->cab", S, S)
    middle = [squares[a] - squares[b] for a, b in pairs]
    last = [np.outer(S[a], S[b]) - np.outer(S[b], S[a]) for a, b in pairs]
    if not as_printed:
        quadruples = [
            (a, b, c, d)
            for i, (a, b) in enumerate(pairs)
            for c, d in pairs[i + 1 :]
            if len({a, b, c, d}) == 4
        ]
        for a, b, c, d in quadruples:
            product = np.outer(S[a] - S[b], S[c] - S[d])
            last.append(product + product.T)
    return squares.sum(axis=0)[None], np.array(middle), np.array(last)


def papyan_parts(point: Collapse, layer: int) -> dict[str, Spectrum]:
    """Papyan's parts of the Hessian of W_l without its ridge term, each with d² or Kd eigenvalues.

    With g_cc' the gradient for a sample of class c if its label were c', and weights p_cc'/(Kn):
    "own" has c' = c, "class" the weighted means over c' ≠ c, "cross" the covariance around them.
    The within-class part is zero. On K×K matrices M with zero row and column sums, with
    T M = Σ_c M_cc s_c s_cᵀ,

        own = λα K e^α/D² T,  class = λα K p²/(K−1) T,  cross = λα (I/K − T/(K−1)).

    >>> for name, part in papyan_parts(Collapse(3, 1, 2, 2, alpha=3.0), layer=1).items():
    ...     print(name, part)
    own 0.0161343 × 1, 0.00806717 × 2, 0 × 1
    class 0.162033 × 1, 0.0810167 × 2, 0 × 1
    cross 0.0653029 × 1, 0.0326514 × 2, 0 × 1
    """
    _layer(point, layer)
    K, p, inverse = point.classes, point.confidence, point.inverse_d
    unit = point.ridge * point.alpha
    top, ring, rest = theorem_9_multiplicities(K)
    rows = K if layer == point.depth else point.width
    zeros = rows * point.width - top - ring - rest
    own, mean = unit * K * p * inverse, unit * K * p**2 / (K - 1)
    names = ("top", "class", "zero")
    on_diagonal = (top, ring, rest + zeros)
    return {
        "own": _spectrum((own * (K - 1) / K, own * (K - 2) / K, 0.0), on_diagonal, names),
        "class": _spectrum((mean * (K - 1) / K, mean * (K - 2) / K, 0.0), on_diagonal, names),
        "cross": _spectrum(
            (unit / (K * (K - 1)), unit / K, 0.0),
            (ring, rest, top + zeros),
            ("class", "mini-bulk", "zero"),
        ),
    }


def joint_weights(point: Collapse) -> Spectrum:
    """The spectrum of the Hessian in all weights W_1..W_L, ridge term left out: (L−1)d² + Kd
    eigenvalues. With b_1 > b_2 > b_3 those of one layer:

        L b_i − (L−1)λ on symmetric directions,  L b_3 + (L−1)λ on antisymmetric ones,
        ±λ for moves that compensate each other in two layers, 0 for the rest.

    >>> joint_weights(Collapse(2, 1, 2, 3, alpha=np.log(3)))
    Spectrum(0.257961 × 3, 0.167138 × 1, 0 × 9, -0.257961 × 2)
    """
    L, d, lam = point.depth, point.width, point.ridge
    symmetric, antisymmetric, corner = _counts(point)
    b1, b2, b3 = theorem_9_eigenvalues(point)
    _, ring, rest = theorem_9_multiplicities(point.classes)
    shift = (L - 1) * lam
    return _spectrum(
        (L * b1 - shift, L * b2 - shift, L * b3 - shift, L * b3 + shift, lam, -lam, 0.0),
        (
            1,
            ring,
            rest - antisymmetric,
            antisymmetric,
            (L - 1) * (symmetric + corner),
            (L - 1) * (antisymmetric + corner),
            corner + d + (L - 1) * (d - point.classes + 1) ** 2,
        ),
        ("top", "class", "mini-bulk", "mini-bulk", "bulk", "bulk", "zero"),
    )


def joint(point: Collapse) -> Spectrum:
    """The spectrum of the full Hessian of (7): in H_1 and W_1..W_L, ridge term included.

    With N = L + 1, q = α/K and γ = p − 1/D the class directions couple to the global mean of
    H_1 through the block λ[[Nq(1+(K−2)γ) − N + 2, qγ√(N(K−2))], [·, q(1+γ) + 1]].

    >>> joint(Collapse(2, 1, 1, 1, alpha=np.log(3)))
    Spectrum(0.5 × 1, 0.45599 × 1, 0.41198 × 1, 0.25 × 1)
    """
    K, n, L, d, lam = point.classes, point.samples, point.depth, point.width, point.ridge
    N, free = L + 1, d - K + 1
    symmetric, antisymmetric, corner = _counts(point)
    b1, _, b3 = theorem_9_eigenvalues(point)
    _, ring, rest = theorem_9_multiplicities(K)
    q, margin = point.alpha / K, point.confidence - point.inverse_d
    coupling = q * margin * np.sqrt(N * (K - 2))
    block = [[N * q * (1 + (K - 2) * margin) - N + 2, coupling], [coupling, q * (1 + margin) + 1]]
    low, high = lam * np.linalg.eigvalsh(block)
    # For two classes there are no class directions, and the global mean stands alone.
    mean = lam * (q * (1 + margin) + 1)
    return _spectrum(
        (
            N * (b1 - lam) + 2 * lam,
            float(high),
            float(low) if ring else mean,
            N * (b3 - lam) + 2 * lam,
            N * (b3 + lam),
            b1 + lam,
            b3 + lam,
            2 * lam,
            lam,
            0.0,
        ),
        (
            1,
            ring,
            K - 1,
            rest - antisymmetric,
            antisymmetric,
            K * (n - 1),
            K * (n - 1) * (K - 2),
            L * (symmetric + corner),
            (L - 1) * free**2 + d + free * (K * n - K + 1),
            L * (antisymmetric + corner),
        ),
        (
            "top",
            "class",
            "class" if ring else "global mean",
            "mini-bulk",
            "mini-bulk",
            "within-class",
            "within-class",
            "bulk",
            "bulk",
            "orbit",
        ),
    )


def polytope_logits(classes: int) -> Array:
    """Logits of lower rank that serve K classes as well as the simplex, (K, K): the Gram matrix of
    the first K of the corners e_1, −e_1, e_2, −e_2, … of a cross-polytope, of rank ⌈K/2⌉.

    >>> polytope_logits(3)
    array([[ 1., -1.,  0.],
           [-1.,  1.,  0.],
           [ 0.,  0.,  1.]])
    """
    K = whole_number("classes", classes, least=2)
    axes = np.repeat(np.eye((K + 1) // 2), 2, axis=0)[:K]
    corners = axes * np.where(np.arange(K) % 2, -1.0, 1.0)[:, None]
    return corners @ corners.T


def polytope_loss(point: Collapse) -> float:
    """The least value of (7) on products Z = α (logits of `polytope_logits`) ⊗ 1_nᵀ, at the same
    n, L, λ and α as `point`. With m = ⌊K/2⌋ pairs of opposite corners and K − 2m single ones:

        mean of log(1 + (K−2)e^{−α} + e^{−2α}) over paired, log(1 + (K−1)e^{−α}) over single classes
        + ½λ(L+1) (m (2α√n)^{2/(L+1)} + (K − 2m)(α√n)^{2/(L+1)}).

    >>> point = Collapse(4, 2, 3, 5, alpha=3.0)
    >>> polytope_loss(point) < point.loss
    True
    """
    K, factors, small = point.classes, point.depth + 1, float(np.exp(-point.alpha))
    pairs, single = divmod(K, 2)
    paired = 2 * pairs * np.log1p((K - 2) * small + small**2)
    fit = (paired + single * np.log1p((K - 1) * small)) / K
    norm = (pairs * 2 ** (2 / factors) + single) * point.singular_value**2
    return float(fit + point.ridge * factors * norm / 2)


def factorise(logits: ArrayLike, samples: int, depth: int, width: int) -> list[Array]:
    """The cheapest factors of Z = logits ⊗ 1_nᵀ: H_1 (d, Kn), W_1..W_{L−1} (d, d), W_L (K, d), all
    with singular values equal to the (L+1)-th roots of those of Z.

    >>> features, first, last = factorise(polytope_logits(4), samples=2, depth=2, width=3)
    >>> bool(np.allclose(last @ first @ features, np.kron(polytope_logits(4), [1, 1])))
    True
    """
    square = real_array("logits", logits, ndim=2)
    K, n, L = square.shape[0], samples, depth
    _sizes(K, n, L)
    if square.shape != (K, K):
        raise ValueError(f"logits must be square, got {square.shape[0]}×{square.shape[1]}")
    left, values, right = np.linalg.svd(np.kron(square, np.ones(n)), full_matrices=False)
    rank = int(np.linalg.matrix_rank(square))
    if whole_number("width", width, least=1) < rank:
        raise ValueError(f"width must be at least the rank {rank} of logits, got {width}")
    roots = np.diag(values[:rank] ** (1 / (L + 1)))
    middle = np.zeros((width, width))
    middle[:rank, :rank] = roots
    features, last = np.zeros((width, K * n)), np.zeros((K, width))
    features[:rank] = roots @ right[:rank]
    last[:, :rank] = left[:, :rank] @ roots
    return [features, *[middle.copy() for _ in range(L - 1)], last]


def _counts(point: Collapse) -> tuple[int, int, int]:
    """Dimensions with k = K − 1: of symmetric and of antisymmetric k×k matrices, and k(d − k)."""
    k = point.classes - 1
    return k * (k + 1) // 2, k * (k - 1) // 2, k * (point.width - k)


def _spectrum(
    values: tuple[float, ...], counts: tuple[int, ...], labels: tuple[str, ...]
) -> Spectrum:
    """The entries that occur at all."""
    rows = [row for row in zip(values, counts, labels, strict=True) if row[1]]
    return Spectrum(
        np.array([row[0] for row in rows]),
        np.array([row[1] for row in rows], dtype=np.int64),
        tuple(row[2] for row in rows),
    )


def _sizes(classes: int, samples: int, depth: int) -> None:
    whole_number("classes", classes, least=2)
    whole_number("samples", samples, least=1)
    whole_number("depth", depth, least=1)


def _layer(point: Collapse, layer: int) -> None:
    if whole_number("layer", layer, least=1) > point.depth:
        raise ValueError(f"layer must be at most the depth {point.depth}, got {layer}")


def _column(classes: int, label: int) -> Array:
    S = simplex(classes)
    if whole_number("label", label, least=0) >= classes:
        raise ValueError(f"label must be below the number of classes {classes}, got {label}")
    column: Array = S[:, label]
    return column


def _unit_columns(name: str, means: ArrayLike, classes: int) -> Array:
    """Columns of length 1 from class means (rows, K)."""
    columns = real_array(name, means, ndim=2)
    if columns.shape[1] != classes:
        raise ValueError(f"{name} must have one column per class, {classes}, got {columns.shape}")
    lengths = np.linalg.norm(columns, axis=0)
    if np.any(lengths == 0):
        raise ValueError(f"{name} must have no zero column: a class mean without direction")
    units: Array = columns / lengths
    return units
