"""Pipelines into one table with dynamic buckets: two at the same time, and one whose checkpoint is restored.

The files name no number of buckets, so the table has dynamic ones. The column `n` counts the records of a key: a
record that is lost or applied twice shows.
"""

from __future__ import annotations

import json
import shutil
import threading
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from freshet import AddColumn, SetOption
from freshet.pipeline.config.pipeline_file import load_pipelines
from freshet.pipeline.query.driver.table_commit import TableCommit
from freshet.pipeline.running.engine_pipeline import PipelineEngine
from freshet.pipeline.running.progress import PipelineState
from freshet.pipeline.running.restarts import RestartRule
from freshet.pipeline.running.runner import Runner
from freshet.storage.catalog import Catalog
from freshet.storage.exceptions import OutdatedAssignmentError, RetryableError
from freshet.storage.place_index.index_database import KeyShare
from freshet.storage.place_index.share_index import ShareIndex
from freshet.storage.table import Table
from tests.pipeline.query.task.test_assigner_task import counts

PIPELINE = """
name: NAME
sources:
  - files: {path: "FOLDER/NAME", maxFilesPerTrigger: 1}
    format: json
table:
  warehouse: "FOLDER/w"
  name: s.t
  columns: {id: BIGINT, n: BIGINT}
  primary_key: [id]
  options:
    dynamic-bucket.target-row-num: 20
    merge-engine: aggregation
    fields.n.aggregate-function: sum
trigger: {available_now: true}
checkpoint: "FOLDER/c-NAME"
"""


MOVING = (
    PIPELINE.replace("{id: BIGINT, n: BIGINT}", "{id: BIGINT, p: STRING NOT NULL, n: BIGINT}")
    .replace("primary_key: [id]", "primary_key: [id]\n  partition_by: [p]")
    .replace("options:", 'options:\n    cross-partition-upsert.index-dir: "FOLDER/index"')
)
"""The same, where a key may be in any partition."""


class Folder:
    """Pipelines that read the files of folders of their names."""

    pipeline = PIPELINE

    def __init__(self, engine: PipelineEngine, path: Path) -> None:
        self.path = path
        self.states: list[PipelineState] = []
        self.expected: Counter[int] = Counter()
        self._engine = engine

    def add(self, name: str, number: int, ids: Iterable[int]) -> None:
        listed = list(ids)
        self.expected.update(listed)
        folder = self.path / name
        folder.mkdir(exist_ok=True)
        rows = ({"id": each, "n": 1} | self.partition(each, number) for each in listed)
        (folder / f"{number}.json").write_text("".join(json.dumps(row) + "\n" for row in rows))

    def partition(self, _key: int, _number: int) -> dict[str, str]:
        """The partition that a record names, where there are any."""
        return {}

    def run(self, names: str) -> None:
        paths = []
        for name in names:
            paths.append(self.path / f"{name}.yaml")
            paths[-1].write_text(self.pipeline.replace("NAME", name).replace("FOLDER", str(self.path)))
        rule = RestartRule(40, first_wait_s=0.01, wait_max_s=0.1)
        configs = load_pipelines(paths, {})
        Runner(self._engine, configs, say=lambda text: None, on_state=self.states.append, restarts=rule).run()

    @property
    def table(self) -> Table:
        return Catalog(self.path / "w").table("s.t")

    def check(self) -> None:
        rows = self.table.scan().to_arrow()
        assert Counter(dict(zip(rows["id"].to_pylist(), rows["n"].to_pylist(), strict=True))) == self.expected
        assert rows.num_rows == len(self.expected), "a key is in two buckets"
        self.check_index()
        assert not self.table.check().damage

    def check_index(self) -> None:
        assert sum(counts(self.table)[0].values()) == len(self.expected)


class MovingFolder(Folder):
    """Records of one key name several partitions."""

    pipeline = MOVING

    def partition(self, key: int, number: int) -> dict[str, str]:
        return {"p": "abc"[(key + number) % 3]}

    def check_index(self) -> None:
        store = self.table.store
        indexes = [ShareIndex(store, store.snapshots.latest(), KeyShare(number, 2)) for number in range(2)]
        try:
            assert sum(sum(index.counts.values()) for index in indexes) == len(self.expected)
        finally:
            for index in indexes:
                index.close()


@pytest.fixture(params=[Folder, MovingFolder])
def folder(request: pytest.FixtureRequest, engine: PipelineEngine, tmp_path: Path) -> Folder:
    made: Folder = request.param(engine, tmp_path)
    return made


@pytest.mark.slow
@pytest.mark.few(1)
def test_two_pipelines_at_the_same_time(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both have assigned their first batch before either commits it; the one that is refused runs it again."""
    for number in range(3):
        folder.add("a", number, range(number * 20, number * 20 + 60))
        folder.add("b", number, range(number * 30 + 10, number * 30 + 70))
    both_assigned, waited = threading.Barrier(2, timeout=120), set[str]()
    commit = TableCommit.commit
    refused: list[str] = []

    def committing(self: TableCommit, *arguments: Any) -> Any:
        if self._commit_user not in waited:
            waited.add(self._commit_user)
            both_assigned.wait()
        try:
            return commit(self, *arguments)
        except OutdatedAssignmentError:
            refused.append(self._commit_user)
            raise

    monkeypatch.setattr(TableCommit, "commit", committing)
    folder.run("ab")
    folder.check()
    assert refused
    assert {state.pipeline for state in folder.states} == set(refused), "those that were refused were started again"


@pytest.mark.few(1)
def test_a_restored_checkpoint_runs_batches_again_that_are_committed(folder: Folder) -> None:
    folder.add("a", 0, range(50))
    folder.run("a")
    shutil.copytree(folder.path / "c-a", folder.path / "saved")
    folder.add("a", 1, range(30, 90))
    folder.run("a")
    snapshots = len(folder.table.snapshots())
    shutil.rmtree(folder.path / "c-a")
    shutil.move(folder.path / "saved", folder.path / "c-a")
    folder.run("a")
    assert len(folder.table.snapshots()) == snapshots
    folder.add("a", 2, range(80, 120))
    folder.run("a")
    folder.check()


@pytest.mark.few(1)
def test_a_batch_that_was_committed_before_its_query_died(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver does not learn that the commit was made: the query starts again, and finds the batch."""
    for number in range(3):
        folder.add("a", number, range(number * 20, number * 20 + 50))
    commit, died = TableCommit.commit, list[int]()

    def dying(self: TableCommit, *arguments: Any) -> Any:
        report = commit(self, *arguments)
        if len(died) < 2:
            died.append(1)
            raise RetryableError("the driver is cut off")
        return report

    monkeypatch.setattr(TableCommit, "commit", dying)
    folder.run("a")
    folder.check()
    assert len(folder.states) == 2


@pytest.mark.few(1)
def test_the_table_is_altered_between_batches(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    """A column and other sizes of buckets; rows of keys that are there stay in their buckets."""
    for number in range(3):
        folder.add("a", number, range(number * 20, number * 20 + 50))
    commit = TableCommit.commit

    def altering(self: TableCommit, *arguments: Any) -> Any:
        report = commit(self, *arguments)
        if "note" not in self.table.schema.column_names:
            Catalog(folder.path / "w").table("s.t").alter(
                AddColumn("note", "STRING"), SetOption("dynamic-bucket.target-row-num", "30")
            )
        return report

    monkeypatch.setattr(TableCommit, "commit", altering)
    folder.run("a")
    folder.check()
    if not isinstance(folder, MovingFolder):
        assert max(counts(folder.table)[0].values()) == 30
