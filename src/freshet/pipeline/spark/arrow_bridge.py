"""The Spark types that carry the table's columns; the drawing is in `freshet.pipeline.decode.carriers`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pyspark.sql import types as spark

from freshet.pipeline.decode.carriers import is_nanos
from freshet.storage.model.data_type import ArrayType, DataField, DataType, MapType, RowType, ScalarType, TypeRoot

_SIMPLE: Final[dict[TypeRoot, spark.DataType]] = {
    TypeRoot.BOOLEAN: spark.BooleanType(),
    TypeRoot.TINYINT: spark.ByteType(),
    TypeRoot.SMALLINT: spark.ShortType(),
    TypeRoot.INT: spark.IntegerType(),
    TypeRoot.BIGINT: spark.LongType(),
    TypeRoot.FLOAT: spark.FloatType(),
    TypeRoot.DOUBLE: spark.DoubleType(),
    TypeRoot.CHAR: spark.StringType(),
    TypeRoot.VARCHAR: spark.StringType(),
    TypeRoot.BINARY: spark.BinaryType(),
    TypeRoot.VARBINARY: spark.BinaryType(),
    TypeRoot.DATE: spark.DateType(),
    TypeRoot.TIME: spark.LongType(),
}


def spark_type(data_type: DataType) -> spark.DataType:
    """The type that carries a column through Spark."""
    match data_type:
        case ArrayType(element=element):
            return spark.ArrayType(spark_type(element), element.nullable)
        case MapType(key=key, value=value):
            return spark.MapType(spark_type(key), spark_type(value), value.nullable)
        case RowType(fields=fields):
            return spark_struct(fields)
        case ScalarType(root=TypeRoot.DECIMAL):
            return spark.DecimalType(data_type.precision or 10, data_type.scale or 0)
        case ScalarType() if is_nanos(data_type):
            return spark.LongType()
        case ScalarType(root=TypeRoot.TIMESTAMP):
            return spark.TimestampNTZType()
        case ScalarType(root=TypeRoot.TIMESTAMP_LTZ):
            return spark.TimestampType()
        case ScalarType(root=root):
            return _SIMPLE[root]


def spark_struct(fields: Sequence[DataField]) -> spark.StructType:
    """The carriers of several columns, names and nullability kept."""
    return spark.StructType([spark.StructField(f.name, spark_type(f.type), f.type.nullable) for f in fields])
