"""The numbered closed forms of the deep linear UFM paper against autograd, at optima."""

from functools import cache
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from exacthessian import autograd
from exacthessian.autograd.ufm import (
    extended_errors,
    output_jacobians,
    sample_gradients,
    ufm_loss,
)
from exacthessian.chain import LinearChain
from exacthessian.papers import deep_linear_ufm as dlu
from exacthessian.spectrum import Spectrum
from exacthessian.ufm import DeepLinearUFM, minimise, threshold

Array = NDArray[np.float64]
UFM = DeepLinearUFM(classes=3, samples=4, depth=3, width=5, ridge=0.005)


@cache
def trained(seed: int) -> LinearChain:
    return minimise(UFM.random_point(np.random.default_rng(seed)))


@st.composite
def optima(draw: st.DrawFn) -> tuple[DeepLinearUFM, LinearChain]:
    """A model and one of its optima, constructed or trained."""
    seed = draw(st.integers(0, 999))
    if draw(st.integers(0, 3)) == 0:
        return UFM, trained(seed % 2)
    classes, samples = draw(st.integers(2, 3)), draw(st.integers(1, 4))
    depth, width = draw(st.integers(1, 4)), classes + draw(st.integers(0, 2))
    ridge = draw(st.floats(0.01, 0.98)) * threshold(classes, samples, depth)
    ufm = DeepLinearUFM(classes, samples, depth, width, ridge)
    return ufm, ufm.optimum(np.random.default_rng(seed)).to_chain()


def means(ufm: DeepLinearUFM, chain: LinearChain) -> list[Array]:
    """H̄_1, …, H̄_{L+1}."""
    layers = range(1, ufm.depth + 2)
    return [dlu.class_means(ufm, dlu.features(chain, layer)) for layer in layers]


def head_hessian(ufm: DeepLinearUFM, chain: LinearChain) -> tuple[Array, list[slice]]:
    """The Hessian in W_1, …, W_L without ridge by torch, and where each layer is in it."""
    features, *weights = chain.weights
    loss = ufm_loss(ufm.classes, ufm.samples, features=features)
    dense = autograd.dense_hessian(loss, autograd.tensors(weights))
    ends = np.cumsum([0, *(weight.size for weight in weights)])
    return (dense + dense.T) / 2, [slice(a, b) for a, b in pairwise(ends)]


@settings(deadline=None, max_examples=40)
@given(optima())
def test_theorems_1_to_4(case: tuple[DeepLinearUFM, LinearChain]) -> None:
    ufm, chain = case
    dense, layers = head_hessian(ufm, chain)
    frames = means(ufm, chain)
    lam = ufm.ridge[0]
    for layer, where in enumerate(layers, start=1):
        above, here = frames[layer], frames[layer - 1]
        block = dense[where, where]
        assert np.abs(block - dlu.theorem_1(ufm, above, here)).max() < 1e-10
        split = dlu.equation_5(ufm, dlu.after(chain, layer + 1), dlu.features(chain, layer))
        for found, wanted in zip(split, dlu.theorem_2(ufm, above, here), strict=True):
            assert np.abs(found - wanted).max() < 1e-10
        gradient = dlu.theorem_3(ufm, above, here)
        single = sample_gradients(chain.weights[0], chain.weights[1:], ufm.samples, layer)
        assert np.abs(single.mean(axis=0) - gradient).max() < 1e-10
        assert np.abs(gradient + lam * chain.weights[layer].ravel()).max() < 1e-10
        assert np.abs(chain.weights[layer] - dlu.theorem_4(ufm, above, here)).max() < 1e-9
    assert dlu.theorem_1_eigenvalue(ufm) == pytest.approx(ufm.curvatures[1], rel=1e-12)
    assert abs(dlu.theorem_1_equation(ufm, ufm.fit)) < 1e-13
    assert dlu.theorem_1_equation(ufm, 0.9 * ufm.fit) != pytest.approx(0, abs=1e-3)


