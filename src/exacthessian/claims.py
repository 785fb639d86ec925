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
import inspect
import json
import math
import os
import sys
import time
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields, replace
from functools import cache
from html import escape
from importlib.resources import files
from pathlib import Path
from types import CodeType
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
    package. `full_size` says what a figure costs at the paper's own size.
    """

    id: str
    place: str
    statement: str
    hypotheses: tuple[str, ...] = ()
    uses: tuple[str, ...] = ()
    form: str = ""
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
        if not errata.keys() <= parts.keys():
            raise ValueError(f"errata must name parts of the claim, got {sorted(errata)}")
        claims = [_claim(name, whole | {"parts": tuple(f"{name}/{key}.{part}" for part in parts)})]
        inherited = {field: row[field] for field in ("place", "hypotheses", "uses")}
        for part, given in parts.items():
            key = f"{row['id']}.{part}"
            own = {"statement": given} if isinstance(given, str) else given
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
    made = {"hypotheses": tuple(hypotheses), "uses": uses, "form": path}
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
    if hasattr(true, "distance"):
        same = isinstance(found, type(true)) and found.size == true.size
        return found.distance(true) if same else math.inf
    a, b = np.asarray(found), np.asarray(true)
    if a.shape != b.shape or a.dtype.kind not in "biufc" or b.dtype.kind not in "biufc":
        return math.inf
    if not a.size:
        return 0.0
    if a.dtype.kind in "biu" and b.dtype.kind in "biu":
        return float(np.abs(a.astype(np.int64) - b.astype(np.int64)).max())
    difference, scale = float(np.abs(a - b).max()), float(np.abs(b).max())
    if not (math.isfinite(difference) and math.isfinite(scale)):
        return math.inf
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


def decide(record: Record, form: str = "") -> str:
    """The verdict that follows from the checks of a record; what it says itself is not looked at.

    A claim with a numbered function, `form`, is decided by that function.

    >>> decide(Record("paper/lemma-1", "", printed=Check(0.3, 1e-10), note="L = 2"))
    'fails'
    """
    printed, corrected, id = record.printed, record.corrected, record.id
    deciding = corrected or printed
    if form and deciding is not None and deciding.function != form:
        decided = deciding.function or "a plain number"
        raise ClaimError(f"{id}: it must be decided by {form}, not {decided}")
    if record.interval is not None:
        interval = record.interval
        if interval.low > interval.above:
            return "analogue agrees"
        return "analogue disagrees" if interval.high < interval.above else "analogue undecided"
    if printed is None:
        if record.note and not (corrected or record.exception or record.differs):
            return "not attempted"
        raise ClaimError(f"{id}: the printed form was not checked")
    if record.differs:
        return "analogue agrees" if printed.passes else "analogue disagrees"
    if printed.passes:
        if corrected is not None:
            raise ClaimError(f"{id}: a corrected form needs a printed form that fails")
        if record.exception is None:
            return "holds"
        if record.exception.passes:
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
        is unpacked), and the worst `gap` is kept. Or `printed(error=…, tol=…, unit=…, size=…)` for
        a claim that is no formula; a tolerance must be below the `size` of what is claimed.
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
        size: float = 1.0,
    ) -> None:
        id = self.subject.id
        if kind in self._facts:
            raise ClaimError(f"{id}: the {kind} form was checked twice")
        if tol is None or not 0 <= tol < abs(size):
            raise ClaimError(
                f"{id}: {kind} tolerance must be below the size of the claimed quantity, "
                f"{abs(size):g}, got {tol}"
            )
        if error is not None:
            if math.isnan(error) or error < 0:
                raise ClaimError(f"{id}: {kind} error must be at least 0, got {error}")
            self._facts[kind] = Check(float(error), float(tol), unit)
            return
        if form is None or truth is None or cases is None:
            raise ClaimError(f"{id}: {kind} needs a form, the truth and cases, or an error")
        comparison = _Comparison(kind, form, truth, tuple(cases), float(tol))
        if not comparison.cases:
            raise ClaimError(f"{id}: {kind} needs at least one case")
        self.comparisons.append(comparison)
        self._facts[kind] = _compared(comparison, self.subject.form, unit)

    @property
    def record(self) -> Record:
        """The checks and their verdict as data."""
        seconds = round(time.perf_counter() - self._started, 2)
        record = Record(self.subject.id, "", **self._facts, seconds=seconds)
        return replace(record, verdict=decide(record, self.subject.form))

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
    ...     c.printed(error=0.5, tol=1e-10, unit="of the input")
    ...     c.counterexample("one learned direction of two")
    depth-not-data/statement-isometry: fails
      printed form: off by 0.5 of the input (allowed 1e-10)
      counterexample: one learned direction of two
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

    >>> not_attempted("beyond-edge-of-stability/theorem-2", "needs the authors' data")
    beyond-edge-of-stability/theorem-2: not attempted
      reason: needs the authors' data
    """
    subject = _look_up(id, "claims")
    if not reason.strip():
        raise ClaimError(f"{id}: say why it is not attempted")
    record = Record(id, "not attempted", note=reason)
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


def _compared(comparison: _Comparison, form_path: str, unit: str) -> Check:
    """Call form and truth on every case and keep the worst."""
    before = _derivatives_taken()
    worst, error = None, -1.0
    for case in live.progress(comparison.cases, "cases"):
        arguments = case if isinstance(case, tuple) else (case,)
        here = gap(comparison.form(*arguments), comparison.truth(*arguments))
        if here > error * (1 + TIE):  # else another machine's rounding would choose
            worst = case
        error = max(error, here)
    uses_form = form_path and _calls(comparison.form, form_path)
    function = form_path if uses_form else _name(comparison.form)
    return Check(
        error=error,
        tol=comparison.tol,
        unit=unit,
        cases=len(comparison.cases),
        worst=_short(worst),
        function=function,
        source=source_hash(form_path) if uses_form else "",
        truth=_name(comparison.truth),
        oracle=_derivatives_taken() > before,
    )


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


def _calls(function: Callable[..., Any], path: str) -> bool:
    """Whether a function is the package's function of this path, or calls it by its name."""
    name = path.rpartition(".")[2]
    if _name(function) == path:
        return True
    function = getattr(function, "func", function)  # functools.partial
    code = getattr(inspect.unwrap(function), "__code__", None)
    if code is None:
        return False
    seen = _names_in(code)
    helpers = (getattr(function, "__globals__", {}).get(other) for other in seen)
    codes = (getattr(helper, "__code__", None) for helper in helpers)
    return name in seen or any(name in _names_in(inner) for inner in codes if inner)


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
    data = json.dumps({kind: entry}, sort_keys=True)
    box = (
        f'<div class="eh-verdict" id="{escape(subject.anchor)}" data-record="{escape(data)}" '
        f'data-seal="{_seal(data)}"><pre>{escape(text)}</pre></div>'
    )
    _display(text, box)


def _seal(data: str) -> str:
    """The seal of a record's JSON under the build's key, which a kernel inherits."""
    secret = os.environ.get(SEAL, "")
    return hmac.new(secret.encode(), data.encode(), hashlib.sha256).hexdigest()
