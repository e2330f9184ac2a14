"""`select`: the columns that are more than a name, computed by Spark over the flat columns that a decoder appends.

    decoder's rows ─ scope: fields and metadata by name ─ expressions ─ into the columns' types ─ rules ─ outcomes

| given | column | rule |
|---|---|---|
| the column's carrier | any | lengths, ranges and fraction digits are checked |
| STRING | any but text | as text, by the decoder's conversions (an Arrow function): numbers, ISO times |
| STRING | BINARY | its UTF-8 bytes |
| a number | a number | TRY_CAST: rounded to the scale, NULL when out of range |
| DATE, TIMESTAMP, TIMESTAMP_NTZ | TIMESTAMP of either kind | in UTC |
| a whole number | TIME, TIMESTAMP(7-9) | in the carrier's unit |
| anything | STRING | its text, nested values as JSON |
| all other pairs | | refused before the start, naming the column |

A row whose expression fails (`select_failures` says which may), lost a value in a cast, gave one that does not fit, or
breaks a rule of its row (`decode.row_rules`, here for the columns that Spark computes) becomes a dead letter. Of two
rows of one record each carries what decides over the other one (`decode.outcome_batches`), so that the record is one
dead letter or applied as a whole. Columns that the decoder fills are not touched.

Expressions are analysed with ANSI mode on, names case-sensitive and times in UTC, whatever the session says. They are
evaluated for rows alone, not for dead letters and tallies that pass by.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce
from typing import Final

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the customary name
from pyspark.sql import types as spark_types

from freshet.pipeline.decode.carriers import is_nanos
from freshet.pipeline.decode.change import DELETE, UPDATE_BEFORE
from freshet.pipeline.decode.convert.by_type import convert_texts
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
from freshet.pipeline.decode.plan import ColumnPlan, DecodePlan, References
from freshet.pipeline.decode.raw_records import PREFIX
from freshet.pipeline.decode.row_rules import KEY_NULL, NOT_NULL, SEQUENCE_NULL
from freshet.pipeline.exceptions import ConfigurationError
from freshet.pipeline.sources.select_expression import SelectExpression, cast_class, parse_select, tried
from freshet.pipeline.sources.select_failures import possible_failures
from freshet.pipeline.spark.arrow_bridge import spark_type
from freshet.storage.model.data_type import LENGTH_MAX, ArrayType, DataType, MapType, RowType, ScalarType, TypeRoot

_ANALYSIS_SETTINGS: Final = {
    "spark.sql.ansi.enabled": "true",
    "spark.sql.caseSensitive": "true",
    "spark.sql.session.timeZone": "UTC",
}
_WHOLE: Final = (spark_types.ByteType, spark_types.ShortType, spark_types.IntegerType, spark_types.LongType)
_NUMBERS: Final = (*_WHOLE, spark_types.FloatType, spark_types.DoubleType, spark_types.DecimalType)
_TIMES: Final = (spark_types.DateType, spark_types.TimestampType, spark_types.TimestampNTZType)
_NESTED: Final = (spark_types.ArrayType, spark_types.MapType, spark_types.StructType)
_TEXTS: Final = frozenset({TypeRoot.CHAR, TypeRoot.VARCHAR})
_BINARIES: Final = frozenset({TypeRoot.BINARY, TypeRoot.VARBINARY})
_TIMESTAMPS: Final = frozenset({TypeRoot.TIMESTAMP, TypeRoot.TIMESTAMP_LTZ})
_IN_HEAD: Final = {"_topic": TOPIC, "_partition": KAFKA_PARTITION, "_offset": OFFSET, "_timestamp": TIMESTAMP}


def read_references(spark: SparkSession, texts: Mapping[str, str]) -> dict[str, References]:
    """What the expressions of some columns read; raises `ConfigurationError` naming the one that is not SQL."""
    return {column: parse_select(spark, column, text).references for column, text in texts.items()}


def select_columns(frame: DataFrame, plan: DecodePlan) -> DataFrame:
    """The outcomes of a decoder with the columns that Spark computes; the appended columns are left behind.

    Raises `ConfigurationError` naming the entry of `select` that Spark cannot analyse or whose type does not go with
    its column.
    """
    with _analysis_settings(frame.sparkSession):
        return _Projection(frame, plan).frame()


def select_failures(frame: DataFrame, plan: DecodePlan) -> dict[str, tuple[str, ...]]:
    """What may go wrong while Spark computes a column, by the column's name; such records become dead letters."""
    with _analysis_settings(frame.sparkSession):
        return _Projection(frame, plan).failures()