@settings(deadline=None, max_examples=40)
@given(optima())
def test_norms_of_the_means(case: tuple[DeepLinearUFM, LinearChain]) -> None:
    ufm, chain = case
    for layer, mean in enumerate(means(ufm, chain), start=1):
        lengths = np.linalg.norm(mean, axis=0)
        assert np.abs(lengths - dlu.equation_18(ufm, layer)).max() < 1e-10
        printed = dlu.equation_18(ufm, layer, as_printed=True)
        assert printed == pytest.approx(dlu.equation_18(ufm, 1))
        gram = mean.T @ mean
        assert np.abs(gram - gram[0, 0] * np.eye(ufm.classes)).max() < 1e-10


@settings(deadline=None, max_examples=40)
@given(optima())
def test_theorem_5_and_what_it_drops(case: tuple[DeepLinearUFM, LinearChain]) -> None:
    ufm, chain = case
    dense, layers = head_hessian(ufm, chain)
    frames = means(ufm, chain)
    leading = dlu.theorem_5(ufm, frames)
    values = Spectrum.from_matrix(leading)
    top = ufm.depth * dlu.theorem_1_eigenvalue(ufm)
    assert values.count(top - 1e-10, top + 1e-10) == ufm.classes**2
    assert values.count(-1e-10, 1e-10) == values.size - ufm.classes**2
    dropped = dense - leading
    if ufm.depth == 1:
        assert np.abs(dropped).max() < 1e-10
        return
    remainder = dlu.theorem_5_remainder(ufm)
    assert np.abs(Spectrum.from_matrix(dropped).expand() - remainder.expand()).max() < 1e-10
    lam, k = ufm.ridge[0], ufm.classes
    assert remainder.norm == pytest.approx((ufm.depth - 1) * lam, rel=1e-12)
    squares = k**2 * ufm.depth + 2 * k * (ufm.width - k)
    frobenius = np.sqrt((remainder.expand() ** 2).sum())
    assert frobenius == pytest.approx(lam * np.sqrt((ufm.depth - 1) * squares), rel=1e-12)
    for row in range(2, ufm.depth + 1):
        for column in range(1, row):
            block = dropped[layers[row - 1], layers[column - 1]]
            formula = dlu.residual_block(ufm, frames, row, column)
            assert np.abs(block - formula).max() < 1e-10
            printed = dlu.residual_block(ufm, frames, row, column, as_printed=True)
            assert np.linalg.norm(block - printed) > lam / 2


@settings(deadline=None, max_examples=30)
@given(optima())
def test_theorems_10_and_11(case: tuple[DeepLinearUFM, LinearChain]) -> None:
    ufm, chain = case
    frames = means(ufm, chain)
    hidden, *weights = chain.weights
    for layer in range(1, ufm.depth + 1):
        single = sample_gradients(hidden, weights, ufm.samples, layer)
        covariance = np.cov(single.T, bias=True)
        formula = dlu.theorem_10(ufm, frames[layer], frames[layer - 1])
        assert np.abs(covariance - formula).max() < 1e-10
        errors = extended_errors(hidden, weights, layer)
        moment = errors.T @ errors / (ufm.classes * ufm.samples)
        theorem = dlu.theorem_11(ufm, layer)
        found = np.sort(np.linalg.eigvalsh(moment))[::-1]
        assert np.abs(found[: ufm.classes] - theorem.expand()).max() < 1e-9
        assert np.abs(found[ufm.classes :]).max(initial=0) < 1e-9
        centre = frames[layer - 1].mean(axis=1)
        value = theorem.select("mean").values[0]
        assert np.abs(moment @ centre - value * centre).max() < 1e-9
        difference = frames[layer - 1][:, 0] - frames[layer - 1][:, 1]
        value = theorem.select("differences").values[0]
        assert np.abs(moment @ difference - value * difference).max() < 1e-9


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 999), st.integers(1, 3), st.integers(1, 3))
def test_formulas_that_hold_everywhere(seed: int, samples: int, depth: int) -> None:
    ufm = DeepLinearUFM(2, samples, depth, 3, ridge=0.01)
    chain = ufm.random_point(np.random.default_rng(seed))
    dense, layers = head_hessian(ufm, chain)
    hidden, *weights = chain.weights
    residuals = dlu.features(chain, depth + 1) - ufm.labels
    for layer, where in enumerate(layers, start=1):
        later, here = dlu.after(chain, layer + 1), dlu.features(chain, layer)
        assert np.abs(dense[where, where] - dlu.equation_12(ufm, later, here)).max() < 1e-12
        split = dlu.equation_5(ufm, later, here)
        assert np.abs(sum(split) - dense[where, where]).max() < 1e-12
        assert np.linalg.eigvalsh(split.within)[0] > -1e-12
        printed = dlu.equation_12(ufm, later, here, as_printed=True)
        assert np.abs(printed + split.within - dense[where, where]).max() < 1e-12
        single = sample_gradients(hidden, weights, samples, layer)
        assert np.abs(dlu.equation_6(later, residuals, here) - single.mean(axis=0)).max() < 1e-12
        jacobians = output_jacobians(hidden, weights, layer)
        wanted = np.einsum("xa,bs->sxab", later, here)
        assert np.abs(jacobians - wanted).max() < 1e-12


