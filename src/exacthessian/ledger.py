"""The ledger: every claim and figure of every paper, with what the executed cells found.

A record is believed only as far as it can be recomputed: its verdict must follow from its own
numbers, its function must be the one that the registry names, unchanged since, and each claim has
one record.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from exacthessian.claims import (
    PAPERS,
    REGISTRIES,
    WORST_FIRST,
    WRONG_AS_PRINTED,
    Claim,
    ClaimError,
    Record,
    decide,
    definition,
    paper,
    record_of,
    source_hash,
)


def worst(verdicts: Iterable[str]) -> str:
    """The worst of some verdicts; a claim gets the worst verdict of its parts.

    >>> worst(["holds", "corrected", "not attempted"])
    'corrected'
    """
    return min(verdicts, key=WORST_FIRST.index)


def ledger(records: Iterable[Mapping[str, Any]], pages: Mapping[str, str]) -> dict[str, Any]:
    """The whole ledger: every claim and figure of every registry with what the pages found.

    `records` are the dictionaries that cells showed, `{"claim": {...}}` or `{"figure": {...}}`;
    `pages` gives the page on which each id was checked. A claim that no cell has checked is *not
    attempted*; a claim with parts has the worst of their verdicts, and only claims without parts,
    `leaf`, are counted.

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
    claims = [
        _claim_row(subject, found, pages)
        for name in REGISTRIES
        for subject in paper(name).claims.values()
    ]
    figures = [
        _figure_row(subject, found.get(subject.id, {}), pages)
        for name in PAPERS
        for subject in paper(name).figures.values()
    ]
    return {"claims": claims, "figures": figures}


def _claim_row(
    subject: Claim, found: Mapping[str, Mapping[str, Any]], pages: Mapping[str, str]
) -> dict[str, Any]:
    own = found.get(subject.id)
    entries = [found.get(part) for part in subject.parts] or [own]
    verdict = worst(entry["verdict"] if entry else "not attempted" for entry in entries)
    entry = own or {}
    return {
        "id": subject.id,
        "paper": subject.paper,
        "place": subject.place,
        "statement": subject.statement,
        "hypotheses": list(subject.hypotheses),
        "uses": list(subject.uses),
        "form": subject.form,
        "leaf": not subject.parts,
        "verdict": verdict,
        **{key: entry.get(key) for key in ("printed", "corrected", "exception", "interval")},
        **{key: entry.get(key, "") for key in ("where", "differs", "note", "commit")},
        "versions": entry.get("versions", {}),
        "cell": _link(subject, pages),
    }


def _figure_row(
    subject: Claim, entry: Mapping[str, Any], pages: Mapping[str, str]
) -> dict[str, Any]:
    return {
        "id": subject.id,
        "paper": subject.paper,
        "place": subject.place,
        "statement": subject.statement,
        "status": entry.get("status", "not attempted"),
        "seconds": entry.get("seconds"),
        "note": entry.get("note", ""),
        "full_size": subject.full_size,
        "cell": _link(subject, pages),
    }


def _link(subject: Claim, pages: Mapping[str, str]) -> str | None:
    for id in (subject.id, *subject.parts):
        if id in pages:
            checked = paper(subject.paper).claims.get(id, subject)
            return f"{pages[id]}#{checked.anchor}"
    return None


def faults(records: Iterable[Mapping[str, Any]]) -> list[str]:
    """What is wrong with the records, one sentence each.

    A verdict must follow from its record's own numbers; a check of a numbered function must be of
    the function as it is now; a claim that is wrong as printed needs an erratum, and an erratum
    needs such a claim.

    >>> from dataclasses import asdict
    >>> from exacthessian.claims import Check, Record
    >>> forged = Record("depth-not-data/lemma-a.5", "holds", printed=Check(5.0, 1e-10), note="x")
    >>> faults([{"claim": asdict(forged)}])
    ["depth-not-data/lemma-a.5: its record says 'holds', but its numbers say 'fails'"]
    """
    problems = []
    for entry in (record["claim"] for record in records if "claim" in record):
        record = record_of(entry)
        subject = paper(record.id.split("/")[0]).claims.get(record.id)
        if subject is None:
            problems.append(f"{record.id}: no registry has this claim")
            continue
        problems += _disagreements(subject, record)
    return problems


def _disagreements(subject: Claim, record: Record) -> list[str]:
    id, verdict = record.id, record.verdict
    try:
        follows = decide(record)
    except ClaimError as error:
        return [f"{error}, and its record says {verdict!r}"]
    if follows != verdict:
        return [f"{id}: its record says {verdict!r}, but its numbers say {follows!r}"]
    problems = []
    if subject.parts:
        problems.append(f"{id}: it has parts, so its parts are judged and not the whole")
    deciding = record.corrected or record.printed
    if subject.form and deciding and deciding.function != subject.form:
        problems.append(f"{id}: it must be decided by {subject.form}, not {deciding.function!r}")
    for check in (record.printed, record.corrected, record.exception):
        if check and check.source and definition(check.function) is None:
            problems.append(f"{id}: the package has no function {check.function}")
        elif check and check.source and check.source != source_hash(check.function):
            problems.append(f"{id}: {check.function} has changed since the cell ran")
    if verdict in WRONG_AS_PRINTED and subject.erratum is None:
        problems.append(f"{id}: the verdict is {verdict!r}, but the registry has no erratum for it")
    if verdict not in WRONG_AS_PRINTED and subject.erratum is not None:
        problems.append(f"{id}: the registry has an erratum for it, but the verdict is {verdict!r}")
    return problems
