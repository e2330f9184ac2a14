"""What of a table this version may do: create it, write it, read it.

Each rule names an option (and value) that asks for something not supported, the first thing that would go wrong, and
the remedy. A rule refuses no more than it must:

| refused | because |
|---|---|
| READ (and all below) | rows read without the feature would be wrong or incomplete |
| WRITE (and CREATE) | reading is right, but a commit without the feature would lose or break something |
| CREATE | a table would be made whose wishes nobody here fulfils; existing ones are read and written |

Source: FORMAT.md §8.2, §10, §15; MERGING.md §4, §5.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from freshet.storage.exceptions import UnsupportedFeatureError
from freshet.storage.options.core import CoreOptions
from freshet.storage.options.values import parse_map


class Access(IntEnum):
    """What is to be done with a table; a rule for one of them holds for the larger ones too."""

    READ = 0
    WRITE = 1
    CREATE = 2


@dataclass(frozen=True, slots=True)
class Rule:
    """`applies` is asked with the option's text and all options of the table."""

    key: str
    refused: Access
    applies: Callable[[str, CoreOptions], bool]
    reason: str
    remedy: str


def _is_true(text: str, options: CoreOptions) -> bool:
    return text.lower() == "true"


def _is_set(text: str, options: CoreOptions) -> bool:
    return bool(text.strip())


def _is_none_of(*allowed: str) -> Callable[[str, CoreOptions], bool]:
    return lambda text, options: text.strip().lower() not in allowed


def _keyed_bucket(value: int) -> Callable[[str, CoreOptions], bool]:
    return lambda text, options: options.has_primary_key and options.bucket == value


def _has_format_but_parquet(text: str, options: CoreOptions) -> bool:
    return any(value.lower() != "parquet" for value in parse_map(text).values())


_SUPPORTED_CODECS: Final = ("zstd", "snappy", "gzip", "none", "lz4")
_TRAVEL_KEYS: Final = (
    "scan.snapshot-id",
    "scan.tag-name",
    "scan.timestamp",
    "scan.timestamp-millis",
    "scan.watermark",
    "scan.version",
    "scan.creation-time-millis",
    "scan.file-creation-time-millis",
    "incremental-between",
    "incremental-between-timestamp",
    "incremental-between-tag-to-snapshot",
    "incremental-to-auto-tag",
)
_TRAVEL: Final = "leave the option out and give snapshot_id, tag or timestamp_ms to the scan"
_BETWEEN: Final = "leave the option out and call changes_between"
_LATER: Final = "write and read it with Apache Paimon until Freshet supports it"

