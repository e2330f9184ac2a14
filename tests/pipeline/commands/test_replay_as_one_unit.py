"""dead-letters --replay into one table: nothing is lost and nothing doubled, whatever dies and whoever is beside it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from freshet import Catalog
from freshet.pipeline.batch.batch_report import BatchReport
from freshet.pipeline.batch.dead_letters import open_dead_letters
from freshet.pipeline.batch.table_setup import open_or_create
from freshet.pipeline.commands.replaying import Replay, plan_replay, run_replay
from freshet.pipeline.config.pipeline_file import PipelineConfig, load_pipeline
from freshet.pipeline.exceptions import InvalidRequestError
from freshet.storage.commit.committer import Committer
from tests.kit.quick import some_now

TEXT = """\
name: "it's $1"
sources:
  - kafka: {kafka.bootstrap.servers: "h:1", subscribe: t}
    format: json
table:
  warehouse: "FOLDER/w"
  name: shop.log
  columns: {n: INT NOT NULL}
  options: {bucket: "-1"}
checkpoint: "FOLDER/c"
"""
NAME = "it's $1"
BAD = b'{"n": "x"}'


class World:
    """A pipeline of an append table, and its dead letters."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.say()
        self.table = open_or_create(self.config)
        self.dead = open_dead_letters(Catalog(folder / "w"), self.config.dead_letter_table)
        with self.table.writer(NAME) as writer:
            writer.write({"n": [0]})
            writer.commit(0)

    def say(self, old: str = "", new: str = "") -> None:
        (self.folder / "p.yaml").write_text(TEXT.replace("FOLDER", str(self.folder)).replace(old, new))

    @property
    def config(self) -> PipelineConfig:
        return load_pipeline(self.folder / "p.yaml", {})

    def add(self, *values: bytes | int, pipeline: str = NAME) -> None:
        """Dead letters with these values: a number is a letter that its table can take by now."""
        rows = [
            {
                "pipeline": pipeline, "topic": "t", "kafka_partition": 0, "log_offset": offset,
                "record_time": datetime(2026, 1, 1, tzinfo=UTC), "reason": "bad", "column_name": None, "raw_key": None,
                "raw_value": value if isinstance(value, bytes) else json.dumps({"n": value}).encode(),
                "micro_batch_id": 1,
            }
            for offset, value in enumerate(values)
        ]  # fmt: skip
        with self.dead.writer(pipeline) as writer:
            writer.write(pa.Table.from_pylist(rows, self.dead.arrow_schema))
            writer.commit()

    def plan(self, *, everything: bool = False) -> Replay | None:
        return plan_replay(self.config, everything=everything)

    def replay(self, spark: SparkSession, *, everything: bool = False) -> BatchReport | None:
        plan = self.plan(everything=everything)
        return None if plan is None else run_replay(spark, self.config, plan)

    @property
    def rows(self) -> list[int]:
        return sorted(Catalog(self.folder / "w").table("shop.log").scan().to_arrow()["n"].to_pylist())

    @property
    def letters(self) -> Counter[tuple[str, bytes]]:
        return Counter((row["pipeline"], row["raw_value"]) for row in self.dead.scan().to_arrow().to_pylist())


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


class _Death:
    """Lets the process die before its n-th commit, or right behind it; `at` are n and which of the two."""

    def __init__(self, at: tuple[int, bool], patch: pytest.MonkeyPatch) -> None:
        self.left, self._is_behind = at
        patch.setattr(Committer, "commit", self._dying(Committer.commit))

    def _dying(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def instead(*arguments: Any, **named: Any) -> Any:
            self.left -= 1
            result = None if self.left == 0 and not self._is_behind else call(*arguments, **named)
            if self.left == 0:
                raise OSError("the process dies")
            return result

        return instead


def dies(at: tuple[int, bool], call: Callable[[], Any]) -> bool:
    """Whether the call came to the commit where it dies."""
    with pytest.MonkeyPatch.context() as patch:
        death = _Death(at, patch)
        try:
            call()
        except OSError:
            return True
        assert death.left > 0
        return False


DEATHS = [(1, True), (1, False), (2, True), (2, False), (3, True), (3, False)]


@pytest.mark.spark
@pytest.mark.parametrize(("number", "is_behind"), some_now(DEATHS, 2))
def test_a_replay_that_dies_loses_and_doubles_nothing(
    world: World, spark: SparkSession, number: int, is_behind: bool
) -> None:
    """Also where the calls after it die, at whichever of their commits, and the pipeline writes in between."""
    world.add(1, BAD, 2)
    world.add(7, pipeline="other")
    assert dies((number, is_behind), lambda: world.replay(spark))
    for again in ((1, True), (1, False), (2, True), (2, False)):
        dies(again, world.plan)  # what an earlier replay has left is done before anything is read
        world.add(10 + again[0] * 2 + again[1])
        with world.table.writer(NAME) as writer:
            writer.write({"n": [20]})
            writer.commit()
    for _ in range(2):
        world.replay(spark)
    assert world.rows == [0, 1, 2, 12, 13, 14, 15, 20, 20, 20, 20]
    assert world.letters == {(NAME, BAD): 1, ("other", b'{"n": 7}'): 1}
