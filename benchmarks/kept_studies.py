"""The long studies of the chapter "Cracking the Hessian", whose numbers the package keeps.

    python benchmarks/kept_studies.py norms
    python benchmarks/kept_studies.py norms sizes=[40,70] networks=200

The first form, at the size of the book, rewrites the kept numbers in
`src/exacthessian/data/cracking_the_hessian.json`; the second prints its result. A key binds the
numbers to the code and the settings that made them, and a test compares it with the present code;
comments and docstrings do not count as code.
"""

import ast
import hashlib
import inspect
import json
import sys
from collections.abc import Callable, Sequence
from functools import reduce
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.random import Generator, default_rng
from numpy.typing import ArrayLike
from relu_networks import relu_network_loss

from exacthessian.autograd import dense_hessian, tensors
from exacthessian.chain import LinearChain
from exacthessian.inputs import Array
from exacthessian.live import progress
from exacthessian.product import knocked_out, reduced, sharpness_law, spectrum_one_output
from exacthessian.spectrum import top_eigenvalues
from exacthessian.studies import cracking_the_hessian as chapter
from exacthessian.studies import transformer as tf
from exacthessian.studies.cracking_the_hessian import (
    NORMS,
    SCHEMES,
    Floats,
    Ints,
    Layers,
    Windows,
    _bound,
    correlation,
    descend,
    distances,
    ends,
    normalised_data,
    norms2,
    observe,
    pair_sums,
    rates,
    start,
    train_one,
)

FOLDER = Path(__file__).parents[1] / "src" / "exacthessian" / "data"

Names = Sequence[str]
Found = dict[str, Any]


# Norms


def relu_descend(weights: Layers, x: Array, y: Array, pace: Floats, steps: int) -> list[Array]:
    """Gradient descent on 1/(2N) Σ_n ‖f(x_n) − y_n‖² of a stack of ReLU networks without bias:
    x (D, N), y (K, N). The steps are as in `descend`, for white inputs, and stay fixed.
    """
    layers = [np.array(weight) for weight in weights]
    step = 0.5 / _bound(*knocked_out(layers), pace, 1.0)
    for _ in range(steps):
        states = _relu_states(layers, x)
        error = (layers[-1] @ states[-1] - y) / x.shape[1]
        for layer, state, rate in zip(layers[::-1], states[::-1], pace[::-1], strict=True):
            slope, error = error @ state.mT, (layer.mT @ error) * (state > 0)
            layer -= rate * step * slope
    return layers


def _relu_states(layers: Layers, x: Array) -> list[Array]:
    """What each layer receives: x, then the hidden states after the ReLU."""
    states = [np.broadcast_to(x, (len(layers[0]), *x.shape))]
    for layer in layers[:-1]:
        states.append(np.maximum(layer @ states[-1], 0.0))
    return states


def alignments(first: Array, second: Array) -> dict[str, Array]:
    """The absolute alignments of W₁ and W₂ᵀ in a stack, from W₂W₁ (n, D, D): its largest singular
    value, its trace in absolute value, the sum of its singular values."""
    product = second @ first
    sigma = np.linalg.svd(product, compute_uv=False)
    sizes = sigma[:, 0], np.abs(np.trace(product, axis1=1, axis2=2)), np.sum(sigma, axis=1)
    return dict(zip(NORMS, sizes, strict=True))


def _follows(top: ArrayLike, layers: Layers, norm: str) -> list[list[float]]:
    """The correlation of `top` with a squared norm of each single matrix, and of each product that
    leaves one matrix out."""
    others = ([*layers[:i], *layers[i + 1 :]] for i in range(len(layers)))
    left_out = [reduce(lambda product, layer: layer @ product, rest) for rest in others]
    return [[correlation(top, norms2(m)[norm]) for m in group] for group in (layers, left_out)]


