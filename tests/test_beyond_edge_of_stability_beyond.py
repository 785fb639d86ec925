"""Who oscillates: thresholds, cycles, multipliers and departures, computed in two ways."""

import doctest

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exacthessian.aligned import AlignedChain
from exacthessian.chain import LinearChain
from exacthessian.papers import beyond_edge_of_stability_beyond as beyond

EDGE = 2 / (3 * 10 ** (4 / 3))
SCALE = 10 ** (2 / 3 - 2)
depths = st.integers(2, 7)
shares = st.floats(0.4, 0.98)


def test_doctests() -> None:
    assert doctest.testmod(beyond).failed == 0


def test_mode_step_is_a_gradient_step_of_balanced_layers() -> None:
    chain = AlignedChain.balanced((1, 1, 1, 1), [0.7], target=[1.0]).step(0.4)
    assert np.allclose(chain.singular_values, beyond.mode_step(0.7, 3, 0.4))


@settings(deadline=None, max_examples=30)
@given(depths, st.floats(0.5, 1.2), st.floats(0.1, 1.0))
def test_slope_is_the_derivative(depth: int, x: float, a: float) -> None:
    h = 1e-6
    ends = beyond.mode_step([x + h, x - h], depth, a)
    assert np.isclose(beyond.mode_slope(x, depth, a), (ends[0] - ends[1]) / (2 * h), atol=1e-6)


@settings(deadline=None, max_examples=20)
@given(depths, st.floats(0.01, 0.3))
def test_parametric_cycle_is_a_two_cycle(depth: int, scaled: float) -> None:
    t = scaled / depth
    a, low, high = beyond.parametric_cycle(depth, t)
    assert np.isclose(np.log(high / low), 2 * t)
    assert np.allclose(beyond.mode_step([low, high], depth, a), [high, low], atol=1e-12)
    assert a > 2 / depth


@pytest.mark.parametrize("depth", [2, 3, 5, 400])
def test_cycle_finds_the_closed_form(depth: int) -> None:
    a, low, high = beyond.parametric_cycle(depth, 0.15 / depth)
    assert np.allclose(beyond.cycle(depth, a, 2), [low, high], atol=1e-10)
    with pytest.raises(ValueError, match="no cycle of period 2"):
        beyond.cycle(depth, 0.9 * 2 / depth, 2)


def test_cycle_of_period_four() -> None:
    points = beyond.cycle(3, 0.85, 4)
    assert points[0] == points.min()
    assert len(np.unique(points.round(6))) == 4
    assert np.allclose(beyond.mode_step(points, 3, 0.85), np.roll(points, -1))


def test_doublings() -> None:
    onsets = beyond.doubling_onsets(3, 7)
    expected = [0.666667, 0.829738, 0.866944, 0.874988, 0.876714, 0.877084, 0.877164]
    assert np.allclose(onsets, expected, atol=6e-7)
    assert abs(beyond.feigenbaum_quotients(onsets)[-1] - 4.6692) < 1e-3
    assert np.isclose(beyond.doubling_onsets(2, 2)[1], 5**0.5 - 1)


def test_lyapunov() -> None:
    found = beyond.lyapunov(3, np.array([1.1, 1.33, 1.4]) * 2 / 3)
    assert np.allclose(found, [-0.823, 0.173, 0.362], atol=0.01)


def test_attractor_matches_the_cycle_in_each_mode() -> None:
    eta = 1.1 * EDGE
    states = beyond.attractor(3, [10.0, 6.0], [eta, 40 * eta], keep=2, settle=2000)
    assert np.allclose(np.sort(states[0, :, 0]), beyond.cycle(3, eta / SCALE, 2) * 10 ** (1 / 3))
    assert np.allclose(states[0, :, 1], 6 ** (1 / 3))
    assert np.isnan(states[1]).all()


@settings(deadline=None, max_examples=20)
@given(depths, shares)
def test_cross_eigenvalue_is_in_the_spectrum(depth: int, q: float) -> None:
    sigma = np.array([1.0, q])
    chain = AlignedChain.balanced((2,) * (depth + 1), sigma ** (1 / depth), target=sigma)
    top = np.linalg.eigvalsh(chain.block(1, 2)).max()
    assert np.isclose(beyond.cross_eigenvalue(depth, 1.0, q), top)


@settings(deadline=None, max_examples=20)
@given(depths, shares)
def test_relabelling_puts_the_lower_point_on_mode_two(depth: int, q: float) -> None:
    a = beyond.relabelling_threshold(depth, q)
    x = q ** (1 / depth)
    there = beyond.mode_step(x, depth, a)
    assert there > x
    assert np.isclose(beyond.mode_step(there, depth, a), x)
    if depth == 2:
        assert np.isclose(a, ((4 / q - 3) ** 0.5 - 1) / (2 * (1 - q)))