@dataclass(frozen=True, slots=True)
class _Case:
    """One way in which a row is a dead letter."""

    condition: Column
    column: str
    reason: str


@dataclass(frozen=True, slots=True)
class _Computed:
    """One column that Spark computes. `failures` says what may go wrong while it does, `given` is the type it gives;
    `may_misfit` is false where every value fits the column."""

    column: ColumnPlan
    expression: SelectExpression
    failures: tuple[str, ...]
    given: spark_types.DataType

    @property
    def is_tried(self) -> bool:
        return bool(self.failures)

    @property
    def may_misfit(self) -> bool:
        value = F.lit(None)
        return _stored(self.column, self.given, value) is not value


@dataclass(frozen=True, slots=True)
class _Row:
    """The names under which a projection has what it needs of a row: of the one itself, or of the other one of the
    same record (`prefix`)."""

    prefix: str = ""

    @property
    def kind(self) -> Column:
        return _kept(self.prefix + KIND)

    @property
    def is_delete(self) -> Column:
        return self.kind == F.lit(DELETE)

    @property
    def is_retract(self) -> Column:
        return self.is_delete | (self.kind == F.lit(UPDATE_BEFORE))

    @property
    def exists(self) -> Column:
        """True where there is such a row; only rows of the table have another one."""
        return self.kind.isNotNull() if self.prefix else _kept(TAG) == F.lit(TAG_DATA)

    @property
    def error(self) -> str:
        return f"{PREFIX}{self.prefix}error"

    def computed(self, index: int) -> str:
        return f"{PREFIX}{self.prefix}e{index}"

    def lost(self, index: int) -> str:
        return f"{PREFIX}{self.prefix}l{index}"

    def tried(self, index: int) -> str:
        return f"{PREFIX}{self.prefix}t{index}"

    def value(self, index: int) -> str:
        return f"{PREFIX}{self.prefix}w{index}"

    def data(self, index: int) -> Column:
        return _kept(f"{self.prefix}{DATA_PREFIX}{index}")

    def stays(self, index: int) -> Column:
        """True where the stored value of the column stays (unchanged TOAST)."""
        unavailable = _kept(self.prefix + UNAVAILABLE)
        return F.coalesce(F.array_contains(F.split(unavailable, ","), F.lit(str(index))), F.lit(False))


_SELF: Final = _Row()
_OTHER: Final = _Row(OTHER_PREFIX)


