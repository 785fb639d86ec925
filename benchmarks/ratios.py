"""How fast the exact routes are: one table of ratios, each measured in one run, on one thread.

Methods take turns and medians of processor time are compared, because machines are noisy; only
ratios are meaningful. `make bench` prints the table and writes it to benchmarks/results.md. Rows of
a library that is not installed are left out, and the command says so.
"""

import json
import os
import platform
import re
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from importlib.metadata import version
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any

os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")

import numpy as np
import torch
from scipy.sparse.linalg import eigsh
from torch.autograd.functional import hessian as functional_hessian

from exacthessian import AlignedChain, LinearChain, spectral_density, top_eigenvalues
from exacthessian.autograd import dense_hessian, loss_of
from exacthessian.phantoms import KINDS, Phantom, phantom

ROUNDS = 7
HERE = Path(__file__).parent
Methods = dict[str, Callable[[], object]]
Row = tuple[str, float, str]  # what, ratio, what was aimed at


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


def named(what: str, chain: LinearChain) -> str:
    """What is measured, with widths and size."""
    return f"{what}, {'-'.join(map(str, chain.widths))}, P = {chain.size}"


def jax_routes(chain: LinearChain) -> Methods:
    """The dense Hessian and a product in jax, compiled, or nothing."""
    if not find_spec("jax"):
        return {}
    import jax

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
        "jax.hessian, jit": lambda: jax.block_until_ready(dense(weights)),
        "jax product, jit": lambda: jax.block_until_ready(product(weights, direction)),
    }


def assembly(widths: tuple[int, ...], rng: np.random.Generator, target: str = "") -> Iterator[Row]:
    """The dense Hessian, into memory that is there, against writing such a matrix."""
    chain = random_chain(widths, rng)
    room = np.empty((chain.size, chain.size))
    edges = np.cumsum([0, *(weight.size for weight in chain.weights)])
    spans = [slice(*pair) for pair in pairwise(edges)]
    methods: Methods = {
        "fill": partial(room.fill, 1.0),
        "blocks": lambda: [room[here, there].fill(1.0) for here in spans for there in spans],
        "ours": partial(chain.hessian, room),
    }
    seconds = medians(methods, 15)
    what = named("assembly", chain)
    if chain.depth > 1:
        ratio = seconds["blocks"] / seconds["fill"]
        yield f"{what}: writing block by block × the time to write the matrix", ratio, ""
    yield f"{what}: × the time to write the matrix", seconds["ours"] / seconds["fill"], target


def dense_peers(widths: tuple[int, ...], rng: np.random.Generator) -> Iterator[Row]:
    """The dense Hessian against the other ways to it."""
    chain = random_chain(widths, rng)
    loss, given = loss_of(chain)

    def many(*layers: torch.Tensor) -> torch.Tensor:
        return loss(list(layers))

    everything = tuple(range(chain.depth))
    methods: Methods = {
        "our oracle": lambda: dense_hessian(loss, given),
        "torch.func.hessian": lambda: torch.func.hessian(many, everything)(*given),
        "torch.autograd.functional": lambda: functional_hessian(many, tuple(given), vectorize=True),
    }
    methods |= {name: way for name, way in jax_routes(chain).items() if "hessian" in name}
    room = np.empty((chain.size, chain.size))
    seconds = medians(methods | {"ours": lambda: chain.hessian(out=room)}, 5)
    for name in methods:
        aim = "" if name == "our oracle" or chain.size < 700 else "≥ 5" if "jax" in name else "≥ 20"
        ratio = seconds[name] / seconds["ours"]
        yield f"{named('assembly', chain)}: times faster than {name}", ratio, aim


