"""Verdicts are computed: they follow from functions and cases, and cannot be declared."""

import importlib
import math
import sys
from dataclasses import asdict
from functools import partial

import numpy as np
import pytest

from exacthessian import LinearChain, Spectrum, autograd, claims, live
from exacthessian.claims import Check, ClaimError, Interval, Record, claim, gap
from exacthessian.ledger import faults, ledger
from exacthessian.papers import beyond_edge_of_stability, depth_not_data
from exacthessian.papers.beyond_edge_of_stability import lemma_7
from verdict_box import box, markdown_html, records_in

SQUARES = [1, 2, 3]
ROW = {
    "id": "lemma-1",
    "place": "Lemma 1",
    "statement": "The square of *n* is $n^2$.",
    "hypotheses": ["n > 0"],
    "uses": [],
    "kind": "number",
    "loosest": 0.1,
}
FIELDS = {"printed": "It is $n$.", "corrected": "It is $n^2$.", "reason": "By definition."}
TOY = {
    "paper": "toy",
    "number": 5,
    "title": "A toy",
    "short": "Toy",
    "authors": [],
    "chapter": "toy",
    "claim": [
        ROW,
        {**ROW, "id": "lemma-2", "erratum": FIELDS},
        {**ROW, "id": "theorem-3", "parts": {"a": "first", "b": "second", "c": "third"}},
        {**ROW, "id": "statement-seeds", "kind": "measured"},
        {**ROW, "id": "statement-open", "kind": "open"},
        {**ROW, "id": "equation-4", "kind": "equal", "loosest": 1e-9},
    ],
    "figure": [{"id": "figure-1", "place": "Figure 1", "statement": "A parabola."}],
}
LEMMA, WRONG, WHOLE, SEEDS, OPEN, EQUATION = (f"toy/{row['id']}" for row in TOY["claim"])
FIGURE = "toy/figure-1"


@pytest.fixture(autouse=True)
def toy_paper(monkeypatch):
    """A fifth paper, so that these tests do not depend on what the real ones say."""
    real = claims._raw
    names = (*claims.REGISTRIES, "toy")
    for cached in (claims.paper, claims._ids):
        cached.cache_clear()
    monkeypatch.setattr(claims, "_raw", lambda name: TOY if name == "toy" else real(name))
    for module in ("claims", "ledger"):
        monkeypatch.setattr(f"exacthessian.{module}.REGISTRIES", names)
    monkeypatch.setattr(claims, "_AS_WRITTEN", [])  # these patches are meant
    yield
    for cached in (claims.paper, claims._ids):
        cached.cache_clear()


def square(n):
    return n * n


def verdict_of(**checks) -> str:
    with claim(LEMMA, show=False) as c:
        for form, (error, tol) in checks.items():
            getattr(c, form)(error=error, tol=tol)
    return c.verdict


@pytest.mark.parametrize(
    ("found", "true", "error"),
    [
        (3, 5, 2),
        (True, False, 1),
        (2.0, 4.0, 0.5),
        (0.25, 0.0, 0.25),
        ([1.0, 2.0], [1.0, 4.0], 0.5),
        ((1, 2.0), (1, 4.0), 0.5),
        (Spectrum.from_values([4, 1]), Spectrum.from_values([4, 2]), 0.25),
        (Spectrum.from_values([4]), Spectrum.from_values([4, 2]), math.inf),
        ([1.0], [1.0, 1.0], math.inf),
        ((1,), (1, 1), math.inf),
        (math.nan, 1.0, math.inf),
        ("one", 1.0, math.inf),
        (np.zeros(0), np.zeros(0), 0),
        (2**40, 2**40 + 1, 1),
    ],
)
def test_the_gap_of_two_results(found, true, error):
    assert gap(found, true) == error


def test_the_referee_finds_the_worst_case_itself():
    with claim(LEMMA, show=False) as c:
        c.printed(lambda n: 2 * n, square, SQUARES, tol=0)
        c.corrected(lambda n: n**2, square, SQUARES, tol=0)
    record = c.record
    assert record.verdict == "corrected"
    assert (record.printed.error, record.printed.worst, record.printed.cases) == (3, "3", 3)
    assert record.printed.truth == "square"
    assert (record.corrected.error, record.corrected.oracle) == (0, False)
    assert record.seconds >= 0


