"""What an argument must be: real numbers, finite, of the right shape; anything else is named.

Every function of the package takes its arguments through these, so that a wrong one is refused
with a sentence that says which argument it is, what was expected and what came.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]


def real_array(name: str, array: ArrayLike, ndim: int | None) -> Array:
    """`array` as a read-only float64 copy with finite entries and `ndim` axes (None: any).

    >>> real_array("weights", [[1, 2]], ndim=2)
    array([[1., 2.]])
    """
    try:
        given = np.asarray(array)
    except ValueError as error:
        raise ValueError(f"{name} must be an array of real numbers: {error}") from None
    if given.dtype.kind not in "iuf" or not np.can_cast(given.dtype, np.float64):
        raise TypeError(f"{name} must hold real numbers, got dtype {given.dtype}")
    if ndim is not None and given.ndim != ndim:
        raise ValueError(f"{name} must have {ndim} axes, got shape {given.shape}")
    if given.dtype.kind in "iu" and np.any((given > 2**53) | (given < -(2**53))):
        raise ValueError(f"{name} holds an integer beyond ±2**53, which float64 cannot represent")
    converted = np.array(given, dtype=np.float64)
    if not np.all(np.isfinite(converted)):
        raise ValueError(f"{name} must be finite, got NaN or infinity")
    converted.setflags(write=False)
    return converted


def whole_number(name: str, number: object, least: int) -> int:
    """`number` as an int that is at least `least`.

    >>> whole_number("depth", 3, least=1)
    3
    """
    if isinstance(number, bool) or not isinstance(number, int | np.integer):
        raise TypeError(f"{name} must be an integer, got {number!r}")
    if number < least:
        raise ValueError(f"{name} must be at least {least}, got {number}")
    return int(number)


def nonnegative_number(name: str, number: object) -> float:
    """`number` as a finite float that is not negative.

    >>> nonnegative_number("eta", 1)
    1.0
    """
    if isinstance(number, bool) or not isinstance(number, int | float | np.integer | np.floating):
        raise TypeError(f"{name} must be a number, got {number!r}")
    if not 0 <= number < np.inf:
        raise ValueError(f"{name} must be finite and not negative, got {number}")
    return float(number)


def ridge_per_layer(ridge: float | Sequence[float], depth: int) -> tuple[float, ...]:
    """λ_l for each layer, from one number for all layers or one for each.

    >>> ridge_per_layer(0.5, depth=3)
    (0.5, 0.5, 0.5)
    """
    given = real_array("ridge", ridge, ndim=None)
    if given.shape not in ((), (depth,)):
        raise ValueError(
            f"ridge must be one number or {depth}, one for each layer, got shape {given.shape}"
        )
    if np.any(given < 0):
        raise ValueError(f"ridge must not be negative, got {given.min()}")
    return tuple(np.broadcast_to(given, depth).tolist())


def stepped(theta: Array, eta: float, gradient: Array) -> Array:
    """One step of gradient descent, θ − η∇; refused when η is not positive or the step overflows.

    >>> stepped(np.array([1.0, 2.0]), 0.5, np.array([2.0, 0.0]))
    array([0., 2.])
    """
    if nonnegative_number("eta", eta) == 0:
        raise ValueError("eta must be positive, got 0")
    with np.errstate(over="ignore", invalid="ignore"):
        moved = theta - eta * gradient
    if not np.all(np.isfinite(moved)):
        raise ValueError(f"eta = {eta} makes the parameters overflow")
    return moved
