"""The numbered forms of "Depth, Not Data" against autograd and matrix descent."""

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
from exacthessian.studies import depth_not_data as study

Array = NDArray[np.float64]
Case = tuple[Setting, Array, int]


@st.composite
def cases(draw: st.DrawFn, spare: bool = False) -> Case:
    """A setting with any d_0, d_L, ρ, its diagonal (rank r, or all d* when `spare`), and a seed."""
    depth = draw(st.integers(2, 4))
    inputs, outputs = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    ends = min(inputs, outputs)
    hidden = [draw(st.integers(ends, 5)) for _ in range(depth - 1)]
    rank = draw(st.integers(1, ends))
    data_rank = draw(st.integers(rank, inputs))
    seed = draw(st.integers(0, 2**32 - 1))
    setting = Setting((inputs, *hidden, outputs), rank, data_rank)
    lam = np.random.default_rng(seed).uniform(0.3, 1.4, ends if spare else rank)
    return setting, lam, seed


def outer(chain: LinearChain) -> Array:
    return autograd.hessian(study.learnt(chain))


def functional_norm(chain: LinearChain) -> float:
    return float(np.linalg.norm(autograd.hessian(chain) - outer(chain), 2))


@settings(deadline=None, max_examples=60)
@given(cases())
def test_outer_product_spectrum(case: Case) -> None:
    setting, lam, seed = case
    found = Spectrum.from_matrix(outer(study.turned(setting, lam, seed)))
    assert found.distance(dnd.lemma_a_9(setting, lam)) < 1e-12
    uniform = study.turned(setting, np.full(setting.rank, lam[0]), seed)
    predicted = dnd.lemma_a_1(setting, lam[0])
    assert Spectrum.from_matrix(outer(uniform)).distance(predicted) < 1e-12
    assert predicted.select("dominant").size == setting.rank**2
    ends = dnd.equation_8(setting.depth, lam)
    top = found.expand()[: setting.rank**2]
    kappa = (lam.max() / lam.min()) ** (2 * setting.depth - 2)
    if kappa < setting.depth:
        assert (top.min(), top.max()) == pytest.approx(tuple(ends))
    if setting.bulk and kappa < setting.depth:
        bulk = found.expand()[setting.rank**2 :][: setting.bulk]
        ratios = top.min() / bulk.max(), top.max() / bulk.min()
        assert ratios == pytest.approx(dnd.equation_10(setting.depth, kappa))


