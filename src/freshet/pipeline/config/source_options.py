"""Rules for one source of a pipeline file, and for the options of Spark's Kafka and file sources.

Spark reads those options when a query starts, and answers a wrong one with a Java trace; here each has a check that
says what is wanted. Options that are not listed take any text. The formats in Avro need a registry of schemas.
"""

from __future__ import annotations

import codecs
import difflib
import json
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from freshet.logstore.kafka.java_options import READ_COMMITTED, READ_UNCOMMITTED, java_client_option
from freshet.pipeline.config.model import KAFKA_OPTIONS, PipelineConfig, SourceConfig, revealed
from freshet.pipeline.config.postgres_rules import wrong_postgres
from freshet.pipeline.config.sync import SyncPipelineConfig
from freshet.pipeline.exceptions import KeyPath, Problem
from freshet.storage.catalog import is_word
from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.model.sql_type import parse_sql_type

Check = Callable[[str], str | None]
"""Says what is wanted instead of a value, or None where the value is right."""

_LONG_MAX: Final = 2**63 - 1
_INT_MAX: Final = 2**31 - 1
_SPARK_TIME: Final = re.compile(r"-?\d+\s*(us|ms|s|m|min|h|d)?", re.IGNORECASE)
_BYTE_SIZE: Final = re.compile(r"\d+\s*([kmgtp]?b?)", re.IGNORECASE)
_PROTOCOL: Final = re.compile("(SASL_)?(PLAINTEXT|SSL)", re.IGNORECASE)
_SERVER: Final = re.compile(r"\s*(?:[A-Za-z][A-Za-z0-9_]*://)?(\[[0-9A-Fa-f:.%]+\]|[A-Za-z0-9_.-]+):(\d+)\s*")

METADATA_COLUMNS: Final = ("_op", "_source", "_ts_ms", "_topic", "_partition", "_offset", "_timestamp", "_headers")
"""What `select` sees besides the payload's fields."""

_SUBSCRIPTIONS: Final = ("assign", "subscribe", "subscribePattern")
_SET_BY_US: Final = {
    "includeHeaders": "headers are read where select reads _headers",
    "kafka.key.deserializer": "keys are read as bytes",
    "kafka.value.deserializer": "values are read as bytes",
    "kafka.enable.auto.commit": "the checkpoint holds the offsets",
    "kafka.auto.offset.reset": "use startingOffsets",
    "endingOffsets": "a stream has no end; use trigger: {available_now: true}",
    "endingOffsetsByTimestamp": "a stream has no end; use trigger: {available_now: true}",
    "endingTimestamp": "a stream has no end; use trigger: {available_now: true}",
}
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_FILE_URI: Final = re.compile(r"file:(/[^/]|//[^/]*/)", re.IGNORECASE)

_URL: Final = "url"
_NUMBERS: Final = (
    "timeout", "max.retries", "retries.wait.ms", "retries.max.wait.ms", "cache.capacity", "cache.latest.ttl.sec",
)  # fmt: skip
_TEXTS: Final = (
    _URL, "basic.auth.user.info", "proxy",
    "ssl.ca.location", "ssl.certificate.location", "ssl.key.location", "ssl.key.password",
)  # fmt: skip
_BEARER: Final = "bearer.auth."


def _number(least: int, most: int) -> Check:
    def check(text: str) -> str | None:
        if re.fullmatch(r"[+-]?\d{1,19}", text.strip()) and least <= int(text) <= most:
            return None
        bound = f" (at most {most})" if most < _LONG_MAX else ""
        return f"wants a whole number of {least} or more, written in digits{bound}"

    return check


def _word(*words: str) -> Check:
    def check(text: str) -> str | None:
        return None if text.lower() in words else f"wants {' or '.join(words)}"

    return check


def _pattern(pattern: re.Pattern[str], wanted: str) -> Check:
    return lambda text: None if pattern.fullmatch(text.strip()) else f"wants {wanted}"


def _document(example: str, leaf: Callable[[object], bool]) -> Check:
    """JSON of topics to Kafka partitions to something, such as {"topic": {"0": 23}}."""

    def check(text: str) -> str | None:
        wanted = f"wants JSON such as {example}"
        try:
            value = json.loads(text)
        except ValueError:
            return wanted
        topics = value.values() if isinstance(value, dict) else ()
        return None if isinstance(value, dict) and value and all(leaf(each) for each in topics) else wanted

    return check


