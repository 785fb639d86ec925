"""Ways to a verdict that nothing supports: each is refused, by the code it needs, by what it shows,
or by what it computes. What only a long way round would do is written where every reader sees it.
"""

import json
import math
from html import escape
from unittest import mock

import numpy as np
import pytest

import reference
import tampering
import verdicts
from exacthessian import LinearChain, Spectrum, autograd, claims
from exacthessian.claims import ClaimError, gap
from verdict_box import records_in

SUBJECT = claims.Claim("toy/lemma-1", "Lemma 1", "...", loosest=1e-3)
NUMBER = claims.Claim("toy/number-1", "Number 1", "...", kind="number", loosest=1e-3)


# By the code of a cell

CODE = {
    "numpy patched": "np.abs = lambda x: 0 * x",
    "numpy patched by another name": "other = np\nother.abs = abs",
    "a part of numpy patched": "algebra = np.linalg\nalgebra.norm = abs",
    "an entry of a table": "claims.KINDS['proved'] = ''",
    "another name for claims": "import exacthessian.claims as cl\ncl.gap = max",
    "its key under another name": "import exacthessian.claims as cl\ncl._seal('{}')",
    "its key imported": "from exacthessian.claims import _seal",
    "a list imported": "from exacthessian.claims import _AS_WRITTEN as rest\nrest.clear()",
    "a stored fact": "with claim('a/b') as c:\n    c._facts['printed'] = 1",
    "a fact changed in place": "c._facts.update(printed=1)",
    "a mock": "from unittest import mock",
    "a mock of one thing": "from unittest.mock import patch as safely",
    "a whole module": "import unittest.mock as quiet",
    "text evaluated": "exec('claims.gap = max')",
    "text compiled": "import builtins\nbuiltins.eval('1')",
    "a name made of two": "getattr(claims, '_se' + 'al')",
    "a module made of two": "import importlib\nimportlib.import_module('exacthessian.' + 'claims')",
    "all modules": "import sys\nsys.modules['exacthessian.claims']",
    "all modules imported": "from sys import modules",
    "the shell": "get_ipython().run_line_magic('run', 'x.py')",
    "a magic": "%run x.py",
    "a command": "!true",
    "another process": "import subprocess as s",
    "memory": "import ctypes",
    "every object": "import gc",
    "a frame": "import sys\nsys._getframe(1)",
    "a trace": "import sys\nsys.setprofile(None)",
    "the build's key": "import os\nos.environ",
    "the build's key, imported": "from os import getenv",
    "the registry's file": "claims.PACKAGE.joinpath('x').write_text('')",
    "the store of executed notebooks": "open('store', 'w')",
    "a class's attribute": "claims.Claim.__init__ = print",
    "a subclass of a record": "class Mine(type(c.record).__mro__[0]): pass",
    "all built-in names": "__builtins__",
}


@pytest.mark.parametrize("name", CODE)
def test_a_cell_that_reaches_for_the_verdict_is_named(name):
    start = (
        "import numpy as np\nfrom exacthessian import claims\nfrom exacthessian.claims import claim"
    )
    assert tampering.problems([start]) == []
    assert [cell for cell, _ in tampering.problems([start, CODE[name]])] in ([2], [2, 2])


@pytest.mark.parametrize("page", reference.notebooks(), ids=reference.name_of)
def test_no_page_does_so_or_types_a_verdict(page):
    cells = reference.source_notebook(page).cells
    assert tampering.problems(c.source for c in cells if c.cell_type == "code") == []
    for cell in cells:
        assert records_in(cell.source) == []


# By what a cell shows

DATA = json.dumps({"claim": {"id": "x"}})
SHOWN = '<div class="eh-verdict" id="x" data-record="{}" data-seal="{}"><pre>x</pre></div>'


@pytest.fixture
def true_box(monkeypatch):
    monkeypatch.setenv(claims.SEAL, "the key of this build")
    return SHOWN.format(escape(DATA), claims._seal(DATA))


IMITATIONS = {
    "a class": '<div class="eh-verdict">holds</div>',
    "a class among others": "<p class='plain eh-verdict'>holds</p>",
    "a class with an entity": '<div class="eh&#45;verdict">holds</div>',
    "a class in other letters": '<div class="EH-Verdict">holds</div>',
    "a badge": '<span class="eh-badge eh-holds">holds</span>',
    "a record in other quotes": "<div data-record='{}'>",
    "a record without quotes": "<div data-record={}>",
    "a record in an attribute": """<i title='<div data-record="{}">'>""",
    "a record in another case": '<div DATA-RECORD="{}">',
    "a record with an entity": '<div data&#45;record="{}">',
    "an empty seal": '<div class="eh-verdict" data-record="{}" data-seal="">',
    "a seal of nothing": '<div data-seal="0">',
}


@pytest.mark.parametrize("name", IMITATIONS)
def test_what_looks_like_a_verdict_is_refused_also_beside_a_true_one(true_box, name):
    assert records_in(true_box) == [{"claim": {"id": "x"}}]
    for html in (IMITATIONS[name], true_box + IMITATIONS[name], IMITATIONS[name] + true_box):
        with pytest.raises(ClaimError, match=r"looks like a verdict|no claim of the package"):
            records_in(html)


def test_a_seal_is_of_one_record_and_of_its_own_box(true_box):
    other = escape(DATA.replace("x", "y"))
    for forged in (true_box.replace(escape(DATA), other), true_box.replace("<div", "<section")):
        with pytest.raises(ClaimError, match=r"looks like a verdict|no claim of the package"):
            records_in(forged)


