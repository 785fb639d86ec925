"""Experiments of the chapter *Beyond the Edge of Stability*: training runs, scans, and descent in
exact integer arithmetic. What the pages show, without a promise to anyone else.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import cache
from itertools import pairwise
from typing import Any

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
from exacthessian.inputs import Array

STATES = 512
TILTS = (0.02, 0.06)  # where the search for rotating cycles starts


# Where one balanced mode ends


def attractor(depth: int, sigma: ArrayLike, etas: ArrayLike, keep: int, settle: int) -> Array:
    """The last `keep` values s_i (r,) of balanced gradient descent from 0.9σ_i^(1/L), after
    `settle` steps, for each η (n,): shape (n, keep, r); NaN where the descent diverges.

    >>> attractor(2, [10.0], [0.05], keep=1, settle=200).round(6)
    array([[[3.162278]]])
    """
    targets, steps = np.asarray(sigma), np.asarray(etas)[:, None]
    s = np.broadcast_to(0.9 * targets ** (1 / depth), (len(steps), len(targets)))
    kept = []
    with np.errstate(over="ignore", invalid="ignore"):
        for time in range(settle + keep):
            s = mode.step(s, depth, targets, steps)
            if time >= settle:
                kept.append(s)
    states = np.stack(kept, axis=1)
    states[~np.isfinite(states).all(axis=(1, 2))] = np.nan
    return states


def fork(depth: int, target: float) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    """What a balanced mode visits against the ratio, up to 1.23: (ratios, values of the product) in
    closed form, up along one branch and back along the other, and by 4000 steps of descent.

    >>> theory, seen = fork(2, 10.0)
    >>> len(theory[0]) == len(theory[1]), len(seen[0]) == len(seen[1])
    (True, True)
    """
    ratios, fine = np.linspace(0.92, 1.23, 32), np.linspace(1.0002, 1.235, 200)
    low, high = np.array(
        [mode.two_cycle(depth, target, r * mode.edge(depth, target)) for r in fine]
    ).T
    late = attractor(depth, [target], ratios * mode.edge(depth, target), 2, 4000)[:, :, 0]
    branches = np.r_[low[::-1], high] ** depth
    return (
        (np.r_[fine[::-1], fine], branches),
        (np.repeat(ratios, 2), late.ravel() ** depth),
    )


def lyapunov(depth: int, a: ArrayLike, steps: int = 2000) -> Array:
    """The Lyapunov exponent of a mode with target 1, the mean of log|slope| along the attractor,
    for each step a (n,): over 512 starts near the minimum, half of the `steps` to settle.

    On the cycle of period 2 it is the logarithm of the product of the slopes, by 2:

    >>> bool(abs(lyapunov(2, [1.1])[0] - np.log(abs(mode.growth(2, 1.0, 1.1))) / 2) < 1e-6)
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


def all_eigenvalues(targets: Sequence[float], ratios: Array, orbits: Array) -> tuple[Array, Array]:
    """The distinct Hessian eigenvalues of 5×5 networks of depth 3 at the balanced states `orbits`
    (n, t, r), and the ratio at which each was found: two arrays of equal length.

    >>> places, values = all_eigenvalues([1.0], np.array([1.0]), np.ones((1, 1, 1)))
    >>> values
    array([0., 1., 3.])
    """
    places, values = [], []
    for ratio, states in zip(ratios, orbits, strict=True):
        for s in states:
            chain = AlignedChain.balanced((5,) * 4, s, target=targets)
            values.append(np.unique(chain.spectrum().values.round(2)))
            places.append(np.full(len(values[-1]), ratio))
    return np.concatenate(places), np.concatenate(values)


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
    entry = np.zeros((len(s), len(s)))
    entry[i - 1, j - 1] = 1
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
    layers, moves, goal = tensors(weights), tensors(direction), tensors([target])[0]

    def loss(mu: Tensor) -> Tensor:
        product = torch.eye(goal.shape[1], dtype=goal.dtype)
        for layer, move in zip(layers, moves, strict=True):
            product = (layer + mu * move) @ product
        return (product - goal).square().sum() / 2

    mu = torch.zeros((), dtype=goal.dtype, requires_grad=True)
    value, found = loss(mu), []
    for _ in range(4):
        (value,) = torch.autograd.grad(value, mu, create_graph=True)
        found.append(float(value.detach()))
    return found[1], found[2], found[3]