def test_a_tuple_is_unpacked_and_one_failing_case_is_enough():
    with claim(LEMMA, show=False) as c:
        c.printed(lambda a, b: a + b, lambda a, b: a * b, [(2, 2), (0, 0), (1, 2)], tol=0)
        c.counterexample("1 + 2")
    assert c.verdict == "fails"
    assert c.record.printed.worst == "(1, 2)"


def test_of_equally_bad_cases_the_first_is_named():
    with claim(LEMMA, show=False) as c:
        c.printed(lambda n: 1.0 + n, lambda n: 1.0, [0.5, 0.5 + 1e-11, -0.5], tol=0.1)
        c.counterexample("a half")
    assert c.record.printed.worst == "0.5"
    assert c.record.printed.error == pytest.approx(0.5)


def test_the_oracle_is_seen_at_work():
    from exacthessian import LinearChain, autograd

    chain = LinearChain([[[3.0]], [[5.0]]], [[2.0]], [[7.0]])
    with claim(LEMMA, show=False) as c:
        c.printed(LinearChain.hessian, autograd.hessian, [chain], tol=1e-12)
    assert c.record.printed.oracle
    assert c.record.printed.truth == "autograd.hessian"
    assert c.record.printed.function == "chain.LinearChain.hessian"


@pytest.mark.parametrize(
    ("checks", "verdict"),
    [
        ({"printed": (1e-14, 1e-10)}, "holds"),
        ({"printed": (1e-10, 1e-10)}, "holds"),
        ({"printed": (0.3, 1e-10), "corrected": (1e-14, 1e-10)}, "corrected"),
    ],
)
def test_plain_numbers_decide_where_a_claim_is_no_formula(checks, verdict):
    assert verdict_of(**checks) == verdict


def test_a_failure_needs_a_counterexample():
    with pytest.raises(ClaimError, match="give a corrected form or a counterexample"):
        verdict_of(printed=(0.3, 1e-10))
    with claim(LEMMA, show=False) as c:
        c.printed(error=0.3, tol=1e-10)
        c.counterexample("L = 2")
    assert c.record.verdict == "fails"
    assert c.record.note == "L = 2"


def test_a_misprint_says_where_the_paper_has_it_right():
    with claim(LEMMA, show=False) as c:
        c.printed(lambda n: -n * n, square, SQUARES, tol=0)
        c.misprint(lambda n: n**2, square, SQUARES, tol=0, where="the next line")
    assert c.record.verdict == "misprint"
    with claim(LEMMA, show=False) as c:
        c.printed(error=0.3, tol=1e-10)
        with pytest.raises(ClaimError, match="say where the paper has it right"):
            c.misprint(error=0.0, tol=1e-10, where=" ")
        c.counterexample("any")


def test_an_exception_must_be_one():
    with claim(LEMMA, show=False) as c:
        c.printed(lambda n: n * n, square, SQUARES, tol=0)
        c.exception(lambda n: n, square, [7], tol=0, why="seven is excluded")
    assert (c.verdict, c.record.note) == ("holds generically", "seven is excluded")
    with claim(LEMMA, show=False) as c:
        c.printed(lambda n: n * n, square, SQUARES, tol=0)
    c.exception(lambda n: n * n, square, [7], tol=0, why="seven is excluded")
    with pytest.raises(ClaimError, match="passes on its exceptions too"):
        _ = c.verdict


@pytest.mark.parametrize(
    ("effects", "verdict"),
    [
        ([1.0, 1.1, 0.9, 1.0, 1.2, 0.8, 1.0, 1.05], "analogue agrees"),
        ([-1.0, -1.1, -0.9, -1.0, -1.2, -0.8, -1.0, -1.05], "analogue disagrees"),
        ([1.0, -1.1, 0.9, -1.0, 1.2, -0.8, 1.0, -1.05], "analogue undecided"),
    ],
)
def test_an_experiment_says_undecided_when_its_interval_does(effects, verdict):
    with claim(SEEDS, show=False) as c:
        c.measured(effects, above=0.0, differs="a net of 7,584 weights")
    assert c.verdict == verdict
    interval = c.record.interval
    assert interval.low < np.mean(effects) < interval.high


