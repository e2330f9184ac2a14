"""Takes back what was written when the rest of the work fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def undone_on_failure(*undo: Callable[[], None] | None) -> Iterator[None]:
    """Calls each of these when what happens inside does not come to its end, whatever stopped it."""
    is_done = False
    try:
        yield
        is_done = True
    finally:
        if not is_done:
            for each in undo:
                if each is not None:
                    each()
