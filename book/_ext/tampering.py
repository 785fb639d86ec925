"""What a cell has no business to do: a verdict comes from `claim(...)` and from computed numbers.

This reads the code of a page. It is no sandbox: it names the short ways to a verdict that nothing
supports, so that a long one would have to be written where every reader sees it.
"""

import ast
import builtins
import re
from collections.abc import Iterable, Iterator

TEXT = re.compile(r"data-record|data-seal|eh-verdict|EXACTHESSIAN_")
NAMES = {"setattr", "delattr", "globals", "vars", "exec", "eval", "compile", "__import__"}
NAMES |= {"Referee", "Record", "Check", "Interval", "reload", "monkeypatch", "mock", "patch"}
NAMES |= {"getattr", "get_ipython", "import_module", "modules", "environ", "getenv", "settrace"}
NAMES |= {"ctypes", "gc", "subprocess", "open", "write_text", "write_bytes", "setprofile"}
NAMEDTUPLE = {"_asdict", "_fields", "_replace"}
CHECKS = {"printed", "corrected", "misprint", "exception"}


def problems(sources: Iterable[str]) -> list[tuple[int, str]]:
    """What is wrong with the code cells of a page: the number of each such cell, and what.

    >>> problems(["from exacthessian import claims", "claims.gap = max"])
    [(2, "touches 'claims.gap', which only the package's claims may")]
    >>> problems(["with claim('a/b') as c:", "    c.printed(error=0, tol=0)"][:1])
    [(1, 'is no Python')]
    """
    found, trees = [], []
    for number, source in enumerate(sources, start=1):
        try:
            trees.append((number, ast.parse(source)))
        except SyntaxError:
            found.append((number, "is no Python"))
            continue
        if touched := TEXT.search(source):
            found.append((number, _touches(touched[0])))
    imported = {name for _, tree in trees for name in _imported(tree)}
    assigned = dict(pair for _, tree in trees for pair in _assigned(tree))
    for name, value in assigned.items():  # another name for what was imported
        if isinstance(value, ast.Name | ast.Attribute) and _root(value) in imported:
            imported.add(name)
    for name in (name for _, tree in trees for name in _accumulated(tree)):
        assigned.pop(name, None)
    for number, tree in trees:
        for node in ast.walk(tree):
            if touched_name := _tampers(node, imported):
                found.append((number, _touches(touched_name)))
            if kind := _types(node, assigned):
                found.append((number, f"types {kind} of a check, which must be computed"))
    return sorted(set(found))


def _touches(what: str) -> str:
    return f"touches {what!r}, which only the package's claims may"


def _imported(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield from ((alias.asname or alias.name).split(".")[0] for alias in node.names)


def _tampers(node: ast.AST, imported: set[str]) -> str:
    """The name of something of others that a piece of code changes or reaches into, or nothing."""
    if isinstance(node, ast.Name) and (node.id in NAMES or node.id.startswith("__")):
        return node.id
    if isinstance(node, ast.Import | ast.ImportFrom):
        names = {alias.name.split(".")[-1] for alias in node.names}
        star = "exacthessian" in (getattr(node, "module", "") or "") and "*" in names
        private = {name for name in names if name.startswith("_")}
        return "import *" if star else next(iter(sorted(names & NAMES | private)), "")
    if isinstance(node, ast.Attribute) and (
        node.attr in NAMES or (node.attr.startswith("_") and node.attr not in NAMEDTUPLE)
    ):
        return ast.unparse(node)
    if isinstance(node, ast.Attribute | ast.Subscript) and not isinstance(node.ctx, ast.Load):
        return ast.unparse(node) if _root(node) in imported else ""
    return ""


def _root(node: ast.AST) -> str:
    """The name that a chain of attributes, entries and calls begins with, or nothing."""
    while isinstance(node, ast.Attribute | ast.Subscript | ast.Call):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else ""


def _assigned(tree: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """Each name that is given a value, and the expression of the value."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            yield from ((t.id, node.value) for t in node.targets if isinstance(t, ast.Name))


def _accumulated(tree: ast.AST) -> Iterator[str]:
    """Each name that a loop or an operator gives further values."""
    for node in ast.walk(tree):
        if isinstance(node, ast.AugAssign | ast.For):
            yield from (inner.id for inner in ast.walk(node.target) if isinstance(inner, ast.Name))


def _types(node: ast.AST, assigned: dict[str, ast.AST]) -> str:
    """What a call of a check is given as a literal instead of a computed value, or nothing."""
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
        return ""
    options = {option.arg: option.value for option in node.keywords}
    if node.func.attr in CHECKS:
        if "error" in options and _is_typed(options["error"], assigned):
            return "the error"
        if len(node.args) > 1 and all(_is_typed(one, assigned) for one in node.args[:2]):
            return "both sides"
    if node.func.attr == "measured" and node.args and _is_typed(node.args[0], assigned):
        return "the effects"
    return ""


def _is_typed(value: ast.AST, assigned: dict[str, ast.AST], depth: int = 0) -> bool:
    """Whether an expression is made of literals and built-in functions only, through its names."""
    for node in ast.walk(value):
        if isinstance(node, ast.Attribute):
            return False
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            behind = assigned.get(node.id)
            if behind is None or depth > 5:
                if not hasattr(builtins, node.id):
                    return False
            elif not _is_typed(behind, assigned, depth + 1):
                return False
    return True
