"""The projections of Spark that compute the columns of `select` from a decoder's rows.

    decoder's rows ─ scope: fields and metadata by name ─ expressions ─ into the columns' types ─ rules ─ outcomes

A row for which one of the `cases` holds becomes a dead letter. Of two rows of one record each carries what decides over
the other one (`decode.outcome_batches`), so that the record is one dead letter or applied as a whole. Columns that the
decoder fills are not touched.

Expressions are analysed with ANSI mode on, names case-sensitive and times in UTC, whatever the session says. They are
evaluated for rows alone, not for dead letters and tallies that pass by.

The rules of `expect` as Spark computes them, over the values that a row has for the columns of its table.

They mean what `decode.expectations` says. Where Spark computes one of them it computes all, so that the most severe one
decides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the customary name
from pyspark.sql import types as spark_types

from freshet._frozen import Frozen
from freshet.pipeline.config.source_options import nearest
from freshet.pipeline.decode.outcome_batches import OTHER_PREFIX, other_columns, scope_columns
from freshet.pipeline.decode.outcomes import (
    BUCKET,
    COLUMN,
    DATA_PREFIX,
    HEAD_SCHEMA,
    KAFKA_PARTITION,
    KIND,
    OFFSET,
    RAW_KEY,
    RAW_VALUE,
    REASON,
    SUB,
    TAG,
    TAG_DATA,
    TAG_DEAD,
    TAG_GONE,
    TIMESTAMP,
    TOPIC,
    UNAVAILABLE,
)
from freshet.pipeline.decode.plan import ColumnPlan, DecodePlan, PlannedRule, References
from freshet.pipeline.decode.raw_records import PREFIX
from freshet.pipeline.exceptions import ConfigurationError
from freshet.pipeline.sources.select.cases import OTHER, SELF, Case, Cases, Row, SparkColumn, kept
from freshet.pipeline.sources.select.expression import (
    SelectExpression,
    cast_class,
    parse_select,
    possible_failures,
    tried,
)
from freshet.pipeline.sources.select.stored_value import stored_value, zero_text
from freshet.pipeline.spark.arrow_batches import settings_in_force
from freshet.pipeline.spark.arrow_bridge import spark_type

_ANALYSIS_SETTINGS: Final = {
    "spark.sql.ansi.enabled": "true",
    "spark.sql.caseSensitive": "true",
    "spark.sql.session.timeZone": "UTC",
}
_IN_HEAD: Final = {"_topic": TOPIC, "_partition": KAFKA_PARTITION, "_offset": OFFSET, "_timestamp": TIMESTAMP}


def read_references(spark: SparkSession, texts: Mapping[str, str]) -> dict[str, References]:
    """What the expressions of some columns read; raises `ConfigurationError` naming the one that is not SQL."""
    return {column: parse_select(spark, column, text).references for column, text in texts.items()}


def select_columns(frame: DataFrame, plan: DecodePlan) -> DataFrame:
    """The outcomes of a decoder with the columns that Spark computes; the appended columns are left behind.

    Raises `ConfigurationError` naming the entry of `select` that Spark cannot analyse or whose type does not go with
    its column.
    """
    with settings_in_force(frame.sparkSession, _ANALYSIS_SETTINGS):
        return _Projection(frame, plan).frame()


def select_failures(frame: DataFrame, plan: DecodePlan) -> dict[str, tuple[str, ...]]:
    """What may go wrong while Spark computes a column, by the column's name; such records become dead letters."""
    with settings_in_force(frame.sparkSession, _ANALYSIS_SETTINGS):
        return _Projection(frame, plan).failures()