def products(widths: tuple[int, ...], rng: np.random.Generator) -> Iterator[Row]:
    """One product against automatic differentiation, and against its own matrix products."""
    chain = random_chain(widths, rng)
    loss, given = loss_of(chain)
    weights = [weight.requires_grad_() for weight in given]
    gradient = torch.autograd.grad(loss(weights), weights, create_graph=True)
    direction = [torch.ones_like(weight) for weight in weights]
    v, operator = np.ones(chain.size), chain.operator()
    # Six products for each layer but the first, which meets identities, and one with Σxx.
    shapes = [(out, into, widths[0]) for into, out in pairwise(widths[1:])] * 6
    shapes.append((widths[-1], widths[0], widths[0]))
    factors = [(np.ones((m, k)), np.ones((k, n)), np.empty((m, n))) for m, k, n in shapes]
    methods: Methods = {
        "gemm": lambda: [np.dot(left, right, out=out) for left, right, out in factors],
        "torch, retained graph": lambda: torch.autograd.grad(
            gradient, weights, direction, retain_graph=True
        ),
    }
    methods |= {name: way for name, way in jax_routes(chain).items() if "product" in name}
    methods["ours"] = lambda: operator.matvec(v)
    twenty = {name: lambda way=way: [way() for _ in range(20)] for name, way in methods.items()}
    seconds = medians(twenty, 15)
    what = named("product", chain)
    yield f"{what}: × its matrix products", seconds["ours"] / seconds.pop("gemm"), ""
    for name in list(seconds)[:-1]:
        aim = "≥ 2" if "jax" in name else "≥ 6"
        yield f"{what}: times faster than {name}", seconds[name] / seconds["ours"], aim


def spectra(width: int, rng: np.random.Generator) -> Iterator[Row]:
    """All eigenvalues of an aligned chain against the dense solver."""
    square = AlignedChain.balanced(
        (width,) * 4, rng.uniform(0.5, 1.5, width), target=np.ones(width)
    )
    dense = square.to_chain().hessian()
    seconds = medians({"ours": square.spectrum}, 21)["ours"]
    started = time.process_time()
    np.linalg.eigvalsh(dense)
    ratio = (time.process_time() - started) / seconds
    yield f"aligned spectrum, P = {square.size}: times faster than eigvalsh", ratio, "≥ 1500"


def closed_form(p: Phantom) -> LinearChain:
    """The chain that a phantom is."""
    return LinearChain(
        [weight.detach().numpy() for weight in p.model.parameters()],
        p.inputs.T @ p.inputs / len(p.inputs),
        p.targets.T @ p.inputs / len(p.inputs),
    )


def estimates() -> Iterator[Row]:
    """The ten largest and the density of a phantom, against others and in products."""
    p = phantom("outliers", 30_000, seed=0)
    operator, start = closed_form(p).operator(), np.random.default_rng(0).standard_normal(p.size)
    methods: Methods = {
        "top": lambda: top_eigenvalues(operator, 10, np.random.default_rng(0)),
        "scipy eigsh": lambda: eigsh(operator, k=10, which="LA", v0=start),
        "density": lambda: spectral_density(operator, np.random.default_rng(0), 40, 1),
        "products": lambda: [operator.matvec(start) for _ in range(40)],
    }
    if find_spec("matfree"):
        methods["matfree, 60 steps, jit"] = matfree_lanczos(p, start)
    seconds = medians(methods, 5)
    for name in ("scipy eigsh", "matfree, 60 steps, jit"):
        if name in seconds:
            yield f"top 10, outliers, P = {p.size}: × {name}", seconds["top"] / seconds[name], ""
    ratio = seconds["density"] / seconds["products"]
    yield f"density, 40 steps, P = {p.size}: × its products", ratio, ""


def matfree_lanczos(p: Phantom, start: np.ndarray) -> Callable[[], object]:
    """60 steps of matfree on the Hessian of a phantom by jax."""
    import jax
    from matfree import decomp, eig

    jax.config.update("jax_enable_x64", True)
    x, y = (jax.numpy.asarray(part.numpy()) for part in p.data)
    theta, restore = jax.flatten_util.ravel_pytree(
        [jax.numpy.asarray(weight.detach().numpy()) for weight in p.model.parameters()]
    )

    def loss(theta: Any) -> Any:
        w = restore(theta)
        return ((x @ w[0].T @ w[1].T @ w[2].T - y) ** 2).sum() / (2 * len(x))

    def product(v: Any) -> Any:
        return jax.jvp(jax.grad(loss), (theta,), (v,))[1]

    solve = eig.eigh_partial(decomp.tridiag_sym(60, reortho="full"))
    compiled = jax.jit(lambda v: solve(product, v))
    begin = jax.numpy.asarray(start)
    return lambda: jax.block_until_ready(compiled(begin))