# Cycles in which two modes rotate


def leaving(start: LinearChain, eta: float, kick: float, steps: int) -> Array:
    """P_12 at the steps 0..T of descent from a state whose layers are stretched by 1 ± `kick` in
    turn; NaN once it is ten times as large as at the start.

    >>> one, _ = mode.rotating_cycle(2, 10.0, 9.0, 0.107)
    >>> bool(abs(leaving(one, 0.107, kick=0.0, steps=3)[2] / one.product[0, 1] - 1) < 1e-9)
    True
    """
    weights = [w * (1 + kick * (-1) ** layer) for layer, w in enumerate(start.weights)]
    state, seen = replace(start, weights=tuple(weights)), []
    for _ in range(steps + 1):
        seen.append(state.product[0, 1])
        if abs(seen[-1]) > 10 * abs(seen[0]):
            break
        state = state.step(eta)
    return np.r_[seen, np.full(steps + 1 - len(seen), np.nan)]


def even_rotating_cycle(
    depth: int, first: float, second: float, ratio: float
) -> tuple[float, float]:
    """How far a step is from changing the signs of all off-diagonal entries, at the best state of
    the form ρ[[h^e, θh], [θ/h, h^−e]] (odd l), ρ[[h^−e, θ/h], [θh, h^e]] (even l), e = L + 1 − 2l,
    relative to θ, and P_12 there; at `ratio` times `mode.rotating_edge`.

    >>> even_rotating_cycle(2, 10.0, 9.0, 1.01)[0] < 1e-9
    True
    """
    eta = ratio * mode.rotating_edge(depth, first, second)
    flip = np.tile([1, -1, -1, 1], depth)

    def chain(unknowns: Array) -> LinearChain:
        rho, h, theta = unknowns
        layers = []
        for e in range(depth - 1, -depth, -4):
            layers.append(rho * np.array([[h**e, theta * h], [theta / h, h**-e]]))
            layers.append(rho * np.array([[h ** (2 - e), theta / h], [theta * h, h ** (e - 2)]]))
        return LinearChain(tuple(layers), np.eye(2), np.diag([first, second]))

    def misfit(unknowns: Array) -> Array:
        here = chain(unknowns)
        return (here.step(eta).parameters() - flip * here.parameters()) / unknowns[2]

    start = [(first * second) ** (1 / (2 * depth)), (first / second) ** (1 / (2 * depth)), 0.05]
    best = least_squares(misfit, start, xtol=1e-15, ftol=1e-15, gtol=1e-15)
    return float(np.abs(best.fun).max()), abs(float(chain(best.x).product[0, 1]))


