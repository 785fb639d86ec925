"""Closed forms of "Learning Dynamics of Deep Matrix Factorization Beyond the Edge of Stability"
under the paper's own numbering, each in the form that holds.

A chain of L ≥ 2 square layers (d, d) learns a target of rank r with singular values
σ_1 > … > σ_r > 0 on the loss ½‖W_L⋯W_1 − M‖², by gradient descent with step η. Throughout

    s_i = σ_i^{1/L} is the singular value that every layer has at the balanced minimum,
    λ_ij = Σ_l s_i^{2(L−l)} s_j^{2(l−1)} is the curvature of the pair (i, j), λ_ii = Lσ_i^{2−2/L},
    ratio = η / (2/λ_ii) says how far beyond its own edge of stability a mode is.

Two starts: *one-zero* (W_L = 0, the others αI) and *balanced* (all αI). Where the printed form
differs, `as_printed=True` gives it. Indices in the formulas count from 1.
"""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import brentq

from exacthessian.aligned import AlignedChain, multipliers
from exacthessian.inputs import Array, nonnegative_number, real_array, whole_number
from exacthessian.spectrum import Spectrum

ROOT_TOLERANCE = 1e-14
STARTS = ("one-zero", "balanced")


def _depth(depth: int) -> int:
    return whole_number("depth", depth, least=2)


def _positive(name: str, number: float) -> float:
    value = nonnegative_number(name, number)
    if value == 0:
        raise ValueError(f"{name} must be positive, got 0")
    return value


def _targets(targets: ArrayLike, width: int) -> Array:
    """σ_1 > … > σ_r > 0 with r ≤ d."""
    sigma = real_array("targets", targets, ndim=1)
    if not 1 <= len(sigma) <= whole_number("width", width, least=1):
        raise ValueError(f"targets must hold 1 to {width} values to fit width, got {len(sigma)}")
    if sigma[-1] <= 0 or np.any(np.diff(sigma) >= 0):
        raise ValueError(f"targets must be positive and strictly decreasing, got {sigma.tolist()}")
    return sigma


def _start(start: str) -> str:
    if start not in STARTS:
        raise ValueError(f"start must be one of {', '.join(STARTS)}, got {start!r}")
    return start


# One mode


def critical_step(depth: int, target: float) -> float:
    """The edge of stability of one balanced mode, η = 2 / (Lσ^{2−2/L}).

    >>> round(critical_step(depth=3, target=10.0), 6)
    0.030944
    """
    depth = _depth(depth)
    return float(2 / (depth * _positive("target", target) ** (2 - 2 / depth)))


def mode_step(value: ArrayLike, depth: int, target: float, step: float) -> Array:
    """One step of gradient descent on a balanced mode, s ← s + η(σ − s^L)s^{L−1}; any shape.

    >>> mode_step([2.0, 3.0], depth=2, target=5.0, step=0.1).round(12)
    array([2.2, 1.8])
    """
    depth, s = _depth(depth), real_array("value", value, ndim=None)
    return np.asarray(s + step * (target - s**depth) * s ** (depth - 1))


def mode_slope(value: ArrayLike, depth: int, target: float, step: float) -> Array:
    """The derivative of `mode_step` in s, 1 + η((L−1)σs^{L−2} − (2L−1)s^{2L−2}); any shape.

    >>> mode_slope(2.0, depth=2, target=5.0, step=0.1)
    array(0.3)
    """
    depth, s = _depth(depth), real_array("value", value, ndim=None)
    curvature = (2 * depth - 1) * s ** (2 * depth - 2) - (depth - 1) * target * s ** (depth - 2)
    return np.asarray(1 - step * curvature)


def _scaled_step(log_swing: float, depth: int) -> float:
    """a = ησ^{2−2/L} of the 2-cycle {x, zx} with z = e^{2v}, v = `log_swing`:
    a = sinh v / sinh Lv · (2cosh (2L−1)v)^{2−2/L} / (2cosh (L−1)v)^{1−2/L}.
    """
    v = log_swing
    sinh_ratio = (1 - depth) * v + np.log(np.expm1(-2 * v) / np.expm1(-2 * depth * v))
    outer, inner = (np.logaddexp(n * v, -n * v) for n in (2 * depth - 1, depth - 1))
    return float(np.exp(sinh_ratio + (2 - 2 / depth) * outer - (1 - 2 / depth) * inner))


