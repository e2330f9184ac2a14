"""A disk that fills up or may not be written: nothing half-written is visible, the table reads as before, and takes
rows again once there is room.

The disk is a small one in memory where this user may mount one; the same is played everywhere with a `FileIO` that
runs out of bytes, at every write that a load, a commit and a compaction make.
"""

from __future__ import annotations

import errno
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from freshet import (
    AddColumn,
    Catalog,
    InvalidRequestError,
    RetryableError,
    StorageError,
    Table,
    UnknownOutcomeError,
)
from freshet.storage.edits.edit_commit import EditResult
from freshet.storage.io.env import Env
from freshet.storage.io.file_io import OutputFile
from freshet.storage.io.local_errors import storage_error
from freshet.storage.io.local_file_io import LocalFileIO
from tests.kit.folders import contents, unchanged
from tests.kit.small_disk import small_disk


def rows(start: int, count: int) -> pa.Table:
    """Rows that do not compress well."""
    ids = range(start, start + count)
    texts = [f"{number * 2654435761 % 2**64:x}{number * 40503 % 2**61:x}" for number in ids]
    return pa.table({"id": pa.array(ids, pa.int64()), "text": texts})


def create(catalog: Catalog, **options: object) -> Table:
    return catalog.create_table(
        "a.b", schema={"id": "BIGINT", "text": "STRING"}, primary_keys=["id"], options={"bucket": 2} | options
    )


def ids_of(catalog: Catalog) -> list[int]:
    return sorted(catalog.table("a.b").scan().to_arrow()["id"].to_pylist())


# ------------------------------------------------------------------------------------------- bytes that run out


class _FullOutput:
    """A new file on a disk with `room` bytes left for all of them."""

    def __init__(self, disk: _FullDisk, path: str, inner: OutputFile) -> None:
        self._disk, self._path, self._inner = disk, path, inner

    @property
    def closed(self) -> bool:
        return self._inner.closed

    def readable(self) -> bool:
        return False

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return False

    def write(self, data: bytes | memoryview | pa.Buffer) -> int:
        self._disk.take(memoryview(data).nbytes, self._path)
        return self._inner.write(data)

    def tell(self) -> int:
        return self._inner.tell()

    def flush(self) -> None:
        self._inner.flush()

    def close(self) -> None:
        self._inner.close()

    def abort(self) -> None:
        self._inner.abort()


class _FullDisk(LocalFileIO):
    """Files on the real disk until `room` bytes are written; None is room without end."""

    def __init__(self) -> None:
        self.room: int | None = None
        self.written = 0
        self.refused: list[str] = []
        self.refuses: str | None = None
        """A name that finds no room, whatever its size."""

    def take(self, size: int, path: str) -> None:
        is_over = self.room is not None and self.written + size > self.room
        if is_over or path.endswith(f"/{self.refuses}"):
            self.refused.append(path)
            raise storage_error(OSError(errno.ENOSPC, "full"), "write", path)
        self.written += size

    def open_output(self, path: str, *, sync_folder: bool = True) -> OutputFile:
        return _FullOutput(self, path, super().open_output(path, sync_folder=sync_folder))

    def _write_temporary(self, path: str, data: bytes, *, sync: bool = True) -> str:
        self.take(len(data), path)
        return super()._write_temporary(path, data, sync=sync)


def _load(catalog: Catalog, identifier: int) -> None:
    with catalog.table("a.b").writer("loader") as writer:
        writer.write(rows(identifier * 100, 100))
        writer.commit(identifier)


