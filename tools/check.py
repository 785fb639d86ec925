"""Run every check, one line and its time per stage; stop at the first stage that fails.

Two cores are kept busy: tests and pages go two at a time, and what is one process by nature runs
beside the build and the browser.

`check.py` runs what `make test` promises, `check.py STAGE` one stage (those that run pages take
names of pages), `check.py machines` the notebooks on simulated other machines. On CI (`CI=true`)
the first includes `again` and some pages on those machines, and what is missing from the system is
installed instead of skipped.
"""

import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from reference import name_of
from reference import notebooks as notebook_pages

ROOT = Path(__file__).resolve().parent.parent
ON_CI = os.environ.get("CI") == "true"
PYTEST = [sys.executable, "-m", "pytest", "-q"]
AT_ONCE = 2  # processes at the same time, one thread each
SPREAD = ["-n", str(AT_ONCE), "--dist", "worksteal"]
EMULATOR = ["qemu-x86_64", "-cpu", "Nehalem"]
# How many pages CI tries on each simulated machine; `make test-machines` tries every page. The
# emulated processor is ten times slower and more, so there CI leaves out the pages that take long.
DRAWN = {"two threads": 10, "older kernels": 10, "another cpu": 2}
LONG = (
    *("beyond_edge_of_stability/directions", "beyond_edge_of_stability/nonlinear"),
    *("cracking_the_hessian/attention", "deep_linear_ufm/digits", "deep_linear_ufm/relu"),
    *("deep_linear_ufm/training", "depth_not_data/counts", "depth_not_data/data_and_depth"),
)
OLDER_KERNELS = {
    "ATEN_CPU_CAPABILITY": "default",
    "GLIBC_TUNABLES": "glibc.cpu.hwcaps=-AVX2,-FMA,-FMA4,-AVX",
    "MKL_CBWR": "COMPATIBLE",
    "NPY_DISABLE_CPU_FEATURES": "X86_V3",
    "ONEDNN_MAX_CPU_ISA": "SSE41",
    "OPENBLAS_CORETYPE": "Nehalem",
}
DOCTESTED = [
    f"tools/{name}.py"
    for name in (
        *("audit", "check", "mutate", "mutate_claims", "new_paper", "page_budget", "reference"),
        *("verdicts", "versions"),
    )
]
MUTATED = ("linear_chains/aligned_chains", "depth_not_data/counts")  # `make mutate-claims`: all
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def run(*command: str, **environment: str) -> bool:
    """Run a command in the repository with an enlarged environment; whether it succeeded."""
    return subprocess.run(command, cwd=ROOT, env={**os.environ, **environment}).returncode == 0


def system_package(program: str, package: str) -> bool:
    """Whether a program is there; CI installs it, elsewhere its absence is said aloud."""
    if shutil.which(program):
        return True
    if ON_CI and shutil.which("apt-get"):
        quiet = ["apt-get", "-qq", "-o", "Dpkg::Use-Pty=0"]
        for arguments in (["update"], ["install", "-y", package]):
            subprocess.run([*quiet, *arguments], check=True, stdout=subprocess.DEVNULL)
        return True
    hint = f"on Debian or Ubuntu: apt-get install {package}"
    print(f"  {program} is missing, so the checks that need it are skipped ({hint})", flush=True)
    return False


def prepare() -> bool:
    """What CI lacks: a browser, and JupyterLab."""
    return system_package("chromium", "chromium") and run(
        sys.executable, "tools/environment.py", "--extras", "torch,book,test,lab"
    )


def lint() -> bool:
    """Style: ruff's rules and its formatting."""
    return run("ruff", "check", ".") and run("ruff", "format", "--check", ".")


def types() -> bool:
    """Types: mypy --strict on the package."""
    return run(sys.executable, "-m", "mypy")


def unit() -> bool:
    """The package, the tools and the build's strictness, and every example in a docstring."""
    return run(*PYTEST, *SPREAD, "tests", "--ignore=tests/site", "--ignore=tests/live") and run(
        *PYTEST, *SPREAD, "--doctest-modules", "src", *DOCTESTED, "book/_ext"
    )