def cycle_step(depth: int, target: float, swing: float) -> float:
    """The one step η whose 2-cycle {ρ_1, ρ_2} has swing z = ρ_2/ρ_1 > 1:

        ησ^{2−2/L} = (z − 1)(1 + z^{2L−1})^{2−2/L} / (z^{L−1}(z^L − 1)(1 + z^{L−1})^{1−2/L}).

    It increases from the critical step (z → 1) to ∞. For L = 2 it is (z + 1/z − 1)/σ:

    >>> round(cycle_step(depth=2, target=10.0, swing=2.0), 12)
    0.15
    """
    depth, target = _depth(depth), _positive("target", target)
    if not swing > 1:
        raise ValueError(f"swing must exceed 1, got {swing}")
    scaled = _scaled_step(np.log(swing) / 2, depth)
    return float(scaled / target ** (2 - 2 / depth))


def swing(depth: int, target: float, step: float) -> float:
    """z = ρ_2/ρ_1 of the 2-cycle at step η, the inverse of `cycle_step`.

    >>> round(swing(depth=2, target=10.0, step=0.15), 12)
    2.0
    """
    depth, target = _depth(depth), _positive("target", target)
    edge = critical_step(depth, target)
    if not step > edge:
        raise ValueError(
            f"step must exceed the critical step {edge:.6g}: there is no 2-cycle below, got {step}"
        )
    scaled, high = step * target ** (2 - 2 / depth), 1.0
    while _scaled_step(high, depth) < scaled:
        high *= 2
    return float(np.exp(2 * _root(lambda v: _scaled_step(v, depth) - scaled, 1e-9, high)))


def two_cycle(depth: int, target: float, step: float) -> tuple[float, float]:
    """The two values ρ_1 < σ^{1/L} < ρ_2 a balanced mode visits beyond the edge of stability.

    A balanced mode obeys s ← s + η(σ − s^L)s^{L−1}. It has one 2-cycle for every step above the
    critical one, and none below:
    ρ_1^L = σ(1 + z^{L−1})/(1 + z^{2L−1}) and ρ_2 = zρ_1, with z = ρ_2/ρ_1 from `swing`. Both are
    roots of `orbit_polynomial`: Theorem 1, without the printed factor L.

    >>> low, high = two_cycle(depth=2, target=10.0, step=0.11)
    >>> round(low**2, 4), round(high**2, 4)
    (6.6349, 12.456)
    """
    z = swing(depth, target, step)
    low = (target * (1 + z ** (depth - 1)) / (1 + z ** (2 * depth - 1))) ** (1 / depth)
    return low, z * low


def orbit_polynomial(
    rho: ArrayLike, depth: int, target: float, step: float, as_printed: bool = False
) -> Array:
    """g(ρ) = ρ^L (1 + z^{2L−1}) / (1 + z^{L−1}) − σ with z = 1 + η(σ − ρ^L)ρ^{L−2}, Theorem 1; as
    printed, with ηL for η. Any shape.

    >>> low, high = two_cycle(depth=3, target=10.0, step=0.034)
    >>> bool(abs(orbit_polynomial([low, high], 3, 10.0, 0.034)).max() < 1e-9)
    True
    """
    depth, r = _depth(depth), real_array("rho", rho, ndim=None)
    eta = step * depth if as_printed else step
    z = 1 + eta * (target - r**depth) * r ** (depth - 2)
    return np.asarray(r**depth * (1 + z ** (2 * depth - 1)) / (1 + z ** (depth - 1)) - target)


def cycle_multiplier(depth: int, target: float, step: float) -> float:
    """The derivative of two steps of `mode_step` along its 2-cycle: the product of the slopes at
    both values. The cycle attracts balanced starts when it lies between −1 and 1. For L = 2 it is
    9 − 2(1 + ησ)²:

    >>> round(cycle_multiplier(depth=2, target=10.0, step=0.11), 9)
    0.18
    """
    low, high = two_cycle(depth, target, step)
    slopes = mode_slope([low, high], depth, target, step)
    return float(slopes[0] * slopes[1])


def period_doubling_step(depth: int, target: float) -> float:
    """The step η at which the 2-cycle of a balanced mode gives way to a 4-cycle: its multiplier is
    −1. For L = 2 it is (√5 − 1)/σ:

    >>> round(period_doubling_step(depth=2, target=1.0), 12) == round(5**0.5 - 1, 12)
    True
    >>> round(period_doubling_step(depth=3, target=10.0), 6)
    0.038513
    """
    edge = critical_step(depth, target)
    return edge * _root(
        lambda ratio: cycle_multiplier(depth, target, ratio * edge) + 1, 1.0001, 1.5
    )


