"""The numbered forms of the edge-of-stability paper and its studies, against oracle and descent."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exacthessian import LinearChain, Spectrum, autograd, mode
from exacthessian.papers import beyond_edge_of_stability as eos
from exacthessian.studies import beyond_edge_of_stability as study

EDGE = mode.edge(3, 10.0)
sizes = st.floats(0.2, 20.0)


@pytest.mark.parametrize("depth", [2, 3, 4])
@pytest.mark.parametrize("alpha", [0.3, 0.0])
def test_lemma_1(depth: int, alpha: float) -> None:
    for targets, width in (([10.0, 6.0, 3.0], 5), ([2.0], 3), ([5.0, 4.0], 2)):
        chain = mode.minimum(depth, targets, width, alpha)
        predicted = eos.lemma_1(depth, targets, width, alpha)
        assert predicted.size == depth * width**2
        assert autograd.spectrum(chain).distance(predicted) < 1e-12
        assert chain.loss() == pytest.approx(0, abs=1e-12)


def test_labels_of_lemma_1() -> None:
    spectrum = eos.lemma_1(3, [10.0, 6.0, 3.0], 5, 0.3)
    names = ("self", "pair", "output", "input", "null", "zero")
    assert [spectrum.select(name).size for name in names] == [3, 6, 6, 6, 4, 50]


def test_a_start_leads_to_its_minimum() -> None:
    state = study.one_zero(3, [4.0, 2.0], 3, 0.2)
    for _ in range(3000):
        state = state.step(0.5 * mode.edge(3, 4.0))
    assert state.product == pytest.approx([4.0, 2.0, 0.0], abs=1e-9)
    assert [layer[2] for layer in state.singular_values] == [0.2, 0.2, 0.0]


def test_theorem_3() -> None:
    """The Hessian of the diagonal network is that of the chain on the diagonal positions."""
    for depth in (2, 3, 4):
        chain = mode.minimum(depth, [10.0, 3.0], 4, 0.4)
        blocks = [np.linalg.eigvalsh(chain.block(i, i)) for i in range(1, 5)]
        dense = Spectrum.from_values(np.concatenate(blocks))
        assert dense.distance(eos.theorem_3_spectrum(depth, [10.0, 3.0], 4, 0.4)) < 1e-12
    assert eos.theorem_3(3, [10.0, 9.0, 2.0], 1.2 * EDGE).shape == (2, 2)
    assert eos.theorem_3(3, [10.0], 0.9 * EDGE).shape == (0, 2)


@settings(deadline=None, max_examples=30)
@given(st.integers(2, 6), sizes)
def test_theorem_2(depth: int, target: float) -> None:
    chain = mode.minimum(depth, [target], 1, 0.0).to_chain()
    direction = study.pair_direction(depth, [target], 1, 1)
    f2, f3, f4 = study.line_derivatives(chain.weights, direction, chain.sigma_yx)
    assert (f2, f3, f4) == pytest.approx(eos.theorem_2(depth, target), rel=1e-9)
    criterion = 4 * depth * (depth - 1) * (5 * depth - 4) * target ** (4 - 6 / depth)
    assert 3 * f3**2 - f2 * f4 == pytest.approx(criterion, rel=1e-9)


@pytest.mark.parametrize("depth", [2, 3, 5])
def test_a_cross_direction_is_a_parabola(depth: int) -> None:
    chain = mode.minimum(depth, [10.0, 9.0], 2, 0.0).to_chain()
    lam = mode.curvature(depth, 10.0, 9.0)
    for pair in ((1, 2), (2, 1)):
        direction = study.pair_direction(depth, [10.0, 9.0], *pair)
        vector = np.concatenate([layer.ravel() for layer in direction])
        assert chain.hvp(vector) == pytest.approx(lam * vector, abs=1e-9)
        found = study.line_derivatives(chain.weights, direction, chain.sigma_yx)
        assert found == pytest.approx((lam, 0, 0), abs=1e-9)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.floats(0.3, 2.0), min_size=2, max_size=5), sizes, st.floats(0.01, 0.3))
def test_lemma_4(values: list[float], target: float, eta: float) -> None:
    factors = np.array(values)
    product = factors.prod()
    moved = factors - eta * (product - target) * product / factors
    before, after = (w[0] ** 2 - w[1] ** 2 for w in (factors, moved))
    predicted = eos.lemma_4(factors, target, eta)[0, 1] * before
    assert after == pytest.approx(predicted, abs=1e-9 * (1 + np.abs(moved).max() ** 2))


@settings(deadline=None, max_examples=60)
@given(st.lists(st.floats(0.0, 3.0), min_size=2, max_size=5), sizes)
def test_lemmas_6_and_7(values: list[float], target: float) -> None:
    factors = np.array([*values[:-1], max(values[-1], 0.1)])
    limit = eos.lemma_6(factors, target)
    assert limit.prod() == pytest.approx(target, rel=1e-8)
    assert np.ptp(limit**2 - factors**2) == pytest.approx(0, abs=1e-9)
    scalar = LinearChain(tuple(limit.reshape(-1, 1, 1)), np.eye(1), np.array([[target]]))
    top = np.linalg.eigvalsh(autograd.hessian(scalar))[-1]
    assert eos.definition_3(factors, target) == pytest.approx(top, rel=1e-6)


# Studies


def test_products_follow_the_chain() -> None:
    target = np.random.default_rng(0).standard_normal((3, 3))
    found = study.products(target, 3, 0.4, 0.05, 5, kick=0.1)
    kicked = 0.4 * np.eye(3) + 0.1 * np.eye(3, k=1)
    chain = LinearChain((kicked, 0.4 * np.eye(3), np.zeros((3, 3))), np.eye(3), target)
    for _ in range(5):
        chain = chain.step(0.05)
    assert np.allclose(found[-1], chain.product)


def test_departure_is_exponential_and_linear_in_the_bits() -> None:
    eta = 1.12 * EDGE
    rate = mode.transverse_growth(3, 10.0, 9.0, eta)
    runs = {b: study.fixed_point_departure((10, 9, 6), eta, b, 2500) for b in (60, 120)}
    passed = study.onset(runs[120], 1e-4) - study.onset(runs[120], 1e-28)
    assert abs(24 * np.log(10) / passed / rate - 1) < 0.02
    later = study.onset(runs[120]) - study.onset(runs[60])
    assert abs(later * rate / (60 * np.log(2)) - 1) < 0.05


def test_without_instability_nothing_leaves() -> None:
    run = study.fixed_point_departure((10, 9, 6), 1.0737 * EDGE, 60, 3000)
    assert 0 < run.max() < 1e-12


def test_where_a_mode_ends() -> None:
    states = study.attractor(3, [10.0, 6.0], [0.5 * EDGE, 3 * EDGE], keep=4, settle=500)
    assert np.allclose(states[0, :, 0], 10 ** (1 / 3))
    assert np.isnan(states[1]).all()
    assert study.lyapunov(2, [1.379])[0] > 0 > study.lyapunov(2, [1.2])[0]