def test_the_interval_is_students():
    from scipy.stats import t

    effects = np.array([1.0, 2.0, 4.0, 8.0, 3.0, 2.0, 5.0, 1.0])
    with claim(SEEDS, show=False) as c:
        c.measured(effects, above=0.0, differs="smaller")
    expected = t.interval(0.95, 7, effects.mean(), effects.std(ddof=1) / np.sqrt(8))
    assert np.allclose((c.record.interval.low, c.record.interval.high), expected, rtol=1e-12)


def test_an_analogue_never_fails():
    with claim(LEMMA, show=False) as c:
        c.printed(error=0.5, tol=1e-3)
        c.analogue("digits instead of CIFAR-10")
    assert c.verdict == "analogue disagrees"
    with claim(LEMMA, show=False) as c:
        c.printed(error=0.0, tol=1e-3)
        c.analogue("digits instead of CIFAR-10")
    assert c.verdict == "analogue agrees"


@pytest.mark.parametrize(
    ("call", "problem"),
    [
        (lambda c: c.corrected(error=0.0, tol=1e-10), "the printed form was not checked"),
        (
            lambda c: (c.printed(error=0.0, tol=1e-10), c.corrected(error=0.0, tol=1e-10)),
            "needs a printed form that fails",
        ),
        (lambda c: c.printed(error=0.0, tol=0.11), "allows tolerances up to 0.1, got 0.11"),
        (lambda c: c.printed(error=0.0, tol=-1.0), "allows tolerances up to 0.1, got -1.0"),
        (lambda c: c.printed(error=0.0, tol=math.nan), "allows tolerances up to 0.1, got nan"),
        (lambda c: c.printed(error=0.0), "printed needs a tolerance"),
        (lambda c: c.printed(error=0.05, tol=0.01), "an error of 0.05 refutes nothing, 0.1 is"),
        (lambda c: c.printed(error=math.nan, tol=1e-3), "an error must be at least 0"),
        (lambda c: c.printed(error=-1e-3, tol=1e-3), "an error must be at least 0"),
        (lambda c: c.printed(tol=1e-3), "needs a form, the truth and cases"),
        (lambda c: c.printed(square, square, [], tol=0), "printed needs cases, each of them once"),
        (lambda c: c.printed(square, lambda n: n**2, [2, 3, 2], tol=0), "each of them once"),
        (
            lambda c: c.printed(square, square, SQUARES, tol=0),
            "judges itself: it must not be the truth",
        ),
        (lambda c: c.measured(range(8), above=0.0, differs="x"), "and kind 'measured' need each"),
        (lambda c: c.measured([1.0] * 8, above=0.0, differs="x"), "equal effects are of one seed"),
        (lambda c: c.measured(range(7), above=0.0, differs="x"), "at least 8 finite numbers"),
        (lambda c: c.measured([1.0, math.nan] * 4, above=0.0, differs="x"), "at least 8 finite"),
        (lambda c: None, "the printed form was not checked"),
    ],
)
def test_a_check_that_cannot_support_a_verdict_is_refused(call, problem):
    with pytest.raises(ClaimError, match=problem), claim(LEMMA, show=False) as c:
        call(c)


def test_a_form_is_checked_once():
    with claim(LEMMA, show=False) as c:
        c.printed(error=0.0, tol=1e-3)
        with pytest.raises(ClaimError, match="checked twice"):
            c.printed(error=0.5, tol=1e-3)


def test_a_claim_with_a_numbered_function_is_decided_by_it():
    subject = claims.paper("this-book").claims["this-book/aligned-chain"]
    path = "spectrum.Spectrum.distance"
    referee = claims.Referee(claims.Claim(subject.id, "", "", form=path))
    pairs = [(Spectrum.from_values([4, 1]), Spectrum.from_values([4, 2]))]
    referee.printed(lambda a, b: a.distance(b), lambda a, b: 0.25, pairs, tol=1e-12)
    assert referee.record.printed.function == path
    assert referee.record.printed.source == claims.source_hash(path)
    other = claims.Referee(claims.Claim(subject.id, "", "", form=path))
    other.printed(lambda a, b: 0.25, lambda a, b: 0.25, pairs, tol=1e-12)
    with pytest.raises(ClaimError, match=r"must be decided by spectrum\.Spectrum\.distance"):
        _ = other.record


