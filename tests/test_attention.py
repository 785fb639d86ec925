"""One attention head on numbers: closed forms against automatic differentiation."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from exacthessian import autograd
from exacthessian.attention import (
    Curvature,
    ScalarAttention,
    attention_moments,
    mixing_curvature,
    query_and_key,
    softmax_rows,
    with_bulk,
)
from exacthessian.autograd.attention import self_attention, self_attention_loss
from exacthessian.spectrum import Spectrum

LAYER = ScalarAttention(1.5, [0.5, -1.0], [2.0, 0.3], [[1.0, 2.0, -0.7]], [[0.3, -1.0, 2.0]])


def random_layer(seed: int) -> ScalarAttention:
    """Batches of different lengths, weights, biases of both shapes, masks, degenerate weights."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, 7, size=rng.integers(1, 4))
    x, y = ([2 * rng.standard_normal(n) for n in lengths] for _ in range(2))
    query, key = rng.standard_normal((2, int(rng.integers(1, 6))))
    key = {0: query, 1: -query, 2: 0 * query}.get(seed % 8, key)
    square = seed % 2 == 0
    biases = [rng.standard_normal((n, n) if square else n) for n in lengths]
    return ScalarAttention(
        rng.standard_normal() if seed % 7 else 0.0,
        query,
        key,
        x,
        y,
        weights=None if seed % 3 == 0 else rng.random(len(lengths)),
        biases=None if seed % 5 == 0 else biases,
        causal=seed % 4 > 1,
    )


def torch_parts(layer: ScalarAttention):
    model, risk = self_attention(
        layer.inputs, layer.targets, layer.weights, layer.biases, layer.causal
    )
    return model, risk, autograd.tensors([layer.value, layer.query, layer.key])


@pytest.mark.parametrize("seed", range(40))
def test_every_derivative_agrees_with_autograd(seed):
    layer = random_layer(seed)
    model, risk, weights = torch_parts(layer)
    outputs = model(weights)
    assert np.allclose(np.concatenate(layer.outputs()), outputs.numpy(), atol=1e-13)
    assert layer.loss() == pytest.approx(float(risk(outputs)), abs=1e-13)
    for weight in weights:
        weight.requires_grad_()
    risk(model(weights)).backward()
    gradient = np.concatenate([weight.grad.numpy().ravel() for weight in weights])
    scale = max(1.0, np.abs(gradient).max())
    assert np.abs(layer.gradient() - gradient).max() < 1e-12 * scale
    weights = [weight.detach() for weight in weights]
    dense = autograd.dense_hessian(lambda p: risk(model(p)), weights)
    scale = max(1.0, np.abs(dense).max())
    assert np.abs(layer.hessian() - dense).max() < 1e-12 * scale
    measured = Spectrum.from_matrix((dense + dense.T) / 2)
    assert measured.distance(layer.spectrum()) < 1e-12
    assert layer.sharpness() == pytest.approx(measured.values.max(), abs=1e-12 * scale)
    gauss_newton = autograd.dense_gauss_newton(model, risk, weights)
    closed = layer.gauss_newton_curvature()
    assert np.abs(closed.hessian(layer.query, layer.key) - gauss_newton).max() < 1e-12 * scale


def test_bulk_and_outliers_are_labelled():
    spectrum = ScalarAttention(1.0, np.ones(9), np.arange(9.0), [[1, 2]], [[3, 5]]).spectrum()
    assert spectrum.select("bulk").multiplicities.tolist() == [8, 8]
    assert spectrum.select("outlier").size == 3
    assert spectrum.size == 19


def test_width_one_has_outliers_only():
    layer = ScalarAttention(1.0, [0.7], [-0.2], [[1, 2]], [[3, 5]])
    assert set(layer.spectrum().labels) == {"outlier"}
    assert with_bulk([1.0], 5.0, 0).size == 1


def test_scalars_average_and_spectra_do_not():
    rng = np.random.default_rng(0)
    x, y = ([rng.standard_normal(n) for n in (2, 5)] for _ in range(2))
    both = ScalarAttention(1.2, [1, 2], [0.5, -1], x, y, weights=[0.3, 0.9])
    each = [replace(both, inputs=[a], targets=[b], weights=[1.0], biases=None)
            for a, b in zip(x, y, strict=True)]  # fmt: skip
    mixed = Curvature.mean([one.curvature() for one in each], [0.3, 0.9])
    for name in ("alpha", "beta", "gamma", "zeta"):
        assert getattr(both.curvature(), name) == pytest.approx(getattr(mixed, name), abs=1e-14)
    assert both.sharpness() < 0.3 * each[0].sharpness() + 0.9 * each[1].sharpness() - 1e-6


