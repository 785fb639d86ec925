"""Claims and verdicts: what a paper says, and what a cell found when it checked.

A registry file per paper lists every numbered claim and every figure. A chapter opens a claim,
states the error of the printed form and, where that fails, of the corrected form; the verdict
follows from the numbers:

>>> from exacthessian.claims import claim
>>> with claim("depth-not-data/lemma-a.5", show=False) as c:
...     c.printed(error=0.0, tol=1e-10)
>>> c.record.verdict
'holds'

A verdict cannot be declared. The record is shown as a cell's output, and the ledger page is made
from the outputs of the executed chapters.
"""

import json
import math
import re
import sys
import time
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import cache
from html import escape, unescape
from importlib.resources import files
from typing import Any

PAPERS = (
    "depth-not-data",
    "beyond-edge-of-stability",
    "cracking-the-hessian",
    "deep-linear-ufm",
)
WORST_FIRST = ("fails", "corrected", "not attempted", "analogue", "holds")
WRONG_AS_PRINTED = ("fails", "corrected")
WORDS = {
    "holds": "holds",
    "corrected": "holds once corrected",
    "fails": "fails",
    "analogue": "analogue",
    "not attempted": "not attempted",
}
FIGURE_STATUSES = (
    "as stated",
    "as stated up to a limit",
    "analogue",
    "not possible here",
    "not attempted",
)


class ClaimError(Exception):
    """A check that cannot support a verdict."""


@dataclass(frozen=True)
class Erratum:
    """What an author would change at one place, and why; `proof` is a label in the chapter.

    `corrected` is what to print instead; where nothing like the printed sentence is true, it says
    what is.
    """

    printed: str
    corrected: str
    reason: str
    proof: str = ""


@dataclass(frozen=True)
class Claim:
    """One claim or figure of a paper, in our own words.

    `id` is `<paper>/<kind>-<number>`, with `.<part>` behind it for one part of a claim whose parts
    may get different verdicts. `full_size` says what a figure costs at the paper's own size.
    """

    id: str
    place: str
    statement: str
    parts: tuple[str, ...] = ()
    erratum: Erratum | None = None
    full_size: str = ""

    @property
    def paper(self) -> str:
        """The paper's short name, the part of the id before the slash."""
        return self.id.split("/")[0]

    @property
    def anchor(self) -> str:
        """The name that a link to the checking cell uses.

        >>> Claim("depth-not-data/lemma-a.9", "Lemma A.9", "...").anchor
        'claim-depth-not-data-lemma-a-9'
        """
        return "claim-" + self.id.replace("/", "-").replace(".", "-")


@dataclass(frozen=True)
class Paper:
    """A paper's registry: its claims and figures by id, in the order of the paper."""

    id: str
    title: str
    short: str
    authors: tuple[str, ...]
    chapter: str
    claims: Mapping[str, Claim]
    figures: Mapping[str, Claim]


@dataclass(frozen=True)
class Check:
    """One comparison: it passes when the error is at most the tolerance."""

    error: float
    tol: float

    @property
    def passes(self) -> bool:
        """Whether the error is within the tolerance."""
        return self.error <= self.tol


@dataclass(frozen=True)
class Record:
    """What a cell found about one claim."""

    id: str
    verdict: str
    printed_error: float | None = None
    corrected_error: float | None = None
    tolerance: float | None = None
    note: str = ""


@dataclass(frozen=True)
class FigureRecord:
    """What a cell made of one figure."""

    id: str
    status: str
    seconds: float | None = None
    note: str = ""


@cache
def paper(name: str) -> Paper:
    """Read the registry of one paper.

    >>> len(paper("depth-not-data").figures)
    16
    """
    if name not in PAPERS:
        raise ValueError(f"paper must be one of {', '.join(PAPERS)}, got {name!r}")
    text = files("exacthessian").joinpath("registry", f"{name}.toml").read_text(encoding="utf-8")
    data = tomllib.loads(text)
    claims: dict[str, Claim] = {}
    for entry in data["claim"]:
        for subject in _claims_of(name, entry):
            claims[subject.id] = subject
    figures = [
        Claim(
            id=f"{name}/{entry['id']}",
            place=entry["place"],
            statement=entry["statement"],
            full_size=entry.get("full_size", ""),
        )
        for entry in data["figure"]
    ]
    return Paper(
        id=name,
        title=data["title"],
        short=data["short"],
        authors=tuple(data["authors"]),
        chapter=data["chapter"],
        claims=claims,
        figures={figure.id: figure for figure in figures},
    )


