"""The numbered forms of the deep linear UFM paper against automatic differentiation."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exacthessian import autograd
from exacthessian.autograd.ufm import label_gradients, output_jacobians, sample_gradients
from exacthessian.papers import deep_linear_ufm as dlu
from exacthessian.studies import deep_linear_ufm as study
from exacthessian.ufm import DeepLinearUFM, Layer, Point, Split
from exacthessian.ufm_cross_entropy import Collapse


@st.composite
def models(draw: st.DrawFn) -> DeepLinearUFM:
    classes, samples = draw(st.integers(2, 3)), draw(st.integers(1, 4))
    depth, width = draw(st.integers(1, 4)), classes + draw(st.integers(0, 2))
    return study.at_share(classes, samples, depth, width, draw(st.floats(0.01, 0.98)))


def extended_errors(layer: Layer) -> np.ndarray:
    """The gradients in h^(l) for every sample and label: of the features of a shorter model."""
    short = Point((layer.inputs, *layer.point.weights[layer.number :]))
    each = label_gradients(Layer(None, short, 0))
    return np.einsum("skas->ska", each).reshape(-1, each.shape[2])


def close(found: object, wanted: object, tol: float = 1e-10) -> bool:
    return bool(np.abs(np.subtract(found, wanted)).max(initial=0) < tol)


@settings(deadline=None, max_examples=30)
@given(models(), st.integers(0, 99))
def test_one_layer_of_an_optimum(ufm: DeepLinearUFM, seed: int) -> None:
    for layer in ufm.layers(ufm.optimum(np.random.default_rng(seed)).to_chain()):
        gradients = sample_gradients(layer)
        assert close(dlu.theorem_1(layer), autograd.hessian(layer))
        for found, rows in zip(
            dlu.theorem_2(layer), Split.of(output_jacobians(layer)), strict=True
        ):
            assert close(found, rows.T @ rows)
        assert close(dlu.theorem_3(layer), gradients.mean(axis=0))
        assert close(dlu.theorem_4(layer), layer.weight)
        assert close(dlu.theorem_10(layer), np.cov(gradients.T, bias=True))
        errors = extended_errors(layer)
        assert close(dlu.theorem_11(layer), errors.T @ errors / layer.inputs.shape[1])
        assert close(dlu.equation_16(layer), 0)
        assert close(dlu.equation_18(layer), np.linalg.norm(layer.here, axis=0))
        assert close(dlu.lemma_1(layer), layer.slopes[0] @ layer.weight)


@settings(deadline=None, max_examples=20)
@given(models(), st.integers(0, 99))
def test_one_layer_anywhere(ufm: DeepLinearUFM, seed: int) -> None:
    for layer in ufm.layers(ufm.random_point(np.random.default_rng(seed))):
        assert close(dlu.equation_11(layer), output_jacobians(layer), 1e-12)
        assert close(dlu.equation_12(layer), autograd.hessian(layer), 1e-11)
        assert close(sum(dlu.equation_5(layer)), autograd.hessian(layer), 1e-11)
        assert close(dlu.equation_6(layer), sample_gradients(layer).mean(axis=0), 1e-11)


@settings(deadline=None, max_examples=20)
@given(models().filter(lambda ufm: ufm.depth > 1), st.integers(0, 99))
def test_theorem_5_and_what_it_drops(ufm: DeepLinearUFM, seed: int) -> None:
    chain = ufm.optimum(np.random.default_rng(seed)).to_chain()
    rest = autograd.hessian(ufm.head(chain)) - dlu.theorem_5(ufm, chain)
    assert close(np.linalg.eigvalsh(rest)[::-1], dlu.theorem_5_remainder(ufm).expand())


@pytest.mark.parametrize("slope", [0.0, 1.0])
def test_relu_layers_by_torch(slope: float) -> None:
    """Hessians and gradients of the ReLU model, off the kink and on it."""
    ufm = DeepLinearUFM(classes=3, samples=2, depth=3, width=5, ridge=1e-3)
    for seed in range(3):
        start = study.relu_start(ufm, seed)
        for point in (start, study.nonnegative_optimum(ufm, np.random.default_rng(seed))):
            point = replace(point, slope_at_zero=slope)
            for layer in ufm.layers(point):
                assert close(sum(dlu.equation_5(layer)), autograd.hessian(layer), 1e-12)
                mean = sample_gradients(layer).mean(axis=0)
                assert close(dlu.equation_6(layer), mean, 1e-12)
            loss, parameters = autograd.loss_of(point)
            assert loss(parameters).item() == pytest.approx(point.loss(), abs=1e-14)


def test_theorem_7_and_its_convention() -> None:
    ufm = DeepLinearUFM(classes=3, samples=2, depth=3, width=5, ridge=1e-3)
    point = study.nonnegative_optimum(ufm, np.random.default_rng(0))
    flat = replace(point, slope_at_zero=0.0)
    both = [sum(dlu.equation_5(Layer(ufm, p, 1))) for p in (point, flat)]
    assert [int(np.linalg.matrix_rank(hessian, tol=1e-9)) for hessian in both] == [9, 3]
    assert close(dlu.theorem_7(Layer(ufm, point, 1))[0], both[0])


def test_theorem_8_is_the_best_of_its_class() -> None:
    ufm = DeepLinearUFM(classes=2, samples=3, depth=3, width=6, ridge=5e-3)
    rng = np.random.default_rng(0)
    for tilts in rng.uniform(0, 1, (5, 2)):
        members = [study.class_member(ufm, tilts, rng.uniform(0.5, 2, 4), rng) for _ in range(20)]
        assert min(member.loss() for member in members) > dlu.theorem_8(ufm, tilts)
    assert dlu.theorem_8(ufm, [1.55, 1.55]) == 0.5


@pytest.mark.parametrize(("K", "n", "L"), [(2, 1, 1), (3, 4, 2), (6, 2, 4)])
def test_equation_9_inverts_the_ridge(K: int, n: int, L: int) -> None:
    for alpha in (4.0, 30.0, 200.0):
        point = Collapse(K, n, L, K, alpha)
        assert dlu.equation_9(K, n, L, point.ridge) == pytest.approx(alpha, rel=1e-12)


def test_theorem_9_is_the_limit_of_the_exact_spectrum() -> None:
    for K in (3, 4, 5):
        layer = Collapse(K, 2, 3, K, alpha=12.0).layers(np.random.default_rng(0))[0]
        exact = autograd.hessian(layer)
        assert close(dlu.theorem_9(layer), exact, 1e-4 * np.linalg.norm(exact, 2))
        assert sum(dlu.theorem_9_multiplicities(K)) == (K - 1) ** 2


def test_the_effective_rank_counts_equal_singular_values() -> None:
    assert dlu.equation_25(3 * np.eye(5, 4)) == pytest.approx(4)