@pytest.mark.parametrize("term", ["alpha", "beta", "gamma", "zeta"])
@pytest.mark.parametrize("seed", range(4))
def test_each_scalar_alone_gives_the_spectrum_of_its_matrix(term, seed):
    rng = np.random.default_rng(seed)
    query, key = rng.standard_normal((2, 4))
    four = Curvature(**({"alpha": 0, "beta": 0, "gamma": 0, "zeta": 0} | {term: 1.7}))
    dense = Spectrum.from_matrix(four.hessian(query, key))
    assert dense.distance(four.spectrum(query, key)) < 1e-13
    assert dense.norm > 0


def test_double_outlier_keeps_full_accuracy():
    four = Curvature(1.0, 1e-9, 0.0, 1.0)
    query, key = np.array([1.0, 0.0]), np.array([0.0, 0.0])
    dense = Spectrum.from_matrix(four.hessian(query, key))
    assert dense.distance(four.spectrum(query, key)) < 1e-15


def test_mixing_curvature_is_any_activation():
    rng = np.random.default_rng(3)
    x, y = rng.standard_normal((2, 4))
    query, key, value = rng.standard_normal(3), rng.standard_normal(3), 0.8
    rate = np.outer(x, x) / np.sqrt(3)
    s = np.tanh(query @ key * rate)
    first, second = rate * (1 - s**2), -2 * rate**2 * s * (1 - s**2)
    four = mixing_curvature(value, s @ x, first @ x, second @ x, y)
    loss = self_attention_loss([x], [y], rows=torch.tanh)
    dense = autograd.dense_hessian(loss, autograd.tensors([value, query, key]))
    assert np.abs(dense - four.hessian(query, key)).max() < 1e-13


def test_moments_of_a_row():
    rng = np.random.default_rng(4)
    rows, x = rng.dirichlet(np.ones(5), size=3), rng.standard_normal(5)
    mean, second, third = attention_moments(rows, x)
    for i, row in enumerate(rows):
        assert mean[i] == pytest.approx(row @ x)
        assert second[i] == pytest.approx(row @ x**2 - mean[i] ** 2)
        raw = row @ x**3 - 3 * mean[i] * (row @ x**2) + 2 * mean[i] ** 3
        assert third[i] == pytest.approx(raw)


def test_softmax_survives_large_scores():
    assert softmax_rows([[1000.0, 999.0]])[0, 0] == pytest.approx(1 / (1 + np.exp(-1)))
    layer = ScalarAttention(1.0, [100.0], [100.0], [[1, -2]], [[1, -2]])
    assert layer.outputs()[0].tolist() == [1.0, -2.0]
    assert layer.loss() == 0.0


def test_step_is_gradient_descent():
    moved = LAYER.step(0.1)
    expected = np.concatenate([[LAYER.value], LAYER.query, LAYER.key]) - 0.1 * LAYER.gradient()
    assert np.allclose(np.concatenate([[moved.value], moved.query, moved.key]), expected)
    assert moved.loss() < LAYER.loss()


@pytest.mark.parametrize("causal", [False, True])
def test_sink_takes_over_every_row(causal):
    rng = np.random.default_rng(5)
    x = [np.array([3.0, 1.0, -2.0]), np.array([1.0, 0.5])]
    biases = [rng.standard_normal((3, 3)), rng.standard_normal(2)]
    layer = ScalarAttention(0.7, [1, 0.3], [0.2, 1], x, x, biases=biases, causal=causal)
    twice = layer.with_sink(1.0).with_sink(2.0)
    assert np.allclose(twice.attention()[0], layer.with_sink(3.0).attention()[0])
    assert layer.with_sink(3.0).attention()[1][1, 0] > layer.attention()[1][1, 0]
    strong = layer.with_sink(60.0)
    assert strong.sharpness() == pytest.approx((9 + 1) / 2)
    assert abs(strong.curvature().gamma) < 1e-15


