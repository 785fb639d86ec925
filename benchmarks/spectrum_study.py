"""The Hessian spectrum of the small transformers of "Cracking the Hessian", at any size.

    python benchmarks/spectrum_study.py --width 64 --heads 4 --blocks 4 --context 128 --windows 256
    torchrun --standalone --nproc_per_node 2 benchmarks/spectrum_study.py ... (the same options)

It trains the network, says what a product will cost, finds the largest eigenvalues and the density
of the Hessian (or, with `--matrix gauss_newton`, of the Gauss–Newton matrix), and compares the cost
with what it said. The numbers have the same bits for any number of processes; with `--checkpoint`
a run that was killed goes on where it was.
"""

import argparse
import hashlib
import os
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from scipy.sparse.linalg import LinearOperator
from torch import Tensor
from tqdm import tqdm

from exacthessian import spectral_density, top_eigenvalues
from exacthessian.autograd.distributed import _cover, run_sharded
from exacthessian.spectrum import KRYLOV_SIZE
from exacthessian.studies.transformer import MIXERS, PRIMER, Transformer, encode

WORLD, RANK = (int(os.environ.get(name, least)) for name, least in (("WORLD_SIZE", 1), ("RANK", 0)))
VECTORS = 4.2  # of length P that a rank holds during a product: θ, v, gradients, result


class Network(torch.nn.Module):
    """A transformer and its weights."""

    def __init__(self, net: Transformer, weights: list[Tensor]) -> None:
        super().__init__()
        self.net, self.weights = net, torch.nn.ParameterList(weights)

    def forward(self, inputs: Tensor) -> Tensor:
        """The logits (count, context, 29)."""
        return self.net.logits(list(self.weights), inputs)


def loss_sum(logits: Tensor, targets: Tensor) -> Tensor:
    """The mean loss of a window's tokens, added over the windows."""
    total = torch.nn.functional.cross_entropy(
        logits.flatten(0, 1), targets.flatten(), reduction="sum"
    )
    return total / targets.shape[1]


def arguments() -> argparse.Namespace:
    """What the command line asks for."""
    parser = argparse.ArgumentParser(description="The spectrum of a small transformer.")
    sizes = {"width": 16, "heads": 2, "blocks": 2, "context": 32, "training": 600, "seed": 0}
    sizes |= {"windows": 64, "shards": 8, "top": 10, "steps": 40, "probes": 2}
    for name, default in sizes.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--mixer", choices=MIXERS, default="softmax")
    parser.add_argument("--matrix", choices=("hessian", "gauss_newton"), default="hessian")
    parser.add_argument("--text", type=Path, help="a text file instead of the book's primer")
    parser.add_argument("--checkpoint", type=Path, help="a file that keeps every product")
    parser.add_argument("--timeout", type=float, default=300.0, help="seconds for one product")
    return parser.parse_args()


def seconds_of(action: Callable[[], object], clock: Callable[[], float]) -> float:
    """The shortest of three runs, after one to warm up."""
    action()
    times = []
    for _ in range(3):
        started = clock()
        action()
        times.append(clock() - started)
    return min(times)


