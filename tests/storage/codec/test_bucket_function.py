"""Bucket functions; the values of `default` and `hive` are also in the golden file."""

from __future__ import annotations

import decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from freshet.storage.codec.bucket_function import bucket_ids, check_bucket_function
from freshet.storage.exceptions import InvalidRequestError, UnsupportedFeatureError
from freshet.storage.model.arrow_types import arrow_type
from freshet.storage.model.data_type import parse_data_type


def column(values: list[Any], text: str) -> pa.Array[Any]:
    return pa.array(values, arrow_type(parse_data_type(text)))


# (type, value, bucket of 1000003, bucket of 7), made by Apache Paimon 2.0.0.
HIVE = [
    ("INT", 7, 7, 0),
    ("INT", -7, 477200, 2),
    ("BIGINT", 10000000000, 61180, 5),
    ("BIGINT", -1, 0, 0),
    ("STRING", "hello", 162025, 0),
    ("STRING", "é日本 and more text", 47000, 3),
    ("STRING", "", 0, 0),
    ("DOUBLE", -0.0, 0, 0),
    ("DOUBLE", 1.5, 214317, 6),
    ("DOUBLE", float("nan"), 952922, 0),
    ("FLOAT", 1.5, 544313, 6),
    ("FLOAT", -0.0, 0, 0),
    ("FLOAT", float("nan"), 282915, 0),
    ("BOOLEAN", True, 1, 1),
    ("TINYINT", -3, 477204, 6),
    ("SMALLINT", -300, 476907, 3),
    ("DATE", 19675, 19675, 5),
    ("TIME(3)", 3661123, 661114, 4),
    ("BYTES", bytes([1, 254, 3]), 902, 6),
    ("DECIMAL(18, 4)", "12.3400", 38256, 1),
    ("DECIMAL(38, 10)", "12.3400000000", 38256, 1),
    ("DECIMAL(18, 4)", "0.0000", 0, 0),
    ("DECIMAL(18, 4)", "-12.3400", 438955, 5),
    ("DECIMAL(38, 10)", "-12.3400000000", 438955, 5),
    ("DECIMAL(18, 4)", "100.0000", 3100, 6),
    ("DECIMAL(38, 10)", "100.0000000000", 3100, 6),
    ("DECIMAL(18, 4)", "99999999999999.0000", 304526, 6),
    ("DECIMAL(18, 4)", "-0.0001", 477180, 3),
    ("DECIMAL(38, 10)", "-0.0001000000", 477180, 3),
    ("DECIMAL(38, 10)", "-1234567890123456789012345678.0123456789", 578540, 6),
    ("DECIMAL(38, 10)", "1844674407370955161.6000000000", 29792, 0),
]


@pytest.mark.parametrize(("text", "value", "large", "small"), HIVE)
def test_hive_buckets(text: str, value: Any, large: int, small: int) -> None:
    if text.startswith("DECIMAL"):
        value = decimal.Context(prec=60).create_decimal(value)
    types = [parse_data_type(text)]
    array = column([None, value, value], text).slice(1)
    assert bucket_ids([array], types, 1000003, "hive").tolist() == [large, large]
    assert bucket_ids([array], types, 7, "hive").tolist() == [small, small]


def test_hive_buckets_of_several_columns_and_nulls() -> None:
    texts = ["INT", "STRING", "BYTES", "DECIMAL(10, 4)"]
    types = [parse_data_type(text) for text in texts]
    rows = [[7, "hello", b"\1\2\3", decimal.Decimal("12.3400")], [None] * 4]
    arrays = [column([row[i] for row in rows], text) for i, text in enumerate(texts)]
    assert bucket_ids(arrays, types, 1000003, "hive").tolist() == [987114, 0]
    pair = [column([None, "x"], "STRING"), column([None, None], "INT")]
    assert bucket_ids(pair, [types[1], types[0]], 1000003, "hive").tolist() == [0, 3720]
    assert bucket_ids(pair[::-1], types[:2], 1000003, "hive").tolist() == [0, 120]


def test_mod_buckets_are_never_negative() -> None:
    values = [17, -3, 5, -5, None]
    for text in ("INT", "BIGINT"):
        assert bucket_ids([column(values, text)], [parse_data_type(text)], 5, "mod").tolist() == [2, 2, 0, 0, 0]


def test_default_buckets_of_the_smallest_hash() -> None:
    # |hash % n| of the truncated remainder: the sign of the hash must not matter for the absolute value.
    types = [parse_data_type("INT")]
    ids = bucket_ids([pa.array(range(-5000, 5000), pa.int32())], types, 13)
    assert ids.min() == 0
    assert ids.max() == 12
    assert ids.dtype == np.int32
    assert bucket_ids([pa.array([5, 6], pa.int32())], types, 1).tolist() == [0, 0]


def test_keys_that_a_function_cannot_take_are_refused() -> None:
    with pytest.raises(InvalidRequestError, match="exactly one INT or BIGINT"):
        check_bucket_function("mod", [parse_data_type("STRING")])
    with pytest.raises(InvalidRequestError, match="exactly one INT or BIGINT"):
        bucket_ids([column([1], "INT")] * 2, [parse_data_type("INT")] * 2, 4, "mod")
    with pytest.raises(UnsupportedFeatureError, match="no hash for TIMESTAMP"):
        bucket_ids([column([1], "TIMESTAMP(3)")], [parse_data_type("TIMESTAMP(3)")], 4, "hive")
    with pytest.raises(InvalidRequestError, match="must be positive"):
        bucket_ids([column([1], "INT")], [parse_data_type("INT")], 0)


def test_more_rows_than_one_chunk() -> None:
    texts = [None if i % 5 == 0 else f"{'é' * (i % 4)}{i}" for i in range(40_000)]
    types = [parse_data_type("STRING"), parse_data_type("INT")]
    columns = [column(texts, "STRING"), column(list(range(40_000)), "INT")]
    whole = bucket_ids(columns, types, 11, "hive").tolist()
    pieces = [
        bucket_ids([part.slice(i, 97) for part in columns], types, 11, "hive").tolist() for i in range(0, 40_000, 97)
    ]
    assert whole == [bucket for piece in pieces for bucket in piece]
