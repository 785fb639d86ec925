"""Instant feedback on the exercises with a checkable answer.

In a live notebook, `check_exercise("eos-ex-golden", 1.2)` says whether an answer is right, and if
it is not, what is off, without giving the answer away. `data/exercises.toml` says what to enter,
and what is right where that is a whole number or a fraction; the rest is computed here.
"""

import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from difflib import get_close_matches
from fractions import Fraction
from importlib.resources import files
from typing import SupportsFloat

import numpy as np
from scipy.optimize import linear_sum_assignment

from exacthessian import mode
from exacthessian.aligned import AlignedChain
from exacthessian.inputs import Array
from exacthessian.ufm import DeepLinearUFM, threshold
from exacthessian.ufm_cross_entropy import critical_scales

RTOL, CLOSE = 1e-3, 0.05  # right; nearer than this, an answer that is not right is called close
TOLERANCE = {"eos-ex-digits": 0.02}
FACTORS = {
    "power of two or of its root": 2.0 ** np.arange(-4, 4.5, 0.5),
    "power of three": 3.0 ** np.arange(-2, 3),
    "power of ten": 10.0 ** np.arange(-6, 7),
    "factor with π in it": np.outer([np.pi, 1 / np.pi], 2.0 ** np.arange(-2, 3)).ravel(),
}

# By the label that the exercise has on its page: what to `ask` for and, perhaps, what is `right`.
CHECKABLE: Mapping[str, Mapping[str, object]] = tomllib.loads(
    files("exacthessian").joinpath("data/exercises.toml").read_text(encoding="utf-8")
)


def _spectrum(*layers: float, target: float = 1.0, ridge: float = 0.0) -> Array:
    """All eigenvalues of a chain of numbers with unit data."""
    values, one = tuple(np.reshape(layers, (-1, 1))), np.ones(1)
    chain = AlignedChain((1,) * (len(layers) + 1), values, one, target * one, ridge=ridge)
    return chain.spectrum().expand()


COMPUTED: Mapping[str, Callable[[], object]] = {
    "course-ex-symmetric": lambda: np.linalg.eigvalsh(2 * np.ones((4, 4)) + 3 * np.eye(4)),
    "course-ex-hessian": lambda: _spectrum(2.0, 0.5),
    "lc-ex-trace": lambda: _spectrum(3.0, 2.0).sum(),
    "lc-ex-origin": lambda: _spectrum(0.0, 0.0, target=2.0),
    "lc-ex-unbalanced": lambda: _spectrum(1 / 3, 1.0, 3.0).max(),
    "lc-ex-ridge": lambda: _spectrum(1.75**0.5, 1.75**0.5, target=2.0, ridge=0.25),
    "dnd-ex-two-numbers": lambda: _spectrum(2.0, 0.5),
    "dnd-ex-plateau": lambda: (0.1 ** (2 - 3) - 2 ** (1 / 3)) / (3 - 2),
    "eos-ex-flattest-depth": lambda: min(range(2, 20), key=lambda L: mode.curvature(L, 0.1, 0.1)),
    "eos-ex-hand": lambda: mode.edge(2, 1.0),
    "eos-ex-golden": lambda: mode.doubling_steps(2, 1.0, 2)[1],
    "eos-ex-one-step": lambda: mode.edge(2, 10.0),
    "eos-ex-growing-gap": lambda: np.sqrt(3) / abs(2 * 1 - 3),
    "eos-ex-rotating-equal": lambda: 1 / np.divide(*mode.two_cycle(3, 1.0, 2.2 / 3)),
    "eos-ex-digits": lambda: mode.transverse_growth(3, 1.0, 0.9, 2.24 / 3) * 1e5 / np.log(2),
    "eos-ex-scalar": lambda: np.exp(2 * mode.transverse_growth(3, 1.0, 0.9, 2.2 / 3)),
    "eos-ex-which": lambda: mode.doubling_steps(4, 1.0, 2)[1] / 8,
    "eos-ex-deep": lambda: mode.doubling_steps(4000, 1.0, 2)[1] * 2000,
    "eos-ex-chaos": lambda: 9 - 2 * (1 + 20 / 14.5) ** 2,
    "cth-ex-any-loss": lambda: 1 / (1 + np.e),
    "cth-ex-one-neuron": lambda: _spectrum(1.0, 1.0, target=3.0),
    "att-ex-fit": lambda: np.roots([1, -(2 + 1 * 1), (2 * 1 - 1**2) * 1]),
    "cthb-ex-predict": lambda: 99**-0.25,
    "tf-ex-floor": lambda: np.sqrt([29 / 28, 2]) * (1 - 0.5),
    "ufm-ex-one-layer": lambda: threshold(classes=3, samples=4, depth=1),
    "ufm-ex-trace": lambda: DeepLinearUFM(3, 4, 3, 5, 1e-3).spectrum().expand().sum(),
    "ufm-ex-scales": lambda: 5e-4 / np.sqrt(5000),
    "ufm-ex-clock": lambda: 2 / DeepLinearUFM(4, 40, 4, 65, 5e-5).spectrum().values.max(),
    "ce-ex-fold": lambda: critical_scales(2, depth=3)[0],
    "ufmx-ex-rank": lambda: 10.54 * 0.01 ** (-0.54 / 10.54),
    "ufmx-ex-digits": lambda: DeepLinearUFM(10, 1, 4, 64, 5e-4).fit,
    "os-ex-split": lambda: 4 * 0.9**6 + np.array([3, -3]) * (0.9**4 - 1) * 0.9**2,
    "os-ex-residual": lambda: _spectrum(0.8**0.5, 0.8**0.5, ridge=0.2),
}


