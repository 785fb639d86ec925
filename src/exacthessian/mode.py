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
from math import acosh, cosh, exp, log, sinh
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import brentq

from exacthessian.aligned import AlignedChain, multipliers
from exacthessian.chain import LinearChain
from exacthessian.inputs import Array, real_array

Numbers: TypeAlias = Any  # one number, or an array of them, entry by entry

SETTLING_STEPS = 4000
NEWTON_STEPS = 60
TOLERANCE = 1e-14
SMALLEST_SWING = 1e-9
FIRST_BRACKET = (1.1, 1.27)
LATER_BRACKET = (1 / 7, 1 / 3.7)


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


def swing(depth: int, target: float, eta: float) -> float:
    """z = ρ_2/ρ_1 of the 2-cycle at step η, the inverse of `cycle_step`.

    >>> round(swing(depth=2, target=10.0, eta=0.15), 12)
    2.0
    """
    if not eta > edge(depth, target):
        raise ValueError(
            f"eta must exceed the edge {edge(depth, target):.6g}: there is no 2-cycle below, "
            f"got {eta}"
        )

    def excess(t: float) -> float:
        return cycle_step(depth, target, exp(2 * t)) - eta

    high = 1 / depth
    while excess(high) < 0:
        high *= 2
    return exp(2 * _root(excess, SMALLEST_SWING / depth, high))


def two_cycle(depth: int, target: float, eta: float) -> tuple[float, float]:
    """The two values ρ_1 < σ^{1/L} < ρ_2 = zρ_1 that a balanced mode visits beyond the edge:
    ρ_1^L = σ(1 + z^{L−1})/(1 + z^{2L−1}), with the `swing` z.

    >>> low, high = two_cycle(depth=2, target=10.0, eta=0.11)
    >>> round(low**2, 4), round(high**2, 4)
    (6.6349, 12.456)
    """
    z = swing(depth, target, eta)
    low = (target * (1 + z ** (depth - 1)) / (1 + z ** (2 * depth - 1))) ** (1 / depth)
    return low, z * low


def cycle(depth: int, target: float, eta: float, period: int) -> Array:
    """The points (p,) of the cycle of (1) of period p = 1, 2, 4, …, its least point first. The
    cycle may be unstable, as long as the doubled cycle or the next one is the attractor.

    Beyond period 2, the middle between two points that lie `period` steps apart starts Newton's
    method for F^p(s) = s: on the attractor of twice the period these points lie around the cycle.

    >>> np.allclose(cycle(2, 1.0, 1.1, period=2), two_cycle(2, 1.0, 1.1))
    True
    """
    if period == 1:
        return np.array([target ** (1 / depth)])
    if period == 2:
        return np.array(two_cycle(depth, target, eta))
    x = (1 - 0.3 / depth) * target ** (1 / depth)
    for _ in range(SETTLING_STEPS):
        x = step(x, depth, target, eta)
    later = x
    for _ in range(period):
        later = step(later, depth, target, eta)
    x = (x + later) / 2
    for _ in range(NEWTON_STEPS):
        points = [x]
        for _ in range(period):
            points.append(step(points[-1], depth, target, eta))
        growth = np.prod(slope(np.array(points[:-1]), depth, target, eta))
        change = (points[-1] - x) / (growth - 1)
        x -= change
        if abs(change) < TOLERANCE:
            orbit = np.array(points[:-1])
            return np.roll(orbit, -int(np.argmin(orbit)))
    raise ValueError(f"eta = {eta} has no attracting cycle near period {period} at depth {depth}")


def growth(depth: int, target: float, eta: float, period: int = 2) -> float:
    """The derivative of `period` steps along the `cycle`, the product of its slopes: the cycle
    attracts balanced starts while it lies between −1 and 1. For L = 2, period 2: 9 − 2(1 + ησ)².

    >>> round(growth(depth=2, target=10.0, eta=0.11), 9)
    0.18
    """
    return float(np.prod(slope(cycle(depth, target, eta, period), depth, target, eta)))


