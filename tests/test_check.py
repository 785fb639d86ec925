"""A ledger can be checked by anybody, and one that was edited is refused."""

import copy
import json
from dataclasses import asdict, replace

import jsonschema
import pytest

from conftest import ROOT
from exacthessian import check, claims
from exacthessian.claims import Check, Interval, Record
from exacthessian.ledger import _digest, faults, ledger, to_json

LEAVES = [s for name in claims.PAPERS for s in claims.paper(name).leaves if not s.form]
MEASURED = next(s.id for s in LEAVES if s.kind == "measured")
RIGHT, OTHER, *_ = (s.id for s in LEAVES if s.kind == "equal" and not s.erratum)
WRONG, SHAPELESS, *_ = (s.id for s in LEAVES if s.kind == "equal" and s.erratum)
FIGURE = next(iter(claims.paper("depth-not-data").figures))
SCHEMA = json.loads((ROOT / "book" / "web" / "ledger.schema.json").read_text(encoding="utf-8"))
RECORDS = [
    Record(RIGHT, "holds", Check(1e-12, 1e-10, cases=4, truth="autograd.hessian", oracle=True)),
    Record(OTHER, "holds", Check(0.0, 0.0, cases=1)),
    Record(MEASURED, "analogue agrees", interval=Interval(2, 1, 3, 8, 0.5), differs="smaller"),
    Record(WRONG, "corrected", Check(0.5, 1e-10, cases=2), Check(0.0, 1e-10, cases=2)),
    Record(SHAPELESS, "fails", Check(float("inf"), 0.0, cases=2), note="one layer"),
]
MADE = {"page": "book/a.html", "source": "0" * 12, "commit": "0" * 12, "versions": {"numpy": "2"}}


@pytest.fixture
def sound():
    """A ledger as the site has it."""
    shown = [{"claim": asdict(record)} for record in RECORDS]
    shown.append({"figure": {"id": FIGURE, "status": "analogue", "seconds": 1.5, "note": "small"}})
    return json.loads(to_json(ledger(one | MADE for one in shown)))


@pytest.fixture
def book(tmp_path):
    """Accepted notebooks that print the same records."""
    texts = [*map(str, RECORDS), f"{FIGURE}: analogue (small)"]
    outputs = [{"data": {"text/plain": [text]}} for text in texts]
    (tmp_path / "a.ipynb").write_text(json.dumps({"cells": [{"outputs": outputs}]}))
    return tmp_path


def verdict(table, tmp_path, *more):
    path = tmp_path / "ledger.json"
    path.write_text(json.dumps(table))
    return check._main([str(path), *map(str, more)])


def row(table, id):
    return next(row for kind in ("claims", "figures") for row in table[kind] if row["id"] == id)


def mend(table):
    """What a careful forger does: compute all digests anew."""
    rows = {kind: table[kind] for kind in ("claims", "figures")}
    for one in (one for kind in rows.values() for one in kind):
        one["digest"] = _digest({key: value for key, value in one.items() if key != "digest"})
    return {**table, "digest": _digest(rows)}


def test_a_sound_ledger_passes(sound, book, tmp_path, capsys):
    assert verdict(sound, tmp_path) == 0
    assert verdict(sound, tmp_path, book) == 0
    out = capsys.readouterr().out
    assert f"digest {sound['digest']}".lower() in out.lower()
    assert "holds once corrected" in out


def test_the_schema_describes_the_ledger(sound):
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    validator = jsonschema.Draft202012Validator(SCHEMA)
    assert list(validator.iter_errors(sound)) == []
    assert row(sound, SHAPELESS)["printed"]["error"] == "Infinity"
    for key, value in (("verdict", "true"), ("leaf", 1), ("surprise", "")):
        wrong = copy.deepcopy(sound)
        row(wrong, RIGHT)[key] = value
        assert list(validator.iter_errors(wrong)), key
    assert set(SCHEMA["$defs"]["claim"]["properties"]["verdict"]["enum"]) == set(claims.WORDS)
    assert set(SCHEMA["$defs"]["figure"]["properties"]["status"]["enum"]) == {
        *claims.FIGURE_STATUSES
    }


