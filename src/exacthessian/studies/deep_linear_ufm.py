"""Experiments of the chapter on the deep linear UFM: starts, runs, and what they measure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Self

import numpy as np
from scipy.special import log_softmax

from exacthessian.chain import LinearChain
from exacthessian.descent import descend
from exacthessian.inputs import Array
from exacthessian.ufm import (
    DeepLinearUFM,
    Layer,
    Point,
    ReluUFM,
    minimise,
    nonnegative_frame,
    threshold,
)
from exacthessian.ufm_cross_entropy import Collapse, CrossEntropyUFM


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


@dataclass(frozen=True, eq=False)
class Nesterov:
    """A point that descends with momentum m: v ← mv + ∇, θ ← θ − η(∇ + mv).

    >>> path = descend(Nesterov(relu_start(DeepLinearUFM(2, 1, 2, 2, 0.02), seed=0), 0.5), 0.3, 200)
    >>> bool(path.losses[-1] < path.losses[0])
    True
    """

    point: Point
    momentum: float
    speed: Array | None = None

    def loss(self) -> float:
        """The loss of the point."""
        return self.point.loss()

    def step(self, eta: float) -> Self:
        """One step of Nesterov's descent."""
        slope = self.point.gradient()
        speed = slope if self.speed is None else self.momentum * self.speed + slope
        move = eta * (slope + self.momentum * speed)
        return replace(
            self, point=self.point.with_parameters(self.point.parameters() - move), speed=speed
        )


def relu_start(ufm: DeepLinearUFM, seed: int) -> ReluUFM:
    """Entries N(0, 1/d), weights first and features last.

    >>> [weight.shape for weight in relu_start(DeepLinearUFM(2, 3, 2, 4, 0.01), seed=0).weights]
    [(4, 6), (4, 4), (2, 4)]
    """
    rng, root = np.random.default_rng(seed), np.sqrt(ufm.width)
    widths = [ufm.width] * ufm.depth + [ufm.classes]
    weights = [rng.standard_normal((b, a)) / root for a, b in pairwise(widths)]
    features = rng.standard_normal((ufm.width, ufm.classes * ufm.samples)) / root
    return ReluUFM((features, *weights), ufm.ridge)


def train(
    start: Point, stages: Iterable[tuple[int, float, float]], keep: Sequence[int]
) -> dict[int, Any]:
    """Nesterov's descent in stages of (steps, rate, momentum); the points at the steps in `keep`,
    counted over all stages.

    >>> start = relu_start(DeepLinearUFM(2, 1, 2, 2, 0.02), seed=0)
    >>> sorted(train(start, [(10, 0.1, 0.5), (10, 0.3, 0.9)], keep=[0, 15, 20]))
    [0, 15, 20]
    """
    state, done = Nesterov(start, 0.0), 0
    kept: dict[int, Any] = {}
    for steps, rate, momentum in stages:
        state = replace(state, momentum=momentum)
        record = sorted({step - done for step in keep if done <= step <= done + steps} | {steps})
        path = descend(state, rate, steps, record)
        kept |= {done + time: s.point for time, s in zip(path.times, path.states, strict=True)}
        state, done = path.last, done + steps
    return {step: kept[step] for step in keep}


def alignment(layer: Layer[Any]) -> Array:
    """f_cc' of appendix G.1, (K, K): cos² between μ_c^{l+1} ⊗ μ_c'^l and its image under Hess_l;
    1 exactly for an eigenvector, 0 where the image is zero.

    >>> ufm = DeepLinearUFM(classes=3, samples=2, depth=3, width=5, ridge=1e-3)
    >>> layer = ufm.layers(ufm.nonnegative_optimum(np.random.default_rng(0)))[1]
    >>> bool(np.allclose(alignment(layer), 1))
    True
    """
    above, here, slopes = layer.above, layer.here, layer.slopes
    moved = np.einsum("ska,ac->skc", slopes, above)
    weight = layer.inputs.T @ here / len(slopes)
    pulled = np.einsum("ska,skc->sca", slopes, moved)
    images = np.einsum("sca,se,bs->ceab", pulled, weight, layer.inputs, optimize=True)
    pairs = np.einsum("ac,be->ceab", above, here)
    inner = (images * pairs).sum(axis=(2, 3))
    return _ratio(inner**2, (images**2).sum(axis=(2, 3)) * (pairs**2).sum(axis=(2, 3)))


def gradient_shares(layer: Layer[Any]) -> Array:
    """f̃_cc' of appendix G.1, (K, K): cos² between the data gradient of layer l and
    μ_c^{l+1} ⊗ μ_c'^l; by Theorem 3 it is 1/K for c = c' and 0 otherwise.

    >>> ufm = DeepLinearUFM(classes=2, samples=2, depth=3, width=5, ridge=1e-3)
    >>> layer = ufm.layers(ufm.nonnegative_optimum(np.random.default_rng(0)))[1]
    >>> bool(np.allclose(gradient_shares(layer), np.eye(2) / 2))
    True
    """
    above, here, gradient = layer.above, layer.here, layer.gradient
    sizes = np.outer((above**2).sum(axis=0), (here**2).sum(axis=0)) * (gradient**2).sum()
    return _ratio((above.T @ gradient @ here) ** 2, sizes)


