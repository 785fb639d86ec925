"""Closed forms of "Cracking the Hessian" for scalar networks, under the paper's own numbering.

Each is given in the form that holds; where the printed form differs, `as_printed=True` gives it.
The networks are those of `exacthessian.scalar`. Throughout, with s² = E x² and c = ⟨w, v⟩,

    d = E xδ = c s² − E xy is the covariance of input and residual (the paper's δx with a bar),
    T = s²(‖w‖² + ‖v‖²) is the trace of the Hessian, θ* = E xy / s² is the best slope,

and vectors of parameters are stacked (v; w).
"""

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import ArrayLike

from exacthessian.inputs import Array, nonnegative_number, real_array
from exacthessian.scalar import ManyInputs, ReluNetwork, SeparateInputs, TwoLayer
from exacthessian.spectrum import Spectrum

CELLS = ("plus", "minus")
ASSUMPTION_TOLERANCE = 1e-10


def equation_1(w2: float, v2: float, c: float, s2: float, d: float) -> Array:
    """Λ_1 ≥ Λ_2, shape (2,), from ‖w‖², ‖v‖², ⟨w, v⟩, s² and d, exactly as printed:

        Λ = ½ T ± ½ √(T² + 4(d² + 2 s² d c)),  T = s²(‖w‖² + ‖v‖²).

    Near Λ_1 = Λ_2 the radicand is a difference of almost equal numbers and half the digits are
    lost; `TwoLayer.outliers` keeps them.

    >>> equation_1(w2=5, v2=5, c=5, s2=1, d=4.5)
    array([14.5, -4.5])
    """
    total = s2 * w2 + s2 * v2
    root = np.sqrt(max(total**2 + 4 * (d**2 + 2 * s2 * d * c), 0.0))
    return np.array([(total + root) / 2, (total - root) / 2])


def equation_2(network: TwoLayer) -> Array:
    """The three terms of equation (2), whose sum is the radicand of equation (1), shape (3,):

        s⁴(‖w‖² − ‖v‖²)²,  4s⁴(‖w‖²‖v‖² − c²),  4(2cs² − E xy)².

    >>> equation_2(TwoLayer([1, 0], [0, 2], s2=1, yx=1))
    array([ 9., 16.,  4.])
    """
    w2, v2 = float(network.w @ network.w), float(network.v @ network.v)
    return np.array(
        [
            network.s2**2 * (w2 - v2) ** 2,
            4 * network.s2**2 * (w2 * v2 - network.c**2),
            4 * (2 * network.c * network.s2 - network.yx) ** 2,
        ]
    )


def theorem_3_1(network: TwoLayer) -> Spectrum:
    """The spectrum of the linear network: Λ_1 and Λ_2 of equation (1), computed without
    cancellation, and ±d, m − 1 times each.

    >>> theorem_3_1(TwoLayer([1, 2], [1, 2], s2=1, yx=0.5))
    Spectrum(14.5 × 1, 4.5 × 1, -4.5 × 2)
    """
    return network.spectrum()


def statement_lambda_min(network: TwoLayer, as_printed: bool = False) -> float:
    """The smallest eigenvalue: −|d| for m ≥ 2 and Λ_2 for m = 1; as printed, −d.

    >>> network = TwoLayer([1, 2], [1, 0], s2=1, yx=4)
    >>> statement_lambda_min(network), statement_lambda_min(network, as_printed=True)
    (-3.0, 3.0)
    """
    if as_printed:
        return -network.d
    return -abs(network.d) if network.width > 1 else float(network.outliers()[1])


def theorem_3_2(network: TwoLayer, as_printed: bool = False) -> Array:
    """The outlier eigenvectors, the columns of a (2m, 2) array.

    As printed, λ_i(w; v) + d(v; w), which is 0 if w = v and λ_i = −d, if w = −v and λ_i = d, and
    if d = λ_i = 0. The other form is never 0: see `TwoLayer.outlier_vectors`.

    >>> theorem_3_2(TwoLayer([1], [1], s2=1, yx=3), as_printed=True)
    array([[ 0., -2.],
           [ 0., -2.]])
    """
    if not as_printed:
        return network.outlier_vectors()
    ahead = np.concatenate([network.w, network.v])
    theta = np.concatenate([network.v, network.w])
    vectors: Array = np.outer(ahead, network.outliers()) + network.d * theta[:, None]
    return vectors