class _Projection:
    """Three projections for a row, and three for the other row of its record where one of the two may be a dead
    letter: the expressions, their values in the columns' types, the first case that holds. Then the outcomes."""

    def __init__(self, frame: DataFrame, plan: DecodePlan) -> None:
        self._plan = plan
        self._head = [each.name for each in HEAD_SCHEMA]
        self._data = [f"{DATA_PREFIX}{index}" for index in range(len(plan.columns))]
        self._others = list(other_columns(plan))
        names = (*self._head, *self._data, *self._others)
        self._scope = frame.select(*(F.col(name).alias(PREFIX + name) for name in names), *_scope(plan))
        self._computed: dict[int, SparkColumn] = {}
        for index in plan.expressions:
            column = plan.columns[index]
            assert column.expression is not None
            expression = parse_select(frame.sparkSession, column.field.name, column.expression)
            self._computed[index] = self._analysed(column, expression)
        self._cases = Cases(plan, self._computed)
        self._rules = _judged_rules(frame.sparkSession, plan)
        self._refuse_no_conditions()
        if plan.has_several_rows:
            self._refuse_doubtful()

    def _refuse_no_conditions(self) -> None:
        """Refuses rules that Spark cannot analyse over the columns of the table, or that are no conditions."""
        if not self._rules:
            return
        types = {column.field.name: spark_type(column.field.type) for column in self._plan.columns}
        empty = self._scope.select(*(F.lit(None).cast(data_type).alias(name) for name, data_type in types.items()))
        for each in self._rules:
            given = _analysed(empty, f"expect.{each.rule.name}: {each.rule.text!r}", each.expression)[1]
            if given != spark_types.BooleanType():
                raise ConfigurationError(
                    f"expect.{each.rule.name}: {each.rule.text!r} is {given.simpleString().upper()}, and a rule is a "
                    "condition: true or false"
                )

    def _cases_of(self, row: Row) -> list[Case]:
        return [*self._cases.of(row), *_rule_cases(self._rules, row)]

    def _refuse_doubtful(self) -> None:
        """The rows of a record are applied together, and Spark sees one at a time: none may be a dead letter here."""
        for rule in self._rules:
            raise ConfigurationError(
                f"expect.{rule.rule.name}: only Spark computes {rule.rule.text!r}, and a record of {self._plan.format} "
                "has several rows, which are applied together; use a simpler condition"
            )
        for index, each in self._computed.items():
            if self._cases.may_hold(index):
                raise ConfigurationError(
                    f"select.{each.column.field.name}: {each.expression.text!r} may fail, or fills a column that needs "
                    f"a value, and a record of {self._plan.format} has several rows, which are applied together; let "
                    "the field fill the column as it is (its type: `schema`), or use an expression that cannot fail"
                )

    def failures(self) -> dict[str, tuple[str, ...]]:
        """What may go wrong while a column is computed, by the column's name."""
        return {each.column.field.name: each.failures for each in self._computed.values() if each.failures}

    def frame(self) -> DataFrame:
        """The whole chain."""
        cases = self._cases_of(SELF)
        frame = self._judged(self._scope, cases, SELF)
        if not cases or not self._others:
            return frame.select(*self._outcome(F.col(SELF.error), cases))
        others = [F.col(name) for name in frame.columns if name.startswith(PREFIX)]
        scope = _scope(self._plan, lambda name: kept(OTHER_PREFIX + name), lambda name: kept(name))
        frame = self._judged(frame.select(*others, *scope), self._cases_of(OTHER), OTHER)
        own, other, is_second = F.col(SELF.error), F.col(OTHER.error), kept(SUB) > 0
        # Both rows have the reason of the row after the change, if it has one: one record is one dead letter.
        error = F.when(is_second, F.coalesce(own, other)).otherwise(F.coalesce(other, own))
        judged = f"{PREFIX}judged"
        return frame.select("*", error.alias(judged)).select(*self._outcome(F.col(judged), cases))

    def _judged(self, frame: DataFrame, cases: Sequence[Case], row: Row) -> DataFrame:
        """The frame with the values of its expressions and the number of the first case that holds for them."""
        inner = [F.col(name) for name in frame.columns if name.startswith(PREFIX)]
        outputs = []
        computed = {index: each for index, each in self._computed.items() if row is SELF or self._is_needed(index)}
        for index, each in computed.items():
            value, lost = each.expression.value, each.expression.lost
            if each.is_tried:
                parts = [value.alias("value"), *([] if lost is None else [lost.alias("lost")])]
                outputs.append(F.when(row.exists, tried(F.struct(*parts))).alias(row.tried(index)))
                continue
            outputs.append(F.when(row.exists, value).alias(row.computed(index)))
            if lost is not None:
                outputs.append((row.exists & lost).alias(row.lost(index)))
        stored = [
            stored_value(each.column, each.given, self._cases.given(index, row)).alias(row.value(index))
            for index, each in computed.items()
        ]
        values = frame.select(*inner, *outputs).select("*", *stored)
        names = {self._plan.columns[index].field.name: index for rule in self._rules for index in rule.reads}
        results = {name: self._cases.result(index, row) for name, index in names.items()}
        values = _with_judgements(values, self._rules, results, row)
        chosen = F.lit(None).cast("int")
        for number, case in reversed(list(enumerate(cases))):
            chosen = F.when(case.condition, F.lit(number)).otherwise(chosen)
        return values.select("*", F.when(row.exists, chosen).alias(row.error))

    def _is_needed(self, index: int) -> bool:
        """Whether it depends on a column if its row is refused."""
        return self._cases.may_hold(index) or any(index in rule.reads for rule in self._rules)

    def _analysed(self, column: ColumnPlan, expression: SelectExpression) -> SparkColumn:
        node, given = _analysed(self._scope, f"select.{column.field.name}: {expression.text!r}", expression)
        return SparkColumn(column, expression, possible_failures(node, cast_class(self._scope.sparkSession)), given)

    def _outcome(self, error: Column, cases: Sequence[Case]) -> list[Column]:
        is_dead = error.isNotNull()
        was_dead = kept(TAG) != F.lit(TAG_DATA)
        reasons = F.array(*(F.lit(case.reason) for case in cases)) if cases else None
        columns = F.array(*(F.lit(case.column) for case in cases)) if cases else None
        raw_stays = is_dead | was_dead | kept(UNAVAILABLE).isNotNull()
        head = {name: kept(name) for name in self._head}
        if reasons is not None and columns is not None:
            head[REASON] = F.coalesce(kept(REASON), F.get(reasons, error))
            head[COLUMN] = F.coalesce(kept(COLUMN), F.get(columns, error))
        # Left out by the task: a filter here would be pushed below the projections, and compute all of them twice.
        own = F.get(F.array(*(F.lit(case.tag) for case in cases)), error) if cases else F.lit(TAG_DEAD)
        dead = F.when(kept(SUB) > 0, F.lit(TAG_GONE)).otherwise(own) if self._others else own
        head[TAG] = F.when(is_dead, dead).otherwise(kept(TAG)).cast("tinyint")
        head[RAW_KEY] = F.when(raw_stays, kept(RAW_KEY))
        head[RAW_VALUE] = F.when(raw_stays, kept(RAW_VALUE))
        for name in (KIND, UNAVAILABLE, BUCKET):
            head[name] = F.when(~is_dead, kept(name))
        data = [self._final(index).alias(name) for index, name in enumerate(self._data)]
        return [*(column.alias(name) for name, column in head.items()), *data]

    def _final(self, index: int) -> Column:
        column, value = self._plan.columns[index], self._cases.result(index, SELF)
        if index not in self._computed or column.field.type.nullable or column.is_key:
            return value
        zero = F.expr(zero_text(column.field.type))
        return F.when(SELF.exists & SELF.is_delete, F.coalesce(value, zero)).otherwise(value)