def _is_offsets(value: object) -> bool:
    return isinstance(value, dict) and all(
        key.isdigit() and isinstance(number, int) and not isinstance(number, bool) for key, number in value.items()
    )


def _is_partitions(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(number, int) and number >= 0 for number in value)


_OFFSETS: Final = _document('{"topic": {"0": 23, "1": -2}}', _is_offsets)


def _starting_offsets(text: str) -> str | None:
    if text.strip().lower() in ("earliest", "latest"):
        return None
    wanted = _OFFSETS(text)
    return wanted and wanted.replace("wants JSON", "wants earliest, latest, or JSON")


def _servers(text: str) -> str | None:
    for server in text.split(","):
        match = _SERVER.fullmatch(server)
        if match is None or not 0 < int(match[2]) < 65536:
            return f"wants host:port[,host:port]; {server.strip()!r} is none"
    return None


_JAVA_ONLY: Final = (
    (re.compile(r"\\Q.*?(\\E|$)", re.DOTALL), "x"),  # quoted text
    (re.compile(r"\\[pP](\{[^}]*\}|.)"), "x"),  # classes of characters
    (re.compile(r"\\x\{[0-9A-Fa-f]+\}|\\k<\w+>|\\u[0-9A-Fa-f]{4}|\\[^\s]"), "x"),
    (re.compile(r"\(\?<(?![=!])\w+>"), "("),  # named groups
    (re.compile(r"\(\?[a-zA-Z-]+\)"), ""),  # flags in the middle
    (re.compile(r"\(\?[a-zA-Z-]+:"), "("),
)
"""What Java's regular expressions have and Python's have not, and what is the same to both."""
_BROKEN: Final = ("unterminated", "unbalanced", "nothing to repeat", "bad character range", "min repeat greater")
_REPEAT: Final = re.compile(r"\{(?!\d+(,\d*)?\})")


def _java_pattern(text: str) -> str | None:
    """Finds what is wrong in both languages, such as a bracket that is not closed; Spark finds the rest."""
    plain = text
    for pattern, instead in _JAVA_ONLY:
        plain = pattern.sub(instead, plain)
    reason = None
    try:
        with warnings.catch_warnings(action="ignore"):
            re.compile(plain)
    except re.error as error:
        reason = error.msg if any(part in error.msg for part in _BROKEN) else None
    if reason is None and _REPEAT.search(re.sub(r"\[[^\]]*\]", "x", plain)):
        reason = "a { that begins no repetition"
    if reason is None:
        return None
    return f"wants a regular expression of Java, such as shop[.].* ({reason})"


def _charset(text: str) -> str | None:
    try:
        codecs.lookup(text)
    except LookupError:
        return "wants the name of an encoding, such as UTF-8 or ISO-8859-1"
    return None


def _glob(text: str) -> str | None:
    plain = re.sub(r"\\.", "", text)
    if plain.count("[") == plain.count("]") and plain.count("{") == plain.count("}"):
        return None
    return "wants a pattern such as *.json, its brackets closed"


_POSITIVE: Final = _number(1, _LONG_MAX)
_BOOLEAN: Final = _word("true", "false")

