"""The closed forms of the edge-of-stability chapter, against descent and dense Hessians."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exacthessian import LinearChain, Spectrum
from exacthessian.aligned import multipliers
from exacthessian.papers import beyond_edge_of_stability as eos

depths = st.integers(2, 6)
sizes = st.floats(0.2, 20.0)


@settings(deadline=None, max_examples=60)
@given(depths, sizes, st.floats(1.001, 3.0))
def test_two_steps_lead_back(depth: int, target: float, ratio: float) -> None:
    step = ratio * eos.critical_step(depth, target)
    low, high = eos.two_cycle(depth, target, step)
    assert 0 < low < target ** (1 / depth) < high < (2 * target) ** (1 / depth)
    moved = eos.mode_step([low, high], depth, target, step)
    assert moved == pytest.approx([high, low], rel=1e-9)
    assert eos.orbit_polynomial([low, high], depth, target, step) == pytest.approx(
        0, abs=1e-8 * target
    )
    assert eos.cycle_step(depth, target, high / low) == pytest.approx(step, rel=1e-9)


@pytest.mark.parametrize("depth", [2, 3, 5])
def test_no_other_two_cycle(depth: int) -> None:
    """A scan of F(F(s)) − s finds the fixed point and the two values, and nothing below."""
    edge = eos.critical_step(depth, 1.0)
    grid = np.linspace(0.05, 1.25, 200_001)
    for ratio, crossings in ((0.9, 1), (1.1, 3), (1.4, 3)):
        step = ratio * edge
        once = eos.mode_step(grid, depth, 1.0, step)
        twice = eos.mode_step(once, depth, 1.0, step)
        signs = np.sign(twice - grid)[once > 0]
        assert np.count_nonzero(np.diff(signs[signs != 0])) == crossings


@pytest.mark.parametrize("depth", [2, 3, 4, 7])
def test_step_grows_with_the_swing(depth: int) -> None:
    steps = [eos.cycle_step(depth, 3.0, z) for z in np.linspace(1.001, 6.0, 200)]
    assert np.all(np.diff(steps) > 0)
    assert steps[0] == pytest.approx(eos.critical_step(depth, 3.0), rel=1e-4)


def test_printed_polynomial_misses_the_orbit() -> None:
    step = 1.1 * eos.critical_step(3, 10.0)
    values = eos.two_cycle(3, 10.0, step)
    assert abs(eos.orbit_polynomial(values, 3, 10.0, step, as_printed=True)).min() > 0.1
    printed = eos.orbit_polynomial([1.0], 3, 10.0, step, as_printed=True)
    assert printed == pytest.approx(eos.orbit_polynomial([1.0], 3, 10.0, 3 * step))


@pytest.mark.parametrize("depth", [2, 3, 4])
def test_slope_and_multiplier(depth: int) -> None:
    step, h = 1.15 * eos.critical_step(depth, 5.0), 1e-6
    values = np.array(eos.two_cycle(depth, 5.0, step))
    ahead, back = (eos.mode_step(values + d, depth, 5.0, step) for d in (h, -h))
    slopes = eos.mode_slope(values, depth, 5.0, step)
    assert slopes == pytest.approx((ahead - back) / (2 * h), rel=1e-6, abs=1e-8)
    assert eos.cycle_multiplier(depth, 5.0, step) == pytest.approx(slopes.prod())


@pytest.mark.parametrize("depth", [2, 3, 5])
def test_period_doubles_where_it_is_said_to(depth: int) -> None:
    for factor, period in ((0.99, 2), (1.01, 4)):
        step = factor * eos.period_doubling_step(depth, 4.0)
        value = np.array(0.9 * 4.0 ** (1 / depth))
        for _ in range(6000):
            value = eos.mode_step(value, depth, 4.0, step)
        orbit = [value]
        for _ in range(period):
            orbit.append(eos.mode_step(orbit[-1], depth, 4.0, step))
        assert orbit[period] == pytest.approx(orbit[0], abs=1e-9)
        assert abs(orbit[period // 2] - orbit[0]) > 1e-3


@pytest.mark.parametrize("depth", [2, 3, 4])
@pytest.mark.parametrize("start", eos.STARTS)
def test_spectrum_at_the_minimum(depth: int, start: str) -> None:
    for targets, width in (([10.0, 6.0, 3.0], 5), ([2.0], 3), ([5.0, 4.0], 2)):
        chain = eos.minimum(depth, targets, width, 0.3, start)
        predicted = eos.lemma_1(depth, targets, width, 0.3, start)
        assert predicted.size == depth * width**2
        dense = Spectrum.from_matrix(chain.to_chain().hessian())
        assert dense.distance(predicted) < 1e-12
        assert chain.loss() == pytest.approx(0, abs=1e-12)
        assert chain.to_chain().gradient() == pytest.approx(0, abs=1e-12)


def test_labels_of_the_spectrum() -> None:
    counts = {
        name: eos.lemma_1(3, [10.0, 6.0, 3.0], 5, 0.3).select(name).size
        for name in ("self", "pair", "output", "input", "null", "zero")
    }
    assert counts == {"self": 3, "pair": 6, "output": 6, "input": 6, "null": 4, "zero": 50}
    printed = eos.lemma_1_as_printed(3, [10.0, 6.0, 3.0], 0.3)
    assert len(printed) == 3 + 3 + 3 + 3
    assert not np.any(np.isclose(printed, 0.3**4))


def test_starts_lead_to_their_minimum() -> None:
    start = eos.initial(3, [4.0, 2.0], 3, 0.2)
    state = start
    for _ in range(3000):
        state = state.step(0.5 * eos.critical_step(3, 4.0))
    assert state.product == pytest.approx([4.0, 2.0, 0.0], abs=1e-9)
    assert [layer[2] for layer in state.singular_values] == [0.2, 0.2, 0.0]
    balanced = eos.initial(3, [4.0], 2, 0.2, "balanced")
    assert np.array(balanced.singular_values) == pytest.approx(0.2)


@pytest.mark.parametrize("depth", [2, 3, 4])
def test_cycle_of_the_chain(depth: int) -> None:
    step = 1.1 * eos.critical_step(depth, 10.0)
    low, high = eos.cycle(depth, [10.0, 2.0], step, width=3, alpha=0.3)
    matrices = low.to_chain().gradient_step(step)
    assert matrices.parameters() == pytest.approx(high.to_chain().parameters(), abs=1e-9)
    found = multipliers((low, high), step)[1, 1]
    expected = [
        eos.cycle_multiplier(depth, 10.0, step),
        *[eos.cycle_balancing(depth, 10.0, step)] * (depth - 1),
    ]
    assert np.sort(found.real) == pytest.approx(np.sort(expected), abs=1e-6)


def test_null_modes_of_a_cycle_are_empty_unless_alpha_is_given() -> None:
    for alpha, filled in ((None, 0.0), (0.3, 0.3)):
        extra = {} if alpha is None else {"alpha": alpha}
        low, _ = eos.cycle(3, [10.0], 0.032, width=2, **extra)
        np.testing.assert_array_equal(np.array(low.singular_values)[:, 1], [filled, filled, 0.0])


@pytest.mark.parametrize("share", [0.5, 0.8, 0.95])
def test_transverse_onset(share: float) -> None:
    assert eos.transverse_onset(2, 1.0, share) == pytest.approx(2 / (1 + share), rel=1e-6)
    later = eos.transverse_onset(3, 10.0, 10 * share) * eos.curvature(3, 10.0, 10 * share) / 2
    assert 1.001 < later < 1.05
    onset = eos.transverse_onset(3, 10.0, 10 * share)
    assert eos.transverse_radius(3, 10.0, 10 * share, 0.99 * onset) < 1 - 1e-6
    assert eos.transverse_radius(3, 10.0, 10 * share, 1.01 * onset) > 1


def test_diagonal_network() -> None:
    """The Hessian of the diagonal network is that of the chain on the diagonal positions."""
    for depth in (2, 3, 4):
        chain = eos.minimum(depth, [10.0, 3.0], 4, 0.4)
        blocks = [np.linalg.eigvalsh(chain.block(i, i)) for i in range(1, 5)]
        dense = Spectrum.from_values(np.concatenate(blocks))
        predicted = eos.diagonal_spectrum(depth, [10.0, 3.0], 4, 0.4)
        assert predicted.size == depth * 4
        assert dense.distance(predicted) < 1e-12
        printed = eos.diagonal_spectrum(depth, [10.0, 3.0], 4, 0.4, as_printed=True)
        assert printed.size == depth * 4
        assert dense.distance(printed) > 1e-6
    assert eos.diagonal_spectrum(2, [1.0], 2, 0.5, as_printed=True).values.min() < 0
    printed = eos.diagonal_spectrum(3, [1.0], 2, 0.5, as_printed=True).select("null").values
    root = 3 * 0.5**8  # √(4L − 3) α^(2(L − 1)²)
    np.testing.assert_allclose(np.sort(printed), [(0.5**4 - root) / 2, (0.5**4 + root) / 2])


@settings(deadline=None, max_examples=30)
@given(depths, sizes)
def test_self_direction(depth: int, target: float) -> None:
    chain = eos.minimum(depth, [target], 1, 0.0).to_chain()
    direction = eos.pair_direction(depth, [target], 1, 1)
    found = eos.line_derivatives(chain.weights, direction, chain.sigma_yx)
    assert found == pytest.approx(eos.self_derivatives(depth, target), rel=1e-9)
    f2, f3, f4 = found
    assert 3 * f3**2 - f2 * f4 == pytest.approx(eos.self_criterion(depth, target), rel=1e-9)


@pytest.mark.parametrize("depth", [2, 3, 5])
def test_cross_direction_is_a_parabola(depth: int) -> None:
    targets = [10.0, 9.0]
    chain = eos.minimum(depth, targets, 2, 0.0).to_chain()
    for pair in ((1, 2), (2, 1)):
        direction = eos.pair_direction(depth, targets, *pair)
        vector = np.concatenate([layer.ravel() for layer in direction])
        assert np.linalg.norm(vector) == pytest.approx(1)
        lam = eos.curvature(depth, *targets)
        assert chain.hvp(vector) == pytest.approx(lam * vector, abs=1e-9)
        f2, f3, f4 = eos.line_derivatives(chain.weights, direction, chain.sigma_yx)
        assert (f2, f3, f4) == pytest.approx((lam, 0, 0), abs=1e-9)


def test_line_derivatives_against_differences() -> None:
    rng = np.random.default_rng(0)
    weights, moves = rng.standard_normal((3, 2, 2)), rng.standard_normal((3, 2, 2))
    target = rng.standard_normal((2, 2))

    def loss(mu: float) -> float:
        product = np.eye(2)
        for weight in weights + mu * moves:
            product = weight @ product
        return float(np.sum((product - target) ** 2) / 2)

    nodes = np.linspace(-1, 1, 7)
    fitted = np.polynomial.Polynomial.fit(nodes, [loss(mu) for mu in nodes], 6).convert().coef
    found = eos.line_derivatives(weights, moves, target)
    assert found == pytest.approx([2 * fitted[2], 6 * fitted[3], 24 * fitted[4]], rel=1e-8)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.floats(0.3, 2.0), min_size=2, max_size=5), sizes, st.floats(0.01, 0.3))
def test_balancing_law(values: list[float], target: float, step: float) -> None:
    factors = np.array(values)
    product = factors.prod()
    moved = factors - step * (product - target) * product / factors
    q = eos.balancing_loss(factors, target, step, 1, 2)
    before, after = (w[0] ** 2 - w[1] ** 2 for w in (factors, moved))
    assert after == pytest.approx((1 - q) * before, abs=1e-9 * (1 + np.abs(moved).max() ** 2))


@settings(deadline=None, max_examples=60)
@given(st.lists(st.floats(0.0, 3.0), min_size=2, max_size=5), sizes)
def test_flow_limit(values: list[float], target: float) -> None:
    factors = np.array([*values[:-1], max(values[-1], 0.1)])
    limit = eos.flow_limit(factors, target)
    assert limit.prod() == pytest.approx(target, rel=1e-8)
    assert np.ptp(limit**2 - factors**2) == pytest.approx(0, abs=1e-9)
    scalar = LinearChain(limit.reshape(-1, 1, 1), [[1.0]], [[target]])
    top = np.linalg.eigvalsh(scalar.hessian())[-1]
    assert eos.flow_sharpness(factors, target) == pytest.approx(top, rel=1e-6)


@pytest.mark.parametrize("depth", [2, 3, 4, 8])
def test_alpha_bound_is_safe_and_sharp(depth: int) -> None:
    for ratio in (0.2, 1.05, 1.4):
        step = ratio * eos.critical_step(depth, 10.0)
        bounds = [eos.alpha_bound(depth, 10.0, step, form) for form in ("proof", "statement")]
        bounds += [eos.alpha_bound(depth, 10.0, step, form) for form in ("derived", "sharp")]
        assert bounds == sorted(bounds)
        for alpha in bounds:
            start = np.r_[np.full(depth - 1, alpha), 0.0]
            assert eos.flow_sharpness(start, 10.0) <= np.sqrt(8) / step * (1 + 1e-12)
    # d ln ψ / d(α²) reaches (L−1)^{3−4/L} L^{−2} α² where Y^L = (L−1)².
    square = (depth - 1) ** (2 / depth)
    alpha2 = square - square ** (1 - depth)
    if alpha2 > 0:
        logs = [
            np.log(eos.flow_sharpness(np.r_[np.full(depth - 1, np.sqrt(a)), 0.0], 1.0))
            for a in (alpha2 - 1e-5, alpha2 + 1e-5)
        ]
        slope = (logs[1] - logs[0]) / 2e-5
        constant = (eos.alpha_bound(depth, 1.0, eos.critical_step(depth, 1.0))) ** 4
        assert slope == pytest.approx(alpha2 * 2 * np.log(np.sqrt(2)) / constant, rel=1e-4)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: eos.two_cycle(2, 10.0, 0.05), "step must exceed the critical step 0.1"),
        (lambda: eos.two_cycle(1, 10.0, 0.5), "depth must be at least 2"),
        (lambda: eos.critical_step(2, 0.0), "target must be positive"),
        (lambda: eos.cycle_step(2, 1.0, 1.0), "swing must exceed 1"),
        (lambda: eos.lemma_1(2, [1.0, 2.0], 2, 0.1), "strictly decreasing"),
        (lambda: eos.lemma_1(2, [2.0, 1.0], 1, 0.1), "targets must hold 1 to 1"),
        (lambda: eos.lemma_1(2, [2.0], 1, 0.1, "random"), "start must be one of"),
        (lambda: eos.alpha_bound(2, 1.0, 2.0), "step must be below"),
        (lambda: eos.alpha_bound(2, 1.0, 1.0, "best"), "form must be one of"),
        (lambda: eos.balancing_loss([1.0, 2.0], 1.0, 0.1, 1, 1), "two different factors"),
    ],
)
def test_bad_input_is_named(call: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()
