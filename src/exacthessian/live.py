"""What differs when a reader is at the keyboard: progress is shown, and a sentence is enough."""

import os
import sys
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

from tqdm import tqdm

STRICT = "EXACTHESSIAN_STRICT"  # set by builds and tests, whose output must not depend on the clock
PATIENCE = 2.0  # seconds without a sign of life

Item = TypeVar("Item")


def notebook() -> Any:
    """IPython's display module inside a kernel, else None; only a notebook has it loaded.

    >>> notebook() is None
    True
    """
    ipython = sys.modules.get("IPython")
    if ipython is None or ipython.get_ipython() is None:
        return None
    return ipython.display


def is_live() -> bool:
    """Whether a reader is at the keyboard: a notebook that no build and no test has started.

    >>> is_live()
    False
    """
    return notebook() is not None and not os.environ.get(STRICT)


def progress(items: Iterable[Item], what: str = "") -> Iterator[Item]:
    """The items one by one; what takes longer than two seconds shows a bar on standard output, in a
    live notebook or a terminal.

    >>> sum(progress([1, 2, 3]))
    6
    """
    shown = is_live() or sys.stdout.isatty()
    bar = tqdm(items, what, file=sys.stdout, leave=False, delay=PATIENCE, disable=not shown)
    return iter(bar)
