"""The numbered forms of "Cracking the Hessian", under the paper's numbers, each in its true form.

The networks are those of `exacthessian.scalar`, `exacthessian.attention` and `LinearChain`. With
s² = E x² and c = ⟨w, v⟩, d = E xδ = c s² − E xy is the covariance of input and residual (the
paper's δx with a bar), T the trace of the Hessian and θ* = E xy / s² the best slope; parameters are
stacked (v; w). For a head N = |w_Q|² + |w_K|², k = ⟨w_Q, w_K⟩, and its three outliers are the roots
of λ³ − Tλ² − Eλ − F.
"""

from collections.abc import Iterable, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from exacthessian.attention import Head, ScalarAttention
from exacthessian.chain import LinearChain
from exacthessian.inputs import Array, guard
from exacthessian.scalar import ReluNetwork, TwoLayer
from exacthessian.spectrum import Spectrum

Layer: TypeAlias = Head | ScalarAttention

# Section 3.1 and appendix B.1: the linear network


def equation_1(w2: float, v2: float, c: float, s2: float, d: float) -> Array:
    """Λ_1 ≥ Λ_2, shape (2,), from ‖w‖², ‖v‖², ⟨w, v⟩, s² and d.

    Near Λ_1 = Λ_2 the radicand is a difference of almost equal numbers and half the digits are
    lost; `TwoLayer.outliers` keeps them.

    >>> equation_1(w2=5, v2=5, c=5, s2=1, d=4.5)
    array([14.5, -4.5])
    """
    total = s2 * w2 + s2 * v2
    root = np.sqrt(max(total**2 + 4 * (d**2 + 2 * s2 * d * c), 0.0))
    return np.array([(total + root) / 2, (total - root) / 2])


def equation_2(network: TwoLayer) -> Array:
    """The three terms whose sum is the radicand of equation (1), shape (3,).

    >>> equation_2(TwoLayer([1, 0], [0, 2], s2=1, yx=1))
    array([ 9., 16.,  4.])
    """
    w2, v2, c = network.w @ network.w, network.v @ network.v, network.c
    imbalance = network.s2**2 * (w2 - v2) ** 2
    noncollinearity = 4 * network.s2**2 * (w2 * v2 - c**2)
    return np.array([imbalance, noncollinearity, 4 * (2 * c * network.s2 - network.yx) ** 2])


def equation_12(network: TwoLayer) -> Array:
    """H∇ℓ = dT(w; v) + d²(v; w), shape (2m,).

    >>> equation_12(TwoLayer([1], [1], s2=1, yx=0))
    array([3., 3.])
    """
    ahead = np.concatenate([network.w, network.v])
    return network.d * network.trace * ahead + network.d**2 * network.parameters()


def theorem_3_1(network: TwoLayer) -> Spectrum:
    """The spectrum of the linear network: Λ_1 and Λ_2, and ±d, m − 1 times each.

    >>> theorem_3_1(TwoLayer([1, 2], [1, 2], s2=1, yx=0.5))
    Spectrum(14.5 × 1, 4.5 × 1, -4.5 × 2)
    """
    w2, v2, d = float(network.w @ network.w), float(network.v @ network.v), network.d
    pair = equation_1(w2, v2, network.c, network.s2, d)
    return _outliers_and_bulk(pair, plus_minus=d, copies=network.width - 1)


def statement_lambda_min(network: TwoLayer) -> float:
    """The smallest eigenvalue: −|d| for m ≥ 2 and Λ_2 for m = 1.

    >>> statement_lambda_min(TwoLayer([1, 2], [1, 0], s2=1, yx=4))
    -3.0
    """
    return -abs(network.d) if network.width > 1 else float(network.outliers()[1])


def theorem_3_2(network: TwoLayer) -> Array:
    """The outlier eigenvectors λ_i(w; v) + d(v; w), the columns of a (2m, 2) array.

    One of them is 0 if w = ±v or d = 0; `TwoLayer.outlier_vectors` never is.

    >>> theorem_3_2(TwoLayer([3], [1], s2=1, yx=2)).round(4)
    array([[32.9706, -0.9706],
           [13.6569,  2.3431]])
    """
    ahead = np.concatenate([network.w, network.v])
    return np.outer(ahead, network.outliers()) + network.d * network.parameters()[:, None]


