"""Numbers of long studies, kept beside the package and bound to the code that made them.

A page asks `kept(study, **settings)`. If the file of kept numbers was made with the same code and
the same settings, it answers; otherwise the study runs now, with a progress bar. Comments and
docstrings do not count as code. To run one again, at its own size or any other:

    python -m exacthessian.studies.kept cracking_the_hessian norms
    python -m exacthessian.studies.kept cracking_the_hessian norms sizes=[40,70] networks=200

The first form, at the size of the book, rewrites the kept numbers; the second prints its result.
"""

import ast
import hashlib
import inspect
import json
import sys
import textwrap
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[1] / "data"
Study = Callable[..., Any]


def kept(study: Study, **settings: Any) -> Any:
    """What `study(**settings)` returns: from the kept numbers if they are its own, else by running.

    >>> from exacthessian.studies import cracking_the_hessian as cracking
    >>> len(kept(cracking.norms, **cracking.SETTINGS["norms"])) > 0
    True
    """
    file, name = _place(study)
    row = json.loads(file.read_text()).get(name, {}) if file.exists() else {}
    return row["result"] if row.get("key") == key(study, settings) else study(**settings)


def key(study: Study, settings: dict[str, Any]) -> str:
    """A hash of the code of a study, of what it is made with (its `made_with`) and its settings.

    >>> len(key(kept, {}))
    64
    """
    parts = [study, *getattr(study, "made_with", ())]
    code = [_code(inspect.getsource(part)) for part in parts]
    return hashlib.sha256(json.dumps([code, settings], sort_keys=True).encode()).hexdigest()


def keep(study: Study, **settings: Any) -> Any:
    """Run a study and keep its numbers."""
    result = json.loads(json.dumps(_short(study(**settings))))
    file, name = _place(study)
    rows = json.loads(file.read_text()) if file.exists() else {}
    rows[name] = {"key": key(study, settings), "settings": settings, "result": result}
    lines = (f"{json.dumps(n)}: {json.dumps(row)}" for n, row in sorted(rows.items()))
    file.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    return result


def _place(study: Study) -> tuple[Path, str]:
    return FOLDER / f"{study.__module__.rpartition('.')[2]}.json", study.__name__


def _code(source: str) -> str:
    """The syntax tree of some source without its docstrings."""
    tree = ast.parse(textwrap.dedent(source))
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Module) and ast.get_docstring(
            node
        ):
            node.body = node.body[1:]
    return ast.dump(tree)


def _short(result: Any) -> Any:
    """Numbers to six digits, arrays as lists."""
    if isinstance(result, dict):
        return {name: _short(value) for name, value in result.items()}
    if isinstance(result, list | tuple):
        return [_short(value) for value in result]
    return float(f"{result:.6g}") if isinstance(result, float) else result


def main(module: str, name: str, *changes: str) -> None:
    """Run one study of a module, at its own settings or with some of them changed."""
    studies = import_module(f"exacthessian.studies.{module}")
    study, settings = getattr(studies, name), studies.SETTINGS[name]
    if changes:
        settings |= {k: json.loads(v) for k, _, v in (change.partition("=") for change in changes)}
        print(json.dumps(_short(study(**settings))))
    else:
        keep(study, **settings)


if __name__ == "__main__":
    main(*sys.argv[1:])
