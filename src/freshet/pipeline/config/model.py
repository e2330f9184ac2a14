"""What a pipeline file says, as frozen values: one file = one streaming query into one table.

    PipelineConfig ── name, run_on, trigger, checkpoint, dead_letters, spark, catalog
      ├── sources[]: SourceConfig ── kafka | files | table | postgres, format, schema, select, on_unknown_field, …
      ├── table: TableConfig ── warehouse, name, columns, primary_key, partition_by, options, expect: Expectation{}
      ├── max_dead_letters: MaxDeadLetters ── share, count
      ├── compaction: CompactionConfig ── background, batch_budget
      └── metrics: MetricsConfig ── port, host

Defaults are here and nowhere else; `config.pipeline_file` reads the files and reports what is wrong. A value whose
key names a secret (`storage.options.secrets`), or which has one in it, is a `SecretStr`: every output of a model masks
it, `revealed` alone gives the texts. The options of the table that is written hide theirs wherever they are shown.

Source: conf/reference.yaml.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Any, Final, Literal, Self

from pydantic import Field, PrivateAttr, SecretStr, model_validator

from freshet.logstore.kafka.java_options import READ_COMMITTED
from freshet.pipeline.config.expectations import Expectations
from freshet.pipeline.config.formats import Format, OfFormat
from freshet.pipeline.config.only_tables import ANY, OnlyTables
from freshet.pipeline.config.origin import Origin
from freshet.pipeline.config.record_place import RecordPlace
from freshet.pipeline.config.sections import (
    LOCAL_INTERVAL_MS,
    SPARK_INTERVAL,
    CompactionConfig,
    FileModel,
    MaskedTexts,
    MetricsConfig,
    OptionTexts,
    RunOn,
    TableName,
    TableTexts,
    Texts,
    TriggerConfig,
    interval_ms,
)
from freshet.storage.catalog import split_branch
from freshet.storage.model.data_type import DataField, with_nullable
from freshet.storage.model.schema import TableSchema, assign_ids
from freshet.storage.model.sql_type import parse_sql_type
from freshet.storage.options import CoreOptions, local_folders, without_secrets

ROW_KIND_OPTION: Final = CoreOptions.rowkind_field.key
SEQUENCE_OPTION: Final = CoreOptions.sequence_field.key

KAFKA_OPTIONS: Final = (
    "assign", "subscribe", "subscribePattern", "kafka.bootstrap.servers", "startingOffsets", "startingTimestamp",
    "startingOffsetsByTimestamp", "startingOffsetsByTimestampStrategy", "failOnDataLoss", "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger", "maxTriggerDelay", "minPartitions", "maxRecordsPerPartition", "groupIdPrefix",
    "kafkaConsumer.pollTimeoutMs", "fetchOffset.numRetries", "fetchOffset.retryIntervalMs",
)  # fmt: skip
"""Options of Spark's Kafka source that a stream takes, besides everything that begins with `kafka.`."""

ISOLATION: Final = "kafka.isolation.level"

FILE_OPTIONS: Final = (
    "maxFilesPerTrigger", "maxBytesPerTrigger", "latestFirst", "maxFileAge", "pathGlobFilter", "recursiveFileLookup",
    "cleanSource", "sourceArchiveDir", "lineSep", "encoding", "compression",
)  # fmt: skip
"""Options of Spark's file source that a stream takes."""

TABLE_SOURCE_OPTIONS: Final = (
    "scan.mode", "scan.snapshot-id", "scan.timestamp-millis", "isolation", "log.read.isolation", "log.on-truncated",
    "log.on-lake-only", "consumer-id", "filter", "columns", "maxFilesPerTrigger", "maxBytesPerTrigger",
    "maxRowsPerTrigger", "maxOffsetsPerTrigger",
)  # fmt: skip
"""Options of a table that is read, besides everything that begins with `kafka.`."""

SHARE_RECORDS_MIN: Final = 1000
"""`max_dead_letters.share` says nothing about smaller batches: a few bad records may be most of them."""


def revealed(options: Mapping[str, str | SecretStr]) -> dict[str, str]:
    """The options with their secrets in plain text, for the library that needs them and nobody else."""
    return {key: item.get_secret_value() if isinstance(item, SecretStr) else item for key, item in options.items()}


class FilesConfig(FileModel):
    """A folder of files, a record per line; new files are picked up as they appear."""

    path: str = Field(min_length=1)
    format: Literal["json", "text"] = "json"
    """Both read lines; `json` says for people that each is a JSON document."""
    options: Texts = Field(default_factory=dict)
    """Options of Spark's file source; written next to `path` in the file."""

    @model_validator(mode="before")
    @classmethod
    def _gather_options(cls, value: Any) -> Any:
        if not isinstance(value, Mapping):
            return value
        own = {key: item for key, item in value.items() if key not in FILE_OPTIONS}
        rest = {key: item for key, item in value.items() if key in FILE_OPTIONS}
        return {**own, "options": {**rest, **dict(own.get("options") or {})}} if rest else own


