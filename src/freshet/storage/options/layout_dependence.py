"""What of a table depends on how its changes were cut into commits and compacted: what no layout of files carries.

| table | depends on the layout |
|---|---|
| partial-update with `sequence.field`, a row comes late, older than one before | columns that the newer leaves NULL |
| aggregation with `sequence.field`, or a sequence group, the same | columns of the functions `NEEDS_ORDER` |
| aggregation with `sequence.field`, the same | columns of last_non_null_value, which is the default |
| nested_update with `nested-key` and `count-limit` | which rows are kept, once there are more |
| `sequence.snapshot-ordering`, a delete and a later row of its key in one commit | the row |
| a row after a delete that removes | columns that `blank_that_counts`; new tables with such are refused |

What depends on data alone (`docs/explanation/merging.md` has the whole list) is not warned of.

Source: MERGING.md §2.5, §2.6.1, §2.8.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from freshet.storage.model.schema import TableSchema
from freshet.storage.options.aggregate_function import AggregateFunction, ColumnAggregate
from freshet.storage.options.choices import MergeEngine
from freshet.storage.options.core import CoreOptions
from freshet.storage.options.engine import EngineOptions, engine_options
from freshet.storage.options.retracts import blank_that_counts, retract_rule

NEEDS_ORDER: Final = frozenset(
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


def layout_warnings(schema: TableSchema, options: CoreOptions) -> list[str]:
    """A sentence for each thing of the table that depends on the layout of its files."""
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
    return function.name in NEEDS_ORDER or is_keyed
