"""Tables that put every feature of the format to the test, and values that hurt, for both directions of the judges."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa

from freshet.storage.model.arrow_types import arrow_type
from freshet.storage.model.row_kind import ROW_KIND_COLUMN
from freshet.storage.model.sql_type import parse_sql_type

Row = dict[str, Any]

_EPOCH: Final = datetime(1970, 1, 1)
_LONG: Final = "a long string that statistics cut after sixteen characters " * 5

_POOLS: Final[Mapping[str, Sequence[Any]]] = {
    "BOOLEAN": [True, False],
    "TINYINT": [-128, -1, 0, 1, 127],
    "SMALLINT": [-32768, -7, 0, 32767],
    "INT": [-(2**31), -5, 0, 42, 2**31 - 1],
    "BIGINT": [-(2**63), -9, 0, 10_000_000_000, 2**63 - 1],
    "FLOAT": [-1.5, -0.0, 0.0, 0.25, float("nan"), float("inf"), float("-inf")],
    "DOUBLE": [-1.5, -0.0, 0.0, 1e300, float("nan"), float("-inf")],
    "DECIMAL(9, 2)": [Decimal("-1234567.89"), Decimal("0.00"), Decimal("9999999.99")],
    "DECIMAL(18, 4)": [Decimal("-99999999999999.9999"), Decimal("12.3400")],
    "DECIMAL(38, 10)": [Decimal("-1.5000000000"), Decimal("9999999999999999999999999999.9999999999")],
    "CHAR(3)": ["abc", "xyz"],
    "VARCHAR(20)": ["", "seven77", "eight888", "é日本"],
    "STRING": ["", " ", "a", "日本語テキスト", "\U0001f30a", _LONG, "\x00zero", "z" * 17],
    "BINARY(4)": [b"\x00\x01\x02\x03", b"\xff\xfe\xfd\xfc"],
    "BYTES": [b"", b"\x00", b"\xff" * 20, bytes(range(9))],
    "DATE": [date(1, 1, 1), date(1969, 12, 31), date(1970, 1, 1), date(2024, 2, 29), date(9999, 12, 31)],
    "TIME(0)": [time(0, 0, 0), time(23, 59, 59)],
    "TIME(3)": [time(1, 2, 3, 456_000), time(23, 59, 59, 999_000)],
    "TIMESTAMP(0)": [_EPOCH, datetime(1901, 1, 1), datetime(2023, 11, 14, 22, 13, 20)],
    "TIMESTAMP(3)": [datetime(1969, 12, 31, 23, 59, 59, 999_000), datetime(2023, 11, 14, 22, 13, 20, 123_000)],
    "TIMESTAMP(6)": [datetime(1969, 12, 31, 23, 59, 59, 999_999), datetime(2023, 11, 14, 22, 13, 20, 123_456)],
    "TIMESTAMP(9)": [-1, 1_700_000_000_123_456_789, 0],
    "TIMESTAMP(6) WITH LOCAL TIME ZONE": [datetime(1969, 12, 31, 23, 59, 59, 999_999), datetime(2038, 1, 19, 3, 14, 8)],
    "TIMESTAMP(9) WITH LOCAL TIME ZONE": [-1, 1_700_000_000_123_456_789],
    "ARRAY<INT>": [[], [1, None, 3], [-1] * 9],
    "ARRAY<STRING>": [["a", None, "0123456789"], []],
    "MAP<STRING, BIGINT>": [[("k", 7), ("l", None)], []],
    "MAP<INT, STRING>": [[(-1, "minus"), (2**31 - 1, None), (0, "")], []],
    "MAP<BIGINT, ARRAY<INT>>": [[(-(2**63), [1, None]), (7, []), (8, None)], []],
    "MAP<DATE, BOOLEAN>": [[(date(1, 1, 1), True), (date(9999, 12, 31), None)], [(date(1970, 1, 1), False)]],
    "MAP<DECIMAL(9, 2), DOUBLE>": [[(Decimal("-1.50"), -0.0), (Decimal("9999999.99"), float("nan"))], []],
    "ARRAY<ARRAY<INT>>": [[[1, None, 3], [], None], [], [[-1] * 9] * 3],
    "ARRAY<MAP<STRING, INT>>": [[[("k", 7), ("l", None)], [], None], []],
    "ROW<x INT, y ROW<p STRING, q DECIMAL(20, 3)>>": [
        {"x": 1, "y": {"p": "é", "q": Decimal("1.500")}},
        {"x": None, "y": None},
    ],
    "ARRAY<ROW<a INT, b STRING>>": [[{"a": 1, "b": "x"}, None], []],
}
"""Values by type; TIMESTAMP(7–9) as nanoseconds since the epoch, maps as pairs."""

SCALARS: Final = tuple(kind for kind in _POOLS if not kind.startswith(("ARRAY", "MAP", "ROW")))
EVERY_TYPE: Final = {f"c{index}": kind for index, kind in enumerate(_POOLS)}
"""One nullable value column of each type."""

UNFIT_AS_KEY: Final = ("FLOAT", "DOUBLE")
"""Python's own dict treats -0.0 and NaN otherwise than the format, so the oracle cannot hold them as keys."""


