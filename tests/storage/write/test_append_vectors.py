"""Append tables of which other programs marked rows as deleted: compactions leave these rows out, and their marks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest
from pyroaring import BitMap

from freshet import Catalog, Table
from freshet.storage.commit.committer import Committer
from freshet.storage.files.data_file_reader import DataFileRead
from freshet.storage.metadata.deletion_vector_store import read_vector
from freshet.storage.model.commit_message import CommitMessage
from freshet.storage.model.data_file import EMPTY_ROW
from freshet.storage.model.manifest import IndexFileMeta, ManifestEntry

COLUMNS = {"k": "INT", "v": "STRING"}
VECTORS = {"deletion-vectors.enabled": "true"}
KINDS: Mapping[str, Mapping[str, str]] = {
    "no buckets": {**VECTORS},
    "one bucket": {**VECTORS, "bucket": "1", "bucket-key": "k"},
    "no buckets, 64 bits": {**VECTORS, "deletion-vectors.bitmap64": "true"},
}
ROWS = 10


def filled(folder: Path, kind: str, files: int, **options: str) -> Table:
    """Files of ten rows each, numbered on; writers do not compact."""
    given = {name.replace("__", ".").replace("_", "-"): text for name, text in options.items()}
    table = Catalog(str(folder)).create_table(
        "db.t", schema=COLUMNS, options={**KINDS[kind], "write-only": "true", **given}
    )
    for number in range(files):
        append(table, range(number * ROWS, (number + 1) * ROWS))
    return table


def append(table: Table, keys: Iterable[int]) -> None:
    with table.writer("u") as writer:
        writer.write([{"k": k, "v": f"v{k}"} for k in keys])
        writer.commit()


def mark(table: Table, *keys: int, replaces: Iterable[IndexFileMeta] = ()) -> IndexFileMeta:
    """Marks these rows as another program does: an index file more, or one in place of others."""
    snapshot = table.store.snapshots.latest()
    assert snapshot is not None
    marked: dict[str, BitMap] = {}
    for entry in table.store.live.at(snapshot).entries():
        for position, k in enumerate(_stored_keys(table, entry)):
            if k in keys:
                marked.setdefault(entry.file.file_name, BitMap()).add(position)
    wide = table.store.options.deletion_vectors_bitmap64
    new = table.store.vectors.write(marked, is_64_bit=wide)
    message = CommitMessage(
        EMPTY_ROW, 0, table.store.options.bucket, new_index_files=(new,), deleted_index_files=tuple(replaces)
    )
    Committer(table.store, "deleter").commit(snapshot.id + 1, [message])
    return new


def _stored_keys(table: Table, entry: ManifestEntry) -> list[int]:
    batches = DataFileRead(table.store, entry.partition, entry.bucket, entry.file, ("k",)).batches()
    return [k for batch in batches for k in batch.column(0).to_pylist()]


def keys_of(table: Table) -> list[int]:
    return sorted(table.scan(columns=["k"]).to_arrow()["k"].to_pylist())


def index_files(table: Table) -> list[IndexFileMeta]:
    snapshot = table.store.snapshots.latest()
    assert snapshot is not None
    return [file for files in table.store.manifests.vector_files(snapshot.index_manifest).values() for file in files]


def marked_rows(table: Table) -> int:
    """Rows that index files mark; each must belong to a live file."""
    live = {entry.file.file_name for entry in table.files()}
    count = 0
    for file in index_files(table):
        path = table.store.paths.index_file(file.file_name)
        for vector in file.deletion_vectors or ():
            assert vector.data_file_name in live
            count += len(read_vector(Path(path).read_bytes(), vector, path))
    return count


def without(count: int, *gone: int) -> list[int]:
    return [k for k in range(count) if k not in gone]


@pytest.mark.parametrize("kind", KINDS)
def test_marked_rows_do_not_come_back_and_their_marks_go(tmp_path: Path, kind: str) -> None:
    table = filled(tmp_path, kind, 3)
    mark(table, 0, 5, 29)
    assert keys_of(table) == without(30, 0, 5, 29)
    table.compact(full=True)
    assert keys_of(table) == without(30, 0, 5, 29)
    [file] = [entry.file for entry in table.files()]
    assert file.row_count == 27
    assert marked_rows(table) == 0
    snapshots = table.snapshots()
    assert str(snapshots[-1].commit_kind) == "COMPACT"
    assert snapshots[-1].total_record_count == 27
    append(table, [30])
    table.compact(full=True)
    assert keys_of(table) == without(31, 0, 5, 29)


@pytest.mark.parametrize("kind", KINDS)
def test_a_full_compaction_takes_a_single_large_file_with_marks(tmp_path: Path, kind: str) -> None:
    table = filled(tmp_path, kind, 1, target_file_size="1 b")
    before = [entry.file.file_name for entry in table.files()]
    table.compact(full=True)
    assert [entry.file.file_name for entry in table.files()] == before, "nothing to do"
    mark(table, 3)
    table.compact(full=False)
    assert marked_rows(table) == 1
    table.compact(full=True)
    assert keys_of(table) == without(10, 3)
    assert marked_rows(table) == 0
    assert sum(entry.file.row_count for entry in table.files()) == 9


@pytest.mark.parametrize("kind", ["no buckets", "one bucket"])
def test_files_that_are_not_joined_keep_their_marks(tmp_path: Path, kind: str) -> None:
    """Of one index file some vectors go and some stay."""
    table = filled(tmp_path, kind, 0, target_file_size="16 kb", source__split__open_file_cost="1 b")
    table = table.with_options({"compaction.min.file-num": "3"})
    append(table, range(5000))
    [large] = [entry.file.file_name for entry in table.files()]
    for first in (5000, 5010, 5020):
        append(table, range(first, first + 10))
    old = mark(table, 1, 4999, 5001)
    table.compact(full=False)
    assert keys_of(table) == without(5030, 1, 4999, 5001)
    assert [entry.file.file_name for entry in table.files() if entry.file.row_count == 5000] == [large]
    assert len(list(table.files())) == 2
    [new] = index_files(table)
    assert new.file_name != old.file_name
    assert [vector.data_file_name for vector in new.deletion_vectors or ()] == [large]
    assert marked_rows(table) == 2


def test_several_index_files_of_a_partition(tmp_path: Path) -> None:
    table = filled(tmp_path, "no buckets", 2)
    first = mark(table, 1)
    append(table, range(20, 30))
    second = mark(table, 25, 12)
    assert keys_of(table) == without(30, 1, 12, 25)
    assert {file.file_name for file in index_files(table)} == {first.file_name, second.file_name}
    table.compact(full=True)
    assert keys_of(table) == without(30, 1, 12, 25)
    assert marked_rows(table) == 0


@pytest.mark.parametrize("kind", ["no buckets", "one bucket"])
def test_rows_marked_while_a_compaction_runs_stay_deleted(tmp_path: Path, kind: str) -> None:
    """The compaction is dropped; the next one leaves the rows out."""
    table = filled(tmp_path, kind, 6)
    replaced = [mark(table, 0)]
    with table.writer("compactor") as writer:
        writer.compact(full=True)
        mark(table, 0, 44, replaces=replaced)
        writer.commit()
    assert keys_of(table) == without(60, 0, 44)
    table.compact(full=True)
    assert keys_of(table) == without(60, 0, 44)
    assert marked_rows(table) == 0


def test_a_first_mark_while_a_compaction_runs(tmp_path: Path) -> None:
    table = filled(tmp_path, "no buckets", 6)
    with table.writer("compactor") as writer:
        writer.compact(full=True)
        mark(table, 44)
        writer.commit()
    assert keys_of(table) == without(60, 44)
    table.compact(full=True)
    assert keys_of(table) == without(60, 44)


def test_sorting_leaves_marked_rows_out(tmp_path: Path) -> None:
    table = filled(tmp_path, "no buckets", 3)
    mark(table, 7, 23)
    table.sort_compact(["v"])
    found = table.scan().to_arrow()["k"].to_pylist()
    assert sorted(found) == without(30, 7, 23)
    assert [f"v{k}" for k in found] == sorted(f"v{k}" for k in found)
    assert marked_rows(table) == 0


def test_rescaling_leaves_marked_rows_out(tmp_path: Path) -> None:
    table = filled(tmp_path, "one bucket", 3)
    mark(table, 7, 23)
    table.rescale(bucket=3)
    table = Table.open(table.location)
    assert table.options.bucket == 3
    assert keys_of(table) == without(30, 7, 23)
    assert marked_rows(table) == 0
