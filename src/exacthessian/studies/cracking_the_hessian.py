"""Experiments of the chapter "Cracking the Hessian": many small networks, and a tiny transformer.

Many networks at once are stacks of shape (n, d_{l+1}, d_l). What takes long is made by
`benchmarks/kept_studies.py`, seed by seed; a page reads it with `kept`.
"""

import json
from collections import namedtuple
from collections.abc import Sequence
from importlib.resources import files
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
from numpy.random import Generator, default_rng
from numpy.typing import ArrayLike
from scipy.sparse.linalg import LinearOperator
from scipy.special import softmax

from exacthessian.attention import Head
from exacthessian.inputs import Array
from exacthessian.product import knocked_out
from exacthessian.spectrum import spectral_density
from exacthessian.studies import transformer as tf

Layers: TypeAlias = Sequence[Array]
Ints: TypeAlias = Sequence[int]
Floats: TypeAlias = Sequence[float]
Windows: TypeAlias = tuple[Any, Any]

SCHEMES = ("SP", "muP", "NTP")
NORMS = ("spectral", "Frobenius", "nuclear")
REFRESH = 20  # steps of gradient descent between two looks at the sharpness


def kept(name: str, what: str = "result") -> Any:
    """The kept result of a long study, or its "settings".

    >>> sorted(kept("products")["muP 2 1"][0][0])[-1] > 0.9
    True
    >>> kept("products", "settings")["networks"]
    40
    """
    file = files("exacthessian").joinpath("data/cracking_the_hessian.json")
    return json.loads(file.read_text(encoding="utf-8"))[name][what]


# Starts and descents of many networks at once


def start(scheme: str, widths: Ints, networks: int, rng: Generator) -> list[Array]:
    """Random layers, weights[l] of shape (networks, d_{l+1}, d_l).

    "SP": uniform in ±1/√d_l, torch's default. "muP": normal with standard deviation
    min(1, √(d_{l+1}/d_l))/√d_l. "NTP": standard normal with factors d_l^{−1/2} in the network; all
    layers are multiplied by the same c = (d_0 ⋯ d_{L−1})^{−1/2L} instead, which divides the
    Hessian by c² and changes no correlation. "orthonormal": columns or, if there are more, rows.
    """
    shapes = [(networks, out, fan) for fan, out in pairwise(widths)]
    if scheme == "SP":
        return [rng.uniform(-1, 1, shape) / np.sqrt(shape[2]) for shape in shapes]
    if scheme == "orthonormal":
        tall = [(networks, max(out, fan), min(out, fan)) for _, out, fan in shapes]
        bases = [np.linalg.qr(rng.standard_normal(shape))[0] for shape in tall]
        return [b if b.shape == s else b.mT for b, s in zip(bases, shapes, strict=True)]
    scale = float(np.prod(widths[:-1])) ** (-0.5 / len(shapes))
    mup = (min(1.0, np.sqrt(out / fan)) / np.sqrt(fan) for _, out, fan in shapes)
    spread = [scale] * len(shapes) if scheme == "NTP" else mup
    return [s * rng.standard_normal(shape) for s, shape in zip(spread, shapes, strict=True)]


def rates(scheme: str, widths: Ints) -> list[float]:
    """Relative learning rates of the layers: d_{l+1}/d_l for "muP", 1 for the other schemes."""
    return [out / fan if scheme == "muP" else 1.0 for fan, out in pairwise(widths)]


def descend(weights: Layers, data: Array, target: Array, pace: Floats, steps: int) -> list[Array]:
    """Gradient descent on ½E‖Wx − y‖² of a stack of linear networks with one relative rate per
    layer, `pace`. A step is half the inverse of an upper bound of the Gauss–Newton sharpness in the
    metric of the rates, renewed every 20 steps, plus that of a balanced minimum.
    """
    layers, step = [np.array(weight) for weight in weights], np.zeros(1)
    learnt = float(np.linalg.norm(target @ np.linalg.pinv(data), ord=2))
    for time in range(steps):
        after, before = knocked_out(layers)
        if time % REFRESH == 0:
            step = 0.5 / np.linalg.eigvalsh(data)[-1] / _bound(after, before, pace, learnt)
        error = (layers[-1] @ before[-1]) @ data - target
        for layer, a, b, rate in zip(layers, after, before, pace, strict=True):
            layer -= rate * step * (a.mT @ error @ b.mT)
    return layers


