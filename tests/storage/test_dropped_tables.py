"""Tables that are dropped, dropped and created again, rolled back, or unreadable while they are open."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from freshet import AddColumn, Catalog, ConflictError, CorruptDataError, InvalidRequestError, NotFoundError, Table
from freshet.storage import readable_table
from freshet.storage.commit import committer as committer_module
from freshet.storage.exceptions import MissingFileError
from freshet.storage.io.env import Env
from freshet.storage.io.file_io import FileStatus
from freshet.storage.io.local_file_io import LocalFileIO
from freshet.storage.metadata.schema_store import SchemaStore
from freshet.storage.model.schema import TableSchema
from tests.kit.folders import contents, unchanged


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    return Catalog(tmp_path)


def create(catalog: Catalog, key: str = "id") -> Table:
    return catalog.create_table("a.b", schema={key: "BIGINT"}, primary_keys=[key], options={"bucket": 2})


def test_a_writer_does_not_bring_a_dropped_table_back(catalog: Catalog, tmp_path: Path) -> None:
    table = create(catalog)
    with table.writer("loader") as writer:
        writer.write(pa.table({"id": [1]}))
        writer.commit(0)
        writer.write(pa.table({"id": [2]}))
        catalog.drop_table("a.b")
        with pytest.raises(NotFoundError, match=r"a\.db/b was dropped.*nothing was committed"):
            writer.commit(1)
        writer.abort()
    assert not (tmp_path / "a.db" / "b").exists()
    with pytest.raises(NotFoundError, match="dropped"):
        table.alter(AddColumn("more", "INT"))


def test_a_writer_does_not_write_into_the_next_table_of_the_name(catalog: Catalog, tmp_path: Path) -> None:
    old = create(catalog)
    with old.writer("loader") as writer:
        writer.write(pa.table({"id": [1]}))
        writer.commit(0)
        catalog.drop_table("a.b")
        new = create(catalog, "key")
        with new.writer("other") as other:
            other.write(pa.table({"key": [7]}))
            other.commit(0)
        writer.write(pa.table({"id": [2]}))
        with unchanged(tmp_path), pytest.raises(ConflictError, match=r"created again.*nothing was committed"):
            writer.commit(1)
        writer.abort()
    assert catalog.table("a.b").scan().to_arrow().to_pylist() == [{"key": 7}]


def half_dropped(table: Table, *patterns: str) -> None:
    """As a drop leaves the table that was stopped, or goes on: the schema is gone, and what the patterns name."""
    for path in [path for pattern in ("schema/*", *patterns) for path in Path(table.location).glob(pattern)]:
        path.unlink()


def with_runs(catalog: Catalog, **options: str) -> Table:
    """A table with two files in its bucket, for compactions and lookups to read."""
    table = catalog.create_table(
        "a.b", schema={"id": "BIGINT"}, primary_keys=["id"], options={"bucket": "1", "write-only": "true", **options}
    )
    with table.writer("loader") as writer:
        for number in range(2):
            writer.write(pa.table({"id": [number, 9]}))
            writer.commit(number)
    return table.with_options({"write-only": "false"})


def test_a_writer_that_misses_files_of_a_dropped_table_says_so(catalog: Catalog) -> None:
    """Not that the files are to be restored: a drop has removed them, the schema before."""
    table = with_runs(catalog)
    with table.writer("loader") as writer:
        writer.write(pa.table({"id": [3]}))
        half_dropped(table, "bucket-0/*")
        with pytest.raises(NotFoundError, match=r"a\.db/b was dropped or renamed while it was open"):
            writer.compact(full=True)
        writer.abort()


def test_a_compaction_that_misses_files_of_a_dropped_table_says_so(catalog: Catalog, tmp_path: Path) -> None:
    table = with_runs(catalog)
    with pytest.raises(NotFoundError, match=r"a\.db/b was dropped or renamed while it was open"):
        table.compact(progress=lambda _: half_dropped(table, "bucket-0/*"))


def test_a_sort_that_misses_files_of_a_dropped_table_says_so(catalog: Catalog) -> None:
    table = catalog.create_table("a.b", schema={"id": "BIGINT"}, options={"bucket": "-1"})
    with table.writer("loader") as writer:
        writer.write(pa.table({"id": [1]}))
        writer.commit(0)
    with pytest.raises(NotFoundError, match=r"a\.db/b was dropped or renamed while it was open"):
        table.sort_compact(["id"], progress=lambda _: half_dropped(table, "bucket-0/*"))


def test_a_lookup_that_misses_files_of_a_dropped_table_says_so(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = with_runs(catalog)
    find = readable_table.find_in

    def then_drop(*arguments: Any, **named: Any) -> object:
        found = find(*arguments, **named)
        half_dropped(table, "bucket-0/*")
        return found

    monkeypatch.setattr(readable_table, "find_in", then_drop)
    with pytest.raises(NotFoundError, match=r"a\.db/b was dropped or renamed while it was open"):
        table.lookup(pa.table({"id": [1]}))


def test_a_commit_that_misses_snapshots_of_a_dropped_table_says_so(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The hint may be the last that is left of them."""
    table = with_runs(catalog)
    checked = SchemaStore.check_current

    def drop_after(store: SchemaStore, schema: TableSchema) -> int:
        newest = checked(store, schema)
        half_dropped(table, "snapshot/snapshot-*")
        return newest

    with table.writer("loader") as writer:
        writer.write(pa.table({"id": [3]}))
        monkeypatch.setattr(SchemaStore, "check_current", drop_after)
        with pytest.raises(NotFoundError, match=r"a\.db/b was dropped or renamed while it was open"):
            writer.commit(2)
        writer.abort()