class _Projection:
    """Three projections for a row, and three for the other row of its record where one of the two may be a dead
    letter: the expressions, their values in the columns' types, the first case that holds. Then the outcomes."""

    def __init__(self, frame: DataFrame, plan: DecodePlan) -> None:
        self._plan = plan
        self._head = [each.name for each in HEAD_SCHEMA]
        self._data = [f"{DATA_PREFIX}{index}" for index in range(len(plan.columns))]
        self._others = list(other_columns(plan))
        kept = (*self._head, *self._data, *self._others)
        self._scope = frame.select(*(F.col(name).alias(PREFIX + name) for name in kept), *_scope(plan))
        self._computed: dict[int, _Computed] = {}
        for index in plan.expressions:
            column = plan.columns[index]
            assert column.expression is not None
            expression = parse_select(frame.sparkSession, column.field.name, column.expression)
            self._computed[index] = self._analysed(column, expression)

    def failures(self) -> dict[str, tuple[str, ...]]:
        """What may go wrong while a column is computed, by the column's name."""
        return {each.column.field.name: each.failures for each in self._computed.values() if each.failures}

    def frame(self) -> DataFrame:
        """The whole chain."""
        frame = self._judged(self._scope, self._cases(_SELF), _SELF)
        cases = self._cases(_SELF)
        if not cases or not self._others:
            return frame.select(*self._outcome(F.col(_SELF.error), cases))
        others = [F.col(name) for name in frame.columns if name.startswith(PREFIX)]
        scope = _scope(self._plan, lambda name: _kept(OTHER_PREFIX + name), lambda name: _kept(name))
        frame = self._judged(frame.select(*others, *scope), self._cases(_OTHER), _OTHER)
        own, other, is_second = F.col(_SELF.error), F.col(_OTHER.error), _kept(SUB) > 0
        # The row after a change is blamed first, by both; one record is one dead letter.
        error = F.when(is_second, F.coalesce(own, other)).otherwise(F.coalesce(other, own))
        judged = f"{PREFIX}judged"
        return frame.select("*", error.alias(judged)).select(*self._outcome(F.col(judged), cases))

    def _judged(self, frame: DataFrame, cases: Sequence[_Case], row: _Row) -> DataFrame:
        """The frame with the values of its expressions and the number of the first case that holds for them."""
        inner = [F.col(name) for name in frame.columns if name.startswith(PREFIX)]
        outputs = []
        computed = {index: each for index, each in self._computed.items() if row is _SELF or self._is_judged(index)}
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
            _stored(each.column, each.given, self._given(index, row)).alias(row.value(index))
            for index, each in computed.items()
        ]
        values = frame.select(*inner, *outputs).select("*", *stored)
        chosen = F.lit(None).cast("int")
        for number, case in reversed(list(enumerate(cases))):
            chosen = F.when(case.condition, F.lit(number)).otherwise(chosen)
        return values.select("*", F.when(row.exists, chosen).alias(row.error))

    def _is_judged(self, index: int) -> bool:
        """True for a column that may make its row a dead letter."""
        each = self._computed[index]
        column = each.column
        if each.failures or each.expression.lost is not None or each.may_misfit:
            return True
        grouped = any(column.field.name in (*group.ordering, *group.protected) for group in self._plan.groups)
        return column.is_key or column.is_sequence or grouped or not column.field.type.nullable

    def _given(self, index: int, row: _Row) -> Column:
        """What the expression gave."""
        if self._computed[index].is_tried:
            return F.col(row.tried(index)).getField("value")
        return F.col(row.computed(index))

    def _analysed(self, column: ColumnPlan, expression: SelectExpression) -> _Computed:
        """Refuses what Spark cannot analyse over these fields, and what is not one value per row."""
        where = f"select.{column.field.name}: {expression.text!r}"
        try:
            computed = self._scope.select(expression.value.alias("value"))
            plan = computed._jdf.queryExecution().analyzed()  # type: ignore[operator]
        except AnalysisException as error:
            message = str(error).strip().splitlines()[0]
            raise ConfigurationError(f"{where} cannot be analysed: {message}") from error
        below = self._scope._jdf.queryExecution().analyzed()  # type: ignore[operator]
        if plan.getClass().getSimpleName() != "Project" or not plan.child().equals(below):
            raise ConfigurationError(f"{where} must give one value per row (no aggregate, window or generator)")
        if not plan.projectList().apply(0).deterministic():
            raise ConfigurationError(f"{where} would give another value when a batch is replayed (not deterministic)")
        failures = possible_failures(plan.projectList().apply(0), cast_class(self._scope.sparkSession))
        return _Computed(column, expression, failures, computed.schema[0].dataType)

    def _cases(self, row: _Row) -> list[_Case]:
        return [*self._expression_cases(row), *self._rule_cases(row)]

    def _expression_cases(self, row: _Row) -> Iterator[_Case]:
        for index, each in self._computed.items():
            column, text = each.column, each.expression.text
            needed = F.lit(True) if column.is_vital else ~row.is_delete
            if each.is_tried:
                reason = f"{text!r} cannot be computed: {' or '.join(each.failures)}"
                yield _Case(F.col(row.tried(index)).isNull() & needed, column.field.name, reason)
            if each.expression.lost is not None:
                reason = f"a cast in {text!r} gave NULL for a value that was not NULL"
                tried_lost = F.col(row.tried(index)).getField("lost") if each.is_tried else F.col(row.lost(index))
                yield _Case(tried_lost & needed, column.field.name, reason)
            if each.may_misfit:
                reason = f"the value of {text!r} does not fit {column.field.type}"
                misfit = self._given(index, row).isNotNull() & F.col(row.value(index)).isNull()
                yield _Case(misfit & needed, column.field.name, reason)

    def _rule_cases(self, row: _Row) -> Iterator[_Case]:
        """The rules of `decode.row_rules` that read a column computed here."""
        for index, each in self._computed.items():
            column, is_null = each.column, F.col(row.value(index)).isNull()
            name = column.field.name
            if column.is_key:
                yield _Case(is_null, name, KEY_NULL)
                continue
            if column.is_sequence:
                yield _Case(is_null & row.is_delete, name, SEQUENCE_NULL)
            if not column.field.type.nullable:
                yield _Case(is_null & ~row.is_delete & ~row.stays(index), name, NOT_NULL)
        yield from self._group_cases(row)

    def _group_cases(self, row: _Row) -> Iterator[_Case]:
        indexes = {column.field.name: index for index, column in enumerate(self._plan.columns)}
        groups = self._plan.groups
        used = {indexes[name] for group in groups for name in (*group.ordering, *group.protected)}
        if used.isdisjoint(self._computed):
            return
        for group in groups:
            ordering = _all(self._result(indexes[name], row).isNull() for name in group.ordering)
            present = _any(
                self._result(indexes[name], row).isNotNull() | row.stays(indexes[name]) for name in group.protected
            )
            names = ", ".join(group.ordering)
            reason = f"NULL in the ordering of its sequence group ({names}): its values would never be taken"
            yield _Case(~row.is_retract & ordering & present, group.ordering[0], reason)
        lacks = _all(_any(self._result(indexes[name], row).isNull() for name in group.ordering) for group in groups)
        names = "; ".join(", ".join(group.ordering) for group in groups)
        reason = f"NULL in the ordering of the sequence group ({names}): the deletion would change nothing"
        yield _Case(row.is_retract & lacks, groups[0].ordering[0], reason)

    def _result(self, index: int, row: _Row) -> Column:
        return F.col(row.value(index)) if index in self._computed else row.data(index)

    def _outcome(self, error: Column, cases: Sequence[_Case]) -> list[Column]:
        is_dead = error.isNotNull()
        was_dead = _kept(TAG) != F.lit(TAG_DATA)
        reasons = F.array(*(F.lit(case.reason) for case in cases)) if cases else None
        columns = F.array(*(F.lit(case.column) for case in cases)) if cases else None
        raw_stays = is_dead | was_dead | _kept(UNAVAILABLE).isNotNull()
        head = {name: _kept(name) for name in self._head}
        if reasons is not None and columns is not None:
            head[REASON] = F.coalesce(_kept(REASON), F.get(reasons, error))
            head[COLUMN] = F.coalesce(_kept(COLUMN), F.get(columns, error))
        # Left out by the task: a filter here would be pushed below the projections, and compute all of them twice.
        dead = F.when(_kept(SUB) > 0, F.lit(TAG_GONE)).otherwise(F.lit(TAG_DEAD)) if self._others else F.lit(TAG_DEAD)
        head[TAG] = F.when(is_dead, dead).otherwise(_kept(TAG)).cast("tinyint")
        head[RAW_KEY] = F.when(raw_stays, _kept(RAW_KEY))
        head[RAW_VALUE] = F.when(raw_stays, _kept(RAW_VALUE))
        for name in (KIND, UNAVAILABLE, BUCKET):
            head[name] = F.when(~is_dead, _kept(name))
        data = [self._final(index).alias(name) for index, name in enumerate(self._data)]
        return [*(column.alias(name) for name, column in head.items()), *data]

    def _final(self, index: int) -> Column:
        column, value = self._plan.columns[index], self._result(index, _SELF)
        if index not in self._computed or column.field.type.nullable or column.is_key:
            return value
        zero = F.expr(_zero(column.field.type))
        return F.when(_SELF.exists & _SELF.is_delete, F.coalesce(value, zero)).otherwise(value)


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


