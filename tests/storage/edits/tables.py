"""Tables of every kind, small, with what wrote them: what edits are tried on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

import pyarrow as pa

from freshet import Catalog
from freshet.storage.table import Table

KINDS: Final[Mapping[str, tuple[dict[str, str], list[str], list[str]]]] = {
    "keyed": ({"bucket": "2"}, ["id", "dt"], ["dt"]),
    "keyed, no partitions": ({"bucket": "2"}, ["id"], []),
    "dynamic": ({"bucket": "-1", "dynamic-bucket.target-row-num": "20"}, ["id", "dt"], ["dt"]),
    "vectors": ({"bucket": "1", "deletion-vectors.enabled": "true"}, ["id", "dt"], ["dt"]),
    "lookup": ({"bucket": "2", "changelog-producer": "lookup"}, ["id", "dt"], ["dt"]),
    "input": ({"bucket": "1", "changelog-producer": "input"}, ["id", "dt"], ["dt"]),
    "snapshot ordering": (
        {"bucket": "1", "sequence.snapshot-ordering": "true", "write-only": "true"},
        ["id", "dt"],
        ["dt"],
    ),
    "append": ({"bucket": "-1"}, [], ["dt"]),
    "append with buckets": ({"bucket": "2", "bucket-key": "id"}, [], ["dt"]),
    "append with indexes": ({"bucket": "-1", "file-index.bloom-filter.columns": "id"}, [], ["dt"]),
}
"""Options, primary key and partition keys by the name of a kind."""

MARKING: Final = ({"bucket": "-1", "deletion-vectors.enabled": "true"}, [], ["dt"])
MARKING_BUCKETS: Final = ({"bucket": "2", "bucket-key": "id", "deletion-vectors.enabled": "true"}, [], ["dt"])
"""Of append tables in which deletes mark rows."""

MOVING: Final = ({"bucket": "-1", "dynamic-bucket.target-row-num": "20"}, ["id"], ["dt"])
"""Of a table whose rows move between partitions."""

SCHEMA: Final = {"id": "INT NOT NULL", "dt": "STRING NOT NULL", "n": "INT"}
Row = tuple[int, str, int | None]


def make(folder: Path, kind: tuple[dict[str, str], list[str], list[str]]) -> Table:
    options, keys, partitions = kind
    return Catalog(folder).create_table(
        "db.t", schema=SCHEMA, primary_keys=keys, partition_keys=partitions, options=options
    )


def arrow(rows: Iterable[Row]) -> pa.Table:
    columns = list(zip(*rows, strict=True)) or [(), (), ()]
    types = (pa.int32(), pa.string(), pa.int32())
    return pa.table({name: pa.array(values, kind) for name, values, kind in zip(SCHEMA, columns, types, strict=True)})


def write(table: Table, rows: Iterable[Row], *, user: str = "w") -> None:
    with table.writer(user) as writer:
        writer.write(arrow(rows))
        writer.commit()


def rows_of(table: Table, **scan: int) -> list[Row]:
    found = Table.open(table.location).scan(["id", "dt", "n"], **scan).to_arrow()
    return sorted(tuple(row.values()) for row in found.to_pylist())


def days(numbers: range, n: int, *names: str) -> list[Row]:
    """Rows of these ids in each of the partitions; ids differ from one to the next."""
    return [(number + 1000 * index, name, n) for index, name in enumerate(names or ("d1", "d2")) for number in numbers]
