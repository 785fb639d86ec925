"""Run every check, one line and its time per stage; stop at the first stage that fails.

`check.py` runs what `make test` promises. `check.py machines` runs only the notebooks on simulated
other machines. On CI (`CI=true`) the first includes the second, and what is missing from the
system is installed instead of skipped.
"""

import json
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ON_CI = os.environ.get("CI") == "true"
PYTEST = [sys.executable, "-m", "pytest", "-q"]
AT_ONCE = 2  # notebooks compared at the same time, one thread each
EMULATOR = ["qemu-x86_64", "-cpu", "Nehalem"]
# Emulation is ten times slower and more: CI emulates these, `make test-machines` every notebook.
EMULATED_ON_CI = ("course", "intro", "linear_chains", "notation", "one_spectrum")
OLDER_KERNELS = {
    "ATEN_CPU_CAPABILITY": "default",
    "GLIBC_TUNABLES": "glibc.cpu.hwcaps=-AVX2,-FMA,-FMA4,-AVX",
    "MKL_CBWR": "COMPATIBLE",
    "NPY_DISABLE_CPU_FEATURES": "X86_V3",
    "ONEDNN_MAX_CPU_ISA": "SSE41",
    "OPENBLAS_CORETYPE": "Nehalem",
}
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


def lint() -> bool:
    """Style: ruff's rules and its formatting."""
    return run("ruff", "check", ".") and run("ruff", "format", "--check", ".")


def types() -> bool:
    """Types: mypy --strict on the package."""
    return run(sys.executable, "-m", "mypy")


def unit_tests() -> bool:
    """The package, the tools and the build's strictness, and every example in a docstring."""
    return run(*PYTEST, "tests", "--ignore=tests/site") and run(
        *PYTEST, "--doctest-modules", "src", "tools/reference.py", "book/_ext"
    )


def build_book() -> bool:
    """The site, strictly."""
    return run(sys.executable, "tools/build.py")


def site_tests() -> bool:
    """The built site in a real browser."""
    system_package("chromium", "chromium")
    return run(*PYTEST, "tests/site")


def references() -> list[Path]:
    """The reference notebooks, the longest first."""
    return sorted((ROOT / "book").glob("*.ipynb"), key=lambda path: -path.stat().st_size)


def compare(
    notebooks: list[Path], *options: str, at_once: int = AT_ONCE, **environment: str
) -> bool:
    """Run reference notebooks under nbval, some at the same time."""

    def one(path: Path) -> bool:
        command = [*PYTEST, "--nbval", str(path), *options]
        done = subprocess.run(
            command, cwd=ROOT, env={**os.environ, **environment}, capture_output=True, text=True
        )
        print(f"{path.stem}: {done.stdout.strip()}", flush=True)
        return done.returncode == 0

    with ThreadPoolExecutor(at_once) as pool:
        return all(list(pool.map(one, notebooks)))


def notebooks() -> bool:
    """The reference notebooks on this machine, one thread."""
    return compare(references(), "--nbval-current-env")


def two_threads() -> bool:
    """The reference notebooks with two threads."""
    threads = dict.fromkeys(THREADS, "2")
    return compare(references(), "--nbval-current-env", at_once=1, **threads)


def older_kernels() -> bool:
    """The reference notebooks with older linear-algebra kernels and vector units."""
    return not_here() or compare(references(), "--nbval-current-env", **OLDER_KERNELS)


def another_cpu() -> bool:
    """The reference notebooks in a kernel that runs on an emulated processor of 2008."""
    if not_here() or not system_package(EMULATOR[0], "qemu-user"):
        return True
    kernels = ROOT / "_build" / "kernels"
    spec = kernels / "kernels" / "another-cpu" / "kernel.json"
    spec.parent.mkdir(parents=True, exist_ok=True)
    python = os.path.realpath(sys.executable)
    launch = [*EMULATOR, python, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    packages = next(path for path in sys.path if path.endswith("site-packages"))
    spec.write_text(
        json.dumps(
            {
                "argv": launch,
                "display_name": "Nehalem",
                "language": "python",
                "env": {"PYTHONPATH": f"{packages}:{ROOT / 'src'}"},
            }
        )
    )
    features = "import numpy; print(numpy._core._multiarray_umath.__cpu_features__['AVX2'])"
    probe = [*EMULATOR, python, "-c", features]
    seen = subprocess.run(
        probe, env={**os.environ, "PYTHONPATH": packages}, capture_output=True, text=True
    )
    if seen.stdout.strip() != "False":
        print(f"  the emulated processor is not the one asked for: {seen.stdout}{seen.stderr}")
        return False
    chosen = [path for path in references() if not ON_CI or path.stem in EMULATED_ON_CI]
    left_out = sorted({path.stem for path in references()} - {path.stem for path in chosen})
    if left_out:
        print(f"  left to `make test-machines`: {', '.join(left_out)}", flush=True)
    return compare(chosen, "--nbval-kernel-name", "another-cpu", JUPYTER_PATH=str(kernels))


def not_here() -> bool:
    """Whether this is not an x86-64 processor, on which older ones can be simulated."""
    if platform.machine() in ("x86_64", "AMD64"):
        return False
    print("  skipped: this simulation is of x86-64 processors only", flush=True)
    return True


MACHINES = [two_threads, older_kernels, another_cpu]
EVERYTHING = [lint, types, unit_tests, build_book, site_tests, notebooks]


def main(stages: list[Callable[[], bool]]) -> int:
    """Run the stages in order and sum up."""
    times = []
    for stage in stages:
        print(f"\n== {stage.__name__.replace('_', ' ')}: {stage.__doc__}", flush=True)
        started = time.monotonic()
        passed = stage()
        times.append(f"{'ok  ' if passed else 'FAIL'} {time.monotonic() - started:6.1f} s  ")
        print(times[-1] + stage.__name__.replace("_", " "), flush=True)
        if not passed:
            print(f"\nStopped: the stage '{stage.__name__.replace('_', ' ')}' failed.")
            return 1
    print("\nAll stages passed:")
    for seconds, stage in zip(times, stages, strict=True):
        print(f"  {seconds}{stage.__name__.replace('_', ' ')}")
    return 0


if __name__ == "__main__":
    os.environ["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    if sys.argv[1:] == ["machines"]:
        raise SystemExit(main(MACHINES))
    raise SystemExit(main([*EVERYTHING, *(MACHINES if ON_CI else [])]))
