"""Break the package in small ways and see its tests notice: `mutate.py [MODULE... | --sample]`.

A mutant is one small change of one module, by one of these operators: a comparison turned round or
made strict, + and −, × and ÷ exchanged, a whole number one larger, a decimal number from 0.01 on
half as large again, `not` or a minus dropped, and/or, min and max, any and all exchanged, a
transpose dropped, the sign of a returned formula changed, True and False.
Not worth breaking, so left alone: annotations, decorators, `TYPE_CHECKING`, `__all__`, `assert`,
the command line below `__main__`, what only an error's text says, `strict=` of zip, and how a
picture looks (sizes, colours, widths, places: COSMETIC).

First the examples and tests of the module run as they are, and must pass; it is noted which
functions each calls and how long it takes. Then a process that has imported what is slow to import
forks for every mutant, puts the changed module in the place of the true one, and runs the tests
that call the changed function, the fastest first. A mutant is killed when a test fails, or takes
too long. MUTANTS (15) of each module are drawn as if by lot, by a hash of what is changed, so that
the same ones are drawn until their line changes. Kills are kept in `_build/mutants.jsonl`, so that
a stopped run goes on where it was. A survivor needs a reason in `tests/survivors.toml`; without
one the exit code is 1. `--sample` tries one mutant of each module of closed forms; CI does.
"""

import ast
import contextlib
import copy
import hashlib
import importlib
import importlib.util
import json
import os
import re
import resource
import signal
import sys
import tempfile
import time
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib.machinery import ModuleSpec, SourceFileLoader
from itertools import islice
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "exacthessian"
RESULTS = ROOT / "_build" / "mutants.jsonl"
SURVIVORS = ROOT / "tests" / "survivors.toml"
SAMPLE, AT_FIRST = 15, 25
TESTS = {  # where the tests of a module are not only those called after it
    "alignment": ["aligned"],
    "assembly": ["chain"],
    "autograd.attention": ["attention", "cracking_the_hessian"],
    "autograd.distributed": ["distributed"],
    "autograd.models": ["models", "autograd"],
    "autograd.oracle": ["autograd"],
    "autograd.scalar": ["scalar", "cracking_the_hessian"],
    "autograd.ufm": ["ufm", "ufm_cross_entropy", "deep_linear_ufm"],
    "claims": ["claims", "check", "forgeries"],
    "exercises": ["course"],
    "inputs": ["inputs", "bad_input", "chain"],
    "ledger": ["claims", "check"],
    "live": ["claims", "figures"],
    "papers.deep_linear_ufm": ["deep_linear_ufm", "ufm_cross_entropy"],
    "studies.beyond_edge_of_stability": ["beyond_edge_of_stability", "training"],
    "studies.depth_not_data": ["study_depth_not_data"],
    "ufm": ["ufm", "ufm_cross_entropy", "deep_linear_ufm"],
    "widget": ["widget", "figures"],
}
CLOSED = (  # modules of closed forms, which SHARED tests hold against the oracles, too
    *("aligned", "attention", "chain", "mode", "product", "scalar", "ufm", "ufm_cross_entropy"),
    *("papers.beyond_edge_of_stability", "papers.cracking_the_hessian"),
    *("papers.deep_linear_ufm", "papers.depth_not_data"),
)
SHARED = ["exact", "closed_forms"]
SLOW_TO_IMPORT = (
    *("numpy", "numpy.testing", "scipy.linalg", "scipy.optimize", "scipy.sparse.linalg", "torch"),
    *("scipy.special", "matplotlib.pyplot", "hypothesis.extra.numpy", "mpmath", "pytest", "tqdm"),
    *("ipywidgets", "anywidget", "jsonschema", "nbformat", "jupytext", "yaml", "PIL.Image"),
)
SWAPS: dict[type, type] = {
    **{ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult},
    **{ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt},
    **{ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Is: ast.IsNot, ast.IsNot: ast.Is},
    **{ast.In: ast.NotIn, ast.NotIn: ast.In, ast.And: ast.Or, ast.Or: ast.And},
}
NAMES = {"min": "max", "max": "min", "any": "all", "all": "any"}
COSMETIC = {
    *("alpha", "bbox_to_anchor", "capsize", "color", "columnspacing", "dpi", "figsize", "fontsize"),
    *("handlelength", "height_ratios", "linewidth", "loc", "lw", "marker", "markersize", "ms"),
    *("pad", "rotation", "s", "size", "width", "xytext", "zorder", "labelsize", "titlesize"),
    *("strict", "rasterized", "ncols", "height", "indent", "ensure_ascii", "leave"),
}


@dataclass(frozen=True)
class Mutant:
    """One change of a module: the number of its place, the function, and what is done there."""

    number: int
    function: str
    change: str