def _analysed(frame: DataFrame, where: str, expression: SelectExpression) -> tuple[Any, spark_types.DataType]:
    """The tree of an expression and the type that it gives. Refuses what Spark cannot analyse over the columns of this
    frame, and what is not one value per row."""
    try:
        computed = frame.select(expression.value.alias("value"))
        plan = computed._jdf.queryExecution().analyzed()  # type: ignore[operator]
    except AnalysisException as error:
        message = str(error).strip().splitlines()[0]
        raise ConfigurationError(f"{where} cannot be analysed: {message}") from error
    below = frame._jdf.queryExecution().analyzed()  # type: ignore[operator]
    if plan.getClass().getSimpleName() != "Project" or not plan.child().equals(below):
        raise ConfigurationError(f"{where} must give one value per row (no aggregate, window or generator)")
    if not plan.projectList().apply(0).deterministic():
        raise ConfigurationError(f"{where} would give another value when a batch is replayed (not deterministic)")
    return plan.projectList().apply(0), computed.schema[0].dataType


def _scope(
    plan: DecodePlan, appended: Callable[[str], Column] = F.col, in_head: Callable[[str], Column] = F.col
) -> list[Column]:
    """What expressions see: payload fields and metadata under their names."""
    columns: list[Column] = []
    members: list[Column] = []
    for name, each in scope_columns(plan).items():
        (members if each.is_member else columns).append(appended(name).alias(each.name))
    if members:
        columns.append(F.struct(*members).alias("_source"))
    read = {each.name for each in plan.scope if not each.is_member}
    columns += [in_head(inner).alias(name) for name, inner in _IN_HEAD.items() if name in read]
    return columns


class _JudgedRule(Frozen):
    """One rule, and the indexes of the columns that it reads."""

    rule: PlannedRule
    expression: SelectExpression
    reads: tuple[int, ...]


def _judged_rules(spark: SparkSession, plan: DecodePlan) -> list[_JudgedRule]:
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
        found.append(_JudgedRule(rule, expression, tuple(indexes[name] for name in names)))
    return found


def _with_judgements(values: DataFrame, rules: list[_JudgedRule], results: Mapping[str, Column], row: Row) -> DataFrame:
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


def _rule_cases(rules: list[_JudgedRule], row: Row) -> Iterator[Case]:
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
