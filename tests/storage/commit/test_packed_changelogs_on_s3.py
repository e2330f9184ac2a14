"""Changelogs of compactions, packed into one file a partition, on a store: written, followed, expired."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from freshet import Catalog, Table
from tests.kit.s3_server import S3Place

pytestmark = pytest.mark.slow

PARTITIONS, BUCKETS, KEYS = 2, 4, range(40)
COMMITS = 3


def a_table(place: S3Place, producer: str) -> Table:
    return Catalog(f"{place.root}/w", options=place.options).create_table(
        "db.t",
        schema={"p": "STRING NOT NULL", "k": "INT NOT NULL", "v": "STRING"},
        primary_keys=["p", "k"],
        partition_keys=["p"],
        options={
            "bucket": BUCKETS,
            "precommit-compact": "true",
            "changelog-producer": producer,
            **({} if producer == "lookup" else {"full-compaction.delta-commits": "1"}),
        },
    )


def write(table: Table, number: int) -> None:
    """The same keys again, each with a new value."""
    with table.writer("w") as writer:
        partitions = ["a" if key % PARTITIONS else "b" for key in KEYS]
        writer.write(pa.table({"p": partitions, "k": pa.array(KEYS, pa.int32()), "v": [f"{number}"] * len(KEYS)}))
        writer.commit()


def keys_of(table: Table, pattern: str) -> list[str]:
    folders = [f"{table.location}/p={partition}/bucket-{bucket}" for partition in "ab" for bucket in range(BUCKETS)]
    found = [each.path for folder in folders for each in table.store.env.file_io.entries(folder)]
    return sorted(path for path in found if path.rpartition("/")[2].startswith(pattern))


def of_values(rows: list[dict[str, Any]]) -> list[tuple[str, str, int]]:
    """What there was of each kind with each value."""
    found = [(row["_ROW_KIND"], row["v"]) for row in rows]
    return sorted((kind, value, found.count((kind, value))) for kind, value in set(found))


@pytest.mark.parametrize("producer", ["lookup", "full-compaction"])
def test_they_are_written_followed_and_expired(versitygw: S3Place, producer: str) -> None:
    table, count = a_table(versitygw, producer), len(KEYS)
    for number in range(COMMITS):
        write(table, number)
    assert len(keys_of(table, "compacted-changelog-")) == COMMITS * PARTITIONS
    assert keys_of(table, "changelog-") == [], "those that were packed are removed"

    again = Catalog(f"{versitygw.root}/w", options=versitygw.options).table("db.t")
    expected = [("+I", "0", count)]
    for number in range(1, COMMITS):
        expected += [("-U", f"{number - 1}", count), ("+U", f"{number}", count)]
    stream = again.stream(scan_mode="from-snapshot", from_snapshot=1, max_wait_s=0)
    followed = [row for batch in stream for row in batch.to_pylist()]
    assert of_values(followed) == sorted(expected)
    filtered = again.changelog(filter="p = 'a' AND k = 3").to_arrow().to_pylist()
    assert [(row["_ROW_KIND"], row["v"]) for row in filtered] == [
        ("+I", "0"), ("-U", "0"), ("+U", "1"), ("-U", "1"), ("+U", "2"),
    ]  # fmt: skip
    assert again.remove_orphan_files(older_than_ms=-1_000_000, dry_run=True).files == ()
    assert not again.check(all_snapshots=True).damage

    again.expire_snapshots(retain_max=1, retain_min=1, older_than_ms=0)
    assert len(keys_of(again, "compacted-changelog-")) == PARTITIONS
    last = Catalog(f"{versitygw.root}/w", options=versitygw.options).table("db.t")
    assert of_values(last.changelog().to_arrow().to_pylist()) == [("+U", "2", count), ("-U", "1", count)]
    assert last.remove_orphan_files(older_than_ms=-1_000_000, dry_run=True).files == ()
    assert sorted(set(last.scan().to_arrow()["v"].to_pylist())) == ["2"]
