"""Check a ledger: `python -m exacthessian.check ledger.json [book]`.

Every verdict is computed again from the recorded errors and tolerances, and the whole ledger from
the registries of this package and the records in the file; one that was edited is refused, with a
sentence for each row. Who edits a file can also compute its digests anew, and then an error may
have been moved on its own side of its tolerance. So with the folder `book` of the repository each
record is held against what the accepted notebook of its page prints, too.
"""

import json
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from exacthessian.claims import WORDS, Record
from exacthessian.ledger import faults


def _unprinted(table: Mapping[str, Any], book: Path) -> list[str]:
    """Where the ledger and what the accepted notebooks print differ."""
    everything = "\n".join(map(_printed, sorted(book.rglob("*.ipynb"))))
    problems = []
    for row in [*table["claims"], *table["figures"]]:
        if not row["cell"] and f"\n{row['id']}: " in everything:
            problems.append(f"{row['id']}: a notebook prints a record that the ledger has not")
        if row.get("leaf", True) and row["cell"]:
            page = row["cell"].partition(".html#")[0].removeprefix("book/")
            note = f" ({row['note']})" if row["note"] else ""
            figure = f"{row['id']}: {row.get('status')}{note}"
            text = str(Record.of(row)) if "verdict" in row else figure
            if text not in _printed(book / f"{page}.ipynb"):
                problems.append(f"{row['id']}: the notebook of {page} does not print this record")
    return problems


@cache
def _printed(notebook: Path) -> str:
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    outputs = (output for cell in cells for output in cell.get("outputs", []))
    texts = (o.get("text") or o.get("data", {}).get("text/plain", "") for o in outputs)
    return "\n".join(["", *("".join(text) for text in texts)])


def _main(arguments: Sequence[str]) -> int:
    if len(arguments) not in (1, 2):
        print("usage: python -m exacthessian.check ledger.json [book]", file=sys.stderr)
        return 2
    path, *book = map(Path, arguments)
    table = {"digest": "missing", **json.loads(path.read_text(encoding="utf-8"))}
    problems = faults(table)
    if book and not problems:
        problems = _unprinted(table, *book)
    if problems:
        print(*problems, f"{path}: refused", sep="\n", file=sys.stderr)
        return 1
    counts = Counter(row["verdict"] for row in table["claims"] if row["leaf"])
    print(*(f"{counts[verdict]:4}  {WORDS[verdict]}" for verdict in WORDS), sep="\n")
    print(f"{counts.total():4}  claims; every verdict follows. Digest {table['digest']}")
    return 0


if __name__ == "__main__":
    raise SystemExit(_main(sys.argv[1:]))