def theorem_3_5(setting):
    return depth_not_data.theorem_3_5(setting)


def test_a_function_of_the_same_name_is_not_the_numbered_one(monkeypatch):
    path = "papers.depth_not_data.theorem_3_5"
    assert claims._calls(depth_not_data.theorem_3_5, path)
    assert claims._calls(lambda s: theorem_3_5(s), path)
    assert claims._calls(lambda s: depth_not_data.theorem_3_5(s).top, path)
    monkeypatch.setitem(globals(), "theorem_3_5", lambda setting: 0)
    assert not claims._calls(lambda s: theorem_3_5(s), path)
    monkeypatch.setattr(depth_not_data, "theorem_3_5", theorem_3_5)
    with pytest.raises(ClaimError, match="is not the function of the package"):
        claims._calls(square, path)


class Disguised:
    """What is called without being a function."""

    def __call__(self, x):
        return lemma_7(x)


def through(function, *given):
    return function(*given)


TRUTHS = {  # of which none is another than `beyond_edge_of_stability.lemma_7`
    "itself": lemma_7,
    "a formula": lambda x: lemma_7(x),
    "an attribute": lambda x: beyond_edge_of_stability.lemma_7(x),
    "a default": lambda x, form=lemma_7: form(x),
    "a partial": partial(lemma_7),
    "an argument of a partial": partial(through, lemma_7),
    "a function of the page": lambda x: through(lemma_7, x),
    "a container": lambda x, kept=(lemma_7,): kept[0](x),
    "an object": Disguised(),
    "a bound method": Disguised().__call__,
    "a late import": lambda x: importlib.import_module(lemma_7.__module__).lemma_7(x),
    "a built-in": lambda x: next(map(lemma_7, [x])),
    "evaluated text": lambda x: eval("lemma_7(x)", {"lemma_7": lemma_7, "x": x}),
}


@pytest.mark.parametrize("form", [lemma_7, lambda x: lemma_7(x)])
@pytest.mark.parametrize("name", TRUTHS)
def test_the_truth_must_not_run_the_form(name, form):
    path = "papers.beyond_edge_of_stability.lemma_7"
    referee, before = claims.Referee(claims.Claim("toy/x", "", "", form=path)), sys.getprofile()
    with pytest.raises(ClaimError, match="judges itself: it must not be the truth"):
        referee.printed(form, TRUTHS[name], [np.ones(2)], tol=0)
    assert sys.getprofile() == before


def test_an_oracle_may_be_asked_what_is_near_the_form():
    chain = LinearChain([[[3.0]], [[5.0]]], [[2.0]], [[7.0]])

    def near(chain):
        return np.clip(autograd.hessian(chain), *(LinearChain.hessian(chain) + e for e in (-1, 1)))

    with claim(LEMMA, show=False) as c:
        c.printed(LinearChain.hessian, near, [chain], tol=1e-12)
    assert c.verdict == "holds"


def test_the_truth_must_not_run_a_form_of_the_page():
    with claim(LEMMA, show=False) as c:
        with pytest.raises(ClaimError, match="judges itself: it must not be the truth"):
            c.printed(square, lambda n: square(n), SQUARES, tol=0)
        c.printed(square, lambda n: n**2, SQUARES, tol=0)


@pytest.mark.parametrize("gaps", [[math.nan], [0.0, math.nan], [math.nan, 0.0]])
def test_a_gap_that_is_no_number_is_never_within_a_tolerance(monkeypatch, gaps):
    answers = iter(gaps)
    monkeypatch.setattr(claims, "gap", lambda found, true: next(answers))
    with pytest.raises(ClaimError, match="an error must be"), claim(LEMMA, show=False) as c:
        c.printed(square, lambda n: n**2, SQUARES[: len(gaps)], tol=0.1)


