"""A pipeline that follows a table, on the local engine and on Spark by turns: one checkpoint, each change once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from freshet.pipeline.exceptions import PipelineFailedError
from freshet.pipeline.query.driver.table_commit import TableCommit
from freshet.pipeline.running.spark_pipeline import spark_runner
from tests.pipeline.local.followed import Followed

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def run(there: Followed, engine: str, spark: SparkSession) -> None:
    if engine == "spark":
        spark_runner(spark, [there.config], on_progress=lambda progress: None).run()
    else:
        there.run()


@pytest.mark.parametrize("limit", ["", ", maxRowsPerTrigger: 1"])
def test_engines_take_turns_and_leave_the_same_offsets(spark: SparkSession, tmp_path: Path, limit: str) -> None:
    """`turns` changes engines, `spark` does not; both follow the same table, at the same times."""
    select = 'select: {p: p, k: k, v: "concat(v, cast(k + 1 as string))"}'
    turns = Followed(tmp_path, stream=limit, select=select, options="bucket: 3")
    (tmp_path / "other").mkdir()
    always = Followed.like(turns, tmp_path / "other")
    for number, engine in enumerate(["spark", "local", "spark", "local"]):
        turns.put(*(("+U" if number else "+I", k % 3, k, f"{number}") for k in range(20)), ("-D", 0, 3 * number, ""))
        turns.put(("+I", 1, 100 + number, "new"))
        run(turns, engine, spark)
        run(always, "spark", spark)
        wanted = [{**row, "v": f"{row['v']}{row['k'] + 1}"} for row in turns.rows("db.source")]
        assert turns.rows() == wanted
        assert always.rows() == wanted
    assert turns.offsets() == always.offsets()


def test_a_batch_that_one_engine_has_planned_is_run_by_the_other(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = Followed(tmp_path, options="bucket: 3")
    for number, engine in enumerate(["spark", "local"]):
        there.put(*(("+I", k % 3, 10 * number + k, "a") for k in range(5)))
        with monkeypatch.context() as patched:
            patched.setattr(TableCommit, "commit", _dying)
            with pytest.raises((OSError, PipelineFailedError), match="the driver dies here"):
                run(there, engine, spark)
        offsets = there.offsets()
        there.put(("+I", 0, 100 + number, "it is of the batch that comes next"))
        run(there, "local" if engine == "spark" else "spark", spark)
        assert there.offsets()[2 * number] == offsets[2 * number] and len(there.offsets()) == 2 * number + 2
        assert there.rows() == there.rows("db.source")


def _dying(*arguments: Any, **named: Any) -> Any:
    raise OSError("the driver dies here")
