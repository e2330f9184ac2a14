"""What a decoder of one source knows: which payload fields it reads, in which types, and what they fill.

A plan is a value that travels to the workers; `planning` makes it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal

from freshet._frozen import Frozen
from freshet.pipeline.config.computed_columns import ComputedColumn
from freshet.pipeline.config.formats import ENVELOPE_FORMATS, Format, OfFormat
from freshet.pipeline.config.only_tables import OnlyTables
from freshet.pipeline.config.record_place import RecordPlace
from freshet.pipeline.config.source_options import METADATA_COLUMNS
from freshet.pipeline.decode.dialect import Dialect
from freshet.storage.codec.bucket_function import BucketRule
from freshet.storage.codec.partition_names import FolderRule
from freshet.storage.model.data_type import LENGTH_MAX, ArrayType, DataField, DataType, ScalarType, TypeRoot
from freshet.storage.options import SequenceGroup

if TYPE_CHECKING:
    from freshet.pipeline.expressions.column_expression import ColumnExpression
    from freshet.pipeline.expressions.evaluation import ExpressionSql

References = frozenset[tuple[str, ...]]
"""The names that an expression reads, split at the dots."""

STRING: Final = ScalarType(TypeRoot.VARCHAR, True, LENGTH_MAX)
_REFERENCE: Final = "env:"
NAMED_TYPES: Final = frozenset(
    {TypeRoot.DECIMAL, TypeRoot.DATE, TypeRoot.TIME, TypeRoot.TIMESTAMP, TypeRoot.TIMESTAMP_LTZ}
)
"""Types for which the type name in the record's schema matters."""

_NO_TOAST: Final = (NAMED_TYPES - {TypeRoot.DECIMAL}) | {
    TypeRoot.BOOLEAN, TypeRoot.TINYINT, TypeRoot.SMALLINT, TypeRoot.INT, TypeRoot.BIGINT, TypeRoot.FLOAT,
    TypeRoot.DOUBLE,
}  # fmt: skip


class PayloadField(Frozen):
    """One field that is read. `column` is the table column that its dead letters name."""

    name: str
    type: DataType
    column: str
    is_vital: bool

    @property
    def may_be_toast(self) -> bool:
        """True when a value of this type may be stored out of line."""
        return self.type.root not in _NO_TOAST

    @property
    def wants_fact(self) -> bool:
        """True when the type in a record's schema may say something that the declared type does not."""
        kind = self.type
        while isinstance(kind, ArrayType):
            kind = kind.element
        return isinstance(kind, ScalarType)


class ColumnPlan(Frozen):
    """One table column: filled by one of the sources below, or (none of them) with NULL.

    `direct` is a payload field of the column's type, `member` a field of `_source`, `metadata` one of the plain
    metadata columns; `expression` is SQL that Spark computes, from `references`, `local` SQL that the decoder does.
    """

    field: DataField
    is_key: bool
    is_vital: bool
    is_sequence: bool
    is_ordering: bool
    keeps_on_null: bool
    direct: str | None = None
    member: str | None = None
    metadata: str | None = None
    expression: str | None = None
    local: ColumnExpression | None = None
    references: References = frozenset()
    is_epoch: bool = False
    """A member or a metadata column in milliseconds since 1970, which fills a TIMESTAMP."""
    computed: ComputedColumn | None = None
    """A function of another column of the table, which the decoder computes."""
    default: str | None = None
    """What a new row gets whose record lacks the field."""
    folder: FolderRule | None = None
    """The rule of a partition column that may hold what no folder can be named after."""

    @property
    def payload_fields(self) -> frozenset[str]:
        """The payload fields that the column is made of."""
        if self.direct is not None:
            return frozenset({self.direct})
        if self.computed is not None:
            return frozenset({self.computed.column} if self.computed.column is not None else ())
        return frozenset(parts[0] for parts in self.references if parts[0] not in METADATA_COLUMNS)

    @property
    def only_field(self) -> str | None:
        """The one field that alone makes the column: then an unchanged field means an unchanged column."""
        fields = self.payload_fields
        (only,) = fields if len(fields) == 1 else (None,)
        is_alone = self.direct is not None or self.computed is not None
        return only if is_alone or all(parts[0] == only for parts in self.references) else None

    @property
    def can_stay(self) -> bool:
        """True when a stored value may stand for one that a change does not carry (unchanged TOAST)."""
        return self.only_field is not None and not (self.is_key or self.is_ordering)

    @property
    def may_stay(self) -> bool:
        """True when the stored value is looked up for an update that does not carry the column."""
        return self.can_stay and not self.keeps_on_null


class ScopeColumn(Frozen):
    """One thing that expressions read: a payload field, a field of `_source` (`member`), or a metadata column."""

    name: str
    type: DataType | None
    is_member: bool = False


class BucketPlan(Frozen):
    """How buckets are computed: indexes of the bucket key's columns, and the rule."""

    indexes: tuple[int, ...]
    rule: BucketRule