def test_equal_cases_are_found_whatever_they_are_made_of():
    a, b = (LinearChain([[[3.0]], [[5.0]]], [[2.0]], [[y]]) for y in (7.0, 8.0))
    same = LinearChain([[[3.0]], [[5.0]]], [[2.0]], [[7.0]])
    assert claims._key(a) == claims._key(same) != claims._key(b)
    assert claims._key((1, [np.ones(2)])) == claims._key((1, [np.ones(2)]))
    assert claims._key(np.ones((1, 2))) != claims._key(np.ones((2, 1)))
    assert claims._key({"a": 1.0}) == claims._key({"a": 1}) != claims._key({"a": 2})


def test_an_error_inside_the_block_is_not_swallowed():
    with pytest.raises(ZeroDivisionError), claim(LEMMA):
        raise ZeroDivisionError


@pytest.mark.parametrize("strict", [True, False])
def test_only_a_reader_s_own_change_is_met_with_a_sentence(monkeypatch, capsys, strict):
    monkeypatch.setattr(live, "notebook", lambda: type("Display", (), {"display": show}))
    monkeypatch.setenv(live.STRICT, "1" if strict else "")

    def check():
        with claim(LEMMA) as c:
            c.printed(lambda n: n, square, [5], tol=0)

    def show(data, raw):
        print(data["text/plain"])

    if strict:
        with pytest.raises(ClaimError):
            check()
    else:
        check()
        printed = capsys.readouterr().out
        assert printed.startswith("With your change this claim no longer passes.")
        assert "off by 20 at 5" in printed


def test_what_is_printed_is_the_same_on_every_machine(capsys):
    for error in (3e-16, 7e-15):
        with claim(LEMMA) as c:
            c.printed(error=error, tol=1e-10)
    first, second, *rest = capsys.readouterr().out.strip().split("\ntoy")
    assert first.removeprefix("toy") == second
    assert rest == []


@pytest.mark.parametrize("id", ["toy/lemma-9.9", "no-paper/lemma-1", "nothing"])
def test_an_unknown_claim_is_named(id):
    with pytest.raises(ValueError, match=f"got '{id.split('/')[0]}"), claim(id):
        pass


# The registry


@pytest.mark.parametrize("name", claims.REGISTRIES)
def test_the_registry_is_sound(name):
    registry = claims.paper(name)
    assert registry.title
    assert name == "this-book" or registry.chapter == name.replace("-", "_")
    kinds = {"theorem", "lemma", "corollary", "proposition", "definition", "remark", "equation"}
    figures = [int(figure.id.rpartition("-")[2]) for figure in registry.figures.values()]
    assert figures == list(range(1, len(figures) + 1))
    for subject in [*registry.claims.values(), *registry.figures.values()]:
        kind = subject.id.split("/")[1].split("-")[0]
        assert name == "this-book" or kind in kinds | {"statement", "figure"}, subject.id
        assert subject.id == subject.id.lower()
        assert len(subject.statement) > 20, subject.id
        assert subject.statement.count("$") % 2 == 0, subject.id


def test_papers_are_those_of_the_folder_in_their_order():
    assert [claims.paper(name).number for name in claims.PAPERS] == [
        *range(1, len(claims.PAPERS) + 1)
    ]
    assert set(claims.REGISTRIES) - set(claims.PAPERS) == {"this-book", "toy"}


