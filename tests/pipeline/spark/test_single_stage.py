"""Plans that lose their shuffle: one task has all rows, by one Python worker or two."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import orjson
import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the customary name
from pyspark.sql import types as spark_types

from freshet.pipeline.spark.arrow_batches import batch_settings
from freshet.pipeline.spark.arrow_bridge import KeptColumns
from freshet.pipeline.spark.packed_way import RESULT_STRUCT
from freshet.pipeline.spark.single_stage import SingleStage

pytestmark = pytest.mark.spark

_DECODED = spark_types.StructType(
    [spark_types.StructField("v", spark_types.LongType()), spark_types.StructField("worker", spark_types.LongType())]
)


def decoder(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        doubled = [2 * number for number in batch.column(0).to_pylist()]
        yield pa.RecordBatch.from_pydict({"v": doubled, "worker": [os.getpid()] * len(doubled)})


def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    rows = [row for batch in batches for row in batch.to_pylist()]
    context: Any = TaskContext.get()
    found = {
        "stage": context.stageId(),
        "pin": context.getLocalProperty("pin"),
        "values": sorted(row["v"] for row in rows),
        "is_alone": {row["worker"] for row in rows} == {os.getpid()},
    }
    yield pa.RecordBatch.from_pydict({"result": pa.array([orjson.dumps(found)], pa.binary())})


def frame(spark: SparkSession, *, shuffled: bool = True, computed: bool = False) -> DataFrame:
    decoded = KeptColumns([F.col("id")]).map_in_arrow(spark.range(0, 100, 1, 4), decoder, _DECODED)
    rows = decoded.withColumn("v", F.col("v") + 1) if computed else decoded
    distributed = rows.repartitionById(2, (F.col("v") / 2 % 2).cast("int")) if shuffled else rows
    return KeptColumns([F.col("v"), F.col("worker")]).map_in_arrow(distributed, task, RESULT_STRUCT)


def results(plan: Any) -> list[dict[str, Any]]:
    return [orjson.loads(bytes(row.getBinary(0))) for row in plan.executeCollect()]


def plan_of(frame: DataFrame) -> Any:
    classic: Any = frame
    return classic._jdf.queryExecution().executedPlan()


@pytest.mark.few(2)
@pytest.mark.parametrize("shuffled", [True, False])
@pytest.mark.parametrize("is_whole", [True, False])
def test_one_task_has_all_rows(spark: SparkSession, shuffled: bool, is_whole: bool) -> None:
    stage = SingleStage(spark.sparkContext, task, decoder if is_whole else None, RESULT_STRUCT)
    with batch_settings(spark):
        plan = plan_of(frame(spark, shuffled=shuffled))
        assert len(results(plan)) == (2 if shuffled else 4)
        found = []
        for pin in ("a", "b"):
            spark.sparkContext.setLocalProperty("pin", pin)
            found += results(stage.of(plan))
    assert [each["values"] for each in found] == [list(range(0, 200, 2))] * 2, "anew each time"
    assert [each["pin"] for each in found] == ["a", "b"]
    assert [each["is_alone"] for each in found] == [is_whole] * 2
    assert found[1]["stage"] == found[0]["stage"] + 1, "one stage each"


def test_columns_that_are_computed_in_between(spark: SparkSession) -> None:
    stage = SingleStage(spark.sparkContext, task, None, RESULT_STRUCT)
    with batch_settings(spark):
        (found,) = results(stage.of(plan_of(frame(spark, computed=True))))
    assert found["values"] == list(range(1, 200, 2))


def test_other_plans_are_left_alone(spark: SparkSession) -> None:
    stage = SingleStage(spark.sparkContext, task, decoder, RESULT_STRUCT)
    with batch_settings(spark):
        assert stage.of(plan_of(spark.range(3))) is None
        assert stage.of(plan_of(frame(spark, computed=True))) is None, "the decoder is not next to the task"
