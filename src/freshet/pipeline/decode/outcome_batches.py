"""Outcomes as Arrow batches: images become rows of the table, checked, placed in their bucket, in input order."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pyarrow as pa

from freshet.pipeline.config.computed_columns import ComputedColumn
from freshet.pipeline.decode import raw_records
from freshet.pipeline.decode.carriers import carrier_arrow_type, carry_array, restore_array
from freshet.pipeline.decode.change import DELETE, INSERT, UPDATE_BEFORE
from freshet.pipeline.decode.convert.converter import Mask
from freshet.pipeline.decode.expectations import broken_records, rule_columns
from freshet.pipeline.decode.images import Cause, Images, RowIndexes, Subs
from freshet.pipeline.decode.json_value import encodable
from freshet.pipeline.decode.outcomes import (
    BUCKET,
    COLUMN,
    DATA_PREFIX,
    HEAD_SCHEMA,
    KAFKA_PARTITION,
    KIND,
    OFFSET,
    RANK,
    RAW_KEY,
    RAW_VALUE,
    REASON,
    SOURCE,
    SUB,
    TAG,
    TAG_DATA,
    TAG_DEAD,
    TAG_QUARANTINED,
    TAG_TALLY,
    TIMESTAMP,
    TOPIC,
    UNAVAILABLE,
    Tally,
)
from freshet.pipeline.decode.plan import ColumnPlan, DecodePlan, ScopeColumn
from freshet.pipeline.decode.record_block import RecordBlock
from freshet.pipeline.decode.row_rules import Broken, Kinds, broken_rules, with_zeros
from freshet.pipeline.decode.selected_columns import computed_values, fill_selected
from freshet.storage.model.arrow_types import arrow_type
from freshet.storage.model.data_type import DataType

SCOPE_PREFIX: Final = "_p"
"""Begins the names of the columns that expressions read."""

OTHER_PREFIX: Final = "_other"
"""Begins the names of the columns that hold what the other row of the same record has; NULL where it is alone.

An expression may fail for one of the two rows of an update. Spark sees one row at a time, so each of the two carries
the inputs of the other one: then both become the same dead letter. Records of more
rows are not computed by expressions that may fail (`sources.select`).
"""

_HEAD_ONLY: Final = frozenset({"_topic", "_partition", "_offset", "_timestamp"})
"""Metadata that the head has already."""

_HEADERS_TYPE: Final = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))


def scope_columns(plan: DecodePlan) -> dict[str, ScopeColumn]:
    """The columns appended for expressions, by name."""
    wanted = [each for each in plan.appended if each.is_member or each.name not in _HEAD_ONLY]
    return {f"{SCOPE_PREFIX}{index}": each for index, each in enumerate(wanted)}


def other_columns(plan: DecodePlan) -> dict[str, str]:
    """The columns appended to say what the other row of a record has: their names, and of which column of that row."""
    if not plan.needs_spark or not plan.splits_updates or plan.has_several_rows:
        return {}
    names = {f"{OTHER_PREFIX}{name}": name for name in (KIND, UNAVAILABLE)}
    grouped = {name for group in plan.groups for name in (*group.ordering, *group.protected)}
    read = rule_columns(plan) if plan.judges_by_spark else frozenset()
    for index, column in enumerate(plan.columns):
        if (column.field.name in grouped or index in read) and column.expression is None:
            names[f"{OTHER_PREFIX}{DATA_PREFIX}{index}"] = f"{DATA_PREFIX}{index}"
    return names | {f"{OTHER_PREFIX}{name}": name for name in scope_columns(plan)}


def outcome_schema(plan: DecodePlan) -> pa.Schema:
    """The Arrow schema of a decoder's batches."""
    data = [pa.field(f"{DATA_PREFIX}{index}", carrier_arrow_type(c.field.type)) for index, c in enumerate(plan.columns)]
    scope = [
        pa.field(name, _HEADERS_TYPE if each.type is None else carrier_arrow_type(each.type))
        for name, each in scope_columns(plan).items()
    ]
    whole = pa.schema([*HEAD_SCHEMA, *data, *scope])
    others = [pa.field(name, whole.field(of).type) for name, of in other_columns(plan).items()]
    return pa.schema([*whole, *others])


