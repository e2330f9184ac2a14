"""The order of rows and the merge function that a table's schema and options ask for.

Source: MERGING.md §0, §2.2, §2.7, §2.9.
"""

from __future__ import annotations

from collections.abc import Mapping

from freshet.storage.merge.aggregate.aggregator import Chooser, ColumnAggregator, make_aggregator
from freshet.storage.merge.aggregation import Aggregation
from freshet.storage.merge.deduplicate import Deduplicate
from freshet.storage.merge.first_row import FirstRow
from freshet.storage.merge.key_order import RowOrder
from freshet.storage.merge.lookup_levels import LookupLevels
from freshet.storage.merge.merge_error import MergedTable
from freshet.storage.merge.merge_function import MergeFunction
from freshet.storage.merge.merge_metrics import MergeMetrics
from freshet.storage.merge.partial_update import PartialUpdate
from freshet.storage.merge.settled import Settled
from freshet.storage.model.schema import TableSchema
from freshet.storage.options.core import ChangelogProducer, CoreOptions, MergeEngine, SortOrder
from freshet.storage.options.engine import EngineOptions, engine_options


def row_order(schema: TableSchema, options: CoreOptions) -> RowOrder:
    """How rows of a bucket are ordered."""
    return RowOrder(
        key_columns=schema.trimmed_primary_keys,
        sequence_columns=options.sequence_field,
        sequence_descending=options.sequence_field_sort_order is SortOrder.DESCENDING,
    )


def merge_function(
    schema: TableSchema, options: CoreOptions, metrics: MergeMetrics | None = None, *, table: str = "the table"
) -> MergeFunction:
    """The table's merge engine, for readers, flushes and compactions without lookup; `table` is for messages."""
    return _engine(schema, options, metrics or MergeMetrics(), table, passes_lone_rows=True)


def lookup_merge_function(
    schema: TableSchema, options: CoreOptions, metrics: MergeMetrics | None = None, *, table: str = "the table"
) -> MergeFunction:
    """The table's merge engine for compactions with lookup: a key with one row is merged as well.

    Where they tell a changelog, results are such that merging them again changes nothing.
    """
    function = _engine(schema, options, metrics or MergeMetrics(), table, passes_lone_rows=False)
    if options.changelog_producer is not ChangelogProducer.LOOKUP or not isinstance(function, LookupLevels):
        return function
    match function.function:
        case PartialUpdate() as engine if engine.options.groups:
            takes_adds = any(not isinstance(f, Chooser) and not f.keeps_lone_value for f in engine.functions.values())
            return Settled(function, engine, takes_adds)
        case Aggregation(remove_record_on_delete=True) as engine:
            return Settled(function, engine, takes_adds=False)
        case _:
            return function


def _engine(
    schema: TableSchema, options: CoreOptions, metrics: MergeMetrics, table: str, *, passes_lone_rows: bool
) -> MergeFunction:
    match options.merge_engine:
        case MergeEngine.DEDUPLICATE:
            function: MergeFunction = Deduplicate(options.ignore_delete, passes_lone_rows)
        case MergeEngine.FIRST_ROW:
            return FirstRow(schema.trimmed_primary_keys, options.ignore_delete, passes_lone_rows, table)
        case MergeEngine.PARTIAL_UPDATE:
            engine = engine_options(schema, options)
            protected = {name for group in engine.groups for name in group.protected}
            functions = {name: made for name, made in _functions(schema, engine).items() if name in protected}
            function = PartialUpdate(_merged_table(schema, table), engine, functions, metrics, passes_lone_rows)
        case MergeEngine.AGGREGATE:
            engine = engine_options(schema, options)
            function = Aggregation(
                _merged_table(schema, table),
                _functions(schema, engine),
                metrics,
                engine.remove_record_on_delete,
                passes_lone_rows,
            )
    return LookupLevels(function) if options.needs_lookup else function


def _merged_table(schema: TableSchema, table: str) -> MergedTable:
    not_null = {field.name for field in schema.fields if not field.type.nullable}
    return MergedTable(table, schema.primary_keys, frozenset(not_null - set(schema.primary_keys)))


def _functions(schema: TableSchema, engine: EngineOptions) -> Mapping[str, ColumnAggregator | Chooser]:
    return {
        name: make_aggregator(function, name, schema.by_name[name].type) for name, function in engine.functions.items()
    }
