"""The package as a whole: what imports what, and how fast."""

import ast
import statistics
import subprocess
import sys
import time

import pytest

from conftest import ROOT

PACKAGE = ROOT / "src" / "exacthessian"
MODULES = sorted(path for path in PACKAGE.rglob("*.py") if path.name != "__init__.py")
# A room may import the rooms named here and nothing else of the package.
ROOMS = {
    "inputs": set(),
    "spectrum": {"inputs"},
    "chain": {"inputs"},
    "alignment": {"inputs", "chain"},
    "aligned": {"inputs", "alignment", "chain", "spectrum"},
    "autograd": set(),
    "descent": {"inputs", "chain", "aligned"},
    "claims": set(),
    "figures": {"spectrum"},
    "images": {"inputs"},
    "scalar": {"inputs", "spectrum"},
    "attention": {"inputs", "spectrum"},
    "ufm": {"inputs", "spectrum", "chain", "aligned"},
    "papers": {"inputs", "chain", "aligned", "spectrum", "scalar", "attention", "ufm"},
    "exercises": {"inputs", "aligned", "scalar", "ufm", "papers"},
}


def imported(path) -> set[str]:
    """What a module imports when it is imported itself, as dotted names."""
    names = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add(node.module)
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.relative_to(PACKAGE).as_posix())
def test_a_room_imports_only_the_rooms_below_it(path):
    room = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
    siblings = {name.split(".")[1] for name in imported(path) if name.startswith("exacthessian.")}
    assert siblings <= ROOMS[room] | {room}
    if room != "autograd":
        assert not any(name.split(".")[0] == "torch" for name in imported(path))


def test_importing_the_package_does_not_import_torch_or_matplotlib():
    code = "import sys, exacthessian; print(sorted({'torch', 'matplotlib'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_importing_the_package_is_quick():
    """Less than three times the import of SciPy's sparse linear algebra, in the same run."""

    def seconds(module: str) -> float:
        started = time.perf_counter()
        subprocess.run([sys.executable, "-c", f"import {module}"], check=True)
        return time.perf_counter() - started

    rounds = [(seconds("exacthessian"), seconds("scipy.sparse.linalg")) for _ in range(5)]
    assert statistics.median(ours / theirs for ours, theirs in rounds) < 3


def test_every_public_function_has_an_example():
    """Functions that return a picture are shown by the book instead."""
    missing = []
    for path in MODULES:
        for node in ast.parse(path.read_text()).body:
            if not isinstance(node, ast.FunctionDef) or node.name.startswith("_"):
                continue
            draws = isinstance(node.returns, ast.Name) and node.returns.id == "Figure"
            if not draws and ">>>" not in (ast.get_docstring(node) or ""):
                missing.append(f"{path.name}: {node.name}")
    assert missing == []
