"""Experiments of the chapter "Cracking the Hessian": many small networks, and a tiny transformer.

Many networks at once are stacks of shape (n, d_{l+1}, d_l). The studies that take long return plain
lists and dictionaries, seed by seed; a page reads them with `kept`.
"""

from collections.abc import Mapping, Sequence
from functools import reduce
from itertools import pairwise
from typing import Any, NamedTuple

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from numpy.typing import ArrayLike
from scipy.sparse.linalg import LinearOperator
from scipy.special import softmax

from exacthessian import figures
from exacthessian.attention import Head
from exacthessian.autograd import dense_hessian, tensors
from exacthessian.autograd import transformer as tf
from exacthessian.autograd.product import relu_network_loss
from exacthessian.chain import LinearChain
from exacthessian.inputs import Array
from exacthessian.live import progress
from exacthessian.product import knocked_out, reduced, sharpness_law, spectrum_one_output
from exacthessian.spectrum import Spectrum, spectral_density, top_eigenvalues

Layers = list[Array]
SCHEMES = ("SP", "muP", "NTP")
NORMS = ("spectral", "Frobenius", "nuclear")
REFRESH = 20  # steps of gradient descent between two looks at the sharpness


# Starts and descents of many networks at once


def start(scheme: str, widths: Sequence[int], networks: int, rng: np.random.Generator) -> Layers:
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
    spread = [
        scale if scheme == "NTP" else min(1.0, np.sqrt(out / fan)) / np.sqrt(fan)
        for _, out, fan in shapes
    ]
    return [s * rng.standard_normal(shape) for s, shape in zip(spread, shapes, strict=True)]


def rates(scheme: str, widths: Sequence[int]) -> list[float]:
    """Relative learning rates of the layers: d_{l+1}/d_l for "muP", 1 for the other schemes."""
    return [out / fan if scheme == "muP" else 1.0 for fan, out in pairwise(widths)]


def descend(
    weights: Sequence[ArrayLike],
    sigma_xx: ArrayLike,
    sigma_yx: ArrayLike,
    relative: Sequence[float],
    steps: int,
) -> Layers:
    """Gradient descent on ½E‖Wx − y‖² of a stack of linear networks with one rate per layer, each
    with a step that is half the inverse of an upper bound of its Gauss–Newton sharpness in the
    metric of the rates, renewed every 20 steps, plus that of a balanced minimum.
    """
    layers = [np.array(weight, dtype=float) for weight in weights]
    data, target = np.asarray(sigma_xx, dtype=float), np.asarray(sigma_yx, dtype=float)
    largest = float(np.linalg.eigvalsh(data)[-1])
    learnt = float(np.linalg.norm(target @ np.linalg.pinv(data), ord=2))
    step = np.zeros(1)
    for time in range(steps):
        after, before = knocked_out(layers)
        if time % REFRESH == 0:
            step = 0.5 / largest / _bound(after, before, relative, learnt)
        error = (layers[-1] @ before[-1]) @ data - target
        for layer, a, b, rate in zip(layers, after, before, relative, strict=True):
            layer -= rate * step * (a.mT @ error @ b.mT)
    return layers


def relu_descend(
    weights: Sequence[ArrayLike],
    x: Array,
    y: Array,
    masses: Array,
    relative: Sequence[float],
    steps: int,
) -> Layers:
    """Gradient descent on ½ Σ_n masses[n] ‖f(x_n) − y_n‖² of a stack of ReLU networks without bias:
    x (D, N), y (K, N). The steps are as in `descend`, for white inputs, and stay fixed.
    """
    layers = [np.array(weight, dtype=float) for weight in weights]
    pace = 0.5 / _bound(*knocked_out(layers), relative, 1.0)
    for _ in range(steps):
        states = _relu_states(layers, x)
        error = masses * (layers[-1] @ states[-1] - y)
        gradients = []
        for layer, state in zip(layers[::-1], states[::-1], strict=True):
            gradients.append(error @ state.mT)
            error = (layer.mT @ error) * (state > 0)
        for layer, gradient, rate in zip(layers, gradients[::-1], relative, strict=True):
            layer -= rate * pace * gradient
    return layers