@pytest.mark.few(4)
@pytest.mark.parametrize("share", [0.0, 0.2, 0.45, 0.6, 0.75, 0.85, 0.93, 0.97, 0.999])
def test_a_commit_on_a_disk_that_fills_up(tmp_path: Path, share: float) -> None:
    disk = _FullDisk()
    catalog = Catalog(tmp_path, env=Env(disk))
    create(catalog, **{"commit.max-retries": 1, "commit.max-retry-wait": "1 ms"})
    _load(catalog, 0)
    disk.written = 0
    _load(catalog, 1)
    needed = disk.written
    assert ids_of(catalog) == list(range(200))
    before = {name for name in contents(tmp_path) if "snapshot-" in name}
    disk.written, disk.room = 0, int(needed * share)
    failure: StorageError | None = None
    try:
        _load(catalog, 2)
    except StorageError as error:
        failure = error
    assert disk.refused, "the disk was full"
    after = {name for name in contents(tmp_path) if "snapshot-" in name}
    if failure is None:
        assert disk.refused[0].endswith("LATEST"), "only a hint may be missed"
        assert len(after) == len(before) + 1
    else:
        assert isinstance(failure, RetryableError), failure
        assert str(tmp_path) in str(failure)
        assert "No space left" in str(failure)
        assert "free some space" in str(failure)
        assert after == before
        assert ids_of(catalog) == list(range(200)), "reads as before"
    disk.room = None
    _load(catalog, 2)
    assert ids_of(catalog) == list(range(300))
    assert [snapshot.commit_identifier for snapshot in catalog.table("a.b").snapshots()] == [0, 1, 2]
    table = catalog.table("a.b")
    table.remove_orphan_files(older_than_ms=-1_000_000)
    assert ids_of(catalog) == list(range(300))


@pytest.mark.parametrize("share", [0.0, 0.2, 0.4, 0.6, 0.8, 0.9])
def test_what_a_failed_commit_leaves_behind(tmp_path: Path, share: float) -> None:
    """Complete data files at most, for the next try of the same rows: no piece of a file, no metadata."""
    disk = _FullDisk()
    catalog = Catalog(tmp_path, env=Env(disk))
    create(catalog, **{"commit.max-retries": 0})
    _load(catalog, 0)
    before = set(contents(tmp_path))
    disk.written, disk.room = 0, int(disk.written * share)
    with pytest.raises(RetryableError):
        _load(catalog, 1)
    assert_only_whole_data_files(tmp_path, before)


def assert_only_whole_data_files(folder: Path, before: set[str]) -> None:
    for name in sorted(set(contents(folder)) - before):
        assert name.endswith(".parquet"), name
        with pq.ParquetFile(folder / name) as file:
            assert file.read().num_rows > 0


def test_a_snapshot_that_finds_no_room_was_surely_not_made(tmp_path: Path) -> None:
    """Verbs have no identifier to commit again: an outcome that is known must not be called unknown."""
    disk = _FullDisk()
    catalog = Catalog(tmp_path, env=Env(disk))
    table = create(catalog, **{"commit.max-retries": 0})
    _load(catalog, 0)
    disk.refuses = "snapshot-2"
    with pytest.raises(RetryableError, match=r"snapshot-2: No space left.*free some space") as caught:
        table.delete("id < 50")
    assert "identifier again" not in str(caught.value)
    assert ids_of(catalog) == list(range(100))
    disk.refuses = None
    table.delete("id < 50")
    assert ids_of(catalog) == list(range(50, 100))


VERBS: dict[str, Callable[[Table], EditResult]] = {
    "delete": lambda table: table.delete("id < 20"),
    "update": lambda table: table.update({"text": "new"}, "id < 20"),
    "upsert": lambda table: table.upsert(rows(90, 20)),
    "append": lambda table: table.append(rows(200, 20)),
    "merge": lambda table: (
        table.merge(rows(90, 20), ["id"]).when_matched_delete().when_not_matched_insert_all().execute()
    ),
    "overwrite by a filter": lambda table: table.overwrite(rows(0, 10), filter="id < 50"),
}


VECTORS, FIRST_ROW = {"deletion-vectors.enabled": True}, {"merge-engine": "first-row"}


