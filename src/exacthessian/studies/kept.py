"""Numbers of long studies, kept beside the package and bound to the code that made them.

A module of studies lists them in `STUDIES`: by name, a function and its settings. A page asks
`kept(module, name)`. If the numbers on file were made with the same code and the same settings, it
answers; otherwise the study runs now, with a progress bar. Comments and docstrings do not count as
code. To run one again, at its own size or any other:

    python -m exacthessian.studies.kept cracking_the_hessian norms
    python -m exacthessian.studies.kept cracking_the_hessian norms sizes=[40,70] networks=200

The first form, at the size of the book, rewrites the kept numbers; the second prints its result.
"""

import ast
import hashlib
import inspect
import json
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

FOLDER = Path(__file__).parents[1] / "data"


def kept(studies: ModuleType, name: str) -> Any:
    """What the study of that name returns: the kept numbers if they are its own, else by running.

    >>> from exacthessian.studies import cracking_the_hessian as cracking
    >>> sorted(kept(cracking, "products")["muP 2 1"][0][0])[-1] > 0.9
    True
    """
    study, settings = studies.STUDIES[name]
    row = _rows(studies).get(name, {})
    return row["result"] if row.get("key") == key(study, settings) else study(**settings)


def key(study: Callable[..., Any], settings: dict[str, Any]) -> str:
    """A hash of the code of a study, of what it names in its own module and in modules of the
    package imported there whole, and of its settings.

    >>> len(key(kept, {}))
    64
    """
    home, parts = sys.modules[study.__module__], {}
    todo = [study.__name__]
    while todo:
        name = todo.pop()
        value: Any = getattr(home, name, None)
        whole = inspect.ismodule(value) and value.__name__.startswith("exacthessian.")
        if whole or getattr(value, "__module__", None) == home.__name__:
            tree = _tree(inspect.getsource(value))
            parts[name] = ast.dump(tree)
            names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
            todo += [] if whole else sorted(names - parts.keys() - set(todo))
        elif isinstance(value, int | float | str | tuple):
            parts[name] = repr(value)
    return hashlib.sha256(json.dumps([parts, settings], sort_keys=True).encode()).hexdigest()


def _rows(studies: ModuleType) -> dict[str, Any]:
    file = FOLDER / f"{studies.__name__.rpartition('.')[2]}.json"
    return dict(json.loads(file.read_text())) if file.exists() else {}


def _tree(source: str) -> ast.Module:
    """The syntax tree of some source without its docstrings."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Module):
            node.body = node.body[ast.get_docstring(node) is not None :]
    return tree


def _short(result: Any) -> Any:
    """Numbers to six digits, tuples as lists."""
    if isinstance(result, dict):
        return {name: _short(value) for name, value in result.items()}
    if isinstance(result, list | tuple):
        return [_short(value) for value in result]
    return float(f"{result:.6g}") if isinstance(result, float) else result


def main(module: str, name: str, *changes: str) -> None:
    """Run one study of a module and keep its numbers; with some settings changed, print them."""
    studies = import_module(f"exacthessian.studies.{module}")
    study, settings = studies.STUDIES[name]
    changed = {k: json.loads(v) for k, _, v in (change.partition("=") for change in changes)}
    result = _short(study(**settings | changed))
    if changed:
        print(json.dumps(result))
        return
    rows = _rows(studies)
    rows[name] = {"key": key(study, settings), "settings": settings, "result": result}
    lines = (f"{json.dumps(n)}: {json.dumps(row)}" for n, row in sorted(rows.items()))
    (FOLDER / f"{module}.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
