"""Random models over the whole legal domain of the closed forms, degenerate ones among them often:
zero weights, equal singular values, w = ±v, width 1, depth 1, empty cells, equal tokens.
"""

from itertools import pairwise

import numpy as np
from hypothesis import strategies as st

from exacthessian import LinearChain
from exacthessian.aligned import AlignedChain
from exacthessian.attention import Head, ScalarAttention
from exacthessian.scalar import ReluNetwork, TwoLayer

entries = st.sampled_from([0.0, 1.0, -1.0, 0.5]) | st.floats(-3, 3).map(lambda x: round(x, 3))
positive = st.sampled_from([1.0, 2.0]) | st.floats(0.01, 3)
scales = st.sampled_from([1.0, 1e-5, 1e5])


def vectors(length):
    return st.lists(entries, min_size=length, max_size=length).map(np.array)


def matrices(rows, columns):
    """Dense, zero, or of equal singular values."""
    dense = vectors(rows * columns).map(lambda v: v.reshape(rows, columns))
    return dense | st.sampled_from([0.0, 1.0, 2.0]).map(lambda s: s * np.eye(rows, columns))


@st.composite
def pairs(draw, longest=5):
    """Two vectors of one length; often w = ±v, or one of them 0."""
    w = draw(vectors(draw(st.integers(1, longest))))
    other = st.sampled_from([w, -w, 0 * w, 2 * w]) | vectors(len(w))
    return w, draw(other)


@st.composite
def two_layers(draw):
    """With any residual, 0 among them, also where the outliers are equal, E xy = 2c s²."""
    (w, v), scale = draw(pairs()), draw(scales)
    w, v, s2 = scale * w, scale * v, draw(st.just(0.0) | positive)
    slope = draw(st.sampled_from([0.0, 1 / 3, 1.0, 2.0, 3.0]))
    yx = float(slope * (w @ v) * s2) + draw(st.just(0.0) | entries) * scale**2 * (s2 > 0)
    return TwoLayer(w, v, s2, yx)


@st.composite
def relu_networks(draw):
    """Cells without a neuron, neurons without a sample, silent neurons and samples at 0."""
    (w, v), (x, y) = draw(pairs()), draw(pairs())
    turn = st.sampled_from([lambda a: a, np.abs, lambda a: -np.abs(a)])
    return ReluNetwork(w, draw(turn)(v), draw(turn)(x), y)


@st.composite
def heads(draw):
    """Any four numbers, though they need not be those of a layer."""
    query, key = draw(pairs())
    return Head(*draw(vectors(4)), query, key)


@st.composite
def attention_layers(draw):
    """Sequences of different lengths, single and equal tokens, masks, biases, weights of 0."""
    count = draw(st.integers(1, 3))
    inputs, targets, biases = [], [], []
    for _ in range(count):
        length = draw(st.integers(1, 4))
        tokens = vectors(length) | entries.map(lambda x, n=length: np.full(n, x))
        inputs.append(draw(tokens))
        targets.append(draw(vectors(length)))
        biases.append(draw(vectors(length) | matrices(length, length)))
    weights = draw(st.none() | vectors(count).map(np.abs))
    query, key = draw(pairs())
    return ScalarAttention(
        draw(entries), query, key, inputs, targets, weights, biases, draw(st.booleans())
    )


@st.composite
def chains(draw, least=1, most=4, widest=4, outputs=None, ridge=True):
    """Any layers and moments: depth 1, width 1, zero layers, data of any rank."""
    widths = draw(st.lists(st.integers(1, widest), min_size=least + 1, max_size=most + 1))
    widths[-1] = outputs or widths[-1]
    weights = [draw(matrices(b, a)) for a, b in pairwise(widths)]
    x = draw(matrices(widths[0], draw(st.integers(1, 3))))
    y = draw(matrices(widths[-1], x.shape[1]))
    lam = draw(st.sampled_from([0.0, 0.3])) if ridge else 0.0
    return LinearChain(weights, x @ x.T, y @ x.T, ridge=lam)


@st.composite
def bias_chains(draw, least=2):
    """What Theorem B.1 assumes: ⟨v, b⟩ = 0, ‖v‖ = ‖b‖, white data and a residual of the outputs."""
    width, size = draw(st.integers(least, 5)), draw(st.just(0.0) | positive)
    seed = draw(st.integers(0, 2**32 - 1))
    axes = np.linalg.qr(np.random.default_rng(seed).standard_normal((width, width)))[0]
    first = size * (axes if draw(st.booleans()) else np.eye(width))[:, :2]
    return LinearChain([first, draw(vectors(width))[None]], np.eye(2), np.zeros((1, 2)))


@st.composite
def aligned_chains(draw):
    """Of any depth and widths, with zero, equal and negative singular values and targets."""
    widths = tuple(draw(st.lists(st.integers(1, 4), min_size=2, max_size=5)))
    values = [draw(vectors(min(pair))) for pair in pairwise(widths)]
    data, target = draw(vectors(widths[0])), draw(vectors(min(widths[0], widths[-1])))
    ridge = draw(st.sampled_from([0.0, 0.3]))
    return AlignedChain(widths, tuple(values), np.abs(data), target, ridge=ridge)
