"""Test the package with the oldest and the newest versions that pyproject.toml allows.

Each combination gets an environment of its own below `_build/versions`: the oldest versions with
this interpreter, the newest with every interpreter from 3.11 on that is found. torch is pinned to
one version and installed for this interpreter only; elsewhere the tests that need it are left out,
and said to be. Name combinations on the command line, or try all.
"""

import os
import shutil
import subprocess
import sys
import tomllib
from contextlib import suppress
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PYTHONS = ("python3.11", "python3.12", "python3.13")
TESTING = ("pytest", "pytest-xdist", "hypothesis", "scikit-learn", "ipykernel")
# Prints the test modules that can't be imported, each with the module that it lacks.
PROBE = """
import importlib, sys
for name in sys.argv[1:]:
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:
        print(name, error.name.partition(".")[0])
"""


def declared() -> list[str]:
    """What the package needs, as pyproject.toml has it."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]


def oldest(requirement: str) -> str:
    """The lowest version that a requirement allows.

    >>> oldest("numpy>=2.0")
    'numpy==2.0'
    """
    name, bound, version = requirement.partition(">=")
    if not bound or "," in version:
        raise ValueError(f"a dependency must read name>=version, got {requirement!r}")
    return f"{name}=={version}"


def other_pins() -> str:
    """constraints.txt without the packages whose versions are tried."""
    tried = {requirement.partition(">=")[0] for requirement in declared()}
    lines = (ROOT / "constraints.txt").read_text().splitlines(keepends=True)
    return "".join(line for line in lines if line.partition("==")[0] not in tried)


def package_tests() -> list[str]:
    """The tests of the package; those of the book and its tools know where the repository is."""
    files = sorted((ROOT / "tests").glob("test_*.py"))
    return [file.stem for file in files if "from conftest import" not in file.read_text()]


def holds(name: str, python: str, wanted: list[str]) -> bool:
    """Install the wanted versions for an interpreter, and run the tests that can be imported."""
    folder = ROOT / "_build" / "versions" / name
    shutil.rmtree(folder, ignore_errors=True)
    subprocess.run([python, "-m", "venv", folder], check=True)
    (folder / "pins.txt").write_text(other_pins())
    inner = str(folder / "bin" / "python")
    pip = [inner, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    pip += ["--constraint", str(folder / "pins.txt")]
    if subprocess.run([*pip, *wanted, *TESTING]).returncode:
        return False
    path = os.pathsep.join(str(ROOT / name) for name in ("src", "tests", "book/_ext"))
    environment = {**os.environ, "PYTHONPATH": path}
    tests = package_tests()
    probed = subprocess.run(
        [inner, "-c", PROBE, *tests], cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True
    )
    missing = dict(line.split() for line in probed.stdout.splitlines())
    print("  left out:", ", ".join(f"{test} ({it})" for test, it in missing.items()) or "nothing")
    chosen = [f"tests/{test}.py" for test in tests if test not in missing]
    # Old releases warn of the new ones beside them, so that warnings are no errors here.
    pytest = [inner, "-m", "pytest", "-q", "-n", "2", "-o", "filterwarnings=default"]
    return subprocess.run([*pytest, *chosen], cwd=ROOT, env=environment).returncode == 0


def answers(python: str) -> bool:
    """Whether an interpreter is there; a name on the PATH can lead nowhere."""
    with suppress(FileNotFoundError):
        return subprocess.run([python, "-c", ""], stderr=subprocess.DEVNULL).returncode == 0
    return False


def combinations() -> dict[str, tuple[str, list[str]]]:
    """By name: the interpreter, and what is asked of pip."""
    here = f"python3.{sys.version_info.minor}"
    newest = [requirement.partition(">=")[0] for requirement in declared()]
    others = [python for python in PYTHONS if python != here and answers(python)]
    return {
        "oldest": (sys.executable, [*map(oldest, declared()), "torch"]),
        f"newest-{here}": (sys.executable, [*newest, "torch"]),
        **{f"newest-{python}": (python, newest) for python in others},
    }


def main(names: list[str]) -> int:
    """Try the named combinations, or all; the exit code says whether each holds."""
    known = combinations()
    if set(names) - set(known):
        raise SystemExit(f"the combinations are {', '.join(known)}, got {' '.join(names)}")
    failed = []
    for name in names or known:
        print(f"\n== {name}: {' '.join(known[name][1])}", flush=True)
        if not holds(name, *known[name]):
            failed.append(name)
    print(f"\nFAILED: {', '.join(failed)}" if failed else "\nThe package passes with all of them.")
    return bool(failed)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
