"""Beyond "Learning dynamics of deep matrix factorization beyond the edge of stability": who
oscillates, in which direction, and why a computer sees it.

A balanced mode of target σ and depth L obeys s ← s + η(σ − s^L)s^(L−1). In units of σ^(1/L) this is

    x ← f(x) = x + a(1 − x^L)x^(L−1),    a = ησ^(2−2/L),                                        (1)

with the minimum at x = 1, where f' = 1 − aL. The ratio of η to the edge of stability is aL/2. Two
modes of targets σ_1 > σ_2 are described by (1) for the first and by q = σ_2/σ_1; all step sizes of
this module are the `a` of mode 1 unless they are called η.
"""

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import brentq

from exacthessian.aligned import AlignedChain, multipliers
from exacthessian.inputs import Array, nonnegative_number, real_array, whole_number

SETTLING_STEPS = 4000
NEWTON_STEPS = 60
NEWTON_TOLERANCE = 1e-14
FIRST_BRACKET = (1.1, 1.27)
LATER_BRACKET = (1 / 7, 1 / 3.7)
STATES = 512


def mode_step(x: ArrayLike, depth: int, a: ArrayLike) -> Array:
    """f(x) = x + a(1 − x^L)x^(L−1), equation (1), entry by entry.

    >>> mode_step([0.5, 1.0], depth=2, a=1.0)
    array([0.875, 1.   ])
    """
    x = np.asarray(x, dtype=np.float64)
    moved: Array = x + np.asarray(a) * (1 - x**depth) * x ** (depth - 1)
    return moved


def mode_slope(x: ArrayLike, depth: int, a: ArrayLike) -> Array:
    """f'(x) = 1 + a[(L−1)x^(L−2) − (2L−1)x^(2L−2)].

    >>> mode_slope([0.0, 1.0], depth=3, a=0.5)
    array([ 1. , -0.5])
    """
    x = np.asarray(x, dtype=np.float64)
    bend = (depth - 1) * x ** (depth - 2) - (2 * depth - 1) * x ** (2 * depth - 2)
    slope: Array = 1 + np.asarray(a) * bend
    return slope


def cycle(depth: int, a: float, period: int) -> Array:
    """The points (p,) of the cycle of (1) of period p = 1, 2, 4, …, its least point first; the
    cycle may be unstable, as long as the doubled cycle or the next one is the attractor.

    The middle between two points that lie `period` steps apart starts Newton's method for
    f^p(x) = x: on the attractor of twice the period, these points lie around the cycle.

    >>> low, high = cycle(depth=2, a=1.1, period=2)
    >>> bool(np.isclose(low**2 + high**2, 1 + 1 / 1.1))
    True
    """
    layers = whole_number("depth", depth, least=2)
    size = whole_number("period", period, least=1)
    if size == 1:
        return np.ones(1)

    # Plain floats: one orbit of thousands of steps is many times faster with them.
    def step(x: float) -> float:
        return x + float(a) * (1 - x**layers) * x ** (layers - 1)

    x = 1 - 0.3 / layers
    for _ in range(SETTLING_STEPS):
        x = step(x)
    later = x
    for _ in range(size):
        later = step(later)
    x = (x + later) / 2
    for _ in range(NEWTON_STEPS):
        points = [x]
        for _ in range(size):
            points.append(step(points[-1]))
        growth = float(np.prod(mode_slope(points[:-1], layers, a)))
        change = (points[-1] - x) / (growth - 1)
        x -= change
        if abs(change) < NEWTON_TOLERANCE:
            break
    else:
        raise ValueError(f"a = {a} has no attracting cycle near period {size} at depth {layers}")
    orbit = np.array(points[:-1])
    if np.ptp(orbit) < np.sqrt(NEWTON_TOLERANCE):
        raise ValueError(f"a = {a} has no cycle of period {size} at depth {layers}")
    rolled: Array = np.roll(orbit, -int(np.argmin(orbit)))
    return rolled


