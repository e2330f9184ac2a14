"""How one source's payload becomes the table's columns: the plan of a decoder, made from the pipeline file.

The type of a payload field is, in this order: what `schema` declares, the type of the table column of the same name,
the type of the one column that `select` fills with nothing but this field, STRING.

| an entry of `select` | the column comes from |
|---|---|
| a field whose type is the column's | the decoder |
| `_source.x`, into any type by its text | the decoder |
| `_op`, `_topic` into STRING; `_ts_ms`, `_offset` into BIGINT; `_partition` into INT | the decoder |
| an expression that `expressions` translates | the decoder |
| anything else | a Spark expression over the fields and metadata that it names, which the decoder appends |

Vital columns are those without which a deletion is not known: primary key, partition, sequence fields, ordering columns
of the sequence groups that the source fills.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from freshet.pipeline.config.engine_rules import EngineRules, engine_rules
from freshet.pipeline.config.model import PipelineConfig, SourceConfig, revealed
from freshet.pipeline.config.source_options import METADATA_COLUMNS, nearest
from freshet.pipeline.decode.carriers import counted_in
from freshet.pipeline.decode.dialect import dialect_of
from freshet.pipeline.decode.expectations import parsed, with_rules
from freshet.pipeline.decode.plan import (
    STRING,
    BucketPlan,
    ColumnPlan,
    DecodePlan,
    PayloadField,
    References,
    RegistrySettings,
    ScopeColumn,
)
from freshet.pipeline.exceptions import ConfigurationError
from freshet.storage.codec.bucket_function import BucketRule
from freshet.storage.codec.partition_names import folder_rule
from freshet.storage.model.data_type import TEXT_ROOTS, DataField, DataType, ScalarType, TypeRoot, with_nullable
from freshet.storage.model.schema import TableSchema
from freshet.storage.model.sql_type import parse_sql_type
from freshet.storage.options import CoreOptions, SequenceGroup

if TYPE_CHECKING:
    from freshet.pipeline.expressions.values import Value

_BIGINT: Final = ScalarType(TypeRoot.BIGINT)
_INT: Final = ScalarType(TypeRoot.INT)
_SPLITTING: Final = frozenset({"minpartitions", "maxrecordsperpartition"})
"""Options of Spark's Kafka source with which several tasks read one Kafka partition."""
_PLAIN_METADATA: Final[Mapping[str, DataType]] = {
    "_op": STRING, "_topic": STRING, "_ts_ms": _BIGINT, "_offset": _BIGINT, "_partition": _INT,
}  # fmt: skip
_METADATA_TYPES: Final[Mapping[str, DataType]] = {
    **_PLAIN_METADATA, "_source": STRING, "_timestamp": ScalarType(TypeRoot.TIMESTAMP_LTZ, precision=6),
}  # fmt: skip
_HARMLESS_SETTINGS: Final = tuple(
    f"spark.sql.{name}"
    for name in (
        "adaptive.", "ansi.enabled", "caseSensitive", "catalog", "execution.", "extensions", "files.",
        "maxPlanStringLength", "session.timeZone", "shuffle.", "streaming.", "ui.", "warehouse.dir",
    )
)  # fmt: skip
"""Settings whose names begin with these change nothing in an expression, or not in one of `select`."""
_NO_MEMBERS: Final[Mapping[str | None, str]] = {
    "type": "use _op", "ts": "use _ts_ms",
    "data": "its members are the payload fields", "old": "the values before a change are not payload fields",
}  # fmt: skip
"""Members of messages of Canal and Maxwell that are read otherwise."""

_WORD: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*|`[^`]+`")
_MEMBER: Final = re.compile(r"_source\s*(?:[.]\s*([A-Za-z_][A-Za-z0-9_]*|`[^`]+`)|\[\s*'([^'\\]+)'\s*\])")
_CONSTANTS: Final = frozenset({
    "null", "true", "false", "current_date", "current_timestamp", "current_time", "current_user", "session_user",
    "user", "localtimestamp", "current_catalog", "current_database", "current_schema", "now",
})  # fmt: skip
"""Words that are values to Spark, not names of columns."""