def _claims_of(name: str, entry: Mapping[str, Any]) -> list[Claim]:
    """A registry entry as claims: the whole first, then its parts."""
    id, place, parts = f"{name}/{entry['id']}", entry["place"], entry.get("parts", {})
    errata = {part: Erratum(**fields) for part, fields in entry.get("errata", {}).items()}
    if not errata.keys() <= parts.keys():
        unknown = ", ".join(errata.keys() - parts.keys())
        raise ValueError(f"{id}: errata must name parts of the claim, got {unknown}")
    own = Erratum(**entry["erratum"]) if "erratum" in entry else None
    whole = Claim(id, place, entry["statement"], tuple(f"{id}.{part}" for part in parts), own)
    return [
        whole,
        *(
            Claim(f"{id}.{part}", place, statement, erratum=errata.get(part))
            for part, statement in parts.items()
        ),
    ]


class Referee:
    """Collects the checks of one claim; `verdict` is what follows from them."""

    def __init__(self, subject: Claim) -> None:
        self.subject = subject
        self._printed: Check | None = None
        self._corrected: Check | None = None
        self._counterexample = ""
        self._analogue = ""

    def printed(self, error: float, tol: float, size: float = 1.0) -> None:
        """State the error of the claim as printed, under the paper's own hypotheses.

        `size` is the magnitude of the claimed quantity: a tolerance that is not below it would
        accept anything, and is refused.
        """
        if self._printed is not None:
            raise ClaimError(f"{self.subject.id}: the printed form was checked twice")
        self._printed = self._check("printed", error, tol, size)

    def corrected(self, error: float, tol: float, size: float = 1.0) -> None:
        """State the error of the corrected form; the printed one must have failed before."""
        if self._printed is None or self._printed.passes:
            raise ClaimError(
                f"{self.subject.id}: a corrected form needs a printed form that fails first"
            )
        if self._corrected is not None:
            raise ClaimError(f"{self.subject.id}: the corrected form was checked twice")
        self._corrected = self._check("corrected", error, tol, size)

    def counterexample(self, description: str) -> None:
        """Describe the smallest case in which the printed form fails; required for *fails*."""
        self._counterexample = description

    def analogue(self, difference: str) -> None:
        """Say in what an experiment differs from the paper's; its printed check still counts."""
        self._analogue = difference

    def _check(self, form: str, error: float, tol: float, size: float) -> Check:
        error, tol, size = float(error), float(tol), abs(float(size))
        if math.isnan(error) or error < 0:
            raise ClaimError(f"{self.subject.id}: {form} error must be at least 0, got {error}")
        if not 0 <= tol < size:
            raise ClaimError(
                f"{self.subject.id}: {form} tolerance must be below the size of the claimed "
                f"quantity, {size:g}, got {tol:g}"
            )
        return Check(error, tol)

    @property
    def verdict(self) -> str:
        """The verdict that follows from the checks made so far."""
        if self._printed is None:
            raise ClaimError(f"{self.subject.id}: the printed form was not checked")
        if self._printed.passes:
            return "analogue" if self._analogue else "holds"
        if self._corrected is None:
            if not self._counterexample:
                raise ClaimError(
                    f"{self.subject.id}: the printed form fails (error {self._printed.error:.3g}, "
                    f"tolerance {self._printed.tol:g}); give a corrected form or a counterexample"
                )
            return "fails"
        if not self._corrected.passes:
            raise ClaimError(
                f"{self.subject.id}: the corrected form fails too (error "
                f"{self._corrected.error:.3g}, tolerance {self._corrected.tol:g})"
            )
        return "corrected"

    @property
    def record(self) -> Record:
        """The checks and their verdict as data."""
        last = self._corrected or self._printed
        return Record(
            id=self.subject.id,
            verdict=self.verdict,
            printed_error=None if self._printed is None else self._printed.error,
            corrected_error=None if self._corrected is None else self._corrected.error,
            tolerance=None if last is None else last.tol,
            note=self._analogue or self._counterexample,
        )

    def __str__(self) -> str:
        """The verdict with its reasons, in numbers that other machines reproduce."""
        lines = [f"{self.subject.id}: {WORDS[self.verdict]}"]
        for form, check in (("printed", self._printed), ("corrected", self._corrected)):
            if check is not None and check.passes:
                limit = f"error at most {check.tol:g}" if check.tol else "exact"
                lines.append(f"  {form} form: {limit}")
            elif check is not None:
                lines.append(f"  {form} form: error {check.error:.3g}, tolerance {check.tol:g}")
        if self._counterexample:
            lines.append(f"  counterexample: {self._counterexample}")
        if self._analogue:
            lines.append(f"  differs from the paper: {self._analogue}")
        return "\n".join(lines)


