"""Outcomes that are packed: the rows of a task are those of its buckets, whole and in their order."""

from __future__ import annotations

import random
from datetime import UTC, date, datetime

import numpy as np
import pyarrow as pa
import pytest

from freshet.pipeline.decode.outcomes import BUCKET, HEAD_SCHEMA, OFFSET, TAG, TAG_DATA, TAG_DEAD, TAG_TALLY
from freshet.pipeline.query.wire import packed_rows
from freshet.pipeline.query.wire.packed_rows import TABLE, TASK, PackRule, not_small, packed_batches, unpacked_batches

SCHEMA = pa.schema(
    [*HEAD_SCHEMA, pa.field("_d0", pa.string()), pa.field("_d1", pa.date32()), pa.field("_d2", pa.int64())]
)


def outcomes(count: int, seed: int) -> pa.RecordBatch:
    """Rows of three buckets and some partitions, NULL among their values, dead letters and a tally."""
    chance = random.Random(seed)
    rows = []
    for offset in range(count):
        tag = chance.choice([TAG_DATA] * 8 + [TAG_DEAD])
        rows.append(
            {
                TAG: tag,
                BUCKET: chance.randrange(3) if tag == TAG_DATA else None,
                OFFSET: offset * 100,
                "_timestamp": datetime(2026, 1, 1, tzinfo=UTC),
                "_d0": chance.choice(["a", "ä", "", None]),
                "_d1": chance.choice([date(2026, 1, 1), date(1, 1, 1), None]),
                "_d2": offset,
            }
        )
    rows.append({TAG: TAG_TALLY, "_raw_value": b"{}"})
    return pa.RecordBatch.from_pylist(rows, schema=SCHEMA)


def packed(batches: list[pa.RecordBatch], rule: PackRule, rows_min: int = 1) -> dict[int, list[pa.RecordBatch]]:
    """What each task is given; batches of fewer rows than `rows_min` are joined."""

    tasks: dict[int, list[pa.RecordBatch]] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packed_rows, "_ROWS_MIN", rows_min)
        joined = list(not_small(iter(batches)))
    values = ((task, 5, value) for outcomes in joined for task, value in rule.packed(outcomes))
    for batch in packed_batches(values):
        assert batch.num_rows == 1 and batch.column(TABLE)[0].as_py() == 5
        tasks.setdefault(batch.column(TASK)[0].as_py(), []).append(batch)
    return {task: list(unpacked_batches(given, SCHEMA)) for task, given in sorted(tasks.items())}


@pytest.mark.parametrize("partition_columns", [(), ("_d0",), ("_d0", "_d1")])
@pytest.mark.parametrize("has_bucket", [True, False])
def test_each_row_reaches_the_one_task_of_its_bucket(partition_columns: tuple[str, ...], has_bucket: bool) -> None:
    batches = [outcomes(500, 1), outcomes(1, 2), outcomes(300, 3)]
    rule = PackRule(partition_columns, has_bucket, 4)
    found = packed(batches, rule)
    assert set(found) <= {0, 1, 2, 3}
    rows = [row for parts in found.values() for part in parts for row in part.to_pylist()]
    expected = [row for batch in batches for row in batch.to_pylist()]
    assert sorted(map(repr, rows)) == sorted(map(repr, expected))
    tasks: dict[object, set[int]] = {}
    for task, parts in found.items():
        for part in parts:
            assert part.schema == SCHEMA
            offsets = np.asarray(part.column(OFFSET).fill_null(10**9))
            assert (np.diff(offsets) > 0).all(), "in their order"
            for row in part.to_pylist():
                if row[TAG] == TAG_DATA:
                    place = (row[BUCKET] if has_bucket else None, *(row[name] for name in partition_columns))
                    tasks.setdefault(place, set()).add(task)
    assert all(len(each) == 1 for each in tasks.values())
    if has_bucket or partition_columns:
        assert len({task for each in tasks.values() for task in each}) > 1


def test_a_batch_of_one_task_is_sent_as_it_is() -> None:
    whole = outcomes(50, 4)
    assert packed([whole], PackRule((), False, 1)) == {0: [whole]}
    part = whole.slice(10, 5)
    assert packed([part], PackRule((), False, 1)) == {0: [part]}, "of a slice only its rows"


def test_columns_that_have_one_value_cross_as_that_value() -> None:
    """All NULL, one number or text; a row alone, and one whose columns are all the same, which still has a count."""
    rows = [
        {TAG: TAG_DATA, BUCKET: 0, OFFSET: offset, "_topic": 'a"ä\u2028', "_rank": -(2**63), "_d0": "same"}
        for offset in range(1000)
    ]
    whole = pa.RecordBatch.from_pylist(rows, schema=SCHEMA)
    nothing_varies = pa.RecordBatch.from_pylist([{TAG: TAG_DATA, BUCKET: 0}] * 7, schema=SCHEMA)
    one_differs = pa.RecordBatch.from_pylist([{**rows[0], "_topic": name} for name in ("a", "b", "a")], schema=SCHEMA)
    batches = [whole, whole.slice(3, 1), nothing_varies, one_differs]
    assert packed(batches, PackRule((), False, 1)) == {0: batches}
    ((_, value),) = PackRule((), False, 1).packed(whole)
    assert value.size < 20_000 < whole.nbytes, "eight bytes for the offset and eight for the only column that is a text"


def test_small_batches_are_joined_in_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """Up to so many rows, or bytes; large ones stay as they are."""
    batches = [outcomes(count, count) for count in (3, 4, 90, 2, 200, 1)]
    (joined,) = packed(batches, PackRule((), False, 1), rows_min=100).values()
    assert [each.num_rows for each in joined] == [4 + 5 + 91, 3 + 201, 2]
    assert pa.Table.from_batches(joined).equals(pa.Table.from_batches(batches))
    monkeypatch.setattr(packed_rows, "_BYTES_MIN", 1)
    assert packed(batches, PackRule((), False, 1), rows_min=100) == {0: batches}