def spark_expressions(source: SourceConfig) -> dict[str, str]:
    """The entries of `select` of which only Spark's parser finds what they refer to."""
    return {
        column: text for column, text in source.select.items() if plain_reference(text) is None and parsed(text) is None
    }


def plain_reference(text: str) -> tuple[str, ...] | None:
    """The name that an entry of `select` is, split at the dot of `_source.x`; None when it is more than a name."""
    text = text.strip()
    member = _MEMBER.fullmatch(text)
    if member:
        return ("_source", (member[1] or member[2]).strip("`"))
    if _WORD.fullmatch(text) and text.lower() not in _CONSTANTS:
        return (text.strip("`"),)
    return None


def plan_decoding(
    config: PipelineConfig, source_index: int, references: Mapping[str, References] | None = None
) -> DecodePlan:
    """Plans one source; raises `ConfigurationError` naming the entry of `select` that is wrong.

    `references` are those of `spark_expressions`.
    """
    source, schema = config.sources[source_index], config.table.table_schema
    assert source.format is not None
    rules = engine_rules(schema, config.table.core_options)
    groups = rules.filled_groups(name for name in schema.column_names if source.fills(name))
    read: dict[str, References] = dict(references or {})
    for column, text in source.select.items():
        plain = plain_reference(text)
        if plain is not None:
            read[column] = frozenset({plain})
        elif (tree := parsed(text)) is not None:
            read[column] = tree.references
    types = _types(source, schema, read)
    columns = _columns(source, schema, rules, groups, types, read)
    scope = _scope(columns, types)
    if any(each.expression for each in columns) and not meaning_settings(revealed(config.spark)):
        columns = _with_local(columns, scope)
    if source.is_binlog:
        _check_members(columns)
    fields = tuple(_payload_field(field, data_type, columns) for field, data_type in types.items())
    core = rules.core
    added_up = tuple(name for name in rules.needs_before if source.fills(name))
    takes_before = not (core.ignore_update_before or core.ignore_delete) and (
        core.changelog_producer.emits.at_flush or bool(added_up)
    )
    plan = DecodePlan(
        source_index=source_index,
        format=source.format,
        dialect=dialect_of(source),
        placeholder=source.unavailable_value_placeholder if source.is_debezium else None,
        fields=fields,
        columns=columns,
        scope=scope,
        appended=_scope([column for column in columns if column.expression is not None], types),
        bucket_key=_bucket(schema, rules),
        kind_field=_kind_field(source, core) if source.format == "row-kind" else None,
        has_key=schema.has_primary_key,
        is_kafka=source.is_kafka or source.postgres is not None,
        ignores_deletes=core.ignore_delete,
        ignores_update_before=core.ignore_update_before,
        takes_before=takes_before,
        added_up=added_up,
        groups=tuple(groups),
        on_truncate=source.on_truncate,
        on_unknown=source.on_unknown_field,
        only=source.taken_tables,
        registry=registry_settings(source),
        skips=config.skipped_records,
        has_whole_ranges=source.is_kafka and not any(key.lower() in _SPLITTING for key in source.kafka or {}),
    )
    return with_rules(plan, config.table.expect, by_spark=bool(meaning_settings(revealed(config.spark))))


def local_failures(plan: DecodePlan) -> dict[str, tuple[str, ...]]:
    """What may go wrong while a decoder computes a column of `select`, by column; such records become dead letters."""
    return {column.field.name: column.local.causes for column in plan.columns if column.local and column.local.causes}


def registry_settings(source: SourceConfig) -> RegistrySettings | None:
    """How the schemas of a source are found; None where it needs none."""
    if source.schema_registry is None:
        return None
    return RegistrySettings(tuple(sorted(revealed(source.schema_registry).items())))


