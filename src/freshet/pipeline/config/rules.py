"""Rules between the keys of a pipeline file: contradictions are refused, doubtful settings are warned of.

A rule is a function from one file's values to problems, each with the keys that it is about and what to do. Nothing is
started or read here.

A source that fills a column of a sequence group must fill what orders the group, or nothing of it would ever be taken.

Settings under `spark:` are refused here where their wrong value is known without Spark, which would answer it with a
Java trace. What is not listed is passed on; where Spark refuses it, the start of the session says so with the same key.

Source: pipeline/README.md, "Glossary" (input order); docs/reference/debezium.md (sequence fields of deletes).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from pydantic import SecretStr

from freshet.pipeline.config.catalogs import source_location, target_location
from freshet.pipeline.config.engine_rules import EngineRules, engine_rules
from freshet.pipeline.config.folder_rules import entangled_folders
from freshet.pipeline.config.model import (
    ROW_KIND_OPTION,
    SEQUENCE_OPTION,
    PipelineConfig,
    SourceConfig,
    TableConfig,
    revealed,
)
from freshet.pipeline.config.source_options import nearest, why_spark_reads, wrong_location, wrong_source, wrong_type
from freshet.pipeline.config.sync import SyncPipelineConfig
from freshet.pipeline.exceptions import KeyPath, Problem
from freshet.storage.catalog import WHY_NOT_SENT, holds_secret, is_catalog_option
from freshet.storage.exceptions import InvalidRequestError, StorageError
from freshet.storage.model.schema import is_system_name
from freshet.storage.options import (
    DYNAMIC_BUCKET,
    IMMUTABLE_KEYS,
    CoreOptions,
    MergeEngine,
    check_option_keys,
    layout_warnings,
)

_ENVELOPE_NAMES: Final = re.compile(r"(?<![A-Za-z0-9_`.])(_source|_ts_ms|_offset|_timestamp)\b")
QUICKEST_BATCH_MS: Final = 40
SNAPSHOTS_MANY: Final = 20_000
"""An hour of batches every 200 ms, the default, has 18,000."""
COUNT_LOCALLY: Final = frozenset(
    {
        "spark.sql.session.timeZone",
        "spark.sql.files.ignoreMissingFiles",
        "spark.sql.streaming.fileSource.log.compactInterval",
    }
)
"""Settings of Spark that mean something without it: for times, for files that are gone, and for the log of files."""
_COLUMN_PREFIX: Final = "fields."
_STATS_SUFFIX: Final = ".stats-mode"

_WAREHOUSE: Final = "warehouse"

_MASTER: Final = re.compile(
    r"local|local\[(\d+|\*)(\s*,\s*\d+)?\]|local-cluster\[\s*\d+\s*,\s*\d+\s*,\s*\d+\s*\]|yarn|(spark|k8s)://.+"
)
_MEMORY: Final = re.compile(r"\d+\s*([kmgtp]b?)?", re.IGNORECASE)
_WHOLE: Final = re.compile(r"[1-9]\d{0,8}")
_WANTED: Final[Mapping[str, tuple[re.Pattern[str], str]]] = {
    "spark.master": (_MASTER, "local[*], local[4], spark://host:7077, yarn or k8s://…"),
    "spark.driver.memory": (_MEMORY, "a size such as 2g or 512m"),
    "spark.executor.memory": (_MEMORY, "a size such as 2g or 512m"),
    "spark.executor.cores": (_WHOLE, "a whole number of 1 or more"),
    "spark.driver.cores": (_WHOLE, "a whole number of 1 or more"),
    "spark.sql.shuffle.partitions": (_WHOLE, "a whole number of 1 or more"),
}
_PREFIX: Final = "spark."


def contradictions(config: PipelineConfig) -> Iterator[Problem]:
    """Everything in one file that cannot be meant so."""
    found = list(_each_key(config))
    yield from found or _groups(config)


def _each_key(config: PipelineConfig) -> Iterator[Problem]:
    yield from _table(config)
    yield from _trigger(config)
    yield from wrong_location(config.checkpoint, ("checkpoint",))
    misplaced = list(_wrong_places(config)) or list(wrong_location(config.table.warehouse, ("table", "warehouse")))
    yield from misplaced or entangled_folders(config)
    if not config.name.strip():
        yield Problem(("name",), "must not be blank: it is the identity of the stream")
    yield from _wrong_spark_values(revealed(config.spark), ("spark",))
    yield from _wrong_catalog_options(config)
    if config.dead_letter_table == config.table.name:
        yield Problem(("dead_letters",), "the dead letters need a table of their own")
    if not config.sources:
        yield Problem(("sources",), "must not be empty")
    for index, source in enumerate(config.sources):
        yield from wrong_source(config, source, ("sources", index))


def decides_meaning(key: str) -> bool:
    """True for a table option on which it depends what the rows mean; all who write a table must agree on it."""
    if key.startswith(_COLUMN_PREFIX):
        return not key.endswith(_STATS_SUFFIX)
    return key in IMMUTABLE_KEYS or key in ("bucket", SEQUENCE_OPTION)


def warnings(config: PipelineConfig) -> Iterator[str]:
    """What a run should say before it starts; nothing here stops it."""
    yield from _passed_over(config)
    if isinstance(config, SyncPipelineConfig):
        yield from _reading(config)
        return
    yield from _many_snapshots(config)
    sequence = config.table.core_options.sequence_field
    rules = _rules(config.table)
    unordered = [] if sequence or not config.table.primary_key else _unordered_columns(config.table, rules)
    shared = [name for name in unordered if sum(source.fills(name) for source in config.sources) > 1]
    if shared:
        yield (
            f"several sources fill {', '.join(shared)}, and neither sequence.field nor a sequence group orders them: "
            "which of two changes of one key is the later one is decided by the order of the sources in this file"
        )
    for source in config.sources:
        topics = _several_topics(source)
        if topics and any(source.fills(name) for name in unordered):
            yield (
                f"one source reads {topics}, and neither sequence.field nor a sequence group orders the changes: of "
                "two changes of one key the one from the topic whose name sorts last is taken for the later one"
            )
        if any(source.fills(name) for name in unordered):
            computed = [key for key in config.table.primary_key if not _is_plain(source.select.get(key, key))]
            if computed:
                yield (
                    f"the key column {computed[0]} is computed: if it is not the message key, changes of one row may "
                    "lie in several Kafka partitions and their order is not defined; set sequence.field"
                )
    yield from _reading(config)
    for source in config.sources:
        ordering = [name for name in config.table.columns if name in rules.ordering_columns and source.fills(name)]
        what = dict.fromkeys(ordering, "ordering column") | dict.fromkeys(sequence, "sequence.field")
        for column in what:
            if source.is_debezium and not _ENVELOPE_NAMES.search(source.select.get(column, column)):
                yield (
                    f"{what[column]} {column} comes from the payload: deletes do not carry it reliably and become dead "
                    f"letters without it; select it from the envelope, for example {column}: _source.lsn"
                )
    yield from _retract_warnings(config, rules)
    yield from layout_warnings(config.table.table_schema, rules.core)
    if not config.table.primary_key and any(source.captures_changes for source in config.sources):
        yield "the table has no primary key: updates are appended as rows and deletes become dead letters"


def _many_snapshots(config: PipelineConfig) -> Iterator[str]:
    """A hint where batches follow each other so quickly that very many snapshots are kept."""
    options = config.table.core_options
    interval_ms = max(config.trigger_ms, QUICKEST_BATCH_MS)
    kept = min(options.snapshot_time_retained_ms // interval_ms, options.snapshot_num_retained_max)
    if config.is_local and not config.trigger.available_now and kept > SNAPSHOTS_MANY:
        minutes = options.snapshot_time_retained_ms / 60_000
        yield (
            f"a batch every {interval_ms} ms leaves up to {kept:,} snapshots in the {minutes:g} min that they live: "
            "set snapshot.time-retained among the options of the table to less, such as 5 min, or a longer "
            "trigger.processing_time. Readers that fall behind further than that begin anew"
        )


def _passed_over(config: PipelineConfig) -> Iterator[str]:
    settings = [key for key in config.spark if key not in COUNT_LOCALLY]
    if config.is_local and settings:
        yield f"settings of Spark are passed over at run_on: local: {', '.join(settings)}"


def _reading(config: PipelineConfig) -> Iterator[str]:
    if config.is_local:
        return
    for index, source in enumerate(config.sources):
        options = revealed(source.kafka or {})
        reason = why_spark_reads(source.select, options) if options and source.read == "auto" else None
        if reason is not None:
            yield f"the records of source {index} are read by Spark, which takes more time: {reason}"


def subscribed_topics(source: SourceConfig) -> set[str]:
    """The topics that a Kafka source names; none for files and for a pattern."""
    options = {key.lower(): value for key, value in revealed(source.kafka or {}).items()}
    if "assign" in options:
        return set(json.loads(options["assign"]))
    return {part.strip() for part in options.get("subscribe", "").split(",") if part.strip()}


def subscribed_pattern(source: SourceConfig) -> str | None:
    """The pattern of topics that a Kafka source names; None for files and for sources that name topics."""
    return {key.lower(): value for key, value in revealed(source.kafka or {}).items()}.get("subscribepattern") or None


def _several_topics(source: SourceConfig) -> str | None:
    """What a Kafka source that may read more than one topic reads; None for one topic and for files."""
    pattern = subscribed_pattern(source)
    if pattern:
        return f"every topic that matches {pattern}"
    topics = subscribed_topics(source)
    return f"the topics {', '.join(sorted(topics))}" if len(topics) > 1 else None


def _rules(table: TableConfig) -> EngineRules:
    return engine_rules(table.table_schema, table.core_options)


def _unordered_columns(table: TableConfig, rules: EngineRules) -> list[str]:
    """Columns of which the input order decides the value."""
    ordered = {*table.primary_key, *rules.ordering_columns}
    return [name for name in table.columns if name not in ordered and rules.group_of(name) is None]


def _retract_warnings(config: PipelineConfig, rules: EngineRules) -> Iterator[str]:
    """What the merge engine will do with deletions, or with updates of which it does not know the row before."""
    deleting = [source for source in config.sources if source.may_delete]
    if not deleting or rules.options.ignore_delete or not config.table.primary_key:
        return
    engine = rules.engine
    if engine is MergeEngine.PARTIAL_UPDATE and not rules.options.remove_record_on_delete:
        for source in deleting:
            groups = rules.filled_groups(name for name in config.table.columns if source.fills(name))
            free = [name for name in _unordered_columns(config.table, rules) if source.fills(name)]
            if not groups:
                yield (
                    "a deletion will stop the run: partial-update has no rule for it; set ignore-delete or "
                    "partial-update.remove-record-on-delete to true, or put the columns into a sequence group"
                )
            elif free:
                yield f"a deletion leaves {', '.join(free)} as they are, because they are in no sequence group"
    if engine is MergeEngine.FIRST_ROW:
        yield "a deletion will stop the run: first-row takes none; set ignore-delete to true"
    refusing = [name for name in rules.refuses_retracts if any(source.fills(name) for source in deleting)]
    if refusing and not rules.options.remove_record_on_delete:
        yield (
            f"a deletion will stop the run: the aggregate functions of {', '.join(refusing)} cannot take a value back; "
            f"set fields.{refusing[0]}.ignore-retract to true, or ignore-delete for the table"
        )
    blind = [source for source in deleting if source.format == "debezium-unwrapped"]
    counted = [name for name in rules.needs_before if any(source.fills(name) for source in blind)]
    if counted:
        yield (
            f"an update counts twice in {', '.join(counted)}: records of the format debezium-unwrapped do not carry "
            "the row before it; use debezium-json"
        )


def _groups(config: PipelineConfig) -> Iterator[Problem]:
    """Whether each source can be merged by the table's engine, where columns and options are right in themselves."""
    table = config.table
    try:
        rules = _rules(table)
    except InvalidRequestError as error:
        yield Problem(_option_key_path("options", table.options, error), str(error))
        return
    for index, source in enumerate(config.sources):
        for group in rules.filled_groups(column for column in table.columns if source.fills(column)):
            if not any(source.fills(name) for name in group.ordering):
                filled = [name for name in group.protected if source.fills(name)]
                yield Problem(
                    ("sources", index, "select"),
                    f"fills {', '.join(filled)} of the sequence group of {', '.join(group.ordering)}, but not what "
                    f"orders it: the values would never be taken; add {group.ordering[0]}: <what grows with every "
                    "change, for example _source.lsn>",
                )