def test_packing_changelogs_of_a_dropped_table_says_so(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    options = {"changelog-producer": "input", "precommit-compact": "true", "bucket": "2"}
    table = with_runs(catalog, **options)
    with table.writer("loader") as writer:
        writer.write(pa.table({"id": list(range(20))}))
        pack = committer_module.packed_change

        def drop_then(*arguments: Any) -> object:
            half_dropped(table, "bucket-*/changelog-*")
            return pack(*arguments)

        monkeypatch.setattr(committer_module, "packed_change", drop_then)
        with pytest.raises(NotFoundError, match=r"a\.db/b was dropped or renamed while it was open"):
            writer.commit(2)
        writer.abort()


def made_anew(catalog: Catalog) -> Table:
    """An old object of a table that has another column by now, and a row."""
    options = {"bucket": 1, "changelog-producer": "lookup"}
    old = catalog.create_table("a.b", schema={"id": "BIGINT"}, primary_keys=["id"], options=options)
    with old.writer("loader") as writer:
        writer.write(pa.table({"id": [1]}))
        writer.commit(0)
    catalog.drop_table("a.b")
    new = catalog.create_table("a.b", schema={"key": "BIGINT"}, primary_keys=["key"], options=options)
    with new.writer("other") as other:
        other.write(pa.table({"key": [7]}))
        other.commit(0)
    return old


USES: dict[str, Callable[[Table], object]] = {
    "scan": lambda table: table.scan().to_arrow(),
    "snapshot": lambda table: table.scan(snapshot_id=1).to_arrow(),
    "lookup": lambda table: table.lookup(pa.table({"id": [1]})),
    "changelog": lambda table: table.changelog().to_arrow(),
    "between": lambda table: table.changes_between(0, 1).to_arrow(),
    "stream": lambda table: list(table.stream(max_wait_s=0)),
    "reset": lambda table: table.reset_consumer("c", 1),
    "delete": lambda table: table.delete_consumer("c"),
    "alter": lambda table: table.alter(AddColumn("more", "INT")),
    "expire": lambda table: table.expire_snapshots(retain_max=1),
    "orphans": lambda table: table.remove_orphan_files(older_than_ms=-1),
}


@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_an_old_object_does_not_touch_the_next_table_of_the_name(
    catalog: Catalog, tmp_path: Path, use: Callable[[Table], object]
) -> None:
    old = made_anew(catalog)
    with (
        unchanged(tmp_path),
        pytest.raises(NotFoundError, match=r"a\.db/b was dropped and created again.*open it anew"),
    ):
        use(old)


def test_an_old_object_of_a_later_schema_does_not_read_the_next_table_of_the_name(catalog: Catalog) -> None:
    old = create(catalog).alter(AddColumn("more", "INT"))
    catalog.drop_table("a.b")
    made_anew(catalog)
    with pytest.raises(NotFoundError, match="dropped and created again"):
        old.scan()


def test_an_old_object_does_not_write_into_the_next_table_of_the_name(catalog: Catalog, tmp_path: Path) -> None:
    old = made_anew(catalog)
    with (
        unchanged(tmp_path),
        pytest.raises(ConflictError, match=r"a\.db/b was dropped and created again.*open it anew"),
    ):
        old.writer("loader")


@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_a_dropped_table_is_not_brought_back_by_an_old_object(
    catalog: Catalog, tmp_path: Path, use: Callable[[Table], object]
) -> None:
    old = made_anew(catalog)
    catalog.drop_table("a.b")
    with unchanged(tmp_path), pytest.raises(NotFoundError, match=r"a\.db/b was dropped or renamed while it was open"):
        use(old)
    assert not (tmp_path / "a.db" / "b").exists()


def test_a_stream_does_not_bring_a_dropped_table_back_for_its_consumer(catalog: Catalog, tmp_path: Path) -> None:
    made_anew(catalog)
    stream = catalog.table("a.b").stream(consumer_id="c", max_wait_s=0)
    assert next(stream).to_pylist() == [{"key": 7, "_ROW_KIND": "+I"}]
    catalog.drop_table("a.b")
    with pytest.raises(NotFoundError, match="was dropped or renamed while it was open"):
        next(stream)
    assert not (tmp_path / "a.db" / "b").exists()


def test_looking_whether_the_table_is_the_same_is_one_call(tmp_path: Path) -> None:
    calls: list[str] = []

    class Counting(LocalFileIO):
        def read_bytes(self, path: str) -> bytes:
            calls.append(path)
            return super().read_bytes(path)

        def entries(self, path: str) -> Iterator[FileStatus]:
            calls.append(path)
            return super().entries(path)

    old = create(Catalog(tmp_path, env=Env(Counting())))
    for _ in range(2):
        calls.clear()
        old.store.schemas.check_same(old.schema)
        assert len(calls) == 1


def put(table: Table, keys: Iterable[int]) -> None:
    for key in keys:
        with table.writer("loader") as writer:
            writer.write(pa.table({"id": [key]}))
            writer.commit()


CLEANINGS: dict[str, Callable[[Table], object]] = {
    "expire": lambda table: table.expire_snapshots(retain_max=8),
    "orphans": lambda table: table.remove_orphan_files(older_than_ms=-1),
}


@pytest.mark.parametrize("clean", CLEANINGS.values(), ids=CLEANINGS)
def test_an_old_object_cleans_by_what_a_rolled_back_table_has_now(
    catalog: Catalog, tmp_path: Path, clean: Callable[[Table], object]
) -> None:
    """It knows snapshots 6 to 9 of before, the last of which deletes files that are live again."""
    options = {"bucket": "1", "num-sorted-run.compaction-trigger": "50"}
    old = catalog.create_table("a.b", schema={"id": "BIGINT"}, primary_keys=["id"], options=options)
    put(old, range(8))
    old.compact()
    snapshots = tmp_path / "a.db" / "b" / "snapshot"
    (snapshots / "LATEST").write_text("5")  # as Apache Paimon rolls back
    for number in range(6, 10):
        (snapshots / f"snapshot-{number}").unlink()
    table = catalog.table("a.b")
    put(table, range(100, 115))
    clean(old)
    assert table.check().damage == []
    for snapshot in catalog.table("a.b").snapshots():
        keys = [*range(5), *range(100, 100 + snapshot.id - 5)][: snapshot.id]
        assert table.scan(snapshot_id=snapshot.id).to_arrow()["id"].to_pylist() == keys


def test_a_writer_of_an_older_schema_goes_on(catalog: Catalog) -> None:
    table = create(catalog)
    with table.writer("loader") as writer:
        for number in range(3):
            table = table.alter(AddColumn(f"c{number}", "INT"))
            writer.write(pa.table({"id": [number]}))
            writer.commit(number)
    assert sorted(table.scan(columns=["id"]).to_arrow()["id"].to_pylist()) == [0, 1, 2]


def test_a_closed_writer_takes_nothing(catalog: Catalog, tmp_path: Path) -> None:
    writer = create(catalog).writer("loader")
    writer.close()
    writer.close()
    with unchanged(tmp_path):
        with pytest.raises(InvalidRequestError, match=r"a\.db/b is closed"):
            writer.write(pa.table({"id": [1]}))
        with pytest.raises(InvalidRequestError, match=r"a\.db/b is closed"):
            writer.commit(0)


def test_a_table_that_cannot_be_read_does_not_hide_the_others(catalog: Catalog, tmp_path: Path) -> None:
    create(catalog)
    broken = tmp_path / "a.db" / "broken" / "schema" / "schema-0"
    broken.parent.mkdir(parents=True)
    broken.write_bytes(b"{}")
    assert catalog.list_tables("a") == ["b", "broken"]
    assert catalog.has_table("a.broken")
    with unchanged(tmp_path):
        with pytest.raises(CorruptDataError, match="schema-0"):
            catalog.table("a.broken")
        with pytest.raises(InvalidRequestError, match="exists already"):
            catalog.create_table("a.broken", schema={"id": "INT"}, options={"bucket": -1})
        with pytest.raises(NotFoundError, match="b, broken"):
            catalog.table("a.nope")
    catalog.drop_table("a.broken")
    catalog.drop_database("a", cascade=True)
    assert not contents(tmp_path)


def test_a_partition_value_too_long_for_a_folder(catalog: Catalog, tmp_path: Path) -> None:
    table = catalog.create_table(
        "a.b", schema={"id": "BIGINT", "p": "STRING"}, partition_keys=["p"], options={"bucket": -1}
    )
    too_long = pytest.raises(InvalidRequestError, match="would have more than 255 bytes .* shorten it")
    with table.writer("loader") as writer, too_long as caught:
        writer.write(pa.table({"id": [1], "p": ["x" * 5_000]}))
    assert len(str(caught.value)) < 1000
    assert not [name for name in contents(tmp_path) if name.endswith((".parquet", ".tmp"))]
    with table.writer("loader") as writer:
        writer.write(pa.table({"id": [1], "p": ["short"]}))
        writer.commit(0)
    assert table.scan().to_arrow().num_rows == 1


@pytest.mark.parametrize("value", ["", "  ", ".", "..", "a/b", "a=b", "%2F", "a\nb", "a\0b", "*", "~", None])
def test_any_partition_value_stays_below_the_table(catalog: Catalog, tmp_path: Path, value: str | None) -> None:
    table = catalog.create_table(
        "a.b", schema={"id": "BIGINT", "p": "STRING"}, partition_keys=["p"], options={"bucket": -1}
    )
    with table.writer("loader") as writer:
        writer.write(pa.table({"id": [1], "p": pa.array([value], pa.string())}))
        writer.commit(0)
    assert table.scan().to_arrow()["p"].to_pylist() == [value]
    [file] = [name for name in contents(tmp_path) if name.endswith(".parquet")]
    assert len(Path(file).parts) == 5, "database, table, partition, bucket, file"
    assert (tmp_path / "a.db" / "b").resolve() in (tmp_path / file).resolve().parents


def test_a_drop_that_was_interrupted(catalog: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The schema goes first, so that nobody reads half of a table. What is left does not come back in a new one."""
    table = create(catalog)
    with table.writer("loader") as writer:
        writer.write({"id": [1]})
        writer.commit(0)
    delete_prefix = LocalFileIO.delete_prefix

    def interrupted(files: LocalFileIO, path: str) -> None:
        if path == table.location:
            raise KeyboardInterrupt
        delete_prefix(files, path)

    with monkeypatch.context() as patch:
        patch.setattr(LocalFileIO, "delete_prefix", interrupted)
        with pytest.raises(KeyboardInterrupt):
            catalog.drop_table("a.b")
    assert not catalog.has_table("a.b")
    with pytest.raises(MissingFileError, match=r"restore schema-0.*if dropping it was interrupted, drop it again"):
        catalog.table("a.b")
    with (
        unchanged(tmp_path),
        pytest.raises(InvalidRequestError, match=r"snapshots, tags or branches of an earlier table.*drop_table"),
    ):
        create(catalog, "other")
    catalog.drop_table("a.b")
    with pytest.raises(NotFoundError):
        catalog.drop_table("a.b")
    catalog.drop_table("a.b", if_exists=True)
    made = create(catalog, "other")
    assert made.latest_snapshot() is None
    with made.writer("loader") as writer:
        writer.write({"other": [2]})
        assert not writer.commit(0).already_committed
    assert made.scan().to_arrow().to_pylist() == [{"other": 2}]