def curvlinops_rows() -> Iterator[Row]:
    """Product and density of a torch model on its samples, against curvlinops."""
    if not find_spec("curvlinops"):
        return
    warnings.simplefilter("ignore")
    from curvlinops import HessianLinearOperator
    from curvlinops.papyan2020traces.spectrum import lanczos_approximate_spectrum

    p = phantom("outliers", 1300, seed=0)
    chain, v = closed_form(p).operator(), np.ones(p.size)
    theirs = HessianLinearOperator(
        p.model,
        torch.nn.MSELoss(reduction="sum"),
        list(p.model.parameters()),
        [p.data],
        check_deterministic=False,
    )
    seconds = medians(
        {
            "ours": lambda: [chain.matvec(v) for _ in range(20)],
            "curvlinops": lambda: [theirs @ torch.from_numpy(v) for _ in range(20)],
        }
    )
    yield (
        f"product, outliers, P = {p.size}: times faster than curvlinops",
        seconds["curvlinops"] / seconds["ours"],
        "",
    )
    scipy = theirs.to_scipy()
    seconds = medians(
        {
            "ours": lambda: spectral_density(scipy, np.random.default_rng(0), 40, 1),
            "curvlinops": lambda: lanczos_approximate_spectrum(theirs, 40, num_repeats=1),
        },
        1,
    )
    yield (
        f"density, 40 steps, P = {p.size}, same operator: times faster than curvlinops",
        seconds["curvlinops"] / seconds["ours"],
        "",
    )


def exponents(rng: np.random.Generator) -> Iterator[Row]:
    """How costs grow with the size P, the width d and the depth L, fitted in logarithms."""

    def slope(values: list[int], methods: list[Callable[[], object]]) -> float:
        named_methods = {str(v): way for v, way in zip(values, methods, strict=True)}
        seconds = list(medians(named_methods, 5).values())
        return float(np.polyfit(np.log(values), np.log(seconds), 1)[0])

    def aligned(width: int, depth: int) -> Callable[[], object]:
        lam = rng.uniform(0.5, 1.5, width)
        return AlignedChain.balanced((width,) * (depth + 1), lam, target=np.ones(width)).spectrum

    def dense(width: int, depth: int) -> Callable[[], object]:
        chain = random_chain((width,) * (depth + 1), rng)
        return partial(chain.hessian, np.empty((chain.size, chain.size)))

    def multiplied(width: int, depth: int) -> Callable[[], object]:
        chain = random_chain((width,) * (depth + 1), rng)
        return partial(chain.operator().matvec, np.ones(chain.size))

    widths, depths = [24, 34, 48], [2, 4, 8]
    sizes = [3 * d * d for d in widths]
    yield "assembly: exponent in P", slope(sizes, [dense(d, 3) for d in widths]), "expected 2"
    yield "assembly: exponent in L", slope(depths, [dense(20, L) for L in depths]), "expected 2"
    wide = [80, 160, 320]
    yield "product: exponent in d", slope(wide, [multiplied(d, 3) for d in wide]), "expected 3"
    deep = [4, 8, 16]
    yield "product: exponent in L", slope(deep, [multiplied(60, L) for L in deep]), "expected 1"
    wide = [32, 64, 128]
    yield (
        "aligned spectrum: exponent in d",
        slope(wide, [aligned(d, 3) for d in wide]),
        "expected 2",
    )
    rising = slope(depths, [aligned(32, L) for L in depths])
    yield "aligned spectrum: exponent in L", rising, "expected 1 to 3"


def two_processes() -> Iterator[Row]:
    """The processor time of rank 0 for one product, with one process and with two."""
    script = [str(HERE / "spectrum_study.py"), "--training", "0", "--probes", "1"]
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
    seconds = []
    for prefix in ([], launcher):
        command = [sys.executable, *prefix, *script]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        found = re.search(r"products, (\S+) s each", done.stdout)
        assert found is not None
        seconds.append(float(found[1]))
    what = "product of a transformer, P = 7584, 64 windows: one process / each of two"
    yield what, seconds[0] / seconds[1], "expected 2"


