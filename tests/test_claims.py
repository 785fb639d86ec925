"""Verdicts are computed: they follow from errors and tolerances, and cannot be declared."""

import re
import shutil
import subprocess
import sys

import pytest

from conftest import ROOT
from exacthessian import claims
from exacthessian.claims import ClaimError, claim

LEMMA = "depth-not-data/lemma-a.5"
FIGURES = {
    "depth-not-data": 16,
    "beyond-edge-of-stability": 23,
    "cracking-the-hessian": 27,
    "deep-linear-ufm": 18,
}


def verdict_of(**checks) -> str:
    with claim(LEMMA, show=False) as c:
        for form, (error, tol) in checks.items():
            getattr(c, form)(error=error, tol=tol)
    return c.verdict


def test_a_printed_form_that_passes_holds():
    assert verdict_of(printed=(1e-14, 1e-10)) == "holds"
    assert verdict_of(printed=(1e-10, 1e-10)) == "holds"


def test_a_printed_form_that_fails_and_a_correction_that_passes_is_corrected():
    assert verdict_of(printed=(0.3, 1e-10), corrected=(1e-14, 1e-10)) == "corrected"


def test_a_failure_needs_a_counterexample():
    with pytest.raises(ClaimError, match="give a corrected form or a counterexample"):
        verdict_of(printed=(0.3, 1e-10))
    with claim(LEMMA, show=False) as c:
        c.printed(error=0.3, tol=1e-10)
        c.counterexample("L = 2")
    assert c.record.verdict == "fails"
    assert c.record.note == "L = 2"


def test_a_correction_without_a_failing_printed_form_is_an_error():
    with pytest.raises(ClaimError, match="needs a printed form that fails first"):
        verdict_of(corrected=(0.0, 1e-10))
    with pytest.raises(ClaimError, match="needs a printed form that fails first"):
        verdict_of(printed=(0.0, 1e-10), corrected=(0.0, 1e-10))


def test_a_correction_that_fails_is_an_error():
    with pytest.raises(ClaimError, match="the corrected form fails too"):
        verdict_of(printed=(0.3, 1e-10), corrected=(0.2, 1e-10))


def test_a_tolerance_looser_than_the_claimed_quantity_is_an_error():
    with claim(LEMMA, show=False) as c:
        with pytest.raises(ClaimError, match="tolerance must be below the size"):
            c.printed(error=0.0, tol=0.1, size=0.05)
        with pytest.raises(ClaimError, match="tolerance must be below the size"):
            c.printed(error=0.0, tol=1.0)
        c.printed(error=0.0, tol=0.01, size=0.05)


@pytest.mark.parametrize("error", [float("nan"), -1e-3])
def test_an_error_that_is_no_error_is_refused(error):
    with pytest.raises(ClaimError, match="error must be at least 0"):
        verdict_of(printed=(error, 1e-3))


def test_a_claim_without_a_check_has_no_verdict():
    with pytest.raises(ClaimError, match="the printed form was not checked"), claim(LEMMA):
        pass


def test_a_form_is_checked_once():
    with claim(LEMMA, show=False) as c:
        c.printed(error=0.0, tol=1e-3)
        with pytest.raises(ClaimError, match="checked twice"):
            c.printed(error=0.5, tol=1e-3)


def test_an_experiment_at_another_scale_is_an_analogue():
    with claim(LEMMA, show=False) as c:
        c.printed(error=0.0, tol=1e-3)
        c.analogue("digits instead of CIFAR-10")
    assert c.verdict == "analogue"


def test_an_error_inside_the_block_is_not_swallowed():
    with pytest.raises(ZeroDivisionError), claim(LEMMA):
        raise ZeroDivisionError


def test_what_is_printed_is_the_same_on_every_machine(capsys):
    for error in (3e-16, 7e-15):
        with claim(LEMMA) as c:
            c.printed(error=error, tol=1e-10)
    first, second, *rest = capsys.readouterr().out.strip().split("\ndepth-not-data")
    assert first.removeprefix("depth-not-data") == second
    assert rest == []


