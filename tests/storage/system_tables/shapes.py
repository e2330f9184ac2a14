"""Tables of every kind with a short history, written by Freshet or by Apache Paimon, and what to compare of them."""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from operator import itemgetter
from pathlib import Path
from typing import Any

import pyarrow as pa

from freshet import Catalog, Table
from tests.kit.paimon_judge import PaimonJudge
from tests.kit.paimon_table import PaimonTable

Batch = Sequence[tuple[Any, ...]]
"""Rows of one commit; a row kind first where there is one value more than columns."""

DAY = datetime.date(2024, 2, 29)
NOON = datetime.datetime(2024, 2, 29, 12, 0)


@dataclass(frozen=True)
class Shape:
    """A kind of table. `full` are the commits that compact everything."""

    name: str
    columns: Mapping[str, str]
    commits: Sequence[Batch]
    keys: Sequence[str] = ()
    partitions: Sequence[str] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    full: Sequence[int] = ()


def numbered(first: int, count: int, text: str) -> Batch:
    return [(number, f"{text}{number}") for number in range(first, first + count)]


KV = {"k": "INT NOT NULL", "v": "STRING"}
TWO_COMMITS = [numbered(0, 20, "a"), [("-D", 3, "a3"), ("+U", 4, "b4"), (40, None)]]

SHAPES = [
    Shape("fixed", KV, TWO_COMMITS, ("k",), options={"bucket": "2", "write-only": "true"}),
    Shape("fixed, compacted", KV, [*TWO_COMMITS, numbered(2, 9, "c")], ("k",), options={"bucket": "2"}, full=(1,)),
    Shape("input", KV, TWO_COMMITS, ("k",), options={"bucket": "1", "changelog-producer": "input"}),
    Shape("lookup", KV, TWO_COMMITS, ("k",), options={"bucket": "1", "changelog-producer": "lookup"}),
    Shape(
        "full-compaction",
        KV,
        TWO_COMMITS,
        ("k",),
        options={"bucket": "1", "changelog-producer": "full-compaction"},
        full=(1,),
    ),
    Shape("dynamic", KV, TWO_COMMITS, ("k",), options={"bucket": "-1", "write-only": "true"}),
    Shape("vectors", KV, TWO_COMMITS, ("k",), options={"bucket": "1", "deletion-vectors.enabled": "true"}),
    Shape(
        "first row",
        KV,
        [numbered(0, 9, "a"), numbered(5, 9, "b")],
        ("k",),
        options={"bucket": "1", "merge-engine": "first-row"},
    ),
    Shape(
        "partial update",
        {"k": "INT NOT NULL", "a": "STRING", "b": "INT"},
        [[(1, "x", None), (2, "y", 1)], [(1, None, 7), (3, None, None)]],
        ("k",),
        options={"bucket": "1", "merge-engine": "partial-update", "write-only": "true"},
    ),
    Shape(
        "sums",
        {"k": "INT NOT NULL", "n": "BIGINT"},
        [[(1, 5), (2, 6)], [("-U", 1, 2), ("+U", 2, 1)]],
        ("k",),
        options={
            "bucket": "1",
            "merge-engine": "aggregation",
            "fields.n.aggregate-function": "sum",
            "write-only": "true",
        },
    ),
    Shape("append", {"a": "STRING", "n": "INT"}, [[("x", 1), (None, None)], [("y", 2)]]),
    Shape(
        "append, buckets",
        {"a": "STRING", "n": "INT"},
        [[("x", 1), ("z", None)]],
        options={"bucket": "3", "bucket-key": "a"},
    ),
    Shape(
        "partitions",
        {"k": "INT NOT NULL", "d": "DATE NOT NULL", "h": "INT NOT NULL", "v": "STRING"},
        [[(1, DAY, 7, "a"), (2, DAY, 8, "b"), (3, datetime.date(1969, 12, 31), 8, None)], [(1, DAY, 7, "c")]],
        ("k", "d", "h"),
        ("d", "h"),
        {"bucket": "2", "write-only": "true"},
    ),
    Shape(
        "partitions of NULL and blanks",
        {"p": "STRING", "d": "DATE", "v": "STRING"},
        [[("a/b", DAY, "1"), (None, None, "2"), ("", DAY, "3"), (" ", DAY, "4"), ("é€", None, "5")]],
        (),
        ("p", "d"),
    ),
    Shape(
        "plain partition names",
        {"d": "DATE", "t": "TIMESTAMP(3)", "b": "BOOLEAN", "v": "STRING"},
        [[(DAY, NOON, True, "1"), (None, NOON.replace(second=5, microsecond=120000), False, "2")]],
        (),
        ("d", "t", "b"),
        {"partition.legacy-name": "false"},
    ),
    Shape(
        "numbers as partitions",
        {"s": "SMALLINT", "f": "DOUBLE", "m": "DECIMAL(5, 2)", "v": "STRING"},
        [[(1, 1.5, Decimal("1.50"), "1"), (-2, 1e10, Decimal("-0.01"), "2"), (None, 1e-7, None, "3")]],
        (),
        ("s", "f", "m"),
    ),
    Shape(
        "types",
        {
            "id": "BIGINT NOT NULL",
            "name": "CHAR(4) NOT NULL",
            "b": "BOOLEAN",
            "i1": "TINYINT",
            "f": "FLOAT",
            "g": "DOUBLE",
            "m": "DECIMAL(10, 2)",
            "w": "DECIMAL(30, 5)",
            "d": "DATE",
            "t": "TIME(3)",
            "t0": "TIMESTAMP(0)",
            "t3": "TIMESTAMP(3)",
            "t6": "TIMESTAMP(6)",
            "z": "TIMESTAMP(6) WITH LOCAL TIME ZONE",
            "Ä": "STRING",
        },
        [
            [
                (
                    1,
                    "abcd",
                    True,
                    1,
                    1.5,
                    1e-5,
                    Decimal("12.30"),
                    Decimal("123456789012345678.12345"),
                    DAY,
                    datetime.time(1, 2, 3, 4000),
                    NOON,
                    NOON,
                    NOON.replace(microsecond=120),
                    _utc,
                    "größer",
                ),
                (
                    2,
                    "x",
                    None,
                    -7,
                    3e38,
                    1e16,
                    Decimal("-0.05"),
                    None,
                    datetime.date(1, 1, 1),
                    datetime.time(0),
                    None,
                    NOON.replace(second=7),
                    NOON.replace(second=7, microsecond=500000),
                    None,
                    "a" * 40,
                ),
            ]
            for _utc in [NOON.replace(tzinfo=datetime.UTC)]
        ],
        ("id", "name"),
        options={"bucket": "1", "write-only": "true"},
    ),
    Shape(
        "keys of several types",
        {"d": "DATE NOT NULL", "t": "TIMESTAMP(6) NOT NULL", "m": "DECIMAL(20, 2) NOT NULL", "v": "ARRAY<INT>"},
        [
            [
                (DAY, NOON, Decimal("1.50"), [1, None]),
                (DAY, NOON.replace(microsecond=1), Decimal("99999999999999999.00"), None),
            ]
        ],
        ("d", "t", "m"),
        options={"bucket": "1", "write-only": "true"},
    ),
    Shape(
        "no statistics",
        KV,
        TWO_COMMITS,
        ("k",),
        options={"bucket": "1", "metadata.stats-mode": "none", "write-only": "true"},
    ),
    Shape(
        "counts",
        KV,
        TWO_COMMITS,
        ("k",),
        options={"bucket": "1", "metadata.stats-mode": "counts", "write-only": "true"},
    ),
    Shape(
        "some statistics",
        KV,
        TWO_COMMITS,
        ("k",),
        options={"bucket": "1", "fields.v.stats-mode": "none", "write-only": "true"},
    ),
    Shape(
        "whole statistics",
        KV,
        TWO_COMMITS,
        ("k",),
        options={
            "bucket": "1",
            "metadata.stats-dense-store": "false",
            "metadata.stats-mode": "counts",
            "write-only": "true",
        },
    ),
    Shape(
        "numbers of rows",
        KV,
        TWO_COMMITS,
        ("k",),
        options={"bucket": "1", "table-read.sequence-number.enabled": "true", "write-only": "true"},
    ),
    Shape("orc", KV, TWO_COMMITS, ("k",), options={"bucket": "1", "file.format": "orc", "write-only": "true"}),
    Shape("avro", KV, TWO_COMMITS, ("k",), options={"bucket": "1", "file.format": "avro", "write-only": "true"}),
    Shape("empty", KV, [], ("k",), options={"bucket": "1"}),
]


