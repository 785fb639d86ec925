"""Claims and verdicts: what a paper says, and what a cell found when it checked.

A registry file per paper lists every claim and every figure. A cell opens a claim and hands over
the printed form, the truth and the cases; the referee finds the worst case itself, and the verdict
follows:

>>> from exacthessian.claims import claim
>>> with claim("depth-not-data/statement-isometry", show=False) as c:
...     c.printed(lambda depth: depth**2 - 1, lambda depth: depth**2, cases=[2, 3], tol=0)
...     c.corrected(lambda depth: depth * depth, lambda depth: depth**2, cases=[2, 3], tol=0)
>>> c.verdict
'corrected'

A verdict cannot be declared. Its record is shown as the cell's output, the ledger is made from the
outputs of the executed pages (`exacthessian.ledger`), and anybody can check it again
(`exacthessian.check`).
"""

import ast
import hashlib
import hmac
import importlib
import inspect
import json
import math
import os
import sys
import time
import tomllib
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields, is_dataclass, replace
from functools import cache
from html import escape
from importlib.resources import files
from pathlib import Path
from types import CodeType, FrameType, FunctionType
from typing import Any, Self

import numpy as np

from exacthessian import live

WORDS = {  # from best to worst: a claim gets the worst verdict of its parts
    "holds": "holds",
    "holds generically": "holds generically",
    "analogue agrees": "analogue agrees",
    "analogue undecided": "analogue undecided",
    "analogue disagrees": "analogue disagrees",
    "not attempted": "not attempted",
    "misprint": "misprint",
    "corrected": "holds once corrected",
    "fails": "fails",
}
WRONG_AS_PRINTED = ("misprint", "corrected", "fails")
FIGURE_STATUSES = (
    "as stated",
    "as stated up to a limit",
    "analogue",
    "not possible here",
    "not attempted",
)
KINDS = {  # what a registry row expects of its check
    "equal": "a function and the truth, case by case",
    "count": "a function and the truth in whole numbers, with no tolerance",
    "number": "one number that the cell computes, such as the excess over a bound",
    "measured": "an effect over seeds",
    "open": "a reason why it is not attempted",
}
LEAST_SEEDS = 8
TIE = 1e-9  # cases whose errors agree so well are equally bad, and the first is named
SEAL = "EXACTHESSIAN_SEAL"
PACKAGE = Path(str(files("exacthessian")))


class ClaimError(Exception):
    """A check that cannot support a verdict."""


@dataclass(frozen=True)
class Erratum:
    """What an author would change at one place, and why.

    `corrected` is what to print instead; where nothing like the printed sentence is true, it says
    what is. `proof` is a label in the book; errata with equal `cause` are one fact.
    """

    printed: str
    corrected: str
    reason: str
    proof: str = ""
    cause: str = ""


@dataclass(frozen=True)
class Claim:
    """One claim or figure of a paper, in our own words.

    `id` is `<paper>/<kind>-<number>`, with `.<part>` behind it for one part of a claim whose parts
    may get different verdicts. `hypotheses` are the paper's, its proof's included; `uses` are the
    ids that its printed proof leans on; `form` is its numbered function, as a path below the
    package. `kind` is one of `KINDS`, and `loosest` the largest tolerance that its checks may have;
    a form is refuted only by a larger error. `full_size` says what a figure costs at the paper's
    own size.
    """

    id: str
    place: str
    statement: str
    hypotheses: tuple[str, ...] = ()
    uses: tuple[str, ...] = ()
    form: str = ""
    kind: str = "equal"
    loosest: float = 1e-6
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
    number: int
    title: str
    short: str
    authors: Sequence[str]
    chapter: str
    claims: Mapping[str, Claim]
    figures: Mapping[str, Claim]

    @property
    def leaves(self) -> list[Claim]:
        """The claims that are counted: those without parts."""
        return [subject for subject in self.claims.values() if not subject.parts]


# ---------------------------------------------------------------------------------------------
# The registry
# ---------------------------------------------------------------------------------------------


