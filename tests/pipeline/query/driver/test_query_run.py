"""One query into two tables by one job a batch: who has rows is committed, and a batch that was begun is finished."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from freshet.pipeline.identity.checkpoint_folder import LocalCheckpoint
from freshet.pipeline.query.driver.batch_report import BatchReport, TableReport
from freshet.pipeline.query.driver.engine import MicroBatch
from freshet.pipeline.query.driver.one_table import OneTable
from freshet.pipeline.query.driver.query_run import QueryRun
from freshet.pipeline.query.driver.table_commit import TableCommit
from freshet.pipeline.query.task.batch_work import TableWork
from freshet.pipeline.query.wire.batch_pin import BatchPin, Handed, TaskPlace
from freshet.pipeline.query.wire.packed_rows import PackRule, packed_batches
from freshet.pipeline.query.wire.task_result import TaskResult, sum_results
from freshet.storage.catalog import Catalog
from freshet.storage.exceptions import RetryableError
from freshet.storage.table import Table
from tests.kit.task_runs import write_task
from tests.pipeline.query.outcome_rows import data, outcome_schema, outcome_table, tally

TABLES = {"s.orders": {"id": "BIGINT", "text": "STRING"}, "s.items": {"id": "BIGINT", "number": "BIGINT"}}
Row = tuple[str, int, Any]
"""The name of the table, the key and the value."""


class WithLedger(OneTable):
    """Two tables, and a ledger of their batches that only has their numbers."""

    has_ledger = True

    def __init__(self, ledger: TableCommit, commits: Sequence[TableCommit]) -> None:
        super().__init__(ledger)
        self._commits = commits

    def round(self, micro_batch_id: int, starts: Any, *, is_planned: bool = False) -> Sequence[TableCommit]:
        return (self.lead, *self._commits)


class TwoTableJob:
    """One task has the rows of both tables, in this process."""

    is_planned = False

    def __init__(self, commits: Sequence[TableCommit], batches: Sequence[Sequence[Row]]) -> None:
        self._commits, self._batches = commits, batches
        self.runs = 0
        self.kept: list[int] = []

    def ranges(self, batch: MicroBatch) -> None:
        return None

    planned_ranges = ranges

    def first_look(self, batch: MicroBatch, ranges: None) -> None:
        return None

    def keep_state(self, batch: MicroBatch) -> None:
        self.kept.append(batch.number)

    def run(
        self, batch: MicroBatch, pins: Mapping[int, BatchPin], ranges: None, *, is_look: bool = False
    ) -> tuple[TaskResult, int]:
        self.runs += 1
        works = [
            TableWork(each.table.handle, "p", each.table.schema.column_names, 1, outcome_schema(each.table.schema),
                      number=number)
            for number, each in enumerate(self._commits, 1)
        ]  # fmt: skip
        rows = packed_batches(self._packed(self._batches[batch.number]))
        results = write_task(*works).run(rows, TaskPlace(Handed(pins)))
        return sum_results([each.column(0)[0].as_py() for each in results]), 1

    def _packed(self, rows: Sequence[Row]) -> Iterator[tuple[int, int, pa.Buffer]]:
        for number, each in enumerate(self._commits, 1):
            own = [data(offset, *row) for offset, (name, *row) in enumerate(rows) if name == each.table.name]
            outcomes = outcome_table(each.table.schema, [*own, tally(len(own))], bucket_count=1)
            for task, content in (
                PackRule((), False, 1).packed(outcomes.combine_chunks().to_batches()[0]) if own else ()
            ):
                yield task, number, content


class PlannedBatches:
    """A query whose engine has planned as many batches as are asked for."""

    run_id = "run"

    def __init__(self, folder: Path) -> None:
        self.folder = LocalCheckpoint(folder)

    def output_mode(self) -> str:
        return "Append"

    def offsets(self, micro_batch_id: int) -> tuple[str, ...]:
        return (f'{{"t": {{"0": {micro_batch_id + 1}}}}}',)

    def ignores_missing_files(self) -> bool:
        return False

    def takes_names_for_patterns(self) -> bool:
        return False


class Query:
    """A query that may be run again and again."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._folder = folder
        catalog = Catalog(folder / "w")
        self.tables = [
            catalog.create_table(name, schema=columns, primary_keys=["id"], options={"bucket": "1"})
            for name, columns in {"s.ledger": {"id": "STRING"}, **TABLES}.items()
        ]
        self.batches: list[Sequence[Row]] = []
        self.done = 0
        """Batches that the engine has in its own log."""
        self.dies_at: str | None = None
        """The driver dies at the next commit to this table."""
        self.jobs: list[int] = []
        self.job: Any = None
        commit = TableCommit.commit

        def failing(target: TableCommit, *arguments: Any) -> TableReport:
            if target.table.name == self.dies_at:
                self.dies_at = None
                raise RetryableError("died")
            return commit(target, *arguments)

        monkeypatch.setattr(TableCommit, "commit", failing)

    def run(self) -> list[BatchReport]:
        """Runs the batches that the engine does not know to be done, until the driver dies."""
        ledger, *commits = [TableCommit(table, "user") for table in self.tables]
        self.job = TwoTableJob(commits, self.batches)
        run, planned = QueryRun(WithLedger(ledger, commits), self.job, "user"), PlannedBatches(self._folder / "c")
        engine: Any = None  # no call in its workers is needed
        reports: list[BatchReport] = []
        try:
            while self.done < len(self.batches):
                reports.append(run.write(MicroBatch(self.done, engine, "query", planned)))
                self.done += 1
        except RetryableError:
            pass
        self.jobs.append(self.job.runs)
        run.close()
        return reports

    def committed(self) -> list[list[int]]:
        """The batches that each table holds, the ledger first."""
        return [[snapshot.commit_identifier for snapshot in table.snapshots()] for table in self.tables]

    def data_files(self, table: str) -> list[str]:
        """Whatever lies in the folder of a table, committed or not."""
        return sorted(str(path) for path in (self._folder / "w").rglob("data-*") if table in str(path))