def test_thresholds_of_the_paper_setting() -> None:
    assert round(beyond.relabelling_threshold(3, 0.9) * SCALE, 6) == 0.031399
    turn = beyond.transverse_threshold(3, 0.9)
    assert round(turn * SCALE, 6) == 0.033255
    assert round(turn * beyond.cross_eigenvalue(3, 1.0, 0.9) / 2, 5) == 1.00343
    assert np.isclose(beyond.transverse_threshold(2, 0.8), 2 / 1.8)
    assert np.isnan(beyond.transverse_threshold(3, 0.5))


@settings(deadline=None, max_examples=15)
@given(st.floats(0.3, 0.97), st.floats(1.02, 1.23))
def test_two_layers_in_closed_form(q: float, a: float) -> None:
    closed = beyond.odd_multipliers_two_layers(q, a)
    block = beyond.transverse_multipliers(2, q, a)
    assert max(np.abs(block - z).min() for z in closed) < 1e-6
    c = a - q * a
    assert np.abs(block - (c * c - c * (1 + a) + 1)).min() < 1e-6


def test_multipliers_against_the_jacobian_of_matrix_steps() -> None:
    eta, sigma = 1.1 * EDGE, np.array([10.0, 9.0])

    def step(theta: np.ndarray) -> np.ndarray:
        chain = LinearChain(tuple(theta.reshape(3, 2, 2)), np.eye(2), np.diag(sigma))
        return np.asarray(chain.gradient_step(eta).parameters())

    jacobian = np.eye(12)
    for state in beyond.cycle_orbit(3, sigma, eta):
        theta = state.to_chain().parameters()
        columns = [(step(theta + h) - step(theta - h)) / 2e-5 for h in 1e-5 * np.eye(12)]
        jacobian = np.array(columns).T @ jacobian
    largest = np.abs(np.linalg.eigvals(jacobian)).max()
    growth = beyond.transverse_growth(3, 0.9, eta / SCALE)
    assert np.isclose(largest, np.exp(2 * growth), atol=1e-6)


@pytest.mark.parametrize("kind", [np.float32, np.float64, np.longdouble])
def test_products_follow_the_chain_and_keep_their_arithmetic(kind: type) -> None:
    rng = np.random.default_rng(0)
    target = rng.standard_normal((3, 3))
    found = beyond.products(target.astype(kind), 3, 0.4, 0.1, 5)
    chain = LinearChain((0.4 * np.eye(3), 0.4 * np.eye(3), np.zeros((3, 3))), np.eye(3), target)
    for _ in range(5):
        chain = chain.gradient_step(0.1)
    assert found.dtype == kind
    assert np.allclose(found[-1].astype(float), chain.product, atol=1e-6)


def test_departure_is_exponential_and_linear_in_the_bits() -> None:
    eta = 1.12 * EDGE
    rate = beyond.transverse_growth(3, 0.9, eta / SCALE)
    runs = {b: beyond.fixed_point_departure((10, 9, 6), eta, b, 2500) for b in (60, 120)}
    assert abs(beyond.growth_rate(runs[120], 1e-28, 1e-4) / rate - 1) < 0.01
    later = beyond.onset(runs[120]) - beyond.onset(runs[60])
    assert abs(later * rate / (60 * np.log(2)) - 1) < 0.05


def test_below_the_threshold_nothing_grows() -> None:
    run = beyond.fixed_point_departure((10, 9, 6), 1.0737 * EDGE, 60, 3000)
    assert 0 < run.max() < 1e-12
    with pytest.raises(ValueError, match="never exceed"):
        beyond.onset(run)


def test_a_diagonal_target_never_leaves() -> None:
    run = beyond.fixed_point_departure((10, 9, 6), 1.12 * EDGE, 60, 1500, rotated=False)
    assert not run.any()


@pytest.mark.parametrize("q", [0.0, 1.0, 1.5])
def test_bad_share_is_named(q: float) -> None:
    with pytest.raises(ValueError, match="q must lie strictly between 0 and 1"):
        beyond.relabelling_threshold(3, q)
    with pytest.raises(ValueError, match="t must be positive"):
        beyond.parametric_cycle(3, 0.0)


def test_products_from_given_layers() -> None:
    rng = np.random.default_rng(1)
    target, *layers = rng.standard_normal((4, 3, 3))
    found = beyond.products(target, 3, 0.0, 0.01, 3, layers=layers)
    chain = LinearChain(tuple(layers), np.eye(3), target)
    for _ in range(3):
        chain = chain.gradient_step(0.01)
    assert np.allclose(found[-1], chain.product)
