"""The bucket that Spark's expressions name is the one of the format's vectors and of storage's own hash."""

from __future__ import annotations

import datetime
import random
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from freshet.pipeline.decode.carriers import carry_array, restore_array
from freshet.pipeline.spark.arrow_bridge import spark_struct
from freshet.pipeline.spark.bucket_expression import (
    KeyColumn,
    body_column,
    bucket_column,
    is_native,
    task_column,
)
from freshet.storage.codec.binary_row import encode_row
from freshet.storage.codec.bucket_function import BucketFunctionType, bucket_ids
from freshet.storage.model.arrow_types import arrow_type
from freshet.storage.model.data_type import DataField, DataType, parse_data_type
from tests.kit.quick import some_now

pytestmark = pytest.mark.spark

_UTC_2023 = datetime.datetime(2023, 11, 14, 22, 13, 20, 123456)

# values, types, hash of the body, bucket of 4, bucket of 10: the scalar rows of FORMAT.md §5.1
VECTORS: list[tuple[tuple[Any, ...], tuple[str, ...], int, int, int]] = [
    ((0,), ("INT NOT NULL",), -300363099, 3, 9),
    ((1,), ("INT",), 1465514398, 2, 8),
    ((1,), ("BIGINT NOT NULL",), 1465514398, 2, 8),
    ((True,), ("BOOLEAN",), 1465514398, 2, 8),
    ((-1,), ("INT",), 1133687267, 3, 7),
    ((42,), ("INT",), 907821237, 1, 7),
    ((None,), ("BIGINT",), -1748325344, 0, 4),
    ((None,), ("INT",), -1748325344, 0, 4),
    ((10000000000,), ("BIGINT",), 1891290426, 2, 6),
    ((-1,), ("BIGINT",), -821098432, 0, 2),
    (("",), ("STRING",), 302122119, 3, 9),
    (("a",), ("STRING",), 943281246, 2, 6),
    (("hello",), ("STRING NOT NULL",), 243722546, 2, 6),
    (("1234567",), ("STRING",), 199144172, 0, 2),
    (("12345678",), ("STRING NOT NULL",), -391021801, 1, 1),
    (("abcdefghijklmnopqrst",), ("VARCHAR(30)",), 352247557, 1, 7),
    (("é日本",), ("STRING",), 194022487, 3, 7),
    ((7, "abc"), ("INT", "STRING"), 1593333451, 3, 1),
    ((7, "0123456789"), ("BIGINT", "STRING"), 1201006568, 0, 8),
    (("a", None), ("STRING", "STRING"), -578290962, 2, 2),
    (
        (Decimal("12.34"), _UTC_2023, datetime.date(2023, 11, 14)),
        ("DECIMAL(10,2)", "TIMESTAMP(6)", "DATE"),
        703105751,
        3,
        1,
    ),
    ((_UTC_2023.replace(microsecond=123000),), ("TIMESTAMP(3)",), -1285420957, 1, 7),
    ((None,), ("TIMESTAMP(6)",), -340882661, 1, 1),
    ((None,), ("DECIMAL(38,10)",), -1380280760, 0, 0),
    ((Decimal("-1.5"),), ("DECIMAL(38,10)",), -1749182803, 3, 3),
    ((Decimal("0"),), ("DECIMAL(38,10)",), 728486185, 1, 5),
    ((-1,), ("TINYINT",), 2004758659, 3, 9),
    ((-2,), ("SMALLINT",), 557672611, 3, 1),
    ((1.5,), ("FLOAT",), -173842779, 3, 9),
    ((1.5,), ("DOUBLE",), 1860889473, 1, 3),
    ((datetime.date(2023, 11, 14),), ("DATE",), -1473682919, 3, 9),
    ((3661000,), ("TIME(3)",), 37753889, 1, 9),
    ((bytes([1, 2, 3]),), ("BYTES",), 1066645297, 1, 7),
    ((bytes(range(1, 10)),), ("BYTES",), -171399545, 1, 5),
    ((datetime.datetime(1969, 12, 31, 23, 59, 59, 999999),), ("TIMESTAMP(6)",), 1236894319, 3, 9),
]


def _named(types: list[DataType]) -> list[DataField]:
    return [DataField(place, f"c{place}", data_type) for place, data_type in enumerate(types)]


TYPES = list(dict.fromkeys(texts for _, texts, *_ in VECTORS))


