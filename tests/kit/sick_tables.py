"""Tables of which something is wrong, by what `freshet doctor` calls it, made by what users call; and healthy ones."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import Any

import orjson
import pyarrow as pa
import pytest

from freshet import Catalog, Table
from freshet.storage.commit import change_fit, snapshot_commit
from freshet.storage.commit.commit_files import CommitFiles
from freshet.storage.io.env import CrashPoint, Env
from freshet.storage.io.memory_file_io import MemoryFileIO
from freshet.storage.merge.retract_layers import RetractLayers
from freshet.storage.write.task_writer import TaskWriter

ENGINES = "readers that do not merge"
KEEPS_FEW = {"snapshot.num-retained.min": "1", "snapshot.num-retained.max": "2"}


class Maker:
    """Makes tables of one warehouse, by a clock that can be put forward."""

    def __init__(self, catalog: Catalog, env: Env, monkeypatch: pytest.MonkeyPatch) -> None:
        self.env = env
        self.catalog = catalog
        self.monkeypatch = monkeypatch

    def table(self, name: str, options: Mapping[str, str] | None = None, *, keys: Sequence[str] = ("id",)) -> Table:
        """A table called after the situation."""
        return self.catalog.create_table(
            f"shop.{name.replace(' ', '_')}",
            schema={"id": "INT", "part": "INT", "v": "STRING"},
            primary_keys=list(keys),
            options={"bucket": "1" if keys else "-1"} | dict(options or {}),
        )


def written(table: Table, commits: int, *, rows: int = 20, chars: int = 4) -> Table:
    """Rows that no encoding makes small."""
    random = Random(7)
    with table.writer("writer") as writer:
        for _ in range(commits):
            writer.write([{"id": key, "part": key % 2, "v": random.randbytes(chars // 2).hex()} for key in range(rows)])
            writer.commit()
    return table


def healthy(make: Maker, name: str) -> Table:
    return written(make.table(name), 1)


def compacted(make: Maker, name: str) -> Table:
    table = written(make.table(name, {"changelog-producer": "lookup"}), 7)
    table.compact()
    return table


def empty(make: Maker, name: str) -> Table:
    return make.table(name)


def a_few_appends(make: Maker, name: str) -> Table:
    return written(make.table(name, keys=()), 3)


def dynamic_buckets(make: Maker, name: str) -> Table:
    return written(make.table(name, {"bucket": "-1"}), 6)


def postponed_buckets(make: Maker, name: str) -> Table:
    table = written(make.table(name, {"bucket": "-2"}), 6)
    table.compact()
    return table


def first_rows(make: Maker, name: str) -> Table:
    return written(make.table(name, {"merge-engine": "first-row"}), 6)


def a_compactor_apart(make: Maker, name: str) -> Table:
    """It has just been there, and is to come again."""
    table = written(make.table(name, {"write-only": "true", "changelog-producer": "lookup"}), 6)
    table.compact()
    return written(table, 2)


def a_reader_that_keeps_up(make: Maker, name: str) -> Table:
    table = written(make.table(name, KEEPS_FEW), 6)
    table.reset_consumer("reader", table.snapshots()[-1].id + 1)
    return table


def tagged_with_a_branch(make: Maker, name: str) -> Table:
    table = written(make.table(name, KEEPS_FEW), 1)
    table.tags.create("old")
    table.branches.create("side", from_tag="old")
    return written(table, 6)


def changelog_not_made(make: Maker, name: str) -> Table:
    return written(make.table(name, {"changelog-producer": "lookup", "write-only": "true"}), 6)


def no_compactor(make: Maker, name: str) -> Table:
    return written(make.table(name, {"write-only": "true"}), 6)


def reader_behind_retention(make: Maker, name: str) -> Table:
    table = written(make.table(name), 4)
    table.compact()
    table.expire_snapshots(retain_max=1)
    table.reset_consumer("reader", 1)
    return table


def expiry_held(make: Maker, name: str) -> Table:
    table = make.table(name, KEEPS_FEW)
    table.reset_consumer("reader", 1)
    written(table, 6)
    table.compact()
    return table


def level_0_full(make: Maker, name: str) -> Table:
    table = written(make.table(name, {"write-only": "true"}), 2)
    table.compact()
    return written(table, 10)


def buckets_too_small(make: Maker, name: str) -> Table:
    return written(make.table(name, {"bucket": "16"}), 1)


def buckets_too_large(make: Maker, name: str) -> Table:
    return written(make.table(name, {"target-file-size": "2 kb"}), 1, rows=400, chars=400)


def buckets_skewed(make: Maker, name: str) -> Table:
    options = {"bucket": "4", "bucket-key": "part", "target-file-size": "32 kb"}
    table = make.table(name, options, keys=("id", "part"))
    random = Random(7)
    with table.writer("writer") as writer:
        writer.write([{"id": key, "part": 0, "v": random.randbytes(100).hex()} for key in range(400)])
        writer.commit()
    return table


def small_files(make: Maker, name: str) -> Table:
    return written(make.table(name, {"compaction.min.file-num": "100"}, keys=()), 24)


def overlapping_files(make: Maker, name: str) -> Table:
    """Two full compactions that do not know of each other, as programs without our checks commit them."""
    table, made = make.table(name), []
    for text in ("first", "second"):
        writer = TaskWriter(table.store, base_snapshot=None, parallelism=1)
        writer.write(pa.table({"id": range(20), "part": range(20), "v": [text] * 20}, schema=table.arrow_schema))
        writer.compact(full=True)
        made.append(writer.prepare_commit(0))
        writer.close()
    with make.monkeypatch.context() as unchecked:
        unchecked.setattr(Env, "checks_claims", False)
        unchecked.setattr(change_fit, "find_conflicts", lambda *_, **__: [])
        unchecked.setattr(snapshot_commit, "outnumbered_buckets", lambda *_: frozenset())
        for number, messages in enumerate(made):
            table.engine.committer(f"u{number}").commit(0, messages)
    return table


def statistics_missing(make: Maker, name: str) -> Table:
    return written(make.table(name, {"metadata.stats-mode": "none"}), 1)


def options_without_effect(make: Maker, name: str) -> Table:
    return written(make.table(name, {"write-buffer-for-append": "true"}, keys=()), 1)


def clocks_differ(make: Maker, name: str) -> Table:
    table = written(make.table(name), 1)
    with make.monkeypatch.context() as patch:
        patch.setattr(make.env, "now_ms", lambda: Env.now_ms(make.env) + 60_000)
        with make.catalog.table(table.name).writer("other") as writer:
            writer.write([{"id": 1, "part": 1, "v": "a"}])
            writer.commit()
    table.compact()
    return table


def data_files_lost(make: Maker, name: str) -> Table:
    """Somebody has removed two of three files."""
    table = written(make.table(name), 3)
    for entry in list(table.files())[:2]:
        make.env.file_io.delete(table.store.data_file(entry.partition, entry.bucket, entry.file.file_name))
    return table


def orphans(make: Maker, name: str) -> Table:
    """A writer has died two days ago."""
    table = written(make.table(name), 1)
    writer = TaskWriter(table.store, base_snapshot=None, parallelism=1)
    writer.write(pa.table({"id": range(20), "part": range(20), "v": ["a"] * 20}, schema=table.arrow_schema))
    (message,) = writer.prepare_commit(0)
    writer.close()
    path = table.store.data_file(message.partition, message.bucket, message.new_files[0].file_name)
    files, then_ms = make.env.file_io, make.env.now_ms() - 2 * 24 * 3_600_000
    if isinstance(files, MemoryFileIO):
        files._files[path] = replace(files._files[path], modified_ms=then_ms)
    else:
        os.utime(path, (then_ms // 1000, then_ms // 1000))
    return table


def deletes_with_values(make: Maker, name: str) -> Table:
    options = {"merge-engine": "partial-update", "partial-update.remove-record-on-delete": "true"}
    table = written(make.table(name, options), 1)
    with make.monkeypatch.context() as patch, table.writer("old release") as writer:
        patch.setattr(RetractLayers, "blanked", lambda self, rows: rows)
        writer.write(pa.table({"id": [1], "part": [1], "v": ["a"], "_ROW_KIND": ["-D"]}, schema=_with_kinds(table)))
        writer.commit()
    return table


def _with_kinds(table: Table) -> pa.Schema:
    return table.arrow_schema.append(pa.field("_ROW_KIND", pa.string()))


def files_of_old_version(make: Maker, name: str) -> Table:
    table = make.table(name)
    writer = TaskWriter(table.store, base_snapshot=None, parallelism=1)
    writer.write(pa.table({"id": range(20), "part": range(20), "v": ["a"] * 20}, schema=table.arrow_schema))
    (message,) = writer.prepare_commit(0)
    writer.close()
    old = tuple(replace(file, delete_row_count=None) for file in message.new_files)
    table.engine.committer("old program").commit(0, [replace(message, new_files=old)])
    return table


def lookup_stores_do_not_fit(make: Maker, name: str) -> Table:
    options = {"changelog-producer": "lookup", "lookup.cache-max-disk-size": "16 kb"}
    return written(make.table(name, options), 1, rows=400, chars=100)


def iceberg_behind(make: Maker, name: str) -> Table:
    """Apache Paimon has created it."""
    table = make.table(name)
    path = table.store.paths.schema(0)
    schema = orjson.loads(make.env.file_io.read_bytes(path))
    schema["options"]["metadata.iceberg.storage"] = "table-location"
    make.env.file_io.overwrite(path, orjson.dumps(schema))
    return written(make.catalog.table(table.name), 3)


def writers_in_conflict(make: Maker, name: str) -> Table:
    """Each commit of one finds that another was first."""
    table = make.table(name)
    with table.writer("late") as late, make.catalog.table(table.name).writer("early") as early:
        for number in range(8):
            for writer in (late, early):
                writer.write([{"id": number, "part": 1, "v": "a"}])
            with make.monkeypatch.context() as patch:

                def be_first(point: CrashPoint, undo: Callable[[], None] = patch.undo) -> None:
                    if point is CrashPoint.COMMIT_MANIFESTS_WRITTEN:
                        undo()
                        early.commit()

                patch.setattr(make.env, "reach", be_first)
                late.commit()
    table.compact()
    return table


def commits_slow(make: Maker, name: str) -> Table:
    """On a disk that takes three seconds, a minute ago."""
    table, off_ms = make.table(name), [-60_000]
    write = CommitFiles.write

    def slowly(*arguments: Any) -> Any:
        off_ms[0] += 3_000
        return write(*arguments)

    with make.monkeypatch.context() as patch:
        patch.setattr(make.env, "now_ms", lambda: Env.now_ms(make.env) + off_ms[0])
        patch.setattr(CommitFiles, "write", slowly)
        written(make.catalog.table(table.name), 4)
    return table


def readers_that_do_not_merge(make: Maker, name: str) -> Table:
    return written(make.table(name), 2)


MADE: dict[str, Callable[[Maker, str], Table]] = {
    "changelog not made": changelog_not_made,
    "no compactor": no_compactor,
    "reader behind retention": reader_behind_retention,
    "expiry held back": expiry_held,
    "level 0 full": level_0_full,
    "buckets too small": buckets_too_small,
    "buckets too large": buckets_too_large,
    "buckets skewed": buckets_skewed,
    "small files": small_files,
    "overlapping levels": overlapping_files,
    "statistics missing": statistics_missing,
    "options without effect": options_without_effect,
    "clocks differ": clocks_differ,
    "orphans": orphans,
    "data files lost": data_files_lost,
    "deletes with values": deletes_with_values,
    "files of an old version": files_of_old_version,
    "lookup stores do not fit": lookup_stores_do_not_fit,
    "Iceberg metadata behind": iceberg_behind,
    "writers in conflict": writers_in_conflict,
    "commits slow": commits_slow,
    ENGINES: readers_that_do_not_merge,
}
WELL = {
    each.__name__: each
    for each in (
        healthy,
        compacted,
        empty,
        a_few_appends,
        dynamic_buckets,
        postponed_buckets,
        first_rows,
        a_compactor_apart,
        a_reader_that_keeps_up,
        tagged_with_a_branch,
    )
}


def all_made(make: Maker) -> dict[str, set[str]]:
    """By table what is to be found, but for `ENGINES`, which may come with anything."""
    return {situation(make, name).name: {name} & MADE.keys() for name, situation in {**MADE, **WELL}.items()}
