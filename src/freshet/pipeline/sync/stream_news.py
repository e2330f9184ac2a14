"""What is new in a stream of records of many tables: tables, columns and types that the driver is to follow.

| records | are looked at |
|---|---|
| of a table that is not known | some of each block, up to `SAMPLE` |
| with a schema in front, or in Avro | one of each schema, once per process and plan |
| with fields that nothing has read, of no schema or beside it | some of those that have the field |

Nothing here is done record by record.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from freshet.pipeline.decode import raw_records, record_block
from freshet.pipeline.decode.avro.schemas import HEAD_BYTES, datum_of
from freshet.pipeline.decode.change import RawRecord
from freshet.pipeline.decode.column_block import ColumnBlock, columns_of
from freshet.pipeline.decode.described_table import (
    SAMPLE,
    TYPED_SAMPLE,
    DescribedTable,
    describe_record,
    describe_records,
    joined_tables,
    new_names,
    placed_records,
    records_with,
    union_type,
)
from freshet.pipeline.decode.images import RowIndexes
from freshet.pipeline.decode.json.schemas_seen import SCHEMAS_MAX, schema_prefix, schema_texts
from freshet.pipeline.decode.outcomes import SeenSchema
from freshet.pipeline.decode.record_block import RecordBlock
from freshet.pipeline.decode.source_table import SourceTable
from freshet.pipeline.decode.sql_types import UNSIZED_DECIMAL
from freshet.pipeline.exceptions import StoppedByRecordError
from freshet.pipeline.sync.table_changes import other_key
from freshet.pipeline.sync.table_decoding import ManyPlan, TableDecoding

_SAMPLE_OF_BLOCK: Final = 60
_WRAPPED: Final = b'{"schema":{'
_PAYLOAD: Final = b'"payload"'
"""In every record that has a schema beside it."""

KnownSchemas = dict[bytes, DescribedTable | None]
"""What is new in records, by their schema; None where nothing is."""


@dataclass(slots=True)
class StreamNews:
    """What is new in one stream of batches. `schemas` is what a process has found, by table and decoding."""

    plan: ManyPlan
    schemas: dict[Any, KnownSchemas]
    seen: dict[SourceTable, DescribedTable] = field(default_factory=dict)
    looked_at: Counter[SourceTable] = field(default_factory=Counter)
    """Records of new tables."""

    @property
    def is_any(self) -> bool:
        """From then on nothing is decoded."""
        return bool(self.seen)

    def found(self) -> tuple[SeenSchema, ...]:
        """What is new, for the driver."""
        return tuple(SeenSchema(table, described.to_document()) for table, described in self.seen.items())

    def note(self, table: SourceTable, described: DescribedTable) -> None:
        """Adds what records say of a table."""
        known = self.seen.get(table)
        self.seen[table] = described if known is None else known.joined(described)

    def describe(self, block: RecordBlock, table: SourceTable, indexes: RowIndexes) -> None:
        """A table that is not known yet. One whose records say nothing yet (deletions alone) is described as empty."""
        if self.looked_at[table] >= SAMPLE:
            return
        sample = indexes[:: -(-len(indexes) // _SAMPLE_OF_BLOCK)]
        self.looked_at[table] += len(sample)
        columns = columns_of(block.take(sample))
        if columns is not None:
            described = joined_tables(columns.described())
        else:
            described = joined_tables(self.described(each, where) for each, where in placed_records(block, sample))
        if described is None:
            described = DescribedTable({}, (), False, record_block.where(block, int(indexes[0])))
        self.note(table, described)

    def look_at_schemas(
        self, part: RecordBlock, table: SourceTable, decoding: TableDecoding, *, may_be_wrapped: bool
    ) -> None:
        """The schemas that records bring: each is looked at once per process and plan. Of Debezium's in JSON those that
        are not wrapped (`SortedRecords`) bring none."""
        if self.plan.ledger.is_avro:
            self._look_at_ids(part, table, decoding)
            return
        columns = columns_of(part)
        if columns is not None:
            self._look_at_columns(columns, table, decoding)
            return
        is_debezium = self.plan.ledger.is_debezium
        if is_debezium and not (may_be_wrapped and part.has_text(_PAYLOAD)):
            return  # 1.6 µs a record of small parts to see it one by one
        # What is passed over changes `known` alone.
        known = self.schemas.setdefault((table, *decoding.identity), {})
        left = np.arange(part.num_rows)
        if is_debezium:
            left = self._look_at_prefixes(part, table, decoding, known)
        for index, text in schema_texts(self.plan.ledger.format, part.column(raw_records.VALUE), left):
            self._look_at_one(part, index, table, decoding, known, text)

    def look_at_notes(
        self,
        part: RecordBlock,
        table: SourceTable,
        decoding: TableDecoding,
        before: Mapping[str, int],
        notes: Mapping[str, int],
    ) -> None:
        """Fields that nothing reads, though no schema of the block has said so: of records without one, whose types are
        guessed, or who have a field that their schema lacks."""
        if columns_of(part) is not None:
            return  # they have said what they are before anything was decoded
        count = SAMPLE if self.plan.guesses else TYPED_SAMPLE
        for name in new_names(notes, before, decoding.known):
            described = self._sampled(records_with(part, name, count))
            if described is None or not (described.is_typed or self.plan.guesses):
                continue
            news = _news(described, decoding)
            if news is not None:
                self.note(table, news)

    def described(self, record: RawRecord, where: str) -> DescribedTable:
        """What one record says of its table."""
        return describe_record(self.plan.ledger.format, record, where, self.plan.ledger.registry)

    def _look_at_columns(self, part: ColumnBlock, table: SourceTable, decoding: TableDecoding) -> None:
        for described in part.described():
            other = other_key(decoding.keys, described.named(decoding.names), str(table))
            if other is not None:
                raise StoppedByRecordError(other)
            news = _news(described, decoding)
            if news is not None:
                self.note(table, news)

    def _look_at_prefixes(
        self,
        part: RecordBlock,
        table: SourceTable,
        decoding: TableDecoding,
        known: KnownSchemas,
    ) -> RowIndexes:
        """The schemas that stand in front as Connect's converter writes them; gives the records of any other form."""
        values, left = part.column(raw_records.VALUE), np.arange(part.num_rows)
        while len(left):
            is_wrapped = pc.starts_with(values, pattern=_WRAPPED).fill_null(False).to_numpy(zero_copy_only=False)
            if not is_wrapped.any():
                break
            at = int(is_wrapped.argmax())
            first: bytes = values[at].as_py()
            prefix = next((each for each in known if first.startswith(each)), None) or schema_prefix(first)
            if prefix is None or len(known) >= SCHEMAS_MAX:
                break
            self._look_at_one(part, int(left[at]), table, decoding, known, prefix)
            is_same = pc.starts_with(values, pattern=prefix).fill_null(False)
            others = np.flatnonzero(~is_same.to_numpy(zero_copy_only=False))
            left, values = left[others], values.take(pa.array(others))
        return left

    def _look_at_one(
        self,
        part: RecordBlock,
        index: int,
        table: SourceTable,
        decoding: TableDecoding,
        known: KnownSchemas,
        schema: bytes,
    ) -> None:
        if schema not in known:
            ((record, where),) = placed_records(part, np.array([index]))
            known[schema] = _news(self.described(record, where), decoding)
        news = known[schema]
        if news is not None:
            self.note(table, news)

    def _look_at_ids(self, part: RecordBlock, table: SourceTable, decoding: TableDecoding) -> None:
        """The writer schemas of records in Avro, by the ids in front of them."""
        known = self.schemas.setdefault((table, *decoding.identity), {})
        heads = pc.binary_slice(part.column(raw_records.VALUE), 0, HEAD_BYTES).dictionary_encode()
        for code, head in enumerate(heads.dictionary.to_pylist()):
            if datum_of(head) is None:
                continue  # a dead letter
            if head not in known:
                first = pc.index(heads.indices, code).as_py()
                (record,) = record_block.each_of(part, np.array([first]))
                known[head] = _news(self.described(record, record_block.where(part, first)), decoding)
            news = known[head]
            if news is not None:
                self.note(table, news)

    def _sampled(self, records: Iterable[tuple[Any, str]]) -> DescribedTable | None:
        return describe_records(self.plan.ledger.format, records, self.plan.ledger.registry)


def _news(described: DescribedTable, decoding: TableDecoding) -> DescribedTable | None:
    """The columns that the table does not have, or has in a narrower type; of guessed types only new ones."""
    columns = {}
    for name, text in described.columns.items():
        known = decoding.known.get(name)
        is_wider = described.is_typed and known and text != UNSIZED_DECIMAL
        if known is None or (is_wider and union_type(known, text) not in (known, None)):
            columns[name] = text
    if any(name in described.columns and column in described.columns for name, column in decoding.names.items()):
        columns |= dict.fromkeys(decoding.names, "")
    if not columns:
        return None
    # With each the others that are called so but for the case of their letters: the driver sees which is gone.
    lowers = {name.lower() for name in columns}
    columns = {name: text for name, text in described.columns.items() if name in columns or name.lower() in lowers}
    fields = {name.lower() for name in described.columns}
    typed = decoding.known.items() if described.is_typed else ()
    lacks = tuple(name for name, text in typed if text and name.lower() not in fields)
    return replace(described, columns=columns, lacks=lacks)