class OutcomeWriter:
    """Makes the batches of one source."""

    def __init__(self, plan: DecodePlan) -> None:
        self.plan = plan
        self.schema = outcome_schema(plan)
        self.scope = scope_columns(plan)
        self.others = other_columns(plan)
        self.unknown = frozenset(plan.expressions)
        self.read_locally = {index for c in plan.columns if c.local is not None for index in c.local.reads}
        self.field_indexes = {each.name: index for index, each in enumerate(plan.fields)}
        members = [column.field.name for column in plan.columns if column.member is not None]
        self.member_indexes = {name: len(plan.fields) + index for index, name in enumerate(members)}
        read = [each.name for each in plan.scope if each.is_member]
        first = len(plan.fields) + len(members)
        self.read_member_indexes = {name: first + index for index, name in enumerate(read)}
        self.column_indexes = {column.field.name: index for index, column in enumerate(plan.columns)}
        self.computed = {index: c.computed for index, c in enumerate(plan.columns) if c.computed is not None}
        self.defaults = {
            index: carry_array(pa.array([c.default], pa.string()).cast(arrow_type(c.field.type)), c.field.type)
            for index, c in enumerate(plan.columns)
            if c.default is not None and not (c.member or c.metadata or c.expression or c.local or c.computed)
        }
        self.kept_fields: dict[str, list[int]] = {}
        for index, column in enumerate(plan.columns):
            if column.only_field is not None:
                self.kept_fields.setdefault(column.only_field, []).append(index)

    def block(self, block: RecordBlock, first: int) -> BlockWriter:
        """The writer of one block; `first` is the number of records that the stream had before it."""
        return BlockWriter(self, block, first)

    def tally(self, tally: Tally) -> pa.RecordBatch:
        """The one tally of a stream."""
        return self._batch(1, {TAG: pa.array([TAG_TALLY], pa.int8()), RAW_VALUE: pa.array([tally.encode()])}, [])

    def _batch(self, count: int, head: Mapping[str, pa.Array], rest: Sequence[pa.Array]) -> pa.RecordBatch:
        given = {SOURCE: pa.array(np.full(count, self.plan.source_index, np.int32)), **head}
        columns = [given.get(each.name) for each in HEAD_SCHEMA]
        columns += rest or [None] * (len(self.schema) - len(columns))
        arrays = [
            pa.nulls(count, each.type) if column is None else column
            for each, column in zip(self.schema, columns, strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)


@dataclass(slots=True)
class BlockWriter:
    """Makes the batches of one block of records."""

    writer: OutcomeWriter
    raw: RecordBlock
    first: int
    refused: list[pa.RecordBatch] = field(default_factory=list)
    """Of the records that break a rule of `expect`."""

    def rows(
        self, images: Images, dead: MutableMapping[int, Cause] | None = None
    ) -> tuple[pa.RecordBatch | None, RowIndexes]:
        """The batch of the rows, and the records that cannot be rows, which are not in it. Nor are those that break a
        rule of `expect`, which are put into `refused`.

        With `dead`, the reasons are put there; those of the row after a change come first.
        """
        plan = self.writer.plan
        columns = self._table_columns(images)
        failed = self._selected(columns, images) if plan.local else []
        kept = {
            index: mask
            for field_index, mask in images.missing.items()
            for index in self.writer.kept_fields.get(plan.fields[field_index].name, ())
        }
        broken = np.zeros(len(images.records), bool)
        rules = broken_rules(plan, columns, images.kinds, kept, self.writer.unknown)
        found = [each for each in (*failed, *rules) if each.rows.any()]
        for each in found:
            broken |= each.rows
        records = np.unique(images.records[broken])
        if dead is not None:
            for wanted_sub in np.unique(images.subs[broken])[::-1]:
                for each in found:
                    for record in images.records[each.rows & (images.subs == wanted_sub)].tolist():
                        dead.setdefault(record, (each.reason, each.column))
        chosen, left_out = None, records
        if plan.rules and not plan.judges_by_spark:
            refused, numbers = broken_records(plan, columns, images, kept, records)
            if len(refused):
                self.refused.append(self._refused(refused, numbers))
                left_out = np.concatenate([records, refused])
        if len(left_out):
            chosen = np.flatnonzero(~np.isin(images.records, left_out))
            if not len(chosen):
                return None, records
        columns = with_zeros(plan, columns, images.kinds, self.writer.unknown)
        return self._batch(images, columns, kept, chosen), records

    def dead(self, dead: Mapping[int, Cause]) -> pa.RecordBatch:
        """The batch of dead letters."""
        indexes = np.fromiter(sorted(dead), np.int64, len(dead))
        found = [dead[index] for index in indexes.tolist()]
        head = {
            **self._head(indexes, np.zeros(len(indexes), np.int32)),
            TIMESTAMP: self._times(indexes),
            TAG: pa.array(np.full(len(indexes), TAG_DEAD, np.int8)),
            REASON: pa.array([encodable(reason) for reason, _ in found], pa.string()),
            COLUMN: pa.array([column for _, column in found], pa.string()),
            RAW_KEY: self._raw(raw_records.KEY, indexes),
            RAW_VALUE: self._raw(raw_records.VALUE, indexes),
        }
        return self.writer._batch(len(indexes), head, [])

    def _refused(self, records: RowIndexes, numbers: RowIndexes) -> pa.RecordBatch:
        """The batch of records that break the rules of these numbers."""
        rules, at = self.writer.plan.rules, pa.array(numbers)
        tags = np.array([rule.tag for rule in rules], np.int8)[numbers]
        is_kept: Mask = tags == TAG_QUARANTINED
        head = {
            **self._head(records, np.zeros(len(records), np.int32)),
            TIMESTAMP: self._times(records),
            TAG: pa.array(tags),
            REASON: pa.array([rule.name for rule in rules], pa.string()).take(at),
            COLUMN: pa.array([rule.column for rule in rules], pa.string()).take(at),
        }
        if is_kept.any():
            head[RAW_KEY] = self._raw(raw_records.KEY, records, is_kept)
            head[RAW_VALUE] = self._raw(raw_records.VALUE, records, is_kept)
        return self.writer._batch(len(records), head, [])

    def _batch(
        self, images: Images, columns: Sequence[pa.Array], kept: Mapping[int, Mask], chosen: RowIndexes | None
    ) -> pa.RecordBatch:
        plan = self.writer.plan
        scope = self._scope(images)
        records, kinds, subs = images.records, images.kinds, images.subs
        old_keys = images.old_keys
        if chosen is not None:
            take = pa.array(chosen)
            columns = [array.take(take) for array in columns]
            scope = [None if array is None else array.take(take) for array in scope]
            records, kinds, subs = records[chosen], kinds[chosen], subs[chosen]
            kept = {index: mask[chosen] for index, mask in kept.items()}
            old_keys = {to: old_keys[of] for to, of in enumerate(chosen.tolist()) if of in old_keys} if old_keys else {}
        count = len(records)
        head: dict[str, pa.Array] = {
            **self._head(records, subs),
            TAG: pa.array(np.full(count, TAG_DATA, np.int8)),
            KIND: pa.array(kinds),
            BUCKET: self._buckets(columns, count),
        }
        stays = {index: mask for index, mask in kept.items() if mask.any()}
        # Of two rows of one record the first one becomes its dead letter.
        may_die = np.logical_or.reduce([*stays.values(), (subs == 0) & plan.needs_spark])
        if may_die.any():
            head[RAW_KEY] = self._raw(raw_records.KEY, records, may_die)
            head[RAW_VALUE] = self._raw(raw_records.VALUE, records, may_die)
            head[UNAVAILABLE] = self._unavailable(stays, kinds, old_keys)
        if plan.needs_spark:
            head[TIMESTAMP] = self._times(records)
        elif may_die.any():
            head[TIMESTAMP] = self._times(records, may_die)
        schema = self.writer.schema
        named = dict(zip(schema.names[len(HEAD_SCHEMA) :], [*columns, *scope], strict=False))
        if self.writer.others and subs.any():
            others = _other_rows(records)
            named |= {
                name: None if values is None else values.take(others)
                for name, values in ((name, {**named, **head}.get(of)) for name, of in self.writer.others.items())
            }
        rest = []
        for each in list(schema)[len(HEAD_SCHEMA) :]:
            array = named.get(each.name)
            if array is None:
                rest.append(pa.nulls(count, each.type))
            else:
                rest.append(array if array.type == each.type else array.cast(each.type))
        return self.writer._batch(count, head, rest)

    def _table_columns(self, images: Images) -> list[pa.Array]:
        """The table's columns; NULL where Spark computes them or nothing fills them."""
        writer, count = self.writer, len(images.records)
        columns = []
        for column in writer.plan.columns:
            if column.direct is not None:
                array = images.inputs[writer.field_indexes[column.direct]]
            elif column.member is not None:
                array = images.inputs[writer.member_indexes[column.field.name]]
            elif column.metadata is not None:
                array = self._metadata(column.metadata, images)
            else:
                array = None
            if array is not None and column.is_epoch:
                zone = pa.timestamp("us", "UTC")
                array = array.cast(pa.timestamp("ms", "UTC")).cast(zone)
            columns.append(pa.nulls(count, carrier_arrow_type(column.field.type)) if array is None else array)
        for index, default in writer.defaults.items():
            columns[index] = self._with_default(columns[index], writer.plan.columns[index], default, images)
        for index, computed in writer.computed.items():
            columns[index] = self._computed(computed, columns, writer.plan.columns[index].field.type, count)
        return columns

    def _selected(self, columns: list[pa.Array], images: Images) -> list[Broken]:
        plan = self.writer.plan
        inputs = {index: self._read(plan.scope[index], images) for index in self.writer.read_locally}
        return list(fill_selected(plan, columns, inputs, images.kinds))

    def _with_default(self, array: pa.Array, column: ColumnPlan, default: pa.Array, images: Images) -> pa.Array:
        """The column with its default in new rows whose record lacks the field, or where nothing fills it."""
        is_lacking = np.ones(len(array), bool)
        if column.direct is not None:
            is_lacking = images.absent.get(self.writer.field_indexes[column.direct], ~is_lacking)
        is_lacking = is_lacking & ~np.isin(images.kinds, (UPDATE_BEFORE, DELETE))
        if not is_lacking.any():
            return array
        positions = np.where(is_lacking, len(array), np.arange(len(array)))
        return pa.concat_arrays([array.cast(default.type), default]).take(pa.array(positions))

    def _computed(self, computed: ComputedColumn, columns: Sequence[pa.Array], of: DataType, count: int) -> pa.Array:
        given = None
        if computed.column is not None:
            at = self.writer.column_indexes[computed.column]
            data_type = self.writer.plan.columns[at].field.type
            given = restore_array(columns[at], data_type)
        return carry_array(computed_values(computed, given, count), of)

    def _metadata(self, name: str, images: Images) -> pa.Array:
        match name:
            case "_op":
                return images.ops
            case "_ts_ms":
                return images.ts_ms
            case "_source":
                return images.sources
            case "_topic":
                return self.raw.taken(raw_records.TOPIC, images.records)
            case "_offset":
                return self._offsets(images.records)
            case "_timestamp":
                return self._times(images.records)
            case "_partition":
                return self.raw.taken(raw_records.KAFKA_PARTITION, images.records)
            case _:
                return self.raw.taken(raw_records.HEADERS, images.records).cast(_HEADERS_TYPE)

    def _scope(self, images: Images) -> list[pa.Array | None]:
        return [self._scope_column(each, images) for each in self.writer.scope.values()]

    def _scope_column(self, each: ScopeColumn, images: Images) -> pa.Array | None:
        writer = self.writer
        if each.is_member:
            return images.inputs[writer.read_member_indexes[each.name]]
        if each.name in writer.field_indexes:
            return images.inputs[writer.field_indexes[each.name]]
        return self._metadata(each.name, images)

    def _read(self, each: ScopeColumn, images: Images) -> pa.Array:
        """What an expression reads, in its carrier."""
        assert each.type is not None
        array, wanted = self._scope_column(each, images), carrier_arrow_type(each.type)
        return pa.nulls(len(images.records), wanted) if array is None else array.cast(wanted)

    def _head(self, records: RowIndexes, subs: Subs) -> dict[str, pa.Array]:
        return {
            RANK: self.raw.taken(raw_records.RANK, records),
            TOPIC: self.raw.taken(raw_records.TOPIC, records),
            KAFKA_PARTITION: self.raw.taken(raw_records.KAFKA_PARTITION, records),
            OFFSET: self._offsets(records),
            SUB: pa.array(subs),
        }

    def _times(self, records: RowIndexes, mask: Mask | None = None) -> pa.Array:
        """The times of these records, NULL where `mask` is false: of dead letters, and for expressions."""
        timestamps = self._raw(raw_records.TIMESTAMP, records, mask)
        return timestamps.cast(pa.timestamp("us", timestamps.type.tz)).view(pa.timestamp("us", "UTC"))

    def _offsets(self, records: RowIndexes) -> pa.Array:
        """Offsets; in files the number of the line within the stream makes the lower bits."""
        offsets = self.raw.taken(raw_records.OFFSET, records)
        if self.writer.plan.is_kafka:
            return offsets
        return pa.array(offsets.to_numpy(zero_copy_only=False) + records + self.first)

    def _raw(self, name: str, records: RowIndexes, mask: Mask | None = None) -> pa.Array:
        """A column of these records, NULL where `mask` is false."""
        if mask is None or mask.all():
            return self.raw.taken(name, records)
        places = np.cumsum(mask) - 1
        return self.raw.taken(name, records[mask]).take(pa.array(places, mask=~mask))

    def _buckets(self, columns: Sequence[pa.Array], count: int) -> pa.Array:
        bucket = self.writer.plan.bucket
        if bucket is None:
            return None
        rule = bucket.rule
        if rule.is_constant:
            return pa.array(np.zeros(count, np.int32))
        keys = [restore_array(columns[index], each) for index, each in zip(bucket.indexes, rule.types, strict=True)]
        return pa.array(rule.numbers(keys))

    def _unavailable(self, stays: Mapping[int, Mask], kinds: Kinds, old_keys: Mapping[int, str]) -> pa.Array:
        """The columns whose stored value is kept, and the key that the row had before. A row that an envelope calls new
        is one whose key has changed: what would stay NULL is not there yet."""
        columns = self.writer.plan.columns
        is_new = (kinds == INSERT) & self.writer.plan.has_envelope
        is_new[list(old_keys)] = True
        looked_up = {
            index: mask if columns[index].may_stay else mask & is_new
            for index, mask in stays.items()
            if columns[index].can_stay
        }
        if not looked_up:
            return None
        texts: list[str | None] = [None] * len(kinds)
        for row in np.flatnonzero(np.logical_or.reduce(list(looked_up.values()))).tolist():
            indexes = [str(index) for index, mask in sorted(looked_up.items()) if mask[row]]
            texts[row] = ",".join([*indexes, old_keys[row]] if row in old_keys else indexes)
        return pa.array(texts, pa.string())


def _other_rows(records: RowIndexes) -> pa.Array:
    """For each row, the index of the other row of its record; NULL where it is alone."""
    order = np.argsort(records, kind="stable")
    is_first = records[order[1:]] == records[order[:-1]]
    left, right = order[:-1][is_first], order[1:][is_first]
    others = np.full(len(records), -1)
    others[left], others[right] = right, left
    return pa.array(others, mask=others < 0)