@pytest.mark.parametrize("texts", some_now([(texts,) for texts in TYPES], stride=4), ids=", ".join)
def test_vectors_of_the_format(spark: SparkSession, texts: tuple[str, ...]) -> None:
    """All vectors of one key in one query: it is the expressions that take their time to build and to compile. Every
    type is met by `test_bodies_equal_the_row_encoder`, and the vectors by storage/codec/test_binary_row.py."""
    vectors = [vector for vector in VECTORS if vector[1] == texts]
    types = [parse_data_type(text) for text in texts]
    frame = spark.createDataFrame([values for values, *_ in vectors], spark_struct(_named(types)))
    keys = [KeyColumn(F.col(f"c{place}"), data_type) for place, data_type in enumerate(types)]
    columns = [bucket_column(keys, buckets, BucketFunctionType.DEFAULT) for buckets in (4, 10)]
    if all(is_native(data_type) for data_type in types):
        columns.append(F.hash(body_column(keys)))
    found = frame.coalesce(1).select(*columns).collect()
    expected = [(of_four, of_ten, hash_code) for _, _, hash_code, of_four, of_ten in vectors]
    assert [tuple(row) for row in found] == [each[: len(columns)] for each in expected]


NATIVE = [
    "BOOLEAN", "TINYINT", "SMALLINT", "INT", "BIGINT", "DATE", "TIME(3)", "STRING", "BYTES", "DECIMAL(9,2)",
    "DECIMAL(18,18)", "DECIMAL(18,0)", "TIMESTAMP(0)", "TIMESTAMP(3)", "TIMESTAMP(6)", "TIMESTAMP(9)",
    "TIMESTAMP(3) WITH LOCAL TIME ZONE", "TIMESTAMP(6) WITH LOCAL TIME ZONE", "TIMESTAMP(9) WITH LOCAL TIME ZONE",
]  # fmt: skip


def _random_values(data_type: DataType, count: int, seed: int) -> pa.Array:
    """Values of the type over its whole range, every seventh NULL; as storage holds them."""
    rng = random.Random(seed)
    arrow = arrow_type(data_type)
    if pa.types.is_boolean(arrow):
        values: list[Any] = [rng.random() < 0.5 for _ in range(count)]
    elif pa.types.is_integer(arrow):
        high = (1 << (arrow.bit_width - 1)) - 1
        values = [rng.choice([rng.randint(-high - 1, high), rng.randint(-3, 3), high]) for _ in range(count)]
    elif pa.types.is_decimal(arrow):
        high = 10**arrow.precision - 1
        values = [Decimal(rng.randint(-high, high)).scaleb(-arrow.scale) for _ in range(count)]
    elif pa.types.is_date32(arrow):
        values = [rng.randint(-700_000, 2_000_000) for _ in range(count)]
    elif pa.types.is_time32(arrow):
        values = [rng.randint(0, 86_399_999) for _ in range(count)]
    elif pa.types.is_timestamp(arrow):
        second = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[arrow.unit]
        values = [rng.randint(-9_000_000_000 * second, 9_000_000_000 * second) for _ in range(count)]
    else:
        texts = ["".join(rng.choices("aé日0\U0001f600", k=rng.choice([0, 1, 6, 7, 8, 9, 40]))) for _ in range(count)]
        values = [text.encode() for text in texts] if pa.types.is_binary(arrow) else list(texts)
    holed = [None if rng.random() < 1 / 7 else value for value in values]
    if pa.types.is_integer(arrow) or pa.types.is_decimal(arrow) or pa.types.is_boolean(arrow):
        return pa.array(holed, arrow)
    if pa.types.is_temporal(arrow):
        width = pa.int32() if pa.types.is_date32(arrow) or pa.types.is_time32(arrow) else pa.int64()
        return pa.array(holed, width).cast(arrow)
    return pa.array(holed, arrow)