def theorem_3_3(network: TwoLayer, sign: int, c: ArrayLike) -> Array:
    """The eigenvector (ẑ; sẑ) of the bulk eigenvalue sign·|d| made from a vector c (m,), where s is
    the sign of (bulk eigenvalue)·d and ẑ the part of c orthogonal to w + sv. Shape (2m,).

    >>> theorem_3_3(TwoLayer([1, 0], [1, 0], s2=1, yx=3), sign=1, c=[0, 1])
    array([ 0.,  1., -0., -1.])
    """
    s = sign if network.d >= 0 else -sign
    z, across = np.asarray(c, dtype=float), network.w + s * network.v
    if np.any(across):
        z = z - across * (across @ z) / (across @ across)
    return np.concatenate([z, s * z])


def corollary_3_1(network: TwoLayer, etas: Iterable[float]) -> Array:
    """The parameters (v; w) after gradient descent with the step sizes `etas`, by the law of the
    proof: w + v is multiplied by 1 − ηd and w − v by 1 + ηd at every step. Shape (2m,).

    >>> network = TwoLayer([3, 0], [1, 1], s2=1, yx=1)
    >>> corollary_3_1(network, [0.1]).round(12)
    array([ 0.4,  1. ,  2.8, -0.2])
    """
    plus, minus = network.w + network.v, network.w - network.v
    for eta in etas:
        d = (plus @ plus - minus @ minus) / 4 * network.s2 - network.yx
        plus, minus = (1 - eta * d) * plus, (1 + eta * d) * minus
    return np.concatenate([plus - minus, plus + minus]) / 2


# Section 3.2 and appendix B.2: the ReLU network


def theorem_3_4(network: ReluNetwork) -> Spectrum:
    """The spectrum of the ReLU network: the union over the cells that own a neuron of that of a
    linear network with the cell's weights and sums (divided by all n), and two zeros for every
    neuron with v_j = 0.

    >>> theorem_3_4(ReluNetwork([1, 1], [2, -1], x=[1, -1], y=[1, 1]))
    Spectrum(2.92705 × 1, 1 × 1, 0 × 1, -0.427051 × 1)
    """
    silent = Spectrum.of((0.0, 2 * int(np.sum(network.v == 0)), "zero"))
    return Spectrum.merge([silent, *map(theorem_3_1, network.cells.values())])


def equation_62(network: ReluNetwork, cell: str) -> Array:
    """The outlier eigenvectors of the "plus" cell, equation (62), or the "minus" cell, (65):
    λ(w_±; v_±) + (n_±/n)(mean of xδ in the cell)(v_±; w_±), zero on the other cell; the columns of
    a (2m, 2) array, in the order (v; w) of the whole network.

    >>> equation_62(ReluNetwork([1, 1], [2, -1], x=[1, -1], y=[1, 1]), "plus").shape
    (4, 2)
    """
    lifted = np.zeros((2 * len(network.v), 2))
    lifted[network.places[cell]] = theorem_3_2(network.cells[cell])
    return lifted


def equation_63(network: ReluNetwork, cell: str) -> Array:
    """The outliers of the "plus" cell, equations (63)–(64), or the "minus" cell, (66)–(67): the
    share n_±/n times Λ of the means over the samples of that cell. Shape (2,).

    >>> equation_63(ReluNetwork([1, 1], [2, -1], x=[1, -1], y=[1, 1]), "plus").round(6)
    array([ 2.927051, -0.427051])
    """
    share, mean = _cell_means(network, cell)
    w2, v2 = float(mean.w @ mean.w), float(mean.v @ mean.v)
    return share * equation_1(w2, v2, mean.c, mean.s2, mean.d)


def statement_relu_bulk(network: ReluNetwork, cell: str) -> float:
    """The bulk eigenvalue of a cell that belongs to eigenvectors (z; z): the share n_±/n times the
    mean of xδ over the samples of the cell.

    >>> statement_relu_bulk(ReluNetwork([1, 1, 1], [2, 1, -1], x=[1, -1], y=[1, 1]), "plus")
    1.0
    """
    share, mean = _cell_means(network, cell)
    return share * mean.d


# Appendix B.3: bias


