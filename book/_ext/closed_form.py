"""`{closed-form} papers.depth_not_data.theorem_3_5`: the code of a formula, below its theorem.

What is printed is the function as the package has it, signature and formula; its docstring and the
checks of its arguments are left out. The link below it leads to the whole entry in the reference.
"""

import ast

from docutils import nodes
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from exacthessian import claims


def formula(path: str) -> str:
    """The source of a function of the package without docstring and argument checks.

    >>> print(formula("claims.source_hash"))
    def source_hash(path: str) -> str:
        node = definition(path)
        return hashlib.sha256(ast.dump(node).encode()).hexdigest()[:12]
    """
    node = claims.definition(path)
    if node is None:
        raise ValueError(f"the package has no function {path!r}")
    if not ast.get_docstring(node):
        raise ValueError(f"{path} has no docstring, so the reference has no entry to link to")
    lines = claims.source_file(path).read_text(encoding="utf-8").splitlines()
    dropped = {line for part in node.body if is_check(part) for line in span(part)}
    dropped |= set(span(node.body[0]))
    kept = [
        lines[number - 1]
        for number in range(node.lineno, (node.end_lineno or node.lineno) + 1)
        if number not in dropped
    ]
    return "\n".join(line[node.col_offset :] for line in kept)


def span(part: ast.stmt) -> range:
    """The numbers of the lines that a statement stands on."""
    return range(part.lineno, (part.end_lineno or part.lineno) + 1)


def is_check(part: ast.stmt) -> bool:
    """Whether a statement only refuses arguments: an `if` that raises and has no other branch, or
    a call of `require`.

    >>> [is_check(part) for part in ast.parse("require(n > 0, 'n', n); n = 1").body]
    [True, False]
    """
    if isinstance(part, ast.Expr) and isinstance(part.value, ast.Call):
        return ast.unparse(part.value.func) == "require"
    return isinstance(part, ast.If) and isinstance(part.body[-1], ast.Raise) and not part.orelse


class ClosedForm(SphinxDirective):
    """A block of code, and a line that says where it lives."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """The code and the link; a name that is wrong stops the build."""
        path = self.arguments[0]
        try:
            text = formula(path)
        except ValueError as error:
            raise self.error(f"closed-form: {error}") from error
        self.env.note_dependency(claims.source_file(path))  # read again when it changes
        code = nodes.literal_block(text, text, language="python", classes=["eh-closed-form"])
        self.set_source_info(code)
        link = pending_xref(
            "",
            nodes.literal(text=path),
            refdomain="py",
            reftype="obj",
            reftarget=f"exacthessian.{path}",
            refdoc=self.env.docname,
            refexplicit=True,
            refwarn=True,
        )
        self.set_source_info(link)
        where = nodes.paragraph("", "", nodes.Text("Closed form: "), link)
        where["classes"].append("eh-where")
        return [nodes.container("", code, where, classes=["eh-formula"])]


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the extension."""
    app.add_directive("closed-form", ClosedForm)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