def norms(
    schemes: Names, sizes: Ints, seeds: Ints, networks: int, steps: int, samples: int, times: Names
) -> Found:
    """Figures 4, 14, 15 and 26: width 100, D = K inputs and outputs, `samples` normal inputs drawn
    anew for every seed (exactly white inputs if 0). By "scheme D", for each seed the
    correlations of sharpness and trace with norms and alignments, at the "start" and at the "end"
    of training, as far as asked for in `times`, and the largest residual at the end."""
    found: Found = {f"{scheme} {size}": [] for scheme, size in product(schemes, sizes)}
    for scheme, size, seed in progress([*product(schemes, sizes, seeds)]):
        rng, widths = default_rng([6, 3, size, seed]), (size, 100, size)
        target = rng.standard_normal((size, size)) / np.sqrt(size)
        sigma, cross = np.eye(size), target
        if samples:
            x = rng.standard_normal((size, samples))
            y = target @ x + 0.1 * rng.standard_normal((size, samples))
            sigma, cross = x @ x.T / samples, y @ x.T / samples
        begin = reduced(*start(scheme, widths, networks, rng))
        end = descend(begin, sigma, cross, rates(scheme, widths), steps)
        states: dict[str, Layers] = {"start": begin, "end": end}
        row: Found = {time: _norm_row(states[time], sigma, cross, time) for time in times}
        row["residual"] = float(np.linalg.norm(end[1] @ end[0] @ sigma - cross, axis=(1, 2)).max())
        found[f"{scheme} {size}"].append(row)
    return found


def _norm_row(layers: Layers, sigma: Array, cross: Array, time: str) -> Found:
    """For each matrix and the alignment, the correlations of sharpness and of trace with the three
    norms; the sharpness by the law at the end of training, and exact at the start."""
    rng, chains = default_rng(0), zip(*layers, strict=True)
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


def products(depths: dict[str, Ints], seeds: Ints, networks: int) -> Found:
    """Figures 17 to 20: deep linear networks of width 30. By "scheme depth D", for each seed the
    correlations of the sharpness with the squared spectral norms of the single matrices and of the
    products that leave one out."""
    cases = [(s, b, int(d)) for s in SCHEMES for d, depth in depths.items() for b in depth]
    found: Found = {}
    for scheme, depth, size in progress(cases):
        widths, rows = (size, *[30] * (depth - 1), size), []
        for seed in seeds:
            rng = default_rng([6, 3, depth, size, seed])
            target = rng.standard_normal((size, size)) / np.sqrt(size) if size > 1 else np.eye(1)
            layers = start(scheme, widths, networks, rng)
            steps = 300 if size == 1 else 500
            layers = descend(layers, np.eye(size), target, rates(scheme, widths), steps)
            rows.append(_follows(sharpness_law(layers, np.eye(size)), layers, "spectral"))
        found[f"{scheme} {depth} {size}"] = rows
    return found


def relu_norms(seeds: Ints, networks: int, rays: Ints) -> Found:
    """Figures 16, 21 and 22. By "scheme", for each seed the correlations of the sharpness with the
    three norms of both matrices (three inputs, width 20); by "scheme depth" those with Frobenius
    norms of single matrices and of products, for one input: the two rays x > 0 and x < 0."""
    found: Found = {}
    for scheme in progress(SCHEMES):
        found[scheme] = [_relu_row(scheme, networks, seed) for seed in seeds]
        for b in rays:
            found[f"{scheme} {b}"] = [_ray_row(scheme, b, networks, seed) for seed in seeds]
    return found


def _relu_row(scheme: str, networks: int, seed: int) -> list[list[float]]:
    rng, size, samples = default_rng([6, 3, seed]), 3, 64
    x = rng.standard_normal((size, samples))
    teacher = rng.standard_normal((size, size)) / np.sqrt(size)
    y = np.maximum(teacher @ x, 0) + 0.1 * rng.standard_normal((size, samples))
    widths = (size, 20, size)
    layers = start(scheme, widths, networks, rng)
    layers = relu_descend(layers, x, y, rates(scheme, widths), 400)
    top = [relu_eigenvalues(x, y, pair)[-1] for pair in zip(*layers, strict=True)]
    return [[correlation(top, value) for value in norms2(w).values()] for w in layers]


