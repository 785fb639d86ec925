"""The numbered forms of "Depth, Not Data", each in the form that holds.

A network of depth L ≥ 2 with widths d_0..d_L learns a target with r singular values 1. Its inputs
are whitened on ρ directions: Σxx is a projector of rank ρ. In fixed orthonormal bases every layer
is diagonal with the same entries λ_1, …, λ_{d*}, d* = min(d_0, d_L). The first r entries are
active, the others spare; ω_i = λ_i^L − 1 (i ≤ r) is the residual of an active mode, and
ν_ij = Σ_l λ_i^{2(L−l)} λ_j^{2(l−1)} the curvature of the pair (i, j), with 0⁰ = 1.

`lam` holds all d* entries, or the r active ones when the spare ones are 0. Indices count from 1.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike

from exacthessian.chain import LinearChain
from exacthessian.inputs import Array, guard, require, settle, whole_number
from exacthessian.mode import curvature
from exacthessian.spectrum import Spectrum


@dataclass(frozen=True)
class Setting:
    """The sizes that Assumptions 3.1 and 3.2 fix: `widths` d_0..d_L, every hidden width at least
    d* = min(d_0, d_L), the target's rank r and the rank ρ of the whitened inputs, r ≤ ρ ≤ d_0.

    >>> Setting.whitened((10, 20, 20, 16), rank=4)
    Setting(widths=(10, 20, 20, 16), rank=4, data_rank=10)
    """

    widths: tuple[int, ...]
    rank: int
    data_rank: int

    def __post_init__(self) -> None:
        settle(self, widths=tuple(whole_number("widths", width, 1) for width in self.widths))
        widths, rank = self.widths, whole_number("rank", self.rank, least=1)
        require(len(widths) > 2, "widths must hold d_0..d_L with depth L ≥ 2", widths)
        ends, least = self.ends, min(widths)
        require(least == ends, f"widths must be at least d* = {ends}, hidden ones too", widths)
        require(rank <= ends, f"rank must be at most d* = {ends} to fit widths {widths}", rank)
        known = whole_number("data_rank", self.data_rank, least=1)
        spans = f"data_rank must lie between the rank {rank} of the target and d_0 = {widths[0]}"
        require(rank <= known <= widths[0], spans, known)

    @classmethod
    def whitened(cls, widths: Sequence[int], rank: int) -> "Setting":
        """Assumption 3.1 as stated: Σxx ≃ I_{d*}, so ρ = d*.

        >>> Setting.whitened((7, 8, 8, 5), rank=2).data_rank
        5
        """
        return cls(tuple(widths), rank, min(widths[0], widths[-1]))

    @classmethod
    def signal_only(cls, widths: Sequence[int], rank: int) -> "Setting":
        """Assumption 3.1 as the proofs of Lemmas A.2–A.8 use it: Σxx ≃ I_r, so ρ = r.

        >>> Setting.signal_only((7, 8, 8, 5), rank=2).data_rank
        2
        """
        return cls(tuple(widths), rank, rank)

    @property
    def depth(self) -> int:
        """The number of layers L."""
        return len(self.widths) - 1

    @property
    def ends(self) -> int:
        """d* = min(d_0, d_L)."""
        return min(self.widths[0], self.widths[-1])

    @property
    def size(self) -> int:
        """The number of parameters P = Σ_l d_l d_{l−1}.

        >>> Setting.whitened((10, 20, 16), rank=4).size
        520
        """
        return sum(right * left for right, left in pairwise(self.widths))

    @property
    def bulk(self) -> int:
        """The size of the bulk, r(ρ + d_L − 2r): one index outside the signal, on either side.

        >>> Setting.whitened((10, 20, 16), rank=4).bulk, Setting((7, 8, 8, 5), 2, 5).bulk
        (72, 12)
        """
        return self.rank * (self.data_rank + self.widths[-1] - 2 * self.rank)


def lemma_3_4(setting: Setting, lam: ArrayLike, eta: float, steps: int) -> Array:
    """The diagonals of all layers after `steps` steps, (L, n): every row is the same, and moves by
    the law of `lemma_a_2`.

    >>> lemma_3_4(Setting.whitened((2, 2, 2), rank=1), [2.0, 1.0], eta=0.1, steps=1).round(12)
    array([[1.4, 0.9],
           [1.4, 0.9]])
    """
    values = np.asarray(lam, dtype=float)
    for _ in range(steps):
        values = lemma_a_2(setting, values, eta)
    return np.tile(values, (setting.depth, 1))


def equation_8(depth: int, lam: ArrayLike) -> Array:
    """The ends L(m ∓ δ)^{2L−2} of the dominant interval, [m − δ, m + δ] the range of the active
    entries `lam`. Divided by L they are the ends of the bulk interval, equation (9).

    >>> equation_8(2, [1.0, 2.0])
    array([2., 8.])
    """
    return depth * np.array([np.min(lam), np.max(lam)], dtype=float) ** (2 * depth - 2)


def theorem_3_5(setting: Setting, lam: ArrayLike) -> Spectrum:
    """The spectrum of H at λ = (λ_1, …, λ_r, 0, …, 0), at any step. Exact, with e_l = d_l − r:

        bulk      λ_i^{2L−2}, ρ + d_L − 2r times for each i ≤ r;
        fringe    ±ω_i λ_i^{L−2}, Σ_{0<h<L} e_h times for each i ≤ r and sign;
        zero      Σ_l e_l e_{l−1} + r(d_0 − ρ) times;

    and up to (L − 1) max_i λ_i^{L−2} max_i |ω_i| (the norm of H_f):

        dominant  ν_ij for i, j ≤ r;
        inner     0, (L − 1)r² times.

    >>> theorem_3_5(Setting.whitened((2, 2, 2), rank=1), [0.5])
    Spectrum(0.75 × 1, 0.5 × 1, 0.25 × 2, 0 × 3, -0.75 × 1)
    """
    values, depth, r = np.asarray(lam, dtype=float), setting.depth, setting.rank
    sigma = values**depth
    spare = [width - r for width in setting.widths]
    fringe = (sigma - 1) * values ** (depth - 2)
    zeros = sum(e * f for e, f in pairwise(spare)) + r * (setting.widths[0] - setting.data_rank)
    return Spectrum.of(
        *((nu, 1, "dominant") for nu in curvature(depth, sigma[:, None], sigma).ravel()),
        *((value, setting.bulk // r, "bulk") for value in values ** (2 * depth - 2)),
        *((value, sum(spare[1:-1]), "fringe") for value in [*fringe, *-fringe]),
        (0.0, (depth - 1) * r**2, "inner"),
        (0.0, zeros, "zero"),
    )


def equation_10(depth: int, kappa: float) -> tuple[float, float]:
    """L/κ and Lκ, the smallest and largest ratio of a dominant to a bulk eigenvalue of H_o when
    κ = ((m + δ)/(m − δ))^{2L−2}. During training κ → 1, and both tend to L.

    >>> equation_10(depth=10, kappa=2.0)
    (5.0, 20.0)
    """
    return depth / kappa, depth * kappa


def corollary_3_6(setting: Setting, mu: float) -> Spectrum:
    """All P eigenvalues of H at a uniform point λ_i = μ (i ≤ r), 0 otherwise, at any step. With
    g = μ^{2L−2}, τ = (μ^L − 1)μ^{L−2} and e = Σ_{0<h<L} (d_h − r):

        Lg + (L−1)τ   r(r+1)/2            −τ   (L−1)r(r+1)/2 + re
        Lg − (L−1)τ   r(r−1)/2            +τ   (L−1)r(r−1)/2 + re
        g             r(ρ + d_L − 2r)      0   the rest

    >>> corollary_3_6(Setting.whitened((2, 2, 2), rank=1), mu=0.5)
    Spectrum(0.75 × 2, 0.25 × 2, 0 × 2, -0.25 × 1, -0.75 × 1)
    """
    depth, r = setting.depth, setting.rank
    g, tau = mu ** (2 * depth - 2), (mu**depth - 1) * mu ** (depth - 2)
    more, less, spare = r * (r + 1) // 2, r * (r - 1) // 2, sum(setting.widths[1:-1])
    fringe = r * (spare - r * (depth - 1))
    rest = setting.size - depth * r**2 - setting.bulk - 2 * fringe
    return Spectrum.of(
        (depth * g + (depth - 1) * tau, more, "dominant"),
        (depth * g - (depth - 1) * tau, less, "dominant"),
        (g, setting.bulk, "bulk"),
        (-tau, (depth - 1) * more + fringe, "fringe"),
        (tau, (depth - 1) * less + fringe, "fringe"),
        (0.0, rest, "zero"),
    )


def equation_11(depth: int, mu: float) -> tuple[float, float]:
    """The ratios of a dominant to a bulk eigenvalue at a uniform point: (2L − 1) − (L − 1)μ^{−L} in
    the symmetric half, 1 + (L − 1)μ^{−L} in the antisymmetric one (r ≥ 2). Both are L at μ = 1; the
    first exceeds 1 exactly when μ^L > ½.

    >>> equation_11(depth=2, mu=0.5)
    (-1.0, 5.0)
    """
    return 2 * depth - 1 - (depth - 1) * mu**-depth, 1 + (depth - 1) * mu**-depth


def lemma_a_1(setting: Setting, mu: float) -> Spectrum:
    """The spectrum of H_o at a uniform point λ_i = μ (i ≤ r), 0 otherwise: with g = μ^{2L−2} it is
    Lg, r² times, g, r(ρ + d_L − 2r) times, and 0 for the rest.

    >>> lemma_a_1(Setting.whitened((7, 8, 8, 5), rank=2), mu=1.0)
    Spectrum(3 × 4, 1 × 12, 0 × 144)
    """
    return lemma_a_9(setting, np.full(setting.rank, mu))


def lemma_a_2(setting: Setting, lam: ArrayLike, eta: float) -> Array:
    """One step of gradient descent on the shared diagonal, (n,):

        λ_i ← λ_i − η λ_i^{L−1} (x_i λ_i^L − y_i),  x_i = [i ≤ ρ],  y_i = [i ≤ r],

    for bases in which every column of V lies in the range or in the kernel of Σxx.

    >>> lemma_a_2(Setting.whitened((2, 2, 2), rank=1), [2.0, 1.0], eta=0.1).round(12)
    array([1.4, 0.9])
    """
    values, depth = np.asarray(lam, dtype=float), setting.depth
    mode = np.arange(len(values))
    residual = (mode < setting.data_rank) * values**depth - (mode < setting.rank)
    return values - eta * values ** (depth - 1) * residual


def lemma_a_3(setting: Setting, lam: ArrayLike) -> Array:
    """The limits of the diagonal, (n,): 1 for i ≤ r, 0 for r < i ≤ ρ, and λ_i itself beyond, from
    any start λ_i > 0 and step η < min(1/L, M^{−(2L−2)}), M the largest of 1 and λ_i, i ≤ ρ.

    >>> lemma_a_3(Setting((3, 3, 3), rank=1, data_rank=2), [0.5, 0.6, 0.7])
    array([1. , 0. , 0.7])
    """
    mode = np.arange(len(np.asarray(lam)))
    return np.where(mode < setting.rank, 1.0, np.where(mode < setting.data_rank, 0.0, lam))


def lemma_a_4(lam: ArrayLike, eta: float) -> float:
    """C_min = min(λ_{1,0}, …, λ_{r,0}, η): no active entry ever falls below it.

    >>> lemma_a_4([0.3, 1.5], eta=0.1), lemma_a_4([0.03, 1.5], eta=0.1)
    (0.1, 0.03)
    """
    return min(float(np.min(lam)), eta)


def lemma_a_5(norms: ArrayLike) -> float:
    """The bound (Σ_kl ‖H^{kl}‖²)^{1/2} on a block matrix, from the norms (L, L) of its blocks.

    >>> lemma_a_5([[0.0, 3.0], [4.0, 0.0]])
    5.0
    """
    return float(np.linalg.norm(norms))


def lemma_a_6(setting: Setting, lam: ArrayLike, excess: float) -> float:
    """The bound (L − 1) max_i λ_i^{L−2} √(2ε) on ‖H_f‖, ε the loss above its minimum: attained at
    width one, and never above the printed max_i λ_i^{L−2} √(2L(L − 1)rε).

    >>> lemma_a_6(Setting.whitened((1, 1, 1, 1), rank=1), [2.0], excess=0.5)
    4.0
    """
    depth = setting.depth
    return float((depth - 1) * np.max(lam) ** (depth - 2) * np.sqrt(2 * excess))


def lemma_a_7(setting: Setting, lam: ArrayLike, eta: float, steps: int) -> float:
    """The factor (1 − Lηα)^{2t} ≤ e^{−2Lαηt}, by which the excess loss has shrunk at least after
    t = `steps` steps; α = min(1, λ_i)^{2L−2} over the active entries of the *start* `lam`.

    Needs spare entries that are 0 or have no inputs (r = ρ), and η ≤ 1/(L·M^{2L−2}).

    >>> lemma_a_7(Setting.whitened((1, 1, 1), rank=1), [0.5], eta=0.5, steps=1)
    0.5625
    """
    active = np.asarray(lam, dtype=float)[: setting.rank]
    alpha = min(1.0, float(active.min())) ** (2 * setting.depth - 2)
    return (1 - setting.depth * eta * alpha) ** (2 * steps)


def lemma_a_8(setting: Setting, lam: ArrayLike, eta: float, steps: int) -> float:
    """The bound (L − 1) M^{L−2} max_{i≤r}|ω_{i,0}| (1 − Lηα)^t on ‖H_f‖ after t = `steps` steps,
    M = max(1, λ_{i,0}), under the hypotheses of `lemma_a_7`.

    >>> lemma_a_8(Setting.whitened((1, 1, 1), rank=1), [0.5], eta=0.5, steps=1)
    0.5625
    """
    values, depth = np.asarray(lam, dtype=float), setting.depth
    largest = max(1.0, float(values.max()))
    residual = float(np.abs(values[: setting.rank] ** depth - 1).max())
    first = (depth - 1) * largest ** (depth - 2) * residual
    return float(first * np.sqrt(lemma_a_7(setting, lam, eta, steps)))


def lemma_a_9(setting: Setting, lam: ArrayLike) -> Spectrum:
    """The spectrum of H_o at λ = (λ_1, …, λ_r, 0, …, 0): ν_ij once for every i, j ≤ r, λ_i^{2L−2}
    ρ + d_L − 2r times for every i ≤ r, and 0 for the remaining P − r(ρ + d_L − r) directions.

    >>> lemma_a_9(Setting.whitened((3, 3, 2), rank=2), [2.0, 1.0])
    Spectrum(8 × 1, 5 × 2, 2 × 1, 0 × 11)
    """
    values, r, depth = np.asarray(lam, dtype=float), setting.rank, setting.depth
    sigma = values**depth
    return Spectrum.of(
        *((nu, 1, "dominant") for nu in curvature(depth, sigma[:, None], sigma).ravel()),
        *((value, setting.bulk // r, "bulk") for value in values ** (2 * depth - 2)),
        (0.0, setting.size - r**2 - setting.bulk, "zero"),
    )


def lemma_a_10(chain: LinearChain, u: Array, v: Array) -> Array:
    """The vector A_o(u ⊗ v) (P,): layer l holds (W_L ⋯ W_{l+1})ᵀu times (W_{l−1} ⋯ W_1 v)ᵀ.

    With u = u_i, v = v_j and v_j in the range of Σxx it is an eigenvector of H_o, and its squared
    length ν_ij is the eigenvalue; so H_o is the sum of A_o(u_i ⊗ v_j)A_o(u_i ⊗ v_j)ᵀ over these.

    >>> lemma_a_10(LinearChain([[[2.0]], [[3.0]]], [[1.0]], [[0.0]]), np.ones(1), np.ones(1))
    array([3., 2.])
    """
    around = zip(chain.after, chain.before, strict=True)
    return np.concatenate([np.outer(A.T @ u, B @ v).ravel() for A, B in around])


def lemma_a_11(setting: Setting, lam: ArrayLike) -> Array:
    """The P numbers in descending order that the eigenvalues of H follow, each within ‖H_f‖: all
    ν_ij with i ≤ d_L and j ≤ ρ, then zeros.

    >>> lemma_a_11(Setting.whitened((2, 2, 2), rank=1), [1.0])
    array([2., 1., 1., 0., 0., 0., 0., 0.])
    """
    sigma = np.append(np.asarray(lam, dtype=float) ** setting.depth, np.zeros(max(setting.widths)))
    rows, columns = sigma[: setting.widths[-1]], sigma[: setting.data_rank]
    nu = curvature(setting.depth, rows[:, None], columns).ravel()
    return np.sort(np.concatenate([nu, np.zeros(setting.size - len(nu))]))[::-1]


guard(globals())