def _bound(after: Layers, before: Layers, pace: Floats, learnt: float) -> Array:
    """Σ_i rate_i ‖A_i‖²‖B_i‖² ≥ the sharpness of the rescaled Gauss–Newton matrix for Σ = I, plus
    B (Π_l rate_l)^{1/B} ‖W‖^{2−2/B}, that of a balanced minimum ‖W‖ = `learnt`; (n, 1, 1)."""
    depth = len(pace)
    sizes = [[np.linalg.norm(m, 2, (-2, -1), keepdims=True) for m in ms] for ms in (after, before)]
    terms = [rate * (a * b) ** 2 for a, b, rate in zip(*sizes, pace, strict=True)]
    balanced = depth * np.prod(pace) ** (1 / depth) * learnt ** (2 - 2 / depth)
    return np.asarray(np.sum(terms, axis=0) + balanced)


# What is correlated


def norms2(weights: ArrayLike) -> dict[str, Array]:
    """The squared spectral, Frobenius and nuclear norm of each matrix of a stack (n, a, b)."""
    sigma = np.linalg.svd(np.asarray(weights, dtype=float), compute_uv=False)
    sizes = sigma[:, 0] ** 2, np.sum(sigma**2, axis=1), np.sum(sigma, axis=1) ** 2
    return dict(zip(NORMS, sizes, strict=True))


def correlation(x: ArrayLike, y: ArrayLike) -> float:
    """Pearson's correlation coefficient of two samples (n,)."""
    return float(np.corrcoef(np.asarray(x), np.asarray(y))[0, 1])


# The pair hypothesis


def pair_sums(eigenvalues: Array) -> Array:
    """λ_i + λ_j for all i < j, ascending."""
    i, j = np.triu_indices(len(eigenvalues), 1)
    return np.sort(eigenvalues[i] + eigenvalues[j])


def distances(sums: Array, targets: ArrayLike) -> Array:
    """The distance of each target (n,) from the nearest of the ascending `sums`: (n,)."""
    wanted = np.asarray(targets, dtype=float)
    right = np.searchsorted(sums, wanted).clip(1, len(sums) - 1)
    return np.asarray(np.abs(wanted - np.stack([sums[right - 1], sums[right]])).min(axis=0))


def normalised_data(size: int, samples: int, white: bool, rng: Generator) -> tuple[Array, Array]:
    """Random features (D, N) and one target (1, N), all with mean 0 and variance 1 over the N
    samples; `white` makes all their correlations vanish: Σxx = I and Σyx = 0."""
    rows = rng.standard_normal((size + 1, samples))
    rows -= rows.mean(axis=1, keepdims=True)
    if white:
        rows = np.sqrt(samples) * np.linalg.qr(rows.T)[0].T
    else:
        rows /= rows.std(axis=1, keepdims=True)
    return rows[:-1], rows[-1:]


# Attention at the edge of stability


# Gradient descent of appendix D.2 on many two-token sequences at once. All arrays are (T + 1, B):
# w_V, c = ⟨w_Q, w_K⟩, N = |w_Q|² + |w_K|², the loss, trace and largest eigenvalue of H.
Reversal = namedtuple("Reversal", "value product norm loss trace sharpness")


