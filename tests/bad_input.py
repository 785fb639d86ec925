"""Call everything public with one bad argument at a time, and say how it is met.

`bad_input.py MODULE...` harvests a valid call of every public function, class and method from the
docstrings' examples, replaces one argument at a time, and prints one line of JSON for each try:
what was called, what it was given, and what came of it.

clear     a TypeError or ValueError that names the argument
unclear   any other error
accepted  a result in finite numbers
silent    a result with NaN, infinity or an object in it
hang      more than 2 s of computing
memory    more than 1 GB
"""

import doctest
import importlib
import inspect
import io
import json
import os
import re
import resource
import signal
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np

SECONDS, BYTES = 2.0, 2**30
DEPTH = 6  # how deep a result is searched for numbers


@dataclass(frozen=True)
class Call:
    """A valid call: a name to report, what is called, and its arguments."""

    name: str
    function: Callable[..., Any]
    arguments: dict[str, Any]


class Hang(BaseException):
    """A call that computes for too long; no handler of the package may swallow it."""


def public(module: Any) -> dict[Any, tuple[str, Any, bool]]:
    """The code object of everything public in a module: its name, itself, whether it has a self."""
    found = {}
    for name, thing in vars(module).items():
        if name.startswith("_") or getattr(thing, "__module__", "") != module.__name__:
            continue
        if inspect.isclass(thing):
            start = inspect.unwrap(thing.__init__)
            if not issubclass(thing, BaseException) and hasattr(start, "__code__"):
                found[start.__code__] = (name, thing, True)
            for inner, raw in vars(thing).items():
                function = raw.__func__ if isinstance(raw, classmethod | staticmethod) else raw
                if not inner.startswith("_") and inspect.isfunction(function):
                    method = None if function is raw else getattr(thing, inner)
                    found[function.__code__] = (f"{name}.{inner}", method, function is raw)
        elif inspect.isfunction(inspect.unwrap(thing)):
            found[inspect.unwrap(thing).__code__] = (name, thing, False)
    return found


def harvest(module: Any) -> list[Call]:
    """The first call of everything public that an example makes."""
    known, calls = public(module), {}

    def watch(frame: Any, event: str, _: Any) -> None:
        if event == "call" and frame.f_code in known and frame.f_code not in calls:
            caller = frame.f_back
            while caller.f_code.co_name == "guarded":
                caller = caller.f_back
            if caller.f_code.co_filename.startswith("<doctest"):
                calls[frame.f_code] = made(*known[frame.f_code], inspect.getargvalues(frame))

    runner = doctest.DocTestRunner(verbose=False)
    for test in doctest.DocTestFinder().find(module):
        sys.setprofile(watch)
        try:
            with redirect_stdout(io.StringIO()):
                runner.run(test, out=lambda text: None)
        finally:
            sys.setprofile(None)
    return list(calls.values())


def made(name: str, function: Any, has_self: bool, values: Any) -> Call:
    """A call from the names and values of its frame."""
    arguments = {key: values.locals[key] for key in values.args}
    if has_self:
        owner = arguments.pop(values.args[0])
        function = function or getattr(owner, name.rpartition(".")[2])
    elif values.args[:1] == ["cls"]:
        arguments.pop("cls")
    if values.varargs:
        arguments[f"*{values.varargs}"] = values.locals[values.varargs]
    if values.keywords:
        arguments |= values.locals[values.keywords]
    return Call(name, function, arguments)


