"""Hashes and task numbers that Spark 4.2.1 gave (`hash`, `assigner_task_column`), computed in Arrow."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from freshet.pipeline.decode.outcomes import BUCKET
from freshet.pipeline.query.wire.packed_rows import PackRule, spark_hashes

NAN = float("nan")
HASHES: list[tuple[pa.DataType, dict[Any, int]]] = [
    (pa.bool_(), {True: -559580957, False: 933211791, None: 42}),
    (pa.int8(), {0: 933211791, -1: -1604776387, 127: 1135925485}),
    (pa.int16(), {-300: -1692660704, 7: 1079293707}),
    (pa.int32(), {0: 933211791, 1: -559580957, 2**31 - 1: 133916647, -(2**31): 723455942, None: 42}),
    (pa.int64(), {0: -1670924195, 2**63 - 1: -1604625029, -(2**63): -853646085, 1 << 40: -1596767687}),
    (pa.float32(), {-0.0: 933211791, 1.5: -221251528, NAN: -349261430, -3.25: 1130243865}),
    (pa.float64(), {-0.0: -1670924195, 1.5: 1290763749, NAN: -1281358385, 1e300: -359479591}),
    (
        pa.string(),
        {
            "": 142593372, "a": 1485273170, "ab": -97053317, "abc": 1322437556, "abcd": -396302900, "abcde": 814637928,
            "2026-11-27": 815769401, "ä€𝄞": 1834891355, "ééééé": -1308901336, None: 42,
        },
    ),
    (pa.binary(), {b"\xff": 1398487324, b"\x80\x7f\x00": -511808323, b"\x01\x02\x03\x04\xff\xfe": 565340767}),
    (pa.date32(), {date(1970, 1, 1): 933211791, date(2026, 11, 27): 1373654758, date(1, 1, 1): -1147107224}),
    (
        pa.timestamp("us", "UTC"),
        {
            datetime(2026, 11, 27, 1, 2, 3, 456789, UTC): 1996070480,
            datetime(1969, 12, 31, 23, 59, 59, 999999, UTC): -939490007,
        },
    ),
    (pa.timestamp("us"), {datetime(2026, 11, 27, 1, 2, 3, 456789): 1996070480, datetime(1, 1, 1): 269467232}),
    (pa.decimal128(10, 2), {Decimal("1.50"): -2056712946, Decimal("-99999999.99"): -278912144}),
    (
        pa.decimal128(38, 4),
        {
            Decimal("1.5000"): -391758027, Decimal("-1.0000"): 1474660550, Decimal("0.0000"): -783713497,
            Decimal("9999999999999999999999999999999999.9999"): -817514053, Decimal("-0.0128"): 775851899,
            Decimal("0.0127"): 1185089389, Decimal("0.0128"): -544401882, Decimal("0.0255"): 1246198977,
            Decimal("-0.0129"): -771458971,
        },
    ),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "known"), HASHES, ids=lambda each: str(each) if isinstance(each, pa.DataType) else "")
def test_a_hash_is_that_of_spark(kind: pa.DataType, known: dict[Any, int]) -> None:
    values = [*known, *reversed(known)]
    assert spark_hashes([pa.array(values, kind)]).tolist() == [known[value] for value in values]


TASKS = [
    (1, [0, 0, 0, 0, 0], [0, 0, 0, 0, 0]),
    (2, [1, 1, 1, 1, 0], [1, 1, 1, 0, 0]),
    (3, [2, 1, 0, 1, 1], [1, 1, 1, 2, 0]),
    (7, [1, 2, 1, 1, 6], [0, 0, 1, 2, 0]),
    (200, [195, 17, 57, 57, 102], [7, 7, 47, 48, 0]),
]
"""Number of tasks, and the task of each row: of a table with the partitions below, and of one without."""


@pytest.mark.parametrize(("count", "of_partitions", "of_keys"), TASKS)
def test_rows_that_wait_go_to_the_task_that_spark_sends_them_to(
    count: int, of_partitions: list[int], of_keys: list[int]
) -> None:
    rows = pa.RecordBatch.from_pydict(
        {
            BUCKET: pa.array([-7, 7, 2**31 - 1, -(2**31), 0], pa.int32()),
            "_d0": pa.array(["2026-11-27", None, "x", "", "2026-11-28"]),
            "_d1": pa.array([5, 5, None, 0, -5], pa.int64()),
            "_d2": pa.array([True, False, None, True, False]),
        }
    )
    for columns, wanted in ((("_d0", "_d1", "_d2"), of_partitions), ((), of_keys)):
        rule = PackRule(columns, True, count, share_count=count, is_sparks=True)
        assert np.array_equal(rule.tasks(rows), wanted)
