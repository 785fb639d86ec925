"""Deep linear unconstrained feature models with squared loss, and their optima in closed form.

K classes with n samples each pass through L linear layers; the features H_1 (d, Kn) that enter the
first layer are free parameters. With Y = I_K ⊗ 1_nᵀ the loss is

    1/(2Kn) ‖W_L ⋯ W_1 H_1 − Y‖² + ½ λ_0 ‖H_1‖² + ½ Σ_l λ_l ‖W_l‖² .

This is a linear chain of N = L + 1 layers H_1, W_1, …, W_L with the Kn unit vectors as inputs:
Σxx = I/(Kn), Σyx = Y/(Kn). So `LinearChain` gives its loss, gradient and Hessian at every point,
and `AlignedChain` its spectrum at an optimum.

At an optimum the outputs are C·Y, where C is the larger solution of

    (1 − C) C^{(L−1)/(L+1)} = K (n λ_0 λ_1 ⋯ λ_L)^{1/(L+1)} .

With K-frames P_0, …, P_{L−1} (d, K), PᵀP = I, the optima are exactly

    H_1 = t_0 P_0 Y/√n,   W_l = t_l P_l P_{l−1}ᵀ (0 < l < L),   W_L = t_L P_{L−1}ᵀ ,

with t_l² = C(1 − C)/(K λ_l). The layer-wise Hessian has the eigenvalue g_l = λ_l C/(1 − C).
Layers count from 0 here, and layer 0 is the matrix of features.
"""

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from itertools import pairwise
from operator import matmul
from typing import Any, Generic, NamedTuple, Self, TypeVar

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import brentq, minimize
from scipy.sparse.linalg import minres

from exacthessian.aligned import AlignedChain
from exacthessian.chain import LinearChain
from exacthessian.inputs import Array, real_array, ridge_per_layer, whole_number
from exacthessian.spectrum import Spectrum

NEWTON_STEPS = 12
RANK_TOLERANCE = 1e-12

Model = TypeVar("Model")


def threshold(classes: int, samples: int, depth: int) -> float:
    """λ_0, below which collapse is optimal and above which zero is: condition (17) solved for λ,

        K λ_0 n^{1/(L+1)} = (1/L) ((L−1)/L)^{(L−1)/(L+1)} ,   where C = (L−1)/L.

    For one layer C = 1 − Kλ√n, so the threshold is 1/(K√n):

    >>> threshold(classes=2, samples=4, depth=1)
    0.25
    >>> round(threshold(classes=4, samples=40, depth=4), 6)
    0.025148
    """
    classes = whole_number("classes", classes, least=2)
    samples = whole_number("samples", samples, least=1)
    depth = whole_number("depth", depth, least=1)
    return float(_limit(depth) / (classes * samples ** (1 / (depth + 1))))