class TableSourceConfig(FileModel):
    """A table whose rows and changes are read."""

    warehouse: str = Field(min_length=1)
    name: TableName
    catalog: MaskedTexts | None = None
    """Options of the catalog of this table; without it the top-level `catalog` counts (`config.catalogs`)."""
    options: MaskedTexts = Field(default_factory=dict)
    """Options of the stream (`config.frame_options`); written next to `name` in the file, `isolation` for
    `log.read.isolation`. Without a `scan.mode` it is latest-full."""

    @model_validator(mode="before")
    @classmethod
    def _gather_options(cls, value: Any) -> Any:
        if not isinstance(value, Mapping):
            return value
        own, options = {}, dict(value.get("options") or {})
        for key, item in value.items():
            if key in TABLE_SOURCE_OPTIONS or str(key).startswith("kafka."):
                options["log.read.isolation" if key == "isolation" else key] = item
            elif key != "options":
                own[key] = item
        return {**own, "options": options}

    @property
    def given(self) -> dict[str, str]:
        """The options as the stream takes them: names in small letters, secrets in plain text."""
        given = {key.lower(): text for key, text in revealed(self.options).items()}
        return {"scan.mode": "latest-full", **given}


class PostgresConfig(FileModel):
    """Tables of a PostgreSQL database, whose changes its logical decoding sends."""

    dsn: SecretStr
    """As libpq takes it: a URI, or `host=… dbname=…`."""
    password: SecretStr | None = None
    """Or `env:NAME`: that of the environment each time a connection is made."""
    tables: tuple[str, ...] = Field(min_length=1)
    """Patterns of `schema.table`, in which `*` takes any part of a name; those of no pattern are passed over."""
    slot: str = Field(pattern="^[a-z0-9_]{1,63}$")
    publication: str = Field(min_length=1)
    snapshot: Literal["initial", "never", "only"] = "initial"
    """Whether the rows that are there are copied, never, or alone."""
    copy_mib_per_second: float | None = Field(default=None, gt=0)
    """How much of the rows that are there is read at most, as the server sends it; None: as fast as it does."""
    failover: bool = False
    """Whether standbys keep the slot ready for the day on which one of them is promoted (PostgreSQL 17)."""

    @property
    def shown(self) -> dict[str, str | SecretStr]:
        """Its texts by their keys, for those who hide secrets."""
        return {"dsn": self.dsn, **({} if self.password is None else {"password": self.password})}

    @property
    def may_be_several(self) -> bool:
        """Whether the patterns take more than one table."""
        return len(self.tables) > 1 or any(mark in self.tables[0] for mark in "*?[")

    def takes(self, schema: str, table: str) -> bool:
        """Whether the changes of a table are read."""
        return any(fnmatchcase(f"{schema}.{table}", pattern) for pattern in self.tables)


AS_DEBEZIUM: Final[Mapping[str, str]] = {
    "format": "debezium-json",
    "decimal_handling_mode": "string",
    "time_precision_mode": "isostring",
    "binary_handling_mode": "hex",
}
"""How changes of PostgreSQL are written where one is looked at as a text."""