# The whole chain


def curvature(depth: int, first: float, second: float) -> float:
    """λ_12 = Σ_{l=1}^L s_1^{2(L−l)} s_2^{2(l−1)} with s = σ^{1/L}: the Hessian eigenvalue of the
    pair of modes σ_1, σ_2 at the balanced minimum (Lemma 1); Lσ^{2−2/L} when they are equal.

    >>> round(2 / curvature(3, 10.0, 9.0), 6), curvature(2, 10.0, 9.0)
    (0.033141, 19.0)
    """
    depth = _depth(depth)
    one, two = first ** (2 / depth), second ** (2 / depth)
    return float(sum(one ** (depth - 1 - k) * two**k for k in range(depth)))


def initial(
    depth: int, targets: ArrayLike, width: int, alpha: float, start: str = "one-zero"
) -> AlignedChain:
    """The paper's start, equation (3): W_L = 0 and the others αI (*one-zero*), or all αI
    (*balanced*), for the target diag(σ_1..σ_r, 0..0) of size d.

    >>> initial(3, [10.0], width=2, alpha=0.1).singular_values[1:]
    (array([0.1, 0.1]), array([0., 0.]))
    """
    depth, sigma = _depth(depth), _targets(targets, width)
    layers = np.full((depth, width), _positive("alpha", alpha))
    if _start(start) == "one-zero":
        layers[-1] = 0
    return _chain(layers, sigma)


def minimum(
    depth: int, targets: ArrayLike, width: int, alpha: float, start: str = "one-zero"
) -> AlignedChain:
    """The strictly balanced global minimum that belongs to a start: every layer has s_i on the
    modes i ≤ r. On the null modes i > r the one-zero start keeps (α, …, α, 0), and the balanced
    start tends to 0.

    >>> [layer.round(12).tolist() for layer in minimum(3, [8.0], 2, alpha=0.1).singular_values]
    [[2.0, 0.1], [2.0, 0.1], [2.0, 0.0]]
    """
    depth, sigma = _depth(depth), _targets(targets, width)
    layers = np.full((depth, width), alpha if _start(start) == "one-zero" else 0.0)
    layers[-1] = 0
    layers[:, : len(sigma)] = sigma ** (1 / depth)
    return _chain(layers, sigma)


def cycle(
    depth: int, targets: ArrayLike, step: float, width: int | None = None, alpha: float = 0.0
) -> tuple[AlignedChain, AlignedChain]:
    """The two states of Theorem 1, corrected: mode 1 at ρ_1 or ρ_2 in every layer, the modes
    2 ≤ j ≤ r at rest at s_j, and on the null modes (α, …, α, 0).

    >>> low, high = cycle(2, [10.0, 4.0], step=0.11)
    >>> (low.product[0] < 10 < high.product[0]).item(), low.step(0.11).product.round(4)
    (True, array([12.456,  4.   ]))
    """
    size = len(real_array("targets", targets, ndim=1)) if width is None else width
    rest = minimum(depth, targets, size, alpha)
    states = []
    for rho in two_cycle(depth, float(rest.target[0]), step):
        layers = np.array(rest.singular_values)
        layers[:, 0] = rho
        states.append(_chain(layers, _targets(targets, size)))
    return states[0], states[1]


def transverse_radius(depth: int, first: float, second: float, step: float) -> float:
    """The largest modulus of a Floquet multiplier of the block {1, 2} along the 2-cycle of mode 1,
    with mode 2 at rest, apart from the L − 1 multipliers that equal 1 by symmetry.

    >>> transverse_radius(2, 10.0, 5.0, step=0.12) < 1 < transverse_radius(2, 10.0, 5.0, step=0.14)
    True
    """
    values = multipliers(cycle(depth, [first, second], step), step)[1, 2]
    transverse = values[np.argsort(np.abs(values - 1))[depth - 1 :]]
    return float(np.abs(transverse).max())


