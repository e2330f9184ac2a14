"""The Spark types that carry the table's columns; the drawing is in `freshet.pipeline.decode.carriers`.

`select` and `mapInArrow` for the same columns in every micro-batch, with few calls to the JVM and without pandas.

Spark's own methods hand a list of columns over one by one (three calls per column, 0.2 ms each), and `mapInArrow` asks
for pandas, which it does not use, and looks every column up by name first. For a small batch of a wide table that is
most of what the driver does. Here the list is handed over once and kept in the JVM. This is the one place that touches
what PySpark keeps to itself (`_jdf`, `_judf`, `_to_seq`); the version of PySpark is pinned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import types as spark
from pyspark.sql.classic.column import _to_java_column, _to_seq
from pyspark.sql.udf import UserDefinedFunction
from pyspark.util import PythonEvalType

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

ArrowFunction = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


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


def schema_text(frame: DataFrame) -> str:
    """The frame's schema as text, without reading it into Python: equal texts, equal schemas."""
    classic: Any = frame
    return str(classic._jdf.schema().json())


def arrow_udf(function: ArrowFunction, result: spark.StructType) -> Any:
    """The function as Spark takes it for `mapInArrow`."""
    return UserDefinedFunction(
        function, returnType=result, name="bucket_task", evalType=PythonEvalType.SQL_MAP_ARROW_ITER_UDF
    )


class KeptColumns:
    """Columns that live in the JVM as one list, made when first used; they belong to no frame."""

    def __init__(self, columns: Sequence[Column]) -> None:
        self._columns = tuple(columns)
        self._kept: Any = None

    def __len__(self) -> int:
        return len(self._columns)

    def select(self, frame: DataFrame) -> DataFrame:
        """These columns of the frame."""
        classic: Any = frame
        return DataFrame(classic._jdf.select(self._list(frame)), frame.sparkSession)

    def map_in_arrow(self, frame: DataFrame, function: ArrowFunction, result: spark.StructType) -> DataFrame:
        """Each Spark partition of the frame through `function`; these must be all of the frame's columns, in order."""
        call = arrow_udf(function, result)._judf.apply(self._list(frame))
        classic: Any = frame
        return DataFrame(classic._jdf.mapInArrow(call, False, None), frame.sparkSession)

    def _list(self, frame: DataFrame) -> Any:
        if self._kept is None:
            self._kept = _to_seq(frame.sparkSession.sparkContext, self._columns, _to_java_column)
        return self._kept
