"""Beyond "Depth, Not Data": data that are only nearly balanced, and layers that are not.

Let Φ = ΣyxΣxx⁻¹, of rank r and with singular values σ_1 ≥ … ≥ σ_r > 0, be learnt by L balanced
layers. At the minimum the residual vanishes, so the Hessian is JᵀBJ with B = I ⊗ Σxx and the
Jacobian J of W with respect to the parameters. Its non-zero eigenvalues are those of

    B^{1/2} G B^{1/2},    G = JJᵀ = Σ_l (ΦΦᵀ)^{(L−l)/L} ⊗ (ΦᵀΦ)^{(l−1)/L},                       (1)

a matrix of size d_L d_0 whatever the hidden widths are. G has the eigenvalues
ν_ij = Σ_l σ_i^{2(L−l)/L} σ_j^{2(l−1)/L}, and Ostrowski's theorem lets B multiply each of them, in
order of size, by a factor between the smallest and the largest eigenvalue of Σxx.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from exacthessian.aligned import AlignedChain
from exacthessian.chain import LinearChain
from exacthessian.inputs import Array, real_array, whole_number
from exacthessian.spectrum import Spectrum

RANK_TOLERANCE = 1e-9
SCALE_TOLERANCE = 1e-9


def imbalance(depth: int, sigma: ArrayLike, sigma_xx: ArrayLike) -> float:
    """k = (σ_1/σ_r)^{2−2/L} · cond(Σxx), how far the data are from balanced as depth L sees it.

    `sigma` (r,) holds the positive singular values of Φ, `sigma_xx` (d_0, d_0) is positive
    definite.

    >>> imbalance(depth=2, sigma=[3.0, 2.0], sigma_xx=np.diag([1.0, 4.0]))
    6.0
    """
    layers = whole_number("depth", depth, least=2)
    values = real_array("sigma", sigma, ndim=1)
    if len(values) == 0 or values.min() <= 0:
        raise ValueError(f"sigma must hold at least one value, all positive, got {values}")
    x = _positive_eigenvalues(sigma_xx)
    spread = values.max() / values.min()
    return float(spread ** (2 - 2 / layers) * x[-1] / x[0])


def ratio_bounds(depth: int, sigma: ArrayLike, sigma_xx: ArrayLike) -> tuple[float, float]:
    """L/k ≤ λ_dominant/λ_bulk ≤ L·k at a balanced minimum, with k the `imbalance`; k < L.

    >>> ratio_bounds(depth=4, sigma=[1.0, 1.0], sigma_xx=np.diag([1.0, 2.0]))
    (2.0, 8.0)
    """
    k = imbalance(depth, sigma, sigma_xx)
    if k >= depth:
        raise ValueError(
            f"the imbalance k must be below the depth {depth} for two clusters to be guaranteed, "
            f"got k = {k:.6g}"
        )
    return depth / k, depth * k


def gram_eigenvalues(depth: int, phi: ArrayLike, sigma_xx: ArrayLike) -> Array:
    """The d_L·d_0 eigenvalues of (1), descending: all non-zero eigenvalues of the Hessian at a
    balanced minimum of `depth` layers that compute `phi` (d_L, d_0), and some zeros.

    For L = 2, Σxx = I and the single singular value σ = 2 they are 2σ (i = j = 1) and σ (j = 2):

    >>> gram_eigenvalues(depth=2, phi=[[2.0, 0.0]], sigma_xx=np.eye(2)).round(12)
    array([4., 2.])
    """
    layers = whole_number("depth", depth, least=1)
    target = real_array("phi", phi, ndim=2)
    x = _positive_eigenvalues(sigma_xx)
    if target.shape[1] != len(x):
        raise ValueError(
            f"sigma_xx must be {target.shape[1]}×{target.shape[1]} to match phi "
            f"({target.shape[0]}×{target.shape[1]}), got {len(x)}×{len(x)}"
        )
    left, right = target @ target.T, target.T @ target
    gram = sum(
        np.kron(_power(left, (layers - layer) / layers), _power(right, (layer - 1) / layers))
        for layer in range(1, layers + 1)
    )
    root = np.kron(np.eye(len(left)), _power(real_array("sigma_xx", sigma_xx, ndim=2), 0.5))
    eigenvalues: Array = np.linalg.eigvalsh(root @ gram @ root)[::-1]
    return eigenvalues


def balanced_minimum(widths: Sequence[int], phi: ArrayLike, sigma_xx: ArrayLike) -> LinearChain:
    """The chain of balanced layers W_l = Q_l S^{1/L} Q_{l−1}ᵀ with product Φ = Q_L S Q_0ᵀ, at its
    minimum: Σyx = ΦΣxx. The hidden bases are identities.

    >>> chain = balanced_minimum((2, 3, 1), phi=[[0.0, 4.0]], sigma_xx=np.eye(2))
    >>> [round(float(np.linalg.norm(weight)), 12) for weight in chain.weights], chain.product
    ([2.0, 2.0], array([[0., 4.]]))
    """
    target, moment = real_array("phi", phi, ndim=2), real_array("sigma_xx", sigma_xx, ndim=2)
    sizes = tuple(widths)
    if len(sizes) < 2 or target.shape != (sizes[-1], sizes[0]):
        raise ValueError(
            f"phi must be {sizes[-1]}×{sizes[0]} to match widths {sizes}, "
            f"got {target.shape[0]}×{target.shape[1]}"
        )
    outward, values, inward = np.linalg.svd(target)
    rank = int(np.sum(values > RANK_TOLERANCE * values[0]))
    if rank > min(sizes):
        raise ValueError(f"phi must have rank at most {min(sizes)} to pass {sizes}, got {rank}")
    root = AlignedChain.balanced(
        sizes,
        lam=values[:rank] ** (1 / (len(sizes) - 1)),
        bases=[inward.T, *(np.eye(width) for width in sizes[1:-1]), outward],
    )
    return LinearChain(
        weights=root.to_chain().weights,
        sigma_xx=moment,
        sigma_yx=target @ moment,
        half_y2=float(np.vdot(target, target @ moment) / 2),
    )


def scaled_minimum(widths: Sequence[int], rank: int, scales: ArrayLike) -> AlignedChain:
    """The minimum for whitened inputs and r = `rank` unit targets at which layer l stretches the r
    directions by s_l = `scales[l − 1]`, with Π_l s_l = 1.

    >>> scaled_minimum((3, 4, 2), rank=2, scales=[0.5, 2.0]).product
    array([1., 1.])
    """
    sizes = tuple(widths)
    s = real_array("scales", scales, ndim=1)
    if len(s) != len(sizes) - 1 or s.min(initial=1.0) <= 0:
        raise ValueError(f"scales must be {len(sizes) - 1} positive numbers, got {s}")
    if abs(np.prod(s) - 1) > SCALE_TOLERANCE:
        raise ValueError(f"scales must have product 1, got {np.prod(s):.6g}")
    count = whole_number("rank", rank, least=1)
    if count > min(sizes):
        raise ValueError(f"rank must be at most {min(sizes)} to fit widths {sizes}, got {count}")
    unit = AlignedChain.balanced(sizes, lam=np.ones(count), target=np.ones(count))
    stretched = tuple(scale * values for scale, values in zip(s, unit.singular_values, strict=True))
    return replace(unit, singular_values=stretched)


def scaled_spectrum(widths: Sequence[int], rank: int, scales: ArrayLike) -> Spectrum:
    """All eigenvalues at the `scaled_minimum`: Σ_l s_l⁻² (r² times, "dominant"), s_1⁻²
    (r(d_0 − r) times) and s_L⁻² (r(d_L − r) times, both "bulk"), and zeros.

    >>> scaled_spectrum((3, 4, 5), rank=1, scales=[0.5, 2.0])
    Spectrum(4.25 × 1, 4 × 2, 0.25 × 4, 0 × 25)
    """
    chain = scaled_minimum(widths, rank, scales)
    inverse = 1 / np.asarray(scales, dtype=np.float64) ** 2
    entries = [
        (float(inverse.sum()), rank**2, "dominant"),
        (float(inverse[0]), rank * (chain.widths[0] - rank), "bulk"),
        (float(inverse[-1]), rank * (chain.widths[-1] - rank), "bulk"),
    ]
    zeros = chain.size - sum(count for _, count, _ in entries)
    present = [entry for entry in [*entries, (0.0, zeros, "zero")] if entry[1] > 0]
    values, counts, labels = zip(*present, strict=True)
    return Spectrum.merge([Spectrum(np.array(values), np.array(counts), labels)])


@dataclass(frozen=True)
class Clusters:
    """How far apart two clusters of eigenvalues are: `least` = min dominant / max bulk,
    `most` = max dominant / min bulk, `mean` = mean dominant / mean bulk.
    """

    least: float
    mean: float
    most: float


def clusters(eigenvalues: ArrayLike, widths: Sequence[int], rank: int) -> Clusters:
    """The ratios of the r² largest `eigenvalues` to the r(d_0 + d_L − 2r) next ones.

    >>> clusters([6.0, 0.0, 3.0, 2.0, 0.0], widths=(2, 9, 2), rank=1)
    Clusters(least=2.0, mean=2.4, most=3.0)
    """
    values = np.sort(real_array("eigenvalues", eigenvalues, ndim=1))[::-1]
    r, first, last = whole_number("rank", rank, least=1), widths[0], widths[-1]
    if not 2 * r < first + last or r > min(first, last):
        raise ValueError(
            f"rank must leave a bulk between widths {first} and {last}: at most "
            f"{min(first, last)}, and below their mean, got {r}"
        )
    dominant, bulk = r * r, r * (first + last - 2 * r)
    if len(values) < dominant + bulk or values[dominant + bulk - 1] <= 0:
        raise ValueError(f"eigenvalues must have {dominant + bulk} positive values")
    top, rest = values[:dominant], values[dominant : dominant + bulk]
    return Clusters(
        least=float(top[-1] / rest[0]),
        mean=float(top.mean() / rest.mean()),
        most=float(top[0] / rest[-1]),
    )


def membership(chain: AlignedChain, rank: int) -> Spectrum:
    """All eigenvalues of the Hessian, labelled "dominant", "bulk" or "zero" by their block {i, j}
    and not by their size.

    In each block the Gauss–Newton part has a range of 0, 1 or 2 dimensions. As many eigenvectors,
    those that lie closest to it, carry the change of W: they are dominant if i, j ≤ r = `rank`,
    bulk if i ≤ r < j, and zero if r < i, j. The others re-parametrise W, and are zero.

    Early in training, size would mislead: the dominant value may be the most negative of all.

    >>> chain = AlignedChain.balanced((3, 4, 4, 2), lam=[0.5], target=[1.0])
    >>> print(membership(chain, rank=1).select("dominant"), "of", chain.spectrum())
    -0.6875 × 1 of 0.4375 × 8, 0.0625 × 3, 0 × 18, -0.4375 × 6, -0.6875 × 1
    """
    r = whole_number("rank", rank, least=1)
    # The Gauss–Newton part is the Hessian of the same layers when their product is the target.
    fitted = replace(chain, target=chain.data[: len(chain.target)] * chain.product)
    values, labels = [], []
    for family, tangent in zip(chain._families(), fitted._families(), strict=True):
        eigenvalues, vectors = np.linalg.eigh(family.blocks)
        lengths, directions = np.linalg.eigh(tangent.blocks)
        in_range = lengths > RANK_TOLERANCE * max(1.0, float(np.abs(lengths).max()))
        overlaps = np.einsum("nij,nik->njk", directions, vectors) ** 2
        closeness = (overlaps * in_range[:, :, None]).sum(axis=1)
        place = np.argsort(np.argsort(-closeness, axis=1, kind="stable"), axis=1)
        carries = place < in_range.sum(axis=1, keepdims=True)
        active = (family.first < r).astype(int) + (family.second < r)
        name = np.array(["zero", "bulk", "dominant"], dtype=object)[active]
        values.append(eigenvalues.ravel())
        labels.append(np.where(carries, name[:, None], "zero").ravel())
    united = np.concatenate(values)
    ones = np.ones(len(united), dtype=np.int64)
    return Spectrum.merge([Spectrum(united, ones, tuple(np.concatenate(labels).tolist()))])


def _positive_eigenvalues(sigma_xx: ArrayLike) -> Array:
    """The eigenvalues of Σxx, ascending, refused unless they are positive."""
    matrix = real_array("sigma_xx", sigma_xx, ndim=2)
    spectrum = Spectrum.from_matrix(matrix)
    if spectrum.size == 0 or spectrum.values.min() <= RANK_TOLERANCE * spectrum.norm:
        raise ValueError("sigma_xx must be positive definite")
    return spectrum.expand()[::-1]


def _power(matrix: Array, exponent: float) -> Array:
    """A positive semidefinite matrix to a power ≥ 0, the identity for the power 0."""
    values, vectors = np.linalg.eigh(matrix)
    powers = np.where(values > RANK_TOLERANCE * values.max(), values, 0.0) ** exponent
    power: Array = (vectors * powers) @ vectors.T
    return power