def transverse_onset(depth: int, first: float, second: float) -> float:
    """The step at which the 2-cycle of mode 1 loses transverse stability towards mode 2. For L = 2
    it is 2/(σ_1 + σ_2), which is 2/λ_12; for L > 2 it is later than 2/λ_12:

    >>> round(transverse_onset(2, 10.0, 5.0), 9) == round(2 / 15, 9)
    True
    >>> round(transverse_onset(3, 10.0, 9.0), 6)
    0.033255
    """
    guess = 2 / curvature(depth, first, second)
    edge = critical_step(depth, first)
    return _root(
        lambda step: transverse_radius(depth, first, second, step) - 1,
        edge + 0.5 * (guess - edge),
        1.1 * guess,
    )


def lemma_1(
    depth: int, targets: ArrayLike, width: int, alpha: float, start: str = "one-zero"
) -> Spectrum:
    """All Ld² Hessian eigenvalues at the strictly balanced minimum of a start, Lemma 1 corrected.

    Labels: "self" λ_ii; "pair" λ_ij, twice; "output" s_j^{2L−2}, d − r times each; "input"
    Σ_l s_i^{2(L−l)} α^{2(l−1)}, d − r times each; "null" α^{2L−2}, (d − r)² times; "zero". For the
    balanced start α is replaced by its limit 0, and the "null" eigenvalues join the zeros.

    >>> print(lemma_1(2, [9.0, 4.0], width=3, alpha=0.5))
    18 × 1, 13 × 2, 9.25 × 1, 9 × 1, 8 × 1, 4.25 × 1, 4 × 1, 0.25 × 1, 0 × 9
    """
    depth, sigma = _depth(depth), _targets(targets, width)
    spare, rest = width - len(sigma), alpha if _start(start) == "one-zero" else 0.0
    groups = [
        *((curvature(depth, one, one), 1, "self") for one in sigma),
        *((curvature(depth, a, b), 2, "pair") for k, a in enumerate(sigma) for b in sigma[:k]),
        *((one ** (2 - 2 / depth), spare, "output") for one in sigma),
        *((curvature(depth, one, rest**depth), spare, "input") for one in sigma),
        (rest ** (2 * depth - 2), spare**2, "null" if rest else "zero"),
        (0.0, (depth - 1) * width**2, "zero"),
    ]
    values, counts, labels = zip(*(group for group in groups if group[1]), strict=True)
    return Spectrum.merge([Spectrum(np.array(values), np.array(counts), labels)])


def lemma_1_as_printed(depth: int, targets: ArrayLike, alpha: float) -> Array:
    """The set of non-zero eigenvalues that Lemma 1 prints, ascending and without repetitions.

    >>> lemma_1_as_printed(2, [9.0, 4.0], alpha=0.5).tolist()
    [4.0, 4.25, 8.0, 9.0, 9.25, 13.0, 18.0]
    """
    sigma = real_array("targets", targets, ndim=1)
    own = [curvature(depth, one, one) for one in sigma]
    bulk = [float(one) ** (2 - 2 / depth) for one in sigma]
    pairs = [curvature(depth, a, b) for k, a in enumerate(sigma) for b in sigma[:k]]
    start = [curvature(depth, one, alpha**depth) for one in sigma]
    return np.unique([*own, *bulk, *pairs, *start])


def diagonal_spectrum(
    depth: int, targets: ArrayLike, width: int, alpha: float, as_printed: bool = False
) -> Spectrum:
    """All Ld Hessian eigenvalues of the diagonal network ½‖s_1 ⊙ ⋯ ⊙ s_L − s_*‖² at the minimum
    of the one-zero start: Lσ_i^{2−2/L} once each, α^{2L−2} d − r times, and (L − 1)d zeros
    (Theorem 3). As printed, the null coordinates carry ½(α^{2L−2} ± √((4L−3)α^{4(L−1)²})).

    >>> print(diagonal_spectrum(2, [9.0, 4.0], width=3, alpha=0.5))
    18 × 1, 8 × 1, 0.25 × 1, 0 × 3
    """
    depth, sigma = _depth(depth), _targets(targets, width)
    spare, zeros = width - len(sigma), (depth - 1) * width
    own = [(curvature(depth, one, one), 1, "self") for one in sigma]
    null = [(alpha ** (2 * depth - 2), spare, "null")]
    if as_printed:
        root = np.sqrt((4 * depth - 3) * alpha ** (4 * (depth - 1) ** 2))
        null = [((alpha ** (2 * depth - 2) + sign * root) / 2, spare, "null") for sign in (1, -1)]
        zeros -= spare
    groups = [group for group in (*own, *null, (0.0, zeros, "zero")) if group[1]]
    values, counts, labels = zip(*groups, strict=True)
    return Spectrum.merge([Spectrum(np.array(values), np.array(counts), labels)])


