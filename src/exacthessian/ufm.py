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
Layers count from 0 here, and layer 0 is the matrix of features. A `Point` is any point of the
model, with ReLU and with cross-entropy too.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, Generic, NamedTuple, Self, TypeVar

import numpy as np
from scipy.optimize import brentq, minimize
from scipy.sparse.linalg import minres
from scipy.special import log_softmax

from exacthessian.aligned import AlignedChain
from exacthessian.chain import Layered, LinearChain, checked_weights
from exacthessian.inputs import Array, Ridge, guard, require, ridge_per_layer, settle, whole_number
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
    return _strength((depth - 1) / depth, depth) / (classes * samples ** (1 / (depth + 1)))


@dataclass(frozen=True)
class DeepLinearUFM:
    """K `classes` of n `samples` each, L layers (`depth`) of width d, and λ > 0 (`ridge`): one
    number, or L + 1 numbers λ_0, …, λ_L, the first for the features.

    The collapsed points are the global minima for λ below the `threshold` (17). Beyond it, up to
    the fold, they are local minima, and zero is the global one; beyond the fold there are none.

    >>> ufm = DeepLinearUFM(classes=4, samples=40, depth=4, width=65, ridge=5e-5)
    >>> round(ufm.fit, 6)
    0.999582
    >>> ufm.spectrum(features=False, ridge=False)
    Spectrum(0.478006 × 6, 0.477706 × 10, 5e-05 × 762, 0 × 11407, -5e-05 × 750)
    """

    classes: int
    samples: int
    depth: int
    width: int
    ridge: Ridge

    def __post_init__(self) -> None:
        for name, least in (("classes", 2), ("samples", 1), ("depth", 1), ("width", 1)):
            whole_number(name, getattr(self, name), least)
        K, L, d = self.classes, self.depth, self.width
        require(d >= K, f"width must be at least the number of classes, d ≥ K = {K}", f"d = {d}")
        settle(self, ridge=ridge_per_layer(self.ridge, L + 1))
        require(min(self.ridge), "ridge must be positive", "0: without it there is no optimum")
        limit, unit = _strength((L - 1) / (2 * L), L), K * self.samples ** (1 / (L + 1))
        fold = f"{limit / unit:.6g}, the fold, beyond which no collapsed point exists"
        mean = f"{self.strength / unit:.6g}"
        require(self.strength < limit, f"ridge must have a geometric mean below {fold}", mean)

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
        mean = np.exp(np.log(self.ridge).mean())
        return float(self.classes * self.samples ** (1 / (self.depth + 1)) * mean)

    @cached_property
    def misfit(self) -> float:
        """1 − C, solved for directly, so that it is exact to rounding also when it is small.

        >>> round(DeepLinearUFM(classes=2, samples=4, depth=1, width=2, ridge=0.04).misfit, 12)
        0.16
        """
        power, b = (self.depth - 1) / (self.depth + 1), self.strength
        top, exact = (self.depth + 1) / (2 * self.depth), 4 * np.finfo(float).eps
        root = brentq(lambda u: u * (1 - u) ** power - b, b / 2, top, xtol=1e-300, rtol=exact)
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
        return np.sqrt(self.fit * self.misfit / (self.classes * np.array(self.ridge)))

    @property
    def curvatures(self) -> Array:
        """g_l = λ_l C/(1−C), the non-zero eigenvalue of the Hessian of layer l = 0, …, L alone: K²
        times for a weight, K²n times for the features.

        >>> DeepLinearUFM(classes=2, samples=4, depth=1, width=2, ridge=0.04).curvatures.round(12)
        array([0.21, 0.21])
        """
        return np.array(self.ridge) * (self.fit / self.misfit)

    def loss(self) -> float:
        """The loss at the collapsed points, ½(1 − C)(1 + LC).

        >>> ufm = DeepLinearUFM(classes=2, samples=4, depth=1, width=2, ridge=0.04)
        >>> round(ufm.loss(), 12)
        0.1472
        """
        return self.misfit * (1 + self.depth * self.fit) / 2

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
        K, n, d = self.classes, self.samples, self.width
        widths = (K * n, *[d] * self.depth, K)
        hidden = [np.eye(d)] * self.depth
        if rng is not None:
            hidden = [np.linalg.qr(rng.standard_normal(basis.shape))[0] for basis in hidden]
        within = np.linalg.qr(np.eye(n) - 1 / n)[0][:, : n - 1]
        inputs = np.hstack([self.labels.T / np.sqrt(n), np.kron(np.eye(K), within)])
        modes = np.arange(max(widths)) < (K if rank is None else rank)
        sizes = zip(self.scales, map(min, pairwise(widths)), strict=True)
        values = tuple(scale * modes[:size] for scale, size in sizes)
        data, target = np.full(K * n, 1 / (K * n)), np.full(K, 1 / (K * np.sqrt(n)))
        bases = (inputs, *hidden, np.eye(K))
        return AlignedChain(widths, values, data, target, 0.5, self.ridge, bases)

    def point(self, features: Array, weights: Sequence[Array]) -> LinearChain:
        """Any point of the model, `features` (d, Kn) and `weights` W_1, …, W_L, as a chain of
        L + 1 layers: loss, gradient and Hessian are those of the model.

        >>> ufm = DeepLinearUFM(classes=2, samples=1, depth=1, width=2, ridge=0.01)
        >>> round(ufm.point(np.eye(2), [np.eye(2)]).loss(), 12)
        0.02
        """
        inputs = self.classes * self.samples
        sigma_xx, sigma_yx = np.eye(inputs) / inputs, self.labels / inputs
        return LinearChain((features, *weights), sigma_xx, sigma_yx, half_y2=0.5, ridge=self.ridge)

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
        if isinstance(point, LinearChain):
            point = Point(point.weights, point.ridge)
        return [Layer(self, point, number) for number in range(1, self.depth + 1)]

    def spectrum(
        self, features: bool = True, ridge: bool = True, rank: int | None = None
    ) -> Spectrum:
        """All eigenvalues of the joint Hessian at an optimum: of the features and all weights, or
        of the weights alone; with the term λ_l of the ridge, or without it as in Theorem 5. With a
        `rank` r < K, for L ≥ 2, at the critical points that have r of the K modes.

        Labels: "symmetric" and "antisymmetric" for the r² outliers, "within" for moves of samples
        within their class, "balance" for moves that unbalance neighbouring layers, "orbit" for
        moves along the set of such points, "missing" for moves towards a mode that is left out,
        "idle" for entries that meet no signal.

        With v = (√λ_l) over the moved layers and Λ = diag(λ_l), a pair of used directions has the
        form (C/(1−C) ∓ 1) vvᵀ ± Λ (+ Λ), symmetric and antisymmetric; a used and a spare direction
        between two layers have the coupling −√(λ_l λ_{l+1}); a used and a missing mode meet in the
        first and the last layer, with the coupling −√(λ_0 λ_L)/(1−C).

        >>> ufm = DeepLinearUFM(classes=2, samples=4, depth=1, width=3, ridge=0.04)
        >>> ufm.spectrum()
        Spectrum(0.5 × 1, 0.42 × 3, 0.25 × 12, 0.08 × 5, 0.04 × 6, 0 × 3)
        """
        lam = np.array(self.ridge if features else self.ridge[1:])
        odds, shift = self.fit / self.misfit, lam if ridge else np.zeros_like(lam)
        together, own = np.sqrt(np.outer(lam, lam)), np.diag(lam)
        symmetric = np.linalg.eigvalsh((odds - 1) * together + own + np.diag(shift))
        # The term of rank one lifts the outlier above the others, or pushes it below them.
        symmetric = symmetric[::-1] if odds >= 1 else symmetric
        turning = np.linalg.eigvalsh((odds + 1) * together - own + np.diag(shift))[::-1]
        K, n, r = self.classes, self.samples, self.classes if rank is None else rank
        even, odd, spare, missing = r * (r + 1) // 2, r * (r - 1) // 2, self.width - r, K - r
        entries = [
            (symmetric[0], even, "symmetric"),
            (turning[0], odd, "antisymmetric"),
            *((value, even, "balance") for value in symmetric[1:]),
            *((value, odd, "orbit") for value in turning[1:]),
            *((value, spare**2, "idle") for value in shift[-self.depth : -1]),
            (shift[-1], spare * missing, "idle"),
        ]
        for one, other in pairwise(lam):
            coupling = np.sqrt(one * other)
            entries.append((one + other if ridge else coupling, r * spare, "balance"))
            entries.append((0.0 if ridge else -coupling, r * spare, "orbit"))
        if not features:
            last = (odds * lam[-1] + shift[-1], r * missing, "missing")
            return Spectrum.of(*entries, (shift[0], r * spare, "idle"), last)
        ends = odds * own + np.diag(shift) - (odds + 1) * (together - own)
        low, high = np.linalg.eigvalsh(ends[np.ix_([0, -1], [0, -1])])
        return Spectrum.of(
            *entries,
            (high, r * missing, "missing"),
            (low, r * missing, "orbit"),
            (odds * lam[0] + shift[0], r * K * (n - 1), "within"),
            (shift[0], spare * (K * n - r), "idle"),
        )


