"""Closed forms of "Depth, Not Data" under the paper's own numbering, each in the form that holds.

A network of depth L ≥ 2 with widths d_0..d_L learns a target with r singular values 1. Its inputs
are whitened on ρ directions: Σxx is a projector of rank ρ. It starts balanced and aligned: in fixed
orthonormal bases every layer is diagonal with the same entries λ_1, …, λ_{d*}, d* = min(d_0, d_L).
The first r entries are active, the others spare. Throughout

    ω_i = λ_i^L − 1 (i ≤ r) is the residual of an active mode,
    ν_ij = Σ_l λ_i^{2(L−l)} λ_j^{2(l−1)} is the curvature of the pair (i, j), with 0⁰ = 1.

Where the printed form differs, `as_printed=True` gives it. Indices in the formulas count from 1.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike

from exacthessian.aligned import AlignedChain
from exacthessian.chain import LinearChain
from exacthessian.inputs import Array, nonnegative_number, real_array, whole_number
from exacthessian.spectrum import Spectrum


@dataclass(frozen=True)
class Setting:
    """The sizes that Assumptions 3.1 and 3.2 fix: `widths` d_0..d_L, every hidden width at least
    d* = min(d_0, d_L), the target's rank r and the rank ρ of the whitened inputs, r ≤ ρ ≤ d_0.

    The paper uses two values of ρ: d* (`Setting.whitened`, Assumption 3.1) and r
    (`Setting.signal_only`, the proofs of Lemmas A.3 and A.6–A.8).

    >>> Setting.whitened((10, 20, 20, 16), rank=4)
    Setting(widths=(10, 20, 20, 16), rank=4, data_rank=10)
    """

    widths: tuple[int, ...]
    rank: int
    data_rank: int

    def __post_init__(self) -> None:
        widths = tuple(whole_number("widths", width, least=1) for width in self.widths)
        if len(widths) < 3:
            raise ValueError(
                f"widths must hold d_0..d_L with depth L ≥ 2, got {widths} of depth "
                f"{len(widths) - 1}: one layer has one cluster"
            )
        ends = min(widths[0], widths[-1])
        if min(widths) < ends:
            raise ValueError(
                f"widths must have every hidden width at least d* = {ends}, got {widths}"
            )
        rank = whole_number("rank", self.rank, least=1)
        if rank > ends:
            raise ValueError(f"rank must be at most d* = {ends} to fit widths {widths}, got {rank}")
        data_rank = whole_number("data_rank", self.data_rank, least=1)
        if not rank <= data_rank <= widths[0]:
            raise ValueError(
                f"data_rank must lie between the target's rank {rank} and d_0 = {widths[0]}, "
                f"got {data_rank}: the inputs must span what the target reads"
            )
        object.__setattr__(self, "widths", widths)

    @classmethod
    def whitened(cls, widths: Sequence[int], rank: int) -> "Setting":
        """Assumption 3.1 as stated: Σxx ≃ I_{d*}, so ρ = d*.

        >>> Setting.whitened((7, 8, 8, 5), rank=2).data_rank
        5
        """
        return cls(tuple(widths), rank, min(widths[0], widths[-1]))

    @classmethod
    def signal_only(cls, widths: Sequence[int], rank: int) -> "Setting":
        """Assumption 3.1 as the proofs use it: Σxx ≃ I_r, so ρ = r.

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
        """The size of the bulk, r(ρ + d_L − 2r): one entry outside the signal, on either side.

        >>> Setting.whitened((10, 20, 16), rank=4).bulk, Setting((7, 8, 8, 5), 2, 5).bulk
        (72, 12)
        """
        return self.rank * (self.data_rank + self.widths[-1] - 2 * self.rank)

    @property
    def hidden_spare(self) -> int:
        """Σ_{0<h<L} (d_h − r), the hidden directions that carry no signal.

        >>> Setting.whitened((10, 20, 20, 16), rank=4).hidden_spare
        32
        """
        return sum(width - self.rank for width in self.widths[1:-1])

    @property
    def exact_zeros(self) -> int:
        """The zeros that hold at every step, Σ_l e_l e_{l−1} + r(d_0 − ρ) with e_l = d_l − r.

        >>> Setting.whitened((10, 20, 20, 16), rank=4).exact_zeros
        544
        """
        spare = [width - self.rank for width in self.widths]
        between = sum(right * left for right, left in pairwise(spare))
        return between + self.rank * (self.widths[0] - self.data_rank)