class _Reply(str):
    """A sentence that a notebook shows without quotes."""

    def __repr__(self) -> str:
        return str(self)


def check_exercise(label: str, answer: object) -> _Reply:
    """Whether `answer`, a number or a list of numbers in any order, is right for an exercise.

    >>> check_exercise("eos-ex-hand", "2/2")
    Right.
    >>> check_exercise("dnd-ex-step", 0.8)
    Not yet: too large, and what is off is a power of two or of its root.
    >>> check_exercise("os-ex-residual", [1.6, 0.3, 1])
    Not yet: 2 numbers expected, got 3.
    """
    if str(label) not in CHECKABLE:
        near = ", ".join(get_close_matches(str(label), CHECKABLE, 3, cutoff=0.0))
        return _Reply(f"No exercise with a checkable answer is called {label!r}; near: {near}.")
    try:
        given = np.sort(list(_numbers(answer)))
    except (TypeError, ValueError, ArithmeticError):
        return _Reply(f"Not yet: a number or a list of numbers is expected, got {answer!r}.")
    right = _right_answer(label)
    verdict = _what_is_off(given, right, TOLERANCE.get(label, RTOL))
    return _Reply(f"Not yet: {verdict}." if verdict else "Right.")


def _right_answer(label: str) -> Array:
    """The sorted right numbers for the exercise with this label.

    >>> _right_answer("os-ex-residual")
    array([0.4, 1.6])
    """
    computed = COMPUTED[label]() if label in COMPUTED else CHECKABLE[label]["right"]
    return np.sort(list(_numbers(computed)))


def _numbers(answer: object) -> Iterator[float]:
    """The finite real numbers in an answer, however it is written."""
    if hasattr(answer, "tolist"):  # of NumPy or torch
        answer = answer.tolist()
    if isinstance(answer, str):
        answer = [Fraction(part.strip()) for part in answer.strip("[]()").split(",")]
    if isinstance(answer, Iterable):
        for part in answer:
            yield from _numbers(part)
    elif isinstance(answer, SupportsFloat) and np.isfinite(float(answer)) and answer is not True:
        yield float(answer)
    else:
        raise TypeError(f"answer must be a real number, got {answer!r}")


def _what_is_off(given: Array, right: Array, rtol: float) -> str:
    """What distinguishes a sorted answer from the sorted right one; nothing if it is right."""
    scale = np.where(right == 0, np.abs(right).max(), np.abs(right))
    near = np.abs(np.subtract.outer(given, right)) <= rtol * scale
    if len(given) == len(right) and near.diagonal().all():
        return ""
    if near.any(axis=0).all() and near.any(axis=1).all():
        return "the values are right, but not how often each of them occurs"
    if len(given) != len(right):
        return f"{len(right)} number{'s'[: len(right) - 1]} expected, got {len(given)}"
    if np.all(np.abs(given - right) <= CLOSE * scale):
        return f"close, but it must be right to {rtol:g} of its size"
    if np.all(np.abs(np.sort(-given) - right) <= rtol * scale):
        return "the sign is off"
    if hits := near[linear_sum_assignment(near, maximize=True)].sum():
        return f"{hits} of {len(right)} numbers are right"
    ratios = given[right != 0] / right[right != 0]
    factor = _factor(ratios, rtol) if not given[right == 0].any() else ""
    if len(right) > 1:
        return f"all numbers are off by the same {factor}" if factor else "no number is right"
    if given[0] * right[0] < 0:
        return "the sign is off, and so is the size"
    known = "" if factor in ("", "factor") else f", and what is off is a {factor}"
    return f"too {'large' if given[0] > right[0] else 'small'}{known}"


def _factor(ratios: Array, rtol: float) -> str:
    """The name of the one factor that all ratios are; nothing if they differ."""
    if np.ptp(ratios) > rtol * np.abs(ratios).max():
        return ""
    names = (n for n, powers in FACTORS.items() if np.isclose(ratios[0], powers, rtol=rtol).any())
    return next(names, "factor")
