"""What a writer makes of rows: files of level 0, compactions, messages."""

from __future__ import annotations

import hashlib
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from freshet.storage.compact import section_merge
from freshet.storage.exceptions import ConflictError, InvalidRequestError, RetryableError
from freshet.storage.io.env import CrashPoint, Env
from freshet.storage.io.file_io import OutputFile
from freshet.storage.io.local_file_io import LocalFileIO
from freshet.storage.io.memory_file_io import MemoryFileIO
from freshet.storage.model.data_file import EMPTY_ROW, FileSource
from freshet.storage.model.manifest import EntryKind
from freshet.storage.options.core import CoreOptions
from tests.storage.write.tables import KEYED, WrittenTable, committed


def rows(*pairs: tuple[Any, ...], kinds: list[str] | None = None, names: tuple[str, ...] = ("k", "v")) -> pa.Table:
    columns: dict[str, Any] = {name: [pair[index] for pair in pairs] for index, name in enumerate(names)}
    if kinds is not None:
        columns["_ROW_KIND"] = kinds
    return pa.table(columns)


def commit(table: WrittenTable, *batches: pa.Table) -> None:
    writer = table.writer()
    for batch in batches:
        writer.write(batch)
    table.commit(writer.prepare_commit())
    writer.close()


def set_options(table: WrittenTable, options: dict[str, str]) -> None:
    given = {**table.store.options.given, **options}
    table.store = replace(table.store, options=CoreOptions.parse(given, has_primary_key=True))


def test_the_last_row_of_a_key_is_in_one_level_0_file(tmp_path: Path) -> None:
    """Vector 1."""
    table = WrittenTable(tmp_path)
    commit(table, rows((1, "a"), (1, "b")))
    (file,) = table.files()
    assert (file.level, file.row_count, file.file_source) == (0, 1, FileSource.APPEND)
    assert (file.min_sequence_number, file.max_sequence_number, file.delete_row_count) == (1, 1, 0)
    assert table.stored(file) == [(1, 0, 1, "b")]
    assert table.rows() == [{"k": 1, "v": "b"}]


def test_a_delete_hides_the_row(tmp_path: Path) -> None:
    """Vector 2."""
    table = WrittenTable(tmp_path)
    commit(table, rows((1, "a")))
    commit(table, rows((1, "a"), kinds=["-D"]))
    assert table.rows() == []
    assert [table.stored(file) for file in table.files()] == [[(0, 0, 1, "a")], [(1, 3, 1, "a")]]
    assert [file.delete_row_count for file in table.files()] == [0, 1]


def test_sequence_field(tmp_path: Path) -> None:
    """Vector 3."""
    arrow = pa.schema([pa.field("a", pa.int32(), nullable=False), ("b", pa.int64())])
    table = WrittenTable(tmp_path, arrow=arrow, keys=["a"], sequence__field="b")
    commit(table, rows((10, 200), (10, 100), (11, 101), names=("a", "b")))
    commit(table, rows((11, 55), names=("a", "b")))
    assert table.rows() == [{"a": 10, "b": 200}, {"a": 11, "b": 101}]


@pytest.mark.parametrize("commits", [3, 1])
def test_descending_sequence_field(tmp_path: Path, commits: int) -> None:
    """Vector 4: also when all rows meet in one buffer."""
    arrow = pa.schema([pa.field("a", pa.string(), nullable=False), ("b", pa.string()), ("c", pa.int64())])
    names = ("a", "b", "c")
    options = {"sequence__field": "c", "sequence__field__sort-order": "descending"}
    table = WrittenTable(tmp_path, arrow=arrow, keys=["a"], **options)
    data = [rows(("a", "b", 1), names=names), rows(("a", "d", 2), names=names), rows(("a", "e", 3), names=names)]
    for batch in data if commits == 3 else [pa.concat_tables(data)]:
        commit(table, batch)
    assert table.rows() == [{"a": "a", "b": "b", "c": 1}]