def _relu_states(layers: Sequence[Array], x: Array) -> Layers:
    """What each layer receives: x, then the hidden states after the ReLU."""
    states = [np.broadcast_to(x, (len(layers[0]), *x.shape))]
    for layer in layers[:-1]:
        states.append(np.maximum(layer @ states[-1], 0.0))
    return states


def _bound(
    after: Sequence[Array], before: Sequence[Array], relative: Sequence[float], learnt: float
) -> Array:
    """Σ_i rate_i ‖A_i‖²‖B_i‖² ≥ the sharpness of the rescaled Gauss–Newton matrix for Σ = I, plus
    B (Π_l rate_l)^{1/B} ‖W‖^{2−2/B}, that of a balanced minimum ‖W‖ = `learnt`; (n, 1, 1)."""
    depth = len(relative)
    sizes = [[np.linalg.norm(m, 2, (-2, -1), keepdims=True) for m in ms] for ms in (after, before)]
    terms = [rate * (a * b) ** 2 for a, b, rate in zip(*sizes, relative, strict=True)]
    balanced = depth * np.prod(relative) ** (1 / depth) * learnt ** (2 - 2 / depth)
    return np.asarray(np.sum(terms, axis=0) + balanced)


# What is correlated


def norms2(weights: ArrayLike) -> dict[str, Array]:
    """The squared spectral, Frobenius and nuclear norm of each matrix of a stack (n, a, b)."""
    sigma = np.linalg.svd(np.asarray(weights, dtype=float), compute_uv=False)
    sizes = sigma[:, 0] ** 2, np.sum(sigma**2, axis=1), np.sum(sigma, axis=1) ** 2
    return dict(zip(NORMS, sizes, strict=True))


def alignments(first: Array, second: Array) -> dict[str, Array]:
    """The absolute alignments of W₁ and W₂ᵀ in a stack, from W₂W₁ (n, D, D): its largest singular
    value, its trace in absolute value, the sum of its singular values."""
    product = second @ first
    sigma = np.linalg.svd(product, compute_uv=False)
    sizes = sigma[:, 0], np.abs(np.trace(product, axis1=1, axis2=2)), np.sum(sigma, axis=1)
    return dict(zip(NORMS, sizes, strict=True))


def correlation(x: ArrayLike, y: ArrayLike) -> float:
    """Pearson's correlation coefficient of two samples (n,)."""
    return float(np.corrcoef(np.asarray(x), np.asarray(y))[0, 1])


def _follows(top: ArrayLike, layers: Layers, norm: str) -> list[list[float]]:
    """The correlation of `top` with a squared norm of each single matrix, and of each product that
    leaves one matrix out."""
    left_out = [
        reduce(lambda product, layer: layer @ product, [*layers[:i], *layers[i + 1 :]])
        for i in range(len(layers))
    ]
    return [[correlation(top, norms2(m)[norm]) for m in group] for group in (layers, left_out)]


def norms(
    schemes: Sequence[str],
    sizes: Sequence[int],
    seeds: Sequence[int],
    networks: int,
    steps: int,
    samples: int | None,
    times: Sequence[str],
) -> dict[str, Any]:
    """Figures 4, 14, 15 and 26: width 100, D = K inputs and outputs, `samples` normal inputs drawn
    anew for every seed (exactly white inputs if None). By "scheme D", for each seed the
    correlations of sharpness and trace with norms and alignments, at the "start" and at the "end"
    of training, as far as asked for in `times`, and the largest residual at the end."""
    cases = [(scheme, size, seed) for scheme in schemes for size in sizes for seed in seeds]
    found: dict[str, Any] = {f"{scheme} {size}": [] for scheme, size, _ in cases}
    for scheme, size, seed in progress(cases):
        rng, widths = np.random.default_rng([6, 3, size, seed]), (size, 100, size)
        target = rng.standard_normal((size, size)) / np.sqrt(size)
        sigma, cross = np.eye(size), target
        if samples is not None:
            x = rng.standard_normal((size, samples))
            y = target @ x + 0.1 * rng.standard_normal((size, samples))
            sigma, cross = x @ x.T / samples, y @ x.T / samples
        begin = list(reduced(*start(scheme, widths, networks, rng)))
        end = descend(begin, sigma, cross, rates(scheme, widths), steps)
        row: dict[str, Any] = {
            time: _norm_row(begin if time == "start" else end, sigma, cross, time) for time in times
        }
        row["residual"] = float(np.linalg.norm(end[1] @ end[0] @ sigma - cross, axis=(1, 2)).max())
        found[f"{scheme} {size}"].append(row)
    return found