@dataclass(frozen=True)
class Case:
    """A table to create; `commits` is how many commits the history has, `deletes` the share of -D rows."""

    name: str
    columns: Mapping[str, str]
    primary_keys: tuple[str, ...] = ()
    partition_keys: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    commits: int = 4
    rows_per_commit: int = 40
    deletes: float = 0.2
    key_space: int = 30

    def history(self, seed: int) -> list[list[Row]]:
        """Rows of each commit, with kinds; the same for the same seed."""
        source = random.Random(seed)
        keys = [self._key(source) for _ in range(self.key_space)]
        return [[self._row(source, keys) for _ in range(self.rows_per_commit)] for _ in range(self.commits)]

    def _key(self, source: random.Random) -> Row:
        key = {name: any_value(source, self.columns[name]) for name in self.primary_keys}
        return key | {name: short_value(source, self.columns[name]) for name in self.partition_keys}

    def _row(self, source: random.Random, keys: Sequence[Row]) -> Row:
        row = {name: None if source.random() < 0.2 else any_value(source, kind) for name, kind in self.columns.items()}
        for name, kind in self.columns.items():
            if kind.endswith("NOT NULL") and row[name] is None:
                row[name] = any_value(source, kind)
        row |= source.choice(keys)
        if self.primary_keys:
            row[ROW_KIND_COLUMN] = "-D" if source.random() < self.deletes else source.choice(["+I", "+U"])
        return row


def any_value(source: random.Random, kind: str) -> Any:
    """A value of the type: from the pool, or for integers and strings often a small fresh one."""
    bare = kind.removesuffix(" NOT NULL")
    if bare in ("INT", "BIGINT") and source.random() < 0.7:
        return source.randrange(-50, 50)
    if bare == "STRING" and source.random() < 0.5:
        return f"s{source.randrange(100)}"
    return source.choice(_POOLS[bare])


def short_value(source: random.Random, kind: str) -> Any:
    """A value that fits into a folder's name."""
    value = any_value(source, kind)
    return value[:20] if isinstance(value, str) else value


def arrow_rows(rows: Sequence[Row], columns: Mapping[str, str]) -> pa.Table:
    """Rows as Arrow, with `_ROW_KIND` where the rows have one."""
    arrays = {
        name: pa.array([row[name] for row in rows], arrow_type(parse_sql_type(kind))) for name, kind in columns.items()
    }
    if rows and ROW_KIND_COLUMN in rows[0]:
        arrays[ROW_KIND_COLUMN] = pa.array([row[ROW_KIND_COLUMN] for row in rows])
    return pa.table(arrays)


class Expected:
    """The oracle: a dict of rows by key, or a list of rows where there is no key."""

    def __init__(self, case: Case) -> None:
        self._case = case
        self._by_key: dict[tuple[Any, ...], Row] = {}
        self._all: list[Row] = []

    def apply(self, rows: Sequence[Row]) -> None:
        """Takes one commit."""
        if not self._case.primary_keys:
            self._all += rows
            return
        for row in rows:
            key = tuple(row[name] for name in self._case.primary_keys)
            if row[ROW_KIND_COLUMN] == "-D":
                self._by_key.pop(key, None)
            else:
                self._by_key[key] = row

    def canonical(self) -> list[str]:
        """The rows the table must hold."""
        rows = list(self._by_key.values()) if self._case.primary_keys else self._all
        return canonical(arrow_rows([{**row, ROW_KIND_COLUMN: "+I"} for row in rows], self._case.columns))


