"""How work that takes long shows that it goes on: verbs say what they do and how far they are, a shower shows it.

    with at_work("compacting shop.orders") as advance:     in the verb that people call
        advance(done, planned)                             from any thread; any unit
    advance_work(done, planned)                            below it, in its thread, without being handed anything
    counted(calls)                                         calls of which each is a step, in whatever threads
    @shown_as("merging rows")                              a function that is such work

Nobody looks unless `show_work` has set a shower, or the process is a notebook's (`notebook_bar`). A verb that is called
by another one is part of its work.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from functools import partial, wraps
from typing import Final, ParamSpec, TypeAlias, TypeVar

from freshet.storage.io.notebook_bar import is_in_notebook, notebook_bar

T = TypeVar("T")
P = ParamSpec("P")
R = TypeVar("R")

Advance: TypeAlias = Callable[[float, float], None]
"""Called with what is done and what is planned."""

Shower: TypeAlias = Callable[[str], AbstractContextManager[Advance]]
"""Shows work of a name, while the block runs."""

_WORK: Final[ContextVar[Advance | None]] = ContextVar("_WORK", default=None)
"""What is being shown, for those that it calls."""


class _Shown:
    """Who shows work in this process. Cells of a notebook do not share context variables, but modules."""

    shower: Shower | None = None
    is_automatic = True


def show_work(shower: Shower | None, *, is_automatic: bool = False) -> Callable[[], None]:
    """Shows work from now on, with None none; automatic: in notebooks. Returns what puts it back as it was."""
    before = (_Shown.shower, _Shown.is_automatic)
    _Shown.shower, _Shown.is_automatic = shower, is_automatic

    def put_back() -> None:
        _Shown.shower, _Shown.is_automatic = before

    return put_back


@contextmanager
def at_work(what: str) -> Iterator[Advance]:
    """Work of a name; gives the function that moves it."""
    shower = notebook_bar if _Shown.is_automatic and is_in_notebook() else _Shown.shower
    current = _WORK.get()
    if shower is None or current is not None:
        yield current or _nobody
        return
    with shower(what) as advance:
        token = _WORK.set(advance)
        try:
            yield advance
        finally:
            _WORK.reset(token)


def advance_work(done: float, planned: float) -> None:
    """Moves the work that this is part of, if there is any."""
    advance = _WORK.get()
    if advance is not None:
        advance(done, planned)


def counted(calls: Sequence[Callable[[], T]]) -> Sequence[Callable[[], T]]:
    """The calls, each of which moves the work that they are part of."""
    advance = _WORK.get()
    if advance is None or len(calls) < 2:
        return calls
    lock, done = threading.Lock(), [0]

    def counting(call: Callable[[], T]) -> T:
        made = call()
        with lock:
            done[0] += 1
            advance(done[0], len(calls))
        return made

    return [partial(counting, call) for call in calls]


def shown_as(what: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """For functions and methods that are work of this name."""

    def shown(function: Callable[P, R]) -> Callable[P, R]:
        @wraps(function)
        def called(*arguments: P.args, **named: P.kwargs) -> R:
            with at_work(what):
                return function(*arguments, **named)

        return called

    return shown


def _nobody(_done: float, _planned: float) -> None:
    pass
