"""What an argument must be: real numbers, finite, of the right shape; anything else is named.

Every function of the package takes its arguments through these, so that a wrong one is refused
with a sentence that says which argument it is, what was expected and what came.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import is_dataclass
from functools import partial, wraps
from inspect import signature
from types import FunctionType, UnionType
from typing import Annotated, Any, TypeAlias, get_args, get_origin

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]
Numbers: TypeAlias = Annotated[Any, "numbers"]  # one number, or an array of them, entry by entry
Ridge: TypeAlias = Any  # λ, one number for all layers or one for each, which models keep as a tuple

SYMMETRY_TOLERANCE = 1e-12
LARGEST = 10**6  # a whole number above, of layers, classes or steps, is taken for a mistake


def require(condition: object, expected: str, got: object) -> None:
    """Refuse an argument with the sentence "`expected`, got `got`", unless the condition holds.

    >>> require(-1 > 0, "eta must be positive", -1)
    Traceback (most recent call last):
    ValueError: eta must be positive, got -1
    """
    if not condition:
        raise ValueError(f"{expected}, got {got}")


def settle(model: object, **fields: object) -> None:
    """Set fields of a frozen dataclass, as its `__post_init__` may: checked and converted ones.

    >>> from exacthessian.descent import Descent
    >>> run = Descent([1.0], (0,), ("start",))
    >>> settle(run, times=(5,))
    >>> run.times
    (5,)
    """
    for name, value in fields.items():
        object.__setattr__(model, name, value)


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
    require(ndim in (None, given.ndim), f"{name} must have {ndim} axes", f"shape {given.shape}")
    if given.dtype.kind in "iu" and np.any((given > 2**53) | (given < -(2**53))):
        raise ValueError(f"{name} holds an integer beyond ±2**53, which float64 cannot represent")
    converted = np.array(given, dtype=np.float64)
    require(np.all(np.isfinite(converted)), f"{name} must be finite", "NaN or infinity")
    converted.setflags(write=False)
    return converted


def real_arrays(name: str, arrays: Sequence[ArrayLike], ndim: int | None) -> tuple[Array, ...]:
    """Each of a sequence of arrays by `real_array`, at least one.

    >>> real_arrays("inputs", [[1], [2, 3]], ndim=1)
    (array([1.]), array([2., 3.]))
    """
    if (
        isinstance(arrays, str)
        or not isinstance(arrays, Iterable)
        or not getattr(arrays, "ndim", 1)
    ):
        raise TypeError(f"{name} must be a sequence of arrays, got {arrays!r}")
    checked = tuple(real_array(f"{name}[{i}]", array, ndim) for i, array in enumerate(arrays))
    require(checked, f"{name} must hold at least one array", "none")
    return checked


def require_symmetric(name: str, matrix: Array) -> float:
    """Refuse a matrix with max|A − Aᵀ| > 1e-12 max|A|; return that bound, what rounding may do.

    >>> require_symmetric("sigma_xx", np.eye(2))
    1e-12
    """
    slack = float(SYMMETRY_TOLERANCE * np.abs(matrix).max(initial=0.0))
    gap = np.abs(matrix - matrix.T).max(initial=0.0)
    if gap > slack:
        raise ValueError(f"{name} must be symmetric, but max|A − Aᵀ| = {gap:.3g}")
    return slack


def equal_vectors(**vectors: ArrayLike) -> list[Array]:
    """The vectors by name, each by `real_array`; they must have one length, at least 1.

    >>> equal_vectors(x=[1, 2], y=[3, 4])
    [array([1., 2.]), array([3., 4.])]
    """
    found = [real_array(name, vector, ndim=1) for name, vector in vectors.items()]
    lengths, names = [len(vector) for vector in found], " and ".join(vectors)
    equal = min(lengths) == max(lengths) > 0
    require(equal, f"{names} must have one length, at least 1", " and ".join(map(str, lengths)))
    return found


def whole_number(name: str, number: object, least: int, most: float = LARGEST) -> int:
    """`number` as an int that is at least `least` and at most `most`.

    >>> whole_number("depth", 3, least=1)
    3
    """
    if isinstance(number, bool) or not isinstance(number, int | np.integer):
        raise TypeError(f"{name} must be an integer, got {number!r}")
    require(number >= least, f"{name} must be at least {least}", number)
    require(number <= most, f"{name} must be at most {most}", number)
    return int(number)


def nonnegative_number(name: str, number: object) -> float:
    """`number` as a finite float that is not negative.

    >>> nonnegative_number("eta", 1)
    1.0
    """
    if isinstance(number, bool) or not isinstance(number, int | float | np.integer | np.floating):
        raise TypeError(f"{name} must be a number, got {number!r}")
    require(0 <= number < np.inf, f"{name} must be finite and not negative", number)
    return float(number)


def ridge_per_layer(ridge: Ridge, depth: int) -> tuple[float, ...]:
    """λ_l for each layer, from one number for all layers or one for each.

    >>> ridge_per_layer(0.5, depth=3)
    (0.5, 0.5, 0.5)
    """
    given = real_array("ridge", ridge, ndim=None)
    expected = f"ridge must be one number or {depth}, one for each layer"
    require(given.shape in ((), (depth,)), expected, f"shape {given.shape}")
    require(np.all(given >= 0), "ridge must not be negative", given.min(initial=0.0))
    return tuple(np.broadcast_to(given, depth).tolist())


def stepped(theta: Array, eta: float, gradient: Array) -> Array:
    """One step of gradient descent, θ − η∇; refused when η is not positive or the step overflows.

    >>> stepped(np.array([1.0, 2.0]), 0.5, np.array([2.0, 0.0]))
    array([0., 2.])
    """
    require(nonnegative_number("eta", eta), "eta must be positive", eta)
    with np.errstate(over="ignore", invalid="ignore"):
        moved = theta - eta * gradient
    if not np.all(np.isfinite(moved)):
        raise ValueError(f"eta = {eta} makes the parameters overflow")
    return moved


def guard(namespace: dict[str, Any], *maps: str) -> None:
    """Let public functions, dataclasses and their methods refuse what their annotations exclude,
    and functions a result that is not finite and real; maps that may diverge are named. A module
    calls it last.

    >>> from exacthessian import mode
    >>> mode.edge("three", 10.0)
    Traceback (most recent call last):
    TypeError: depth must be an integer, got 'three'
    >>> mode.curvature(3, 1.0, -1.0)
    Traceback (most recent call last):
    ValueError: curvature has no finite real value at depth = 3, first = 1.0, second = -1.0
    """
    own = namespace["__name__"]
    for name, thing in list(namespace.items()):
        if name[0] == "_" or getattr(thing, "__module__", "") != own:
            continue
        if isinstance(thing, FunctionType):
            namespace[name] = _guarded(thing, name not in maps)
        elif is_dataclass(thing) and isinstance(thing, type):
            for inner, method in list(vars(thing).items()):
                if isinstance(method, FunctionType) and (inner == "__init__" or inner[0] != "_"):
                    type.__setattr__(thing, inner, _guarded(method, finite=False))


def _guarded(function: Any, finite: bool) -> Callable[..., Any]:
    names = {name: given.default for name, given in signature(function).parameters.items()}
    tests = {name: _test_of(name, hint, finite) for name, hint in function.__annotations__.items()}

    @wraps(function)
    def guarded(*given: Any, **options: Any) -> Any:
        arguments = {**dict(zip(names, given, strict=False)), **options}
        for name, value in arguments.items():
            if name in tests and value is not names.get(name):
                tests[name](name, value)
        try:
            result = function(*given, **options)
        except (ArithmeticError, LookupError, TypeError, ValueError) as error:
            if not finite or any(name in str(error) for name in arguments):
                raise
            raise ValueError(
                f"{function.__name__} has no value at {_where(arguments)}: {error}"
            ) from error
        if finite and isinstance(result, complex | float | np.ndarray) and not _is_real(result):
            raise ValueError(f"{function.__name__} has no finite real value at {_where(arguments)}")
        return result

    return guarded


def _where(arguments: dict[str, Any]) -> str:
    return ", ".join(f"{name} = {value!r:.60}" for name, value in arguments.items())


def _is_real(result: Any) -> bool:
    return np.asarray(result).dtype.kind in "biuf" and bool(np.isfinite(result).all())


def _test_of(name: str, hint: Any, finite: bool) -> Callable[[str, Any], object]:
    """What refuses a value that an annotation excludes."""
    if hint is int:
        return partial(whole_number, least=1 if name in ("depth", "width") else -LARGEST)
    if hint in (float, Array, ArrayLike, Sequence[float]) or (finite and hint == Numbers):
        return partial(real_array, ndim=0 if hint is float else None)
    if hint == Sequence[ArrayLike]:
        return partial(real_arrays, ndim=None)
    options = get_args(hint) if isinstance(hint, UnionType) else (hint,)
    kinds = tuple(get_origin(option) or option for option in options)
    kinds += (np.bool_,) if bool in kinds else ()
    if hint not in (Any, Numbers) and all(
        isinstance(kind, type) and (kind is str or not issubclass(kind, Iterable)) for kind in kinds
    ):
        return partial(_require_instance, kinds)
    return lambda name, value: None


def _require_instance(kinds: tuple[type, ...], name: str, value: object) -> None:
    if not isinstance(value, kinds):
        words = " or ".join(kind.__name__ for kind in kinds)
        raise TypeError(f"{name} must be a {words}, got {value!r:.60}")