def _stored(column: ColumnPlan, given: spark_types.DataType, value: Column) -> Column:
    """The value in the column's carrier, NULL where it does not fit; see the table of the module."""
    data_type = column.field.type
    carrier, root = spark_type(data_type), data_type.root
    if isinstance(given, spark_types.NullType):
        return F.lit(None).cast(carrier)
    if given.simpleString() == carrier.simpleString():
        return _checked(value, data_type)
    if isinstance(given, spark_types.StringType):
        return _checked(value.cast("binary"), data_type) if root in _BINARIES else _from_text(value, data_type)
    if root in _TEXTS:
        return _checked(F.to_json(value) if isinstance(given, _NESTED) else value.cast("string"), data_type)
    if isinstance(given, _NUMBERS) and isinstance(carrier, _NUMBERS):
        if root is not TypeRoot.TIME and not is_nanos(data_type):
            return value.try_cast(carrier)
        if isinstance(given, _WHOLE):
            return _checked(value.cast("bigint"), data_type)
    if isinstance(given, _TIMES) and root in _TIMESTAMPS:
        if is_nanos(data_type):
            return F.try_multiply(F.unix_micros(value.cast("timestamp")), F.lit(1000).cast("bigint"))
        return _checked(value.cast(carrier), data_type)
    raise ConfigurationError(
        f"select.{column.field.name}: gives {given.simpleString()}, the column is {data_type}; write a CAST to say "
        "what is meant"
    )