def phantom_costs() -> Iterator[str]:
    """A row for every kind at ten million parameters, each from a process of its own."""
    yield "| kind | P | made in, s | peak, GB | spectrum, s | its entries | worst residual |"
    yield "| --- | ---: | ---: | ---: | ---: | ---: | ---: |"
    for kind in KINDS:
        command = [sys.executable, str(HERE / "phantom_cost.py"), kind, str(10**7)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        c = json.loads(done.stdout)
        yield (
            f"| {kind} | {c['P']} | {c['seconds']:.1f} | {c['gigabytes']:.2f} |"
            f" {c['spectrum']:.2g} | {c['entries']} | {c['residual']:.1e} |"
        )


def met(ratio: float, aim: str) -> str:
    """Whether a target is reached."""
    if not aim or aim.startswith("expected"):
        return ""
    sign, number = aim.split()
    reached = ratio <= float(number) if sign == "≤" else ratio >= float(number)
    return "yes" if reached else "no"


def main() -> None:
    """Measure, print and write the table."""
    torch.set_num_threads(1)
    rng = np.random.default_rng(0)
    peers = ("jax", "curvlinops-for-pytorch", "matfree")
    absent = [name for name in peers if not find_spec(name.split("-")[0])]
    if absent:
        print(f"without {', '.join(absent)}: to compare, pip install 'exacthessian[torch,peers]'")
    rows = [
        *assembly((31, 17, 45, 26), rng, "≤ 2.5"),
        *assembly((26, 40, 21, 30), rng, "≤ 2.5"),
        *assembly((40,) * 4, rng, "≤ 1.5"),
        *assembly((50, 35, 60, 22), rng, "≤ 1.5"),
        *assembly((70, 70), rng, "≤ 1.5"),
        *dense_peers((10, 20, 16), rng),
        *dense_peers((10, 20, 20, 16), rng),
        *dense_peers((24,) * 4, rng),
        *products((10, 20, 16), rng),
        *products((20,) * 4, rng),
        *products((40,) * 4, rng),
        *spectra(32, rng),
        *spectra(40, rng),
        *estimates(),
        *curvlinops_rows(),
        *exponents(rng),
        *two_processes(),
    ]
    names = ["numpy", "scipy", "torch", *(name for name in peers if name not in absent)]
    lines = [
        "# Ratios",
        "",
        "Written by `make bench`: medians of processor time, methods in turns, one thread.",
        f"Python {platform.python_version()}, "
        + ", ".join(f"{name} {version(name)}" for name in names)
        + f", {platform.machine()};"
        + f" load average {os.getloadavg()[0]:.0f} on {os.cpu_count()} cores.",
        "",
        "| what | ratio | aim | met |",
        "| --- | ---: | --- | --- |",
        *(f"| {what} | {ratio:.3g} | {aim} | {met(ratio, aim)} |" for what, ratio, aim in rows),
        "",
        NOTES,
        "",
        PHANTOMS,
        "",
        *phantom_costs(),
    ]
    (HERE / "results.md").write_text("\n".join(lines) + "\n")
    print((HERE / "results.md").read_text())


NOTES = """\
What stands in the way where an aim is not met:

- *Assembly.* Memory is written fastest in one unbroken run of whole cache lines, as the floor is.
  A constant written block by block already takes the multiple in the table. Where all layers have
  one shape, rows are written whole, and widths that are multiples of 8 come nearest to the floor;
  other layers are written block by block. Tried and not faster: one `np.multiply` and `np.add` over
  long rows from tables; products of inner dimension one. A buffer for whole rows of layers of
  different shape gains a tenth to a quarter for twice the code.
- *Product.* It is made of 6(L − 1) + 1 matrix products, whose time alone is in the table. Automatic
  differentiation does about as many, so that the ratio to it falls with the width and is largest
  for small networks."""

PHANTOMS = """\
Phantoms of ten million parameters. The aim: made in 20 s of processor time and 1 GB with torch, the
grouped spectrum in 1 s, and known eigenpairs right to 1e-14 of the norm. Nothing can be grouped
in the kind *distinct*, which has one entry for each parameter; *exact32* comes in powers of 4."""


if __name__ == "__main__":
    main()
