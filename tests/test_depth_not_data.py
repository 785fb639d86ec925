"""The closed forms of "Depth, Not Data" against dense Hessians, matrix descent and autograd."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from exacthessian import autograd
from exacthessian.chain import LinearChain
from exacthessian.papers import depth_not_data as dnd
from exacthessian.papers.depth_not_data import Setting
from exacthessian.spectrum import Spectrum

Array = NDArray[np.float64]
Case = tuple[Setting, Array, np.random.Generator]

SMALL = Setting.whitened((3, 3, 2), rank=1)


@st.composite
def cases(draw: st.DrawFn, spare: bool = False) -> Case:
    """A setting with any d_0, d_L, ρ and its singular values: rank r, or all d* when `spare`."""
    depth = draw(st.integers(2, 4))
    inputs, outputs = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    ends = min(inputs, outputs)
    hidden = [draw(st.integers(ends, 5)) for _ in range(depth - 1)]
    rank = draw(st.integers(1, ends))
    data_rank = draw(st.integers(rank, inputs))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    setting = Setting((inputs, *hidden, outputs), rank, data_rank)
    return setting, rng.uniform(0.3, 1.4, ends if spare else rank), rng


def turned(setting: Setting, lam: Array, rng: np.random.Generator) -> LinearChain:
    """The start in random bases, as matrices."""
    bases = [np.linalg.qr(rng.standard_normal((width, width)))[0] for width in setting.widths]
    return dnd.start(setting, lam, bases).to_chain()


def excess(chain: LinearChain) -> float:
    """½E‖y‖² is r/2 in `start`, so the smallest loss is 0."""
    return chain.loss()


@settings(deadline=None, max_examples=60)
@given(cases())
def test_outer_product_spectrum(case: Case) -> None:
    setting, lam, rng = case
    measured = Spectrum.from_matrix(turned(setting, lam, rng).gauss_newton())
    assert measured.distance(dnd.lemma_a_9(setting, lam)) < 1e-12
    uniform = np.full(setting.rank, lam[0])
    measured = Spectrum.from_matrix(turned(setting, uniform, rng).gauss_newton())
    predicted = dnd.lemma_a_1(setting, lam[0])
    assert measured.distance(predicted) < 1e-12
    assert sum(predicted.select("dominant").multiplicities) == setting.rank**2


def test_outer_product_spectrum_as_printed() -> None:
    setting = Setting.whitened((7, 8, 8, 5), rank=2)
    lam = np.array([1.1, 0.9])
    printed, found = dnd.lemma_a_9(setting, lam, as_printed=True), dnd.lemma_a_9(setting, lam)
    counts = [
        (spectrum.select("bulk").size, spectrum.select("zero").size)
        for spectrum in (printed, found)
    ]
    assert counts == [(16, 15), (12, 144)]
    assert dnd.lemma_a_1(setting, 0.9, as_printed=True).size == 4 + 16 + 15


@settings(deadline=None, max_examples=60)
@given(cases())
def test_uniform_spectrum(case: Case) -> None:
    setting, lam, rng = case
    mu = lam[0]
    chain = turned(setting, np.full(setting.rank, mu), rng)
    predicted = dnd.corollary_3_6(setting, mu)
    assert Spectrum.from_matrix(chain.hessian()).distance(predicted) < 1e-12
    symmetric, antisymmetric = dnd.corollary_3_6_ratios(setting.depth, mu)[::-1]
    # The order of the two depends on the sign of 1 − μ; the symmetric one has one copy more.
    dominant = predicted.select("dominant")
    ratios = dominant.values / mu ** (2 * setting.depth - 2)
    wanted = {round(symmetric, 9): setting.rank * (setting.rank + 1) // 2}
    if setting.rank > 1:
        wanted[round(antisymmetric, 9)] = setting.rank * (setting.rank - 1) // 2
    found = dict(zip(ratios.round(9).tolist(), dominant.multiplicities.tolist(), strict=True))
    assert found == wanted


def test_uniform_spectrum_as_printed() -> None:
    setting = Setting((9, 9, 6), rank=2, data_rank=9)
    printed = dnd.corollary_3_6(setting, 0.9, as_printed=True)
    assert [printed.select(name).size for name in ("dominant", "bulk", "zero")] == [4, 16, 115]
    assert printed.select("dominant").values[0] / printed.select("bulk").values[0] == 2
    assert dnd.corollary_3_6(setting, 0.9).select("bulk").size == 22


@pytest.mark.parametrize("depth", [2, 3, 5])
def test_two_clusters_exist_above_one_half(depth: int) -> None:
    setting = Setting.whitened((3, *([4] * (depth - 1)), 5), rank=2)
    for target, expected in ((0.49, False), (0.51, True), (1.5, True)):
        mu = target ** (1 / depth)
        values = dnd.corollary_3_6(setting, mu)
        dominant, bulk, fringe = (values.select(n).values for n in ("dominant", "bulk", "fringe"))
        separated = dominant.min() > bulk.max() and bulk.min() > np.abs(fringe).max()
        assert separated == expected
        assert (min(dnd.corollary_3_6_ratios(depth, mu)) > 1) == expected


@settings(deadline=None, max_examples=60)
@given(cases())
def test_bifurcation(case: Case) -> None:
    setting, lam, rng = case
    chain = turned(setting, lam, rng)
    measured = Spectrum.from_matrix(chain.hessian())
    theorem = dnd.theorem_3_5(setting, lam)
    together = Spectrum.merge([theorem.exact, theorem.near])
    assert together.size == setting.size == measured.size
    gap = np.abs(together.expand() - measured.expand()).max()
    assert gap <= theorem.radius + 1e-12
    curvature = np.linalg.norm(chain.functional(), 2)
    assert curvature <= theorem.radius + 1e-12
    if setting.rank == 1:
        assert curvature == pytest.approx(theorem.radius, rel=1e-9, abs=1e-12)
    # What is called exact is there, with its multiplicity.
    joined = theorem.exact.clusters(1e-9)
    for value, multiplicity in zip(joined.values, joined.multiplicities, strict=True):
        assert measured.count(value - 1e-9, value + 1e-9) >= multiplicity
    # The rest, found by taking the exact part out, is what `near` describes.
    rest = measured.expand()
    for value in theorem.exact.expand():
        rest = np.delete(rest, np.abs(rest - value).argmin())
    assert np.abs(rest - theorem.near.expand()).max() <= theorem.radius + 1e-9
    labels = {"bulk": setting.bulk, "fringe": 2 * setting.rank * setting.hidden_spare}
    for label, total in labels.items():
        assert total == (theorem.exact.select(label).size if total else 0)


@settings(deadline=None, max_examples=40)
@given(cases())
def test_exact_zeros_are_all_zeros_for_generic_values(case: Case) -> None:
    setting, lam, rng = case
    values = Spectrum.from_matrix(turned(setting, lam, rng).hessian())
    found = values.count(-1e-9, 1e-9)
    # Values drawn at random leave the active blocks regular.
    assert found == setting.exact_zeros


@settings(deadline=None, max_examples=40)
@given(cases(spare=True))
def test_descent_law(case: Case) -> None:
    setting, lam, rng = case
    eta = 0.5 * dnd.lemma_a_3(setting, lam)
    bases = [np.linalg.qr(rng.standard_normal((width, width)))[0] for width in setting.widths]
    chain, values = dnd.start(setting, lam, bases).to_chain(), lam
    for _ in range(30):
        chain, values = chain.gradient_step(eta), dnd.lemma_3_4(setting, values, eta)
    for weight, left, right in zip(chain.weights, bases[1:], bases[:-1], strict=True):
        layer = left.T @ weight @ right
        expected = np.zeros_like(layer)
        np.fill_diagonal(expected[: setting.ends, : setting.ends], values)
        np.testing.assert_allclose(layer, expected, atol=1e-12)
    assert np.array_equal(dnd.lemma_a_2(setting, values, eta), dnd.lemma_3_4(setting, values, eta))


def test_frozen_only_without_inputs() -> None:
    lam = [0.9, 0.6, 0.7]
    for setting, frozen in (
        (Setting.whitened((3, 4, 4), rank=1), False),
        (Setting.signal_only((3, 4, 4), rank=1), True),
    ):
        true = dnd.lemma_3_4(setting, lam, 0.1)
        printed = dnd.lemma_3_4(setting, lam, 0.1, as_printed=True)
        assert np.array_equal(true, printed) == frozen
        assert np.array_equal(printed[1:], lam[1:])
        assert printed[0] == pytest.approx(0.9 - 0.1 * (0.9**3 - 0.9))


def test_literal_start_meets_the_assumptions_and_may_leak() -> None:
    rng = np.random.default_rng(3)
    lam = np.array([0.9, 0.8, 0.7, 0.6])
    for widths, data_rank, leaks in (
        ((4, 5, 5, 6), 4, False),
        ((6, 5, 5, 4), 4, True),
        ((6, 5, 5, 4), 6, False),
        ((6, 5, 5, 4), 2, False),
        ((4, 5, 5, 6), 3, True),
    ):
        setting = Setting(widths, rank=2, data_rank=data_rank)
        chain, left, right = dnd.literal_start(setting, lam, rng)
        assert np.array_equal(np.diag(chain.sigma_xx), np.arange(widths[0]) < data_rank)
        # Admissible: the target reads only what the inputs span, and every mode is a unit.
        np.testing.assert_allclose(chain.sigma_yx @ chain.sigma_xx, chain.sigma_yx, atol=1e-14)
        np.testing.assert_allclose(
            left.T @ chain.sigma_yx @ right,
            np.eye(widths[-1], widths[0]) * (np.arange(widths[0]) < 2),
            atol=1e-14,
        )
        values = lam
        for _ in range(50):
            chain, values = chain.gradient_step(0.1), dnd.lemma_3_4(setting, values, 0.1)
        layers = dnd.layers_in(chain, left, right)
        for layer in layers:
            np.testing.assert_allclose(np.diagonal(layer)[:2], values[:2], atol=1e-12)
            np.fill_diagonal(layer, 0.0)
        assert (max(np.linalg.norm(layer) for layer in layers) > 1e-6) == leaks


def test_step_bound_decides_convergence() -> None:
    setting = Setting.whitened((3, 3, 3), rank=1)
    lam = np.array([1.3, 2.0, 0.4])
    eta = 0.999 * dnd.lemma_a_3(setting, lam)
    values = lam
    for _ in range(20_000):
        values = dnd.lemma_3_4(setting, values, eta)
        assert values.min() >= 0
    assert abs(values[0] - 1) < 1e-9
    assert values[1:].max() < 0.02
    # As printed, M sees 1.3 only: a spare 3.0 then diverges.
    wide = np.array([1.3, 3.0, 0.4])
    eta = dnd.lemma_a_3(setting, wide, as_printed=True) * 0.999
    assert eta == pytest.approx(0.5 * 0.999)
    chain = dnd.start(setting, wide)
    sizes = []
    for _ in range(4):
        chain = chain.step(eta)
        sizes.append(abs(chain.singular_values[0][1]))
    assert sizes[-1] > 1e6
    assert sizes == sorted(sizes)
    assert dnd.lemma_a_3(setting, lam) == 0.25
    assert dnd.lemma_a_3(Setting.whitened((1, 1, 1, 1), 1), [2.0]) == 1 / 16
    assert dnd.lemma_a_3(Setting.whitened((1, 1, 1, 1), 1), [0.5]) == 1 / 3
    # Spare values that no input reads do not move, and do not limit the step.
    assert dnd.lemma_a_3(Setting.signal_only((3, 3, 3), 1), [1.0, 9.0, 9.0]) == 0.5


@settings(deadline=None, max_examples=40)
@given(st.integers(2, 10), st.floats(0.2, 2.0), st.floats(0.01, 0.999))
def test_active_values_stay_above_their_floor(depth: int, lam: float, part: float) -> None:
    setting = Setting.whitened((1,) * (depth + 1), rank=1)
    eta = part * dnd.lemma_a_3(setting, [lam])
    floor, values = dnd.lemma_a_4([lam], eta), np.array([lam])
    for _ in range(200):
        values = dnd.lemma_3_4(setting, values, eta)
        assert values[0] >= floor


def test_floor_needs_the_step_and_the_start() -> None:
    setting = Setting.whitened((1,) * 11, rank=1)
    eta = 0.999 * dnd.lemma_a_3(setting, [1.54])
    after = dnd.lemma_3_4(setting, [1.54], eta)[0]
    assert dnd.lemma_a_4([1.54], eta) == eta < after < 0.03
    assert dnd.lemma_a_4([0.2, 0.7], 0.3) == 0.2


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 2**32 - 1), st.integers(1, 4), st.integers(1, 4))
def test_block_norm_bound(seed: int, blocks: int, size: int) -> None:
    matrix = np.random.default_rng(seed).standard_normal((blocks * size, blocks * size))
    parts = matrix.reshape(blocks, size, blocks, size).swapaxes(1, 2)
    norms = np.linalg.norm(parts, 2, axis=(2, 3))
    bound = dnd.lemma_a_5(norms)
    assert np.linalg.norm(matrix, 2) <= bound * (1 + 1e-12)
    if size == 1:
        assert bound == pytest.approx(np.linalg.norm(matrix))


@settings(deadline=None, max_examples=60)
@given(cases(spare=True))
def test_curvature_bounded_by_the_loss(case: Case) -> None:
    setting, lam, rng = case
    chain = turned(setting, lam, rng)
    curvature = np.linalg.norm(chain.functional(), 2)
    sharp = dnd.lemma_a_6(setting, lam, excess(chain))
    printed = dnd.lemma_a_6(setting, lam, excess(chain), as_printed=True)
    assert curvature <= sharp * (1 + 1e-9) + 1e-12
    assert sharp <= printed
    depth = setting.depth
    assert printed**2 * (depth - 1) == pytest.approx(sharp**2 * depth * setting.rank)


@settings(deadline=None, max_examples=30)
@given(st.integers(2, 6), st.floats(0.1, 2.0))
def test_curvature_bound_is_attained_at_width_one(depth: int, lam: float) -> None:
    setting = Setting.whitened((1,) * (depth + 1), rank=1)
    chain = dnd.start(setting, [lam]).to_chain()
    sharp = dnd.lemma_a_6(setting, [lam], excess(chain))
    assert np.linalg.norm(chain.functional(), 2) == pytest.approx(sharp, rel=1e-6, abs=1e-8)


@settings(deadline=None, max_examples=40)
@given(cases(), st.floats(0.05, 1.0))
def test_exponential_rates(case: Case, part: float) -> None:
    setting, lam, rng = case
    eta = part * dnd.lemma_a_7_step(setting, lam)
    chain = first = turned(setting, lam, rng)
    for steps in range(1, 12):
        chain = chain.gradient_step(eta)
        factor = dnd.lemma_a_7(setting, lam, eta, steps)
        assert excess(chain) <= factor * excess(first) + 1e-12
        assert factor == pytest.approx(dnd.lemma_a_7(setting, lam, eta, 1) ** steps)
        curvature = np.linalg.norm(chain.functional(), 2)
        assert curvature <= dnd.lemma_a_8(setting, lam, eta, steps) + 1e-12


@pytest.mark.parametrize("depth", [2, 3, 4])
@pytest.mark.parametrize("lam", [0.5, 0.9, 0.99])
def test_exponential_rate_is_sharp_for_small_steps(depth: int, lam: float) -> None:
    setting = Setting.whitened((1,) * (depth + 1), rank=1)
    eta = 1e-7
    after = dnd.start(setting, [lam]).step(eta)
    loss, before = after.loss(), dnd.start(setting, [lam]).loss()
    slope = (1 - np.sqrt(loss / before)) / eta
    bound = (1 - np.sqrt(dnd.lemma_a_7(setting, [lam], eta, 1))) / eta
    assert slope == pytest.approx(bound, rel=1e-3)
    assert dnd.lemma_a_7(setting, [lam], eta, 0) == 1
    start = dnd.lemma_a_8(setting, [lam], eta, 0)
    wanted = (depth - 1) * (1 - lam**depth)
    assert start == pytest.approx(wanted)
    assert dnd.lemma_a_8(setting, [lam], eta, 3) < start


def test_curvature_bound_starts_at_the_curvature() -> None:
    setting = Setting.whitened((1, 1, 1, 1), rank=1)
    chain = dnd.start(setting, [1.5]).to_chain()
    bound = dnd.lemma_a_8(setting, [1.5], eta=0.01, steps=0)
    assert np.linalg.norm(chain.functional(), 2) == pytest.approx(bound)
    assert dnd.lemma_a_7_step(setting, [1.5]) == pytest.approx(1.5**-4 / 3)
    assert dnd.lemma_a_7_step(setting, [0.5]) == 1 / 3


def test_printed_rate_fails_for_a_spare_value() -> None:
    setting = Setting.whitened((2, 2, 2), rank=1)
    chain = dnd.start(setting, [1.0, 0.5])
    first = chain.loss()
    for _ in range(100):
        chain = chain.step(0.1)
    printed = dnd.lemma_a_7(setting, [1.0, 0.5], 0.1, 100, as_printed=True)
    assert printed == pytest.approx(np.exp(-10))
    assert chain.loss() / first > 500 * printed
    slow = dnd.lemma_a_7(Setting.whitened((1, 1, 1), 1), [0.25], 0.1, 10, as_printed=True)
    assert slow == pytest.approx(np.exp(-4 * 0.25**2 * 0.1 * 10))


def test_printed_rate_sees_the_active_values_at_every_step() -> None:
    setting = Setting.whitened((1, 1, 1, 1, 1), rank=1)
    eta = 0.99 * dnd.lemma_a_3(setting, [1.8])
    after = dnd.lemma_3_4(setting, [1.8], eta)[0]
    assert after < 0.5
    printed = dnd.lemma_a_7(setting, [1.8], eta, 1, as_printed=True)
    assert printed == pytest.approx(np.exp(-8 * after**6 * eta), rel=1e-12)
    # As printed, a large spare value does not limit the step.
    wide = Setting.whitened((2, 2, 2), rank=1)
    assert dnd.lemma_a_7(wide, [1.0, 3.0], 0.4, 1, as_printed=True) == pytest.approx(np.exp(-0.4))


def test_zeros_beyond_the_rank_change_nothing() -> None:
    setting = Setting.whitened((3, 3, 3), rank=1)
    for bound in (dnd.lemma_a_7, dnd.lemma_a_8):
        assert bound(setting, [0.9, 0.0, 0.0], 0.1, 2) == bound(setting, [0.9], 0.1, 2)


def test_rates_at_the_edge_of_their_range() -> None:
    assert dnd.sharp_rate(1, 0.25) == 0.75
    assert dnd.power_law(2, 0.5, 1) == 1


@pytest.mark.parametrize("depth", [2, 3, 4])
def test_sharp_rate(depth: int) -> None:
    setting = Setting.whitened((2, *([3] * (depth - 1)), 3), rank=2)
    eta, chain = 0.1, dnd.start(setting, [0.8, 1.1])
    for _ in range(int(np.log(1e-7) / np.log(1 - eta * depth))):
        chain = chain.step(eta)
    norms = [np.linalg.norm(c.to_chain().functional(), 2) for c in (chain, chain.step(eta))]
    assert norms[1] / norms[0] == pytest.approx(dnd.sharp_rate(depth, eta), rel=1e-5)


@pytest.mark.parametrize("depth", [2, 3, 4])
def test_power_laws(depth: int) -> None:
    eta, steps, value = 0.1, 200_000, 0.9
    for _ in range(steps):
        value -= eta * value ** (2 * depth - 1)
    assert value == pytest.approx(dnd.power_law(depth, eta, steps), rel=1e-3)
    setting = Setting.whitened((2, *([2] * (depth - 1)), 2), rank=1)
    chain = dnd.start(setting, [1.0, value]).to_chain()
    assert np.linalg.norm(chain.functional(), 2) == pytest.approx(value**depth, rel=0.1)
    assert excess(chain) == pytest.approx(value ** (2 * depth) / 2)


@settings(deadline=None, max_examples=40)
@given(cases(spare=True))
def test_eigenvectors(case: Case) -> None:
    setting, lam, rng = case
    bases = [np.linalg.qr(rng.standard_normal((width, width)))[0] for width in setting.widths]
    chain = dnd.start(setting, lam, bases).to_chain()
    outer = chain.gauss_newton()
    nu = dnd.curvatures(setting, lam)
    for i in range(setting.widths[-1]):
        for j in range(setting.widths[0]):
            vector = dnd.lemma_a_10(chain, bases[-1][:, i], bases[0][:, j])
            np.testing.assert_allclose(outer @ vector, nu[i, j] * vector, atol=1e-11)
            if j < setting.data_rank:
                assert vector @ vector == pytest.approx(nu[i, j], abs=1e-12)


@settings(deadline=None, max_examples=60)
@given(cases(spare=True))
def test_eigenvalues_follow_the_curvatures(case: Case) -> None:
    setting, lam, rng = case
    chain = turned(setting, lam, rng)
    listed = dnd.lemma_a_11(setting, lam)
    outer = np.linalg.eigvalsh(chain.gauss_newton())[::-1]
    np.testing.assert_allclose(listed, outer, atol=1e-11)
    full = np.linalg.eigvalsh(chain.hessian())[::-1]
    assert np.abs(full - listed).max() <= np.linalg.norm(chain.functional(), 2) + 1e-11


def test_eigenvalue_list_as_printed_misses_bulk() -> None:
    setting = Setting.whitened((10, 20, 16), rank=4)
    lam = np.ones(4)
    counts = [
        int(np.sum(dnd.lemma_a_11(setting, lam, as_printed) > 0)) for as_printed in (True, False)
    ]
    assert counts == [64, 88]


@settings(deadline=None, max_examples=40)
@given(st.integers(2, 8), st.floats(1.0, 1.0), st.floats(1.01, 9.0))
def test_ratio_bounds_are_attained(depth: int, low: float, kappa: float) -> None:
    high = low * kappa ** (1 / (2 * depth - 2))
    setting = Setting.whitened((3, *([3] * (depth - 1)), 3), rank=2)
    values = Spectrum.from_matrix(dnd.start(setting, [high, low]).to_chain().gauss_newton())
    nonzero = values.expand()[: setting.rank**2 + setting.bulk]
    predicted = dnd.lemma_a_9(setting, [high, low])
    assert len(nonzero) == len(predicted.expand()) - predicted.select("zero").size
    dominant, bulk = (predicted.select(name).values for name in ("dominant", "bulk"))
    smallest, largest = dnd.equation_10(depth, kappa)
    assert dominant.min() / bulk.max() == pytest.approx(smallest)
    assert dominant.max() / bulk.min() == pytest.approx(largest)
    (dom_low, dom_high), (bulk_low, bulk_high) = dnd.intervals([high, low], depth)
    assert (dom_low, bulk_low) == pytest.approx((dominant.min(), bulk.min()))
    assert (dom_high, bulk_high) == pytest.approx((dominant.max(), bulk.max()))


def test_spread_condition_means_kappa_below_depth() -> None:
    for depth in (2, 3, 10, 100):
        assert dnd.spread_limit(depth) ** (2 * depth - 2) == pytest.approx(depth)
    limits = [dnd.spread_limit(depth) for depth in range(2, 50)]
    assert np.all(np.diff(limits) < 0)
    assert np.all(np.diff([limit**depth for depth, limit in enumerate(limits, 2)]) > 0)


def test_oracle_agrees() -> None:
    """Autograd knows none of the formulas above."""
    setting = Setting.whitened((4, 3, 3, 3), rank=2)
    for lam in ([0.9, 0.9], [0.8, 1.2]):
        chain = turned(setting, np.array(lam), np.random.default_rng(5))
        loss = autograd.linear_chain_loss(chain.sigma_xx, chain.sigma_yx)
        hessian = autograd.dense_hessian(loss, autograd.tensors(chain.weights))
        measured = Spectrum.from_matrix((hessian + hessian.T) / 2)
        theorem = dnd.theorem_3_5(setting, lam)
        together = Spectrum.merge([theorem.exact, theorem.near])
        assert np.abs(together.expand() - measured.expand()).max() <= theorem.radius + 1e-12
        if lam[0] == lam[1]:
            assert measured.distance(dnd.corollary_3_6(setting, lam[0])) < 1e-12


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Setting.whitened((3, 4), 1), "depth L ≥ 2.*depth 1"),
        (lambda: Setting.whitened((0, 3, 3), 1), "widths must be at least 1, got 0"),
        (lambda: Setting.whitened((3, 2, 3), 1), "hidden width at least d\\* = 3"),
        (lambda: Setting.whitened((3, 3, 2), 3), "rank must be at most d\\* = 2.*got 3"),
        (lambda: Setting.whitened((3, 3, 2), 0), "rank must be at least 1, got 0"),
        (lambda: Setting((3, 3, 2), 2, 1), "data_rank must lie between.*2 and d_0 = 3, got 1"),
        (lambda: Setting((3, 3, 2), 2, 4), "data_rank must lie between.*got 4"),
        (lambda: dnd.start(SMALL, [1.0] * 3), "lam must have r = 1 or d\\* = 2 values, got 3"),
        (lambda: dnd.start(SMALL, [-1.0]), "lam must not be negative, got -1"),
        (lambda: dnd.lemma_3_4(SMALL, [1.0], 0.5), "eta must lie between 0 and min.* = 0.5, got"),
        (lambda: dnd.lemma_3_4(SMALL, [1.0, 2.0], 0.3), "= 0.25, got 0.3: beyond it the singular"),
        (lambda: dnd.lemma_3_4(SMALL, [1.0], 0.0), "eta must lie between 0"),
        (lambda: dnd.theorem_3_5(SMALL, [1.0, 0.1]), "lam must be 0 beyond r = 1, got 0.1"),
        (lambda: dnd.lemma_a_7(SMALL, [1.0, 0.1], 0.1, 1), "the rates are power laws"),
        (lambda: dnd.lemma_a_7(SMALL, [2.0], 0.2, 1), "= 0.125, got 0.2: beyond it a singular"),
        (lambda: dnd.sharp_rate(3, 0.4), "eta must lie between 0 and 1/L = 0.333333, got 0.4"),
        (lambda: dnd.sharp_rate(2, 0.5), "eta must lie between 0 and 1/L = 0.5, got 0.5"),
        (lambda: dnd.sharp_rate(2, 0.0), "eta must lie between 0 and 1/L = 0.5, got 0.0"),
        (lambda: dnd.sharp_rate(0, 0.1), "depth must be at least 1, got 0"),
        (lambda: dnd.power_law(2, 0.1, 0), "steps must be at least 1, got 0"),
        (lambda: dnd.equation_10(3, 0.5), "kappa must be at least 1, got 0.5"),
        (lambda: dnd.power_law(1, 0.1, 10), "depth must be at least 2, got 1"),
    ],
)
def test_bad_input_is_refused(call: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()
