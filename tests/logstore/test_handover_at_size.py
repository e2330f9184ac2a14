"""A snapshot of more than a million rows, then the log: every row once, in bounded memory.

The reader runs in a process of its own, which prints how much memory it took at most. Keys, sums and kinds are counted,
so that a row that is lost, doubled or read at both sides of the handover shows.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from freshet.jobs.demo.kafka_broker import ForeignBroker
from freshet.storage.catalog import Catalog
from freshet.storage.table import Table
from tests.logstore.logged_tables import on_broker

pytestmark = [pytest.mark.slow, pytest.mark.kafka, pytest.mark.timeout(1800)]

ROOT = Path(__file__).resolve().parents[2]

ROWS = 1_500_000
STEP = 250_000
CHANGED = 100_000
"""Keys that each commit after the snapshot changes; as many are new."""
COMMITS = 3
MEMORY_MAX = 320 * 1024 * 1024
"""Bytes: the queue of the client and what was fetched from it take 64 MiB each at most, pages and rows the rest."""
TEXT = "some text that makes the rows of the snapshot larger than what a reader may hold of them " * 2


@pytest.fixture
def table(kafka_broker: ForeignBroker, tmp_path: Path) -> Table:
    options = on_broker(kafka_broker, bucket="4")
    schema = pa.schema(
        [pa.field("k", pa.int64(), nullable=False), pa.field("v", pa.int64()), pa.field("s", pa.string())]
    )
    return Catalog(str(tmp_path)).create_table("db.t", schema=schema, primary_keys=["k"], options=options)


def rows(first: int, end: int, value: int) -> pa.Table:
    keys = np.arange(first, end, dtype=np.int64)
    return pa.table({"k": keys, "v": keys + value, "s": pa.array([f"{key} {TEXT}" for key in keys])})


def test_every_row_once_in_bounded_memory(table: Table, tmp_path: Path, isolation: str) -> None:
    with table.writer("u") as writer:
        size_bytes = 0
        for first in range(0, ROWS, STEP):
            writer.write(piece := rows(first, first + STEP, 0))
            size_bytes += piece.nbytes
        writer.commit()
    command = [sys.executable, "-m", "tests.logstore.handover_reader", str(tmp_path), isolation]
    reader = subprocess.Popen(
        [*command, str(ROWS + CHANGED * COMMITS)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
    )
    assert reader.stdout is not None and reader.stdout.readline() == "begun\n"
    with table.writer("u") as writer:
        for number in range(COMMITS):
            writer.write(changed := rows(number * CHANGED, (number + 1) * CHANGED, 7))
            writer.write(added := rows(ROWS + number * CHANGED, ROWS + (number + 1) * CHANGED, 0))
            size_bytes += 2 * changed.nbytes + added.nbytes
            writer.commit()
    out, _ = reader.communicate("go\n", timeout=600)
    counts = json.loads(out)
    print(counts)
    assert reader.returncode == 0
    changed = CHANGED * COMMITS
    assert counts["by_kind"] == {"+I": ROWS + changed, "-U": changed, "+U": changed, "-D": 0}
    assert (counts["once"], counts["other"]) == (ROWS + changed, 0)
    everything = ROWS + changed
    assert counts["total"] == everything * (everything - 1) // 2 + 7 * changed
    assert counts["batches"] >= 4
    assert counts["memory"] < MEMORY_MAX < size_bytes * 0.7