# Theorem 2: the loss along a line


def line_derivatives(
    weights: Sequence[ArrayLike], direction: Sequence[ArrayLike], target: ArrayLike
) -> tuple[float, float, float]:
    """f'', f''', f'''' at μ = 0 of μ ↦ ½‖Π_l (W_l + μD_l) − M‖², from the exact polynomial.

    For two scalar layers 1 + μ and target 1, f = ½(2μ + μ²)²:

    >>> one = [[1.0]]
    >>> line_derivatives([one, one], [one, one], one)
    (4.0, 12.0, 12.0)
    """
    product = [-real_array("target", target, ndim=2)]
    parts: list[Array] = [np.eye(product[0].shape[1])]
    for weight, move in zip(weights, direction, strict=True):
        w, d = real_array("weights", weight, ndim=2), real_array("direction", move, ndim=2)
        stay, shift = [w @ part for part in parts], [d @ part for part in parts]
        zero = np.zeros_like(stay[0])
        parts = [a + b for a, b in zip([*stay, zero], [zero, *shift], strict=True)]
    parts[0] = parts[0] + product[0]
    parts = [*parts, *(np.zeros_like(parts[0]) for _ in range(4))]

    def coefficient(order: int) -> float:
        return float(sum(np.vdot(parts[k], parts[order - k]) for k in range(order + 1)) / 2)

    return 2 * coefficient(2), 6 * coefficient(3), 24 * coefficient(4)


def self_derivatives(depth: int, target: float) -> tuple[float, float, float]:
    """f'', f''', f'''' of the loss along the unit direction of a mode at the balanced minimum,
    f(μ) = ½((s + μ/√L)^L − s^L)²: Ls^{2L−2}, 3√L(L−1)s^{2L−3}, (L−1)(7L−11)s^{2L−4} (Theorem 2).

    >>> self_derivatives(depth=2, target=1.0)[0], self_derivatives(depth=3, target=1.0)[2]
    (2.0, 20.0)
    """
    depth, s = _depth(depth), _positive("target", target) ** (1 / depth)
    return (
        depth * s ** (2 * depth - 2),
        3 * depth**0.5 * (depth - 1) * s ** (2 * depth - 3),
        (depth - 1) * (7 * depth - 11) * s ** (2 * depth - 4),
    )


def self_criterion(depth: int, target: float) -> float:
    """3f'''² − f''f'''' along the direction of a mode: 4L(L−1)(5L−4)s^{4L−6} > 0 (Theorem 2).

    >>> self_criterion(depth=2, target=1.0), self_criterion(depth=3, target=1.0)
    (48.0, 264.0)
    """
    depth, s = _depth(depth), _positive("target", target) ** (1 / depth)
    return float(4 * depth * (depth - 1) * (5 * depth - 4) * s ** (4 * depth - 6))


def pair_direction(depth: int, targets: ArrayLike, i: int, j: int) -> tuple[Array, ...]:
    """The unit eigenvector of λ_ij at the balanced minimum diag(s_1..s_r): layer l carries
    s_i^{L−l} s_j^{l−1} / √λ_ij at the entry (i, j). One (r, r) matrix for each layer.

    >>> pair_direction(2, [4.0, 1.0], 1, 2)[0].round(6)
    array([[0.      , 0.894427],
           [0.      , 0.      ]])
    """
    depth, sigma = _depth(depth), real_array("targets", targets, ndim=1)
    s = sigma ** (1 / depth)
    weights = s[i - 1] ** np.arange(depth - 1, -1, -1) * s[j - 1] ** np.arange(depth)
    entry = np.zeros((len(s), len(s)))
    entry[i - 1, j - 1] = 1
    return tuple(weight * entry for weight in weights / np.linalg.norm(weights))


# Lemmas 2 to 7: balancing of one mode


