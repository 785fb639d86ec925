"""How fast the exact routes are: one table of ratios, each measured in one run, on one thread.

Methods take turns and medians of processor time are compared, because machines are noisy; only
ratios are meaningful. `make bench` prints the table and writes it to benchmarks/results.md. Rows of
a library that is not installed are left out.
"""

import os
import platform
import statistics
import time
from collections.abc import Callable
from functools import partial
from importlib.metadata import version
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.sparse.linalg import eigsh
from torch.autograd.functional import hessian as functional_hessian

from exacthessian import AlignedChain, LinearChain, spectral_density, top_eigenvalues
from exacthessian.autograd import dense_hessian, loss_of
from exacthessian.phantoms import phantom

ROUNDS = 7
RESULTS = Path(__file__).with_name("results.md")
Methods = dict[str, Callable[[], object]]


def medians(methods: Methods, rounds: int = ROUNDS) -> dict[str, float]:
    """The median processor time of each method in seconds, measured in turns."""
    times: dict[str, list[float]] = {name: [] for name in methods}
    for method in methods.values():
        method()
    for _ in range(rounds):
        for name, method in methods.items():
            started = time.process_time()
            method()
            times[name].append(time.process_time() - started)
    return {name: statistics.median(seconds) for name, seconds in times.items()}


def random_chain(widths: tuple[int, ...], rng: np.random.Generator) -> LinearChain:
    """A chain with Gaussian weights of order one and white data."""
    weights = [rng.standard_normal((out, into)) / np.sqrt(into) for into, out in pairwise(widths)]
    return LinearChain(weights, np.eye(widths[0]), rng.standard_normal((widths[-1], widths[0])))


def jax_routes(chain: LinearChain) -> Methods:
    """The dense Hessian and a product in jax, compiled, or nothing."""
    try:
        import jax
    except ImportError:
        return {}
    jax.config.update("jax_enable_x64", True)
    second, cross = (jax.numpy.asarray(part) for part in (chain.sigma_xx, chain.sigma_yx))

    def loss(weights: Any) -> Any:
        whole = weights[0]
        for weight in weights[1:]:
            whole = weight @ whole
        return (whole * (whole @ second / 2 - cross)).sum()

    weights = [jax.numpy.asarray(weight) for weight in chain.weights]
    direction = [jax.numpy.ones_like(weight) for weight in weights]
    dense = jax.jit(jax.hessian(loss))
    product = jax.jit(lambda w, v: jax.jvp(jax.grad(loss), (w,), (v,))[1])
    return {
        "jax.hessian (jit)": lambda: jax.block_until_ready(dense(weights)),
        "jax product (jit)": lambda: jax.block_until_ready(product(weights, direction)),
    }


def assembly(
    widths: tuple[int, ...], rng: np.random.Generator, peers: bool
) -> list[tuple[str, float]]:
    """The dense Hessian against writing the matrix and, for small sizes, the other ways to it."""
    chain = random_chain(widths, rng)
    buffer = np.empty((chain.size, chain.size))
    methods: Methods = {
        "write": partial(buffer.fill, 1.0),
        "ours": lambda: chain.hessian(out=buffer),
    }
    if peers:
        loss, given = loss_of(chain)
        methods["torch.func, vmap"] = lambda: dense_hessian(loss, given)
        methods["torch.autograd.functional"] = lambda: functional_hessian(
            lambda *layers: loss(list(layers)), tuple(given), vectorize=True
        )
        methods |= {n: m for n, m in jax_routes(chain).items() if "hessian" in n}
    seconds = medians(methods)
    name = "-".join(map(str, widths)) + f", P = {chain.size}"
    rows = [
        (f"assembly {name}: × the time to write the matrix", seconds["ours"] / seconds["write"])
    ]
    rows += [
        (f"assembly {name}: times faster than {other}", seconds[other] / seconds["ours"])
        for other in methods
        if other not in ("ours", "write")
    ]
    return rows


def products(widths: tuple[int, ...], rng: np.random.Generator) -> list[tuple[str, float]]:
    """One product against automatic differentiation with a retained graph."""
    chain = random_chain(widths, rng)
    loss, given = loss_of(chain)
    weights = [weight.requires_grad_() for weight in given]
    gradient = torch.autograd.grad(loss(weights), weights, create_graph=True)
    direction = [torch.ones_like(weight) for weight in weights]
    v, operator = np.ones(chain.size), chain.operator()
    methods: Methods = {
        "ours": lambda: [operator.matvec(v) for _ in range(20)],
        "torch, retained graph": lambda: [
            torch.autograd.grad(gradient, weights, direction, retain_graph=True) for _ in range(20)
        ],
    }
    for name, method in jax_routes(chain).items():
        if "product" in name:
            methods[name] = lambda method=method: [method() for _ in range(20)]
    seconds = medians(methods)
    name = f"product {'-'.join(map(str, widths))}, P = {chain.size}"
    return [
        (f"{name}: times faster than {other}", seconds[other] / seconds["ours"])
        for other in list(methods)[1:]
    ]


