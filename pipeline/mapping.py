"""How one source's payload becomes the table's columns: which fields are read, as which types, by which expressions.

The type of a payload field is, in this order: what `schema` declares, the type of the table column of the same name,
the type of the one column that `select` fills with nothing but this field, STRING.

Vital columns are those without which a deletion is not known: primary key, partition, sequence fields, ordering columns
of the sequence groups that the source fills.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pyspark.sql import SparkSession

from freshet.pipeline.config.model import ROW_KIND_OPTION, SourceConfig
from freshet.pipeline.config.rules import METADATA_COLUMNS, nearest, sequence_fields
from freshet.pipeline.exceptions import ConfigurationError
from freshet.pipeline.spark.select_expression import SelectExpression, parse_select
from freshet.pipeline.sql_text import name
from freshet.storage.model.data_type import LENGTH_MAX, DataField, DataType, ScalarType, TypeRoot, with_nullable
from freshet.storage.model.schema import TableSchema
from freshet.storage.model.sql_type import parse_sql_type
from freshet.storage.options.engine import SequenceGroup

_STRING: Final = ScalarType(TypeRoot.VARCHAR, True, LENGTH_MAX)


@dataclass(frozen=True, slots=True)
class PayloadField:
    """One field that is read. `column` is the table column that its dead letters name."""

    name: str
    type: DataType
    column: str
    is_vital: bool


@dataclass(frozen=True, slots=True)
class ColumnPlan:
    """One table column: filled by a payload field of its own type, by an expression, or (neither) with NULL."""

    field: DataField
    is_key: bool
    is_vital: bool
    direct: str | None = None
    expression: SelectExpression | None = None

    @property
    def payload_fields(self) -> frozenset[str]:
        """The payload fields that the column is made of."""
        if self.direct is not None:
            return frozenset({self.direct})
        return frozenset(_payload_names(self.expression.references)) if self.expression else frozenset()

    @property
    def only_field(self) -> str | None:
        """The one field that alone makes the column: then an unchanged field means an unchanged column."""
        if self.direct is not None:
            return self.direct
        references = self.expression.references if self.expression else frozenset()
        fields = self.payload_fields
        (only,) = fields if len(fields) == 1 else (None,)
        return only if all(parts[0] == only for parts in references) else None


@dataclass(frozen=True, slots=True)
class MappingPlan:
    """The whole mapping of one source."""

    fields: tuple[PayloadField, ...]
    columns: tuple[ColumnPlan, ...]
    metadata: frozenset[tuple[str, ...]]
    """References to metadata columns, split at the dots."""

    @property
    def key_fields(self) -> frozenset[str]:
        """The payload fields that the primary key is made of."""
        return frozenset(field for column in self.columns if column.is_key for field in column.payload_fields)

    @property
    def source_fields(self) -> tuple[str, ...]:
        """The fields of `_source` that expressions name."""
        return tuple(sorted({parts[1] for parts in self.metadata if parts[0] == "_source" and len(parts) > 1}))

    @property
    def source_text(self) -> bool:
        """True when an expression reads `_source` as a whole."""
        return ("_source",) in self.metadata

    def of_columns(self, columns: Sequence[ColumnPlan]) -> tuple[PayloadField, ...]:
        """The fields that some columns are made of, in order."""
        wanted = frozenset(field for column in columns for field in column.payload_fields)
        return tuple(field for field in self.fields if field.name in wanted)


def plan_mapping(
    spark: SparkSession,
    source: SourceConfig,
    schema: TableSchema,
    options: Mapping[str, str],
    groups: Sequence[SequenceGroup] = (),
) -> MappingPlan:
    """Plans one source; raises `ConfigurationError` naming the entry of `select` that is wrong.

    `groups` are the sequence groups that the source fills.
    """
    expressions = {column: parse_select(spark, column, text) for column, text in source.select.items()}
    types = _types(source, schema, expressions)
    ordering = [name for group in groups for name in group.ordering]
    vital = frozenset({*schema.primary_keys, *schema.partition_keys, *sequence_fields(options), *ordering})
    columns = []
    for field in schema.fields:
        expression = expressions.get(field.name)
        plain = field.name if not source.select else expression.plain_field if expression else None
        if plain is not None and plain not in METADATA_COLUMNS and _same_type(types[plain], field.type):
            direct, expression = plain, None
        else:
            direct = None
            if expression is None and not source.select:
                expression = parse_select(spark, field.name, name(field.name))
        columns.append(
            ColumnPlan(field, field.name in schema.primary_keys, field.name in vital, direct, expression)
        )  # fmt: skip
    fields = tuple(_payload_field(field, data_type, columns) for field, data_type in types.items())
    metadata = frozenset(
        parts
        for each in columns
        if each.expression
        for parts in each.expression.references
        if parts[0] in METADATA_COLUMNS
    )
    plan = MappingPlan(fields, tuple(columns), metadata)
    if plan.source_text and plan.source_fields:
        raise ConfigurationError(
            f"select: _source is used as a whole and as _source.{plan.source_fields[0]}; use one of the two"
        )
    return plan


def kind_field(source: SourceConfig, options: Mapping[str, str]) -> str:
    """The payload field that holds the row kind of a `row-kind` source."""
    column = options[ROW_KIND_OPTION]
    text = source.select.get(column, column).strip()
    plain = text.strip("`")
    if text not in (plain, f"`{plain}`") or not plain.replace("_", "a").isalnum():
        raise ConfigurationError(f"select.{column}: the row kind must be a field of the payload, not {text!r}")
    return plain


def _types(
    source: SourceConfig, schema: TableSchema, expressions: Mapping[str, SelectExpression]
) -> dict[str, DataType]:
    named = {field.name: field.type for field in schema.fields}
    types: dict[str, DataType] = (
        {} if source.select else {column: with_nullable(t, True) for column, t in named.items()}
    )
    used: dict[str, list[tuple[str, bool]]] = {}
    for column, expression in expressions.items():
        for field in _payload_names(expression.references):
            used.setdefault(field, []).append((column, expression.plain_field == field))
    for field, uses in used.items():
        if field.startswith("_") and nearest(field, METADATA_COLUMNS) and field not in named:
            known = nearest(field, METADATA_COLUMNS)
            if field not in source.payload_types:
                raise ConfigurationError(f"select.{uses[0][0]}: reads {field!r}, which is no metadata column{known}")
        plain = {str(with_nullable(named[column], True)): named[column] for column, is_plain in uses if is_plain}
        alone = len(plain) == 1 and all(is_plain for _, is_plain in uses)
        types[field] = with_nullable(named.get(field) or (next(iter(plain.values())) if alone else _STRING), True)
    for field, text in source.payload_types.items():
        types[field] = with_nullable(parse_sql_type(text), True)
    return types


def _payload_field(field: str, data_type: DataType, columns: Sequence[ColumnPlan]) -> PayloadField:
    fed = [column for column in columns if field in column.payload_fields]
    return PayloadField(field, data_type, fed[0].field.name if fed else field, any(column.is_vital for column in fed))


def _payload_names(references: Iterable[tuple[str, ...]]) -> list[str]:
    return sorted({parts[0] for parts in references if parts[0] not in METADATA_COLUMNS})


def _same_type(left: DataType, right: DataType) -> bool:
    return with_nullable(left, True) == with_nullable(right, True)
