"""From raw records to the envelope: every outcome of every record as one row, in Spark column expressions alone.

    records ─ format ─ fields ─ select ─ columns ─ checks ─ envelope
              skip,    declared  SQL,     table's   keys,    a row per outcome, two for a key change
              dead,    types,    tried    types     order    or for an update with its before-image
              kind     TOAST

| column | type | |
|---|---|---|
| tag | TINYINT | 0 data, 1 dead letter, 2 skipped |
| row_kind | TINYINT | of data |
| reason, column | STRING | why it is dead or skipped; the column that is to blame, where there is one |
| order | STRUCT | source_index, rank, topic, kafka_partition, offset, sub: the input order; timestamp |
| raw_key, raw_value | BINARY | of dead letters, and of rows that may become one when a TOAST value is not stored |
| unavailable | ARRAY<STRING> | columns whose stored value is to be kept (unchanged TOAST) |
| notes | ARRAY<STRING> | what else is counted by name: unknown fields, TOAST values that were found or left NULL |
| data | STRUCT of the table's columns in their carriers | of data |

The row with sub = 0 stands for the record when records are counted. A record is applied or dead as a whole.

| record | rows |
|---|---|
| insert, delete, update | one |
| update of another key than `before` has | -D of the old key (sub 0), +I of the new (sub 1) |
| update, `before` complete, and `changelog-producer` = input or a column adds up | -U of `before` (sub 0), +U (sub 1) |
| update, `before` not complete, and a column adds up | dead letter |
| deletion or -U that the table ignores (`ignore-delete`, `ignore-update-before`) | skipped |
| update in a table without primary key | +I; a deletion there is a dead letter |

Every stage is a projection of its own: what is read twice is computed once, because Spark merges no projection whose
costly columns are read more than once. The frame is analysed in ANSI mode, case-sensitive and in UTC, whatever the
session says; `select` expressions run under the same rules.

Measured (ten columns, 570 bytes a record, two cores that others kept busy, so the ratios count): 40-50 µs of CPU per
record, 60 % of it Spark's JSON parser; twice that when each record brings its schema, whose 40 fields are parsed with
it. Planning and code generation cost a micro-batch 0.4 s of CPU there once warm, however few its records.

Source: design §1.11, §3; the outcome table of the Debezium formats.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the customary name

from freshet.pipeline.batch.arrow_bridge import spark_type
from freshet.pipeline.config.engine_rules import rules_of
from freshet.pipeline.config.model import PRODUCER_OPTION, PipelineConfig, SourceConfig
from freshet.pipeline.config.rules import METADATA_COLUMNS, sequence_fields
from freshet.pipeline.exceptions import ConfigurationError
from freshet.pipeline.formats import debezium_json, flat_json
from freshet.pipeline.formats.record import (
    DEAD,
    HEADERS,
    IMAGE,
    KAFKA_PARTITION,
    KEY,
    KIND,
    OFFSET,
    OLD,
    OP,
    PREFIX,
    RANK,
    SKIP,
    SOURCE,
    TIMESTAMP,
    TOPIC,
    TS_MS,
    VALUE,
    Stage,
    Wanted,
    stop,
)
from freshet.pipeline.formats.value import Dialect, dialect_of
from freshet.pipeline.mapping import ColumnPlan, MappingPlan, kind_field, plan_mapping
from freshet.pipeline.payload import (
    FOUND,
    MISSING,
    NO_TOAST,
    UNKNOWN,
    ErrorCase,
    PayloadImage,
    Toast,
    first_error,
    image_stages,
    lost_fields,
    unknown_fields,
    wants_facts,
)
from freshet.pipeline.sql_text import any_of, case, literal, name
from freshet.pipeline.store_value import store_steps
from freshet.pipeline.table_image import TableImage
from freshet.storage.model.schema import TableSchema

TAG_DATA, TAG_DEAD, TAG_SKIPPED = 0, 1, 2

_SPLIT: Final = f"{PREFIX}split"
"""TINYINT: kind of the row before the change where the record gives two rows, else NULL."""

_IGNORED: Final = f"{PREFIX}ignored"
"""STRING: why the table takes no row of this kind; NULL where it does."""

_ERROR: Final = f"{PREFIX}error"
_TAG: Final = f"{PREFIX}tag"
_PART: Final = f"{PREFIX}part"
_IS_DELETE: Final = f"({KIND} = 3Y)"
_IS_RETRACT: Final = f"({KIND} IN (1Y, 3Y))"
_IS_KEY_CHANGE: Final = f"({_SPLIT} = 3Y)"

_LACKING: Final = f"size(array_except(map_keys({IMAGE}), map_keys({OLD})))"
_IS_COMPLETE: Final = f"({OLD} IS NOT NULL AND {_LACKING} = 0 AND {MISSING} IS NULL)"
"""True when an update brings the whole row before it."""

_ANALYSIS_SETTINGS: Final = {
    "spark.sql.ansi.enabled": "true",
    "spark.sql.caseSensitive": "true",
    "spark.sql.session.timeZone": "UTC",
}

_METADATA: Final = {
    "_op": OP,
    "_source": SOURCE,
    "_ts_ms": f"try_cast({TS_MS} AS BIGINT)",
    "_topic": TOPIC,
    "_partition": KAFKA_PARTITION,
    "_offset": OFFSET,
    "_timestamp": TIMESTAMP,
    "_headers": HEADERS,
}
assert tuple(_METADATA) == METADATA_COLUMNS


def envelope(
    records: DataFrame,
    config: PipelineConfig,
    source: SourceConfig,
    source_index: int = 0,
    table_schema: TableSchema | None = None,
) -> DataFrame:
    """The outcomes of the records of one source, for a frame of `sources` (streaming or not).

    `table_schema` is the table's; without it, the one that the pipeline file describes. Raises `ConfigurationError`
    naming the entry of `select` that Spark cannot analyse or whose type does not go with its column.
    """
    with _analysis_settings(records.sparkSession):
        return _Envelope(records, config, source, source_index, table_schema or config.table.table_schema).frame()


class _Envelope:
    """One source's way from records to outcomes; the steps of `frame` are the rows of the module's drawing."""

    def __init__(
        self, records: DataFrame, config: PipelineConfig, source: SourceConfig, source_index: int, schema: TableSchema
    ) -> None:
        self._records = records
        self._source = source
        self._source_index = source_index
        self._schema = schema
        self._options = {**schema.options, **config.table.options}
        self._rules = rules_of(schema, self._options)
        self._groups = self._rules.filled_groups(name for name in schema.column_names if source.fills(name))
        self._plan: MappingPlan = plan_mapping(records.sparkSession, source, schema, self._options, self._groups)
        self._dialect: Dialect = dialect_of(source)
        self._facts = source.is_debezium and wants_facts(self._plan.fields)

    def frame(self) -> DataFrame:
        """Builds the whole chain of projections."""
        frame = _staged(self._records, self._format_stages())
        new = TableImage("n", self._plan.columns, PayloadImage("n", self._plan.fields))
        frame = _staged(
            frame, image_stages(new.image, IMAGE, self._dialect, with_facts=self._facts, toast=self._toast())
        )
        if self._toast() is None:
            frame = _staged(frame, [NO_TOAST])
        unknown = unknown_fields(new.image, self._toast(), self._kind_fields(), ignore_added=self._is_unwrapped)
        frame = _staged(frame, [unknown, {_IGNORED: self._ignored()}])
        old = self._old_rows()
        frame = _staged(frame, [{_SPLIT: self._split(new)}])
        if old:
            entries = f"{PREFIX}old_entries"
            frame = _staged(frame, [{entries: f"CASE WHEN {_SPLIT} IS NOT NULL THEN {OLD} END"}])
            frame = _staged(frame, image_stages(old.image, entries, self._dialect, with_facts=self._facts, toast=None))
        frame, errors = self._table_columns(frame, new, _IS_DELETE, _IS_RETRACT)
        cases = [*self._record_errors(), *lost_fields(new.image, self._dialect, _IS_DELETE), *errors]
        if old:
            frame, old_errors = self._table_columns(frame, old, _IS_KEY_CHANGE, "true")
            happened = f"{_SPLIT} IS NOT NULL AND "
            cases += [
                ErrorCase(happened + f"({each.condition})", each.column, each.reason)
                for each in (*lost_fields(old.image, self._dialect, _IS_KEY_CHANGE), *old_errors)
            ]
        frame = _staged(frame, [{_ERROR: first_error(cases)}, {_TAG: self._tag()}])
        if old:
            both = f"{_TAG} = {TAG_DATA}Y AND {_SPLIT} IS NOT NULL"
            frame = _staged(frame, [{_PART: f"explode(CASE WHEN {both} THEN array(0, 1) ELSE array(1) END)"}])
        return frame.selectExpr(*self._outcome(new, old))

    @property
    def _is_unwrapped(self) -> bool:
        return self._source.format == "debezium-unwrapped"

    @property
    def _has_key(self) -> bool:
        return self._schema.has_primary_key

    def _format_stages(self) -> list[Stage]:
        wanted = Wanted(
            facts=self._facts,
            source_fields=self._plan.source_fields,
            source_text=self._plan.source_text,
            skip_truncate=self._source.on_truncate == "skip",
        )
        match self._source.format:
            case "debezium-json":
                return debezium_json.stages(wanted)
            case "debezium-unwrapped":
                return flat_json.unwrapped_stages(wanted)
            case "row-kind":
                return flat_json.row_kind_stages(wanted, kind_field(self._source, self._options))
            case _:
                return flat_json.json_stages(wanted)

    def _kind_fields(self) -> list[str]:
        """The field of the row kind, where it is not one of the fields that make columns."""
        if self._source.format != "row-kind":
            return []
        field = kind_field(self._source, self._options)
        return [] if field in {each.name for each in self._plan.fields} else [field]

    def _toast(self) -> Toast | None:
        if not self._source.is_debezium:
            return None
        return Toast(self._source.unavailable_value_placeholder, f"{KIND} = 2Y", OLD)

    def _old_rows(self) -> TableImage | None:
        """The row before an update: all of it where the changelog wants it, else only what makes a deletion known."""
        if self._source.format != "debezium-json" or not self._has_key or self._rules.core.ignore_delete:
            return None
        columns = self._plan.columns
        if not self._takes_before:
            columns = tuple(column for column in columns if column.is_vital)
        return TableImage("o", columns, PayloadImage("o", self._plan.of_columns(columns)))

    @property
    def _takes_before(self) -> bool:
        """True when an update is two rows, the one before it and the one after."""
        if self._rules.core.ignore_update_before or self._rules.core.ignore_delete:
            return False
        return self._options.get(PRODUCER_OPTION) == "input" or bool(self._added_up)

    @property
    def _added_up(self) -> tuple[str, ...]:
        """Columns that this source fills and that an update would count twice."""
        return tuple(name for name in self._rules.needs_before if self._source.fills(name))

    def _ignored(self) -> str:
        core = self._rules.core
        if core.ignore_delete:
            return f"CASE WHEN {DEAD} IS NULL AND {_IS_RETRACT} THEN 'ignore-delete' END"
        if core.ignore_update_before:
            return f"CASE WHEN {DEAD} IS NULL AND {KIND} = 1Y THEN 'ignore-update-before' END"
        return "CAST(NULL AS STRING)"

    def _split(self, new: TableImage) -> str:
        """Kind of the row before the change: -D when the key is another one, -U where the changelog takes it."""
        if self._old_rows() is None:
            return "CAST(NULL AS TINYINT)"
        keys = self._plan.key_fields
        changed = [
            f"CAST({OLD}[{literal(field.name)}] AS STRING) <> {new.image.text(place)}"
            for place, field in enumerate(new.image.fields)
            if field.name in keys
        ]
        branches = [(f"{OLD} IS NULL", "CAST(NULL AS TINYINT)"), (any_of(changed), "3Y")]
        if self._takes_before:
            branches.append((_IS_COMPLETE, "1Y"))
        return case(branches)

    def _table_columns(
        self, frame: DataFrame, rows: TableImage, is_delete: str, is_retract: str
    ) -> tuple[DataFrame, list[ErrorCase]]:
        """Evaluates `select` for one image and brings the values into the columns' types."""
        computed = [(place, column) for place, column in enumerate(rows.columns) if column.expression]
        if computed:
            frame = self._select(frame, rows, computed)
        steps = {}
        types = {field.name: field.dataType for field in frame.schema.fields} if computed else {}
        for place, column in computed:
            given = types[rows.computed(place)]
            steps[place] = store_steps(column.field.name, given, column.field.type)
        for number in range(max((len(each) for each in steps.values()), default=0)):
            stage = {
                rows.stored(place, number + 1): each[number](rows.computed(place), rows.stored(place, number))
                for place, each in steps.items()
                if number < len(each)
            }
            frame = _staged(frame, [stage])
        values: Stage = {}
        for place, column in enumerate(rows.columns):
            if column.direct is not None:
                values[rows.value(place)] = rows.image.carrier(column.direct, self._dialect)
            elif column.expression:
                values[rows.value(place)] = rows.stored(place, len(steps[place]))
            else:
                values[rows.value(place)] = f"CAST(NULL AS {spark_type(column.field.type).simpleString()})"
        frame = _staged(frame, [values])
        looked_up = {each.field.name for each in rows.columns if not self._rules.keeps_on_null(each.field.name)}
        errors = rows.errors(sequence_fields(self._options), is_delete, looked_up)
        return frame, [*errors, *rows.group_errors(self._groups, is_retract)]

    def _select(self, frame: DataFrame, rows: TableImage, computed: Sequence[tuple[int, ColumnPlan]]) -> DataFrame:
        inner = [name(column) for column in frame.columns]
        wanted = frozenset(field for _, column in computed for field in column.payload_fields)
        fields = [f"{rows.image.carrier(field, self._dialect)} AS {name(field)}" for field in sorted(wanted)]
        roots = {parts[0] for parts in self._plan.metadata}
        metadata = [f"{sql} AS {column}" for column, sql in _METADATA.items() if column in roots]
        scope = frame.selectExpr(*inner, *fields, *metadata)
        outputs: list[Column] = [F.col(column) for column in inner]
        for place, column in computed:
            expression = column.expression
            assert expression is not None
            outputs.append(self._checked(scope, column, expression.value).alias(rows.computed(place)))
            if expression.lost is not None:
                outputs.append(expression.lost.alias(rows.lost(place)))
        return scope.select(*outputs)

    def _checked(self, scope: DataFrame, column: ColumnPlan, value: Column) -> Column:
        """The expression, once Spark has analysed it over these fields and it is known to be one value per row."""
        text = column.expression.text if column.expression else ""
        where = f"select.{column.field.name}: {text!r}"
        try:
            plan = scope.select(value.alias("value"))._jdf.queryExecution().analyzed()
        except AnalysisException as error:
            message = str(error).strip().splitlines()[0]
            raise ConfigurationError(f"{where} cannot be analysed: {message}") from error
        below = scope._jdf.queryExecution().analyzed()
        if plan.getClass().getSimpleName() != "Project" or not plan.child().equals(below):
            raise ConfigurationError(f"{where} must give one value per row (no aggregate, window or generator)")
        if not plan.projectList().apply(0).deterministic():
            raise ConfigurationError(f"{where} would give another value when a batch is replayed (not deterministic)")
        return value

    def _record_errors(self) -> list[ErrorCase]:
        """Errors of the record as a whole, before any of its fields is looked at."""
        cases = [
            ErrorCase(f"{SKIP} IS NOT NULL", None, "CAST(NULL AS STRING)"),
            ErrorCase(f"{DEAD} IS NOT NULL", None, DEAD),
            ErrorCase(f"{_IGNORED} IS NOT NULL", None, "CAST(NULL AS STRING)"),
        ]
        if not self._has_key:
            cases.append(ErrorCase(f"{KIND} IN (1Y, 3Y)", None, "'a deletion, and the table has no primary key'"))
        if self._added_up and self._takes_before and self._source.is_debezium:
            reason = "'the update does not carry the whole row before it, so its value would count twice'"
            cases.append(ErrorCase(f"{KIND} = 2Y AND NOT coalesce({_IS_COMPLETE}, false)", self._added_up[0], reason))
        if self._source.on_unknown_field == "fail":
            cases.append(ErrorCase(f"{UNKNOWN} IS NOT NULL", None, self._unknown_stop()))
        for column in self._plan.columns:
            if not column.only_field or column.is_key:
                fields = [f"array_contains({MISSING}, {literal(field)})" for field in sorted(column.payload_fields)]
                reason = "'an unchanged value that the record does not carry (TOAST) is needed to compute the column'"
                if fields and self._source.is_debezium:
                    cases.append(ErrorCase(f"{MISSING} IS NOT NULL AND {any_of(fields)}", column.field.name, reason))
        return cases

    def _unknown_stop(self) -> str:
        from_where = f"coalesce({TOPIC}, '?'), ' partition ', coalesce({KAFKA_PARTITION}, -1), ' offset ', {OFFSET}"
        advice = literal(
            "; on_unknown_field is fail: add the field to the table or to `schema`, or set on_unknown_field: ignore"
        )
        return stop(
            f"concat('unknown field ', array_join({UNKNOWN}, ', '), ' in the record at ', {from_where}, {advice})"
        )

    def _tag(self) -> str:
        return case(
            [
                (f"{SKIP} IS NOT NULL", f"{TAG_SKIPPED}Y"),
                (f"{_IGNORED} IS NOT NULL", f"{TAG_SKIPPED}Y"),
                (f"{_ERROR} IS NOT NULL", f"{TAG_DEAD}Y"),
            ],
            f"{TAG_DATA}Y",
        )

    def _outcome(self, new: TableImage, old: TableImage | None) -> list[str]:
        is_data, is_dead = f"{_TAG} = {TAG_DATA}Y", f"{_TAG} = {TAG_DEAD}Y"
        kind = KIND if self._has_key else "0Y"
        data = new.data(self._schema, _IS_DELETE)
        sub = "0"
        unavailable = self._unavailable()
        notes = self._notes()
        if old:
            kind = f"CASE WHEN {_PART} = 0 THEN {_SPLIT} WHEN {_SPLIT} = 3Y THEN 0Y ELSE {KIND} END"
            data = f"CASE WHEN {_PART} = 0 THEN {old.data(self._schema, _IS_KEY_CHANGE)} ELSE {data} END"
            sub = f"CASE WHEN {_PART} = 1 AND {is_data} AND {_SPLIT} IS NOT NULL THEN 1 ELSE 0 END"
            unavailable = f"CASE WHEN {_PART} = 1 THEN {unavailable} END"
            notes = f"CASE WHEN {_PART} = 1 THEN {notes} END"
        order = {
            "source_index": str(self._source_index), "rank": RANK, "topic": TOPIC, "kafka_partition": KAFKA_PARTITION,
            "offset": OFFSET, "sub": sub, "timestamp": TIMESTAMP,
        }  # fmt: skip
        return [
            f"{_TAG} AS tag",
            f"CASE WHEN {is_data} THEN {kind} END AS row_kind",
            f"CASE WHEN {is_dead} THEN {_ERROR}.reason ELSE coalesce({SKIP}, {_IGNORED}) END AS reason",
            f"{_ERROR}.column AS column",
            f"struct({', '.join(f'{sql} AS {name(field)}' for field, sql in order.items())}) AS `order`",
            f"CASE WHEN {is_dead} OR {MISSING} IS NOT NULL THEN {KEY} END AS raw_key",
            f"CASE WHEN {is_dead} OR {MISSING} IS NOT NULL THEN {VALUE} END AS raw_value",
            f"CASE WHEN {is_data} THEN {unavailable} END AS unavailable",
            f"CASE WHEN {is_data} THEN {notes} END AS notes",
            f"CASE WHEN {is_data} THEN {data} END AS data",
        ]

    def _unavailable(self) -> str:
        """The columns whose value the table must give: where NULL would be taken for the new value."""
        if not self._source.is_debezium:
            return "CAST(NULL AS ARRAY<STRING>)"
        columns = [
            case([(f"array_contains({MISSING}, {literal(column.only_field)})", literal(column.field.name))])
            for column in self._plan.columns
            if column.only_field and not column.is_key and column.field.name not in self._rules.ordering_columns
            if not self._rules.keeps_on_null(column.field.name)
        ]
        if not columns:
            return "CAST(NULL AS ARRAY<STRING>)"
        return f"CASE WHEN {MISSING} IS NOT NULL THEN array_compact(array({', '.join(columns)})) END"

    def _notes(self) -> str:
        found = [(UNKNOWN, "unknown field ")]
        if self._source.is_debezium:
            found.append((FOUND, "TOAST value from before: "))
            left = [each for each in self._plan.columns if self._rules.keeps_on_null(each.field.name)]
            fields = [literal(each.only_field) for each in left if each.only_field]
            if fields:
                found.append((f"array_intersect({MISSING}, array({', '.join(fields)}))", "TOAST value left NULL: "))
        texts = [
            f"coalesce(transform({names}, x -> concat({literal(text)}, x)), CAST(array() AS ARRAY<STRING>))"
            for names, text in found
        ]
        return case([(any_of([f"{names} IS NOT NULL" for names, _ in found]), f"concat({', '.join(texts)})")])


def _staged(frame: DataFrame, stages: Sequence[Stage]) -> DataFrame:
    for stage in stages:
        frame = frame.selectExpr("*", *[f"{sql} AS {name(column)}" for column, sql in stage.items()])
    return frame


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