@pytest.mark.few(3)
@pytest.mark.parametrize(
    ("composition", "zone"),
    [
        *(((text,), "UTC") for text in NATIVE),
        (tuple(NATIVE), "Europe/Berlin"),
        (("STRING", "TIMESTAMP(6)", "BYTES", "BIGINT"), "Europe/Berlin"),
    ],
)
def test_bodies_equal_the_row_encoder(spark: SparkSession, composition: tuple[str, ...], zone: str) -> None:
    """Random rows: Spark's body is byte for byte the one that storage writes into manifests."""
    types = [parse_data_type(text) for text in composition]
    arrays = [_random_values(data_type, 60, seed) for seed, data_type in enumerate(types)]
    carried = [carry_array(array, data_type) for array, data_type in zip(arrays, types, strict=True)]
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        table = pa.table(carried, names=[f"c{place}" for place in range(len(types))])
        frame = spark.createDataFrame(table, spark_struct(_named(types)))
        keys = [KeyColumn(F.col(f"c{place}"), data_type) for place, data_type in enumerate(types)]
        found = frame.select(
            body_column(keys).alias("body"), bucket_column(keys, 7, BucketFunctionType.DEFAULT).alias("bucket")
        ).toArrow()
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)
    expected = [encode_row(row, types)[4:] for row in zip(*[_python_values(array) for array in arrays], strict=True)]
    assert found["body"].to_pylist() == expected
    assert found["bucket"].to_pylist() == bucket_ids(arrays, types, 7).tolist()


def _python_values(array: pa.Array) -> list[Any]:
    if pa.types.is_timestamp(array.type):
        return array.cast(pa.int64()).to_pylist()
    if pa.types.is_date32(array.type) or pa.types.is_time32(array.type):
        return array.cast(pa.int32()).to_pylist()
    return array.to_pylist()


@pytest.mark.parametrize(
    ("text", "function"),
    [
        ("INT", BucketFunctionType.MOD),
        ("BIGINT", BucketFunctionType.MOD),
        ("STRING", BucketFunctionType.HIVE),
        ("BIGINT", BucketFunctionType.HIVE),
        ("DOUBLE", BucketFunctionType.DEFAULT),
        ("DECIMAL(30,5)", BucketFunctionType.DEFAULT),
    ],
)
def test_other_functions_and_types_equal_storage(spark: SparkSession, text: str, function: BucketFunctionType) -> None:
    data_type = parse_data_type(text)
    values = pa.array([1.5, -0.25, 0.0]) if text == "DOUBLE" else _random_values(data_type, 80, 5).drop_null()
    frame = spark.createDataFrame(pa.table([values], names=["c0"]))
    found = frame.select(bucket_column([KeyColumn(F.col("c0"), data_type)], 5, function).alias("b")).toArrow()
    assert found["b"].to_pylist() == bucket_ids([values], [data_type], 5, function).tolist()


def test_no_bucket_is_split_between_tasks(spark: SparkSession) -> None:
    """Three partitions (one of them NULL) of four buckets over five tasks: each pair meets exactly one task."""
    frame = spark.sql("select id, case id % 3 when 0 then 'a' when 1 then 'b' end as p from range(0, 3000, 1, 4)")
    bucket = bucket_column([KeyColumn(F.col("id"), parse_data_type("BIGINT"))], 4, BucketFunctionType.DEFAULT)
    routed = frame.withColumn("bucket", bucket)
    placed = routed.repartitionById(5, task_column([F.col("p")], F.col("bucket"), 5))
    rows = placed.select("p", "bucket", F.spark_partition_id()).distinct().collect()
    assert len(rows) == len({(row[0], row[1]) for row in rows}) == 12
    assert len({row[2] for row in rows}) >= 4


def test_restore_is_the_inverse_of_carry() -> None:
    types = [parse_data_type(text) for text in [*NATIVE, "DOUBLE"]]
    nested = parse_data_type(
        {"type": "ARRAY", "element": {"type": "MAP", "key": "STRING", "value": "TIMESTAMP(9)"}},
    )
    for data_type in types[:-1]:
        array = _random_values(data_type, 50, 3)
        assert restore_array(carry_array(array, data_type), data_type).equals(array)
    value = pa.array([[[("a", 5)]], None, [], [None, [("b", None), ("c", 7)]]], arrow_type(nested))
    assert carry_array(value, nested).type.value_type.item_type == pa.int64()
    assert restore_array(carry_array(value, nested), nested).equals(value)
    assert restore_array(carry_array(value[1:], nested), nested).equals(value[1:])


def test_finer_timestamps_are_rounded_down() -> None:
    before_1970 = pa.array([-1, 999, 1001], pa.int64()).cast(pa.timestamp("us"))
    millis = restore_array(before_1970, parse_data_type("TIMESTAMP(3)")).cast(pa.int64()).to_pylist()
    seconds = restore_array(before_1970, parse_data_type("TIMESTAMP(0)")).cast(pa.int64()).to_pylist()
    assert (millis, seconds) == ([-1, 0, 1], [-1, 0, 0])
