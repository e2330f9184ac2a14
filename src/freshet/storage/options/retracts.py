"""What rows of kind -U and -D of a keyed table are to the older rows of their key, and what files hold of them.

A merge folds the rows that it sees. It sees those of one flush, or of some runs, while older rows of the key lie below:

| table | a retract | its values that count | it is merged, before older rows of its key are, with |
|---|---|---|---|
| `…remove-record-on-delete` | -D | none: they would be the base of the next row | rows before it |
| partial-update, the same | -U | none | any |
| `…remove-record-on-sequence-group` | -D | none | rows before it |
| sequence groups with functions that retract | -U, -D | those of such functions, where they are called | none |
| sequence groups without | -U, -D | none | any |
| aggregation, all functions fold retracts, no sequence.field | -U, -D | all | any |
| aggregation otherwise | -U, -D | all | none |

Columns that place or order a row count always, but for the order of groups by which a -D does not remove the row. A
value that does not count is NULL in data files (`blanks`), in a NOT NULL column an empty one, unless its function would
count that: then it stays.

Deduplicate and first-row tables have no rule, nor have tables that ignore or refuse retracts.

Source: MERGING.md §2.4 to §2.6, §2.8.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from freshet._frozen import Frozen
from freshet.storage.model.row_kind import RowKind
from freshet.storage.model.schema import TableSchema
from freshet.storage.options.aggregate_function import CAPABILITIES, AggregateFunction, ColumnAggregate
from freshet.storage.options.choices import MergeEngine
from freshet.storage.options.core import CoreOptions
from freshet.storage.options.engine import EngineOptions, SequenceGroup, engine_options

RETRACTS: Final = (RowKind.UPDATE_BEFORE, RowKind.DELETE)
REMEMBERS_FIRST: Final = (AggregateFunction.FIRST_VALUE, AggregateFunction.FIRST_NON_NULL_VALUE)


class Blank(Frozen):
    """Columns whose values do not count in rows of these kinds, where all of `nulls` are NULL, and one of `values`, if
    there are any, has a value."""

    kinds: tuple[RowKind, ...]
    columns: tuple[str, ...]
    nulls: tuple[str, ...] = ()
    values: tuple[str, ...] = ()


class RetractRule(Frozen):
    """The rule of one table."""

    removes: bool
    """-D removes the row, with all that lies before it."""
    removing_groups: tuple[SequenceGroup, ...]
    """It does so if it is in order in one of these groups."""
    alone: tuple[RowKind, ...]
    """Kinds that are merged with no other row unless all older rows of the key are."""
    blanks: tuple[Blank, ...]

    @property
    def removes_rows(self) -> bool:
        """Whether a -D removes the row, always or where it is in order."""
        return any(blank.kinds == (RowKind.DELETE,) or self.removes for blank in self.blanks)

    @property
    def blank_columns(self) -> tuple[str, ...]:
        """Columns that blanks name."""
        return tuple(dict.fromkeys(name for each in self.blanks for name in (*each.columns, *each.nulls, *each.values)))

    @property
    def needs_older_rows(self) -> bool:
        """Whether it matters with which rows a retract is merged first."""
        return self.removes or bool(self.removing_groups or self.alone)


def retract_rule(schema: TableSchema, options: CoreOptions) -> RetractRule | None:
    """The rule that the options ask for; None where there is none to follow."""
    if not schema.has_primary_key or options.ignore_delete:
        return None
    engine = engine_options(schema, options)
    match options.merge_engine:
        case MergeEngine.AGGREGATE:
            rule = _of_aggregation(schema, options, engine)
        case MergeEngine.PARTIAL_UPDATE if engine.groups:
            rule = _of_groups(schema, options, engine)
        case MergeEngine.PARTIAL_UPDATE if engine.remove_record_on_delete:
            blank = Blank(RETRACTS, _counting_nothing(schema, options, engine, schema.column_names))
            rule = RetractRule(removes=True, removing_groups=(), alone=(), blanks=(blank,))
        case _:
            return None
    return rule if rule.needs_older_rows or rule.blanks else None


def blank_that_counts(schema: TableSchema, options: CoreOptions) -> dict[str, AggregateFunction]:
    """Columns, with their functions, in which a removed row leaves something behind whatever a -D holds: the function
    remembers that there was a value, or a NOT NULL column has no value that it does not count."""
    if not schema.has_primary_key:
        return {}
    engine = engine_options(schema, options)
    if not (engine.remove_record_on_delete or any(group.removes_record for group in engine.groups)):
        return {}
    return {
        name: function.name
        for name, function in engine.functions.items()
        if name not in options.sequence_field
        and (function.name in REMEMBERS_FIRST or _counts_blank(schema, name, function))
    }


def _of_aggregation(schema: TableSchema, options: CoreOptions, engine: EngineOptions) -> RetractRule:
    folds = all(
        not _retracts(function) or (CAPABILITIES[function.name].folds_retracts and name not in options.sequence_field)
        for name, function in engine.functions.items()
    )
    kinds = () if folds else RETRACTS
    if not engine.remove_record_on_delete:
        return RetractRule(removes=False, removing_groups=(), alone=kinds, blanks=())
    blank = Blank((RowKind.DELETE,), _counting_nothing(schema, options, engine, schema.column_names))
    return RetractRule(removes=True, removing_groups=(), alone=kinds[:1], blanks=(blank,))


def _of_groups(schema: TableSchema, options: CoreOptions, engine: EngineOptions) -> RetractRule:
    functions = {name for name, function in engine.functions.items() if _retracts(function)}
    removing_groups = tuple(group for group in engine.groups if group.removes_record)
    removing = tuple(_ordering(removing_groups))
    in_groups = [(group, tuple(name for name in group.protected if name in functions)) for group in engine.groups]
    has_functions = any(names for _, names in in_groups)
    never = [name for name in schema.column_names if all(name not in names for _, names in in_groups)]

    def blanks() -> Iterator[Blank]:
        yield Blank(RETRACTS, _counting_nothing(schema, options, engine, never))
        for group, names in in_groups:
            counting_nothing = _counting_nothing(schema, options, engine, names)
            yield Blank(RETRACTS, counting_nothing, nulls=group.ordering)
            if removing:
                # It is no event of the other groups: what it says of their order would stay behind.
                ordering = () if group.removes_record else _nullable(schema, group.ordering)
                yield Blank((RowKind.DELETE,), (*counting_nothing, *ordering), values=removing)

    return RetractRule(
        removes=False,
        removing_groups=() if has_functions else removing_groups,
        alone=RETRACTS if has_functions else (),
        blanks=tuple(each for each in blanks() if each.columns),
    )


def _retracts(function: ColumnAggregate) -> bool:
    return CAPABILITIES[function.name].takes_retracts and not function.ignore_retract


def _counting_nothing(
    schema: TableSchema, options: CoreOptions, engine: EngineOptions, names: Iterable[str]
) -> tuple[str, ...]:
    """The columns among these that neither place nor order rows, nor count an empty value."""
    kept = {*schema.primary_keys, *schema.partition_keys, *options.sequence_field, *_ordering(engine.groups)}
    kept |= {name for name, function in engine.functions.items() if _counts_blank(schema, name, function)}
    if options.rowkind_field is not None:
        kept.add(options.rowkind_field)
    time = options.record_level_time_field
    if time is not None and time in schema.by_name and not schema.by_name[time].type.nullable:
        kept.add(time)  # an empty time is one that has expired
    return tuple(name for name in names if name not in kept)


def _nullable(schema: TableSchema, names: Iterable[str]) -> tuple[str, ...]:
    return tuple(name for name in names if schema.by_name[name].type.nullable)


def _ordering(groups: Iterable[SequenceGroup]) -> Iterator[str]:
    for group in groups:
        yield from group.ordering


def _counts_blank(schema: TableSchema, name: str, function: ColumnAggregate) -> bool:
    return not schema.by_name[name].type.nullable and CAPABILITIES[function.name].counts_blank
