"""A reader of the demo, in plain Python: follows the log of the orders and keeps all that it was shown.

    python -m freshet.jobs.demo.reader WAREHOUSE ISOLATION OUT

Prints a JSON line per batch of rows: when it came and how many there are, the newest change, and what the rows add to
the number of rows and to the sum of their changes, as a row that goes takes away what it brought. SIGTERM ends it; then
`OUT` is an Arrow file of all rows in the order in which they came, with the moment of each (`_SEEN_US`).
The demo looks at those rows afterwards: folded, compared, and how long they took.
"""

from __future__ import annotations

import json
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from freshet.storage.catalog import Catalog
from freshet.storage.exceptions import NotFoundError
from freshet.storage.model.row_kind import ROW_KIND_COLUMN
from freshet.storage.table import Table

TABLE: Final = "shop.orders"
SEEN_COLUMN: Final = "_SEEN_US"
Row = Mapping[str, Any]


def main(warehouse: str, isolation: str, out: Path) -> None:
    """Reads until it is asked to end."""
    signal.signal(signal.SIGTERM, _interrupted)
    batches: list[pa.RecordBatch] = []
    schema = pa.schema([])
    with suppress(KeyboardInterrupt):
        stream = _table(warehouse).stream(isolation=isolation)
        schema = stream.schema.append(pa.field(SEEN_COLUMN, pa.int64()))
        for batch in stream:
            seen_us = time.time_ns() // 1000
            batches.append(pa.record_batch([*batch.columns, pa.repeat(seen_us, batch.num_rows)], schema=schema))
            newest = pc.max(batch["changed"]).as_py()
            facts = {"seen_us": seen_us, "rows": batch.num_rows, "changed": newest, "adds": adds(batch)}
            print(json.dumps(facts), flush=True)
    with pa.OSFile(str(out), "wb") as file, pa.ipc.new_file(file, schema) as writer:
        for batch in batches:
            writer.write_batch(batch)


def adds(batch: pa.RecordBatch) -> tuple[int, int]:
    """What rows add to the number of rows and to the sum of their changes: one that goes takes away what it brought."""
    signs = pc.if_else(pc.is_in(batch[ROW_KIND_COLUMN], pa.array(["+I", "+U"])), 1, -1)
    return pc.sum(signs).as_py(), pc.sum(pc.multiply(signs, batch["changed"])).as_py()


def _table(warehouse: str) -> Table:
    """The table, as soon as the writer has made it."""
    while True:
        try:
            return Catalog(warehouse).table(TABLE)
        except NotFoundError:
            time.sleep(0.1)


def _interrupted(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


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


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