def test_the_split_by_its_definition() -> None:
    """Appendix C.2 written out as sums over i, c and c'."""
    ufm = DeepLinearUFM(3, 2, 2, 3, ridge=0.01)
    chain = ufm.random_point(np.random.default_rng(4))
    later, here = dlu.after(chain, 2), dlu.features(chain, 1)
    v = np.array(
        [[[np.kron(a, here[:, 2 * c + i]) for a in later] for c in range(3)] for i in range(2)]
    )
    by_class = v.mean(axis=(0, 2))
    classes = sum(np.outer(u, u) for u in by_class)
    deviations = (v.mean(axis=0) - by_class[:, None]).reshape(9, -1)
    inner = (v - v.mean(axis=0)).reshape(18, -1)
    split = dlu.equation_5(ufm, later, here)
    assert np.abs(split.classes - classes).max() < 1e-14
    assert np.abs(split.cross - deviations.T @ deviations / 3).max() < 1e-14
    assert np.abs(split.within - inner.T @ inner / 6).max() < 1e-14


@settings(deadline=None, max_examples=20)
@given(optima())
def test_loss_from_outputs(case: tuple[DeepLinearUFM, LinearChain]) -> None:
    ufm, chain = case
    outputs = dlu.features(chain, ufm.depth + 1)
    assert dlu.lemma_4(ufm, outputs) == pytest.approx(chain.loss(), abs=1e-12)


def test_loss_from_outputs_at_other_critical_points() -> None:
    """One class collapsed, the other dropped: singular values t and 0."""
    ufm = DeepLinearUFM(2, 3, 2, 3, ridge=0.01)
    layers = [weight.copy() for weight in ufm.optimum().to_chain().weights]
    layers[0][1] = 0
    layers[1][1, 1] = layers[2][1, 1] = 0
    chain = ufm.point(layers[0], layers[1:])
    assert np.abs(chain.gradient()).max() < 1e-15
    assert dlu.lemma_4(ufm, chain.product) == pytest.approx(chain.loss(), abs=1e-15)
    assert chain.loss() > ufm.loss()


@pytest.mark.parametrize(("classes", "samples", "depth"), [(2, 1, 1), (3, 7, 2), (4, 40, 5)])
def test_condition_17_is_the_threshold(classes: int, samples: int, depth: int) -> None:
    limit = threshold(classes, samples, depth)
    assert dlu.equation_17(classes, samples, depth, limit) == pytest.approx(1, rel=1e-13)
    double = dlu.equation_17(classes, samples, depth, 2 * limit)
    assert double == pytest.approx(2 ** ((depth + 1) / depth), rel=1e-13)


def test_projector_and_its_printed_form() -> None:
    ufm = DeepLinearUFM(3, 2, 3, 3, ridge=0.01)
    assert np.array_equal(dlu.projector_d(ufm), np.eye(3))
    assert np.array_equal(dlu.projector_d(ufm, as_printed=True), np.diag([1.0, 1.0, 0.0]))


