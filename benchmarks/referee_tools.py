"""Referee the promises of book/tools/promises.toml with spectral phantoms, and record the numbers.

Run it where the tools are installed (`pip install exacthessian[torch,peers]`):

    python benchmarks/referee_tools.py

Every promise has a function here, found by its id, that returns one number, the measure of its row.
The record, src/exacthessian/data/tools.json, keeps what it had for a tool that is not installed.
"""

# ruff: noqa: D103 (the rows of promises.toml say what each check is)

import json
import sys
import tomllib
import warnings
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, eigsh, lobpcg
from scipy.stats import wasserstein_distance

from exacthessian import Spectrum, spectral_density, top_eigenvalues
from exacthessian.autograd import hessian_operator
from exacthessian.autograd.distributed import run_sharded
from exacthessian.phantoms import Phantom, phantom

ROOT = Path(__file__).parents[1]
RECORD = ROOT / "src/exacthessian/data/tools.json"
FAMILY = ("outliers", "degenerate", "indefinite", "negative", "sparse")
SIMPLE = ("outliers", "gap", "indefinite", "negative", "sparse", "orders")
TRACED = ("outliers", "indefinite", "negative")
NINE = (*FAMILY, "gap", "orders", "distinct", "two-valued")
FRESH = 2026  # the seed of checks whose criterion is statistical: used for the recorded run only
RUNS = 1000  # of a trace estimate; the ratio of two spreads is then known to 1/√2000, 2.2 %
CHECKS: dict[str, Callable[[], float]] = {}
spent = 0  # products of a Hessian and a vector, as far as they can be counted


def check(function: Callable[[], float]) -> Callable[[], float]:
    """Enter the check of the promise `tool/what`, from the name `tool_what`."""
    CHECKS[function.__name__.replace("_", "/", 1).replace("_", "-")] = function
    return function


def family(
    kinds: tuple[str, ...] = FAMILY, parameters: int = 1300, seed: int = 0
) -> Iterator[Phantom]:
    """The phantoms of some kinds."""
    return (phantom(kind, parameters, seed) for kind in kinds)


