"""How commands show that work goes on, and programs that ask for it: bars on standard error.

They are shown only where standard error is a terminal, so that logs hold whole lines; of work that takes long they hold
one every `LINE_EVERY_S`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any, Final

from rich.console import Console
from rich.progress import Progress, track

from freshet.pipeline.commands.output import complain
from freshet.storage.table import show_work

LINE_EVERY_S: Final = 10.0


@contextmanager
def working(what: str) -> Iterator[None]:
    """Shows that something takes time, while it does, and how far it is, where the verb below says so."""
    with _terminal_bar(what) as advance:
        put_back = show_work(lambda _: nullcontext(advance))
        try:
            yield
        finally:
            put_back()


@contextmanager
def bar(what: str) -> Iterator[Callable[[float, float], None]]:
    """A bar that is moved by calls with (done, planned), from any thread."""
    console = Console(stderr=True)
    if not console.is_terminal:
        printed_s = [time.monotonic()]

        def line(done: float, planned: float) -> None:
            if planned and time.monotonic() - printed_s[0] >= LINE_EVERY_S:
                printed_s[0] = time.monotonic()
                complain(f"{what}: {100 * done / planned:.0f} %")

        yield line
        return
    with _bar(what, console) as advance:
        yield advance


@contextmanager
def _bar(what: str, console: Console) -> Iterator[Callable[[float, float], None]]:
    with Progress(console=console, transient=True) as progress:
        task = progress.add_task(what, total=None)
        yield lambda done, planned: progress.update(task, completed=done, total=planned)


class progress:  # noqa: N801 - it is called as a function, or stands behind `with`
    """Shows bars of what takes long: compaction, deletes, updates and merges, rollbacks, expiry, rescales and repairs.

        freshet.progress()            # from here on
        with freshet.progress(False):
            table.compact()           # without one

    In notebooks they are shown without it. In a terminal they are on standard error; where that is none, and with
    `progress(False)`, there are none.
    """

    def __init__(self, on: bool = True) -> None:
        self._put_back = show_work(_terminal_bar if on else None, is_automatic=on)

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        self._put_back()


@contextmanager
def _terminal_bar(what: str) -> Iterator[Callable[[float, float], None]]:
    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda _done, _planned: None
        return
    with _bar(what, console) as advance:
        yield advance


def counted(items: Sequence[Any], what: str) -> Iterator[Any]:
    """The items, with a bar that counts them."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield from items
        return
    yield from track(items, description=what, console=console, transient=True)
