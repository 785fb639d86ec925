"""Spectra as multisets: exact eigenvalues with multiplicities, and matrix-free estimates.

Dense eigenvalues come from LAPACK through numpy, and the largest eigenvalues of an operator from
ARPACK through scipy (`top_eigenvalues`). Stochastic Lanczos quadrature (`spectral_density`) is
written here, because exactly solvable Hessians have few distinct eigenvalues: the Lanczos basis
must be reorthogonalised and must stop cleanly when it becomes invariant, and no library kept as a
dependency does both.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import eigh_tridiagonal
from scipy.sparse.linalg import LinearOperator, aslinearoperator, eigsh

from exacthessian.inputs import nonnegative_number, real_array, whole_number

SYMMETRY_TOLERANCE = 1e-12
CLUSTER_TOLERANCE = 1e-6
ZERO_TOLERANCE = 1e-9
KRYLOV_SIZE = 100


@dataclass(frozen=True, eq=False, repr=False)
class Spectrum:
    """Eigenvalues with multiplicities and labels: value `values[i]` occurs `multiplicities[i]`
    times and carries the name `labels[i]` ("" when it has none).

    Shapes: `values` (n,) float64, `multiplicities` (n,) int64 and at least 1, `labels` n strings.
    The order is kept as given; every method and class method below returns descending order.

    >>> Spectrum([1.0, 3.0, 0.0], [72, 16, 832], ["bulk", "dominant", "zero"])
    Spectrum(3 × 16, 1 × 72, 0 × 832)
    """

    values: NDArray[np.float64]
    multiplicities: NDArray[np.int64]
    labels: tuple[str, ...]

    def __post_init__(self) -> None:
        values = real_array("values", self.values, ndim=1)
        counts = np.asarray(self.multiplicities)
        if counts.dtype.kind not in "iu" and counts.size:
            raise TypeError(f"multiplicities must be integers, got dtype {counts.dtype}")
        if np.any(counts < 1):
            raise ValueError(f"multiplicities must be at least 1, got {counts.min()}")
        if isinstance(self.labels, str) or not all(isinstance(label, str) for label in self.labels):
            raise TypeError(f"labels must be a sequence of strings, got {self.labels!r}")
        if not values.shape == counts.shape == (len(self.labels),):
            raise ValueError(
                "values, multiplicities and labels must have one length, got "
                f"{len(values)}, {counts.shape} and {len(self.labels)}"
            )
        multiplicities = np.array(counts, dtype=np.int64)
        multiplicities.setflags(write=False)
        object.__setattr__(self, "values", values)
        object.__setattr__(self, "multiplicities", multiplicities)
        object.__setattr__(self, "labels", tuple(self.labels))

    @classmethod
    def of(cls, *entries: tuple[float, int, str]) -> Self:
        """The spectrum of the entries (value, count, label), in descending order; an entry of count
        0 is dropped.

        >>> Spectrum.of((1.0, 72, "bulk"), (3.0, 16, "dominant"), (2.0, 0, "none"))
        Spectrum(3 × 16, 1 × 72)
        """
        for _, count, label in entries:
            if count < 0:
                raise ValueError(f"the count of {label!r} must not be negative, got {count}")
        kept = sorted((e for e in entries if e[1] != 0), key=lambda entry: -entry[0])
        values, counts, labels = zip(*kept, strict=True) if kept else ((), (), ())
        return cls(np.array(values), np.array(counts), labels)

    @classmethod
    def from_values(cls, values: ArrayLike, label: str = "") -> Self:
        """One entry of multiplicity 1 per value, in descending order.

        >>> Spectrum.from_values([1, 2, 2]).values
        array([2., 2., 1.])
        """
        descending = np.sort(real_array("values", values, ndim=1))[::-1]
        ones = np.ones(len(descending), dtype=np.int64)
        return cls(descending, ones, (label,) * len(descending))

    @classmethod
    def from_matrix(cls, matrix: ArrayLike, label: str = "") -> Self:
        """All eigenvalues of a symmetric matrix, computed densely.

        A matrix with max|A − Aᵀ| > 1e-12 max|A| is refused: the solver reads one triangle only and
        would silently ignore the other.

        >>> print(Spectrum.from_matrix([[2, 1], [1, 2]]))
        3 × 1, 1 × 1
        """
        dense = real_array("matrix", matrix, ndim=2)
        if dense.shape[0] != dense.shape[1]:
            raise ValueError(f"matrix must be square, got {dense.shape[0]}×{dense.shape[1]}")
        asymmetry = np.abs(dense - dense.T).max(initial=0.0)
        if asymmetry > SYMMETRY_TOLERANCE * np.abs(dense).max(initial=0.0):
            raise ValueError(f"matrix must be symmetric, but max|A − Aᵀ| = {asymmetry:.3g}")
        return cls.from_values(np.linalg.eigvalsh(dense), label)

    @classmethod
    def merge(cls, spectra: Iterable["Spectrum"]) -> Self:
        """The union of several spectra as multisets, in descending order.

        >>> print(Spectrum.merge([Spectrum.from_values([1, 2]), Spectrum.from_values([2])]))
        2 × 2, 1 × 1
        """
        parts = tuple(spectra)
        values = np.concatenate([np.empty(0), *(part.values for part in parts)])
        counts = np.concatenate([np.empty(0, np.int64), *(part.multiplicities for part in parts)])
        labels = [label for part in parts for label in part.labels]
        order = np.argsort(-values, kind="stable")
        return cls(values[order], counts[order], tuple(labels[i] for i in order))

    @property
    def size(self) -> int:
        """Number of eigenvalues, counted with multiplicity.

        >>> Spectrum([5.0, 0.0], [2, 7], ["", ""]).size
        9
        """
        return int(self.multiplicities.sum())

    @property
    def norm(self) -> float:
        """max |value|, the operator norm of the matrix; 0 for an empty spectrum.

        >>> Spectrum.from_values([1, -4]).norm
        4.0
        """
        return float(np.abs(self.values).max(initial=0.0))

    def expand(self) -> NDArray[np.float64]:
        """All eigenvalues in descending order, each repeated by its multiplicity: shape (size,).

        >>> Spectrum([0.0, 5.0], [1, 2], ["", ""]).expand()
        array([5., 5., 0.])
        """
        order = np.argsort(-self.values, kind="stable")
        return np.repeat(self.values[order], self.multiplicities[order])

    def clusters(self, tol: float = CLUSTER_TOLERANCE) -> "Spectrum":
        """Neighbours on the sorted line at most tol·norm apart, joined into one entry.

        Linkage is single, so a chain of close neighbours is one cluster. Its value is the mean
        weighted by multiplicity, its multiplicity the sum, its label the distinct labels, sorted
        and joined by "+".

        >>> joined = Spectrum([1.0, 1 + 1e-9, 3.0], [1, 3, 2], ["b", "a", "c"]).clusters()
        >>> joined.multiplicities, joined.labels
        (array([2, 4]), ('c', 'a+b'))
        """
        gap = nonnegative_number("tol", tol) * self.norm
        if not len(self):
            return self
        order = np.argsort(-self.values, kind="stable")
        values, counts = self.values[order], self.multiplicities[order]
        cluster = np.concatenate([[0], np.cumsum(values[:-1] - values[1:] > gap)])
        first = np.flatnonzero(np.diff(cluster, prepend=-1))
        totals = np.add.reduceat(counts, first)
        # The mean is taken about the first member, so that equal values keep their value exactly.
        offsets = np.add.reduceat(counts * (values - values[first][cluster]), first)
        names: list[set[str]] = [set() for _ in first]
        for position, source in zip(cluster, order, strict=True):
            names[position].update(self.labels[source].split("+"))
        labels = tuple("+".join(sorted(name - {""})) for name in names)
        return Spectrum(values[first] + offsets / totals, totals, labels)

    def select(self, label: str) -> "Spectrum":
        """The entries that carry `label`, in descending order.

        >>> print(Spectrum([1.0, 3.0], [72, 16], ["bulk", "dominant"]).select("bulk"))
        1 × 72
        """
        chosen = np.array([own == label for own in self.labels], dtype=bool)
        if not chosen.any():
            known = ", ".join(repr(own) for own in sorted(set(self.labels)))
            raise ValueError(f"label must be one of {known or '(no entries)'}, got {label!r}")
        part = Spectrum(self.values[chosen], self.multiplicities[chosen], (label,) * chosen.sum())
        return Spectrum.merge([part])

    def count(self, low: float, high: float) -> int:
        """Number of eigenvalues λ with low ≤ λ ≤ high, counted with multiplicity.

        >>> Spectrum([1.0, 3.0], [72, 16], ["", ""]).count(0.5, 1.0)
        72
        """
        if not low <= high:
            raise ValueError(f"low must not exceed high, got low={low}, high={high}")
        return int(self.multiplicities[(low <= self.values) & (self.values <= high)].sum())

    def distance(self, other: "Spectrum") -> float:
        """Bottleneck distance of the multisets: max_i |λ_i − μ_i| of the sorted eigenvalues,
        divided by the larger of the two norms (0 when both norms are 0).

        >>> Spectrum.from_values([4, 1]).distance(Spectrum.from_values([2, 4]))
        0.25
        """
        if self.size != other.size:
            raise ValueError(
                f"other must have {self.size} eigenvalues to be compared, got {other.size}"
            )
        scale = max(self.norm, other.norm)
        if scale == 0:
            return 0.0
        return float(np.abs(self.expand() - other.expand()).max() / scale)

    def __len__(self) -> int:
        return len(self.values)

    def __str__(self) -> str:
        """`value × multiplicity`, descending, in digits that every machine reproduces: clustered,
        six significant digits, and 0 where |value| ≤ 1e-9·norm.

        >>> print(Spectrum.from_values([3 - 1e-13, 3 + 1e-13, -1e-17, 1e-16]))
        3 × 2, 0 × 2
        """
        zero = np.abs(self.values) <= ZERO_TOLERANCE * self.norm
        cleaned = np.where(zero, 0.0, self.values)
        totals: dict[str, int] = {}
        for sign in (1, 0, -1):
            # Each sign is clustered apart, so that zeros are not joined with small nonzero values.
            chosen = np.sign(cleaned) == sign
            part = Spectrum(cleaned[chosen], self.multiplicities[chosen], ("",) * chosen.sum())
            joined = part.clusters(CLUSTER_TOLERANCE * self.norm / (part.norm or 1.0))
            for value, multiplicity in zip(joined.values, joined.multiplicities, strict=True):
                text = f"{value:.6g}"
                totals[text] = totals.get(text, 0) + int(multiplicity)
        return ", ".join(f"{text} × {total}" for text, total in totals.items()) or "empty"

    def __repr__(self) -> str:
        return f"Spectrum({self})"


@dataclass(frozen=True, eq=False)
class TopEigenvalues:
    """The k largest eigenvalues λ_i of an operator H, in descending order, and how well they
    solve their equation: residuals[i] = ‖H v_i − λ_i v_i‖ for unit vectors v_i. Both (k,).

    For symmetric H an exact eigenvalue lies within residuals[i] of values[i].
    """

    values: NDArray[np.float64]
    residuals: NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Density:
    """A spectral density Σ_i weights[i] δ(λ − nodes[i]) of total mass 1. Both arrays (n,)."""

    nodes: NDArray[np.float64]
    weights: NDArray[np.float64]

    def smooth(self, grid: ArrayLike, width: float) -> NDArray[np.float64]:
        """The density at the points of `grid` (m,) after convolution with a Gaussian of standard
        deviation `width`: Σ_i weights[i] exp(−(λ − nodes[i])²/2width²) / (width √2π).

        >>> round(float(Density([0.0], [1.0]).smooth([0.0], width=2.0)[0] * np.sqrt(2 * np.pi)), 12)
        0.5
        """
        scaled = (np.asarray(grid)[:, None] - self.nodes) / width
        bumps = np.exp(-(scaled**2) / 2) / (width * np.sqrt(2 * np.pi))
        return bumps @ self.weights


def _symmetric_operator(operator: Any, rng: np.random.Generator) -> LinearOperator:
    """`operator` as a scipy LinearOperator, refused unless it is square, float64 and, on a random
    pair of vectors, symmetric: uᵀ(Hv) = vᵀ(Hu).
    """
    linear = aslinearoperator(operator)
    if linear.shape[0] != linear.shape[1]:
        raise ValueError(f"operator must be square, got {linear.shape[0]}×{linear.shape[1]}")
    if linear.dtype != np.float64:
        # A float32 product would make the eigensolver run in single precision.
        raise TypeError(f"operator must have dtype float64, got {linear.dtype}")
    u, v = rng.standard_normal((2, linear.shape[0]))
    hu, hv = linear.matvec(u), linear.matvec(v)
    if not np.all(np.isfinite(hu)):
        raise ValueError("operator must have finite products, got NaN or infinity")
    scale = np.linalg.norm(u) * np.linalg.norm(hv) + np.linalg.norm(v) * np.linalg.norm(hu)
    if abs(u @ hv - v @ hu) > SYMMETRY_TOLERANCE * scale:
        raise ValueError("operator must be symmetric, but uᵀHv ≠ vᵀHu for random u, v")
    return linear


def top_eigenvalues(operator: Any, k: int, rng: np.random.Generator) -> TopEigenvalues:
    """The k largest (not largest in magnitude) eigenvalues of a symmetric operator (P, P).

    Up to P = 100 (or 4k) the operator is multiplied out and solved densely. Beyond, this is scipy's
    restarted Lanczos (`eigsh`) with a Krylov space of that size: with scipy's own default of 20 it
    often fails to converge on a spectrum with few distinct eigenvalues. Two more traps are closed:
    `eigsh` multiplies its start by the operator and so cannot see a kernel, hence the shift to
    H + sI > 0; and it can miss copies of a multiple eigenvalue, hence the found ones are taken out
    and the largest of the rest is computed, until that one is no longer among the k largest.

    >>> top = top_eigenvalues(np.diag([5.0, -9.0, 7.0]), k=2, rng=np.random.default_rng(0))
    >>> top.values.round(12), bool(top.residuals.max() < 1e-12)
    (array([7., 5.]), True)
    """
    linear = _symmetric_operator(operator, rng)
    size = linear.shape[0]
    k = whole_number("k", k, least=1)
    if k > size:
        raise ValueError(f"k must be at most the operator's size {size}, got {k}")
    krylov = max(KRYLOV_SIZE, 4 * k)
    if size <= krylov:
        values, vectors = np.linalg.eigh(linear.matmat(np.eye(size)))
        values, vectors = values[-k:], vectors[:, -k:]
    else:
        # E‖Hx‖² = ‖H‖_F² for a standard normal x; four times ‖H‖_F is safely above ‖H‖.
        frobenius = np.linalg.norm(linear.matmat(rng.standard_normal((size, 10)))) / np.sqrt(10)
        shift = 4 * float(frobenius) or 1.0
        none = np.empty(0), np.empty((size, 0))
        values, vectors = _largest_besides(*none, linear, shift, k, krylov, rng)
        for _ in range(k):
            value, vector = _largest_besides(values, vectors, linear, shift, 1, krylov, rng)
            least = np.argmin(values)
            if value[0] <= values[least] + SYMMETRY_TOLERANCE * shift:
                break
            values[least], vectors[:, least] = value[0], vector[:, 0]
    images = linear.matmat(vectors)
    # Rayleigh quotients of H itself: they shed the rounding error of the shift.
    values = np.einsum("ij,ij->j", vectors, images)
    residuals = np.linalg.norm(images - vectors * values, axis=0)
    order = np.argsort(-values)
    return TopEigenvalues(values[order], residuals[order])


def _largest_besides(
    values: NDArray[np.float64],
    vectors: NDArray[np.float64],
    linear: LinearOperator,
    shift: float,
    count: int,
    krylov: int,
    rng: np.random.Generator,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The `count` largest eigenpairs of H besides the known pairs (λ_i, v_i), found as those of
    H + sI − Σ_i (λ_i + s) v_i v_iᵀ, where s = `shift` > ‖H‖ puts all others above 0.
    """

    def product(x: NDArray[np.float64]) -> NDArray[np.float64]:
        return linear.matvec(x) + shift * x - vectors @ ((values + shift) * (vectors.T @ x))

    shifted = LinearOperator(linear.shape, matvec=product, dtype=np.float64)
    start = rng.standard_normal(linear.shape[0])
    found, directions = eigsh(shifted, k=count, which="LA", v0=start, ncv=krylov)
    return found - shift, directions