def bad_values(good: Any) -> Iterator[tuple[str, Any]]:
    """What to put in the place of a good argument, each with its name."""
    yield from {
        "None": None,
        "string": "abc",
        "nan": float("nan"),
        "inf": float("inf"),
        "negative": -1,
        "zero": 0,
        "huge": 10**9,
        "tall": 1e300,
        "complex": 1 + 1j,
        "bool": True,
        "0-d": np.array(3.0),
        "empty": np.zeros(0),
        "3 axes": np.ones((2, 2, 2)),
        "strings": np.array(["a", "b"]),
        "fraction": 0.5,
    }.items()
    if isinstance(good, np.ndarray | list | tuple) and _is_numeric(good):
        array = np.array(good, dtype=float)
        if array.size:
            for name, value in (("nan", np.nan), ("inf", np.inf), ("tall", 1e300), ("minus", -1e9)):
                spoiled = array.copy()
                spoiled.flat[-1] = value
                yield f"{name} entry", spoiled
        yield "complex entries", array + 1j
        yield "an axis more", array[None]
        yield "one longer", np.concatenate([array, array[:1]]) if array.ndim else array
        yield "bools", array > 0


def _is_numeric(good: Any) -> bool:
    try:
        return np.asarray(good).dtype.kind in "iuf"
    except ValueError:
        return False


def outcome(call: Call, argument: str, bad: Any) -> tuple[str, str]:
    """How a call with one bad argument is met, and the message or the result."""
    arguments = {**call.arguments, argument: bad}
    several = [name for name in arguments if name.startswith("*")]
    spread = [
        value for name in several for value in (arguments[name] if name != argument else [bad])
    ]
    plain = {name: value for name, value in arguments.items() if name not in several}

    def stop(*_: Any) -> None:
        raise Hang

    signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        with warnings.catch_warnings(), redirect_stdout(io.StringIO()), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            result = call.function(
                *[*plain.values(), *spread] if several else [], **{} if several else plain
            )
            if inspect.isgenerator(result):
                result = next(result, None)
        return ("accepted" if _is_finite(result) else "silent"), repr(result)[:100]
    except Hang:
        return "hang", ""
    except MemoryError as error:
        refused = "more than this machine has" in str(error)  # the package has seen it coming
        return ("clear" if refused else "memory"), str(error)[:100]
    except (TypeError, ValueError) as error:
        named = re.search(rf"\b{re.escape(argument.lstrip('*'))}\b", str(error))
        return ("clear" if named else "unclear"), f"{type(error).__name__}: {error}"[:160]
    except Exception as error:
        return "unclear", f"{type(error).__name__}: {error}"[:160]
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def _is_finite(result: Any, depth: int = 0) -> bool:
    if depth > DEPTH or result is None or isinstance(result, str | bool | bytes):
        return True
    if isinstance(result, int | float | complex | np.generic | np.ndarray):
        array = np.asarray(result)
        return array.dtype.kind in "biuSU" or (
            array.dtype.kind in "fc" and bool(np.isfinite(array).all())
        )
    if isinstance(result, dict):
        return all(_is_finite(value, depth + 1) for value in result.values())
    if isinstance(result, list | tuple):
        return all(_is_finite(value, depth + 1) for value in result)
    if is_dataclass(result):
        return all(_is_finite(getattr(result, f.name, None), depth + 1) for f in fields(result))
    return True


def limit_memory() -> None:
    """Allow this process 1 GB more than it has."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * os.sysconf("SC_PAGE_SIZE") + BYTES
    resource.setrlimit(resource.RLIMIT_AS, (most, most))


def main(names: list[str]) -> None:
    """Try everything in the named modules."""
    os.environ.setdefault("MPLBACKEND", "agg")
    chosen, every = names, 1
    if names[0].isdigit():
        every, chosen = int(names[0]), names[1:]
    modules = [importlib.import_module(f"exacthessian.{name}") for name in chosen]
    calls = [
        (name, call)
        for name, module in zip(chosen, modules, strict=True)
        for call in harvest(module)
    ]
    limit_memory()
    count = 0
    for name, call in calls:
        for argument, good in call.arguments.items():
            for kind, bad in bad_values(good):
                count += 1
                if count % every:
                    continue
                head = {"call": f"{name}.{call.name}", "argument": argument, "bad": kind}
                met, said = outcome(call, argument, bad)
                print(json.dumps({**head, "met": met, "said": said}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