@pytest.mark.parametrize("direction", ["ascending", "descending"])
def test_null_in_the_sequence_field_is_smallest(tmp_path: Path, direction: str) -> None:
    """Vector 5."""
    arrow = pa.schema([pa.field("k", pa.int64(), nullable=False), ("s", pa.int64()), ("v", pa.string())])
    options = {"sequence__field": "s", "sequence__field__sort-order": direction}
    table = WrittenTable(tmp_path, arrow=arrow, **options)
    names = ("k", "s", "v")
    commit(table, rows((1, 5, "x"), names=names))
    commit(table, pa.table({"k": [1], "s": pa.array([None], pa.int64()), "v": ["y"]}))
    assert table.rows() == [{"k": 1, "s": 5, "v": "x"}]


def test_ignored_update_before(tmp_path: Path) -> None:
    """Vector 9."""
    table = WrittenTable(tmp_path, ignore_update_before="true")
    commit(table, rows((1, "a")))
    commit(table, rows((1, "a"), kinds=["-U"]))
    assert table.rows() == [{"k": 1, "v": "a"}]
    commit(table, rows((1, "a"), kinds=["-D"]))
    assert table.rows() == []


def test_ignored_rows_are_not_counted_and_take_no_number(tmp_path: Path) -> None:
    table = WrittenTable(tmp_path, ignore_delete="true")
    writer = table.writer()
    assert writer.write(rows((1, "a"), (2, "b"), kinds=["-D", "+I"])) == 1
    table.commit(writer.prepare_commit())
    (file,) = table.files()
    assert (file.min_sequence_number, file.row_count) == (0, 1)


def test_numbers_continue_over_commits_and_writers(tmp_path: Path) -> None:
    table = WrittenTable(tmp_path)
    writer = table.writer()
    writer.write(rows((1, "a"), (2, "b")))
    table.commit(writer.prepare_commit())
    writer.write(rows((1, "c")))
    table.commit(writer.prepare_commit())
    commit(table, rows((3, "d")))
    assert sorted((file.min_sequence_number, file.max_sequence_number) for file in table.files()) == [
        (0, 1),
        (2, 2),
        (3, 3),
    ]


def test_buckets_and_partitions(tmp_path: Path) -> None:
    arrow = pa.schema([*KEYED, pa.field("day", pa.string(), nullable=False)])
    table = WrittenTable(tmp_path, arrow=arrow, keys=["k", "day"], partitions=["day"], bucket="3")
    data = rows(*[(number, f"v{number}", f"d{number % 2}") for number in range(50)], names=("k", "v", "day"))
    commit(table, data)
    assert sorted((row["k"], row["day"]) for row in table.rows()) == sorted((n, f"d{n % 2}") for n in range(50))
    assert len(table.messages) == 6
    assert {message.total_buckets for message in table.messages} == {3}
    folders = {entry.name for entry in table.env.file_io.entries(table.store.location) if entry.is_folder}
    assert folders == {"day=d0", "day=d1", "schema"}


def test_nothing_written_gives_no_message(tmp_path: Path) -> None:
    table = WrittenTable(tmp_path)
    writer = table.writer()
    assert writer.write(KEYED.empty_table()) == 0
    assert writer.prepare_commit() == []


def test_the_fifth_run_is_compacted_to_the_highest_level(tmp_path: Path) -> None:
    table = WrittenTable(tmp_path)
    writer = table.writer()
    for number in range(5):
        writer.write(rows((number, "x"), (100, f"v{number}")))
        table.commit(writer.prepare_commit())
    (file,) = table.files()
    assert (file.level, file.file_source, file.row_count) == (5, FileSource.COMPACT, 6)
    (message,) = table.messages
    assert len(message.compact_before) == 5
    assert message.new_files[0] in message.compact_before
    assert table.stored(file)[-1] == (9, 0, 100, "v4")