def _table(config: PipelineConfig) -> Iterator[Problem]:
    table = config.table
    for name, text in table.columns.items():
        yield from wrong_type(text, ("table", "columns", name))
        if is_system_name(name):
            yield Problem(
                ("table", "columns", name), f"the column name {name} is reserved by the table format; rename it"
            )
    for key in ("primary_key", "partition_by"):
        names: Sequence[str] = getattr(table, key)
        for name in names:
            if name not in table.columns:
                yield Problem(("table", key), f"{key} names {name!r}, which is no column{nearest(name, table.columns)}")
        if len(set(names)) != len(names):
            yield Problem(("table", key), f"{key} names a column twice")
    outside = [name for name in table.partition_by if table.primary_key and name not in table.primary_key]
    if outside and CoreOptions.bucket.of(table.options) != DYNAMIC_BUCKET:
        yield Problem(
            ("table", "primary_key"),
            f"primary_key must contain the partition columns; add {', '.join(outside)}, or leave the option bucket "
            "out: then rows move between partitions",
        )
    for column in CoreOptions.sequence_field.of(table.options):
        if column not in table.columns:
            yield Problem(("table", "options", SEQUENCE_OPTION), f"names {column!r}, which is no column")
    yield from _options(table)
    uses_kind = any(source.format == "row-kind" for source in config.sources)
    kind_field = CoreOptions.rowkind_field.of(table.options)
    if uses_kind and not kind_field:
        yield Problem(
            ("table", "options"), f"format row-kind needs the option {ROW_KIND_OPTION}: the field that holds the kind"
        )
    if kind_field and not all(source.format == "row-kind" for source in config.sources):
        yield Problem(
            ("table", "options", ROW_KIND_OPTION),
            "is for sources of format row-kind; the other formats know the kind of each record themselves",
        )