@pytest.mark.parametrize("name", claims.PAPERS)
def test_the_errata_are_sentences_about_single_claims(name):
    errata = {s.id: s for s in claims.paper(name).claims.values() if s.erratum}
    assert errata
    for subject in errata.values():
        assert not subject.parts, f"{subject.id}: its parts have the errata"
        erratum = subject.erratum
        assert erratum.cause, f"{subject.id}: errata are grouped by cause"
        for text in (erratum.printed, erratum.corrected, erratum.reason):
            assert len(text) > 10, subject.id
            assert text.endswith("."), subject.id
            assert text.count("$") % 2 == 0, subject.id


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"statment": "..."}, "row lemma-1: .*unexpected keyword argument .statment."),
        ({"hypotheses": []}, "row lemma-1: hypotheses must list at least one"),
        ({"hypotheses": "x > 0"}, "row lemma-1: hypotheses must list at least one"),
        ({"hypotheses": [" "]}, "row lemma-1: hypotheses must list at least one"),
        ({"uses": ["lemma-99"]}, "row lemma-1: uses names 'toy/lemma-99'"),
        ({"uses": ["no-paper/lemma-1"]}, "row lemma-1: uses names 'no-paper/lemma-1'"),
        ({"form": "lemma_99"}, "row lemma-1: form 'lemma_99' is no function of the package"),
        ({"form": "spectrum.Spectrum"}, "is no function of the package"),
        ({"parts": {"a": "..."}, "errata": {"b": FIELDS}}, "errata must name parts of the claim"),
        ({"parts": {"a": "..."}, "kind": {"b": "count"}}, "kind must name parts of the claim"),
        ({"kind": "proved"}, "kind 'proved' with loosest 0.1 is no check"),
        ({"loosest": 1.0}, "kind 'number' with loosest 1.0 is no check"),
        ({"loosest": -1e-9}, "is no check"),
        ({"kind": "count"}, "kind 'count' with loosest 0.0 is no check"),
        (
            {"parts": {"a": {"hypotheses": ["x > 0"]}}},
            r"row lemma-1\.a: .*missing 1 required positional argument: .statement.",
        ),
        ({"erratum": {"printed": "1."}}, "row lemma-1: .*missing 2 required .*corrected.*reason"),
        ({"erratum": {**FIELDS, "why": "x"}}, "row lemma-1: .*unexpected keyword argument .why."),
    ],
)
def test_a_malformed_row_is_named(change, problem):
    with pytest.raises(ValueError, match=rf"registry/toy\.toml, .*{problem}"):
        claims._claims_of("toy", {**ROW, **change})


@pytest.mark.parametrize("key", [key for key in ROW if key not in ("kind", "loosest")])
def test_a_row_must_be_complete(key):
    row = {name: value for name, value in ROW.items() if name != key}
    with pytest.raises(ValueError, match=f"missing .*{key}"):
        claims._claims_of("toy", row)


def test_a_part_inherits_what_it_does_not_say():
    parts = {
        "a": "first",
        "b": {"statement": "second", "hypotheses": ["y > 0"], "uses": ["lemma-1"]},
    }
    whole, a, b = claims._claims_of("toy", {**ROW, "parts": parts})
    assert whole.parts == (a.id, b.id) == ("toy/lemma-1.a", "toy/lemma-1.b")
    assert (a.hypotheses, a.uses) == (("n > 0",), ())
    assert (b.hypotheses, b.uses) == (("y > 0",), (LEMMA,))
    assert (a.kind, a.loosest, b.kind, b.loosest) == ("number", 0.1, "number", 0.1)
    own = {"parts": parts, "kind": {"a": "count"}, "loosest": {"b": 1e-3}}
    _, a, b = claims._claims_of("toy", ROW | own)
    assert (a.kind, a.loosest, b.kind, b.loosest) == ("count", 0.0, "equal", 1e-3)


def test_a_path_leads_to_one_function():
    assert claims.definition("papers.depth_not_data.theorem_3_5").name == "theorem_3_5"
    assert claims.definition("autograd.oracle.dense_hessian").name == "dense_hessian"
    for path in ("nothing", "spectrum", "spectrum.Spectrum", "spectrum.Spectrum.nothing", ""):
        assert claims.definition(path) is None, path


# The ledger believes what it can recompute


def entry(verdict="holds", id=LEMMA, page="book/page.html", **facts):
    record = asdict(Record(id, verdict, **{"printed": Check(0.0, 1e-10), **facts}))
    return {"claim": record, "page": page, "source": "abc", "commit": "", "versions": {}}


def rows(*records):
    return {row["id"]: row for part in ledger(records).values() for row in part}


def test_a_claim_nobody_checked_is_not_attempted():
    assert rows()[LEMMA]["verdict"] == "not attempted"
    assert rows(entry())[LEMMA]["verdict"] == "holds"


def test_a_claim_has_the_worst_verdict_of_its_parts_and_is_not_counted_itself():
    whole = claims.paper("toy").claims[WHOLE]
    first, *others = whole.parts
    holding = [entry(id=part) for part in others]
    assert rows(*holding, entry(id=first))[whole.id]["verdict"] == "holds"
    assert rows(*holding, entry("fails", first))[whole.id]["verdict"] == "fails"
    assert rows(*holding)[whole.id]["verdict"] == "not attempted"
    assert not rows()[whole.id]["leaf"]
    assert rows()[first]["leaf"]