def counted(matvec: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The same product, and a count of its columns."""

    def product(v: Any) -> Any:
        global spent
        spent += v.shape[1] if getattr(v, "ndim", 1) > 1 else 1
        return matvec(v)

    return product


def ours(p: Phantom) -> LinearOperator:
    """Our own operator, counted."""
    x, y = p.data
    weights = [weight.detach() for weight in p.model.parameters()]
    plain = hessian_operator(lambda w: p.loss(x @ w[0].T @ w[1].T @ w[2].T, y), weights)
    both = {"matvec": counted(plain.matvec), "matmat": counted(plain.matmat)}
    return LinearOperator(plain.shape, dtype=np.float64, **both)


def dense_of(p: Phantom) -> np.ndarray:
    """The Hessian itself; its products are nobody's."""
    global spent
    before, matrix = spent, ours(p) @ np.eye(p.size)
    spent = before
    return matrix


def top(spectrum: Spectrum, k: int) -> np.ndarray:
    """The k largest eigenvalues."""
    return spectrum.expand()[:k]


def split(p: Phantom, v: np.ndarray) -> list[torch.Tensor]:
    """A vector (P,) in the shapes of the parameters."""
    weights = list(p.model.parameters())
    parts = torch.from_numpy(v).split([weight.numel() for weight in weights])
    return [part.reshape(weight.shape) for part, weight in zip(parts, weights, strict=True)]


def flat(parts: Any) -> np.ndarray:
    """Tensors as one vector."""
    return torch.cat([part.detach().reshape(-1) for part in parts]).numpy()


@check
def ours_product() -> float:
    return max(p.residual(ours(p).matvec) for p in family())


@check
def ours_sharded() -> float:
    def residual(p: Phantom) -> float:
        x, y = p.data
        found = run_sharded(
            lambda H: p.residual(H.matvec),
            p.model,
            lambda z, y: ((z - y) ** 2).sum() / 2,
            lambda a, b: (x[a:b], y[a:b]),
            len(x),
            shards=7,
        )
        assert found is not None
        return found

    return max(map(residual, family()))


@check
def ours_top() -> float:
    def error(p: Phantom) -> float:
        found = top_eigenvalues(ours(p), 10, np.random.default_rng(0)).values
        return np.abs(found - top(p.spectrum, 10)).max() / p.spectrum.norm

    return max(map(error, family(NINE)))


@check
def ours_copies() -> float:
    p = phantom("degenerate", 1300, seed=0)
    found = top_eigenvalues(ours(p), 110, np.random.default_rng(0)).values
    return 100 - int(np.sum(np.abs(found - 3) < 1e-9))


@check
def ours_density() -> float:
    def error(p: Phantom) -> float:
        found = spectral_density(ours(p), np.random.default_rng(0), steps=40, probes=10)
        exact = p.spectrum
        far = wasserstein_distance(
            found.nodes, exact.values, found.weights, exact.multiplicities / exact.size
        )
        return 100 * far / np.ptp(exact.values)

    return max(map(error, family(NINE)))


@check
def torch_hessian() -> float:
    p = phantom("outliers", 800, seed=0)
    (x, y), weights = p.data, tuple(weight.detach() for weight in p.model.parameters())
    blocks = torch.func.hessian(lambda w: p.loss(x @ w[0].T @ w[1].T @ w[2].T, y))(weights)
    sizes = [weight.numel() for weight in weights]
    rows = [
        torch.cat([b.reshape(m, n) for b, n in zip(row, sizes, strict=True)], dim=1)
        for row, m in zip(blocks, sizes, strict=True)
    ]
    dense = torch.cat(rows).numpy()
    return Spectrum.from_matrix((dense + dense.T) / 2).distance(p.spectrum)


@check
def torch_lobpcg() -> float:
    p = phantom("degenerate", 1000, seed=0)  # positive semidefinite: H = G
    dense = torch.from_numpy(dense_of(p))
    torch.manual_seed(0)
    found = torch.lobpcg((dense + dense.T) / 2, k=10)[0].numpy()
    return float(np.abs(found / top(p.spectrum, 10) - 1).max())


@check
def scipy_eigsh() -> float:
    def error(p: Phantom) -> float:
        start = np.random.default_rng(0).standard_normal(p.size)
        found = eigsh(ours(p), k=10, which="LA", v0=start, return_eigenvectors=False)
        return np.abs(np.sort(found)[::-1] - top(p.spectrum, 10)).max() / p.spectrum.norm

    return max(map(error, family(SIMPLE, 4000)))


@check
def scipy_eigsh_copies() -> float:
    p, failed = phantom("degenerate", 1300, seed=0), 0
    for seed in range(5):
        start = np.random.default_rng(seed).standard_normal(p.size)
        try:
            found = eigsh(ours(p), k=10, which="LA", v0=start, maxiter=200)[0]
            failed += bool(np.abs(found - 3).max() > 1e-9)
        except ArpackNoConvergence:
            failed += 1
    return failed


@check
def scipy_lobpcg_scale() -> float:
    p = phantom("sparse", 11_000, seed=0)
    start = np.random.default_rng(0).standard_normal((p.size, 5))
    found = lobpcg(ours(p), start, maxiter=200)[0]
    return float(np.abs(np.sort(found)[::-1] / top(p.spectrum, 5) - 1).max())


@check
def curvlinops_product() -> float:
    from curvlinops import HessianLinearOperator

    def residual(p: Phantom, reduction: str) -> float:
        operator = HessianLinearOperator(
            p.model,
            torch.nn.MSELoss(reduction=reduction),
            list(p.model.parameters()),
            list(p.loader(32)),
            check_deterministic=False,
        )
        factor = p.factors[reduction]
        return p.residual(lambda v: (operator @ torch.from_numpy(v)).detach().numpy() / factor)

    return max(residual(p, reduction) for p in family() for reduction in ("mean", "sum"))


@check
def curvlinops_ggn() -> float:
    from curvlinops import GGNLinearOperator

    def error(p: Phantom) -> float:
        operator = GGNLinearOperator(
            p.model,
            torch.nn.MSELoss(reduction="sum"),
            list(p.model.parameters()),
            list(p.loader(32)),
            check_deterministic=False,
        )
        plain = LinearOperator(
            (p.size, p.size),
            matvec=counted(lambda v: (operator @ torch.from_numpy(v.ravel())).detach().numpy()),
            dtype=np.float64,
        )
        start = np.random.default_rng(0).standard_normal(p.size)
        found = eigsh(plain, k=10, which="LA", v0=start)[0] / p.factors["sum"]
        exact = p.gauss_newton_spectrum
        return np.abs(np.sort(found)[::-1] - top(exact, 10)).max() / exact.norm

    return max(map(error, family(("outliers", "indefinite"))))


def pyhessian_of(p: Phantom, sign: int = 1) -> Any:
    """PyHessian on batches of 32."""
    from pyhessian import hessian

    tool = hessian(
        p.model, lambda z, y: sign * p.loss(z, y), dataloader=list(p.loader(32)), cuda=False
    )
    tool.dataloader_hv_product = counted(tool.dataloader_hv_product)
    return tool


@check
def pyhessian_product() -> float:
    def residual(p: Phantom) -> float:
        tool = pyhessian_of(p)
        return p.residual(lambda v: flat(tool.dataloader_hv_product(split(p, v))[1]))

    return max(map(residual, family()))


@check
def pyhessian_eigenvalues() -> float:
    p = phantom("sparse", 11_000, seed=0)
    torch.set_default_dtype(torch.float64)  # it draws its vectors in the default dtype
    torch.manual_seed(0)
    found = pyhessian_of(p).eigenvalues(maxIter=1000, tol=1e-9, top_n=5)[0]
    torch.set_default_dtype(torch.float32)
    return float(np.abs(np.sort(found)[::-1] / top(p.spectrum, 5) - 1).max())


@check
def pyhessian_trace() -> float:
    p = phantom("degenerate", 1000, seed=0)
    torch.manual_seed(0)
    return sum(len(pyhessian_of(p, -1).trace()) == 2 for _ in range(8))


@check
def pyhessian_density() -> float:
    return raised(lambda: pyhessian_of(phantom("gap", 500, seed=0)).density(iter=10))


def raised(action: Callable[[], object]) -> int:
    """1 if the action raises an error, else 0."""
    try:
        action()
    except (RuntimeError, AttributeError):
        return 1
    return 0


def eigenthings_of(p: Phantom, batches: Any, **options: Any) -> Any:
    """The operator of hessian-eigenthings."""
    from hessian_eigenthings import HessianOperator, supervised_loss

    operator = HessianOperator(p.model, batches, supervised_loss(p.loss), **options)
    operator.matvec = counted(operator.matvec)
    return operator


def eigenthings_residual(p: Phantom, batches: Any, **options: Any) -> float:
    """Its residual."""
    operator = eigenthings_of(p, batches, **options)
    return p.residual(lambda v: operator.matvec(torch.from_numpy(v)).detach().numpy())


@check
def eigenthings_product() -> float:
    return max(eigenthings_residual(p, list(p.loader(32))) for p in family())


@check
def eigenthings_microbatch() -> float:
    return max(eigenthings_residual(p, [p.data], microbatch_size=32) for p in family())


def flagged_but_wrong(steps: int) -> int:
    """How many of the ten values of its Lanczos are flagged as converged and off by 1e-3."""
    from hessian_eigenthings import lanczos

    p = phantom("outliers", 3000, seed=0)
    found = lanczos(eigenthings_of(p, [p.data]), k=10, max_iter=steps, which="LA", seed=0)
    wrong = np.abs(found.eigenvalues.numpy() / top(p.spectrum, 10) - 1) > 1e-3
    return int(np.sum(wrong & found.converged.numpy()))


@check
def eigenthings_lanczos() -> float:
    return flagged_but_wrong(100)


@check
def eigenthings_lanczos_50() -> float:
    return flagged_but_wrong(50)


@check
def asdl_eigenvalues() -> float:
    from asdl.mvp import power_method
    from asdl.vector import ParamVector

    model = torch.nn.Linear(4, 1, bias=False).double()
    diagonal = torch.tensor([[4.0, 3.9, 2.0, 1.0]]).double()

    def product(v: Any) -> Any:
        return ParamVector([model.weight], [diagonal * v.vectors[model.weight]])

    torch.manual_seed(0)
    found = power_method(product, model, top_n=4)[0]
    return float(np.abs(np.sort(found)[::-1] / diagonal.numpy()[0] - 1).max())


@check
def backpack_diagonal() -> float:
    from backpack import backpack, extend
    from backpack.extensions import DiagHessian

    def error(p: Phantom) -> float:
        model, loss = extend(p.model), extend(torch.nn.MSELoss())
        with backpack(DiagHessian()):
            loss(model(p.data[0]), p.data[1]).backward()
        found = flat([weight.diag_h for weight in model.parameters()]) / p.factors["mean"]
        return np.abs(found - p.diagonal).max() / p.spectrum.norm

    return max(map(error, family(("outliers", "indefinite"))))


@check
def backpack_kfra() -> float:
    from backpack import backpack, extend
    from backpack.extensions import KFRA

    p = phantom("outliers", 1000, seed=0)
    model, loss = extend(p.model), extend(torch.nn.MSELoss())

    def run() -> None:
        with backpack(KFRA()):
            loss(model(p.data[0]), p.data[1]).backward()

    return raised(run)


@check
def laplace_full() -> float:
    from laplace.curvature import CurvlinopsGGN

    p = phantom("outliers", 800, seed=0)
    found = CurvlinopsGGN(p.model, "regression").full(*p.data)[1].detach().numpy() / len(p.inputs)
    return Spectrum.from_matrix((found + found.T) / 2).distance(p.gauss_newton_spectrum)


@check
def matfree_lanczos() -> float:
    import jax

    jax.config.update("jax_enable_x64", True)
    from matfree import decomp, eig

    p = phantom("outliers", 3000, seed=0)
    x, y = (jax.numpy.asarray(part.numpy()) for part in p.data)
    theta, restore = jax.flatten_util.ravel_pytree(
        [jax.numpy.asarray(weight.detach().numpy()) for weight in p.model.parameters()]
    )

    def gradient(theta: Any) -> Any:
        def loss(theta: Any) -> Any:
            w = restore(theta)
            return ((x @ w[0].T @ w[1].T @ w[2].T - y) ** 2).sum() / (2 * len(x))

        return jax.grad(loss)(theta)

    solve = eig.eigh_partial(decomp.tridiag_sym(100, reortho="full"))
    start = jax.numpy.asarray(np.random.default_rng(0).standard_normal(p.size))
    found = solve(lambda v: jax.jvp(gradient, (theta,), (v,))[1], start)[0]
    best = np.sort(np.asarray(found))[::-1][:10]
    return float(np.abs(best - top(p.spectrum, 10)).max() / p.spectrum.norm)


@check
def traceax_hutchinson() -> float:
    import jax

    jax.config.update("jax_enable_x64", True)
    import lineax
    import traceax

    p = phantom("outliers", 800, seed=0)
    dense = dense_of(p)
    operator = lineax.MatrixLinearOperator(jax.numpy.asarray(dense))
    keys = jax.random.split(jax.random.PRNGKey(0), 200)
    found = [float(traceax.HutchinsonEstimator().estimate(key, operator, 20)[0]) for key in keys]
    return float(abs(np.mean(found) - p.trace) / (np.std(found, ddof=1) / np.sqrt(len(found))))


def differing(matvec: Callable[[Phantom, torch.Tensor], np.ndarray]) -> int:
    """Entries of a product with a vector of −1, 0, 1 that are not the same in float32 and float64;
    for the phantom `exact32` all are without rounding.
    """
    images = []
    for dtype in ("float64", "float32"):
        p = phantom("exact32", 6144, seed=0, dtype=dtype)
        v = torch.from_numpy(np.random.default_rng(0).integers(-1, 2, p.size))
        images.append(matvec(p, v.to(p.data[0].dtype)).astype(np.float64))
    return int(np.sum(images[0] != images[1]))


@check
def ours_float32() -> float:
    def product(p: Phantom, v: torch.Tensor) -> np.ndarray:
        x, y = p.data
        image = run_sharded(
            lambda H: H @ v.double().numpy(),
            p.model,
            lambda z, y: ((z - y) ** 2).sum() / 2,
            lambda a, b: (x[a:b], y[a:b]),
            len(x),
        )
        assert image is not None
        return image

    return differing(product)


@check
def curvlinops_float32() -> float:
    from curvlinops import HessianLinearOperator

    def product(p: Phantom, v: torch.Tensor) -> np.ndarray:
        weights, loss = list(p.model.parameters()), torch.nn.MSELoss(reduction="sum")
        operator = HessianLinearOperator(
            p.model, loss, weights, list(p.loader(6)), check_deterministic=False
        )
        return (operator @ v).detach().numpy()

    return differing(product)


@check
def pyhessian_float32() -> float:
    from pyhessian import hessian

    def product(p: Phantom, v: torch.Tensor) -> np.ndarray:
        tool = hessian(p.model, p.loss, dataloader=list(p.loader(4)), cuda=False)
        shapes = [weight.shape for weight in p.model.parameters()]
        pieces = zip(v.split([shape.numel() for shape in shapes]), shapes, strict=True)
        return flat(tool.dataloader_hv_product([x.reshape(shape) for x, shape in pieces])[1])

    return differing(product)


@check
def eigenthings_float32() -> float:
    def product(p: Phantom, v: torch.Tensor) -> np.ndarray:
        return eigenthings_of(p, [p.data]).matvec(v).detach().numpy()

    return differing(product)


def error_bar(found: list[tuple[float, float]], exact: float) -> float:
    """The root mean square of the errors, in units of that of the errors that were stated."""
    estimates, stated = np.array(found).T
    return float(np.sqrt(np.mean((estimates - exact) ** 2) / np.mean(stated**2)))


@check
def eigenthings_trace() -> float:
    from hessian_eigenthings import LambdaOperator
    from hessian_eigenthings.algorithms.trace import hutchinson

    def ratio(p: Phantom) -> float:
        dense = torch.from_numpy(dense_of(p))
        operator = LambdaOperator(lambda v: dense @ v, size=p.size, dtype=torch.float64)
        seeds = range(FRESH, FRESH + RUNS)
        runs = [hutchinson(operator, num_samples=60, seed=seed) for seed in seeds]
        return error_bar([(run.estimate, run.stderr) for run in runs], p.trace)

    return max(map(ratio, family(TRACED, 800, FRESH)))


@check
def matfree_xtrace() -> float:
    import jax

    jax.config.update("jax_enable_x64", True)
    from matfree import stochtrace

    def ratio(p: Phantom) -> float:
        dense = jax.numpy.asarray(dense_of(p))
        sampler = stochtrace.sampler_sphere(jax.numpy.zeros(p.size), num=30)
        estimate = stochtrace.estimator_leave_one_out_mean_and_sem(
            stochtrace.leave_one_out_xtrace(), sampler
        )
        run = jax.jit(lambda key: estimate(lambda v: dense @ v, key))
        keys = jax.random.split(jax.random.PRNGKey(FRESH), RUNS)
        return error_bar([tuple(map(float, run(key))) for key in keys], p.trace)

    return max(map(ratio, family(TRACED, 800, FRESH)))


@check
def traceax_xtrace() -> float:
    import jax

    jax.config.update("jax_enable_x64", True)
    import lineax
    import traceax

    def ratio(p: Phantom) -> float:
        dense = jax.numpy.asarray(dense_of(p))
        estimator, operator = traceax.XTraceEstimator(), lineax.MatrixLinearOperator(dense)
        run = jax.jit(lambda key: estimator.estimate(key, operator, 60))
        results = [run(key) for key in jax.random.split(jax.random.PRNGKey(FRESH), RUNS)]
        return error_bar([(float(mean), float(more["std.err"])) for mean, more in results], p.trace)

    return max(map(ratio, family(TRACED, 800, FRESH)))


def curvlinops_hessian(p: Phantom) -> Any:
    """Its operator for the sum of squares, 2N times the Hessian of the phantom."""
    from curvlinops import HessianLinearOperator

    weights, loss = list(p.model.parameters()), torch.nn.MSELoss(reduction="sum")
    return HessianLinearOperator(p.model, loss, weights, [p.data], check_deterministic=False)


def widths_apart(exact: Spectrum, grid: np.ndarray, density: np.ndarray, width: float) -> float:
    """Wasserstein-1 error of a density on an even grid, in widths of the Gaussian that it is
    smoothed with; smoothing alone makes at most √(2/π) = 0.8 of it.
    """
    far = wasserstein_distance(grid, exact.values, density, exact.multiplicities)
    return float(far / width)


@check
def curvlinops_density() -> float:
    from curvlinops.papyan2020traces.spectrum import lanczos_approximate_spectrum

    def error(p: Phantom) -> float:
        torch.manual_seed(FRESH)
        operator = curvlinops_hessian(p)
        grid, density = (
            part.numpy() for part in lanczos_approximate_spectrum(operator, 80, num_repeats=10)
        )
        # The width that the parameter kappa = 3 stands for, on a grid scaled to [−1, 1].
        width = 2 / 79 / np.sqrt(8 * np.log(3)) * np.ptp(grid) / 2
        scale = p.factors["sum"]
        return widths_apart(p.spectrum, grid / scale, density, width / scale)

    return max(map(error, family(TRACED, 1300, FRESH)))


@check
def curvlinops_log_density() -> float:
    from curvlinops.papyan2020traces.spectrum import lanczos_approximate_log_spectrum

    p = phantom("outliers", 500, FRESH)
    operator, failed = curvlinops_hessian(p), 0
    for seed in range(FRESH, FRESH + 12):
        torch.manual_seed(seed)
        np.random.seed(seed)  # noqa: NPY002 (where eigsh, beneath, gets its start from)
        grid, density = lanczos_approximate_log_spectrum(operator, 80)
        failed += bool(abs(np.trapezoid(density.numpy(), grid.numpy()) - 1) > 0.1)
    return failed


def eigenthings_densities() -> Iterator[tuple[Phantom, Any]]:
    """Phantoms and what its spectral_density says of them, with its defaults."""
    from hessian_eigenthings import spectral_density as theirs

    for p in family(TRACED, 1300, FRESH):
        yield p, theirs(eigenthings_of(p, [p.data]), seed=FRESH)


@check
def eigenthings_density() -> float:
    return max(
        widths_apart(p.spectrum, found.grid.numpy(), found.density.numpy(), found.sigma)
        for p, found in eigenthings_densities()
    )


@check
def eigenthings_density_mass() -> float:
    return max(
        abs(float(torch.trapezoid(found.density, found.grid)) - 1)
        for _, found in eigenthings_densities()
    )


def installed(tool: str) -> str | None:
    """Its version, or None."""
    try:
        return version(tool)
    except PackageNotFoundError:
        return None


def explained(row: dict[str, Any], promise: dict[str, Any]) -> dict[str, Any]:
    """A recorded row with the explanation that its promise has now; the measurement stays."""
    return row | {name: promise[name] for name in ("report", "mend") if name in promise}


def main(only: list[str]) -> None:
    """Run every check, or those named, whose tool is here, and write the record."""
    global spent
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    with (ROOT / "book/tools/promises.toml").open("rb") as file:
        promises = tomllib.load(file)["promise"]
    unknown = set(only) - {promise["id"] for promise in promises}
    if unknown:
        raise SystemExit(f"no promise is called {', '.join(sorted(unknown))}: see promises.toml")
    record = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    today = datetime.now(UTC).date().isoformat()
    for promise in promises:
        name, found = promise["id"], installed(promise["tool"])
        if only and name not in only:
            continue
        if found is None:
            known = record.get(name, {"value": "nothing", "date": "–"})
            print(
                f"{name:24} {promise['tool']} is not installed (pip install 'exacthessian[peers]');"
            )
            print(f"{'':24} recorded: {known['value']} on {known['date']}")
            continue
        spent = 0
        value = float(f"{CHECKS[name]():.2g}")
        record[name] = {**promise, "value": value, "version": found, "date": today}
        if spent:
            record[name]["products"] = spent
        print(f"{name:24} {value:10.2g}  {promise['measure']}", flush=True)
        kept = {
            row["id"]: explained(record[row["id"]], row) for row in promises if row["id"] in record
        }
        RECORD.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