def book() -> bool:
    """The site, strictly."""
    return run(sys.executable, "tools/build.py")


def site() -> bool:
    """The built site in a real browser."""
    system_package("chromium", "chromium")
    return run(*PYTEST, *SPREAD, "tests/site")


def live() -> bool:
    """Pages in a real JupyterLab, in a real browser."""
    system_package("chromium", "chromium")
    return run(*PYTEST, "-rs", "tests/live")


def again(*names: str) -> bool:
    """Every cell once more from where its page ends, with the same result."""
    return run(sys.executable, "tools/rerun.py", *names)


def mutations() -> bool:
    """What moves when the package is broken: verdicts of two pages, and tests of closed forms."""
    claims = run(sys.executable, "tools/mutate_claims.py", *MUTATED)
    return claims and run(sys.executable, "tools/mutate.py", "--sample")


def references(names: Sequence[str] = ()) -> list[Path]:
    """The reference notebooks of the named pages, or of all, the longest first."""
    chosen = [page for page in notebook_pages() if not names or name_of(page) in names]
    if len(chosen) < len(names):
        raise SystemExit(f"no such page among {', '.join(names)}")
    return sorted((page.with_suffix(".ipynb") for page in chosen), key=lambda p: -p.stat().st_size)


def compare(
    notebooks: list[Path], *options: str, at_once: int = AT_ONCE, **environment: str
) -> bool:
    """Run reference notebooks under nbval, each in a kernel of its own, some at the same time."""
    print(f"  {len(notebooks)} pages, {at_once} at a time", flush=True)
    spread = ["-n", str(at_once), "--dist", "loadfile", "--no-loadscope-reorder"]
    return run(*PYTEST, "--nbval", *options, *spread, *map(str, notebooks), **environment)


def notebooks(*names: str) -> bool:
    """The reference notebooks on this machine, one thread."""
    return compare(references(names), "--nbval-current-env")


def drawn(machine: str, pages: Sequence[str], state: str) -> list[str]:
    """The pages that CI tries on a simulated machine: as if by lot, but the same for one `state`.

    >>> drawn("another cpu", ["a", "b", "c", "d"], "now")
    ['b', 'a']
    >>> drawn("another cpu", ["a", "b", "c", "d"], "later")
    ['a', 'd']
    """
    lots = {page: hashlib.sha256(f"{machine} {page} {state}".encode()).digest() for page in pages}
    return sorted(pages, key=lots.__getitem__)[: DRAWN[machine]]


def simulated(
    machine: str, names: Sequence[str] = (), leaving_out: Sequence[str] = ()
) -> list[Path]:
    """The reference notebooks to compare on a simulated machine: on CI some, else all or the named.

    Which ones is drawn anew whenever any of the reference notebooks changes.
    """
    everything = references(names)
    if names or not ON_CI:
        return everything
    names = [name_of(page) for page in notebook_pages()]
    contents = b"".join(page.read_bytes() for page in sorted(everything))
    state = hashlib.sha256(contents).hexdigest()
    chosen = drawn(machine, [name for name in names if name not in leaving_out], state)
    print(f"  on CI: {', '.join(chosen)}; `make test-machines` tries every page", flush=True)
    return references(chosen)


def two_threads(*names: str) -> bool:
    """The reference notebooks with two threads."""
    threads = dict.fromkeys(THREADS, "2")
    return compare(simulated("two threads", names), "--nbval-current-env", at_once=1, **threads)


def older_kernels(*names: str) -> bool:
    """The reference notebooks with older linear-algebra kernels and vector units."""
    if not_here():
        return True
    return compare(simulated("older kernels", names), "--nbval-current-env", **OLDER_KERNELS)


