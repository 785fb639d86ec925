"""One balanced mode, and two modes that meet: closed forms against descent on matrices."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exacthessian import AlignedChain, LinearChain, autograd, mode
from exacthessian.aligned import multipliers
from exacthessian.studies import beyond_edge_of_stability as study

depths = st.integers(2, 7)
sizes = st.floats(0.2, 20.0)
shares = st.floats(0.4, 0.98)


@settings(deadline=None, max_examples=60)
@given(depths, sizes, st.floats(1.001, 3.0))
def test_two_steps_lead_back(depth: int, target: float, ratio: float) -> None:
    eta = ratio * mode.edge(depth, target)
    low, high = mode.two_cycle(depth, target, eta)
    assert 0 < low < target ** (1 / depth) < high < (2 * target) ** (1 / depth)
    assert mode.step(low, depth, target, eta) == pytest.approx(high, rel=1e-9)
    assert mode.step(high, depth, target, eta) == pytest.approx(low, rel=1e-9)
    assert mode.cycle_step(depth, target, high / low) == pytest.approx(eta, rel=1e-9)


@pytest.mark.parametrize("depth", [2, 3, 5])
def test_no_other_two_cycle(depth: int) -> None:
    """A scan of F(F(s)) − s finds the fixed point and the two values, and nothing below."""
    grid = np.linspace(0.05, 1.25, 200_001)
    for ratio, crossings in ((0.9, 1), (1.1, 3), (1.4, 3)):
        eta = ratio * mode.edge(depth, 1.0)
        once = mode.step(grid, depth, 1.0, eta)
        signs = np.sign(mode.step(once, depth, 1.0, eta) - grid)[once > 0]
        assert np.count_nonzero(np.diff(signs[signs != 0])) == crossings


def test_a_step_of_a_mode_is_a_step_of_balanced_layers() -> None:
    chain = AlignedChain.balanced((1, 1, 1, 1), [0.7], target=[2.0]).step(0.4)
    assert np.allclose(chain.singular_values, mode.step(0.7, 3, 2.0, 0.4))


@settings(deadline=None, max_examples=30)
@given(depths, st.floats(0.5, 1.2), st.floats(0.1, 1.0))
def test_slope_is_the_derivative(depth: int, x: float, eta: float) -> None:
    ahead, back = mode.step(np.array([x + 1e-6, x - 1e-6]), depth, 1.5, eta)
    assert mode.slope(x, depth, 1.5, eta) == pytest.approx((ahead - back) / 2e-6, abs=1e-5)


@pytest.mark.parametrize("depth", [2, 3, 5])
def test_period_doubles_where_it_is_said_to(depth: int) -> None:
    for factor, period in ((0.99, 2), (1.01, 4)):
        eta = factor * mode.doubling_steps(depth, 4.0, 2)[1]
        orbit = [0.9 * 4.0 ** (1 / depth)]
        for _ in range(6000 + period):
            orbit.append(mode.step(orbit[-1], depth, 4.0, eta))
        assert orbit[-1 - period] == pytest.approx(orbit[-1], abs=1e-9)
        assert abs(orbit[-1 - period // 2] - orbit[-1]) > 1e-3


def test_the_gaps_of_doublings_tend_to_feigenbaums_constant() -> None:
    gaps = np.diff(mode.doubling_steps(3, 1.0, 7))
    assert gaps[-2] / gaps[-1] == pytest.approx(4.6692, abs=3e-3)


@settings(deadline=None, max_examples=20)
@given(depths, shares)
def test_the_curvature_of_a_pair_is_in_the_spectrum(depth: int, q: float) -> None:
    chain = mode.minimum(depth, [1.0, q], 2, alpha=0.0)
    top = np.linalg.eigvalsh(chain.block(1, 2)).max()
    assert mode.curvature(depth, 1.0, q) == pytest.approx(top)


@pytest.mark.parametrize("depth", [2, 3, 4])
def test_the_orbit_of_the_chain(depth: int) -> None:
    eta = 1.1 * mode.edge(depth, 10.0)
    low, high = mode.orbit(depth, [10.0, 2.0], eta, width=3, alpha=0.3)
    matrices = low.to_chain().step(eta)
    assert matrices.parameters() == pytest.approx(high.to_chain().parameters(), abs=1e-9)
    ends = np.array(mode.two_cycle(depth, 10.0, eta))
    z, growth = ends[1] / ends[0], np.prod(mode.slope(ends, depth, 10.0, eta))
    expected = [growth, *[5 - 2 * (z + 1 / z)] * (depth - 1)]
    found = multipliers((low, high), eta)[1, 1]
    assert np.sort(found.real) == pytest.approx(np.sort(expected), abs=1e-6)


@settings(deadline=None, max_examples=20)
@given(depths, shares)
def test_relabelling_puts_the_lower_point_on_mode_two(depth: int, q: float) -> None:
    eta = mode.relabelling_step(depth, 2.0, 2 * q)
    s = (2 * q) ** (1 / depth)
    there = mode.step(s, depth, 2.0, eta)
    assert there > s
    assert mode.step(there, depth, 2.0, eta) == pytest.approx(s)
    if depth == 2:
        assert 2 * eta == pytest.approx(((4 / q - 3) ** 0.5 - 1) / (2 * (1 - q)))


def test_the_transverse_step() -> None:
    assert mode.transverse_step(2, 1.0, 0.8) == pytest.approx(2 / 1.8)
    turn = mode.transverse_step(3, 10.0, 9.0)
    assert round(turn * mode.curvature(3, 10.0, 9.0) / 2, 5) == 1.00343
    assert mode.transverse_growth(3, 10.0, 9.0, 0.99 * turn) < 0
    assert mode.transverse_growth(3, 10.0, 9.0, 1.01 * turn) > 0
    assert np.isnan(mode.transverse_step(3, 1.0, 0.5))


@settings(deadline=None, max_examples=15)
@given(st.floats(0.3, 0.97), st.floats(1.02, 1.23))
def test_two_layers_in_closed_form(q: float, a: float) -> None:
    block = multipliers(mode.orbit(2, [1.0, q], a), a)[1, 2]
    assert max(np.abs(block - nu).min() for nu in study.two_layer_multipliers(1.0, q, a)) < 1e-6
    c = a - q * a
    assert np.abs(block - (c * c - c * (1 + a) + 1)).min() < 1e-6


def two_steps(states: tuple[LinearChain, ...], eta: float) -> np.ndarray:
    """The Jacobian of two matrix steps along a cycle, from the oracle's Hessians."""
    jacobian = np.eye(len(states[0].parameters()))
    for state in states:
        jacobian = (np.eye(len(jacobian)) - eta * autograd.hessian(state)) @ jacobian
    return jacobian


