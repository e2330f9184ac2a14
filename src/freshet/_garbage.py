"""Python's garbage collector, which does not look at many objects that come and go at once."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import Final

_YOUNG: Final = 1
_EVERY: Final = 32

_calls = count(1)


@contextmanager
def without_gc() -> Iterator[None]:
    """No collection within: of a block of records it would look at each value, and doubles the time of decoding."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def collect_now_and_then() -> None:
    """For a stream that runs without collections, once a block: of every 32nd call a collection of young objects."""
    if not next(_calls) % _EVERY:
        gc.collect(_YOUNG)