@dataclass(frozen=True, eq=False)
class Point(Layered):
    """Matrices H_1 (d, Kn), W_1, …, W_L (`weights`; the last has K rows) with their λ (`ridge`): a
    point of the model, with the squared loss or with `cross_entropy`. Columns of H_1 are ordered by
    class.

    With `relu` layer l receives Λ_l and hands on H_{l+1} = W_l Λ_l, where Λ_1 = H_1 and
    Λ_l = σ(H_l) above. ReLU has no derivative at 0, and collapsed features are full of zeros, so
    σ'(0) is a setting: `slope_at_zero`, 1 in the paper, 0 in torch. Entries of size at most `zero`
    count as zeros where σ' is taken; the paper uses 10⁻⁶.

    >>> Point([np.eye(2), np.eye(2), np.eye(2)], ridge=0.25, relu=True).loss()
    0.75
    >>> round(Point([[[0.0, 0.0]], [[1.0], [1.0]]], cross_entropy=True).loss(), 6)
    0.693147
    """

    weights: tuple[Array, ...]
    ridge: Ridge = 0.0
    relu: bool = False
    cross_entropy: bool = False
    slope_at_zero: float = 1.0
    zero: float = 0.0

    def __post_init__(self) -> None:
        weights = checked_weights(self.weights)
        shapes = [weight.shape for weight in weights]
        expected = (
            "weights must hold features with as many columns for each class, a row of the last "
            "weight, and at least one weight"
        )
        require(len(weights) > 1 and shapes[0][1] % shapes[-1][0] == 0, expected, shapes)
        settle(self, weights=weights, ridge=ridge_per_layer(self.ridge, len(weights)))

    @property
    def labels(self) -> Array:
        """Y = I_K ⊗ 1_nᵀ, (K, Kn)."""
        classes, columns = len(self.weights[-1]), self.weights[0].shape[1]
        return np.repeat(np.eye(classes), columns // classes, axis=1)

    @property
    def outputs(self) -> Array:
        """Z = H_{L+1}, (K, Kn)."""
        return self._states()[-1]

    def features(self, layer: int) -> Array:
        """H_l, (d, Kn), before any ReLU.

        >>> Point([np.ones((1, 1)), -np.eye(1), np.eye(1)], relu=True).features(2)
        array([[-1.]])
        """
        return self._states()[layer - 1]

    def loss(self) -> float:
        """‖Z − Y‖²/(2Kn), or the mean of −log softmax(z_ic)_c, plus ½ Σ_l λ_l ‖·‖²: (4) or (7)."""
        z, y = self.outputs, self.labels
        gaps = z - y
        fit = -np.vdot(y, log_softmax(z, axis=0)) if self.cross_entropy else np.vdot(gaps, gaps) / 2
        squares = [np.vdot(weight, weight) for weight in self.weights]
        return float(fit / y.shape[1] + np.dot(self.ridge, squares) / 2)

    def gradient(self) -> Array:
        """Its gradient (P,) in the order of `parameters`, by backpropagation.

        >>> Point([2 * np.eye(1), np.eye(1), np.eye(1)]).gradient()
        array([1., 2., 2.])
        >>> Point([[[1.0, -1.0]], [[0.0], [0.0]]], cross_entropy=True).gradient()
        array([ 0. ,  0. , -0.5,  0.5])
        """
        states, y = self._states(), self.labels
        z = np.exp(log_softmax(states[-1], axis=0)) if self.cross_entropy else states[-1]
        error, slopes = (z - y) / y.shape[1], []
        for layer in range(len(self.weights) - 1, 0, -1):
            before = states[layer - 1]
            slopes.append(error @ self._passed(before, layer).T)
            error = self.weights[layer].T @ error * self._gate(before, layer)
        slope = np.concatenate([slope.ravel() for slope in (error, *slopes[::-1])])
        return slope + self._ridges() * self.parameters()

    def _states(self) -> list[Array]:
        """H_1, …, H_{L+1}."""
        states = [self.weights[0]]
        for layer, weight in enumerate(self.weights[1:], start=1):
            states.append(weight @ self._passed(states[-1], layer))
        return states

    def _passed(self, before: Array, layer: int) -> Array:
        """Λ_l from H_l."""
        return np.maximum(before, 0.0) if self.relu and layer > 1 else before

    def _gate(self, before: Array, layer: int) -> Array:
        """σ' at the entries of H_l; 1 where there is no ReLU."""
        if not self.relu or layer == 1:
            return np.ones_like(before)
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
    >>> layer = ufm.layers(ufm.optimum().to_chain())[0]
    >>> layer.here.shape, layer.slopes.shape
    ((2, 2), (4, 2, 2))
    """

    model: Model
    point: Point
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
        return self.point._passed(self.point.features(self.number), self.number)

    @cached_property
    def slopes(self) -> Array:
        """The derivative of the outputs in what the layer hands on, (Kn, K, d_l), sample by sample:
        Ã_ic = W_L diag σ'(h_ic^(L)) ⋯ W_{l+1} diag σ'(h_ic^(l+1)), or A_{l+1} = W_L ⋯ W_{l+1} for
        all of them without ReLU.

        >>> weights = [np.zeros((1, 1)), np.eye(1), 3 * np.eye(1)]
        >>> points = [Point(weights, relu=True, slope_at_zero=s) for s in (1.0, 0.0)]
        >>> [Layer(None, point, 1).slopes.item() for point in points]
        [3.0, 0.0]
        """
        point, samples = self.point, self.inputs.shape[1]
        product = np.broadcast_to(np.eye(self.classes), (samples, self.classes, self.classes))
        for above in range(len(point.weights) - 1, self.number, -1):
            gate = point._gate(point.features(above), above)
            product = product @ point.weights[above] * gate.T[:, None, :]
        return product

    @property
    def here(self) -> Array:
        """The class means H̄_l, (d, K), before any ReLU."""
        return self.mean(self.point.features(self.number))

    @property
    def above(self) -> Array:
        """The class means H̄_{l+1} of what the layer hands on, (d_l, K)."""
        return self.weight @ self.mean(self.inputs)

    @property
    def residuals(self) -> Array:
        """u = Z − Y, (K, Kn)."""
        return self.point.outputs - self.point.labels

    def mean(self, columns: Array) -> Array:
        """The class means of Kn columns."""
        return columns.reshape(len(columns), self.classes, -1).mean(axis=2)

    def eigenvalues(self, without: str = "") -> Array:
        """The eigenvalues of Hess_l = Av_ic{ÃᵀÃ ⊗ h_ic h_icᵀ}, squared loss without ridge,
        descending, or of what is left without its part "classes", "cross" or "within"; zeros beyond
        the number of rows or coordinates are not listed. The vectors v_icc' = a_c' ⊗ h_ic are
        written in bases of what occurs, which keeps all inner products.

        >>> ufm = DeepLinearUFM(classes=2, samples=2, depth=2, width=2, ridge=0.01)
        >>> layer = ufm.layers(ufm.optimum().to_chain())[0]
        >>> [int(np.sum(layer.eigenvalues(part) > 0.1)) for part in ("", "classes", "cross")]
        [4, 2, 2]
        """
        left, right = _coordinates(self.slopes), _coordinates(self.inputs.T)
        parts = Split.of(np.einsum("ska,sb->skab", left, right))._asdict()
        kept = np.concatenate([rows for name, rows in parts.items() if name != without])
        gram = kept @ kept.T if kept.shape[0] <= kept.shape[1] else kept.T @ kept
        return np.linalg.eigvalsh(gram)[::-1]


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


def _strength(fit: float, depth: int) -> float:
    """b at which C is a solution, (1−C)C^{(L−1)/(L+1)}: the threshold (17) is at C = (L−1)/L, and
    the largest value, the fold, at half of it.
    """
    return float((1 - fit) * fit ** ((depth - 1) / (depth + 1)))


guard(globals())
