"""Structs of rows turned into columns: the values of each input, converted, and what is known of the records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Any, assert_never

import msgspec
import numpy as np
import pyarrow as pa

from freshet.pipeline.decode.convert.converter import Mask
from freshet.pipeline.decode.fast.changes import Changes, is_missing
from freshet.pipeline.decode.fast.misfits import Cells
from freshet.pipeline.decode.fast.structs import Structs
from freshet.pipeline.decode.flat import ADDED_PREFIX
from freshet.pipeline.decode.images import RowIndexes
from freshet.pipeline.decode.inputs import Inputs
from freshet.pipeline.decode.json_value import parse_json, text_of
from freshet.pipeline.decode.maxwell import SECOND_MS
from freshet.pipeline.decode.plan import DecodePlan

Columns = list[Sequence[Any]]
"""The values of each input, as they were decoded."""


class ColumnReader:
    """Reads the columns of changes that were decoded by one set of structs."""

    def __init__(self, plan: DecodePlan, inputs: Inputs, structs: Structs) -> None:
        self._plan, self._inputs, self._structs = plan, inputs, structs
        self._with_default = plan.fields_with_default
        self._reads_source = any(each.is_member for each in inputs.all)

    def read(self, changes: Changes) -> Columns:
        """The columns of the rows after the changes."""
        by_attribute = _transposed(changes.rows, self._structs.row_names)
        sources: Mapping[str, Sequence[Any]] = {}
        if self._reads_source and self._structs.source is not None:
            given = [each.source for each in changes.envelopes]
            if None in given:
                nothing = self._structs.source()
                given = [nothing if each is None else each for each in given]
            sources = _transposed(given, self._structs.source_names)
        columns: Columns = []
        for each, conversion in zip(self._inputs.all, self._structs.conversions, strict=True):
            if not each.is_member:
                columns.append(by_attribute[each.name])
            elif self._plan.is_binlog:
                columns.append(list(map(attrgetter(self._structs.source_names[each.name]), changes.envelopes)))
            elif self._plan.format == "debezium-json":
                columns.append(sources[each.name])
            elif self._plan.format == "debezium-unwrapped":
                first, second = by_attribute[f"__source_{each.name}"], by_attribute[f"__{each.name}"]
                columns.append([b if _is_null(a) else a for a, b in zip(first, second, strict=True)])
            else:
                columns.append([conversion.default] * len(changes.rows))
        return columns

    def absent(self, columns: Columns) -> dict[int, Mask]:
        """Where records lack the fields whose columns have a default."""
        found = {}
        for index, each in enumerate(self._inputs.all):
            if not each.is_member and each.name in self._with_default:
                mask = np.fromiter(map(is_missing, columns[index]), bool, len(columns[index]))
                if mask.any():
                    found[index] = mask
        return found

    def read_before(self, changes: Changes, chosen: RowIndexes, columns: Columns) -> Columns:
        """The columns of the rows before the chosen updates; `columns` are those of the rows after all changes."""
        if not self._plan.is_binlog:
            return without_unset(self.read(changes.rows_before(chosen)))
        assert changes.befores is not None
        rows = chosen.tolist()
        olds = _transposed([changes.befores[row] for row in rows], self._structs.row_names)
        found: Columns = []
        for each, values in zip(self._inputs.all, columns, strict=True):
            after = [values[row] for row in rows]
            if not each.is_member:
                pairs = zip(olds[each.name], after, strict=True)
                after = [new if is_missing(old) else old for old, new in pairs]
            found.append(after)
        return found

    def converted(self, columns: Columns) -> tuple[list[Any], list[Cells]]:
        """The array of each input, and the cells that did not convert."""
        arrays, lost = [], []
        for index, (conversion, values) in enumerate(zip(self._structs.conversions, columns, strict=True)):
            array, mask = conversion.convert(values)
            if mask is not None:
                lost.append(Cells(index, values, mask))
            arrays.append(array)
        return arrays, lost

    def unknown(self, changes: Changes) -> dict[str, Mask]:
        """The fields that nothing reads, and in which rows they are."""
        found = {}
        for name, attribute in self._structs.unknown.items():
            if self._plan.format == "debezium-unwrapped" and name.startswith(ADDED_PREFIX):
                continue
            values = map(attrgetter(attribute), changes.rows)
            mask = np.fromiter((value is not msgspec.UNSET for value in values), bool, len(changes.rows))
            if mask.any():
                found[name] = mask
        return found

    def lacking(self, changes: Changes, chosen: RowIndexes) -> list[int]:
        """The chosen changes whose row before lacks a field that the row after has."""
        befores, rows = changes.befores, changes.rows
        assert befores is not None
        found: list[int] = []
        if self._plan.is_binlog:
            return found  # What is not there has not changed.
        for name in self._structs.row_names.values():
            get = attrgetter(name)
            for index in chosen.tolist():
                if is_missing(get(befores[index])) and not is_missing(get(rows[index])):
                    found.append(index)
        return found

    def metadata(self, changes: Changes) -> tuple[Any, Any, Any]:
        """`_op`, `_ts_ms` and `_source` where they are read, else None."""
        plan = self._plan
        wanted = {each.name for each in plan.scope if not each.is_member} | {c.metadata for c in plan.columns}
        ops = pa.array(changes.ops, pa.string()) if "_op" in wanted else None
        ts_ms = sources = None
        if "_ts_ms" in wanted:
            ts_ms = pa.array(self._ts_ms(changes), pa.int64())
        if "_source" in wanted:
            is_wrapped = plan.format == "debezium-json"
            texts = _source_texts(changes.envelopes) if is_wrapped else [None] * len(changes.rows)
            sources = pa.array(texts, pa.string())
        return ops, ts_ms, sources

    def _ts_ms(self, changes: Changes) -> list[Any]:
        match self._plan.format:
            case "debezium-json":
                return [each.ts_ms for each in changes.envelopes]
            case "canal-json":
                return list(map(attrgetter(self._structs.source_names["ts"]), changes.envelopes))
            case "maxwell-json":
                seconds = map(attrgetter(self._structs.source_names["ts"]), changes.envelopes)
                return [None if ts is None else ts * SECOND_MS for ts in seconds]
            case "debezium-unwrapped":
                names = self._structs.row_names
                pairs = map(attrgetter(names["__ts_ms"], names["__source_ts_ms"]), changes.rows)
                return [second if first is None else first for first, second in pairs]
            case "json" | "row-kind":
                return [None] * len(changes.rows)
            case "debezium-avro" | "avro":
                raise AssertionError("read by decode.avro")
            case unknown:
                assert_never(unknown)


def without_unset(columns: Columns) -> Columns:
    """The columns, None in place of what is missing."""
    return [
        [None if value is msgspec.UNSET else value for value in values] if msgspec.UNSET in values else values
        for values in columns
    ]


def _transposed(structs: Sequence[Any], names: Mapping[str, str]) -> dict[str, Sequence[Any]]:
    if not structs:
        return dict.fromkeys(names, ())
    columns = zip(*map(msgspec.structs.astuple, structs), strict=True)
    return dict(zip(names, columns, strict=True))


def _is_null(value: Any) -> bool:
    return value is None or (type(value) is msgspec.Raw and (not len(value) or value == b"null"))


def _source_texts(envelopes: Sequence[Any]) -> list[str | None]:
    return [None if _is_null(each.source) else text_of(parse_json(bytes(each.source).decode())) for each in envelopes]
