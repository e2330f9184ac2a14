"""The order of rows, the merge function and the aggregate functions that a table's schema and options ask for.

Source: MERGING.md §0, §2.2, §2.7, §2.9.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, assert_never

from freshet.storage.merge.aggregate.choosers import CHOICES, Chooser
from freshet.storage.merge.aggregate.collect import Collect
from freshet.storage.merge.aggregate.events import ColumnAggregator
from freshet.storage.merge.aggregate.extremes import Extreme
from freshet.storage.merge.aggregate.merge_map import MergeMap, MergeMapWithKeyTime
from freshet.storage.merge.aggregate.nested import NestedPartialUpdate, NestedUpdate
from freshet.storage.merge.aggregate.product import Product
from freshet.storage.merge.aggregate.serialized import SerializedUnion
from freshet.storage.merge.aggregate.sum import Sum
from freshet.storage.merge.aggregate.text import ListAgg
from freshet.storage.merge.aggregation import Aggregation
from freshet.storage.merge.chosen_row import Deduplicate, FirstRow
from freshet.storage.merge.idempotent_merge import IdempotentMerge
from freshet.storage.merge.key_order import RowOrder
from freshet.storage.merge.merge_function import MergeFunction
from freshet.storage.merge.merged_table import MergedTable, MergeMetrics
from freshet.storage.merge.partial_update import PartialUpdate
from freshet.storage.merge.row_levels import LookupLevels
from freshet.storage.model.data_type import DataType
from freshet.storage.model.schema import TableSchema
from freshet.storage.options.aggregate_function import AggregateFunction, ColumnAggregate
from freshet.storage.options.choices import MergeEngine, SortOrder
from freshet.storage.options.core import CoreOptions
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

    Where they emit a changelog, results are such that merging them again changes nothing.
    """
    function = _engine(schema, options, metrics or MergeMetrics(), table, passes_lone_rows=False)
    if not options.changelog_producer.emits.by_lookup or not isinstance(function, LookupLevels):
        return function
    match function.function:
        case PartialUpdate() as engine if engine.options.groups:
            takes_adds = any(not isinstance(f, Chooser) and not f.keeps_lone_value for f in engine.functions.values())
            return IdempotentMerge(function, engine, takes_adds)
        case Aggregation(remove_record_on_delete=True) as engine:
            return IdempotentMerge(function, engine, takes_adds=False)
        case _:
            return function


def _engine(
    schema: TableSchema, options: CoreOptions, metrics: MergeMetrics, table: str, *, passes_lone_rows: bool
) -> MergeFunction:
    not_null = {field.name for field in schema.fields if not field.type.nullable}
    merged = MergedTable(table, schema.primary_keys, frozenset(not_null - set(schema.primary_keys)), metrics)
    match options.merge_engine:
        case MergeEngine.DEDUPLICATE:
            function: MergeFunction = Deduplicate(options.ignore_delete, passes_lone_rows)
        case MergeEngine.FIRST_ROW:
            return FirstRow(merged, options.ignore_delete, passes_lone_rows)
        case MergeEngine.PARTIAL_UPDATE:
            engine = engine_options(schema, options)
            protected = {name for group in engine.groups for name in group.protected}
            functions = {name: made for name, made in _functions(schema, engine).items() if name in protected}
            function = PartialUpdate(merged, engine, functions, passes_lone_rows)
        case MergeEngine.AGGREGATE:
            engine = engine_options(schema, options)
            functions = _functions(schema, engine)
            function = Aggregation(merged, functions, engine.remove_record_on_delete, passes_lone_rows)
        case unknown:
            assert_never(unknown)
    return LookupLevels(function) if options.needs_lookup else function


def _functions(schema: TableSchema, engine: EngineOptions) -> dict[str, ColumnAggregator | Chooser]:
    return {
        name: aggregate_function(function, name, schema.by_name[name].type)
        for name, function in engine.functions.items()
    }


def distinct_collects(schema: TableSchema, options: CoreOptions) -> dict[str, Collect]:
    """The columns whose arrays have each element once, by their functions."""
    if not schema.has_primary_key:
        return {}
    made = _functions(schema, engine_options(schema, options))
    return {name: each for name, each in made.items() if isinstance(each, Collect) and each.function.distinct}


def aggregate_function(function: ColumnAggregate, column: str, column_type: DataType) -> ColumnAggregator | Chooser:
    """The function of a column of this type; which types a function takes was checked when the table was created."""
    if function.name in CHOICES:
        return Chooser(function, column)
    return _AGGREGATORS[function.name](function, column, column_type)


_AGGREGATORS: Final[Mapping[AggregateFunction, type[ColumnAggregator]]] = {
    AggregateFunction.SUM: Sum,
    AggregateFunction.PRODUCT: Product,
    AggregateFunction.MAX: Extreme,
    AggregateFunction.MIN: Extreme,
    AggregateFunction.BOOL_AND: Extreme,
    AggregateFunction.BOOL_OR: Extreme,
    AggregateFunction.LISTAGG: ListAgg,
    AggregateFunction.COLLECT: Collect,
    AggregateFunction.MERGE_MAP: MergeMap,
    AggregateFunction.MERGE_MAP_WITH_KEYTIME: MergeMapWithKeyTime,
    AggregateFunction.NESTED_UPDATE: NestedUpdate,
    AggregateFunction.NESTED_PARTIAL_UPDATE: NestedPartialUpdate,
    AggregateFunction.RBM32: SerializedUnion,
    AggregateFunction.RBM64: SerializedUnion,
    AggregateFunction.HLL_SKETCH: SerializedUnion,
    AggregateFunction.THETA_SKETCH: SerializedUnion,
}
