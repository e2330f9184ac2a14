"""Levels whose files overlap are refused by commits and compactions, and mended by a repair."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from freshet.storage.catalog import Catalog
from freshet.storage.commit import change_fit, snapshot_commit
from freshet.storage.exceptions import CorruptDataError
from freshet.storage.io.env import Env
from freshet.storage.maintenance.compaction_plan import levels_of
from freshet.storage.merge.overlaps import overlapping_levels
from freshet.storage.table import Table
from freshet.storage.write.task_writer import TaskWriter

COLUMNS = {"k": "INT NOT NULL", "v": "STRING", "dt": "STRING NOT NULL"}


def create(path: Path, **options: str) -> Table:
    return Catalog(str(path)).create_table(
        "db.t",
        schema=COLUMNS,
        primary_keys=["k", "dt"],
        partition_keys=["dt"],
        options={"bucket": "2"} | options,
    )


def rows(text: str, keys: range = range(20)) -> pa.Table:
    return pa.Table.from_pylist([{"k": k, "v": text, "dt": "a"} for k in keys])


def damaged(path: Path, monkeypatch: pytest.MonkeyPatch, **options: str) -> Table:
    """A table on which two full compactions were committed that did not know each other."""
    table = create(path, **options)
    made = []
    for text in ("first", "second"):
        writer = TaskWriter(table.store, base_snapshot=None, parallelism=1)
        writer.write(rows(text))
        writer.compact(full=True)
        made.append(writer.prepare_commit(0))
        writer.close()
    with monkeypatch.context() as unchecked:
        unchecked.setattr(Env, "checks_claims", False)
        unchecked.setattr(change_fit, "find_conflicts", lambda *_, **__: [])
        unchecked.setattr(snapshot_commit, "outnumbered_buckets", lambda *_: frozenset())
        for number, messages in enumerate(made):
            table.engine.committer(f"u{number}").commit(0, messages)
    assert table.scan().count() == 40, "each key is there twice"
    return table


def overlaps(table: Table) -> list[int]:
    by_bucket: dict[tuple[bytes, int], list] = {}
    for entry in table.files():
        by_bucket.setdefault(entry.bucket_id, []).append(entry.file)
    return [level for files in by_bucket.values() for level in overlapping_levels(levels_of(table.store, files))]


@pytest.mark.parametrize("producer", ["none", "lookup", "full-compaction"])
def test_a_level_whose_files_overlap_is_refused_and_mended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, producer: str
) -> None:
    table = damaged(tmp_path, monkeypatch, **{"changelog-producer": producer})
    assert len(overlaps(table)) == 2
    with table.writer("u3", parallelism=1) as writer:
        writer.write(rows("third"))
        with pytest.raises(CorruptDataError, match=r"overlap at level 5.* TABLE --repair.*dt=a/bucket-"):
            writer.commit() if producer != "none" else writer.compact(full=True)
        writer.abort()
    with pytest.raises(CorruptDataError, match="--repair"):
        table.compact(full=True)
    changes = len(table.changelog().to_arrow()) if producer != "none" else 0
    result = table.repair(partition={"dt": "a"})
    assert result.buckets_done == 2
    assert overlaps(table) == []
    assert {row["v"] for row in table.scan().to_arrow().to_pylist()} <= {"first", "second"}
    assert table.scan().count() == 20
    if producer != "none":
        assert len(table.changelog().to_arrow()) == changes, "a repair emits nothing"
    assert table.repair().buckets_done == 0
    with table.writer("u3", parallelism=1) as writer:
        writer.write(rows("third"))
        writer.commit()
    assert {row["v"] for row in table.scan().to_arrow().to_pylist()} == {"third"}
