"""What a table's merge engine makes of the columns that one record fills: what NULL means, what a deletion must carry.

| engine | column | NULL in a new row |
|---|---|---|
| deduplicate, first-row | any | is the new value |
| partial-update | outside sequence groups | leaves the stored value |
| partial-update | in a group, without a function, or last_value, first_value | is the new value |
| partial-update | in a group, any other function | leaves the stored value |
| aggregation | last_value, first_value | is the new value |
| aggregation | any other function | leaves the stored value |

A row takes part in a sequence group if one of the group's ordering columns is not NULL. A source fills a group if it
maps one of its columns; a deletion from that source nulls the group's columns, so it must carry the ordering columns.

An update counts twice in a sum (product, collect, merge_map, nested_update) unless the row before it is retracted:
`needs_before` names such columns.

Source: MERGING.md §2.4 to §2.6.1.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import assert_never

from freshet._frozen import Frozen
from freshet.storage.model.schema import TableSchema
from freshet.storage.options import CAPABILITIES, CoreOptions, EngineOptions, MergeEngine, SequenceGroup, engine_options


class EngineRules(Frozen):
    """The rules of one table."""

    core: CoreOptions
    options: EngineOptions

    @property
    def engine(self) -> MergeEngine:
        """The table's merge engine."""
        return self.core.merge_engine

    @property
    def ordering_columns(self) -> frozenset[str]:
        """The ordering columns of all groups."""
        return frozenset(name for group in self.options.groups for name in group.ordering)

    def group_of(self, column: str) -> SequenceGroup | None:
        """The group that protects the column."""
        return next((group for group in self.options.groups if column in group.protected), None)

    def filled_groups(self, columns: Iterable[str]) -> tuple[SequenceGroup, ...]:
        """The groups of which a source fills a column."""
        filled = set(columns)
        groups = self.options.groups
        return tuple(group for group in groups if not filled.isdisjoint((*group.ordering, *group.protected)))

    def keeps_on_null(self, column: str) -> bool:
        """True when NULL leaves the stored value; see the table of the module."""
        function = self.options.functions.get(column)
        match self.engine:
            case MergeEngine.PARTIAL_UPDATE:
                if self.group_of(column) is None:
                    return column not in self.ordering_columns
                return function is not None and not CAPABILITIES[function.name].takes_null
            case MergeEngine.AGGREGATE:
                return function is not None and not CAPABILITIES[function.name].takes_null
            case MergeEngine.DEDUPLICATE | MergeEngine.FIRST_ROW:
                return False
            case unknown:
                assert_never(unknown)

    @property
    def refuses_retracts(self) -> tuple[str, ...]:
        """Columns whose function stops the batch when a deletion, or the row before an update, meets it."""
        return tuple(
            column
            for column, function in self.options.functions.items()
            if not CAPABILITIES[function.name].takes_retracts and not function.ignore_retract
        )

    @property
    def needs_before(self) -> tuple[str, ...]:
        """Columns that an update would count twice if the row before it were not retracted."""
        return tuple(
            column
            for column, function in self.options.functions.items()
            if CAPABILITIES[function.name].adds_up and not function.ignore_retract
        )


def engine_rules(schema: TableSchema, options: CoreOptions) -> EngineRules:
    """The rules of a table; raises `InvalidRequestError` naming the option that is wrong."""
    return EngineRules(options, engine_options(schema, options))
