"""Finding the bases in which a chain is aligned.

The spaces V_0..V_L with the maps W_1..W_L, Σyx and Σxx are split into an orthogonal sum of strings,
invariant parts with at most one dimension in each space; strings are then put together into modes
1, 2, …, mode i having one dimension in each space of width ≥ i. Two Newton steps polish the bases.
What then lies off the diagonal decides, and nothing else: the search may guess, the test may not.
"""

from collections import Counter
from collections.abc import Sequence
from functools import reduce

import numpy as np

from exacthessian.chain import LinearChain
from exacthessian.inputs import Array, require

_String = dict[int, Array]
_Maps = dict[str, tuple[int, int, Array]]

NEWTON_REGION = 0.1
PIVOT_TOLERANCE = 1e-8
NUMBERINGS = 10_000
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
    require(0 < tol < NEWTON_REGION, f"tol must lie between 0 and {NEWTON_REGION}", tol)
    maps, widths, leaks = _maps(chain), chain.widths, []
    for cut in CUTS:
        strings = _strings(maps, widths, cut)
        modes = _modes([frozenset(string) for string in strings], widths)
        owners = modes or range(len(strings))
        bases = _bases([strings[n] for n in np.argsort(owners, kind="stable")], widths)
        owned = [
            sorted(o for o, s in zip(owners, strings, strict=True) if n in s)
            for n in range(len(widths))
        ]
        leak = _leak(maps, bases, owned)
        if modes and leak[0] <= NEWTON_REGION:
            bases = _refined(maps, _refined(maps, bases))
            leak = _leak(maps, bases, owned)
            if leak[0] <= tol:
                return bases
        leaks.append(leak)
    size, name = min(leaks)
    if size <= tol:
        raise ValueError(
            "chain is not aligned: it splits into one-dimensional strings, but no numbering "
            f"was found in which each keeps one index within all widths {widths}"
        )
    raise ValueError(
        f"chain is not aligned: in the best common bases found, the off-diagonal part of "
        f"{name} has relative norm {size:.3g}, more than tol = {tol:.3g}"
    )


def _maps(chain: LinearChain) -> _Maps:
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


def _strings(maps: _Maps, widths: Sequence[int], cut: tuple[float, float]) -> list[_String]:
    """The spaces V_0..V_L as an orthogonal sum of strings, which the layers and moments map to
    themselves if the chain is aligned, and as nearly as found here if it is not.

    A string is followed from its first space by the partial isometries U of the polar forms
    M = U|M| of the maps. It starts as an eigenvector of K_l, a random combination of what must be a
    multiple of the identity on every string: the moduli |M| and their supports at both ends of each
    map, and the loop from V_0 through all layers and back by Σyx, all carried to V_l by the partial
    isometries. Singular values up to `cut`, or `cut` times a map's largest, count as 0.
    """
    rng = np.random.default_rng(0)
    separators = [np.zeros((width, width)) for width in widths]
    links = []
    for tail, head, matrix in maps.values():
        left, values, right = np.linalg.svd(matrix, full_matrices=False)
        kept = values > max(cut[0] * values[0], cut[1])
        for space, side in ((tail, right[kept].T), (head, left[:, kept])):
            weights = rng.uniform(1, 2) + rng.uniform(1, 2) * values[kept] / (values[0] or 1.0)
            separators[space] += (side * weights) @ side.T
        links.append((tail, head, left[:, kept] @ right[kept]))
    loop = links[-2][2].T @ reduce(
        lambda product, link: link[2] @ product, links[:-2], np.eye(widths[0])
    )
    separators[0] += rng.uniform(1, 2) * (loop + loop.T)
    # There and back takes what is known anywhere on a string to its first space, also through V_L.
    back = [(head, tail, isometry.T) for tail, head, isometry in reversed(links)]
    for tail, head, isometry in links + back:
        separators[head] = separators[head] + isometry @ separators[tail] @ isometry.T

    strings: list[_String] = []
    for first in range(len(widths)):
        known = _bases(strings, widths)[first]
        rest = np.linalg.qr(known, mode="complete")[0][:, known.shape[1] :]
        _, starts = np.linalg.eigh(rest.T @ separators[first] @ rest)
        # Through the layers, and from V_0 also back from V_L, until it ends or meets itself.
        routes = [links[first:-2], [links[-2], *back[2:-1]] if first == 0 else []]
        for start in (rest @ starts).T:
            string = {first: start}
            for route in routes:
                for tail, head, isometry in route:
                    known = _bases(strings, widths)[head]
                    image = isometry @ string[tail]
                    image = image - known @ (known.T @ image)
                    length = np.linalg.norm(image)
                    if head in string or length < 0.5:
                        break
                    string[head] = image / length
            strings.append(string)
    return strings


