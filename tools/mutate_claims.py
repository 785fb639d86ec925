"""Break each numbered function a little, and see its verdict move.

`mutate_claims.py PAGE...` executes pages (all, if none is named). For every claim that a numbered
function decides, the function is made to return 1.01 times its result (0.01 instead of 0), the
claim's checks are made again, and the verdict must change or be refused. Where it does not, as for
a direction, the entries are multiplied by different factors from 1 to 1.01. A verdict that does not
move hangs on nothing: its claim is named, and the exit code is 1.
"""

import contextlib
import dataclasses
import importlib
import io
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from reference import ROOT, name_of, notebooks, source_notebook

FACTOR = 1.01


def scaled(result: Any, tilt: bool = False) -> Any:
    """A result times 1.01, whatever it is made of; a zero is moved, a boolean is turned round.
    With `tilt`, the factors of an array's entries go from 1 to 1.01.

    >>> scaled(2), scaled((True, [1.0])), scaled({"a": 3.0}), scaled(np.zeros(2))
    (2.02, (False, [1.01]), {'a': 3.0300000000000002}, array([0.01, 0.01]))
    >>> scaled(np.ones(3), tilt=True)
    array([1.   , 1.005, 1.01 ])
    """
    if isinstance(result, bool | np.bool_):
        return not result
    if isinstance(result, int | float | complex | np.generic | np.ndarray):
        if not np.any(result):
            return result + (FACTOR - 1)
        if tilt and isinstance(result, np.ndarray):
            return result * np.linspace(1, FACTOR, result.size).reshape(result.shape)
        return FACTOR * result
    if isinstance(result, tuple) and hasattr(result, "_fields"):
        return type(result)(*(scaled(part, tilt) for part in result))
    if isinstance(result, tuple | list):
        return type(result)(scaled(part, tilt) for part in result)
    if isinstance(result, dict):
        return {key: scaled(value, tilt) for key, value in result.items()}
    if hasattr(result, "multiplicities"):
        return dataclasses.replace(result, values=FACTOR * result.values)
    if dataclasses.is_dataclass(result):
        for field in dataclasses.fields(result):
            with contextlib.suppress(TypeError, ValueError):  # a width, an orthogonal basis
                changed = scaled(getattr(result, field.name), tilt)
                result = dataclasses.replace(result, **{field.name: changed})
        return result
    raise TypeError(f"no rule how to break a {type(result).__name__}")


@contextlib.contextmanager
def broken(
    path: str, namespace: dict[str, Any], tilt: bool
) -> Iterator[tuple[Any, Callable[..., Any]]]:
    """The package, and the names of a page, with one function broken: the old one and the new."""
    module, names = _module_of(path)
    owner: Any = module
    for name in names[:-1]:
        owner = getattr(owner, name)
    original = getattr(owner, names[-1])

    def mutant(*arguments: Any, **options: Any) -> Any:
        return scaled(original(*arguments, **options), tilt)

    aliases = [name for name, value in namespace.items() if value is original]
    setattr(owner, names[-1], mutant)
    namespace.update(dict.fromkeys(aliases, mutant))
    try:
        yield original, mutant
    finally:
        setattr(owner, names[-1], original)
        namespace.update(dict.fromkeys(aliases, original))


def _module_of(path: str) -> tuple[Any, list[str]]:
    names = path.split(".")
    for split in range(len(names) - 1, 0, -1):
        with contextlib.suppress(ModuleNotFoundError):
            module = importlib.import_module(".".join(["exacthessian", *names[:split]]))
            return module, names[split:]
    raise ValueError(f"the package has no module for {path!r}")


def executed(page: Path) -> dict[str, Any]:
    """Execute a page's cells in this process; its names."""
    from IPython.core.interactiveshell import InteractiveShell

    shell = InteractiveShell.instance()
    os.chdir(page.parent)
    for cell in source_notebook(page).cells:
        if cell.cell_type == "code":
            with contextlib.redirect_stdout(io.StringIO()):
                shell.run_cell(cell.source).raise_error()
    return shell.user_ns


def verdict_when_broken(referee: Any, namespace: dict[str, Any], tilt: bool = False) -> str:
    """The verdict of a claim when its numbered function is broken, or what is refused."""
    from exacthessian import claims

    record = referee.record
    with broken(referee.subject.form, namespace, tilt) as (original, mutant):
        facts = {}
        for check in referee.comparisons:
            form = mutant if check.form is original else check.form
            again = dataclasses.replace(check, form=form)
            facts[check.kind] = claims._compared(again, "", "")
    try:
        subject = dataclasses.replace(referee.subject, form="")
        return claims.decide(dataclasses.replace(record, **facts), subject)
    except claims.ClaimError:
        return "refused"


def survivors_of(name: str) -> list[str]:
    """The claims of a page whose verdict does not move when their function is broken."""
    from exacthessian import claims

    namespace = executed(ROOT / "book" / f"{name}.md")
    survivors = []
    for referee in [r for r in claims.OPENED if r.subject.form]:
        verdict, moved = referee.verdict, verdict_when_broken(referee, namespace)
        if moved == verdict:
            moved = verdict_when_broken(referee, namespace, tilt=True)
        print(f"  {referee.subject.form}: {referee.subject.id} {verdict} → {moved}", flush=True)
        if moved == verdict:
            survivors.append(f"{referee.subject.id} hangs on nothing: {referee.subject.form}")
    return survivors


def main(names: list[str]) -> int:
    """Break the functions of each page in a process of its own."""
    if names[:1] == ["--here"]:
        survivors = survivors_of(names[1])
        print("\n".join(survivors), file=sys.stderr)
        return bool(survivors)
    failed = False
    environment = {**os.environ, "EXACTHESSIAN_STRICT": "1", "MPLBACKEND": "agg"}
    for page in notebooks():
        text = page.read_text(encoding="utf-8")
        if (names and name_of(page) not in names) or "claim(" not in text:
            continue
        print(name_of(page), flush=True)
        command = [sys.executable, __file__, "--here", name_of(page)]
        failed |= subprocess.run(command, env=environment).returncode != 0
    return failed


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