def traffic(size: int, shards: int) -> int:
    """Bytes that rank 0 sends and receives for one product: vectors out, sums of subtrees in."""
    edges = [shards * rank // WORLD for rank in range(WORLD + 1)]
    sums = [len(list(_cover(edges[n], edges[n + 1], 0, shards))) for n in range(1, WORLD)]
    return 8 * size * (WORLD - 1 + sum(sums))


def cost(
    module: Network, data: tuple[Tensor, Tensor], asked: argparse.Namespace
) -> dict[str, float]:
    """The cost model, from the time of one product on one shard and of one broadcast."""
    size, windows = module.net.size, -(-asked.windows // asked.shards)
    (x, y), weights = (part[:windows] for part in data), list(module.parameters())
    vector, rate = torch.ones(size, dtype=torch.float64), np.inf

    def product() -> None:
        slope = torch.autograd.grad(loss_sum(module(x), y), weights, create_graph=True)
        torch.autograd.grad(slope, weights, [torch.ones_like(weight) for weight in weights])

    shard = seconds_of(product, time.process_time)
    if WORLD > 1:
        broadcast = seconds_of(lambda: dist.broadcast(vector, 0), time.perf_counter)
        rate = 8 * size * (WORLD - 1) / broadcast
    moved = traffic(size, asked.shards)
    krylov = max(max(KRYLOV_SIZE, 3 * asked.top) + 3 * asked.top, asked.steps + 1)
    return {
        "processor seconds per product on rank 0": -(-asked.shards // WORLD) * shard,
        "seconds of traffic per product": moved / rate,
        "bytes of traffic per product": moved,
        "bytes on every rank": 8 * size * VECTORS,
        "bytes on rank 0, with its Krylov space": 8 * size * (VECTORS + krylov),
        "windows from which more ranks pay": moved / rate / (shard / windows * (1 - 1 / WORLD))
        if WORLD > 1
        else np.nan,
    }


def main() -> None:
    """Train, estimate, measure and compare."""
    asked = arguments()
    torch.set_num_threads(1)
    if not WORLD <= asked.shards <= asked.windows:
        bounds = f"{WORLD} ranks and at most the {asked.windows} windows"
        sys.exit(f"--shards must be at least the {bounds}, got {asked.shards}")
    if WORLD > 1:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
        dist.init_process_group("gloo")
    say = print if RANK == 0 else lambda *_: None
    sizes = {name: getattr(asked, name) for name in ("width", "heads", "blocks", "context")}
    net, rng = Transformer(asked.mixer, **sizes), np.random.default_rng(asked.seed)
    codes = encode(asked.text.read_text(encoding="utf-8") if asked.text else PRIMER)
    module = Network(net, net.train(net.start(rng), codes, [asked.training], rng)[-1])
    data = net.windows(codes, asked.windows, rng)
    say(f"{asked.mixer}, P = {net.size}, {asked.windows} windows of {asked.context} characters,")
    say(f"{asked.shards} shards, {WORLD} processes, {asked.training} steps of training")
    expected = cost(module, data, asked)
    for name, value in expected.items():
        if not np.isnan(value):
            say(f"  expected {name}: {value:.3g}")
    idle, spent = peak(), []

    def work(operator: LinearOperator) -> tuple[np.ndarray, ...]:
        bar = tqdm(unit="product", total=asked.steps * asked.probes + 4 * asked.top)

        def matvec(vector: np.ndarray) -> np.ndarray:
            started = time.process_time()
            image = operator.matvec(vector)
            spent.append(time.process_time() - started)
            bar.update()
            return image

        counted = LinearOperator(operator.shape, matvec=matvec, dtype=np.float64)
        top = top_eigenvalues(counted, asked.top, np.random.default_rng(0))
        density = spectral_density(counted, np.random.default_rng(1), asked.steps, asked.probes)
        bar.close()
        return top.values, top.residuals, density.nodes, density.weights

    found = run_sharded(
        *(work, module, loss_sum, lambda a, b: (data[0][a:b], data[1][a:b]), asked.windows),
        matrix=asked.matrix,
        shards=asked.shards,
        timeout=asked.timeout,
        checkpoint=asked.checkpoint,
    )
    if found is None:
        return
    values, residuals, nodes, weights = found
    order = np.argsort(nodes)
    mass = np.cumsum(weights[order])
    quantiles = nodes[order][np.searchsorted(mass, [0.001, 0.01, 0.1, 0.5, 0.9, 0.99, 0.999])]
    say("largest:", *(f"{value:.6g}" for value in values))
    say(f"largest residual of these: {residuals.max():.1e}")
    say("0.1, 1, 10, 50, 90, 99, 99.9 % of the density lie below:")
    say("  ", *(f"{value:.4g}" for value in quantiles))
    say("bits:", hashlib.sha256(b"".join(part.tobytes() for part in found)).hexdigest())
    typical = float(np.median(spent))
    guess = expected["processor seconds per product on rank 0"]
    say(f"  {len(spent)} products, {typical:.3g} s each: {typical / guess:.2f} × the expected")
    growth, bound = peak() - idle, expected["bytes on rank 0, with its Krylov space"]
    say(f"  memory grew by {growth:.3g} bytes on rank 0: {growth / bound:.2f} × the expected")


def peak() -> int:
    """The most memory that this process has had, in bytes."""
    unit = 1 if sys.platform == "darwin" else 1024
    return unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


if __name__ == "__main__":
    main()
