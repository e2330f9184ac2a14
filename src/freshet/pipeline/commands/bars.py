"""How commands show that work goes on: bars and spinners on standard error.

They are shown only where standard error is a terminal, so that logs hold whole lines; of work that takes long they hold
one every `LINE_EVERY_S`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from rich.console import Console
from rich.progress import Progress, track

from freshet.pipeline.commands.output import complain

LINE_EVERY_S: Final = 10.0


@contextmanager
def working(what: str) -> Iterator[None]:
    """Shows that something takes time, while it does."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield
        return
    with console.status(what):
        yield


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
    with Progress(console=console, transient=True) as progress:
        task = progress.add_task(what, total=None)
        yield lambda done, planned: progress.update(task, completed=done, total=planned)


def counted(items: Sequence[Any], what: str) -> Iterator[Any]:
    """The items, with a bar that counts them."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield from items
        return
    yield from track(items, description=what, console=console, transient=True)