class SourceConfig(OfFormat, FileModel):
    """One input of a pipeline and how its records become rows."""

    postgres: PostgresConfig | None = None
    """A database that is read without a broker; neither `format` nor what says how values are written goes with it."""
    table: TableSourceConfig | None = None
    """The changes of a table; neither `format` nor `schema` nor what belongs to records goes with it."""
    kafka: MaskedTexts | None = None
    """Options of Spark's Kafka source, `kafka.*` passed on."""
    files: FilesConfig | None = None
    format: Format | None = None
    """Required for records; a table says itself what its rows are."""
    read: Literal["auto", "spark", "python"] = "auto"
    """Who reads the records of Kafka: Spark's source, the Python workers themselves, or whichever takes less time."""
    schema_registry: MaskedTexts | None = None
    """Of the formats in Avro: settings of confluent-kafka's client, `url` among them; a secret also as `env:NAME`."""
    payload_types: Texts = Field(default_factory=dict, alias="schema")
    """Types of payload fields; default: the table column of the same name, else STRING."""
    select: Texts = Field(default_factory=dict)
    """Table column = Spark SQL expression over payload fields; empty: columns are payload fields of the same name."""
    on_unknown_field: Literal["ignore", "fail", "add"] = "ignore"
    on_truncate: Literal["fail", "skip", "apply"] = "fail"
    only: OnlyTables | None = None
    """Records of which tables are read, where they name it; without it a second table stops the run."""
    decimal_handling_mode: Literal["precise", "string", "double"] = "precise"
    """Debezium's; whether texts are the base64 of numbers where a record brings no schema."""
    time_precision_mode: (
        Literal["adaptive", "adaptive_time_microseconds", "connect", "microseconds", "nanoseconds", "isostring"] | None
    ) = None
    """Debezium's; unit of times that are numbers where a record brings no schema, or one in Avro that does not say it.
    Default: adaptive for the Debezium formats, isostring (numbers are refused) for the others."""
    binary_handling_mode: Literal["bytes", "base64", "base64-url-safe", "hex"] = "bytes"
    """Debezium's; how binary values are written as text. With bytes, what a schema calls a string is none."""
    unavailable_value_placeholder: str = Field(default="__debezium_unavailable_value", min_length=1)
    """Debezium's; the text in place of an unchanged TOAST value, or `hex:` and its bytes."""

    @model_validator(mode="before")
    @classmethod
    def _as_debezium(cls, value: Any) -> Any:
        if not isinstance(value, Mapping) or value.get("postgres") is None:
            return value
        given = [key for key in AS_DEBEZIUM if value.get(key, AS_DEBEZIUM[key]) != AS_DEBEZIUM[key]]
        if given:
            raise ValueError(f"{given[0]} has no place beside postgres: its values have types")
        return {**value, **AS_DEBEZIUM}

    def fills(self, column: str) -> bool:
        """True when rows of this source have a value for the table column; the others are NULL in them."""
        return not self.select or column in self.select

    @property
    def may_delete(self) -> bool:
        """True when a record can be a deletion."""
        return self.format not in ("json", "avro")

    @property
    def is_kafka(self) -> bool:
        """True for a Kafka source."""
        return self.kafka is not None

    @property
    def given_isolation(self) -> str | None:
        """What the file says of records in transactions of Kafka: read_committed or read_uncommitted."""
        options = {key.lower(): text.lower() for key, text in revealed(self.kafka or {}).items()}
        return options.get(ISOLATION) or None

    @property
    def isolation(self) -> str:
        """`given_isolation` with its default filled in: records count once their transaction is committed."""
        return self.given_isolation or READ_COMMITTED

    @property
    def taken_tables(self) -> OnlyTables | None:
        """`only`; of a database `tables` has said which are read."""
        return OnlyTables.model_validate(ANY) if self.only is None and self.postgres is not None else self.only

    @property
    def numeric_times(self) -> str:
        """`time_precision_mode` with its default filled in."""
        return self.time_precision_mode or ("adaptive" if self.is_debezium else "isostring")


class TableConfig(FileModel):
    """The table that the pipeline writes."""

    warehouse: str = Field(min_length=1)
    name: TableName
    columns: Texts = Field(min_length=1)
    primary_key: tuple[str, ...] = ()
    partition_by: tuple[str, ...] = ()
    options: TableTexts = Field(default_factory=OptionTexts)
    """Options that the table gets when it is created."""
    write_options: TableTexts = Field(default_factory=OptionTexts)
    """Options of this writer alone, over those of the table; for example write-only where others compact."""
    expect: Expectations = Field(default_factory=dict)
    """What is expected of rows; what becomes of records that break it."""

    _defaults: dict[str, str] = PrivateAttr(default_factory=dict)

    def with_defaults(self, schema: TableSchema) -> Self:
        """The same table, whose columns have the defaults of this schema: a file names none."""
        copy = type(self).model_validate({name: getattr(self, name) for name in type(self).model_fields})
        copy._defaults = {each.name: each.default_value for each in schema.fields if each.default_value is not None}
        return copy

    @cached_property
    def core_options(self) -> CoreOptions:
        """The options of the table, parsed; raises `InvalidRequestError` for a value that is wrong."""
        return CoreOptions.parse(self.options, has_primary_key=bool(self.primary_key), strict=False)

    @cached_property
    def written_options(self) -> CoreOptions:
        """The same with those of this writer over them."""
        given = {**self.options, **self.write_options}
        return CoreOptions.parse(given, has_primary_key=bool(self.primary_key), strict=False)

    @property
    def own_options(self) -> dict[str, str]:
        """What the table is opened with here: `write_options`, and folders of this machine that the file names."""
        return {**local_folders(self.options), **self.write_options}

    @property
    def moves_rows(self) -> bool:
        """Whether a key may be in any partition, so that an index says where: `TableSchema.keys_cross_partitions`."""
        is_keyed = bool(self.primary_key) and not set(self.partition_by) <= set(self.primary_key)
        return is_keyed and self.written_options.has_dynamic_buckets

    @cached_property
    def fields(self) -> tuple[DataField, ...]:
        """The columns with field ids as a new table gets them; key columns are NOT NULL."""
        columns = []
        for name, text in self.columns.items():
            data_type = parse_sql_type(text)
            if name in self.primary_key:
                data_type = with_nullable(data_type, False)
            columns.append(DataField(0, name, data_type, default_value=self._defaults.get(name)))
        return assign_ids(columns)[0]

    @cached_property
    def table_schema(self) -> TableSchema:
        """The schema that a table created from this file has."""
        fields, highest = assign_ids(self.fields)
        return TableSchema(0, fields, highest, self.partition_by, self.primary_key, dict(self.options))


