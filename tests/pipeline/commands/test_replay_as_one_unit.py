"""dead-letters --replay into one table: nothing is lost and nothing doubled, whatever dies and whoever is beside it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from freshet import Catalog, ChangeType
from freshet.pipeline.commands.replayed import remove_replayed
from freshet.pipeline.commands.replaying import Replay, plan_replay, run_replay
from freshet.pipeline.config.pipeline_file import PipelineConfig, load_pipeline
from freshet.pipeline.exceptions import InvalidRequestError
from freshet.pipeline.query.driver.batch_report import BatchReport
from freshet.pipeline.query.driver.dead_letters import open_dead_letters
from freshet.pipeline.query.driver.table_setup import open_or_create
from freshet.storage.commit.committer import Committer
from tests.kit.engine import local_jobs
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
BAD = b'{"n": 3000000000}'


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

    def replay(self, *, everything: bool = False) -> BatchReport | None:
        plan = self.plan(everything=everything)
        return None if plan is None else run_replay(local_jobs(), self.config, plan)

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


@pytest.mark.few(1)
@pytest.mark.parametrize(("number", "is_behind"), some_now(DEATHS, 2))
def test_a_replay_that_dies_loses_and_doubles_nothing(world: World, number: int, is_behind: bool) -> None:
    """Also where the calls after it die, at whichever of their commits, and the pipeline writes in between."""
    world.add(1, BAD, 2)
    world.add(7, pipeline="other")
    assert dies((number, is_behind), lambda: world.replay())
    for again in ((1, True), (1, False), (2, True), (2, False)):
        dies(again, world.plan)  # what an earlier replay has left is done before anything is read
        world.add(10 + again[0] * 2 + again[1])
        with world.table.writer(NAME) as writer:
            writer.write({"n": [20]})
            writer.commit()
    for _ in range(2):
        world.replay()
    assert world.rows == [0, 1, 2, 12, 13, 14, 15, 20, 20, 20, 20]
    assert world.letters == {(NAME, BAD): 1, ("other", b'{"n": 7}'): 1}


def beside(calls: int, act: Callable[[], Any]) -> pytest.MonkeyPatch:
    """Something happens right before the n-th commit from now on, once; undo the patch when it is over."""
    patch, commit, left = pytest.MonkeyPatch(), Committer.commit, [calls]

    def late(*arguments: Any, **named: Any) -> Any:
        left[0] -= 1
        if left[0] == 0:
            act()
        return commit(*arguments, **named)

    patch.setattr(Committer, "commit", late)
    return patch


@pytest.mark.parametrize("is_mended", [False, True], ids=["same-file", "other-file"])
@pytest.mark.parametrize(("number", "error"), some_now([(1, "began"), (2, "taken over"), (3, None)], 3, first=1))
def test_two_replays_at_the_same_time(world: World, number: int, error: str | None, is_mended: bool) -> None:
    """One runs from end to end while the other is about to make one of its commits; and a letter comes between."""
    world.add(1, BAD, 2)

    def other() -> None:
        if is_mended:  # a letter that failed before is a row for this one
            world.table.alter(ChangeType("n", "BIGINT NOT NULL"))
            world.say("INT NOT NULL", "BIGINT NOT NULL")
        world.add(3)
        world.replay()

    patch = beside(number, other)
    try:
        if error is None:
            world.replay()
        else:
            with pytest.raises(InvalidRequestError, match=error):
                world.replay()
    finally:
        patch.undo()
    world.replay()
    assert world.rows == ([0, 1, 2, 3, 3_000_000_000] if is_mended else [0, 1, 2, 3])
    assert world.letters == ({} if is_mended else {(NAME, BAD): 1})


def test_what_an_earlier_version_left_is_ended(world: World) -> None:
    """Its letters that failed again were committed, its rows were not."""
    world.add(1, BAD)
    snapshot = world.dead.latest_snapshot()
    assert snapshot is not None
    with closing(world.dead.engine.task_writer(base_snapshot_id=None)) as writer:
        writer.write(world.dead.scan().to_arrow().filter(pc.equal(pc.field("raw_value"), BAD)))
        messages = writer.prepare_commit()
    world.dead.engine.committer(f"{NAME}-replay", "freshet-replay").commit(snapshot.id, messages)
    world.add(2)
    assert world.letters[NAME, BAD] == 2
    for _ in range(2):
        world.replay()
    assert (world.rows, world.letters) == ([0, 1, 2], {(NAME, BAD): 1})


def test_replays_of_two_pipelines_of_one_table_of_dead_letters(world: World) -> None:
    """One removes its letters between the letters and the rows of the other."""
    world.add(5, pipeline="other")
    world.add(1, BAD)
    patch = beside(2, lambda: remove_replayed(world.dead, 2, "other"))
    try:
        world.replay()
    finally:
        patch.undo()
    world.replay()
    assert (world.rows, world.letters) == ([0, 1], {(NAME, BAD): 1})


def test_an_interrupted_replay_whose_files_were_compacted_is_refused(world: World) -> None:
    world.add(1, BAD)
    assert dies((2, False), lambda: world.replay())
    world.add(2)
    world.dead.compact(full=True)
    with pytest.raises(InvalidRequestError, match="stored a second time cannot be distinguished.*--all"):
        world.plan()
    report = world.replay(everything=True)
    assert report is not None and (report.read_count, report.result.applied) == (4, 2)
    assert world.rows == [0, 1, 2]
    assert world.replay() is not None and world.rows == [0, 1, 2]


def test_all_takes_back_what_was_interrupted_and_takes_again_what_was_applied(world: World) -> None:
    world.add(1, BAD)
    assert dies((2, False), lambda: world.replay())
    report = world.replay(everything=True)
    assert report is not None and report.read_count == 2
    assert (world.rows, world.letters) == ([0, 1], {(NAME, BAD): 1})
    world.add(2)
    assert dies((3, False), lambda: world.replay())
    report = world.replay(everything=True)
    assert report is not None and report.result.applied == 1 and world.rows == [0, 1, 2, 2]


def test_a_table_of_dead_letters_that_was_made_again(world: World) -> None:
    """Its snapshots are numbered anew, below the numbers that the table of rows knows."""
    for value in (1, 2):
        world.add(value, BAD)
        world.replay()
    catalog = Catalog(world.folder / "w")
    catalog.drop_table(world.config.dead_letter_table)
    world.dead = open_dead_letters(catalog, world.config.dead_letter_table)
    world.add(3)
    world.replay()
    assert (world.rows, world.letters) == ([0, 1, 2, 3], {})