def canonical(table: pa.Table) -> list[str]:
    """Rows as sorted texts that distinguish -0.0 from 0.0, NaN from null, and nanoseconds."""
    columns = []
    names = [name for name in table.column_names if name != ROW_KIND_COLUMN]
    for name in names:
        column = table.column(name)
        if pa.types.is_timestamp(column.type):
            column = column.cast(pa.int64())
        columns.append([_plain(value) for value in column.to_pylist()])
    return sorted(repr(row) for row in zip(*columns, strict=True))


def _plain(value: Any) -> Any:
    """The value with the entries of its maps in order, however deep they are."""
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, tuple):
        return tuple(map(_plain, value))
    if not isinstance(value, list):
        return value
    items = list(map(_plain, value))
    return sorted(items, key=repr) if items and all(isinstance(item, tuple) for item in items) else items


def _key_types() -> list[Case]:
    return [
        Case(
            f"key {kind}",
            {"k": f"{kind} NOT NULL", "v": "STRING"},
            primary_keys=("k",),
            options={"bucket": "3"},
            key_space=8,
            commits=3,
        )
        for kind in SCALARS
        if kind not in UNFIT_AS_KEY
    ]


def _partition_types() -> list[Case]:
    kinds = [kind for kind in SCALARS if kind not in UNFIT_AS_KEY and not kind.startswith(("BINARY", "BYTES"))]
    return [
        Case(
            f"partition {kind}",
            {"p": kind, "v": "BIGINT", "s": "STRING"},
            partition_keys=("p",),
            options={"bucket": "-1"},
            commits=2,
        )
        for kind in kinds
        if kind != "TIMESTAMP(9) WITH LOCAL TIME ZONE"
    ]


_KEYED: Final = {"id": "BIGINT NOT NULL", "name": "STRING", "total": "DECIMAL(18, 4)"}

CASES: Final = [
    Case("every type", {"id": "BIGINT NOT NULL", **EVERY_TYPE}, ("id",), options={"bucket": "2"}),
    Case("every type, append", dict(EVERY_TYPE), options={"bucket": "-1"}),
    Case("append with bucket key", dict(_KEYED), options={"bucket": "3", "bucket-key": "id"}),
    Case(
        "composite key",
        {"a": "STRING NOT NULL", "b": "INT NOT NULL", "v": "DOUBLE"},
        ("a", "b"),
        options={"bucket": "2"},
    ),
    Case(
        "partitioned",
        {"dt": "DATE NOT NULL", "region": "STRING NOT NULL", **_KEYED},
        ("dt", "region", "id"),
        ("dt", "region"),
        {"bucket": "2"},
    ),
    Case("thin mode", dict(_KEYED), ("id",), options={"bucket": "1", "data-file.thin-mode": "true"}),
    Case(
        "prefix, path and suffix",
        dict(_KEYED),
        ("id",),
        options={
            "bucket": "1",
            "data-file.prefix": "part-",
            "data-file.path-directory": "data",
            "file.suffix.include.compression": "true",
        },
    ),
    Case("stats none", dict(_KEYED), ("id",), options={"bucket": "1", "metadata.stats-mode": "none"}),
    Case("stats full", dict(_KEYED), ("id",), options={"bucket": "1", "metadata.stats-mode": "full"}),
    Case(
        "stats counts, not dense",
        dict(_KEYED),
        ("id",),
        options={"bucket": "1", "metadata.stats-mode": "counts", "metadata.stats-dense-store": "false"},
    ),
    Case(
        "stats per column",
        dict(_KEYED),
        ("id",),
        options={"bucket": "1", "fields.name.stats-mode": "none", "fields.total.stats-mode": "truncate(4)"},
    ),
    *(
        Case(f"compression {codec}", dict(_KEYED), ("id",), options={"bucket": "1", "file.compression": codec})
        for codec in ("snappy", "gzip", "none", "lz4")
    ),
    Case("bucket function mod", dict(_KEYED), ("id",), options={"bucket": "4", "bucket-function.type": "mod"}),
    Case("many files", dict(_KEYED), ("id",), options={"bucket": "1", "target-file-row-num": "7"}, rows_per_commit=60),
    Case(
        "trigger 2", dict(_KEYED), ("id",), options={"bucket": "1", "num-sorted-run.compaction-trigger": "2"}, commits=7
    ),
    Case("write-only", dict(_KEYED), ("id",), options={"bucket": "2", "write-only": "true"}, commits=7),
    *_key_types(),
    *_partition_types(),
]
