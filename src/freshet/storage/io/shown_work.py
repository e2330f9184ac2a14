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

import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from functools import partial, wraps
from html import escape
from importlib import import_module
from typing import Any, Final, ParamSpec, TypeAlias, TypeVar

T = TypeVar("T")
P = ParamSpec("P")
R = TypeVar("R")

Advance: TypeAlias = Callable[[float, float], None]
"""Called with what is done and what is planned."""

Shower: TypeAlias = Callable[[str], AbstractContextManager[Advance]]
"""Shows work of a name, while the block runs."""

_WORK: Final[ContextVar[Advance | None]] = ContextVar("_WORK", default=None)
"""What is being shown, for those that it calls."""

WAIT_S: Final = 0.5
"""Work that ends sooner shows nothing."""

EVERY_S: Final = 0.2


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
    shower = notebook_bar if _Shown.is_automatic and _is_in_notebook() else _Shown.shower
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


def _is_in_notebook() -> bool:
    """Whether a kernel of Jupyter runs this process; not IPython in a terminal."""
    if "IPython" not in sys.modules:
        return False
    shell = getattr(sys.modules["IPython"], "get_ipython", lambda: None)()
    return getattr(shell, "kernel", None) is not None


@contextmanager
def notebook_bar(what: str) -> Iterator[Callable[[float, float], None]]:
    """A bar in a notebook: HTML below the cell, which goes when the work is done. Work that is short shows none. It is
    moved by calls with (done, planned), from any thread.

    IPython is asked for only where it runs this process; nothing here needs it installed, nor any widgets.
    """
    bar = _Bar(what)
    try:
        yield bar.advance
    finally:
        bar.end()


class _Bar:
    """One bar. Where nothing can be shown, nothing is."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._next_s = time.monotonic() + WAIT_S
        self._handle: Any = None
        self._lock = threading.Lock()

    def advance(self, done: float, planned: float) -> None:
        """Shows it where it is time to."""
        with self._lock:
            now_s = time.monotonic()
            if planned <= 0 or now_s < self._next_s:
                return
            self._next_s = now_s + EVERY_S
            self._show(_Html(_bar_html(self._what, done, planned), f"{self._what}: {_percent(done, planned)}"))

    def end(self) -> None:
        """Takes it away."""
        with self._lock:
            if self._handle is not None:
                self._show(_Html("", ""))

    def _show(self, html: _Html) -> None:
        if self._handle is None:
            self._handle = import_module("IPython.display").display(html, display_id=True)
        else:
            self._handle.update(html)


class _Html:
    """What IPython displays: HTML, or in its place text."""

    def __init__(self, html: str, text: str) -> None:
        self._html, self._text = html, text

    def __repr__(self) -> str:
        return self._text

    def _repr_html_(self) -> str:
        return self._html


def _bar_html(what: str, done: float, planned: float) -> str:
    share = _share(done, planned)
    return f'<div>{escape(what)} <progress value="{share:.3f}" max="1"></progress> {_percent(done, planned)}</div>'


def _percent(done: float, planned: float) -> str:
    return f"{100 * _share(done, planned):.0f} %"


def _share(done: float, planned: float) -> float:
    return min(1.0, max(0.0, done / planned))
