"""What a guarded function takes and refuses, by the annotation of each argument."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest
from numpy.typing import ArrayLike

from exacthessian import inputs
from exacthessian.inputs import LARGEST, Array, Numbers, guard


def answer(
    depth: int = 3,
    seed: int = 0,
    size: float = 1.0,
    numbers: Numbers = 0.0,
    array: ArrayLike = (1.0,),
    matrix: Array | None = None,
    arrays: Sequence[ArrayLike] = ((1.0,),),
    name: str = "plus",
    flag: bool = True,
    either: int | str = 1,
) -> float:
    return float(np.sum(size))


def iterate(numbers: Numbers) -> float:
    return float(np.sum(numbers))


@pytest.fixture
def own():
    """A module's names, guarded; each test its own."""

    @dataclass(frozen=True)
    class Model:
        width: int

        def scaled(self, by: float) -> float:
            return self.width * by

        def _hidden(self, by: float) -> float:
            return by

    names = {"answer": answer, "iterate": iterate, "_answer": answer, "Model": Model}
    space = {"__name__": __name__, **names, "np": np, "other": inputs.require}
    guard(space, "iterate")
    return space


@pytest.mark.parametrize(
    "given",
    [
        {"depth": 1},
        {"depth": np.int64(2)},
        {"seed": 0},
        {"seed": -LARGEST},
        {"size": 2},
        {"size": np.float32(2)},
        {"numbers": 1.0},
        {"numbers": [1.0, 2.0]},
        {"array": [[1, 2]]},
        {"matrix": None},
        {"arrays": [[1.0], [1.0, 2.0]]},
        {"name": "minus"},
        {"flag": False},
        {"flag": np.bool_(True)},
        {"either": "a"},
        {"either": 2},
    ],
)
def test_what_fits_its_annotation_is_taken(own, given):
    assert own["answer"](**given) == float(np.sum(given.get("size", 1.0)))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"depth": 0}, "depth must be at least 1"),
        ({"depth": 1.0}, "depth must be an integer"),
        ({"depth": True}, "depth must be an integer"),
        ({"seed": LARGEST + 1}, f"seed must be at most {LARGEST}"),
        ({"seed": -LARGEST - 1}, f"seed must be at least -{LARGEST}"),
        ({"size": [1.0]}, "size must have 0 axes"),
        ({"size": np.nan}, "size must be finite"),
        ({"size": "1"}, "size must hold real numbers"),
        ({"size": 1j}, "size must hold real numbers"),
        ({"numbers": "two"}, "numbers must hold real numbers"),
        ({"numbers": [np.inf]}, "numbers must be finite"),
        ({"array": None}, "array must hold real numbers"),
        ({"arrays": "ab"}, "arrays must be a sequence of arrays"),
        ({"arrays": []}, "arrays must hold at least one array"),
        ({"name": 1}, "name must be a str"),
        ({"flag": 1}, "flag must be a bool"),
        ({"either": 1.5}, "either must be a int or str"),
    ],
)
def test_what_does_not_is_named(own, given, words):
    with pytest.raises((TypeError, ValueError), match=f"^{words}"):
        own["answer"](**given)
    own["_answer"](**given | {"size": 1.0})  # a private function trusts its callers


def test_a_map_may_diverge_and_a_method_too(own):
    assert own["iterate"]([np.inf]) == np.inf
    model = own["Model"](2)
    assert model.scaled(3.0) == 6
    assert model._hidden("x") == "x"
    with pytest.raises(TypeError, match="by must hold real numbers"):
        model.scaled("x")
    with pytest.raises(ValueError, match="width must be at least 1"):
        own["Model"](0)
    assert own["other"] is inputs.require
