"""What the options of merge engines must fulfil beyond what the merge needs, checked where they are typed.

1. Of every table, whatever program created it: combinations that Apache Paimon refuses too, and a row removed by a
   delete that a column ignores.
2. Of new tables and new columns: a delete that removes the row leaves nothing of it behind.
3. Of the options typed now (all at creation, the changed ones later): the name behind `fields.<column>.` is one, the
   option has an effect on this table, and no other writer of the table fails because of it. A table made by another
   program keeps options that have no effect.

A function on an ordering column of a sequence group has no effect and is accepted: a default function gives it one.

Source: MERGING.md §2.3 to §2.6.1, §4.7.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection
from typing import Final

from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.model.data_type import TypeRoot
from freshet.storage.model.schema import TableSchema
from freshet.storage.options.aggregate_function import AggregateFunction, options_of
from freshet.storage.options.choices import ChangelogProducer, MergeEngine
from freshet.storage.options.core import CoreOptions
from freshet.storage.options.engine import DEFAULT_FUNCTION_KEY, EngineOptions, engine_options, own_function_key
from freshet.storage.options.named_columns import split_key
from freshet.storage.options.retracts import REMEMBERS_FIRST, blank_that_counts
from freshet.storage.options.values import parse_bool

_FUNCTION_OPTIONS: Final = frozenset({"aggregate-function"}.union(*(options_of(name) for name in AggregateFunction)))
_OTHER_OPTIONS: Final = frozenset({"sequence-group", "stats-mode"})
_FAMILIES: Final = ("map.", "pk-")
"""Options of a column that have names of several parts; `options.supported` knows what is supported of them."""
_ENGINES_WITH_FUNCTIONS: Final = (MergeEngine.AGGREGATE, MergeEngine.PARTIAL_UPDATE)
_ENGINE_OF: Final = {
    "aggregation.remove-record-on-delete": MergeEngine.AGGREGATE,
    "partial-update.remove-record-on-delete": MergeEngine.PARTIAL_UPDATE,
    "partial-update.remove-record-on-sequence-group": MergeEngine.PARTIAL_UPDATE,
}


def check_engine(schema: TableSchema, options: CoreOptions, keys: Collection[str]) -> None:
    """Checks the options of the merge engine; `keys` names those that are typed now.

    Raises `InvalidRequestError` naming option, column and remedy.
    """
    _check_combinations(schema, options)
    engine = engine_options(schema, options)
    _check_removal(schema, options, engine)
    for key in keys:
        if key in options.given:
            _check_typed(schema, options, engine, key)


def check_removals(schema: TableSchema, options: CoreOptions, known: Collection[str] = ()) -> None:
    """Refuses functions in whose columns a delete leaves something behind; `known` are columns that have one already.

    Raises `InvalidRequestError` naming option, column and remedy.
    """
    for name, function in blank_that_counts(schema, options).items():
        if name in known:
            continue
        own = own_function_key(name)
        key = own if own in options.given else DEFAULT_FUNCTION_KEY
        if schema.by_name[name].type.nullable or function in REMEMBERS_FIRST:
            because = "it remembers that the removed row had a value, and a row after the delete would have NULL there"
            remedy = "choose another function, such as last_value"
        else:
            because = "a delete holds an empty value in a NOT NULL column, which would count for the row after it"
            remedy = "let the column take NULL, or choose another function"
        raise InvalidRequestError(
            f"option {key} = {function} cannot be used for column {name} of a table where deletes remove the row: "
            f"{because}; {remedy}, or leave out {_removal_key(options)}",
            option=key,
            column=name,
        )


def _removal_key(options: CoreOptions) -> str:
    """The option by which deletes remove rows."""
    return next((key for key in _ENGINE_OF if key in options.given), "the option that removes rows")


def _check_combinations(schema: TableSchema, options: CoreOptions) -> None:
    _check_producer(options)
    producer = options.changelog_producer
    if options.merge_engine is MergeEngine.FIRST_ROW and schema.has_primary_key:
        if options.sequence_field:
            raise InvalidRequestError(
                "sequence.field cannot be used with merge-engine=first-row, which keeps the row that was written "
                "first; remove it",
                option="sequence.field",
            )
        if producer is not ChangelogProducer.NONE and not producer.emits.by_lookup:
            raise InvalidRequestError(
                f"changelog-producer={producer} cannot be used with merge-engine=first-row; use none or lookup",
                option="changelog-producer",
            )
        if options.deletion_vectors_enabled:
            raise InvalidRequestError(
                "deletion-vectors.enabled cannot be used with merge-engine=first-row, which never replaces a row; "
                "remove it",
                option="deletion-vectors.enabled",
            )
    for name in options.sequence_field:
        key = own_function_key(name)
        if key in options.given:
            raise InvalidRequestError(
                f"option {key} cannot be used: column {name} is a sequence.field, which always takes the value of "
                "the last row; remove the option",
                option=key,
                column=name,
            )


def _check_removal(schema: TableSchema, options: CoreOptions, engine: EngineOptions) -> None:
    if not options.aggregation_remove_record_on_delete or options.merge_engine not in _ENGINES_WITH_FUNCTIONS:
        return
    for name in (*schema.primary_keys, *engine.functions):
        text = options.field_option(name, "ignore-retract")
        if text is not None and text.upper() == "TRUE":
            raise InvalidRequestError(
                f"options aggregation.remove-record-on-delete and fields.{name}.ignore-retract contradict each "
                "other: a delete cannot both remove the row and be ignored; remove one of them",
                option=f"fields.{name}.ignore-retract",
                column=name,
            )


def _check_producer(options: CoreOptions) -> None:
    producer = options.changelog_producer
    if options.full_compaction_delta_commits is not None and producer.emits.by_lookup:
        raise InvalidRequestError(
            "full-compaction.delta-commits cannot be used with changelog-producer=lookup; remove it, or use "
            "changelog-producer=full-compaction",
            option="full-compaction.delta-commits",
        )
    if options.streaming_read_overwrite and producer.emits.in_compactions:
        raise InvalidRequestError(
            f"streaming-read-overwrite cannot be used with changelog-producer={producer}: changes would be read twice; "
            "remove it",
            option="streaming-read-overwrite",
        )
    if options.deletion_vectors_enabled and producer.emits.only_at_highest_level:
        raise InvalidRequestError(
            "deletion-vectors.enabled cannot be used with changelog-producer=full-compaction; "
            "use none, input or lookup",
            option="deletion-vectors.enabled",
        )


def _check_typed(schema: TableSchema, options: CoreOptions, engine: EngineOptions, key: str) -> None:
    text = options.given[key]
    if key == "merge-engine" and options.merge_engine is not MergeEngine.DEDUPLICATE:
        _check_takes_effect(schema, options, key, *MergeEngine)
    if key in _ENGINE_OF and text.lower() != "false":
        _check_takes_effect(schema, options, key, _ENGINE_OF[key])
    if key == "aggregation.remove-record-on-delete" and options.ignore_delete and parse_bool(text):
        raise InvalidRequestError(
            "options aggregation.remove-record-on-delete and ignore-delete contradict each other: a delete cannot "
            "both remove the row and be ignored; remove one of them",
            option="aggregation.remove-record-on-delete",
        )
    if key == DEFAULT_FUNCTION_KEY:
        _check_takes_effect(schema, options, key, *_ENGINES_WITH_FUNCTIONS)
        for name in engine.functions:
            if own_function_key(name) not in options.given and name not in options.sequence_field:
                _check_order_of_booleans(schema, engine, key, name)
    elif key.startswith("fields."):
        _check_column_option(schema, options, engine, key)


def _check_column_option(schema: TableSchema, options: CoreOptions, engine: EngineOptions, key: str) -> None:
    column, name = split_key(key, schema.by_name)
    if name.startswith(_FAMILIES) or name == "stats-mode":
        return
    if name not in _FUNCTION_OPTIONS | _OTHER_OPTIONS:
        known = sorted(_FUNCTION_OPTIONS | _OTHER_OPTIONS | {"map.storage-layout"})
        near = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
        hint = f"did you mean fields.{column}.{near[0]}?" if near else f"options of a column are {', '.join(known)}"
        raise InvalidRequestError(f"unknown option {key!r}; {hint}", option=key)
    if name == "sequence-group":
        _check_takes_effect(schema, options, key, MergeEngine.PARTIAL_UPDATE)
        return
    if column not in schema.by_name:
        each = " and ".join(f"fields.{one}.{name}" for one in column.split(","))
        raise InvalidRequestError(f"option {key} has no effect: it is for one column; write {each}", option=key)
    _check_takes_effect(schema, options, key, *_ENGINES_WITH_FUNCTIONS)
    if not any(column in group.ordering for group in engine.groups):
        _check_function_option(schema, options, engine, key, column, name)


def _check_function_option(
    schema: TableSchema, options: CoreOptions, engine: EngineOptions, key: str, column: str, name: str
) -> None:
    no_effect = f"option {key} = {options.given[key]} has no effect"
    if column in schema.primary_keys:
        raise InvalidRequestError(
            f"{no_effect}: column {column} belongs to the primary key; remove the option",
            option=key,
            column=column,
        )
    function = engine.functions.get(column)
    if function is None:
        raise InvalidRequestError(
            f"{no_effect}: column {column} has no function; give it one with {own_function_key(column)}, "
            "or remove the option",
            option=key,
            column=column,
        )
    if name == "aggregate-function":
        _check_order_of_booleans(schema, engine, key, column)
    elif name not in options_of(function.name):
        raise InvalidRequestError(
            f"{no_effect}: function {function.name} of column {column} does not read it; remove the option, or choose "
            "another function",
            option=key,
            column=column,
        )
    if name == "count-limit" and function.count_limit is not None and function.count_limit < 1:
        raise InvalidRequestError(
            f"option {key} = {function.count_limit} cannot be used: the array would stay empty; "
            "give a number from 1 on",
            option=key,
        )


def _check_order_of_booleans(schema: TableSchema, engine: EngineOptions, key: str, column: str) -> None:
    name = engine.functions[column].name
    same = {AggregateFunction.MAX: AggregateFunction.BOOL_OR, AggregateFunction.MIN: AggregateFunction.BOOL_AND}
    if name in same and schema.by_name[column].type.root is TypeRoot.BOOLEAN:
        raise InvalidRequestError(
            f"option {key} = {name} cannot be used for column {column} of type BOOLEAN, which Apache Paimon 2.0 "
            f"does not compare; use {same[name]}, which gives the same",
            option=key,
            column=column,
        )


def _check_takes_effect(schema: TableSchema, options: CoreOptions, key: str, *engines: MergeEngine) -> None:
    if not schema.has_primary_key:
        because, remedy = "without a primary key", "give the table one"
    elif options.merge_engine not in engines:
        because, remedy = f"with merge-engine={options.merge_engine}", f"set merge-engine={' or '.join(engines)}"
    else:
        return
    raise InvalidRequestError(
        f"option {key} = {options.given[key]} has no effect {because}; {remedy}, or remove the option", option=key
    )
