"""Spectral phantoms: ordinary torch networks whose whole Hessian spectrum is known.

In medical imaging a phantom is an object whose inside is known exactly, made to test scanners. Here
it is a `torch.nn.Sequential` of three `nn.Linear` without bias, dense and with no visible
structure, on samples that look like any others. Inside it is an aligned chain in random bases,

    W_l = Q_l S_l Q_{l−1}ᵀ,    Σxx = Q_0 diag(x) Q_0ᵀ,    Σyx = Q_3 diag(y) Q_0ᵀ,

whose Hessian splits into blocks of size at most 6, one for each pair of modes (`aligned`). Modes
with equal numbers form a class, and a block depends on the classes only: the spectrum of ten
million parameters is that of a small chain with at most two modes of each class, counted properly.

A phantom referees batching, weighting, reductions, number formats, and the algorithms for
eigenvalues, traces and densities. It does not referee second derivatives of other layers or losses.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, combinations, islice, pairwise, product
from math import inf, isqrt
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import hadamard

from exacthessian.aligned import AlignedChain, Indices
from exacthessian.assembly import within_memory
from exacthessian.inputs import Array, require, whole_number
from exacthessian.spectrum import Spectrum

if TYPE_CHECKING:  # torch is imported where it is used
    from torch import Tensor
    from torch.nn import Sequential
    from torch.utils.data import DataLoader

Draw = Callable[..., Array]

NOISE = 0.5  # of the targets, relative to the largest input
HEAVY = 4.0  # the last sample is drawn this much larger
CHECKED_PAIRS = 8
COPIES = 6  # how many times the memory of its parameters it takes to make a phantom


class _Inside(NamedTuple):
    """The spectrum of a chain, descending. Entry n is the eigenvalue `local[n]` of the block of the
    modes p[n], q[n] of `reduced`, a chain with at most two modes of each class; `members[p]` are
    the modes of the whole chain in the class of mode p. Modes count from 0 here.
    """

    spectrum: Spectrum
    p: NDArray[Any]
    q: NDArray[Any]
    local: NDArray[Any]
    reduced: AlignedChain
    members: list[Indices]


@dataclass(frozen=True, eq=False, repr=False)
class Phantom:
    """A network of P = `size` parameters with known Hessian H of ½ · mean ‖f(x_n) − y_n‖².

    `modes` is its inside, an `AlignedChain` without bases; `bases` are Q_0..Q_3; `inputs` (N, d_0)
    and `targets` (N, d_3) are the samples, in rows; `dtype` is that of `model` and `data`.
    """

    kind: str
    modes: AlignedChain
    bases: tuple[Array, ...]
    inputs: Array
    targets: Array
    dtype: str

    @property
    def size(self) -> int:
        """The number of parameters P."""
        return self.modes.size

    @property
    def factors(self) -> dict[str, float]:
        """How many times H the Hessian of `torch.nn.MSELoss(reduction=...)` is: 2/d_3 for "mean",
        2N for "sum".
        """
        return {"mean": 2 / self.targets.shape[1], "sum": 2 * len(self.targets)}

    @cached_property
    def model(self) -> "Sequential":
        """The network, a plain `torch.nn.Sequential` of `torch.nn.Linear` without bias."""
        import torch

        layers = []
        for s, (right, left) in zip(self.modes.singular_values, pairwise(self.bases), strict=True):
            layer = torch.nn.Linear(len(right), len(left), bias=False, device="meta")
            weight = torch.from_numpy((left[:, : len(s)] * s) @ right[:, : len(s)].T)
            layer.weight = torch.nn.Parameter(weight.to(getattr(torch, self.dtype)))
            layers.append(layer)
        return torch.nn.Sequential(*layers)

    @cached_property
    def data(self) -> tuple["Tensor", "Tensor"]:
        """Inputs (N, d_0) and targets (N, d_3) with exactly the second moments of the chain.

        The targets carry noise that no linear map of the inputs explains, and the last sample is
        heavy: batches differ, and one that is weighted wrongly shows.
        """
        import torch

        kind = getattr(torch, self.dtype)
        return torch.from_numpy(self.inputs).to(kind), torch.from_numpy(self.targets).to(kind)

    def loader(self, batch_size: int) -> "DataLoader[Any]":
        """The samples in order, in batches of `batch_size`; the last may be smaller."""
        from torch.utils.data import DataLoader, TensorDataset

        return DataLoader(TensorDataset(*self.data), batch_size=batch_size)

    def loss(self, outputs: "Tensor", targets: "Tensor") -> "Tensor":
        """½ · mean over the samples of ‖outputs − targets‖²."""
        return ((outputs - targets) ** 2).sum() / (2 * len(targets))

    @property
    def spectrum(self) -> Spectrum:
        """All P eigenvalues of H, one entry for each eigenvalue of each pair of mode classes. Its
        cost depends on the number of classes only; in the kind "distinct" every mode is one.
        """
        return self._inside.spectrum

    @cached_property
    def gauss_newton_spectrum(self) -> Spectrum:
        """All P eigenvalues of the Gauss–Newton matrix: the Hessian's if the residual were 0."""
        fitted = self.modes.target + self.modes.residual
        return _solved(replace(self.modes, target=fitted)).spectrum

    @property
    def trace(self) -> float:
        """tr H = Σ_l tr(A_lᵀA_l) tr(B_l Σxx B_lᵀ)."""
        return float(sum(a.sum() * b.sum() for a, b in self._curvatures()))

    @property
    def diagonal(self) -> Array:
        """diag H (P,): diag(A_lᵀA_l) ⊗ diag(B_l Σxx B_lᵀ) for each layer l."""
        layers = zip(self._curvatures(), pairwise(self.bases), strict=True)
        parts = [np.outer(left**2 @ a, right**2 @ b) for (a, b), (right, left) in layers]
        return np.concatenate([part.ravel() for part in parts])

    def eigenpairs(self, k: int) -> tuple[Array, Array]:
        """The k largest eigenvalues (k,), descending, and orthonormal eigenvectors (P, k), in the
        order of `model.parameters()`, each row-major.
        """
        fits = whole_number("k", k, least=1) <= self.size
        require(fits, f"k must be at most the number of parameters {self.size}", k)
        everything = map(self._eigenvectors, range(len(self.spectrum)))
        values, vectors = zip(*islice(chain.from_iterable(everything), k), strict=True)
        return np.array(values), np.stack(vectors, axis=1)

    def residual(self, matvec: Callable[[Array], Any]) -> float:
        """The largest ‖matvec(v) − λv‖ / ‖H‖ over eight known unit eigenvectors v (P,), from the
        top of the spectrum to its bottom: below 1e-12 if `matvec` multiplies by H in float64.
        """
        places = np.linspace(0, len(self.spectrum) - 1, CHECKED_PAIRS).astype(int)
        worst = 0.0
        for place in places.tolist():
            value, vector = next(self._eigenvectors(place))
            image = np.asarray(matvec(vector.copy()), dtype=np.float64)
            fits = image.shape == vector.shape
            require(fits, f"matvec must return shape ({self.size},)", image.shape)
            error = float(np.linalg.norm(image - value * vector))
            worst = max(worst, error if np.isfinite(error) else np.inf)
        return worst / self.spectrum.norm

    def __repr__(self) -> str:
        widths = "-".join(map(str, self.modes.widths))
        return f"Phantom({self.kind!r}, P = {self.size}, {widths}, N = {len(self.inputs)})"

    @cached_property
    def _inside(self) -> _Inside:
        return _solved(self.modes)

    def _curvatures(self) -> Iterator[tuple[Array, Array]]:
        """For each layer, a_l(i)² (d_l,) and x_j b_l(j)² (d_{l−1},)."""
        *s, x, _ = _columns(self.modes)
        for l, (into, out) in enumerate(pairwise(self.modes.widths)):
            after, before = np.prod(s[l + 1 :], axis=0), np.prod(s[:l], axis=0)
            yield (after**2 * np.ones(len(x)))[:out], (x * before**2)[:into]

    def _eigenvectors(self, place: int) -> Iterator[tuple[float, Array]]:
        """(λ, unit v) for every eigenvector of entry `place` of the spectrum."""
        _, p, q, local, reduced, members = self._inside
        here, there = members[p[place]], members[q[place]]
        values, vectors = np.linalg.eigh(reduced.block(p[place] + 1, q[place] + 1))
        pairs: Iterable[tuple[int, int]] = product(here, there)
        if here is there:
            pairs = ((i, i) for i in here) if p[place] == q[place] else combinations(here, 2)
        for i, j in pairs:
            amplitudes = iter(vectors[:, local[place]])
            parts = [np.zeros((out, into)) for into, out in pairwise(self.modes.widths)]
            for row, column in [(i, j)] if i == j else [(i, j), (j, i)]:
                for part, (right, left) in zip(parts, pairwise(self.bases), strict=True):
                    if row < len(left) and column < len(right):
                        part += next(amplitudes) * np.outer(left[:, row], right[:, column])
            yield values[local[place]], np.concatenate([part.ravel() for part in parts])


