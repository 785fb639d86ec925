"""How fast the exact routes are, as ratios measured in one run, on one thread.

Methods are interleaved and medians are taken, because machines are noisy; only ratios are
meaningful. Run it with `make bench`.
"""

import statistics
import time
import tracemalloc
from collections.abc import Callable
from itertools import pairwise

import numpy as np
import torch
from torch.autograd.functional import hessian as functional_hessian

from exacthessian import AlignedChain, LinearChain
from exacthessian.autograd import dense_hessian, loss_of

ROUNDS = 9
NETWORKS = [(10, 20, 16), (10, 20, 20, 16), (20,) * 4, (30,) * 4, (40,) * 4]
AUTOGRAD_UP_TO = 2700


def medians(methods: dict[str, Callable[[], object]], rounds: int = ROUNDS) -> dict[str, float]:
    """The median time of each method in seconds, measured in turns."""
    times: dict[str, list[float]] = {name: [] for name in methods}
    for method in methods.values():
        method()
    for _ in range(rounds):
        for name, method in methods.items():
            started = time.perf_counter()
            method()
            times[name].append(time.perf_counter() - started)
    return {name: statistics.median(seconds) for name, seconds in times.items()}


def random_chain(widths: tuple[int, ...], rng: np.random.Generator) -> LinearChain:
    """A chain with Gaussian weights of order one and white data."""
    weights = [rng.standard_normal((out, into)) / np.sqrt(into) for into, out in pairwise(widths)]
    return LinearChain(weights, np.eye(widths[0]), rng.standard_normal((widths[-1], widths[0])))


def assembly(rng: np.random.Generator) -> None:
    """The dense Hessian, against writing the matrix and against automatic differentiation."""
    print("dense Hessian, reused buffer        P   × write floor   × faster than autograd")
    for widths in NETWORKS:
        chain = random_chain(widths, rng)
        buffer = np.empty((chain.size, chain.size))
        methods: dict[str, Callable[[], object]] = {
            "write": lambda b=buffer: b.fill(1.0),
            "closed form": lambda c=chain, b=buffer: c.hessian(out=b),
        }
        if chain.size <= AUTOGRAD_UP_TO:
            loss, given = loss_of(chain)
            methods["vmap"] = lambda f=loss, w=given: dense_hessian(f, w)
            methods["functional"] = lambda f=loss, w=given: functional_hessian(
                lambda *layers: f(list(layers)), tuple(w), vectorize=True
            )
        seconds = medians(methods)
        exact = seconds["closed form"]
        best = min((seconds[name] for name in ("vmap", "functional") if name in seconds), default=0)
        faster = f"{best / exact:20.1f}" if best else " " * 20
        print(f"{widths!s:28} {chain.size:8} {exact / seconds['write']:15.2f} {faster}", flush=True)


def spectra(rng: np.random.Generator) -> None:
    """The whole spectrum of an aligned chain, against dense eigensolvers."""
    matrix = rng.standard_normal((1500, 1500))
    matrix = matrix + matrix.T
    wide = AlignedChain.balanced((256,) * 5, rng.uniform(0.5, 1.5, 256), target=np.ones(256))
    seconds = medians(
        {"blocks": wide.spectrum, "eigvalsh 1500": lambda: np.linalg.eigvalsh(matrix)}, rounds=3
    )
    ratio = seconds["blocks"] / seconds["eigvalsh 1500"]
    tracemalloc.start()
    wide.spectrum()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    print(f"all {wide.size} eigenvalues, width 256, depth 4:", end=" ")
    print(f"{ratio:.2f} × eigvalsh of one 1500×1500 matrix, peak memory {peak / 1e6:.0f} MB")

    square = AlignedChain.balanced((40,) * 4, rng.uniform(0.5, 1.5, 40), target=np.ones(40))
    dense = square.to_chain().hessian()
    blocks = medians({"blocks": square.spectrum})["blocks"]
    started = time.perf_counter()
    np.linalg.eigvalsh(dense)
    ratio = (time.perf_counter() - started) / blocks
    print(f"spectrum at P = {square.size}: {ratio:.0f} × faster than dense eigvalsh")


if __name__ == "__main__":
    torch.set_num_threads(1)
    generator = np.random.default_rng(0)
    assembly(generator)
    spectra(generator)