def parametric_cycle(depth: int, t: float) -> tuple[float, float, float]:
    """(a, x_−, x_+): the 2-cycle of (1) with x_+/x_− = e^(2t), t > 0, and the a that has it,

        x_±^L = e^(±Lt) cosh((L−1)t)/cosh((2L−1)t),
        a = 2 sinh t/sinh Lt · cosh((2L−1)t) · [cosh((2L−1)t)/cosh((L−1)t)]^(1−2/L).

    >>> a, low, high = parametric_cycle(3, 0.1)
    >>> bool(np.allclose(mode_step([low, high], 3, a), [high, low]))
    True
    """
    layers = whole_number("depth", depth, least=2)
    half_log = nonnegative_number("t", t)
    if half_log == 0:
        raise ValueError("t must be positive, got 0")
    wide, narrow = np.cosh((2 * layers - 1) * half_log), np.cosh((layers - 1) * half_log)
    share = np.sinh(half_log) / np.sinh(layers * half_log)
    a = 2 * share * wide * (wide / narrow) ** (1 - 2 / layers)
    middle = (narrow / wide) ** (1 / layers)
    return float(a), float(middle * np.exp(-half_log)), float(middle * np.exp(half_log))


def doubling_onsets(depth: int, count: int) -> Array:
    """The first `count` values of a at which the period of (1) doubles, 1 → 2 → 4 → …: the cycle of
    period 2^n loses its stability where the product of its slopes is −1.

    >>> doubling_onsets(depth=2, count=2).round(6)
    array([1.      , 1.236068])
    """
    layers = whole_number("depth", depth, least=2)
    total = whole_number("count", count, least=1)

    def excess(a: float, period: int) -> float:
        return float(np.prod(mode_slope(cycle(layers, a, period), layers, a))) + 1

    onsets = [2 / layers]
    for n in range(1, total):
        if n == 1:
            low, high = (onsets[0] * factor for factor in FIRST_BRACKET)
        else:
            gap = onsets[-1] - onsets[-2]
            low, high = (onsets[-1] + gap * factor for factor in LATER_BRACKET)
        onsets.append(brentq(excess, low, high, args=(2**n,), xtol=1e-14))
    return np.array(onsets)


def feigenbaum_quotients(onsets: ArrayLike) -> Array:
    """(a_n − a_{n−1})/(a_{n+1} − a_n) of successive period doublings.

    >>> feigenbaum_quotients([0.0, 4.0, 5.0])
    array([4.])
    """
    gaps = np.diff(real_array("onsets", onsets, ndim=1))
    quotients: Array = gaps[:-1] / gaps[1:]
    return quotients


def lyapunov(depth: int, a: ArrayLike, steps: int = 2000) -> Array:
    """The Lyapunov exponent of (1), the mean of log|f'| along the attractor, for each a (n,): over
    512 starts near the minimum, half of the `steps` to settle and half to average.

    On the cycle of period 2 it is the logarithm of the product of the slopes, by 2:

    >>> points = cycle(2, 1.1, 2)
    >>> expected = np.log(abs(np.prod(mode_slope(points, 2, 1.1)))) / 2
    >>> bool(abs(lyapunov(2, [1.1])[0] - expected) < 1e-6)
    True
    """
    layers = whole_number("depth", depth, least=2)
    strengths = real_array("a", a, ndim=1)[:, None]
    x = np.broadcast_to(np.linspace(0.8, 1.1, STATES), (len(strengths), STATES))
    half = whole_number("steps", steps, least=2) // 2
    for _ in range(half):
        x = mode_step(x, layers, strengths)
    total = np.zeros(len(strengths))
    for _ in range(half):
        total += np.log(np.abs(mode_slope(x, layers, strengths)) + 1e-300).mean(axis=1)
        x = mode_step(x, layers, strengths)
    exponents: Array = total / half
    return exponents