def test_a_second_record_cannot_hide_the_first(tmp_path):
    id = next(iter(claims.paper("this-book").claims))
    loose, tight = (f"{id}: holds\n  printed form: within {tol}" for tol in ("0.9", "1e-09"))
    outputs = [{"data": {"text/plain": [text]}} for text in (loose, tight)]
    (tmp_path / "page.ipynb").write_text(json.dumps({"cells": [{"outputs": outputs}]}))
    with pytest.raises(ValueError, match=f"page prints a second record of {id}"):
        verdicts.lines(tmp_path)


# By what a check computes


def judged(form, truth, cases=(1.0,), tol=0.0):
    referee = claims.Referee(SUBJECT)
    referee.printed(form, truth, cases, tol=tol)
    return referee.record.verdict


class Lie(float):
    """A number that is whatever it is asked to be."""

    def _yes(self, other):
        return True

    __le__ = __lt__ = __ge__ = __gt__ = __eq__ = __rle__ = _yes
    __hash__ = float.__hash__


@pytest.mark.parametrize(("error", "tol"), [(5.0, Lie(1e6)), (Lie(5.0), Lie(1e-9))])
def test_a_number_does_not_decide_how_it_compares(error, tol):
    referee = claims.Referee(NUMBER)
    with pytest.raises(ClaimError, match=r"allows tolerances|give a corrected form"):
        _ = referee.printed(error=error, tol=tol), referee.record


class Flat(np.ndarray):
    """An array that is nought wherever it is measured."""

    def __abs__(self):
        return np.zeros(())

    def __sub__(self, other):
        return np.zeros(self.shape)

    __rsub__ = __sub__

    def __array_ufunc__(self, *given, **options):
        return np.zeros(self.shape)

    def max(self, *given, **options):
        return 0.0


class Near(Spectrum):
    """A spectrum that is near to every other one."""

    def distance(self, other):
        return 0.0


class Anything:
    """No spectrum, but near to everything."""

    size = 1

    def distance(self, other):
        return 0.0


FOUR, FIVE = Spectrum.from_values([4.0]), Spectrum.from_values([5.0])


@pytest.mark.parametrize(
    ("found", "true"),
    [
        (np.ones(3).view(Flat), np.zeros(3)),
        (np.ones(3), np.full(3, 2.0).view(Flat)),
        (Near(FOUR.values, FOUR.multiplicities, FOUR.labels), FIVE),
        (FIVE, Near(FOUR.values, FOUR.multiplicities, FOUR.labels)),
        (Anything(), Anything()),
        (FIVE, Anything()),
        (math.nan, math.nan),
        (np.array([1.0, math.nan]), np.array([1.0, math.nan])),
        (math.inf, math.inf),
        (np.uint64(2**63), np.int64(-(2**63))),
        (np.int64(2**63 - 1), np.int64(-(2**63))),
        (np.array([2**64 - 1], dtype=np.uint64), np.array([-1])),
        (np.ma.masked_array([1.0, 9.0], mask=[False, True]), np.array([1.0, 2.0])),
        (np.array([1.0, "x"], dtype=object), np.array([1.0, "x"], dtype=object)),
        (None, None),
        ("holds", "holds"),
        ({"a": 1}, {"a": 1}),
    ],
)
def test_a_result_does_not_decide_how_far_it_is_from_the_truth(found, true):
    assert gap(found, true) > 1e-3


@pytest.mark.parametrize("nothing", [[], np.zeros((0, 3)), (), ((), [])])
def test_a_comparison_of_nothing_supports_nothing(nothing):
    with pytest.raises(ClaimError, match="every case is empty, so nothing is compared"):
        judged(lambda x: nothing, lambda x: nothing)
    assert judged(lambda x: x, lambda x: 1 * x, [np.zeros(0), np.ones(1)]) == "holds"


@pytest.mark.parametrize(
    "cases",
    [
        [1.0, 1.0 + 1e-15],
        [1, 1.0],
        [0.0, -0.0],
        [np.float64(0.1) * 3, 0.3],
        [np.ones(3), np.ones(3) + 1e-15],
        [np.ones(3), np.ones(3, dtype=int)],
        [(2, 0.3), (2, 0.1 + 0.2)],
        [{"depth": 2, "eta": 0.3}, {"depth": 2, "eta": 0.1 + 0.2}],
        [LinearChain([[[w]]], [[1.0]], [[1.0]]) for w in (0.3, 0.1 + 0.2)],
    ],
)
def test_cases_that_differ_by_rounding_are_one(cases):
    with pytest.raises(ClaimError, match="needs cases, each of them once"):
        judged(lambda *x: 1.0, lambda *x: 2.0 - 1.0, cases)


def test_cases_that_are_close_may_differ():
    assert (
        judged(lambda x: x, lambda x: 1 * x, [1.0, 1 + 1e-9, 1 - 1e-9, 1e-300, 2e-300]) == "holds"
    )


def test_differentiation_by_the_form_is_not_that_of_an_oracle():
    chain = LinearChain([[[3.0]], [[5.0]]], [[2.0]], [[7.0]])
    referee = claims.Referee(SUBJECT)
    referee.printed(lambda c: autograd.hessian(c), LinearChain.hessian, [chain], tol=1e-9)
    assert not referee.record.printed.oracle


def test_what_is_replaced_during_a_check_only_is_seen():
    for name in ("gap", "_compared", "_require_support"):
        referee = claims.Referee(NUMBER)
        with (
            mock.patch.object(claims, name, return_value=0.0),
            pytest.raises(ClaimError, match=f"{name} of exacthessian.claims was replaced"),
        ):
            referee.printed(error=0.0, tol=0.0)