def _norm_row(layers: Layers, sigma: Array, cross: Array, time: str) -> dict[str, Any]:
    """For each matrix and the alignment, the correlations of sharpness and of trace with the three
    norms; the sharpness by the law at the end of training, and exact at the start."""
    rng, chains = np.random.default_rng(0), zip(*layers, strict=True)
    top = sharpness_law(layers, sigma)
    if time == "start":
        operators = (LinearChain(pair, sigma, cross).operator() for pair in chains)
        top = np.array([top_eigenvalues(H, 1, rng).values[0] for H in operators])
    first, second = layers
    trace = np.trace(sigma) * np.sum(second**2, axis=(1, 2))  # + K tr(W₁ΣW₁ᵀ)
    trace += len(sigma) * np.sum((first @ sigma) * first, axis=(1, 2))
    facts = {"W1": norms2(first), "W2": norms2(second), "alignment": alignments(first, second)}
    return {
        what: [[correlation(measure, sizes[kind]) for kind in NORMS] for measure in (top, trace)]
        for what, sizes in facts.items()
    }


def products(
    depths: dict[str, Sequence[int]], seeds: Sequence[int], networks: int
) -> dict[str, Any]:
    """Figures 17 to 20: deep linear networks of width 30. By "scheme depth D", for each seed the
    correlations of the sharpness with the squared spectral norms of the single matrices and of the
    products that leave one out."""
    cases = [(s, b, int(d)) for s in SCHEMES for d, depth in depths.items() for b in depth]
    found: dict[str, Any] = {}
    for scheme, depth, size in progress(cases):
        widths, rows = (size, *[30] * (depth - 1), size), []
        for seed in seeds:
            rng = np.random.default_rng([6, 3, depth, size, seed])
            target = rng.standard_normal((size, size)) / np.sqrt(size) if size > 1 else np.eye(1)
            layers = start(scheme, widths, networks, rng)
            steps = 300 if size == 1 else 500
            layers = descend(layers, np.eye(size), target, rates(scheme, widths), steps)
            rows.append(_follows(sharpness_law(layers, np.eye(size)), layers, "spectral"))
        found[f"{scheme} {depth} {size}"] = rows
    return found


def relu_norms(seeds: Sequence[int], networks: int, rays: Sequence[int]) -> dict[str, Any]:
    """Figures 16, 21 and 22. By "scheme", for each seed the correlations of the sharpness with the
    three norms of both matrices (three inputs, width 20); by "scheme depth" those with Frobenius
    norms of single matrices and of products, for one input: the two rays x > 0 and x < 0."""
    found: dict[str, Any] = {}
    for scheme in progress(SCHEMES):
        found[scheme] = [_relu_row(scheme, networks, seed) for seed in seeds]
        for depth in rays:
            rows = [_ray_row(scheme, depth, networks, seed) for seed in seeds]
            found[f"{scheme} {depth}"] = rows
    return found


def _relu_row(scheme: str, networks: int, seed: int) -> list[list[float]]:
    rng, size, samples = np.random.default_rng([6, 3, seed]), 3, 64
    x = rng.standard_normal((size, samples))
    teacher = rng.standard_normal((size, size)) / np.sqrt(size)
    y = np.maximum(teacher @ x, 0) + 0.1 * rng.standard_normal((size, samples))
    widths, masses = (size, 20, size), np.full(samples, 1 / samples)
    layers = start(scheme, widths, networks, rng)
    layers = relu_descend(layers, x, y, masses, rates(scheme, widths), 400)
    top = [relu_eigenvalues(x, y, pair)[-1] for pair in zip(*layers, strict=True)]
    return [[correlation(top, value) for value in norms2(w).values()] for w in layers]