_KAFKA_CHECKS: Final[Mapping[str, Check]] = {
    "kafka.bootstrap.servers": _servers,
    "kafka.security.protocol": _pattern(_PROTOCOL, "PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL"),
    "kafka.isolation.level": _word(READ_COMMITTED, READ_UNCOMMITTED),
    "assign": _document('{"topic": [0, 1]}', _is_partitions),
    "startingOffsets": _starting_offsets,
    "startingOffsetsByTimestamp": _document('{"topic": {"0": 1700000000000}}', _is_offsets),
    "startingOffsetsByTimestampStrategy": _word("error", "latest"),
    "startingTimestamp": _number(0, _LONG_MAX),
    "failOnDataLoss": _BOOLEAN,
    "maxOffsetsPerTrigger": _POSITIVE,
    "subscribePattern": _java_pattern,
    "minOffsetsPerTrigger": _POSITIVE,
    "maxRecordsPerPartition": _POSITIVE,
    "minPartitions": _number(1, _INT_MAX),
    "maxTriggerDelay": _pattern(_SPARK_TIME, "a time such as 15m, 30s or 500ms"),
    "kafkaConsumer.pollTimeoutMs": _number(0, _LONG_MAX),
    "fetchOffset.numRetries": _number(0, _INT_MAX),
    "fetchOffset.retryIntervalMs": _number(0, _LONG_MAX),
}
_FILE_CHECKS: Final[Mapping[str, Check]] = {
    "maxFilesPerTrigger": _number(1, _INT_MAX),
    "maxBytesPerTrigger": _pattern(_BYTE_SIZE, "a size such as 100m or 1g"),
    "latestFirst": _BOOLEAN,
    "recursiveFileLookup": _BOOLEAN,
    "maxFileAge": _pattern(_SPARK_TIME, "a time such as 7d or 12h"),
    "encoding": _charset,
    "pathGlobFilter": _glob,
    "lineSep": lambda text: None if text else "must not be empty",
    "cleanSource": _word("archive", "delete", "off"),
}


def wrong_kafka_values(options: Mapping[str, str], key_path: KeyPath) -> Iterator[Problem]:
    """Options of a Kafka source whose value Spark would refuse; a key may be written in any case, as in Spark."""
    checks = {key.lower(): check for key, check in _KAFKA_CHECKS.items()}
    for key, value in options.items():
        yield from _wrong(checks.get(key.lower()), key, value, key_path)
    lowered = {key.lower(): value for key, value in options.items()}
    least, most = lowered.get("minoffsetspertrigger", ""), lowered.get("maxoffsetspertrigger", "")
    if least.isdigit() and most.isdigit() and int(least) > int(most):
        yield Problem(key_path, f"minOffsetsPerTrigger ({least}) is more than maxOffsetsPerTrigger ({most})")


def wrong_file_values(options: Mapping[str, str], key_path: KeyPath) -> Iterator[Problem]:
    """The same for a file source."""
    for key, value in options.items():
        yield from _wrong(_FILE_CHECKS.get(key), key, value, key_path)
    if options.get("cleanSource", "").lower() == "archive" and not options.get("sourceArchiveDir"):
        yield Problem(
            (*key_path, "cleanSource"), "archive needs sourceArchiveDir: the folder to move finished files to"
        )
    if "maxFilesPerTrigger" in options and "maxBytesPerTrigger" in options:
        yield Problem(
            (*key_path, "maxBytesPerTrigger"),
            "maxFilesPerTrigger and maxBytesPerTrigger exclude each other; keep one",
        )


def _wrong(check: Check | None, key: str, value: str, key_path: KeyPath) -> Iterator[Problem]:
    wanted = check(value) if check else None
    if wanted:
        yield Problem((*key_path, key), f"{wanted}, not {value!r}")


def nearest(word: str, choices: Iterable[str]) -> str:
    """` (did you mean …?)` for the closest choice, or nothing when none is close."""
    known = list(choices)
    same = [each for each in known if each.lower() == word.lower()]
    close = same or difflib.get_close_matches(word, known, n=1, cutoff=0.6)
    return f" (did you mean {close[0]!r}?)" if close else ""


def wrong_source(config: PipelineConfig, source: SourceConfig, key_path: KeyPath) -> Iterator[Problem]:
    """What is wrong with one source, at the keys of the file."""
    if sum(each is not None for each in (source.kafka, source.files, source.table, source.postgres)) != 1:
        yield Problem(key_path, "a source has exactly one of kafka, files, table and postgres")
        return
    yield from _selected(config, source, key_path)
    if source.table is not None:
        from freshet.pipeline.config.table_source_rules import table_source

        yield from table_source(config, source, source.table, key_path)
        return
    if source.format is None:
        yield Problem((*key_path, "format"), "is missing")
    if source.postgres is not None:
        yield from wrong_postgres(config, source.postgres, (*key_path, "postgres"))
    if source.kafka is not None:
        yield from _kafka(revealed(source.kafka), (*key_path, "kafka"))
        yield from _read(config, source, (*key_path, "read"))
    if source.files is not None:
        if "read" in source.model_fields_set:
            yield Problem((*key_path, "read"), "belongs to Kafka; files are read by Spark")
        yield from wrong_location(source.files.path, (*key_path, "files", "path"))
        yield from wrong_file_values(source.files.options, (*key_path, "files"))
    for name, text in source.payload_types.items():
        yield from wrong_type(text, (*key_path, "schema", name))
        if name in METADATA_COLUMNS:
            yield Problem(
                (*key_path, "schema", name), f"{name} is the name of a metadata column; it has a type already"
            )
    yield from _keys_of_formats(source, key_path)
    yield from _changes_of_the_source(config, source, key_path)
    yield from _wrong_registry(source, key_path)