def theorem_b_1(chain: LinearChain) -> Spectrum:
    """The spectrum of wᵀ(vx + b), a chain with the inputs (x, 1) and first layer [v b]: a pair, a
    triple, ±√S, m − 2 times each, and m − 1 zeros, where S = (E xδ)² + (E δ)².

    Assumes ⟨v, b⟩ = 0, ‖v‖ = ‖b‖, E x = 0, E x² = 1, E y = 0 and E xy = 0. The cosines lose half
    the digits near a double root; `product.solvable_spectrum` keeps them, and needs less.

    >>> chain = LinearChain([np.eye(3)[:, :2], [[1.0, 1.0, 2.0]]], np.eye(2), [[0.0, 0.0]])
    >>> theorem_b_1(chain).select("pair")
    Spectrum(7.772 × 1, -0.772002 × 1)
    """
    v2, w2 = float(np.sum(chain.weights[0][:, 0] ** 2)), float(np.sum(chain.weights[1] ** 2))
    square, total, width = float(np.sum(chain.residual**2)), v2 + w2, len(chain.weights[0])
    root = np.sqrt(total**2 + 12 * square)
    q = -2 / 27 * total**3 - v2 * square / 3 + 2 / 3 * w2 * square
    triple = total / 3 + _viete(-square - total**2 / 3, q)
    s = np.sqrt(square)
    return Spectrum.of(
        ((total + root) / 2, 1, "pair"),
        ((total - root) / 2, 1, "pair"),
        *((value, 1, "triple") for value in triple),
        (s, width - 2, "bulk"),
        (-s, width - 2, "bulk"),
        (0.0, width - 1, "zero"),
    )


def statement_bias_bounds(chain: LinearChain) -> tuple[float, float]:
    """T/3 ∓ ⅔√(T² + 3S), T = ‖v‖² + ‖w‖², between which the triple of Theorem B.1 lies.

    >>> chain = LinearChain([np.eye(3)[:, :2], [[1.0, 1.0, 2.0]]], np.eye(2), [[0.0, 0.0]])
    >>> np.round(statement_bias_bounds(chain), 4)
    array([-2.6108,  7.2775])
    """
    total = np.sum(chain.weights[0][:, 0] ** 2) + np.sum(chain.weights[1] ** 2)
    radius = 2 / 3 * np.sqrt(total**2 + 3 * np.sum(chain.residual**2))
    return float(total / 3 - radius), float(total / 3 + radius)


# Appendix B.4: more inputs, more outputs


def corollary_b_1(w: ArrayLike, v: ArrayLike, sigma: ArrayLike, yx: ArrayLike) -> Spectrum:
    """The spectrum of Σ_e ⟨w_e, v_e⟩ x_e, `w` and `v` (D, m), `sigma` = E xxᵀ, `yx` = E yx (D,):
    ±d_e, m − 1 times each, d_e = E x_eδ, and the 2D eigenvalues of the matrix with the blocks
    [e = f] diag(d_e, −d_e) + Σ_ef (P_e; R_e)(P_f; R_f)ᵀ, P_e and R_e the norms of (w_e ± v_e)/√2.
    For uncorrelated inputs these are the pairs of Theorem 3.1 with s² = E x_e².

    >>> corollary_b_1([[1, 2], [1, 0]], [[1, 2], [1, 1]], np.eye(2), [0.5, 1])
    Spectrum(14.5 × 1, 4.5 × 1, 3 × 1, 0 × 3, -4.5 × 2)
    """
    outer, inner, data = (np.asarray(given, dtype=float) for given in (w, v, sigma))
    d = data @ np.sum(outer * inner, axis=1) - np.asarray(yx)
    halves = np.stack([outer + inner, outer - inner], axis=1) / np.sqrt(2)
    norms = np.linalg.norm(halves, axis=2).ravel()  # P_1, R_1, P_2, …
    plane = np.kron(data, np.ones((2, 2))) * np.outer(norms, norms)
    signed = np.kron(d, [1.0, -1.0])
    pairs = Spectrum.from_matrix(plane + np.diag(signed), "outlier")
    copies = outer.shape[1] - 1
    return Spectrum.merge([pairs, Spectrum.of(*((value, copies, "bulk") for value in signed))])


