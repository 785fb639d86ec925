"""One attention head on numbers: closed spectra against autograd, and what it refuses."""

from dataclasses import replace

import numpy as np
import pytest

from exacthessian import autograd
from exacthessian.attention import Head, ScalarAttention
from exacthessian.autograd.attention import self_attention_loss


def layer_of(seed: int) -> ScalarAttention:
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, 7, size=1 + seed % 3)
    x, y = ([rng.standard_normal(n) for n in lengths] for _ in range(2))
    return ScalarAttention(
        rng.standard_normal(),
        *rng.standard_normal((2, 1 + seed % 5)),
        x,
        y,
        lengths / lengths.sum() if seed % 2 else None,
        [rng.standard_normal((n, n)) for n in lengths],
        causal=seed % 4 > 1,
    )


@pytest.mark.parametrize("seed", range(24))
def test_a_layer_and_its_head(seed: int) -> None:
    layer = layer_of(seed)
    assert layer.spectrum().distance(autograd.spectrum(layer)) < 1e-12
    assert layer.head().spectrum().distance(autograd.spectrum(layer.head())) < 1e-12
    assert layer.sharpness() == layer.spectrum().values.max()
    eps = 1e-6
    slope = layer.gradient() @ layer.gradient()
    assert layer.step(eps).loss() == pytest.approx(layer.loss() - eps * slope, abs=1e-9)


@pytest.mark.parametrize("weights", [([1, 2], [1, 2]), ([1, 2], [-1, -2]), ([0, 0], [1, 2])])
def test_degenerate_weights_are_no_exception(weights: tuple[list[float], list[float]]) -> None:
    for scalars in ((1.0, 2.0, 3.0, 4.0), (1.0, 0.0, 0.0, -1.0), (0.0, 0.0, 1.0, 0.0)):
        head = Head(*scalars, *map(np.array, weights))
        assert head.spectrum().distance(autograd.spectrum(head)) < 1e-12


def test_a_strong_sink_leaves_the_square_of_the_token() -> None:
    layer = ScalarAttention(1.2, [1.0, 0.3], [0.2, 1.0], [[3.0, 1.0, -1.0]], [[0.0, 1.0, 2.0]])
    assert layer.with_sink(40.0).sharpness() == pytest.approx(9.0)
    assert replace(layer, targets=layer.outputs()).loss() == 0


def test_softmax_of_large_scores() -> None:
    layer = ScalarAttention(1.0, [1.0], [1.0], [[1000.0, 1000.0]], [[0.0, 0.0]])
    assert layer.attention()[0] == pytest.approx(np.full((2, 2), 0.5))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"query": [1.0]}, "query and key must have one length"),
        ({"inputs": []}, "inputs must hold at least one array"),
        ({"targets": [[1.0]]}, "inputs and targets must have the same lengths"),
        ({"weights": [-1.0]}, "weights must be 1 numbers, one per sequence"),
        ({"biases": [[1.0]]}, "biases must be \\(n,\\) or"),
    ],
)
def test_what_is_no_layer_is_refused(changes: dict[str, object], message: str) -> None:
    layer = ScalarAttention(1.0, [1.0, 0.0], [0.0, 1.0], [[1.0, 3.0]], [[2.0, 4.0]])
    with pytest.raises(ValueError, match=f"^{message}"):
        replace(layer, **changes)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("lengths", [(3, 3), (2, 4)])
def test_the_loss_of_tokens_that_are_vectors(lengths: tuple[int, int], causal: bool) -> None:
    """The oracle itself, written once more with NumPy: D = 2 numbers a token, d_K = 3."""
    rng = np.random.default_rng(0)
    x, y = ([rng.standard_normal((n, 2)) for n in lengths] for _ in range(2))
    shifts = [rng.standard_normal((n, n)) for n in lengths]
    value, query, key = (rng.standard_normal((2, k)) for k in (2, 3, 3))
    expected = 0.0
    for weight, *one in zip((0.3, 0.9), x, y, shifts, strict=True):
        tokens, wanted, shift = one
        scores = (tokens @ query) @ (tokens @ key).T / np.sqrt(3) + shift
        if causal:
            scores = np.where(np.tri(len(tokens)) > 0, scores, -np.inf)
        rows = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
        expected += weight * np.mean((rows @ tokens @ value - wanted) ** 2) / 2
    loss = self_attention_loss(x, y, [0.3, 0.9], shifts, causal)
    assert float(loss(autograd.tensors([value, query, key]))) == pytest.approx(expected)