def doubling_steps(depth: int, target: float, count: int) -> Array:
    """The first `count` steps η at which the period doubles, 1 → 2 → 4 → …: the edge, then where
    the `growth` of the cycle of period 2, 4, … is −1. For L = 2 the second is (√5 − 1)/σ.

    >>> doubling_steps(depth=2, target=1.0, count=3).round(6)
    array([1.      , 1.236068, 1.288032])
    """
    onsets = [edge(depth, target)]
    for n in range(1, count):
        if n == 1:
            low, high = (onsets[0] * factor for factor in FIRST_BRACKET)
        else:
            gap = onsets[-1] - onsets[-2]
            low, high = (onsets[-1] + gap * factor for factor in LATER_BRACKET)
        onsets.append(_root(_excess(depth, target, 2**n), low, high))
    return np.array(onsets)


# A mode among others


def one_zero(depth: int, targets: ArrayLike, width: int, alpha: float) -> AlignedChain:
    """The start W_L = 0, other layers αI, for the target diag(σ_1..σ_r, 0..0) of size d.

    >>> one_zero(3, [10.0], width=2, alpha=0.1).singular_values[1:]
    (array([0.1, 0.1]), array([0., 0.]))
    """
    layers = np.full((depth, width), alpha)
    layers[-1] = 0
    return _chain(layers, targets)


def minimum(depth: int, targets: ArrayLike, width: int, alpha: float) -> AlignedChain:
    """The strictly balanced minimum: every layer has s_i = σ_i^{1/L} on the modes i ≤ r, and
    (α, …, α, 0) on the null modes i > r. α is the scale of a one-zero start, and 0 for a balanced
    one, whose null modes die out.

    >>> [layer.round(12).tolist() for layer in minimum(3, [8.0], 2, alpha=0.1).singular_values]
    [[2.0, 0.1], [2.0, 0.1], [2.0, 0.0]]
    """
    sigma = real_array("targets", targets, ndim=1)
    layers = np.full((depth, width), alpha)
    layers[-1] = 0
    layers[:, : len(sigma)] = sigma ** (1 / depth)
    return _chain(layers, sigma)


def orbit(
    depth: int,
    targets: Sequence[float],
    eta: float,
    period: int = 2,
    width: int | None = None,
    alpha: float = 0.0,
) -> tuple[AlignedChain, ...]:
    """The states in which mode 1 runs its cycle in every layer and all others rest at `minimum`.

    >>> [state.product.round(4).tolist() for state in orbit(2, [10.0, 1.0], eta=0.11)]
    [[6.6349, 1.0], [12.456, 1.0]]
    """
    rest = minimum(depth, targets, width or len(targets), alpha)
    return tuple(
        replace(
            rest, singular_values=tuple(np.r_[s, values[1:]] for values in rest.singular_values)
        )
        for s in cycle(depth, targets[0], eta, period)
    )


def relabelling_step(depth: int, first: float, second: float) -> float:
    """The step at which the lower value of mode 1 falls to mode 2, ρ_1^L = σ_2: sorted singular
    values exchange names. With q = σ_2/σ_1, ησ_1^{2−2/L} = (z − 1)/((1 − q)q^{1−2/L}), where z is
    the positive root of qz^{2L−1} = z^{L−1} + 1 − q.

    >>> round(relabelling_step(3, 10.0, 9.0), 6)
    0.031399
    """
    q = second / first
    z = _root(
        lambda z: q * z ** (2 * depth - 1) - z ** (depth - 1) - (1 - q), 1.0, (2 / q) ** (1 / depth)
    )
    scaled = (z - 1) / ((1 - q) * q ** (1 - 2 / depth))
    return float(scaled / first ** (2 - 2 / depth))