RULES: Final = (
    *(
        Rule(
            key,
            Access.READ,
            _is_set,
            "the table would be read at its latest snapshot",
            _BETWEEN if key.startswith("incremental") else _TRAVEL,
        )
        for key in _TRAVEL_KEYS
    ),
    Rule(
        "scan.mode",
        Access.READ,
        _is_none_of("default", "latest", "latest-full", "full"),
        "the table would be read at its latest snapshot",
        _TRAVEL,
    ),
    Rule(
        "deletion-vectors.enabled",
        Access.WRITE,
        lambda text, options: _is_true(text, options) and not options.has_primary_key,
        "compaction of an append table would bring marked rows back",
        _LATER,
    ),
    Rule("index-file-in-data-file-dir", Access.READ, _is_true, "index files are sought in folder index", _LATER),
    Rule(
        "file.format",
        Access.READ,
        _is_none_of("parquet"),
        "only Parquet data files are read",
        "use file.format=parquet",
    ),
    Rule(
        "file.format.per.level",
        Access.READ,
        _has_format_but_parquet,
        "only Parquet data files are read",
        "use parquet at every level",
    ),
    Rule(
        "manifest.format", Access.READ, _is_none_of("avro"), "only Avro manifests are read", "use manifest.format=avro"
    ),
    Rule("bucket", Access.READ, _keyed_bucket(-2), "rows not yet assigned to a bucket would be missed", _LATER),
    Rule("branch", Access.READ, _is_none_of("main", ""), "branches are not read", "open the table without the option"),
    Rule("scan.fallback-branch", Access.READ, _is_set, "the branch's partitions would be missed", _LATER),
    Rule("scan.fallback-snapshot-branch", Access.READ, _is_set, "the branch's rows would be missed", _LATER),
    Rule("scan.fallback-delta-branch", Access.READ, _is_set, "the branch's rows would be missed", _LATER),
    Rule("scan.primary-branch", Access.READ, _is_set, "the branch's rows would be missed", _LATER),
    Rule("chain-table.enabled", Access.READ, _is_true, "rows of the chained branches would be missed", _LATER),
    Rule(
        "data-evolution.enabled",
        Access.READ,
        _is_true,
        "files that hold some columns only would be read as rows",
        _LATER,
    ),
    Rule("sequence.snapshot-ordering", Access.READ, _is_true, "the order of changes would be wrong", _LATER),
    Rule("pk-clustering-override", Access.READ, _is_true, "files are not in key order", _LATER),
    Rule("query-auth.enabled", Access.READ, _is_true, "row and column permissions would be passed over", _LATER),
    Rule(
        "type",
        Access.READ,
        _is_none_of("table", "materialized-table"),
        "it is not a table of the Paimon format",
        "read it with the engine it belongs to",
    ),
    Rule(
        "changelog-file.format",
        Access.WRITE,
        _is_none_of("parquet"),
        "only Parquet changelog files are written",
        "use changelog-file.format=parquet",
    ),
    Rule(
        "changelog-file.compression",
        Access.WRITE,
        _is_none_of(*_SUPPORTED_CODECS),
        "Paimon does not read it, or it cannot be written here",
        f"use one of {', '.join(_SUPPORTED_CODECS)}",
    ),
    Rule(
        "bucket",
        Access.WRITE,
        _keyed_bucket(-1),
        "dynamic buckets need an index of all keys",
        "set bucket to a number of buckets, for example 4",
    ),
    Rule(
        "write.sequence-number-init-mode",
        Access.WRITE,
        _is_none_of("scan"),
        "the number kept in snapshots would fall behind",
        "use write.sequence-number-init-mode=scan",
    ),
    Rule("row-tracking.enabled", Access.WRITE, _is_true, "rows would have no row id", _LATER),
    Rule("record-level.expire-time", Access.WRITE, _is_set, "compaction would keep expired rows", _LATER),
    Rule("data-file.external-paths", Access.WRITE, _is_set, "files would lie in the table folder", _LATER),
    Rule(
        "metadata.iceberg.storage", Access.WRITE, _is_none_of("disabled"), "Iceberg metadata would fall behind", _LATER
    ),
    Rule("blob-field", Access.READ, _is_set, "BLOB columns are not read", _LATER),
    Rule("blob-descriptor-field", Access.READ, _is_set, "BLOB columns are not read", _LATER),
    Rule("blob-view-field", Access.READ, _is_set, "BLOB columns are not read", _LATER),
    Rule("vector-field", Access.READ, _is_set, "VECTOR columns are not read", _LATER),
    Rule("pk-vector.index.columns", Access.WRITE, _is_set, "the index would fall behind", _LATER),
    Rule("pk-btree.index.columns", Access.WRITE, _is_set, "the index would fall behind", _LATER),
    Rule("pk-bitmap.index.columns", Access.WRITE, _is_set, "the index would fall behind", _LATER),
    Rule("pk-full-text.index.columns", Access.WRITE, _is_set, "the index would fall behind", _LATER),
    Rule("upsert-key", Access.WRITE, _is_set, "rows would not be matched by the key", _LATER),
    Rule("commit.callbacks", Access.WRITE, _is_set, "the callbacks would not be called", "remove the option"),
    Rule("tag.callbacks", Access.WRITE, _is_set, "the callbacks would not be called", "remove the option"),
    Rule(
        "file.compression",
        Access.WRITE,
        _is_none_of(*_SUPPORTED_CODECS),
        "Paimon does not read it, or it cannot be written here",
        f"use one of {', '.join(_SUPPORTED_CODECS)}",
    ),
    Rule(
        "file.compression.per.level",
        Access.WRITE,
        lambda text, options: any(value.lower() not in _SUPPORTED_CODECS for value in parse_map(text).values()),
        "Paimon does not read it, or it cannot be written here",
        f"use one of {', '.join(_SUPPORTED_CODECS)}",
    ),
    Rule(
        "manifest.compression",
        Access.WRITE,
        _is_none_of("zstd", "snappy", "deflate", "none", "null"),
        "the codec is not supported for manifests",
        "use zstd, snappy, deflate or none",
    ),
    Rule(
        "deletion-vectors.modifiable",
        Access.CREATE,
        _is_true,
        "the option is not changed here once there are rows",
        "remove the option",
    ),
    Rule(
        "path",
        Access.CREATE,
        _is_set,
        "a table lies in the folder of its database",
        "leave the option out, or choose another warehouse",
    ),
    Rule("tag.automatic-creation", Access.CREATE, _is_none_of("none"), "no tags are created", "remove the option"),
    Rule("partition.expiration-time", Access.CREATE, _is_set, "partitions do not expire", "remove the option"),
    Rule("clustering.columns", Access.CREATE, _is_set, "rows are not clustered", "remove the option"),
)


def check_access(options: CoreOptions, access: Access, where: str, keys: Collection[str] | None = None) -> None:
    """Raises `UnsupportedFeatureError` for the first option that forbids the access; `where` names the table.

    With `keys` only these options are looked at.
    """
    verb = ("read", "written", "created")[access]
    for rule in RULES:
        if keys is not None and rule.key not in keys:
            continue
        text = _value(options, rule.key)
        if text is not None and rule.refused <= access and rule.applies(text, options):
            raise UnsupportedFeatureError(
                f"table {where} cannot be {verb}: {rule.key}={text} is not supported ({rule.reason}); {rule.remedy}",
                option=rule.key,
            )
    for key, text in options.given.items():
        if (keys is None or key in keys) and key.endswith(".map.storage-layout") and text.lower() != "default":
            raise UnsupportedFeatureError(
                f"table {where} cannot be {verb}: {key}={text} is not supported; {_LATER}", option=key
            )


def _value(options: CoreOptions, key: str) -> str | None:
    """Text of an option; `bucket` and `file.format` also by their defaults."""
    if key == "bucket":
        return str(options.bucket)
    if key == "file.format":
        return options.file_format
    return options.given.get(key)
