"""Finding the bases in which a chain is aligned.

The spaces V_0..V_L with the maps W_1..W_L, Σyx and Σxx are split into an orthogonal sum of strings,
invariant parts with at most one dimension in each space; strings are then put together into modes
1, 2, …, mode i having one dimension in each space of width ≥ i. Two Newton steps polish the bases.
What then lies off the diagonal decides, and nothing else: the search may guess, the test may not.
"""

from collections.abc import Iterator, Sequence
from functools import reduce
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from exacthessian.chain import LinearChain
from exacthessian.inputs import Array

Indices = NDArray[np.int64]
_String = dict[int, Array]

NEWTON_REGION = 0.1
PIVOT_TOLERANCE = 1e-8


class _Cut(NamedTuple):
    """Which singular values of a map count as 0: relative to its largest, and in any case."""

    relative: float
    absolute: float


# From "everything is meant" to "a hundredth is noise"; a chain is refused after the last.
CUTS = (_Cut(1e-12, 0.0), *(_Cut(cut, cut) for cut in (1e-12, 1e-10, 1e-8, 1e-6, 1e-4, 1e-2)))


class _Leak(NamedTuple):
    """The relative Frobenius norm of the part of a map that lies off the diagonal."""

    size: float
    name: str


def common_bases(chain: LinearChain, tol: float) -> list[Array]:
    """Orthogonal Q_0..Q_L such that every Q_lᵀW_lQ_{l−1}, Q_LᵀΣyxQ_0 and Q_0ᵀΣxxQ_0 is diagonal.

    What is left off the diagonal must not exceed `tol`, in the Frobenius norm, relative to the
    largest layer, to Σxx, and to the larger of Σyx and WΣxx. Otherwise the chain is refused with
    the amount that is left.

    >>> turn = np.array([[0.6, -0.8], [0.8, 0.6]])
    >>> chain = LinearChain([turn @ np.diag([2.0, 3.0])], np.eye(2), np.zeros((2, 2)))
    >>> right, left = common_bases(chain, tol=1e-8)
    >>> np.sort(np.abs(left.T @ chain.weights[0] @ right).ravel()).round(12).tolist()
    [0.0, 0.0, 2.0, 3.0]
    """
    if not 0 < tol < NEWTON_REGION:
        raise ValueError(f"tol must lie between 0 and {NEWTON_REGION}, got {tol}")
    attempts = []
    for cut in CUTS:
        leak, bases = _attempt(chain, cut)
        if bases is not None and leak.size <= tol:
            return bases
        attempts.append(leak)
    best = min(attempts)
    if best.size <= tol:
        raise ValueError(
            "chain is not aligned: it splits into one-dimensional strings, but they cannot be "
            f"numbered so that each keeps one index within all widths {chain.widths}"
        )
    raise ValueError(
        f"chain is not aligned: in the best common bases found, the off-diagonal part of "
        f"{best.name} has relative norm {best.size:.3g}, more than tol = {tol:.3g}"
    )


def _maps(chain: LinearChain) -> dict[str, tuple[int, int, Array]]:
    """Name → (space it starts from, space it leads to, matrix) of all that must become diagonal, in
    units of what it adds up with: layers of the largest layer, Σxx of itself, Σyx of Σyx and WΣxx.
    """
    largest = max(np.linalg.norm(weight) for weight in chain.weights) or 1.0
    data = np.linalg.norm(chain.sigma_xx) or 1.0
    moment = (
        max(np.linalg.norm(chain.sigma_yx), np.linalg.norm(chain.product @ chain.sigma_xx)) or 1.0
    )
    layers = {f"weights[{n}]": (n, n + 1, w / largest) for n, w in enumerate(chain.weights)}
    return layers | {
        "sigma_yx": (0, chain.depth, chain.sigma_yx / moment),
        "sigma_xx": (0, 0, chain.sigma_xx / data),
    }


def _attempt(chain: LinearChain, cut: _Cut) -> tuple[_Leak, list[Array] | None]:
    """Bases of V_0..V_L, one column per mode, in which the layers and moments are diagonal up to
    the leak; no bases if the strings are not invariant or cannot be numbered.
    """
    strings = _strings(chain, cut)
    bases, owners = _columns(strings, chain.widths)
    leak = _leak(chain, bases, owners)
    if leak.size > NEWTON_REGION:
        return leak, None
    modes = _modes([frozenset(string) for string in strings], chain.widths)
    if modes is None:
        return leak, None
    bases, _ = _columns([strings[n] for n in np.argsort(modes, kind="stable")], chain.widths)
    for _ in range(2):
        bases = _refined(chain, bases)
    return _leak(chain, bases, [np.arange(width) for width in chain.widths]), bases