@cache
def _raw(name: str) -> Mapping[str, Any]:
    text = (PACKAGE / "registry" / f"{name}.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


def _registries() -> tuple[str, ...]:
    names = [path.stem for path in (PACKAGE / "registry").glob("*.toml")]
    return tuple(sorted(names, key=lambda name: (_raw(name)["number"], name)))


REGISTRIES = _registries()
PAPERS = tuple(name for name in REGISTRIES if _raw(name)["number"] > 0)


@cache
def paper(name: str) -> Paper:
    """Read the registry of one paper, or of this book's own theorems, `this-book`.

    >>> len(paper("depth-not-data").figures)
    16
    """
    if name not in REGISTRIES:
        raise ValueError(f"paper must be one of {', '.join(REGISTRIES)}, got {name!r}")
    head = dict(_raw(name))
    claims = [subject for row in head.pop("claim") for subject in _claims_of(name, row)]
    figures = [Claim(**{**row, "id": f"{name}/{row['id']}"}) for row in head.pop("figure", [])]
    return Paper(
        id=head.pop("paper"),
        claims={subject.id: subject for subject in claims},
        figures={subject.id: subject for subject in figures},
        **head,
    )


def _claims_of(name: str, row: Mapping[str, Any]) -> list[Claim]:
    """A registry row as claims: the whole first, then its parts; what is wrong with it is named."""
    key = row.get("id")
    try:
        whole = dict(row)
        parts, errata = whole.pop("parts", {}), whole.pop("errata", {})
        checks = {f: whole.pop(f) for f in ("kind", "loosest") if parts and f in row}
        for field, given in {"errata": errata, **checks}.items():
            if isinstance(given, dict) and not given.keys() <= parts.keys():
                raise ValueError(f"{field} must name parts of the claim, got {sorted(given)}")
        claims = [_claim(name, whole | {"parts": tuple(f"{name}/{key}.{part}" for part in parts)})]
        inherited = {field: row[field] for field in ("place", "hypotheses", "uses")}
        for part, given in parts.items():
            key = f"{row['id']}.{part}"
            own = {"statement": given} if isinstance(given, str) else given
            said = ((f, v if isinstance(v, dict) else {part: v}) for f, v in checks.items())
            own = {**own, **{field: value[part] for field, value in said if part in value}}
            claims.append(_claim(name, inherited | own | {"id": key, "erratum": errata.get(part)}))
    except (KeyError, TypeError, ValueError) as error:
        problem = f"missing key {error}" if isinstance(error, KeyError) else error
        raise ValueError(f"registry/{name}.toml, row {key}: {problem}") from error
    return claims


def _claim(name: str, row: Mapping[str, Any]) -> Claim:
    hypotheses, form, erratum = row["hypotheses"], row.get("form", ""), row.get("erratum")
    if not hypotheses or isinstance(hypotheses, str) or not all(h.strip() for h in hypotheses):
        raise ValueError("hypotheses must list at least one, as the paper states them")
    uses = tuple(use if "/" in use else f"{name}/{use}" for use in row["uses"])
    if unknown := [use for use in uses if use not in _ids(use.split("/")[0])]:
        raise ValueError(f"uses names {unknown[0]!r}, which no registry has")
    path = form if "." in form or not form else f"papers.{_raw(name)['chapter']}.{form}"
    if path and definition(path) is None:
        raise ValueError(f"form {form!r} is no function of the package")
    kind, loosest = row.get("kind", Claim.kind), row.get("loosest", Claim.loosest)
    loosest = 0.0 if kind == "count" else loosest
    if kind not in KINDS or not 0 <= loosest < 1 or (kind == "count" and "loosest" in row):
        raise ValueError(f"kind {kind!r} with loosest {loosest!r} is no check; see claims.KINDS")
    made = {"hypotheses": tuple(hypotheses), "uses": uses, "form": path, "loosest": loosest}
    made |= {"id": f"{name}/{row['id']}", "erratum": erratum and Erratum(**erratum)}
    return Claim(**{**row, **made})


@cache
def _ids(name: str) -> frozenset[str]:
    rows = _raw(name)["claim"] if name in REGISTRIES else []
    keys = ((row.get("id"), ["", *row.get("parts", {})]) for row in rows)
    return frozenset(f"{name}/{key}.{part}".rstrip(".") for key, parts in keys for part in parts)


def source_file(path: str) -> Path | None:
    """The file of the package that a path such as `papers.depth_not_data.lemma_a_9` leads into.

    >>> source_file("spectrum.Spectrum.distance").name
    'spectrum.py'
    """
    names = path.split(".")
    parents = (PACKAGE.joinpath(*names[:n]) for n in range(len(names) - 1, 0, -1))
    pairs = ((parent.with_suffix(".py"), parent / "__init__.py") for parent in parents)
    files = (file for pair in pairs for file in pair)
    return next((file for file in files if file.exists()), None)


@cache
def definition(path: str) -> ast.FunctionDef | None:
    """The definition of a function of the package, by its path below it; None if there is none.

    >>> definition("spectrum.Spectrum.distance").name, definition("spectrum.nothing")
    ('distance', None)
    """
    file = source_file(path)
    if file is None:
        return None
    node: Any = ast.parse(file.read_text(encoding="utf-8"))
    module = file.parent if file.name == "__init__.py" else file.with_suffix("")
    for name in path.split(".")[len(module.relative_to(PACKAGE).parts) :]:
        found = [inner for inner in getattr(node, "body", []) if getattr(inner, "name", "") == name]
        node = found[0] if found else None
    return node if isinstance(node, ast.FunctionDef) else None


def source_hash(path: str) -> str:
    """The first twelve hexadecimal digits of the SHA-256 of a function's syntax tree: comments and
    line breaks do not change it, every formula does.

    >>> len(source_hash("spectrum.Spectrum.distance"))
    12
    """
    node = definition(path)
    if node is None:
        raise ValueError(f"path must name a function of the package, got {path!r}")
    return hashlib.sha256(ast.dump(node).encode()).hexdigest()[:12]


# ---------------------------------------------------------------------------------------------
# Checks and verdicts
# ---------------------------------------------------------------------------------------------


def gap(found: Any, true: Any) -> float:
    """How far a result is from the truth.

    Integers: max|a − b|. Numbers and arrays: max|a − b| / max|b|, absolute where b = 0. Spectra:
    their relative distance. Tuples: the largest gap of their entries. Infinite where the shapes,
    the sizes or the kinds differ, or where a number is not finite.

    >>> gap(12, 6), gap([2.0, 1.0], [2.0, 2.0]), gap((1, 0.5), (1, 0.25)), gap([1, 2], [1])
    (6.0, 0.5, 1.0, inf)
    """
    if isinstance(true, tuple):
        if not isinstance(found, tuple) or len(found) != len(true):
            return math.inf
        return max((gap(a, b) for a, b in zip(found, true, strict=True)), default=0.0)
    kind: Any = getattr(sys.modules.get("exacthessian.spectrum"), "Spectrum", ())
    if isinstance(true, kind):
        same = isinstance(found, kind) and found.size == true.size
        return kind.distance(found, true) if same else math.inf
    a, b = np.asarray(found), np.asarray(true)
    if a.shape != b.shape or a.dtype.kind not in "biufc" or b.dtype.kind not in "biufc":
        return math.inf
    if not a.size:
        return 0.0
    if a.dtype.kind in "biu" and b.dtype.kind in "biu":
        return float(max(abs(int(x) - int(y)) for x, y in zip(a.flat, b.flat, strict=True)))
    if not (np.isfinite(a).all() and np.isfinite(b).all()):
        return math.inf
    difference, scale = float(np.abs(a - b).max()), float(np.abs(b).max())
    return difference / scale if scale else difference


@dataclass(frozen=True)
class Check:
    """One comparison, and what it was made with.

    It passes when the error is at most the tolerance. `cases` is 0 for an error that the cell
    computed itself, in `unit`; `oracle` says whether automatic differentiation ran for it.
    """

    error: float
    tol: float
    unit: str = ""
    cases: int = 0
    worst: str = ""
    function: str = ""
    source: str = ""
    truth: str = ""
    oracle: bool = False

    @property
    def passes(self) -> bool:
        """Whether the error is within the tolerance."""
        return self.error <= self.tol

    def __str__(self) -> str:
        """What was compared and how it came out, in numbers that other machines reproduce."""
        made = f"{self.cases} case{'s' * (self.cases != 1)} against {self.truth}: " * bool(
            self.cases
        )
        if self.passes:
            limit = f"within {self.tol:g}" if self.tol else "equal"
            return made + " ".join(filter(None, [limit, self.unit if self.tol else ""]))
        size = "other shape" if math.isinf(self.error) else f"off by {self.error:.3g}"
        where = f" at {self.worst}" if self.worst else ""
        return f"{made}{' '.join(filter(None, [size, self.unit]))}{where} (allowed {self.tol:g})"


@dataclass(frozen=True)
class Interval:
    """The mean of an effect over seeds with its 95 % interval, and the bound it is held against."""

    mean: float
    low: float
    high: float
    seeds: int
    above: float

    @property
    def verdict(self) -> str:
        """What the interval decides, or that it does not."""
        if self.seeds < LEAST_SEEDS or not self.low <= self.mean <= self.high:
            raise ClaimError(f"{self} is no interval over at least {LEAST_SEEDS} seeds")
        if self.low > self.above:
            return "analogue agrees"
        return "analogue disagrees" if self.high < self.above else "analogue undecided"

    def __str__(self) -> str:
        return (
            f"{self.mean:.3g}, 95 % interval [{self.low:.3g}, {self.high:.3g}] over {self.seeds} "
            f"seeds, against {self.above:g}"
        )


@dataclass(frozen=True)
class Record:
    """What a cell found about one claim, what decided it, and what it was made with.

    >>> print(Record("paper/lemma-1", "holds", Check(0.0, 1e-10, cases=3, truth="truth")))
    paper/lemma-1: holds
      printed form: 3 cases against truth: within 1e-10
    """

    id: str
    verdict: str
    printed: Check | None = None
    corrected: Check | None = None
    exception: Check | None = None
    interval: Interval | None = None
    where: str = ""
    differs: str = ""
    note: str = ""
    seconds: float = 0.0

    @classmethod
    def of(cls, entry: Mapping[str, Any]) -> Self:
        """A record from its JSON, or from a row of the ledger.

        >>> found = Record("paper/lemma-1", "holds", Check(0.0, 1e-9))
        >>> Record.of(asdict(found)) == found
        True
        """
        known = {f.name: entry[f.name] for f in fields(cls) if f.name in entry}
        for name in ("printed", "corrected", "exception"):
            if known.get(name):
                known[name] = Check(**{**known[name], "error": float(known[name]["error"])})
        if known.get("interval"):
            known["interval"] = Interval(**known["interval"])
        return cls(**known)

    @property
    def facts(self) -> list[tuple[str, Check | Interval | str]]:
        """What decided, each with its name, in numbers that other machines reproduce."""
        note = {
            "fails": "counterexample",
            "holds generically": "exception",
            "not attempted": "reason",
        }
        named = (
            ("printed form", self.printed),
            ("corrected form", self.corrected),
            ("excluded cases", self.exception),
            ("effect", self.interval),
            (note.get(self.verdict, "note"), self.note),
            ("the paper has it right in", self.where),
            ("differs from the paper", self.differs),
        )
        return [(name, fact) for name, fact in named if fact]

    def __str__(self) -> str:
        lines = [f"{self.id}: {WORDS[self.verdict]}"]
        return "\n".join(lines + [f"  {name}: {fact}" for name, fact in self.facts])


def decide(record: Record, subject: Claim) -> str:
    """The verdict that follows from the checks of a record; what it says itself is not looked at.

    The checks must be of the kind that the registry's row `subject` states, and a claim with a
    numbered function is decided by that function.

    >>> subject = Claim("paper/lemma-1", "Lemma 1", "...", kind="number")
    >>> decide(Record("paper/lemma-1", "", printed=Check(0.3, 1e-10), note="L = 2"), subject)
    'fails'
    """
    printed, corrected, exception = record.printed, record.corrected, record.exception
    for check in filter(None, (printed, corrected, exception)):
        _require_support(check, subject)
    deciding, id = corrected or printed, subject.id
    if subject.form and deciding is not None and deciding.function != subject.form:
        decided = deciding.function or "a plain number"
        raise ClaimError(f"{id}: it must be decided by {subject.form}, not {decided}")
    if (subject.kind == "measured") != (record.interval is not None):
        raise ClaimError(f"{id}: effects over seeds and kind 'measured' need each other")
    if record.interval is not None:
        return record.interval.verdict
    if subject.kind == "open":
        if not record.note or deciding or exception or record.differs:
            raise ClaimError(f"{id}: it is 'open': say why it is not attempted, and nothing else")
        return "not attempted"
    if printed is None:
        raise ClaimError(f"{id}: the printed form was not checked")
    if record.differs:
        return "analogue agrees" if printed.passes else "analogue disagrees"
    if printed.passes:
        if corrected is not None:
            raise ClaimError(f"{id}: a corrected form needs a printed form that fails")
        if exception is None:
            return "holds"
        if exception.passes:
            raise ClaimError(f"{id}: the printed form passes on its exceptions too, so it holds")
        return "holds generically"
    if corrected is None:
        if not record.note:
            raise ClaimError(
                f"{id}: the printed form fails ({printed}); "
                "give a corrected form or a counterexample"
            )
        return "fails"
    if not corrected.passes:
        raise ClaimError(f"{id}: the corrected form fails too ({corrected})")
    return "misprint" if record.where else "corrected"


def _require_support(check: Check, subject: Claim) -> None:
    """Refuse a check whose numbers the registry's row does not allow."""
    id, error, tol, loosest = subject.id, check.error, check.tol, subject.loosest
    if not 0 <= tol <= loosest:
        raise ClaimError(f"{id}: the registry allows tolerances up to {loosest:g}, got {tol}")
    if not error >= 0:
        raise ClaimError(f"{id}: an error must be at least 0, got {error}")
    if tol < error <= loosest:
        raise ClaimError(f"{id}: an error of {error:g} refutes nothing, {loosest:g} is allowed")
    if subject.kind not in ("equal", "count", "number") or (
        check.cases < 1 and subject.kind != "number"
    ):
        raise ClaimError(f"{id}: kind {subject.kind!r} expects {KINDS[subject.kind]}")


@dataclass(frozen=True)
class _Comparison:
    """What a check was given: kept so that it can be made again with a changed function."""

    kind: str
    form: Callable[..., Any]
    truth: Callable[..., Any]
    cases: tuple[Any, ...]
    tol: float


class Referee:
    """Collects the checks of one claim; `verdict` is what follows from them."""

    def __init__(self, subject: Claim) -> None:
        self.subject = subject
        self.comparisons: list[_Comparison] = []
        self._facts: dict[str, Any] = {}
        self._started = time.perf_counter()

    def printed(self, *given: Any, **options: Any) -> None:
        """Check the claim as printed, under the paper's own hypotheses.

        Either `printed(form, truth, cases, tol)`: both functions are called on every case (a tuple
        is unpacked), and the worst `gap` is kept. Or `printed(error=…, tol=…, unit=…)` for a claim
        that is no formula, of kind `number`.
        """
        self._check("printed", *given, **options)

    def corrected(self, *given: Any, **options: Any) -> None:
        """Check the corrected form; the printed one must fail."""
        self._check("corrected", *given, **options)

    def misprint(self, *given: Any, where: str, **options: Any) -> None:
        """Check the corrected form of a misprint; `where` says where the paper has it right."""
        if not where.strip():
            raise ClaimError(f"{self.subject.id}: say where the paper has it right")
        self._check("corrected", *given, **options)
        self._facts["where"] = where

    def exception(self, *given: Any, why: str, **options: Any) -> None:
        """Show cases that the paper excludes, or that have measure zero, where the printed form
        fails: it *holds generically*. `why` says which they are.
        """
        if not why.strip():
            raise ClaimError(f"{self.subject.id}: say which cases are exceptions, and why")
        self._check("exception", *given, **options)
        self._facts["note"] = why

    def counterexample(self, description: str) -> None:
        """Describe the smallest case in which the printed form fails; required for *fails*."""
        self._facts["note"] = description

    def analogue(self, differs: str) -> None:
        """Say in what an experiment differs from the paper's: it agrees or disagrees, and never
        makes a claim *fail*.
        """
        self._facts["differs"] = differs

    def measured(self, effects: Sequence[float], above: float, differs: str) -> None:
        """An empirical claim, "the effect is above …": `effects` has one number per seed, at least
        eight. The 95 % interval of their mean (Student's t) decides, or says that it cannot.
        """
        values = np.asarray(effects, dtype=float)
        if values.ndim != 1 or len(values) < LEAST_SEEDS or not np.isfinite(values).all():
            raise ClaimError(
                f"{self.subject.id}: effects must be at least {LEAST_SEEDS} finite numbers, one "
                f"per seed, got {values.shape}"
            )
        if np.ptp(values) == 0:
            raise ClaimError(f"{self.subject.id}: equal effects are of one seed, not of several")
        from scipy.special import stdtrit  # Student's t without importing all of scipy.stats

        mean, count = float(values.mean()), len(values)
        half = float(stdtrit(count - 1, 0.975) * values.std(ddof=1) / math.sqrt(count))
        self._facts["interval"] = Interval(mean, mean - half, mean + half, count, float(above))
        self.analogue(differs)

    def _check(
        self,
        kind: str,
        form: Callable[..., Any] | None = None,
        truth: Callable[..., Any] | None = None,
        cases: Iterable[Any] | None = None,
        tol: float | None = None,
        *,
        error: float | None = None,
        unit: str = "",
    ) -> None:
        id = self.subject.id
        if kind in self._facts:
            raise ClaimError(f"{id}: the {kind} form was checked twice")
        if tol is None:
            raise ClaimError(f"{id}: {kind} needs a tolerance")
        if error is not None:
            check = Check(float(error), float(tol), unit)
        elif form is None or truth is None or cases is None:
            raise ClaimError(f"{id}: {kind} needs a form, the truth and cases, or an error")
        else:
            comparison = _Comparison(kind, form, truth, tuple(cases), float(tol))
            _require_contrast(comparison, self.subject)
            self.comparisons.append(comparison)
            check = _compared(comparison, self.subject.form, unit)
        _require_support(check, self.subject)
        _require_as_written(id)
        self._facts[kind] = check

    @property
    def record(self) -> Record:
        """The checks and their verdict as data."""
        seconds = round(time.perf_counter() - self._started, 2)
        record = Record(self.subject.id, "", **self._facts, seconds=seconds)
        return replace(record, verdict=decide(record, self.subject))

    @property
    def verdict(self) -> str:
        """The verdict that follows from the checks made so far."""
        return self.record.verdict


OPENED: list[Referee] = []  # the claims that this process has decided, for `make mutate-claims`


@contextmanager
def claim(id: str, show: bool = True) -> Iterator[Referee]:
    """Open a claim: collect its checks, and show the verdict that follows. In a reader's notebook a
    check that cannot support one is a sentence in a box; everywhere else it is an error.

    >>> with claim("depth-not-data/statement-isometry") as c:
    ...     c.printed(float, abs, [1.0, -1.0], tol=1e-10)
    ...     c.counterexample("a negative number")
    depth-not-data/statement-isometry: fails
      printed form: 2 cases against abs: off by 2 at -1.0 (allowed 1e-10)
      counterexample: a negative number
    """
    referee = Referee(_look_up(id, "claims"))
    try:
        yield referee
        record = referee.record
        OPENED.append(referee)
        if show:
            _show(referee.subject, "claim", asdict(record), str(record))
    except ClaimError as error:
        if not live.is_live():
            raise
        sentence = f"With your change this claim no longer passes. {error}."
        _display(sentence, f'<div class="eh-verdict eh-changed">{escape(sentence)}</div>')


def not_attempted(id: str, reason: str) -> None:
    """Record why a claim is left open.

    >>> not_attempted("beyond-edge-of-stability/definition-1", "needs the authors' data")
    beyond-edge-of-stability/definition-1: not attempted
      reason: needs the authors' data
    """
    subject = _look_up(id, "claims")
    record = Record(id, "not attempted", note=reason.strip())
    decide(record, subject)
    _show(subject, "claim", asdict(record), str(record))


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
    seconds = round(time.perf_counter() - started, 2)
    if show:
        entry = {"id": id, "status": status, "seconds": seconds, "note": note}
        _show(subject, "figure", entry, f"{id}: {status}" + f" ({note})" * bool(note))


def _look_up(id: str, kind: str) -> Claim:
    known: Mapping[str, Claim] = getattr(paper(id.split("/")[0]), kind)
    if id not in known:
        raise ValueError(f"id must be one of the {kind} in the paper's registry, got {id!r}")
    return known[id]


def _require_contrast(comparison: _Comparison, subject: Claim) -> None:
    """Refuse a comparison that cannot fail, or that has fewer cases than it counts."""
    form, truth, cases = comparison.form, comparison.truth, comparison.cases
    if not cases or len({_key(case) for case in cases}) < len(cases):
        raise ClaimError(f"{subject.id}: {comparison.kind} needs cases, each of them once")
    if truth is form:
        raise ClaimError(f"{subject.id}: the form judges itself: it must not be the truth")


def _key(case: Any) -> Any:
    """What two equal cases have in common."""
    if isinstance(case, float | np.number | np.ndarray) and np.asarray(case).dtype.kind in "iuf":
        mantissa, exponent = np.frexp(np.asarray(case, dtype=float))  # what differs by rounding
        kept = np.ldexp(np.round(mantissa * 2.0**40), exponent - 40) + 0.0  # is one case, and −0
        return (kept.shape, kept.tobytes()) if kept.ndim else float(kept)
    if isinstance(case, np.ndarray):
        return case.shape, case.tobytes()
    if isinstance(case, dict):
        return tuple((key, _key(value)) for key, value in case.items())
    if isinstance(case, tuple | list):
        return tuple(map(_key, case))
    if is_dataclass(case):
        return type(case), *(_key(getattr(case, field.name)) for field in fields(case))
    return case if isinstance(case, Hashable) else id(case)


def _compared(comparison: _Comparison, form_path: str, unit: str) -> Check:
    """Call form and truth on every case and keep the worst."""
    cases, gaps, derivatives, sizes = comparison.cases, [], 0, 0
    for case in live.progress(cases, "cases"):
        given = case if isinstance(case, tuple) else (case,)
        found, before = comparison.form(*given), _derivatives_taken()
        with _watched(comparison.form, form_path) as runs:
            true = comparison.truth(*given)
        derivatives += _derivatives_taken() - before
        if runs and _derivatives_taken() == before:  # an oracle may be asked what is near the form
            raise ClaimError(f"{_name(comparison.form)} judges itself: it must not be the truth")
        sizes += _size(true)
        gaps.append(gap(found, true))
    if not sizes:
        raise ClaimError(f"{_name(comparison.form)}: every case is empty, so nothing is compared")
    error = float(np.max(gaps))  # not a number, if one of them is not
    worst = next((c for c, here in zip(cases, gaps, strict=True) if here * (1 + TIE) >= error), "")
    uses_form = form_path and _calls(comparison.form, form_path)
    function = form_path if uses_form else _name(comparison.form)
    return Check(
        error=error,
        tol=comparison.tol,
        unit=unit,
        cases=len(cases),
        worst=_short(worst),
        function=function,
        source=source_hash(form_path) if uses_form else "",
        truth=_name(comparison.truth),
        oracle=derivatives > 0,
    )


def _size(result: Any) -> int:
    """How many numbers a result has."""
    return (
        sum(map(_size, result))
        if isinstance(result, tuple)
        else getattr(result, "size", np.size(result))
    )


@contextmanager
def _watched(form: Callable[..., Any], path: str) -> Iterator[list[str]]:
    """Note each run of the form, or of the numbered function of this path."""
    judged = [getattr(form, "func", form), *([_function(path)] if path else [])]  # partial has func
    codes = {id(getattr(inspect.unwrap(one), "__code__", None)) for one in judged} - {id(None)}
    runs: list[str] = []

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and id(frame.f_code) in codes:
            runs.append(frame.f_code.co_name)

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        yield runs
    finally:
        sys.setprofile(before)


def _derivatives_taken() -> int:
    """How often the oracle has differentiated in this process; 0 if it was never imported."""
    return getattr(sys.modules.get("exacthessian.autograd.oracle"), "derivatives_taken", 0)


def _name(function: Callable[..., Any]) -> str:
    """A function's name: below the package its path, otherwise what the page calls it."""
    module = getattr(function, "__module__", "") or ""
    name = getattr(function, "__qualname__", type(function).__name__)
    if module.startswith("exacthessian."):
        parts = module.split(".")[1:]
        public = [parts[0]] if parts[0] == "autograd" else parts
        return ".".join([*public, name])
    return "a formula of this page" if "<lambda>" in name else name.rpartition(".")[2]


def _calls(function: Callable[..., Any], path: str, depth: int = 1) -> bool:
    """Whether a function is the package's function of this path, or calls it: itself, or through
    functions of the page at most `depth` deep. Of a method called on an object the name must do.
    """
    target = _function(path)
    function = inspect.unwrap(getattr(function, "func", function))  # functools.partial
    if function is target or not isinstance(function, FunctionType):
        return function is target
    names, objects = _names_in(function.__code__), _objects_in(function)
    if target.__name__ in names:
        if "." in target.__qualname__:
            return True
        objects += [getattr(one, target.__name__, None) for one in objects]
    deeper = (one for one in objects if isinstance(one, FunctionType) and depth > 0)
    return any(inspect.unwrap(one) is target for one in objects) or any(
        _calls(one, path, depth - 1) for one in deeper
    )


def _function(path: str) -> Any:
    """The function of the package that a path leads to, as it is in its file."""
    file = source_file(path)
    assert file is not None  # the registry was read
    folders = file.parent if file.name == "__init__.py" else file.with_suffix("")
    parts = folders.relative_to(PACKAGE).parts
    found: Any = importlib.import_module(".".join(["exacthessian", *parts]))
    for name in path.split(".")[len(parts) :]:
        found = getattr(found, name)
    found = inspect.unwrap(getattr(found, "fget", found))
    if found.__code__.co_filename != str(file):
        raise ClaimError(f"{path} is not the function of the package")
    return found


def _objects_in(function: Any) -> list[Any]:
    """What the names in a function's code stand for."""
    closed = [cell.cell_contents for cell in function.__closure__ or ()]
    names = _names_in(function.__code__)
    return closed + [function.__globals__[name] for name in names if name in function.__globals__]


def _names_in(code: CodeType) -> set[str]:
    inner = (constant for constant in code.co_consts if isinstance(constant, CodeType))
    return {*code.co_names, *(name for nested in inner for name in _names_in(nested))}


def _short(case: Any) -> str:
    text = " ".join(str(case).split())
    return text if len(text) <= 80 else text[:77] + "…"


def _display(text: str, html: str) -> None:
    display = live.notebook()
    if display is None:
        print(text)
    else:
        display.display({"text/plain": text, "text/html": html}, raw=True)


def _show(subject: Claim, kind: str, entry: Mapping[str, Any], text: str) -> None:
    """Display in a notebook, print elsewhere.

    The record travels inside the HTML, because a cache of executed notebooks keeps an output's
    data but not its metadata; a seal shows that this module wrote it.
    """
    _require_as_written(subject.id)
    data = json.dumps({kind: entry}, sort_keys=True)
    box = (
        f'<div class="eh-verdict" id="{escape(subject.anchor)}" data-record="{escape(data)}" '
        f'data-seal="{_seal(data)}"><pre>{escape(text)}</pre></div>'
    )
    _display(text, box)


def _require_as_written(id: str) -> None:
    """Refuse to judge, or to show a verdict, with anything of this module replaced."""
    if replaced := [name for owner, name, was in _AS_WRITTEN if vars(owner).get(name) is not was]:
        raise ClaimError(f"{id}: {replaced[0]} of exacthessian.claims was replaced")


def _seal(data: str) -> str:
    """The seal of a record's JSON under the build's key, which a kernel inherits."""
    secret = os.environ.get(SEAL, "")
    return hmac.new(secret.encode(), data.encode(), hashlib.sha256).hexdigest()


_AS_WRITTEN = [  # what measures and decides; a record is shown only if it still does
    (owner, name, value)
    for owner in (sys.modules[__name__], Check, Interval, Record, Referee)
    for name, value in list(vars(owner).items())
]
