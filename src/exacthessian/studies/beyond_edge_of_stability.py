"""Experiments of the chapter *Beyond the Edge of Stability*: training runs, scans, and descent in
exact integer arithmetic. What the pages show, without a promise to anyone else.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import cache, reduce
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import least_squares
from scipy.sparse.linalg import eigsh
from torch import Tensor

from exacthessian import mode
from exacthessian.aligned import AlignedChain
from exacthessian.autograd import hessian_operator, tensors
from exacthessian.autograd.oracle import Function
from exacthessian.chain import LinearChain
from exacthessian.descent import descend
from exacthessian.inputs import Array
from exacthessian.studies.depth_not_data import orthogonal

Labelled: TypeAlias = tuple[Array, NDArray[Any]]  # images (N, …) and their labels (N,)

Start: TypeAlias = tuple[Tensor, Tensor, list[Tensor]]  # inputs, targets, weights
Activation: TypeAlias = Callable[[Tensor], Tensor]

STATES = 512


def status(comes_out: bool, paper: dict[str, Any], ours: dict[str, Any]) -> tuple[str, str]:
    """What a figure is and why, given whether what its caption says comes out, and the settings in
    which the paper's experiment and ours may differ.

    >>> status(True, {"width": 1000}, {"width": 50})
    ('analogue', 'comes out; width: 50 for 1000')
    """
    changed = [f"{key}: {ours[key]} for {paper[key]}" for key in paper if ours[key] != paper[key]]
    kind = "analogue" if changed else "as stated" if comes_out else "as stated up to a limit"
    return kind, "; ".join(["comes out" if comes_out else "does not come out", *changed])


# The paper's starts, and where one balanced mode ends


def one_zero(depth: int, targets: ArrayLike, width: int, alpha: float) -> AlignedChain:
    """The start W_L = 0, other layers αI, for the target diag(σ_1..σ_r, 0..0) of size d.

    >>> one_zero(3, [10.0], width=2, alpha=0.1).singular_values[1:]
    (array([0.1, 0.1]), array([0., 0.]))
    """
    layers = [np.full(width, alpha)] * (depth - 1) + [np.zeros(width)]
    return replace(mode.minimum(depth, targets, width, alpha), singular_values=tuple(layers))


def attractor(depth: int, sigma: ArrayLike, etas: ArrayLike, keep: int, settle: int) -> Array:
    """The last `keep` values s_i (r,) of balanced gradient descent from 0.9σ_i^(1/L), after
    `settle` steps, for each η (n,): shape (n, keep, r); NaN where the descent diverges.

    >>> attractor(2, [10.0], [0.05], keep=1, settle=200).round(6)
    array([[[3.162278]]])
    """
    targets, steps = np.asarray(sigma), np.asarray(etas)[:, None]
    s = np.broadcast_to(0.9 * targets ** (1 / depth), (len(steps), len(targets)))
    states = np.empty((len(steps), keep, len(targets)))
    with np.errstate(over="ignore", invalid="ignore"):
        for time in range(-settle, keep):
            s = mode.step(s, depth, targets, steps)
            states[:, max(time, 0)] = s
    states[~np.isfinite(states).all(axis=(1, 2))] = np.nan
    return states


def lyapunov(depth: int, a: ArrayLike, steps: int = 2000) -> Array:
    """The Lyapunov exponent of a mode with target 1, the mean of log|slope| along the attractor,
    for each step a (n,): over 512 starts near the minimum, half of the `steps` to settle.

    On the cycle of period 2 it is the logarithm of the product of the slopes, by 2:

    >>> bool(abs(lyapunov(2, [1.1])[0] - np.log(0.18) / 2) < 1e-6)
    True
    """
    strengths = np.asarray(a)[:, None]
    x = np.broadcast_to(np.linspace(0.8, 1.1, STATES), (len(strengths), STATES))
    for _ in range(steps // 2):
        x = mode.step(x, depth, 1.0, strengths)
    total = np.zeros(len(strengths))
    for _ in range(steps // 2):
        total += np.log(np.abs(mode.slope(x, depth, 1.0, strengths)) + 1e-300).mean(axis=1)
        x = mode.step(x, depth, 1.0, strengths)
    return total / (steps // 2)


# The paper's bound, and directions of the Hessian


def alpha_bound(depth: int, target: float, eta: float) -> float:
    """The scale below which a start is small enough, as Lemmas 2 and 5 state it:
    (ln(2√2/(ηLσ^{2−2/L})) σ^{4/L} / (L² 2^{(2L−3)/L}))^{1/4}.

    >>> round(alpha_bound(3, 10.0, 1.05 * mode.edge(3, 10.0)), 3)
    0.773
    """
    room = np.log(np.sqrt(2) * mode.edge(depth, target) / eta)
    printed = target ** (4 / depth) / (depth**2 * 2 ** ((2 * depth - 3) / depth))
    return float((room * printed) ** 0.25)


def pair_direction(depth: int, targets: ArrayLike, i: int, j: int) -> tuple[Array, ...]:
    """The unit eigenvector of λ_ij at the balanced minimum diag(s_1..s_r): layer l carries
    s_i^{L−l} s_j^{l−1} / √λ_ij at the entry (i, j). One (r, r) matrix for each layer.

    >>> pair_direction(2, [4.0, 1.0], 1, 2)[0].round(6)
    array([[0.      , 0.894427],
           [0.      , 0.      ]])
    """
    s = np.asarray(targets) ** (1 / depth)
    weights = s[i - 1] ** np.arange(depth - 1, -1, -1) * s[j - 1] ** np.arange(depth)
    entry = np.outer(*np.eye(len(s))[[i - 1, j - 1]])
    return tuple(weight * entry for weight in weights / np.linalg.norm(weights))


def line_derivatives(
    weights: Sequence[ArrayLike], direction: Sequence[ArrayLike], target: ArrayLike
) -> tuple[float, float, float]:
    """f'', f''', f'''' at μ = 0 of μ ↦ ½‖Π_l (W_l + μD_l) − M‖², by automatic differentiation.

    For two scalar layers 1 + μ and target 1, f = ½(2μ + μ²)²:

    >>> one = [[1.0]]
    >>> line_derivatives([one, one], [one, one], one)
    (4.0, 12.0, 12.0)
    """
    layers, moves, (goal,) = tensors(weights), tensors(direction), tensors([target])
    mu = torch.zeros((), dtype=goal.dtype, requires_grad=True)
    moved = [layer + mu * move for layer, move in zip(layers, moves, strict=True)]
    value, found = (torch.linalg.multi_dot(moved[::-1]) - goal).square().sum() / 2, []
    for _ in range(4):
        (value,) = torch.autograd.grad(value, mu, create_graph=True)
        found.append(value.item())
    return found[1], found[2], found[3]


# Two modes together


def two_layer_multipliers(first: float, second: float, eta: float) -> NDArray[np.complex128]:
    """For L = 2, a = ησ_1, b = ησ_2: the two multipliers of the block {1, 2} along the 2-cycle of
    mode 1 that leave the circle, the roots of
    ν² − [(1−a−b)(2−b) + 2 + 2b − a]ν + [1 + (2−a−b)(1−2a−b)] = 0.

    At a + b = 2 they are exp(±iθ) with cos θ = 3 − 2a:

    >>> nu = two_layer_multipliers(10.0, 9.0, 2 / 19)
    >>> np.allclose([abs(nu[0]), nu[0].real], [1, 3 - 40 / 19])
    True
    """
    a, b = eta * first, eta * second
    trace = (1 - a - b) * (2 - b) + 2 + 2 * b - a
    determinant = 1 + (2 - a - b) * (1 - 2 * a - b)
    return np.roots([1.0, -trace, determinant]).astype(np.complex128)


def leaving(start: LinearChain, eta: float, kick: float, steps: int) -> Array:
    """P_12 at the steps 0..T of descent from a state whose layers are stretched by 1 ± `kick` in
    turn; NaN once it is ten times as large as at the start.

    >>> one, _ = mode.rotating_cycle(2, 10.0, 9.0, 0.107)
    >>> bool(abs(leaving(one, 0.107, kick=0.0, steps=3)[2] / one.product[0, 1] - 1) < 1e-9)
    True
    """
    weights = [w * (1 + kick * (-1) ** layer) for layer, w in enumerate(start.weights)]
    state, seen = replace(start, weights=tuple(weights)), np.full(steps + 1, np.nan)
    for time in range(steps + 1):
        seen[time] = state.product[0, 1]
        if abs(seen[time]) > 10 * abs(seen[0]):
            break
        state = state.step(eta)
    return seen


def tilted_cycle(depth: int, first: float, second: float, eta: float) -> float:
    """|P_12| of a state that a step of descent turns into itself with the signs of all off-diagonal
    entries changed, found by least squares (relative to P_12) over the entries of layers with
    W_{L+1−l} = W_lᵀ from a tilted start; 0 if none is found. No closed form enters.

    >>> tilted_cycle(2, 10.0, 9.0, 0.999 * 2 / 19), round(tilted_cycle(2, 10.0, 9.0, 2.02 / 19), 5)
    (0.0, 0.94177)
    """
    half, goal, flip = (depth + 1) // 2, np.diag([first, second]), np.tile([1, -1, -1, 1], depth)

    def chain(entries: Array) -> LinearChain:
        front = [*entries.reshape(half, 2, 2)]
        if depth % 2:
            front[-1] = (front[-1] + front[-1].T) / 2
        return LinearChain((*front, *(w.T for w in front[: depth // 2][::-1])), np.eye(2), goal)

    def misfit(entries: Array) -> Array:
        here = chain(entries)
        return (here.step(eta).parameters() - flip * here.parameters()) / here.product[0, 1]

    start = goal ** (1 / depth) + 0.12 / depth * first ** (1 / depth) * np.eye(2)[::-1]
    best = least_squares(misfit, np.tile(start.ravel(), half), xtol=1e-15, ftol=1e-15, gtol=1e-15)
    return abs(float(chain(best.x).product[0, 1])) if np.abs(best.fun).max() < 1e-9 else 0.0


@cache
def tilt_vanishes(depth: int, first: float, second: float) -> float:
    """The step η at which the `tilted_cycle` shrinks to nothing: η as a quadratic function of
    P_12², from three steps 1 to 2 per cent above 2/λ_12, at P_12 = 0.

    >>> round(tilt_vanishes(2, 10.0, 9.0) * 19 / 2, 4)
    1.0
    """
    etas = np.array([1.01, 1.015, 1.02]) * 2 / mode.curvature(depth, first, second)
    sizes = [tilted_cycle(depth, first, second, eta) ** 2 for eta in etas]
    return float(np.polyfit(sizes, etas, 2)[-1])


# Matrices


def rotated_target(sigma: Sequence[float], size: int, seed: int = 0) -> tuple[Array, Array, Array]:
    """Random orthogonal U, V (d, d) and the target U diag(σ, 0) Vᵀ.

    >>> u, v, target = rotated_target([2.0], 3)
    >>> round(float(u[:, 0] @ target @ v[:, 0]), 12)
    2.0
    """
    rng = np.random.default_rng(seed)
    u, v = orthogonal(rng, size), orthogonal(rng, size)
    return u, v, u[:, : len(sigma)] * sigma @ v[:, : len(sigma)].T


def products(
    target: Array, depth: int, alpha: float, eta: float, steps: int, kick: float = 0.0
) -> Array:
    """W_L⋯W_1 (steps, d, d) after each of `steps` steps of gradient descent on ½‖W_L⋯W_1 − M‖²,
    from W_L = 0 and other layers αI, the entries of W_1 above its diagonal kicked off zero.

    >>> products(np.array([[2.0]]), depth=2, alpha=0.5, eta=0.1, steps=2).ravel().round(6)
    array([0.05    , 0.102601])
    """
    one = np.eye(len(target))
    first = alpha * one + kick * np.eye(len(target), k=1)
    start = LinearChain((first, *[alpha * one] * (depth - 2), 0 * one), one, target)
    return np.array([state.product for state in descend(start, eta, steps).states[1:]])


def sorted_and_modes(
    sigma: Sequence[float], size: int, alpha: float, eta: float, steps: int = 2400
) -> tuple[Array, Array]:
    """The last 30 products of a one-zero run of depth 3 towards a rotated target, seen in two ways:
    sorted singular values, and modes u_iᵀPv_i; both (30, d).

    >>> seen, modes = sorted_and_modes([2.0], 2, alpha=0.5, eta=0.1, steps=200)
    >>> round(float(seen[-1, 0]), 6), round(float(modes[-1, 0]), 6)
    (2.0, 2.0)
    """
    u, v, target = rotated_target(sigma, size)
    run: NDArray[Any] = products(target, 3, alpha, eta, steps)[-30:]
    return np.linalg.svd(run, compute_uv=False), np.diagonal(u.T @ run @ v, 0, 1, 2)


def fixed_point_departure(sigma: Sequence[int], eta: float, bits: int, steps: int) -> Array:
    """How far descent from W_3 = 0, W_2 = W_1 = 0.3·I has left the aligned set after each step when
    all numbers are integers times 2^(−bits): the largest off-diagonal entry of UᵀW_3W_2W_1V.

    The target UΣVᵀ has three singular values, and U, V are rational. Integer arithmetic makes the
    result the same on every machine. The run stops once the departure exceeds 1.

    >>> bool(0 < fixed_point_departure([10, 9, 6], 0.0346, bits=60, steps=50).max() < 1e-14)
    True
    """
    one, half = 1 << bits, 1 << (bits - 1)

    def times(*factors: NDArray[Any]) -> NDArray[Any]:
        return reduce(lambda product, factor: (product @ factor + half) >> bits, factors)

    left = np.array([[1, 2, 2], [2, 1, -2], [2, -2, 1]], dtype=object)  # 3 U
    right = np.array([[2, 3, 6], [3, -6, 2], [6, 2, -3]], dtype=object)  # 7 V
    u, v, target = left * one // 3, right * one // 7, left * sigma @ right.T * one // 21
    begin = np.eye(3, dtype=object) * (3 * one // 10)
    layers, rate, departures = [begin, begin, 0 * begin], round(Fraction(eta) * one), [0.0]
    while len(departures) <= steps and departures[-1] <= 1:
        w1, w2, w3 = layers
        gap = times(w3, w2, w1) - target
        slopes = times(w2.T, w3.T, gap), times(w3.T, gap, w1.T), times(gap, w1.T, w2.T)
        moves = ((rate * slope + half) >> bits for slope in slopes)
        layers = [layer - move for layer, move in zip(layers, moves, strict=True)]
        seen = times(u.T, *layers[::-1], v) * (1 - np.eye(3, dtype=object))
        departures.append(np.abs(seen).max() / one)
    return np.array(departures[1:], dtype=float)


def onset(departures: ArrayLike, level: float = 1e-2) -> int:
    """The first step, counted from 1, at which the departure exceeds `level`.

    >>> onset([0.0, 0.5, 0.1])
    2
    """
    return int(np.flatnonzero(np.asarray(departures) > level)[0]) + 1


# Networks with activations


def descent(
    loss: Function, parameters: Sequence[Tensor], eta: float | Tensor, steps: int
) -> Iterator[tuple[list[Tensor], NDArray[np.float64]]]:
    """The parameters and the loss at the steps 0, …, `steps` of gradient descent with step `eta`.

    The loss may have an axis of independent runs; then each parameter carries that axis first, and
    `eta` may be a tensor that gives every run its own step.

    >>> square = lambda theta: theta[0] ** 2 / 2
    >>> start = [torch.tensor(1.0, dtype=torch.float64)]
    >>> [float(value) for _, value in descent(square, start, eta=0.5, steps=2)]
    [0.5, 0.125, 0.03125]
    """
    current = list(parameters)
    for _ in range(steps + 1):
        current = [parameter.detach().requires_grad_() for parameter in current]
        value = loss(current)
        slopes = torch.autograd.grad(value.sum(), current)
        current = [parameter.detach() for parameter in current]
        yield current, value.detach().numpy()
        current = [old - eta * slope for old, slope in zip(current, slopes, strict=True)]


def edge_ratio(loss: Function, parameters: Sequence[Tensor], eta: float) -> float:
    """ε = η λ_max / 2, with λ_max the largest Hessian eigenvalue to three digits, from
    Hessian–vector products alone: the edge of stability is at 1.

    >>> bowl = lambda theta: 3 * theta[0].square().sum() / 2
    >>> round(edge_ratio(bowl, [torch.zeros(4, dtype=torch.float64)], eta=0.5), 6)
    0.75
    """
    hessian = hessian_operator(loss, parameters)
    start = np.ones(hessian.shape[0])
    top = eigsh(hessian, k=1, which="LA", v0=start, tol=1e-3, return_eigenvectors=False)
    return float(eta * top[0] / 2)


def net_loss(x: Tensor, y: Tensor, phi: Activation) -> Function:
    """(1/2N) Σ_n ‖W_L φ(W_{L−1}⋯φ(W_1x_n)) − y_n‖²; weights and data (N, d) may carry an axis of
    networks first.

    >>> one = torch.ones(1, 1, dtype=torch.float64)
    >>> float(net_loss(one, 2 * one, torch.relu)([one, one]))
    0.5
    """

    def loss(weights: Sequence[Tensor]) -> Tensor:
        hidden = x
        for w in weights[:-1]:
            hidden = phi(hidden @ w.mT)
        return (hidden @ weights[-1].mT - y).square().sum((-2, -1)) / (2 * x.shape[-2])

    return loss


def network(data: Labelled, n: int, hidden: Sequence[int], scale: float, seed: int) -> Start:
    """n random images, centred; their labels as one-hot rows; Gaussian weights of layers with
    `hidden` units, the entries of W_l with deviation `scale`/√d_{l−1}.

    >>> x, y, (w1, w2) = network((np.eye(4), np.array([0, 1, 0, 1])), 3, [5], 0.5, seed=0)
    >>> x.shape, y.shape, w1.shape
    (torch.Size([3, 4]), torch.Size([3, 2]), torch.Size([5, 4]))
    """
    (images, labels), rng = data, np.random.default_rng(seed)
    pixels = images.reshape(len(images), -1)
    pick = rng.permutation(len(images))[:n]
    x = ((pixels - pixels.mean(axis=0)) / np.ptp(images))[pick]
    y = np.eye(labels.max() + 1)[labels[pick]]
    widths = (x.shape[1], *hidden, y.shape[1])
    weights = [scale / np.sqrt(d) * rng.standard_normal((e, d)) for d, e in pairwise(widths)]
    inputs, goals = tensors([x, y])
    return inputs, goals, tensors(weights)


def train(
    starts: Sequence[Start], phi: Activation, eta: float, steps: int, watch: Collection[int] = ()
) -> tuple[Array, Array, Array]:
    """Descent from several `network` starts of one shape at once: losses (T + 1, S), singular
    values of the hidden layers (T + 1, l, S, k), and ε at the steps `watch` (w, S).

    >>> start = network((np.eye(4), np.array([0, 1, 0, 1])), 4, [5], 0.5, seed=0)
    >>> [found.shape for found in train([start, start], torch.tanh, 0.1, steps=2, watch=[0, 2])]
    [(3, 2), (3, 1, 2, 4), (2, 2)]
    """
    x, y = torch.stack([x for x, _, _ in starts]), torch.stack([y for _, y, _ in starts])
    weights = [torch.stack(layer) for layer in zip(*(w for _, _, w in starts), strict=True)]
    losses, values, edges = [], [], []
    for t, (now, value) in enumerate(descent(net_loss(x, y, phi), weights, eta, steps)):
        losses.append(value)
        values.append([torch.linalg.svdvals(w).numpy() for w in now[:-1]])
        if t in watch:
            each = [(net_loss(x[k], y[k], phi), [w[k] for w in now]) for k in range(len(starts))]
            edges.append([edge_ratio(loss, here, eta) for loss, here in each])
    return np.array(losses), np.array(values), np.array(edges)


def holder(point: Sequence[Tensor]) -> Tensor:
    """The Hölder table function −|sin x cos y exp(1 − √(x² + y²)/π)|.

    >>> round(float(holder(tensors([1.0, 0.0]))), 4)
    -1.6638
    """
    x, y = point
    return -abs(torch.sin(x) * torch.cos(y) * torch.exp(1 - torch.hypot(x, y) / np.pi))
