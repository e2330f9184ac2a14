"""The rules of `expect` as Spark computes them, over the values that a row has for the columns of its table.

They mean what `decode.expectations` says. Where Spark computes one of them it computes all, so that the most severe one
decides.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the customary name

from freshet._frozen import Frozen
from freshet.pipeline.config.rules import nearest
from freshet.pipeline.decode.plan import DecodePlan, PlannedRule
from freshet.pipeline.exceptions import ConfigurationError
from freshet.pipeline.sources.select.cases import Case
from freshet.pipeline.sources.select.expression import SelectExpression, parse_select, tried
from freshet.pipeline.sources.select.row import Row


class JudgedRule(Frozen):
    """One rule, and the indexes of the columns that it reads."""

    rule: PlannedRule
    expression: SelectExpression
    reads: tuple[int, ...]


def judged_rules(spark: SparkSession, plan: DecodePlan) -> list[JudgedRule]:
    """The rules that Spark computes. Raises `ConfigurationError` naming the one that is not SQL, or reads what is no
    column of the table."""
    if not plan.judges_by_spark:
        return []
    indexes = {column.field.name: index for index, column in enumerate(plan.columns)}
    found = []
    for rule in plan.rules:
        expression = parse_select(spark, rule.name, rule.text, "expect")
        names = sorted({reference[0] for reference in expression.references})
        for name in names:
            if name not in indexes:
                raise ConfigurationError(
                    f"expect.{rule.name}: {rule.text!r} reads {name}, which is no column of the table"
                    f"{nearest(name, indexes)}"
                )
        found.append(JudgedRule(rule, expression, tuple(indexes[name] for name in names)))
    return found


def with_judgements(values: DataFrame, rules: list[JudgedRule], results: Mapping[str, Column], row: Row) -> DataFrame:
    """The frame with what each rule gives; `results` are the values of the table's columns by their names."""
    if not rules:
        return values
    inner = [F.col(name) for name in values.columns]
    named = values.select(*inner, *(column.alias(name) for name, column in results.items()))
    judgements = []
    for number, each in enumerate(rules):
        lost = F.lit(False) if each.expression.lost is None else each.expression.lost
        pair = tried(F.struct(each.expression.value.alias("value"), lost.alias("lost")))
        judgements.append(F.when(row.exists & ~row.is_retract, pair).alias(row.judged(number)))
    return named.select(*inner, *judgements)


def rule_cases(rules: list[JudgedRule], row: Row) -> Iterator[Case]:
    """The rules that a row breaks, the most severe first."""
    for number, each in enumerate(rules):
        judgement = F.col(row.judged(number))
        holds = F.coalesce(judgement.getField("value"), F.lit(True)) & ~F.coalesce(
            judgement.getField("lost"), F.lit(False)
        )
        is_broken = judgement.isNull() | ~holds
        for index in each.reads:
            is_broken = is_broken & ~row.stays(index)
        condition = row.exists & ~row.is_retract & is_broken
        yield Case(condition, each.rule.column, each.rule.name, each.rule.tag)