def _ray_row(scheme: str, depth: int, networks: int, seed: int) -> list[list[float]]:
    rng, widths = np.random.default_rng([6, 3, depth, seed]), (1, *[30] * (depth - 1), 1)
    x, y, masses = np.array([[1.0, -1.0]]), np.array([[1.0, 0.0]]), np.array([0.5, 0.5])
    layers = start(scheme, widths, networks, rng)
    layers = relu_descend(layers, x, y, masses, rates(scheme, widths), 1500)
    return _follows(relu_sharpness_law(layers, x, masses), layers, "Frobenius")


def relu_eigenvalues(x: Array, y: Array, weights: Sequence[ArrayLike]) -> Array:
    """All eigenvalues of 1/(2N) Σ_n ‖W_B(⋯(W₁x_n)₊⋯)₊ − y_n‖², ascending, by the oracle."""
    dense = dense_hessian(relu_network_loss(x, y), tensors(weights))
    return np.asarray(np.linalg.eigvalsh((dense + dense.T) / 2))


def relu_sharpness_law(weights: Sequence[Array], x: Array, masses: Array) -> Array:
    """The largest Gauss–Newton eigenvalue of a stack of ReLU networks with one output, without
    bias: that of the N×N kernel with entries √(μ_nμ_n') ⟨∇f(x_n), ∇f(x_n')⟩. Shape (n,)."""
    error = np.ones((len(weights[0]), 1, x.shape[1]))
    kernel = np.zeros((len(weights[0]), x.shape[1], x.shape[1]))
    for layer, state in zip(weights[::-1], _relu_states(weights, x)[::-1], strict=True):
        kernel += (error.mT @ error) * (state.mT @ state)
        error = (layer.mT @ error) * (state > 0)
    roots = np.sqrt(masses)
    return np.asarray(np.linalg.eigvalsh(roots[:, None] * kernel * roots)[:, -1])


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


def normalised_data(
    inputs: int, samples: int, decorrelated: bool, rng: np.random.Generator
) -> tuple[Array, Array]:
    """Random features (D, N) and one target (1, N), all with mean 0 and variance 1 over the N
    samples; `decorrelated` makes all their correlations vanish: Σxx = I and Σyx = 0."""
    rows = rng.standard_normal((inputs + 1, samples))
    rows -= rows.mean(axis=1, keepdims=True)
    if decorrelated:
        rows = np.sqrt(samples) * np.linalg.qr(rows.T)[0].T
    else:
        rows /= rows.std(axis=1, keepdims=True)
    return rows[:-1], rows[-1:]


def pairs(inputs: Sequence[int], seeds: Sequence[int], models: int, draws: int) -> dict[str, Any]:
    """Figures 3 and 10 to 13, width 10. By "kind depth weights data D", for each seed the medians
    over the models of the best and second-best distance from tr/D, over the mean eigenvalue, and
    the mean share of random targets that are met better."""
    kinds = [("linear", 2, True), ("linear", 2, False)]
    kinds += [("linear", 4, False), ("relu", 2, False), ("relu", 4, False)]
    cases = [(*kind, w, size) for kind in kinds for w in ("orthonormal", "SP")
             for size in (inputs if kind[:2] == ("linear", 2) else [2, 5])]  # fmt: skip
    found: dict[str, Any] = {}
    for kind, depth, decorrelated, weights, size in progress(cases):
        data = "decorrelated" if decorrelated else "standardised"
        found[f"{kind} {depth} {weights} {data} {size}"] = rows = []
        for seed in seeds:
            rng = np.random.default_rng([6, 3, size, seed])
            hunts = []
            for _ in range(models):
                x, y = normalised_data(size, 102, decorrelated, rng)
                stacks = start(weights, (size, *[10] * (depth - 1), 1), 1, rng)
                values = _eigenvalues(kind, x, y, [layer[0] for layer in stacks])
                hunts.append(_hunt(values, size, draws, rng))
            best, second, share = np.array(hunts).T
            rows.append([float(np.median(best)), float(np.median(second)), float(share.mean())])
    return found


