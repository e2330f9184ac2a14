"""System tables in an object store, and beside writers that commit, compact and expire at the same time."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from itertools import cycle
from pathlib import Path

import orjson

from freshet import Catalog, RetryableError
from freshet.storage.system_tables.system_table import SYSTEM_TABLES
from tests.kit.s3_server import S3Place


def test_in_an_object_store(s3: S3Place) -> None:
    table = Catalog(f"{s3.root}/w", options=s3.options).create_table(
        "shop.orders",
        schema={"id": "INT", "p": "STRING"},
        primary_keys=["id", "p"],
        partition_keys=["p"],
        options={"bucket": "1", "write-only": "true"},
    )
    with table.writer("writer") as writer:
        writer.write([{"id": number, "p": "a b"} for number in range(5)])
        writer.commit()
    files = table.store.env.file_io
    content = orjson.loads(files.read_bytes(table.store.paths.snapshot(1)))
    tagged = content | {"tagCreateTime": [2024, 1, 2, 3, 4], "tagTimeRetained": 3600.0}
    files.overwrite(table.store.paths.tag("a"), orjson.dumps(tagged))
    files.overwrite(table.store.paths.branch("b").schema(0), files.read_bytes(table.store.paths.schema(0)))
    table.reset_consumer("reader", 2)
    rows = {noun: table.system(noun).scan().to_arrow().to_pylist() for noun in SYSTEM_TABLES}
    assert {noun: len(found) for noun, found in rows.items()} == {
        **dict.fromkeys(
            ("snapshots", "commits", "schemas", "files", "partitions", "buckets", "tags", "branches", "consumers"), 1
        ),
        "options": 2,
        "manifests": 1,
        "audit_log": 5,
        "ro": 0,
        "compactions": 0,
    }
    assert rows["files"][0]["file_path"].startswith(f"{s3.root}/w/shop.db/orders/p=a b/bucket-0/data-")
    assert rows["tags"][0]["time_retained"] == "PT1H"
    created = rows["branches"][0]["create_time"]
    assert abs((created - rows["snapshots"][0]["commit_time"]).total_seconds()) < 60


def test_beside_a_writer_that_compacts_and_expires(tmp_path: Path) -> None:
    """What a reader sees is of one snapshot; where that expires, it is told to read again."""
    table = Catalog(str(tmp_path)).create_table(
        "shop.orders",
        schema={"id": "INT", "v": "INT"},
        primary_keys=["id"],
        options={"bucket": "2", "num-sorted-run.compaction-trigger": "2"},
    )
    with table.writer("writer") as writer:
        writer.write([{"id": number, "v": 0} for number in range(50)])
        writer.commit()
    is_over, failures = threading.Event(), list[BaseException]()
    seen = dict.fromkeys(SYSTEM_TABLES, 0)

    def look(nouns: Sequence[str]) -> None:
        reader = Catalog(str(tmp_path)).table("shop.orders")
        lasts = 0
        for noun in cycle(nouns):
            lasts += is_over.is_set()  # each is read once with nobody beside it
            try:
                rows = reader.system(noun).scan().to_arrow()
                if noun == "audit_log":
                    assert sorted(rows["id"].to_pylist()) == list(range(50))
                    assert len(set(rows["v"].to_pylist())) == 1
                if noun in ("files", "partitions", "buckets"):
                    assert sum(rows["record_count"].to_pylist()) >= 50
                seen[noun] += 1
            except RetryableError:
                pass
            except BaseException as error:
                failures.append(error)
                raise
            if lasts == len(nouns):
                return

    groups = [("audit_log",), ("files", "partitions", "buckets"), tuple(SYSTEM_TABLES)]
    readers = [threading.Thread(target=look, args=(nouns,)) for nouns in groups]
    for reader in readers:
        reader.start()
    with table.writer("writer") as writer:
        for turn in range(10):
            writer.write([{"id": number, "v": turn + 1} for number in range(50)])
            writer.commit()
            table.expire_snapshots(retain_max=1, retain_min=1, older_than_ms=0)
    is_over.set()
    for reader in readers:
        reader.join()
    assert not failures
    assert all(seen.values()), seen