def transverse_multipliers(
    depth: int, first: float, second: float, eta: float, period: int = 2
) -> NDArray[np.complex128]:
    """The multipliers per period of the block {1, 2} along the cycle of mode 1, without the L − 1
    that equal 1 because rotating a hidden layer changes nothing: L + 1 complex numbers, largest
    modulus first.

    >>> abs(transverse_multipliers(2, 10.0, 9.0, 2 / 19))[:2].round(9)
    array([1., 1.])
    """
    found = multipliers(orbit(depth, [first, second], eta, period), eta)[1, 2]
    moving = found[np.argsort(np.abs(found - 1))[depth - 1 :]]
    return moving[np.argsort(-np.abs(moving), kind="stable")]


def transverse_growth(
    depth: int, first: float, second: float, eta: float, period: int = 2
) -> float:
    """The growth rate per step of a small rotation of modes 1 and 2 into each other: the logarithm
    of the largest modulus of `transverse_multipliers`, by the period.

    >>> round(transverse_growth(3, 10.0, 9.0, 1.10 * edge(3, 10.0)), 4)
    0.0224
    """
    return log(abs(transverse_multipliers(depth, first, second, eta, period)[0])) / period


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


def odd_multipliers(first: float, second: float, eta: float) -> NDArray[np.complex128]:
    """For L = 2, a = ησ_1, b = ησ_2: the two of `transverse_multipliers` that leave the circle,
    the roots of z² − [(1−a−b)(2−b) + 2 + 2b − a]z + [1 + (2−a−b)(1−2a−b)] = 0.

    At a + b = 2 they are exp(±iθ) with cos θ = 3 − 2a:

    >>> z = odd_multipliers(10.0, 9.0, 2 / 19)
    >>> np.allclose([abs(z[0]), z[0].real], [1, 3 - 40 / 19])
    True
    """
    a, b = eta * first, eta * second
    trace = (1 - a - b) * (2 - b) + 2 + 2 * b - a
    determinant = 1 + (2 - a - b) * (1 - 2 * a - b)
    return np.roots([1.0, -trace, determinant]).astype(np.complex128)


# Two modes that rotate into each other


def rotating_edge(depth: int, first: float, second: float) -> float:
    """The step above which two modes have a `rotating_cycle`: 2/λ for the least cross curvature λ
    of a minimum that reads the same forwards and backwards,

        λ = L(σ_1σ_2)^{1−1/L}  for odd L,   n(σ_1σ_2)^{1−1/n}(σ_1^{1/n} + σ_2^{1/n})  for L = 2n.

    >>> rotating_edge(2, 10.0, 9.0) == 2 / 19, round(rotating_edge(3, 10.0, 9.0), 6)
    (True, 0.033196)
    """
    half = depth / 2
    if depth % 2:
        return 2 / (depth * (first * second) ** (1 - 1 / depth))
    spread = first ** (1 / half) + second ** (1 / half)
    return 2 / (half * (first * second) ** (1 - 1 / half) * spread)