FORGERIES = {
    "an error": lambda t: row(t, WRONG)["printed"].update(error=0.0),
    "an error on its side of the tolerance": lambda t: row(t, RIGHT)["printed"].update(error=2e-12),
    "a tolerance": lambda t: row(t, WRONG)["printed"].update(tol=0.9),
    "a tolerance and its verdict": lambda t: (
        row(t, WRONG)["printed"].update(tol=0.9),
        row(t, WRONG).update(verdict="holds", corrected=None),
    ),
    "too few seeds": lambda t: row(t, MEASURED)["interval"].update(seeds=3),
    "an error that is no number": lambda t: row(t, RIGHT)["printed"].update(error="NaN"),
    "no cases": lambda t: row(t, RIGHT)["printed"].update(cases=0),
    "a verdict": lambda t: row(t, WRONG).update(verdict="holds"),
    "an interval": lambda t: row(t, MEASURED)["interval"].update(low=0.1),
    "an error and its verdict": lambda t: (
        row(t, WRONG)["printed"].update(error=0.0),
        row(t, WRONG).update(verdict="holds", corrected=None),
    ),
    "a statement": lambda t: row(t, RIGHT).update(statement="Everything is fine."),
    "a use": lambda t: row(t, RIGHT).update(uses=[]) or row(t, RIGHT).update(leans=[{"x": 1}]),
    "a status": lambda t: row(t, FIGURE).update(status="as stated"),
    "the seconds of a figure": lambda t: row(t, FIGURE).update(seconds=0.1),
    "a removed record": lambda t: t["claims"].remove(row(t, WRONG)),
    "a forgotten record": lambda t: row(t, WRONG).update(
        verdict="not attempted",
        printed=None,
        corrected=None,
        cell=None,
        source="",
        commit="",
        versions={},
    ),
    "an added record": lambda t: t["claims"].append({**row(t, RIGHT), "id": "depth-not-data/x-1"}),
    "a repeated record": lambda t: t["claims"].append(row(t, RIGHT)),
    "another order": lambda t: t["claims"].reverse(),
    "no digest": lambda t: t.pop("digest"),
    "no claims": lambda t: t.pop("claims"),
    "nonsense": lambda t: row(t, RIGHT).update(printed="fine"),
}
# With the digests mended, these need the accepted notebooks, or change nothing that is printed.
SEEN_BY_DIGEST_ONLY = ("error on its side", "seconds", "no digest")
SEEN_WITH_NOTEBOOKS = ("a status", "forgotten", "interval")


@pytest.mark.parametrize("name", FORGERIES)
def test_an_edited_ledger_is_refused(sound, book, tmp_path, capsys, name):
    FORGERIES[name](sound)
    assert verdict(sound, tmp_path) == 1
    assert "refused" in capsys.readouterr().err
    if name == "no claims" or any(words in name for words in SEEN_BY_DIGEST_ONLY):
        return
    forged = mend(sound)
    seen = verdict(forged, tmp_path, book)
    assert seen == 1, f"{name}: nobody saw it with its digests mended"
    if not any(words in name for words in SEEN_WITH_NOTEBOOKS):
        assert verdict(forged, tmp_path) == 1, f"{name}: seen with the notebooks only"


def test_a_changed_function_makes_a_record_old():
    subject = next(s for s in claims.paper("depth-not-data").leaves if s.form and not s.erratum)
    hash = claims.source_hash(subject.form)
    made = Check(0.0, 1e-10, cases=1, function=subject.form, source=hash)
    shown = MADE
    now = ledger([{"claim": asdict(Record(subject.id, "holds", made)), **shown}])
    assert faults(now) == []
    old = Record(subject.id, "holds", replace(made, source="0" * 12))
    assert "has changed since the cell ran" in faults(ledger([{"claim": asdict(old), **shown}]))[0]
    plain = Record(subject.id, "holds", Check(0.0, 1e-10, cases=1))
    found = faults(ledger([{"claim": asdict(plain), **shown}]))
    assert f"it must be decided by {subject.form}" in found[0]


def test_the_command_says_how_it_is_used(capsys):
    assert check._main([]) == 2
    assert "usage: python -m exacthessian.check ledger.json" in capsys.readouterr().err
