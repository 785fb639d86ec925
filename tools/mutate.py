"""Break the package in small ways and see its tests notice: `mutate.py [MODULE...]`.

Each mutant is one small change of one module, by one of these operators: a comparison turned round
or made strict, + and −, × and ÷ exchanged, a whole number one larger, `not` dropped, and/or,
min and max exchanged, a transpose dropped, the sign of a return value changed, True and False.
A mutant is killed when a docstring's example or a test of its module fails, or takes too long. A
sample of MUTANTS (15) for each module is drawn with a fixed seed. Results are kept in
`_build/mutants.jsonl`, so that a stopped run goes on where it was. A survivor needs a reason in
`tests/survivors.toml`; without one, or with less than 95 % killed, the exit code is 1.
"""

import ast
import copy
import hashlib
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "exacthessian"
RESULTS = ROOT / "_build" / "mutants.jsonl"
SURVIVORS = ROOT / "tests" / "survivors.toml"
SAMPLE, SECONDS, ENOUGH = 15, 240, 0.95
SHARED = ["tests/test_exact.py"]  # what tests every module of closed forms
TESTS = {  # where the tests of a module are not called after it
    "inputs": ["tests/test_bad_input.py", "tests/test_chain.py"],
    "ledger": ["tests/test_check.py", "tests/test_claims.py"],
    "claims": ["tests/test_claims.py", "tests/test_check.py"],
    "alignment": ["tests/test_aligned.py"],
    "assembly": ["tests/test_chain.py"],
    "live": ["tests/test_claims.py"],
}
SWAPS: dict[type, type] = {
    **{ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult},
    **{ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt},
    **{ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Is: ast.IsNot, ast.IsNot: ast.Is},
    **{ast.In: ast.NotIn, ast.NotIn: ast.In, ast.And: ast.Or, ast.Or: ast.And},
}
NAMES = {"min": "max", "max": "min", "any": "all", "all": "any"}