def phantom(
    kind: str, parameters: int, seed: int, dtype: str = "float64", samples: int = 103
) -> Phantom:
    """A phantom of this kind with about, and at most, this many parameters. The kinds:

    | kind | made for | spectrum |
    | --- | --- | --- |
    | outliers | the ordinary case | 10 outliers, a bulk on both sides of 0, zeros |
    | degenerate | multiplicities | 3 × 100, 1.3125 × 100, 0 |
    | gap | resolution | 1, 1 − 1e-6, 0.5, …, 0.1, 0 |
    | indefinite | signs | the largest come in pairs ±λ |
    | negative | magnitude | the largest in magnitude is negative |
    | sparse | absolute tolerances | 1e-6, …, 1e-7, and 99.9 % zeros |
    | orders | dynamic range | 1, 0.1, …, 1e-11, twice each, 0 |
    | distinct | generic spectra | P different values |
    | two-valued | early termination | 3 × 64, 0 |
    | exact32 | number formats | as in "float64", bit for bit, in "float32" |

    The weights and samples of "exact32" are short dyadic numbers, so that up to P = 10⁷ its product
    with a vector of −1, 0 and 1 has no rounding at all; its sizes are a factor of about 4 apart. In
    "float32" the others are rounded, which moves their spectrum by about 1e-7 ‖H‖. `samples` is N,
    at least 7 more than inputs; "exact32" has 16.

    >>> p = phantom("degenerate", 10_000, seed=0)
    >>> p
    Phantom('degenerate', P = 9976, 20-86-86-10, N = 103)
    >>> print(p.spectrum)
    3 × 100, 1.3125 × 100, 0 × 9776
    """
    require(kind in KINDS, f"kind must be one of {', '.join(KINDS)}", repr(kind))
    real = dtype in ("float64", "float32")
    require(real, "dtype must be 'float64' or 'float32'", repr(dtype))
    whole_number("parameters", parameters, least=1, most=inf)
    within_memory(f"a phantom of P = {parameters} parameters", 8 * COPIES * parameters)
    rng, exact = (
        np.random.default_rng(whole_number("seed", seed, least=0, most=inf)),
        kind == "exact32",
    )
    modes = _modes(kind, parameters, rng.uniform)
    bases = tuple(_basis(width, exact, rng) for width in modes.widths)
    inputs = modes.widths[0]
    n = 16 if exact else max(whole_number("samples", samples, least=3), inputs + 7)
    normal = rng.standard_normal((n, inputs + 1))
    normal[-1] *= HEAVY
    # The columns of `draws` are orthonormal in the mean over the samples.
    draws = _basis(n, exact, rng)[:, : inputs + 1] if exact else np.linalg.qr(normal)[0]
    draws = draws * np.sqrt(n)
    root, learned = np.sqrt(modes.data), len(modes.target)
    scores = draws[:, :learned] * (modes.target / root[:learned])
    scores[:, 0] += NOISE * root.max() * draws[:, -1]
    x, y = (draws[:, :-1] * root) @ bases[0].T, scores @ bases[-1][:, :learned].T
    return Phantom(kind, modes, bases, x, y, dtype)


