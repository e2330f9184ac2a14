"""The rules of `expect` over the columns of a table: planned for one source, and judged by masks over a whole block.

| a rule | |
|---|---|
| is false, or cannot be computed (a cast, a division by zero) | broken |
| is NULL | holds, as a CHECK of SQL |
| of a row -U or -D | not judged: nothing that takes a row away is held back |
| reads a column whose stored value is kept (unchanged TOAST) | holds: the value was judged when it was stored |
| reads a column that the source does not fill | not planned for this source |

A record is judged as a whole, and counts for one rule: the most severe one that a row of it breaks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from freshet._frozen import Frozen
from freshet.pipeline.config.expectations import Expectation, by_severity
from freshet.pipeline.config.source_options import nearest
from freshet.pipeline.decode.carriers import carrier_arrow_type
from freshet.pipeline.decode.change import DELETE, UPDATE_BEFORE
from freshet.pipeline.decode.convert.converter import Mask
from freshet.pipeline.decode.images import Images, RowIndexes
from freshet.pipeline.decode.outcomes import TAG_DROPPED, TAG_QUARANTINED, TAG_STOPPED
from freshet.pipeline.decode.plan import ColumnPlan, DecodePlan, PlannedRule
from freshet.pipeline.exceptions import ConfigurationError
from freshet.storage.model.data_type import DataField

if TYPE_CHECKING:
    from freshet.pipeline.expressions.evaluation import ExpressionSql
    from freshet.pipeline.expressions.grammar import Parsed
    from freshet.pipeline.expressions.values import Value

_TAGS: Final = {"quarantine": TAG_QUARANTINED, "drop": TAG_DROPPED, "stop": TAG_STOPPED}

ONLY_SPARK: Final = "only Spark computes {sql!r} over the columns of the table"


class Condition(Frozen):
    """A rule over the columns of a table: the indexes of those that it reads, None where only Spark finds them, and
    what is true where a row breaks it, None where only Spark computes that."""

    reads: tuple[int, ...] | None
    sql: ExpressionSql | None


def condition_of(fields: Sequence[DataField], sql: str) -> Condition:
    """The condition over columns of these types. Raises `ConfigurationError` where it reads what is none of them, or is
    no condition."""
    from freshet.pipeline.expressions.column_expression import carrier
    from freshet.pipeline.expressions.evaluation import ExpressionSql, column_sql
    from freshet.pipeline.expressions.grammar import NotOursError
    from freshet.pipeline.expressions.translator import Translator
    from freshet.pipeline.expressions.values import BOOLEAN, Value, either, spark_name

    columns = {each.name: index for index, each in enumerate(fields)}
    lacking = lacking_column(columns, sql)
    if lacking is not None:
        raise ConfigurationError(f"{sql!r} reads {lacking}, which is no column of the table{nearest(lacking, columns)}")
    found = parsed(sql)
    if found is None:
        return Condition(None, None)
    reads = tuple(sorted({columns[each[0]] for each in found.references}))
    try:
        known: dict[tuple[str, ...], Value] = {
            (fields[index].name,): Value(column_sql(index), carrier(fields[index].type)) for index in reads
        }
        value = Translator(known).value(found.tree)
    except NotOursError:
        return Condition(reads, None)
    if value.type != BOOLEAN:
        given = "NULL" if value.type is None else spark_name(value.type)
        raise ConfigurationError(f"{sql!r} is {given}, and a rule is a condition: true or false")
    is_broken = f"coalesce(NOT ({value.sql}), false)"
    return Condition(reads, ExpressionSql(either(is_broken, value.fails)))


def lacking_column(columns: Mapping[str, object], sql: str) -> str | None:
    """What a condition reads that is none of these columns; None where there is nothing, or only Spark finds it."""
    found = parsed(sql)
    names = () if found is None else (each[0] for each in sorted(found.references))
    return next((name for name in names if name not in columns), None)


def parsed(sql: str) -> Parsed | None:
    """An expression; None where only Spark knows it."""
    from freshet.pipeline.expressions.grammar import NotOursError, parse

    try:
        return parse(sql)
    except NotOursError:
        return None


def with_rules(plan: DecodePlan, rules: Mapping[str, Expectation], *, by_spark: bool = False) -> DecodePlan:
    """The plan, whose rows are judged by those of the rules of which the source fills the columns.

    One that the decoder cannot compute leaves all of them to Spark (`PlannedRule.local` None), and so does `by_spark`.
    Raises `ConfigurationError` naming the rule that is no condition, or reads what is no column of the table.
    """
    planned = [each for name, rule in by_severity(rules) if (each := _planned(plan, name, rule)) is not None]
    if by_spark or any(each.local is None for each in planned):
        planned = [replace(each, local=None) for each in planned]
    return replace(plan, rules=tuple(planned)) if planned else plan


def _planned(plan: DecodePlan, name: str, rule: Expectation) -> PlannedRule | None:
    """The rule for this source; None where the source fills not all of its columns."""
    try:
        condition = condition_of([column.field for column in plan.columns], rule.sql)
    except ConfigurationError as error:
        raise ConfigurationError(f"expect.{name}: {error}") from error
    columns = [plan.columns[index] for index in condition.reads or ()]
    if not all(map(_is_filled, columns)):
        return None
    is_late = any(column.expression is not None for column in columns)
    only = columns[0].field.name if len(columns) == 1 else None
    return PlannedRule(name, rule.sql, _TAGS[rule.action], only, condition.reads, None if is_late else condition.sql)


def _is_filled(column: ColumnPlan) -> bool:
    given = (column.direct, column.member, column.metadata, column.expression, column.local, column.computed)
    return any(each is not None for each in (*given, column.default))


def rule_columns(plan: DecodePlan) -> frozenset[int]:
    """The indexes of the columns that the rules read; all, where only Spark knows."""
    if any(rule.reads is None for rule in plan.rules):
        return frozenset(range(len(plan.columns)))
    return frozenset(index for rule in plan.rules for index in rule.reads or ())


def broken_records(
    plan: DecodePlan, columns: Sequence[pa.Array], images: Images, kept: Mapping[int, Mask], dead: RowIndexes
) -> tuple[RowIndexes, RowIndexes]:
    """The records that break a rule, but for these dead letters, and the number of the rule that each counts for.

    `columns` are the table's by index, `kept` says where a column's stored value is kept.
    """
    from freshet.pipeline.expressions.evaluation import evaluate

    count = len(images.records)
    reads = sorted(rule_columns(plan))
    inputs = {index: columns[index].cast(carrier_arrow_type(plan.columns[index].field.type)) for index in reads}
    results = evaluate(inputs, count, [rule.local for rule in plan.rules if rule.local is not None])
    is_judged = (images.kinds != DELETE) & (images.kinds != UPDATE_BEFORE)
    if len(dead):
        is_judged &= ~np.isin(images.records, dead)
    numbers = np.full(count, len(plan.rules))
    for number, (rule, result) in reversed(list(enumerate(zip(plan.rules, results, strict=True)))):
        is_broken = is_judged & np.asarray(result.values.fill_null(True)).astype(bool)
        for index in rule.reads or ():
            if index in kept:
                is_broken &= ~kept[index]
        numbers[is_broken] = number
    rows = np.flatnonzero(numbers < len(plan.rules))
    if not len(rows):
        return rows, rows
    order = rows[np.lexsort((numbers[rows], images.records[rows]))]  # of each record the most severe first
    records, first = np.unique(images.records[order], return_index=True)
    return records, numbers[order][first]
