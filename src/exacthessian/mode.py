"""One balanced mode of a deep linear network, and what it does beyond the edge of stability.

L layers that share the singular value s in a mode of target σ move under gradient descent, on
½‖W_L⋯W_1 − M‖² with step η, as

    s ← s + η(σ − s^L)s^{L−1}.                                                                (1)

The minimum is s = σ^{1/L}; its curvature is Lσ^{2−2/L}, and the edge of stability is the step
2/(Lσ^{2−2/L}). In units of σ^{1/L} and with a = ησ^{2−2/L} this is (1) with σ = 1 and η = a, so
that `target=1.0` gives every function below in these units. The *ratio* η/edge is aL/2.

A second mode σ_2 < σ_1 meets the first in the block {1, 2} of the Hessian: λ_12 = `curvature`.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from math import asinh, atanh, cosh, exp, log, sinh, sqrt, tanh

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import brentq

from exacthessian.aligned import AlignedChain, multipliers
from exacthessian.chain import LinearChain
from exacthessian.inputs import Array, Numbers, guard, real_array, require

SETTLING_STEPS = 4000
NEWTON_STEPS = 60
TOLERANCE = 1e-14
DOUBLING = (0.1, 0.27)  # between these shares of the last gap lies the next doubling


# One mode


def curvature(depth: int, first: Numbers, second: Numbers) -> Numbers:
    """λ_12 = Σ_{l=1}^L s_1^{2(L−l)} s_2^{2(l−1)} with s = σ^{1/L}: the Hessian eigenvalue of two
    modes σ_1, σ_2 at the balanced minimum; Lσ^{2−2/L} when they are equal.

    >>> round(2 / curvature(3, 10.0, 9.0), 6), curvature(2, 10.0, 9.0)
    (0.033141, 19.0)
    """
    one, two = first ** (2 / depth), second ** (2 / depth)
    return sum(one ** (depth - layer) * two ** (layer - 1) for layer in range(1, depth + 1))


def edge(depth: int, target: Numbers) -> Numbers:
    """The edge of stability of one balanced mode, η = 2/λ = 2/(Lσ^{2−2/L}).

    >>> round(edge(depth=3, target=10.0), 6)
    0.030944
    """
    return 2 / curvature(depth, target, target)


def step(value: Numbers, depth: int, target: Numbers, eta: Numbers) -> Numbers:
    """One step of gradient descent on a balanced mode, s ← s + η(σ − s^L)s^{L−1}.

    >>> step(np.array([2.0, 3.0]), depth=2, target=5.0, eta=0.1).round(12)
    array([2.2, 1.8])
    """
    return value + eta * (target - value**depth) * value ** (depth - 1)


def slope(value: Numbers, depth: int, target: Numbers, eta: Numbers) -> Numbers:
    """The derivative of `step` in s, 1 + η((L−1)σs^{L−2} − (2L−1)s^{2L−2}).

    >>> round(slope(2.0, depth=2, target=5.0, eta=0.1), 12)
    0.3
    """
    bend = (depth - 1) * target * value ** (depth - 2)
    return 1 + eta * (bend - (2 * depth - 1) * value ** (2 * depth - 2))


def cycle_step(depth: int, target: float, swing: float) -> float:
    """The one step η whose 2-cycle {ρ_1, ρ_2} has the swing z = ρ_2/ρ_1 = e^{2t} > 1:

        ησ^{2−2/L} = 2 sinh t / sinh Lt · cosh (2L−1)t · [cosh (2L−1)t / cosh (L−1)t]^{1−2/L}.

    It increases from the edge (z → 1) to ∞. For L = 2 it is (z + 1/z − 1)/σ:

    >>> round(cycle_step(depth=2, target=10.0, swing=2.0), 12)
    0.15
    """
    t = log(swing) / 2
    wide, narrow = cosh((2 * depth - 1) * t), cosh((depth - 1) * t)
    scaled = 2 * sinh(t) / sinh(depth * t) * wide * (wide / narrow) ** (1 - 2 / depth)
    return float(scaled / target ** (2 - 2 / depth))


def two_cycle(depth: int, target: float, eta: float) -> tuple[float, float]:
    """The two values ρ_1 < σ^{1/L} < ρ_2 = zρ_1 that a balanced mode visits beyond the edge:
    ρ_1^L = σ(1 + z^{L−1})/(1 + z^{2L−1}), with the swing z = e^{2t} whose `cycle_step` is η.

    >>> low, high = two_cycle(depth=2, target=10.0, eta=0.11)
    >>> round(low**2, 4), round(high**2, 4)
    (6.6349, 12.456)
    """
    if not eta > (born := edge(depth, target)):
        raise ValueError(f"eta must exceed the edge {born:.6g} for a 2-cycle, got {eta}")
    z = exp(2 * _rise(lambda t: cycle_step(depth, target, exp(2 * t)) - eta, 1e-9 / depth))
    low = (target * (1 + z ** (depth - 1)) / (1 + z ** (2 * depth - 1))) ** (1 / depth)
    return low, z * low


def _cycle(depth: int, target: float, eta: float, period: int) -> Array:
    """The points (p,) of the cycle of (1) of period p = 1, 2, 4, …, its least point first. The
    cycle may be unstable, as long as the doubled cycle or the next one is the attractor.

    Beyond period 2, the middle between two points that lie `period` steps apart starts Newton's
    method for F^p(s) = s: on the attractor of twice the period these points lie around the cycle.
    """
    if period == 1:
        return np.array([target ** (1 / depth)])
    if period == 2:
        return np.array(two_cycle(depth, target, eta))

    def run(x: float, steps: int) -> list[float]:
        path = [x]
        for _ in range(steps):
            path.append(step(path[-1], depth, target, eta))
        return path

    *_, x = run((1 - 0.3 / depth) * target ** (1 / depth), SETTLING_STEPS)
    x = (x + run(x, period)[-1]) / 2
    for _ in range(NEWTON_STEPS):
        *orbit, last = run(x, period)
        points = np.array(orbit)
        change = (last - x) / (np.prod(slope(points, depth, target, eta)) - 1)
        x -= change
        if abs(change) < TOLERANCE:
            return np.roll(points, -int(np.argmin(points)))
    raise ValueError(f"eta = {eta} has no attracting cycle near period {period} at depth {depth}")


def doubling_steps(depth: int, target: float, count: int) -> Array:
    """The first `count` steps η at which the period doubles, 1 → 2 → 4 → …: the edge, then where
    the product of the slopes along the cycle of period 2, 4, … is −1. For L = 2 the second is
    (√5 − 1)/σ.

    >>> doubling_steps(depth=2, target=1.0, count=3).round(6)
    array([1.      , 1.236068, 1.288032])
    """

    def excess(period: int, eta: float) -> float:
        points = _cycle(depth, target, eta, period)
        return float(np.prod(slope(points, depth, target, eta))) + 1

    onsets = [0.0, float(edge(depth, target))]
    for n in range(1, count):
        low, high = (onsets[-1] + (onsets[-1] - onsets[-2]) * share for share in DOUBLING)
        onsets.append(_root(partial(excess, 2**n), low, high))
    return np.array(onsets[1:])


# A mode among others


def minimum(depth: int, targets: ArrayLike, width: int, alpha: float) -> AlignedChain:
    """The strictly balanced minimum for whitened data and the target diag(σ_1..σ_r, 0..0) of size
    d: every layer has s_i = σ_i^{1/L} on the modes i ≤ r, and (α, …, α, 0) on the null modes i > r.
    α is the scale of a one-zero start, and 0 for a balanced one, whose null modes die out.

    >>> [layer.round(12).tolist() for layer in minimum(3, [8.0], 2, alpha=0.1).singular_values]
    [[2.0, 0.1], [2.0, 0.1], [2.0, 0.0]]
    """
    sigma = real_array("targets", targets, ndim=1)
    layers = np.full((depth, width), alpha)
    layers[-1] = 0
    layers[:, : len(sigma)] = sigma ** (1 / depth)
    goal, half_y2 = np.r_[sigma, np.zeros(width - len(sigma))], float(sigma @ sigma / 2)
    return AlignedChain((width,) * (depth + 1), tuple(layers), np.ones(width), goal, half_y2)


def orbit(
    depth: int, targets: Sequence[float], eta: float, width: int | None = None, alpha: float = 0.0
) -> tuple[AlignedChain, ...]:
    """The two states in which mode 1 runs its 2-cycle in every layer and all others rest at
    `minimum`.

    >>> [state.product.round(4).tolist() for state in orbit(2, [10.0, 1.0], eta=0.11)]
    [[6.6349, 1.0], [12.456, 1.0]]
    """
    rest = minimum(depth, targets, width or len(targets), alpha)
    return tuple(
        replace(rest, singular_values=tuple(np.r_[s, layer[1:]] for layer in rest.singular_values))
        for s in two_cycle(depth, targets[0], eta)
    )


def relabelling_step(depth: int, first: float, second: float) -> float:
    """The step at which the lower value of mode 1 falls to mode 2, ρ_1^L = σ_2: sorted singular
    values exchange names. With τ = σ_2/σ_1 it is the `cycle_step` of the swing z that is the
    positive root of τz^{2L−1} = z^{L−1} + 1 − τ.

    >>> round(relabelling_step(3, 10.0, 9.0), 6)
    0.031399
    """
    tau = second / first
    z = _rise(lambda z: tau * z ** (2 * depth - 1) - z ** (depth - 1) - (1 - tau), 1.0)
    return cycle_step(depth, first, z)


def transverse_growth(depth: int, first: float, second: float, eta: float) -> float:
    """The growth rate per step of a small rotation of modes 1 and 2 into each other, on the 2-cycle
    of mode 1: half the logarithm of the largest modulus of the multipliers of the block {1, 2},
    without the L − 1 that equal 1 because rotating a hidden layer changes nothing.

    >>> round(transverse_growth(3, 10.0, 9.0, 1.10 * edge(3, 10.0)), 4)
    0.0224
    """
    found = multipliers(orbit(depth, [first, second], eta), eta)[1, 2]
    moving = found[np.argsort(np.abs(found - 1))[depth - 1 :]]
    return log(np.abs(moving).max()) / 2


def transverse_step(depth: int, first: float, second: float) -> float:
    """The step at which the 2-cycle of mode 1 stops attracting rotations of modes 1 and 2 into each
    other; NaN when its period doubles before that. For L = 2 it is 2/λ_12; beyond, it is later:

    >>> round(transverse_step(2, 10.0, 9.0) * 19 / 2, 9), round(transverse_step(3, 10.0, 9.0), 6)
    (1.0, 0.033255)
    """
    low = max(0.999 * 2 / curvature(depth, first, second), (1 + 1e-4) * edge(depth, first))
    high = doubling_steps(depth, first, 2)[1]
    if low >= high or transverse_growth(depth, first, second, high) < 0:
        return float("nan")
    return _root(lambda eta: transverse_growth(depth, first, second, eta), low, high)


# Two modes that rotate into each other


def rotating_edge(depth: int, first: float, second: float) -> float:
    """The step above which two modes have a `rotating_cycle`: 2/λ for the least cross curvature λ
    of a minimum that reads the same forwards and backwards,

        λ = L(σ_1σ_2)^{1−1/L}  for odd L,  and  cosh(ln(σ_1/σ_2)/L) times that  for even L.

    >>> rotating_edge(2, 10.0, 9.0) * 19 / 2, round(rotating_edge(3, 10.0, 9.0), 6)
    (1.0, 0.033196)
    """
    least = depth * (first * second) ** (1 - 1 / depth)
    return 2 / (least if depth % 2 else least * cosh(log(first / second) / depth))


def rotating_cycle(depth: int, first: float, second: float, eta: float) -> tuple[LinearChain, ...]:
    """The 2-cycle in which the singular vectors of modes σ_1 > σ_2 swing and their values do not:
    the two states differ in the sign of the off-diagonal entries of all layers. For odd l,

        W_l = √Δ [[cosh u · e^{ξ_l}, sinh u · e^κ], [sinh u · e^{−κ}, cosh u · e^{−ξ_l}]],

    for even l the same with −ξ_l, −κ. Here ξ_l = ξ, κ = 0 for odd L; ξ_l = (L+1−2l)κ, κ = ξ/L for
    even L; sinh u = sinh φ / cosh 2κ; and ξ, φ, Δ are fixed by

        σ_1 − σ_2 = 2Δ^{L/2} sinh ξ cosh φ / cosh (L−1)φ,
        σ_1 + σ_2 = 2Δ^{L/2} [cosh ξ cosh (2L−1)φ / cosh (L−1)φ − 2 tanh φ sinh Lφ tanh 2κ sinh ξ],
        ηΔ^{L−1} = 2 sinh φ cosh (L−1)φ / (sinh Lφ cosh 2κ).

    >>> one, two = rotating_cycle(3, 10.0, 9.0, eta=0.034)
    >>> one.product.round(4), np.allclose(one.step(0.034).parameters(), two.parameters())
    (array([[9.913 , 1.1357],
           [1.1357, 8.9032]]), True)
    """
    born, n = rotating_edge(depth, first, second), depth - 1
    spread, total = first - second, first + second
    last = (2 - 1e-9) / spread if depth == 2 else np.inf
    require(born < eta < last, f"eta must exceed {born:.6g} and be below {last:.6g}", eta)

    def shape(xi: float) -> tuple[float, float, float]:
        """κ, φ and Δ for a given ξ."""
        kappa = 0.0 if depth % 2 else xi / depth

        def excess(phi: float) -> float:
            bend = 2 * tanh(phi) * sinh(depth * phi) * cosh(n * phi) * tanh(2 * kappa)
            return (cosh((depth + n) * phi) / tanh(xi) - bend) / cosh(phi) - total / spread

        phi = _rise(excess, 0.0)
        return kappa, phi, (spread * cosh(n * phi) / cosh(phi) / (2 * sinh(xi))) ** (2 / depth)

    def late(xi: float) -> float:
        kappa, phi, delta = shape(xi)
        turn = 2 * sinh(phi) * cosh(n * phi) / sinh(depth * phi)
        return turn / cosh(2 * kappa) / delta**n - eta

    xi = _rise(late, atanh(spread / total) * (1 + 1e-12))
    kappa, phi, delta = shape(xi)
    u = asinh(sinh(phi) / cosh(2 * kappa))
    size = sqrt(delta) * np.array([[cosh(u), sinh(u)], [sinh(u), cosh(u)]])
    stretches = [xi if depth % 2 else (n - 2 * layer) * kappa for layer in range(depth)]
    layers = [
        size * np.exp((-1) ** layer * np.array([[stretch, kappa], [-kappa, -stretch]]))
        for layer, stretch in enumerate(stretches)
    ]
    return tuple(
        LinearChain(tuple(sign * layer for layer in layers), np.eye(2), np.diag([first, second]))
        for sign in (np.ones((2, 2)), np.array([[1.0, -1.0], [-1.0, 1.0]]))
    )


def _rise(function: Callable[[float], float], low: float) -> float:
    """The root above `low` of a function that is negative there and increases."""
    width = 1e-3
    while function(low + width) < 0:
        width *= 2
    return _root(function, low, low + width)


def _root(function: Callable[[float], float], low: float, high: float) -> float:
    """The sign change of `function` between `low` and `high`."""
    return float(brentq(function, low, high, xtol=1e-30, rtol=TOLERANCE))


guard(globals(), "step", "slope", "transverse_step")