def rotating_cycle(depth: int, first: float, second: float, eta: float) -> tuple[LinearChain, ...]:
    """The 2-cycle in which the singular vectors of modes σ_1 > σ_2 swing and their values do not:
    the two states differ in the sign of the off-diagonal entries of all layers.

    For L = 2, cosh 2φ = (η(σ_1 + σ_2) + 2)/4 and W_1 = W_2ᵀ =
    diag(√(1/η + (σ_1−σ_2)/2), √(1/η − (σ_1−σ_2)/2)) [[cosh φ, sinh φ], [sinh φ, cosh φ]].
    For odd L the layers take turns between [[b_2, β], [β, b_1]] and [[b_1, β], [β, b_2]], with
    A = (σ_1+σ_2)/cosh (2L−1)φ, B = (σ_1−σ_2)/cosh φ, 4Δ^L = cosh²((L−1)φ)(A² − B²) and

        b_{2,1} = ½ cosh φ cosh (L−1)φ (A ± B)/Δ^{(L−1)/2},    β = sinh φ √Δ,
        ηΔ^{L−1} = 2 sinh φ cosh (L−1)φ / sinh Lφ.

    >>> one, two = rotating_cycle(3, 10.0, 9.0, eta=0.034)
    >>> one.product.round(4), np.allclose(one.step(0.034).parameters(), two.parameters())
    (array([[9.913 , 1.1357],
           [1.1357, 8.9032]]), True)
    """
    if not eta > rotating_edge(depth, first, second):
        raise ValueError(
            f"eta must exceed {rotating_edge(depth, first, second):.6g}: there is no rotating "
            f"cycle below, got {eta}"
        )
    if depth == 2:
        layers = _two_rotating_layers(first, second, eta)
    elif depth % 2:
        layers = _odd_rotating_layers(depth, first, second, eta)
    else:
        raise ValueError(f"depth must be 2 or odd: no closed form is known for {depth}")
    flip = np.array([[1.0, -1.0], [-1.0, 1.0]])
    return tuple(
        LinearChain(tuple(sign * layer for layer in layers), np.eye(2), np.diag([first, second]))
        for sign in (np.ones((2, 2)), flip)
    )


def _two_rotating_layers(first: float, second: float, eta: float) -> list[Array]:
    if eta * (first - second) >= 2:
        raise ValueError(f"eta must be below 2/(σ_1 − σ_2) = {2 / (first - second):.6g}, got {eta}")
    phi = acosh((eta * (first + second) + 2) / 4) / 2
    sizes = np.sqrt(1 / eta + np.array([1, -1]) * (first - second) / 2)
    layer = sizes[:, None] * np.array([[cosh(phi), sinh(phi)], [sinh(phi), cosh(phi)]])
    return [layer, layer.T]


def _odd_rotating_layers(depth: int, first: float, second: float, eta: float) -> list[Array]:
    n = depth - 1

    def ends(phi: float) -> tuple[float, float]:
        return (first + second) / cosh((depth + n) * phi), (first - second) / cosh(phi)

    def determinant(phi: float) -> float:
        a, b = ends(phi)
        return float((cosh(n * phi) ** 2 * max(a * a - b * b, 0.0) / 4) ** (1 / depth))

    def excess(phi: float) -> float:
        here = 2 * sinh(phi) * cosh(n * phi) / sinh(depth * phi)
        return here - eta * determinant(phi) ** n

    last = _root(lambda phi: ends(phi)[0] - ends(phi)[1], 0.0, 300 / depth)
    phi = _root(excess, SMALLEST_SWING / depth, last)
    a, b = ends(phi)
    scale = cosh(phi) * cosh(n * phi) / determinant(phi) ** (n / 2) / 2
    off, high, low = sinh(phi) * determinant(phi) ** 0.5, scale * (a + b), scale * (a - b)
    pair = np.array([[[high, off], [off, low]], [[low, off], [off, high]]])
    return [pair[layer % 2] for layer in range(depth)]


def _excess(depth: int, target: float, period: int) -> Callable[[float], float]:
    return lambda eta: growth(depth, target, eta, period) + 1


def _chain(layers: Array, targets: ArrayLike) -> AlignedChain:
    """The square aligned chain with layers (L, d), whitened data and target σ."""
    width, sigma = layers.shape[1], real_array("targets", targets, ndim=1)
    return AlignedChain(
        widths=(width,) * (len(layers) + 1),
        singular_values=tuple(layers),
        data=np.ones(width),
        target=np.r_[sigma, np.zeros(width - len(sigma))],
        half_y2=float(sigma @ sigma / 2),
    )


def _root(function: Callable[[float], float], low: float, high: float) -> float:
    """The sign change of `function` between `low` and `high`."""
    return float(brentq(function, low, high, xtol=TOLERANCE, rtol=TOLERANCE))
