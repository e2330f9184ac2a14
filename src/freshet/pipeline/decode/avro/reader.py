"""The fast path of records in Avro: the records of a block by writer schema, each group as columns, images of these.

Nothing is learned here: the schema says the type of each field, so its conversion is known before the first record.
Left to the careful path are records that are no plain change, updates of another key, unavailable values that
`before` may have, values that do not fit, and all records of a schema without columns (`WriterSchema.is_columnar`).
Where a datum of a group is broken, the group is halved, and the datums of the last halves are looked at one by one.

Measured (`bench.decode_bench`, ten columns, a core that was not quiet): 1.5 µs of CPU per record, 600,000 a second; the
same changes in JSON 2.4 µs, 400,000 a second. Of a hundred columns 11.8 µs, in JSON 16.2. With one broken datum in a
hundred 23 µs, since all are then looked at one by one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from freshet.pipeline.decode import raw_records
from freshet.pipeline.decode.avro.columns import converted, equal_rows, member, symbols_of, values
from freshet.pipeline.decode.avro.container import DatumColumns
from freshet.pipeline.decode.avro.schemas import UnreadableError, schemas_of
from freshet.pipeline.decode.avro.values import DatumError
from freshet.pipeline.decode.avro.wire import DatumGroup, groups_of
from freshet.pipeline.decode.avro.writer_schema import Node, WriterSchema
from freshet.pipeline.decode.careful import LEFT_NOTE, UNKNOWN_NOTE, CarefulReader, shown_name
from freshet.pipeline.decode.change import DELETE, INSERT, UPDATE_AFTER, whole_ts
from freshet.pipeline.decode.convert.converter import Mask, null_mask
from freshet.pipeline.decode.debezium import KINDS as OPS
from freshet.pipeline.decode.fast.reader import at_rows, with_rows_before
from freshet.pipeline.decode.images import Findings, Images, Note, RowIndexes
from freshet.pipeline.decode.inputs import Input, facts_key
from freshet.pipeline.decode.json_value import encodable, text_of
from freshet.pipeline.decode.plan import DecodePlan
from freshet.pipeline.decode.source_table import PARTS, SourceTable
from freshet.pipeline.decode.spelled_fields import SpelledFields
from freshet.pipeline.decode.tables_seen import TablesSeen
from freshet.pipeline.decode.toast import octet_forms, placeholder_forms

_HALVED_UNTIL: Final = 1024
"""Datums of a group with a broken one that are looked at one by one, at 15 µs each."""

_OPS: Final = pa.array(list(OPS), pa.string())
_KINDS: Final = np.array([*OPS.values(), -1], np.int8)
_NO_KIND: Final = -1


class AvroReaders:
    """Reads the records of one source."""

    def __init__(self, plan: DecodePlan, careful: CarefulReader, tables: TablesSeen) -> None:
        assert plan.registry is not None, "a rule of the pipeline file"
        self._plan, self._careful, self._tables = plan, careful, tables
        self._schemas = schemas_of(plan.registry)
        self._readers: dict[int, GroupReader | None] = {}

    def read(self, block: Any, values: Any, indexes: RowIndexes, findings: Findings) -> tuple[list[Images], RowIndexes]:
        """The images of the records at these indexes, and the other ones, which take the careful path."""
        images: list[Images] = []
        is_done = np.zeros(len(values), bool)
        for group in groups_of(values, indexes):
            reader = self._reader(group, block)
            if reader is None:
                continue
            for column, rows in self._columns(reader, group):
                found, done = reader.read(column, rows, findings)
                images += found
                is_done[done] = True
        return images, indexes[~is_done[indexes]]

    def _reader(self, group: DatumGroup, block: Any) -> GroupReader | None:
        """None where the careful path has to read the group."""
        if group.schema_id not in self._readers:
            topic = block.column(raw_records.TOPIC)[int(group.indexes[0])].as_py()
            try:
                schema = self._schemas.find(group.schema_id, topic or "")
            except UnreadableError:
                return None
            layout = layout_of(self._plan, schema)
            self._readers[group.schema_id] = (
                None if layout is None else GroupReader(self._plan, self._careful, self._tables, schema, layout)
            )
        return self._readers[group.schema_id]

    def _columns(self, reader: GroupReader, group: DatumGroup) -> Iterator[tuple[Any, RowIndexes]]:
        """The group as columns, without datums that are broken."""
        column = reader.datums.read(group.datums)
        count = len(group.indexes)
        if column is not None:
            yield column, group.indexes
        elif count > _HALVED_UNTIL:
            for start, end in ((0, count // 2), (count // 2, count)):
                half = group._replace(indexes=group.indexes[start:end], datums=group.datums.slice(start, end - start))
                yield from self._columns(reader, half)
        else:
            can_read = self._schemas.can_read
            good = [can_read(group.schema_id, reader.schema, each) for each in group.datums.to_pylist()]
            rows = np.flatnonzero(good)
            column = reader.datums.read(group.datums.take(pa.array(rows))) if len(rows) else None
            if column is not None:
                yield column, group.indexes[rows]


@dataclass(frozen=True, slots=True)
class Layout:
    """Where the row is in a datum: the datum itself, or the members of an envelope."""

    row: Node
    is_envelope: bool
    source: Node | None = None
    """Where `source` is a record."""


def layout_of(plan: DecodePlan, schema: WriterSchema) -> Layout | None:
    """The layout of a schema; None where the careful path has to read its datums."""
    root = schema.root
    if not schema.is_columnar or root.kind != "record" or root.is_nullable:
        return None
    if not plan.has_envelope:
        is_odd = (plan.fails_on_unknown and _unknown(plan, root)) or _is_spelled_otherwise(plan, root)
        return None if is_odd else Layout(root, False)
    images = [root.fields.get(name) for name in ("before", "after")]
    op, source = root.fields.get("op"), root.fields.get("source")
    before, after = images
    if op is None or op.kind not in ("string", "enum") or before is None or after is None:
        return None
    if before.kind != "record" or before.fields is not after.fields:
        return None
    if (plan.fails_on_unknown and _unknown(plan, after)) or _is_spelled_otherwise(plan, after):
        return None
    if source is not None and source.kind != "record":
        return None
    if plan.names_tables and source is not None:
        parts = (source.fields.get(name) for name in PARTS)
        if any(part is not None and part.kind not in ("string", "null") for part in parts):
            return None
    return Layout(after, True, source)


def _is_spelled_otherwise(plan: DecodePlan, row: Node) -> bool:
    return plan.spells_freely and bool(SpelledFields(each.name for each in plan.fields).found(row.fields))


def _unknown(plan: DecodePlan, row: Node) -> list[str]:
    known = {each.name for each in plan.fields}
    return [name for name in row.fields if name not in known]


@dataclass(slots=True)
class _Group:
    """The changes of some records: the rows as columns, and where they are from."""

    records: RowIndexes
    kinds: Any
    datum: Any
    after: Any
    before: Any | None

    def taken(self, rows: RowIndexes) -> _Group:
        """Some of them."""
        if len(rows) == len(self.records):
            return self
        take = pa.array(rows)
        after = self.after.take(take)
        before = None if self.before is None else self.before.take(take)
        return _Group(self.records[rows], self.kinds[rows], self.datum.take(take), after, before)

    @property
    def deletes(self) -> Mask:
        """The deletions, whose row is `before`."""
        found: Mask = self.kinds == DELETE
        return found

    def row(self, node: Node, name: str) -> Any:
        """A column of the rows."""
        after = member(self.after, node, name)
        deletes = self.deletes
        if self.before is None or not deletes.any():
            return after
        before = member(self.before, node, name)
        if not pa.types.is_nested(after.type):
            return pc.if_else(pa.array(deletes), before, after)
        count = len(deletes)
        return pa.concat_arrays([after, before]).take(pa.array(np.where(deletes, count, 0) + np.arange(count)))


class GroupReader:
    """Reads datums of one schema."""

    def __init__(
        self, plan: DecodePlan, careful: CarefulReader, tables: TablesSeen, schema: WriterSchema, layout: Layout
    ) -> None:
        self.schema, self.datums = schema, DatumColumns(schema)
        self._plan, self._tables, self._layout = plan, tables, layout
        self._inputs = careful.inputs(facts_key(plan, layout.row.facts))
        self._unknown = [shown_name(name) for name in _unknown(plan, layout.row)]
        self._left_null = {column.only_field for column in plan.columns if column.keeps_on_null}
        self._with_default = plan.fields_with_default
        self._needed = {
            name
            for column in plan.columns
            if column.payload_fields and (column.only_field is None or column.is_key)
            for name in column.payload_fields
        }
        self._wanted: set[str | None] = {each.name for each in plan.scope if not each.is_member}
        self._wanted |= {column.metadata for column in plan.columns}
        self._forms = placeholder_forms(plan.placeholder)
        counts = {form.count(",") + 1 for form in self._forms if form.startswith("[")}
        self._counts = pa.array(sorted(counts), pa.int32())
        self._text_forms = pa.array(sorted(self._forms), pa.string())
        self._octet_forms = pa.array(sorted(octet_forms(self._forms)), pa.binary())

    def read(self, datum: Any, records: RowIndexes, findings: Findings) -> tuple[list[Images], RowIndexes]:
        """The images of the records at these indexes of the block, and the records that are done with."""
        found = Findings()
        try:
            images, done = self._read(datum, records, found)
        except DatumError:
            return [], records[:0]
        findings.skipped.update(found.skipped)
        for table, index in found.tables.items():
            findings.tables[table] = min(index, findings.tables.get(table, index))
        return images, done

    def _read(self, datum: Any, records: RowIndexes, found: Findings) -> tuple[list[Images], RowIndexes]:
        group = self._group(datum, records)
        chosen, done = self._chosen(group, found)
        group = group.taken(np.flatnonzero(chosen))
        if not len(group.records):
            return [], records[done]
        images, bad = self._images(group)
        both = np.concatenate([records[done], group.records[~bad]])
        return ([] if images is None else [images]), both

    def _group(self, datum: Any, records: RowIndexes) -> _Group:
        if not self._layout.is_envelope:
            return _Group(records, np.full(len(records), INSERT, np.int8), datum, datum, None)
        root = self.schema.root
        codes = pc.index_in(self._ops(datum), _OPS).fill_null(-1).to_numpy(zero_copy_only=False)
        return _Group(records, _KINDS[codes], datum, member(datum, root, "after"), member(datum, root, "before"))

    def _ops(self, datum: Any) -> Any:
        op = self.schema.root.fields["op"]
        array = member(datum, self.schema.root, "op")
        return symbols_of(array, op) if op.kind == "enum" else array

    # --- which records ------------------------------------------------------------------------------------------------

    def _chosen(self, group: _Group, found: Findings) -> tuple[Mask, Mask]:
        """The records that are read here, and those that are done with already; the others take the careful path."""
        plan, count = self._plan, len(group.records)
        chosen, done = np.ones(count, bool), np.zeros(count, bool)
        if group.before is None:
            return chosen, done
        chosen &= group.kinds != _NO_KIND
        if plan.names_tables and chosen.any():
            rows = np.flatnonzero(chosen)
            taken, unread = self._tables.sort_tables(self._tables_of(group.datum, rows), group.records[rows], found)
            done[rows[~taken & ~unread]] = True
            chosen[rows[~taken]] = False
        deletes = group.deletes
        has_before = ~null_mask(group.before)
        chosen &= np.where(deletes, has_before, ~null_mask(group.after))
        if plan.ignores_deletes:
            ignored = chosen & deletes
            done |= ignored
            chosen &= ~ignored
            if ignored.any():
                found.skipped["ignore-delete"] += int(ignored.sum())
        elif not plan.has_key:
            chosen &= ~deletes
        if plan.splits_updates:
            updates = group.kinds == UPDATE_AFTER
            if plan.added_up and plan.takes_before:
                chosen &= has_before | ~updates
            changed = updates & has_before
            if changed.any():
                chosen &= ~changed | self._has_same_key(group)
        return chosen, done

    def _has_same_key(self, group: _Group) -> Mask:
        row = self._layout.row
        same = np.ones(len(group.records), bool)
        for name in sorted(self._plan.key_fields):
            if name not in row.fields:
                continue
            after, before = member(group.after, row, name), member(group.before, row, name)
            if pa.types.is_nested(after.type):
                return np.zeros(len(group.records), bool)
            same &= equal_rows(after, before)
        return same

    def _tables_of(self, datum: Any, rows: RowIndexes) -> Sequence[SourceTable | None]:
        source = self._layout.source
        if source is None:
            return [None] * len(rows)
        take = None if len(rows) == len(datum) else pa.array(rows)
        struct = member(datum, self.schema.root, "source")
        columns = []
        for part in PARTS:
            column = member(struct, source, part).cast(pa.string()) if part in source.fields else None
            columns.append(column if column is None or take is None else column.take(take))
        uniques = [[None] if column is None else pc.unique(column).to_pylist() for column in columns]
        if all(len(each) == 1 for each in uniques):
            return [_table([each[0] for each in uniques])] * len(rows)
        known: dict[Any, SourceTable | None] = {}
        listed = zip(*([None] * len(rows) if each is None else each.to_pylist() for each in columns), strict=True)
        return [known[parts] if parts in known else known.setdefault(parts, _table(parts)) for parts in listed]

    # --- images -------------------------------------------------------------------------------------------------------

    def _images(self, group: _Group) -> tuple[Images | None, Mask]:
        """The images, and the records among them that have none."""
        plan, count = self._plan, len(group.records)
        bad, missing, absent = np.zeros(count, bool), dict[int, Mask](), dict[int, Mask]()
        has_before = np.zeros(count, bool) if group.before is None else ~null_mask(group.before)
        updates = group.kinds == UPDATE_AFTER
        new = []
        for index, each in enumerate(self._inputs.all):
            node, array = self._node(each), self._column(group, each)
            if array is None or node is None:
                new.append(pa.nulls(count, each.converter.arrow))
                if not each.is_member and each.name in self._with_default:
                    absent[index] = np.ones(count, bool)
                continue
            gone = self._unavailable(each, node, array)
            if gone is not None and gone.any():
                bad |= gone & (has_before | ~updates | (each.name in self._needed) | (not plan.has_key))
                missing[index] = gone & ~bad
                array = array.take(pa.array(np.arange(count), mask=gone))
            carrier, lost = converted(array, node, each.converter)
            if lost is not None:
                bad |= lost
            new.append(carrier)
        missing = {index: mask & ~bad for index, mask in missing.items()}
        splits = np.flatnonzero(updates & has_before) if plan.takes_before and plan.splits_updates else None
        old = None
        if splits is not None and len(splits):
            old = self._old(group, splits, bad)
        if bad.all():
            return None, bad
        subs = np.zeros(count, np.int32)
        befores = subs.copy()
        if splits is not None:
            subs[splits] += 1
        kinds = group.kinds if plan.has_key else np.zeros(count, np.int8)
        images = Images(group.records, kinds, subs, new, *self._metadata(group), missing, absent=absent)
        if old is not None and splits is not None:
            images = with_rows_before(images, old, splits, befores, bad)
        elif bad.any():
            images = at_rows(images, np.flatnonzero(~bad))
        kept = group.records[~bad]
        notes = [Note(UNKNOWN_NOTE + name, kept) for name in self._unknown]
        left = [
            Note(LEFT_NOTE + self._inputs.all[index].name, images.records[mask])
            for index, mask in images.missing.items()
            if self._inputs.all[index].name in self._left_null
        ]
        return replace(images, notes=[*notes, *left]), bad

    def _old(self, group: _Group, splits: RowIndexes, bad: Mask) -> list[Any]:
        """The array of each input of the rows before these updates."""
        assert group.before is not None
        rows = group.before.take(pa.array(splits))
        datum = group.datum.take(pa.array(splits))
        before = _Group(group.records[splits], np.full(len(splits), UPDATE_AFTER, np.int8), datum, rows, None)
        old = []
        for each in self._inputs.all:
            node, array = self._node(each), self._column(before, each)
            if array is None or node is None:
                old.append(pa.nulls(len(splits), each.converter.arrow))
                continue
            gone = self._unavailable(each, node, array)
            if gone is not None:
                bad[splits[gone]] = True
            carrier, lost = converted(array, node, each.converter)
            if lost is not None:
                bad[splits[lost]] = True
            old.append(carrier)
        return old

    def _node(self, each: Input) -> Node | None:
        if each.is_member:
            return None if self._layout.source is None else self._layout.source.fields.get(each.name)
        return self._layout.row.fields.get(each.name)

    def _column(self, group: _Group, each: Input) -> Any | None:
        if self._node(each) is None:
            return None
        if not each.is_member:
            return group.row(self._layout.row, each.name)
        assert self._layout.source is not None
        return member(member(group.datum, self.schema.root, "source"), self._layout.source, each.name)

    def _unavailable(self, each: Input, node: Node, array: Any) -> Mask | None:
        """The rows that have the placeholder in place of the value."""
        if not self._forms or not each.may_be_toast or each.is_member:
            return None
        if node.kind == "string":
            return _is_in(array, self._text_forms)
        if node.kind in ("bytes", "fixed") and not node.is_decimal and not node.is_uuid:
            return _is_in(array.cast(pa.binary()), self._octet_forms)
        if node.kind not in ("array", "map"):
            return None
        rows = np.arange(len(array))
        if node.kind == "array":  # of one, or of as many numbers as the placeholder has octets
            rows = np.flatnonzero(pc.is_in(pc.list_value_length(array), self._counts).to_numpy(zero_copy_only=False))
        found = np.zeros(len(array), bool)
        texts = map(text_of, values(array.take(pa.array(rows)), node))
        found[rows] = np.fromiter((text in self._forms for text in texts), bool, len(rows))
        return found

    def _metadata(self, group: _Group) -> tuple[Any, Any, Any]:
        """`_op`, `_ts_ms` and `_source` where they are read, else None."""
        count, root = len(group.records), self.schema.root
        if not self._layout.is_envelope:
            nothing = pa.nulls(count, pa.string())
            return nothing, pa.nulls(count, pa.int64()), nothing
        ops = self._ops(group.datum) if "_op" in self._wanted else None
        ts_ms = sources = None
        if "_ts_ms" in self._wanted:
            ts_ms = self._ts_ms(group)
        if "_source" in self._wanted:
            node = self._layout.source
            texts = [] if node is None else map(text_of, values(member(group.datum, root, "source"), node))
            sources = pa.array(list(texts) or [None] * count, pa.string())
        return ops, ts_ms, sources

    def _ts_ms(self, group: _Group) -> Any:
        root = self.schema.root
        node = root.fields.get("ts_ms")
        if node is None:
            return pa.nulls(len(group.records), pa.int64())
        array = member(group.datum, root, "ts_ms")
        if pa.types.is_integer(array.type):
            return array.cast(pa.int64())
        return pa.array(map(whole_ts, values(array, node)), pa.int64())


def _is_in(array: Any, forms: Any) -> Mask:
    found: Mask = pc.is_in(array, forms).to_numpy(zero_copy_only=False)
    return found


def _table(parts: Sequence[str | None]) -> SourceTable | None:
    db, schema, table = (encodable(part or "") for part in parts)
    return SourceTable(db, schema, table) if table else None