def _rows(table: Table) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in table.scan().to_arrow().to_pylist())


ORDER, ITEM = ("s.orders", 1, "a"), ("s.items", 1, 7)


@pytest.fixture
def query(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Query:
    return Query(tmp_path, monkeypatch)


def test_a_batch_that_was_begun_is_finished_table_by_table(query: Query) -> None:
    query.batches = [[ORDER, ITEM, ("s.orders", 2, "a")]]
    query.dies_at = "s.items"
    assert query.run() == []
    assert query.committed() == [[], [0], []]
    assert query.dies_at is None
    files = query.data_files("orders")
    (report,) = query.run()
    assert query.committed() == [[0], [0], [0]]
    assert query.data_files("orders") == files
    assert (report.read_count, report.result.applied, report.is_replay) == (3, 3, False)
    assert report.snapshot_ids == (1,)
    assert list(report.result.messages) == [2], "rows of the table that holds the batch are counted, not written"
    assert _rows(query.tables[1]) == [(1, "a"), (2, "a")]
    assert _rows(query.tables[2]) == [(1, 7)]
    assert query.jobs == [1, 1]


def test_a_table_that_cannot_be_committed_does_not_keep_the_others_from_it(query: Query) -> None:
    """The ledger lacks the batch then, and a replay finds what it is to finish."""
    query.batches = [[ORDER, ITEM]]
    query.dies_at = "s.orders"
    query.run()
    assert query.committed() == [[], [], [0]]


def test_a_batch_that_the_ledger_has_is_done(query: Query) -> None:
    query.batches = [[ORDER, ITEM]]
    query.run()
    query.done = 0
    (report,) = query.run()
    assert report.is_replay
    assert query.jobs == [1, 0]
    assert query.job.kept == [0]


def test_tables_without_rows_of_a_batch_are_not_committed(query: Query) -> None:
    query.batches = [[ORDER], [ITEM], [("s.orders", 3, "a"), ("s.items", 3, 7)]]
    reports = query.run()
    assert query.committed() == [[0, 1, 2], [0, 2], [1, 2]]
    assert [report.snapshot_ids for report in reports] == [(1,), (1,), (2, 2)]
    assert query.jobs == [3]