def reverse_two_tokens(
    x: Array, value: Array, query: Array, key: Array, eta: float, steps: int
) -> Reversal:
    """Train w_V, w_Q, w_K to map each (x_1, x_2) to (x_2, x_1), appendix D.2.

    x (B, 2), `value` (B,), `query`, `key` (B, d_K), d_K ≥ 2. The gradient is (φ_1, γ w_K, γ w_Q),
    so descent closes on three numbers: w_V moves by −ηφ_1, c by −ηγN + η²γ²c and N by
    −4ηγc + η²γ²N. Runs that leave float64 end in NaN.
    """
    root, w = np.sqrt(query.shape[1]), value
    c, norm = np.sum(query * key, axis=1), np.sum(query**2 + key**2, axis=1)
    history = []
    with np.errstate(over="ignore", invalid="ignore"):
        for _ in range(steps + 1):
            gap = x[:, :1] - x[:, 1:]
            p = 1 / (1 + np.exp(-c[:, None] * x * gap / root))
            mean, q = x[:, 1:] + p * gap, 1 - p
            first = x * p * q * gap**2 / root
            second = x**2 * p * q * (q - p) * gap**3 / root**2
            delta = w[:, None] * mean - x[:, ::-1]
            alpha = np.mean(mean**2, axis=1)
            beta = np.mean((w[:, None] * mean + delta) * first, axis=1)
            gamma = w * np.mean(delta * first, axis=1)
            zeta = w**2 * np.mean(first**2, axis=1) + w * np.mean(delta * second, axis=1)
            loss = np.mean(delta**2, axis=1) / 2
            history.append(np.array([w, c, norm, loss, alpha, beta, gamma, zeta]))
            rate = eta * gamma
            w = w - eta * np.mean(delta * mean, axis=1)
            c, norm = c - rate * norm + rate**2 * c, norm - 4 * rate * c + rate**2 * norm
        w, c, norm, loss, *scalars = np.stack(history, axis=1)
        # |w_Q ± w_K|²/2 = N/2 ± c
        block = Head.matrix(*scalars, *np.sqrt(np.maximum([norm / 2 + c, norm / 2 - c], 0.0)))
        traces = np.trace(block, axis1=-2, axis2=-1)
        lost = ~np.isfinite(block).all(axis=(-2, -1))
        block[lost] = 0.0
        top = np.maximum(np.linalg.eigvalsh(block)[..., -1], np.abs(scalars[2]))
        sharpness = np.where(lost, np.nan, top)
        return Reversal(w, c, norm, loss, traces, sharpness)


# Transformers


def ends(operator: LinearOperator, products: int) -> tuple[float, float]:
    """The least and the largest Ritz value after some products."""
    lanczos = spectral_density(operator, default_rng(0), steps=products, probes=1)
    return float(lanczos.nodes.min()), float(lanczos.nodes.max())


def observe(net: tf.Transformer, state: Any, data: Windows, products: int = 20) -> list[float]:
    """Loss, mean residual ‖p − e_y‖ of a token, and the largest eigenvalue of H, of G, and of H
    with the tangent in place of softmax (that of H if there is no softmax)."""
    hessian, newton = net.curvature(state, *data)
    high = straight = ends(hessian, products)[1]
    if net.mixer == "softmax":
        straight = ends(net.curvature(state, *data, tangent=True)[0], products)[1]
    misses = softmax(net.logits(state, data[0]).numpy(), -1) - np.eye(len(tf.ALPHABET))[data[1]]
    residual, newton = float(np.linalg.norm(misses, axis=-1).mean()), ends(newton, products)[1]
    return [net.loss(state, *data).item(), residual, high, newton, straight]


def train_one(
    mixer: str, seed: int, steps: Ints, text: str = tf.PRIMER, rate: float = 3e-3, **sizes: int
) -> tuple[tf.Transformer, list[Any], Windows]:
    """A network, its states after some numbers of steps, and the windows it is measured on."""
    net, rng, codes = tf.Transformer(mixer, **sizes), default_rng(seed), tf.encode(text)
    begin = net.start(rng)
    data = net.windows(codes, 8, rng)
    return net, net.train(begin, codes, steps, rng, rate=rate), data
