"""The ReLU model of "Unifying Low Dimensional Observations …", and what its experiments measure.

A feature model holds L weight matrices and, for K classes with n samples each, the features H_1
(d_0, Kn) as free parameters, class by class. Layer l = 1..L receives Λ_l and hands on
H_{l+1} = W_l Λ_l, where Λ_1 = H_1 and Λ_l = σ(H_l) above; H_{L+1} = Z is the output. Equation (4):

    loss = ‖Z − Y‖²/(2Kn) + ½λ (Σ_l ‖W_l‖² + ‖H_1‖²),    Y = I_K ⊗ 1_nᵀ.

Layers are numbered from 1, as in the paper. ReLU has no derivative at 0, and collapsed features
are full of zeros, so every derivative takes σ'(0) as an argument: `slope_at_zero`, 1 in the paper,
0 in torch.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import minimize

from exacthessian.inputs import Array, nonnegative_number, real_array, whole_number
from exacthessian.ufm import DeepLinearUFM, threshold

Shares: TypeAlias = tuple[Array, Array]
Stage: TypeAlias = tuple[int, float, float]
RANK_TOLERANCE = 1e-12


@dataclass(frozen=True, eq=False)
class FeatureModel:
    """`weights` W_1..W_L with W_l (d_l, d_{l−1}) and d_L = K, `features` H_1 (d_0, Kn); with `relu`
    there is a ReLU on H_2..H_L, without it the model is linear. Entries of H_l of size at most
    `zero` count as zeros where σ' is taken; the paper uses 10⁻⁶.

    >>> model = FeatureModel([np.eye(2), np.eye(2)], np.eye(2))
    >>> model.depth, model.classes, model.samples, model.loss(ridge=0.25)
    (2, 2, 1, 0.75)
    """

    weights: tuple[Array, ...]
    features: Array
    relu: bool = True
    zero: float = 0.0

    def __post_init__(self) -> None:
        weights = tuple(
            real_array(f"weights[{i}]", weight, ndim=2) for i, weight in enumerate(self.weights)
        )
        if not weights:
            raise ValueError("weights must hold at least one matrix, got none")
        features = real_array("features", self.features, ndim=2)
        names = ["features", *(f"weights[{i}]" for i in range(len(weights)))]
        for (below, above), name in zip(pairwise([features, *weights]), names, strict=False):
            if above.shape[1] != below.shape[0]:
                raise ValueError(
                    f"weights must fit together: a matrix of shape {above.shape} cannot follow "
                    f"{name} of shape {below.shape}"
                )
        if features.shape[1] == 0 or features.shape[1] % weights[-1].shape[0]:
            raise ValueError(
                f"features must have the same number of columns, at least one, for each of the "
                f"{weights[-1].shape[0]} classes (the rows of the last weight), "
                f"got {features.shape[1]} columns"
            )
        object.__setattr__(self, "weights", weights)
        object.__setattr__(self, "features", features)

    @property
    def depth(self) -> int:
        """The number of layers L."""
        return len(self.weights)

    @property
    def classes(self) -> int:
        """The number of classes K."""
        return int(self.weights[-1].shape[0])

    @property
    def samples(self) -> int:
        """The number n of samples of each class."""
        return int(self.features.shape[1] // self.classes)

    @property
    def targets(self) -> Array:
        """Y = I_K ⊗ 1_nᵀ, (K, Kn)."""
        return np.repeat(np.eye(self.classes), self.samples, axis=1)

    def features_before(self, layer: int) -> Array:
        """H_l, (d_{l−1}, Kn), before the ReLU; l = L + 1 is the output Z.

        >>> FeatureModel([-np.eye(1), np.eye(1)], np.ones((1, 1))).features_before(2)
        array([[-1.]])
        """
        here = whole_number("layer", layer, least=1)
        if here > self.depth + 1:
            raise ValueError(f"layer must be at most L + 1 = {self.depth + 1}, got {layer}")
        hidden = self.features
        for weight in self.weights[: here - 1]:
            passed = hidden if hidden is self.features else self._activate(hidden)
            hidden = weight @ passed
        return hidden

    def features_into(self, layer: int) -> Array:
        """Λ_l, (d_{l−1}, Kn): what layer l receives, H_1 for l = 1 and σ(H_l) above.

        >>> FeatureModel([-np.eye(1), np.eye(1)], np.ones((1, 1))).features_into(2)
        array([[0.]])
        """
        before = self.features_before(self._layer(layer))
        return before if layer == 1 else self._activate(before)

    def means(self, layer: int) -> Array:
        """H̄_l, (d_{l−1}, K): the class means of `features_before`."""
        before = self.features_before(layer)
        averages: Array = before.reshape(len(before), self.classes, self.samples).mean(axis=2)
        return averages

    def loss(self, ridge: float) -> float:
        """Equation (4) with λ = `ridge`."""
        residual = self.features_before(self.depth + 1) - self.targets
        squares = sum(float(np.sum(array**2)) for array in (*self.weights, self.features))
        penalty = nonnegative_number("ridge", ridge) * squares
        total: float = float(np.sum(residual**2)) / self.features.shape[1] + penalty
        return total / 2

    def slopes(self, layer: int, slope_at_zero: float = 1.0) -> Array:
        """Ã_{l+1,ic} = W_L diag σ'(h_ic^(L)) ⋯ W_{l+1} diag σ'(h_ic^(l+1)), one for each sample:
        the derivative of the output with respect to h_ic^(l+1), (Kn, K, d_l).

        >>> model = FeatureModel([np.eye(1), 3 * np.eye(1)], np.zeros((1, 1)))
        >>> model.slopes(1, slope_at_zero=1.0).item(), model.slopes(1, slope_at_zero=0.0).item()
        (3.0, 0.0)
        """
        lowest = self._layer(layer)
        count = self.features.shape[1]
        product: Array = np.broadcast_to(np.eye(self.classes), (count, self.classes, self.classes))
        for above in range(self.depth, lowest, -1):
            product = product @ self.weights[above - 1]
            if self.relu:
                before = self.features_before(above)
                gate = np.where(np.abs(before) <= self.zero, slope_at_zero, before > 0)
                product = product * gate.T[:, None, :]
        return product

    def gradients(self, ridge: float = 0.0) -> list[Array]:
        """The gradients of `loss` in W_1..W_L and H_1, with σ'(0) = 0; for λ = 0 the first L are
        the g̃ of (6).

        >>> model = FeatureModel([np.eye(1), np.eye(1)], 2 * np.ones((1, 1)))
        >>> [gradient.item() for gradient in model.gradients()]
        [2.0, 2.0, 1.0]
        """
        return _gradients([*self.weights, self.features], self.targets, ridge, self.relu)

    def hessian(self, layer: int, slope_at_zero: float = 1.0) -> Array:
        """Hess_l = Av_ic {Ã_{l+1,ic}ᵀ Ã_{l+1,ic} ⊗ σ(h_ic)σ(h_ic)ᵀ}, section 4, without ridge;
        dense, (d_l d_{l−1}, d_l d_{l−1}).

        >>> model = FeatureModel([np.eye(1), 3 * np.eye(1)], 2 * np.ones((1, 1)))
        >>> model.hessian(1)
        array([[36.]])
        """
        slopes, inputs = self.slopes(layer, slope_at_zero), self.features_into(layer)
        rows = np.einsum("ska,bs->skab", slopes, inputs).reshape(len(slopes) * self.classes, -1)
        dense: Array = rows.T @ rows / len(slopes)
        return dense

    def parts(self, layer: int, slope_at_zero: float = 1.0) -> "Parts":
        """The class, cross and within part of Hess_l, equation (5) and appendix C.2.

        >>> model = FeatureModel([np.eye(2), np.eye(2)], np.eye(2), relu=False)
        >>> [len(rows) for rows in (model.parts(1).class_, model.parts(1).cross)]
        [2, 4]
        """
        left = _coordinates(self.slopes(layer, slope_at_zero))
        right = _coordinates(self.features_into(layer).T)
        shape = (self.classes, self.samples, self.classes, left.shape[-1] * right.shape[-1])
        each = np.einsum("ska,sb->skab", left, right).reshape(shape)
        pairs = each.mean(axis=1)
        centres = pairs.mean(axis=1)
        return Parts(
            class_=centres,
            cross=((pairs - centres[:, None]) / np.sqrt(shape[0])).reshape(-1, shape[-1]),
            within=((each - pairs[:, None]) / np.sqrt(shape[0] * shape[1])).reshape(-1, shape[-1]),
        )

    def _layer(self, layer: int) -> int:
        here = whole_number("layer", layer, least=1)
        if here > self.depth:
            raise ValueError(f"layer must be at most L = {self.depth}, got {layer}")
        return here

    def _activate(self, hidden: Array) -> Array:
        return np.maximum(hidden, 0.0) if self.relu else hidden


@dataclass(frozen=True, eq=False)
class Parts:
    """The three parts of Hess_l of equation (5), each as rows R with RᵀR equal to the part, in
    coordinates that keep all inner products: `class_` has K rows, `cross` K², `within` K²n.
    """

    class_: Array
    cross: Array
    within: Array

    def eigenvalues(self, without: str = "") -> Array:
        """The eigenvalues of Hess_l, largest first, or of what is left of it when the part named
        `without` ("class", "cross" or "within") is knocked out. Zeros beyond the number of rows or
        coordinates are not listed.

        >>> model = FeatureModel([np.eye(2), np.eye(2)], np.eye(2), relu=False)
        >>> [np.sum(model.parts(1).eigenvalues(part) > 0.1).item() for part in ("", "class")]
        [4, 2]
        """
        rows = {"class": self.class_, "cross": self.cross, "within": self.within}
        if without and without not in rows:
            raise ValueError(f"without must be one of {', '.join(rows)}, got {without!r}")
        kept = np.concatenate([part for name, part in rows.items() if name != without])
        gram = kept @ kept.T if kept.shape[0] <= kept.shape[1] else kept.T @ kept
        eigenvalues: Array = np.linalg.eigvalsh(gram)[::-1]
        return eigenvalues


def nonnegative_frame(width: int, classes: int, rng: np.random.Generator) -> Array:
    """A random d×K matrix with orthonormal columns and no negative entry. Its columns have
    disjoint supports, so at least (K−1)d of its Kd entries are zero; here exactly as many.

    >>> frame = nonnegative_frame(5, 2, np.random.default_rng(0))
    >>> bool(np.allclose(frame.T @ frame, np.eye(2))), int(np.sum(frame == 0))
    (True, 5)
    """
    d = whole_number("width", width, least=1)
    K = whole_number("classes", classes, least=1)
    if d < K:
        raise ValueError(f"width must be at least the number of classes, {K}, got {d}")
    owner = rng.permutation(np.concatenate([np.arange(K), rng.integers(0, K, d - K)]))
    frame = np.zeros((d, K))
    frame[np.arange(d), owner] = rng.uniform(0.5, 1.5, d)
    return _unit(frame)


def definition_2(ufm: DeepLinearUFM, rng: np.random.Generator) -> FeatureModel:
    """A random point of Definition 2: a global minimum of the linear model `ufm` whose H_2..H_L
    have no negative entry. H_1 = t_0 Q_1 Y/√n and W_l = t_l Q_{l+1} Q_lᵀ, with non-negative frames
    Q_2..Q_L, a frame Q_1 with any signs, and Q_{L+1} = I.

    >>> ufm = DeepLinearUFM(classes=3, samples=2, depth=3, width=5, ridge=1e-3)
    >>> model = definition_2(ufm, np.random.default_rng(0))
    >>> abs(model.loss(1e-3) - ufm.loss()) < 1e-14, bool(np.all(model.features_before(3) >= 0))
    (True, True)
    """
    # A frame with disjoint supports and any signs, so that the zeros of H_2 are exact.
    signs = rng.choice([-1.0, 1.0], (ufm.width, 1))
    first = signs * nonnegative_frame(ufm.width, ufm.classes, rng)
    above = [nonnegative_frame(ufm.width, ufm.classes, rng) for _ in range(ufm.depth - 1)]
    frames = [first, *above, np.eye(ufm.classes)]
    weights = [
        scale * upper @ lower.T
        for scale, (lower, upper) in zip(ufm.scales[1:], pairwise(frames), strict=True)
    ]
    return FeatureModel(tuple(weights), ufm.scales[0] / np.sqrt(ufm.samples) * first @ ufm.labels)


def theorem_7(
    ufm: DeepLinearUFM, model: FeatureModel, layer: int, slope_at_zero: float = 1.0
) -> Array:
    """Hess_l of `model`, a point of Definition 2, dense, for a layer l < L:

        σ'(0) = 1:  g Σ_{c,c'} [μ̂_c^(l+1) ⊗ μ̂_c'^(l)][μ̂_c^(l+1) ⊗ μ̂_c'^(l)]ᵀ, as in Theorem 1;
        σ'(0) = 0:  the same sum over c = c' alone,

    with g = λ_l C/(1 − C), which is C^(2L/(L+1)) n^(−1/(L+1))/K for equal λ.

    >>> ufm = DeepLinearUFM(classes=2, samples=1, depth=2, width=2, ridge=0.02)
    >>> model = definition_2(ufm, np.random.default_rng(0))
    >>> [int(np.linalg.matrix_rank(theorem_7(ufm, model, 1, slope))) for slope in (1.0, 0.0)]
    [4, 2]
    """
    here = whole_number("layer", layer, least=1)
    if here >= model.depth:
        raise ValueError(f"layer must be below L = {model.depth}, got {layer}")
    if slope_at_zero not in (0.0, 1.0):
        raise ValueError(f"slope_at_zero must be 0 or 1, got {slope_at_zero}")
    upper, lower = (_unit(model.means(place)) for place in (here + 1, here))
    pairs = np.einsum("ac,be->ceab", upper, lower)
    if slope_at_zero == 0:
        pairs = pairs[np.arange(model.classes), np.arange(model.classes)]
    vectors = pairs.reshape(-1, len(upper) * len(lower))
    dense: Array = ufm.curvatures[here] * vectors.T @ vectors
    return dense


def equal_loss(model: FeatureModel, overlap: ArrayLike) -> FeatureModel:
    """A point of Definition 2 moved to H̄_2 = r Q M without a change of loss, M = `overlap` (K, K):
    positive semidefinite, ones on the diagonal, nothing positive off it. M = I moves nothing that
    matters; any other M breaks the orthogonality at layer 2 and makes entries negative.

    The two factors are W_1 = t_1 Q √M Pᵀ and H_1 = t_0 P √M Y/√n, with any K-frame P.

    >>> ufm = DeepLinearUFM(classes=2, samples=1, depth=2, width=2, ridge=0.02)
    >>> model = definition_2(ufm, np.random.default_rng(0))
    >>> other = equal_loss(model, [[1.0, -0.5], [-0.5, 1.0]])
    >>> abs(other.loss(0.02) - model.loss(0.02)) < 1e-15, bool(np.any(other.means(2) < -0.4))
    (True, True)
    """
    M = real_array("overlap", overlap, ndim=2)
    K = model.classes
    if model.depth < 2:
        raise ValueError(f"model must have depth L ≥ 2 to have a layer 2, got {model.depth}")
    if M.shape != (K, K) or not np.allclose(M, M.T):
        raise ValueError(f"overlap must be a symmetric {K}×{K} matrix, got shape {M.shape}")
    values, vectors = np.linalg.eigh(M)
    if values[0] < -RANK_TOLERANCE:
        raise ValueError(f"overlap must be positive semidefinite, got the eigenvalue {values[0]}")
    if not np.allclose(np.diag(M), 1) or np.any(M - np.diag(np.diag(M)) > 0):
        raise ValueError("overlap must have ones on the diagonal and nothing positive off it")
    first, second = model.means(1), model.means(2)
    sizes = [np.linalg.norm(means, axis=0)[0] for means in (first, second)]
    inner, outer = _unit(first), _unit(second)
    root = (vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T
    weights = (sizes[1] / sizes[0] * outer @ root @ inner.T, *model.weights[1:])
    return replace(model, weights=weights, features=sizes[0] * inner @ root @ model.targets)


def theorem_8(ufm: DeepLinearUFM, tilts: Sequence[float]) -> float:
    """The least loss in the class of Theorem 8 when ReLU shortens the frame of layer l = 2..L by
    cos θ_l, θ = `tilts` (L−1): min over α of ½(βα^(L+1) − 1)² + ½λ(L+1)α², α the common norm of
    the factors and β = n^(−1/2) K^(−(L+1)/2) Π cos θ_l. At most ½, the loss of the zero solution.

    A shorter frame acts like a larger λ: only λα² and βα^(L+1) enter, so it is the least loss of
    the linear model with λ (Π cos θ)^(−2/(L+1)).

    >>> ufm = DeepLinearUFM(classes=2, samples=1, depth=2, width=4, ridge=0.02)
    >>> theorem_8(ufm, [0.0]) == ufm.loss(), theorem_8(ufm, [0.5]) > ufm.loss()
    (True, True)
    """
    angles = _tilts(tilts)
    if len(angles) != ufm.depth - 1:
        raise ValueError(f"tilts must hold L − 1 = {ufm.depth - 1} angles, got {len(angles)}")
    factor = float(np.prod(np.cos(angles))) ** (-2 / (ufm.depth + 1))
    ridge = factor * real_array("ridge", ufm.ridge, ndim=1)
    mean = float(np.exp(np.log(ridge).mean()))
    if mean >= threshold(ufm.classes, ufm.samples, ufm.depth):
        return 0.5
    return replace(ufm, ridge=tuple(ridge.tolist())).loss()


def class_member(
    classes: int,
    samples: int,
    width: int,
    tilts: Sequence[float],
    norms: Sequence[float],
    rng: np.random.Generator,
) -> FeatureModel:
    """A random member of the class of Theorem 8, with negative entries: H̄_l is a multiple of
    cos θ_l Q_l − sin θ_l Q'_l (l = 2..L), with Q_l and Q'_l non-negative frames whose supports do
    not meet, and H_1, W_1..W_L have the Frobenius norms `norms` (L+1).

    Both H̄_l and its ReLU are orthogonal frames; the second is cos θ_l times as long.

    >>> model = class_member(2, 1, 4, [0.5], [1.0, 1.0, 1.0], np.random.default_rng(0))
    >>> round(frame_distance(model.means(2)), 12), bool(np.any(model.means(2) < 0))
    (0.0, True)
    """
    K, d = whole_number("classes", classes, least=1), whole_number("width", width, least=1)
    angles = _tilts(tilts)
    sizes = real_array("norms", norms, ndim=1)
    if len(sizes) != len(angles) + 2:
        raise ValueError(
            f"norms must hold one number for H_1 and each of {len(angles) + 1} layers, "
            f"got {len(sizes)}"
        )
    if d < 2 * K:
        raise ValueError(f"width must be at least 2K = {2 * K} for two frames, got {d}")
    outputs, inputs = [], [np.linalg.qr(rng.standard_normal((d, K)))[0]]
    for angle in angles:
        both = nonnegative_frame(d, 2 * K, rng)
        outputs.append(np.cos(angle) * both[:, :K] - np.sin(angle) * both[:, K:])
        inputs.append(both[:, :K])
    outputs.append(np.eye(K))
    weights = [
        size / np.sqrt(K) * above @ below.T
        for size, above, below in zip(sizes[1:], outputs, inputs, strict=True)
    ]
    spread = np.ones((1, samples)) / np.sqrt(K * samples)
    return FeatureModel(tuple(weights), sizes[0] * np.kron(inputs[0], spread))


def alignment(model: FeatureModel, layer: int, slope_at_zero: float = 1.0) -> Array:
    """f_cc' of appendix G.1, (K, K): cos² between μ_c^(l+1) ⊗ μ_c'^(l) and its image under Hess_l;
    1 exactly for an eigenvector (and 0 where the image is zero).

    >>> ufm = DeepLinearUFM(classes=3, samples=2, depth=3, width=5, ridge=1e-3)
    >>> model = definition_2(ufm, np.random.default_rng(0))
    >>> bool(np.allclose(alignment(model, 2), 1))
    True
    """
    upper, lower = model.means(layer + 1), model.means(layer)
    slopes, inputs = model.slopes(layer, slope_at_zero), model.features_into(layer)
    moved = np.einsum("ska,ac->skc", slopes, upper)
    weight = inputs.T @ lower / len(slopes)
    pulled = np.einsum("ska,skc->sca", slopes, moved)
    images = np.einsum("sca,se,bs->ceab", pulled, weight, inputs, optimize=True)
    pairs = np.einsum("ac,be->ceab", upper, lower)
    inner = (images * pairs).sum(axis=(2, 3))
    sizes = (images**2).sum(axis=(2, 3)) * (pairs**2).sum(axis=(2, 3))
    return _ratio(inner**2, sizes)


def gradient_shares(model: FeatureModel, layer: int) -> Array:
    """f̃_cc' of appendix G.1, (K, K): cos² between the data gradient g̃ of layer l and
    μ_c^(l+1) ⊗ μ_c'^(l); by Theorem 3 it is 1/K for c = c' and 0 otherwise.

    >>> ufm = DeepLinearUFM(classes=2, samples=2, depth=3, width=5, ridge=1e-3)
    >>> model = definition_2(ufm, np.random.default_rng(0))
    >>> bool(np.allclose(gradient_shares(model, 2), np.eye(2) / 2))
    True
    """
    upper, lower = model.means(layer + 1), model.means(layer)
    gradient = model.gradients()[layer - 1]
    inner = upper.T @ gradient @ lower
    sizes = np.outer((upper**2).sum(axis=0), (lower**2).sum(axis=0)) * (gradient**2).sum()
    return _ratio(inner**2, sizes)


def frame_distance(means: ArrayLike) -> float:
    """M_l of appendix G.1: the Frobenius distance of H̄ᵀH̄/‖H̄ᵀH̄‖ from I/√K, for `means` (d, K).

    >>> frame_distance([[2.0, 0.0], [0.0, 2.0]])
    0.0
    """
    frame = real_array("means", means, ndim=2)
    gram = frame.T @ frame
    size = np.linalg.norm(gram)
    if size == 0:
        raise ValueError("means must not all be zero")
    return float(np.linalg.norm(gram / size - np.eye(len(gram)) / np.sqrt(len(gram))))


def family_distance(means: ArrayLike) -> float:
    """How far `means` (d, K) are from the set r Q M of `equal_loss`, relative to their norm: with
    r Q = σ(means), the largest of: σ(means) not an orthogonal frame; means outside its span; M not
    symmetric.

    >>> family_distance([[1.0, -0.5], [-0.5, 1.0]])
    0.0
    >>> round(family_distance([[1.0, 0.0], [-0.5, 1.0]]), 3)
    0.243
    """
    frame = real_array("means", means, ndim=2)
    positive = np.maximum(frame, 0.0)
    sizes = np.linalg.norm(positive, axis=0)
    if np.any(sizes == 0):
        raise ValueError("means must have a positive entry in every column")
    overlap = (positive / sizes**2).T @ frame
    outside = np.linalg.norm(frame - positive @ overlap) / np.linalg.norm(frame)
    lopsided = np.linalg.norm(overlap - overlap.T) / np.linalg.norm(overlap + overlap.T)
    return max(frame_distance(positive), float(outside), float(lopsided))


def negative_share(features: ArrayLike, size: float = 1e-6) -> float:
    """The share of entries below −`size`, as in Figure 3.

    >>> negative_share([[1.0, -1.0], [0.0, -1e-9]])
    0.25
    """
    entries = real_array("features", features, ndim=None)
    return float(np.mean(entries < -nonnegative_number("size", size)))


def singular_alignment(model: FeatureModel, layer: int) -> Shares:
    """Figure 16: cosines between μ_c^(l+1) and W Wᵀ μ_c^(l+1), and between μ_c^(l) and
    Wᵀ W μ_c^(l), W = W_l; each (K,), and 1 exactly for singular vectors.

    >>> ufm = DeepLinearUFM(classes=2, samples=2, depth=3, width=5, ridge=1e-3)
    >>> model = definition_2(ufm, np.random.default_rng(0))
    >>> all(bool(np.allclose(cosines, 1)) for cosines in singular_alignment(model, 2))
    True
    """
    weight = model.weights[layer - 1]

    def cosines(vectors: Array, images: Array) -> Array:
        sizes = np.linalg.norm(vectors, axis=0) * np.linalg.norm(images, axis=0)
        return _ratio((vectors * images).sum(axis=0), sizes)

    upper, lower = model.means(layer + 1), model.means(layer)
    return cosines(upper, weight @ (weight.T @ upper)), cosines(lower, weight.T @ (weight @ lower))


def gaussian_start(
    classes: int,
    samples: int,
    width: int,
    depth: int,
    rng: np.random.Generator,
    relu: bool = True,
) -> FeatureModel:
    """Entries N(0, 1/d): the start of the experiments; all hidden widths are `width`.

    >>> gaussian_start(2, 3, 4, 2, np.random.default_rng(0)).features.shape
    (4, 6)
    """
    widths = [width] * depth + [classes]
    weights = [
        rng.standard_normal((above, below)) / np.sqrt(width) for below, above in pairwise(widths)
    ]
    features = rng.standard_normal((width, classes * samples)) / np.sqrt(width)
    return FeatureModel(tuple(weights), features, relu)


def train(
    model: FeatureModel, ridge: float, stages: Iterable[Stage], keep: Sequence[int]
) -> dict[int, FeatureModel]:
    """Descent on `loss`, in stages of (steps, rate, momentum): v ← mv + ∇, θ ← θ − η(∇ + mv).

    Momentum 0 is plain gradient descent, otherwise the steps are Nesterov's. Returns the models at
    the steps in `keep`, counted over all stages.

    >>> start = gaussian_start(2, 1, 2, 2, np.random.default_rng(0), relu=False)
    >>> models = train(start, 0.02, [(200, 0.3, 0.5)], keep=[0, 200])
    >>> [round(models[step].loss(0.02), 3) for step in (0, 200)]
    [0.775, 0.059]
    """
    arrays, theta = _flat([*model.weights, model.features])
    gradient_arrays, gradient = _flat(arrays)
    speed = np.zeros_like(theta)
    targets, wanted, kept, step = model.targets, set(keep), {}, 0

    def note() -> None:
        if step in wanted:
            kept[step] = FeatureModel(tuple(arrays[:-1]), arrays[-1], model.relu, model.zero)

    note()
    for steps, rate, momentum in stages:
        for _ in range(steps):
            for store, new in zip(
                gradient_arrays, _gradients(arrays, targets, ridge, model.relu), strict=True
            ):
                store[:] = new
            speed *= momentum
            speed += gradient
            theta -= rate * (gradient + momentum * speed)
            step += 1
            note()
    missing = sorted(wanted - set(kept))
    if missing:
        raise ValueError(f"keep must hold steps from 0 to {step}, got {missing}")
    return kept


def minimum(model: FeatureModel, ridge: float, steps: int = 3000) -> FeatureModel:
    """Quasi-Newton descent (L-BFGS) on `loss` from `model`, until rounding stops it.

    >>> start = gaussian_start(2, 1, 3, 2, np.random.default_rng(0), relu=False)
    >>> best = DeepLinearUFM(classes=2, samples=1, depth=2, width=3, ridge=0.02).loss()
    >>> abs(minimum(start, 0.02).loss(0.02) - best) < 1e-12
    True
    """
    arrays, theta = _flat([*model.weights, model.features])
    targets = model.targets
    count = targets.shape[1]

    def value(point: Array) -> tuple[float, Array]:
        theta[:] = point
        here = FeatureModel(tuple(arrays[:-1]), arrays[-1], model.relu)
        slopes = _gradients(arrays, targets, ridge, model.relu)
        return count * here.loss(ridge), count * np.concatenate([g.ravel() for g in slopes])

    options = {"maxiter": steps, "maxfun": 2 * steps, "maxcor": 30, "ftol": 0.0, "gtol": 1e-12}
    theta[:] = minimize(value, theta.copy(), jac=True, method="L-BFGS-B", options=options).x
    return FeatureModel(tuple(arrays[:-1]), arrays[-1], model.relu, model.zero)


def _gradients(arrays: Sequence[Array], targets: Array, ridge: float, relu: bool) -> list[Array]:
    """The gradients of the loss in W_1..W_L and H_1 = `arrays[-1]`, by backpropagation."""
    *weights, features = arrays
    inputs = [features]
    for weight in weights[:-1]:
        hidden = weight @ inputs[-1]
        inputs.append(np.maximum(hidden, 0.0) if relu else hidden)
    error = (weights[-1] @ inputs[-1] - targets) / targets.shape[1]
    found = []
    for position in range(len(weights) - 1, -1, -1):
        found.append(error @ inputs[position].T + ridge * weights[position])
        error = weights[position].T @ error
        if relu and position:
            error *= inputs[position] > 0
    return [*found[::-1], error + ridge * features]


def _flat(arrays: Sequence[Array]) -> tuple[list[Array], Array]:
    """Copies of the arrays as views of one vector, and the vector."""
    theta = np.concatenate([array.ravel() for array in arrays])
    ends = np.cumsum([array.size for array in arrays])[:-1]
    pieces = zip(np.split(theta, ends), arrays, strict=True)
    return [piece.reshape(array.shape) for piece, array in pieces], theta


def _coordinates(rows: Array) -> Array:
    """The vectors along the last axis in an orthonormal basis of their span."""
    flat = rows.reshape(-1, rows.shape[-1])
    sizes, basis = np.linalg.svd(flat, full_matrices=False)[1:]
    basis = basis[sizes > RANK_TOLERANCE * sizes.max(initial=0.0)]
    coordinates: Array = rows @ basis.T
    return coordinates


def _ratio(upper: Array, lower: Array) -> Array:
    """upper/lower, and 0 where both vanish."""
    return np.divide(upper, lower, out=np.zeros_like(upper), where=lower > 0)


def _unit(columns: Array) -> Array:
    """Each column divided by its length."""
    unit: Array = columns / np.linalg.norm(columns, axis=0)
    return unit


def _tilts(tilts: Sequence[float]) -> Array:
    angles = real_array("tilts", tilts, ndim=1)
    if np.any((angles < 0) | (angles >= np.pi / 2)):
        raise ValueError(f"tilts must lie in [0, π/2), got {angles.tolist()}")
    return angles
