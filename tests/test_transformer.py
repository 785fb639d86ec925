"""The tiny transformer against a second one written with loops in NumPy, against differences of
its own gradients, and against what can be said about it on paper.
"""

import doctest

import numpy as np
import pytest
import torch

from exacthessian.autograd import dense_hessian
from exacthessian.studies import transformer
from exacthessian.studies.transformer import ALPHABET, MIXERS, PRIMER, Transformer, encode

TINY = {"width": 4, "heads": 2, "blocks": 2, "context": 5}


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20261117)


def tiny(mixer: str, **changes: int) -> Transformer:
    return Transformer(mixer, **(TINY | changes))


def batch(net: Transformer, count: int, rng: np.random.Generator):
    codes = rng.integers(0, len(ALPHABET), size=60)
    return net.windows(codes, count, rng)


def normalised(x):
    return (x - x.mean()) / np.sqrt(x.var() + 1e-5)


def looped_attention(net, x, matrices, sink):
    """One sequence, one token and one head at a time."""
    query, key, value, out = matrices
    size = net.width // net.heads
    mixed = np.zeros_like(x)
    for h in range(net.heads):
        part = slice(h * size, (h + 1) * size)
        for i in range(len(x)):
            scores = []
            for j in range(i + 1):
                score = (query @ x[i])[part] @ (key @ x[j])[part] / np.sqrt(size)
                scores.append(score + (sink if h == j == 0 else 0))
            weights = np.exp(scores) / np.exp(scores).sum()
            for j in range(i + 1):
                mixed[i, part] += weights[j] * (value @ x[j])[part]
    return mixed @ out.T


def looped_mlp(net, x, matrices, mixing):
    up, down = matrices
    hidden = x @ up.T
    if mixing:
        size = hidden.shape[1] // net.heads
        mixed = np.zeros_like(hidden)
        for h in range(net.heads):
            part = slice(h * size, (h + 1) * size)
            for i in range(len(x)):
                ages = np.exp(-h * np.arange(i, -1.0, -1.0))
                mixed[i, part] = (ages / ages.sum()) @ hidden[: i + 1, part]
        hidden = mixed
    return np.maximum(hidden, 0) @ down.T


def looped_logits(net, weights, sequence, sink=0.0):
    """The network again, for one sequence, from the definition."""
    token, position, *inner, read = [w.numpy() for w in weights]
    stream = np.array([token[code] + position[i] for i, code in enumerate(sequence)])
    each = len(inner) // net.blocks
    for b in range(net.blocks):
        *mixer, up, down = inner[b * each : (b + 1) * each]
        x = np.array([normalised(row) for row in stream])
        if net.mixer == "softmax":
            stream = stream + looped_attention(net, x, mixer, sink)
        else:
            stream = stream + looped_mlp(net, x, mixer, net.mixer == "fixed")
        x = np.array([normalised(row) for row in stream])
        stream = stream + np.maximum(x @ up.T, 0) @ down.T
    return np.array([normalised(row) for row in stream]) @ read.T


def test_doctests():
    result = doctest.testmod(transformer)
    assert result.attempted > 10
    assert result.failed == 0


@pytest.mark.parametrize("mixer", MIXERS)
@pytest.mark.parametrize("heads", [1, 2, 4])
def test_the_network_is_the_one_written_with_loops(mixer, heads, rng):
    net = tiny(mixer, heads=heads)
    weights = net.start(rng)
    inputs, _ = batch(net, 3, rng)
    for sink in (0.0, 1.7) if mixer == "softmax" else (0.0,):
        found = net.logits(weights, inputs, sink=sink).numpy()
        for row, sequence in zip(found, inputs.numpy(), strict=True):
            np.testing.assert_allclose(row, looped_logits(net, weights, sequence, sink), atol=1e-12)


@pytest.mark.parametrize("sizes", [TINY, TINY | {"blocks": 1}, {"width": 6, "heads": 3}])
def test_the_variants_have_one_size(sizes):
    nets = [Transformer(mixer, **sizes) for mixer in MIXERS]
    d, T, B = nets[0].width, nets[0].context, nets[0].blocks
    assert {net.size for net in nets} == {2 * 29 * d + T * d + B * (4 + 8) * d * d}
    for net in nets:
        assert [tuple(w.shape) for w in net.start(np.random.default_rng(0))] == net.shapes