def _options(table: TableConfig) -> Iterator[Problem]:
    """What the storage says of the options; whether the table as a whole can be made is asked when it is opened."""
    try:
        check_option_keys(table.options)
        table.core_options  # noqa: B018 - parsed
    except InvalidRequestError as error:
        yield Problem(_option_key_path("options", table.options, error), str(error))
        return
    for key in table.write_options:
        if decides_meaning(key):
            yield Problem(
                ("table", "write_options", key),
                f"{key} says what the rows of the table mean; write it in options, for all who write the table",
            )
    try:
        check_option_keys(table.write_options)
        table.written_options  # noqa: B018 - parsed
    except InvalidRequestError as error:
        yield Problem(_option_key_path("write_options", table.write_options, error), str(error))


def _option_key_path(section: str, written: Mapping[str, object], error: StorageError) -> KeyPath:
    """Where the option that an error is about is written, or the whole section where it is not written there."""
    if error.option is not None and error.option in written:
        return "table", section, error.option
    return "table", section


def _trigger(config: PipelineConfig) -> Iterator[Problem]:
    trigger = config.trigger
    if trigger.available_now == (trigger.processing_time is not None):
        yield Problem(("trigger",), "wants exactly one of processing_time and available_now: true")


def _is_plain(expression: str) -> bool:
    return re.fullmatch(r"\s*(`[^`]+`|[A-Za-z_][A-Za-z0-9_]*)\s*", expression) is not None


