"""Filter texts mean what Spark means by them: the judge is Spark's own evaluation of the same text."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as spark_functions

from freshet.storage.filters.filter_text import parse_filter
from tests.kit.filter_texts import COLUMNS, SCHEMA, Condition, conditions

pytestmark = pytest.mark.spark

_SPARK_SCHEMA = (
    "row INT, y TINYINT, i INT, l BIGINT, d DECIMAL(10,2), w DECIMAL(30,20), f FLOAT, g DOUBLE, s STRING, t BOOLEAN, "
    "x BINARY, day DATE, n TIMESTAMP_NTZ, z TIMESTAMP"
)

# An integer column compared with a number beyond BIGINT is FALSE or TRUE in Spark 4.2 even for NULL, against SQL.
_CONDITIONS = conditions().filter(lambda condition: str(2**63) not in condition.text)


def _rows() -> list[dict[str, Any]]:
    """Every value of every column, and NULL."""
    count = 1 + max(len(values) for _, values in COLUMNS.values())
    return [
        {name: [None, *values][number % (len(values) + 1)] for name, (_, values) in COLUMNS.items()}
        for number in range(count)
    ]


@pytest.fixture(scope="module")
def frame(spark: SparkSession) -> DataFrame:
    """The rows in Spark, in one partition."""
    rows = [(number, *row.values()) for number, row in enumerate(_rows())]
    return spark.createDataFrame(rows, _SPARK_SCHEMA).coalesce(1).cache()


@pytest.mark.parametrize("count", [3, pytest.param(12, marks=pytest.mark.slow)], ids=["few", "many"])
def test_texts_mean_what_spark_means(frame: DataFrame, count: int) -> None:
    # Not shrunk: each step would be a query of seconds, and a failure names the one text that differs.
    @settings(max_examples=count, deadline=None, phases=[Phase.explicit, Phase.generate])
    @given(several=st.lists(_CONDITIONS, min_size=25, max_size=60))
    def run(several: list[Condition]) -> None:
        compare(frame, several)

    run()


def compare(frame: DataFrame, several: list[Condition]) -> None:
    """All conditions at once, in one query of Spark's."""
    answered = frame.orderBy("row").select(
        *[spark_functions.expr(condition.text).alias(f"c{n}") for n, condition in enumerate(several)]
    )
    found = list(zip(*answered.collect(), strict=True))
    table = pa.Table.from_pylist(_rows(), SCHEMA).append_column("row", pa.array(range(len(_rows()))))
    for condition, in_spark in zip(several, found, strict=True):
        expression = parse_filter(condition.text).bind(SCHEMA).to_arrow()
        true, false = (set(table.filter(kept)["row"].to_pylist()) for kept in (expression, ~expression))
        ours = tuple(True if n in true else False if n in false else None for n in range(table.num_rows))
        assert ours == in_spark, condition.text
