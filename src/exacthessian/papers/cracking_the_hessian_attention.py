"""Section 3.3 and appendices B.5 and D.2 of "Cracking the Hessian", under the paper's own names.

One self-attention head on numbers; `Curvature` holds its four scalars α, β, γ, ζ. Throughout

    N = |w_Q|² + |w_K|²,  k = ⟨w_Q, w_K⟩,  T = α + ζN (the trace),
    E = (β² − αζ)N + 2γζk + γ²,  F = 2γ(β² − αζ)k − αγ²,

and the three outliers are the roots of λ³ − Tλ² − Eλ − F. Where the printed form differs,
`as_printed=True` gives it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from exacthessian.attention import Curvature, query_and_key, softmax_rows, with_bulk
from exacthessian.inputs import Array, nonnegative_number, real_array, whole_number
from exacthessian.spectrum import Spectrum


def cubic(curvature: Curvature, query: ArrayLike, key: ArrayLike) -> Array:
    """The coefficients (1, −T, −E, −F) of the outlier polynomial, appendix B.5, shape (4,).

    >>> cubic(Curvature(1, 0, 0, 2), [1.0], [0.0])
    array([ 1., -3.,  2.,  0.])
    """
    norm, product = _invariants(query, key)
    alpha, gamma, zeta = curvature.alpha, curvature.gamma, curvature.zeta
    minor = curvature.beta**2 - alpha * zeta
    trace = alpha + zeta * norm
    linear = minor * norm + 2 * gamma * zeta * product + gamma**2
    constant = 2 * gamma * minor * product - alpha * gamma**2
    return np.array([1.0, -trace, -linear, 0.0 - constant])


def depressed_cubic(
    curvature: Curvature, query: ArrayLike, key: ArrayLike, as_printed: bool = False
) -> tuple[float, float]:
    """(p, q) of μ³ + pμ + q, the outlier polynomial at λ = μ + T/3, appendix B.5.

    p = −(T² + 3E)/3 and q = −(2T³ + 9TE + 27F)/27. As printed, the bracket around E is missing in
    q, so that 9T multiplies its first term only.

    >>> p, q = depressed_cubic(Curvature(1, 0, 0, 2), [1.0], [0.0])
    >>> round(p, 12), round(q, 12)
    (-1.0, -0.0)
    """
    _, minus_trace, minus_linear, minus_constant = cubic(curvature, query, key)
    trace, linear, constant = -minus_trace, -minus_linear, -minus_constant
    p = -(trace**2 + 3 * linear) / 3
    middle = 9 * trace * linear
    if as_printed:
        norm, product = _invariants(query, key)
        minor = curvature.beta**2 - curvature.alpha * curvature.zeta
        rest = 2 * curvature.gamma * curvature.zeta * product + curvature.gamma**2
        middle = 9 * trace * minor * norm + rest
    q = -(2 * trace**3 + middle + 27 * constant) / 27
    return float(p), float(q)


def trigonometric_roots(p: float, q: float) -> Array:
    """The roots 2√(−p/3) cos(arccos((3q/2p) √(−3/p))/3 − 2πj/3), j = 0, 1, 2, descending, (3,).

    For μ³ + pμ + q with three real roots. Near a double root the arccos loses half the digits.

    >>> trigonometric_roots(-1.0, 0.0).round(12) + 0.0
    array([ 1.,  0., -1.])
    """
    if p >= 0:
        if p == q == 0:
            return np.zeros(3)
        raise ValueError(f"p must be negative for three real roots, got p={p}, q={q}")
    cosine = np.clip(1.5 * q / p * np.sqrt(-3 / p), -1.0, 1.0)
    turns = np.arccos(cosine) / 3 - 2 * np.pi * np.arange(3) / 3
    return np.sort(2 * np.sqrt(-p / 3) * np.cos(turns))[::-1]


def xi(curvature: Curvature, query: ArrayLike, key: ArrayLike, as_printed: bool = False) -> float:
    """ξ = 2√(−p/3) = ⅔√(T² + 3E), the radius around T/3 that holds the outliers, Theorem 3.5.

    As printed T² is (ζ|w_K| + ζ|w_Q| + α)², without the squares on the norms; NaN where the
    printed radicand is negative.

    >>> xi(Curvature(1, 0, 0, 2), [1.0], [0.0])
    1.1547005383792515
    >>> xi(Curvature(1, 0, 0, 2), [3.0], [4.0], as_printed=True) < 28 < 47
    True
    """
    _, minus_trace, minus_linear, _ = cubic(curvature, query, key)
    square = minus_trace**2
    if as_printed:
        lengths = np.linalg.norm(query) + np.linalg.norm(key)
        square = (curvature.zeta * lengths + curvature.alpha) ** 2
        if square < 3 * minus_linear:
            return float("nan")
    # T² + 3E is half the sum of the squared gaps of the outliers, never negative but for rounding.
    return float(2 / 3 * np.sqrt(max(0.0, square - 3 * minus_linear)))


def theorem_3_5(curvature: Curvature, query: ArrayLike, key: ArrayLike) -> Spectrum:
    """Theorem 3.5 by the paper's formulas: ±γ, d_K − 1 times each, labelled "bulk", and the three
    outliers T/3 + μ_j from the trigonometric roots (with the corrected q).

    `Curvature.spectrum` computes the same from a 3×3 matrix, to full accuracy at double roots too.

    >>> theorem_3_5(Curvature(1, 0, 0.5, 2), [1, 0, 0], [0, 1, 0])
    Spectrum(4.06155 × 1, 1 × 1, 0.5 × 2, -0.0615528 × 1, -0.5 × 2)
    """
    trace = -cubic(curvature, query, key)[1]
    roots = trace / 3 + trigonometric_roots(*depressed_cubic(curvature, query, key))
    return with_bulk(roots, curvature.gamma, query_and_key(query, key)[0].size - 1)


def remark_b_2(curvature: Curvature, query: ArrayLike, key: ArrayLike) -> Spectrum:
    """The spectrum of the query–key block, Remark B.2: Theorem 3.1 with σ² = ζ and δx = γ, that is
    ±γ, d_K − 1 times each, and the roots of λ² − ζNλ − (γ² + 2γζk).

    >>> remark_b_2(Curvature(1, 7, 0.5, 2), [1, 0, 0], [0, 1, 0])
    Spectrum(4.06155 × 1, 0.5 × 2, -0.0615528 × 1, -0.5 × 2)
    """
    norm, product = _invariants(query, key)
    gamma, zeta = curvature.gamma, curvature.zeta
    half, constant = zeta * norm / 2, gamma**2 + 2 * gamma * zeta * product
    # The radicand is a sum of squares, equation (2) of the paper; below 0 it is rounding.
    root = np.sqrt(max(0.0, half**2 + constant))
    return with_bulk([half + root, half - root], gamma, query_and_key(query, key)[0].size - 1)


def remark_b_3(curvature: Curvature, query: ArrayLike, key: ArrayLike) -> Array:
    """½T ± ½√(T² + 4(β² − αζ)N), the outliers other than 0 when γ = 0, Remark B.3, (2,).

    >>> remark_b_3(Curvature(1, 0, 0, 2), [1.0], [0.0])
    array([2., 1.])
    """
    if curvature.gamma != 0:
        raise ValueError(f"curvature must have gamma = 0 in Remark B.3, got {curvature.gamma}")
    norm, _ = _invariants(query, key)
    trace = curvature.alpha + curvature.zeta * norm
    minor = curvature.beta**2 - curvature.alpha * curvature.zeta
    root = np.sqrt(max(0.0, trace**2 + 4 * minor * norm))
    return np.array([trace + root, trace - root]) / 2


def remark_b_4(
    curvature: Curvature, query: ArrayLike, key: ArrayLike, as_printed: bool = False
) -> tuple[float, float]:
    """Bounds (lower, upper) on the largest eigenvalue, Remark B.4, equation (121).

    T/3 + ξ/2 ≤ λ_max ≤ max(T/3 + ξ, |γ|). As printed the upper bound is T/3 + ξ, which bounds the
    largest outlier, and ξ is the printed one. For d_K = 1 there is no bulk, and T/3 + ξ is enough.

    >>> remark_b_4(Curvature(0, 0, 1, 0), [1.0, 0.0], [0.0, 0.0])
    (0.5773502691896257, 1.1547005383792515)
    """
    trace = -cubic(curvature, query, key)[1]
    radius = xi(curvature, query, key, as_printed)
    lower, upper = float(trace / 3 + radius / 2), float(trace / 3 + radius)
    if not as_printed and query_and_key(query, key)[0].size > 1:
        upper = max(upper, abs(curvature.gamma))
    return lower, upper


def remark_3_1(
    curvature: Curvature, query: ArrayLike, key: ArrayLike, as_printed: bool = False
) -> float:
    """The lower bound (2T + 3ξ)/(6|γ|) on the condition number, Remark 3.1 (γ ≠ 0).

    As printed it is taken with the printed ξ.

    >>> remark_3_1(Curvature(0, 0, 1, 0), [1.0, 0.0], [0.0, 0.0])
    0.5773502691896257
    """
    if curvature.gamma == 0:
        raise ValueError("curvature must have gamma ≠ 0: at gamma = 0 the Hessian is singular")
    trace = -cubic(curvature, query, key)[1]
    radius = xi(curvature, query, key, as_printed)
    return float((2 * trace + 3 * radius) / (6 * abs(curvature.gamma)))


def condition_number(spectrum: Spectrum) -> float:
    """κ, the largest modulus of an eigenvalue over the smallest; infinite for a singular matrix.

    >>> condition_number(Spectrum.from_values([4.0, -1.0, 2.0]))
    4.0
    """
    moduli = np.abs(spectrum.values)
    return float("inf") if moduli.min() == 0 else float(moduli.max() / moduli.min())


def sink_moments(
    share: ArrayLike, distance: float, variance: float, third: float
) -> tuple[Array, Array, Array]:
    """Shift of the mean, variance and third central moment of a row with a sink, arrays like p.

    A row gives the `share` p to the sink token, which lies `distance` D from the mean of the other
    tokens; under the row's weights those have the given `variance` v and `third` central moment t.
    Then the mean moves by pD, the variance is p(1−p)D² + (1−p)v, and the third central moment is
    p(1−p)(1−2p)D³ − 3p(1−p)Dv + (1−p)t.

    >>> sink_moments(0.5, 10.0, 1.0, 0.0)
    (array(5.), array(25.5), array(-7.5))
    """
    p = real_array("share", share, ndim=None)
    if np.any((p < 0) | (p > 1)):
        raise ValueError(f"share must lie in [0, 1], got values from {p.min()} to {p.max()}")
    v = nonnegative_number("variance", variance)
    rest = 1 - p
    second = p * rest * distance**2 + rest * v
    cube = p * rest * (rest - p) * distance**3 - 3 * p * rest * distance * v + rest * third
    return np.asarray(p * distance), np.asarray(second), np.asarray(cube)


def sink_peak(distance: float, variance: float) -> float:
    """The share p* = ½(1 − v/D²) at which the variance of a row with a sink is largest, or 0.

    Below p* a stronger sink makes the row's variance grow, above it shrinks.

    >>> sink_peak(10.0, 0.0), sink_peak(1.0, 0.5), sink_peak(1.0, 4.0)
    (0.5, 0.25, 0.0)
    """
    v = nonnegative_number("variance", variance)
    return 0.0 if distance**2 <= v else (1 - v / distance**2) / 2


def product_gradient(
    inputs: Sequence[ArrayLike],
    targets: Sequence[ArrayLike],
    value: ArrayLike,
    query: ArrayLike,
    key: ArrayLike,
    biases: Sequence[ArrayLike] | None = None,
) -> Array:
    """G = ∂loss/∂(W_Q W_Kᵀ), (d, d), of a head on vectors: its singular values are the bulk.

    The loss is 1/B Σ_b 1/(2 n d) |A X_b W_V − Y_b|² with A = softmax(X W_Q W_Kᵀ Xᵀ/√d_K + bias),
    X_b (n, d), `value` W_V (d, d), `query` and `key` (d, d_K). With δ the residual, g = δ W_Vᵀ Xᵀ
    and S = A ⊙ (g − the mean of g under each row of A), G = Σ_b Xᵀ S X / (B n d √d_K).

    >>> product_gradient([[[1.0], [3.0]]], [[[2.0], [4.0]]], [[1.0]], [[1.0]], [[0.0]])
    array([[-3.]])
    """
    w_v = real_array("value", value, ndim=2)
    w_q, w_k = real_array("query", query, ndim=2), real_array("key", key, ndim=2)
    total = np.zeros((w_q.shape[0], w_q.shape[0]))
    for b, (given, target) in enumerate(zip(inputs, targets, strict=True)):
        x = real_array(f"inputs[{b}]", given, ndim=2)
        bias = 0.0 if biases is None else real_array(f"biases[{b}]", biases[b], ndim=None)
        rows = softmax_rows((x @ w_q) @ (x @ w_k).T / np.sqrt(w_q.shape[1]) + bias)
        delta = rows @ x @ w_v - real_array(f"targets[{b}]", target, ndim=2)
        pull = delta @ w_v.T @ x.T
        slope = rows * (pull - np.sum(rows * pull, axis=1, keepdims=True))
        total += x.T @ slope @ x / (x.size * np.sqrt(w_q.shape[1]))
    return total / len(inputs)


@dataclass(frozen=True, eq=False)
class Reversal:
    """Gradient descent of appendix D.2 on many two-token sequences at once, T + 1 states.

    All arrays are (T + 1, B): `value` w_V, `product` c = ⟨w_Q, w_K⟩, `norm` N = |w_Q|² + |w_K|²,
    `loss`, `trace` of the Hessian and `sharpness`, its largest eigenvalue.
    """

    value: Array
    product: Array
    norm: Array
    loss: Array
    trace: Array
    sharpness: Array


def reverse_two_tokens(
    sequences: ArrayLike, value: ArrayLike, query: ArrayLike, key: ArrayLike, eta: float, steps: int
) -> Reversal:
    """Train w_V, w_Q, w_K to map each (x_1, x_2) to (x_2, x_1), appendix D.2.

    `sequences` (B, 2), `value` (B,), `query` and `key` (B, d_K), d_K ≥ 2. The gradient is
    (φ_1, γ w_K, γ w_Q), so descent closes on three numbers: w_V moves by −ηφ_1,
    c by −ηγN + η²γ²c and N by −4ηγc + η²γ²N. Runs that leave float64 end in NaN.

    >>> run = reverse_two_tokens([[1.0, -1.0]], [0.1], [[0.1, 0.2]], [[0.1, -0.3]], 0.5, 2)
    >>> run.loss[:, 0].round(4)
    array([0.4965, 0.4954, 0.494 ])
    """
    x = real_array("sequences", sequences, ndim=2)
    w_q, w_k = real_array("query", query, ndim=2), real_array("key", key, ndim=2)
    w = real_array("value", value, ndim=1)
    if x.shape[1] != 2:
        raise ValueError(f"sequences must have two tokens each, got shape {x.shape}")
    if w_q.shape != w_k.shape or w_q.shape[1] < 2 or not len(x) == len(w) == len(w_q):
        raise ValueError(
            f"value, query and key must have shapes ({len(x)},) and ({len(x)}, d_K) with d_K ≥ 2, "
            f"got {w.shape}, {w_q.shape} and {w_k.shape}"
        )
    eta, steps = nonnegative_number("eta", eta), whole_number("steps", steps, least=0)
    root = np.sqrt(w_q.shape[1])
    c, norm = np.sum(w_q * w_k, axis=1), np.sum(w_q**2 + w_k**2, axis=1)
    history = []
    with np.errstate(over="ignore", invalid="ignore"):
        for _ in range(steps + 1):
            gap = x[:, :1] - x[:, 1:]
            p = 1 / (1 + np.exp(-c[:, None] * x * gap / root))
            mean, q = x[:, 1:] + p * gap, 1 - p
            first = x * p * q * gap**2 / root
            second = x**2 * p * q * (q - p) * gap**3 / root**2
            delta = w[:, None] * mean - x[:, ::-1]
            slope = np.mean(delta * mean, axis=1)
            alpha = np.mean(mean**2, axis=1)
            beta = np.mean((w[:, None] * mean + delta) * first, axis=1)
            gamma = w * np.mean(delta * first, axis=1)
            zeta = w**2 * np.mean(first**2, axis=1) + w * np.mean(delta * second, axis=1)
            loss = np.mean(delta**2, axis=1) / 2
            history.append(np.array([w, c, norm, loss, alpha, beta, gamma, zeta]))
            rate = eta * gamma
            w = w - eta * slope
            c, norm = c - rate * norm + rate**2 * c, norm - 4 * rate * c + rate**2 * norm
        w, c, norm, loss, alpha, beta, gamma, zeta = np.stack(history, axis=1)
        plus, minus = norm / 2 + c, norm / 2 - c
        trace = alpha + zeta * norm
    # The blocks of Curvature.block for all states at once, with |w_Q ± w_K|²/2 = N/2 ± c.
    cross = np.sqrt(np.maximum(plus, 0.0)), np.sqrt(np.maximum(minus, 0.0))
    entries = [alpha, beta * cross[0], beta * cross[1], zeta * plus + gamma]
    entries += [zeta * cross[0] * cross[1], zeta * minus - gamma]
    block = np.stack([entries[i] for i in (0, 1, 2, 1, 3, 4, 2, 4, 5)], axis=-1)
    block = block.reshape(*alpha.shape, 3, 3)
    finite = np.isfinite(block).all(axis=(-2, -1))
    top = np.linalg.eigvalsh(np.where(finite[..., None, None], block, 0.0))[..., -1]
    sharpness = np.where(finite, np.maximum(top, np.abs(gamma)), np.nan)
    return Reversal(w, c, norm, loss, trace, sharpness)


def _invariants(query: ArrayLike, key: ArrayLike) -> tuple[float, float]:
    """N = |w_Q|² + |w_K|² and k = ⟨w_Q, w_K⟩."""
    w_q, w_k = query_and_key(query, key)
    return float(w_q @ w_q + w_k @ w_k), float(w_q @ w_k)
