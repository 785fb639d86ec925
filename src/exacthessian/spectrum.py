"""Spectra as multisets: exact eigenvalues with multiplicities, and matrix-free estimates.

Dense eigenvalues come from LAPACK through numpy. The Lanczos runs behind `top_eigenvalues` and
`spectral_density` are written here, because exactly solvable Hessians have few distinct
eigenvalues, many times each: a run must be reorthogonalised, must stop cleanly when its space
becomes invariant, and must be repeated until no copy is missing. No library kept as a dependency
does all three.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse.linalg import LinearOperator, aslinearoperator

from exacthessian import inputs
from exacthessian.assembly import within_memory
from exacthessian.inputs import SYMMETRY_TOLERANCE, Array, real_array, require, whole_number

CLUSTER_TOLERANCE = 1e-6
ZERO_TOLERANCE = 1e-9
KRYLOV_SIZE = 60
EPS = float(np.finfo(np.float64).eps)


@dataclass(frozen=True, eq=False, repr=False)
class Spectrum:
    """Eigenvalues with multiplicities and labels: value `values[i]` occurs `multiplicities[i]`
    times and carries the name `labels[i]` ("" when it has none).

    Shapes: `values` (n,) float64, `multiplicities` (n,) int64 and at least 1, `labels` n strings.
    The order is kept as given; every method and class method below returns descending order.

    >>> Spectrum([1.0, 3.0, 0.0], [72, 16, 832], ["bulk", "dominant", "zero"])
    Spectrum(3 × 16, 1 × 72, 0 × 832)
    """

    values: Array
    multiplicities: NDArray[np.int64]
    labels: tuple[str, ...]

    def __post_init__(self) -> None:
        values = real_array("values", self.values, ndim=1)
        counts = np.asarray(self.multiplicities)
        if counts.dtype.kind not in "iu" and counts.size:
            raise TypeError(f"multiplicities must be integers, got dtype {counts.dtype}")
        require(np.all(counts >= 1), "multiplicities must be at least 1", counts.min(initial=1))
        if isinstance(self.labels, str) or set(map(type, self.labels)) - {str}:
            raise TypeError(f"labels must be a sequence of strings, got {self.labels!r}")
        equal = values.shape == counts.shape == (len(self.labels),)
        lengths = f"{len(values)}, {counts.shape} and {len(self.labels)}"
        require(equal, "values, multiplicities and labels must have one length", lengths)
        multiplicities = np.array(counts, dtype=np.int64)
        multiplicities.setflags(write=False)
        inputs.settle(self, values=values, multiplicities=multiplicities, labels=tuple(self.labels))

    @classmethod
    def of(cls, *entries: tuple[float, int, str]) -> Self:
        """The spectrum of the entries (value, count, label), in descending order; an entry of count
        0 is dropped.

        >>> Spectrum.of((1.0, 72, "bulk"), (3.0, 16, "dominant"), (2.0, 0, "none"))
        Spectrum(3 × 16, 1 × 72)
        """
        for _, count, label in entries:
            require(count >= 0, f"the count of {label!r} must not be negative", count)
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
        rows, columns = dense.shape
        require(rows == columns, "matrix must be square", f"{rows}×{columns}")
        inputs.require_symmetric("matrix", dense)
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

    def expand(self) -> Array:
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
        gap = inputs.nonnegative_number("tol", tol) * self.norm
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
        known = ", ".join(repr(own) for own in sorted(set(self.labels))) or "(no entries)"
        require(chosen.any(), f"label must be one of {known}", repr(label))
        part = Spectrum(self.values[chosen], self.multiplicities[chosen], (label,) * chosen.sum())
        return Spectrum.merge([part])

    def count(self, low: float, high: float) -> int:
        """Number of eigenvalues λ with low ≤ λ ≤ high, counted with multiplicity.

        >>> Spectrum([1.0, 3.0], [72, 16], ["", ""]).count(0.5, 1.0)
        72
        """
        require(low <= high, "low must not exceed high", f"low={low}, high={high}")
        return int(self.multiplicities[(low <= self.values) & (self.values <= high)].sum())

    def distance(self, other: "Spectrum") -> float:
        """Bottleneck distance of the multisets: max_i |λ_i − μ_i| of the sorted eigenvalues,
        divided by the larger of the two norms (0 when both norms are 0).

        >>> Spectrum.from_values([4, 1]).distance(Spectrum.from_values([2, 4]))
        0.25
        """
        expected = f"other must have {self.size} eigenvalues to be compared"
        require(self.size == other.size, expected, other.size)
        gap = np.abs(self.expand() - other.expand()).max(initial=0.0)
        return float(gap / (max(self.norm, other.norm) or 1.0))

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

    values: Array
    residuals: Array


@dataclass(frozen=True, eq=False)
class Density:
    """A spectral density Σ_i weights[i] δ(λ − nodes[i]) of total mass 1. Both arrays (n,)."""

    nodes: Array
    weights: Array


def _symmetric_operator(operator: Any, rng: np.random.Generator) -> LinearOperator:
    """`operator` as a scipy LinearOperator, refused unless it is square, float64 and, on a random
    pair of vectors, symmetric: uᵀ(Hv) = vᵀ(Hu).
    """
    linear = aslinearoperator(operator)
    rows, columns = linear.shape
    require(rows == columns, "operator must be square", f"{rows}×{columns}")
    if linear.dtype != np.float64:
        # A float32 product would make the eigensolver run in single precision.
        raise TypeError(f"operator must have dtype float64, got {linear.dtype}")
    u, v = rng.standard_normal((2, linear.shape[0]))
    hu, hv = linear.matvec(u), linear.matvec(v)
    require(np.all(np.isfinite(hu)), "operator must have finite products", "NaN or infinity")
    scale = np.linalg.norm(u) * np.linalg.norm(hv) + np.linalg.norm(v) * np.linalg.norm(hu)
    if abs(u @ hv - v @ hu) > SYMMETRY_TOLERANCE * scale:
        raise ValueError("operator must be symmetric, but uᵀHv ≠ vᵀHu for random u, v")
    return linear


def top_eigenvalues(operator: Any, k: int, rng: np.random.Generator) -> TopEigenvalues:
    """The k largest (not largest in magnitude) eigenvalues of a symmetric operator (P, P).

    Up to P = 60 (or 3k) the operator is multiplied out and solved densely. Beyond, restarted
    Lanczos runs find eigenpairs, each in the complement of what was found before, because one run
    sees one copy of a multiple eigenvalue. The last run finds nothing above the k-th value λ, and
    knows when to stop: if all Ritz values of m steps from a unit start lie in [α, β], then its part
    in eigenspaces above λ has norm at most 1 / T_{m−1}(1 + 2(λ − β)/(β − α)), with the Chebyshev
    polynomial T. For a random start a part below 1e-6 P^(−1/2) has a probability of about 1e-6.

    >>> top = top_eigenvalues(np.diag([5.0, -9.0, 7.0]), k=2, rng=np.random.default_rng(0))
    >>> top.values.round(12), bool(top.residuals.max() < 1e-12)
    (array([7., 5.]), True)
    """
    linear = _symmetric_operator(operator, rng)
    size = linear.shape[0]
    fits = whole_number("k", k, least=1) <= size
    require(fits, f"k must be at most the operator's size {size}", k)
    krylov = max(KRYLOV_SIZE, 3 * k)
    if size <= krylov:
        vectors = np.linalg.eigh(linear.matmat(np.eye(size)))[1].T[-k:]
    else:
        within_memory(f"a Krylov space of {krylov} vectors", 8 * size * (krylov + 2 * k))
        values, vectors, level, scale = np.empty(0), np.empty((0, size)), -np.inf, 0.0
        while True:
            # The scale is that of all runs: what is left may be rounding errors only.
            found, directions, scale = _largest(linear, vectors, k, level, scale, krylov, rng)
            new = found > level + SYMMETRY_TOLERANCE * scale
            if not new.any():
                break
            values = np.concatenate([values, found[new]])
            vectors = np.concatenate([vectors, directions[new]])
            level = np.sort(values)[-k] if len(values) >= k else level
        vectors = vectors[np.argsort(values)[-k:]]
    images = np.stack([linear.matvec(vector) for vector in vectors])
    values = np.einsum("ij,ij->i", vectors, images)
    residuals = np.linalg.norm(images - vectors * values[:, None], axis=1)
    order = np.argsort(-values)
    return TopEigenvalues(values[order], residuals[order])


def _largest(
    linear: LinearOperator,
    known: Array,
    count: int,
    level: float,
    scale: float,
    krylov: int,
    rng: np.random.Generator,
) -> tuple[Array, Array, float]:
    """The largest eigenvalues of H in the complement of the rows `known`, descending, their vectors
    in rows, and an estimate of ‖H‖: at most `count`, and all of them if `level` is −∞; none when it
    is known that none exceeds `level`.
    """
    size = linear.shape[0]
    basis, projected = np.empty((krylov + 1, size)), np.zeros((krylov, krylov))
    start = rng.standard_normal(size)
    start -= (known @ start) @ known
    basis[0] = start / np.linalg.norm(start)
    m, restarted = 0, False
    while True:
        length, beta = _lanczos_step(linear, basis, projected, m, known)
        m, scale = m + 1, max(scale, length)
        theta, mixing = np.linalg.eigh(projected[:m, :m])
        best = np.arange(m)[::-1][:count]
        tolerance = max(SYMMETRY_TOLERANCE, size * EPS) * scale
        converged = beta * np.abs(mixing[-1, best]) <= tolerance
        enough = len(best) == count and converged[: 1 if level > -np.inf else count].all()
        if enough or beta <= size * EPS * scale:
            best = best[np.logical_and.accumulate(converged)]
            return theta[best], mixing[:, best].T @ basis[:m], scale
        if theta[-1] < level and not restarted:
            growth = np.arccosh(1 + 2 * (level - theta[-1]) / (theta[-1] - theta[0] + EPS * scale))
            if (m - 1) * growth >= np.log(2e6 * np.sqrt(size)):
                return np.empty(0), np.empty((0, size)), scale
        if m == krylov:
            kept, restarted = (krylov + count) // 2, True
            basis[:kept] = mixing[:, -kept:].T @ basis[:m]
            basis[kept] = basis[m]
            projected[:] = 0
            projected[range(kept), range(kept)] = theta[-kept:]
            m = kept


def _lanczos_step(
    linear: LinearOperator, basis: Array, projected: Array, m: int, known: Array
) -> tuple[float, float]:
    """Multiply row m of `basis` by H, write row and column m of the projected matrix, and put what
    is orthogonal to all rows so far and to `known` into row m + 1: ‖Hv‖ and the norm of the rest.

    Everything is orthogonalised twice; without that, eigenvalues already found return as ghosts.
    """
    image = np.array(linear.matvec(basis[m]))
    length = float(np.linalg.norm(image))
    for _ in range(2):
        image -= (known @ image) @ known
        overlap = basis[: m + 1] @ image
        image -= overlap @ basis[: m + 1]
        projected[m, : m + 1] += overlap
    projected[:m, m] = projected[m, :m]
    rest = float(np.linalg.norm(image))
    basis[m + 1] = image / (rest or 1.0)
    return length, rest


def spectral_density(operator: Any, rng: np.random.Generator, steps: int, probes: int) -> Density:
    """The spectral density of a symmetric operator (P, P) by stochastic Lanczos quadrature.

    For a unit vector q, `steps` Lanczos steps give a tridiagonal T whose eigenvalues θ_j, weighted
    by the squared first components of their eigenvectors, form the Gauss quadrature of the measure
    Σ_i (qᵀu_i)² δ(λ − λ_i). The mean over random directions q estimates P⁻¹ Σ_i δ(λ − λ_i).

    A probe whose residual vanishes stops: its Krylov space is then invariant and its quadrature
    exact. Probes run one after the other, in the memory of one: `steps` + 1 vectors.

    >>> density = spectral_density(3 * np.eye(50), np.random.default_rng(0), steps=10, probes=2)
    >>> density.nodes.round(12), density.weights.round(12)
    (array([3., 3.]), array([0.5, 0.5]))
    """
    linear = _symmetric_operator(operator, rng)
    size = linear.shape[0]
    steps = min(whole_number("steps", steps, least=1), size)
    probes = whole_number("probes", probes, least=1)
    what = f"a density of {steps} steps at P = {size}"
    within_memory(what, 8 * size * (steps + 1), "take fewer steps")
    basis, none = np.empty((steps + 1, size)), np.empty((0, size))
    nodes, weights = [], []
    for _ in range(probes):
        start = rng.standard_normal(size)
        basis[0] = start / np.linalg.norm(start)
        projected, m, scale, rest = np.zeros((steps, steps)), 0, 0.0, np.inf
        while m < steps and rest > size * EPS * scale:
            length, rest = _lanczos_step(linear, basis, projected, m, none)
            m, scale = m + 1, max(scale, length)
        theta, vectors = np.linalg.eigh(projected[:m, :m])
        nodes.append(theta)
        weights.append(vectors[0] ** 2 / probes)
    return Density(np.concatenate(nodes), np.concatenate(weights))