def _bases(strings: Sequence[_String], widths: Sequence[int]) -> list[Array]:
    """The vectors of the strings in V_0..V_L, as columns."""
    return [
        np.array([string[space] for string in strings if space in string]).reshape(-1, width).T
        for space, width in enumerate(widths)
    ]


def _leak(
    maps: _Maps, bases: Sequence[Array], owners: Sequence[Sequence[int]]
) -> tuple[float, str]:
    """The largest relative Frobenius norm of what a map takes from one owner's vectors to
    another's, and the name of that map.
    """
    leaks = []
    for name, (tail, head, matrix) in maps.items():
        own = np.equal.outer(owners[head], owners[tail])
        off = np.where(own, 0.0, bases[head].T @ matrix @ bases[tail])
        leaks.append((float(np.linalg.norm(off)), name))
    return max(leaks)


def _refined(maps: _Maps, bases: Sequence[Array]) -> list[Array]:
    """The bases after one Newton step towards diagonal maps.

    With Q_l ← Q_l(I + A_l), A_l antisymmetric, a map M from V_t to V_h with diagonal s gets, to
    first order, the off-diagonal entries M_pq + s_p A_t^{pq} − s_q A_h^{pq} and
    M_qp − s_q A_t^{pq} + s_p A_h^{pq}. For each pair p < q all A_l^{pq} follow by least squares;
    directions that nearly equal values leave undetermined are not moved.
    """
    modes = max(map(len, bases))
    p, q = np.triu_indices(modes, 1)
    rows, values = [], []
    for tail, head, matrix in maps.values():
        inner = np.zeros((modes, modes))
        inner[: len(bases[head]), : len(bases[tail])] = bases[head].T @ matrix @ bases[tail]
        s = np.diagonal(inner)
        for i, j, sign in ((p, q, 1), (q, p, -1)):
            row = np.zeros((len(p), len(bases)))
            row[:, tail] += sign * s[i]
            row[:, head] -= sign * s[j]
            rows.append(row)
            values.append(inner[i, j])
    inverse = np.linalg.pinv(np.stack(rows, axis=1), rcond=PIVOT_TOLERANCE)
    angles = -(inverse @ np.stack(values, axis=1)[..., None])[..., 0]
    refined = []
    for space, basis in enumerate(bases):
        turn = np.zeros((modes, modes))
        turn[p, q] = angles[:, space]
        turn = (turn - turn.T)[: len(basis), : len(basis)]
        left, _, right = np.linalg.svd(basis + basis @ turn)
        refined.append(left @ right)
    return refined


def _modes(supports: Sequence[frozenset[int]], widths: Sequence[int]) -> list[int] | None:
    """A mode for each string, counted from 0, such that mode i has exactly one string in each space
    wider than i; None if none is found in `NUMBERINGS` tries.

    Strings are placed in the order of their first spaces, each in a mode that lacks these spaces,
    the fullest first; a dead end is left for the latest choice there was. Modes that lack the same
    spaces are alike.
    """
    order = sorted(range(len(supports)), key=lambda n: (min(supports[n]), -len(supports[n])))
    empty = tuple(
        frozenset(space for space, width in enumerate(widths) if width > mode)
        for mode in range(max(widths))
    )
    choices: list[tuple[tuple[int, ...], tuple[frozenset[int], ...]]] = [((), empty)]
    met: set[object] = set()
    while choices and len(met) < NUMBERINGS:
        placed, lacks = choices.pop()
        if len(placed) == len(order):
            return [mode for _, mode in sorted(zip(order, placed, strict=True))]
        if (state := (len(placed), frozenset(Counter(lacks).items()))) not in met:
            met.add(state)
            string = supports[order[len(placed)]]
            fitting = {lack: mode for mode, lack in enumerate(lacks) if string <= lack}
            for lack, mode in sorted(fitting.items(), key=lambda item: -len(item[0])):
                if min(lack) == min(string):
                    left = (*lacks[:mode], lack - string, *lacks[mode + 1 :])
                    choices.append(((*placed, mode), left))
    return None
