"""The package reference: `{package}` lists every module of the package, and its docstrings are read
as they are.

A module is on the page because it is in the package; nobody keeps a list. Docstrings are plain text
with Unicode mathematics; here they become safe reStructuredText.

A docstring should read well in an editor, so it writes |x| and `code` and indented formulas as
they are. Before Sphinx parses it, characters that mean something else there are escaped, single
backticks become code, and an indented formula becomes a literal block.
"""

import ast
import re
from pathlib import Path

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from exacthessian import claims

CODE = re.compile(r"`([^`]+)`")
SPECIAL = re.compile(r"([\\*|])")
TRAILING_UNDERSCORE = re.compile(r"(?<=\w)_(?=\W|$)")


def escaped(line: str) -> str:
    """One line of prose with code marked as code and everything else taken literally.

    >>> escaped("max|x_i| over `values`, A*")
    'max\\\\|x_i\\\\| over ``values``, A\\\\*'
    """
    pieces = CODE.split(line)
    for index, piece in enumerate(pieces):
        if index % 2:
            pieces[index] = f"``{piece}``"
        else:
            pieces[index] = TRAILING_UNDERSCORE.sub(r"\\_", SPECIAL.sub(r"\\\1", piece))
    return "".join(pieces)


def as_restructured_text(lines: list[str]) -> list[str]:
    """A docstring's lines, prose escaped, formulas and examples kept as they are.

    >>> as_restructured_text(["A sum", "", "    a + b*", "", "of *two*."])
    ['A sum', '', '::', '', '    a + b*', '', 'of \\\\*two\\\\*.']
    """
    result: list[str] = []
    inside = ""
    for line in lines:
        if not line.strip():
            inside = inside if inside == "formula" else ""
        elif inside == "example" or line.lstrip().startswith(">>>"):
            inside = "example"
        elif line.startswith("    "):
            if inside != "formula":
                result += ["::", ""]
            inside = "formula"
        else:
            inside = ""
            line = escaped(line)
        result.append(line)
    return result


def modules() -> list[str]:
    """The modules of the package, by their path below it; those that are empty are left out.

    >>> "papers.depth_not_data" in modules(), "papers" in modules()
    (True, False)
    """
    files = sorted(claims.PACKAGE.rglob("*.py"), key=lambda file: (len(file.parts), file))
    paths = [file.relative_to(claims.PACKAGE) for file in files if defines(file)]
    return [".".join(path.with_suffix("").parts) for path in paths]


def defines(file: Path) -> bool:
    """Whether a file defines anything public."""
    body = ast.parse(file.read_text(encoding="utf-8")).body
    public = (n for n in body if isinstance(n, ast.FunctionDef | ast.ClassDef))
    return any(not node.name.startswith("_") for node in public)


class Package(SphinxDirective):
    """A section for each module with all its public names."""

    def run(self) -> list[nodes.Node]:
        """Let autodoc write the entries."""
        sections = []
        for path in modules():
            lines = [f".. automodule:: exacthessian.{path}", "   :members:"]
            section = nodes.section("", nodes.title(text=path), ids=[f"module-{path}"])
            section["names"].append(f"module {path}")
            section += self.parse_rst(lines)
            sections.append(section)
        return sections

    def parse_rst(self, lines: list[str]) -> list[nodes.Node]:
        """Nodes of reStructuredText, which autodoc needs."""
        text = ["```{eval-rst}", *lines, "```"]
        node = nodes.Element()
        self.state.nested_parse(StringList(text), self.content_offset, node)
        return node.children


def process(
    app: Sphinx, what: str, name: str, thing: object, options: object, lines: list[str]
) -> None:
    """Rewrite a docstring in place, as Sphinx wants it."""
    lines[:] = as_restructured_text(lines)


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the extension."""
    app.add_directive("package", Package)
    app.connect("autodoc-process-docstring", process)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
