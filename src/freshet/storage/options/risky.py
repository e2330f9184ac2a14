"""Options that are allowed, and together do something that is easily overlooked: a warning when a writer is opened.

| options | what happens |
|---|---|
| `write-only` with `changelog-producer` lookup or full-compaction | no change is emitted until another job compacts |
| `changelog-producer=lookup` with `lookup-wait=false` | changes are emitted when level 0 is compacted, later |
| `precommit-compact` with a changelog producer | engines other than Flink cannot read the changelog |

Options of Paimon that are taken and do nothing here (`unheeded_options`):

| option | why |
|---|---|
| `file-index.<type>.columns` of types such as `bsi`, and of values in maps | such indexes are not written |
| `write-buffer-for-append` | rows of append tables are always buffered |
| `record-level.expire-time` | rows of tables without a primary key do not expire |
| `postpone.merge-on-read` | rows that wait for their bucket are read once a compaction has put them there |

Source: MERGING.md §1.5, §4.3.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from freshet.storage.model.schema import TableSchema
from freshet.storage.options.aggregate_function import AggregateFunction, ColumnAggregate
from freshet.storage.options.choices import ChangelogProducer, MergeEngine
from freshet.storage.options.core import CoreOptions
from freshet.storage.options.engine import EngineOptions, engine_options
from freshet.storage.options.named_columns import INDEX_KINDS, INDEX_PREFIX, indexed_columns, is_part_of_map
from freshet.storage.options.retracts import blank_that_counts, retract_rule

_NEEDS_ORDER: Final = frozenset(
    {
        AggregateFunction.FIRST_VALUE,
        AggregateFunction.FIRST_NON_NULL_VALUE,
        AggregateFunction.LISTAGG,
        AggregateFunction.MERGE_MAP,
        AggregateFunction.MERGE_MAP_WITH_KEYTIME,
        AggregateFunction.NESTED_PARTIAL_UPDATE,
    }
)
"""Functions that give something else where rows are merged in another order; nested_update with a key does too."""


def risky_options(options: CoreOptions) -> list[str]:
    """A warning for each risky combination among these options."""
    if not options.has_primary_key:
        return []
    return [*_late(options), *_packed(options)]


def unheeded_options(options: CoreOptions) -> list[str]:
    """A sentence for each option that was set and does nothing."""
    warnings = []
    indexes = {
        f"{INDEX_PREFIX}{each.kind}.columns"
        if each.kind not in INDEX_KINDS
        else f"{INDEX_PREFIX}{each.kind}.columns={each.column}"
        for each in indexed_columns(options.given)
        if each.kind not in INDEX_KINDS or is_part_of_map(each.column)
    }
    if indexes:
        warnings.append(
            f"{', '.join(sorted(indexes))} has no effect: of the indexes of data files, Freshet writes "
            f"{', '.join(sorted(INDEX_KINDS))}, of columns"
        )
    if options.write_buffer_for_append:
        warnings.append(
            "write-buffer-for-append=true has no effect: rows of append tables are always buffered, within "
            "write-buffer-size"
        )
    if options.record_level_expire_time_ms is not None and not options.has_primary_key:
        warnings.append(
            "record-level.expire-time has no effect: rows of tables without a primary key do not expire, in Apache "
            "Paimon neither"
        )
    if options.given.get("postpone.merge-on-read", "").lower() == "true":
        warnings.append(
            "postpone.merge-on-read=true has no effect: scans show rows that wait for their bucket once `freshet "
            "compact` has put them there"
        )
    return warnings


def _packed(options: CoreOptions) -> list[str]:
    if not options.precommit_compact or options.changelog_producer is ChangelogProducer.NONE:
        return []
    return [
        "precommit-compact=true packs the changelog files of a commit as the Flink sink of Apache Paimon does; Flink "
        "and Freshet read them, other engines with Paimon do not: leave the option out where they read the changelog"
    ]


def _late(options: CoreOptions) -> list[str]:
    producer = options.changelog_producer
    if options.compacts_elsewhere and producer.emits.in_compactions:
        cause = "write-only=true never does" if options.write_only else "with bucket=-2 writers never do"
        return [
            f"changelog-producer={producer} makes the changelog when it compacts, and {cause}: "
            "readers of changes see nothing until another job compacts the table; run `freshet compact` with the writer"
        ]
    if producer.emits.by_lookup and not options.commits_empty_level_0:
        return [
            "with lookup-wait=false commits do not wait for the compaction that makes the changelog: changes are "
            "emitted late; leave the option out to have them with each commit"
        ]
    return []


def layout_warnings(schema: TableSchema, options: CoreOptions) -> list[str]:
    """A sentence for each thing of the table that depends on how its changes were cut into commits and compacted: what
    no layout of files carries.

    | table | depends on the layout |
    |---|---|
    | partial-update with `sequence.field`, an older row comes late | columns that the newer leaves NULL |
    | aggregation with `sequence.field`, or a sequence group, the same | columns of the functions `_NEEDS_ORDER` |
    | aggregation with `sequence.field`, the same | columns of last_non_null_value, which is the default |
    | nested_update with `nested-key` and `count-limit` | which rows are kept, once there are more |
    | `sequence.snapshot-ordering`, a delete and a later row of its key in one commit | the row |
    | a row after a delete that removes | columns that `blank_that_counts`; new tables with such are refused |

    What depends on data alone (`docs/explanation/merging.md` has the whole list) is not warned of.

    Source: MERGING.md §2.5, §2.6.1, §2.8.
    """
    if not schema.has_primary_key:
        return []
    engine = engine_options(schema, options)
    return [*_of_late_rows(options, engine), *_of_limits(engine), *_of_retracts(schema, options)]


def _of_late_rows(options: CoreOptions, engine: EngineOptions) -> Iterator[str]:
    names = [name for name, function in engine.functions.items() if _needs_order(function)]
    if options.sequence_field and options.merge_engine is MergeEngine.PARTIAL_UPDATE and not engine.groups:
        yield (
            "partial-update with sequence.field: what a row that comes late, older than one before it, leaves of the "
            "others depends on which of them were merged before; order columns by a sequence group instead "
            "(fields.<ordering column>.sequence-group), which gives the same in any case"
        )
    if options.merge_engine is MergeEngine.AGGREGATE and options.sequence_field:
        names += [
            name
            for name, function in engine.functions.items()
            if function.name is AggregateFunction.LAST_NON_NULL_VALUE
        ]
    elif not any(set(group.protected) & set(names) for group in engine.groups):
        return
    if names:
        yield (
            f"the functions of {', '.join(names)} depend on the order in which rows are merged: a row that comes late, "
            "by its sequence.field or the order of its group, may give another value than in time, and which one "
            "depends on how files were compacted; let rows come in order, or choose a function such as max, min, sum "
            "or last_value"
        )


def _of_limits(engine: EngineOptions) -> Iterator[str]:
    names = [name for name, each in engine.functions.items() if each.nested_key and each.count_limit is not None]
    if names:
        yield (
            f"{', '.join(names)}: with nested-key and count-limit it depends on how files were compacted which rows "
            "are kept once there are more; leave out count-limit"
        )


def _of_retracts(schema: TableSchema, options: CoreOptions) -> Iterator[str]:
    rule = retract_rule(schema, options)
    if rule is not None and rule.needs_older_rows and options.sequence_snapshot_ordering:
        yield (
            "sequence.snapshot-ordering: files of one commit have no order, so a delete and a row of the same key "
            "after it must not be in one commit, or values from before the delete return"
        )
    counting = blank_that_counts(schema, options)
    if counting:
        yield (
            f"a row after a delete finds something of the removed row in {', '.join(counting)}: their functions "
            f"({', '.join(dict.fromkeys(counting.values()))}) count what a -D holds there; new tables of this kind are "
            "refused, copy the table into one without them"
        )


def _needs_order(function: ColumnAggregate) -> bool:
    is_keyed = function.name is AggregateFunction.NESTED_UPDATE and bool(function.nested_key)
    return function.name in _NEEDS_ORDER or is_keyed