@settings(deadline=None, max_examples=60)
@given(cases())
def test_uniform_spectrum(case: Case) -> None:
    setting, lam, seed = case
    mu = float(lam[0])
    chain = study.turned(setting, np.full(setting.rank, mu), seed)
    predicted = dnd.corollary_3_6(setting, mu)
    assert autograd.spectrum(chain).distance(predicted) < 1e-12
    symmetric, antisymmetric = dnd.equation_11(setting.depth, mu)
    dominant = predicted.select("dominant")
    ratios = dominant.values / mu ** (2 * setting.depth - 2)
    wanted = {round(symmetric, 9): setting.rank * (setting.rank + 1) // 2}
    if setting.rank > 1:
        wanted[round(antisymmetric, 9)] = setting.rank * (setting.rank - 1) // 2
    found = dict(zip(ratios.round(9).tolist(), dominant.multiplicities.tolist(), strict=True))
    assert found == wanted


@pytest.mark.parametrize("depth", [2, 3, 5])
def test_two_clusters_exist_above_one_half(depth: int) -> None:
    setting = Setting.whitened((3, *([4] * (depth - 1)), 5), rank=2)
    for target, expected in ((0.49, False), (0.51, True), (1.5, True)):
        mu = target ** (1 / depth)
        values = dnd.corollary_3_6(setting, mu)
        dominant, bulk, fringe = (values.select(n).values for n in ("dominant", "bulk", "fringe"))
        separated = dominant.min() > bulk.max() and bulk.min() > np.abs(fringe).max()
        assert separated == expected
        assert (min(dnd.equation_11(depth, mu)) > 1) == expected


@settings(deadline=None, max_examples=60)
@given(cases())
def test_bifurcation(case: Case) -> None:
    setting, lam, seed = case
    chain = study.turned(setting, lam, seed)
    found, theorem = autograd.spectrum(chain), dnd.theorem_3_5(setting, lam)
    radius = dnd.lemma_a_8(setting, lam, eta=0.0, steps=0)
    assert theorem.size == setting.size == found.size
    assert np.abs(theorem.expand() - found.expand()).max() <= radius + 1e-12
    assert functional_norm(chain) <= radius + 1e-12
    # What is exact is there, with its multiplicity.
    for label in sorted({"bulk", "fringe", "zero"} & set(theorem.labels)):
        joined = theorem.select(label).clusters(1e-9)
        for value, count in zip(joined.values, joined.multiplicities, strict=True):
            assert found.count(value - 1e-9, value + 1e-9) >= count
    zeros = theorem.select("zero").size if "zero" in theorem.labels else 0
    # Random values leave the active blocks regular: there are no other zeros.
    assert found.count(-1e-9, 1e-9) == zeros


@settings(deadline=None, max_examples=40)
@given(cases(spare=True))
def test_descent_law_and_limits(case: Case) -> None:
    setting, lam, seed = case
    eta, chain = 0.5 * study.largest_step(setting, lam), study.turned(setting, lam, seed)
    for _ in range(20):
        chain = chain.step(eta)
    predicted = dnd.lemma_3_4(setting, lam, eta, 20)
    again = study.turned(setting, predicted[0], seed)
    for weight, wanted in zip(chain.weights, again.weights, strict=True):
        np.testing.assert_allclose(weight, wanted, atol=1e-12)
    assert predicted.shape == (setting.depth, len(lam))
    late = dnd.lemma_3_4(setting, lam, eta, 4000)[0]
    np.testing.assert_allclose(late, dnd.lemma_a_3(setting, lam), atol=0.5)
    np.testing.assert_allclose(late[: setting.rank], 1, atol=1e-3)


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
        first = study.literal_start(setting, lam, rng)
        chain = first.chain
        assert np.array_equal(np.diag(chain.sigma_xx), np.arange(widths[0]) < data_rank)
        # Admissible: the target reads only what the inputs span, and every mode is a unit.
        np.testing.assert_allclose(chain.sigma_yx @ chain.sigma_xx, chain.sigma_yx, atol=1e-14)
        end = first.after(0.1, 50)
        law = dnd.lemma_3_4(setting, lam, 0.1, 50)
        np.testing.assert_allclose(end.diagonals()[:, :2], law[:, :2], atol=1e-12)
        layers = [layer.copy() for layer in end.layers()]
        for layer in layers:
            np.fill_diagonal(layer, 0.0)
        assert (max(np.linalg.norm(layer) for layer in layers) > 1e-6) == leaks


@settings(deadline=None, max_examples=40)
@given(st.integers(2, 10), st.floats(0.2, 2.0), st.floats(0.01, 0.999))
def test_active_values_stay_above_their_floor(depth: int, lam: float, part: float) -> None:
    setting = Setting.whitened((1,) * (depth + 1), rank=1)
    eta = part * study.largest_step(setting, [lam])
    floor, values = dnd.lemma_a_4([lam], eta), np.array([lam])
    for _ in range(200):
        values = dnd.lemma_a_2(setting, values, eta)
        assert values[0] >= floor


def test_the_step_bound_sees_all_entries_with_inputs() -> None:
    whitened, signal = Setting.whitened((3, 3, 3), 1), Setting.signal_only((3, 3, 3), 1)
    assert study.largest_step(whitened, [1.3, 2.0, 0.4]) == 0.25
    assert study.largest_step(signal, [1.0, 9.0, 9.0]) == 0.5
    values = dnd.lemma_3_4(whitened, [1.3, 3.0, 0.4], eta=0.4995, steps=4)[0]
    assert abs(values[1]) > 1e6


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 2**32 - 1), st.integers(1, 4), st.integers(1, 4))
def test_block_norm_bound(seed: int, blocks: int, size: int) -> None:
    matrix = np.random.default_rng(seed).standard_normal((blocks * size, blocks * size))
    parts = matrix.reshape(blocks, size, blocks, size).swapaxes(1, 2)
    bound = dnd.lemma_a_5(np.linalg.norm(parts, 2, axis=(2, 3)))
    assert np.linalg.norm(matrix, 2) <= bound * (1 + 1e-12)
    if size == 1:
        assert bound == pytest.approx(np.linalg.norm(matrix))


@settings(deadline=None, max_examples=60)
@given(cases(spare=True))
def test_curvature_bounded_by_the_loss(case: Case) -> None:
    setting, lam, seed = case
    chain = study.turned(setting, lam, seed)
    bound = dnd.lemma_a_6(setting, lam, max(chain.loss(), 0.0))
    assert functional_norm(chain) <= bound * (1 + 1e-9) + 1e-7


@settings(deadline=None, max_examples=30)
@given(st.integers(2, 6), st.floats(0.1, 2.0))
def test_curvature_bound_is_attained_at_width_one(depth: int, lam: float) -> None:
    setting = Setting.whitened((1,) * (depth + 1), rank=1)
    chain = study.start(setting, [lam]).to_chain()
    bound = dnd.lemma_a_6(setting, [lam], max(chain.loss(), 0.0))
    assert functional_norm(chain) == pytest.approx(bound, rel=1e-6, abs=1e-7)


