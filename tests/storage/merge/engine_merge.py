"""Merges rows of one table in memory, for tests of the engines: rows as tuples, options as a user types them.

    engine = EngineMerge("k INT, a INT, b STRING", {"merge-engine": "partial-update"})
    engine.merge([("+I", 1, 2, None), ("-D", 1, None, "x")])       [("+I", 1, 2, None), …], with the lone-record rule
    engine.merge(rows, lone=False)                                 every key goes through the function

The first column is the key. Sequence numbers are the positions of the rows.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.merge.engine import lookup_merge_function, merge_function, row_order
from freshet.storage.merge.key_order import sort_segments
from freshet.storage.merge.merge_function import without_retracts
from freshet.storage.merge.merged_table import MergeMetrics
from freshet.storage.model.arrow_types import arrow_type
from freshet.storage.model.data_type import DataField, parse_data_type
from freshet.storage.model.row_kind import KIND_TEXTS
from freshet.storage.model.schema import SEQUENCE_NUMBER_COLUMN, VALUE_KIND_COLUMN, TableSchema
from freshet.storage.options.core import CoreOptions
from tests.kit.aggregate_oracles import CannotMerge
from tests.kit.engine_merges import Engine, Record

Row = tuple[Any, ...]


@dataclass(frozen=True)
class EngineMerge:
    """A table's columns and options."""

    columns: str
    given: Mapping[str, str]
    metrics: MergeMetrics = field(default_factory=MergeMetrics)

    @property
    def types(self) -> dict[str, str]:
        """Type texts by column."""
        parts = (part.strip().partition(" ")[::2] for part in re.split(r",\s+(?=\w+ [A-Z])", self.columns))
        named = dict(parts)
        first = next(iter(named))
        return {**named, first: f"{named[first]} NOT NULL"}

    @property
    def schema(self) -> TableSchema:
        fields = tuple(DataField(i, name, parse_data_type(text)) for i, (name, text) in enumerate(self.types.items()))
        return TableSchema(0, fields, len(fields), primary_keys=(fields[0].name,))

    @property
    def options(self) -> CoreOptions:
        return CoreOptions.parse({"bucket": "1", **self.given}, has_primary_key=True)

    def table(self, rows: Sequence[Row]) -> pa.Table:
        """Rows with their system columns."""
        arrays = {
            SEQUENCE_NUMBER_COLUMN: pa.array(range(len(rows)), pa.int64()),
            VALUE_KIND_COLUMN: pa.array([KIND_TEXTS.index(row[0]) for row in rows], pa.int8()),
        }
        for position, column in enumerate(self.schema.fields, 1):
            arrays[column.name] = pa.array([row[position] for row in rows], arrow_type(column.type))
        return pa.table(arrays)

    def merged(
        self,
        rows: Sequence[Row],
        *,
        lone: bool = True,
        drop_delete: bool = False,
        columns: tuple[str, ...] | None = None,
    ) -> pa.Table:
        """The result with its system columns, or these columns of it."""
        make = merge_function if lone else lookup_merge_function
        function = make(self.schema, self.options, self.metrics, table="db.t")
        segments = sort_segments(self.table(rows), row_order(self.schema, self.options))
        return function.merge(segments, columns=columns, keep=without_retracts if drop_delete else None).rows

    def merge(self, rows: Sequence[Row], *, lone: bool = True, **options: Any) -> list[Row]:
        """The result as rows: kind, columns."""
        table = self.merged(rows, lone=lone, **options)
        kinds = [KIND_TEXTS[code] for code in table.column(VALUE_KIND_COLUMN).to_pylist()]
        columns = [table.column(column.name).to_pylist() for column in self.schema.fields]
        return list(zip(kinds, *columns, strict=True))


def numbers(table: pa.Table) -> list[int]:
    """The sequence numbers of a result."""
    found: list[int] = table.column(SEQUENCE_NUMBER_COLUMN).to_pylist()
    return found


def check_random_rows(engine: EngineMerge, lone: bool, source: Random, *, keys: int, rows: int) -> None:
    """Merges random rows of all kinds, as the oracle does key by key: values, kinds and sequence numbers."""
    kinds = source.choices(KIND_TEXTS, (8, 1, 4, 2), k=rows)
    made = [
        (kind, source.randrange(keys), *(_value(text, source) for text in list(engine.types.values())[1:]))
        for kind in kinds
    ]
    refused = [key for key in range(keys) if _expected(engine, [row for row in made if row[1] == key], lone) is None]
    for key in refused:
        with pytest.raises(InvalidRequestError, match=rf"\(k={key}\)"):
            engine.merge([row for row in made if row[1] == key], lone=lone)
    made = [row for row in made if row[1] not in refused]
    expected = _expected(engine, made, lone)
    found = engine.merged(made, lone=lone)
    rows_found = list(zip(*(column.to_pylist() for column in found.columns), strict=True))
    assert [(KIND_TEXTS[row[1]], row[0], *row[2:]) for row in rows_found] == expected


def _expected(engine: EngineMerge, rows: Sequence[Row], lone: bool) -> list[Row] | None:
    """Kind, sequence number and columns of each key; None if the oracle cannot merge a key."""
    oracle = Engine(engine.types, [engine.schema.primary_keys[0]], engine.given)
    records: dict[int, list[Record]] = {}
    for number, (kind, *values) in enumerate(rows):
        record = Record(dict(zip(engine.types, values, strict=True)), KIND_TEXTS.index(kind), number)
        records.setdefault(values[0], []).append(record)
    expected = []
    for key in sorted(records):
        one = records[key]
        try:
            result = one[0] if lone and len(one) == 1 else oracle.merge(one)
        except CannotMerge:
            return None
        assert result is not None
        expected.append((KIND_TEXTS[result.kind], result.number, *result.values.values()))
    return expected


def _value(type_text: str, source: Random) -> Any:
    if source.random() < 0.35:
        return None
    if type_text == "STRING":
        return source.choice(["", "a", "ab", "b", "\u00e9"])
    return source.randint(-2, 3)