class _Reads(MemoryFileIO):
    """Counts the data files that are opened."""

    count = 0

    def open_input(self, path: str) -> pa.NativeFile:
        self.count += path.endswith(".parquet")
        return super().open_input(path)


@pytest.mark.few(1)
@pytest.mark.parametrize("options", [{}, {"sequence_field": "v"}, {"merge_engine": "first-row"}])
def test_small_files_of_this_process_are_not_read_again(tmp_path: Path, options: dict[str, str]) -> None:
    """Compactions of 23 runs; what other processes wrote is read, and gives the same rows."""
    found, counts = [], []
    for has_written_all in (True, False):
        files = _Reads()
        table = WrittenTable(tmp_path / str(has_written_all), env=Env(files, str(tmp_path)), **options)
        writer = table.writer()
        for number in range(23):
            writer = writer if has_written_all else table.writer()
            writer.write(rows((number, "x"), (100, f"v{number:02}"), (number % 3, f"w{number:02}")))
            table.commit(writer.prepare_commit())
        counts.append(files.count)
        found.append(table.rows())
    assert found[0] == found[1]
    assert len(found[0]) == 24
    assert counts[0] == 0 < counts[1]


def test_deletes_survive_until_nothing_older_can_lie_below(tmp_path: Path) -> None:
    table = WrittenTable(tmp_path, num_sorted_run__compaction_trigger="3")
    big = rows(*[(n, hashlib.sha256(str(n).encode()).hexdigest()) for n in range(2000)])
    commit(table, big)
    writer = table.writer()
    table.compact_all(writer)
    table.commit(writer.prepare_commit())
    assert [file.level for file in table.files()] == [3]
    for number in range(2):
        commit(table, rows((number, None), (5000, "y"), kinds=["-D", "+I"]))
    kept = sorted(table.files(), key=lambda file: file.level)
    assert [file.level for file in kept] == [2, 3]
    assert kept[0].delete_row_count == 2
    assert len(table.rows()) == 2000 - 2 + 1
    writer = table.writer()
    table.compact_all(writer)
    table.commit(writer.prepare_commit())
    (file,) = table.files()
    assert (file.level, file.delete_row_count, file.row_count) == (3, 0, 1999)


def test_write_only_tables_are_left_alone(tmp_path: Path) -> None:
    table = WrittenTable(tmp_path, write_only="true")
    for number in range(10):
        commit(table, rows((number, "x")))
    assert [file.level for file in table.files()] == [0] * 10


def test_full_compaction_every_third_commit(tmp_path: Path) -> None:
    table = WrittenTable(tmp_path, full_compaction__delta_commits="3", bucket="2")
    writer = table.writer()
    levels = []
    for identifier in range(1, 7):
        writer.write(rows((identifier, "x")))
        table.commit(writer.prepare_commit(identifier))
        levels.append({file.level for file in table.files()})
    assert levels == [{0}, {0}, {5}, {0, 5}, {0, 5}, {5}]


def test_more_runs_than_the_stop_trigger_are_compacted_before_return(tmp_path: Path) -> None:
    table = WrittenTable(tmp_path, write_only="true")
    for number in range(12):
        commit(table, rows(*[(key, "x" * (1 + number)) for key in range(number * 40, number * 40 + 40)]))
    set_options(table, {"write-only": "false"})
    commit(table, rows((1, "new")))
    assert len(table.files()) <= table.store.options.stop_trigger
    assert table.rows()[1] == {"k": 1, "v": "new"}