def test_a_start_has_the_stated_variances(rng):
    for mixer, writers in (("softmax", {5, 7, 11, 13}), ("mlp", {3, 5, 7, 9})):
        net = Transformer(mixer, width=64)
        for i, weight in enumerate(net.start(rng)):
            assert weight.dtype == torch.float64
            wanted = 1 / weight.shape[1] / (4 if i in writers else 1)
            assert float(weight.var()) == pytest.approx(wanted, rel=0.15)


@pytest.mark.parametrize("mixer", MIXERS)
def test_nobody_reads_the_future_and_the_mlp_not_even_the_past(mixer, rng):
    net = tiny(mixer)
    weights = net.start(rng)
    inputs, _ = batch(net, 1, rng)
    changed = inputs.clone()
    changed[0, 2] = (inputs[0, 2] + 7) % len(ALPHABET)
    move = (net.logits(weights, changed) - net.logits(weights, inputs))[0].norm(dim=-1)
    assert float(move[:2].max()) == 0
    assert float(move[2]) > 1e-3
    assert (float(move[3:].min()) > 1e-6) == (mixer != "mlp")


def test_constant_weights_decay_with_age():
    found = tiny("fixed", heads=4, context=3).constant_weights().numpy()
    for h in range(4):
        for i in range(3):
            ages = np.array([np.exp(-h * (i - j)) if j <= i else 0.0 for j in range(3)])
            np.testing.assert_allclose(found[h, i], ages / ages.sum(), atol=1e-15)


@pytest.mark.parametrize("sink", [0.0, 3.0])
def test_attention_on_the_first_token_of_a_net_that_does_not_look(sink):
    """With zero weights all scores agree, so the first token gets e^b / (e^b + i) in row i."""
    net = tiny("softmax", context=6)
    weights = [torch.zeros(shape, dtype=torch.float64) for shape in net.shapes]
    inputs = torch.zeros(2, 6, dtype=torch.int64)
    wanted = np.mean([np.exp(sink) / (np.exp(sink) + i) for i in range(6)])
    assert net.attention_on_first(weights, inputs, sink=sink) == pytest.approx(wanted, abs=1e-14)


def test_a_sink_moves_one_column_of_the_first_head(rng):
    net = tiny("softmax", blocks=1)
    weights = net.start(rng)
    inputs, _ = batch(net, 2, rng)
    (plain,), (moved,) = net.scores(weights, inputs), net.scores(weights, inputs, sink=2.5)
    wanted = torch.zeros_like(plain)
    wanted[:, 0, :, 0] = 2.5
    np.testing.assert_allclose(moved - plain, wanted, atol=1e-14)


def test_the_tangent_of_softmax_touches_it_and_is_straight(rng):
    at, move = torch.from_numpy(rng.standard_normal((2, 2, 3, 5, 5)))

    def touch(t):
        return transformer._attention(at + t * move, at)

    def softmax(t):
        return transformer._attention(at + t * move)

    zero = torch.zeros((), dtype=torch.float64)
    for curve in (touch, softmax):
        np.testing.assert_allclose(curve(zero).sum(-1), np.ones((2, 3, 5)), atol=1e-14)
    value, same = touch(zero), softmax(zero)
    slope, steep = (torch.autograd.functional.jacobian(curve, zero) for curve in (touch, softmax))
    np.testing.assert_allclose(value, same, atol=1e-15)
    np.testing.assert_allclose(slope, steep, atol=1e-14)
    np.testing.assert_allclose(touch(2.0), value + 2 * slope, atol=1e-14)
    assert float((softmax(2.0) - value - 2 * slope).abs().max()) > 0.1