def start(setting: Setting, lam: ArrayLike, bases: Sequence[Array] | None = None) -> AlignedChain:
    """The balanced, aligned network of Initialization 2.1 and Assumptions 3.1 and 3.2: all layers
    have the singular values `lam`, (r,) for a rank-r start or (d*,) with the spare ones last.

    >>> start(Setting.whitened((2, 2, 3), rank=1), [1.0]).spectrum()
    Spectrum(2 × 1, 1 × 3, 0 × 6)
    """
    return AlignedChain.balanced(
        setting.widths,
        lam=_lambdas(setting, lam),
        data=(np.arange(setting.widths[0]) < setting.data_rank).astype(float),
        target=np.ones(setting.rank),
        half_y2=setting.rank / 2,
        bases=bases,
    )


def literal_start(
    setting: Setting, lam: ArrayLike, rng: np.random.Generator
) -> tuple[LinearChain, Array, Array]:
    """A start that satisfies Assumptions 3.1 and 3.2 to the letter and nothing more, with the
    completed bases [U, U⊥] (d_L, d_L) and [V, V⊥] (d_0, d_0) of its singular vectors.

    Σxx = diag(1, …, 1, 0, …, 0) with ρ ones. Then Σyx = U_1V_1ᵀ forces the first r columns of V
    into the first ρ coordinates, because inputs have no others; the spare columns are free.

    >>> setting = Setting.whitened((3, 2, 2), rank=1)
    >>> chain, left, right = literal_start(setting, [1.0, 0.5], np.random.default_rng(0))
    >>> bool(abs(right[2, 0]) < 1e-15), bool(abs(right[2, 1]) > 1e-3), chain.widths
    (True, True, (3, 2, 2))
    """
    inputs, outputs, rank = setting.widths[0], setting.widths[-1], setting.rank
    inside = np.zeros((inputs, rank))
    inside[: setting.data_rank] = rng.standard_normal((setting.data_rank, rank))
    right = np.linalg.qr(np.hstack([inside, rng.standard_normal((inputs, inputs - rank))]))[0]
    left = np.linalg.qr(rng.standard_normal((outputs, outputs)))[0]
    hidden = tuple(np.eye(width) for width in setting.widths[1:-1])
    chain = start(setting, lam, bases=(right, *hidden, left)).to_chain()
    projector = np.diag((np.arange(inputs) < setting.data_rank).astype(float))
    return LinearChain(chain.weights, projector, chain.sigma_yx, chain.half_y2), left, right


def layers_in(chain: LinearChain, left: Array, right: Array) -> list[Array]:
    """The layers W_1V, W_2, …, W_{L−1}, UᵀW_L in the bases of a start; diagonal while the singular
    vectors stay what they were.

    >>> chain, left, right = literal_start(
    ...     Setting.whitened((2, 2, 3), rank=1), [1.0, 0.5], np.random.default_rng(0))
    >>> [np.diagonal(layer).round(12).tolist() for layer in layers_in(chain, left, right)]
    [[1.0, 0.5], [1.0, 0.5]]
    """
    layers = [weight.copy() for weight in chain.weights]
    layers[0], layers[-1] = layers[0] @ right, left.T @ layers[-1]
    return layers


def lemma_3_4(setting: Setting, lam: ArrayLike, eta: float, as_printed: bool = False) -> Array:
    """One step of gradient descent on the shared singular values, (r,) or (d*,):

        λ_i ← λ_i − η λ_i^{L−1} (x_i λ_i^L − y_i),  x_i = [i ≤ ρ],  y_i = [i ≤ r].

    An active value follows equation (7). A spare one follows λ ← λ − ηλ^{2L−1} where there are
    inputs (i ≤ ρ, as Lemma A.2 says) and stays where there are none; as printed it always stays.
    Holds when the spare right singular vectors do not leave the range of Σxx partly. A step of
    `lemma_a_3` or more is refused: beyond it the values need not converge.

    >>> lemma_3_4(Setting.whitened((2, 2, 2), rank=1), [2.0, 1.0], eta=0.1).round(12)
    array([1.4, 0.9])
    >>> lemma_3_4(Setting.whitened((2, 2, 2), rank=1), [2.0, 1.0], eta=0.1, as_printed=True)
    array([1.4, 1. ])
    """
    values = _lambdas(setting, lam)
    _below_bound(setting, values, eta)
    mode = np.arange(len(values))
    inputs = mode < (setting.rank if as_printed else setting.data_rank)
    depth = setting.depth
    slope = inputs * values ** (2 * depth - 1) - (mode < setting.rank) * values ** (depth - 1)
    moved: Array = values - eta * slope
    return moved