def balancing_loss(factors: ArrayLike, target: float, step: float, i: int, j: int) -> float:
    """q_ij = η²(π − σ)²π² / (σ_iσ_j)², by which one step shrinks the gap of two factors of a mode:
    b' = (1 − q)b for b = σ_i² − σ_j² (Lemma 4). `factors` (L,) are σ_1..σ_L, π their product.

    >>> balancing_loss([2.0, 1.0], target=3.0, step=0.5, i=1, j=2)
    0.25
    """
    sigma = real_array("factors", factors, ndim=1)
    if not 1 <= min(i, j) < max(i, j) <= len(sigma):
        raise ValueError(f"i and j must be two different factors of {len(sigma)}, got {i}, {j}")
    others = np.prod(np.delete(sigma, [i - 1, j - 1]))
    return float((step * (np.prod(sigma) - target) * others) ** 2)


def cycle_balancing(depth: int, target: float, step: float) -> float:
    """The factor 5 − 2(z + 1/z) by which two steps on the 2-cycle multiply a small imbalance.

    For L = 2 it is 3 − 2ησ:

    >>> round(cycle_balancing(depth=2, target=10.0, step=0.11), 12)
    0.8
    """
    z = swing(depth, target, step)
    return 5 - 2 * (z + 1 / z)


def flow_limit(factors: ArrayLike, target: float) -> Array:
    """The minimum to which gradient flow leads positive factors (L,) of a mode: differences of
    squares stay (Lemma 6), the product becomes σ.

    >>> flow_limit([2.0, 2.0, 2.0], target=1.0).round(12)
    array([1., 1., 1.])
    """
    squares = real_array("factors", factors, ndim=1) ** 2
    gaps = squares - squares.min()
    goal = 2 * np.log(_positive("target", target))
    # The least square is at most σ^{2/L}, because the others are not smaller.
    high = goal / len(gaps) + 1
    least = np.exp(_root(lambda u: float(np.log(gaps + np.exp(u)).sum() - goal), -700.0, high))
    limit: Array = np.sqrt(gaps + least)
    return limit


def flow_sharpness(factors: ArrayLike, target: float) -> float:
    """ψ = Σ_i σ²/z_i² at the minimum z to which gradient flow leads (Definition 3, Lemma 7).

    >>> round(flow_sharpness([2.0, 2.0], target=3.0), 12)
    6.0
    """
    return float(np.sum((target / flow_limit(factors, target)) ** 2))


def alpha_bound(depth: int, target: float, step: float, form: str = "sharp") -> float:
    """Scales α below which the one-zero start has ψ < 2√2/η (Lemma 5):
    α⁴ < C σ^{4/L} ln(2√2 / (ηLσ^{2−2/L})).

    C is 2L²/(L−1)^{3−4/L} (*sharp*), or, with 1/C = L²2^e, e = (2L−3)/L (*statement*, printed in
    Lemmas 2 and 5), 2(L−1)/L (*proof*, printed at the end of the proof), (L−2)/L (*derived*, what
    the printed proof gives).

    >>> edge = 1.05 * critical_step(3, 10.0)
    >>> [round(alpha_bound(3, 10.0, edge, form), 3) for form in ("statement", "proof", "sharp")]
    [0.773, 0.729, 2.456]
    """
    depth, target = _depth(depth), _positive("target", target)
    forms = {
        "sharp": 2 * depth**2 / (depth - 1) ** (3 - 4 / depth),
        "statement": 2 ** -((2 * depth - 3) / depth) / depth**2,
        "proof": 2 ** -(2 * (depth - 1) / depth) / depth**2,
        "derived": 2 ** -((depth - 2) / depth) / depth**2,
    }
    if form not in forms:
        raise ValueError(f"form must be one of {', '.join(forms)}, got {form!r}")
    room = np.log(np.sqrt(2) * critical_step(depth, target) / _positive("step", step))
    if room <= 0:
        raise ValueError(
            f"step must be below √2 times the critical step "
            f"{critical_step(depth, target):.6g}, got {step}"
        )
    return float((forms[form] * target ** (4 / depth) * room) ** 0.25)


def _chain(layers: Array, sigma: Array) -> AlignedChain:
    """The square aligned chain with layers (L, d), whitened data and target σ."""
    width = layers.shape[1]
    target = np.zeros(width)
    target[: len(sigma)] = sigma
    return AlignedChain(
        widths=(width,) * (len(layers) + 1),
        singular_values=tuple(layers),
        data=np.ones(width),
        target=target,
        half_y2=float(sigma @ sigma / 2),
    )


def _root(function: Callable[[float], float], low: float, high: float) -> float:
    """The sign change of `function` between `low` and `high`."""
    return float(brentq(function, low, high, xtol=ROOT_TOLERANCE, rtol=ROOT_TOLERANCE))