def spectral_density(operator: Any, rng: np.random.Generator, steps: int, probes: int) -> Density:
    """The spectral density of a symmetric operator (P, P) by stochastic Lanczos quadrature.

    For a unit vector q, `steps` Lanczos steps give a tridiagonal T whose eigenvalues θ_j, weighted
    by the squared first components of their eigenvectors, form the Gauss quadrature of the measure
    Σ_i (qᵀu_i)² δ(λ − λ_i). The mean over random directions q estimates P⁻¹ Σ_i δ(λ − λ_i).

    Every vector is orthogonalised twice against all before it, and a probe whose residual vanishes
    stops: its Krylov space is then invariant and its quadrature exact.

    >>> density = spectral_density(3 * np.eye(50), np.random.default_rng(0), steps=10, probes=2)
    >>> density.nodes.round(12), density.weights
    (array([3., 3.]), array([0.5, 0.5]))
    """
    linear = _symmetric_operator(operator, rng)
    size = linear.shape[0]
    steps = min(whole_number("steps", steps, least=1), size)
    probes = whole_number("probes", probes, least=1)
    basis = np.zeros((probes, steps, size))
    diagonal, coupling = np.zeros((probes, steps)), np.zeros((probes, steps))
    length, scale = np.full(probes, steps), np.zeros(probes)
    vector = rng.standard_normal((probes, size))
    vector /= np.linalg.norm(vector, axis=1, keepdims=True)
    for step in range(steps):
        basis[:, step] = vector
        image = np.array(linear.matmat(vector.T).T, order="C")
        scale = np.maximum(scale, np.linalg.norm(image, axis=1))
        diagonal[:, step] = np.einsum("ij,ij->i", vector, image)
        known = basis[:, : step + 1]
        for _ in range(2):
            overlap = known @ image[:, :, None]
            image -= (overlap.transpose(0, 2, 1) @ known)[:, 0]
        coupling[:, step] = np.linalg.norm(image, axis=1)
        ended = (coupling[:, step] <= size * np.finfo(np.float64).eps * scale) & (length == steps)
        length[ended] = step + 1
        alive = length > step + 1
        # An ended probe continues as the zero vector, so that the others stay in one batch.
        vector = np.zeros_like(image)
        vector[alive] = image[alive] / coupling[alive, step, None]
    nodes, weights = [], []
    for alpha, beta, end in zip(diagonal, coupling, length, strict=True):
        theta, vectors = eigh_tridiagonal(alpha[:end], beta[: end - 1])
        nodes.append(theta)
        weights.append(vectors[0] ** 2 / probes)
    return Density(np.concatenate(nodes), np.concatenate(weights))
