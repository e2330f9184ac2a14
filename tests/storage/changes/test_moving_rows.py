"""Where rows move between partitions, changes that are applied in their order give each row: it leaves before it comes."""  # noqa: E501

from __future__ import annotations

import random
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from freshet.storage.changes.reader import rows_of_leaving_keys
from freshet.storage.changes.stream_request import StreamRequest
from freshet.storage.model.row_kind import KIND_TEXTS, ROW_KIND_COLUMN, RowKind
from freshet.storage.model.schema import VALUE_KIND_COLUMN
from freshet.storage.model.snapshot_walk import StreamLimit
from freshet.storage.table import Table
from tests.storage.write.test_moving_rows import Row, create, found, write

COMMITS = 6
Rows = dict[int, tuple[str, int | None]]
PRODUCERS = ["input", "lookup", "full-compaction"]


def moved(path: Path, **options: str) -> Table:
    """Forty keys that move between three partitions, also there and back within one commit."""
    table, chance = create(path, **options), random.Random(7)
    for number in range(COMMITS):
        rows: list[Row] = [
            (chance.randrange(40), chance.choice("abc"), number, "-D" if chance.random() < 0.1 else "+I")
            for _ in range(25)
        ]
        write(table, *rows)
    return table


@pytest.fixture(scope="module", params=PRODUCERS)
def table(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Table:
    return moved(tmp_path_factory.mktemp(request.param), changelog_producer=request.param)


def applied(batches: Iterable[pa.RecordBatch], before: Rows | None = None) -> Rows:
    """What a copy with the same key has."""
    rows = dict(before or {})
    for batch in batches:
        for row in batch.to_pylist():
            if row[ROW_KIND_COLUMN] in ("-U", "-D"):
                rows.pop(row["k"], None)
            else:
                rows[row["k"]] = row["p"], row["v"]
    return rows


@pytest.mark.few(1)
@pytest.mark.dear("the changes of six commits, read twice")
def test_a_copy_of_the_changes_has_each_row(table: Table) -> None:
    assert applied(table.changelog().to_batches()) == found(table)
    rows = table.stream(scan_mode="from-snapshot", from_snapshot=1, max_wait_s=0)
    assert applied(rows) == found(table)


@pytest.mark.few(1)
def test_a_filter_leaves_out_rows_and_keeps_the_order(table: Table) -> None:
    kept = applied(table.changelog(filter="k < 20").to_batches())
    assert kept == {key: row for key, row in found(table).items() if key < 20}


@pytest.mark.dear("the changes of six commits")
def test_rows_as_they_were_written_leave_first_too(tmp_path: Path) -> None:
    table = moved(tmp_path)
    rows = table.stream(scan_mode="from-snapshot", from_snapshot=1, max_wait_s=0, upserts=True)
    assert applied(rows) == found(table)


@pytest.mark.dear("the changes of six commits")
def test_a_difference_of_two_snapshots_begins_with_the_rows_that_left(tmp_path: Path) -> None:
    table = moved(tmp_path)
    latest = table.latest_snapshot()
    assert latest is not None
    assert applied(table.changes_between(0, latest.id, mode="diff").to_batches()) == found(table)
    middle = applied(table.changes_between(0, 3, mode="diff").to_batches())
    assert applied(table.changes_between(3, latest.id, mode="diff").to_batches(), middle) == found(table)


@pytest.mark.few(1)
@pytest.mark.parametrize("files", [None, 1, 3])
def test_readers_of_an_engine_get_them_in_groups_whose_order_counts(files: int | None, table: Table) -> None:
    stream = table.engine.split_stream(StreamRequest(scan_mode="from-snapshot", from_snapshot=1))
    position, batches = stream.first(), []
    while (end := stream.advance(position, StreamLimit(files=files))) != position:
        batches += [batch for group in stream.groups(position, end) for batch in stream.read_group(group)]
        position = end
    assert applied(batches) == found(table)


@pytest.mark.parametrize(
    ("kinds", "leaves"),
    [
        ("-D", True),
        ("+I -D", True),
        ("-U +U -D", True),
        ("-U", True),
        ("+I", False),
        ("-U +U", False),
        ("-D +I", False),
    ],
)
def test_a_key_leaves_where_its_last_change_takes_it_away(kinds: str, leaves: bool) -> None:
    codes = [RowKind(KIND_TEXTS.index(text)) for text in kinds.split()]
    every = [RowKind.INSERT, *codes, RowKind.DELETE]
    changes = pa.table({"k": [1, *[2] * len(codes), 3], VALUE_KIND_COLUMN: pa.array(every, pa.int8())})
    expected = [False, *[leaves] * len(codes), True]
    assert np.array_equal(rows_of_leaving_keys(changes, ("k",)), expected)
