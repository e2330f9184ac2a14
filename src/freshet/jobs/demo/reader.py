"""A reader of the demo, in plain Python: follows the log of the orders and keeps all that it was shown.

    python -m freshet.jobs.demo.reader WAREHOUSE ISOLATION OUT

Prints a JSON line per batch of rows: when it came and how many there are, the newest change, and what the rows add to
the number of rows and to the sum of their changes, as a row that goes takes away what it brought. SIGTERM ends it; then
`OUT` is an Arrow file of all rows in the order in which they came, with the moment of each (`_SEEN_US`).
"""

from __future__ import annotations

import json
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from freshet.storage.catalog import Catalog
from freshet.storage.exceptions import NotFoundError
from freshet.storage.model.row_kind import ROW_KIND_COLUMN
from freshet.storage.table import Table

TABLE: Final = "shop.orders"
SEEN_COLUMN: Final = "_SEEN_US"


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


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