def changes(node: ast.AST) -> Iterator[ast.AST]:
    """What the operators make of one node.

    >>> [ast.unparse(new) for new in changes(ast.parse("a + 1", mode="eval").body)]
    ['a - 1']
    """
    new = copy.deepcopy(node)
    if isinstance(new, ast.BinOp | ast.BoolOp) and type(new.op) in SWAPS:
        new.op = SWAPS[type(new.op)]()
        yield new
    elif isinstance(new, ast.Compare) and type(new.ops[0]) in SWAPS:
        new.ops[0] = SWAPS[type(new.ops[0])]()
        yield new
    elif isinstance(new, ast.Constant) and isinstance(new.value, bool):
        yield ast.Constant(not new.value)
    elif isinstance(new, ast.Constant) and isinstance(new.value, int):
        yield ast.Constant(new.value + 1)
    elif isinstance(new, ast.Constant) and isinstance(new.value, float) and new.value >= 0.01:
        yield ast.Constant(1.5 * new.value)
    elif isinstance(new, ast.UnaryOp) and isinstance(new.op, ast.Not | ast.USub):
        yield new.operand
    elif isinstance(new, ast.Name) and new.id in NAMES:
        yield ast.Name(NAMES[new.id], new.ctx)
    elif isinstance(new, ast.Attribute) and new.attr == "T":
        yield new.value
    elif isinstance(new, ast.Return) and isinstance(new.value, ast.BinOp):
        new.value = ast.UnaryOp(ast.USub(), new.value)
        yield new


def _left_alone(parent: ast.AST, field: str, place: int, node: ast.AST) -> bool:
    """Whether a part of the syntax tree is not worth breaking."""
    if isinstance(node, ast.Raise | ast.Assert):
        return True
    if field in ("annotation", "returns", "decorator_list"):
        return True
    if isinstance(node, ast.If) and re.search("TYPE_CHECKING|__main__", ast.unparse(node.test)):
        return True
    if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
        return True
    if isinstance(node, ast.keyword) and node.arg in COSMETIC:
        return True
    if isinstance(parent, ast.Dict) and field == "values":
        key = parent.keys[place]
        return isinstance(key, ast.Constant) and str(key.value).split(".")[-1] in COSMETIC
    refuses = isinstance(parent, ast.Call) and ast.unparse(parent.func) == "require"
    return refuses and field == "args" and place > 0


def places(
    node: ast.AST, function: str = ""
) -> Iterator[tuple[str, ast.AST, ast.AST, Callable[[ast.AST], None]]]:
    """Every part of a syntax tree: the function it is in, its parent, itself, and how to put
    another one in its place.
    """
    for field, value in ast.iter_fields(node):
        for place, child in enumerate(value if isinstance(value, list) else [value]):
            if not isinstance(child, ast.AST) or _left_alone(node, field, place, child):
                continue

            def put(new: ast.AST, field: str = field, value: Any = value, at: int = place) -> None:
                if isinstance(value, list):
                    value[at] = new
                else:
                    setattr(node, field, new)

            inner = function
            if isinstance(child, ast.ClassDef) or (
                isinstance(child, ast.FunctionDef) and not isinstance(node, ast.FunctionDef)
            ):
                inner = f"{function}.{child.name}".lstrip(".")
            yield function, node, child, put
            yield from places(child, inner)


def mutants(source: str) -> list[Mutant]:
    """Every mutant of a module.

    >>> for one in mutants("def f(a):\\n    return a + 2"):
    ...     print(one.function, one.change)
    f return a + 2 -> return -(a + 2)
    f a + 2 -> a - 2
    f a + 2 -> a + 3
    >>> mutants("def f(a: 'int') -> 1:\\n    assert a > 0\\n    raise ValueError(f'{a + 1}')")
    []
    """
    found, seen = [], Counter[tuple[str, str]]()
    for number, (function, parent, old, put) in enumerate(places(ast.parse(source))):
        for new in changes(old):
            alone = isinstance(old, ast.BinOp | ast.BoolOp | ast.Compare)
            whole = old if alone or not isinstance(parent, ast.expr) else parent
            before = ast.unparse(whole)
            put(new)
            after = ast.unparse(ast.fix_missing_locations(whole if whole is not old else new))
            put(old)
            if max(len(before), len(after)) > 90:
                before, after = (ast.unparse(one) for one in (old, new))
            change = f"{before} -> {after}"
            seen[function, change] += 1
            count = seen[function, change]
            found.append(Mutant(number, function, change + f" ({count})" * (count > 1)))
    return found


