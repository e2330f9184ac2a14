"""Rows that move between partitions: the changes that compactions emit give each row, whoever compacts and meets whom."""  # noqa: E501

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from freshet import Catalog
from freshet.storage.exceptions import ConflictError, InvalidRequestError, OutdatedAssignmentError
from freshet.storage.io.env import CrashPoint, Env
from freshet.storage.io.local_file_io import LocalFileIO
from freshet.storage.maintenance.background_compaction import BackgroundCompaction, run_background_unit
from freshet.storage.maintenance.compaction_plan import plan_compaction
from freshet.storage.maintenance.table_compaction import CompactionBudget, Elsewhere, compact_bucket
from freshet.storage.model.row_kind import ROW_KIND_COLUMN
from freshet.storage.table import Table
from freshet.storage.write.task_writer import TaskWriter
from tests.storage.write.test_moving_rows import Row, create, found, given_rows, write

SEED = int(os.environ.get("FRESHET_SEED", "20261125"))
ACTIONS = 16
KINDS: dict[str, dict[str, str]] = {
    "full": {"changelog-producer": "full-compaction"},
    "full, every third": {"changelog-producer": "full-compaction", "full-compaction.delta-commits": "3"},
    "full, elsewhere": {"changelog-producer": "full-compaction", "write-only": "true"},
    "lookup": {"changelog-producer": "lookup"},
    "lookup, not awaited": {"changelog-producer": "lookup", "lookup-wait": "false"},
    "lookup, gentle": {"changelog-producer": "lookup", "lookup-compact": "gentle"},
    "lookup, elsewhere": {"changelog-producer": "lookup", "write-only": "true"},
    "lookup, vectors": {"changelog-producer": "lookup", "deletion-vectors.enabled": "true"},
}


class Gone(BaseException):
    """The process ends here."""


class MeetingEnv(Env):
    """Where a commit is under way, others act: `met` is called at its points."""

    def __init__(self, met: Callable[[CrashPoint], None]) -> None:
        super().__init__(LocalFileIO())
        self._met = met

    def reach(self, point: CrashPoint) -> None:
        self._met(point)


class World:
    """Two writers, a compaction job and a compaction in the background, one of which may act while another commits."""

    def __init__(self, path: Path, options: dict[str, str], seed: str) -> None:
        self.path, self.chance, self.depth = path, random.Random(seed), 0
        self.outcomes: Counter[str] = Counter()
        create(path, **{"snapshot.num-retained.min": "1000", "snapshot.num-retained.max": "1000", **options})

    def opened(self) -> Table:
        return Catalog(str(self.path / "lake"), env=MeetingEnv(self.met)).table("db.t")

    def met(self, point: CrashPoint) -> None:
        commits = (CrashPoint.COMMIT_BEFORE_COMPACT, CrashPoint.COMMIT_MANIFESTS_WRITTEN, CrashPoint.WRITE_PREPARED)
        if point not in commits or self.depth > 1 or self.chance.random() > 0.3:
            return
        if point is CrashPoint.COMMIT_BEFORE_COMPACT and self.chance.random() < 0.3:
            raise Gone
        self.act()

    def act(self) -> None:
        """One of them does something."""
        action = self.chance.choice([self.write, self.write, self.write, self.compact, self.compact_behind])
        self.depth += 1
        try:
            action()
        except Gone:
            self.outcomes["gone"] += 1
        except (OutdatedAssignmentError, ConflictError) as error:
            self.outcomes[type(error).__name__] += 1
        finally:
            self.depth -= 1

    def write(self) -> None:
        count, user = self.chance.randrange(1, 12), self.chance.choice("ab")
        kinds = ["+I", "+I", "+I", "-D"]
        rows: list[Row] = [
            (self.chance.randrange(12), self.chance.choice("abc"), self.chance.randrange(99), self.chance.choice(kinds))
            for _ in range(count)
        ]
        table = self.opened()
        with table.writer(f"{user}{self.depth}") as writer:
            writer.write(given_rows(rows))
            if self.chance.random() < 0.1:
                writer.compact(full=self.chance.random() < 0.5)
            writer.commit()
        self.outcomes["written"] += 1

    def compact(self) -> None:
        elsewhere = None
        table = self.opened()
        if self.chance.random() < 0.5:
            table = Catalog(str(self.path / "lake")).table("db.t")
            elsewhere = Elsewhere(lambda _, works: [compact_bucket(table.store, work) for work in works], 2)
        table.compact(
            full=self.chance.random() < 0.5,
            budget=self.chance.choice([None, CompactionBudget(input_bytes=1)]),
            elsewhere=elsewhere,
            progress=lambda _: self.met(CrashPoint.WRITE_PREPARED),
        )
        self.outcomes["compacted"] += 1

    def compact_behind(self) -> None:
        """In the background of a stream, where the table may be compacted there."""
        store = self.opened().store
        if (
            self.depth > 1
            or store.options.write_only
            or store.options.deletion_vectors_enabled
            or "gentle" in str(self.path)
        ):
            return
        behind = BackgroundCompaction(store, "behind")
        while (unit := behind.next_unit()) is not None:
            behind.commit(unit, run_background_unit(store, unit))
            behind.release(unit)
            self.outcomes["compacted behind"] += 1