def theorem_3_3(network: TwoLayer, sign: int, c: ArrayLike, as_printed: bool = False) -> Array:
    """The eigenvector (ẑ; sẑ) of the bulk eigenvalue with that sign, d or −d, made from a vector
    `c` (m,): ẑ is the part of c orthogonal to w + sv, all of c if w + sv = 0. Shape (2m,).

    s is the sign of (bulk eigenvalue)·d; as printed, the sign of the bulk eigenvalue.

    >>> theorem_3_3(TwoLayer([1, 0], [1, 0], s2=1, yx=3), sign=1, c=[0, 1])
    array([ 0.,  1., -0., -1.])
    """
    if sign not in (1, -1):
        raise ValueError(f"sign must be 1 or -1, got {sign!r}")
    seed = real_array("c", c, ndim=1)
    if len(seed) != network.width:
        raise ValueError(f"c must have length {network.width} to match w, got {len(seed)}")
    s = sign if as_printed or network.d >= 0 else -sign
    across = network.w + s * network.v
    size = across @ across
    z = seed - across * (across @ seed) / size if size else seed
    return np.concatenate([z, s * z])


def corollary_3_1(network: TwoLayer, etas: Iterable[float]) -> TwoLayer:
    """The network after gradient descent with the step sizes `etas`, by the law of the proof:
    w + v is multiplied by 1 − ηd and w − v by 1 + ηd at every step, so neither ever turns.

    >>> network = TwoLayer([3, 0], [1, 1], s2=1, yx=1)
    >>> corollary_3_1(network, [0.1]).w, network.gradient_step(0.1).w
    (array([ 2.8, -0.2]), array([ 2.8, -0.2]))
    """
    plus, minus = network.w + network.v, network.w - network.v
    squares = float(plus @ plus), float(minus @ minus)
    up, down = 1.0, 1.0
    for eta in etas:
        slope = (up**2 * squares[0] - down**2 * squares[1]) / 4
        step = nonnegative_number("eta", eta) * (slope * network.s2 - network.yx)
        up, down = up * (1 - step), down * (1 + step)
    w, v = (up * plus + down * minus) / 2, (up * plus - down * minus) / 2
    return TwoLayer(w, v, network.s2, network.yx, network.half_y2)


def theorem_3_4(network: ReluNetwork, as_printed: bool = False) -> Spectrum:
    """The spectrum of the ReLU network, the union of its cells; one without neurons adds nothing.

    As printed, with means over the n_± samples of a cell, the factor n_±/n, and neurons with
    v_j = 0 in the minus cell. That form needs 1 ≤ q ≤ m − 1 positive v_j, or a multiplicity would
    be negative, and samples in both cells.

    >>> network = ReluNetwork([1, 1], [2, -1], x=[1, -1], y=[1, 1])
    >>> theorem_3_4(network)
    Spectrum(2.92705 × 1, 1 × 1, 0 × 1, -0.427051 × 1)
    >>> theorem_3_4(network).distance(theorem_3_4(network, as_printed=True)) < 1e-15
    True
    """
    if not as_printed:
        return network.spectrum()
    q = int(np.sum(network.v > 0))
    if not 0 < q < network.width:
        raise ValueError(
            f"q must lie between 1 and m − 1 = {network.width - 1} for the printed multiplicities "
            f"q − 1 and m − q − 1, got {q}"
        )
    parts = []
    for cell in CELLS:
        share, mean = _cell_means(network, cell)
        bulk = np.repeat([mean.d, -mean.d], mean.width - 1)
        parts.append(Spectrum.from_values(share * _printed_pair(mean), "outlier"))
        parts.append(Spectrum.from_values(share * bulk, "bulk"))
    return Spectrum.merge(parts)