def attractor(depth: int, sigma: ArrayLike, etas: ArrayLike, keep: int, settle: int) -> Array:
    """The last `keep` values s_i (r,) of balanced gradient descent from 0.9σ_i^(1/L), after
    `settle` steps, for each η (n,): shape (n, keep, r); NaN where the descent diverges.

    >>> attractor(2, [10.0], [0.05], keep=1, settle=200).round(6)
    array([[[3.162278]]])
    """
    layers = whole_number("depth", depth, least=2)
    targets = real_array("sigma", sigma, ndim=1)
    steps = real_array("etas", etas, ndim=1)[:, None]
    s = np.broadcast_to(0.9 * targets ** (1 / layers), (len(steps), len(targets)))
    kept = []
    with np.errstate(over="ignore", invalid="ignore"):
        for time in range(settle + keep):
            s = s + steps * (targets - s**layers) * s ** (layers - 1)
            if time >= settle:
                kept.append(s)
    states = np.stack(kept, axis=1)
    states[~np.isfinite(states).all(axis=(1, 2))] = np.nan
    return states


def cross_eigenvalue(depth: int, first: float, second: float) -> float:
    """λ = Σ_l (s_1^(L−1−l) s_2^l)², l = 0..L−1, s_i = σ_i^(1/L): the eigenvalue of the pair {1, 2}
    at the minimum, and Lσ^(2−2/L) when both are equal.

    >>> round(cross_eigenvalue(2, 10.0, 9.0), 9), round(cross_eigenvalue(3, 8.0, 8.0), 9)
    (19.0, 48.0)
    """
    layers = whole_number("depth", depth, least=1)
    powers = np.arange(layers) * 2 / layers
    return float(np.sum(first ** (2 - 2 / layers - powers) * second**powers))


def relabelling_threshold(depth: int, q: float) -> float:
    """The a at which the lower point of the 2-cycle of mode 1 is x^L = q = σ_2/σ_1.

    With z = f(x)/x the cycle closes when qz^(2L−1) = z^(L−1) + 1 − q, which has one positive root,
    and then a = (z − 1)/((1 − q)q^(1−2/L)).

    >>> eta = relabelling_threshold(3, 0.9) * 10 ** (2 / 3 - 2)
    >>> round(eta, 6)
    0.031399
    """
    layers = whole_number("depth", depth, least=2)
    share = _fraction(q)
    top = (2 / share) ** (1 / layers)
    z = brentq(
        lambda z: share * z ** (2 * layers - 1) - z ** (layers - 1) - (1 - share),
        1.0,
        top,
        xtol=1e-15,
    )
    return float((z - 1) / ((1 - share) * share ** (1 - 2 / layers)))


def cycle_orbit(depth: int, sigma: ArrayLike, eta: float, period: int = 2) -> list[AlignedChain]:
    """The states of balanced descent in which mode 1 runs its cycle and all other modes rest at
    their minimum.

    >>> orbit = cycle_orbit(2, [10.0, 1.0], eta=0.11)
    >>> [state.product.round(4).tolist() for state in orbit]
    [[6.6349, 1.0], [12.456, 1.0]]
    """
    layers = whole_number("depth", depth, least=2)
    targets = real_array("sigma", sigma, ndim=1)
    rest = targets ** (1 / layers)
    points = cycle(layers, eta * targets[0] ** (2 - 2 / layers), period)
    return [
        AlignedChain.balanced(
            (len(targets),) * (layers + 1), [x * rest[0], *rest[1:]], target=targets
        )
        for x in points
    ]


def transverse_multipliers(depth: int, q: float, a: float, period: int = 2) -> NDArray[Any]:
    """The multipliers per period of the pair {1, 2} along the cycle of mode 1, without the L − 1
    that equal 1 because rotating a hidden layer changes nothing: L + 1 complex numbers, largest
    modulus first.

    >>> abs(transverse_multipliers(2, 0.9, 2 / 1.9))[:2].round(9)
    array([1., 1.])
    """
    layers = whole_number("depth", depth, least=2)
    orbit = cycle_orbit(layers, [1.0, _fraction(q)], a, period)
    found = multipliers(orbit, a)[1, 2]
    moving = found[np.argsort(np.abs(found - 1))[layers - 1 :]]
    return moving[np.argsort(-np.abs(moving), kind="stable")]


