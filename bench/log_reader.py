"""A reader of the table of `log_latency_bench` in a process of its own; SIGTERM ends it, and it writes what it saw.

    python -m bench.log_reader HOW WAREHOUSE OUT

| HOW | reads |
|---|---|
| speculative, committed | the log, `Table.stream` |
| snapshots | the changelog files of each snapshot, which are looked for every `DISCOVERY_MS`, `Table.stream` |

A line on standard output says that the first rows have come.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import FrameType

import pyarrow as pa

from bench.latency_jobs import DISCOVERY_MS
from bench.seen_rows import SEEN_COLUMNS, SeenRows
from freshet import Catalog


def end_on_sigterm() -> None:
    """SIGTERM is handled as Ctrl-C is."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, interrupt)


def main(how: str, warehouse: str, out: str) -> None:
    """Reads until SIGTERM."""
    end_on_sigterm()
    seen = SeenRows()
    with suppress(KeyboardInterrupt):
        for number, batch in enumerate(_stream(how, warehouse)):
            seen.add(batch)
            if not number:
                print("reading", flush=True)
    seen.write(Path(out))


def _stream(how: str, warehouse: str) -> Iterator[pa.RecordBatch]:
    table = Catalog(warehouse).table("bench.t")
    if how == "snapshots":
        looking = table.with_options({"continuous.discovery-interval": f"{DISCOVERY_MS} ms"})
        return looking.stream(SEEN_COLUMNS, scan_mode="latest")
    return table.stream(SEEN_COLUMNS, scan_mode="latest", isolation=how)


if __name__ == "__main__":
    main(*sys.argv[1:])
