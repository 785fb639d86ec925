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

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import brentq, minimize
from scipy.sparse.linalg import minres

from exacthessian.aligned import AlignedChain
from exacthessian.chain import LinearChain
from exacthessian.inputs import Array, real_array, ridge_per_layer, whole_number
from exacthessian.spectrum import Spectrum

NEWTON_STEPS = 12


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
        scales: Array = np.sqrt(self.fit * self.misfit / (self.classes * self._lambdas))
        return scales

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

    def optimum(self, rng: np.random.Generator | None = None) -> AlignedChain:
        """An optimum as an aligned chain of L + 1 layers H_1, W_1, …, W_L on the inputs I_{Kn}, in
        random orthogonal bases, or in identities when `rng` is None.

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
                np.where(np.arange(size) < self.classes, scale, 0.0)
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
        return _spectrum(
            [
                ("outlier", self.curvatures[layer] + shift, outliers),
                ("idle", shift, rows * columns - outliers),
            ]
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
            ("symmetric", symmetric[0], k * (k + 1) // 2),
            ("antisymmetric", turning[0], k * (k - 1) // 2),
            *(("balance", value, k * (k + 1) // 2) for value in symmetric[1:]),
            *(("orbit", value, k * (k - 1) // 2) for value in turning[1:]),
        ]
        for one, other in zip(range(len(lam) - 1), range(1, len(lam)), strict=True):
            coupling = np.sqrt(lam[one] * lam[other])
            sum_or_coupling = lam[one] + lam[other] if ridge else coupling
            entries.append(("balance", sum_or_coupling, k * spare))
            entries.append(("orbit", 0.0 if ridge else -coupling, k * spare))
        entries += [("idle", value, spare**2) for value in shift[-self.depth : -1]]
        if features:
            deviations = k * (self.samples - 1)
            entries.append(("within", odds * lam[0] + shift[0], k * deviations))
            entries.append(("idle", shift[0], spare * deviations))
        else:
            entries.append(("idle", shift[0], k * spare))
        return _spectrum(entries)

    @property
    def _lambdas(self) -> Array:
        """λ_0, …, λ_L, shape (L + 1,)."""
        return np.asarray(self.ridge, dtype=float)

    @property
    def _mean_ridge(self) -> float:
        """The geometric mean of λ_0, …, λ_L."""
        return float(np.exp(np.log(self._lambdas).mean()))


def minimise(chain: LinearChain, tol: float = 1e-13) -> LinearChain:
    """A local minimum of the loss of `chain` near where quasi-Newton descent leads, with a gradient
    of norm at most `tol`: L-BFGS first, then Newton steps that leave flat directions alone.

    >>> ufm = DeepLinearUFM(classes=2, samples=3, depth=2, width=3, ridge=0.01)
    >>> trained = minimise(ufm.random_point(np.random.default_rng(0)))
    >>> abs(trained.loss() - ufm.loss()) < 1e-14
    True
    """

    def value(theta: Array) -> tuple[float, Array]:
        here = chain.with_parameters(theta)
        return here.loss(), here.gradient()

    found = minimize(
        value,
        chain.parameters(),
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": 20000, "maxfun": 40000, "maxcor": 30, "ftol": 0.0, "gtol": 1e-8},
    )
    here = chain.with_parameters(found.x)
    for _ in range(NEWTON_STEPS):
        slope = here.gradient()
        if np.linalg.norm(slope) <= tol:
            return here
        step, _ = minres(here.operator(), -slope, rtol=1e-8, maxiter=500)
        here = here.with_parameters(here.parameters() + step)
    raise RuntimeError(
        f"tol = {tol} was not reached: the gradient has norm {np.linalg.norm(here.gradient()):.3g}"
    )


def _limit(depth: int) -> float:
    """b at the threshold (17), where C = (L−1)/L."""
    return float(((depth - 1) / depth) ** ((depth - 1) / (depth + 1)) / depth)


def _fold(depth: int) -> float:
    """The largest value of b = (1−C)C^{(L−1)/(L+1)}, at C = (L−1)/(2L)."""
    turn = (depth - 1) / (2 * depth)
    return float((1 - turn) * turn ** ((depth - 1) / (depth + 1)))


def _spectrum(entries: Sequence[tuple[str, float, int]]) -> Spectrum:
    """The entries (label, value, multiplicity) whose multiplicity is not zero, descending."""
    kept = sorted((entry for entry in entries if entry[2]), key=lambda entry: -entry[1])
    labels, values, counts = zip(*kept, strict=True)
    return Spectrum(np.array(values), np.array(counts), labels)
