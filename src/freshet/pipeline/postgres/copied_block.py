"""Rows of a chunk as a block of records: columns of texts for the evaluator, Debezium's `r` for the rest."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import orjson
import pyarrow as pa

from freshet.logstore.kafka.record_sizes import RecordSizes
from freshet.pipeline.decode import raw_records
from freshet.pipeline.decode.change import INSERT
from freshet.pipeline.decode.convert.converter import Mask
from freshet.pipeline.decode.described_table import DescribedTable
from freshet.pipeline.decode.evaluator import InputColumn, Metadata, ParsedChanges
from freshet.pipeline.decode.images import RowIndexes
from freshet.pipeline.decode.json_value import JsonValue
from freshet.pipeline.decode.record_block import Lengths
from freshet.pipeline.decode.row_rules import Kinds
from freshet.pipeline.decode.source_table import SourceTable
from freshet.pipeline.postgres.change_parser import ChangeParser, PostgresBlock
from freshet.pipeline.postgres.change_records import BegunTransaction, source_of
from freshet.pipeline.postgres.row_texts import shown_value
from freshet.pipeline.postgres.table_form import TableForm
from freshet.storage.merge.gather import contiguous

SNAPSHOT_OP: Final = "r"
_ROW_GUESSED: Final = 128


@dataclass(frozen=True)
class CopiedRows:
    """What the rows of a chunk have in common. `read` stands for the transaction: when it was read, and no id."""

    form: TableForm
    topic: str
    read: BegunTransaction


class CopiedBlock(PostgresBlock):
    """A `RecordBlock`."""

    def __init__(self, rows: CopiedRows, texts: pa.Table, first: int) -> None:
        """`texts` has a string column for each of the table, `first` is the number of its first row."""
        self.rows, self.texts = rows, texts
        self.numbers: RowIndexes = np.arange(first, first + texts.num_rows)

    @property
    def num_rows(self) -> int:
        return self.texts.num_rows

    def by_table(self, indexes: RowIndexes) -> Mapping[SourceTable | None, RowIndexes]:
        return {self.rows.form.source_table: indexes} if len(indexes) else {}

    def described(self) -> Sequence[DescribedTable]:
        form = self.rows.form
        return [DescribedTable(form.columns, form.key, True, self._place(0), knows_key=True)]

    def parts(self, parser: ChangeParser, indexes: RowIndexes) -> Iterator[tuple[TableForm, ParsedChanges]]:
        if len(indexes):
            own = self if len(indexes) == self.num_rows else self.take(indexes)
            yield self.rows.form, CopiedChanges(parser, own, indexes)

    def column(self, name: str) -> pa.Array:
        return self.taken(name, np.arange(self.num_rows))

    def taken(self, name: str, indexes: RowIndexes) -> pa.Array:
        count = len(indexes)
        match name:
            case raw_records.TOPIC:
                return pa.repeat(pa.scalar(self.rows.topic), count)
            case raw_records.KAFKA_PARTITION:
                return pa.repeat(pa.scalar(0, pa.int32()), count)
            case raw_records.RANK:
                return pa.repeat(pa.scalar(0, pa.int64()), count)
            case raw_records.HEADERS:
                return pa.nulls(count)
            case raw_records.OLD_KEY:
                return pa.nulls(count, pa.binary())
            case raw_records.OFFSET:
                return pa.array(self.numbers[indexes])
            case raw_records.TIMESTAMP:
                return pa.repeat(pa.scalar(self.rows.read.commit_us, pa.timestamp("us", "UTC")), count)
            case raw_records.KEY:
                return pa.array([self._json(index, self.rows.form.key_indexes) for index in indexes], pa.binary())
            case raw_records.VALUE:
                return pa.array(self.values(indexes), pa.binary())
        raise KeyError(name)

    def values(self, indexes: RowIndexes) -> list[bytes]:
        form, read = self.rows.form, self.rows.read
        everything = range(len(form.relation.columns))
        return [
            orjson.dumps(
                {
                    "before": None,
                    "after": self._row(index, everything),
                    "op": SNAPSHOT_OP,
                    "ts_ms": read.commit_us // 1000,
                    "source": {**source_of(form, read), "snapshot": "true"},
                }
            )
            for index in indexes.tolist()
        ]

    def value_lengths(self) -> Lengths:
        size = self.texts.nbytes // max(1, self.num_rows) + _ROW_GUESSED
        return np.full(self.num_rows, size, np.int64)

    def sizes(self) -> RecordSizes:
        lengths = self.value_lengths()
        return RecordSizes(int(lengths[0]), int(lengths[0])) if len(lengths) else RecordSizes(0, 0)

    def slice(self, start: int, count: int) -> CopiedBlock:
        return CopiedBlock(self.rows, self.texts.slice(start, count), int(self.numbers[start]) if count else 0)

    def take(self, indexes: RowIndexes) -> CopiedBlock:
        found = CopiedBlock(self.rows, self.texts.take(pa.array(indexes)), 0)
        found.numbers = self.numbers[indexes]
        return found

    def _place(self, index: int) -> str:
        return f"{self.rows.topic} partition 0 offset {int(self.numbers[index])}"

    def _row(self, index: int, places: Sequence[int]) -> dict[str, JsonValue]:
        form = self.rows.form
        texts = ((place, self.texts.column(place)[index].as_py()) for place in places)
        return {
            form.relation.columns[place].name: shown_value(
                form.types[place], None if text is None else text.encode(), ""
            )
            for place, text in texts
        }

    def _json(self, index: int, places: Sequence[int]) -> bytes | None:
        return orjson.dumps(self._row(index, places)) if places else None


@dataclass(slots=True)
class CopiedChanges:
    """Rows of a chunk (`evaluator.ParsedChanges`)."""

    parser: ChangeParser
    block: CopiedBlock
    records: RowIndexes
    kinds: Kinds = field(init=False)

    def __post_init__(self) -> None:
        self.kinds = np.full(len(self.records), INSERT, np.int8)

    def taken(self, rows: RowIndexes) -> CopiedChanges:
        if len(rows) == len(self.records):
            return self
        return CopiedChanges(self.parser, self.block.take(rows), self.records[rows])

    def rows_lacking(self) -> Mask | None:
        return None

    def have_before(self, rows: RowIndexes) -> Mask:
        return np.zeros(len(rows), bool)

    def have_same_key(self, rows: RowIndexes) -> Mask:
        return np.ones(len(rows), bool)

    def lack_before(self, rows: RowIndexes) -> Sequence[int]:
        return ()

    def columns(self) -> list[InputColumn]:
        count, form = len(self.records), self.block.rows.form

        def texts_of(index: int) -> tuple[pa.Array, None]:
            return contiguous(self.block.texts.column(index)), None

        return [self.parser.column(each, form, count, texts_of, self._member) for each in self.parser.inputs.all]

    def columns_before(self, rows: RowIndexes) -> Sequence[InputColumn]:
        raise AssertionError("no row of a copy has one before it")

    def unknown(self) -> dict[str, Mask]:
        return self.parser.unknown(self.block.rows.form, len(self.records))

    def metadata(self) -> Metadata:
        count, wanted, rows = len(self.records), self.parser.wanted, self.block.rows
        ops = pa.repeat(pa.scalar(SNAPSHOT_OP), count) if "_op" in wanted else None
        ts_ms = pa.repeat(pa.scalar(rows.read.commit_us // 1000, pa.int64()), count) if "_ts_ms" in wanted else None
        source = orjson.dumps(source_of(rows.form, rows.read)).decode()
        return ops, ts_ms, pa.repeat(pa.scalar(source), count) if "_source" in wanted else None

    def _member(self, name: str) -> pa.Array:
        value = source_of(self.block.rows.form, self.block.rows.read).get(name)
        return pa.repeat(pa.scalar(value), len(self.records))
