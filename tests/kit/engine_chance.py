"""Tables with merge engines by chance: `any_shape` combines functions, groups and options at random."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from random import Random
from typing import Final

from tests.contract.cases import SCALARS
from tests.kit.engine_columns import (
    COMPARABLE,
    EVERY_COLUMN,
    KEYED_COLUMNS,
    LISTS,
    MAPS,
    ORDER,
    TIMED,
    Column,
    columns_of,
    timed_entries,
    with_function,
)
from tests.kit.engine_histories import ADDS, EVERY_KIND, Shape
from tests.kit.engine_shapes import LISTAGGS, NESTED_UPDATES, NUMBER_COLUMNS, REMOVING, sequence_group

_RETRACTABLE: Final = (
    *with_function("sum", NUMBER_COLUMNS).values(),
    *with_function(
        "product", {"i": Column("BIGINT", (-2, 1, 2, 3)), "d": Column("DECIMAL(9, 2)", (Decimal("2.00"),))}
    ).values(),
    *with_function("last_value", EVERY_COLUMN).values(),
    *with_function("last_non_null_value", EVERY_COLUMN).values(),
    *with_function("collect", LISTS).values(),
    *with_function("merge_map", MAPS).values(),
    *NESTED_UPDATES.values(),
    *with_function("collect", LISTS, distinct="true").values(),
)
_ONLY_ADDS: Final = (
    *with_function("max", columns_of(COMPARABLE)).values(),
    *with_function("min", columns_of(COMPARABLE)).values(),
    *with_function("first_value", EVERY_COLUMN).values(),
    *with_function("first_non_null_value", EVERY_COLUMN).values(),
    *with_function("bool_and", {"b": Column("BOOLEAN")}).values(),
    *with_function("bool_or", {"b": Column("BOOLEAN")}).values(),
    *LISTAGGS.values(),
    *with_function("merge_map_with_keytime", {"m": Column(TIMED, timed_entries)}).values(),
    *with_function("nested_partial_update", KEYED_COLUMNS).values(),
)


def any_shape(source: Random) -> Shape:
    """A table of aggregation or partial-update with columns, groups and options as chance has it."""
    return _any_aggregation(source) if source.random() < 0.4 else _any_partial_update(source)


def _any_function(source: Random, *, may_ignore: bool = True, may_be_first: bool = True) -> Column:
    others = _ONLY_ADDS if may_be_first else [one for one in _ONLY_ADDS if not _is_first(one)]
    column = source.choice(_RETRACTABLE if source.random() < 0.6 else others)
    if may_ignore and source.random() < 0.3:
        return replace(column, options={**column.options, "ignore-retract": "true"})
    return column


def _is_first(column: Column) -> bool:
    """Refused where deletes remove rows."""
    return column.options.get("aggregate-function", "").startswith("first")


def _takes_retracts(column: Column) -> bool:
    return column in _RETRACTABLE or "aggregate-function" not in column.options or "ignore-retract" in column.options


def _unordered(columns: Mapping[str, Column]) -> tuple[str, ...]:
    """Columns whose elements have no order."""
    return tuple(
        name
        for name, one in columns.items()
        if "nested-key" in one.options
        or (one.options.get("aggregate-function") == "collect" and "distinct" in one.options)
    )


def _any_order(source: Random, columns: dict[str, Column], options: dict[str, str]) -> None:
    """Sometimes a sequence.field."""
    if source.random() < 0.3:
        columns["seq"] = source.choice((ORDER, Column("STRING", ("a", "b", "ab")), Column("DATE")))
        options["sequence.field"] = "seq"
        options["sequence.field.sort-order"] = source.choice(("ascending", "descending"))


def _any_aggregation(source: Random) -> Shape:
    options = {"merge-engine": "aggregation"}
    removes = source.random() < 0.25
    columns = {
        f"c{index}": _any_function(source, may_ignore=not removes, may_be_first=not removes)
        for index in range(source.randint(1, 5))
    }
    kinds: Sequence[str] = EVERY_KIND if all(map(_takes_retracts, columns.values())) else ADDS
    if removes:
        options["aggregation.remove-record-on-delete"] = "true"
        kinds = (*kinds, "-D")
    _any_order(source, columns, options)
    lookup = source.random() < 0.25
    if lookup:
        options["force-lookup"] = "true"
    partitioned = not lookup and source.random() < 0.2
    return Shape("any aggregation", columns, options, kinds, sets=_unordered(columns), partitioned=partitioned)


def _any_partial_update(source: Random) -> Shape:
    options = {"merge-engine": "partial-update"}
    columns: dict[str, Column] = {}
    silent: list[str] = []
    removing: list[str] = []
    for group in range(source.randint(0, 3)):
        ordering = [f"g{group}{part}" for part in range(source.randint(1, 2))]
        protected = {
            f"p{group}{part}": _any_function(source) if source.random() < 0.5 else Column(source.choice(SCALARS))
            for part in range(source.randint(1, 3))
        }
        columns |= protected | dict.fromkeys(ordering, ORDER)
        options |= sequence_group(",".join(source.sample(ordering, len(ordering))), ",".join(protected))
        if not all(map(_takes_retracts, protected.values())):
            silent += ordering
        elif source.random() < 0.3:
            removing.append(source.choice(ordering))
    has_groups = bool(columns)
    columns |= {f"f{index}": Column(source.choice(SCALARS)) for index in range(source.randint(0 if columns else 1, 2))}
    kinds: Sequence[str] = EVERY_KIND
    if source.random() < 0.15:
        options["ignore-delete"] = "true"
    elif removing and not any(map(_is_first, columns.values())):
        options[REMOVING] = ",".join(removing)
    elif not has_groups and source.random() < 0.7:
        options["partial-update.remove-record-on-delete"] = "true"
        kinds = (*ADDS, "-D")  # a -U alone is refused
    elif not has_groups:
        kinds = ADDS
    names = source.sample(list(columns), len(columns))
    columns = {name: columns[name] for name in names}
    _any_order(source, columns, options)
    if source.random() < 0.2:
        options["force-lookup"] = "true"
    return Shape("any partial-update", columns, options, kinds, sets=_unordered(columns), without_order=tuple(silent))
