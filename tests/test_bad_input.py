"""Everything public, called with one bad argument at a time: a sample of what `bad_input.py` tries.

No call hangs, none eats memory, none answers with NaN, and in modules that call `inputs.guard` an
error names the argument. `python tests/bad_input.py MODULE...` tries everything.
"""

import json
import subprocess
import sys
from collections import Counter

import numpy as np
import pytest

import bad_input
from conftest import ROOT
from exacthessian import inputs

EVERY = 7  # the sample: each seventh try, the same ones every time
GUARDED = [
    *("mode", "product", "scalar", "attention", "ufm", "ufm_cross_entropy", "descent"),
    *("papers.beyond_edge_of_stability", "papers.cracking_the_hessian"),
    *("papers.deep_linear_ufm", "papers.depth_not_data"),
]
OTHERS = ["spectrum", "chain", "aligned", "alignment", "phantoms", "autograd.oracle"]
MAPS = "a map may be followed until it diverges"
ALLOWED = {  # results that are not finite, and why
    "mode.step": MAPS,
    "mode.slope": MAPS,
    "mode.transverse_step": "NaN says that there is no such step",
    "chain.LinearChain.hvp": "it is called in every iteration, and a vector is not checked",
    "spectrum.Density": "what `spectral_density` returns; nobody else makes one",
    "spectrum.Density.smooth": "a picture's grid and width",
    "ufm.Split.of": "sums of a vector's entries, which is not checked",
}
CLEAR = {"guarded": 0.9, "others": 0.6}  # of the errors; the rest is ordinary Python, as 'str' + 1


@pytest.fixture(scope="module", params=["guarded", "others"])
def tries(request):
    modules = GUARDED if request.param == "guarded" else OTHERS
    command = [sys.executable, ROOT / "tests" / "bad_input.py", str(EVERY), *modules]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return request.param, [json.loads(line) for line in done.stdout.splitlines()]


def test_nothing_hangs_eats_memory_or_answers_with_nan(tries):
    _kind, found = tries
    assert len(found) > 100
    bad = [one for one in found if one["met"] in ("hang", "memory", "silent")]
    assert [one for one in bad if one["met"] != "silent" or one["call"] not in ALLOWED] == []


def test_errors_name_the_argument(tries):
    kind, found = tries
    counts = Counter(one["met"] for one in found)
    share = counts["clear"] / (counts["clear"] + counts["unclear"])
    unclear = "\n".join(map(str, [one for one in found if one["met"] == "unclear"]))
    assert share >= CLEAR[kind], f"{share:.2f}\n{unclear}"


def sleepy(count: int) -> float:
    while count:
        pass
    return 1.0


def careless(count: int) -> float:
    return float(np.asarray(count, dtype=float) * np.inf)


@pytest.mark.parametrize(
    ("function", "bad", "met"),
    [
        (sleepy, 1, "hang"),
        (sleepy, 0, "accepted"),
        (careless, 0, "silent"),
        (careless, "abc", "unclear"),
        (lambda count: inputs.whole_number("count", count, 1), "abc", "clear"),
        (lambda count: inputs.whole_number("other", count, 1), "abc", "unclear"),
    ],
)
def test_what_a_try_is_called(function, bad, met):
    call = bad_input.Call("toy", function, {"count": 1})
    assert bad_input.outcome(call, "count", bad)[0] == met


def test_every_public_module_is_tried():
    names = {path.stem for path in (ROOT / "src" / "exacthessian").glob("*.py")}
    excused = {"__init__", "inputs", "claims", "ledger", "check", "figures", "live", "widget"}
    excused |= {"exercises"}
    assert names - excused - {"assembly"} <= {*GUARDED, *OTHERS}
