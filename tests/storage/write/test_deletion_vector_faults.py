"""What happens to deletion vectors when two write at once, when snapshots expire, and when files are given up."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from freshet import Catalog, Table
from freshet.storage.commit.committer import Committer
from freshet.storage.exceptions import UnsupportedFeatureError
from freshet.storage.files.data_file_paths import discard_messages
from freshet.storage.model.commit_message import CommitMessage
from freshet.storage.write.task_writer import TaskWriter
from tests.storage.write.test_deletion_vector_writes import (
    BASE,
    arrow,
    check_marks,
    create,
    index_files,
    loaded,
    marked,
    read,
    row,
    write,
)


def prepared(table: Table, keys: list[int], text: str) -> tuple[TaskWriter, list[CommitMessage]]:
    writer = TaskWriter(table.store, base_snapshot=table.store.snapshots.latest(), parallelism=1)
    writer.write(arrow([row(k, 1, text) for k in keys]))
    return writer, [replace(message, numbered_at=None) for message in writer.prepare_commit(1)]


@pytest.mark.parametrize("keys", [[3, 4], [BASE + 1]], ids=["replaced in both", "new in both"])
def test_of_two_overlapping_compactions_the_later_one_is_dropped(tmp_path: Path, keys: list[int]) -> None:
    """Neither has seen the rows of the other; were both committed, a key would be there twice."""
    table = loaded(tmp_path)
    sessions = [prepared(table, keys, text) for text in ("first", "second")]
    results = [Committer(table.store, f"u{n}").commit(1, messages) for n, (_, messages) in enumerate(sessions)]
    for writer, _ in sessions:
        writer.close()
    assert [bool(result.aborted_compactions) for result in results] == [False, True]
    assert all(read(table)[k] == (1, "first") for k in keys), "level 0 of the second is not seen yet"
    named = {
        entry.file.file_name
        for snapshot in table.snapshots()
        for entry in table.store.manifests.read_index_manifest(snapshot.index_manifest)
    }
    assert set(index_files(table)) == named, "the index file of the compaction that was dropped is gone"
    write(table, [row(0, 5, "third")])
    assert all(read(table)[k] == (1, "second") for k in keys)
    assert read(table)[0] == (5, "third")
    check_marks(table.store)


def test_expiry_and_orphan_removal_keep_what_is_in_use(tmp_path: Path) -> None:
    table = create(tmp_path)
    write(table, [row(k, k, f"{hash((k, k)):x}") for k in range(BASE)])
    for n in range(2):
        write(table, [row(n, n, "x")])
    stray = Path(table.location) / "index" / "index-00000000-0000-0000-0000-000000000000-0"
    stray.write_bytes(b"\1")
    assert len(index_files(table)) == 3
    table.expire_snapshots(retain_max=1, retain_min=1, older_than_ms=2**60)
    assert len(index_files(table)) == 2
    table.remove_orphan_files(older_than_ms=-1_000_000)
    assert len(index_files(table)) == 1
    assert not stray.exists()
    assert read(table)[1] == (1, "x")
    assert marked(table) == 2


def test_a_given_up_write_leaves_no_index_file(tmp_path: Path) -> None:
    table = loaded(tmp_path)
    before = index_files(table)
    writer, messages = prepared(table, [1, 2], "x")
    assert len(index_files(table)) == len(before) + 1
    discard_messages(table.store, messages)
    writer.close()
    assert index_files(table) == before
    assert len(read(table)) == BASE


def test_rows_committed_by_another_meanwhile_are_marked_too(tmp_path: Path) -> None:
    """A writer that was opened before goes on upon the vectors of the latest snapshot."""
    table = loaded(tmp_path)
    with table.writer("a") as first, table.writer("b") as second:
        first.write(arrow([row(5, 1, "a")]))
        second.write(arrow([row(5, 2, "b"), row(6, kind="-D")]))
        first.commit(1)
        second.commit(1)
        first.write(arrow([row(6, 3, "a")]))
        first.commit(2)
    assert read(table)[5] == (2, "b")
    assert read(table)[6] == (3, "a")
    check_marks(table.store)


def test_a_lost_compaction_is_made_up_for(tmp_path: Path) -> None:
    """Rows whose COMPACT was never committed show with the next one, and mark what they replace."""
    table = loaded(tmp_path)
    write(table.with_options({"write-only": "true"}), [row(1, 1, "x"), row(2, kind="-D")])
    assert len(read(table)) == BASE
    write(table, [row(3, 1, "y")])
    found = read(table)
    assert (found[1], 2 in found, found[3]) == ((1, "x"), False, (1, "y"))
    assert len(found) == BASE - 1
    check_marks(table.store)


def test_a_table_with_vectors_is_not_written_without_the_option(tmp_path: Path) -> None:
    """Its compactions would bring marked rows back."""
    table = loaded(tmp_path)
    write(table, [row(1, 1, "x")])
    schema = Path(table.location) / "schema" / "schema-0"
    text = schema.read_text()
    assert '"deletion-vectors.enabled"' in text
    schema.write_text(text.replace('"deletion-vectors.enabled"', '"blob-as-descriptor"'))
    plain = Catalog(str(tmp_path)).table("db.t")
    with pytest.raises(UnsupportedFeatureError, match="has deletion vectors"):
        write(plain, [row(2, 1, "x")])
    assert len(read(plain)) == BASE