def changes(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """What each operator makes of one node, with a word for it.

    >>> [ast.unparse(new) for _, new in changes(ast.parse("a + 1", mode="eval").body)]
    ['a - 1']
    """
    new = copy.deepcopy(node)
    if isinstance(new, ast.BinOp | ast.BoolOp) and type(new.op) in SWAPS:
        new.op = SWAPS[type(new.op)]()
        yield "operator", new
    elif isinstance(new, ast.Compare) and type(new.ops[0]) in SWAPS:
        new.ops[0] = SWAPS[type(new.ops[0])]()
        yield "comparison", new
    elif isinstance(new, ast.Constant) and isinstance(new.value, bool):
        yield "truth", ast.Constant(not new.value)
    elif isinstance(new, ast.Constant) and isinstance(new.value, int):
        yield "constant", ast.Constant(new.value + 1)
    elif isinstance(new, ast.UnaryOp) and isinstance(new.op, ast.Not | ast.USub):
        yield "dropped sign or not", new.operand
    elif isinstance(new, ast.Name) and new.id in NAMES:
        yield "name", ast.Name(NAMES[new.id], new.ctx)
    elif isinstance(new, ast.Attribute) and new.attr == "T":
        yield "transpose", new.value
    elif isinstance(new, ast.Return) and isinstance(new.value, ast.BinOp):
        new.value = ast.UnaryOp(ast.USub(), new.value)
        yield "sign of the result", new


def sites(source: str) -> list[tuple[int, int, str]]:
    """Every mutant of a module: the number of its node, the line, and what is done there.

    >>> [(line, word) for _, line, word in sites("def f(a):\\n    return a + 2")]
    [(2, 'sign of the result'), (2, 'operator'), (2, 'constant')]
    """
    nodes = enumerate(ast.walk(ast.parse(source)))
    return [(n, getattr(one, "lineno", 0), word) for n, one in nodes for word, _ in changes(one)]


def mutant(source: str, number: int) -> str:
    """The source of a module with the node of this number changed.

    >>> mutant("def f(a):\\n    return a + 2", 5)
    'def f(a):\\n    return a - 2'
    """
    tree = ast.parse(source)
    old = next(islice(ast.walk(tree), number, None))
    _, new = next(changes(old))
    _replace(tree, old, ast.copy_location(new, old))
    return ast.unparse(ast.fix_missing_locations(tree))


def _replace(tree: ast.AST, old: ast.AST, new: ast.AST) -> None:
    for parent in ast.walk(tree):
        for field, value in ast.iter_fields(parent):
            if value is old:
                setattr(parent, field, new)
            elif isinstance(value, list) and any(one is old for one in value):
                value[[one is old for one in value].index(True)] = new


def is_killed(module: str, text: str) -> bool:
    """Whether the examples and tests of a module notice that its source is this one."""
    own = ROOT / "tests" / f"test_{module.rpartition('.')[2]}.py"
    tests = TESTS.get(module, [str(own)] if own.exists() else []) + SHARED
    with tempfile.TemporaryDirectory() as folder:
        copied = Path(folder) / "src"
        shutil.copytree(ROOT / "src", copied)
        file = copied.joinpath("exacthessian", *module.split(".")).with_suffix(".py")
        file.write_text(text, encoding="utf-8")
        environment = {**os.environ, "PYTHONPATH": str(copied), "CI": "true"}
        base = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:warnings"]
        for chosen in (["--doctest-modules", str(file), "--rootdir", str(copied)], tests):
            try:
                command = [*base, "-c", str(ROOT / "pyproject.toml"), *chosen]
                done = subprocess.run(
                    command, cwd=ROOT, env=environment, timeout=SECONDS, capture_output=True
                )
            except subprocess.TimeoutExpired:
                return True
            if done.returncode not in (0, 5):  # 5: there was nothing to run
                return True
    return False


def tried() -> dict[str, bool]:
    """Whether each mutant that was tried before was killed."""
    lines = RESULTS.read_text(encoding="utf-8").splitlines() if RESULTS.exists() else []
    return {entry["mutant"]: entry["killed"] for entry in map(json.loads, lines)}


def run(module: str, reasons: dict[str, str]) -> bool:
    """Try a sample of a module's mutants; whether enough of them are killed."""
    path = PACKAGE.joinpath(*module.split(".")).with_suffix(".py")
    source = path.read_text(encoding="utf-8")
    every = sites(source)
    size = min(len(every), int(os.environ.get("MUTANTS", SAMPLE)))
    killed, survivors = 0, []
    for number, line, word in random.Random(0).sample(every, size):
        where, text = f"{line}: {word}", mutant(source, number)
        key = f"{module}:{where}:{hash_of(text)}"
        known = tried()
        if key not in known:
            known[key] = is_killed(module, text)
            RESULTS.parent.mkdir(exist_ok=True)
            with RESULTS.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"mutant": key, "killed": known[key]}) + "\n")
        killed += known[key]
        if not known[key]:
            survivors.append(f"{module}:{where}")
    unexplained = [one for one in survivors if one not in reasons]
    print(f"{module}: {killed} of {size} killed, {len(every)} in all", *unexplained, sep="\n  ")
    explained = len(survivors) - len(unexplained)
    return killed >= ENOUGH * (size - explained)


def hash_of(text: str) -> str:
    """A short name for a source.

    >>> hash_of("")
    'e3b0c442'
    """
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def main(names: list[str]) -> int:
    """Try the named modules, or all of them."""
    reasons = tomllib.loads(SURVIVORS.read_text(encoding="utf-8")) if SURVIVORS.exists() else {}
    paths = (path.relative_to(PACKAGE).with_suffix("") for path in sorted(PACKAGE.rglob("*.py")))
    modules = names or [".".join(p.parts) for p in paths if p.name != "__init__"]
    enough = [run(module, reasons) for module in modules]
    return not all(enough)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
