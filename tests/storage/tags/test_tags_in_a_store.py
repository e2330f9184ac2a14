"""The same in an object store: no folders, and creates that are conditional puts; and with threads at the same time."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import pytest

from freshet import AlreadyExistsError, Catalog, NotFoundError, Table
from tests.kit.s3_server import S3Place


@pytest.mark.dear("hundreds of requests")
def test_tags_in_an_object_store(s3: S3Place) -> None:
    table = Catalog(s3.root, options=s3.options).create_table(
        "db.t", schema={"id": "BIGINT"}, primary_keys=["id"], options={"bucket": "1", "snapshot.num-retained.min": "99"}
    )
    for number in range(3):
        with table.writer("u") as writer:
            writer.write([{"id": number}])
            writer.compact(full=True)
            writer.commit(number)
    table.tags.create("two words", 2, retained=timedelta(hours=1))
    table.tags.create("last")
    table.store.env.file_io.overwrite(f"{table.store.paths.tag_folder}/tag-success-file/last_SUCCESS", b"{}")
    table.expire_snapshots(retain_max=1)
    assert [(tag.name, tag.snapshot_id) for tag in table.tags.list()] == [("two words", 2), ("last", 6)]
    assert table.scan(tag="two words").to_arrow()["id"].to_pylist() == [0]
    table.tags.rename("two words", "three")
    assert table.tags.delete("three").data_file_count == 1
    assert not table.remove_orphan_files(older_than_ms=-60_000, dry_run=True).files
    assert [tag.name for tag in table.tags.list()] == ["last"]


def made(table: Table, number: int) -> int | None:
    """The snapshot of the tag where this creator has made it."""
    try:
        return table.tags.create("wanted", number % 8 + 1).snapshot_id
    except AlreadyExistsError:
        return None


def test_one_of_many_creators_at_the_same_time(tmp_path: Path) -> None:
    table = Catalog(tmp_path).create_table("db.t", schema={"id": "BIGINT"}, options={"write-only": "true"})
    with table.writer("u") as writer:
        for number in range(8):
            writer.write([{"id": number}])
            writer.commit(number)
    with ThreadPoolExecutor(8) as executor:
        for _ in range(10):
            tables = [Table.open(table.location) for _ in range(8)]
            found = list(executor.map(made, tables, range(8)))
            [winner] = [each for each in found if each is not None]
            assert table.tags.get("wanted").snapshot_id == winner
            table.tags.delete("wanted")


def kept_until_deleted(table: Table, number: int) -> int:
    """Makes a tag of the oldest snapshot, again and again while others expire; how many of them were refused."""
    refused = 0
    for each in range(15):
        name = f"t{number}-{each}"
        try:
            oldest = table.snapshots()[0].id
            table.tags.create(name, oldest)
        except NotFoundError:
            refused += 1
            continue
        rows = table.scan(tag=name).to_arrow()["id"].to_pylist()
        assert rows == list(range(len(rows))), name
        assert rows, name
        if each % 2:
            table.tags.delete(name)
    return refused


def expire_and_commit(table: Table) -> None:
    """Rewrites the table with each commit, so that what expires takes files away."""
    with table.writer("u") as writer:
        for number in range(1, 25):
            writer.write([{"id": number}])
            writer.commit(number)
            table.compact(full=True)
            table.expire_snapshots(retain_max=2)


def test_tags_while_snapshots_expire_in_other_threads(tmp_path: Path) -> None:
    options = {"bucket": "1", "write-only": "true"}
    table = Catalog(tmp_path).create_table("db.t", schema={"id": "BIGINT"}, primary_keys=["id"], options=options)
    writing = table.with_options({"write-only": "false", "snapshot.num-retained.min": "1000"})
    with writing.writer("u") as writer:
        writer.write([{"id": 0}])
        writer.commit(0)
    with ThreadPoolExecutor(3) as executor:
        ends = [executor.submit(expire_and_commit, writing)]
        ends += [executor.submit(kept_until_deleted, Table.open(table.location), number) for number in range(2)]
        for end in ends:
            end.result()
    fresh = Table.open(table.location)
    for tag in fresh.tags.list():
        assert fresh.scan(tag=tag.name).to_arrow().num_rows > 0
        fresh.tags.delete(tag.name)
    fresh.expire_snapshots(retain_max=1)
    assert fresh.scan().to_arrow()["id"].to_pylist() == list(range(25))
    assert not fresh.check().damage