@pytest.mark.few(4)
@pytest.mark.parametrize(
    ("options", "verb"), [*((VECTORS, verb) for verb in VERBS), (FIRST_ROW, "upsert"), (FIRST_ROW, "append")], ids=str
)
def test_an_edit_that_readers_do_not_see_is_not_said_to_be_done(
    options: dict[str, object], verb: str, tmp_path: Path
) -> None:
    """Where readers do not see level 0, and the disk was full in the compaction after the first snapshot."""
    disk = _FullDisk()
    catalog = Catalog(tmp_path, env=Env(disk))
    create(catalog, **options, **{"bucket": 1, "commit.max-retries": 0})
    _load(catalog, 0)
    disk.refuses = "snapshot-4"  # 3 is the APPEND, which compacts nothing that readers see
    before = ids_of(catalog)
    with pytest.raises(
        UnknownOutcomeError, match=r"snapshot 3 has this edit.*No space left.*Do not make the edit again"
    ):
        VERBS[verb](catalog.table("a.b"))
    assert ids_of(catalog) == before
    disk.refuses = None
    catalog.table("a.b").compact()
    assert catalog.table("a.b").scan().to_arrow().to_pylist() != rows(0, 100).to_pylist()


def test_an_edit_that_waits_for_the_compaction_of_others_says_so(tmp_path: Path) -> None:
    catalog = Catalog(tmp_path)
    create(catalog, **{"deletion-vectors.enabled": True, "write-only": True})
    table = catalog.table("a.b")
    table.append(rows(0, 10))
    assert repr(table.delete("id < 5")).endswith("; readers see it with the next compaction)")
    table.compact()
    assert ids_of(catalog) == list(range(5, 10))


@pytest.mark.parametrize(("share", "is_lost"), [(0.0, True), (0.3, True), (0.9, False)])
def test_a_session_goes_on_when_there_is_room_again(tmp_path: Path, share: float, is_lost: bool) -> None:
    """Rows whose files could not be written must be given again, after `abort`; a failed commit is just repeated."""
    disk = _FullDisk()
    catalog = Catalog(tmp_path, env=Env(disk))
    table = create(catalog, **{"commit.max-retries": 0})
    _load(catalog, 0)
    needed = disk.written
    with table.writer("loader") as writer:
        writer.write(rows(100, 100))
        disk.written, disk.room = 0, int(needed * share)
        with pytest.raises(RetryableError):
            writer.commit(1)
        disk.room = None
        if is_lost:
            with pytest.raises(InvalidRequestError, match="abort it, then write all rows"):
                writer.commit(1)
            writer.abort()
            writer.write(rows(100, 100))
        assert writer.commit(1).snapshots
    assert ids_of(catalog) == list(range(200))


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_a_compaction_on_a_disk_that_fills_up(tmp_path: Path, share: float) -> None:
    disk = _FullDisk()
    catalog = Catalog(tmp_path, env=Env(disk))
    create(catalog, **{"write-only": True, "commit.max-retries": 0})
    for number in range(3):
        _load(catalog, number)
    full = sum(len(data or b"") for name, data in contents(tmp_path).items() if name.endswith(".parquet"))
    before = set(contents(tmp_path))
    disk.written, disk.room = 0, int(full * share)
    with pytest.raises(RetryableError, match="free some space"):
        catalog.table("a.b").compact(full=True)
    assert_only_whole_data_files(tmp_path, before)
    assert ids_of(catalog) == list(range(300))
    disk.room = None
    assert catalog.table("a.b").compact(full=True).snapshots
    assert ids_of(catalog) == list(range(300))


def test_no_room_for_a_table_or_a_schema(tmp_path: Path) -> None:
    disk = _FullDisk()
    catalog = Catalog(tmp_path, env=Env(disk))
    disk.room = 0
    with pytest.raises(RetryableError, match=r"schema-0.*free some space"):
        create(catalog)
    assert not catalog.has_table("a.b")
    disk.room = None
    table = create(catalog)
    disk.written, disk.room = 0, 10
    with unchanged(tmp_path), pytest.raises(RetryableError, match="schema-1"):
        table.alter(AddColumn("more", "INT"))
    disk.room = None
    assert table.alter(AddColumn("more", "INT")).schema.id == 1