def statement_relu_maximum(network: ReluNetwork, as_printed: bool = False) -> float:
    """The largest eigenvalue: the largest top outlier of the cells that own a neuron; as printed,
    of both cells, where one without neurons counts with the modulus of E[xδ; cell].

    >>> network = ReluNetwork([1], [1], x=[1, -1], y=[1, 4])
    >>> statement_relu_maximum(network), statement_relu_maximum(network, as_printed=True)
    (1.0, 2.0)
    """
    tops = [float(cell.network.outliers()[0]) for cell in network.cells.values()]
    if as_printed:
        residual = network.outputs() - network.y
        for cell, mine in zip(CELLS, (network.x > 0, network.x <= 0), strict=True):
            if cell not in network.cells:
                tops.append(abs(float(np.mean(network.x * residual * mine))))
    return max([*tops, 0.0])


def equation_62(network: ReluNetwork, cell: str, as_printed: bool = False) -> Array:
    """The outlier eigenvectors of the "plus" cell, equation (62), or the "minus" cell, (65): the
    columns of a (2m, 2) array, in the order (v; w) of the whole network.

    As printed, λ(w_±; v_±) + (mean of xδ in the cell)·(v_±; w_±), in which λ carries the share
    n_±/n and the mean does not.

    >>> network = ReluNetwork([1, 1], [2, -1], x=[1, -1], y=[1, 1])
    >>> vectors = equation_62(network, "plus")
    >>> bool(np.allclose(vectors.T @ network.hessian() @ vectors, np.diag([2.92705, -0.427051])))
    True
    """
    _, mean = _cell_means(network, cell)
    own = network.cells[cell]
    lifted = np.zeros((2 * network.width, 2))
    if as_printed:
        block = np.outer(np.concatenate([mean.w, mean.v]), own.network.outliers())
        block += mean.d * np.concatenate([mean.v, mean.w])[:, None]
    else:
        block = own.network.outlier_vectors()
    lifted[np.concatenate([own.neurons, own.neurons + network.width])] = block
    return lifted


def equation_63(network: ReluNetwork, cell: str) -> Array:
    """The outliers of the "plus" cell, equations (63)–(64), or the "minus" cell, (66)–(67), from
    means over the samples of that cell, exactly as printed. Shape (2,).

    >>> network = ReluNetwork([1, 1], [2, -1], x=[1, -1], y=[1, 1])
    >>> equation_63(network, "plus").round(6)
    array([ 2.927051, -0.427051])
    """
    share, mean = _cell_means(network, cell)
    return share * _printed_pair(mean)


def statement_relu_bulk(network: ReluNetwork, cell: str, as_printed: bool = False) -> float:
    """The bulk eigenvalue of a cell that belongs to eigenvectors (z; z): E[xδ; cell], a sum over
    the cell divided by all n; as printed in appendix B.2, divided by n_± only.

    >>> network = ReluNetwork([1, 1, 1], [2, 1, -1], x=[1, -1], y=[1, 1])
    >>> statement_relu_bulk(network, "plus"), statement_relu_bulk(network, "plus", as_printed=True)
    (1.0, 2.0)
    """
    share, mean = _cell_means(network, cell)
    return mean.d if as_printed else share * mean.d


