"""Starts, runs and our own formulas for the pages of *Depth, Not Data*.

Our own: let Φ = ΣyxΣxx⁻¹, of rank r with singular values σ_1 ≥ … ≥ σ_r > 0, be learnt by L balanced
layers. At the minimum the residual vanishes, so the Hessian is JᵀBJ with B = I ⊗ Σxx and the
Jacobian J of W with respect to the parameters. Its non-zero eigenvalues are those of

    B^{1/2} G B^{1/2},    G = JJᵀ = Σ_l (ΦΦᵀ)^{(L−l)/L} ⊗ (ΦᵀΦ)^{(l−1)/L},                       (1)

a matrix of size d_L d_0 whatever the hidden widths are.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from exacthessian import figures
from exacthessian.aligned import AlignedChain
from exacthessian.chain import LinearChain
from exacthessian.descent import descend
from exacthessian.inputs import Array
from exacthessian.papers.depth_not_data import Setting
from exacthessian.spectrum import Spectrum

RANK_TOLERANCE = 1e-9


# The cases on which claims are judged


def settings(seed: int = 0, count: int = 12) -> list[Setting]:
    """Networks that meet Assumption 3.1: five awkward shapes (width one, a bottleneck, full rank,
    more inputs than outputs, fewer), then random ones of depth 2 to 4.

    >>> settings(count=6)[1]
    Setting(widths=(2, 1, 1), rank=1, data_rank=1)
    """
    rng = np.random.default_rng(seed)
    small: list[tuple[tuple[int, ...], int]] = [((1, 1, 1, 1), 1), ((2, 1, 1), 1), ((3, 4, 3), 3)]
    shapes = [*small, ((6, 5, 5, 4), 2), ((4, 6, 5, 6), 2)]
    while len(shapes) < count:
        inputs, outputs = rng.integers(1, 6, 2)
        hidden = rng.integers(min(inputs, outputs), 6, rng.integers(1, 4))
        rank = rng.integers(1, min(inputs, outputs) + 1)
        shapes.append(((int(inputs), *hidden.tolist(), int(outputs)), int(rank)))
    return [Setting.whitened(widths, rank) for widths, rank in shapes[:count]]


def entries(setting: Setting, seed: int = 0, full: bool = False) -> Array:
    """Active entries around 1 that meet the spread condition of Theorem 3.5, at 0.9 of the admitted
    spread when there are two or more; with `full`, spare entries between 0.3 and 0.7 as well.

    >>> entries(Setting.whitened((2, 2, 2), rank=2)).round(3)
    array([0.856, 1.169])
    """
    rng = np.random.default_rng(seed)
    half = 0.9 * np.log(setting.depth) / (4 * setting.depth - 4)
    active = np.exp(rng.uniform(-half, half, setting.rank))
    active[:2] = np.exp([-half, half][: setting.rank])
    return np.append(active, rng.uniform(0.3, 0.7, (setting.ends - setting.rank) * full))


# The paper's starts


def orthogonal(rng: np.random.Generator, size: int) -> Array:
    """A random orthogonal matrix.

    >>> orthogonal(np.random.default_rng(0), 1) ** 2
    array([[1.]])
    """
    return np.linalg.qr(rng.standard_normal((size, size)))[0]


def start(setting: Setting, lam: ArrayLike, bases: Sequence[Array] | None = None) -> AlignedChain:
    """The balanced, aligned network of Initialization 2.1 and Assumptions 3.1 and 3.2: all layers
    have the diagonal `lam`, (r,) for a start of rank r or (d*,) with the spare entries last.

    >>> start(Setting.whitened((2, 2, 3), rank=1), [1.0]).spectrum()
    Spectrum(2 × 1, 1 × 3, 0 × 6)
    """
    data, target, half = _inputs(setting), np.ones(setting.rank), setting.rank / 2
    return AlignedChain.balanced(setting.widths, lam, data, target, half_y2=half, bases=bases)


def in_random_bases(setting: Setting, lam: ArrayLike, seed: int = 0) -> AlignedChain:
    """`start` in random bases: every column of V lies inside the range or the kernel of Σxx.

    >>> in_random_bases(Setting.whitened((2, 2, 3), rank=1), [1.0]).widths
    (2, 2, 3)
    """
    rng = np.random.default_rng(seed)
    return start(setting, lam, [orthogonal(rng, width) for width in setting.widths])


def turned(setting: Setting, lam: ArrayLike, seed: int = 0) -> LinearChain:
    """`in_random_bases`, as matrices.

    >>> turned(Setting.whitened((2, 2, 3), rank=1), [1.0]).widths
    (2, 2, 3)
    """
    return in_random_bases(setting, lam, seed).to_chain()


@dataclass(frozen=True, eq=False)
class LiteralStart:
    """A network with the completed bases [U, U⊥] = `left` and [V, V⊥] = `right` of its start."""

    setting: Setting
    chain: LinearChain
    left: Array
    right: Array

    def after(self, eta: float, steps: int) -> "LiteralStart":
        """The same after some steps of gradient descent on the matrices."""
        return replace(self, chain=descend(self.chain, eta, steps, record=[steps]).last)

    def layers(self) -> list[Array]:
        """W_1V, W_2, …, W_{L−1}, UᵀW_L: diagonal while the singular vectors stay."""
        first, *hidden, last = self.chain.weights
        return [first @ self.right, *hidden, self.left.T @ last]

    def diagonals(self) -> Array:
        """The first d* diagonal entries of each layer, (L, d*)."""
        return np.array([np.diagonal(layer)[: self.setting.ends] for layer in self.layers()])


def literal_start(
    setting: Setting, lam: ArrayLike, rng: np.random.Generator, inside: bool = False
) -> LiteralStart:
    """A start that satisfies Assumptions 3.1 and 3.2 to the letter and nothing more; with `inside`,
    also that the columns of V lie in the support of Σxx, as the proof of Lemma A.2 says.

    Σxx = diag(1, …, 1, 0, …, 0) with ρ ones. Then Σyx = U_1V_1ᵀ forces the first r columns of V
    into the first ρ coordinates, because inputs have no others; the spare columns are free.

    >>> setting = Setting.whitened((3, 2, 2), rank=1)
    >>> first = literal_start(setting, [1.0, 0.5], np.random.default_rng(0))
    >>> bool(abs(first.right[2, 0]) < 1e-15), bool(abs(first.right[2, 1]) > 1e-3)
    (True, True)
    >>> first.diagonals().round(12)
    array([[1. , 0.5],
           [1. , 0.5]])
    """
    rho, columns = setting.data_rank, rng.standard_normal((setting.widths[0],) * 2)
    columns[rho:, : rho if inside else setting.rank] = 0
    right, left = np.linalg.qr(columns)[0], orthogonal(rng, setting.widths[-1])
    bases = right, *map(np.eye, setting.widths[1:-1]), left
    chain = start(setting, lam, bases).to_chain()
    chain = replace(chain, sigma_xx=np.diag(_inputs(setting)))
    return LiteralStart(setting, chain, left, right)


def learnt(chain: LinearChain) -> LinearChain:
    """The same layers with the target that they compute: there H is the H_o of `chain`.

    >>> learnt(LinearChain([[[2.0]], [[3.0]]], [[1.0]], [[5.0]])).hessian()
    array([[9., 6.],
           [6., 4.]])
    """
    return replace(chain, sigma_yx=chain.product @ chain.sigma_xx)


def functional(chain: LinearChain) -> LinearChain:
    """The same layers with inputs that vanish and the negative residual as target: there H is the
    H_f of `chain`.

    >>> functional(LinearChain([[[2.0]], [[3.0]]], [[1.0]], [[5.0]])).hessian()
    array([[0., 1.],
           [1., 0.]])
    """
    residual = chain.product @ chain.sigma_xx - chain.sigma_yx
    return replace(chain, sigma_xx=np.zeros_like(chain.sigma_xx), sigma_yx=-residual)


def matched(found: Spectrum, wanted: Spectrum) -> Spectrum:
    """The eigenvalues of `found` that lie closest to those of `wanted`, each taken once.

    >>> matched(Spectrum.from_values([3.1, 3.0, 1.0, 0.0]), Spectrum.from_values([3.0, 3.0]))
    Spectrum(3.1 × 1, 3 × 1)
    """
    rest, taken = found.expand(), []
    for value in wanted.expand():
        place = np.abs(rest - value).argmin()
        taken.append(rest[place])
        rest = np.delete(rest, place)
    return Spectrum.from_values(taken)


def largest(spectrum: Spectrum, count: int) -> Spectrum:
    """The `count` largest eigenvalues with their labels.

    >>> largest(Spectrum.of((3.0, 2, "dominant"), (0.0, 9, "zero")), 5)
    Spectrum(3 × 2, 0 × 3)
    """
    labels = np.repeat(spectrum.labels, spectrum.multiplicities)
    values = np.repeat(spectrum.values, spectrum.multiplicities)
    order = np.argsort(-values, kind="stable")[:count]
    return Spectrum.of(*((values[i], 1, str(labels[i])) for i in order))


def largest_step(setting: Setting, lam: ArrayLike) -> float:
    """min(1/L, M^{−(2L−2)}), M the largest of 1 and all λ_i with inputs (i ≤ ρ).

    >>> largest_step(Setting.whitened((2, 2, 2), rank=1), [1.0, 2.0])
    0.25
    """
    largest = np.max([1.0, *np.asarray(lam)[: setting.data_rank]])
    return float(min(1 / setting.depth, largest ** -(2.0 * setting.depth - 2)))


def power_law(depth: int, eta: float, steps: int) -> float:
    """(2(L − 1)ηt)^{−1/(2L−2)}: what a spare entry λ_{i,0} > 0, i ≤ ρ, comes to after many steps.

    >>> power_law(depth=2, eta=0.125, steps=64)
    0.25
    """
    return float((2 * (depth - 1) * eta * steps) ** (-1 / (2 * depth - 2)))


def membership(chain: AlignedChain, rank: int) -> Spectrum:
    """All eigenvalues of the Hessian, labelled "dominant", "bulk" or "zero" by their block {i, j}
    and not by their size.

    In each block the Gauss–Newton part has a range of 0, 1 or 2 dimensions. As many eigenvectors,
    those that lie closest to it, carry the change of W: they are dominant if i, j ≤ r = `rank`,
    bulk if i ≤ r < j, and zero if r < i, j. The others re-parametrise W, and are zero.

    >>> chain = AlignedChain.balanced((3, 4, 4, 2), lam=[0.5], target=[1.0])
    >>> print(membership(chain, rank=1).select("dominant"), "of", chain.spectrum())
    -0.6875 × 1 of 0.4375 × 8, 0.0625 × 3, 0 × 18, -0.4375 × 6, -0.6875 × 1
    """
    # The Gauss–Newton part is the Hessian of the same layers when their product is the target.
    fitted = replace(chain, target=chain.data[: len(chain.target)] * chain.product)
    entries: list[tuple[float, int, str]] = []
    for i, j in chain.pairs():
        eigenvalues, vectors = np.linalg.eigh(chain.block(i, j))
        lengths, directions = np.linalg.eigh(fitted.block(i, j))
        in_range = lengths > RANK_TOLERANCE * max(1.0, float(np.abs(lengths).max()))
        overlaps = np.einsum("nij,nik->njk", directions, vectors) ** 2
        closeness = (overlaps * in_range[:, :, None]).sum(axis=1)
        place = np.argsort(np.argsort(-closeness, axis=1, kind="stable"), axis=1)
        carries = place < in_range.sum(axis=1, keepdims=True)
        active = (i <= rank).astype(int) + (j <= rank)
        name = np.array(["zero", "bulk", "dominant"], dtype=object)[active]
        labels = np.where(carries, name[:, None], "zero")
        entries += [(v, 1, n) for v, n in zip(eigenvalues.ravel(), labels.ravel(), strict=True)]
    return Spectrum.of(*entries)


def _inputs(setting: Setting) -> Array:
    """The diagonal of Σxx: ρ ones, then zeros."""
    return (np.arange(setting.widths[0]) < setting.data_rank).astype(float)


# Data that are nearly balanced, layers that are not


def imbalance(depth: int, sigma: ArrayLike, sigma_xx: Array) -> float:
    """k = (σ_1/σ_r)^{2−2/L} · cond(Σxx), how far the data are from balanced as depth L sees it.

    >>> imbalance(depth=2, sigma=[3.0, 2.0], sigma_xx=np.diag([1.0, 4.0]))
    6.0
    """
    return float((np.max(sigma) / np.min(sigma)) ** (2 - 2 / depth) * np.linalg.cond(sigma_xx))


def gram_eigenvalues(depth: int, phi: ArrayLike, sigma_xx: ArrayLike) -> Array:
    """The d_L·d_0 eigenvalues of (1), descending: all non-zero eigenvalues of the Hessian at a
    balanced minimum of `depth` layers that compute `phi` (d_L, d_0), and some zeros.

    >>> gram_eigenvalues(depth=2, phi=[[2.0, 0.0]], sigma_xx=np.eye(2)).round(12)
    array([4., 2.])
    """
    target = np.asarray(phi, dtype=float)
    left, right = target @ target.T, target.T @ target
    powers = [((depth - layer) / depth, (layer - 1) / depth) for layer in range(1, depth + 1)]
    gram = sum(np.kron(_power(left, a), _power(right, b)) for a, b in powers)
    root = np.kron(np.eye(len(left)), _power(np.asarray(sigma_xx, dtype=float), 0.5))
    return np.linalg.eigvalsh(root @ gram @ root)[::-1]


def balanced_minimum(widths: Sequence[int], phi: Array, sigma_xx: Array) -> LinearChain:
    """The chain of balanced layers W_l = Q_l S^{1/L} Q_{l−1}ᵀ with product Φ = Q_L S Q_0ᵀ, at its
    minimum: Σyx = ΦΣxx. The hidden bases are identities.

    >>> chain = balanced_minimum((2, 3, 1), phi=np.array([[0.0, 4.0]]), sigma_xx=np.eye(2))
    >>> [round(float(np.linalg.norm(weight)), 12) for weight in chain.weights], chain.product
    ([2.0, 2.0], array([[0., 4.]]))
    """
    outward, values, inward = np.linalg.svd(phi)
    lam = values[values > RANK_TOLERANCE * values[0]] ** (1 / (len(widths) - 1))
    bases = [inward.T, *map(np.eye, widths[1:-1]), outward]
    root = AlignedChain.balanced(widths, lam, bases=bases)
    half_y2 = float(np.vdot(phi, phi @ sigma_xx) / 2)
    return LinearChain(root.to_chain().weights, sigma_xx, phi @ sigma_xx, half_y2)


def scaled_minimum(widths: Sequence[int], rank: int, scales: ArrayLike) -> AlignedChain:
    """The minimum for whitened inputs and r = `rank` unit targets at which layer l stretches the r
    directions by s_l = `scales[l − 1]`, with Π_l s_l = 1.

    >>> scaled_minimum((3, 4, 2), rank=2, scales=[0.5, 2.0]).product
    array([1., 1.])
    """
    unit = AlignedChain.balanced(widths, lam=np.ones(rank), target=np.ones(rank))
    layers = zip(np.asarray(scales, dtype=float), unit.singular_values, strict=True)
    return replace(unit, singular_values=tuple(scale * values for scale, values in layers))


def scaled_spectrum(widths: Sequence[int], rank: int, scales: ArrayLike) -> Spectrum:
    """All eigenvalues at the `scaled_minimum`: Σ_l s_l⁻² (r² times, "dominant"), s_1⁻²
    (r(d_0 − r) times) and s_L⁻² (r(d_L − r) times, both "bulk"), and zeros.

    >>> scaled_spectrum((3, 4, 5), rank=1, scales=[0.5, 2.0])
    Spectrum(4.25 × 1, 4 × 2, 0.25 × 4, 0 × 25)
    """
    inverse = np.asarray(scales, dtype=float) ** -2
    size = sum(right * left for right, left in pairwise(widths))
    curved = rank * (widths[0] + widths[-1] - rank)
    return Spectrum.of(
        (float(inverse.sum()), rank**2, "dominant"),
        (float(inverse[0]), rank * (widths[0] - rank), "bulk"),
        (float(inverse[-1]), rank * (widths[-1] - rank), "bulk"),
        (0.0, size - curved, "zero"),
    )


class Clusters(NamedTuple):
    """How far apart two clusters of eigenvalues are: `least` = min dominant / max bulk,
    `most` = max dominant / min bulk, `mean` = mean dominant / mean bulk.
    """

    least: float
    mean: float
    most: float


def clusters(eigenvalues: ArrayLike, dominant: int, bulk: int) -> Clusters:
    """The ratios of the `dominant` largest eigenvalues to the `bulk` next ones, NaN where those are
    not all positive.

    >>> clusters([6.0, 0.0, 3.0, 2.0, 0.0], dominant=1, bulk=2)
    Clusters(least=2.0, mean=2.4, most=3.0)
    """
    values = np.sort(np.asarray(eigenvalues, dtype=float))[::-1]
    top, rest = values[:dominant], values[dominant : dominant + bulk]
    if rest[-1] <= 0:
        return Clusters(np.nan, np.nan, np.nan)
    ratios = top[-1] / rest[0], top.mean() / rest.mean(), top[0] / rest[-1]
    return Clusters(*map(float, ratios))


def random_start(depth: int, size: float, seed: int) -> LinearChain:
    """Gaussian layers of norm about `size`, white inputs, and a target that copies two of them.

    >>> random_start(depth=2, size=0.1, seed=0).widths
    (5, 8, 6)
    """
    rng = np.random.default_rng(seed)
    widths = (5, *[8] * (depth - 1), 6)
    shapes = [(left, right) for right, left in pairwise(widths)]
    weights = tuple(size * rng.standard_normal(s) / np.sqrt(max(s)) for s in shapes)
    return LinearChain(weights, np.eye(5), np.eye(6, 5) * (np.arange(5) < 2), half_y2=1.0)


def arrival(history: Iterable[Clusters], times: Sequence[int], depth: int) -> float:
    """The first step at which the means differ by a factor within ten per cent of L and the
    clusters are at least L/2 apart; infinity if there is none.

    >>> arrival([Clusters(1.1, 2.0, 4.0), Clusters(2.8, 3.0, 3.1)], times=[10, 20], depth=3)
    20
    """
    there = (abs(c.mean / depth - 1) < 0.1 and c.least > depth / 2 for c in history)
    return next((time for time, seen in zip(times, there, strict=True) if seen), np.inf)


def _power(matrix: Array, exponent: float) -> Array:
    """A positive semidefinite matrix to a power ≥ 0, the identity for the power 0."""
    values, vectors = np.linalg.eigh(matrix)
    powers = np.where(values > RANK_TOLERANCE * values.max(), values, 0.0) ** exponent
    return (vectors * powers) @ vectors.T


# Pictures of one page


def distribution(
    measured: ArrayLike, predicted: Spectrum, colours: Mapping[str, str], bins: ArrayLike
) -> Figure:
    """How many eigenvalues lie where: `predicted` as bars coloured by their labels, one on the
    other, `measured` as dots, counted in the intervals between neighbours of `bins`.
    """
    edges = np.asarray(bins, dtype=float)
    centres = (edges[1:] + edges[:-1]) / 2
    base, bars = np.zeros(len(centres)), {}
    for label in colours:
        counts, _ = np.histogram(predicted.select(label).expand(), edges)
        tops = np.where(counts > 0, base + counts, np.nan)
        bars[label] = np.repeat(centres, 3), figures.strokes(np.maximum(base, 0.6), tops)
        base += counts
    found, _ = np.histogram(np.asarray(measured, dtype=float), edges)
    dots = {figures.MEASURED: (centres[found > 0], found[found > 0])}
    axes = "", "eigenvalue of $H$", "number of eigenvalues"
    limits = 0.6, 2.0 * found.max()
    plot = figures.Plot(*axes, bars, dots, log="y", limits=limits, width=4, size=7, colours=colours)
    return figures.plots([plot])