def check_changes(table: Table) -> dict[int, tuple[str, int | None]]:
    """What the changes give a copy with the same key; each change must fit on those before."""
    rows: dict[int, dict[str, Any]] = {}
    for change in table.changelog().to_arrow().to_pylist():
        kind, snapshot = change.pop(ROW_KIND_COLUMN), change.pop("_SNAPSHOT_ID")
        where = f"{kind} {change} of snapshot {snapshot}"
        if kind in ("-U", "-D"):
            assert rows.pop(change["k"], None) == change, where
        else:
            assert change["k"] not in rows, where
            rows[change["k"]] = change
    return {key: (row["p"], row["v"]) for key, row in rows.items()}


QUICK = [("full, every third", 0), ("full, elsewhere", 0), ("lookup", 0)]


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("kind", "number"),
    [
        pytest.param(kind, number, marks=[] if (kind, number) in QUICK else [pytest.mark.slow])
        for kind in KINDS
        for number in range(5)
    ],
)
def test_a_copy_of_the_changes_has_each_row(kind: str, number: int, tmp_path: Path) -> None:
    folder = tmp_path / kind.replace(", ", "-").replace(" ", "-")
    folder.mkdir()
    print(f"FRESHET_SEED={SEED}")
    world = World(folder, KINDS[kind], f"{SEED} {kind} {number}")
    for _ in range(ACTIONS):
        world.act()
        check_changes(world.opened())
    table = Catalog(str(folder / "lake")).table("db.t")
    table.compact(full=True)
    assert check_changes(table) == found(table)
    assert world.outcomes["written"] > ACTIONS // 4, world.outcomes
    assert not table.check().damage


def test_a_conflict_of_one_bucket_drops_the_compaction_of_all(tmp_path: Path) -> None:
    table = create(tmp_path, **{**KINDS["full, every third"], "full-compaction.delta-commits": "100"})
    write(table, (1, "a", 1, "+I"), (2, "b", 2, "+I"))
    table.compact(full=True)
    write(table, (1, "b", 3, "+I"))
    works = plan_compaction(table.store, full=True)
    assert len(works) == 2
    messages = [message for work in works for message in compact_bucket(table.store, work)]
    compact_now(table, works[0].bucket_id)
    result = table.engine.committer("late").commit(0, messages, force_empty=False)
    assert not result.snapshots
    assert {conflict.bucket_id for conflict in result.aborted_compactions} == {work.bucket_id for work in works}
    table.compact(full=True)
    assert check_changes(table) == found(table) == {1: ("b", 3), 2: ("b", 2)}


def compact_now(table: Table, bucket: tuple[bytes, int]) -> None:
    """Another program compacts level 0 of one bucket."""
    files = [entry.file for entry in table.files() if (entry.partition, entry.bucket) == bucket]
    inputs = frozenset(file.file_id for file in files if file.level == 0)
    with closing(TaskWriter(table.store, base_snapshot=table.latest_snapshot())) as writer:
        writer.compact_files(bucket, inputs, table.store.options.num_levels - 2)
        messages = writer.take_messages()
    assert table.engine.committer("other").commit(0, messages, force_empty=False).snapshots


@pytest.mark.parametrize("kind", ["full, every third", "lookup, elsewhere"])
def test_one_partition_is_not_compacted_without_the_others(kind: str, tmp_path: Path) -> None:
    table = create(tmp_path, **KINDS[kind])
    write(table, (2, "a", 1, "+I"))
    table.compact(full=True)
    before = table.changelog().to_arrow().num_rows
    write(table, (1, "a", 1, "+I"))
    write(table, (1, "b", 2, "+I"))
    with pytest.raises(InvalidRequestError, match="partition p=a has some that wait"):
        table.compact(full=True, partition={"p": "b"})
    assert table.changelog().to_arrow().num_rows == before
    table.compact(full=True)
    assert check_changes(table) == found(table) == {1: ("b", 2), 2: ("a", 1)}
    table.compact(full=True, partition={"p": "b"})