def theorem_b_1(network: ManyInputs, as_printed: bool = False) -> Spectrum:
    """The spectrum of the network with bias, wᵀ(vx + b), as a pair, a triple, ±s and zeros.

    With Σ = I, V = [v b], h = Vᵀw, g = E (x, 1)δ, s = ‖g‖: if h = kg and g is an eigenvector of VᵀV
    with eigenvalue ν², the other one being μ², the outliers are the roots of

        λ² − (ν² + ‖w‖²)λ − (1 + 2k)s² = 0,   λ³ − (μ² + ‖w‖²)λ² − s²λ + s²‖w‖² = 0,

    and the rest are ±s, m − 2 times each, and m − 1 zeros (m ≥ 2). As printed, ⟨v, b⟩ = 0,
    ‖v‖ = ‖b‖, E y = 0 and E xy = 0 are assumed as well, so that k = 1 and ν = μ = ‖v‖, and the
    cubic is solved by cosines, which lose half the digits near a double root.

    >>> x, y = [1, -1, 1, -1], [1, 1, -1, -1]
    >>> network = ManyInputs.with_bias([1, 1, 2], [2, 0, 0], [0, 2, 0], x, y)
    >>> theorem_b_1(network).distance(theorem_b_1(network, as_printed=True)) < 1e-12
    True
    """
    if network.V.shape[1] != 2 or network.width < 2:
        raise ValueError(
            "network must have the two inputs x and 1 and width at least 2, "
            f"got {network.V.shape[1]} inputs and width {network.width}"
        )
    _assume("E x = 0 and E x² = 1", network.sigma - np.eye(2), 1.0)
    w2, gram = float(network.w @ network.w), network.V.T @ network.V
    s = float(np.linalg.norm(network.g))
    if as_printed:
        v2 = float(gram[0, 0])
        _assume("⟨v, b⟩ = 0", gram[0, 1], v2)
        _assume("‖v‖ = ‖b‖", gram[1, 1] - v2, v2)
        _assume("E xy = 0 and E y = 0", network.yx, float(np.linalg.norm(network.h)))
        outliers = np.concatenate([_printed_bias_pair(w2, v2, s), printed_triple(w2, v2, s)])
    else:
        along = network.g / s if s else np.array([1.0, 0.0])
        aside = np.array([-along[1], along[0]])
        _assume("Vᵀw parallel to E (x, 1)δ", network.h @ aside, float(np.linalg.norm(network.h)))
        _assume("E (x, 1)δ an eigenvector of VᵀV", along @ gram @ aside, float(np.trace(gram)))
        column = network.V @ along
        pair = TwoLayer(network.w, column, 1.0, float(network.w @ column) - s).outliers()
        nu, root = np.sqrt(aside @ gram @ aside), np.sqrt(w2)
        block = [[nu**2, nu * root, s], [nu * root, w2, 0.0], [s, 0.0, 0.0]]
        outliers = np.concatenate([pair, np.linalg.eigvalsh(block)])
    bulk = np.repeat([s, -s], network.width - 2)
    return Spectrum.merge(
        [
            Spectrum.from_values(outliers, "outlier"),
            Spectrum.from_values(bulk, "bulk"),
            Spectrum.from_values(np.zeros(network.width - 1), "zero"),
        ]
    )


def printed_triple(w2: float, v2: float, s: float) -> Array:
    """The three roots of λ³ − (‖v‖² + ‖w‖²)λ² − s²λ + s²‖w‖² = 0 by the cosines of Theorem B.1, in
    descending order, from ‖w‖², ‖v‖² and s = √S. Shape (3,).

    >>> printed_triple(w2=1.0, v2=2.0, s=2.0).round(6)
    array([ 3.778457,  0.710831, -1.489289])
    """
    total, square = v2 + w2, s**2
    p = -square - total**2 / 3
    q = -2 / 27 * total**3 - v2 * square / 3 + 2 / 3 * w2 * square
    if p == 0:
        return np.zeros(3)
    cosine = np.clip(3 * q / (2 * p) * np.sqrt(-3 / p), -1, 1)
    angles = np.arccos(cosine) / 3 - 2 * np.pi * np.arange(3) / 3
    roots: Array = np.sort(total / 3 + 2 * np.sqrt(-p / 3) * np.cos(angles))[::-1]
    return roots


def corollary_b_1(network: SeparateInputs) -> Spectrum:
    """The spectrum of Σ_e ⟨w_e, v_e⟩ x_e for uncorrelated inputs: that of Theorem 3.1 for each
    input, with s² = E x_e² and d_e = ⟨w_e, v_e⟩ E x_e² − E yx_e.

    >>> corollary_b_1(SeparateInputs([[1, 2], [1, 0]], [[1, 2], [1, 1]], np.eye(2), [0.5, 1]))
    Spectrum(14.5 × 1, 4.5 × 1, 3 × 1, 0 × 3, -4.5 × 2)
    """
    variances = np.diag(network.sigma)
    _assume("uncorrelated inputs", network.sigma - np.diag(variances), float(variances.max()))
    each = zip(network.w, network.v, variances, network.yx, strict=True)
    return Spectrum.merge(theorem_3_1(TwoLayer(w, v, s2, yx)) for w, v, s2, yx in each)


def corollary_b_2(heads: Sequence[TwoLayer]) -> Spectrum:
    """The spectrum of K separate heads ⟨w_k, v_k⟩x of one input: that of Theorem 3.1 for each.

    >>> corollary_b_2([TwoLayer([1], [1], s2=1, yx=1), TwoLayer([1], [0], s2=1, yx=0)])
    Spectrum(2 × 1, 1 × 1, 0 × 2)
    """
    return Spectrum.merge(theorem_3_1(head) for head in _heads(heads))


