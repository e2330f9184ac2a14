"""What the options of merge engines must fulfil beyond what the merge needs, checked where they are typed; those of
logs and of automatic tags as well.

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

from freshet.storage.exceptions import InvalidRequestError, UnsupportedFeatureError
from freshet.storage.logs.log_systems import provider_of, refuse_uncommitted_json
from freshet.storage.model.data_type import TypeRoot
from freshet.storage.model.schema import TableSchema
from freshet.storage.options.aggregate_function import AggregateFunction, options_of
from freshet.storage.options.choices import (
    ChangelogProducer,
    LogChangelogMode,
    LogConsistency,
    LogSystem,
    LookupCompact,
    MergeEngine,
)
from freshet.storage.options.core import CoreOptions
from freshet.storage.options.engine import DEFAULT_FUNCTION_KEY, EngineOptions, engine_options, own_function_key
from freshet.storage.options.named_columns import split_key
from freshet.storage.options.retracts import REMEMBERS_FIRST, blank_that_counts
from freshet.storage.options.time_zones import Zone
from freshet.storage.options.values import parse_bool

_FUNCTION_OPTIONS: Final = frozenset({"aggregate-function"}.union(*(options_of(name) for name in AggregateFunction)))
_OTHER_OPTIONS: Final = frozenset({"sequence-group", "stats-mode"})
_FAMILIES: Final = ("map.", "pk-")
"""Options of a column that have names of several parts; `check_access` knows what is supported of them."""
_ENGINES_WITH_FUNCTIONS: Final = (MergeEngine.AGGREGATE, MergeEngine.PARTIAL_UPDATE)
_ENGINE_OF: Final = {
    "aggregation.remove-record-on-delete": MergeEngine.AGGREGATE,
    "partial-update.remove-record-on-delete": MergeEngine.PARTIAL_UPDATE,
    "partial-update.remove-record-on-sequence-group": MergeEngine.PARTIAL_UPDATE,
}

_NEED_A_LOG: Final = {
    "log.changelog-mode": LogChangelogMode.UPSERT,
    "log.consistency": LogConsistency.EVENTUAL,
}

_LOG_FORMATS: Final = ("arrow", "json", "debezium-json")

_MINUTE_MS: Final = 60_000
_PERIOD: Final = frozenset({"tag.creation-delay", "tag.creation-period", "tag.creation-period-duration"})


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


def check_log_options(schema: TableSchema, options: CoreOptions) -> None:
    """The check which tables can have a log, and of which kind. Raises `InvalidRequestError`, naming the option, where
    these do not go together.

    What is logged is what the table will hold:

    | table | `log.changelog-mode` | logged |
    |---|---|---|
    | append, with buckets | all | the rows |
    | keyed, producer lookup | all | the changes that the compaction of the commit emits; `lookup-wait` must be true |
    | keyed, producer lookup | upsert | the same without -U |
    | keyed, producer input | all | the rows as they were written |
    | keyed, deduplicate without `sequence.field`, any other producer | upsert | the last row of each key |
    | other | | refused: when rows are written it is not known what becomes of them |

    With `log.consistency=transactional` the changes are read from the table after their commit, so a lookup need not
    wait, compactions may run elsewhere, and the producer full-compaction emits all. Readers of such a log need nothing
    of this library: `log.format` is json or debezium-json, and these are for such logs alone.

    `log.ignore-delete` leaves -U and -D out, and logs +U as +I: what readers of the log see is a stream of inserts, as
    it was in Paimon. `log.format=json` has no word for updates, so keyed tables need `upsert` or `log.ignore-delete`
    with it.
    """
    if options.log_system is LogSystem.NONE:
        for key, value in _NEED_A_LOG.items():
            if options.given.get(key, "").lower() == value:
                raise InvalidRequestError(f"{key}={value} needs a log; set log.system=kafka", option=key)
        return
    _check_formats(schema, options)
    provider_of(options).check_options(options.given)
    if options.bucket <= 0:
        raise InvalidRequestError(
            f"log.system={options.log_system} needs a fixed number of buckets, and bucket is {options.bucket}"
            f"{'' if 'bucket' in options.given else ' where it is not set'}: the rows of a bucket are in the partition "
            "of its number; set bucket to a number such as 4, which is that of the topic's partitions",
            option="bucket",
        )
    if options.write_only and options.logs_changes:
        raise InvalidRequestError("write-only tables cannot have a log: changes are not known when rows are written")
    if not schema.has_primary_key:
        if options.log_changelog_mode is LogChangelogMode.UPSERT:
            raise InvalidRequestError("log.changelog-mode=upsert needs a primary key", option="log.changelog-mode")
        return
    emits = options.changelog_producer.emits
    if emits.in_compactions and options.publishes_changes:
        return
    if emits.by_lookup:
        _check_lookup(options)
    else:
        _check_without_lookup(options)


def _check_formats(schema: TableSchema, options: CoreOptions) -> None:
    if options.log_format not in _LOG_FORMATS:
        raise UnsupportedFeatureError(
            f"log.format={options.log_format} is not supported; it is one of {', '.join(_LOG_FORMATS)}",
            option="log.format",
        )
    if options.publishes_changes and options.log_format == "arrow":
        raise InvalidRequestError(
            "log.consistency=transactional is for consumers that know nothing of this library, and they cannot read "
            "log.format=arrow; set log.format=debezium-json or json",
            option="log.format",
        )
    refuse_uncommitted_json(options)
    if options.log_key_format not in (None, "json"):
        raise UnsupportedFeatureError(
            f"log.key.format={options.log_key_format} is not supported; keys are JSON: leave the option out",
            option="log.key.format",
        )
    if options.log_key_format is not None and options.log_format == "arrow":
        raise InvalidRequestError(
            "log.key.format needs log.format=json or debezium-json: a record of log.format=arrow holds many rows and "
            "has no key",
            option="log.key.format",
        )
    if options.log_format == "json" and schema.has_primary_key and options.logs_before_images:
        raise InvalidRequestError(
            "log.format=json does not distinguish updates and deletes from inserts; set log.changelog-mode=upsert, "
            "which writes deletes as records without a value, log.ignore-delete=true, or log.format=debezium-json",
            option="log.format",
        )


def _check_lookup(options: CoreOptions) -> None:
    if not options.commits_empty_level_0 or options.lookup_compact is LookupCompact.GENTLE:
        key = "lookup-wait" if not options.commits_empty_level_0 else "lookup-compact"
        raise InvalidRequestError(
            f"log.system={options.log_system} with changelog-producer=lookup needs lookup-wait=true and "
            "lookup-compact=radical: changes are logged with the commit that made them",
            option=key,
        )


def _check_without_lookup(options: CoreOptions) -> None:
    engine, producer = options.merge_engine, options.changelog_producer
    reason = f"merge-engine={engine}" if engine is not MergeEngine.DEDUPLICATE else "sequence.field"
    if engine is not MergeEngine.DEDUPLICATE or options.sequence_field:
        raise InvalidRequestError(
            f"log.system={options.log_system} with {reason} needs changelog-producer=lookup: what a row becomes in "
            "the table is known only once it was merged with what is stored",
            option="changelog-producer",
        )
    if options.logs_before_images and not producer.emits.with_commit:
        raise InvalidRequestError(
            f"log.changelog-mode=all needs changelog-producer=lookup or input; with {producer} the row before an "
            "update is not known when it is logged. Set one of them, or log.changelog-mode=upsert",
            option="log.changelog-mode",
        )


def check_tag_options(options: CoreOptions, typed: Collection[str]) -> None:
    """The check of the options of automatic tags together. Raises `InvalidRequestError`, naming the option, where these
    do not go together.

    | options | rule |
    |---|---|
    | `tag.creation-delay` | shorter than the period: the tag of a period would come after the end of the next |
    | `tag.creation-period-duration` | whole minutes: what is less is not in the names |
    | `sink.process-time-zone`, `sink.watermark-time-zone` | zones that are known |

    Asked when they are given, so that a table of another program is read whatever it has.

    Source: FORMAT.md §12.2.
    """
    if not _PERIOD.isdisjoint(typed):
        _check_period(options)
    zones = {
        "sink.process-time-zone": options.sink_process_time_zone,
        "sink.watermark-time-zone": options.sink_watermark_time_zone,
    }
    for key, name in zones.items():
        if key in typed and name is not None:
            Zone(name, key).check()


def _check_period(options: CoreOptions) -> None:
    if options.tag_period_ms % _MINUTE_MS:
        raise InvalidRequestError(
            f"tag.creation-period-duration is {options.tag_period_ms} ms; give a whole number of minutes, such as "
            "30 min: names of tags have no seconds",
            option="tag.creation-period-duration",
        )
    if options.tag_creation_delay_ms >= options.tag_period_ms:
        raise InvalidRequestError(
            f"tag.creation-delay is {options.tag_creation_delay_ms} ms, and the period {options.tag_period_ms} ms: "
            "give a delay that is shorter, or a longer tag.creation-period",
            option="tag.creation-delay",
        )
