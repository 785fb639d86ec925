"""Instant feedback on the exercises with a checkable answer.

In a live notebook, `check_exercise("2.4", 1.2)` says whether an answer is right, and if it is not,
what is off, without giving the answer away. The right answers are computed by the package when they
are asked for; none is stored.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from exacthessian.aligned import AlignedChain
from exacthessian.inputs import Array, real_array
from exacthessian.papers import beyond_edge_of_stability as eos
from exacthessian.papers import beyond_edge_of_stability_beyond as eos_beyond
from exacthessian.papers import deep_linear_ufm_cross_entropy as cross_entropy
from exacthessian.scalar import TwoLayer
from exacthessian.ufm import DeepLinearUFM, threshold

CLOSE = 0.05  # nearer than this, an answer that is not right is called close


@dataclass(frozen=True)
class Checkable:
    """An exercise with a checkable answer: the `label` it has in its chapter, the function that
    computes the right numbers (their order does not matter), and how exact an answer must be.
    """

    label: str
    right: Callable[[], ArrayLike]
    rtol: float = 1e-3


def _minimum(scale: float) -> Array:
    one = np.ones(1)
    chain = AlignedChain((1, 1, 1), (scale * one, one / scale), one, one)
    return chain.spectrum().expand()


def _uniform(depth: int, rank: int, value: float) -> Array:
    chain = AlignedChain.balanced((rank,) * (depth + 1), np.full(rank, value), target=np.ones(rank))
    return chain.spectrum().clusters().values[:2]


def _ridge_pair(target: float, ridge: float) -> Array:
    scale = np.sqrt(target - ridge)
    chain = AlignedChain.balanced((1, 1, 1), [scale], target=[target], ridge=ridge)
    return chain.spectrum().expand()


CHECKABLE: Mapping[str, Checkable] = {
    "1.1": Checkable("dnd-ex-two-numbers", lambda: _minimum(2.0)),
    "1.7": Checkable("dnd-ex-step", lambda: eos.critical_step(5, 1.0)),
    "2.1": Checkable("eos-ex-hand", lambda: eos.critical_step(2, 1.0)),
    "2.2": Checkable("eos-ex-half", lambda: 2 * 0.0166),
    "2.4": Checkable("eos-ex-golden", lambda: eos_beyond.doubling_onsets(2, 2)[1]),
    "2.7": Checkable(
        "eos-ex-digits",
        lambda: eos_beyond.transverse_growth(3, 0.9, 1.12 * 2 / 3) * 1e5 / np.log(2),
        rtol=0.02,
    ),
    "2.9": Checkable("eos-ex-deep", lambda: eos_beyond.doubling_onsets(4000, 2)[1] * 2000),
    "3.1": Checkable(
        "cth-ex-one-neuron", lambda: TwoLayer(np.ones(1), np.ones(1), 1.0, 3.0).spectrum().expand()
    ),
    "3.4": Checkable("cth-ex-end", lambda: np.hypot(3.0, 2 * 2.0)),
    "4.1": Checkable("ufm-ex-one-layer", lambda: threshold(classes=3, samples=4, depth=1)),
    "4.3": Checkable("ufm-ex-scales", lambda: 5e-4 / np.sqrt(5000)),
    "4.5": Checkable(
        "ufm-ex-clock",
        lambda: 2 / DeepLinearUFM(4, 40, 4, 65, 5e-5).spectrum().values.max(),
    ),
    "4.6": Checkable("ce-ex-fold", lambda: cross_entropy.fold(2, depth=3)),
    "5.1": Checkable("os-ex-split", lambda: _uniform(4, 3, 0.9)),
    "5.2": Checkable("os-ex-residual", lambda: _ridge_pair(1.0, 0.2)),
}


def check_exercise(number: str, answer: ArrayLike) -> str:
    """Whether `answer`, a number or a list of numbers, is right for the exercise `number`.

    >>> check_exercise("2.1", 1)
    'Right.'
    >>> check_exercise("2.1", 2.0)
    'Not yet: too large, and only a constant factor is off.'
    >>> check_exercise("5.2", [1.6, 0.3, 1])
    'Not yet: 2 numbers are expected, got 3.'
    """
    if number not in CHECKABLE:
        raise ValueError(
            f"number must be one of the exercises with a checkable answer, "
            f"{', '.join(CHECKABLE)}, got {number!r}"
        )
    exercise = CHECKABLE[number]
    given = np.sort(np.atleast_1d(real_array("answer", answer, ndim=None)).ravel())
    right = np.sort(np.atleast_1d(np.asarray(exercise.right(), dtype=float)).ravel())
    verdict = _what_is_off(given, right, exercise.rtol)
    return f"Not yet: {verdict}." if verdict else "Right."


def _what_is_off(given: Array, right: Array, rtol: float) -> str:
    """What distinguishes a sorted answer from the sorted right one; nothing if it is right."""
    if len(given) != len(right):
        noun = "number is" if len(right) == 1 else "numbers are"
        return f"{len(right)} {noun} expected, got {len(given)}"
    size = np.abs(right).max()
    wrong = np.abs(given - right) > rtol * np.where(right == 0, size, np.abs(right))
    if not wrong.any():
        return ""
    if np.all(np.abs(given - right) <= CLOSE * size):
        return f"close, but it must be right to {rtol:g} of its size"
    if np.allclose(np.sort(-given), right, rtol=rtol):
        return "the sign is off"
    if not wrong.all():
        return f"{np.sum(~wrong)} of {len(right)} numbers are right"
    direction = "too large" if given.sum() > right.sum() else "too small"
    filled = right != 0
    ratios = given[filled] / right[filled]
    if np.ptp(ratios) <= rtol * np.abs(ratios).max() and np.all(np.abs(given[~filled]) <= rtol):
        return f"{direction}, and only a constant factor is off"
    return direction
