"""Small tables on a simulated disk, with some history."""

from __future__ import annotations

from functools import lru_cache

import pyarrow as pa

from freshet.storage.catalogs.claims import FileClaims
from freshet.storage.metadata.table_store import open_table_store
from freshet.storage.model.data_type import DataField, ScalarType, TypeRoot
from freshet.storage.model.schema import TableSchema
from freshet.storage.paths import TablePaths
from freshet.storage.table import Table
from tests.kit.sim_env import SimDisk
from tests.kit.sim_world import LOCATION

KINDS = {
    "keyed": ({"bucket": "2"}, True),
    "vectors": ({"bucket": "1", "deletion-vectors.enabled": "true"}, True),
    "dynamic": ({"bucket": "-1", "dynamic-bucket.target-row-num": "20"}, True),
    "append": ({"bucket": "-1"}, False),
    "marking": ({"bucket": "-1", "deletion-vectors.enabled": "true"}, False),
}


@lru_cache
def _made(kind: str) -> SimDisk:
    options, keyed = KINDS[kind]
    disk = SimDisk(1)
    env = disk.boot()
    columns = (
        DataField(0, "id", ScalarType(TypeRoot.INT, nullable=not keyed)),
        DataField(1, "n", ScalarType(TypeRoot.INT)),
    )
    schema = TableSchema(
        id=0, fields=columns, highest_field_id=1, primary_keys=("id",) if keyed else (), options=options, time_ms=1
    )
    assert FileClaims(env.file_io, TablePaths(LOCATION)).claim_schema(schema)
    table = Table(open_table_store(env, LOCATION))
    for n, ids in ((1, range(30)), (2, range(20, 40)), (3, range(5))):
        with table.writer("w") as writer:
            writer.write(pa.table({"id": pa.array(ids, pa.int32()), "n": pa.array([n] * len(ids), pa.int32())}))
            writer.commit()
    return disk


def filled(kind: str) -> SimDisk:
    """A disk with the table, which the test may change."""
    return _made(kind).copy()


def rows_of(table: Table, snapshot_id: int | None = None) -> list[tuple[int, int]]:
    found = table.scan(snapshot_id=snapshot_id).to_arrow().to_pylist()
    return sorted((row["id"], row["n"]) for row in found)
