"""Docstrings are plain text with Unicode mathematics; here they become safe reStructuredText.

A docstring should read well in an editor, so it writes |x| and `code` and indented formulas as
they are. Before Sphinx parses it, characters that mean something else there are escaped, single
backticks become code, and an indented formula becomes a literal block.
"""

import re

from sphinx.application import Sphinx

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


def process(
    app: Sphinx, what: str, name: str, thing: object, options: object, lines: list[str]
) -> None:
    """Rewrite a docstring in place, as Sphinx wants it."""
    lines[:] = as_restructured_text(lines)


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the extension."""
    app.connect("autodoc-process-docstring", process)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