def test_multipliers_are_those_of_the_jacobian_of_matrix_steps() -> None:
    eta = 1.1 * mode.edge(3, 10.0)
    states = tuple(state.to_chain() for state in mode.orbit(3, [10.0, 9.0], eta))
    largest = np.abs(np.linalg.eigvals(two_steps(states, eta))).max()
    assert np.log(largest) / 2 == pytest.approx(mode.transverse_growth(3, 10.0, 9.0, eta))


# Rotating cycles


@settings(deadline=None, max_examples=60)
@given(st.integers(2, 9), sizes, st.floats(0.1, 0.99), st.floats(1.0005, 1.9))
def test_a_rotating_cycle_returns_after_two_steps(
    depth: int, first: float, share: float, ratio: float
) -> None:
    second = share * first
    eta = ratio * mode.rotating_edge(depth, first, second)
    if depth == 2 and eta * (first - second) > 2 - 1e-9:
        return
    one, two = mode.rotating_cycle(depth, first, second, eta)
    scale = np.abs(one.parameters()).max()
    assert one.step(eta).parameters() == pytest.approx(two.parameters(), abs=1e-9 * scale)
    assert two.step(eta).parameters() == pytest.approx(one.parameters(), abs=1e-9 * scale)
    turned = one.product[0, 1]
    assert turned > 0
    assert two.product[0, 1] == pytest.approx(-turned)