@pytest.mark.parametrize("id", ["depth-not-data/lemma-9.9", "no-paper/lemma-1", "nothing"])
def test_an_unknown_claim_is_named(id):
    with pytest.raises(ValueError, match=f"got '{id.split('/')[0]}"), claim(id):
        pass


@pytest.mark.parametrize(("name", "count"), FIGURES.items())
def test_the_registry_lists_every_figure(name, count):
    assert list(claims.paper(name).figures) == [f"{name}/figure-{n}" for n in range(1, count + 1)]


@pytest.mark.parametrize("name", claims.PAPERS)
def test_the_registry_is_sound(name):
    kinds = {"theorem", "lemma", "corollary", "proposition", "definition", "remark", "equation"}
    registry = claims.paper(name)
    assert registry.title
    assert registry.chapter == name.replace("-", "_")
    for subject in [*registry.claims.values(), *registry.figures.values()]:
        kind = subject.id.split("/")[1].split("-")[0]
        assert kind in kinds | {"statement", "figure"}, subject.id
        assert subject.id == subject.id.lower()
        assert len(subject.statement) > 20, subject.id
        assert subject.statement.count("$") % 2 == 0, subject.id


@pytest.mark.parametrize("name", claims.PAPERS)
def test_the_errata_are_sentences_about_single_claims(name):
    errata = {s.id: s for s in claims.paper(name).claims.values() if s.erratum}
    assert errata
    for subject in errata.values():
        assert not subject.parts, f"{subject.id}: its parts have the errata"
        for text in (
            subject.erratum.printed,
            subject.erratum.corrected,
            subject.erratum.reason,
        ):
            assert len(text) > 10, subject.id
            assert text.endswith("."), subject.id
            assert text.count("$") % 2 == 0, subject.id


def test_an_erratum_for_an_unknown_part_is_refused():
    fields = {"printed": "1.", "corrected": "2.", "reason": "1 + 1."}
    entry = {"id": "lemma-1", "place": "Lemma 1", "statement": "...", "parts": {"a": "..."}}
    whole, part = claims._claims_of("paper", {**entry, "errata": {"a": fields}})
    assert whole.erratum is None
    assert part.erratum == claims.Erratum(**fields)
    with pytest.raises(ValueError, match="must name parts of the claim, got b"):
        claims._claims_of("paper", {**entry, "errata": {"b": fields}})


@pytest.mark.parametrize(
    ("id", "verdict", "problem"),
    [
        (LEMMA, "holds", None),
        (LEMMA, "analogue", None),
        (LEMMA, "not attempted", None),
        (LEMMA, "fails", "the registry has no erratum"),
        (LEMMA, "corrected", "the registry has no erratum"),
        ("depth-not-data/lemma-a.7", "corrected", None),
        ("depth-not-data/lemma-a.7", "fails", None),
        ("depth-not-data/lemma-a.7", "holds", "the verdict is 'holds'"),
        ("depth-not-data/lemma-a.7", "not attempted", "the verdict is 'not attempted'"),
        ("depth-not-data/lemma-3.4.spare", "corrected", None),
        ("depth-not-data/lemma-3.4.active", "corrected", "the registry has no erratum"),
    ],
)
def test_errata_and_verdicts_must_agree(id, verdict, problem):
    figures = [{"figure": {"id": "depth-not-data/figure-1"}}]
    found = claims.errata_out_of_step([*figures, record(id, verdict)])
    assert len(found) == (problem is not None)
    assert all(id in sentence and problem in sentence for sentence in found)


@pytest.mark.parametrize(
    ("name", "ids"),
    [
        ("depth-not-data", ["lemma-3.4", "theorem-3.5", "corollary-3.6", "equation-10"]),
        ("depth-not-data", [f"lemma-a.{n}" for n in range(1, 12)]),
        ("beyond-edge-of-stability", [f"theorem-{n}" for n in (1, 2, 3)]),
        ("beyond-edge-of-stability", [f"lemma-{n}" for n in range(1, 12)]),
        ("beyond-edge-of-stability", [f"proposition-{n}" for n in (1, 2, 3)]),
        ("cracking-the-hessian", [f"theorem-3.{n}" for n in range(1, 6)] + ["theorem-b.1"]),
        ("cracking-the-hessian", ["corollary-3.1", "corollary-b.1", "corollary-b.2"]),
        ("deep-linear-ufm", [f"theorem-{n}" for n in range(1, 12)]),
        ("deep-linear-ufm", [f"lemma-{n}" for n in range(1, 8)]),
        ("deep-linear-ufm", [f"definition-{n}" for n in (1, 2, 3)]),
    ],
)
def test_the_numbered_claims_are_listed(name, ids):
    assert {f"{name}/{id}" for id in ids} <= set(claims.paper(name).claims)


