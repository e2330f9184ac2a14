"""Ranged reads: which requests fetch the ranges that a reader wants of one file, and what they cost at a store.

A request to an object store takes tens of milliseconds whatever it fetches, so ranges near each other become one, a
small file is fetched whole, and a long range is fetched as several requests at the same time:

    wanted      [----]  [--]                       [---------------------------------]
    requests    [----------]                       [----------][----------][---------]
                       ^ gap of at most gap_bytes   ^ at most request_bytes each

Planning is pure; `read_ranges` runs a plan. `files.parquet.ranged_file` reads so, at stores that are worth it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import TypeAlias

import pyarrow as pa

from freshet._frozen import Frozen


@dataclass(frozen=True, slots=True, order=True)
class ByteRange:
    """Bytes of a file."""

    offset: int
    length: int

    @property
    def end(self) -> int:
        """The offset after the last byte."""
        return self.offset + self.length


class ReadCosts(Frozen):
    """What is worth one request at a store."""

    whole_bytes: int
    """Files of at most this size are read whole."""
    gap_bytes: int
    """Reading so many bytes that are not wanted costs less than one more request."""
    request_bytes: int
    """Longer requests are divided, and their parts made at the same time."""
    in_flight: int = 1
    """So many requests at the same time are worth it. 1: a request costs next to nothing, and files are opened and read
    as disks like it; else they are read by planned ranges."""


ReadRange: TypeAlias = Callable[[ByteRange], pa.Buffer]
Together: TypeAlias = Callable[[Sequence[Callable[[], pa.Buffer]]], list[pa.Buffer]]


def plan_reads(wanted: Iterable[ByteRange], costs: ReadCosts, size_bytes: int | None = None) -> tuple[ByteRange, ...]:
    """The requests, in order and without overlap, that fetch all ranges wanted; `size_bytes` is the file's, if known.

    Nothing beyond the end of the file is requested. Each range wanted is in requests that follow on each other.
    """
    ordered = sorted(part for part in (_within(each, size_bytes) for each in wanted) if part.length > 0)
    if not ordered:
        return ()
    if size_bytes is not None and size_bytes <= costs.whole_bytes:
        return (ByteRange(0, size_bytes),)
    spans = [ordered[0]]
    for part in ordered[1:]:
        if part.offset - spans[-1].end <= costs.gap_bytes:
            start = spans[-1].offset
            spans[-1] = ByteRange(start, max(spans[-1].end, part.end) - start)
        else:
            spans.append(part)
    return tuple(request for span in spans for request in _divided(span, costs.request_bytes))


def read_ranges(
    read: ReadRange,
    wanted: Sequence[ByteRange],
    costs: ReadCosts,
    together: Together,
    *,
    size_bytes: int | None = None,
) -> list[pa.Buffer]:
    """The bytes of each range, in the order given; of a range beyond the end, those there are.

    `read` makes one request, `together` several at the same time.
    """
    requests = plan_reads(wanted, costs, size_bytes)
    buffers = together([partial(read, request) for request in requests])
    return [cut(_within(each, size_bytes), requests, buffers) for each in wanted]


def _within(wanted: ByteRange, size_bytes: int | None) -> ByteRange:
    """The part of a range that lies in the file."""
    if size_bytes is None or wanted.end <= size_bytes:
        return wanted
    return ByteRange(wanted.offset, max(0, size_bytes - wanted.offset))


def _divided(span: ByteRange, most: int) -> Iterable[ByteRange]:
    """Parts of about one size."""
    count = -(-span.length // most)
    ends = [span.length * number // count for number in range(count + 1)]
    return (ByteRange(span.offset + start, end - start) for start, end in pairwise(ends))


def cut(wanted: ByteRange, requests: Sequence[ByteRange], buffers: Sequence[pa.Buffer]) -> pa.Buffer:
    """A range out of what was read; without a copy where one request has all of it."""
    parts = []
    first = max(0, bisect_right(requests, wanted.offset, key=lambda request: request.offset) - 1)
    for request, buffer in zip(requests[first:], buffers[first:], strict=True):
        start, end = max(wanted.offset, request.offset), min(wanted.end, request.offset + buffer.size)
        if start < end:
            parts.append(buffer.slice(start - request.offset, end - start))
        if request.end >= wanted.end:
            break
    return parts[0] if len(parts) == 1 else pa.py_buffer(b"".join(parts))