def gradient(net, theta, inputs, targets, **options):
    sizes = [rows * columns for rows, columns in net.shapes]
    theta = theta.clone().requires_grad_()
    pieces = zip(torch.split(theta, sizes), net.shapes, strict=True)
    weights = [piece.reshape(shape) for piece, shape in pieces]
    value = net.loss(weights, inputs, targets, **options)
    return torch.autograd.grad(value, theta)[0]


@pytest.mark.parametrize(("mixer", "sink"), [(m, 0.0) for m in MIXERS] + [("softmax", 1.5)])
@pytest.mark.parametrize("tangent", [False, True])
def test_hessian_products_are_differences_of_gradients(mixer, sink, tangent, rng):
    if tangent and mixer != "softmax":
        return
    net = tiny(mixer)
    weights = net.start(rng)
    inputs, targets = batch(net, 3, rng)
    hessian, _ = net.curvature(weights, inputs, targets, tangent, sink=sink)
    options = {"sink": sink}
    if tangent:
        options["anchors"] = net.scores(weights, inputs, sink=sink)
    theta = torch.cat([w.reshape(-1) for w in weights])
    v = torch.from_numpy(rng.standard_normal(net.size))
    h = 1e-6
    ahead, behind = (gradient(net, theta + s * h * v, inputs, targets, **options) for s in (1, -1))
    difference = ((ahead - behind) / (2 * h)).numpy()
    found = hessian @ v.numpy()
    assert np.abs(found - difference).max() < 1e-6 * np.abs(found).max()


@pytest.mark.parametrize("mixer", MIXERS)
def test_gauss_newton_is_the_jacobian_around_the_curvature_of_the_loss(mixer, rng):
    net = tiny(mixer, blocks=1, context=3)
    weights = net.start(rng)
    inputs, targets = batch(net, 1, rng)
    jacobians = torch.autograd.functional.jacobian(
        lambda *moved: net.logits(moved, inputs).flatten(0, 1), tuple(weights)
    )
    tokens = inputs.numel()
    J = torch.cat([j.reshape(tokens, 29, -1) for j in jacobians], -1).numpy()
    logits = net.logits(weights, inputs).flatten(0, 1).numpy()
    wanted = np.zeros((net.size, net.size))
    for j, z in zip(J, logits, strict=True):
        p = np.exp(z - z.max())
        p /= p.sum()
        wanted += j.T @ (np.diag(p) - np.outer(p, p)) @ j / tokens
    for tangent in (False, True) if mixer == "softmax" else (False,):
        _, found = net.curvature(weights, inputs, targets, tangent=tangent)
        some = rng.standard_normal((net.size, 4))
        image = wanted @ some
        assert np.abs(found @ some - image).max() < 1e-12 * np.abs(image).max()


def test_the_tangent_changes_the_hessian_and_nothing_before_it(rng):
    net = tiny("softmax")
    weights = net.start(rng)
    inputs, targets = batch(net, 3, rng)
    anchors = net.scores(weights, inputs)
    np.testing.assert_allclose(
        net.logits(weights, inputs, anchors=anchors), net.logits(weights, inputs), atol=1e-14
    )
    curved, straight = (
        net.curvature(weights, inputs, targets, tangent=tangent)[0] for tangent in (False, True)
    )
    v = rng.standard_normal(net.size)
    assert np.linalg.norm(curved @ v - straight @ v) > 1e-3 * np.linalg.norm(curved @ v)


def test_the_tangent_leaves_the_curvature_along_the_values_alone(rng):
    """In the last block the values move no scores, so that their own block of H has no softmax."""
    net = tiny("softmax", blocks=1)
    weights = net.start(rng)
    data = batch(net, 3, rng)
    first = sum(rows * columns for rows, columns in net.shapes[:4])
    values = slice(first, first + net.width**2)
    v = np.zeros(net.size)
    v[values] = rng.standard_normal(net.width**2)
    curved, straight = (
        net.curvature(weights, *data, tangent=tangent)[0] @ v for tangent in (False, True)
    )
    assert np.abs(curved[values] - straight[values]).max() < 1e-14