@pytest.mark.parametrize(("below", "depth"), [(1, 4), (2, 16), (3, 5)])
def test_equal_scales(below: int, depth: int) -> None:
    """Blocks of one Frobenius norm: the ratio and the distance of the normalised matrices."""
    rng = np.random.default_rng(below)
    layers = below + depth
    blocks = [[np.zeros((2, 2))] * layers for _ in range(layers)]
    for r in range(layers):
        for c in range(r + 1):
            block = rng.standard_normal((2, 2))
            block = block + block.T if r == c else block
            blocks[r][c] = block / np.linalg.norm(block)
            blocks[c][r] = blocks[r][c].T
    whole = np.block(blocks)
    head = np.zeros_like(whole)
    head[2 * below :, 2 * below :] = whole[2 * below :, 2 * below :]
    ratio = np.linalg.norm(whole - head) ** 2 / np.linalg.norm(head) ** 2
    assert ratio == pytest.approx(dlu.statement_norm_ratio(below, depth), rel=1e-12)
    assert dlu.statement_norm_ratio(below, depth, as_printed=True) == 1 / depth
    gap = whole / np.linalg.norm(whole) - head / np.linalg.norm(head)
    assert np.linalg.norm(gap) == pytest.approx(dlu.theorem_6(below, depth), rel=1e-12)


def test_effective_rank() -> None:
    assert dlu.equation_25(np.eye(7)) == pytest.approx(7)
    assert dlu.equation_25([[3.0, 0.0], [0.0, 1.0]]) == pytest.approx(4 / 3**0.75)
    assert dlu.equation_25(UFM.optimum().to_chain().weights[1]) == pytest.approx(3)
    with pytest.raises(ValueError, match="matrix must not be zero"):
        dlu.equation_25(np.zeros((2, 2)))


def test_bad_arguments_are_refused() -> None:
    chain, frame = trained(0), np.eye(5, 3)
    uneven = DeepLinearUFM(3, 4, 3, 5, ridge=[0.01, 0.01, 0.01, 0.02])
    for refused, message in [
        (lambda: dlu.features(chain, 0), "layer must be at least 1, got 0"),
        (lambda: dlu.features(chain, 5), r"layer must be at most L \+ 1 = 4, got 5"),
        (lambda: dlu.after(chain, 5), r"layer must be at most L \+ 1 = 4, got 5"),
        (lambda: dlu.class_means(UFM, np.eye(3)), "features must have 12 columns, n = 4"),
        (lambda: dlu.theorem_1(UFM, np.eye(5), frame), "above must have K = 3 columns"),
        (lambda: dlu.theorem_1(UFM, frame, np.zeros((5, 3))), "here must have no zero column"),
        (lambda: dlu.theorem_1(uneven, frame, frame), "ridge must be the same for all layers"),
        (lambda: dlu.theorem_4(uneven, frame, frame), "ridge must be the same for all layers"),
        (lambda: dlu.theorem_5(UFM, [frame]), r"means must hold L \+ 1 = 4 matrices, got 1"),
        (lambda: dlu.theorem_5_remainder(DeepLinearUFM(2, 1, 1, 2, 0.1)), "depth must be at least"),
        (lambda: dlu.residual_block(UFM, [frame] * 4, 1, 1), "row and column must satisfy"),
        (lambda: dlu.equation_18(UFM, 5), r"layer must be at most L \+ 1 = 4, got 5"),
        (lambda: dlu.theorem_11(UFM, 4), "layer must be at most L = 3, got 4"),
        (lambda: dlu.statement_norm_ratio(0, 3), "feature_layers must be at least 1"),
        (lambda: dlu.theorem_6(1, 0), "depth must be at least 1"),
        (lambda: dlu.equation_17(1, 1, 1, 0.1), "classes must be at least 2"),
    ]:
        with pytest.raises(ValueError, match=message):
            refused()
