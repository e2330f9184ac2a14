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

A row whose expression lost a value in a cast, gave one that does not fit, or breaks a rule of its row
(`decode.row_rules`, here for the columns that Spark computes) becomes a dead letter. The two rows of one update are
judged one by one here. Columns that the decoder fills are not touched.

Expressions are analysed with ANSI mode on, names case-sensitive and times in UTC, whatever the session says. They are
evaluated for rows alone, not for dead letters and tallies that pass by.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce
from typing import Final

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the customary name
from pyspark.sql import types as spark_types

from freshet.pipeline.batch.arrow_bridge import spark_type
from freshet.pipeline.decode.carriers import is_nanos
from freshet.pipeline.decode.change import DELETE, UPDATE_BEFORE
from freshet.pipeline.decode.convert.conversion import convert_texts
from freshet.pipeline.decode.outcome_batches import scope_columns
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
    TAG,
    TAG_DATA,
    TAG_DEAD,
    TIMESTAMP,
    TOPIC,
    UNAVAILABLE,
)
from freshet.pipeline.decode.plan import ColumnPlan, DecodePlan, References
from freshet.pipeline.decode.raw_records import PREFIX
from freshet.pipeline.decode.row_rules import KEY_NULL, NOT_NULL, SEQUENCE_NULL
from freshet.pipeline.exceptions import ConfigurationError
from freshet.pipeline.spark.select_expression import SelectExpression, parse_select
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


@dataclass(frozen=True, slots=True)
class _Case:
    """One way in which a row is a dead letter."""

    condition: Column
    column: str
    reason: str