@contextmanager
def claim(id: str, show: bool = True) -> Iterator[Referee]:
    """Open a claim, collect its checks, and show the verdict that follows.

    >>> with claim("depth-not-data/lemma-a.7") as c:
    ...     c.printed(error=0.0272, tol=4.5e-5)
    ...     c.counterexample("L = 2, λ = (1, ½), η = 0.1, t = 100")
    depth-not-data/lemma-a.7: fails
      printed form: error 0.0272, tolerance 4.5e-05
      counterexample: L = 2, λ = (1, ½), η = 0.1, t = 100
    """
    referee = Referee(_look_up(id, "claims"))
    yield referee
    record = referee.record
    if show:
        text = str(referee)
        reasons = [escape(line.strip()) for line in text.splitlines()[1:]]
        title = f"{verdict_badge(record.verdict)} <code>{escape(id)}</code>"
        _show(referee.subject, "claim", record, text, "<br>".join([title, *reasons]))


def not_attempted(id: str, reason: str) -> None:
    """Record why a claim is left open.

    >>> not_attempted("beyond-edge-of-stability/theorem-2", "needs the authors' data")
    beyond-edge-of-stability/theorem-2: not attempted (needs the authors' data)
    """
    subject = _look_up(id, "claims")
    if not reason.strip():
        raise ClaimError(f"{id}: say why it is not attempted")
    html = f"{verdict_badge('not attempted')} <code>{escape(id)}</code><br>{escape(reason)}"
    record = Record(id, "not attempted", note=reason)
    _show(subject, "claim", record, f"{id}: not attempted ({reason})", html)


@contextmanager
def figure(id: str, status: str, note: str = "", show: bool = True) -> Iterator[None]:
    """Make a figure of a paper, and record how close it is and how long it took.

    >>> with figure("depth-not-data/figure-1", status="as stated"):
    ...     pass
    depth-not-data/figure-1: as stated
    """
    subject = _look_up(id, "figures")
    if status not in FIGURE_STATUSES:
        raise ValueError(f"status must be one of {', '.join(FIGURE_STATUSES)}, got {status!r}")
    if status != "as stated" and not note:
        raise ClaimError(f"{id}: the status {status!r} needs a note that says why")
    started = time.perf_counter()
    yield
    record = FigureRecord(id, status, round(time.perf_counter() - started, 2), note)
    if show:
        text = f"{status} ({note})" if note else status
        html = f"<code>{escape(id)}</code>: {escape(text)}"
        _show(subject, "figure", record, f"{id}: {text}", html)


def _look_up(id: str, kind: str) -> Claim:
    known: Mapping[str, Claim] = getattr(paper(id.split("/")[0]), kind)
    if id not in known:
        raise ValueError(f"id must be one of the {kind} in the paper's registry, got {id!r}")
    return known[id]


def _show(subject: Claim, kind: str, record: Record | FigureRecord, text: str, html: str) -> None:
    """Display in a notebook, print elsewhere; only a notebook has IPython loaded already.

    The record travels inside the HTML, because a cache of executed notebooks keeps an output's
    data but not its metadata.
    """
    ipython = sys.modules.get("IPython")
    if ipython is None or ipython.get_ipython() is None:
        print(text)
        return
    data = escape(json.dumps({kind: asdict(record)}))
    box = f'<div class="eh-verdict" id="{subject.anchor}" data-record="{data}">{html}</div>'
    ipython.display.display({"text/plain": text, "text/html": box}, raw=True)


def records_in(html: str) -> list[dict[str, Any]]:
    """The records that an output's HTML carries.

    >>> records_in('<div data-record="{&quot;claim&quot;: {&quot;id&quot;: &quot;x&quot;}}">')
    [{'claim': {'id': 'x'}}]
    """
    return [json.loads(unescape(data)) for data in re.findall(r'data-record="([^"]*)"', html)]


