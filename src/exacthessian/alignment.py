"""Finding the bases in which a chain is aligned.

The spaces V_0..V_L with the maps W_1..W_L, Σyx and Σxx are split into an orthogonal sum of strings,
invariant parts with at most one dimension in each space; strings are then put together into modes
1, 2, …, mode i having one dimension in each space of width ≥ i. Two Newton steps polish the bases.
What then lies off the diagonal decides, and nothing else: the search may guess, the test may not.
"""

from collections.abc import Iterator, Sequence
from functools import cache, reduce
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from exacthessian.chain import LinearChain
from exacthessian.inputs import Array

Indices = NDArray[np.int64]
_String = dict[int, Array]

NEWTON_REGION = 0.1
PIVOT_TOLERANCE = 1e-8
# Which singular values of a map count as 0, (relative to its largest, absolutely): from "everything
# is meant" to "a hundredth is noise"; a chain is refused after the last.
CUTS = ((1e-12, 0.0), *((cut, cut) for cut in (1e-12, 1e-10, 1e-8, 1e-6, 1e-4, 1e-2)))


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
    leaks = []
    for cut in CUTS:
        leak, bases = _attempt(chain, cut)
        if bases is not None and leak[0] <= tol:
            return bases
        leaks.append(leak)
    size, name = min(leaks)
    if size <= tol:
        raise ValueError(
            "chain is not aligned: it splits into one-dimensional strings, but they cannot be "
            f"numbered so that each keeps one index within all widths {chain.widths}"
        )
    raise ValueError(
        f"chain is not aligned: in the best common bases found, the off-diagonal part of "
        f"{name} has relative norm {size:.3g}, more than tol = {tol:.3g}"
    )


def _maps(chain: LinearChain) -> dict[str, tuple[int, int, Array]]:
    """Name → (space it starts from, space it leads to, matrix) of all that must become diagonal, in
    units of what it adds up with: layers of the largest layer, Σxx of itself, Σyx of Σyx and WΣxx.
    """
    norm = np.linalg.norm
    largest = max(norm(weight) for weight in chain.weights) or 1.0
    moment = max(norm(chain.sigma_yx), norm(chain.product @ chain.sigma_xx)) or 1.0
    layers = {f"weights[{n}]": (n, n + 1, w / largest) for n, w in enumerate(chain.weights)}
    return layers | {
        "sigma_yx": (0, chain.depth, chain.sigma_yx / moment),
        "sigma_xx": (0, 0, chain.sigma_xx / (norm(chain.sigma_xx) or 1.0)),
    }


def _attempt(
    chain: LinearChain, cut: tuple[float, float]
) -> tuple[tuple[float, str], list[Array] | None]:
    """Bases of V_0..V_L, one column per mode, in which the layers and moments are diagonal up to
    the leak; no bases if the strings are not invariant or cannot be numbered.
    """
    strings = _strings(chain, cut)
    supports = [frozenset(string) for string in strings]
    owners = [
        np.array([n for n, support in enumerate(supports) if space in support])
        for space in range(len(chain.widths))
    ]
    leak = _leak(chain, _bases(strings, chain.widths), owners)
    if leak[0] > NEWTON_REGION or (modes := _modes(supports, chain.widths)) is None:
        return leak, None
    bases = _bases([strings[n] for n in np.argsort(modes, kind="stable")], chain.widths)
    for _ in range(2):
        bases = _refined(chain, bases)
    return _leak(chain, bases, [np.arange(width) for width in chain.widths]), bases