def lemma_a_1(setting: Setting, mu: float, as_printed: bool = False) -> Spectrum:
    """The spectrum of H_o at a uniform point λ_i = μ (i ≤ r), 0 otherwise, g = μ^{2L−2}:
    Lg × r², g × r(ρ + d_L − 2r) and zeros for the rest of all P directions.

    As printed: g × r(d_0 + d_L − 2r) and (d_L − r)(d_0 − r) zeros.

    >>> lemma_a_1(Setting.whitened((7, 8, 8, 5), rank=2), mu=1.0)
    Spectrum(3 × 4, 1 × 12, 0 × 144)
    >>> lemma_a_1(Setting.whitened((7, 8, 8, 5), rank=2), mu=1.0, as_printed=True)
    Spectrum(3 × 4, 1 × 16, 0 × 15)
    """
    return lemma_a_9(setting, np.full(setting.rank, nonnegative_number("mu", mu)), as_printed)


def lemma_a_2(setting: Setting, lam: ArrayLike, eta: float) -> Array:
    """The same law as `lemma_3_4`: Lemma A.2 prints it right for i ≤ ρ.

    >>> lemma_a_2(Setting.whitened((2, 2, 2), rank=1), [2.0, 1.0], eta=0.1).round(12)
    array([1.4, 0.9])
    """
    return lemma_3_4(setting, lam, eta)


def lemma_a_3(setting: Setting, lam: ArrayLike, as_printed: bool = False) -> float:
    """The bound min(1/L, M^{−(2L−2)}) below which λ_i → 1 (i ≤ r) and λ_i → 0 (r < i ≤ ρ).

    M is the largest of 1 and all λ_i with i ≤ ρ; as printed it is taken over i ≤ r only.

    >>> setting = Setting.whitened((2, 2, 2), rank=1)
    >>> lemma_a_3(setting, [1.0, 2.0]), lemma_a_3(setting, [1.0, 2.0], as_printed=True)
    (0.25, 0.5)
    """
    values = _lambdas(setting, lam)
    moving = values[: setting.rank if as_printed else setting.data_rank]
    largest = max(1.0, float(moving.max()))
    return min(1 / setting.depth, largest ** -(2 * setting.depth - 2))


def lemma_a_4(lam: ArrayLike, eta: float) -> float:
    """C_min = min(λ_{1,0}, …, λ_{r,0}, η): no active value ever falls below it.

    >>> lemma_a_4([0.3, 1.5], eta=0.1), lemma_a_4([0.03, 1.5], eta=0.1)
    (0.1, 0.03)
    """
    values = real_array("lam", lam, ndim=1)
    return min(float(values.min()), nonnegative_number("eta", eta))


def lemma_a_5(norms: ArrayLike) -> float:
    """The bound (Σ_kl ‖H^{kl}‖²)^{1/2} on a block matrix, from the norms (L, L) of its blocks.

    >>> lemma_a_5([[0.0, 3.0], [4.0, 0.0]])
    5.0
    """
    return float(np.linalg.norm(real_array("norms", norms, ndim=2)))


def lemma_a_6(setting: Setting, lam: ArrayLike, excess: float, as_printed: bool = False) -> float:
    """The bound (L − 1) M^{L−2} √(2ε) on ‖H_f‖, M = max λ_i, ε the loss above its minimum.

    As printed: M^{L−2} √(2L(L − 1) r ε), which is never smaller.

    >>> lemma_a_6(Setting.whitened((1, 1, 1, 1), rank=1), [2.0], excess=0.5)
    4.0
    >>> lemma_a_6(Setting.whitened((1, 1, 1, 1), rank=1), [2.0], excess=1 / 3, as_printed=True)
    4.0
    """
    depth, largest = setting.depth, float(_lambdas(setting, lam).max())
    epsilon = nonnegative_number("excess", excess)
    square = depth * (depth - 1) * setting.rank if as_printed else (depth - 1) ** 2
    return float(largest ** (depth - 2) * np.sqrt(2 * epsilon * square))