def _eigenvalues(kind: str, x: Array, y: Array, weights: Layers) -> Array:
    if kind == "relu":
        return relu_eigenvalues(x, y, weights)
    chain = LinearChain.from_data(x, y, weights)
    if chain.depth == 2:
        return spectrum_one_output(chain).expand()
    return np.asarray(np.linalg.eigvalsh(chain.hessian()))


def _hunt(values: Array, size: int, draws: int, rng: np.random.Generator) -> list[float]:
    """The best and second-best distance of a pair from tr/D, over the mean eigenvalue, and the
    share of random targets, uniform between ½ and 1½ of tr/D, that some pair meets better: near 0
    if tr/D is special, ½ on average if it is not."""
    sums, target = pair_sums(values), values.sum() / size
    best, second = np.sort(np.abs(sums - target))[:2]
    others = distances(sums, target * rng.uniform(0.5, 1.5, draws))
    return [best / values.mean(), second / values.mean(), float(np.mean(others < best))]


# Attention at the edge of stability


class Reversal(NamedTuple):
    """Gradient descent of appendix D.2 on many two-token sequences at once, T + 1 states.

    All arrays are (T + 1, B): `value` w_V, `product` c = ⟨w_Q, w_K⟩, `norm` N = |w_Q|² + |w_K|²,
    `loss`, `trace` of the Hessian and `sharpness`, its largest eigenvalue.
    """

    value: Array
    product: Array
    norm: Array
    loss: Array
    trace: Array
    sharpness: Array


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
    lanczos = spectral_density(operator, np.random.default_rng(0), steps=products, probes=1)
    return float(lanczos.nodes.min()), float(lanczos.nodes.max())


def observe(
    net: tf.Transformer, state: Any, data: tuple[Any, Any], products: int = 20
) -> list[float]:
    """Loss, mean residual ‖p − e_y‖ of a token, and the largest eigenvalue of H, of G, and of H
    with the tangent in place of softmax (that of H if there is no softmax)."""
    hessian, gauss_newton = net.curvature(state, *data)
    high = straight = ends(hessian, products)[1]
    if net.mixer == "softmax":
        straight = ends(net.curvature(state, *data, tangent=True)[0], products)[1]
    misses = softmax(net.logits(state, data[0]).numpy(), -1) - np.eye(len(tf.ALPHABET))[data[1]]
    residual = float(np.linalg.norm(misses, axis=-1).mean())
    return [
        net.loss(state, *data).item(),
        residual,
        high,
        ends(gauss_newton, products)[1],
        straight,
    ]


def force_sink(
    net: tf.Transformer, state: Any, data: tuple[Any, Any], sink: float, massive: float
) -> list[float]:
    """Attention on the first token, loss, least and largest eigenvalue with a forced sink."""
    hessian, _ = net.curvature(state, *data, sink, massive)
    loss = net.loss(state, *data, sink=sink, massive=massive).item()
    share = net.attention_on_first(state, data[0], sink, massive)
    return [share, loss, *ends(hessian, 32)]


def train_one(
    mixer: str,
    seed: int,
    checkpoints: Sequence[int],
    text: str = tf.PRIMER,
    rate: float = 3e-3,
    **sizes: int,
) -> tuple[tf.Transformer, list[Any], tuple[Any, Any]]:
    """A network, its states at the checkpoints, and the eight windows it is measured on."""
    net, rng, codes = tf.Transformer(mixer, **sizes), np.random.default_rng(seed), tf.encode(text)
    begin = net.start(rng)
    data = net.windows(codes, 8, rng)
    return net, net.train(begin, codes, checkpoints, rng, rate=rate), data


