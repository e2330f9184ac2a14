"""What the readers of the demo were shown, looked at afterwards: folded, compared, and how long it took.

Rows are those of `reader`, in the order in which they came.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from freshet.jobs.demo.reader import SEEN_COLUMN
from freshet.storage.model.row_kind import ROW_KIND_COLUMN

Row = Mapping[str, Any]


class SentChanges(NamedTuple):
    """Changes that were sent together: the last of them, and when the first was sent."""

    lsn: int
    sent_us: int


class ShownRowsError(Exception):
    """A row that does not fit on those before it."""


def shown_rows(file: Path) -> pa.Table:
    """All rows that a reader was shown."""
    with pa.OSFile(str(file), "rb") as source, pa.ipc.open_file(source) as reader:
        return reader.read_all()


def folded(shown: pa.Table, key: str) -> dict[Any, Row]:
    """The rows that are there in the end, by key. Raises `ShownRowsError` where a row goes that is not there so, or
    one comes that is there already."""
    held: dict[Any, Row] = {}
    kinds = shown[ROW_KIND_COLUMN].to_pylist()
    for kind, row in zip(kinds, shown.drop_columns([ROW_KIND_COLUMN, SEEN_COLUMN]).to_pylist(), strict=True):
        before = held.pop(row[key], None)
        if before != (row if kind in ("-U", "-D") else None):
            raise ShownRowsError(f"{kind} {row} comes upon {before}")
        if kind in ("+I", "+U"):
            held[row[key]] = row
    return held


def latencies(shown: pa.Table, waves: Sequence[SentChanges]) -> Any:
    """(moment it was sent in µs, seconds until it was shown) of each new row, as two numpy arrays."""
    new = shown.filter(pc.is_in(shown[ROW_KIND_COLUMN], pa.array(["+I", "+U"])))
    index = np.searchsorted([wave.lsn for wave in waves], new["changed"].to_numpy())
    sent = np.array([wave.sent_us for wave in waves])[index]
    return sent, (new[SEEN_COLUMN].to_numpy() - sent) / 1e6


def emitted_twice(speculative: pa.Table, committed: pa.Table, key: str) -> list[Any]:
    """Keys of which the speculative reader was shown more than became of them; those of which nothing became come last,
    before that those with the fewest rows first."""
    more, counts = (_row_counts(each, key) for each in (speculative, committed))
    found = [value for value, count in more.items() if count > counts.get(value, 0)]
    return sorted(found, key=lambda value: (value not in counts, more[value], value))


def _row_counts(shown: pa.Table, key: str) -> dict[Any, int]:
    return {each["values"]: each["counts"] for each in pc.value_counts(shown[key]).to_pylist()}