def transverse_growth(depth: int, q: float, a: float, period: int = 2) -> float:
    """The growth rate per step of a small rotation of modes 1 and 2 into each other: the logarithm
    of the largest modulus of `transverse_multipliers`, by the period.

    >>> round(transverse_growth(3, 0.9, 2 / 3 * 1.10), 4)
    0.0224
    """
    return float(np.log(np.abs(transverse_multipliers(depth, q, a, period)[0]))) / period


def transverse_threshold(depth: int, q: float) -> float:
    """The a at which the 2-cycle of mode 1 stops attracting rotations of modes 1 and 2 into each
    other; NaN when its period doubles before that.

    >>> eta = transverse_threshold(3, 0.9) * 10 ** (2 / 3 - 2)
    >>> round(eta, 6)
    0.033255
    """
    layers = whole_number("depth", depth, least=2)
    share = _fraction(q)
    low = 0.999 * 2 / cross_eigenvalue(layers, 1.0, share)
    high = doubling_onsets(layers, 2)[1]
    if low >= high or transverse_growth(layers, share, high) < 0:
        return float("nan")
    low = max(low, 2 / layers * (1 + 1e-4))
    return float(brentq(lambda a: transverse_growth(layers, share, a), low, high, xtol=1e-13))


def odd_multipliers_two_layers(q: float, a: float) -> NDArray[np.complex128]:
    """For L = 2, b = qa: the two multipliers of the class that leaves the circle, the roots of
    z² − [(1−a−b)(2−b) + 2 + 2b − a]z + [1 + (2−a−b)(1−2a−b)] = 0.

    At a + b = 2 they are exp(±iθ) with cos θ = 3 − 2a:

    >>> z = odd_multipliers_two_layers(0.9, 2 / 1.9)
    >>> bool(np.allclose([abs(z[0]), z[0].real], [1, 3 - 4 / 1.9]))
    True
    """
    b = _fraction(q) * a
    trace = (1 - a - b) * (2 - b) + 2 + 2 * b - a
    determinant = 1 + (2 - a - b) * (1 - 2 * a - b)
    return np.roots([1.0, -trace, determinant]).astype(np.complex128)


def products(
    target: NDArray[Any],
    depth: int,
    alpha: float,
    eta: float,
    steps: int,
    layers: Sequence[NDArray[Any]] | None = None,
) -> NDArray[Any]:
    """W_L⋯W_1 after each of `steps` steps of gradient descent on ½‖W_L⋯W_1 − M‖², from W_L = 0 and
    other layers αI (or from `layers`), in the arithmetic of the `target` M (d, d): float32,
    float64 or longdouble. Shape (steps, d, d).

    >>> products(np.array([[2.0]]), depth=2, alpha=0.5, eta=0.1, steps=2).ravel().round(6)
    array([0.05    , 0.102601])
    """
    kind = target.dtype.type
    size = len(target)
    start = [alpha * np.eye(size)] * (depth - 1) + [np.zeros((size, size))]
    weights = [np.array(layer, dtype=kind) for layer in (start if layers is None else layers)]
    rate = kind(eta)
    history = np.empty((steps, size, size), dtype=kind)
    product = _chained(weights)
    for time in range(steps):
        residual = product - target
        slopes = []
        for layer in range(depth):
            slope = residual
            if layer + 1 < depth:
                slope = _chained(weights[layer + 1 :]).T @ slope
            if layer > 0:
                slope = slope @ _chained(weights[:layer]).T
            slopes.append(slope)
        weights = [weight - rate * slope for weight, slope in zip(weights, slopes, strict=True)]
        product = _chained(weights)
        history[time] = product
    return history


