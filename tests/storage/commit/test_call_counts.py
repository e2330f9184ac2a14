"""How often a commit asks the disk: on an object store every call is a round trip.

Counted from `write` to the return of `commit`, in a warm session, one bucket, no partitions, nobody else; without calls
for data files and folders. What expires is counted apart: it runs after the return.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from freshet.storage.catalog import Catalog
from freshet.storage.cleaning.expire import expire_after_commit
from freshet.storage.io.env import Env
from freshet.storage.io.local_file_io import LocalFileIO
from freshet.storage.table import Table

COUNTED = (
    "read_bytes",
    "open_input",
    "create_exclusive",
    "open_output",
    "asked_again",
    "overwrite",
    "exists",
    "size",
    "exists_prefix",
    "entries",
    "read_range",
    "delete",
)
METADATA = ("/snapshot", "/schema", "/manifest", "/tag", "/branch", "/consumer", "/changelog", "/index", "/statistics")


class CountingFileIO(LocalFileIO):
    """Keeps a journal of calls for metadata as `operation path`, and one of bulk deletions."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.deletions: list[list[str]] = []
        for name in COUNTED:
            setattr(self, name, self._counting(name, getattr(self, name)))

    def _counting(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(path: str, *arguments: Any, **options: Any) -> Any:
            if any(part in path for part in METADATA):
                self.calls.append(f"{name} {path}")
            return call(path, *arguments, **options)

        return counted

    def delete_all(self, paths: Sequence[str], *, in_turn: bool = False) -> Any:
        self.deletions.append(list(paths))
        deleted = failed = 0
        for path in paths:
            deleted += LocalFileIO.delete(self, path)
        return dataclasses.replace(super().delete_all([]), deleted_count=deleted, failed_count=failed)


class LaterEnv(Env):
    """What is to run after the commit runs when the test says so."""

    def __init__(self) -> None:
        self.counting = CountingFileIO()
        super().__init__(self.counting)
        self.later: list[Callable[[], None]] = []

    def run_later(self, name: str, work: Callable[[], None]) -> None:
        self.later.append(work)

    def finish_later(self) -> None:
        while self.later:
            self.later.pop(0)()


@pytest.fixture
def env(unchecked_claims: None) -> LaterEnv:
    return LaterEnv()


def create(tmp_path: Path, env: LaterEnv, **options: str) -> Table:
    return Catalog(str(tmp_path), env=env).create_table(
        "shop.orders",
        schema={"id": "BIGINT", "v": "STRING"},
        primary_keys=["id"],
        options={"bucket": "1", "manifest.merge-min-count": "1000"} | options,
    )


def rows(number: int) -> pa.Table:
    return pa.table({"id": pa.array([number], pa.int64()), "v": ["x"]})


@pytest.mark.parametrize("number", [None, "given"])
def test_commit_of_one_file(tmp_path: Path, env: LaterEnv, number: str | None) -> None:
    table = create(tmp_path, env, **{"num-sorted-run.compaction-trigger": "100"})
    with table.writer("loader") as writer:
        for identifier in range(5):
            env.counting.calls.clear()
            writer.write(rows(identifier))
            result = writer.commit(None if number is None else identifier)
            calls = list(env.counting.calls)
            env.finish_later()
    assert [str(snapshot.commit_kind) for snapshot in result.snapshots] == ["APPEND"]
    assert len(calls) <= 16, "\n".join(calls)


def test_commit_with_a_compaction(tmp_path: Path, env: LaterEnv) -> None:
    table = create(tmp_path, env, **{"full-compaction.delta-commits": "1"})
    with table.writer("loader") as writer:
        for identifier in range(5):
            env.counting.calls.clear()
            writer.write(rows(identifier))
            result = writer.commit(identifier)
            calls = list(env.counting.calls)
            env.finish_later()
    assert [str(snapshot.commit_kind) for snapshot in result.snapshots] == ["APPEND", "COMPACT"]
    assert len(calls) <= 22, "\n".join(calls)


def test_expiry_runs_after_the_return_with_one_deletion_for_each_folder(tmp_path: Path, env: LaterEnv) -> None:
    retention = {"snapshot.num-retained.min": "1", "snapshot.num-retained.max": "4"}
    table = create(tmp_path, env, **retention)
    with table.writer("loader") as writer:
        for identifier in range(12):
            writer.write(rows(identifier))
            writer.compact(full=True)
            before = len(list((tmp_path / "shop.db" / "orders" / "snapshot").glob("snapshot-*")))
            writer.commit(identifier)
            after = len(list((tmp_path / "shop.db" / "orders" / "snapshot").glob("snapshot-*")))
            assert after == before + 2, "nothing has expired when commit returns"
            assert len(env.later) == 1
            env.counting.calls.clear()
            env.counting.deletions.clear()
            env.finish_later()
    assert len(table.snapshots()) == 4
    assert len(env.counting.calls) <= 10, "\n".join(env.counting.calls)
    folders = [{str(Path(path).parent) for path in paths} for paths in env.counting.deletions]
    assert all(len(folder) == 1 for folder in folders)
    assert len(folders) == len({next(iter(folder)) for folder in folders}) == 3, "snapshot, bucket and manifest folder"


def test_cost_of_expiry_does_not_grow_with_the_tags(tmp_path: Path, env: LaterEnv) -> None:
    table = create(tmp_path, env, **{"snapshot.num-retained.min": "1", "snapshot.num-retained.max": "2"})
    folder = tmp_path / "shop.db" / "orders"
    (folder / "tag").mkdir()
    counts = []
    with table.writer("loader") as writer:
        for identifier in range(30):
            writer.write(rows(identifier))
            writer.compact(full=True)
            snapshot = writer.commit(identifier).snapshots[-1]
            (folder / "tag" / f"tag-{identifier}").write_bytes(
                (folder / f"snapshot/snapshot-{snapshot.id}").read_bytes()
            )
            env.counting.calls.clear()
            env.finish_later()
            counts.append(len(env.counting.calls))
    assert max(counts[10:]) <= 10, counts  # the one new tag is read
    assert expire_after_commit(table.store, snapshot).failed_delete_count == 0