def lemma_a_7_step(setting: Setting, lam: ArrayLike) -> float:
    """1/(L·M^{2L−2}), M = max(1, λ_i): up to here no active value crosses its limit 1.

    >>> lemma_a_7_step(Setting.whitened((2, 2, 2), rank=1), [2.0])
    0.125
    """
    largest = max(1.0, float(_lambdas(setting, lam).max()))
    return largest ** -(2 * setting.depth - 2) / setting.depth


def lemma_a_7(
    setting: Setting, lam: ArrayLike, eta: float, steps: int, as_printed: bool = False
) -> float:
    """The factor by which the excess loss has shrunk at least after `steps` steps,
    (1 − Lηα)^{2t} with α = min(1, λ_i)^{2L−2} over the *start* `lam`, which must have rank r.

    As printed, e^{−2Lαηt} with α = min(½, min_t λ_{i,t})^{2L−2} of Lemma A.4, for any start. The
    form that holds refuses a spare value λ_i ≠ 0, because its loss decays like t^{−L/(L−1)}, and a
    step above `lemma_a_7_step`, because a value may then cross 1.

    >>> lemma_a_7(Setting.whitened((1, 1, 1), rank=1), [0.5], eta=0.5, steps=1)
    0.5625
    """
    values, depth = _lambdas(setting, lam), setting.depth
    steps = whole_number("steps", steps, least=0)
    if as_printed:
        _below_bound(setting, values[: setting.rank], eta)
        lowest, moving = 0.5, values[: setting.rank]
        for _ in range(steps + 1):
            lowest = min(lowest, float(moving.min()))
            moving = lemma_3_4(setting, moving, eta)
        return float(np.exp(-2 * depth * lowest ** (2 * depth - 2) * eta * steps))
    return _contraction(setting, values, eta) ** (2 * steps)


def lemma_a_8(setting: Setting, lam: ArrayLike, eta: float, steps: int) -> float:
    """The bound (L − 1) M^{L−2} max_i|ω_{i,0}| (1 − Lηα)^t on ‖H_f‖ after t = `steps` steps from a
    rank-r start `lam`, with M = max(1, λ_{i,0}) and α as in `lemma_a_7`.

    >>> lemma_a_8(Setting.whitened((1, 1, 1), rank=1), [0.5], eta=0.5, steps=1)
    0.5625
    """
    values = _lambdas(setting, lam)[: setting.rank]
    largest = max(1.0, float(values.max()))
    residual = float(np.abs(values**setting.depth - 1).max())
    constant = (setting.depth - 1) * largest ** (setting.depth - 2) * residual
    return constant * _contraction(setting, lam, eta) ** whole_number("steps", steps, least=0)


def sharp_rate(depth: int, eta: float) -> float:
    """The factor 1 − ηL by which ω_i and ‖H_f‖ shrink per step in the end (rank-r start, ηL < 1).

    >>> sharp_rate(depth=2, eta=0.125)
    0.75
    """
    depth = whole_number("depth", depth, least=1)
    if not 0 < eta < 1 / depth:
        raise ValueError(f"eta must lie between 0 and 1/L = {1 / depth:g}, got {eta}")
    return 1 - eta * depth


def power_law(depth: int, eta: float, steps: int) -> float:
    """(2(L − 1)ηt)^{−1/(2L−2)}: what a spare value λ_{i,0} > 0, i ≤ ρ, comes to after many steps.

    >>> power_law(depth=2, eta=0.125, steps=64)
    0.25
    """
    depth = whole_number("depth", depth, least=2)
    steps = whole_number("steps", steps, least=1)
    return float((2 * (depth - 1) * eta * steps) ** (-1 / (2 * depth - 2)))