def fixed_point_departure(
    sigma: Sequence[int], eta: float, bits: int, steps: int, rotated: bool = True
) -> Array:
    """How far descent from W_3 = 0, W_2 = W_1 = 0.3·I has left the aligned set after each step when
    all numbers are integers times 2^(−bits): the largest off-diagonal entry of UᵀW_3W_2W_1V.

    The target UΣVᵀ has three singular values and rational rotations U, V (identities unless
    `rotated`). Integer arithmetic makes the result the same on every machine. The run stops once
    the departure exceeds 1.

    >>> float(fixed_point_departure([10, 9, 6], 0.0346, bits=60, steps=50, rotated=False).max())
    0.0
    >>> bool(0 < fixed_point_departure([10, 9, 6], 0.0346, bits=60, steps=50).max() < 1e-14)
    True
    """
    digits = whole_number("bits", bits, least=8)
    one, half = 1 << digits, 1 << (digits - 1)

    def fixed(matrix: NDArray[Any]) -> NDArray[Any]:
        return np.array([[round(entry * one) for entry in row] for row in matrix], dtype=object)

    def times(first: NDArray[Any], second: NDArray[Any]) -> NDArray[Any]:
        rounded: NDArray[Any] = (first @ second + half) >> digits
        return rounded

    left, right = _rational_rotations() if rotated else (_identity(), _identity())
    values = np.diag([Fraction(value) for value in sigma])
    target, u, v = fixed(left @ values @ right.T), fixed(left), fixed(right)
    rate = round(Fraction(eta) * one)
    w1 = w2 = fixed(_identity() * Fraction(3, 10))
    w3 = w1 * 0
    departures = []
    for _ in range(whole_number("steps", steps, least=1)):
        w21, w32 = times(w2, w1), times(w3, w2)
        residual = times(w3, w21) - target
        slopes = (
            times(w32.T, residual),
            times(times(w3.T, residual), w1.T),
            times(residual, w21.T),
        )
        w1, w2, w3 = (
            weight - ((rate * slope + half) >> digits)
            for weight, slope in zip((w1, w2, w3), slopes, strict=True)
        )
        seen = times(times(u.T, times(w3, times(w2, w1))), v)
        np.fill_diagonal(seen, 0)
        departures.append(float(Fraction(int(np.abs(seen).max()), one)))
        if departures[-1] > 1:
            break
    return np.array(departures)


def onset(departures: ArrayLike, level: float = 1e-2) -> int:
    """The first step, counted from 1, at which the departure exceeds `level`.

    >>> onset([0.0, 0.5, 0.1])
    2
    """
    above = np.asarray(departures) > nonnegative_number("level", level)
    if not above.any():
        raise ValueError(f"departures never exceed {level} in {len(above)} steps")
    return int(np.argmax(above)) + 1


def growth_rate(departures: ArrayLike, low: float, high: float) -> float:
    """The slope of log(departure) against the step, by least squares, over the steps from the last
    one below `low` to the first one above `high`.

    >>> round(growth_rate(np.exp(0.1 * np.arange(200.0) - 10), 1e-4, 1e2), 12)
    0.1
    """
    values = real_array("departures", departures, ndim=1)
    stop = onset(values, high)
    start = int(np.flatnonzero(values[:stop] < low)[-1])
    times = np.arange(start, stop)
    return float(np.polyfit(times, np.log(values[start:stop]), 1)[0])


def _fraction(q: float) -> float:
    share = nonnegative_number("q", q)
    if not 0 < share < 1:
        raise ValueError(f"q must lie strictly between 0 and 1, got {q}")
    return share


def _chained(weights: Sequence[NDArray[Any]]) -> NDArray[Any]:
    product = weights[0]
    for weight in weights[1:]:
        product = weight @ product
    return product


def _identity() -> NDArray[Any]:
    return np.array([[Fraction(int(i == j)) for j in range(3)] for i in range(3)], dtype=object)


def _rational_rotations() -> tuple[NDArray[Any], NDArray[Any]]:
    """Two rotations of space with rational entries, from the triples 3-4-5, 5-12-13 and 8-15-17."""

    def turn(i: int, j: int, triple: tuple[int, int, int]) -> NDArray[Any]:
        rotation = _identity()
        sine, cosine = Fraction(triple[0], triple[2]), Fraction(triple[1], triple[2])
        rotation[i, i] = rotation[j, j] = cosine
        rotation[i, j], rotation[j, i] = -sine, sine
        return rotation

    small, middle, large = (3, 4, 5), (5, 12, 13), (8, 15, 17)
    left = turn(0, 1, small) @ turn(1, 2, middle) @ turn(0, 2, large)
    right = turn(0, 2, middle) @ turn(0, 1, large) @ turn(1, 2, small)
    return left, right