def test_arrays_are_copied_and_read_only():
    query = np.array([1.0, 2.0])
    layer = ScalarAttention(1.0, query, [0.0, 1.0], [[1.0]], [[2.0]])
    query[0] = 9
    assert layer.query[0] == 1
    with pytest.raises(ValueError, match="read-only"):
        layer.query[0] = 3
    assert layer.weights.tolist() == [1.0]


GOOD = {"value": 1.0, "query": [1.0], "key": [2.0], "inputs": [[1, 2]], "targets": [[3, 4]]}


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"inputs": [], "targets": []}, ValueError, "inputs must hold at least one sequence"),
        ({"inputs": [[]], "targets": [[]]}, (ValueError, TypeError), r"inputs\[0\] must"),
        (
            {"inputs": [np.zeros(0)], "targets": [np.zeros(0)]},
            ValueError,
            r"inputs\[0\] must have at least one token, got length 0",
        ),
        ({"targets": [[1]]}, ValueError, r"targets\[0\] must have length 2 to match inputs\[0\]"),
        ({"targets": []}, ValueError, "targets must hold 1 sequences to match inputs, got 0"),
        ({"inputs": [[1, np.nan]]}, ValueError, r"inputs\[0\] must be finite"),
        ({"targets": [[1, np.inf]]}, ValueError, r"targets\[0\] must be finite"),
        ({"value": np.nan}, ValueError, "value must be finite"),
        ({"value": [1.0]}, ValueError, "value must have 0 axes"),
        ({"value": "1"}, TypeError, "value must hold real numbers"),
        ({"query": np.zeros(0)}, ValueError, "query must have at least one entry, got length 0"),
        ({"key": [1, 2]}, ValueError, "key must have length 1 to match query, got length 2"),
        ({"query": [np.inf]}, ValueError, "query must be finite"),
        ({"weights": [1, 1]}, ValueError, r"weights must have one number per sequence \(1\)"),
        ({"weights": [-1]}, ValueError, "weights must not be negative, got -1.0"),
        ({"biases": []}, ValueError, "biases must hold 1 arrays, one per sequence, got 0"),
        ({"biases": [[1, 2, 3]]}, ValueError, r"biases\[0\] must have shape \(2,\) or \(2, 2\)"),
        ({"biases": [[np.inf, 0]]}, ValueError, r"biases\[0\] must be finite"),
        ({"causal": 1}, TypeError, "causal must be True or False, got 1"),
    ],
)
def test_bad_layers_are_named(changes, error, message):
    with pytest.raises(error, match=message):
        ScalarAttention(**(GOOD | changes))


def test_other_bad_arguments_are_named():
    with pytest.raises(ValueError, match="alpha must be finite"):
        Curvature(np.nan, 0, 0, 0)
    with pytest.raises(ValueError, match=r"weights must have one number per curvature \(1\)"):
        Curvature.mean([Curvature(0, 0, 0, 0)], [1, 2])
    with pytest.raises(ValueError, match="mix must have at least one entry"):
        mixing_curvature(1.0, np.zeros(0), np.zeros(0), np.zeros(0), np.zeros(0))
    with pytest.raises(ValueError, match="second must have length 1 to match mix, got length 2"):
        mixing_curvature(1.0, [1], [1], [1, 2], [1])
    with pytest.raises(ValueError, match=r"sequence must have length 2 to match attention \(1×2\)"):
        attention_moments([[0.5, 0.5]], [1, 2, 3])
    with pytest.raises(ValueError, match="key must have length 2"):
        query_and_key([1, 2], [1])
    with pytest.raises(ValueError, match="eta must be finite and not negative"):
        LAYER.step(-1.0)
    with pytest.raises(ValueError, match="strength must be finite"):
        LAYER.with_sink(np.inf)


def test_bad_torch_sequences_are_named():
    with pytest.raises(ValueError, match="inputs and targets must hold at least one sequence"):
        self_attention([], [])
    with pytest.raises(ValueError, match="have the same shapes"):
        self_attention([[1.0, 2.0]], [[1.0]])
    with pytest.raises(ValueError, match=r"inputs\[0\] must be a sequence of at least one finite"):
        self_attention([[np.nan]], [[1.0]])
    with pytest.raises(ValueError, match="one entry per sequence, 1"):
        self_attention([[1.0]], [[1.0]], weights=[1.0, 2.0])
