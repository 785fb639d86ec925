"""Closed forms of "Learning Dynamics of Deep Matrix Factorization Beyond the Edge of Stability"
under the paper's own numbering, each in the form that holds.

A chain of L ≥ 2 square layers (d, d) learns a target of rank r with singular values
σ_1 > … > σ_r > 0 on the loss ½‖W_L⋯W_1 − M‖², by gradient descent with step η. Throughout
s_i = σ_i^{1/L}, and λ_ij is the `curvature` of the pair (i, j) at the balanced minimum.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import brentq

from exacthessian import mode
from exacthessian.inputs import Array, guard, real_array
from exacthessian.spectrum import Spectrum


def lemma_1(depth: int, targets: Sequence[float], width: int, alpha: float) -> Spectrum:
    """All Ld² Hessian eigenvalues at the strictly balanced `mode.minimum`, whose null modes have
    (α, …, α, 0): α is the scale of a one-zero start, and 0 for a balanced one.

    Labels: "self" λ_ii; "pair" λ_ij, twice; "output" s_j^{2L−2}, d − r times each; "input"
    Σ_l s_i^{2(L−l)} α^{2(l−1)}, d − r times each; "null" α^{2L−2}, (d − r)² times; "zero".

    >>> print(lemma_1(2, [9.0, 4.0], width=3, alpha=0.5))
    18 × 1, 13 × 2, 9.25 × 1, 9 × 1, 8 × 1, 4.25 × 1, 4 × 1, 0.25 × 1, 0 × 9
    """
    spare = width - len(targets)
    null = alpha**depth
    return Spectrum.of(
        *((mode.curvature(depth, t, t), 1, "self") for t in targets),
        *((mode.curvature(depth, t, u), 2, "pair") for t in targets for u in targets if u < t),
        *((t ** (2 - 2 / depth), spare, "output") for t in targets),
        *((mode.curvature(depth, t, null), spare, "input") for t in targets),
        (alpha ** (2 * depth - 2), spare**2, "null" if alpha else "zero"),
        (0.0, (depth - 1) * width**2, "zero"),
    )


def theorem_1(depth: int, target: float, eta: float) -> tuple[float, float]:
    """The two values ρ_1 < σ_1^{1/L} < ρ_2 between which the top singular value of every layer
    swings: the roots, apart from σ_1^{1/L}, of

        g(ρ) = ρ^L (1 + ζ^{2L−1})/(1 + ζ^{L−1}) − σ_1,    ζ = 1 + η(σ_1 − ρ^L)ρ^{L−2},

    which are known in closed form.

    >>> low, high = theorem_1(depth=3, target=10.0, eta=0.034)
    >>> round(low**3, 4), round(high**3, 4)
    (7.3242, 11.9326)
    """
    return mode.two_cycle(depth, target, eta)


def theorem_1_range(depth: int, first: float, second: float) -> tuple[float, float]:
    """The steps between which the 2-cycle of Theorem 1 is known to attract: from the edge of mode 1
    to the first of 2/λ_12 and the step at which the period doubles.

    >>> [round(10 * eta, 6) for eta in theorem_1_range(2, 10.0, 1.0)]
    [1.0, 1.236068]
    """
    born, doubled = mode.doubling_steps(depth, first, 2)
    return float(born), float(min(doubled, 2 / mode.curvature(depth, first, second)))


def theorem_2(depth: int, target: float) -> tuple[float, float, float]:
    """f'', f''', f'''' of the loss along the unit eigenvector of λ_ii at the balanced minimum,
    f(μ) = ½((s + μ/√L)^L − s^L)²: Ls^{2L−2}, 3√L(L−1)s^{2L−3}, (L−1)(7L−11)s^{2L−4}. Hence the
    test 3f'''² − f''f'''' = 4L(L−1)(5L−4)s^{4L−6} > 0 holds along it, for every L ≥ 2.

    >>> theorem_2(depth=2, target=1.0)[0], theorem_2(depth=3, target=1.0)[2]
    (2.0, 20.0)
    """
    s = target ** (1 / depth)
    third = 3 * depth**0.5 * (depth - 1) * s ** (2 * depth - 3)
    fourth = (depth - 1) * (7 * depth - 11) * s ** (2 * depth - 4)
    return depth * s ** (2 * depth - 2), third, fourth


def theorem_3(depth: int, targets: Sequence[float], eta: float) -> Array:
    """The values {ρ_i1, ρ_i2} (p, 2) between which the factors of the coordinates i ≤ p of a
    diagonal network swing, for all p with 2/η < S_p = Lσ_p^{2−2/L}.

    >>> theorem_3(2, [10.0, 4.0], eta=0.11).round(4)
    array([[2.5758, 3.5293]])
    """
    cycles = [mode.two_cycle(depth, t, eta) for t in targets if eta > mode.edge(depth, t)]
    return np.reshape(cycles, (-1, 2))


def theorem_3_spectrum(depth: int, targets: Sequence[float], width: int, alpha: float) -> Spectrum:
    """All Ld Hessian eigenvalues of the diagonal network ½‖s_1 ⊙ ⋯ ⊙ s_L − s_*‖² at the minimum
    of the one-zero start: Lσ_i^{2−2/L} once each, α^{2L−2} d − r times, and (L − 1)d zeros.

    >>> print(theorem_3_spectrum(2, [9.0, 4.0], width=3, alpha=0.5))
    18 × 1, 8 × 1, 0.25 × 1, 0 × 3
    """
    return Spectrum.of(
        *((mode.curvature(depth, t, t), 1, "self") for t in targets),
        (alpha ** (2 * depth - 2), width - len(targets), "null"),
        (0.0, (depth - 1) * width, "zero"),
    )


def lemma_4(factors: ArrayLike, target: float, eta: float) -> Array:
    """1 − q_ij (L, L), by which one step multiplies the gap Γ = s_i² − s_j² of two factors of a
    mode: q_ij = η²(π − σ)²π²/(s_i s_j)². `factors` (L,) are s_1..s_L, not 0, and π their product.

    >>> lemma_4([2.0, 1.0], target=3.0, eta=0.5)[0, 1]
    np.float64(0.75)
    """
    s = real_array("factors", factors, ndim=1)
    product = s.prod()
    return 1 - (eta * (product - target) * product / np.outer(s, s)) ** 2


def lemma_6(factors: ArrayLike, target: float) -> Array:
    """The minimum (L,) to which gradient flow leads positive factors of a mode: the differences of
    their squares stay, and the product becomes σ.

    >>> lemma_6([2.0, 2.0, 2.0], target=1.0).round(12)
    array([1., 1., 1.])
    """
    squares = real_array("factors", factors, ndim=1) ** 2
    gaps, goal = squares - squares.min(), 2 * np.log(target)

    def excess(u: float) -> float:  # e^u is the least square, at most σ^{2/L}
        return np.log(gaps + np.exp(u)).sum() - goal

    least = brentq(excess, -700.0, goal / len(gaps) + 1, xtol=1e-14, rtol=1e-14)
    return np.sqrt(gaps + np.exp(least))


def lemma_7(factors: ArrayLike) -> float:
    """The sharpness Σ_i σ²/s_i² at a minimum s_1⋯s_L = σ of ½(Π_l s_l − σ)².

    >>> lemma_7([2.0, 3.0])
    13.0
    """
    s = real_array("factors", factors, ndim=1)
    return float(np.sum((s.prod() / s) ** 2))


def definition_3(factors: ArrayLike, target: float) -> float:
    """ψ, the sharpness at the minimum to which gradient flow leads.

    >>> round(definition_3([2.0, 2.0], target=3.0), 12)
    6.0
    """
    return lemma_7(lemma_6(factors, target))


guard(globals())
