"""Changes as a stream sends them, of one table in one form: columns cut out of the messages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from freshet.pipeline.decode.change import DELETE as DELETES
from freshet.pipeline.decode.change import INSERT as INSERTS
from freshet.pipeline.decode.change import UPDATE_AFTER
from freshet.pipeline.decode.convert.converter import Mask
from freshet.pipeline.decode.evaluator import InputColumn, Metadata
from freshet.pipeline.decode.images import RowIndexes
from freshet.pipeline.decode.inputs import Input
from freshet.pipeline.decode.row_rules import Kinds
from freshet.pipeline.postgres.change_parser import ChangeParser
from freshet.pipeline.postgres.change_records import NOWHERE, BegunTransaction, ChangeRecords, source_of
from freshet.pipeline.postgres.table_form import TableForm
from freshet.pipeline.postgres.wire import (
    DELETE,
    INSERT,
    TEXT,
    UNCHANGED,
    UPDATE,
    Messages,
    Positions,
    Tuples,
    texts_at,
    tuples_at,
)

_KINDS: Final = {INSERT: INSERTS, UPDATE: UPDATE_AFTER, DELETE: DELETES}
_KIND_OF: Final = np.full(256, -1, np.int8)
_KIND_OF[list(_KINDS)] = list(_KINDS.values())
_OP_OF: Final = {INSERT: "c", UPDATE: "u", DELETE: "d"}


@dataclass(frozen=True)
class StreamedChanges:
    """What the records of a piece have in common. `topic` is what takes the place of one, `placeholder` that of values
    that did not change and were not sent."""

    messages: Messages
    forms: Sequence[TableForm]
    transactions: Sequence[BegunTransaction]
    topic: str
    placeholder: str

    @cached_property
    def commit_us(self) -> RowIndexes:
        """When each transaction was committed."""
        return np.array([each.commit_us for each in self.transactions], np.int64)


@dataclass(slots=True)
class PostgresChanges:
    """Changes of one table in one form (`evaluator.ParsedChanges`)."""

    parser: ChangeParser
    stream: StreamedChanges
    form: TableForm
    changes: ChangeRecords
    records: RowIndexes
    kinds: Kinds = field(init=False)

    def __post_init__(self) -> None:
        self.kinds = _KIND_OF[self.changes.kinds]

    def taken(self, rows: RowIndexes) -> PostgresChanges:
        if len(rows) == len(self.records):
            return self
        return PostgresChanges(self.parser, self.stream, self.form, self.changes.taken(rows), self.records[rows])

    def rows_lacking(self) -> Mask | None:
        return None

    def have_before(self, rows: RowIndexes) -> Mask:
        found: Mask = self._has_row_before[rows]
        return found

    def have_same_key(self, rows: RowIndexes) -> Mask:
        same = np.ones(len(rows), bool)
        names = [name for name in sorted(self.parser.plan.key_fields) if name in self.form.indexes]
        if len(rows) and names:
            after, before = self._tuples(self.changes.news[rows]), self._tuples(self.changes.olds[rows])
            for name in names:
                index = self.form.indexes[name]
                new, old = (_texts(self.stream, each, index) for each in (after, before))
                is_equal = pc.equal(new, old).fill_null(True).to_numpy(zero_copy_only=False)
                same &= is_equal | (after.kinds[index] == UNCHANGED)
        return same

    def lack_before(self, rows: RowIndexes) -> Sequence[int]:
        return ()

    def columns(self) -> list[InputColumn]:
        rows = self._of_records()
        return [self._column(each, rows) for each in self.parser.inputs.all]

    def columns_before(self, rows: RowIndexes) -> list[InputColumn]:
        """`ParsedChanges.columns_before`."""
        olds = self._tuples(self.changes.olds[rows])
        part = self.taken(rows) if len(rows) < len(self.records) else self
        return [part._column(each, olds) for each in self.parser.inputs.all]

    def unknown(self) -> dict[str, Mask]:
        return self.parser.unknown(self.form, len(self.records))

    def metadata(self) -> Metadata:
        wanted = self.parser.wanted
        ops = ts_ms = sources = None
        if "_op" in wanted:
            ops = pa.array([_OP_OF[kind] for kind in self.changes.kinds.tolist()], pa.string())
        if "_ts_ms" in wanted:
            ts_ms = pa.array(self.stream.commit_us[self.changes.transactions] // 1000)
        if "_source" in wanted:
            sources = self._of_transactions(lambda source: orjson.dumps(source).decode()).cast(pa.string())
        return ops, ts_ms, sources

    @property
    def _has_row_before(self) -> Mask:
        changes = self.changes
        found: Mask = (changes.kinds == UPDATE) & (changes.olds != NOWHERE) & ~changes.has_key_only
        return found

    def _tuples(self, at: Positions) -> Tuples:
        return tuples_at(self.stream.messages.octets, at, len(self.form.relation.columns))

    def _of_records(self) -> Tuples:
        """The row of each record: of a deletion the one before; of an update that comes with the row before it, what
        did not change is from there."""
        changes = self.changes
        rows = self._tuples(np.where(changes.kinds == DELETE, changes.olds, changes.news))
        given = np.flatnonzero((changes.olds != NOWHERE) & ~changes.has_key_only & (changes.kinds != DELETE))
        if not len(given) or not any((kinds[given] == UNCHANGED).any() for kinds in rows.kinds):
            return rows
        olds = self._tuples(changes.olds[given])
        for index, kinds in enumerate(rows.kinds):
            places = np.flatnonzero(kinds[given] == UNCHANGED)
            for mine, theirs in ((rows.kinds, olds.kinds), (rows.begins, olds.begins), (rows.lengths, olds.lengths)):
                mine[index][given[places]] = theirs[index][places]
        return rows

    def _column(self, each: Input, rows: Tuples) -> InputColumn:
        def texts_of(index: int) -> tuple[pa.Array, Mask]:
            texts = _texts(self.stream, rows, index).cast(pa.string())
            return texts, rows.kinds[index] == UNCHANGED

        def member_of(name: str) -> pa.Array:
            return self._of_transactions(lambda source: source.get(name))

        return self.parser.column(each, self.form, len(self.records), texts_of, member_of)

    def _of_transactions(self, value_of: Any) -> pa.Array:
        """A value for each record that is the same in its transaction."""
        numbers, places = np.unique(self.changes.transactions, return_inverse=True)
        values = [value_of(source_of(self.form, self.stream.transactions[number])) for number in numbers.tolist()]
        return pa.array(values).take(pa.array(places))


def _texts(stream: StreamedChanges, rows: Tuples, index: int) -> pa.Array:
    return texts_at(stream.messages.data, rows.begins[index], rows.lengths[index], rows.kinds[index] != TEXT)