def curvatures(setting: Setting, lam: ArrayLike) -> Array:
    """ν_ij = x_j Σ_l λ_i^{2(L−l)} λ_j^{2(l−1)}, (d_L, d_0), with λ = 0 beyond `lam`, 0⁰ = 1 and
    x_j = [j ≤ ρ]: the eigenvalues of H_o that can differ from 0.

    >>> curvatures(Setting.whitened((2, 2, 2), rank=1), [3.0])
    array([[18.,  9.],
           [ 9.,  0.]])
    """
    values = _lambdas(setting, lam)
    rows, columns = (
        np.concatenate([values, np.zeros(width - len(values))])
        for width in (setting.widths[-1], setting.widths[0])
    )
    before = 2.0 * np.arange(setting.depth)
    nu: Array = (rows[:, None] ** before[::-1]) @ (columns[:, None] ** before).T
    return nu * (np.arange(len(columns)) < setting.data_rank)


def lemma_a_9(setting: Setting, lam: ArrayLike, as_printed: bool = False) -> Spectrum:
    """The spectrum of H_o at λ = (λ_1, …, λ_r, 0, …, 0): ν_ij once for every i, j ≤ r, λ_i^{2L−2}
    ρ + d_L − 2r times for every i ≤ r, and 0 for the remaining P − r(ρ + d_L − r) directions.

    As printed: λ_i^{2L−2} d_0 + d_L − 2r times, and (d_L − r)(d_0 − r) zeros.

    >>> lemma_a_9(Setting.whitened((3, 3, 2), rank=2), [2.0, 1.0])
    Spectrum(8 × 1, 5 × 2, 2 × 1, 0 × 11)
    """
    values = _active(setting, lam)
    rank, inputs, outputs = setting.rank, setting.widths[0], setting.widths[-1]
    nu = curvatures(setting, values)[:rank, :rank].ravel()
    copies = (inputs if as_printed else setting.data_rank) + outputs - 2 * rank
    zeros = (
        (outputs - rank) * (inputs - rank)
        if as_printed
        else setting.size - rank * rank - rank * copies
    )
    return _spectrum(
        [(value, 1, "dominant") for value in nu]
        + [(value, copies, "bulk") for value in values ** (2 * setting.depth - 2)]
        + [(0.0, zeros, "zero")]
    )


def lemma_a_10(chain: LinearChain, u: ArrayLike, v: ArrayLike) -> Array:
    """The vector A_o(u ⊗ v) (P,): layer l holds (W_L ⋯ W_{l+1})ᵀu times (W_{l−1} ⋯ W_1 v)ᵀ.

    With u = u_i, v = v_j and v_j in the range of Σxx it is an eigenvector of H_o, with eigenvalue
    ν_ij = its squared length.

    >>> lemma_a_10(LinearChain([[[2.0]], [[3.0]]], [[1.0]], [[0.0]]), [1.0], [1.0])
    array([3., 2.])
    """
    back, ahead = [real_array("u", u, ndim=1)], [real_array("v", v, ndim=1)]
    for weight in reversed(chain.weights[1:]):
        back.append(weight.T @ back[-1])
    for weight in chain.weights[:-1]:
        ahead.append(weight @ ahead[-1])
    return np.concatenate(
        [np.outer(b, a).ravel() for b, a in zip(reversed(back), ahead, strict=True)]
    )


def lemma_a_11(setting: Setting, lam: ArrayLike, as_printed: bool = False) -> Array:
    """The P numbers in descending order that the eigenvalues of H follow, each within ‖H_f‖: all
    ν_ij with i ≤ d_L and j ≤ ρ, then zeros.

    As printed, j runs to r only, so that r(ρ − r) bulk values are missing.

    >>> lemma_a_11(Setting.whitened((2, 2, 2), rank=1), [1.0])
    array([2., 1., 1., 0., 0., 0., 0., 0.])
    >>> lemma_a_11(Setting.whitened((2, 2, 2), rank=1), [1.0], as_printed=True)
    array([2., 1., 0., 0., 0., 0., 0., 0.])
    """
    nu = curvatures(setting, lam)[:, : setting.rank if as_printed else setting.widths[0]]
    padded = np.zeros(setting.size)
    padded[: nu.size] = np.sort(nu, axis=None)[::-1]
    return padded


