"""Gradient descent with a record.

A descent keeps the loss at every step and the states at the steps it is asked to record, so that a
figure can look back without running again.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np

from exacthessian.inputs import Array, guard, real_array, require, whole_number
from exacthessian.live import progress

State = TypeVar("State")  # a network with its data, which has a `loss()` and a `step(eta)`


@dataclass(frozen=True, eq=False)
class Descent(Generic[State]):
    """The record of a descent: `losses` (T + 1,) at the steps 0..T, and the `states` at the steps
    `times`, in ascending order.
    """

    losses: Array
    times: tuple[int, ...]
    states: tuple[State, ...]

    @property
    def last(self) -> State:
        """The latest recorded state."""
        return self.states[-1]


def descend(
    start: State, eta: float, steps: int, record: Iterable[int] | None = None
) -> Descent[State]:
    """`steps` steps θ ← θ − η∇loss from `start`, any model with a loss and a step, keeping the
    states at the steps in `record` (each from 0 to `steps`; when None, all of them).

    Two scalar layers from (2, 3) with target 5, ω = 6 − 5 = 1, move by −0.1·(3, 2):

    >>> from exacthessian import AlignedChain
    >>> start = AlignedChain((1, 1, 1), ([2.0], [3.0]), [1.0], [5.0], half_y2=12.5)
    >>> path = descend(start, eta=0.1, steps=1)
    >>> path.losses.round(12), path.last.singular_values
    (array([0.5   , 0.0288]), (array([1.7]), array([2.8])))
    """
    total = whole_number("steps", steps, least=0)
    wanted = set(range(total + 1) if record is None else record)
    require(wanted, "record must name at least one step", "none")
    for time in wanted:
        late = whole_number("record", time, least=0) > total
        require(not late, f"record must not go beyond the {total} steps", time)
    state: Any = start
    losses, states = [state.loss()], [state] if 0 in wanted else []
    for time in progress(range(1, total + 1), "steps"):
        try:
            state = state.step(eta)
            losses.append(_finite_loss(state, eta))
        except ValueError as error:
            error.add_note(f"in step {time} of {total}")
            raise
        if time in wanted:
            states.append(state)
    return Descent(real_array("losses", losses, ndim=1), tuple(sorted(wanted)), tuple(states))


def _finite_loss(state: Any, eta: float) -> float:
    with np.errstate(over="ignore", invalid="ignore"):
        loss = float(state.loss())
    if not np.isfinite(loss):
        raise ValueError(f"eta = {eta} makes the loss overflow")
    return loss


guard(globals())
