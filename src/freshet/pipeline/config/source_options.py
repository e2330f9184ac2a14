"""The values that options of Spark's Kafka and file sources take.

Spark reads them when a query starts, and answers a wrong one with a Java trace; here each has a check that says what is
wanted. Options that are not listed take any text.
"""

from __future__ import annotations

import codecs
import json
import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from freshet.logstore.kafka.java_options import READ_COMMITTED, READ_UNCOMMITTED
from freshet.pipeline.exceptions import KeyPath, Problem

Check = Callable[[str], str | None]
"""Says what is wanted instead of a value, or None where the value is right."""

_LONG_MAX: Final = 2**63 - 1
_INT_MAX: Final = 2**31 - 1
_SPARK_TIME: Final = re.compile(r"-?\d+\s*(us|ms|s|m|min|h|d)?", re.IGNORECASE)
_BYTE_SIZE: Final = re.compile(r"\d+\s*([kmgtp]?b?)", re.IGNORECASE)
_PROTOCOL: Final = re.compile("(SASL_)?(PLAINTEXT|SSL)", re.IGNORECASE)
_SERVER: Final = re.compile(r"\s*(?:[A-Za-z][A-Za-z0-9_]*://)?(\[[0-9A-Fa-f:.%]+\]|[A-Za-z0-9_.-]+):(\d+)\s*")


def _number(least: int, most: int) -> Check:
    def check(text: str) -> str | None:
        if re.fullmatch(r"[+-]?\d{1,19}", text.strip()) and least <= int(text) <= most:
            return None
        return f"wants a whole number of {least} or more, written in digits" + (
            f" (at most {most})" if most < _LONG_MAX else ""
        )

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