def test_the_operators_are_the_dense_matrices(rng):
    net = tiny("softmax", width=2, heads=1, blocks=1, context=3)
    weights = net.start(rng)
    inputs, targets = batch(net, 2, rng)
    hessian, _ = net.curvature(weights, inputs, targets)
    dense = dense_hessian(lambda w: net.loss(w, inputs, targets), weights)
    np.testing.assert_allclose(hessian @ np.eye(net.size), dense, atol=1e-13)


def test_loss_token_by_token(rng):
    net = tiny("softmax")
    weights = net.start(rng)
    inputs, targets = batch(net, 2, rng)
    losses = []
    for z, y in zip(net.logits(weights, inputs).flatten(0, 1), targets.flatten(), strict=True):
        losses.append(-float(torch.log_softmax(z, 0)[y]))
    assert net.loss(weights, inputs, targets).item() == pytest.approx(np.mean(losses), rel=1e-13)


def test_training_is_adam(rng):
    net = tiny("fixed")
    codes = encode()
    start = net.start(rng)
    before = [w.clone() for w in start]
    kept = net.train(start, codes, [0, 1, 3], np.random.default_rng(5), batch=2, rate=0.01)
    assert all(torch.equal(a, b) for a, b in zip(start, before, strict=True))
    assert all(torch.equal(a, b) for a, b in zip(start, kept[0], strict=True))
    theta = torch.cat([w.reshape(-1) for w in start])
    draws = np.random.default_rng(5)
    mean, square = np.zeros(net.size), np.zeros(net.size)
    for step in range(1, 4):
        slope = gradient(net, theta, *net.windows(codes, 2, draws)).numpy()
        mean = 0.9 * mean + 0.1 * slope
        square = 0.999 * square + 0.001 * slope**2
        move = (mean / (1 - 0.9**step)) / (np.sqrt(square / (1 - 0.999**step)) + 1e-8)
        theta = theta - torch.from_numpy(0.01 * move)
        if step in (1, 3):
            found = torch.cat([w.reshape(-1) for w in kept[1 if step == 1 else 2]])
            np.testing.assert_allclose(found, theta, atol=1e-9)


@pytest.mark.parametrize("mixer", MIXERS)
def test_training_lowers_the_loss(mixer, rng):
    net = tiny(mixer, width=8)
    codes = encode()
    kept = net.train(net.start(rng), codes, [0, 60], rng, batch=8, rate=0.01)
    data = net.windows(codes, 50, rng)
    before, after = (net.loss(w, *data).item() for w in kept)
    assert after < before - 0.3


def test_the_primer_uses_the_alphabet_and_nothing_else():
    text = " ".join(PRIMER.lower().split())
    assert set(text) == set(ALPHABET)
    assert "".join(ALPHABET[code] for code in encode()) == text
    assert 6000 < len(text) < 10000


def test_encoding():
    assert encode("").shape == (0,)
    assert encode("aZ,. \n  b").tolist() == [3, 28, 1, 2, 0, 4]
    assert encode("Ä1-b").tolist() == [4]


def test_windows_reach_both_ends_and_follow_one_another(rng):
    codes = np.arange(6)
    inputs, targets = tiny("mlp", context=4).windows(codes, 200, rng)
    assert set(inputs[:, 0].tolist()) == {0, 1}
    assert torch.equal(inputs[:, 1:], targets[:, :-1])
    assert torch.equal(targets, inputs + 1)


def test_bad_input_is_named():
    with pytest.raises(ValueError, match="mixer must be one of softmax, mlp, fixed, got 'sort'"):
        Transformer("sort")
    with pytest.raises(ValueError, match="heads must divide the width 4, got 3"):
        Transformer("mlp", width=4, heads=3)
    with pytest.raises(TypeError, match="blocks must be an integer, got True"):
        Transformer("mlp", blocks=True)


def test_a_massive_value_is_a_longer_value_of_the_first_token(rng):
    net = Transformer("softmax", width=4, blocks=1, context=5)
    weights, inputs = net.start(rng), torch.arange(5)[None]
    same = net.logits(weights, inputs, massive=1.0)
    assert torch.equal(same, net.logits(weights, inputs))
    assert not torch.allclose(same, net.logits(weights, inputs, massive=5.0))