def by_freshet(shape: Shape, folder: Path) -> Table:
    """The table with its history, as Freshet writes it."""
    table = Catalog(str(folder)).create_table(
        "shop.orders",
        schema=dict(shape.columns),
        primary_keys=list(shape.keys),
        partition_keys=list(shape.partitions),
        options=dict(shape.options),
    )
    with table.writer("writer") as writer:
        for index, batch in enumerate(shape.commits):
            writer.write([_mapping(shape, row) for row in batch])
            if index in shape.full:
                writer.compact(full=True)
            writer.commit()
    return table


def by_paimon(shape: Shape, folder: Path, paimon: PaimonJudge) -> PaimonTable:
    """The table with its history, as Apache Paimon writes it."""
    table = paimon.create_table(
        folder / "shop.db" / "orders",
        dict(shape.columns),
        primary_keys=list(shape.keys),
        partition_keys=list(shape.partitions),
        options=dict(shape.options),
    )
    for index, batch in enumerate(shape.commits):
        table.write(list(batch), compact="full" if index in shape.full else None)
    return table


def _mapping(shape: Shape, row: tuple[Any, ...]) -> dict[str, Any]:
    named = dict(zip(shape.columns, row[len(row) - len(shape.columns) :], strict=True))
    return named | {"_ROW_KIND": row[0] if len(row) > len(shape.columns) else "+I"}


def rows_of(noun: str, table: pa.Table) -> list[str]:
    """Rows as texts; their order counts where there is one, that of keys in JSON never (Java's is that of hashes)."""
    rows = table.to_pylist()
    if noun == "schemas":
        rows = sorted((row | {"options": json.loads(row["options"])} for row in rows), key=itemgetter("schema_id"))
        return [json.dumps(row, sort_keys=True, default=str) for row in rows]
    if noun == "partitions":  # those that share a name have no order
        rows.sort(key=lambda row: (row["partition"].encode(), repr(row)))
    texts = [repr(row) for row in rows]
    return texts if noun in ("snapshots", "tags", "partitions", "manifests", "buckets") else sorted(texts)