def verdict_badge(verdict: str) -> str:
    """A verdict as a small coloured label in HTML.

    >>> verdict_badge("corrected")
    '<span class="eh-badge eh-corrected">holds once corrected</span>'
    """
    name = verdict.replace(" ", "-")
    return f'<span class="eh-badge eh-{name}">{WORDS.get(verdict, verdict)}</span>'


def worst(verdicts: Iterable[str]) -> str:
    """The worst of some verdicts; a claim gets the worst verdict of its parts.

    >>> worst(["holds", "corrected", "not attempted"])
    'corrected'
    """
    return min(verdicts, key=WORST_FIRST.index)


def ledger(records: Iterable[Mapping[str, Any]], pages: Mapping[str, str]) -> dict[str, Any]:
    """The whole ledger: every claim and figure of every paper with what the chapters found.

    `records` are the dictionaries that cells showed, `{"claim": {...}}` or `{"figure": {...}}`;
    `pages` gives the page on which each id was checked. A claim that no cell has checked is *not
    attempted*; a claim with parts has the worst of their verdicts.

    >>> empty = ledger([], {})
    >>> {row["verdict"] for row in empty["claims"]}, len(empty["figures"])
    ({'not attempted'}, 84)
    """
    found: dict[str, Mapping[str, Any]] = {}
    for record in records:
        entry = record.get("claim") or record["figure"]
        if entry["id"] in found:
            raise ClaimError(f"{entry['id']}: two cells give a verdict, there must be one")
        found[entry["id"]] = entry
    claims, figures = [], []
    for name in PAPERS:
        registry = paper(name)
        for subject in registry.claims.values():
            own = found.get(subject.id)
            entries = [found.get(part) for part in subject.parts] or [own]
            if subject.parts and own is not None:
                entries.append(own)
            verdict = worst(entry["verdict"] if entry else "not attempted" for entry in entries)
            entry = own or {}
            claims.append(
                {
                    "id": subject.id,
                    "paper": name,
                    "place": subject.place,
                    "statement": subject.statement,
                    "verdict": verdict,
                    "printed_error": entry.get("printed_error"),
                    "corrected_error": entry.get("corrected_error"),
                    "tolerance": entry.get("tolerance"),
                    "note": entry.get("note", ""),
                    "cell": _link(subject, pages),
                }
            )
        for subject in registry.figures.values():
            entry = found.get(subject.id, {})
            figures.append(
                {
                    "id": subject.id,
                    "paper": name,
                    "place": subject.place,
                    "statement": subject.statement,
                    "status": entry.get("status", "not attempted"),
                    "seconds": entry.get("seconds"),
                    "note": entry.get("note", ""),
                    "full_size": subject.full_size,
                    "cell": _link(subject, pages),
                }
            )
    return {"claims": claims, "figures": figures}


def errata_out_of_step(records: Iterable[Mapping[str, Any]]) -> list[str]:
    """Where the registry's errata and the verdicts of the cells disagree, one sentence each.

    A claim that is wrong as printed needs an erratum, and an erratum needs such a claim. One whose
    claim no cell has judged is not counted: its chapter may still be missing.

    >>> errata_out_of_step([{"claim": {"id": "depth-not-data/lemma-a.5", "verdict": "fails"}}])
    ["depth-not-data/lemma-a.5: the verdict is 'fails', but the registry has no erratum for it"]
    >>> errata_out_of_step([{"claim": {"id": "depth-not-data/lemma-a.7", "verdict": "holds"}}])
    ["depth-not-data/lemma-a.7: the registry has an erratum for it, but the verdict is 'holds'"]
    """
    problems = []
    for entry in (record["claim"] for record in records if "claim" in record):
        id, verdict = entry["id"], entry["verdict"]
        erratum = _look_up(id, "claims").erratum
        if verdict in WRONG_AS_PRINTED and erratum is None:
            problems.append(
                f"{id}: the verdict is {verdict!r}, but the registry has no erratum for it"
            )
        if verdict not in WRONG_AS_PRINTED and erratum is not None:
            problems.append(
                f"{id}: the registry has an erratum for it, but the verdict is {verdict!r}"
            )
    return problems


def _link(subject: Claim, pages: Mapping[str, str]) -> str | None:
    checked = next((id for id in (subject.id, *subject.parts) if id in pages), None)
    if checked is None:
        return None
    return f"{pages[checked]}#{replace(subject, id=checked).anchor}"