def _keys_of_formats(source: SourceConfig, key_path: KeyPath) -> Iterator[Problem]:
    """Keys that have no meaning for the records of this format."""
    other: dict[str, str] = {}
    if not source.is_debezium:
        other |= dict.fromkeys(("decimal_handling_mode", "unavailable_value_placeholder"), "the Debezium formats")
    if source.is_avro:
        other["decimal_handling_mode"] = "debezium-json and debezium-unwrapped"
    if not source.captures_changes:
        other["only"] = "the Debezium formats, canal-json and maxwell-json"
    if not source.is_debezium and source.format != "canal-json":
        other["on_truncate"] = "the Debezium formats and canal-json"
    if source.is_binlog:
        other |= dict.fromkeys(("time_precision_mode", "binary_handling_mode"), "the Debezium formats and json")
    for key, formats in other.items():
        if key in source.model_fields_set:
            yield Problem((*key_path, key), f"belongs to {formats}, not to {source.format}")


def _changes_of_the_source(config: PipelineConfig, source: SourceConfig, key_path: KeyPath) -> Iterator[Problem]:
    """What keeps the table from following its source."""
    if source.on_truncate == "apply":
        reason = None
        if source.files is not None:
            reason = "lines of files have no order that a truncate could be placed in"
        elif len(config.sources) > 1:
            reason = "it would take away the rows of the other sources too"
        elif (
            source.postgres is not None
            and source.postgres.may_be_several
            and not isinstance(config, SyncPipelineConfig)
        ):
            reason = (
                "postgres.tables takes several tables, and a truncate of one would take away the rows of the others"
            )
        elif source.only is not None and source.only.may_be_several:
            reason = "only takes several tables, and a truncate of one would take away the rows of the others too"
        elif config.table.moves_rows:
            reason = "it does not go with rows that move between partitions (bucket=-1 and a key without them)"
        if reason is not None:
            yield Problem((*key_path, "on_truncate"), f"cannot be apply: {reason}; write fail or skip")
    if source.on_unknown_field == "add" and source.select:
        yield Problem(
            (*key_path, "on_unknown_field"),
            "add does not go with select, which says which fields are read",
        )


def _selected(config: PipelineConfig, source: SourceConfig, key_path: KeyPath) -> Iterator[Problem]:
    for column in source.select:
        if column not in config.table.columns:
            known = nearest(column, config.table.columns)
            yield Problem((*key_path, "select", column), f"selects {column!r}, which is no column of the table{known}")
    if source.select:
        for key in config.table.primary_key:
            if key not in source.select:
                yield Problem(
                    (*key_path, "select"), f"lacks the key column {key}, which cannot be NULL; add {key}: <field>"
                )


def wrong_location(text: str, key_path: KeyPath) -> Iterator[Problem]:
    """What is no path or URI of a folder; relative paths were made absolute when the file was read."""
    if is_word(text):
        return  # the name of a catalog: other words have become paths
    if _SCHEME.match(text):
        if text.lower().startswith("file:") and not _FILE_URI.match(text):
            yield Problem(key_path, f"{text!r} has no absolute path; write file:///data/…")
    elif not text.startswith("/"):
        yield Problem(key_path, f"{text!r} is no folder; write a path or a URI, such as file:///data/…")


