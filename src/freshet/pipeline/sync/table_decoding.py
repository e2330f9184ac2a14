"""How the records of one source table become rows of its target, planned from the schema that the target has.

Every column of the target is filled by the payload field of its name, but for metadata columns and computed ones. A
column that the source has no more stays, and is NULL in new rows.

`ManyPlan` is what the decoders of a batch of many tables know.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Final, NamedTuple

from freshet._frozen import Frozen, field
from freshet.pipeline.config.computed_columns import ComputedColumn
from freshet.pipeline.config.formats import PLAIN_FORMATS
from freshet.pipeline.config.model import ROW_KIND_OPTION, PipelineConfig, SourceConfig, TableConfig
from freshet.pipeline.config.only_tables import OnlyTables
from freshet.pipeline.config.sync import LEDGER_KEY, MetadataColumn, SyncConfig, SyncPipelineConfig
from freshet.pipeline.decode.change import Change, Dead, RawRecord, Several, Truncate
from freshet.pipeline.decode.described_table import wider_type
from freshet.pipeline.decode.expectations import ONLY_SPARK, condition_of, lacking_column, with_rules
from freshet.pipeline.decode.flat import is_tombstone
from freshet.pipeline.decode.plan import BucketPlan, ColumnPlan, DecodePlan
from freshet.pipeline.decode.planning import back_ticked, plan_decoding
from freshet.pipeline.decode.source_table import PARTS, SourceTable, part_names, table_of, table_of_record
from freshet.pipeline.exceptions import ConfigurationError
from freshet.pipeline.query.wire.packed_rows import PackRule
from freshet.pipeline.sync.routes import EXCLUDED, Route, route_of
from freshet.storage.model.data_type import with_nullable
from freshet.storage.model.schema import TableSchema

NO_SPELLINGS: Final[Mapping[str, str]] = MappingProxyType({})
OP_TS_TYPE: Final = "TIMESTAMP(3) WITH LOCAL TIME ZONE"
METADATA_TYPES: Final[Mapping[MetadataColumn, str]] = {
    "db": "STRING", "schema": "STRING", "table": "STRING", "op": "STRING", "op_ts": OP_TS_TYPE, "topic": "STRING",
    "partition": "INT", "offset": "BIGINT",
}  # fmt: skip
_TEXTS: Final[Mapping[MetadataColumn, str]] = {
    "op": "_op", "topic": "_topic", "partition": "_partition", "offset": "_offset",
}  # fmt: skip
_SOURCE_TIMES: Final = {
    "debezium-json": "ts_ms", "debezium-avro": "ts_ms", "debezium-unwrapped": "ts_ms", "canal-json": "es",
}  # fmt: skip
"""The member of `_source` with the time of the change at the source, in milliseconds."""
LEFT: Final = "left to the pipeline"
HELD: Final = "held back, its table is set apart"
NOTHING: Final = "a deletion or a truncate, and there is no such table"


class TableDecoding(Frozen):
    """A value that travels to the workers: the index of the target in the query, the plan, and what is known of
    payload fields: the types of their columns; those that are passed over on purpose have none."""

    index: int
    plan: DecodePlan
    known: Mapping[str, str]
    names: Mapping[str, str] = field(default_factory=dict)
    """The columns of fields whose names differ in the case of their letters."""
    keys: tuple[str, ...] = ()
    """The key that the records had when the table was created; empty where the rule gives one."""

    @property
    def identity(self) -> tuple[object, ...]:
        """What decides whether something of a record is new."""
        return (self.plan, tuple(self.known.items()), tuple(self.names.items()))


def plan_table(
    config: SyncPipelineConfig,
    route: Route,
    schema: TableSchema,
    index: int,
    passed_over: frozenset[str],
    names: Mapping[str, str] = NO_SPELLINGS,
) -> TableDecoding:
    """Plans the decoding for a target of this schema. `names` are the columns of fields whose names differ in the case
    of their letters."""
    fields = {name: name for name in schema.column_names if name not in names}
    fields |= {column: name for name, column in names.items() if column in schema.by_name and "`" not in name}
    metadata = {name: kind for name, kind in route.metadata_columns.items() if name in schema.by_name}
    functions = {name: ComputedColumn.parse(text) for name, text in route.computed_columns.items()}
    computed = {name: each for name, each in functions.items() if _is_computed(name, each, schema)}
    source = config.sync.source
    own = metadata.keys() | computed.keys()
    select = {name: back_ticked(fields[name]) for name in schema.column_names if name in fields and name not in own}
    times = []
    for name, kind in metadata.items():
        if kind in ("db", "schema", "table"):
            part = part_names(source.format or "")[PARTS.index(kind)]
            if source.format in PLAIN_FORMATS:  # a topic is a table
                select |= {name: "_topic"} if kind == "table" else {}
            elif part:
                select[name] = f"_source.{part}"
        elif kind == "op_ts":
            times.append(name)
        else:
            select[name] = _TEXTS[kind]
    types = {name: str(with_nullable(schema.by_name[column].type, True)) for column, name in fields.items()}
    given = {name: types[name] for name in names if name in types}
    options = _with_kinds(source, schema, route.options.get(ROW_KIND_OPTION))
    plan = plan_decoding(_as_pipeline(config, source, schema, options, select, given), 0)
    member = _SOURCE_TIMES.get(source.format or "")
    columns = [_with_own(column, times, member, computed) for column in plan.columns]
    known = {name: types.get(name, "") for name in schema.column_names if name in types or name not in names} | given
    known |= dict.fromkeys(own, "")  # a field of such a name fills nothing
    known |= dict.fromkeys(known.keys() & route.types.keys(), "")  # whatever the records say
    known |= dict.fromkeys(passed_over - known.keys(), "")
    plan = replace(
        plan,
        columns=tuple(columns),
        dialect=replace(plan.dialect, writes_times=True),
        spells_freely=config.sync.schema_evolution != "ignore",  # freeze stops where the driver sees it first
    )
    keys = () if route.primary_key else schema.primary_keys
    return TableDecoding(index, with_table_rules(plan, route), known, names, keys)


def with_table_rules(plan: DecodePlan, route: Route) -> DecodePlan:
    """The plan with those rules of `expect` whose columns the table has. Raises `ConfigurationError` naming table and
    rule where one is no condition over them, or one that only Spark computes."""
    columns = {column.field.name: column for column in plan.columns}
    rules = {name: rule for name, rule in route.expect.items() if lacking_column(columns, rule.sql) is None}
    try:
        judged = with_rules(plan, rules)
        for name, rule in rules.items():
            if condition_of([column.field for column in plan.columns], rule.sql).sql is None:
                raise ConfigurationError(f"expect.{name}: {ONLY_SPARK.format(sql=rule.sql)}, use a simpler condition")
    except ConfigurationError as error:
        raise ConfigurationError(f"table {route.target}: {error}") from error
    return judged


def _is_computed(name: str, computed: ComputedColumn, schema: TableSchema) -> bool:
    """Whether a column is the computed one of its name: a source may have a field that is called so, and lack the input
    or have another type."""
    own, given = schema.by_name.get(name), schema.by_name.get(computed.column or "")
    if own is None or (computed.column is not None and given is None):
        return False
    try:
        result = computed.type_over(None if given is None else given.type)
    except ValueError:
        return False
    return wider_type(str(with_nullable(result, True)), str(with_nullable(own.type, True))) is not None


def nameless_plan(config: SyncPipelineConfig) -> DecodePlan:
    """The plan of what belongs to no table: dead letters and tallies, without columns."""
    schema, source = config.table.table_schema, config.sync.source
    options = _with_kinds(source, schema, LEDGER_KEY)
    plan = plan_decoding(_as_pipeline(config, source, schema, options, {LEDGER_KEY: back_ticked(LEDGER_KEY)}), 0)
    nothing = BucketPlan((), plan.bucket_key.rule)
    plan = replace(plan, fields=(), columns=(), scope=(), bucket_key=nothing, kind_field=None)
    return replace(plan, skips=config.skipped_records)


def _with_own(
    column: ColumnPlan, times: list[str], member: str | None, computed: Mapping[str, ComputedColumn]
) -> ColumnPlan:
    name = column.field.name
    if name in times:
        own = {"metadata": "_ts_ms"} if member is None else {"member": member}
        return replace(column, is_epoch=True, **own)  # type: ignore[arg-type]
    return replace(column, computed=computed[name]) if name in computed else column


def _with_kinds(source: SourceConfig, schema: TableSchema, field: str | None) -> dict[str, str]:
    """The options of a table, with the field that holds the row kind where records have one: the rule says it of a
    table that was created without."""
    own = {ROW_KIND_OPTION: field} if source.format == "row-kind" and field is not None else {}
    return {**schema.options, **own}


def _as_pipeline(
    config: SyncPipelineConfig,
    source: SourceConfig,
    schema: TableSchema,
    options: Mapping[str, str],
    select: Mapping[str, str],
    types: Mapping[str, str] | None = None,
) -> PipelineConfig:
    """One table of the database as the pipeline file of this table alone would say it; `types` are those of fields that
    another column has the name of, or none."""
    only = OnlyTables.model_validate("any") if source.captures_changes else None
    update = {"select": dict(select), "only": only, **({"payload_types": dict(types)} if types else {})}
    return PipelineConfig(
        name=config.name,
        sources=(source.model_copy(update=update),),
        table=TableConfig(
            warehouse=config.warehouse,
            name="sync.table",
            columns={field.name: str(field.type) for field in schema.fields},
            primary_key=schema.primary_keys,
            partition_by=schema.partition_keys,
            options=dict(options),
        ).with_defaults(schema),
        checkpoint=config.checkpoint,
    )


class Held(NamedTuple):
    """Instead of the decoding of a source table: why its records are passed over."""

    reason: str
    is_nothing: bool = False
    """Of a batch that had deletions alone when it was looked at: each record is looked at, whether it is one."""


class ManyPlan(Frozen):
    """What the decoders of a batch know: a value that travels to the workers.

    `tables` are the source tables that are known, `rules` the task of each outcome by the number of its target.
    """

    config: SyncConfig
    ledger: DecodePlan
    tables: Mapping[SourceTable, TableDecoding | Held]
    rules: tuple[PackRule, ...]
    follows_fields: bool
    guesses: bool
    only: str | None = None
    """The one target that is written, where records of others are left to the pipeline."""
    is_replay: bool = False
    """Of dead letters: those of tables that are set apart, or that no rule takes, stay dead letters."""

    def table_of(self, reading: Change | Several | Dead | Truncate, record: RawRecord) -> SourceTable | None:
        """The table of a record; None where it does not say it, and its topic may have rows that name other tables."""
        format_name = self.ledger.format
        table = table_of_record(format_name, reading.source, record.topic)
        if table is None or format_name != "debezium-unwrapped" or table_of(reading.source) is not None:
            return table
        is_row = not isinstance(reading, Dead) and not is_tombstone(record.value)
        return table if is_row or self.stands_for(table) else None

    def stands_for(self, table: SourceTable) -> bool:
        """Whether a record that is no row and does not name its table is of the one that its topic stands for."""
        return table in self.tables or route_of(self.config, table) == EXCLUDED
