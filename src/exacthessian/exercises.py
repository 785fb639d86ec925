"""Instant feedback on the exercises with a checkable answer.

In a live notebook, `check_exercise("eos-ex-golden", 1.2)` says whether an answer is right, and if
it is not, what is off, without giving the answer away. The right answers are computed by the
package when they are asked for; none is stored.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from exacthessian import mode
from exacthessian.aligned import AlignedChain
from exacthessian.inputs import Array, real_array
from exacthessian.scalar import TwoLayer
from exacthessian.ufm import DeepLinearUFM, threshold
from exacthessian.ufm_cross_entropy import critical_scales

CLOSE = 0.05  # nearer than this, an answer that is not right is called close


@dataclass(frozen=True)
class Checkable:
    """An exercise with a checkable answer: the function that computes the right numbers (their
    order does not matter), and how exact an answer must be.
    """

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


# By the label that the exercise has on its page.
CHECKABLE: Mapping[str, Checkable] = {
    "dnd-ex-two-numbers": Checkable(lambda: _minimum(2.0)),
    "dnd-ex-step": Checkable(lambda: mode.edge(5, 1.0)),
    "eos-ex-hand": Checkable(lambda: mode.edge(2, 1.0)),
    "eos-ex-half": Checkable(lambda: 2 * 0.0166),
    "eos-ex-golden": Checkable(lambda: mode.doubling_steps(2, 1.0, 2)[1]),
    "eos-ex-digits": Checkable(
        lambda: mode.transverse_growth(3, 1.0, 0.9, 1.12 * 2 / 3) * 1e5 / np.log(2),
        rtol=0.02,
    ),
    "eos-ex-deep": Checkable(lambda: mode.doubling_steps(4000, 1.0, 2)[1] * 2000),
    "cth-ex-one-neuron": Checkable(
        lambda: TwoLayer(np.ones(1), np.ones(1), 1.0, 3.0).spectrum().expand()
    ),
    "cth-ex-end": Checkable(lambda: np.hypot(3.0, 2 * 2.0)),
    "ufm-ex-one-layer": Checkable(lambda: threshold(classes=3, samples=4, depth=1)),
    "ufm-ex-scales": Checkable(lambda: 5e-4 / np.sqrt(5000)),
    "ufm-ex-clock": Checkable(
        lambda: 2 / DeepLinearUFM(4, 40, 4, 65, 5e-5).spectrum().values.max(),
    ),
    "ce-ex-fold": Checkable(lambda: critical_scales(2, depth=3)[0]),
    "os-ex-split": Checkable(lambda: _uniform(4, 3, 0.9)),
    "os-ex-residual": Checkable(lambda: _ridge_pair(1.0, 0.2)),
}


def check_exercise(label: str, answer: ArrayLike) -> str:
    """Whether `answer`, a number or a list of numbers, is right for the exercise with this label.

    >>> check_exercise("eos-ex-hand", 1)
    'Right.'
    >>> check_exercise("eos-ex-hand", 2.0)
    'Not yet: too large, and only a constant factor is off.'
    >>> check_exercise("os-ex-residual", [1.6, 0.3, 1])
    'Not yet: 2 numbers are expected, got 3.'
    """
    if label not in CHECKABLE:
        raise ValueError(
            f"label must be one of the exercises with a checkable answer, "
            f"{', '.join(CHECKABLE)}, got {label!r}"
        )
    exercise = CHECKABLE[label]
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
