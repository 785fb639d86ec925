"""Start a paper: registry, module, oracle, test and pages from a template that builds green.

`new_paper.py NAME` takes the paper's short name, words joined by hyphens (`depth-not-data`).
Nothing is written if any of the files exists. The table of contents gets the chapter and its page.
"""

import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TEMPLATE = Path(__file__).with_name("new_paper")
NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")


def targets(module: str, name: str) -> dict[str, Path]:
    """Where each file of the template goes, below the repository."""
    package = Path("src/exacthessian")
    return {
        "registry.toml": package / "registry" / f"{name}.toml",
        "paper.py": package / "papers" / f"{module}.py",
        "oracle.py": package / "autograd" / f"{module}.py",
        "test.py": Path("tests") / f"test_{module}.py",
        "front.md": Path("book") / f"{module}.md",
        "page.md": Path("book") / module / "first_claim.md",
    }


def with_chapter(toc: str, module: str) -> str:
    """The table of contents with a chapter and its page at the end of the papers.

    >>> print(with_chapter("- caption: Papers\\n  chapters:\\n- caption: Next", "x"))
    - caption: Papers
      chapters:
          - file: book/x
            sections:
              - file: book/x/first_claim
    - caption: Next
    """
    head, papers, rest = toc.partition("- caption: Papers\n")
    if not papers:
        raise SystemExit("_toc.yml has no part with the caption 'Papers'")
    end = re.search(r"^ *- caption:", rest, re.M)
    cut = end.start() if end else len(rest)
    lines = [
        f"      - file: book/{module}",
        "        sections:",
        f"          - file: book/{module}/first_claim",
    ]
    return head + papers + rest[:cut] + "\n".join(lines) + "\n" + rest[cut:]


def next_number(folder: Path) -> int:
    """One more than the largest number of a registered paper."""
    files = folder.glob("*.toml")
    return 1 + max(tomllib.loads(file.read_text(encoding="utf-8"))["number"] for file in files)


def main(arguments: list[str]) -> int:
    """Write the files, or say in one sentence why not."""
    name = arguments[0] if len(arguments) == 1 else ""
    if not NAME.fullmatch(name):
        print(f"NAME must be lower-case words joined by hyphens, got {name!r}", file=sys.stderr)
        return 1
    module = name.replace("-", "_")
    places = {source: ROOT / path for source, path in targets(module, name).items()}
    if taken := [path for path in places.values() if path.exists()]:
        print(f"{taken[0].relative_to(ROOT)} exists: nothing was written", file=sys.stderr)
        return 1
    number = next_number(ROOT / "src" / "exacthessian" / "registry")
    toc = ROOT / "_toc.yml"
    contents = with_chapter(toc.read_text(encoding="utf-8"), module)
    for source, path in places.items():
        text = (TEMPLATE / source).read_text(encoding="utf-8")
        text = text.replace("toy-paper", name).replace("toy_paper", module)
        path.parent.mkdir(exist_ok=True)
        path.write_text(text.replace("number = 0", f"number = {number}"), encoding="utf-8")
        print(f"wrote {path.relative_to(ROOT)}")
    toc.write_text(contents, encoding="utf-8")
    print("added the chapter to _toc.yml; next: make accept, make test")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
