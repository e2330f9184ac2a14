"""What a merge engine does with each column, resolved from the options of a table.

| engine | column | function |
|---|---|---|
| aggregation | part of the primary key | none: it is the key |
| | named by sequence.field | last_value; one of its own does not count |
| | other | its own, else the default, else last_non_null_value |
| partial-update | part of the primary key, ordering column of a group | none; one of its own does not count |
| | protected by a group | its own, else the default, else none: the group overwrites it |
| | other | as above, but only last_non_null_value is taken, which is what happens there anyway |
| deduplicate, first-row | every | none |

Its own is `fields.<column>.aggregate-function`, the default `fields.default-aggregate-function`. A group is
`fields.<ordering columns>.sequence-group = <protected columns>`, names separated by commas, blanks count.

This module refuses what leaves the merge undefined, for tables made by other programs too; what only makes no sense is
refused by `freshet.storage.schema.option_validation` where it is typed.

Source: MERGING.md §2.3 to §2.6.1.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from freshet._frozen import Frozen
from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.model.data_type import DataField, ScalarType
from freshet.storage.model.schema import TableSchema
from freshet.storage.options.aggregate_function import (
    AggregateFunction,
    ColumnAggregate,
    column_aggregate,
    read_function_name,
)
from freshet.storage.options.choices import MergeEngine
from freshet.storage.options.core import CoreOptions
from freshet.storage.options.values import split_names

__all__ = ["AggregateFunction", "ColumnAggregate", "EngineOptions", "SequenceGroup", "engine_options"]

DEFAULT_FUNCTION_KEY: Final = "fields.default-aggregate-function"
_REMOVE_ON_GROUP: Final = "partial-update.remove-record-on-sequence-group"
_REMOVE_ON_DELETE: Final = "partial-update.remove-record-on-delete"


class SequenceGroup(Frozen):
    """Columns of partial-update that change together, when the ordering columns do not go back.

    `removes_record` is true if an ordering column is in partial-update.remove-record-on-sequence-group.
    """

    ordering: tuple[str, ...]
    protected: tuple[str, ...]
    removes_record: bool


class EngineOptions(Frozen):
    """Options of the merge engine; `functions` has the columns that have one, `groups` are in column order."""

    functions: Mapping[str, ColumnAggregate]
    groups: tuple[SequenceGroup, ...]
    remove_record_on_delete: bool
    ignore_delete: bool


def engine_options(schema: TableSchema, options: CoreOptions) -> EngineOptions:
    """Resolves the options of the table's merge engine.

    Raises `InvalidRequestError` naming option, column and remedy.
    """
    engine = options.merge_engine if schema.has_primary_key else MergeEngine.DEDUPLICATE
    functions: Mapping[str, ColumnAggregate] = {}
    groups: tuple[SequenceGroup, ...] = ()
    removes = False
    if engine is MergeEngine.AGGREGATE:
        functions = _aggregation_functions(schema, options)
        removes = options.aggregation_remove_record_on_delete
    elif engine is MergeEngine.PARTIAL_UPDATE:
        groups = _sequence_groups(schema, options)
        functions = _partial_update_functions(schema, options, groups)
        removes = options.partial_update_remove_record_on_delete
        _check_removal(options, groups)
    return EngineOptions(functions, groups, removes, options.ignore_delete)


def own_function_key(column: str) -> str:
    """Option that gives a column its function."""
    return f"fields.{column}.aggregate-function"


def group_keys(options: CoreOptions) -> Mapping[str, tuple[str, ...]]:
    """Options that define sequence groups, with the ordering columns each is about."""
    return {
        key: split_names(key.removeprefix("fields.").removesuffix(".sequence-group"))
        for key in sorted(options.given)
        if key.startswith("fields.") and key.endswith(".sequence-group")
    }


def _chosen(column: str, options: CoreOptions) -> tuple[str, AggregateFunction] | None:
    """The option that gives a column its function, and the function."""
    for key in (own_function_key(column), DEFAULT_FUNCTION_KEY):
        if key in options.given:
            return key, read_function_name(key, options.given[key])
    return None


def _aggregation_functions(schema: TableSchema, options: CoreOptions) -> dict[str, ColumnAggregate]:
    functions = {}
    for column in schema.fields:
        if column.name in schema.primary_keys:
            continue
        own = own_function_key(column.name)
        if column.name in options.sequence_field:
            key, name = own, AggregateFunction.LAST_VALUE
        else:
            key, name = _chosen(column.name, options) or (own, AggregateFunction.LAST_NON_NULL_VALUE)
        functions[column.name] = column_aggregate(name, key, column, options)
    return functions


def _partial_update_functions(
    schema: TableSchema, options: CoreOptions, groups: tuple[SequenceGroup, ...]
) -> dict[str, ColumnAggregate]:
    without = {*schema.primary_keys, *(name for group in groups for name in group.ordering)}
    protected = {name for group in groups for name in group.protected}
    functions = {}
    for column in schema.fields:
        chosen = _chosen(column.name, options)
        if column.name in without or chosen is None:
            continue
        key, name = chosen
        if column.name not in protected and name is not AggregateFunction.LAST_NON_NULL_VALUE:
            own = own_function_key(column.name)
            other = "use" if key == own else f"set {own} to"
            raise InvalidRequestError(
                f"option {key} = {name} cannot be used: column {column.name} is in no sequence group, where "
                f"partial-update only takes last_non_null_value; put the column into a group with "
                f"fields.<ordering column>.sequence-group, or {other} last_non_null_value",
                option=key,
                column=column.name,
            )
        functions[column.name] = column_aggregate(name, key, column, options)
    return functions


def _sequence_groups(schema: TableSchema, options: CoreOptions) -> tuple[SequenceGroup, ...]:
    removing = set(options.partial_update_remove_record_on_sequence_group or ())
    groups: list[SequenceGroup] = []
    owners: dict[str, str] = {}
    for key, names in group_keys(options).items():
        ordering = tuple(dict.fromkeys(names))
        # A group may protect its own ordering columns: they change with it anyway.
        protected = tuple(name for name in split_names(options.given[key]) if name not in ordering)
        for name in (*ordering, *protected):
            _group_column(schema, key, name)
            if name in owners:
                where = "twice" if owners[name] == key else f"in {owners[name]} as well"
                raise InvalidRequestError(
                    f"option {key} names column {name} {where}; a column belongs to one sequence group, take it out",
                    option=key,
                    column=name,
                )
            owners[name] = key
        for name in ordering:
            if not isinstance(schema.by_name[name].type, ScalarType):
                raise InvalidRequestError(
                    f"option {key}: column {name} of type {schema.by_name[name].type} has no order; "
                    "order the group by a scalar column",
                    option=key,
                    column=name,
                )
        groups.append(SequenceGroup(ordering, protected, not removing.isdisjoint(ordering)))
    positions = {name: position for position, name in enumerate(schema.column_names)}
    return tuple(sorted(groups, key=lambda group: min(positions[name] for name in group.ordering)))


def _group_column(schema: TableSchema, key: str, name: str) -> DataField:
    column = schema.by_name.get(name)
    if column is None:
        blanks = "; names are written without blanks" if name.strip() in schema.by_name else ""
        raise InvalidRequestError(
            f"option {key} names column {name!r}, which the table does not have{blanks}; "
            f"columns: {', '.join(schema.column_names)}",
            option=key,
            column=name,
        )
    if name in schema.primary_keys:
        raise InvalidRequestError(
            f"option {key} names column {name} of the primary key, which never changes; take it out of the group",
            option=key,
            column=name,
        )
    return column


def _check_removal(options: CoreOptions, groups: tuple[SequenceGroup, ...]) -> None:
    named = options.partial_update_remove_record_on_sequence_group
    removing = {
        _REMOVE_ON_DELETE: options.partial_update_remove_record_on_delete,
        _REMOVE_ON_GROUP: named is not None,
    }
    for key, is_set in removing.items():
        if is_set and options.ignore_delete:
            raise InvalidRequestError(
                f"options {key} and ignore-delete contradict each other: a delete cannot both remove the row and be "
                "ignored; remove one of them",
                option=key,
            )
    if options.partial_update_remove_record_on_delete and groups:
        raise InvalidRequestError(
            f"option {_REMOVE_ON_DELETE} cannot be used with sequence groups, where a delete sets a group to null; "
            f"remove it, or name ordering columns in {_REMOVE_ON_GROUP}",
            option=_REMOVE_ON_DELETE,
        )
    ordering = [name for group in groups for name in group.ordering]
    for name in named or ():
        if name not in ordering:
            columns = f"ordering columns: {', '.join(ordering)}" if ordering else "the table has no sequence groups"
            raise InvalidRequestError(
                f"option {_REMOVE_ON_GROUP} names {name!r}, which orders no sequence group; {columns}",
                option=_REMOVE_ON_GROUP,
            )