def corollary_b_2(heads: Sequence[TwoLayer]) -> Spectrum:
    """The spectrum of K separate heads ⟨w_k, v_k⟩x of one input: that of Theorem 3.1 for each.

    >>> corollary_b_2([TwoLayer([1], [1], s2=1, yx=1), TwoLayer([1], [0], s2=1, yx=0)])
    Spectrum(2 × 1, 1 × 1, 0 × 2)
    """
    return Spectrum.merge(theorem_3_1(head) for head in heads)


def corollary_b_3(heads: Sequence[TwoLayer]) -> Array:
    """The outlier eigenvectors of K heads of width m, 2K columns in the order (v_1; w_1; v_2; …):
    those of Theorem 3.2 for head k, and 0 on the other heads.

    >>> corollary_b_3([TwoLayer([1], [1], s2=1, yx=1), TwoLayer([1], [0], s2=1, yx=0)]).shape
    (4, 4)
    """
    blocks = np.array([theorem_3_2(head) for head in heads])
    count, size, _ = blocks.shape
    vectors = np.zeros((count, size, count, 2))
    vectors[range(count), :, range(count)] = blocks
    return vectors.reshape(count * size, 2 * count)


# Section 3.3 and appendix B.5: self-attention


def statement_attention_cubic(layer: Layer) -> Array:
    """T, E and F of the outlier cubic λ³ − Tλ² − Eλ − F, shape (3,).

    >>> statement_attention_cubic(Head(1, 0, 0, 2, [1.0], [0.0]))
    array([ 3., -2.,  0.])
    """
    head = layer.head()
    alpha, beta, gamma, zeta = head.alpha, head.beta, head.gamma, head.zeta
    minor, norm, k = beta**2 - alpha * zeta, head.norm, head.product
    linear = minor * norm + 2 * gamma * zeta * k + gamma**2
    return np.array([alpha + zeta * norm, linear, 2 * gamma * minor * k - alpha * gamma**2])


def statement_depressed_cubic(layer: Layer) -> tuple[float, float]:
    """(p, q) of μ³ + pμ + q, the outlier cubic at λ = μ + T/3.

    >>> p, q = statement_depressed_cubic(Head(1, 0, 0, 2, [1.0], [0.0]))
    >>> round(p, 12), round(q, 12) + 0.0
    (-1.0, 0.0)
    """
    trace, linear, constant = statement_attention_cubic(layer)
    q = -(2 * trace**3 + 9 * trace * linear + 27 * constant) / 27
    return float(-(trace**2 + 3 * linear) / 3), float(q)


def theorem_3_5(layer: Layer) -> Spectrum:
    """±γ, d_K − 1 times each, and the three outliers T/3 + μ_j from the trigonometric roots.

    `Head.spectrum` computes the same from a 3×3 matrix, to full accuracy at double roots too.

    >>> theorem_3_5(Head(1, 0, 0.5, 2, [1, 0, 0], [0, 1, 0]))
    Spectrum(4.06155 × 1, 1 × 1, 0.5 × 2, -0.0615528 × 1, -0.5 × 2)
    """
    head = layer.head()
    roots = statement_attention_cubic(head)[0] / 3 + _viete(*statement_depressed_cubic(head))
    return _outliers_and_bulk(roots, plus_minus=head.gamma, copies=len(head.query) - 1)


def theorem_3_5_xi(layer: Layer) -> float:
    """ξ = 2√(−p/3) = ⅔√(T² + 3E), the radius around T/3 that holds the outliers.

    >>> theorem_3_5_xi(Head(1, 0, 0, 2, [1.0], [0.0]))
    1.1547005383792515
    """
    trace, linear, _ = statement_attention_cubic(layer)
    return float(2 / 3 * np.sqrt(max(trace**2 + 3 * linear, 0.0)))  # below 0 it is rounding


def remark_b_2(layer: Layer) -> Spectrum:
    """The spectrum of the query–key block: Theorem 3.1 with σ² = ζ and δx = γ, that is ±γ, d_K − 1
    times each, and the roots of λ² − ζNλ − (γ² + 2γζk).

    >>> remark_b_2(Head(1, 7, 0.5, 2, [1, 0, 0], [0, 1, 0]))
    Spectrum(4.06155 × 1, 0.5 × 2, -0.0615528 × 1, -0.5 × 2)
    """
    head = layer.head()
    w2, v2 = float(head.key @ head.key), float(head.query @ head.query)
    pair = equation_1(w2, v2, head.product, head.zeta, head.gamma)
    return _outliers_and_bulk(pair, plus_minus=head.gamma, copies=len(head.query) - 1)


