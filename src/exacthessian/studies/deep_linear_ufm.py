"""Experiments of the chapter on the deep linear UFM: points, runs, and what they measure."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike

from exacthessian import figures
from exacthessian.chain import LinearChain
from exacthessian.inputs import Array
from exacthessian.live import progress
from exacthessian.papers.deep_linear_ufm import equation_6
from exacthessian.ufm import DeepLinearUFM, Layer, Point, minimise, threshold
from exacthessian.ufm_cross_entropy import Collapse


def at_share(classes: int, samples: int, depth: int, width: int, share: float) -> DeepLinearUFM:
    """The model with λ a given share of the threshold (17).

    >>> at_share(2, 4, 1, 2, share=0.5).ridge
    (0.125, 0.125)
    """
    ridge = share * threshold(classes, samples, depth)
    return DeepLinearUFM(classes, samples, depth, width, ridge)


def optima() -> list[tuple[DeepLinearUFM, LinearChain]]:
    """Models with an optimum each: five built in random bases, one of them close to the threshold,
    and two trained from random starts.

    >>> [round(abs(chain.loss() - ufm.loss()), 12) for ufm, chain in optima()]
    [0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]
    """
    rng = np.random.default_rng(0)
    sizes = [(2, 3, 2, 2, 0.3), (3, 4, 3, 5, 0.05), (4, 1, 2, 5, 0.99), (2, 2, 4, 4, 0.6)]
    models = [at_share(*size) for size in [*sizes, (3, 2, 3, 3, 0.1)]]
    built = [(ufm, ufm.optimum(rng).to_chain()) for ufm in models]
    return built + [(ufm, minimise(ufm.random_point(rng))) for ufm in (models[1], models[4])]


def nonnegative_frame(width: int, classes: int, rng: np.random.Generator) -> Array:
    """A random d×K matrix with orthonormal columns and no negative entry. Its columns have
    disjoint supports, so at least (K−1)d of its Kd entries are zero; here exactly as many.

    >>> frame = nonnegative_frame(5, 2, np.random.default_rng(0))
    >>> bool(np.allclose(frame.T @ frame, np.eye(2))), int(np.sum(frame == 0))
    (True, 5)
    """
    extra = rng.integers(0, classes, width - classes)
    owner = rng.permutation(np.concatenate([np.arange(classes), extra]))
    frame = np.zeros((width, classes))
    frame[np.arange(width), owner] = rng.uniform(0.5, 1.5, width)
    return frame / np.linalg.norm(frame, axis=0)


def nonnegative_optimum(ufm: DeepLinearUFM, rng: np.random.Generator) -> Point:
    """A random optimum whose H_2..H_L have no negative entry, so that ReLUs do not act there
    (Definition 2): non-negative frames P_1..P_{L−1}, and P_0 with any signs.

    >>> ufm = DeepLinearUFM(classes=3, samples=2, depth=3, width=5, ridge=1e-3)
    >>> point = nonnegative_optimum(ufm, np.random.default_rng(0))
    >>> abs(point.loss() - ufm.loss()) < 1e-14, bool(np.all(point.features(3) >= 0))
    (True, True)
    """
    # A first frame with disjoint supports and any signs, so that the zeros of H_2 are exact.
    signs = rng.choice([-1.0, 1.0], (ufm.width, 1))
    first, *above = (nonnegative_frame(ufm.width, ufm.classes, rng) for _ in range(ufm.depth))
    frames = [ufm.labels.T / np.sqrt(ufm.samples), signs * first, *above, np.eye(ufm.classes)]
    pairs = zip(ufm.scales, pairwise(frames), strict=True)
    weights = (scale * upper @ lower.T for scale, (lower, upper) in pairs)
    return Point(tuple(weights), ufm.ridge, relu=True)


def bent(point: Point, overlap: ArrayLike) -> Point:
    """A collapsed point of the ReLU model moved to H̄_2 = r Q Φ without a change of loss,
    Φ = `overlap` (K, K): positive semidefinite, ones on the diagonal, nothing positive off it. The
    two factors are W_1 = t_1 Q √Φ Pᵀ and H_1 = t_0 P √Φ Y/√n.

    >>> point = Point([np.eye(2), np.eye(2), np.eye(2)], ridge=0.02, relu=True)
    >>> bent(point, [[1, -0.5], [-0.5, 1]]).features(2)
    array([[ 1. , -0.5],
           [-0.5,  1. ]])
    """
    values, vectors = np.linalg.eigh(np.asarray(overlap, dtype=float))
    root = (vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T
    features, first, *rest = point.weights
    samples = features.shape[1] // len(root)
    means = features[:, ::samples]
    size = np.linalg.norm(means[:, 0])
    moved = np.repeat(means @ root, samples, axis=1)
    return replace(point, weights=(moved, first @ means @ root @ means.T / size**2, *rest))


def polytope(point: Collapse) -> Point:
    """A point of lower rank at the n, L, d, λ and α of `point`: Z = α G ⊗ 1_nᵀ with the Gram
    matrix G of the first K corners e_1, −e_1, e_2, −e_2, … of a cross-polytope, rank ⌈K/2⌉, as
    balanced factors, whose singular values are the (L+1)-th roots of those of Z.

    >>> point = Collapse(4, 2, 3, 5, alpha=3.0)
    >>> polytope(point).loss() < point.loss()
    True
    """
    rank = (point.classes + 1) // 2
    corners = np.repeat(np.eye(rank), 2, axis=0)[: point.classes]
    corners[1::2] *= -1
    logits = point.alpha * np.kron(corners @ corners.T, np.ones(point.samples))
    left, values, right = np.linalg.svd(logits, full_matrices=False)
    root = np.diag(values[:rank] ** (1 / (point.depth + 1)))
    axes = np.eye(point.width)[:, :rank]
    weights = (axes @ root @ right[:rank], *[axes @ root @ axes.T] * (point.depth - 1))
    return Point((*weights, left[:, :rank] @ root @ axes.T), point.ridge, cross_entropy=True)


def relu_start(ufm: DeepLinearUFM, seed: int) -> Point:
    """A start for training with ReLU: entries N(0, 1/d), those of `DeepLinearUFM.random_point`.

    >>> [weight.shape for weight in relu_start(DeepLinearUFM(2, 3, 2, 4, 0.01), seed=0).weights]
    [(4, 6), (4, 4), (2, 4)]
    """
    return Point(ufm.random_point(np.random.default_rng(seed)).weights, ufm.ridge, relu=True)


def train(
    start: Point, stages: Iterable[tuple[int, float, float]], keep: Sequence[int]
) -> dict[int, Point]:
    """Nesterov's descent, v ← mv + ∇ and θ ← θ − η(∇ + mv), in stages of (steps, rate η, momentum
    m); the points at the steps in `keep`, counted over all stages.

    >>> start = relu_start(DeepLinearUFM(2, 1, 2, 2, 0.02), seed=0)
    >>> path = train(start, [(10, 0.1, 0.5), (190, 0.3, 0.5)], keep=[0, 15, 200])
    >>> list(path), path[200].loss() < path[0].loss()
    ([0, 15, 200], True)
    """
    plan = [(rate, momentum) for steps, rate, momentum in stages for _ in range(steps)]
    point, speed, kept = start, np.zeros(start.parameters().size), {0: start}
    for done, (rate, momentum) in enumerate(progress(plan, "steps"), start=1):
        slope = point.gradient()
        speed = momentum * speed + slope
        move = rate * (slope + momentum * speed)
        point = point.with_parameters(point.parameters() - move)
        if done in keep:
            kept[done] = point
    return {step: kept[step] for step in keep}


def alignment(layer: Layer[Any]) -> Array:
    """f_cc' of appendix G.1, (K, K): cos² between μ_c^{l+1} ⊗ μ_c'^l and its image under Hess_l;
    1 exactly for an eigenvector, 0 where the image is zero.

    >>> ufm = DeepLinearUFM(classes=3, samples=2, depth=3, width=5, ridge=1e-3)
    >>> layer = ufm.layers(nonnegative_optimum(ufm, np.random.default_rng(0)))[1]
    >>> bool(np.allclose(alignment(layer), 1))
    True
    """
    A, h, weight = layer.slopes, layer.inputs, layer.inputs.T @ layer.here / layer.inputs.shape[1]
    pulled = np.einsum("ska,skb,bc->sca", A, A, layer.above, optimize=True)
    images = np.einsum("sca,se,bs->ceab", pulled, weight, h, optimize=True)
    return _cosines(images.reshape(*images.shape[:2], -1), _pairs(layer)) ** 2


def gradient_shares(layer: Layer[Any]) -> Array:
    """f̃_cc' of appendix G.1, (K, K): cos² between the data gradient of layer l and
    μ_c^{l+1} ⊗ μ_c'^l; by Theorem 3 it is 1/K for c = c' and 0 otherwise.

    >>> ufm = DeepLinearUFM(classes=2, samples=2, depth=3, width=5, ridge=1e-3)
    >>> layer = ufm.layers(nonnegative_optimum(ufm, np.random.default_rng(0)))[1]
    >>> bool(np.allclose(gradient_shares(layer), np.eye(2) / 2))
    True
    """
    return _cosines(_pairs(layer), equation_6(layer)) ** 2


def singular_alignment(layer: Layer[Any]) -> tuple[Array, Array]:
    """Figure 16: cosines between μ_c^{l+1} and W Wᵀ μ_c^{l+1}, and between μ_c^l and Wᵀ W μ_c^l;
    each (K,), and 1 exactly for singular vectors.

    >>> ufm = DeepLinearUFM(classes=2, samples=2, depth=3, width=5, ridge=1e-3)
    >>> layer = ufm.layers(nonnegative_optimum(ufm, np.random.default_rng(0)))[1]
    >>> bool(np.allclose(singular_alignment(layer), 1))
    True
    """
    W, left, right = layer.weight, layer.above.T, layer.here.T
    return _cosines(left, left @ W @ W.T), _cosines(right, right @ W.T @ W)


def frame_distance(means: Array) -> float:
    """M_l of appendix G.1: the Frobenius distance of H̄ᵀH̄/‖H̄ᵀH̄‖ from I/√K, for `means` (d, K).

    >>> frame_distance(np.array([[2.0, 0.0], [0.0, 2.0]]))
    0.0
    """
    gram = means.T @ means
    identity = np.eye(len(gram)) / np.sqrt(len(gram))
    return float(np.linalg.norm(gram / np.linalg.norm(gram) - identity))


def family_distance(means: Array) -> float:
    """How far `means` (d, K) are from the set r Q Φ of equal loss at layer 2, relative to their
    norm: with r Q = σ(means), the largest of: σ(means) not an orthogonal frame; means outside its
    span; Φ not symmetric; Φ not positive semidefinite.

    >>> family_distance(np.array([[1.0, -0.5], [-0.5, 1.0]]))
    0.0
    >>> round(family_distance(np.array([[1.0, 0.0], [-0.5, 1.0]])), 3)
    0.243
    """
    positive = np.maximum(means, 0.0)
    overlap = (positive / np.linalg.norm(positive, axis=0) ** 2).T @ means
    outside = np.linalg.norm(means - positive @ overlap) / np.linalg.norm(means)
    lopsided = np.linalg.norm(overlap - overlap.T) / np.linalg.norm(overlap + overlap.T)
    negative = max(0.0, -np.linalg.eigvalsh(overlap + overlap.T)[0] / 2)
    return max(frame_distance(positive), float(outside), float(lopsided), float(negative))


def class_member(
    ufm: DeepLinearUFM, tilts: Sequence[float], norms: Sequence[float], rng: np.random.Generator
) -> Point:
    """A random member of the class of Theorem 8, with negative entries: H̄_l is a multiple of
    cos θ_l Q_l − sin θ_l Q'_l (l = 2..L), with Q_l and Q'_l non-negative frames whose supports do
    not meet (d ≥ 2K), and H_1, W_1..W_L have the Frobenius norms `norms` (L+1). Both H̄_l and its
    ReLU are orthogonal frames; the second is cos θ_l times as long.

    >>> ufm = DeepLinearUFM(classes=2, samples=1, depth=2, width=4, ridge=0.02)
    >>> model = class_member(ufm, [0.5], [1.0, 1.0, 1.0], np.random.default_rng(0))
    >>> round(frame_distance(model.features(2)), 12), bool(np.any(model.features(2) < 0))
    (0.0, True)
    """
    d, K, n = ufm.width, ufm.classes, ufm.samples
    outputs, inputs = [], [np.linalg.qr(rng.standard_normal((d, K)))[0]]
    for angle in tilts:
        both = nonnegative_frame(d, 2 * K, rng)
        outputs.append(np.cos(angle) * both[:, :K] - np.sin(angle) * both[:, K:])
        inputs.append(both[:, :K])
    factors = zip(norms[1:], [*outputs, np.eye(K)], inputs, strict=True)
    weights = [size / np.sqrt(K) * above @ below.T for size, above, below in factors]
    features = norms[0] * np.repeat(inputs[0], n, axis=1) / np.sqrt(K * n)
    return Point((features, *weights), ufm.ridge, relu=True)


def cross_entropy_run(point: Collapse, seed: int, ridge: float | None = None) -> Point:
    """A minimum of the cross-entropy loss from entries N(0, 1/d), at the sizes of `point`, and with
    its λ unless another `ridge` is given.

    >>> end = cross_entropy_run(Collapse(2, 1, 1, 2, alpha=np.log(3)), seed=0)
    >>> bool(abs(end.loss() - Collapse(2, 1, 1, 2, alpha=np.log(3)).loss()) < 1e-9)
    True
    """
    rng = np.random.default_rng(seed)
    start = replace(point.point(rng), ridge=point.ridge if ridge is None else ridge)
    theta = rng.standard_normal(start.parameters().size) / np.sqrt(point.width)
    return cast(Point, minimise(start.with_parameters(theta)))


def scales(point: Point) -> Array:
    """The K singular values of Z, divided by √n: the sizes of its logits, 0 for what is not used.

    >>> scales(Point([[[2.0, 2.0]], [[1.0], [0.0]]], cross_entropy=True)).round(12)
    array([2.82842712, 0.        ])
    """
    sizes = np.linalg.svd(point.outputs, compute_uv=False)
    return sizes / np.sqrt(point.outputs.shape[1] // len(point.outputs))


def _pairs(layer: Layer[Any]) -> Array:
    """The vectors μ_c^{l+1} ⊗ μ_c'^l, (K, K, size of W_l)."""
    pairs = np.einsum("ac,be->ceab", layer.above, layer.here)
    return pairs.reshape(layer.classes, layer.classes, -1)