class _Projection:
    """Three projections: the expressions, their values in the columns' types, the outcomes."""

    def __init__(self, frame: DataFrame, plan: DecodePlan) -> None:
        self._plan = plan
        self._head = [each.name for each in HEAD_SCHEMA]
        self._data = [f"{DATA_PREFIX}{place}" for place in range(len(plan.columns))]
        self._is_row = _kept(TAG) == F.lit(TAG_DATA)
        self._is_delete = _kept(KIND) == F.lit(DELETE)
        self._scope = frame.select(
            *(F.col(name).alias(PREFIX + name) for name in (*self._head, *self._data)), *_scope(plan)
        )
        self._expressions: dict[int, SelectExpression] = {}
        for place in plan.expressions:
            column = plan.columns[place]
            assert column.expression is not None
            self._expressions[place] = parse_select(frame.sparkSession, column.field.name, column.expression)

    def frame(self) -> DataFrame:
        """The whole chain."""
        inner = [F.col(name) for name in self._scope.columns if name.startswith(PREFIX)]
        outputs = []
        for place, expression in self._expressions.items():
            self._check(self._plan.columns[place], expression)
            outputs.append(F.when(self._is_row, expression.value).alias(_computed(place)))
            if expression.lost is not None:
                outputs.append((self._is_row & expression.lost).alias(_lost(place)))
        computed = self._scope.select(*inner, *outputs)
        given = {field.name: field.dataType for field in computed.schema.fields}
        stored = [
            _stored(self._plan.columns[place], given[_computed(place)], F.col(_computed(place))).alias(_value(place))
            for place in self._expressions
        ]
        values = computed.select("*", *stored)
        error = f"{PREFIX}error"
        cases = [*self._expression_cases(), *self._rule_cases()]
        chosen = F.lit(None).cast("int")
        for number, case in reversed(list(enumerate(cases))):
            chosen = F.when(case.condition, F.lit(number)).otherwise(chosen)
        return values.select("*", F.when(self._is_row, chosen).alias(error)).select(*self._outcome(error, cases))

    def _check(self, column: ColumnPlan, expression: SelectExpression) -> None:
        """Refuses what Spark cannot analyse over these fields, and what is not one value per row."""
        where = f"select.{column.field.name}: {expression.text!r}"
        try:
            plan = self._scope.select(expression.value.alias("value"))._jdf.queryExecution().analyzed()  # type: ignore[operator]
        except AnalysisException as error:
            message = str(error).strip().splitlines()[0]
            raise ConfigurationError(f"{where} cannot be analysed: {message}") from error
        below = self._scope._jdf.queryExecution().analyzed()  # type: ignore[operator]
        if plan.getClass().getSimpleName() != "Project" or not plan.child().equals(below):
            raise ConfigurationError(f"{where} must give one value per row (no aggregate, window or generator)")
        if not plan.projectList().apply(0).deterministic():
            raise ConfigurationError(f"{where} would give another value when a batch is replayed (not deterministic)")

    def _expression_cases(self) -> Iterator[_Case]:
        for place, expression in self._expressions.items():
            column = self._plan.columns[place]
            needed = F.lit(True) if column.is_vital else ~self._is_delete
            if expression.lost is not None:
                reason = f"a cast in {expression.text!r} gave NULL for a value that was not NULL"
                yield _Case(F.col(_lost(place)) & needed, column.field.name, reason)
            reason = f"the value of {expression.text!r} does not fit {column.field.type}"
            misfit = F.col(_computed(place)).isNotNull() & F.col(_value(place)).isNull()
            yield _Case(misfit & needed, column.field.name, reason)

    def _rule_cases(self) -> Iterator[_Case]:
        """The rules of `decode.row_rules` that read a column computed here."""
        for place in self._expressions:
            column, is_null = self._plan.columns[place], F.col(_value(place)).isNull()
            name = column.field.name
            if column.is_key:
                yield _Case(is_null, name, KEY_NULL)
                continue
            if column.is_sequence:
                yield _Case(is_null & self._is_delete, name, SEQUENCE_NULL)
            if not column.field.type.nullable:
                yield _Case(is_null & ~self._is_delete & ~self._stays(place), name, NOT_NULL)
        yield from self._group_cases()

    def _group_cases(self) -> Iterator[_Case]:
        places = {column.field.name: place for place, column in enumerate(self._plan.columns)}
        groups = self._plan.groups
        used = {places[name] for group in groups for name in (*group.ordering, *group.protected)}
        if used.isdisjoint(self._expressions):
            return
        is_retract = self._is_delete | (_kept(KIND) == F.lit(UPDATE_BEFORE))
        for group in groups:
            ordering = _all(self._result(places[name]).isNull() for name in group.ordering)
            present = _any(
                self._result(places[name]).isNotNull() | self._stays(places[name]) for name in group.protected
            )
            names = ", ".join(group.ordering)
            reason = f"NULL in the ordering of its sequence group ({names}): its values would never be taken"
            yield _Case(~is_retract & ordering & present, group.ordering[0], reason)
        lacks = _all(_any(self._result(places[name]).isNull() for name in group.ordering) for group in groups)
        names = "; ".join(", ".join(group.ordering) for group in groups)
        reason = f"NULL in the ordering of the sequence group ({names}): the deletion would change nothing"
        yield _Case(is_retract & lacks, groups[0].ordering[0], reason)

    def _stays(self, place: int) -> Column:
        """True where the stored value of the column stays (unchanged TOAST)."""
        return F.coalesce(F.array_contains(F.split(_kept(UNAVAILABLE), ","), F.lit(str(place))), F.lit(False))

    def _result(self, place: int) -> Column:
        return F.col(_value(place)) if place in self._expressions else _kept(self._data[place])

    def _outcome(self, error: str, cases: Sequence[_Case]) -> list[Column]:
        is_dead = F.col(error).isNotNull()
        was_dead = _kept(TAG) != F.lit(TAG_DATA)
        reasons = F.array(*(F.lit(case.reason) for case in cases)) if cases else None
        columns = F.array(*(F.lit(case.column) for case in cases)) if cases else None
        raw_stays = is_dead | was_dead | _kept(UNAVAILABLE).isNotNull()
        head = {name: _kept(name) for name in self._head}
        if reasons is not None and columns is not None:
            head[REASON] = F.coalesce(_kept(REASON), F.get(reasons, F.col(error)))
            head[COLUMN] = F.coalesce(_kept(COLUMN), F.get(columns, F.col(error)))
        head[TAG] = F.when(is_dead, F.lit(TAG_DEAD)).otherwise(_kept(TAG)).cast("tinyint")
        head[RAW_KEY] = F.when(raw_stays, _kept(RAW_KEY))
        head[RAW_VALUE] = F.when(raw_stays, _kept(RAW_VALUE))
        for name in (KIND, UNAVAILABLE, BUCKET):
            head[name] = F.when(~is_dead, _kept(name))
        data = [self._final(place).alias(name) for place, name in enumerate(self._data)]
        return [*(column.alias(name) for name, column in head.items()), *data]

    def _final(self, place: int) -> Column:
        column, value = self._plan.columns[place], self._result(place)
        if place not in self._expressions or column.field.type.nullable or column.is_key:
            return value
        zero = F.expr(_zero(column.field.type))
        return F.when(self._is_row & self._is_delete, F.coalesce(value, zero)).otherwise(value)


def _scope(plan: DecodePlan) -> list[Column]:
    """What expressions see: payload fields and metadata under their names."""
    columns: list[Column] = []
    members: list[Column] = []
    for name, each in scope_columns(plan).items():
        (members if each.is_member else columns).append(F.col(name).alias(each.name))
    if members:
        columns.append(F.struct(*members).alias("_source"))
    read = {each.name for each in plan.scope if not each.is_member}
    columns += [F.col(inner).alias(name) for name, inner in _IN_HEAD.items() if name in read]
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


def _computed(place: int) -> str:
    return f"{PREFIX}e{place}"


def _lost(place: int) -> str:
    return f"{PREFIX}l{place}"


def _value(place: int) -> str:
    return f"{PREFIX}w{place}"


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