def _ray_row(scheme: str, depth: int, networks: int, seed: int) -> list[list[float]]:
    rng, widths = default_rng([6, 3, depth, seed]), (1, *[30] * (depth - 1), 1)
    x, y = np.array([[1.0, -1.0]]), np.array([[1.0, 0.0]])
    layers = relu_descend(start(scheme, widths, networks, rng), x, y, rates(scheme, widths), 1500)
    return _follows(relu_sharpness_law(layers, x), layers, "Frobenius")


def relu_eigenvalues(x: Array, y: Array, weights: Sequence[ArrayLike]) -> Array:
    """All eigenvalues of 1/(2N) Σ_n ‖W_B(⋯(W₁x_n)₊⋯)₊ − y_n‖², ascending, by the oracle."""
    dense = dense_hessian(relu_network_loss(x, y), tensors(weights))
    return np.asarray(np.linalg.eigvalsh((dense + dense.T) / 2))


def relu_sharpness_law(weights: Layers, x: Array) -> Array:
    """The largest Gauss–Newton eigenvalue of a stack of ReLU networks with one output, without
    bias: that of the N×N kernel with entries ⟨∇f(x_n), ∇f(x_n')⟩/N. Shape (n,)."""
    error = np.ones((len(weights[0]), 1, x.shape[1]))
    kernel = np.zeros((len(weights[0]), x.shape[1], x.shape[1]))
    for layer, state in zip(weights[::-1], _relu_states(weights, x)[::-1], strict=True):
        kernel += (error.mT @ error) * (state.mT @ state)
        error = (layer.mT @ error) * (state > 0)
    return np.asarray(np.linalg.eigvalsh(kernel)[:, -1] / x.shape[1])


# The pair hypothesis


def pairs(inputs: Ints, seeds: Ints, models: int, draws: int) -> Found:
    """Figures 3 and 10 to 13, width 10. By "kind depth weights data D", for each seed the medians
    over the models of the best and second-best distance from tr/D, over the mean eigenvalue, and
    the mean share of random targets that are met better."""
    kinds = [("linear", 2, True), ("linear", 2, False)]
    kinds += [("linear", 4, False), ("relu", 2, False), ("relu", 4, False)]
    cases = [(*kind, w, size) for kind in kinds for w in ("orthonormal", "SP")
             for size in (inputs if kind[:2] == ("linear", 2) else [2, 5])]  # fmt: skip
    found: Found = {}
    for kind, depth, white, weights, size in progress(cases):
        data = "decorrelated" if white else "standardised"
        found[f"{kind} {depth} {weights} {data} {size}"] = rows = []
        for seed in seeds:
            rng, hunts = default_rng([6, 3, size, seed]), []
            for _ in range(models):
                x, y = normalised_data(size, 102, white, rng)
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


def _hunt(values: Array, size: int, draws: int, rng: Generator) -> list[float]:
    """The best and second-best distance of a pair from tr/D, over the mean eigenvalue, and the
    share of random targets, uniform between ½ and 1½ of tr/D, that some pair meets better: near 0
    if tr/D is special, ½ on average if it is not."""
    sums, target = pair_sums(values), values.sum() / size
    best, second = np.sort(np.abs(sums - target))[:2]
    others = distances(sums, target * rng.uniform(0.5, 1.5, draws))
    return [best / values.mean(), second / values.mean(), float(np.mean(others < best))]


# Transformers


def force_sink(net: tf.Transformer, state: Any, data: Windows, **sink: Any) -> list[float]:
    """Attention on the first token, loss, least and largest eigenvalue with a forced sink."""
    share, loss = net.attention_on_first(state, data[0], **sink), net.loss(state, *data, **sink)
    return [share, loss.item(), *ends(net.curvature(state, *data, **sink)[0], 32)]