@settings(deadline=None, max_examples=30)
@given(cases(), st.floats(0.05, 1.0))
def test_exponential_rates(case: Case, part: float) -> None:
    setting, lam, seed = case
    eta = part * max(1.0, lam.max()) ** -(2 * setting.depth - 2) / setting.depth
    chain = first = study.turned(setting, lam, seed)
    for steps in range(1, 9):
        chain = chain.step(eta)
        factor = dnd.lemma_a_7(setting, lam, eta, steps)
        assert chain.loss() <= factor * first.loss() + 1e-12
        assert functional_norm(chain) <= dnd.lemma_a_8(setting, lam, eta, steps) + 1e-12


@settings(deadline=None, max_examples=20)
@given(cases(spare=True))
def test_exponential_rates_without_inputs_on_spare_entries(case: Case) -> None:
    wide, lam, seed = case
    setting = Setting(wide.widths, wide.rank, data_rank=wide.rank)
    eta = max(1.0, lam.max()) ** -(2 * setting.depth - 2) / setting.depth
    chain = first = study.turned(setting, lam, seed)
    for steps in range(1, 6):
        chain = chain.step(eta)
        assert chain.loss() <= dnd.lemma_a_7(setting, lam, eta, steps) * first.loss() + 1e-12
        assert functional_norm(chain) <= dnd.lemma_a_8(setting, lam, eta, steps) + 1e-12


@pytest.mark.parametrize("depth", [2, 3, 4])
def test_rates_are_tight_near_one(depth: int) -> None:
    setting, lam, eta, steps = Setting.whitened((1,) * (depth + 1), 1), [1 - 1e-6], 0.1, 5
    chain = first = study.turned(setting, lam)
    for _ in range(steps):
        chain = chain.step(eta)
    value = dnd.lemma_3_4(setting, lam, eta, steps)[0, 0]
    ratio = ((value**depth - 1) / (lam[0] ** depth - 1)) ** 2
    assert ratio == pytest.approx(dnd.lemma_a_7(setting, lam, eta, steps), rel=1e-4)
    bound = dnd.lemma_a_8(setting, lam, eta, steps)
    assert functional_norm(chain) == pytest.approx(bound, rel=1e-3)
    assert functional_norm(first) > functional_norm(chain)


@pytest.mark.parametrize("depth", [2, 3, 4])
def test_power_laws(depth: int) -> None:
    eta, steps, value = 0.1, 200_000, 0.9
    for _ in range(steps):
        value -= eta * value ** (2 * depth - 1)
    assert value == pytest.approx(study.power_law(depth, eta, steps), rel=1e-3)
    setting = Setting.whitened((2, *([2] * (depth - 1)), 2), rank=1)
    chain = study.start(setting, [1.0, value]).to_chain()
    assert functional_norm(chain) == pytest.approx(value**depth, rel=0.1)
    assert chain.loss() == pytest.approx(value ** (2 * depth) / 2)


@settings(deadline=None, max_examples=40)
@given(cases(spare=True))
def test_eigenvectors(case: Case) -> None:
    setting, lam, seed = case
    rng = np.random.default_rng(seed)
    bases = [study.orthogonal(rng, width) for width in setting.widths]
    chain = study.start(setting, lam, bases).to_chain()
    vectors = [
        dnd.lemma_a_10(chain, bases[-1][:, i], bases[0][:, j])
        for i in range(setting.widths[-1])
        for j in range(setting.data_rank)
    ]
    np.testing.assert_allclose(sum(np.outer(v, v) for v in vectors), outer(chain), atol=1e-11)


@settings(deadline=None, max_examples=60)
@given(cases(spare=True))
def test_eigenvalues_follow_the_curvatures(case: Case) -> None:
    setting, lam, seed = case
    chain = study.turned(setting, lam, seed)
    listed = dnd.lemma_a_11(setting, lam)
    np.testing.assert_allclose(listed, np.linalg.eigvalsh(outer(chain))[::-1], atol=1e-11)
    full = np.linalg.eigvalsh(autograd.hessian(chain))[::-1]
    assert np.abs(full - listed).max() <= functional_norm(chain) + 1e-11


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Setting.whitened((3, 4), 1), "depth L ≥ 2, got \\(3, 4\\)"),
        (lambda: Setting.whitened((0, 3, 3), 1), "widths must be at least 1, got 0"),
        (lambda: Setting.whitened((3, 2, 3), 1), "widths must be at least d\\* = 3"),
        (lambda: Setting.whitened((3, 3, 2), 3), "rank must be at most d\\* = 2.*got 3"),
        (lambda: Setting.whitened((3, 3, 2), 0), "rank must be at least 1, got 0"),
        (lambda: Setting((3, 3, 2), 2, 1), "data_rank must lie between.*d_0 = 3, got 1"),
        (lambda: Setting((3, 3, 2), 2, 4), "data_rank must lie between.*got 4"),
    ],
)
def test_bad_input_is_refused(call: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()
