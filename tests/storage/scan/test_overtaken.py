"""Readers that expiry, a rollback or a drop has overtaken get an error that says so; damage is reported as damage."""

from __future__ import annotations

import pickle
import shutil
from pathlib import Path

import pyarrow as pa
import pytest

from freshet.storage.catalog import Catalog
from freshet.storage.exceptions import MissingFileError, NotFoundError, RetryableError
from freshet.storage.table import Table


def commit(table: Table, identifier: int) -> None:
    with table.writer("test") as writer:
        writer.write(pa.table({"id": pa.array([1, 2], pa.int32()), "v": pa.array([identifier] * 2, pa.int32())}))
        writer.commit(identifier)


@pytest.fixture
def table(tmp_path: Path) -> Table:
    table = Catalog(str(tmp_path)).create_table(
        "a.b", schema={"id": "INT", "v": "INT"}, primary_keys=["id"], options={"bucket": "1"}
    )
    commit(table, 0)
    return table


def expire(table: Table) -> None:
    """Only the newest snapshot stays, and only its files."""
    commit(table, 1)
    table.compact()
    assert table.expire_snapshots(retain_max=1, retain_min=1, older_than_ms=0).data_file_count


def test_a_snapshot_that_expires_before_it_is_planned_or_read(table: Table) -> None:
    early, planned = table.scan(), table.scan()
    splits = planned.plan()
    expire(Table(table.store.with_options({})))
    fresh = pickle.loads(pickle.dumps(early))  # knows no manifests by heart
    for read in (fresh.plan, fresh.count, lambda: list(planned.read_split(splits[0])), planned.to_arrow):
        with pytest.raises(RetryableError, match=r"snapshot 1 of .* expired before .* read the table again") as caught:
            read()
        assert caught.value.table == table.location
    assert table.scan().to_arrow()["v"].to_pylist() == [1, 1]


def test_a_table_dropped_while_it_is_read(table: Table, tmp_path: Path) -> None:
    scan = table.scan()
    splits = scan.plan()
    travelling = pickle.dumps(scan)
    Catalog(str(tmp_path)).drop_table("a.b")
    for read in (lambda: list(scan.read_split(splits[0])), scan.to_arrow, table.scan):
        with pytest.raises(NotFoundError, match="was dropped or renamed while it was open"):
            read()
    with pytest.raises(NotFoundError, match="was dropped after this was planned"):
        pickle.loads(travelling)


def test_a_table_made_anew_while_it_is_read(table: Table, tmp_path: Path) -> None:
    scan = table.scan()
    scan.plan()
    catalog = Catalog(str(tmp_path))
    catalog.drop_table("a.b")
    catalog.create_table("a.b", schema={"other": "STRING"}, options={"bucket": "-1"})
    with pytest.raises(NotFoundError, match="dropped and created again"):
        scan.to_arrow()
    with pytest.raises(NotFoundError, match="dropped and created again"):
        table.scan()


def test_a_snapshot_replaced_by_a_rollback(table: Table) -> None:
    commit(table, 1)
    scan = table.scan()
    scan.plan()
    Path(table.store.paths.snapshot(2)).unlink()
    for file in scan.plan()[0].files:
        if file.max_sequence_number >= 2:
            next(Path(table.location).rglob(file.file_name)).unlink()
    Path(table.store.paths.latest_hint).write_text("1")
    other = Table(table.store.with_options({}))
    commit(other, 7)
    with pytest.raises(RetryableError, match="was rolled back"):
        scan.to_arrow()


def test_a_file_that_is_missing_while_its_snapshot_is_there_is_damage(table: Table) -> None:
    scan = table.scan()
    (file,) = Path(table.location).rglob("data-*.parquet")
    shutil.copy(table.store.paths.snapshot(1), Path(table.location) / "kept")
    file.unlink()
    with pytest.raises(MissingFileError, match=file.name):
        scan.to_arrow()
    # A tag holds the files as the snapshot does.
    tags = Path(table.location) / "tag"
    tags.mkdir()
    shutil.move(table.store.paths.snapshot(1), tags / "tag-kept")
    with pytest.raises(MissingFileError, match=file.name):
        scan.to_arrow()