def _solved(modes: AlignedChain) -> _Inside:
    """The spectrum of a chain, from one block for each pair of mode classes."""
    exists = [np.arange(max(modes.widths)) < width for width in modes.widths]
    table = [*_columns(modes), *exists]
    _, label, counts = np.unique(table, axis=1, return_inverse=True, return_counts=True)
    classes = np.split(np.argsort(label, kind="stable"), np.cumsum(counts)[:-1])
    kept = np.sort(np.concatenate([members[:2] for members in classes]))
    first = np.isin(kept, [members[0] for members in classes])
    reduced = AlignedChain(
        tuple(int((kept < width).sum()) for width in modes.widths),
        tuple(s[kept[kept < len(s)]] for s in modes.singular_values),
        modes.data[kept[kept < len(modes.data)]],
        modes.target[kept[kept < len(modes.target)]],
    )
    batches = []
    for i, j in reduced.pairs():
        p, q = (i - 1).astype(np.int32), (j - 1).astype(np.int32)
        own, other = label[kept[p]], label[kept[q]]
        times = counts[own] * counts[other] * (first[p] & first[q])
        times = np.where(own == other, counts[own] * (counts[own] - 1) // 2, times)
        times = np.where(p == q, counts[own] * first[p], times)
        used = times > 0
        if used.any():
            values = np.linalg.eigvalsh(reduced.block(i[used], j[used]))
            rows = (column[used, None] for column in (times, p, q))
            together = np.broadcast_arrays(values, *rows, np.arange(values.shape[1], dtype=np.int8))
            batches.append([column.ravel() for column in together])
    columns = [np.concatenate(column) for column in zip(*batches, strict=True)]
    batches.clear()  # a "distinct" phantom of ten million parameters has as many entries
    order = np.argsort(-columns[0], kind="stable")
    value, times, p, q, local = (column[order] for column in columns)
    spectrum = Spectrum(value, times, ("",) * len(value))
    return _Inside(spectrum, p, q, local, reduced, [classes[name] for name in label[kept]])


def _columns(modes: AlignedChain) -> list[Array]:
    """s_{1,i}, …, s_{L,i}, x_i and y_i for every mode i, 0 where there is none."""
    columns = [*modes.singular_values, modes.data, modes.target]
    return [np.pad(column, (0, max(modes.widths) - len(column))) for column in columns]


def _basis(size: int, exact: bool, rng: np.random.Generator) -> Array:
    """A random orthogonal matrix; if `exact`, with all entries ±size^(−1/2)."""
    if not exact:
        return np.linalg.qr(rng.standard_normal((size, size)))[0]
    shuffled = rng.permutation(rng.permutation(hadamard(size)), axis=1)
    return shuffled * rng.choice([-1.0, 1.0], size) / np.sqrt(size)


# The first modes of a chain (d, h, h, m): m, then x (d,), then s and ω of the modes that all layers
# have, then the singular values of the other modes of the middle layer: some once, some in equal
# shares. "distinct" is made of square layers instead.
KINDS: dict[str, Callable[[Draw], tuple[Any, ...]]] = {
    "outliers": lambda u: (2, u(2, 3, 5), u(1.4, 1.6, 5), u(0.1, 0.2, 2), [], u(0, 4, 40)),
    "degenerate": lambda u: (10, np.repeat([1.0, 0.4375], 10)),
    "gap": lambda u: (1, np.array([1.0, 1 - 1e-6, *np.linspace(0.5, 0.1, 8)]) / 3),
    "indefinite": lambda u: (4, u(0.4, 0.6, 4), 0.5, u(0.8, 1.2, 4), u(2, 3, 5), u(0, 1, 20)),
    # −2|ωs| + 3xs⁴ is possible from depth three; at depth two no negative value is the largest.
    "negative": lambda u: (3, u(0.1, 0.2, 3), 0.65, np.array([-1.6, 0.8, 0.7]), u(0.2, 0.4, 10)),
    "sparse": lambda u: (1, np.linspace(1e-6, 1e-7, 10) / 3),
    "orders": lambda u: (2, 10.0 ** -np.arange(12) / 3),
    "distinct": lambda u: (),
    "two-valued": lambda u: (8, np.ones(8)),
    # Few and simple modes: wider layers leave fewer of float32's 24 bits to them.
    "exact32": lambda u: (
        *(4, np.repeat([1.0, 0.25], 2), 1.0),
        np.sign(u(-1, 1, 4)) * np.repeat([0.5, 0.25], 2),
    ),
}


def _modes(kind: str, parameters: int, uniform: Draw) -> AlignedChain:
    """The inside of a phantom, as wide as the number of parameters allows."""
    if kind == "distinct":
        _check_least(kind, parameters, 12)
        width = isqrt(parameters // 3)
        s, x = uniform(0.5, 1.5, (3, width)), uniform(0.5, 1.5, width)
        target = x * s.prod(axis=0) - uniform(-0.5, 0.5, width)
        return AlignedChain((width,) * 4, tuple(s), x, target)
    return _narrow(kind, parameters, *KINDS[kind](uniform))


def _narrow(
    kind: str,
    parameters: int,
    m: int,
    x: Array,
    s: Array | float = 1.0,
    omega: Array | float = 0.0,
    singles: Any = (),
    bulk: Any = 0.0,
) -> AlignedChain:
    if kind == "sparse":
        _check_least(kind, parameters, 1000)
        x = x[: max(1, parameters // 1100)]
    d, learned = len(x), min(len(x), m)
    least = max(d, m) + len(singles)
    _check_least(kind, parameters, least * (least + d + m))
    h = (isqrt((d + m) ** 2 + 4 * parameters) - d - m) // 2
    wide = h
    if kind == "exact32":  # two powers of 4, equal or next to each other
        wide = h = 4 ** ((h.bit_length() - 1) // 2)
        wide *= 4 if 4 * h * (h + d) + h * m <= parameters else 1
    s = np.broadcast_to(s, max(d, m))
    middle = np.concatenate([s, singles, np.sort(np.resize(bulk, h - least))])
    target = x[:learned] * s[:learned] ** 3 - omega
    return AlignedChain((d, wide, h, m), (s[:d], middle, s[:m]), x, target)


def _check_least(kind: str, parameters: int, least: int) -> None:
    expected = f"parameters must be at least {least} for the kind {kind!r}"
    require(parameters >= least, expected, parameters)