def _wrong_catalog_options(config: PipelineConfig) -> Iterator[Problem]:
    """Options that no catalog takes, and secrets that are written in full: Spark's tasks need the options."""
    yield from _wrong(config.catalog, ("catalog",))
    for index, source in enumerate(config.sources):
        if source.table is not None and source.table.catalog is not None:
            yield from _wrong(source.table.catalog, ("sources", index, "table", "catalog"))


def _wrong_places(config: PipelineConfig) -> Iterator[Problem]:
    """Warehouses that a catalog could not be opened at: a name of a catalog and a folder, a database without a
    warehouse, a name whose options are wrong."""
    try:
        target_location(config)
    except InvalidRequestError as error:
        yield Problem(("table", "warehouse"), str(error))
        return
    for index, source in enumerate(config.sources):
        if source.table is not None:
            try:
                source_location(config, source.table)
            except InvalidRequestError as error:
                yield Problem(("sources", index, "table", "warehouse"), str(error))


def _wrong(options: Mapping[str, str | SecretStr], key_path: KeyPath) -> Iterator[Problem]:
    for key, text in revealed(options).items():
        if holds_secret(key, text):
            yield Problem((*key_path, key), WHY_NOT_SENT.format(key=key) + " (env:NAME, not ${NAME})")
        elif key != _WAREHOUSE and not is_catalog_option(key):
            yield Problem((*key_path, key), "is no option of a catalog or of a store; leave it out")


def _wrong_spark_values(settings: Mapping[str, str], key_path: KeyPath) -> Iterator[Problem]:
    """Settings that Spark would refuse or not see, with their keys in the file."""
    for key, value in settings.items():
        if not key.startswith(_PREFIX):
            yield Problem(
                (*key_path, key), f"is no setting of Spark: those begin with {_PREFIX!r}, such as spark.master"
            )
            continue
        pattern, wanted = _WANTED.get(key, (None, ""))
        if pattern is not None and not pattern.fullmatch(value.strip()):
            yield Problem((*key_path, key), f"wants {wanted}, not {value!r}")