def test_a_full_compaction_moves_a_large_file_and_drops_nothing(tmp_path: Path) -> None:
    table = WrittenTable(tmp_path, target_file_size="10 kb")
    commit(table, rows(*[(n, hashlib.sha256(str(n).encode()).hexdigest()) for n in range(3000)]))
    before = {file.file_name: file for file in table.files()}
    assert len(before) > 1
    writer = table.writer()
    writer.compact(full=True)
    assert writer.prepare_commit() == []
    table.compact_all(writer)
    (message,) = writer.prepare_commit()
    moved = [file for file in message.compact_after if file.file_name in before]
    assert moved
    for file in moved:
        assert file == replace(before[file.file_name], level=5)
    table.commit([message])
    assert len(table.rows()) == 3000


def test_a_partition_keeps_the_number_of_buckets_it_has(tmp_path: Path) -> None:
    table = WrittenTable(tmp_path, bucket="2")
    commit(table, rows(*[(number, "a") for number in range(20)]))
    set_options(table, {"bucket": "4"})
    commit(table, rows(*[(number, "b") for number in range(20)]))
    assert {(entry.bucket, entry.total_buckets) for entry in table.committed.at(table.snapshot).entries()} == {
        (0, 2),
        (1, 2),
    }
    assert table.rows() == [{"k": n, "v": "b"} for n in sorted(range(20), key=lambda n: (_bucket_of(table, n), n))]


def test_of_two_writers_the_one_that_commits_last_wins(tmp_path: Path) -> None:
    """Apache Paimon numbers rows at the write: there the rows written last win."""
    table = WrittenTable(tmp_path)
    commit(table, rows((1, "old"), (2, "old")))
    first, second = table.writer(), table.writer()
    first.write(rows((1, "first"), (2, "first"), kinds=["+U", "-D"]))
    second.write(rows((1, "second"), (2, "second")))
    table.commit(second.prepare_commit())
    first.rebase(table.snapshot)
    table.commit(first.prepare_commit())
    assert table.rows() == [{"k": 1, "v": "first"}], "the later commit wins, also with a delete"
    ranges = [(file.min_sequence_number, file.max_sequence_number) for file in table.files()]
    assert sorted(ranges) == [(0, 1), (2, 3), (4, 5)]


def test_spilled_rows_are_numbered_when_they_are_flushed(tmp_path: Path) -> None:
    table = WrittenTable(tmp_path, write_buffer_size="200 kb")
    writer, other = table.writer(), table.writer()
    for number in range(3):
        writer.write(rows(*[(key, f"{number}-{key}" * 20) for key in range(4000)]))
    assert list(tmp_path.glob("freshet-*/[!.]*")), "some rows are on scratch disk"
    other.write(rows((0, "other"), (7, "other")))
    table.commit(other.prepare_commit())
    writer.rebase(table.snapshot)
    table.commit(writer.prepare_commit())
    assert {row["v"] for row in table.rows() if row["k"] in (0, 7)} == {"2-0" * 20, "2-7" * 20}


def test_rows_routed_for_another_number_of_buckets_are_refused(tmp_path: Path) -> None:
    table = WrittenTable(tmp_path, bucket="2")
    commit(table, rows(*[(number, "a") for number in range(20)]))
    set_options(table, {"bucket": "4"})
    writer = table.writer()
    with pytest.raises(ConflictError, match="was written with 2 buckets, rows for it were routed to 4"):
        writer.write_bucket(EMPTY_ROW, 1, rows((1, "a")))


def test_a_bucket_that_is_not_there(tmp_path: Path) -> None:
    table = WrittenTable(tmp_path, bucket="2")
    with pytest.raises(InvalidRequestError, match="buckets 0 to 1, not 2"):
        table.writer().write_bucket(EMPTY_ROW, 2, rows((1, "a")))


def test_routed_rows(tmp_path: Path) -> None:
    table = WrittenTable(tmp_path)
    writer = table.writer(parallelism=1)
    assert writer.write_bucket(EMPTY_ROW, 0, rows((2, "b"), (1, "a"))) == 2
    table.commit(writer.prepare_commit(1))
    assert table.rows() == [{"k": 1, "v": "a"}, {"k": 2, "v": "b"}]