@dataclass(frozen=True, slots=True)
class RegistrySettings:
    """How the workers reach a schema registry: settings of confluent-kafka's client, as the pipeline file has them."""

    given: tuple[tuple[str, str], ...] = field(repr=False)

    def resolved(self, environment: Mapping[str, str]) -> dict[str, str]:
        """The settings, for `env:NAME` the variable of this process; not to be shown or kept."""
        return {
            key: environment.get(text.removeprefix(_REFERENCE), "") if text.startswith(_REFERENCE) else text
            for key, text in self.given
        }


class PlannedRule(Frozen):
    """One rule of `expect`. `tag` is that of the outcomes of records that break it, `column` the only one it reads.

    `reads` are the indexes of the table's columns that it reads, None where only Spark knows; `local` is true where a
    row breaks it, over those columns as `c0` …, None where Spark computes it.
    """

    name: str
    text: str
    tag: int
    column: str | None
    reads: tuple[int, ...] | None
    local: ExpressionSql | None


class DecodePlan(OfFormat, Frozen):
    """All that a decoder of one source knows."""

    source_index: int
    format: Format
    dialect: Dialect
    placeholder: str | None
    fields: tuple[PayloadField, ...]
    columns: tuple[ColumnPlan, ...]
    scope: tuple[ScopeColumn, ...]
    appended: tuple[ScopeColumn, ...]
    """Those of `scope` that Spark gets as columns, since an expression that it computes reads them."""
    bucket_key: BucketPlan
    kind_field: str | None
    has_key: bool
    is_kafka: bool
    ignores_deletes: bool
    ignores_update_before: bool
    takes_before: bool
    added_up: tuple[str, ...]
    groups: tuple[SequenceGroup, ...]
    on_truncate: Literal["fail", "skip", "apply"]
    on_unknown: Literal["ignore", "fail", "add"]
    only: OnlyTables | None = None
    registry: RegistrySettings | None = None
    skips: frozenset[RecordPlace] = frozenset()
    """Records of which nobody looks at more than their place."""
    has_whole_ranges: bool = False
    """True where one decoder has all records of a Kafka partition in a batch."""
    spells_freely: bool = False
    """Whether fields may differ from their names in the case of their letters (`careful.SpelledFields`)."""
    rules: tuple[PlannedRule, ...] = ()
    """What is expected of rows, the most severe first; the decoder computes all of them, or Spark does."""

    @property
    def fails_on_unknown(self) -> bool:
        """True where a record with a field that nothing reads stops the run."""
        return self.on_unknown == "fail"

    @property
    def names_tables(self) -> bool:
        """True where it matters which table a record is of: others are skipped, or refused."""
        return self.captures_changes and not (self.only is not None and self.only.is_any)

    @property
    def bucket(self) -> BucketPlan | None:
        """The bucket as the decoder computes it; None where a key column comes from an expression."""
        key = self.bucket_key
        computed = any(self.columns[index].expression is not None for index in key.indexes)
        return None if computed and not key.rule.is_constant else key

    @property
    def has_envelope(self) -> bool:
        """True for Debezium's envelopes, in JSON or Avro."""
        return self.format in ENVELOPE_FORMATS

    @property
    def has_several_rows(self) -> bool:
        """True when a record may be several changes."""
        return self.format == "canal-json"

    @property
    def splits_updates(self) -> bool:
        """True when an update may be two rows."""
        has_before = self.has_envelope or self.is_binlog
        return has_before and self.has_key and not self.ignores_deletes

    @property
    def key_fields(self) -> frozenset[str]:
        """The payload fields that the primary key is made of."""
        return frozenset(field for column in self.columns if column.is_key for field in column.payload_fields)

    @property
    def fields_with_default(self) -> frozenset[str]:
        """The payload fields of which it matters whether a record has them, NULL or not."""
        return frozenset(c.direct for c in self.columns if c.direct is not None and c.default is not None)

    @property
    def wants_facts(self) -> bool:
        """True when the types in a record's schema matter."""
        return (self.is_debezium or self.is_avro) and any(field.wants_fact for field in self.fields)

    @property
    def members(self) -> tuple[str, ...]:
        """The fields of `_source` that are read."""
        plain = {column.member for column in self.columns if column.member is not None}
        return tuple(sorted(plain | {each.name for each in self.scope if each.is_member}))

    @property
    def reads_headers(self) -> bool:
        """True when an expression reads `_headers`."""
        return any(each.name == "_headers" and not each.is_member for each in self.scope)

    @property
    def local(self) -> tuple[int, ...]:
        """Indexes of the columns whose expressions the decoder computes."""
        return tuple(index for index, column in enumerate(self.columns) if column.local is not None)

    @property
    def judges_by_spark(self) -> bool:
        """True where Spark computes the rules."""
        return any(rule.local is None for rule in self.rules)

    @property
    def needs_spark(self) -> bool:
        """True where Spark computes columns or rules, from outcomes that cross column by column."""
        return bool(self.expressions) or self.judges_by_spark

    @property
    def expressions(self) -> tuple[int, ...]:
        """Indexes of the columns that Spark computes."""
        return tuple(index for index, column in enumerate(self.columns) if column.expression is not None)