def _columns(
    source: SourceConfig,
    schema: TableSchema,
    rules: EngineRules,
    groups: Sequence[SequenceGroup],
    types: Mapping[str, DataType],
    read: Mapping[str, References],
) -> tuple[ColumnPlan, ...]:
    ordering = {name for group in groups for name in group.ordering}
    sequence = rules.core.sequence_field
    vital = {*schema.primary_keys, *schema.partition_keys, *sequence, *ordering}
    columns = []
    for field in schema.fields:
        name = field.name
        text = source.select.get(name) if source.select else back_ticked(name)
        given = read.get(name, frozenset()) if source.select else frozenset({(name,)})
        filled = _filling(source, field, text, given, types)
        columns.append(
            ColumnPlan(
                field=field,
                is_key=name in schema.primary_keys,
                is_vital=name in vital,
                is_sequence=name in sequence,
                is_ordering=name in rules.ordering_columns,
                keeps_on_null=rules.keeps_on_null(name),
                references=given if "expression" in filled else frozenset(),
                default=field.default_value if rules.core.takes_whole_rows else None,
                folder=folder_rule(field, rules.core.partition_default_name) if name in schema.partition_keys else None,
                **filled,  # type: ignore[arg-type]
            )
        )
    _check_source_use(columns)
    return tuple(columns)


def _filling(
    source: SourceConfig, field: DataField, text: str | None, given: References, types: Mapping[str, DataType]
) -> dict[str, str]:
    """What fills a column, by the name of the attribute of `ColumnPlan`; see the table of the module."""
    if text is None:
        return {}
    if plain_reference(text) is not None:
        (plain,) = given
        if len(plain) == 2:
            return {"member": plain[1]}
        if plain[0] in METADATA_COLUMNS and source.select:
            if _same_type(_PLAIN_METADATA.get(plain[0]), field.type):
                return {"metadata": plain[0]}
        elif _same_type(types[plain[0]], field.type):
            return {"direct": plain[0]}
        elif (reason := mistaken_count(plain[0], types[plain[0]], field.type)) is not None:
            raise ConfigurationError(
                f"select.{field.name}: {reason}; give the field the type of the column (`schema`), or say how it is "
                "computed"
            )
    return {"expression": text}


def mistaken_count(name: str, given: DataType, wanted: DataType) -> str | None:
    """What is wrong with a time that is a number in expressions, where it alone fills a text or a time counted
    otherwise."""
    unit, other = counted_in(given), counted_in(wanted)
    if unit is None or (wanted.root not in TEXT_ROOTS and other in (None, unit)):
        return None
    return f"{name!r} is {given}, which counts {unit} in expressions, and the column is {wanted}"


def _check_source_use(columns: Sequence[ColumnPlan]) -> None:
    whole = any(("_source",) in column.references for column in columns)
    parts = sorted(
        parts[1] for column in columns for parts in column.references if len(parts) > 1 and parts[0] == "_source"
    )
    parts += [column.member for column in columns if column.member is not None]
    if whole and parts:
        raise ConfigurationError(f"select: _source is used as a whole and as _source.{parts[0]}; use one of the two")


def _check_members(columns: Sequence[ColumnPlan]) -> None:
    """Refuses what the messages of Canal and Maxwell do not have under `_source`, which are the messages themselves."""
    for column in columns:
        given = f"select.{column.field.name}"
        members = {column.member} | {
            parts[1] for parts in column.references if parts[0] == "_source" and len(parts) > 1
        }
        if ("_source",) in column.references:
            raise ConfigurationError(f"{given}: _source is read member by member here, such as _source.database")
        for name in sorted(members & _NO_MEMBERS.keys() - {None}):  # type: ignore[type-var]
            raise ConfigurationError(f"{given}: _source.{name} cannot be read; {_NO_MEMBERS[name]}")