def mutated(source: str, number: int) -> ast.Module:
    """The syntax tree of a module with the part of this number changed.

    >>> source = "def f(a):\\n    return a + 2"
    >>> ast.unparse(mutated(source, mutants(source)[1].number))
    'def f(a):\\n    return a - 2'
    """
    tree = ast.parse(source)
    _, _, old, put = next(islice(places(tree), number, None))
    put(ast.copy_location(next(changes(old)), old))
    return ast.fix_missing_locations(tree)


class _Instead(SourceFileLoader):
    """A plugin of pytest that loads one module from another syntax tree, under its own name."""

    def __init__(self, module: str, tree: ast.Module) -> None:
        super().__init__(f"exacthessian.{module}", str(path_of(module)))
        self.tree = tree

    def pytest_collection(self) -> None:
        """Stand before pytest's own loader, which rewrites the files that it is given."""
        sys.meta_path.insert(0, self)

    def get_code(self, fullname: str) -> Any:
        """The code of the tree."""
        return compile(self.tree, self.path, "exec")

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        """The finder's part: this module, and no other."""
        if name != self.name:
            return None
        return importlib.util.spec_from_file_location(name, self.path, loader=self)


class _Notes:
    """A plugin of pytest: which functions of a module each test calls, and how long it takes."""

    def __init__(self, module: str) -> None:
        self.file, self.now = str(path_of(module)), set[str]()
        self.calls: dict[str, list[str]] = {}
        self.seconds: dict[str, float] = {}

    def _note(self, frame: Any, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_filename == self.file:
            self.now.add(frame.f_code.co_qualname.split(".<locals>")[0])

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Begin to note."""
        self.now.clear()
        self.seconds[nodeid] = time.perf_counter()
        sys.setprofile(self._note)

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        """Keep what was noted."""
        sys.setprofile(None)
        self.seconds[nodeid] = time.perf_counter() - self.seconds[nodeid]
        self.calls[nodeid] = sorted(self.now)


def path_of(module: str) -> Path:
    """The file of a module.

    >>> path_of("papers.depth_not_data").name
    'depth_not_data.py'
    """
    return PACKAGE.joinpath(*module.split(".")).with_suffix(".py")


def files_for(module: str) -> list[str]:
    """The docstrings of a module and the files of its tests.

    >>> [Path(path).name for path in files_for("alignment")]
    ['alignment.py', 'test_aligned.py']
    """
    names = TESTS.get(module, [module.rpartition(".")[2]]) + SHARED * (module in CLOSED)
    files = [ROOT / "tests" / f"test_{name}.py" for name in names]
    return [str(path) for path in (path_of(module), *files) if path.exists()]


def in_a_child(task: Callable[[], int], seconds: float) -> int | None:
    """What a task gives back, done in a forked process; something else if it takes so many seconds
    of the processor, which a busy machine does not change, or ten times as many to wait.
    """
    child = os.fork()
    if not child:
        status = 99
        with contextlib.suppress(BaseException):
            os.setsid()
            resource.setrlimit(resource.RLIMIT_CPU, (int(seconds), int(seconds) + 5))
            quiet = os.open(os.devnull, os.O_RDWR)
            for stream in (0, 1, 2):
                os.dup2(quiet, stream)
            status = task()
        os._exit(status)
    end = time.monotonic() + 10 * seconds
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.02)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


def _pytest(*arguments: str, plugins: Sequence[object] = ()) -> int:
    import pytest

    os.chdir(ROOT)
    base = ["-q", "-x", "--doctest-modules", "-W", "ignore::pytest.PytestAssertRewriteWarning"]
    return int(pytest.main([*base, *arguments], plugins=plugins))


@dataclass(frozen=True)
class Control:
    """The tests of a module as they pass without a mutant: what each calls, and its seconds."""

    module: str
    calls: dict[str, list[str]]
    seconds: dict[str, float]

    @classmethod
    def of(cls, module: str) -> "Control":
        """Run the tests of a module once; they must pass."""
        with tempfile.TemporaryDirectory() as folder:
            noted = Path(folder) / "notes.json"

            def run() -> int:
                notes = _Notes(module)
                done = _pytest(*files_for(module), plugins=[notes])
                noted.write_text(json.dumps([notes.calls, notes.seconds]))
                return done

            if in_a_child(run, 1800) != 0:
                raise SystemExit(f"{module}: its tests do not pass as they are")
            return cls(module, *json.loads(noted.read_text()))

    @classmethod
    def unmeasured(cls, module: str, most: int = 9) -> "Control":
        """The files of a module's tests in their order, when others have seen that they pass."""
        files = files_for(module)[:most]
        return cls(module, {file: [] for file in files}, {f: 20.0 + n for n, f in enumerate(files)})

    def batches(self, function: str) -> list[list[str]]:
        """The tests in the order in which they are tried: those that call a function before the
        others, the fastest first, a few in the first batch.
        """
        tests = sorted(self.calls, key=self.seconds.__getitem__)
        near = [test for test in tests if function in self.calls[test]]
        others = [test for test in tests if test not in set(near)]
        return [part for part in (near[:AT_FIRST], near[AT_FIRST:], others) if part]

    def kills(self, tree: ast.Module, function: str) -> bool:
        """Whether one of the tests notices that the module is another one."""
        for batch in self.batches(function):

            def run(batch: list[str] = batch) -> int:
                return _pytest(*batch, plugins=[_Instead(self.module, tree)])

            seconds = 20 + 4 * sum(map(self.seconds.__getitem__, batch))
            if in_a_child(run, seconds) != 0:
                return True
        return False


def drawn(source: str, size: int) -> list[Mutant]:
    """The mutants of a module that are tried: as if by lot, but the same until their line changes.

    >>> [one.change for one in drawn("def f(a):\\n    return a + 2", 1)]
    ['a + 2 -> a - 2']
    """
    every = mutants(source)
    return sorted(every, key=lambda one: hash_of(f"{one.function} {one.change}"))[:size]


def hash_of(text: str) -> str:
    """A short name for a text.

    >>> hash_of("")
    'e3b0c44298fc'
    """
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def killed_before() -> set[str]:
    """The mutants that earlier runs have killed."""
    lines = RESULTS.read_text(encoding="utf-8").splitlines() if RESULTS.exists() else []
    return set(map(json.loads, lines))


def run(module: str, reasons: dict[str, str], size: int) -> bool:
    """Try a sample of a module's mutants; whether all survivors have a reason, and are few."""
    source = path_of(module).read_text(encoding="utf-8")
    sample, before, control, survivors = drawn(source, size), killed_before(), None, []
    started = time.monotonic()
    for mutant in sample:
        key = f"{module}.{mutant.function}: {mutant.change}"
        tree = mutated(source, mutant.number)
        mark = f"{key} {hash_of(ast.unparse(tree))}"
        if mark in before:
            continue
        control = control or Control.of(module)
        if not control.kills(tree, mutant.function):
            survivors.append(key)
            print(f"  survives: {key}", flush=True)
            continue
        RESULTS.parent.mkdir(exist_ok=True)
        with RESULTS.open("a", encoding="utf-8") as file:
            file.write(json.dumps(mark) + "\n")
    unexplained = [key for key in survivors if key not in reasons]
    explained = len(survivors) - len(unexplained)
    print(
        f"{module}: {len(sample) - len(survivors)} of {len(sample)} killed, {explained} explained, "
        f"{len(mutants(source))} in all, {time.monotonic() - started:.0f} s",
        flush=True,
    )
    return not unexplained


def modules() -> list[str]:
    """The modules of the package, as paths below it.

    >>> "papers.depth_not_data" in modules()
    True
    """
    paths = (path.relative_to(PACKAGE).with_suffix("") for path in sorted(PACKAGE.rglob("*.py")))
    return [".".join(path.parts) for path in paths if path.name != "__init__"]


def prepare(names: Iterable[str] = SLOW_TO_IMPORT) -> None:
    """Import what is slow to import, so that a child need not."""
    os.environ.update(CI="true", MPLBACKEND="agg")
    for name in names:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)


def sample(reasons: dict[str, str]) -> bool:
    """One mutant of each module of closed forms, and one that is none, within a minute or so."""
    unchanged = ast.parse(path_of("scalar").read_text(encoding="utf-8"))
    if Control.unmeasured("scalar", most=2).kills(unchanged, ""):
        raise SystemExit("scalar: its tests do not pass as they are")
    survivors = []
    for module in CLOSED:
        source = path_of(module).read_text(encoding="utf-8")
        (mutant,) = drawn(source, 1)
        key = f"{module}.{mutant.function}: {mutant.change}"
        killed = Control.unmeasured(module).kills(mutated(source, mutant.number), mutant.function)
        print(f"  {'killed' if killed else 'survives'}: {key}", flush=True)
        survivors += [key] * (not killed and key not in reasons)
    return not survivors


def main(names: list[str]) -> int:
    """Try the named modules, or all of them, or with `--sample` one mutant of each closed form."""
    prepare()
    reasons = tomllib.loads(SURVIVORS.read_text(encoding="utf-8"))
    if names == ["--sample"]:
        return not sample(reasons)
    size = int(os.environ.get("MUTANTS", SAMPLE))
    enough = [run(module, reasons, size) for module in names or modules()]
    return not all(enough)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