@pytest.mark.parametrize(("first", "second"), [(10.0, 9.0), (3.0, 1.0), (7.0, 6.9)])
def test_the_printed_product_of_two_layers(first: float, second: float) -> None:
    """P = diag(σ) − (δ/η) I ± (y/η) J, δ = (η(σ_1 + σ_2) − 2)/4, y² = δ(2 + δ)."""
    for ratio in (1.0005, 1.01, 1.2):
        eta = ratio * 2 / (first + second)
        delta = (eta * (first + second) - 2) / 4
        off = np.sqrt(delta * (2 + delta))
        expected = np.diag([first - delta / eta, second - delta / eta])
        expected += off / eta * np.array([[0, 1], [1, 0]])
        one, _ = mode.rotating_cycle(2, first, second, eta)
        assert one.product == pytest.approx(expected)


@pytest.mark.parametrize("ratio", [1.0005, 1.05, 1.3])
def test_the_rotating_cycle_of_two_layers_repels(ratio: float) -> None:
    """Among its multipliers are 1, twice 1 − 4δ, and (1 ± i√(8δ))²."""
    eta = ratio * 2 / 13
    delta = (eta * 13 - 2) / 4
    found = np.linalg.eigvals(two_steps(mode.rotating_cycle(2, 8.0, 5.0, eta), eta))
    pair = (1 + 1j * np.sqrt(8 * delta)) ** 2
    for expected, count in ((1, 1), (1 - 4 * delta, 2), (pair, 1), (pair.conjugate(), 1)):
        assert np.sum(np.abs(found - expected) < 1e-6) >= count
    assert abs(pair) == pytest.approx(1 + 8 * delta)


@pytest.mark.parametrize("depth", [3, 4, 6, 7])
@pytest.mark.parametrize("share", [0.97, 0.6, 0.1])
def test_a_larger_step_tilts_more(depth: int, share: float) -> None:
    """One cycle for each step: the bend φ and the stretch ξ grow with η, without bound."""
    born = mode.rotating_edge(depth, 1.0, share)
    layers = [mode.rotating_cycle(depth, 1.0, share, r * born)[0].weights[0] for r in (1.01, 2, 90)]
    sizes = [(np.log(abs(w[0, 0] / w[1, 1])), w[0, 1] * w[1, 0] / np.linalg.det(w)) for w in layers]
    assert np.all(np.diff(sizes, axis=0)[:, 0] > 0)
    assert sizes[0][1] < sizes[1][1]


@pytest.mark.parametrize("depth", [3, 4, 5, 6])
def test_a_search_without_the_closed_form_finds_the_same_cycle(depth: int) -> None:
    eta = 1.015 * 2 / mode.curvature(depth, 10.0, 9.0)
    product = mode.rotating_cycle(depth, 10.0, 9.0, eta)[0].product
    assert study.tilted_cycle(depth, 10.0, 9.0, eta) == pytest.approx(product[0, 1], rel=1e-6)


@pytest.mark.parametrize("depth", [3, 4, 5, 6])
def test_rotating_cycles_are_born_at_the_flattest_symmetric_minimum(depth: int) -> None:
    """λ of the pair over random minima that read the same both ways is never below 2/edge."""
    rng, sigma = np.random.default_rng(0), np.array([10.0, 4.0])
    least = np.inf
    for _ in range(4000):
        half = np.exp(0.5 * rng.standard_normal((depth // 2, 2)))
        middle = [sigma / (half**2).prod(axis=0)] if depth % 2 else []
        if not middle:
            half[-1] *= np.sqrt(sigma / (half**2).prod(axis=0))
        s = np.array([*half, *middle, *half[::-1]])
        terms = [s[k + 1 :, 0].prod() * s[:k, 1].prod() for k in range(depth)]
        least = min(least, float(np.sum(np.square(terms))))
    assert 1 <= least * mode.rotating_edge(depth, *sigma) / 2 < 1.2
    assert mode.rotating_edge(depth, *sigma) >= 2 / mode.curvature(depth, *sigma)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: mode.two_cycle(2, 10.0, 0.05), "eta must exceed the edge 0.1"),
        (lambda: mode.rotating_cycle(3, 10.0, 9.0, 0.033), "eta must exceed 0.0331"),
        (
            lambda: mode.rotating_cycle(3, 10.0, 9.0, mode.rotating_edge(3, 10.0, 9.0)),
            "eta must exceed 0.0331",
        ),
        (lambda: mode.rotating_cycle(2, 3.0, 1.0, 1.1), "exceed 0.5 and be below 1, got 1.1"),
    ],
)
def test_a_cycle_that_does_not_exist_is_refused(call: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()
