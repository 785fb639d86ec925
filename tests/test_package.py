"""The package as a whole: what imports what, and how fast."""

import ast
import re
import statistics
import subprocess
import sys
import time

import pytest

import reference
from conftest import ROOT

PACKAGE = ROOT / "src" / "exacthessian"
MODULES = sorted(path for path in PACKAGE.rglob("*.py") if path.name != "__init__.py")
# The rooms of the models; the oracle may import their classes, and no formula of theirs.
MODELS = ["chain", "aligned", "mode", "product", "scalar", "attention", "ufm", "ufm_cross_entropy"]
# A room may import the rooms named here and nothing else of the package.
ROOMS = {
    "inputs": set(),
    "live": set(),
    "spectrum": {"inputs", "assembly"},
    "chain": {"inputs", "assembly"},
    "assembly": {"inputs"},
    "alignment": {"inputs", "chain"},
    "aligned": {"inputs", "alignment", "chain", "spectrum"},
    "mode": {"inputs", "spectrum", "chain", "aligned"},
    "product": {"inputs", "spectrum", "chain", "aligned"},
    "phantoms": {"inputs", "assembly", "aligned", "spectrum"},
    "descent": {"inputs", "live"},
    "autograd": {"inputs", "spectrum", *MODELS},
    "claims": {"live"},
    "ledger": {"claims"},
    "check": {"claims", "ledger"},
    "widget": {"live"},
    "figures": {"live", "spectrum", "widget"},
    "scalar": {"inputs", "spectrum", "chain", "product"},
    "attention": {"inputs", "spectrum"},
    "ufm": {"inputs", "spectrum", "chain", "aligned"},
    "ufm_cross_entropy": {"inputs", "spectrum", "ufm"},
    "papers": {"inputs", "spectrum", "descent", *MODELS},
    "studies": {
        *("inputs", "live", "spectrum", "descent", "autograd", "figures", "papers"),
        *MODELS,
    },
    "exercises": {"inputs", "aligned", "mode", "scalar", "ufm", "ufm_cross_entropy", "papers"},
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
    if room not in ("autograd", "studies"):
        assert not any(name.split(".")[0] == "torch" for name in imported(path))


@pytest.mark.parametrize("path", sorted(PACKAGE.glob("autograd/*.py")), ids=lambda path: path.stem)
def test_the_oracle_knows_classes_of_models_and_no_formula(path):
    rooms = {f"exacthessian.{room}" for room in MODELS}
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            assert not rooms & {alias.name for alias in node.names}
        if isinstance(node, ast.ImportFrom) and node.module in rooms:
            assert all(alias.name[0].isupper() for alias in node.names)


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


def public_names() -> dict[str, list[str]]:
    """The public functions and classes outside papers and studies, each with its modules."""
    found: dict[str, list[str]] = {}
    for path in MODULES:
        if not {"papers", "studies"} & set(path.parts):
            for node in ast.parse(path.read_text()).body:
                if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name[0] != "_":
                    found.setdefault(node.name, []).append(path.stem)
    return found


def used_names() -> set[str]:
    """What code mentions outside its own definition; docstrings and imports do not count."""
    used = set()
    files = [
        f
        for name in ("src/exacthessian", "book", "benchmarks", "tools")
        for f in (ROOT / name).rglob("*.py")
    ]
    for file in files:
        for part in ast.parse(file.read_text()).body:
            own = {getattr(part, "name", "")}
            nodes = list(ast.walk(part))
            used |= {node.id for node in nodes if isinstance(node, ast.Name)} - own
            used |= {node.attr for node in nodes if isinstance(node, ast.Attribute)} - own
    for page in reference.pages():
        text = page.read_text()
        code = re.findall(r"^```\{code-cell\}.*?^```", text, re.M | re.S)
        shown = re.findall(r"\{closed-form\}[` ]*[\w.]+", text)
        used |= set(re.findall(r"\w+", "\n".join(code + shown)))
    return used


def test_no_public_name_is_dead():
    """Every public name is used by the book, its build, the benchmarks, or another definition."""
    assert sorted(public_names().keys() - used_names()) == []


def test_every_public_function_has_an_example():
    """Pictures are shown by the book instead, and studies promise no interface."""
    missing = []
    for path in MODULES:
        if path.parent.name == "studies":
            continue
        for node in ast.parse(path.read_text()).body:
            if not isinstance(node, ast.FunctionDef) or node.name.startswith("_"):
                continue
            draws = isinstance(node.returns, ast.Name) and node.returns.id == "Figure"
            if not draws and ">>>" not in (ast.get_docstring(node) or ""):
                missing.append(f"{path.name}: {node.name}")
    assert missing == []
