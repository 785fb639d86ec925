"""The ledger: every claim and figure of every paper, with what the executed cells found.

It follows from the registries and the records of the cells, and from nothing else. So a ledger is
believed only as far as it can be made again: its rows must be those of the registries, each verdict
must follow from the numbers beside it, and a numbered function must be as it was when its cell ran.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

from exacthessian.claims import (
    PAPERS,
    REGISTRIES,
    WORDS,
    WRONG_AS_PRINTED,
    Claim,
    ClaimError,
    Record,
    decide,
    definition,
    paper,
    source_hash,
)

Row = dict[str, Any]


def ledger(records: Iterable[Mapping[str, Any]]) -> dict[str, list[Row]]:
    """The whole ledger: every claim and figure of every registry with what the pages found.

    A record is what a cell showed, `{"claim": {...}}` or `{"figure": {...}}`, with what the build
    knows about it: the `page`, the hash of the cell's `source`, the `commit` and the `versions`. A
    claim that no cell has checked is *not attempted*; a claim with parts has the worst of their
    verdicts, and only claims without parts, `leaf`, are counted. `leans` lists what is wrong as
    printed among the things that a claim uses, directly or `through` one of them.

    >>> empty = ledger([])
    >>> {row["verdict"] for row in empty["claims"]}, len(empty["figures"])
    ({'not attempted'}, 84)
    """
    found: dict[str, Mapping[str, Any]] = {}
    for record in records:
        kind = "claim" if "claim" in record else "figure"
        id = record[kind]["id"]
        known = getattr(paper(id.split("/")[0]), f"{kind}s")
        if id not in known:
            raise ClaimError(f"{id}: no registry has this {kind}")
        if known[id].parts:
            raise ClaimError(f"{id}: it has parts, so its parts are judged and not the whole")
        if id in found:
            raise ClaimError(f"{id}: two cells give a verdict, there must be one")
        found[id] = {**record, **record[kind]}
    subjects = {id: subject for name in REGISTRIES for id, subject in paper(name).claims.items()}
    verdicts = {id: _verdict(subject, found) for id, subject in subjects.items()}
    claims = [
        {
            **_start(subject, found),
            "hypotheses": list(subject.hypotheses),
            "uses": list(subject.uses),
            "leans": _leans(subject, subjects, verdicts),
            "form": subject.form,
            "leaf": not subject.parts,
            **asdict(Record.of({**found.get(id, {}), "id": id, "verdict": verdicts[id]})),
        }
        for id, subject in subjects.items()
    ]
    blank = {"status": "not attempted", "seconds": None, "note": ""}
    figures = [
        {
            **_start(subject, found),
            "full_size": subject.full_size,
            **{key: found.get(id, blank)[key] for key in blank},
        }
        for name in PAPERS
        for id, subject in paper(name).figures.items()
    ]
    rows = {"claims": claims, "figures": figures}
    return {kind: [{**row, "digest": _digest(row)} for row in rows[kind]] for kind in rows}


def _start(subject: Claim, found: Mapping[str, Mapping[str, Any]]) -> Row:
    checked = next((id for id in (subject.id, *subject.parts) if id in found), "")
    anchor = paper(subject.paper).claims.get(checked, subject).anchor
    made = found.get(checked, {"source": "", "commit": "", "versions": {}})
    return {
        "id": subject.id,
        "paper": subject.paper,
        "place": subject.place,
        "statement": subject.statement,
        "cell": f"{made['page']}#{anchor}" if checked else None,
        **{key: made[key] for key in ("source", "commit", "versions")},
    }


def _verdict(subject: Claim, found: Mapping[str, Mapping[str, Any]]) -> str:
    parts = subject.parts or (subject.id,)
    verdicts = (found[id]["verdict"] if id in found else "not attempted" for id in parts)
    return max(verdicts, key=list(WORDS).index)


def _leans(
    subject: Claim, subjects: Mapping[str, Claim], verdicts: Mapping[str, str]
) -> list[dict[str, str]]:
    """What is wrong as printed below a claim, breadth first."""
    found: dict[str, str] = {}
    queue = [(use, "") for use in subject.uses]
    for use, through in queue:
        if use not in found:
            found[use] = through
            queue += [(deeper, through or use) for deeper in subjects[use].uses]
    wrong = (use for use in found if verdicts[use] in WRONG_AS_PRINTED)
    return [{"id": use, "through": found[use]} for use in wrong]


def _plain(part: Any) -> Any:
    """As JSON has it: an infinite error, of results that have other shapes, becomes a word."""
    return json.loads(json.dumps(part), parse_constant=str)


def _digest(part: Any) -> str:
    text = json.dumps(_plain(part), sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def to_json(table: Mapping[str, Any]) -> str:
    """The ledger as a file: its rows, and a digest of them all.

    >>> list(json.loads(to_json(ledger([]))))
    ['$schema', 'digest', 'claims', 'figures']
    """
    head = {"$schema": "_static/ledger.schema.json", "digest": _digest(table)}
    return json.dumps({**head, **_plain(table)}, indent=1, ensure_ascii=False) + "\n"


def faults(table: Mapping[str, Any]) -> list[str]:
    """What is wrong with a ledger, one sentence each.

    It must be the one that follows from its own records; a verdict must follow from its record's
    numbers; a check of a numbered function must be of the function as it is now; a claim that is
    wrong as printed needs an erratum, and an erratum needs such a claim.

    >>> forged = ledger([])
    >>> forged["claims"][0]["verdict"] = "holds"
    >>> faults(forged)
    ['this-book/second-variation: its row is not what its record and the registry give']
    """
    try:
        given, again = _plain(table), _plain(ledger(_records(table)))
    except (ClaimError, KeyError, TypeError, ValueError) as error:
        return [f"no ledger follows from these records: {error}"]
    problems = []
    for kind in again:
        mine, theirs = ({row["id"]: row for row in rows[kind]} for rows in (again, given))
        problems += [f"{id}: it is missing" for id in mine if id not in theirs]
        problems += [f"{id}: no registry has it" for id in theirs if id not in mine]
        problems += [
            f"{id}: its row is not what its record and the registry give"
            for id in mine
            if id in theirs and mine[id] != theirs[id]
        ]
    if not problems and any(again[kind] != given[kind] for kind in again):
        problems.append("rows are repeated or in another order")
    if given.get("digest", _digest(again)) != _digest(again):
        problems.append("the digest is not that of the rows")
    for row in again["claims"]:
        if row["leaf"] and row["cell"]:
            problems += _disagreements(paper(row["paper"]).claims[row["id"]], Record.of(row))
    return problems


def _records(table: Mapping[str, Any]) -> list[Row]:
    """The records that the rows of a ledger hold."""
    rows = [("claim", row) for row in table["claims"] if row["leaf"] and row["cell"]]
    rows += [("figure", row) for row in table["figures"] if row["cell"]]
    return [{**row, kind: row, "page": row["cell"].partition("#")[0]} for kind, row in rows]


def _disagreements(subject: Claim, record: Record) -> list[str]:
    id, verdict = record.id, record.verdict
    try:
        follows = decide(record, subject)
    except ClaimError as error:
        return [f"{error}, and its record says {verdict!r}"]
    if follows != verdict:
        return [f"{id}: its record says {verdict!r}, but its numbers say {follows!r}"]
    problems = []
    for check in filter(None, (record.printed, record.corrected, record.exception)):
        if check.source and definition(check.function) is None:
            problems.append(f"{id}: the package has no function {check.function}")
        elif check.source and check.source != source_hash(check.function):
            problems.append(f"{id}: {check.function} has changed since the cell ran")
    if (verdict in WRONG_AS_PRINTED) != (subject.erratum is not None):
        has = "has an" if subject.erratum else "has no"
        problems.append(f"{id}: the verdict is {verdict!r}, but the registry {has} erratum for it")
    return problems