def singular_alignment(layer: Layer[Any]) -> tuple[Array, Array]:
    """Figure 16: cosines between μ_c^{l+1} and W Wᵀ μ_c^{l+1}, and between μ_c^l and Wᵀ W μ_c^l;
    each (K,), and 1 exactly for singular vectors.

    >>> ufm = DeepLinearUFM(classes=2, samples=2, depth=3, width=5, ridge=1e-3)
    >>> layer = ufm.layers(ufm.nonnegative_optimum(np.random.default_rng(0)))[1]
    >>> bool(np.allclose(singular_alignment(layer), 1))
    True
    """
    W = layer.weight
    images = ((layer.above, W @ (W.T @ layer.above)), (layer.here, W.T @ (W @ layer.here)))
    left, right = (
        _ratio((v * w).sum(axis=0), np.linalg.norm(v, axis=0) * np.linalg.norm(w, axis=0))
        for v, w in images
    )
    return left, right


def frame_distance(means: Array) -> float:
    """M_l of appendix G.1: the Frobenius distance of H̄ᵀH̄/‖H̄ᵀH̄‖ from I/√K, for `means` (d, K).

    >>> frame_distance(np.array([[2.0, 0.0], [0.0, 2.0]]))
    0.0
    """
    gram = means.T @ means
    identity = np.eye(len(gram)) / np.sqrt(len(gram))
    return float(np.linalg.norm(gram / np.linalg.norm(gram) - identity))


def family_distance(means: Array) -> float:
    """How far `means` (d, K) are from the set r Q M of equal loss at layer 2, relative to their
    norm: with r Q = σ(means), the largest of: σ(means) not an orthogonal frame; means outside its
    span; M not symmetric; M not positive semidefinite.

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


def negative_share(features: Array) -> float:
    """The share of entries below −10⁻⁶, as in Figure 3.

    >>> negative_share(np.array([[1.0, -1.0], [0.0, -1e-9]]))
    0.25
    """
    return float(np.mean(features < -1e-6))


def class_member(
    ufm: DeepLinearUFM, tilts: Sequence[float], norms: Sequence[float], rng: np.random.Generator
) -> ReluUFM:
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
    weights = [
        size / np.sqrt(K) * above @ below.T
        for size, above, below in zip(norms[1:], [*outputs, np.eye(K)], inputs, strict=True)
    ]
    features = norms[0] * np.repeat(inputs[0], n, axis=1) / np.sqrt(K * n)
    return ReluUFM((features, *weights), ufm.ridge)


def cross_entropy_run(point: Collapse, seed: int) -> CrossEntropyUFM:
    """A minimum of the cross-entropy loss from entries N(0, 1/d), at the sizes and λ of `point`.

    >>> end = cross_entropy_run(Collapse(2, 1, 1, 2, alpha=np.log(3)), seed=0)
    >>> bool(abs(end.loss() - Collapse(2, 1, 1, 2, alpha=np.log(3)).loss()) < 1e-9)
    True
    """
    rng = np.random.default_rng(seed)
    shapes = [weight.shape for weight in point.point(rng).weights]
    start = [rng.standard_normal(shape) / np.sqrt(point.width) for shape in shapes]
    found: CrossEntropyUFM = minimise(CrossEntropyUFM(tuple(start), point.ridge))
    return found


def scales(point: CrossEntropyUFM) -> Array:
    """The K singular values of Z, divided by √n: the sizes of its logits, 0 for what is not used.

    >>> scales(CrossEntropyUFM([[[2.0, 2.0]], [[1.0], [0.0]]])).round(12)
    array([2.82842712, 0.        ])
    """
    sizes = np.linalg.svd(point.logits, compute_uv=False)
    return sizes / np.sqrt(point.logits.shape[1] // len(point.logits))


@dataclass(frozen=True, eq=False)
class ReluCrossEntropy(ReluUFM):
    """The ReLU model with cross-entropy, to be trained; σ'(0) does not matter off the kink.

    >>> point = ReluCrossEntropy([np.zeros((1, 2)), np.ones((1, 1)), np.ones((2, 1))])
    >>> round(point.loss(), 6)
    0.693147
    """

    def loss(self) -> float:
        """The mean of −log softmax(z_ic)_c, plus ½λ‖·‖²."""
        surprise = -np.vdot(self.labels, log_softmax(self._states()[-1], axis=0))
        return float(surprise) / self.labels.shape[1] + self._decay()

    def gradient(self) -> Array:
        """The gradient (P,) by backpropagation."""
        states = self._states()
        probabilities = np.exp(log_softmax(states[-1], axis=0))
        return self._pulled_back(states, (probabilities - self.labels) / self.labels.shape[1])

    def layer_eigenvalues(self, layer: int) -> Array:
        """The non-zero eigenvalues of the Gauss–Newton matrix of W_l, descending: of the Gram
        matrix of √ρ_ic Ã_ic ⊗ h_ic/√(Kn), with the softmax curvature ρ_ic of each sample.
        """
        here = Layer(None, self, layer)
        p = np.exp(log_softmax(self._states()[-1], axis=0)).T
        roots = np.sqrt(p)[:, :, None] * (np.eye(p.shape[1]) - p[:, None, :])
        rows = np.einsum("skx,sxa,bs->skab", roots, here.slopes, here.inputs, optimize=True)
        flat = rows.reshape(-1, rows.shape[-1] * rows.shape[-2])
        return np.linalg.svd(flat, compute_uv=False) ** 2 / len(p)


def _ratio(upper: Array, lower: Array) -> Array:
    """upper/lower, and 0 where both vanish."""
    return np.divide(upper, lower, out=np.zeros_like(upper), where=lower > 0)