@dataclass(frozen=True, eq=False)
class Bifurcation:
    """Theorem 3.5 at one point: the eigenvalues of H are those of `exact`, and further ones that,
    sorted, lie within `radius` of those of `near`.

    `exact` has the labels bulk, fringe and zero; `near` has dominant (ν_ij, i, j ≤ r) and inner
    (0, (L − 1)r² times).
    """

    exact: Spectrum
    near: Spectrum
    radius: float


def theorem_3_5(setting: Setting, lam: ArrayLike) -> Bifurcation:
    """The spectrum of H at λ = (λ_1, …, λ_r, 0, …, 0), at any step:

        bulk      λ_i^{2L−2}, ρ + d_L − 2r times for each i, with no error term;
        fringe    ±ω_i λ_i^{L−2}, Σ_h (d_h − r) times for each i and sign;
        zero      Σ_l e_l e_{l−1} + r(d_0 − ρ) times, e_l = d_l − r;
        dominant  r² eigenvalues within (L − 1) M^{L−2} max_i|ω_i| of ν_ij, M = max_i λ_i;
        inner     (L − 1)r² eigenvalues as close to 0.

    >>> theorem = theorem_3_5(Setting.whitened((2, 2, 2), rank=1), [0.5])
    >>> print(theorem.exact, "|", theorem.near, "|", theorem.radius)
    0.75 × 1, 0.25 × 2, 0 × 2, -0.75 × 1 | 0.5 × 1, 0 × 1 | 0.75
    """
    values, depth, rank = _active(setting, lam), setting.depth, setting.rank
    omega = values**depth - 1
    fringe = omega * values ** (depth - 2)
    exact = (
        [(value, setting.bulk // rank, "bulk") for value in values ** (2 * depth - 2)]
        + [(value, setting.hidden_spare, "fringe") for value in [*fringe, *-fringe]]
        + [(0.0, setting.exact_zeros, "zero")]
    )
    nu = curvatures(setting, values)[:rank, :rank].ravel()
    near = [(value, 1, "dominant") for value in nu] + [(0.0, (depth - 1) * rank**2, "inner")]
    radius = (depth - 1) * values.max() ** (depth - 2) * np.abs(omega).max()
    return Bifurcation(_spectrum(exact), _spectrum(near), float(radius))


def intervals(lam: ArrayLike, depth: int) -> tuple[tuple[float, float], tuple[float, float]]:
    """The intervals (8) and (9) without their error terms: L(m ∓ δ)^{2L−2} and (m ∓ δ)^{2L−2},
    where [m − δ, m + δ] is the range of `lam`.

    >>> intervals([1.0, 2.0], depth=2)
    ((2.0, 8.0), (1.0, 4.0))
    """
    values = real_array("lam", lam, ndim=1)
    low, high = (float(edge) ** (2 * depth - 2) for edge in (values.min(), values.max()))
    return (depth * low, depth * high), (low, high)


def spread_limit(depth: int) -> float:
    """L^{1/(2L−2)}, the largest ratio of two active values that Theorem 3.5 admits; its L-th power
    is the largest ratio of two singular values of the map.

    >>> round(spread_limit(2), 6), round(spread_limit(10), 6)
    (1.414214, 1.136464)
    """
    depth = whole_number("depth", depth, least=2)
    return float(depth ** (1 / (2 * depth - 2)))


def equation_10(depth: int, kappa: float) -> tuple[float, float]:
    """L/κ and Lκ, the smallest and largest ratio of a dominant to a bulk eigenvalue of H_o when
    κ = ((m + δ)/(m − δ))^{2L−2}. Both are attained by λ = (m + δ, m − δ).

    >>> equation_10(depth=10, kappa=2.0)
    (5.0, 20.0)
    """
    if not kappa >= 1:
        raise ValueError(f"kappa must be at least 1, got {kappa}")
    return depth / kappa, depth * kappa


def corollary_3_6(setting: Setting, mu: float, as_printed: bool = False) -> Spectrum:
    """All P eigenvalues of H at a uniform point λ_i = μ (i ≤ r), 0 otherwise, at any step. With
    g = μ^{2L−2}, τ = (μ^L − 1)μ^{L−2} and h = Σ_{0<h<L} (d_h − r):

        Lg + (L−1)τ   r(r+1)/2            −τ   (L−1)r(r+1)/2 + rh
        Lg − (L−1)τ   r(r−1)/2            +τ   (L−1)r(r−1)/2 + rh
        g             r(ρ + d_L − 2r)      0   the rest

    As printed, at every step: Lg × r², g × r(d* + d_L − 2r), 0 for the rest.

    >>> corollary_3_6(Setting.whitened((2, 2, 2), rank=1), mu=0.5)
    Spectrum(0.75 × 2, 0.25 × 2, 0 × 2, -0.25 × 1, -0.75 × 1)
    """
    depth, r, h = setting.depth, setting.rank, setting.hidden_spare
    g = nonnegative_number("mu", mu) ** (2 * depth - 2)
    if as_printed:
        bulk = r * (setting.ends + setting.widths[-1] - 2 * r)
        rest = setting.size - r * r - bulk
        return _spectrum([(depth * g, r * r, "dominant"), (g, bulk, "bulk"), (0.0, rest, "zero")])
    tau = (mu**depth - 1) * mu ** (depth - 2)
    return _spectrum(
        [
            (depth * g + (depth - 1) * tau, r * (r + 1) // 2, "dominant"),
            (depth * g - (depth - 1) * tau, r * (r - 1) // 2, "dominant"),
            (g, setting.bulk, "bulk"),
            (-tau, (depth - 1) * r * (r + 1) // 2 + r * h, "fringe"),
            (tau, (depth - 1) * r * (r - 1) // 2 + r * h, "fringe"),
            (0.0, setting.exact_zeros, "zero"),
        ]
    )


def corollary_3_6_ratios(depth: int, mu: float) -> tuple[float, float]:
    """The two ratios of a dominant to a bulk eigenvalue at a uniform point: 1 + (L − 1)μ^{−L}, for
    antisymmetric pairs (r ≥ 2), and (2L − 1) − (L − 1)μ^{−L}. Both tend to L as μ → 1; the second
    exceeds 1 exactly when μ^L > ½.

    >>> corollary_3_6_ratios(depth=2, mu=0.5)
    (5.0, -1.0)
    """
    inverse = float(mu**-depth)
    return 1 + (depth - 1) * inverse, 2 * depth - 1 - (depth - 1) * inverse


def _lambdas(setting: Setting, lam: ArrayLike) -> Array:
    values = real_array("lam", lam, ndim=1)
    if len(values) not in (setting.rank, setting.ends):
        raise ValueError(
            f"lam must have r = {setting.rank} or d* = {setting.ends} values, got {len(values)}"
        )
    if values.min() < 0:
        raise ValueError(f"lam must not be negative, got {values.min():.6g}")
    return values


def _active(setting: Setting, lam: ArrayLike) -> Array:
    """The r active values of a rank-r point."""
    values = _lambdas(setting, lam)
    if np.any(values[setting.rank :]):
        raise ValueError(
            f"lam must be 0 beyond r = {setting.rank}, got {values[setting.rank :].max():.6g}: "
            "with a spare value the bulk is not exact and the rates are power laws"
        )
    return values[: setting.rank]


def _below_bound(setting: Setting, values: Array, eta: float) -> None:
    bound = lemma_a_3(setting, values)
    if not 0 < eta < bound:
        raise ValueError(
            f"eta must lie between 0 and min(1/L, M^-(2L-2)) = {bound:.6g}, got {eta}: beyond it "
            "the singular values need not converge"
        )


def _contraction(setting: Setting, lam: ArrayLike, eta: float) -> float:
    """1 − Lηα, by which every |ω_i| shrinks at least in each step from the rank-r start `lam`."""
    values, bound = _active(setting, lam), lemma_a_7_step(setting, lam)
    if not 0 < eta <= bound:
        raise ValueError(
            f"eta must lie between 0 and 1/(L M^(2L-2)) = {bound:.6g}, got {eta}: beyond it a "
            "singular value may cross 1 and the rate is not proved"
        )
    alpha = min(1.0, float(values.min())) ** (2 * setting.depth - 2)
    return 1 - setting.depth * eta * alpha


def _spectrum(entries: Sequence[tuple[float, int, str]]) -> Spectrum:
    """The spectrum of (value, multiplicity, label), without the entries that occur 0 times."""
    return Spectrum.merge(
        Spectrum(np.array([value]), np.array([count]), (label,))
        for value, count, label in entries
        if count > 0
    )
