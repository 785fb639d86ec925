"""What the book's verdicts rest on, a line for each claim, and how that differs from the baseline.

`tests/verdicts.json` holds the lines of the last baseline. `make accept` shows every line that is
another one now: a tolerance, the size of an error, a statement, a verdict. A test demands that the
changelog names the id of each of them; the changelog also has the digest of the baseline, so that
a new baseline is seen, too. `python tools/verdicts.py --baseline` writes one, for a release.
"""

import hashlib
import json
import math
import re
import sys
from dataclasses import asdict
from pathlib import Path

import reference
from exacthessian import claims

BASELINE = reference.ROOT / "tests" / "verdicts.json"
CHANGELOG = reference.ROOT / "CHANGELOG.md"
CHECK = re.compile(r"  (printed form|corrected form|excluded cases|effect): (.*)")


def line(record: str, subject: claims.Claim) -> str:
    """The verdict, what its checks allow and find, and a hash of what the registry says.

    >>> subject = claims.Claim("a/b", "B", "One.")
    >>> line("a/b: fails\\n  printed form: 2 cases against x: off by 0.31 (allowed 1e-9)", subject)
    'fails; printed: allowed 1e-9, error 1e-1; equal up to 1e-06; text 513dcc25'
    """
    verdict, *rest = record.removeprefix(f"{subject.id}: ").splitlines()
    words = [verdict]
    for name, fact in (match.groups() for match in map(CHECK.match, rest) if match):
        words.append(f"{name.split()[0]}: {_numbers(fact)}")
    text = [subject.statement, subject.hypotheses, subject.erratum and asdict(subject.erratum)]
    digest = hashlib.sha256(json.dumps(text).encode()).hexdigest()[:8]
    return "; ".join([*words, f"{subject.kind} up to {subject.loosest:g}", f"text {digest}"])


def _numbers(fact: str) -> str:
    if above := re.search(r"over (\d+) seeds, against (\S+)", fact):
        return f"{above[1]} seeds, above {above[2]}"
    if allowed := re.search(r"(?:off by (\S+)|other shape).* \(allowed (\S+)\)$", fact):
        size = f"1e{math.floor(math.log10(float(allowed[1]))):+d}" if allowed[1] else "shape"
        return f"allowed {allowed[2]}, error {size}"
    within = re.search(r"within (\S+)", fact)
    return f"within {within[1]}" if within else "equal"


def lines(book: Path = reference.ROOT / "book") -> dict[str, str]:
    """The line of every claim that an accepted notebook decides."""
    found = {}
    subjects = {id: s for name in claims.REGISTRIES for id, s in claims.paper(name).claims.items()}
    for path in sorted(book.rglob("*.ipynb")):
        for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
            for output in cell.get("outputs", []):
                text = "".join(output.get("data", {}).get("text/plain", ""))
                if (id := text.partition(": ")[0]) not in subjects:
                    continue
                if id in found:  # one of them would hide the other
                    raise ValueError(f"{path.stem} prints a second record of {id}")
                found[id] = line(text, subjects[id])
    return dict(sorted(found.items()))


def digest(baseline: dict[str, str]) -> str:
    """What the changelog has of a baseline.

    >>> digest({})
    '44136fa355b3'
    """
    return hashlib.sha256(json.dumps(baseline, sort_keys=True).encode()).hexdigest()[:12]


def changes(old: dict[str, str], new: dict[str, str]) -> dict[str, str]:
    """What became of each line that is not as it was, as a diff. A new claim is no change.

    >>> print(changes({"a": "x", "b": "y"}, {"b": "z"})["b"])
    b
      - y
      + z
    """
    ids = [id for id in sorted(old) if old[id] != new.get(id)]
    return {id: f"{id}\n  - {old[id]}\n  + {new.get(id, 'none')}" for id in ids}


def unnamed(ids: list[str], changelog: str) -> list[str]:
    """The ids that the changelog's current section, its first, does not name in backquotes.

    >>> unnamed(["a/b", "a/c"], "# Log\\n\\n## 2\\n- `a/b` is new.\\n\\n## 1\\n- `a/c`\\n")
    ['a/c']
    """
    current = re.split(r"(?m)^## ", changelog)[1]
    return [id for id in ids if f"`{id}`" not in current]


def show_changes() -> None:
    """Print what differs from the baseline, and which of it the changelog must still name."""
    changed = changes(json.loads(BASELINE.read_text(encoding="utf-8")), lines())
    if changed:
        print("Verdicts that do not rest on what they did:", *changed.values(), sep="\n")
    if missing := unnamed(list(changed), CHANGELOG.read_text(encoding="utf-8")):
        print("CHANGELOG.md must name, each with its reason:", *missing, sep="\n  ")


def write_baseline() -> None:
    """Make what the verdicts rest on now the baseline."""
    new = lines()
    BASELINE.write_text(json.dumps(new, indent=0, ensure_ascii=False) + "\n", encoding="utf-8")
    print(f"{len(new)} verdicts. The changelog must have: baseline `{digest(new)}`")


if __name__ == "__main__":
    write_baseline() if "--baseline" in sys.argv else show_changes()