class MaxDeadLetters(FileModel):
    """How many records of one batch may become dead letters before the run stops, with nothing committed."""

    share: float = Field(default=0.5, ge=0, le=1)
    """Of the records of a batch; judged only in batches of at least `SHARE_RECORDS_MIN` records."""
    count: int | None = Field(default=None, ge=0)
    """Records, whatever the size of the batch; None is no bound."""

    def is_exceeded(self, dead: int, read: int) -> bool:
        """True when `dead` of the `read` records of a batch are too many."""
        if self.count is not None and dead > self.count:
            return True
        return read >= SHARE_RECORDS_MIN and dead > self.share * read


class PipelineConfig(FileModel):
    """One pipeline file."""

    name: str = Field(min_length=1)
    """Commit user and query name; a checkpoint belongs to one name and one table."""
    run_on: RunOn = "spark"
    """The engine: Spark, or this process and its workers."""
    sources: tuple[SourceConfig, ...]
    table: TableConfig
    trigger: TriggerConfig = TriggerConfig(processing_time=SPARK_INTERVAL)
    checkpoint: str = Field(min_length=1)
    dead_letters: TableName | None = None
    """Default: the table's name and `_dead_letters`."""
    max_dead_letters: MaxDeadLetters = MaxDeadLetters()
    compaction: CompactionConfig = CompactionConfig()
    metrics: MetricsConfig | None = None
    """None: the run publishes none."""
    spark: MaskedTexts = Field(default_factory=dict)
    catalog: MaskedTexts = Field(default_factory=dict)
    """Options of the catalog and its store, such as `s3.endpoint`; a secret only as `env:NAME`."""

    _origin: Origin = PrivateAttr(default_factory=Origin)
    _accepted_loss: tuple[int, int] | None = PrivateAttr(default=None)
    _skipped_records: frozenset[RecordPlace] = PrivateAttr(default=frozenset())

    @property
    def is_local(self) -> bool:
        """True where it runs without Spark."""
        return self.run_on == "local"

    def running_on(self, engine: RunOn) -> Self:
        """The same pipeline on an engine."""
        return self.model_copy(update={"run_on": engine})

    @property
    def trigger_ms(self) -> int:
        """Milliseconds from the start of one batch to that of the next, if it takes less; by default the engine's."""
        if self.is_local and "trigger" not in self.model_fields_set:
            return LOCAL_INTERVAL_MS
        return interval_ms(self.trigger.processing_time or SPARK_INTERVAL)

    @property
    def origin(self) -> Origin:
        """The file that this was read from, for messages."""
        return self._origin

    def read_from(self, origin: Origin) -> None:
        """Sets the file that this was read from; its reader calls it."""
        self._origin = origin

    @property
    def accepted_loss(self) -> tuple[int, int] | None:
        """The first and the last batch that a table may lack, where whoever starts the pipeline says so."""
        return self._accepted_loss

    def accepting_loss(self, first: int, last: int) -> Self:
        """The same pipeline, which goes on where a table of it lacks these batches."""
        copy = self.model_copy()
        copy._accepted_loss = (first, last)
        return copy

    @property
    def skipped_records(self) -> frozenset[RecordPlace]:
        """The records that become dead letters unread, where whoever starts the pipeline says so."""
        return self._skipped_records

    def skipping(self, places: Iterable[RecordPlace]) -> Self:
        """The same pipeline, which makes dead letters of these records without reading them."""
        copy = self.model_copy()
        copy._skipped_records = frozenset(places)
        return copy

    @property
    def follows_tables(self) -> bool:
        """True where the sources are tables: rows with their kinds, nothing to decode."""
        return any(source.table is not None for source in self.sources)

    @property
    def dead_letter_table(self) -> str:
        """The dead-letter table, its default filled in."""
        return self.dead_letters or f"{split_branch(self.table.name)[0]}_dead_letters"

    def without_secrets(self, text: str) -> str:
        """`text` with every secret of this file replaced, for messages that others wrote."""
        for source in self.sources:
            read = source.table.options if source.table else source.kafka or {}
            read = source.postgres.shown if source.postgres else read
            text = without_secrets(text, revealed(read) | revealed(source.schema_registry or {}))
        own = {**self.table.options, **self.table.write_options}
        return without_secrets(text, revealed(self.spark) | revealed(self.catalog) | own)