def test_one_hot_partition_of_many_stays_within_the_write_buffer(tmp_path: Path) -> None:
    """Rows of many small buckets are slices of one gather, and each slice keeps all of it."""
    arrow = pa.schema([*KEYED, pa.field("day", pa.int32(), nullable=False)])
    table = WrittenTable(tmp_path, arrow=arrow, keys=["k", "day"], partitions=["day"], write_buffer_size="4 mb")
    writer = table.writer()
    before = pa.total_allocated_bytes()
    highest = 0
    for number in range(20):
        keys = np.arange(20_000) + number * 20_000
        days = np.where(keys % 100 == 0, keys // 100 % 100, 7).astype(np.int32)
        writer.write(pa.table({"k": keys, "v": [f"{key:040d}" for key in keys], "day": days}))
        highest = max(highest, pa.total_allocated_bytes() - before)
    writer.close()
    assert highest < 2 * 4 * 1024 * 1024


def test_a_forked_process_is_refused_the_writer_of_its_parent(tmp_path: Path) -> None:
    table = WrittenTable(tmp_path, bucket="2")
    writer = table.writer()
    writer.write(rows(*[(number, "a") for number in range(20)]))
    child = os.fork()
    if child == 0:
        status = 1
        try:
            for call in (lambda: writer.write(rows((1, "b"))), writer.prepare_commit, lambda: writer.rebase(None)):
                with pytest.raises(InvalidRequestError, match="forked process"):
                    call()
            writer.close()
            status = 0
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    table.commit(writer.prepare_commit())
    assert len(table.rows()) == 20


@pytest.mark.parametrize("spillable", ["true", "false"])
def test_rows_beyond_the_write_buffer(tmp_path: Path, spillable: str) -> None:
    table = WrittenTable(
        tmp_path, bucket="2", write_buffer_size="1 mb", write_buffer_spillable=spillable, write_only="true"
    )
    writer = table.writer()
    expected: dict[int, str] = {}
    for number in range(8):
        keys = [(key * 7919 + number) % 5000 for key in range(4000)]
        writer.write(rows(*[(key, f"{number}-{key}" * 10) for key in keys]))
        expected.update({key: f"{number}-{key}" * 10 for key in keys})
    scratch = list(tmp_path.glob("freshet-*/[!.]*"))
    messages = writer.prepare_commit()
    files_per_bucket = [len(message.new_files) for message in messages]
    if spillable == "true":
        assert len(scratch) >= 4
        assert files_per_bucket == [1, 1]
        assert not list(tmp_path.glob("freshet-*/[!.]*"))
    else:
        assert not scratch
        assert min(files_per_bucket) > 1
    table.commit(messages)
    writer.close()
    assert {row["k"]: row["v"] for row in table.rows()} == expected
    assert not list(tmp_path.glob("freshet-*"))


def test_used_up_spill_disk_goes_to_level_0(tmp_path: Path) -> None:
    options = {"write_buffer_size": "1 mb", "write-buffer-spill__max-disk-size": "1 mb", "write_only": "true"}
    table = WrittenTable(tmp_path, **options)
    writer = table.writer()
    for number in range(20):
        writer.write(rows(*[(key, f"{number}-{key * key}-{key ^ 12345}" * 4) for key in range(number, 60000, 20)]))
    (message,) = writer.prepare_commit()
    assert len(message.new_files) > 1
    table.commit([message])
    assert len(table.rows()) == 60000 - 20 + 20


def test_abort_leaves_only_what_messages_name(tmp_path: Path) -> None:
    table = WrittenTable(tmp_path)
    writer = table.writer()
    writer.write(rows((1, "a")))
    table.commit(writer.prepare_commit())
    kept = table.data_files_on_disk()
    writer.write(rows((1, "b")))
    writer.compact(full=True)
    assert len(table.data_files_on_disk()) == 3
    writer.abort()
    assert table.data_files_on_disk() == kept
    writer.write(rows((2, "c")))
    table.commit(writer.prepare_commit())
    assert table.rows() == [{"k": 1, "v": "a"}, {"k": 2, "v": "c"}]


def test_intermediate_outputs_of_one_commit_leave_no_file(tmp_path: Path) -> None:
    table = WrittenTable(tmp_path)
    writer = table.writer()
    for number in range(3):
        writer.write(rows((number, "x"), (100, f"v{number}")))
        writer.compact(full=True)
    (message,) = writer.prepare_commit()
    assert len(message.new_files) == 3
    assert message.compact_before == message.new_files
    assert len(message.compact_after) == 1
    assert len(table.data_files_on_disk()) == 4
    table.commit([message])
    assert [row["k"] for row in table.rows()] == [0, 1, 2, 100]


def test_rebase_after_the_compaction_was_dropped(tmp_path: Path) -> None:
    table = WrittenTable(tmp_path)
    writer = table.writer()
    for number in range(5):
        writer.write(rows((number, "x")))
        snapshot = table.commit(writer.prepare_commit(), with_compaction=False)
        writer.rebase(snapshot)
    assert [file.level for file in table.files()] == [0] * 5
    writer.write(rows((9, "y")))
    table.commit(writer.prepare_commit())
    assert [file.level for file in table.files()] == [5]
    assert len(table.rows()) == 6


def test_rebase_between_two_commits_of_another_compactor(tmp_path: Path) -> None:
    table = WrittenTable(tmp_path)
    writer, other = table.writer(), table.writer()
    writer.write(rows((1, "a"), (2, "b")))
    snapshot = table.commit(writer.prepare_commit())
    writer.write(rows((1, "c")))
    writer.compact(full=True)
    other.rebase(snapshot)
    table.compact_all(other)
    writer.rebase(table.commit(other.prepare_commit()))
    (message,) = writer.prepare_commit()
    assert (len(message.new_files), message.has_compaction) == (1, False)
    table.commit([message])
    assert table.rows() == [{"k": 1, "v": "c"}, {"k": 2, "v": "b"}]
    assert {file.file_name for file in table.files()} <= table.data_files_on_disk()


def _bucket_of(table: WrittenTable, key: int) -> int:
    entries = table.committed.at(table.snapshot).entries()
    (bucket,) = {entry.bucket for entry in entries if key in {row[2] for row in table.stored(entry.file)}}
    return bucket


class _FullDisk(LocalFileIO):
    """Takes no new file once it is full."""

    is_full = False

    def open_output(self, path: str, *, sync_folder: bool = True) -> OutputFile:
        if self.is_full and path.endswith(".parquet"):
            raise RetryableError("no space left on device")
        return super().open_output(path, sync_folder=sync_folder)


def test_after_a_failure_the_writer_hands_out_nothing(tmp_path: Path) -> None:
    disk = _FullDisk()
    table = WrittenTable(tmp_path, env=Env(disk, str(tmp_path)), bucket="2")
    writer = table.writer()
    data = rows((1, "a"), (2, "b"), (3, "c"))
    writer.write(data)
    disk.is_full = True
    with pytest.raises(RetryableError, match="no space"):
        writer.prepare_commit()
    disk.is_full = False
    for call in (writer.prepare_commit, lambda: writer.write(data), lambda: writer.compact(full=True)):
        with pytest.raises(InvalidRequestError, match="abort it"):
            call()
    writer.abort()
    assert table.data_files_on_disk() == set()
    writer.write(data)
    table.commit(writer.prepare_commit())
    assert len(table.rows()) == 3


def test_refused_rows_leave_the_writer_usable(tmp_path: Path) -> None:
    table = WrittenTable(tmp_path)
    writer = table.writer()
    writer.write(rows((1, "a")))
    with pytest.raises(InvalidRequestError, match="row 1"):
        writer.write(pa.table({"k": [2, None], "v": ["b", "c"]}))
    table.commit(writer.prepare_commit())
    assert table.rows() == [{"k": 1, "v": "a"}]


@pytest.mark.parametrize(
    "point",
    [
        CrashPoint.DATA_FILE_CLOSED,
        CrashPoint.WRITE_BEFORE_SPILL,
        CrashPoint.WRITE_SPILLED,
        CrashPoint.WRITE_FLUSHED,
        CrashPoint.COMPACT_BEFORE_OUTPUT,
        CrashPoint.COMPACT_OUTPUT_WRITTEN,
        CrashPoint.WRITE_PREPARED,
    ],
)
def test_a_crash_at_any_point_leaves_the_committed_rows(tmp_path: Path, point: CrashPoint) -> None:
    class Dying(Env):
        is_armed = False

        def reach(self, reached: CrashPoint) -> None:
            if self.is_armed and reached is point:
                raise KeyboardInterrupt

    env = Dying(LocalFileIO(), str(tmp_path))
    table = WrittenTable(tmp_path, env=env, write_buffer_size="100 b")
    for number in range(4):
        commit(table, rows((number, "x"), (9, f"v{number}")))
    before = table.rows()
    env.is_armed = True
    with pytest.raises(KeyboardInterrupt):
        commit(table, rows((7, "lost"), (9, "lost"), (10, "lost" * 20)))
    env.is_armed = False
    assert table.rows() == before
    commit(table, rows((7, "kept")))
    assert table.rows() == sorted([*before, {"k": 7, "v": "kept"}], key=lambda row: row["k"])


def test_buckets_of_earlier_commits_are_compacted_on_request(tmp_path: Path) -> None:
    table = WrittenTable(tmp_path, bucket="2")
    writer = table.writer()
    for number in range(2):
        writer.write(rows(*[(key, f"v{number}") for key in range(10)]))
        writer.rebase(table.commit(writer.prepare_commit()))
    writer.compact(full=True)
    table.commit(writer.prepare_commit())
    assert [file.level for file in table.files()] == [5, 5]


def test_files_of_a_later_schema_are_not_rewritten(tmp_path: Path) -> None:
    table = WrittenTable(tmp_path)
    for number in range(4):
        commit(table, rows((number, "x")))
    (entries,) = table.committed.at(table.snapshot).by_bucket.values()
    newer = next(iter(entries.values()))
    added = replace(newer, file=replace(newer.file, schema_id=1, file_name=newer.file.file_name))
    assert table.snapshot is not None
    live = table.committed.states[table.snapshot.id]
    removed = replace(newer, kind=EntryKind.DELETE)
    without = committed(live, table.snapshot.id, [removed])
    table.committed.states[table.snapshot.id] = committed(without, table.snapshot.id, [added])
    writer = table.writer()
    writer.write(rows((9, "y")))
    table.commit(writer.prepare_commit())
    assert [file.level for file in table.files()] == [0] * 5
    with pytest.raises(ConflictError, match="altered since it was opened at schema 0"):
        writer.compact(full=True)


def test_very_many_runs_are_merged_by_way_of_scratch_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(section_merge, "OPEN_COLUMNS_MAX", 8)
    monkeypatch.setattr(section_merge, "STRAIGHT_RUNS_MIN", 2)
    table = WrittenTable(tmp_path, write_only="true")
    for number in range(7):
        commit(table, rows(*[(key, f"v{number}") for key in range(number, 400, number + 1)], (1000, f"v{number}")))
    expected = table.rows()
    before = table.snapshot
    writer = table.writer()
    table.compact_all(writer)
    (folder,) = tmp_path.glob("freshet-*")
    assert list(folder.glob("[!.]*")) == []
    table.commit(writer.prepare_commit())
    writer.close()
    assert before is not table.snapshot
    assert table.rows() == expected
    assert [file.level for file in table.files()] == [5]
