"""Makes the next item while the last one is being used, so that merging and encoding keep two cores busy."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Executor, wait
from typing import Any, Final, TypeVar

T = TypeVar("T")

_END: Final[Any] = object()


def prefetched(items: Iterator[T], executor: Executor | None) -> Iterator[T]:
    """The items, in order, one of them ahead; without an executor nothing is made ahead."""
    if executor is None:
        yield from items
        return
    future = executor.submit(next, items, _END)
    try:
        while True:
            item = future.result()
            if item is _END:
                return
            future = executor.submit(next, items, _END)
            yield item
    finally:
        wait([future])