def _read(config: PipelineConfig, source: SourceConfig, key_path: KeyPath) -> Iterator[Problem]:
    """What keeps the workers from reading the records themselves, where they are to."""
    if source.read != "python":
        return
    reason = why_spark_reads(source.select, revealed(source.kafka or {}))
    if reason is None:
        others = (_why_other(index, each) for index, each in enumerate(config.sources) if each is not source)
        reason = next(filter(None, others), None)
    if reason is not None:
        yield Problem(key_path, f"read: python cannot be: {reason}; write read: auto, with which Spark reads them")


def _why_other(index: int, source: SourceConfig) -> str | None:
    """Why another source is read by Spark, and with it all of the file; None where it is not."""
    if source.kafka is None:
        reason: str | None = "is files"
    elif source.read == "spark":
        reason = "says read: spark"
    else:
        reason = why_spark_reads(source.select, revealed(source.kafka))
        reason = None if reason is None else f"cannot be read otherwise ({reason})"
    return None if reason is None else f"sources.{index} {reason}, and all sources of a file are read in one way"


def why_spark_reads(select: Mapping[str, str], options: Mapping[str, str]) -> str | None:
    """Why records of Kafka cannot be read without the JVM; None where they can."""
    if any("_headers" in text for text in select.values()):
        return "select reads _headers"
    option = java_client_option(options)
    return None if option is None else f"{option} is an option of the Java client"


def _kafka(options: Mapping[str, str], key_path: KeyPath) -> Iterator[Problem]:
    if not options.get("kafka.bootstrap.servers"):
        yield Problem(key_path, "kafka.bootstrap.servers is missing (host:port[,host:port])")
    given = [key for key in _SUBSCRIPTIONS if key in options]
    if len(given) != 1:
        yield Problem(
            key_path, f"wants exactly one of {', '.join(_SUBSCRIPTIONS)}; given: {', '.join(given) or 'none'}"
        )
    lowered = {key.lower(): key for key in (*KAFKA_OPTIONS, *_SET_BY_US)}
    for key in options:
        known = lowered.get(key.lower())
        if known in _SET_BY_US:
            yield Problem((*key_path, key), f"cannot be set here: {_SET_BY_US[known]}")
        elif known is None and not key.startswith("kafka."):
            yield Problem((*key_path, key), f"unknown option of the Kafka source{nearest(key, KAFKA_OPTIONS)}")
    yield from wrong_kafka_values({key: value for key, value in options.items() if value}, key_path)


def wrong_type(text: str, key_path: KeyPath) -> Iterator[Problem]:
    """What is wrong with the text of a type."""
    try:
        parse_sql_type(text)
    except InvalidRequestError as error:
        yield Problem(key_path, str(error))


def _wrong_registry(source: SourceConfig, key_path: KeyPath) -> Iterator[Problem]:
    """What is wrong with the registry of a source of records."""
    key_path = (*key_path, "schema_registry")
    if not source.is_avro:
        if source.schema_registry is not None and source.format is not None:
            yield Problem(key_path, f"belongs to debezium-avro and avro, not to {source.format}")
        return
    if source.files is not None:
        yield Problem((*key_path[:-1], "format"), f"{source.format} is read from Kafka alone: files have lines of text")
    if source.schema_registry is None:
        yield Problem(key_path, f"is missing: the schemas of {source.format} are there; write {{url: http://…}}")
        return
    yield from _wrong_options(revealed(source.schema_registry), key_path)


def _wrong_options(options: Mapping[str, str], key_path: KeyPath) -> Iterator[Problem]:
    if not options.get(_URL):
        yield Problem(key_path, "url is missing (http://host:port)")
    elif not all(each.strip().startswith(("http://", "https://")) for each in options[_URL].split(",")):
        yield Problem((*key_path, _URL), "is no address of a registry; write http://host:port or https://…")
    for key, text in options.items():
        if key not in (*_TEXTS, *_NUMBERS) and not key.startswith(_BEARER):
            known = nearest(key, (*_TEXTS, *_NUMBERS))
            yield Problem((*key_path, key), f"unknown option of the schema registry's client{known}")
        elif key in _NUMBERS and not _is_number(text):
            yield Problem((*key_path, key), f"{text!r} is no number")


def _is_number(text: str) -> bool:
    try:
        return float(text) >= 0
    except ValueError:
        return False