def _cosines(v: Array, w: Array) -> Array:
    """Of the angles between vectors along the last axis, 0 where one of them vanishes."""
    lengths = np.linalg.norm(v, axis=-1) * np.linalg.norm(w, axis=-1)
    inner = (v * w).sum(axis=-1)
    return np.divide(inner, lengths, out=np.zeros_like(inner), where=lengths > 0)


# Pictures of one chapter


def spikes(
    title: str,
    values: ArrayLike,
    outliers: int,
    theory: float | None = None,
    right: float | None = None,
) -> figures.Plot:
    """A spectrum as outliers and bulk: the `outliers` largest of all `values` are spikes, the rest
    a histogram on the range from 0 to `right` (None: to the largest); `theory` is where the spikes
    should be, None for nowhere in particular. A spike is as high as the number of outliers in its
    sixtieth of the range; counts are on a logarithmic scale.

    >>> [part.tolist() for part in spikes("", [3.0, 3.0, 1.0], outliers=2).dots["outliers"]]
    [[3.0], [2]]
    """
    ordered = np.sort(np.asarray(values, dtype=float))[::-1]
    top, bulk = ordered[:outliers], ordered[outliers:]
    end = 1.08 * (ordered[0] if right is None else right)
    found, edges = np.histogram(np.clip(bulk, 0, end), np.linspace(0, end, 61))
    # Bins centred on the theory, so that no edge parts eigenvalues that meet there.
    nearest = np.rint((top - (theory or 0.0)) / edges[1])
    places, counts = np.unique(nearest, return_counts=True)
    centres = np.array([top[nearest == place].mean() for place in places])
    full = found > 0
    bars = np.repeat((edges[1:] + edges[:-1])[full] / 2, 3), figures.strokes(0.5, found[full])
    needles = np.repeat(centres, 3), figures.strokes(0.5, counts)
    return figures.Plot(
        *(title, "eigenvalue", "count", {"bulk": bars, "outliers": needles}),
        dots={"outliers": (centres, counts)},
        marks={} if theory is None else {"": theory},
        colours={"bulk": figures.ORANGE, "outliers": figures.PURPLE},
        limits=(0.5, 3.0 * max(len(ordered), 2)),
        span=(-0.02 * end, end),
        log="y",
        width=2.4,
        size=6,
    )