def transformers(
    seeds: Sequence[int],
    checkpoints: Sequence[int],
    biases: Sequence[float],
    massive: float,
    **training: Any,
) -> dict[str, Any]:
    """The study of section 4.3 on small networks. By mixer, for each seed `observe` at each
    checkpoint; as "sink" and "massive sink", for each seed a row of `force_sink` at each bias.
    What else is given goes to `train_one`."""
    found: dict[str, Any] = {mixer: [] for mixer in (*tf.MIXERS, "sink", "massive sink")}
    for mixer, seed in progress([(mixer, seed) for mixer in tf.MIXERS for seed in seeds]):
        net, states, data = train_one(mixer, seed, checkpoints, **training)
        found[mixer].append([observe(net, state, data) for state in states])
        if mixer == "softmax":
            for name, size in (("sink", 1.0), ("massive sink", massive)):
                rows = [force_sink(net, states[-1], data, bias, size) for bias in biases]
                found[name].append(rows)
    return found


_EIGHT = {"seeds": list(range(8))}
_NORMS = _EIGHT | {
    "schemes": list(SCHEMES),
    "networks": 60,
    "samples": 1024,
    "times": ["start", "end"],
}
_END = {"times": ["end"]}
STUDIES: dict[str, tuple[Any, dict[str, Any]]] = {
    "norms": (norms, _NORMS | {"sizes": [1, 3, 10], "steps": 200}),
    "wide_norms": (norms, _NORMS | {"sizes": [40], "steps": 400}),
    "widest_norms": (norms, _NORMS | _END | {"sizes": [100], "steps": 800, "networks": 20}),
    "white_norms": (norms, _NORMS | _END | {"sizes": [10, 40], "steps": 400, "samples": None}),
    "products": (
        products,
        _EIGHT | {"depths": {"1": [2, 3, 4, 6], "10": [2, 3, 4]}, "networks": 40},
    ),
    "relu_norms": (relu_norms, _EIGHT | {"networks": 40, "rays": [2, 3, 4]}),
    "pairs": (pairs, _EIGHT | {"inputs": [2, 4, 6, 8, 10], "models": 8, "draws": 100}),
    "transformers": (
        transformers,
        _EIGHT
        | {"checkpoints": [0, 30, 60, 100, 200, 400, 600], "biases": [0.0, 2.0, 4.0, 8.0]}
        | {"massive": 5.0},
    ),
}
"""By name, what a page asks for with `kept`: a study and its settings."""


# Pictures of one page


def phase_plane(
    point: tuple[float, float],
    grid: ArrayLike,
    names: ArrayLike,
    shades: Mapping[str, str],
    predicted: Spectrum,
    colours: Mapping[str, str],
    limits: tuple[float, float],
) -> Figure:
    """A point in a plane of named regions, and the spectrum there: on the left the regions `names`
    (n, n), names[i, j] at height grid[i] and place grid[j], shaded by `shades`, with the `point`;
    on the right a bar for each eigenvalue of `predicted`, as long as its multiplicity and coloured
    by its label.
    """
    places, regions = np.asarray(grid, dtype=float), np.asarray(names)
    with figures.house_style():
        figure, (left, right) = plt.subplots(1, 2, figsize=(6.6, 3.4), width_ratios=[1.1, 1])
        picture = np.ones((*regions.shape, 4))
        for name, shade in shades.items():
            picture[regions == name] = to_rgba(shade, alpha=0.35)
            left.fill_between([], [], color=shade, alpha=0.35, label=name)
        edges = (places[0], places[-1])
        left.imshow(picture, origin="lower", extent=(*edges, *edges), aspect="auto")
        left.grid(visible=False)
        left.plot(*point, "o", color="black", markersize=7)
        left.set_xlabel("$a$, first layer")
        left.set_ylabel("$b$, second layer")
        left.legend(loc="lower left", fontsize=8)
        for label, colour in colours.items():
            mine = np.array([own == label for own in predicted.labels])
            right.barh(
                predicted.values[mine],
                predicted.multiplicities[mine],
                height=(limits[1] - limits[0]) / 50,
                color=colour,
                label=label,
            )
        right.axvline(0, color="black", linewidth=0.8)
        right.axhline(0, color="black", linewidth=0.8)
        right.set_ylim(limits)
        right.set_xlim(0, predicted.size / 2)
        right.set_xlabel("number of eigenvalues")
        right.set_ylabel("eigenvalue of $H$")
        right.legend(loc="upper right", fontsize=8)
    plt.close(figure)
    return figure
