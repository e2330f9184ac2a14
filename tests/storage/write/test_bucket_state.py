"""What a process remembers of buckets besides their files."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from freshet import Catalog, Table
from freshet.storage.io.env import local_env
from freshet.storage.metadata.live_files import live_entries
from freshet.storage.metadata.table_store import TableStore, open_table_store
from freshet.storage.model.manifest import BucketId
from freshet.storage.model.snapshot import Snapshot
from freshet.storage.write.bucket_state import BucketStates, process_states

COLUMNS = {"day": "INT NOT NULL", "k": "INT NOT NULL", "v": "STRING"}


def a_table(folder: Path, **options: str) -> Table:
    return Catalog(str(folder)).create_table(
        "db.t", schema=COLUMNS, primary_keys=["day", "k"], partition_keys=["day"], options={"bucket": "2", **options}
    )


def write(table: Table, *days: int, user: str = "w", value: str = "x") -> None:
    with table.writer(user) as writer:
        writer.write(
            pa.table({"day": list(days) * 8, "k": sorted(list(range(8)) * len(days)), "v": [value] * 8 * len(days)})
        )
        writer.commit()


def buckets(store: TableStore, snapshot: Snapshot | None) -> list[BucketId]:
    return sorted({(entry.partition, entry.bucket) for entry in live_entries(store.manifests, snapshot)})


def test_a_process_knows_a_table_once_whatever_its_schema(tmp_path: Path) -> None:
    env = local_env()
    table = a_table(tmp_path)
    one = open_table_store(env, table.location)
    other = open_table_store(env, table.location, options={"write-only": "true"})
    assert process_states(one) is process_states(other)
    assert process_states(one) is not process_states(open_table_store(local_env(), table.location))


def test_a_process_knows_a_hundred_tables_that_take_turns(tmp_path: Path) -> None:
    """As a worker of a query of many tables writes them. With 32, all were forgotten before each came again."""
    catalog = Catalog(str(tmp_path))
    stores = [catalog.create_table(f"db.t{number}", schema=COLUMNS).store for number in range(100)]
    known = [process_states(store) for store in stores]
    assert all(process_states(store) is states for store, states in zip(stores, known, strict=True))


def test_what_a_bucket_remembers_follows_it(tmp_path: Path) -> None:
    table = a_table(tmp_path)
    states = BucketStates()
    write(table, 1)
    snapshot = table.store.snapshots.latest()
    (bucket, *_) = buckets(table.store, snapshot)
    states.at(table.store, snapshot, [bucket])[bucket].memory.last_full_ms = 17
    write(table, 1)
    assert states.at(table.store, table.store.snapshots.latest(), [bucket])[bucket].memory.last_full_ms == 17
