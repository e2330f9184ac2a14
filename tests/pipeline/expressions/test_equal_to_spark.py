"""Translated expressions give what Spark gives, value by value, and fail where it fails: the judge is Spark itself."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the customary name
from pyspark.sql.types import StructField, StructType

from freshet.pipeline.expressions import evaluation
from freshet.pipeline.expressions.evaluation import ExpressionSql, ExpressionValues, evaluate
from freshet.pipeline.expressions.grammar import parse
from freshet.pipeline.expressions.translator import Translator
from freshet.pipeline.expressions.values import STRING, Value
from freshet.pipeline.sources.select.expression import tried
from freshet.pipeline.spark.arrow_bridge import spark_type
from tests.pipeline.expressions.spark_texts import COLUMNS, many_texts, rows, small_texts, translated

pytestmark = pytest.mark.spark

_AT_ONCE = 40


@pytest.fixture(scope="module")
def frame(spark: SparkSession) -> Iterator[DataFrame]:
    settings = {
        "spark.sql.caseSensitive": "true",
        "spark.sql.ansi.enabled": "true",
        # What two expressions have in common would be computed outside of what catches its failure.
        "spark.sql.subexpressionElimination.enabled": "false",
    }
    before = {key: spark.conf.get(key) for key in settings}
    for key, value in settings.items():
        spark.conf.set(key, value)
    yield frame_of(spark)
    for key, value in before.items():
        spark.conf.set(key, value or "")


def frame_of(spark: SparkSession) -> DataFrame:
    schema = StructType([StructField(name, spark_type(kind)) for name, (kind, _, _) in COLUMNS.items()])
    return spark.createDataFrame(rows(), schema).coalesce(1).cache()


def ours(values: Sequence[Value]) -> list[ExpressionValues]:
    table = rows()
    columns = {index: table.column(name).combine_chunks() for index, name in enumerate(table.column_names)}
    with patch.object(evaluation, "_computed", evaluation._at_once):  # nothing throws
        return evaluate(columns, table.num_rows, [ExpressionSql(each.sql, each.fails) for each in values])


def exact(values: Any, failed: Any = None) -> list[Any]:
    """Values with all that tells them from others (the sign of zero, the digits of a decimal), times as numbers."""
    if pa.types.is_timestamp(values.type):
        values = values.view(pa.int64()) if isinstance(values, pa.Array) else values.cast(pa.int64())
    elif pa.types.is_date(values.type):
        values = values.cast(pa.int32())
    found = list(map(repr, values.to_pylist()))
    return found if failed is None else ["fails" if bad else each for bad, each in zip(failed, found, strict=True)]


def differences(frame: DataFrame, texts: Sequence[str]) -> list[str]:
    claimed = {text: value for text in texts if (value := translated(text)) is not None}
    pairs = list(claimed.items())
    found = []
    for start in range(0, len(pairs), _AT_ONCE):
        part = pairs[start : start + _AT_ONCE]
        columns = [tried(F.struct(F.expr(text).alias("v"))).alias(f"e{n}") for n, (text, _) in enumerate(part)]
        answered = frame.select(*columns)
        kinds = [answered.schema[f"e{n}"].dataType["v"].dataType for n in range(len(part))]  # type: ignore[index]
        table = answered.toArrow()
        for n, ((text, value), mine) in enumerate(zip(part, ours([value for _, value in part]), strict=True)):
            kind = kinds[n].simpleString()
            if value.type is not None and kind != spark_type(value.type).simpleString():
                found.append(f"{text}: Spark gives {kind}, ours {value.type}")
                continue
            structs = table.column(n).combine_chunks()
            theirs = exact(structs.field("v"), ~structs.is_valid().to_numpy(zero_copy_only=False))
            own = exact(mine.values, mine.failed)
            if theirs != own:
                row = next(row for row, (one, other) in enumerate(zip(theirs, own, strict=True)) if one != other)
                found.append(f"{text} of {read_at(text, row)}: Spark gives {theirs[row]}, ours {own[row]}")
    return found


def read_at(text: str, row: int) -> dict[str, Any]:
    """What an expression reads in a row."""
    names = [name for (name,) in sorted(parse(text).references)]
    return rows().select(names).slice(row, 1).to_pylist()[0] if names else {}


@pytest.mark.parametrize("step", [5, pytest.param(1, marks=pytest.mark.slow)], ids=["some", "all"])
def test_expressions_of_every_kind_are_equal(frame: DataFrame, step: int) -> None:
    assert differences(frame, small_texts()[::step]) == []


@pytest.mark.slow
def test_every_operator_and_cast_over_all_pairs_of_types_is_equal_or_not_claimed(frame: DataFrame) -> None:
    assert differences(frame, list(many_texts())) == []


@pytest.mark.slow
def test_the_case_of_every_letter_is_the_same(spark: SparkSession) -> None:
    letters = [chr(code) for code in range(0x110000) if not 0xD800 <= code < 0xE000]
    table = pa.table({"s": [*letters, "ΑΣ", "Σ", "ΣΑ", "ΑΣ.", "ΑΣ Σ", "Α\u0301Σ"]})
    texts = ("upper(s)", "lower(s)")
    answered = spark.createDataFrame(table).coalesce(1).select(*[F.expr(text) for text in texts]).toArrow()
    known = {("s",): Value("c0", STRING)}
    found = evaluate(
        {0: table.column("s").combine_chunks()},
        table.num_rows,
        [ExpressionSql(Translator(known).value(parse(text).tree).sql) for text in texts],
    )
    for theirs, mine in zip(answered.columns, found, strict=True):
        differing = pc.filter(table.column("s"), pc.not_equal(theirs, mine.values))
        assert differing.to_pylist() == []
