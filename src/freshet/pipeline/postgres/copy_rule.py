"""Which changes of a stream the chunks of a copy have already: those that the snapshot of the chunk of their key holds.

A row whose key changed between two chunks may be in neither: its change has the new row, but for large values that did
not change (TOAST). Such rows are read again by their key, as they are now; what they have been given since comes.

The order of keys is known here of some types; that of the others only the server knows:

| order of | is that of |
|---|---|
| whole numbers, numeric(p, s), date, timestamps | their values |
| uuid, bytea, boolean, time; texts whose collation is C | the bytes of their texts |
| other texts (a collation of a language), enums, numeric without a precision, … | `ChunkReader.places` |
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from freshet.pipeline.decode.convert.converter import Mask
from freshet.pipeline.exceptions import StoppedByRecordError
from freshet.pipeline.postgres.change_records import NOWHERE, ChangeRecords
from freshet.pipeline.postgres.chunk_reader import ChunkReader
from freshet.pipeline.postgres.copied_table import CopiedColumn, CopiedTable
from freshet.pipeline.postgres.copy_state import Bound, CopyProgress, Places, TableName
from freshet.pipeline.postgres.row_texts import NOT_SENT, row_at
from freshet.pipeline.postgres.sent_changes import StreamedChanges
from freshet.pipeline.postgres.server import ServerPlace
from freshet.pipeline.postgres.source_types import Form, SourceType
from freshet.pipeline.postgres.table_form import TableForm
from freshet.pipeline.postgres.transactions import Ids
from freshet.pipeline.postgres.value_texts import text_converter
from freshet.pipeline.postgres.wire import NULL, TEXT, TRUNCATE, UNCHANGED, Messages, distinct, texts_at, tuples_at
from freshet.storage.model.data_type import TEXT_ROOTS
from freshet.storage.model.sql_type import parse_sql_type

_WAITS: Final = b"SET LOCAL lock_timeout = '5s'"
_BY_VALUE: Final = frozenset({Form.WHOLE, Form.DECIMAL, Form.DATE, Form.STAMP, Form.ZONED})
_BY_TEXT: Final = frozenset({Form.BOOLEAN, Form.BYTES, Form.TIME})
_COLLATED: Final = frozenset({"text", "varchar", "char", "name", "uuid"})
_BLANK_PADDED: Final = "char"


@dataclass(frozen=True)
class CopyRule:
    """A value that travels to the workers: the copies that the changes of a batch may be in; of tables whose copy has
    begun, what it reads. `place` is asked for the order of keys that nobody else knows. Changes from `until` on are in
    no chunk."""

    place: ServerPlace
    tables: Mapping[TableName, tuple[CopiedTable | None, CopyProgress]]
    until: int | None

    def applied(self, sent: StreamedChanges, records: ChangeRecords) -> tuple[StreamedChanges, ChangeRecords]:
        """The records that no chunk has, and the changes that they are of."""
        lsns = np.array([each.commit_lsn for each in sent.transactions], np.int64)[records.transactions]
        ids = np.array([each.xid for each in sent.transactions], np.int64)[records.transactions]
        counts = np.ones(len(records), bool)
        may_be = counts if self.until is None else lsns < self.until
        for number in distinct(records.forms[may_be]):
            form = sent.forms[number]
            found = self.tables.get((form.relation.schema, form.relation.name))
            if found is None:
                continue
            table, progress = found
            rows = np.flatnonzero(may_be & (records.forms == number))
            if not progress.chunks:
                counts[rows] = False
            elif table is not None:
                own = _Copied(self.place, sent, form, table, progress)
                counts[rows] = own.counts(records.taken(rows), ids[rows], lsns[rows])
                sent, records = own.with_lost_values(records, rows, counts)
        return sent, records if counts.all() else records.taken(counts)


@dataclass(frozen=True)
class _Copied:
    """The changes of one table in one form, of which chunks are in the lake."""

    place: ServerPlace
    sent: StreamedChanges
    form: TableForm
    table: CopiedTable
    progress: CopyProgress

    def counts(self, records: ChangeRecords, ids: Ids, lsns: Places) -> Places:
        """Which of them count."""
        counts = np.ones(len(records), bool)
        truncates = np.flatnonzero(records.kinds == TRUNCATE)
        if len(truncates):
            count = self._by_chunk(ids[truncates], lsns[truncates])
            counts[truncates] = np.logical_and.reduce(count)
            if (np.logical_or.reduce(count) != counts[truncates]).any():
                raise _torn(self.form, "was truncated")
        rows = np.flatnonzero(records.kinds != TRUNCATE)
        if not self.progress.bounds:
            counts[rows] = self.progress.counting(np.zeros(len(rows), np.int64), ids[rows], lsns[rows])
        elif len(rows):
            keys = self._keys(records.taken(rows))
            lacks = np.logical_or.reduce([each.is_null().to_numpy(zero_copy_only=False) for each in keys])
            before, rows = rows[lacks], rows[~lacks]  # of the key that the table had before its copy: chunks have them
            if np.logical_or.reduce(self._by_chunk(ids[before], lsns[before])).any():
                raise other_key(str(self.form.relation))
            counts[before] = False
            if len(rows):
                places = self._places([each.filter(pa.array(~lacks)) for each in keys])
                counts[rows] = self.progress.counting(places, ids[rows], lsns[rows])
        return counts

    def _by_chunk(self, ids: Ids, lsns: Places) -> list[Mask]:
        """For each chunk, and what is not copied yet, which changes would count there."""
        places = range(len(self.progress.chunks) + (not self.progress.is_whole))
        return [self.progress.counting(np.full(len(ids), place), ids, lsns) for place in places]

    def _keys(self, records: ChangeRecords) -> list[pa.Array]:
        """The texts of the columns of the keys; NULL where a change does not have them."""
        messages, indexes = self.sent.messages, self.form.indexes
        at = np.where(records.news == NOWHERE, records.olds, records.news)
        tuples = tuples_at(messages.octets, at, len(self.form.relation.columns))
        names = [self.table.columns[place].name for place in self.table.key]
        if not all(name in indexes for name in names):
            return [pa.nulls(len(records), pa.string())]
        keys = [
            texts_at(messages.data, tuples.begins[place], tuples.lengths[place], tuples.kinds[place] != TEXT)
            for place in (indexes[name] for name in names)
        ]
        return [each.cast(pa.string()) for each in keys]

    def _places(self, keys: Sequence[pa.Array]) -> Places:
        """The chunks that keys belong to."""
        bounds, columns = self.progress.bounds, [self.table.columns[place] for place in self.table.key]
        types = [self.form.types[self.form.indexes[column.name]] for column in columns]
        places = places_of_keys(bounds, keys, columns, types)
        if places is not None:
            return places
        with self.place.session() as session:
            return np.array(ChunkReader(session, self.table).places(bounds, _tuples(keys)), np.int64)

    def with_lost_values(
        self, records: ChangeRecords, rows: Places, counts: Places
    ) -> tuple[StreamedChanges, ChangeRecords]:
        """The same with values that no chunk has and the change does not bring; `rows` are those of the table."""
        moved = rows[(records.is_moved & records.has_key_only)[rows] & counts[rows]]
        if not len(moved) or not self.progress.bounds:
            return self.sent, records
        news = tuples_at(self.sent.messages.octets, records.news[moved], len(self.form.relation.columns))
        lacks = np.logical_or.reduce([kinds == UNCHANGED for kinds in news.kinds])
        deletes = dict(zip(records.numbers[rows].tolist(), counts[rows].tolist(), strict=True))
        came = np.array([deletes.get(number - 1, False) for number in records.numbers[moved].tolist()], bool)
        lost = moved[lacks & ~came]
        if not len(lost):
            return self.sent, records
        messages, keys = self.sent.messages, _tuples(self._keys(records.taken(lost)))
        found = self._read_again(messages.data, records.news[lost].tolist(), keys)
        places = records.news.copy()
        places[lost] = len(messages.data) + np.cumsum([0, *map(len, found[:-1])])
        more = Messages(messages.data + b"".join(found), messages.starts)
        return replace(self.sent, messages=more), replace(records, news=places)

    def _read_again(self, data: bytes, positions: Sequence[int], keys: Sequence[Bound]) -> list[bytes]:
        """The rows at some positions of messages, with the values that were not sent as the table has them now."""
        table = self.table
        none = pa.schema([(str(place), pa.string()) for place in range(len(table.columns))]).empty_table()
        with self.place.session() as session, session.transaction():
            session.execute(_WAITS)  # for who alters the table, and may wait for a snapshot of this batch
            found = pa.concat_tables([*ChunkReader(session, table).rows_of(keys), none]).to_pylist()
        now = {tuple(str(row[str(place)]) for place in table.key): row for row in found}
        named = {column.name: str(place) for place, column in enumerate(table.columns)}
        rows = []
        for position, key in zip(positions, keys, strict=True):
            row, again = row_at(data, position), now.get(key)
            parts = [len(row).to_bytes(2, "big")]
            for place, column in enumerate(self.form.relation.columns):
                value = row[place]
                if value is NOT_SENT:
                    if column.name not in named:
                        raise self._lost(f"its column {column.name}")
                    if again is None:
                        raise self._lost(f"its row of the key {', '.join(key)}")
                    text = again[named[column.name]]
                    value = None if text is None else text.encode()
                parts.append(bytes([NULL]) if value is None else _sent(value))
            rows.append(b"".join(parts))
        return rows

    def _lost(self, what: str) -> StoppedByRecordError:
        return _torn(
            self.form,
            "has a row whose key changed, with large values that the change does not bring (TOAST), and "
            f"{what} is not there any more,",
        )


def _tuples(keys: Sequence[pa.Array]) -> list[tuple[str, ...]]:
    return [tuple(key) for key in zip(*(each.to_pylist() for each in keys), strict=True)]


def other_key(table: str) -> StoppedByRecordError:
    """What to say of a table whose chunks are ranges of another key than it has."""
    return StoppedByRecordError(
        f"table {table} got another key while it was copied, and its chunks are from before and after: nothing of it "
        "was written. Drop the table of the lake, and copy it again: freshet resync FILE --table TABLE"
    )


def _torn(form: TableForm, what: str) -> StoppedByRecordError:
    return StoppedByRecordError(
        f"table {form.relation} {what} while it was copied, and its chunks are from before and after: nothing of it "
        "was written. Copy it again: freshet resync FILE"
    )


def _sent(value: object) -> bytes:
    assert isinstance(value, bytes)
    return bytes([TEXT]) + len(value).to_bytes(4, "big") + value


def places_of_keys(
    bounds: Sequence[Bound], keys: Sequence[pa.Array], columns: Sequence[CopiedColumn], types: Sequence[SourceType]
) -> Places | None:
    """How many of the bounds, which rise, are below each key; None where the order of a column, or of one of these
    values (infinity), is not known here. `keys` are the string arrays of the columns of the key."""
    count = len(keys[0])
    if not bounds or not count:
        return np.zeros(count, np.int64)
    sortable = []
    for index, (texts, column, source) in enumerate(zip(keys, columns, types, strict=True)):
        limits = pa.array([bound[index] for bound in bounds], pa.string())
        pair = _sortable(limits, column, source), _sortable(texts, column, source)
        if pair[0] is None or pair[1] is None:
            return None
        sortable.append(pair)
    low, high = np.zeros(count, np.int64), np.full(count, len(bounds), np.int64)
    for _ in range(len(bounds).bit_length()):
        middle = (low + high) // 2
        is_below = _are_below([(limits, values) for limits, values in sortable], np.minimum(middle, len(bounds) - 1))
        is_open = low < high
        low = np.where(is_open & is_below, middle + 1, low)
        high = np.where(is_open & ~is_below, middle, high)
    return low


def _are_below(columns: Sequence[tuple[pa.Array, pa.Array]], middle: Places) -> Mask:
    """Whether the bound at each place is below the key in the same row."""
    below, equal = np.zeros(len(middle), bool), np.ones(len(middle), bool)
    for limits, values in columns:
        bound = limits.take(pa.array(middle))
        below |= equal & pc.less(bound, values).to_numpy(zero_copy_only=False)
        equal &= pc.equal(bound, values).to_numpy(zero_copy_only=False)
    return below


def _sortable(texts: pa.Array, column: CopiedColumn, source: SourceType) -> pa.Array | None:
    """An array with the order of the source; None where it is not known."""
    form = source.of.form
    if source.is_array:
        return None
    if form in _BY_VALUE:
        data_type = parse_sql_type(source.sql_type)
        if data_type.root in TEXT_ROOTS:
            return None
        values, bad = text_converter(source, data_type).of_texts(texts)
        return values if bad is None else None
    if form in _BY_TEXT or (source.of.name in _COLLATED and column.is_byte_order and column.type_oid == source.of.oid):
        return pc.utf8_rtrim(texts, " ") if source.of.name == _BLANK_PADDED else texts
    return None
