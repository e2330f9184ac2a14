"""When a reader saw which record: what it has collected, and the seconds from event to row.

Only rows that are new count (+I, +U), each record the first time it is seen: a speculative reader may be shown a record
again after it was taken back.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bench.peers import PeerError

SEEN_COLUMNS: Final = ("note", "event_us")
"""What a reader needs to read; `note` is the record's number."""

_NEW: Final = pa.array(["+I", "+U"])


class SeenRows:
    """Rows as a reader gets them, batch by batch; written as CSV: number, event, seen, the last two in microseconds."""

    def __init__(self) -> None:
        self._pieces: list[tuple[pa.RecordBatch | pa.Table, int]] = []

    def add(self, rows: pa.RecordBatch | pa.Table) -> None:
        """Takes rows that have come just now: `SEEN_COLUMNS` and `_ROW_KIND`."""
        self._pieces.append((rows, time.time_ns() // 1000))

    def write(self, out: Path) -> None:
        """Writes what was seen."""
        with out.open("wb") as file:
            for rows, seen_us in self._pieces:
                kept = rows.filter(pc.is_in(rows["_ROW_KIND"], _NEW))
                numbers = pc.cast(kept["note"], pa.int64()).to_numpy(zero_copy_only=False)
                events = kept["event_us"].to_numpy(zero_copy_only=False)
                columns = [numbers, events, np.full(kept.num_rows, seen_us)]
                np.savetxt(file, np.stack(columns, axis=1), fmt="%d", delimiter=",")


class Window(NamedTuple):
    """Events from one moment to another, in microseconds."""

    start_us: int
    end_us: int


def seconds_to_see(out: Path, window: Window) -> np.ndarray:
    """Seconds from event to row of all records of the window; raises `PeerError` if one was never seen."""
    if not out.stat().st_size:
        raise PeerError(f"{out.stem} saw no record at all")
    seen = np.loadtxt(out, delimiter=",", dtype=np.int64, ndmin=2)
    seen = seen[(seen[:, 1] >= window.start_us) & (seen[:, 1] < window.end_us)]
    numbers, first = np.unique(seen[:, 0], return_index=True)
    if not len(numbers):
        raise PeerError(f"{out.stem} saw no record of those that count")
    missing = int(numbers[-1] - numbers[0]) + 1 - len(numbers)
    if missing:
        raise PeerError(f"{out.stem} did not see {missing} records of {len(numbers) + missing}")
    return (seen[first, 2] - seen[first, 1]) / 1e6
