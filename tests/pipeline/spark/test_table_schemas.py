"""The columns of a table as Spark says them."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import types as spark

from freshet import Catalog, InvalidRequestError

TYPES = {
    "a_b": (spark.BooleanType(), "BOOLEAN"),
    "i8": (spark.ByteType(), "TINYINT"),
    "i16": (spark.ShortType(), "SMALLINT"),
    "i32": (spark.IntegerType(), "INT"),
    "i64": (spark.LongType(), "BIGINT"),
    "f": (spark.FloatType(), "FLOAT"),
    "d": (spark.DoubleType(), "DOUBLE"),
    "dec": (spark.DecimalType(14, 4), "DECIMAL(14, 4)"),
    "s": (spark.StringType(), "STRING"),
    "v": (spark.VarcharType(5), "VARCHAR(5)"),
    "c": (spark.CharType(5), "CHAR(5)"),
    "b": (spark.BinaryType(), "BYTES"),
    "day": (spark.DateType(), "DATE"),
    "at": (spark.TimestampType(), "TIMESTAMP(6) WITH LOCAL TIME ZONE"),
    "wall": (spark.TimestampNTZType(), "TIMESTAMP(6)"),
    "list": (spark.ArrayType(spark.LongType(), False), "ARRAY<BIGINT NOT NULL>"),
    "map": (spark.MapType(spark.StringType(), spark.ShortType()), "MAP<STRING NOT NULL, SMALLINT>"),
    "row": (
        spark.StructType().add("x y", spark.IntegerType(), False).add("z", spark.ArrayType(spark.ByteType())),
        "ROW<x y INT NOT NULL, z ARRAY<TINYINT>>",
    ),
}


def test_a_struct_type_says_what_the_columns_are(tmp_path: Path) -> None:
    schema = spark.StructType([spark.StructField(name, each) for name, (each, _) in TYPES.items()])

    created = Catalog(tmp_path).create_table(
        "db.t", schema=schema.add("id", spark.LongType(), False), primary_keys=["id"], options={"bucket": "1"}
    )

    found = {field.name: str(field.type) for field in created.schema.fields}
    assert found == {name: text for name, (_, text) in TYPES.items()} | {"id": "BIGINT NOT NULL"}


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        (spark.StructType().add("x", spark.DayTimeIntervalType()), "column 'x'.*interval"),
        (spark.LongType(), "schema is a pyarrow schema, a frame, a StructType"),
        (spark.StructField("x", spark.LongType()), "schema is a pyarrow schema, a frame, a StructType"),
    ],
)
def test_what_no_table_holds_is_refused(tmp_path: Path, schema: object, message: str) -> None:
    with pytest.raises(InvalidRequestError, match=message):
        Catalog(tmp_path).create_table("db.t", schema=schema)