def _strings(chain: LinearChain, cut: tuple[float, float]) -> list[_String]:
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
        kept = values > max(cut[0] * values[0], cut[1])
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

    def taken(space: int) -> Array:
        return _bases(strings, widths)[space]

    def follow(string: _String, space: int, route: Sequence[tuple[int, Array]]) -> None:
        """Extend `string` from `space` along `route` until it ends or meets itself."""
        for following, isometry in route:
            known, image = taken(following), isometry @ string[space]
            image = image - known @ (known.T @ image)
            length = np.linalg.norm(image)
            if following in string or length < 0.5:
                return
            string[following] = image / length
            space = following

    ahead = [(layer + 1, isometry) for layer, isometry in enumerate(layers)]
    around = [(depth, target), *((layer, layers[layer].T) for layer in range(depth - 1, 0, -1))]
    for space in range(depth + 1):
        known = taken(space)
        rest = np.linalg.qr(known, mode="complete")[0][:, known.shape[1] :]
        _, starts = np.linalg.eigh(rest.T @ separators[space] @ rest)
        for start in (rest @ starts).T:
            string = {space: start}
            follow(string, space, ahead[space:])
            if space == 0:
                follow(string, space, around)
            strings.append(string)
    return strings


def _bases(strings: Sequence[_String], widths: Sequence[int]) -> list[Array]:
    """The vectors of the strings in V_0..V_L, as columns."""
    return [
        np.array([string[space] for string in strings if space in string]).reshape(-1, width).T
        for space, width in enumerate(widths)
    ]


def _leak(
    chain: LinearChain, bases: Sequence[Array], owners: Sequence[Indices]
) -> tuple[float, str]:
    """The largest relative Frobenius norm of what a map takes from one owner's vectors to
    another's, and the name of that map.
    """
    leaks = []
    for name, (tail, head, matrix) in _maps(chain).items():
        inner = bases[head].T @ matrix @ bases[tail]
        off = np.where(owners[head][:, None] == owners[tail], 0.0, inner)
        leaks.append((float(np.linalg.norm(off)), name))
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

    Modes that exist in the same spaces are alike, and so are strings with the same support: what is
    searched, exhaustively, is how many modes of each kind are covered in each possible way.
    """
    kinds = sorted(set(supports), key=lambda kind: (-len(kind), sorted(kind)))
    spans = list(pairwise([0, *sorted(set(widths))]))
    covers = []
    for span, (low, _) in enumerate(spans):
        spaces = frozenset(n for n, width in enumerate(widths) if width > low)
        covers += [(span, cover) for cover in _covers(spaces, kinds)]

    @cache
    def uses(n: int, missing: tuple[int, ...], stock: tuple[int, ...]) -> tuple[int, ...] | None:
        """How often each cover from the n-th on is used if `missing` modes of each span are still
        to be covered by a `stock` of strings of each kind.
        """
        if n == len(covers):
            return None if any(missing) else ()
        span, cover = covers[n]
        if any(missing[:span]):
            return None
        for times in range(min(missing[span], *(stock[kind] for kind in cover)), -1, -1):
            needed = tuple(m - times * (s == span) for s, m in enumerate(missing))
            left = tuple(number - times * (kind in cover) for kind, number in enumerate(stock))
            if (others := uses(n + 1, needed, left)) is not None:
                return times, *others
        return None

    alike = [[n for n, support in enumerate(supports) if support == kind] for kind in kinds]
    found = uses(0, tuple(high - low for low, high in spans), tuple(map(len, alike)))
    if found is None:
        return None
    modes, following = np.zeros(len(supports), dtype=np.int64), [low for low, _ in spans]
    for (span, cover), times in zip(covers, found, strict=True):
        for _ in range(times):
            for kind in cover:
                modes[alike[kind].pop()] = following[span]
            following[span] += 1
    return modes


def _covers(spaces: frozenset[int], kinds: Sequence[frozenset[int]]) -> Iterator[tuple[int, ...]]:
    """All ways to write `spaces` as a disjoint union of `kinds`, which are named by their place."""
    if not spaces:
        yield ()
    for place, kind in enumerate(kinds):
        if kind <= spaces and min(spaces) in kind:
            yield from ((place, *others) for others in _covers(spaces - kind, kinds))
