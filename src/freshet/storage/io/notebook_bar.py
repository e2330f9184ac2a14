"""A bar in a notebook: HTML below the cell, which goes when the work is done. Work that is short shows none.

IPython is asked for only where it runs this process; nothing here needs it installed, nor any widgets.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from html import escape
from importlib import import_module
from typing import Any, Final

WAIT_S: Final = 0.5
"""Of work that ends sooner nothing is shown."""

EVERY_S: Final = 0.2


def is_in_notebook() -> bool:
    """Whether a kernel of Jupyter runs this process; not IPython in a terminal."""
    if "IPython" not in sys.modules:
        return False
    shell = getattr(sys.modules["IPython"], "get_ipython", lambda: None)()
    return getattr(shell, "kernel", None) is not None


@contextmanager
def notebook_bar(what: str) -> Iterator[Callable[[float, float], None]]:
    """A bar that is moved by calls with (done, planned), from any thread."""
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