@dataclass(frozen=True)
class DeepLinearUFM:
    """K `classes` of n `samples` each, L layers (`depth`) of width d, and λ > 0 (`ridge`): one
    number, or L + 1 numbers λ_0, …, λ_L, the first for the features.

    λ must be below the threshold (17), so that the collapsed point is the global minimum; with
    `local` it may be as large as the fold, up to which that point is a local minimum.

    >>> ufm = DeepLinearUFM(classes=4, samples=40, depth=4, width=65, ridge=5e-5)
    >>> round(ufm.fit, 6), ufm.orbit_dimension
    (0.999582, 1000)
    >>> ufm.spectrum(features=False, ridge=False)
    Spectrum(0.478006 × 6, 0.477706 × 10, 5e-05 × 762, 0 × 11407, -5e-05 × 750)
    """

    classes: int
    samples: int
    depth: int
    width: int
    ridge: float | Sequence[float]
    local: bool = False

    def __post_init__(self) -> None:
        classes = whole_number("classes", self.classes, least=2)
        samples = whole_number("samples", self.samples, least=1)
        depth = whole_number("depth", self.depth, least=1)
        width = whole_number("width", self.width, least=1)
        if width < classes:
            raise ValueError(
                f"width must be at least the number of classes, d ≥ K = {classes}, got d = {width}"
            )
        ridge = ridge_per_layer(self.ridge, depth + 1)
        if min(ridge) == 0:
            raise ValueError("ridge must be positive, got 0: without it there is no optimum")
        object.__setattr__(self, "ridge", ridge)
        limit = _fold(depth) if self.local else _limit(depth)
        if not self.strength < limit:
            largest = limit / (classes * samples ** (1 / (depth + 1)))
            condition = (
                "the fold, beyond which no collapsed point exists"
                if self.local
                else "condition (17), beyond which the zero solution is optimal"
            )
            size = "be" if len(set(ridge)) == 1 else "have a geometric mean"
            raise ValueError(
                f"ridge must {size} below {largest:.6g} to satisfy {condition} "
                f"(K = {classes}, n = {samples}, L = {depth}), got {self._mean_ridge:.6g}"
            )

    @property
    def size(self) -> int:
        """The number of parameters, features included: dKn + (L−1)d² + Kd.

        >>> DeepLinearUFM(classes=2, samples=3, depth=2, width=4, ridge=0.01).size
        48
        """
        features = self.width * self.classes * self.samples
        return features + (self.depth - 1) * self.width**2 + self.classes * self.width

    @property
    def labels(self) -> Array:
        """Y = I_K ⊗ 1_nᵀ, shape (K, Kn).

        >>> DeepLinearUFM(classes=2, samples=2, depth=1, width=2, ridge=0.01).labels
        array([[1., 1., 0., 0.],
               [0., 0., 1., 1.]])
        """
        return np.repeat(np.eye(self.classes), self.samples, axis=1)

    @property
    def strength(self) -> float:
        """b = K (n λ_0 ⋯ λ_L)^{1/(L+1)}, the one number through which K, n and λ set C.

        >>> ufm = DeepLinearUFM(classes=2, samples=4, depth=1, width=2, ridge=[0.02, 0.08])
        >>> round(ufm.strength, 12)
        0.16
        """
        return float(self.classes * self.samples ** (1 / (self.depth + 1)) * self._mean_ridge)

    @cached_property
    def misfit(self) -> float:
        """1 − C, solved for directly, so that it is exact to rounding also when it is small.

        >>> round(DeepLinearUFM(classes=2, samples=4, depth=1, width=2, ridge=0.04).misfit, 12)
        0.16
        """
        power = (self.depth - 1) / (self.depth + 1)
        top = (self.depth + 1) / (2 * self.depth)
        if power == 0:
            return self.strength
        root = brentq(
            lambda u: u * (1 - u) ** power - self.strength,
            self.strength / 2,
            top,
            xtol=1e-300,
            rtol=4 * np.finfo(float).eps,
        )
        return float(root)

    @property
    def fit(self) -> float:
        """C, the size of the outputs at an optimum: W_L ⋯ W_1 H_1 = C·Y (Theorem 1).

        >>> round(DeepLinearUFM(classes=2, samples=4, depth=1, width=2, ridge=0.04).fit, 12)
        0.84
        """
        return 1 - self.misfit

    @property
    def scales(self) -> Array:
        """t_0, …, t_L, the K-fold singular values of H_1, W_1, …, W_L: t_l² = C(1−C)/(Kλ_l).

        >>> ufm = DeepLinearUFM(classes=2, samples=9, depth=2, width=2, ridge=0.01)
        >>> bool(np.isclose(ufm.scales.prod(), 3 * ufm.fit))
        True
        """
        return np.sqrt(self.fit * self.misfit / (self.classes * self._lambdas))

    @property
    def curvatures(self) -> Array:
        """g_l = λ_l C/(1−C), the non-zero eigenvalue of the Hessian of layer l = 0, …, L alone.

        >>> DeepLinearUFM(classes=2, samples=4, depth=1, width=2, ridge=0.04).curvatures.round(12)
        array([0.21, 0.21])
        """
        return self._lambdas * (self.fit / self.misfit)

    def loss(self) -> float:
        """The loss at the collapsed points, ½(1 − C)(1 + LC).

        >>> ufm = DeepLinearUFM(classes=2, samples=4, depth=1, width=2, ridge=0.04)
        >>> round(ufm.loss(), 12)
        0.1472
        """
        return self.misfit * (1 + self.depth * self.fit) / 2

    @property
    def orbit_dimension(self) -> int:
        """The dimension of the set of optima, L copies of the K-frames in d dimensions:
        L(dK − K(K+1)/2).

        >>> DeepLinearUFM(classes=2, samples=4, depth=3, width=5, ridge=0.01).orbit_dimension
        21
        """
        frames = self.width * self.classes - self.classes * (self.classes + 1) // 2
        return self.depth * frames

    @property
    def slowest(self) -> float:
        """The smallest positive curvature in all parameters, which sets the time that training
        takes: λ if d > K, 2λ if d = K (equal λ, L ≥ 2).

        >>> sizes = dict(classes=2, samples=4, depth=3, ridge=0.01)
        >>> [round(DeepLinearUFM(width=width, **sizes).slowest, 12) for width in (2, 3)]
        [0.02, 0.01]
        """
        spectrum = self.spectrum()
        moving = np.array([label != "orbit" for label in spectrum.labels])
        return float(spectrum.values[moving].min())

    def optimum(
        self, rng: np.random.Generator | None = None, rank: int | None = None
    ) -> AlignedChain:
        """An optimum as an aligned chain of L + 1 layers H_1, W_1, …, W_L on the inputs I_{Kn}, in
        random orthogonal bases, or in identities when `rng` is None; with a `rank` below K the
        critical point that has only so many modes, and zeros in place of the others.

        >>> ufm = DeepLinearUFM(classes=2, samples=3, depth=2, width=4, ridge=0.01)
        >>> chain = ufm.optimum(np.random.default_rng(0)).to_chain()
        >>> bool(np.abs(chain.gradient()).max() < 1e-15), [w.shape for w in chain.weights]
        (True, [(4, 6), (4, 4), (2, 4)])
        """
        inputs = self.classes * self.samples
        ranges = [min(inputs, self.width), *[self.width] * (self.depth - 1), self.classes]
        hidden = [np.eye(self.width) for _ in range(self.depth)]
        if rng is not None:
            hidden = [np.linalg.qr(rng.standard_normal(basis.shape))[0] for basis in hidden]
        within = np.linalg.qr(np.eye(self.samples) - 1 / self.samples)[0][:, : self.samples - 1]
        means = self.labels.T / np.sqrt(self.samples)
        return AlignedChain(
            widths=(inputs, *[self.width] * self.depth, self.classes),
            singular_values=tuple(
                np.where(np.arange(size) < (self.classes if rank is None else rank), scale, 0.0)
                for scale, size in zip(self.scales, ranges, strict=True)
            ),
            data=np.full(inputs, 1 / inputs),
            target=np.full(self.classes, 1 / (self.classes * np.sqrt(self.samples))),
            half_y2=0.5,
            ridge=self._lambdas.tolist(),
            bases=(
                np.hstack([means, np.kron(np.eye(self.classes), within)]),
                *hidden,
                np.eye(self.classes),
            ),
        )

    def nonnegative_optimum(self, rng: np.random.Generator) -> "ReluUFM":
        """A random optimum whose H_2..H_L have no negative entry, so that ReLUs do not act there
        (Definition 2): non-negative frames P_1..P_{L−1}, and P_0 with any signs.

        >>> ufm = DeepLinearUFM(classes=3, samples=2, depth=3, width=5, ridge=1e-3)
        >>> point = ufm.nonnegative_optimum(np.random.default_rng(0))
        >>> abs(point.loss() - ufm.loss()) < 1e-14, bool(np.all(point.features(3) >= 0))
        (True, True)
        """
        # A frame with disjoint supports and any signs, so that the zeros of H_2 are exact.
        signs = rng.choice([-1.0, 1.0], (self.width, 1))
        first = signs * nonnegative_frame(self.width, self.classes, rng)
        above = [nonnegative_frame(self.width, self.classes, rng) for _ in range(self.depth - 1)]
        frames = [first, *above, np.eye(self.classes)]
        features = self.scales[0] / np.sqrt(self.samples) * first @ self.labels
        weights = [
            scale * upper @ lower.T
            for scale, (lower, upper) in zip(self.scales[1:], pairwise(frames), strict=True)
        ]
        return ReluUFM((features, *weights), self.ridge)

    def point(self, features: ArrayLike, weights: Sequence[ArrayLike]) -> LinearChain:
        """Any point of the model, `features` (d, Kn) and `weights` W_1, …, W_L, as a chain of
        L + 1 layers: loss, gradient and Hessian are those of the model.

        >>> ufm = DeepLinearUFM(classes=2, samples=1, depth=1, width=2, ridge=0.01)
        >>> round(ufm.point(np.eye(2), [np.eye(2)]).loss(), 12)
        0.02
        """
        layers = [real_array("features", features, ndim=2)]
        layers += [real_array(f"weights[{i}]", weight, ndim=2) for i, weight in enumerate(weights)]
        inputs = self.classes * self.samples
        heights = [self.width] * self.depth + [self.classes]
        shapes = list(zip(heights, [inputs, *heights[:-1]], strict=True))
        if [layer.shape for layer in layers] != shapes:
            raise ValueError(
                f"features and weights must have the shapes {shapes}, "
                f"got {[layer.shape for layer in layers]}"
            )
        return LinearChain(
            weights=tuple(layers),
            sigma_xx=np.eye(inputs) / inputs,
            sigma_yx=self.labels / inputs,
            half_y2=0.5,
            ridge=self._lambdas.tolist(),
        )

    def random_point(self, rng: np.random.Generator) -> LinearChain:
        """A start for training: independent normal entries of variance 1/d.

        >>> ufm = DeepLinearUFM(classes=2, samples=3, depth=2, width=4, ridge=0.01)
        >>> ufm.random_point(np.random.default_rng(0)).widths
        (6, 4, 4, 2)
        """
        chain = self.optimum().to_chain()
        return chain.with_parameters(rng.standard_normal(chain.size) / np.sqrt(self.width))

    def head(self, chain: LinearChain) -> LinearChain:
        """The weights W_1, …, W_L of a point alone, with its features as data and no ridge: the
        function whose Hessian Theorem 5 is about.

        >>> ufm = DeepLinearUFM(classes=2, samples=3, depth=2, width=4, ridge=0.01)
        >>> ufm.head(ufm.optimum().to_chain())
        LinearChain(widths=(4, 4, 2), size=24)
        """
        features, *weights = chain.weights
        return LinearChain.from_data(features, self.labels, weights)

    def layers(self, point: "LinearChain | Point") -> "list[Layer[DeepLinearUFM]]":
        """The layers l = 1, …, L of a point of this model, or of its version with ReLU.

        >>> ufm = DeepLinearUFM(classes=2, samples=3, depth=2, width=4, ridge=0.01)
        >>> [layer.weight.shape for layer in ufm.layers(ufm.optimum().to_chain())]
        [(4, 4), (2, 4)]
        """
        return [Layer(self, point, number) for number in range(1, self.depth + 1)]

    def layer_spectrum(self, layer: int, ridge: bool = True) -> Spectrum:
        """The spectrum of the Hessian of one layer alone, 0 for the features, 1, …, L for the
        weights: g_l (+ λ_l) K² times (K²n times for the features), and 0 (+ λ_l).

        >>> ufm = DeepLinearUFM(classes=2, samples=4, depth=1, width=3, ridge=0.04)
        >>> ufm.layer_spectrum(0, ridge=False), ufm.layer_spectrum(1)
        (Spectrum(0.21 × 16, 0 × 8), Spectrum(0.25 × 4, 0.04 × 2))
        """
        if whole_number("layer", layer, least=0) > self.depth:
            raise ValueError(f"layer must be at most the depth {self.depth}, got {layer}")
        rows = self.classes if layer == self.depth else self.width
        outliers = self.classes * (self.classes * self.samples if layer == 0 else self.classes)
        columns = self.classes * self.samples if layer == 0 else self.width
        shift = self._lambdas[layer] if ridge else 0.0
        return Spectrum.of(
            (self.curvatures[layer] + shift, outliers, "outlier"),
            (shift, rows * columns - outliers, "idle"),
        )

    def spectrum(self, features: bool = True, ridge: bool = True) -> Spectrum:
        """All eigenvalues of the joint Hessian at an optimum: of the features and all weights, or
        of the weights alone; with the term λ_l of the ridge, or without it as in Theorem 5.

        Labels: "symmetric" and "antisymmetric" for the K² outliers, "within" for moves of samples
        within their class, "balance" for moves that unbalance neighbouring layers, "orbit" for
        moves along the set of optima, "idle" for entries that meet no signal.

        With v = (√λ_l) over the N moved layers and Λ = diag(λ_l), a pair of used directions has the
        form (C/(1−C) ∓ 1) vvᵀ ± Λ (+ Λ), symmetric and antisymmetric; a used and a spare direction
        between two layers have the coupling −√(λ_l λ_{l+1}).

        >>> ufm = DeepLinearUFM(classes=2, samples=4, depth=1, width=3, ridge=0.04)
        >>> ufm.spectrum()
        Spectrum(0.5 × 1, 0.42 × 3, 0.25 × 12, 0.08 × 5, 0.04 × 6, 0 × 3)
        """
        lam = self._lambdas if features else self._lambdas[1:]
        odds, shift = self.fit / self.misfit, lam if ridge else np.zeros_like(lam)
        together, own = np.sqrt(np.outer(lam, lam)), np.diag(lam)
        symmetric = np.linalg.eigvalsh((odds - 1) * together + own + np.diag(shift))
        # The term of rank one lifts the outlier above the others, or pushes it below them.
        symmetric = symmetric[::-1] if odds >= 1 else symmetric
        turning = np.linalg.eigvalsh((odds + 1) * together - own + np.diag(shift))[::-1]
        k, spare = self.classes, self.width - self.classes
        entries = [
            (symmetric[0], k * (k + 1) // 2, "symmetric"),
            (turning[0], k * (k - 1) // 2, "antisymmetric"),
            *((value, k * (k + 1) // 2, "balance") for value in symmetric[1:]),
            *((value, k * (k - 1) // 2, "orbit") for value in turning[1:]),
        ]
        for one, other in pairwise(lam):
            coupling = np.sqrt(one * other)
            entries.append((one + other if ridge else coupling, k * spare, "balance"))
            entries.append((0.0 if ridge else -coupling, k * spare, "orbit"))
        entries += [(value, spare**2, "idle") for value in shift[-self.depth : -1]]
        if features:
            deviations = k * (self.samples - 1)
            entries.append((odds * lam[0] + shift[0], k * deviations, "within"))
            entries.append((shift[0], spare * deviations, "idle"))
        else:
            entries.append((shift[0], k * spare, "idle"))
        return Spectrum.of(*entries)

    def spectrum_at_rank(self, rank: int) -> Spectrum:
        """All eigenvalues with ridge at the critical points with r = `rank` of the K modes, for
        L ≥ 2 and equal λ: those of an optimum for r classes, where a mode that is left out adds
        2(g + λ) and 0, r times each, and idle entries.

        >>> ufm = DeepLinearUFM(classes=2, samples=1, depth=2, width=2, ridge=0.02)
        >>> ufm.spectrum_at_rank(1)
        Spectrum(1.39944 × 1, 0.986294 × 1, 0.04 × 4, 0.02 × 3, 0 × 3)
        """
        K, n, L, d, r = self.classes, self.samples, self.depth, self.width, rank
        lam, g, N = self._lambdas[0], self.curvatures[0], self.depth + 1
        even, odd, spare = r * (r + 1) // 2, r * (r - 1) // 2, r * (d - r)
        entries = [
            (N * g - (N - 2) * lam, even, "symmetric"),
            (N * (g + lam), odd, "antisymmetric"),
            (2 * (g + lam), r * (K - r), "missing"),
            (g + lam, r * K * (n - 1), "within"),
            (2 * lam, L * (even + spare), "balance"),
            (0.0, L * (odd + spare) + r * (K - r), "orbit"),
        ]
        idle = self.size - sum(count for _, count, _ in entries)
        return Spectrum.of(*entries, (lam, idle, "idle"))

    @property
    def _lambdas(self) -> Array:
        """λ_0, …, λ_L, shape (L + 1,)."""
        return np.asarray(self.ridge, dtype=float)

    @property
    def _mean_ridge(self) -> float:
        """The geometric mean of λ_0, …, λ_L."""
        return float(np.exp(np.log(self._lambdas).mean()))


@dataclass(frozen=True, eq=False)
class Point:
    """Matrices H_1 (d, Kn), W_1, …, W_L (`weights`; the last has K rows) with their λ (`ridge`): a
    point of a model whose loss a subclass knows. Columns of H_1 are ordered by class.
    """

    weights: tuple[Array, ...]
    ridge: float | Sequence[float] = 0.0

    def __post_init__(self) -> None:
        weights = tuple(
            real_array(f"weights[{i}]", weight, ndim=2) for i, weight in enumerate(self.weights)
        )
        for i, (below, above) in enumerate(pairwise(weights)):
            if above.shape[1] != below.shape[0]:
                raise ValueError(
                    f"weights must fit together: weights[{i + 1}] of shape {above.shape} cannot "
                    f"follow weights[{i}] of shape {below.shape}"
                )
        if len(weights) < 2 or weights[0].shape[1] % len(weights[-1]):
            raise ValueError(
                "weights must hold features with as many columns for each class, a row of the last "
                f"weight, and at least one weight, got {[weight.shape for weight in weights]}"
            )
        object.__setattr__(self, "weights", weights)
        object.__setattr__(self, "ridge", ridge_per_layer(self.ridge, len(weights)))

    @property
    def labels(self) -> Array:
        """Y = I_K ⊗ 1_nᵀ, (K, Kn)."""
        classes, columns = len(self.weights[-1]), self.weights[0].shape[1]
        return np.repeat(np.eye(classes), columns // classes, axis=1)

    def loss(self) -> float:
        """The loss, ridge included."""
        raise NotImplementedError

    def gradient(self) -> Array:
        """Its gradient (P,), in the order of `parameters`."""
        raise NotImplementedError

    def parameters(self) -> Array:
        """All matrices as one vector θ (P,), one after the other, each row by row."""
        return np.concatenate([weight.ravel() for weight in self.weights])

    def with_parameters(self, theta: ArrayLike) -> Self:
        """The point with the parameters θ (P,)."""
        ends = np.cumsum([weight.size for weight in self.weights])[:-1]
        pieces = zip(np.split(np.asarray(theta), ends), self.weights, strict=True)
        moved = copy.copy(self)
        layers = tuple(piece.reshape(weight.shape) for piece, weight in pieces)
        object.__setattr__(moved, "weights", layers)
        return moved

    def step(self, eta: float) -> Self:
        """One step of gradient descent, θ − η∇loss."""
        return self.with_parameters(self.parameters() - eta * self.gradient())

    def _decay(self) -> float:
        """½ Σ_l λ_l ‖·‖²."""
        squares = [np.vdot(weight, weight) for weight in self.weights]
        return float(np.dot(self.ridge, squares)) / 2

    def _with_decay(self, slopes: Sequence[Array]) -> Array:
        """The gradient (P,) from its part without ridge, matrix by matrix."""
        rows = zip(slopes, np.atleast_1d(self.ridge), self.weights, strict=True)
        return np.concatenate([(slope + lam * weight).ravel() for slope, lam, weight in rows])


@dataclass(frozen=True, eq=False)
class ReluUFM(Point):
    """The model with a ReLU on H_2, …, H_L: layer l receives Λ_l and hands on H_{l+1} = W_l Λ_l,
    with Λ_1 = H_1 and Λ_l = σ(H_l) above. ReLU has no derivative at 0, and collapsed features are
    full of zeros, so σ'(0) is a setting: `slope_at_zero`, 1 in the paper, 0 in torch. Entries of
    size at most `zero` count as zeros where σ' is taken; the paper uses 10⁻⁶.

    >>> model = ReluUFM([np.eye(2), np.eye(2), np.eye(2)], ridge=0.25)
    >>> model.loss()
    0.75
    """

    slope_at_zero: float = 1.0
    zero: float = 0.0

    def features(self, layer: int) -> Array:
        """H_l, (d, Kn), before the ReLU; l = L + 1 is the output Z.

        >>> ReluUFM([np.ones((1, 1)), -np.eye(1), np.eye(1)]).features(2)
        array([[-1.]])
        """
        return self._states()[layer - 1]

    def slopes(self, layer: int) -> Array:
        """Ã_ic = W_L diag σ'(h_ic^(L)) ⋯ W_{l+1} diag σ'(h_ic^(l+1)), one for each sample:
        the derivative of the output with respect to h_ic^(l+1), (Kn, K, d_l).

        >>> weights = [np.zeros((1, 1)), np.eye(1), 3 * np.eye(1)]
        >>> [ReluUFM(weights, slope_at_zero=slope).slopes(1).item() for slope in (1.0, 0.0)]
        [3.0, 0.0]
        """
        states, classes = self._states(), len(self.weights[-1])
        product = np.broadcast_to(np.eye(classes), (states[0].shape[1], classes, classes))
        for above in range(len(self.weights) - 1, layer, -1):
            gate = self._gate(states[above - 1])
            product = product @ self.weights[above] * gate.T[:, None, :]
        return product

    def loss(self) -> float:
        """‖Z − Y‖²/(2Kn) + ½ Σ_l λ_l ‖·‖², equation (4)."""
        gaps = self._states()[-1] - self.labels
        return float(np.vdot(gaps, gaps)) / (2 * gaps.shape[1]) + self._decay()

    def gradient(self) -> Array:
        """The gradient (P,) by backpropagation.

        >>> ReluUFM([2 * np.eye(1), np.eye(1), np.eye(1)]).gradient()
        array([1., 2., 2.])
        """
        states = self._states()
        return self._pulled_back(states, (states[-1] - self.labels) / states[0].shape[1])

    def bent(self, overlap: ArrayLike) -> Self:
        """A collapsed point moved to H̄_2 = r Q M without a change of loss, M = `overlap` (K, K):
        positive semidefinite, ones on the diagonal, nothing positive off it. The two factors are
        W_1 = t_1 Q √M Pᵀ and H_1 = t_0 P √M Y/√n.

        >>> point = ReluUFM([np.eye(2), np.eye(2), np.eye(2)], ridge=0.02)
        >>> point.bent([[1, -0.5], [-0.5, 1]]).features(2)
        array([[ 1. , -0.5],
               [-0.5,  1. ]])
        """
        values, vectors = np.linalg.eigh(real_array("overlap", overlap, ndim=2))
        root = (vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T
        features, first, *rest = self.weights
        samples = features.shape[1] // len(root)
        means = features[:, ::samples]
        size = np.linalg.norm(means, axis=0)[0]
        frame, outer = means / size, first @ means / size
        moved = size * frame @ root
        weights = (np.repeat(moved, samples, axis=1), outer @ root @ frame.T, *rest)
        return type(self)(weights, self.ridge, self.slope_at_zero, self.zero)

    def _states(self) -> list[Array]:
        """H_1, …, H_{L+1}."""
        states = [self.weights[0], self.weights[1] @ self.weights[0]]
        for weight in self.weights[2:]:
            states.append(weight @ np.maximum(states[-1], 0.0))
        return states

    def _pulled_back(self, states: list[Array], error: Array) -> Array:
        """The gradient (P,) from H_1, …, H_{L+1} and the derivative of the fit in H_{L+1}."""
        slopes = []
        for layer in range(len(self.weights) - 1, 0, -1):
            received = states[layer - 1] if layer == 1 else np.maximum(states[layer - 1], 0.0)
            slopes.append(error @ received.T)
            error = self.weights[layer].T @ error
            if layer > 1:
                error *= self._gate(states[layer - 1])
        return self._with_decay([error, *slopes[::-1]])

    def _gate(self, before: Array) -> Array:
        """σ' at the entries of H_l."""
        return np.where(np.abs(before) <= self.zero, self.slope_at_zero, before > 0)


class Split(NamedTuple):
    """The class, cross and within part of (5)."""

    classes: Array
    cross: Array
    within: Array

    @classmethod
    def of(cls, vectors: Array) -> Self:
        """Each part as rows R, of which it is RᵀR, from the vectors v_icc', shape (Kn, K, …): the
        means over i and c', the deviations of the means over c', and those over i.

        >>> [rows.ravel().tolist() for rows in Split.of(np.array([[[1.0]], [[3.0]]]))]
        [[2.0], [0.0], [-0.7071067811865475, 0.7071067811865475]]
        """
        samples, classes = vectors.shape[:2]
        each = vectors.reshape(classes, samples // classes, classes, -1)
        pairs = each.mean(axis=1, keepdims=True)
        centres = pairs.mean(axis=2, keepdims=True)
        across, inside = (pairs - centres) / np.sqrt(classes), (each - pairs) / np.sqrt(samples)
        return cls(*(part.reshape(-1, each.shape[-1]) for part in (centres, across, inside)))


@dataclass(frozen=True, eq=False, repr=False)
class Layer(Generic[Model]):
    """Layer l = `number` of a `point` of a `model`: what it receives, what it hands on, and what
    follows. All that the paper says about one layer is a function of it.

    >>> ufm = DeepLinearUFM(classes=2, samples=2, depth=2, width=2, ridge=0.01)
    >>> layer = Layer(ufm, ufm.optimum().to_chain(), 1)
    >>> layer.here.shape, layer.slopes.shape, layer.hessian().shape
    ((2, 2), (4, 2, 2), (4, 4))
    """

    model: Model
    point: LinearChain | Point
    number: int

    def __repr__(self) -> str:
        return f"layer {self.number} of {self.model}"

    @property
    def weight(self) -> Array:
        """W_l."""
        return self.point.weights[self.number]

    @property
    def classes(self) -> int:
        """K."""
        return len(self.point.weights[-1])

    @cached_property
    def inputs(self) -> Array:
        """What the layer receives, (d, Kn): H_l, or σ(H_l) with ReLU and l > 1."""
        if isinstance(self.point, ReluUFM):
            before = self.point.features(self.number)
            return before if self.number == 1 else np.maximum(before, 0.0)
        return reduce(matmul, reversed(self.point.weights[: self.number]))

    @cached_property
    def slopes(self) -> Array:
        """The derivative of the outputs in what the layer hands on, (Kn, K, d_l), sample by sample:
        A_{l+1} = W_L ⋯ W_{l+1} for all of them without ReLU.
        """
        if isinstance(self.point, ReluUFM):
            return self.point.slopes(self.number)
        above = reversed(self.point.weights[self.number + 1 :])
        product = reduce(matmul, above, np.eye(self.classes))
        return np.broadcast_to(product, (self.inputs.shape[1], *product.shape))

    @property
    def here(self) -> Array:
        """The class means H̄_l, (d, K), before any ReLU."""
        if isinstance(self.point, ReluUFM):
            return self.mean(self.point.features(self.number))
        return self.mean(self.inputs)

    @property
    def above(self) -> Array:
        """The class means H̄_{l+1} of what the layer hands on, (d_l, K)."""
        return self.weight @ self.mean(self.inputs)

    @property
    def residuals(self) -> Array:
        """u = Z − Y, (K, Kn)."""
        moved = np.einsum("ska,as->ks", self.slopes, self.weight @ self.inputs)
        return moved - np.repeat(np.eye(self.classes), moved.shape[1] // self.classes, axis=1)

    @property
    def gradient(self) -> Array:
        """The data gradient as a matrix like W_l: Av_ic{(Ãᵀu_ic) h_icᵀ}."""
        errors = np.einsum("ska,ks->as", self.slopes, self.residuals)
        return errors @ self.inputs.T / self.inputs.shape[1]

    def mean(self, columns: Array) -> Array:
        """The class means of Kn columns."""
        return columns.reshape(len(columns), self.classes, -1).mean(axis=2)

    def hessian(self) -> Array:
        """Hess_l = Av_ic{ÃᵀÃ ⊗ h_ic h_icᵀ}, dense and without ridge."""
        rows = np.concatenate(self.split())
        return rows.T @ rows

    def split(self, compressed: bool = False) -> Split:
        """The class, cross and within part of Hess_l as rows, from v_icc' = a_c' ⊗ h_ic.
        `compressed` writes them in bases of what occurs, which keeps all inner products.
        """
        left, right = self.slopes, self.inputs.T
        if compressed:
            left, right = _coordinates(left), _coordinates(right)
        return Split.of(np.einsum("ska,sb->skab", left, right))

    def eigenvalues(self, without: str = "") -> Array:
        """The eigenvalues of Hess_l, descending, or of what is left without its part "classes",
        "cross" or "within"; zeros beyond the number of rows or coordinates are not listed.

        >>> ufm = DeepLinearUFM(classes=2, samples=2, depth=2, width=2, ridge=0.01)
        >>> layer = Layer(ufm, ufm.optimum().to_chain(), 1)
        >>> [int(np.sum(layer.eigenvalues(part) > 0.1)) for part in ("", "classes", "cross")]
        [4, 2, 2]
        """
        parts = self.split(compressed=True)._asdict()
        kept = np.concatenate([rows for name, rows in parts.items() if name != without])
        gram = kept @ kept.T if kept.shape[0] <= kept.shape[1] else kept.T @ kept
        return np.linalg.eigvalsh(gram)[::-1]


def nonnegative_frame(width: int, classes: int, rng: np.random.Generator) -> Array:
    """A random d×K matrix with orthonormal columns and no negative entry. Its columns have
    disjoint supports, so at least (K−1)d of its Kd entries are zero; here exactly as many.

    >>> frame = nonnegative_frame(5, 2, np.random.default_rng(0))
    >>> bool(np.allclose(frame.T @ frame, np.eye(2))), int(np.sum(frame == 0))
    (True, 5)
    """
    extra = rng.integers(0, classes, width - classes)
    owner = rng.permutation(np.concatenate([np.arange(classes), extra]))
    frame = np.zeros((width, classes))
    frame[np.arange(width), owner] = rng.uniform(0.5, 1.5, width)
    return frame / np.linalg.norm(frame, axis=0)


def minimise(start: Any, tol: float = 1e-13) -> Any:
    """A local minimum of the loss of `start`, a `LinearChain` or a `Point`, near where quasi-Newton
    descent (L-BFGS) leads; for a chain Newton steps that leave flat directions alone follow, until
    the gradient has norm at most `tol`.

    >>> ufm = DeepLinearUFM(classes=2, samples=3, depth=2, width=3, ridge=0.01)
    >>> trained = minimise(ufm.random_point(np.random.default_rng(0)))
    >>> abs(trained.loss() - ufm.loss()) < 1e-14
    True
    """

    def value(theta: Array) -> tuple[float, Array]:
        here = start.with_parameters(theta)
        return here.loss(), here.gradient()

    limits = {"maxiter": 20_000, "maxfun": 40_000, "maxcor": 30, "ftol": 0.0, "gtol": 1e-10}
    found = minimize(value, start.parameters(), jac=True, method="L-BFGS-B", options=limits)
    here = start.with_parameters(found.x)
    if not isinstance(here, LinearChain):
        return here
    for _ in range(NEWTON_STEPS):
        slope = here.gradient()
        if np.linalg.norm(slope) <= tol:
            return here
        step, _ = minres(here.operator(), -slope, rtol=1e-8, maxiter=500)
        here = here.with_parameters(here.parameters() + step)
    raise RuntimeError(
        f"tol = {tol} was not reached: the gradient has norm {np.linalg.norm(here.gradient()):.3g}"
    )


def _coordinates(rows: Array) -> Array:
    """The vectors along the last axis in an orthonormal basis of their span."""
    flat = rows.reshape(-1, rows.shape[-1])
    sizes, basis = np.linalg.svd(flat, full_matrices=False)[1:]
    return rows @ basis[sizes > RANK_TOLERANCE * sizes.max(initial=0.0)].T


def _limit(depth: int) -> float:
    """b at the threshold (17), where C = (L−1)/L."""
    return float(((depth - 1) / depth) ** ((depth - 1) / (depth + 1)) / depth)


def _fold(depth: int) -> float:
    """The largest value of b = (1−C)C^{(L−1)/(L+1)}, at C = (L−1)/(2L)."""
    turn = (depth - 1) / (2 * depth)
    return float((1 - turn) * turn ** ((depth - 1) / (depth + 1)))