def spectra(rng: np.random.Generator) -> list[tuple[str, float]]:
    """All eigenvalues of an aligned chain against the dense solver."""
    square = AlignedChain.balanced((32,) * 4, rng.uniform(0.5, 1.5, 32), target=np.ones(32))
    dense = square.to_chain().hessian()
    seconds = medians({"ours": square.spectrum}, 5)
    started = time.process_time()
    np.linalg.eigvalsh(dense)
    ratio = (time.process_time() - started) / seconds["ours"]
    return [(f"aligned spectrum, P = {square.size}: times faster than eigvalsh", ratio)]


def estimates() -> list[tuple[str, float]]:
    """The ten largest and the density of a phantom, against ARPACK and in products."""
    p = phantom("outliers", 30_000, seed=0)
    chain = LinearChain(
        [weight.detach().numpy() for weight in p.model.parameters()],
        p.inputs.T @ p.inputs / len(p.inputs),
        p.targets.T @ p.inputs / len(p.inputs),
    )
    operator, start = chain.operator(), np.random.default_rng(0).standard_normal(p.size)
    seconds = medians(
        {
            "ours": lambda: top_eigenvalues(operator, 10, np.random.default_rng(0)),
            "eigsh": lambda: eigsh(operator, k=10, which="LA", v0=start),
            "density": lambda: spectral_density(operator, np.random.default_rng(0), 40, 1),
            "products": lambda: [operator.matvec(start) for _ in range(40)],
        },
        5,
    )
    return [
        (f"top 10, outliers, P = {p.size}: × scipy eigsh", seconds["ours"] / seconds["eigsh"]),
        (
            f"density, 40 steps, P = {p.size}: × its products",
            seconds["density"] / seconds["products"],
        ),
    ]


def exponents(rng: np.random.Generator) -> list[tuple[str, float]]:
    """How the aligned spectrum grows with the width d and the depth L, fitted in logarithms."""

    def slope(values: list[int], chains: list[AlignedChain]) -> float:
        methods: Methods = {str(v): c.spectrum for v, c in zip(values, chains, strict=True)}
        seconds = list(medians(methods, 5).values())
        return float(np.polyfit(np.log(values), np.log(seconds), 1)[0])

    def chain(width: int, depth: int) -> AlignedChain:
        lam = rng.uniform(0.5, 1.5, width)
        return AlignedChain.balanced((width,) * (depth + 1), lam, target=np.ones(width))

    widths, depths = [32, 64, 128], [2, 4, 8]
    return [
        (
            "aligned spectrum: exponent in the width (expected 2)",
            slope(widths, [chain(d, 3) for d in widths]),
        ),
        (
            "aligned spectrum: exponent in the depth (expected at most 3)",
            slope(depths, [chain(32, L) for L in depths]),
        ),
    ]


def main() -> None:
    """Measure, print and write the table."""
    torch.set_num_threads(1)
    rng = np.random.default_rng(0)
    rows = [
        *assembly((10, 20, 16), rng, peers=True),
        *assembly((10, 20, 20, 16), rng, peers=True),
        *assembly((31, 17, 45, 26), rng, peers=False),
        *assembly((12, 60, 9, 40), rng, peers=False),
        *assembly((40,) * 4, rng, peers=False),
        *assembly((50, 35, 60, 22), rng, peers=False),
        *products((40,) * 4, rng),
        *spectra(rng),
        *estimates(),
        *exponents(rng),
    ]
    names = [name for name in ("numpy", "scipy", "torch", "jax") if find_spec(name)]
    lines = [
        "# Ratios",
        "",
        "Written by `make bench`: medians of processor time, methods in turns, one thread.",
        f"Python {platform.python_version()}, "
        + ", ".join(f"{name} {version(name)}" for name in names)
        + f", {platform.machine()};"
        + f" load average {os.getloadavg()[0]:.0f} on {os.cpu_count()} cores.",
        "",
        "| what | ratio |",
        "| --- | ---: |",
        *(f"| {name} | {ratio:.3g} |" for name, ratio in rows),
    ]
    RESULTS.write_text("\n".join(lines) + "\n")
    print(RESULTS.read_text())


if __name__ == "__main__":
    main()