def test_two_verdicts_for_one_claim_are_an_error():
    with pytest.raises(ClaimError, match="two cells give a verdict"):
        rows(entry(), entry())


def test_a_row_links_to_its_cell():
    linked = rows(entry())[LEMMA]
    assert linked["cell"] == "book/page.html#claim-toy-lemma-1"
    assert linked["source"] == "abc"
    assert rows()[LEMMA]["cell"] is None


FAILING = Check(5.0, 1e-10)


@pytest.mark.parametrize(
    ("record", "problem"),
    [
        (entry(), None),
        (entry("analogue agrees", differs="smaller"), None),
        (entry("not attempted", OPEN, printed=None, note="too large"), None),
        (entry("not attempted", printed=None, note="too large"), "the printed form was not"),
        (entry("holds", OPEN), "kind 'open' expects a reason"),
        (entry("holds", SEEDS), "kind 'measured' expects an effect over seeds"),
        (entry("holds", EQUATION), "kind 'equal' expects a function and the truth"),
        (entry("holds", EQUATION, printed=Check(0.0, 1e-9, cases=3)), None),
        (entry("holds", EQUATION, printed=Check(0.0, 1e-8, cases=3)), "allows tolerances up to"),
        (entry("holds", printed=Check(0.4, 0.5)), "allows tolerances up to 0.1, got 0.5"),
        (entry("holds", printed=Check(5.0, 1e6)), "allows tolerances up to 0.1, got 1000000.0"),
        (entry("holds", printed=Check(math.nan, 1e-3)), "an error must be at least 0, got nan"),
        (entry("holds", printed=Check(-1.0, 1e-3)), "an error must be at least 0, got -1.0"),
        (entry("fails", WRONG, printed=Check(1e-3, 1e-10), note="x"), "refutes nothing"),
        (
            entry("analogue agrees", SEEDS, printed=None, interval=Interval(2, 1, 3, 7, 0)),
            "no interval over at least 8 seeds",
        ),
        (
            entry("analogue agrees", SEEDS, printed=None, interval=Interval(2, 3, 3, 8, 0)),
            "no interval over at least 8 seeds",
        ),
        (entry("holds", printed=FAILING, note="x"), "says 'holds', but its numbers say 'fails'"),
        (entry("holds", printed=FAILING), "the printed form fails"),
        (
            entry("analogue agrees", interval=Interval(2, 1, 3, 8, 0)),
            "kind 'measured' need each other",
        ),
        (entry("fails", differs="smaller"), "its numbers say 'analogue agrees'"),
        (entry("corrected", printed=FAILING, corrected=FAILING), "the corrected form fails too"),
        (entry("fails", printed=FAILING, note="x"), "the registry has no erratum"),
        (entry("fails", id=WRONG, printed=FAILING, note="x"), None),
        (entry("holds", id=WRONG), "the verdict is 'holds', but the registry has an erratum"),
        (
            entry(printed=Check(0.0, 1e-10, function="chain.nothing", source="abc")),
            "the package has no function chain.nothing",
        ),
        (
            entry(printed=Check(0.0, 1e-10, function="chain.LinearChain.hessian", source="abc")),
            "has changed since the cell ran",
        ),
    ],
)
def test_a_record_is_believed_as_far_as_it_can_be_recomputed(record, problem):
    found = faults(ledger([record]))
    assert len(found) == (problem is not None), found
    assert all(problem in sentence for sentence in found)


@pytest.mark.parametrize(
    ("id", "problem"),
    [("toy/lemma-99", "no registry has this claim"), (WHOLE, "its parts are judged")],
)
def test_only_a_claim_without_parts_has_a_record(id, problem):
    with pytest.raises(ClaimError, match=problem):
        ledger([entry(id=id)])