def _strings(chain: LinearChain, cut: _Cut) -> list[_String]:
    """The spaces V_0..V_L as an orthogonal sum of strings, which the layers and moments map to
    themselves if the chain is aligned, and as nearly as found here if it is not.

    A string is followed from its first space by the partial isometries U of the polar forms
    M = U|M| of the maps. It starts as an eigenvector of K_l, a random combination of what must be a
    multiple of the identity on every string: the moduli |M| and their supports at both ends of each
    map, and the loop from V_0 through all layers and back by Σyx, all carried to V_l by the partial
    isometries. Singular values up to `cut`, or `cut` times a map's largest, count as 0.
    """
    rng = np.random.default_rng(0)
    depth, widths = chain.depth, chain.widths
    separators = [np.zeros((width, width)) for width in widths]
    links = []
    for tail, head, matrix in _maps(chain).values():
        left, values, right = np.linalg.svd(matrix, full_matrices=False)
        kept = values > max(cut.relative * values[0], cut.absolute)
        for space, side in ((tail, right[kept].T), (head, left[:, kept])):
            weights = rng.uniform(1, 2) + rng.uniform(1, 2) * values[kept] / (values[0] or 1.0)
            separators[space] += (side * weights) @ side.T
        links.append((tail, head, left[:, kept] @ right[kept]))
    *layers, target, _ = (isometry for _, _, isometry in links)
    loop = target.T @ reduce(lambda product, isometry: isometry @ product, layers)
    separators[0] += rng.uniform(1, 2) * (loop + loop.T)
    # There and back takes what is known anywhere on a string to its first space, also through V_L.
    back = [(head, tail, isometry.T) for tail, head, isometry in reversed(links)]
    for tail, head, isometry in links + back:
        separators[head] = separators[head] + isometry @ separators[tail] @ isometry.T

    strings: list[_String] = []

    def follow(string: _String, space: int, route: Sequence[tuple[int, Array]]) -> None:
        """Extend `string` from `space` along `route` until it ends or meets itself."""
        for following, isometry in route:
            taken, image = _rows(strings, following, widths[following]), isometry @ string[space]
            image = image - taken.T @ (taken @ image)
            length = np.linalg.norm(image)
            if following in string or length < 0.5:
                return
            string[following] = image / length
            space = following

    ahead = [(layer + 1, isometry) for layer, isometry in enumerate(layers)]
    around = [(depth, target), *((layer, layers[layer].T) for layer in range(depth - 1, 0, -1))]
    for space in range(depth + 1):
        taken = _rows(strings, space, widths[space])
        rest = np.linalg.qr(taken.T, mode="complete")[0][:, len(taken) :]
        _, starts = np.linalg.eigh(rest.T @ separators[space] @ rest)
        for start in (rest @ starts).T:
            string = {space: start}
            follow(string, space, ahead[space:])
            if space == 0:
                follow(string, space, around)
            strings.append(string)
    return strings


def _rows(strings: Sequence[_String], space: int, width: int) -> Array:
    """The vectors in V_space, of dimension `width`, of the strings that have one, as rows."""
    rows = [string[space] for string in strings if space in string]
    return np.array(rows).reshape(-1, width)


def _columns(
    strings: Sequence[_String], widths: Sequence[int]
) -> tuple[list[Array], list[Indices]]:
    """The bases of V_0..V_L that the strings form, and the string of each basis vector."""
    bases = [_rows(strings, space, width).T for space, width in enumerate(widths)]
    owners = [
        np.array([number for number, string in enumerate(strings) if space in string])
        for space in range(len(widths))
    ]
    return bases, owners


def _leak(chain: LinearChain, bases: Sequence[Array], owners: Sequence[Indices]) -> _Leak:
    """The largest Frobenius norm of what a map takes from one owner's vectors to another's."""
    leaks = []
    for name, (tail, head, matrix) in _maps(chain).items():
        inner = bases[head].T @ matrix @ bases[tail]
        off = np.where(owners[head][:, None] == owners[tail], 0.0, inner)
        leaks.append(_Leak(float(np.linalg.norm(off)), name))
    return max(leaks)


