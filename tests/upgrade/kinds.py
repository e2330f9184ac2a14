"""Every kind of table for golden archives: how rows find their bucket, formats of files, their indexes, what expires.

What is between two commits of such a table is done by `amid`, so that an archive has it half done, and by `finish`
what is then left.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from freshet import Table
from freshet.storage.codec.file_index import INDEX_SUFFIX
from tests.upgrade.shapes import ENGINES, LATER_COLUMN, LATER_ON, WAYS, Row, Shape, in_order

FOLDER_MARK: Final = "FOLDER"
"""In options: the folder of the warehouse."""
RESCALED_TO: Final = 3

_DYNAMIC: Final = {"bucket": "-1", "dynamic-bucket.target-row-num": "4"}
_MOVING: Final = {**_DYNAMIC, "cross-partition-upsert.index-dir": f"{FOLDER_MARK}/index"}
_WAITING: Final = {
    "bucket": "-2",
    "postpone.default-bucket-num": "2",
    "postpone.batch-write-fixed-bucket": "false",
}
_INDEXES: Final = {
    "bucket": "2",
    "file-index.bloom-filter.columns": "k",
    "file-index.bitmap.columns": "b",
    "file-index.range-bitmap.columns": "a",
}
_EXPIRING: Final = {"bucket": "1", "record-level.expire-time": "1 d", "record-level.time-field": "a"}
_ORDERED: Final = {"bucket": "1", "sequence.snapshot-ordering": "true", "write-only": "true"}
_LOOKUP: Final = WAYS["lookup"]

KINDS: Final = (
    Shape("dynamic", "deduplicate", _DYNAMIC),
    Shape("dynamic_partitions", "deduplicate", {**_DYNAMIC, **_LOOKUP}, partitioned=True),
    Shape("dynamic_sums", "sums", {**_DYNAMIC, **ENGINES["sums"], **WAYS["full-compaction"]}),
    Shape("dynamic_vectors", "deduplicate", {**_DYNAMIC, **WAYS["vectors"]}, partitioned=True),
    Shape("moving", "deduplicate", _MOVING, partitioned=True, moves=True),
    Shape("moving_lookup", "deduplicate", {**_MOVING, **_LOOKUP}, partitioned=True, moves=True),
    Shape("moving_sums", "sums", {**_MOVING, **ENGINES["sums"], **_LOOKUP}, partitioned=True, moves=True),
    Shape("postponed", "deduplicate", _WAITING),
    Shape("postponed_partitions", "deduplicate", {**_WAITING, **_LOOKUP}, partitioned=True),
    Shape("rescaled", "deduplicate", {"bucket": "1"}, partitioned=True, is_rescaled=True),
    Shape("rescaled_lookup", "sums", {"bucket": "1", **ENGINES["sums"], **_LOOKUP}, partitioned=True, is_rescaled=True),
    Shape("orc", "deduplicate", {"bucket": "2", "file.format": "orc", **_LOOKUP}),
    Shape("orc_append", "append", {"file.format": "orc"}),
    Shape("avro", "sums", {"bucket": "1", "file.format": "avro", **ENGINES["sums"], **_LOOKUP}),
    Shape("avro_append", "append", {"file.format": "avro"}, partitioned=True),
    Shape("formats", "deduplicate", {"bucket": "1", "file.format.per.level": "0:avro,3:orc", **_LOOKUP}),
    Shape("indexes_in_manifest", "deduplicate", {**_INDEXES, "file-index.in-manifest-threshold": "1 mb"}),
    Shape("indexes_beside", "deduplicate", {**_INDEXES, "file-index.in-manifest-threshold": "0 b"}),
    Shape("indexes_append", "append", {**_INDEXES, "bucket": "-1", "file-index.in-manifest-threshold": "0 b"}),
    Shape("ordered_by_snapshot", "deduplicate", _ORDERED),
    Shape("expiring", "deduplicate", _EXPIRING),
)


def options_in(folder: Path, options: Mapping[str, str]) -> dict[str, str]:
    """The options of a table below that folder."""
    return {name: text.replace(FOLDER_MARK, str(folder)) for name, text in options.items()}


def amid(table: Table, shape: Shape) -> Table:
    """What is done before the last commit of an archive."""
    if shape.waits:
        assert table.compact().snapshots
    if shape.is_rescaled:
        assert table.rescale(RESCALED_TO, partition={"p": "p0"}).snapshots
        assert {entry.total_buckets for entry in table.files()} == {1, RESCALED_TO}
    return Table.open(table.location)


def finish(table: Table, shape: Shape) -> Table:
    """What is done when the last commit has been made."""
    if shape.waits:
        assert table.compact().snapshots
    if shape.is_rescaled:
        assert table.rescale(RESCALED_TO).snapshots
        assert {entry.total_buckets for entry in table.files()} == {RESCALED_TO}
    return Table.open(table.location)


def check_kept(table: Table, shape: Shape) -> None:
    """The archive has what the shape is for."""
    beside = list(Path(table.location).rglob(f"*{INDEX_SUFFIX}"))
    assert bool(beside) == ("file-index.bitmap.columns" in shape.options and "manifest" not in shape.name)
    assert any(entry.file.embedded_index for entry in table.files()) == ("manifest" in shape.name)
    names = {entry.file.file_name.rsplit(".", 1)[-1] for entry in table.files()}
    expected = {
        "orc": {"orc"},
        "avro": {"avro"},
        "formats": {"avro", "orc", "parquet"},
        "postponed": {"avro", "parquet"},
    }
    assert names == expected.get(shape.name.split("_")[0], {"parquet"}), f"{shape.name}: {names}"


def check_filters(table: Table, rows: list[Row]) -> None:
    """Scans with filters return the rows that they are for, by the indexes of files where there are any."""
    for row in [row for row in rows if row["b"] is not None][:2]:
        assert _found(table, f"k = {row['k']}") == [each for each in rows if each["k"] == row["k"]]
        assert _found(table, f"b = '{row['b']}'") == [each for each in rows if each["b"] == row["b"]]
    for limit in (50, LATER_ON - 1):
        assert _found(table, f"a > {limit}") == [each for each in rows if each["a"] is not None and each["a"] > limit]
    assert _found(table, "b = 'never there'") == []


def _found(table: Table, condition: str) -> list[Row]:
    return in_order({LATER_COLUMN: None, **row} for row in table.scan(filter=condition).to_arrow().to_pylist())