def record(id, verdict):
    return {"claim": {"id": id, "verdict": verdict}}


def rows(records, pages=()):
    table = claims.ledger(records, dict(pages))
    return {row["id"]: row for part in table.values() for row in part}


def test_a_claim_nobody_checked_is_not_attempted():
    assert rows([])[LEMMA]["verdict"] == "not attempted"
    assert rows([record(LEMMA, "holds")])[LEMMA]["verdict"] == "holds"


def test_a_claim_has_the_worst_verdict_of_its_parts():
    whole = claims.paper("depth-not-data").claims["depth-not-data/lemma-3.4"]
    first, *others = whole.parts
    holding = [record(part, "holds") for part in others]
    assert rows([*holding, record(first, "holds")])[whole.id]["verdict"] == "holds"
    assert rows([*holding, record(first, "corrected")])[whole.id]["verdict"] == "corrected"
    assert rows([*holding, record(first, "fails")])[whole.id]["verdict"] == "fails"
    assert rows(holding)[whole.id]["verdict"] == "not attempted"


def test_two_verdicts_for_one_claim_are_an_error():
    with pytest.raises(ClaimError, match="two cells give a verdict"):
        rows([record(LEMMA, "holds"), record(LEMMA, "holds")])


def test_a_row_links_to_its_cell():
    linked = rows([record(LEMMA, "holds")], {LEMMA: "book/page.html"}.items())[LEMMA]
    assert linked["cell"] == "book/page.html#claim-depth-not-data-lemma-a-5"
    assert rows([])[LEMMA]["cell"] is None


def test_a_figure_states_how_close_it_is(capsys):
    with claims.figure("depth-not-data/figure-1", status="as stated"):
        pass
    assert capsys.readouterr().out == "depth-not-data/figure-1: as stated\n"
    with (
        pytest.raises(ClaimError, match="needs a note"),
        claims.figure("depth-not-data/figure-1", status="analogue"),
    ):
        pass
    with (
        pytest.raises(ValueError, match="status must be one of"),
        claims.figure("depth-not-data/figure-1", status="done"),
    ):
        pass


def test_breaking_a_formula_changes_the_verdict(tmp_path):
    """The same check, with the package as it is and with one sign of it turned round."""
    check = (
        "import numpy as np\n"
        "from exacthessian.chain import LinearChain\n"
        "from exacthessian.claims import claim\n"
        "chain = LinearChain([np.array([[2.0]]), np.array([[3.0]])], np.eye(1), np.eye(1))\n"
        "expected = np.array([[9.0, 11.0], [11.0, 4.0]])  # (b², 2ab − 1; 2ab − 1, a²)\n"
        "with claim('depth-not-data/lemma-a.5') as c:\n"
        "    c.printed(error=abs(chain.hessian() - expected).max(), tol=1e-12)\n"
        "    c.counterexample('a = 2, b = 3')\n"
    )

    def verdict(package):
        done = subprocess.run(
            [sys.executable, "-c", check],
            env={"PYTHONPATH": str(package), "PATH": "/usr/bin:/bin"},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()[0].split(": ")[1]

    copy = tmp_path / "exacthessian"
    shutil.copytree(ROOT / "src" / "exacthessian", copy)
    assert verdict(tmp_path) == "holds"
    module = copy / "chain.py"
    broken = re.sub(r"- ((\w+ @ )?self\.sigma_yx)", r"+ \1", module.read_text())
    assert broken != module.read_text()
    module.write_text(broken)
    assert verdict(tmp_path) == "fails"