def test_a_proof_that_leans_on_something_wrong_says_so(monkeypatch):
    lemma, wrong, whole = claims._claims_of("toy", ROW)[0], *TOY["claim"][1:3]
    chain = [
        {**ROW, "id": "lemma-1", "uses": ["lemma-2"]},
        {**wrong, "uses": []},
        {**whole, "uses": ["lemma-1"]},
    ]
    monkeypatch.setitem(TOY, "claim", chain)
    for cached in (claims.paper, claims._ids):
        cached.cache_clear()
    fails = entry("fails", WRONG, printed=FAILING, note="x")
    table = rows(entry(), fails)
    assert table[lemma.id]["leans"] == [{"id": WRONG, "through": ""}]
    assert table[WHOLE]["leans"] == [{"id": WRONG, "through": LEMMA}]
    assert table[WRONG]["leans"] == []
    assert rows(entry())[LEMMA]["leans"] == []


@pytest.mark.parametrize("name", claims.REGISTRIES)
def test_no_proof_uses_itself(name):
    registries = [claims.paper(one).claims for one in claims.REGISTRIES]
    uses = {id: subject.uses for registry in registries for id, subject in registry.items()}

    def below(id, path=()):
        assert id not in path, f"{' → '.join([*path, id])} is a circle"
        for use in uses[id]:
            below(use, (*path, id))

    for id in claims.paper(name).claims:
        below(id)


def test_a_record_needs_the_seal_of_this_build(monkeypatch):
    data = '{"claim": {"id": "x"}}'
    monkeypatch.setenv(claims.SEAL, "another key")
    other = claims._seal(data)
    monkeypatch.setenv(claims.SEAL, "key of this build")
    shown = '<div class="eh-verdict" data-record="{}" data-seal="{}">'
    quoted = data.replace('"', "&quot;")
    assert records_in(shown.format(quoted, claims._seal(data))) == [{"claim": {"id": "x"}}]
    for mark in ("", "0" * 64, other, claims._seal(data + " ")):
        with pytest.raises(ClaimError, match="that no claim of the package has made"):
            records_in(shown.format(quoted, mark))
    with pytest.raises(ClaimError, match="that no claim of the package has made"):
        records_in(f'<div data-record="{quoted}">')
    for imitation in ('<div class="eh-verdict">holds</div>', "<div data-record='{}'>"):
        with pytest.raises(ClaimError, match="looks like a verdict"):
            records_in(imitation)
    assert records_in('<div class="eh-verdict eh-changed">With your change</div>') == []
    assert records_in("<table>of numbers</table>") == []


def test_nothing_in_a_record_becomes_markup(monkeypatch):
    shown = []
    display = type("Display", (), {"display": lambda data, raw: shown.append(data)})
    monkeypatch.setattr(live, "notebook", lambda: display)
    evil = '"><script>alert(1)</script><b x="$<i>$ *<u>*'
    with claim(WRONG) as c:
        c.printed(lambda case: 1, lambda case: 2, [evil], tol=0, unit=evil)
        c.counterexample(evil)
    claims.not_attempted(OPEN, evil)
    with claims.figure(FIGURE, "analogue", evil):
        pass
    assert len(shown) == 3
    for data in shown:
        html = data["text/html"]
        assert "<script" not in html
        assert "<i>" not in html
        assert "<u>" not in html
        assert len(records_in(html)) == 1


def test_a_box_says_what_is_claimed_what_is_true_and_what_decided_it():
    subject = claims.paper("toy").claims[WRONG]
    with claim(WRONG, show=False) as c:
        c.printed(lambda n: n, square, SQUARES, tol=0, unit="eigenvalues")
        c.counterexample("n = 3")
    html = box(c.record, {"proof": "page.html#proof"})
    for words in (
        markdown_html(subject.erratum.corrected),
        markdown_html(subject.erratum.printed),
        "3 cases against square: off by 6 eigenvalues at 3 (allowed 0)",
        '<a href="page.html#proof">proof</a>',
        subject.place,
    ):
        assert words in html


def test_a_figure_states_how_close_it_is(capsys):
    with claims.figure(FIGURE, status="as stated"):
        pass
    assert capsys.readouterr().out == f"{FIGURE}: as stated\n"
    with (
        pytest.raises(ClaimError, match="needs a note"),
        claims.figure(FIGURE, status="analogue"),
    ):
        pass
    with (
        pytest.raises(ValueError, match="status must be one of"),
        claims.figure(FIGURE, status="done"),
    ):
        pass