# -------------------------------------------------------------------------------------------------- a real small disk


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 600 KB in memory."""
    with small_disk(tmp_path / "disk", "600k") as folder:
        yield folder


def test_a_real_disk_that_fills_up(disk: Path) -> None:
    catalog = Catalog(disk)
    create(catalog, **{"commit.max-retries": 0, "write-only": True})
    loaded = 0
    failure: StorageError | None = None
    while failure is None:
        try:
            _load_more(catalog, loaded)
            loaded += 1
        except RetryableError as error:
            failure = error
    assert loaded > 3
    for part in (str(disk), "No space left on device", "free some space"):
        assert part in str(failure)
    assert ids_of(catalog) == list(range(loaded * 500)), "reads as before"
    assert not [name for name in contents(disk) if name.endswith(".tmp")]
    subprocess.run(["mount", "-o", "remount,size=4m", str(disk)], check=True)
    _load_more(catalog, loaded)
    assert ids_of(catalog) == list(range((loaded + 1) * 500))


def _load_more(catalog: Catalog, number: int) -> None:
    with catalog.table("a.b").writer("loader") as writer:
        writer.write(rows(number * 500, 500))
        assert writer.commit(number).snapshots


def test_a_scratch_disk_that_fills_up(disk: Path, tmp_path: Path) -> None:
    """The table is on another disk: expiring its snapshots would not help, and the message says what does."""
    catalog = Catalog(tmp_path / "warehouse", env=Env(LocalFileIO(), str(disk)))
    table = create(catalog, **{"write-buffer-size": "1 mb", "write-only": True})
    many = [rows(number * 10_000, 10_000) for number in range(10)]
    with table.writer("loader") as writer:
        with pytest.raises(RetryableError, match=r"run-\d+.arrow: No space left") as caught:
            writer.write(pa.concat_tables(many))
        assert str(disk) in str(caught.value)
        assert "TMPDIR" in str(caught.value)
        assert "expire" not in str(caught.value)
        subprocess.run(["mount", "-o", "remount,size=64m", str(disk)], check=True)
        writer.abort()
        for part in many:
            writer.write(part)
        writer.commit(0)
    assert table.scan().count() == 100_000
    assert not list(disk.iterdir()), "nothing is left on the scratch disk"


def test_a_disk_that_may_only_be_read(disk: Path) -> None:
    catalog = Catalog(disk)
    table = create(catalog)
    _load(catalog, 0)
    _load(catalog, 1)
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
    with unchanged(disk):
        assert ids_of(catalog) == list(range(200)), "readable"
        assert "a.b" in table.describe()
        for call in (
            lambda: _load(catalog, 2),
            lambda: table.compact(full=True),
            lambda: table.alter(AddColumn("more", "INT")),
            lambda: catalog.drop_table("a.b"),
            lambda: create_other(catalog),
            lambda: table.expire_snapshots(retain_max=1, retain_min=1, older_than_ms=2**60),
        ):
            with pytest.raises(InvalidRequestError, match="Read-only file system") as caught:
                call()
            assert str(disk) in str(caught.value)
            assert "another warehouse" in str(caught.value)
    subprocess.run(["mount", "-o", "remount,rw", str(disk)], check=True)
    _load(catalog, 2)
    assert ids_of(catalog) == list(range(300))


def create_other(catalog: Catalog) -> Table:
    return catalog.create_table("other.t", schema={"id": "INT"}, options={"bucket": -1})


def test_a_warehouse_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "w").write_bytes(b"not a folder")
    catalog = Catalog(tmp_path / "w")
    assert not catalog.has_table("a.b")
    with unchanged(tmp_path), pytest.raises(InvalidRequestError, match="Not a directory"):
        create(catalog)
