"""How much a page asks of a reader, and what it may ask.

The counting rule. A word is a prose token with a letter; a reference counts one, an inline formula
counts one; display mathematics, code and outputs count zero. A line of a cell is a line of code
that is not blank. Visible code is that of cells whose input is not folded, in words counted the
same way; closed forms printed by `{closed-form}` are formulas, not code. A median needs five cells.

`page_budget.py` prints the counts of every page; `page_budget.py --run PAGE...` executes pages and
prints the processor time and the memory of their kernels.
"""

import re
import resource
import statistics
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from reference import ROOT, name_of, notebooks, pages

WORDS, CELLS, FORMULAS = 4000, 30, 450
FRONT_WORDS, CODE_SHARE = 1500, 0.20
CELL_MEDIAN, CELL_LINES, CLAIM_LINES = 8, 25, 12
SECONDS, MEGABYTES = 40, 1000

HEAD = re.compile(r"\A---\n.*?\n---\n", re.S)
FENCE = re.compile(
    r"^(`{3,})(\{code-cell\}.*|[a-z]+\s*|\{code-block\}.*|\{closed-form\}.*|\{math\}.*)$"
)
FOLDED = re.compile(r"hide-input|hide-cell|remove-input|remove-cell")
DISPLAY = re.compile(r"\$\$.*?\$\$( \([\w-]+\))?", re.S)
INLINE = re.compile(r"(?<!\$)\$(?!\$)[^$]+?\$")
ROLE = re.compile(r"\{[\w:.-]+\}`[^`]*`")


@dataclass(frozen=True)
class Cell:
    """A code cell: its lines of code, whether its input is folded, whether it opens a claim."""

    lines: tuple[str, ...]
    folded: bool

    @property
    def is_claim(self) -> bool:
        """Whether it decides a claim."""
        return any("claim(" in line for line in self.lines)


@dataclass(frozen=True)
class Load:
    """What a page asks of a reader."""

    words: int
    formulas: int
    cells: tuple[Cell, ...]

    @property
    def median(self) -> float:
        """The median number of lines of a cell."""
        return statistics.median([len(cell.lines) for cell in self.cells] or [0])

    @property
    def code_share(self) -> float:
        """Words of visible code as a share of all visible words."""
        code = sum(count_words("\n".join(c.lines)) for c in self.cells if not c.folded)
        return code / ((code + self.words) or 1)

    def overdrafts(self, front: bool) -> list[str]:
        """What is over the budget, and by how much; `front` is the first page of a paper."""
        longest = max((len(cell.lines) for cell in self.cells), default=0)
        claim = max((len(cell.lines) for cell in self.cells if cell.is_claim), default=0)
        counts = [
            ("words", self.words, FRONT_WORDS if front else WORDS),
            ("code cells", len(self.cells), CELLS),
            ("inline formulas", self.formulas, FORMULAS),
            ("% visible code", round(100 * self.code_share), round(100 * CODE_SHARE)),
            ("lines in the median cell", self.median if len(self.cells) > 4 else 0, CELL_MEDIAN),
            ("lines in the longest cell", longest, CELL_LINES),
            ("lines in the longest claim cell", claim, CLAIM_LINES),
        ]
        return [f"{n:g} {what}, {n - most:g} too many" for what, n, most in counts if n > most]


def count_words(text: str) -> int:
    """The tokens of a text that have a letter and are no markup.

    >>> count_words("We count 3 words, ``` and :tags: apart.")
    5
    """
    skipped = (":", "```", "http", "{")
    return sum(1 for t in text.split() if re.search(r"[A-Za-z]", t) and not t.startswith(skipped))


def load_of(text: str) -> Load:
    """The load of a page, from its source.

    >>> cell = "```{code-cell} ipython3\\nx = 1\\n```\\n"
    >>> load = load_of("# One title\\n\\n$a$ and $$b$$\\n\\n" + cell)
    >>> load.words, load.formulas, [cell.lines for cell in load.cells]
    (4, 1, [('x = 1',)])
    """
    prose, cells, fence, body, is_cell = [], [], "", [], False
    for line in HEAD.sub("", text).split("\n"):
        if fence:
            if line.rstrip() == fence:
                if is_cell:
                    cells.append(cell_of("\n".join(body) + "\n"))
                fence, body = "", []
            else:
                body.append(line)
        elif found := FENCE.match(line):
            fence, is_cell = found[1], "code-cell" in found[2]
        else:
            prose.append(line)
    plain = DISPLAY.sub(" ", "\n".join(prose))
    formulas = len(INLINE.findall(plain))
    return Load(count_words(ROLE.sub(" ref ", INLINE.sub(" X ", plain))), formulas, tuple(cells))


def cell_of(body: str) -> Cell:
    """A cell from the text between its fences."""
    options = "".join(re.findall(r"\A---\n.*?\n---\n|^:.*$", body, re.S | re.M))
    code = [line for line in HEAD.sub("", body).split("\n") if line.strip()]
    return Cell(
        tuple(line for line in code if not line.startswith(":")), bool(FOLDED.search(options))
    )


def fronts(root: Path = ROOT) -> set[str]:
    """The pages that have a folder of pages: front pages of chapters."""
    names = {name_of(page, root) for page in pages(root)}
    return {name for name in names if any(other.startswith(f"{name}/") for other in names)}


def main() -> int:
    """Print what every page asks; the exit code says whether one asks too much."""
    over = False
    for page in pages():
        load, front = load_of(page.read_text(encoding="utf-8")), name_of(page) in fronts()
        longest = max((len(cell.lines) for cell in load.cells), default=0)
        print(
            f"{name_of(page):44} words {load.words:6} cells {len(load.cells):4} "
            f"formulas {load.formulas:5} code {load.code_share:4.0%} median {load.median:4g} "
            f"longest {longest:3}"
        )
        for problem in load.overdrafts(front):
            print(f"  over: {problem}")
            over = True
    return over


def run(names: list[str]) -> int:
    """Execute pages one after the other, each in a process of its own, and print what it cost."""
    over = False
    for name in names or [name_of(page) for page in notebooks()]:
        code = "import sys; import page_budget; page_budget.cost(sys.argv[1])"
        command = [sys.executable, "-c", code, name]
        folder = Path(__file__).parent
        printed = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
        seconds, megabytes = (float(number) for number in printed.stdout.split())
        over |= seconds > SECONDS or megabytes > MEGABYTES
        print(f"{name:44} {seconds:6.1f} s of processor time, {megabytes:6.0f} MB", flush=True)
    return over


def cost(name: str) -> None:
    """Execute a page and print what its kernel took: seconds and megabytes."""
    from nbclient import NotebookClient

    from reference import source_notebook

    page = ROOT / "book" / f"{name}.md"
    resources = {"metadata": {"path": page.parent}}
    NotebookClient(source_notebook(page), timeout=600, resources=resources).execute()
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(used.ru_utime + used.ru_stime, used.ru_maxrss / 1024)


if __name__ == "__main__":
    raise SystemExit(run(sys.argv[2:]) if sys.argv[1:2] == ["--run"] else main())
