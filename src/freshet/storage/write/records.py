"""What may be written: rows as they come from a caller, checked column by column and brought to the table's types.

In this order:
1. columns that the table does not have are refused
2. the kind of each row: `rowkind.field`, else the column `_ROW_KIND` ('+I' '-U' '+U' '-D' or their codes), else +I
3. a column that is missing is its default value (`ColumnDefaults`), else NULL. A NOT NULL column without one must be
   there, and so must the columns of `sequence.field`: without them a row would be older than every other of its key
4. a NOT NULL column holds no NULL. A -D of which the merge engine needs nothing but the key may hold NULL there, or
   lack the column; files have no NULL in such a column, so it is written as zero, empty text or the like
5. values convert without loss
6. a text is UTF-8, no value is longer than its type, and none of a partition key than a folder's name can be
7. the arrays of a distinct `collect` lose their repetitions: a row that is not merged shows them as they are written
8. `ignore-delete` drops -D and -U, `ignore-update-before` drops -U
9. retracts that are left must be what the merge engine takes

Nothing is taken from a table of which one row is refused. Retracts are refused as follows:

| merge engine | refused |
|---|---|
| deduplicate | none |
| first-row | all |
| partial-update without sequence groups | all, unless -D removes the record (then -U is passed over) |
| partial-update with sequence groups | those that reach a function which takes none: an ordering column is not NULL |
| aggregation | those that reach a function which takes none: all but -D where it removes the record |

With `ignore-delete` no retract gets here. Apache Paimon takes such a row and fails when it is merged with another one,
at a flush, a compaction or in a read: then it is in the table, and so it is refused here. Where only merging can decide
what a row does (a -D that removes the record if it is in order), it passes.

A partial-update table whose -D remove rows passes -U over: what the row becomes comes with the +U. A filtered stream
has the -U of a row that leaves it, and no +U: the row would stay in silence, and its changelog tell an update that
changes nothing. Whether it is to go is not known (the +U may be in another commit, and bring some columns only), so a
commit with such a row is refused (`LoneUpdates`).

Source: MERGING.md §1.1, §2.3 to §2.6.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from freshet._frozen import Frozen
from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.merge.aggregate.collect import Collect
from freshet.storage.merge.aggregate.events import retract_error_text, takes_retracts
from freshet.storage.merge.engine import distinct_collects
from freshet.storage.merge.key_order import Flags
from freshet.storage.merge.merged_table import key_text
from freshet.storage.merge.partial_update import NO_RULE
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.arrow_types import arrow_type, conform, empty_value
from freshet.storage.model.data_type import DataField
from freshet.storage.model.row_kind import KIND_TEXTS, ROW_KIND_COLUMN, RowKind
from freshet.storage.model.schema import TableSchema
from freshet.storage.options.choices import MergeEngine
from freshet.storage.options.core import CoreOptions
from freshet.storage.options.engine import SequenceGroup, engine_options
from freshet.storage.options.retracts import RETRACTS
from freshet.storage.paths import DEFAULT_PARTITION_NAME
from freshet.storage.write.input_rows import ColumnDefaults, input_tables
from freshet.storage.write.value_limits import ValueLimits

Kinds = npt.NDArray[np.int8]

_KIND_TEXT_SET: Final = pa.array(KIND_TEXTS, pa.string())


class AcceptedRows(Frozen):
    """Rows in the table's columns and types. `kinds` is None when every row is +I."""

    rows: pa.Table
    kinds: Kinds | None

    def pieces(self, size_bytes: int) -> Iterator[AcceptedRows]:
        """Slices of about so many bytes each."""
        total = self.rows.nbytes
        if total <= size_bytes:
            yield self
            return
        step = max(1, self.rows.num_rows * size_bytes // total)
        for start in range(0, self.rows.num_rows, step):
            kinds = None if self.kinds is None else self.kinds[start : start + step]
            yield AcceptedRows(self.rows.slice(start, step), kinds)


class RecordRules:
    """The rules of one table; holds nothing of the rows."""

    def __init__(
        self,
        schema: TableSchema,
        *,
        table: str,
        rowkind_field: str | None = None,
        ignore_delete: bool = False,
        ignore_update_before: bool = False,
        sequence_field: Sequence[str] = (),
        deletes_by_key: bool = False,
        takes_whole_rows: bool = True,
        retract_rules: _RetractRules | None = None,
        distinct: Mapping[str, Collect] | None = None,
        partition_default_name: str = DEFAULT_PARTITION_NAME,
    ) -> None:
        """`deletes_by_key` says that of a -D only the key matters to the table's merge engine, `takes_whole_rows` that
        it does not merge columns."""
        self._fields = schema.fields
        self._names = frozenset(schema.column_names)
        self._table = table
        self._primary_keys = frozenset(schema.primary_keys)
        self._rowkind_field = rowkind_field
        self._always_given = dict.fromkeys(sequence_field, "sequence.field")
        if rowkind_field is not None:
            self._always_given[rowkind_field] = "rowkind.field"
        self._deletes_by_key = deletes_by_key
        self._limits = ValueLimits(schema, table, partition_default_name)
        self._dropped = ignored_kinds(ignore_delete=ignore_delete, ignore_update_before=ignore_update_before)
        self._defaults = ColumnDefaults(schema, takes_whole_rows=takes_whole_rows)
        self._takes_retracts = schema.has_primary_key
        self._retract_rules = retract_rules
        self._distinct = distinct or {}

    def input_tables(self, data: object) -> Iterator[pa.Table]:
        """The rows of anything that is taken as rows, in the tables to be accepted one by one (`input_rows`)."""
        return input_tables(data, self._fields, table=self._table, defaults=self._defaults)

    def accept(self, data: pa.Table | pa.RecordBatch) -> AcceptedRows:
        """Applies the rules; raises `InvalidRequestError` naming column and row."""
        table = pa.Table.from_batches([data]) if isinstance(data, pa.RecordBatch) else data
        self._check_columns(table.schema)
        kinds = self._kinds(table)
        table = self._with_missing(table, kinds)
        table = self._without_forbidden_nulls(table, kinds)
        rows = conform(table, self._fields, table=self._table)
        self.check_values(rows)
        for name, function in self._distinct.items():
            place = rows.schema.get_field_index(name)
            rows = rows.set_column(place, rows.schema.field(place), function.without_repetitions(rows.column(place)))
        if kinds is not None and self._dropped:
            keep = ~np.isin(kinds, self._dropped)
            if not keep.all():
                rows, kinds = rows.filter(pa.array(keep)), kinds[keep]
        if kinds is not None and not kinds.any():
            kinds = None
        if kinds is not None and not self._takes_retracts:
            self._check_append(kinds)
        if kinds is not None and self._retract_rules is not None:
            self._retract_rules.check(rows, kinds)
        return AcceptedRows(rows, kinds)

    def _check_columns(self, schema: pa.Schema) -> None:
        for name in schema.names:
            if name not in self._names and name != ROW_KIND_COLUMN:
                raise InvalidRequestError(
                    f"{self._table} has no column {name!r}; its columns are {', '.join(f.name for f in self._fields)}",
                    table=self._table,
                    column=name,
                )
        if len(set(schema.names)) != len(schema.names):
            raise InvalidRequestError(
                f"the rows for {self._table} name a column twice: {', '.join(schema.names)}", table=self._table
            )

    def _with_missing(self, table: pa.Table, kinds: Kinds | None) -> pa.Table:
        """The table with a column for each that is missing and may be."""
        given = frozenset(table.schema.names)
        is_new = np.ones(table.num_rows, np.bool_) if kinds is None else ~np.isin(kinds, RETRACTS)
        for field in self._fields:
            if field.name in given:
                continue
            if field.name in self._always_given:
                raise InvalidRequestError(
                    f"the input lacks column {field.name!r} ({field.type}) of {self._table}, which the option "
                    f"{self._always_given[field.name]} names; add it",
                    table=self._table,
                    column=field.name,
                    option=self._always_given[field.name],
                )
            if not field.type.nullable and not self._defaults.fills(field.name):
                if not table.num_rows or field.name in self._primary_keys:
                    continue  # conform refuses it
                if not self._needs_key_only(kinds, table.num_rows).all():
                    self._check_left_out(field)
                    continue
            table = table.append_column(field.name, self._defaults.column(field, is_new))
        return table

    def _check_left_out(self, field: DataField) -> None:
        if self._defaults.is_left_out(field.name):
            raise InvalidRequestError(
                f"the input lacks column {field.name!r} ({field.type}) of {self._table}; add it: the table merges "
                f"columns, and the default {field.default_value!r} would replace what is stored there",
                column=field.name,
                table=self._table,
            )

    def _without_forbidden_nulls(self, table: pa.Table, kinds: Kinds | None) -> pa.Table:
        for field in self._fields:
            position = table.schema.get_field_index(field.name)
            if field.type.nullable or position < 0:
                continue
            column = table.column(position)
            if not column.null_count:
                continue
            is_wrong = column.is_null().to_numpy()
            if field.name not in self._primary_keys:
                is_wrong = is_wrong & ~self._needs_key_only(kinds, table.num_rows)
            if is_wrong.any():
                what = "part of the primary key" if field.name in self._primary_keys else "NOT NULL"
                raise InvalidRequestError(
                    f"column {field.name!r} of {self._table} is {what}, but row {np.flatnonzero(is_wrong)[0]} of the "
                    f"input holds NULL there ({is_wrong.sum()} rows do); give it a value or leave the rows out",
                    column=field.name,
                    table=self._table,
                )
            table = table.set_column(position, field.name, _filled(column, field))
        return table

    def _needs_key_only(self, kinds: Kinds | None, count: int) -> npt.NDArray[np.bool_]:
        """True for the rows of which nothing but the key is looked at: some deletes, and what will be dropped."""
        if kinds is None:
            return np.zeros(count, np.bool_)
        return np.isin(kinds, [*self._dropped, *([RowKind.DELETE] if self._deletes_by_key else [])])

    def check_values(self, rows: pa.Table) -> None:
        """Raises `InvalidRequestError` for a value that files cannot hold, in rows of the table's columns."""
        self._limits.check(rows)

    def _kinds(self, given: pa.Table) -> Kinds | None:
        field = next((field for field in self._fields if field.name == self._rowkind_field), None)
        if field is not None and field.name in given.schema.names:
            rows = conform(given.select([field.name]), [field], table=self._table)
            return self._parsed_kinds(rows.column(0), field.name)
        if ROW_KIND_COLUMN in given.schema.names:
            return self._parsed_kinds(given.column(ROW_KIND_COLUMN), ROW_KIND_COLUMN)
        return None

    def _parsed_kinds(self, column: pa.ChunkedArray[Any], name: str) -> Kinds:
        if pt.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        codes: Any = column
        if pt.is_integer(column.type):
            codes = column.cast(pa.int64(), safe=False)
        elif pt.is_string(column.type) or pt.is_large_string(column.type) or pt.is_string_view(column.type):
            codes = pc.index_in(column.cast(pa.string()), value_set=_KIND_TEXT_SET)
        else:
            raise InvalidRequestError(
                f"column {name!r} of {self._table} must hold row kinds, not {column.type}",
                column=name,
                table=self._table,
            )
        kinds: Kinds = pc.fill_null(codes, -1).to_numpy()
        is_bad = (kinds < 0) | (kinds >= len(KIND_TEXTS))
        if is_bad.any():
            row = int(is_bad.argmax())
            raise InvalidRequestError(
                f"column {name!r} of {self._table} holds {column[row].as_py()!r} in row {row} of the input; "
                f"row kinds are {', '.join(KIND_TEXTS)}",
                column=name,
                table=self._table,
            )
        return kinds.astype(np.int8)

    def _check_append(self, kinds: Kinds) -> None:
        retracts = np.flatnonzero(np.isin(kinds, RETRACTS))
        if len(retracts):
            text = KIND_TEXTS[kinds[retracts[0]]]
            raise InvalidRequestError(
                f"{self._table} has no primary key and takes only rows of kind +I and +U, but the input has {text}; "
                "leave those rows out or write to a table with a primary key",
                table=self._table,
            )


def _filled(column: pa.ChunkedArray[Any], field: DataField) -> pa.Array[Any] | pa.ChunkedArray[Any]:
    """The column with a value in place of each NULL."""
    goal = arrow_type(field.type)
    if column.null_count == len(column):
        return pa.repeat(pa.scalar(empty_value(field.type), goal), len(column))
    blank = pa.array([empty_value(field.type)], goal).cast(column.type)
    positions = np.arange(len(column), dtype=np.int64)
    positions[column.is_null().to_numpy()] = len(column)
    return pa.chunked_array([*column.chunks, blank], column.type).take(pa.array(positions))


def ignored_kinds(*, ignore_delete: bool, ignore_update_before: bool) -> tuple[RowKind, ...]:
    """The kinds of rows that a table with these options passes over."""
    if ignore_delete:
        return RETRACTS
    return (RowKind.UPDATE_BEFORE,) if ignore_update_before else ()


def record_rules(store: TableStore, *, are_moved: bool = False) -> RecordRules:
    """What may be written. `are_moved`: of rows whose keys were placed before (`KeyMover`), which are all to be
    written: a row that moves deletes in the old partition, whatever the table ignores."""
    schema, options = store.schema, store.options
    return RecordRules(
        schema,
        table=store.location,
        rowkind_field=options.rowkind_field,
        ignore_delete=options.ignore_delete and not are_moved,
        ignore_update_before=options.ignore_update_before and not are_moved,
        sequence_field=options.sequence_field,
        deletes_by_key=_deletes_by_key(store),
        takes_whole_rows=options.takes_whole_rows,
        distinct=distinct_collects(schema, options),
        partition_default_name=options.partition_default_name,
        retract_rules=_RetractRules(schema, options, store.location) if schema.has_primary_key else None,
    )


def key_rules(store: TableStore, columns: Collection[str]) -> RecordRules:
    """The same for these columns of rows alone: the key and the partition, of rows of any kind."""
    fields = tuple(field for field in store.schema.fields if field.name in columns)
    return RecordRules(
        replace(store.schema, fields=fields),
        table=store.location,
        deletes_by_key=_deletes_by_key(store),
        takes_whole_rows=store.options.takes_whole_rows,
        partition_default_name=store.options.partition_default_name,
    )


def _deletes_by_key(store: TableStore) -> bool:
    """Whether of a -D only the key matters: it removes the row, and no changelog repeats what it says."""
    if not store.schema.has_primary_key or store.options.changelog_producer.emits.at_flush:
        return False
    is_whole = store.options.merge_engine is MergeEngine.DEDUPLICATE
    return is_whole or engine_options(store.schema, store.options).remove_record_on_delete


class _RetractRules:
    """The rules for retracts of one primary-key table."""

    def __init__(self, schema: TableSchema, options: CoreOptions, table: str) -> None:
        self._engine = options.merge_engine
        self._options = engine_options(schema, options)
        self._key_columns = schema.primary_keys
        self._table = table

    def check(self, rows: pa.Table, kinds: npt.NDArray[np.int8]) -> None:
        """Raises `InvalidRequestError` for the first row that cannot be merged, naming its key."""
        is_retract = np.isin(kinds, RETRACTS)
        if not is_retract.any():
            return
        is_delete = kinds == RowKind.DELETE
        if self._engine is MergeEngine.FIRST_ROW:
            self._refuse(rows, kinds, is_retract, "a first-row table takes none; set ignore-delete to leave them out")
        elif self._engine is MergeEngine.PARTIAL_UPDATE and self._options.groups:
            self._check_groups(rows, kinds, is_retract)
        elif self._engine is MergeEngine.PARTIAL_UPDATE and not self._options.remove_record_on_delete:
            self._refuse(rows, kinds, is_retract, NO_RULE)
        elif self._engine is MergeEngine.AGGREGATE:
            reaches = is_retract & ~is_delete if self._options.remove_record_on_delete else is_retract
            self._refuse_columns(rows, kinds, reaches, tuple(self._options.functions))

    def _check_groups(self, rows: pa.Table, kinds: npt.NDArray[np.int8], is_retract: Flags) -> None:
        removing = [group for group in self._options.groups if group.removes_record]
        for group in self._options.groups:
            if all(takes_retracts(self._options.functions[name]) for name in self._functions_of(group)):
                continue
            reaches = is_retract & _has_value(rows, group)
            for other in removing:
                reaches &= (kinds != RowKind.DELETE) | ~_has_value(rows, other)
            self._refuse_columns(rows, kinds, reaches, self._functions_of(group))

    def _functions_of(self, group: SequenceGroup) -> tuple[str, ...]:
        return tuple(name for name in group.protected if name in self._options.functions)

    def _refuse_columns(
        self, rows: pa.Table, kinds: npt.NDArray[np.int8], reaches: Flags, columns: tuple[str, ...]
    ) -> None:
        for name in columns:
            function = self._options.functions[name]
            if not takes_retracts(function):
                self._refuse(rows, kinds, reaches, f"column {name!r}: {retract_error_text(function, name)}")

    def _refuse(self, rows: pa.Table, kinds: npt.NDArray[np.int8], offends: Flags, reason: str) -> None:
        if offends.any():
            row = int(np.flatnonzero(offends)[0])
            raise InvalidRequestError(
                f"{self._table} cannot take row {row} of the input, {KIND_TEXTS[kinds[row]]} with key "
                f"{key_text(rows, row, self._key_columns)}: {reason}"
            )


def _has_value(rows: pa.Table, group: SequenceGroup) -> Flags:
    """True where an ordering column of the group is not NULL."""
    result = np.zeros(rows.num_rows, np.bool_)
    for name in group.ordering:
        result |= rows.column(name).is_valid().to_numpy()
    return result


class LoneUpdates:
    """The keys whose last row, of those that a writer has taken since its last commit, is a -U."""

    def __init__(self, store: TableStore) -> None:
        is_partial = store.options.merge_engine is MergeEngine.PARTIAL_UPDATE
        self._is_watched = is_partial and store.options.partial_update_remove_record_on_delete
        self._table, self._keys = store.location, list(store.schema.primary_keys)
        self._open: pa.Table | None = None

    def note(self, accepted: AcceptedRows) -> None:
        """Rows were taken."""
        kinds = accepted.kinds
        if not self._is_watched or (self._open is None and (kinds is None or (kinds != RowKind.UPDATE_BEFORE).all())):
            return
        kinds = np.zeros(accepted.rows.num_rows, np.int8) if kinds is None else kinds
        rows = accepted.rows.select(self._keys).append_column(ROW_KIND_COLUMN, pa.array(kinds))
        rows = rows if self._open is None else pa.concat_tables([self._open, rows])
        last = rows.group_by(self._keys, use_threads=False).aggregate([(ROW_KIND_COLUMN, "last")])
        ends = last.rename_columns([*self._keys, ROW_KIND_COLUMN])
        left = ends.filter(pc.field(ROW_KIND_COLUMN) == int(RowKind.UPDATE_BEFORE))
        self._open = left if left.num_rows else None

    def check(self) -> None:
        """Raises `InvalidRequestError` where there is one."""
        if self._open is not None:
            raise InvalidRequestError(
                f"{self._table} was given -U rows without a row after them, of {self._open.num_rows} keys such as "
                f"{key_text(self._open, 0, tuple(self._keys))}: partial-update passes a -U over, and the row would stay"
                ". Write the +U in the same commit; where the row is to go, -D; where it is to stay, leave -U out "
                "(ignore-update-before=true)",
                table=self._table,
            )

    def clear(self) -> None:
        """The rows are given up."""
        self._open = None
