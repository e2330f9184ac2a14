"""Changes of a PostgreSQL server as a block of records: columns for the evaluator, Debezium's envelopes for the rest.

    ChangeRecords ─┬─ of one form ─ rows walked column by column ─ Arrow texts ─ converters ─ PostgresChanges
                   └─ what is looked at with care, dead letters: {"before": …, "after": …, "op": …, "source": …}

An envelope is what Debezium would have written, in the modes that `SourceConfig` has of this source: decimals and times
as texts, bytes as hex, no schema. So a dead letter is replayed as one of Debezium's is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
import orjson
import pyarrow as pa

from freshet.logstore.kafka.record_sizes import RecordSizes
from freshet.pipeline.decode import raw_records
from freshet.pipeline.decode.described_table import DescribedTable
from freshet.pipeline.decode.evaluator import ParsedChanges
from freshet.pipeline.decode.images import RowIndexes
from freshet.pipeline.decode.json_value import JsonValue
from freshet.pipeline.decode.record_block import Lengths
from freshet.pipeline.decode.source_table import SourceTable
from freshet.pipeline.postgres.change_parser import ChangeParser, PostgresBlock
from freshet.pipeline.postgres.change_records import NOWHERE, ChangeRecords, source_of
from freshet.pipeline.postgres.row_texts import row_before, row_of, shown_value
from freshet.pipeline.postgres.sent_changes import PostgresChanges, StreamedChanges
from freshet.pipeline.postgres.table_form import DEFAULT, FULL, TableForm
from freshet.pipeline.postgres.wire import DELETE, HEAD, INSERT, TRUNCATE, UPDATE, distinct

OPS: Final = {INSERT: "c", UPDATE: "u", DELETE: "d", TRUNCATE: "t"}
_PARTITION: Final = 0
_SIZE_GUESSED: Final = 64


class ChangeBlock(PostgresBlock):
    """A `RecordBlock`."""

    def __init__(self, stream: StreamedChanges, records: ChangeRecords) -> None:
        self.stream, self.records = stream, records
        self._values: dict[int, bytes] = {}

    @property
    def num_rows(self) -> int:
        return len(self.records)

    # --- columns ------------------------------------------------------------------------------------------------------

    def by_table(self, indexes: RowIndexes) -> Mapping[SourceTable | None, RowIndexes]:
        forms = self.records.forms[indexes]
        found: dict[SourceTable | None, list[RowIndexes]] = {}
        for form in distinct(forms):
            found.setdefault(self.stream.forms[form].source_table, []).append(indexes[forms == form])
        return {
            table: parts[0] if len(parts) == 1 else np.sort(np.concatenate(parts)) for table, parts in found.items()
        }

    def described(self) -> Sequence[DescribedTable]:
        found = []
        for number in distinct(self.records.forms):
            form = self.stream.forms[number]
            first = int(np.flatnonzero(self.records.forms == number)[0])
            knows_key = form.relation.identity in (DEFAULT, FULL)
            found.append(DescribedTable(form.columns, form.key, True, self._place(first), knows_key=knows_key))
        return found

    def parts(self, parser: ChangeParser, indexes: RowIndexes) -> Iterator[tuple[TableForm, ParsedChanges]]:
        records = self.records
        plain = indexes[records.kinds[indexes] != TRUNCATE]
        for number in distinct(records.forms[plain]):
            own, form = plain[records.forms[plain] == number], self.stream.forms[number]
            yield form, PostgresChanges(parser, self.stream, form, records.taken(own), own)

    # --- records ------------------------------------------------------------------------------------------------------

    def column(self, name: str) -> pa.Array:
        return self.taken(name, np.arange(self.num_rows))

    def taken(self, name: str, indexes: RowIndexes) -> pa.Array:
        count = len(indexes)
        match name:
            case raw_records.TOPIC:
                return pa.repeat(pa.scalar(self.stream.topic), count)
            case raw_records.KAFKA_PARTITION:
                return pa.repeat(pa.scalar(_PARTITION, pa.int32()), count)
            case raw_records.RANK:
                return pa.repeat(pa.scalar(0, pa.int64()), count)
            case raw_records.HEADERS:
                return pa.nulls(count)
            case raw_records.OFFSET:
                return pa.array(self.records.numbers[indexes])
            case raw_records.TIMESTAMP:
                times = self.stream.commit_us[self.records.transactions[indexes]]
                return pa.array(times).cast(pa.timestamp("us", "UTC"))
            case raw_records.KEY:
                return pa.array([self._key(index) for index in indexes.tolist()], pa.binary())
            case raw_records.OLD_KEY:
                return pa.array(self._old_keys(indexes), pa.binary())
            case raw_records.VALUE:
                return pa.array(self.values(indexes), pa.binary())
        raise KeyError(name)

    def values(self, indexes: RowIndexes) -> list[bytes]:
        return [self._value(index) for index in indexes.tolist()]

    def value_lengths(self) -> Lengths:
        places = np.where(self.records.news == NOWHERE, self.records.olds, self.records.news)
        return np.maximum(np.diff(places, append=places[-1:] + _SIZE_GUESSED), HEAD)

    def sizes(self) -> RecordSizes:
        lengths = self.value_lengths()
        return RecordSizes(int(lengths.mean()), int(lengths.max())) if len(lengths) else RecordSizes(0, 0)

    def slice(self, start: int, count: int) -> ChangeBlock:
        if not start and count == self.num_rows:
            return self
        return ChangeBlock(self.stream, self.records.taken(slice(start, start + count)))

    def take(self, indexes: RowIndexes) -> ChangeBlock:
        return ChangeBlock(self.stream, self.records.taken(indexes))

    # --- one by one ---------------------------------------------------------------------------------------------------

    def _place(self, index: int) -> str:
        return f"{self.stream.topic} partition {_PARTITION} offset {int(self.records.numbers[index])}"

    def _form(self, index: int) -> TableForm:
        return self.stream.forms[int(self.records.forms[index])]

    def _key(self, index: int) -> bytes | None:
        form = self._form(index)
        row = row_of(self.stream.messages, self.records, index, form) or row_before(
            self.stream.messages, self.records, index, form
        )
        return _key_of(form, row)

    def _old_keys(self, indexes: RowIndexes) -> list[bytes | None]:
        moved = self.records.is_moved[indexes].tolist()
        return [
            _key_of(self._form(index), row_before(self.stream.messages, self.records, index, self._form(index)))
            if is_moved
            else None
            for index, is_moved in zip(indexes.tolist(), moved, strict=True)
        ]

    def _value(self, index: int) -> bytes:
        if index not in self._values:
            self._values[index] = orjson.dumps(self._envelope(index))
        return self._values[index]

    def _envelope(self, index: int) -> dict[str, JsonValue]:
        records, form, placeholder = self.records, self._form(index), self.stream.placeholder
        kind = int(records.kinds[index])
        transaction = self.stream.transactions[int(records.transactions[index])]
        before = None
        if not records.has_key_only[index] and not records.is_moved[index]:
            before = row_before(self.stream.messages, records, index, form)
        after = None if kind == DELETE else row_of(self.stream.messages, records, index, form)
        return {
            "before": None if before is None else _document(form, before, placeholder),
            "after": None if after is None else _document(form, after, placeholder),
            "op": OPS[kind],
            "ts_ms": transaction.commit_us // 1000,
            "source": source_of(form, transaction),
        }


def _document(form: TableForm, row: Mapping[int, Any], placeholder: str) -> dict[str, JsonValue]:
    return {
        column.name: shown_value(form.types[index], row[index], placeholder)
        for index, column in enumerate(form.relation.columns)
        if index in row
    }


def _key_of(form: TableForm, row: Mapping[int, Any] | None) -> bytes | None:
    if row is None or not form.key:
        return None
    columns = form.relation.columns
    found = {columns[index].name: shown_value(form.types[index], row.get(index), "") for index in form.key_indexes}
    return orjson.dumps(found)
