"""The order of rows and the merge function that a table's schema and options ask for.

Source: LSM semantics §0, §2.2, §2.7, §2.9.
"""

from __future__ import annotations

from storage.exceptions import UnsupportedFeatureError
from storage.merge.deduplicate import Deduplicate
from storage.merge.first_row import FirstRow
from storage.merge.key_order import RowOrder
from storage.merge.lookup_levels import LookupLevels
from storage.merge.merge_function import MergeFunction
from storage.merge.merge_metrics import MergeMetrics
from storage.model.schema import TableSchema
from storage.options import CoreOptions, MergeEngine, SortOrder


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
    """The table's merge engine for compactions with lookup: a key with one row is merged as well."""
    return _engine(schema, options, metrics or MergeMetrics(), table, passes_lone_rows=False)


def _engine(
    schema: TableSchema, options: CoreOptions, metrics: MergeMetrics, table: str, *, passes_lone_rows: bool
) -> MergeFunction:
    match options.merge_engine:
        case MergeEngine.DEDUPLICATE:
            function: MergeFunction = Deduplicate(options.ignore_delete, passes_lone_rows)
        case MergeEngine.FIRST_ROW:
            return FirstRow(schema.trimmed_primary_keys, options.ignore_delete, passes_lone_rows, table)
        case _:
            raise UnsupportedFeatureError(f"merge-engine {options.merge_engine} is not supported yet; use deduplicate")
    return LookupLevels(function) if options.needs_lookup else function
