"""Tables with lookup stores and an index of places in a golden archive, at a fixed place."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from random import Random
from typing import Any, Final

from freshet import Catalog
from tests.upgrade.fixed_place import fixed_place
from tests.upgrade.shapes import COLUMNS, ENGINES, USERS, WAYS, Commit, Shape, drawn, rows_after

PLACE: Final = "stores"
SUMS: Final = {**ENGINES["sums"], **WAYS["lookup"]}
ENGINE_STORES: Final = (
    Shape("deduplicate", "deduplicate", {"bucket": "2", **WAYS["lookup"]}),
    Shape("sums", "sums", {"bucket": "2", **SUMS}),
)
KIND_STORES: Final = (
    Shape("mapped", "sums", {"bucket": "2", "lookup.cache.store": "mapped", **SUMS}),
    Shape("rocksdb", "sums", {"bucket": "2", "lookup.cache.store": "rocksdb", **SUMS}),
    Shape("moving", "deduplicate", {"bucket": "-1", **WAYS["lookup"]}, partitioned=True, moves=True),
)
COMMITS: Final = 6
STOPPED_AT: Final = 4


def make_stores(folder: Path, shapes: Sequence[Shape]) -> dict[str, Any]:
    """Makes the tables, and moves them and their stores into a folder; returns what the manifest says."""
    with fixed_place(PLACE) as place:
        found = {shape.name: _made(place, shape, Random(number)) for number, shape in enumerate(shapes)}
        shutil.copytree(place, folder)
    return found


def stores_in(place: Path) -> set[str]:
    """The kinds of what is kept on the local disk: mapped stores, those in RocksDB, and indexes of places."""
    kinds = {".rows": "mapped", ".rocks": "rocksdb"}
    found = {kinds[path.suffix] for path in (place / "cache").rglob("*") if path.suffix in kinds}
    return found | {"places" for _ in (place / "index").rglob("*.rocks")}


def _made(place: Path, shape: Shape, source: Random) -> dict[str, Any]:
    folders = {"lookup.cache-dir": str(place / "cache")}
    if shape.moves:
        folders["cross-partition-upsert.index-dir"] = str(place / "index")
    commits = drawn(shape, source, [(USERS[0], number) for number in range(1, COMMITS + 1)], later=COMMITS)
    table = Catalog(str(place)).create_table(
        f"db.{shape.name}",
        schema=COLUMNS,
        primary_keys=shape.primary_keys,
        partition_keys=shape.partition_keys,
        options={**folders, **shape.table_options},
    )
    lookups = [write_rows(table, commit) for commit in commits[:STOPPED_AT]]
    assert any(counts.get("by_store") for counts in lookups), f"no store was asked: {lookups}"
    return {"rest": [asdict(commit) for commit in commits[STOPPED_AT:]], "rows in the end": rows_after(shape, commits)}


def write_rows(table: Any, commit: Commit) -> dict[str, int]:
    """Writes and commits; returns how lookups went."""
    with table.writer(commit.user, parallelism=1) as writer:
        writer.write(commit.rows)
        writer.commit(commit.identifier)
        counts: dict[str, int] = writer.lookup_metrics.counts()
    return counts