def remark_b_3(layer: Layer) -> Array:
    """½T ± ½√(T² + 4(β² − αζ)N), the outliers other than 0 when γ = 0, shape (2,).

    >>> remark_b_3(Head(1, 0, 0, 2, [1.0], [0.0]))
    array([2., 1.])
    """
    trace, linear, _ = statement_attention_cubic(layer)  # E = (β² − αζ)N at γ = 0
    root = np.sqrt(max(trace**2 + 4 * linear, 0.0))
    return np.array([trace + root, trace - root]) / 2


def remark_b_4(layer: Layer) -> tuple[float, float]:
    """T/3 + ξ/2 ≤ λ_max ≤ max(T/3 + ξ, |γ|), equation (121); T/3 + ξ is enough for d_K = 1.

    >>> remark_b_4(Head(0, 0, 1, 0, [1.0, 0.0], [0.0, 0.0]))
    (0.5773502691896257, 1.1547005383792515)
    """
    head = layer.head()
    centre, radius = statement_attention_cubic(head)[0] / 3, theorem_3_5_xi(head)
    floor = abs(head.gamma) if len(head.query) > 1 else -np.inf
    return float(centre + radius / 2), float(max(centre + radius, floor))


def remark_3_1(layer: Layer) -> float:
    """The lower bound (2T + 3ξ)/(6|γ|) on the condition number, γ ≠ 0.

    >>> remark_3_1(Head(0, 0, 1, 0, [1.0, 0.0], [0.0, 0.0]))
    0.5773502691896257
    """
    head = layer.head()
    trace, radius = statement_attention_cubic(head)[0], theorem_3_5_xi(head)
    return float((2 * trace + 3 * radius) / (6 * abs(head.gamma)))


# Appendix C: learning phases


def equation_122(network: TwoLayer) -> Array:
    """The outliers from their sum and product, shape (2,): ½T ± √(¼T² − λ_1λ_2) with
    −λ_1λ_2 = (cs² − E xy)(3cs² − E xy).

    >>> equation_122(TwoLayer([1, 2], [1, 2], s2=1, yx=0.5))
    array([14.5, -4.5])
    """
    half, slope = network.trace / 2, network.c * network.s2
    radicand = half**2 + (slope - network.yx) * (3 * slope - network.yx)
    root = np.sqrt(max(radicand, 0.0))  # below 0 it is rounding: both are equal
    return np.array([half + root, half - root])


def statement_learning_phases(network: TwoLayer) -> float:
    """The sign of the second outlier: +1 in the late phase ⅓ < c/θ* < 1, −1 in the early phase
    before it and in the divergent phase after it, 0 on the borders; −1 for θ* = 0 ≠ c.

    >>> statement_learning_phases(TwoLayer([1], [-0.5], s2=1, yx=-1))
    1.0
    """
    c, target = network.c, network.target
    return float(np.sign((target - c) * (3 * c - target)))


def _cell_means(network: ReluNetwork, cell: str) -> tuple[float, TwoLayer]:
    """The share n_±/n of a cell, and its linear network with the means over its n_± samples."""
    own, mine = network.cells[cell], (network.x > 0) == (cell == "plus")
    mean = TwoLayer.from_samples(own.w, own.v, network.x[mine], network.y[mine])
    return float(mine.mean()), mean


def _outliers_and_bulk(outliers: Array, plus_minus: float, copies: int) -> Spectrum:
    """The outliers, once each, and a bulk of two values ±, so many times each."""
    sides = ((sign * plus_minus, copies, "bulk") for sign in (1, -1))
    return Spectrum.of(*((value, 1, "outlier") for value in outliers), *sides)


def _viete(p: float, q: float) -> Array:
    """The three real roots 2√(−p/3) cos(arccos((3q/2p) √(−3/p))/3 − 2πj/3) of μ³ + pμ + q."""
    if p >= 0:  # p = q = 0 up to rounding
        return np.zeros(3)
    cosine = np.clip(1.5 * q / p * np.sqrt(-3 / p), -1.0, 1.0)
    return 2 * np.sqrt(-p / 3) * np.cos(np.arccos(cosine) / 3 - 2 * np.pi * np.arange(3) / 3)


guard(globals())