def _from_text(value: Column, data_type: DataType) -> Column:
    def convert(texts: pa.Array) -> pa.Array:
        return convert_texts(data_type, texts)

    return F.arrow_udf(convert, spark_type(data_type))(value)  # type: ignore[call-overload, no-any-return]


def _checked(value: Column, data_type: DataType) -> Column:
    """NULL where a value of the carrier's type does not fit."""
    if not isinstance(data_type, ScalarType):
        return value
    root, precision = data_type.root, data_type.precision or 0
    if (root in _TEXTS or root in _BINARIES) and data_type.length != LENGTH_MAX:
        return F.when(F.length(value) <= F.lit(data_type.length), value)
    if root is TypeRoot.TIME:
        fits = value.between(0, 86_399_999) & (value % F.lit(10 ** max(0, 3 - precision)) == 0)
        return F.when(fits, value)
    if is_nanos(data_type) and precision < 9:
        return F.when(value % F.lit(10 ** (9 - precision)) == 0, value)
    if root in _TIMESTAMPS and precision < 6:
        return F.when(F.unix_micros(value.cast("timestamp")) % F.lit(10 ** (6 - precision)) == 0, value)
    return value


def _zero(data_type: DataType) -> str:
    """SQL text of the zero of a type in its carrier."""
    carrier = spark_type(data_type).simpleString()
    match data_type:
        case ArrayType():
            return f"CAST(array() AS {carrier})"
        case MapType():
            return f"CAST(map() AS {carrier})"
        case RowType(fields=fields):
            parts = ["CAST(NULL AS VOID)" if field.type.nullable else _zero(field.type) for field in fields]
            return f"CAST(struct({', '.join(parts)}) AS {carrier})"
    match data_type.root:
        case TypeRoot.BOOLEAN:
            return "false"
        case TypeRoot.DATE:
            return "date_from_unix_date(0)"
        case root if root in _TEXTS or root in _BINARIES:
            return f"CAST('' AS {carrier})"
        case root if root in _TIMESTAMPS and not is_nanos(data_type):
            return f"CAST(timestamp_micros(0L) AS {carrier})"
        case _:
            return f"CAST(0 AS {carrier})"


def _kept(name: str) -> Column:
    return F.col(PREFIX + name)


def _all(conditions: Iterator[Column]) -> Column:
    return reduce(lambda left, right: left & right, conditions)


def _any(conditions: Iterator[Column]) -> Column:
    return reduce(lambda left, right: left | right, conditions)


@contextmanager
def _analysis_settings(spark: SparkSession) -> Iterator[None]:
    before = {key: spark.conf.get(key, None) for key in _ANALYSIS_SETTINGS}
    try:
        for key, value in _ANALYSIS_SETTINGS.items():
            spark.conf.set(key, value)
        yield
    finally:
        for key, earlier in before.items():
            if earlier is None:
                spark.conf.unset(key)
            else:
                spark.conf.set(key, earlier)