def transformers(
    seeds: Ints, checkpoints: Ints, biases: Floats, massive: float, **training: Any
) -> Found:
    """The study of section 4.3 on small networks. By mixer, for each seed `observe` at each
    checkpoint; as "sink" and "massive sink", for each seed a row of `force_sink` at each bias.
    What else is given goes to `train_one`."""
    found: Found = {mixer: [] for mixer in (*tf.MIXERS, "sink", "massive sink")}
    for mixer, seed in progress([*product(tf.MIXERS, seeds)]):
        net, states, data = train_one(mixer, seed, checkpoints, **training)
        found[mixer].append([observe(net, state, data) for state in states])
        if mixer == "softmax":
            for name, m in (("sink", 1.0), ("massive sink", massive)):
                rows = [force_sink(net, states[-1], data, sink=b, massive=m) for b in biases]
                found[name].append(rows)
    return found


# What is kept


_EIGHT: Found = {"seeds": [*range(8)]}
_NORMS: Found = _EIGHT | {"schemes": [*SCHEMES], "networks": 60, "samples": 1024, "times": ["end"]}
_BOTH: Found = _NORMS | {"times": ["start", "end"]}
_DEPTHS = {"1": [2, 3, 4, 6], "10": [2, 3, 4]}
_STEPS = {"checkpoints": [0, 30, 60, 100, 200, 400, 600]}
_SINKS = {"biases": [0.0, 2.0, 4.0, 8.0], "massive": 5.0}
# By name, a study and its settings.
STUDIES: dict[str, tuple[Any, Found]] = {
    "norms": (norms, _BOTH | {"sizes": [1, 3, 10], "steps": 200}),
    "wide_norms": (norms, _BOTH | {"sizes": [40], "steps": 400}),
    "widest_norms": (norms, _NORMS | {"sizes": [100], "steps": 800, "networks": 20}),
    "white_norms": (norms, _NORMS | {"sizes": [10, 40], "steps": 400, "samples": 0}),
    "products": (products, _EIGHT | {"depths": _DEPTHS, "networks": 40}),
    "relu_norms": (relu_norms, _EIGHT | {"networks": 40, "rays": [2, 3, 4]}),
    "pairs": (pairs, _EIGHT | {"inputs": [2, 4, 6, 8, 10], "models": 8, "draws": 100}),
    "transformers": (transformers, _EIGHT | _STEPS | _SINKS),
}


def key(study: Callable[..., Any], settings: Found) -> str:
    """A hash of the code of a study, of what it names here, in the chapter's studies and in modules
    of the package that are imported whole, and of its settings.

    >>> len(key(norms, {}))
    64
    """
    known, homes = vars(chapter) | globals(), {chapter.__name__, __name__}
    parts, todo = {}, [study.__name__]
    while todo:
        name = todo.pop()
        value = known.get(name)
        whole = inspect.ismodule(value) and value.__name__.startswith("exacthessian.")
        if whole or getattr(value, "__module__", None) in homes:
            tree = _tree(inspect.getsource(value))
            parts[name] = ast.dump(tree)
            names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
            todo += [] if whole else sorted(names - parts.keys() - set(todo))
        elif isinstance(value, int | float | str | tuple):
            parts[name] = repr(value)
    return hashlib.sha256(json.dumps([parts, settings], sort_keys=True).encode()).hexdigest()


def _tree(source: str) -> ast.Module:
    """The syntax tree of some source without its docstrings."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Module):
            node.body = node.body[ast.get_docstring(node) is not None :]
    return tree


def _short(result: Any) -> Any:
    """Numbers to six digits, tuples as lists."""
    if isinstance(result, dict):
        return {name: _short(value) for name, value in result.items()}
    if isinstance(result, list | tuple):
        return [_short(value) for value in result]
    return float(f"{result:.6g}") if isinstance(result, float) else result


def main(name: str, *changes: str) -> None:
    """Run one study and keep its numbers; with some settings changed, print them."""
    study, settings = STUDIES[name]
    changed = {k: json.loads(v) for k, _, v in (change.partition("=") for change in changes)}
    result = _short(study(**settings | changed))
    if changed:
        print(json.dumps(result))
        return
    file = FOLDER / "cracking_the_hessian.json"
    rows = json.loads(file.read_text(encoding="utf-8"))
    rows[name] = {"key": key(study, settings), "settings": settings, "result": result}
    lines = (f"{json.dumps(n)}: {json.dumps(row)}" for n, row in sorted(rows.items()))
    file.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
