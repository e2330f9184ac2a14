"""Records to outcomes in a worker: packed for other tasks, or as they are for its own."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa

from freshet.pipeline.decode.outcomes import Tally
from freshet.pipeline.decode.planning import plan_decoding
from freshet.pipeline.query.task.batch_work import TablePacker
from freshet.pipeline.query.wire.packed_rows import PACKED, PackRule, packed_batches, unpacked_batches
from tests.pipeline.records import ORDERS, change, kafka_block, pipeline_of


def rows(batches: list[pa.RecordBatch]) -> list[dict[str, Any]]:
    return [row for batch in batches for row in batch.to_pylist()]


def test_outcomes_that_do_not_cross_are_the_same_without_being_packed() -> None:
    packer = TablePacker(plan_decoding(pipeline_of(ORDERS), 0), PackRule((), True, 1))
    records = [change("c", after={"id": number, "status": "new"}) for number in range(9)] + ["broken"]
    given: dict[bool, list[pa.RecordBatch]] = {}
    for crosses in (False, True):
        each = replace(packer, crosses=crosses)
        given[crosses] = list(packed_batches([*each([kafka_block(records)]), *each.tally(Tally(read=3))]))
    own, packed = given[False], given[True]
    assert not any(PACKED in batch.schema.names for batch in own) and all(PACKED in b.schema.names for b in packed)
    assert rows(own) == rows(list(unpacked_batches(packed, own[0].schema))) and len(rows(own)) == 12