def corollary_b_3(heads: Sequence[TwoLayer], as_printed: bool = False) -> Array:
    """The outlier eigenvectors of K heads, 2K columns in the order (v_1; w_1; v_2; w_2; …): those
    of Theorem 3.2 for head k, and 0 on the other heads.

    >>> corollary_b_3([TwoLayer([1], [1], s2=1, yx=1), TwoLayer([1], [0], s2=1, yx=0)]).shape
    (4, 4)
    """
    blocks = [theorem_3_2(head, as_printed) for head in _heads(heads)]
    sizes = [len(block) for block in blocks]
    vectors = np.zeros((sum(sizes), 2 * len(blocks)))
    for k, block in enumerate(blocks):
        start = sum(sizes[:k])
        vectors[start : start + sizes[k], 2 * k : 2 * k + 2] = block
    return vectors


def equation_122(network: TwoLayer) -> Array:
    """The outliers from their sum and product, shape (2,): ½T ± √(¼T² − λ_1λ_2) with T = tr H and
    −λ_1λ_2 = (cs² − E xy)(3cs² − E xy).

    >>> equation_122(TwoLayer([1, 2], [1, 2], s2=1, yx=0.5))
    array([14.5, -4.5])
    """
    half, slope = network.trace / 2, network.c * network.s2
    root = np.sqrt(half**2 + (slope - network.yx) * (3 * slope - network.yx))
    return np.array([half + root, half - root])


def phase(c: float, target: float, as_printed: bool = False) -> str:
    """The learning phase of the slope c = ⟨w, v⟩ with best slope θ*: "early" if c/θ* ≤ 1/3, "late"
    if 1/3 < c/θ* ≤ 1, else "divergent". For θ* = 0 there is no late phase, and every slope is
    "divergent". As printed, c itself is compared with θ*/3 and θ*.

    >>> phase(-0.5, -1.0), phase(-0.5, -1.0, as_printed=True)
    ('late', 'early')
    """
    if as_printed:
        return "early" if c <= target / 3 else "late" if c <= target else "divergent"
    if target == 0:
        return "divergent"
    return "early" if c / target <= 1 / 3 else "late" if c / target <= 1 else "divergent"


def _printed_pair(network: TwoLayer) -> Array:
    """Equation (1) for a network."""
    w2, v2 = float(network.w @ network.w), float(network.v @ network.v)
    return equation_1(w2, v2, network.c, network.s2, network.d)


def _printed_bias_pair(w2: float, v2: float, s: float) -> Array:
    """Equation (68)."""
    total = v2 + w2
    root = np.sqrt(total**2 + 12 * s**2)
    return np.array([(total + root) / 2, (total - root) / 2])


def _cell_means(network: ReluNetwork, cell: str) -> tuple[float, TwoLayer]:
    """The share n_±/n of a cell and its linear network with the paper's means over n_±; neurons
    with v_j = 0 are in the minus cell."""
    if cell not in CELLS:
        raise ValueError(f"cell must be 'plus' or 'minus', got {cell!r}")
    plus = cell == "plus"
    fires, mine = (network.v > 0) == plus, (network.x > 0) == plus
    for name, chosen in (("neuron", fires), ("sample", mine)):
        if not chosen.any():
            raise ValueError(f"the {cell} cell must have at least one {name}, got none")
    w, v, x, y = network.w[fires], network.v[fires], network.x[mine], network.y[mine]
    return float(mine.mean()), TwoLayer.from_samples(w, v, x, y)


def _heads(heads: Sequence[TwoLayer]) -> Sequence[TwoLayer]:
    if not heads:
        raise ValueError("heads must hold at least one network, got none")
    if any(head.s2 != heads[0].s2 for head in heads):
        raise ValueError("heads must share their input, but their s2 differ")
    return heads


def _assume(name: str, excess: ArrayLike, scale: float) -> None:
    """Refuse a network that violates an assumption by more than rounding."""
    size = float(np.abs(np.asarray(excess)).max())
    if size > ASSUMPTION_TOLERANCE * max(scale, 1.0):
        raise ValueError(f"network must satisfy {name}, violated by {size:.3g}")