def _types(source: SourceConfig, schema: TableSchema, read: Mapping[str, References]) -> dict[str, DataType]:
    named = {field.name: field.type for field in schema.fields}
    types: dict[str, DataType] = {} if source.select else {name: with_nullable(t, True) for name, t in named.items()}
    used: dict[str, list[tuple[str, bool]]] = {}
    for column in source.select:
        plain = plain_reference(source.select[column])
        for field in sorted({parts[0] for parts in read.get(column, ()) if parts[0] not in METADATA_COLUMNS}):
            used.setdefault(field, []).append((column, plain == (field,)))
    for field, uses in used.items():
        known = nearest(field, METADATA_COLUMNS)
        if field.startswith("_") and known and field not in named and field not in source.payload_types:
            raise ConfigurationError(f"select.{uses[0][0]}: reads {field!r}, which is no metadata column{known}")
        plain_types = {str(with_nullable(named[column], True)): named[column] for column, is_plain in uses if is_plain}
        alone = len(plain_types) == 1 and all(is_plain for _, is_plain in uses)
        types[field] = with_nullable(named.get(field) or (next(iter(plain_types.values())) if alone else STRING), True)
    for field, text in source.payload_types.items():
        types[field] = with_nullable(parse_sql_type(text), True)
    return types


def _payload_field(field: str, data_type: DataType, columns: Sequence[ColumnPlan]) -> PayloadField:
    fed = [column for column in columns if field in column.payload_fields]
    return PayloadField(field, data_type, fed[0].field.name if fed else field, any(column.is_vital for column in fed))


def _scope(columns: Sequence[ColumnPlan], types: Mapping[str, DataType]) -> tuple[ScopeColumn, ...]:
    references = sorted({parts for column in columns for parts in column.references})
    scope: dict[ScopeColumn, None] = {}
    for parts in references:
        if parts[0] == "_source" and len(parts) > 1:
            scope[ScopeColumn(parts[1], STRING, is_member=True)] = None
        elif parts[0] in METADATA_COLUMNS:
            scope[ScopeColumn(parts[0], _METADATA_TYPES.get(parts[0]))] = None
        else:
            scope[ScopeColumn(parts[0], types[parts[0]])] = None
    return tuple(scope)


def meaning_settings(settings: Mapping[str, str]) -> list[str]:
    """The settings, out of some of Spark under which expressions may mean what they do not mean without."""
    return [key for key in settings if key.startswith("spark.sql.") and not key.startswith(_HARMLESS_SETTINGS)]


def _with_local(columns: Sequence[ColumnPlan], scope: Sequence[ScopeColumn]) -> tuple[ColumnPlan, ...]:
    """The columns, of which the decoder computes what is translated."""
    from freshet.pipeline.expressions.column_expression import carrier, column_expression
    from freshet.pipeline.expressions.evaluation import column_sql
    from freshet.pipeline.expressions.grammar import NotOursError
    from freshet.pipeline.expressions.values import Value

    known: dict[tuple[str, ...], Value] = {}
    for index, each in enumerate(scope):
        with suppress(NotOursError):
            known[("_source", each.name) if each.is_member else (each.name,)] = Value(
                column_sql(index), carrier(each.type)
            )
    found = []
    for column in columns:
        tree = None if column.expression is None else parsed(column.expression)
        if tree is not None and column.expression is not None:
            with suppress(NotOursError):
                local = column_expression(column.expression, tree, known, column.field.type)
                column = replace(column, expression=None, local=local)
        found.append(column)
    return tuple(found)


def _bucket(schema: TableSchema, rules: EngineRules) -> BucketPlan:
    rule = BucketRule.of(schema, rules.core)
    return BucketPlan(tuple(schema.column_names.index(name) for name in rule.columns), rule)


def _kind_field(source: SourceConfig, options: CoreOptions) -> str:
    """The payload field that holds the row kind of a `row-kind` source."""
    column = options.rowkind_field
    assert column is not None, "a rule of the pipeline file"
    text = source.select.get(column, column).strip()
    plain = text.strip("`")
    if text not in (plain, f"`{plain}`") or not plain.replace("_", "a").isalnum():
        raise ConfigurationError(f"select.{column}: the row kind must be a field of the payload, not {text!r}")
    return plain


def _same_type(left: DataType | None, right: DataType) -> bool:
    return left is not None and with_nullable(left, True) == with_nullable(right, True)


def back_ticked(name: str) -> str:
    """A name of a column as an expression has it."""
    return "`" + name.replace("`", "``") + "`"