def tilted_cycle(depth: int, first: float, second: float, eta: float) -> float:
    """The largest |P_12| of a state that a step of descent turns into itself with the signs of all
    off-diagonal entries changed, found by least squares over the entries of layers with
    W_{L+1−l} = W_lᵀ from tilted starts; 0 if none is found. No closed form enters.

    >>> tilted_cycle(2, 10.0, 9.0, 0.999 * 2 / 19), round(tilted_cycle(2, 10.0, 9.0, 2.02 / 19), 5)
    (0.0, 0.94177)
    """
    half, goal = (depth + 1) // 2, np.diag([first, second])
    rest, flip = goal ** (1 / depth), np.array([[1, -1], [-1, 1]])

    def layers(unknowns: Array) -> list[Array]:
        front = list(unknowns.reshape(half, 2, 2))
        if depth % 2:
            front[-1] = (front[-1] + front[-1].T) / 2
        return [*front, *(w.T for w in front[: depth // 2][::-1])]

    def misfit(unknowns: Array) -> Array:
        here = layers(unknowns)
        return np.ravel(
            [w - eta * g - flip * w for w, g in zip(here, _slopes(here, goal), strict=True)]
        )

    found = [0.0]
    for tilt in TILTS:
        start = np.tile((rest + tilt * rest[0, 0] * np.eye(2)[::-1]).ravel(), half)
        best = least_squares(misfit, start, xtol=1e-14, ftol=1e-14, gtol=1e-14, max_nfev=200)
        if np.abs(best.fun).max() < 1e-10:
            found.append(abs(float(_chained(layers(best.x))[0, 1])))
    return max(size if size > 1e-4 * first else 0.0 for size in found)


@cache
def least_rotating_step(depth: int, first: float, second: float) -> float:
    """The smallest step at which there is a `tilted_cycle`, by bisection to one part in 10⁵, within
    one part in 50 of 2/λ_12.

    >>> round(least_rotating_step(2, 10.0, 9.0) * 19 / 2, 4)
    1.0
    """
    low, high = (factor * 2 / mode.curvature(depth, first, second) for factor in (0.999, 1.02))
    while high - low > 1e-5 * low:
        middle = (low + high) / 2
        if tilted_cycle(depth, first, second, middle):
            high = middle
        else:
            low = middle
    return high


# Matrices in a chosen arithmetic


def orthogonal(rng: np.random.Generator, size: int) -> Array:
    """A random orthogonal matrix (size, size).

    >>> Q = orthogonal(np.random.default_rng(0), 3)
    >>> np.allclose(Q @ Q.T, np.eye(3))
    True
    """
    return np.linalg.qr(rng.standard_normal((size, size)))[0]


def rotated_target(sigma: Sequence[float], size: int, seed: int = 0) -> tuple[Array, Array, Array]:
    """Random orthogonal U, V (d, d) and the target U diag(σ, 0) Vᵀ.

    >>> u, v, target = rotated_target([2.0], 3)
    >>> round(float(u[:, 0] @ target @ v[:, 0]), 12)
    2.0
    """
    rng = np.random.default_rng(seed)
    u, v = orthogonal(rng, size), orthogonal(rng, size)
    values = np.r_[sigma, np.zeros(size - len(sigma))]
    return u, v, (u * values) @ v.T


def products(
    target: NDArray[Any],
    depth: int,
    alpha: float,
    eta: float,
    steps: int,
    layers: Sequence[NDArray[Any]] | None = None,
) -> NDArray[Any]:
    """W_L⋯W_1 after each of `steps` steps of gradient descent on ½‖W_L⋯W_1 − M‖², from W_L = 0 and
    other layers αI (or from `layers`), in the arithmetic of the `target` M (d, d): float32,
    float64 or longdouble. Shape (steps, d, d).

    >>> products(np.array([[2.0]]), depth=2, alpha=0.5, eta=0.1, steps=2).ravel().round(6)
    array([0.05    , 0.102601])
    """
    kind = target.dtype.type
    size = len(target)
    start = [alpha * np.eye(size)] * (depth - 1) + [np.zeros((size, size))]
    weights = [np.array(layer, dtype=kind) for layer in (start if layers is None else layers)]
    rate = kind(eta)
    history = np.empty((steps, size, size), dtype=kind)
    product = _chained(weights)
    for time in range(steps):
        slopes = _slopes(weights, target)
        weights = [weight - rate * slope for weight, slope in zip(weights, slopes, strict=True)]
        product = _chained(weights)
        history[time] = product
    return history


def second_oscillations(edge: float, cross: float) -> dict[str, tuple[Any, ...]]:
    """Targets, size, α and step of the panels of Figures 5, 14 and 18, given 2/λ_11 and 2/λ_12.

    >>> len(second_oscillations(0.03, 0.033))
    6
    """
    five, fourteen, eighteen = (10.0, 9.0, 6.0), (10.0, 8.0, 6.0), (10.0, 9.0, 8.0)
    return {
        "Figure 5: below relabelling": (five, 50, 0.01, 1.01 * edge),
        "Figure 5: above $2/\\lambda_{12}$": (five, 50, 0.01, 1.0003 * cross),
        "Figure 14: α = 0.01": (fourteen, 10, 0.01, 0.0332),
        "Figure 14: α = 0.5": (fourteen, 10, 0.5, 0.0332),
        "Figure 18: above $2/\\lambda_{11}$": (eighteen, 6, 0.1, 1.005 * edge),
        "Figure 18: above $2/\\lambda_{12}$": (eighteen, 6, 0.1, 1.0003 * cross),
    }


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
    run = products(target, 3, alpha, eta, steps)[-30:]
    return np.linalg.svd(run, compute_uv=False), np.diagonal(u.T @ run @ v, 0, 1, 2)


def fixed_point_departure(
    sigma: Sequence[int], eta: float, bits: int, steps: int, rotated: bool = True
) -> Array:
    """How far descent from W_3 = 0, W_2 = W_1 = 0.3·I has left the aligned set after each step when
    all numbers are integers times 2^(−bits): the largest off-diagonal entry of UᵀW_3W_2W_1V.

    The target UΣVᵀ has three singular values and rational rotations U, V (identities unless
    `rotated`). Integer arithmetic makes the result the same on every machine. The run stops once
    the departure exceeds 1.

    >>> float(fixed_point_departure([10, 9, 6], 0.0346, bits=60, steps=50, rotated=False).max())
    0.0
    >>> bool(0 < fixed_point_departure([10, 9, 6], 0.0346, bits=60, steps=50).max() < 1e-14)
    True
    """
    one, half = 1 << bits, 1 << (bits - 1)

    def fixed(matrix: NDArray[Any]) -> NDArray[Any]:
        return np.array([[round(entry * one) for entry in row] for row in matrix], dtype=object)

    def times(first: NDArray[Any], second: NDArray[Any]) -> NDArray[Any]:
        return (first @ second + half) >> bits

    left, right = _rational_rotations() if rotated else (_identity(), _identity())
    values = np.diag([Fraction(value) for value in sigma])
    target, u, v = fixed(left @ values @ right.T), fixed(left), fixed(right)
    rate = round(Fraction(eta) * one)
    w1 = w2 = fixed(_identity() * Fraction(3, 10))
    w3 = w1 * 0
    departures = []
    for _ in range(steps):
        w21, w32 = times(w2, w1), times(w3, w2)
        residual = times(w3, w21) - target
        slopes = (
            times(w32.T, residual),
            times(times(w3.T, residual), w1.T),
            times(residual, w21.T),
        )
        w1, w2, w3 = (
            weight - ((rate * slope + half) >> bits)
            for weight, slope in zip((w1, w2, w3), slopes, strict=True)
        )
        seen = times(times(u.T, times(w3, times(w2, w1))), v)
        np.fill_diagonal(seen, 0)
        departures.append(float(Fraction(int(np.abs(seen).max()), one)))
        if departures[-1] > 1:
            break
    return np.array(departures)


def onset(departures: ArrayLike, level: float = 1e-2) -> int:
    """The first step, counted from 1, at which the departure exceeds `level`.

    >>> onset([0.0, 0.5, 0.1])
    2
    """
    above = np.asarray(departures) > level
    if not above.any():
        raise ValueError(f"departures never exceed {level} in {len(above)} steps")
    return int(np.argmax(above)) + 1


def growth_rate(departures: ArrayLike, low: float, high: float) -> float:
    """The slope of log(departure) against the step, by least squares, over the steps from the last
    one below `low` to the first one above `high`.

    >>> round(growth_rate(np.exp(0.1 * np.arange(200.0) - 10), 1e-4, 1e2), 12)
    0.1
    """
    values = np.asarray(departures)
    stop = onset(values, high)
    start = int(np.flatnonzero(values[:stop] < low)[-1])
    times = np.arange(start, stop)
    return float(np.polyfit(times, np.log(values[start:stop]), 1)[0])


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


def net_start(widths: Sequence[int], scale: float, rng: np.random.Generator) -> list[Tensor]:
    """Gaussian weights; the entries of W_l have deviation `scale`/√d_{l−1}.

    >>> [tuple(w.shape) for w in net_start((4, 3, 2), 0.5, np.random.default_rng(0))]
    [(3, 4), (2, 3)]
    """
    return tensors(scale / np.sqrt(d) * rng.standard_normal((e, d)) for d, e in pairwise(widths))


def net_loss(x: Tensor, y: Tensor, phi: Callable[[Tensor], Tensor]) -> Function:
    """(1/2N) Σ_n ‖W_L φ(W_{L−1}⋯φ(W_1x_n)) − y_n‖²; weights may carry an axis of networks first.

    >>> one = torch.ones(1, 1, dtype=torch.float64)
    >>> float(net_loss(one, 2 * one, torch.relu)([one, one]))
    0.5
    """

    def loss(weights: Sequence[Tensor]) -> Tensor:
        hidden = x
        for w in weights[:-1]:
            hidden = phi(hidden @ w.mT)
        misfit = hidden @ weights[-1].mT - y
        return (misfit**2).sum((-2, -1)) / (2 * len(x))

    return loss


def sample(images: Array, labels: NDArray[Any], n: int, rng: np.random.Generator) -> list[Tensor]:
    """n random images, centred, and their labels as one-hot rows.

    >>> x, y = sample(np.eye(4), np.array([0, 1, 0, 1]), 3, np.random.default_rng(0))
    >>> x.shape, y.shape
    (torch.Size([3, 4]), torch.Size([3, 2]))
    """
    pixels = images.reshape(len(images), -1)
    pixels = (pixels - pixels.mean(axis=0)) / np.ptp(images)
    pick = rng.permutation(len(images))[:n]
    return tensors([pixels[pick], np.eye(labels.max() + 1)[labels[pick]]])


def sharpening(
    images: Array, labels: NDArray[Any], n: int, eta: float, steps: int = 2000, every: int = 100
) -> tuple[Array, Array]:
    """Losses at every step and ε at every `every`-th, two tanh layers of width 32 on n images.

    >>> losses, edges = sharpening(np.eye(4), np.array([0, 1, 0, 1]), 4, 0.1, steps=2, every=2)
    >>> len(losses), len(edges)
    (3, 2)
    """
    rng = np.random.default_rng(0)
    x, y = sample(images, labels, n, rng)
    weights = net_start((x.shape[1], 32, y.shape[1]), 0.5, rng)
    loss, losses, edges = net_loss(x, y, torch.tanh), [], []
    for t, (now, value) in enumerate(descent(loss, weights, eta, steps)):
        losses.append(value)
        if t % every == 0:
            edges.append(edge_ratio(loss, now, eta))
    return np.array(losses), np.array(edges)


def depth_map(
    images: Array, labels: NDArray[Any], depth: int, factors: Array
) -> tuple[float, NDArray[np.bool_]]:
    """For tanh layers of width 32 on 20 images: 2/λ_max after slow training, and whether the loss
    rises within 400 steps at each of `factors` times that step.

    >>> border, rises = depth_map(np.eye(20), np.arange(20) % 2, 2, np.array([0.5]))
    >>> border > 0, rises.shape
    (True, (1,))
    """
    rng = np.random.default_rng(0)
    x, y = sample(images, labels, 20, rng)
    weights = net_start((x.shape[1], *[32] * (depth - 1), y.shape[1]), 0.7, rng)
    loss = net_loss(x, y, torch.tanh)
    *_, (end, _) = descent(loss, weights, 0.2, 500)
    border = 1 / edge_ratio(loss, end, 1.0)
    many = [w.expand(len(factors), *w.shape) for w in weights]
    etas = torch.tensor(border * factors)[:, None, None]
    losses = [value for _, value in descent(loss, many, etas, 400)]
    return border, np.any(np.diff(losses, axis=0) > 0, axis=0)


def relu_run(
    images: Array,
    labels: NDArray[Any],
    hidden: int,
    eta: float,
    steps: int,
    seed: int,
    watch: Sequence[int],
) -> tuple[Array, Array, Array]:
    """Losses, singular values of the hidden layers, and ε at the steps `watch`: ReLU layers of
    width 50 on 200 images.

    >>> losses, values, edges = relu_run(np.eye(20), np.arange(20) % 2, 2, 0.1, 2, 0, [0])
    >>> len(losses), values.shape, len(edges)
    (3, (3, 2, 20), 1)
    """
    rng = np.random.default_rng(seed)
    x, y = sample(images, labels, 200, rng)
    weights = net_start((x.shape[1], *[50] * hidden, y.shape[1]), 0.3, rng)
    loss, losses, values, edges = net_loss(x, y, torch.relu), [], [], []
    for t, (now, value) in enumerate(descent(loss, weights, eta, steps)):
        losses.append(value)
        least = min(min(w.shape) for w in now[:-1])
        values.append([torch.linalg.svdvals(w).numpy()[:least] for w in now[:-1]])
        if t in watch:
            edges.append(edge_ratio(loss, now, eta))
    return np.array(losses), np.array(values), np.array(edges)


def jitter(losses: Array, values: Array) -> Array:
    """The mean second difference of each singular value over 60 steps after the loss first rises,
    all layers together.

    >>> jitter(np.array([2.0, 1.0, 1.5, 1.0]), np.array([0.0, 1.0, 0.0, 1.0])[:, None, None])
    array([2.])
    """
    first = int(np.argmax(np.diff(losses) > 0))
    return abs(np.diff(values[first : first + 60], 2, axis=0)).mean((0, 1))


def holder(point: Sequence[Tensor]) -> Tensor:
    """The Hölder table function −|sin x cos y exp(1 − √(x² + y²)/π)|.

    >>> round(float(holder(tensors([1.0, 0.0]))), 4)
    -1.6638
    """
    x, y = point
    radius = torch.sqrt(x**2 + y**2)
    return -abs(torch.sin(x) * torch.cos(y) * torch.exp(1 - radius / np.pi))


def _chained(weights: Sequence[NDArray[Any]]) -> NDArray[Any]:
    product = weights[0]
    for weight in weights[1:]:
        product = weight @ product
    return product


def _slopes(weights: Sequence[NDArray[Any]], target: NDArray[Any]) -> list[NDArray[Any]]:
    """The gradient of ½‖W_L⋯W_1 − M‖² with respect to each layer."""
    residual, slopes = _chained(weights) - target, []
    for layer in range(len(weights)):
        slope = residual
        if layer + 1 < len(weights):
            slope = _chained(weights[layer + 1 :]).T @ slope
        if layer > 0:
            slope = slope @ _chained(weights[:layer]).T
        slopes.append(slope)
    return slopes


def _identity() -> NDArray[Any]:
    return np.array([[Fraction(int(i == j)) for j in range(3)] for i in range(3)], dtype=object)


def _rational_rotations() -> tuple[NDArray[Any], NDArray[Any]]:
    """Two rotations of space with rational entries, from the triples 3-4-5, 5-12-13 and 8-15-17."""

    def turn(i: int, j: int, triple: tuple[int, int, int]) -> NDArray[Any]:
        rotation = _identity()
        sine, cosine = Fraction(triple[0], triple[2]), Fraction(triple[1], triple[2])
        rotation[i, i] = rotation[j, j] = cosine
        rotation[i, j], rotation[j, i] = -sine, sine
        return rotation

    small, middle, large = (3, 4, 5), (5, 12, 13), (8, 15, 17)
    left = turn(0, 1, small) @ turn(1, 2, middle) @ turn(0, 2, large)
    right = turn(0, 2, middle) @ turn(0, 1, large) @ turn(1, 2, small)
    return left, right