def _refined(chain: LinearChain, bases: Sequence[Array]) -> list[Array]:
    """The bases after one Newton step towards diagonal maps.

    With Q_l ← Q_l(I + A_l), A_l antisymmetric, a map M from V_t to V_h with diagonal s gets, to
    first order, the off-diagonal entries M_pq + s_p A_t^{pq} − s_q A_h^{pq} and
    M_qp − s_q A_t^{pq} + s_p A_h^{pq}. For each pair p < q all A_l^{pq} follow by least squares;
    directions that nearly equal values leave undetermined are not moved.
    """
    widths, modes = chain.widths, max(chain.widths)
    maps = _maps(chain).values()
    p, q = np.triu_indices(modes, 1)
    slopes = np.zeros((len(p), len(maps), 2, len(widths)))
    values = np.zeros((len(p), len(maps), 2))
    for n, (tail, head, matrix) in enumerate(maps):
        inner = np.zeros((modes, modes))
        inner[: widths[head], : widths[tail]] = bases[head].T @ matrix @ bases[tail]
        s = np.diagonal(inner)
        values[:, n, 0], values[:, n, 1] = inner[p, q], inner[q, p]
        slopes[:, n, 0, tail] += s[p]
        slopes[:, n, 0, head] -= s[q]
        slopes[:, n, 1, tail] -= s[q]
        slopes[:, n, 1, head] += s[p]
    inverse = np.linalg.pinv(
        slopes.reshape(len(p), 2 * len(maps), len(widths)), rcond=PIVOT_TOLERANCE
    )
    angles = -(inverse @ values.reshape(len(p), 2 * len(maps), 1))[..., 0]
    refined = []
    for space, width in enumerate(widths):
        turn = np.zeros((modes, modes))
        turn[p, q] = angles[:, space]
        turn = (turn - turn.T)[:width, :width]
        left, _, right = np.linalg.svd(bases[space] + bases[space] @ turn)
        refined.append(left @ right)
    return refined


def _modes(supports: Sequence[frozenset[int]], widths: Sequence[int]) -> Indices | None:
    """A mode for each string, counted from 0, such that mode i has exactly one string in each space
    wider than i; None if there is none.

    Modes that exist in the same spaces are alike, and so are strings with the same support: the
    unknowns are how many modes of each kind are covered in each possible way.
    """
    # Imported here, because it takes longer to import than the rest of the package.
    from scipy.optimize import LinearConstraint, milp

    strings: dict[frozenset[int], list[int]] = {}
    for string, support in enumerate(supports):
        strings.setdefault(support, []).append(string)
    spans = list(pairwise([0, *sorted(set(widths))]))
    spaces = [frozenset(n for n, width in enumerate(widths) if width > low) for low, _ in spans]
    covers = [(n, cover) for n, kind in enumerate(spaces) for cover in _covers(kind, list(strings))]
    equations = [[float(n == span) for n, _ in covers] for span in range(len(spans))]
    equations += [[float(support in cover) for _, cover in covers] for support in strings]
    totals = [high - low for low, high in spans] + [len(alike) for alike in strings.values()]
    if not covers:
        return None
    solution = milp(
        np.zeros(len(covers)),
        integrality=np.ones(len(covers)),
        constraints=LinearConstraint(np.array(equations), totals, totals),
    )
    if not solution.success:
        return None
    modes = np.zeros(len(supports), dtype=np.int64)
    following = [low for low, _ in spans]
    for (span, cover), times in zip(covers, np.rint(solution.x).astype(int), strict=True):
        for _ in range(times):
            for support in cover:
                modes[strings[support].pop()] = following[span]
            following[span] += 1
    return modes


def _covers(
    spaces: frozenset[int], supports: Sequence[frozenset[int]]
) -> Iterator[tuple[frozenset[int], ...]]:
    """All ways to write `spaces` as a disjoint union of `supports`."""
    if not spaces:
        yield ()
        return
    for support in supports:
        if min(spaces) in support and support <= spaces:
            for others in _covers(spaces - support, supports):
                yield (support, *others)