def another_cpu(*names: str) -> bool:
    """The reference notebooks in a kernel that runs on an emulated processor of 2008."""
    if not_here() or not system_package(EMULATOR[0], "qemu-user"):
        return True
    kernels = ROOT / "_build" / "kernels"
    spec = kernels / "kernels" / "another-cpu" / "kernel.json"
    spec.parent.mkdir(parents=True, exist_ok=True)
    python = os.path.realpath(sys.executable)
    launch = [*EMULATOR, python, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    packages = next(path for path in sys.path if path.endswith("site-packages"))
    # On some hosts OpenBLAS does not believe what the emulator says of its processor.
    told = {"OPENBLAS_CORETYPE": OLDER_KERNELS["OPENBLAS_CORETYPE"]}
    spec.write_text(
        json.dumps(
            {
                "argv": launch,
                "display_name": "Nehalem",
                "language": "python",
                "env": {**told, "PYTHONPATH": f"{packages}:{ROOT / 'src'}"},
            }
        )
    )
    features = "import numpy; print(numpy._core._multiarray_umath.__cpu_features__['AVX2'])"
    probe = [*EMULATOR, python, "-c", features]
    seen = subprocess.run(
        probe, env={**os.environ, **told, "PYTHONPATH": packages}, capture_output=True, text=True
    )
    if seen.stdout.strip() != "False":
        print(f"  the emulated processor is not the one asked for: {seen.stdout}{seen.stderr}")
        return False
    chosen = simulated("another cpu", names, leaving_out=LONG)
    return compare(chosen, "--nbval-kernel-name", "another-cpu", JUPYTER_PATH=str(kernels))


def not_here() -> bool:
    """Whether this is not an x86-64 processor, on which older ones can be simulated."""
    if platform.machine() in ("x86_64", "AMD64"):
        return False
    print("  skipped: this simulation is of x86-64 processors only", flush=True)
    return True


MACHINES = [two_threads, older_kernels, another_cpu]
EVERYTHING = [lint, unit, book, site, notebooks]
# One process each, or waiting for a browser: they run beside the build, when a core is idle.
BESIDE = [types, mutations, live]
ON_REQUEST = [again]


def main(stages: Sequence[Callable[..., bool]], *arguments: str) -> int:
    """Run the stages in order and sum up."""
    times = []
    for stage in stages:
        name = stage.__name__.replace("_", " ")
        print(f"\n== {name}: {stage.__doc__}", flush=True)
        started = time.monotonic()
        passed = stage(*arguments)
        times.append(f"{'ok  ' if passed else 'FAIL'} {time.monotonic() - started:6.1f} s  {name}")
        print(times[-1], flush=True)
        if not passed:
            print(f"\nStopped: the stage '{name}' failed.")
            return 1
    if len(stages) > 1:
        print("\nAll stages passed:", *times, sep="\n  ", flush=True)
    return 0


def everything() -> int:
    """Run what `make test` promises: two stages, then the others beside the light ones."""
    started = time.monotonic()
    first, rest = EVERYTHING[:2], EVERYTHING[2:]
    if ON_CI:
        first, rest = [prepare, *first], [*rest, *ON_REQUEST, *MACHINES]
    if main(first):
        return 1
    (ROOT / "_build").mkdir(exist_ok=True)
    with (ROOT / "_build" / "beside.log").open("w+") as log:
        beside = subprocess.Popen([sys.executable, __file__, "beside"], stdout=log, stderr=log)
        failed = main(rest)
        failed |= beside.wait()
        log.seek(0)
        print(log.read(), end="")
    print(f"\n{'FAILED' if failed else 'Passed'} in {time.monotonic() - started:.0f} s.")
    return failed


if __name__ == "__main__":
    os.environ["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    if sys.argv[1:2] == ["machines"]:
        raise SystemExit(main(MACHINES, *sys.argv[2:]))
    if sys.argv[1:] == ["beside"]:
        raise SystemExit(main(BESIDE))
    if sys.argv[1:]:
        known = {s.__name__: s for s in [*EVERYTHING, *BESIDE, *ON_REQUEST, *MACHINES]}
        if sys.argv[1] not in known:
            raise SystemExit(f"the stages are {', '.join(known)}, got {sys.argv[1]!r}")
        raise SystemExit(main([known[sys.argv[1]]], *sys.argv[2:]))
    raise SystemExit(everything())
