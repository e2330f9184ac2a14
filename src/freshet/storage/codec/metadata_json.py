"""Files of metadata as JSON: schemas, snapshots, tags.

Schema files have a table's columns, keys and options: version, id, fields, highestFieldId, partitionKeys, primaryKeys,
options, comment, timeMillis. Only version, comment and timeMillis may be absent. A missing version is 1. Versions below
3 have other defaults, which are made explicit when the file is read: file format ORC, and below version 2 one bucket.

Snapshot files; keys that are not known are ignored.

| key | attribute | written |
|---|---|---|
| version, id, schemaId, commitUser, commitIdentifier, commitKind, timeMillis | alike | always |
| totalRecordCount, deltaRecordCount | alike | always |
| baseManifestList(Size), deltaManifestList(Size) | base_…, delta_… | always; a size that is None is left out |
| changelogManifestList(Size), changelogRecordCount, indexManifest, watermark | alike | when not None |
| statistics, properties, operation, uuid, nextRowId | alike | when not None |

Snapshots of old versions may lack every key but the two manifest lists and the id.

Tag files: a snapshot file, and with a retention two keys more.

| key | value |
|---|---|
| tagCreateTime | local time as an array: year, month, day, hour, minute, then second and nanosecond if they are not 0 |
| tagTimeRetained | seconds as a decimal number of nine places: 86400.000000000; read also as `PT24H` |

Both are there or neither. Nanoseconds are cut to microseconds when they are read.

Source: FORMAT.md §2, §3.1, §12.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from functools import partial
from types import MappingProxyType
from typing import Any, Final

import orjson

from freshet.storage.exceptions import CorruptDataError, InvalidRequestError, UnsupportedFeatureError
from freshet.storage.model.data_type import field_to_json, parse_field
from freshet.storage.model.schema import SCHEMA_VERSION, TableSchema
from freshet.storage.model.snapshot import SNAPSHOT_VERSION, CommitKind, Snapshot
from freshet.storage.model.tag import Tag
from freshet.storage.paths import checked_file_name

_VERSION_OF_PARQUET_DEFAULT: Final = 3
_VERSION_OF_BUCKET_DEFAULT: Final = 2
_NULLABLE: Final = (
    ("baseManifestListSize", "base_manifest_list_size"),
    ("deltaManifestListSize", "delta_manifest_list_size"),
    ("changelogManifestList", "changelog_manifest_list"),
    ("changelogManifestListSize", "changelog_manifest_list_size"),
    ("changelogRecordCount", "changelog_record_count"),
    ("indexManifest", "index_manifest"),
    ("watermark", "watermark"),
    ("statistics", "statistics"),
    ("nextRowId", "next_row_id"),
    ("operation", "operation"),
    ("uuid", "uuid"),
)
_CONVERSIONS: Final[Mapping[str, Callable[[Any], str]]] = {
    "changelog_manifest_list": checked_file_name,
    "index_manifest": checked_file_name,
    "statistics": checked_file_name,
    "operation": str,
    "uuid": str,
}
"""Texts of what is no number."""
_ISO_DURATION: Final = re.compile(r"PT(?:(\d+)H)?(?:(\d+)M)?(?:([\d.]+)S)?", re.ASCII)


def encode_schema(schema: TableSchema) -> bytes:
    """Bytes of the schema file; a comment that is None is left out."""
    content: dict[str, Any] = {
        "version": schema.version,
        "id": schema.id,
        "fields": [field_to_json(field) for field in schema.fields],
        "highestFieldId": schema.highest_field_id,
        "partitionKeys": list(schema.partition_keys),
        "primaryKeys": list(schema.primary_keys),
        "options": dict(schema.options),
    }
    if schema.comment is not None:
        content["comment"] = schema.comment
    content["timeMillis"] = schema.time_ms
    return orjson.dumps(content, option=orjson.OPT_INDENT_2)


def made_again(data: bytes, path: str, time_ms: int) -> bytes:
    """A copy of a schema file, made at another time; everything else in it stays, known or not."""
    decode_schema(data, path)
    return orjson.dumps({**orjson.loads(data), "timeMillis": time_ms}, option=orjson.OPT_INDENT_2)


def decode_schema(data: bytes, path: str) -> TableSchema:
    """The schema in a schema file.

    Raises `CorruptDataError` for bytes that are not a schema, `UnsupportedFeatureError` for a newer version or a column
    type that is not supported.
    """
    content = _object(data, "schema", path)
    try:
        return _schema(content, path)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise CorruptDataError(f"the schema lacks or misspells a key: {error!r}", path=path) from error
    except UnsupportedFeatureError as error:
        raise UnsupportedFeatureError(f"{path}: {error}") from error
    except InvalidRequestError as error:
        raise CorruptDataError(str(error), path=path) from error


def _object(data: bytes, noun: str, path: str) -> Mapping[str, Any]:
    try:
        content = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise CorruptDataError(f"the {noun} is not JSON ({error}); it is torn or was overwritten", path=path) from error
    if not isinstance(content, Mapping):
        raise CorruptDataError(f"the {noun} is not a JSON object", path=path)
    return content


def _schema(content: Mapping[str, Any], path: str) -> TableSchema:
    version = int(content.get("version") or 1)
    if version > SCHEMA_VERSION:
        raise UnsupportedFeatureError(
            f"schema version {version}, this program reads up to {SCHEMA_VERSION}; upgrade Freshet to read the table"
        )
    options = {str(key): str(value) for key, value in content["options"].items()}
    fields = tuple(parse_field(field) for field in content["fields"])
    names = {field.name for field in fields}
    if len(names) != len(fields) or len({field.id for field in fields}) != len(fields):
        raise ValueError("a column or its id is there twice")
    for key in ("partitionKeys", "primaryKeys"):
        keys = content[key]
        if not isinstance(keys, list) or not names.issuperset(keys) or len(set(keys)) != len(keys):
            raise ValueError(f"{key} {keys} are not columns, each once")
    if version < _VERSION_OF_BUCKET_DEFAULT:
        options.setdefault("bucket", "1")
    if version < _VERSION_OF_PARQUET_DEFAULT:
        options.setdefault("file.format", "orc")
    return TableSchema(
        id=int(content["id"]),
        fields=fields,
        highest_field_id=int(content["highestFieldId"]),
        partition_keys=tuple(map(str, content["partitionKeys"])),
        primary_keys=tuple(map(str, content["primaryKeys"])),
        options=MappingProxyType(options),
        comment=content.get("comment"),
        time_ms=int(content.get("timeMillis") or 0),
        version=version,
    )


def encode_snapshot(snapshot: Snapshot) -> bytes:
    """Bytes of the snapshot file."""
    return orjson.dumps(snapshot_content(snapshot), option=orjson.OPT_INDENT_2)


def snapshot_content(snapshot: Snapshot) -> dict[str, Any]:
    """Keys and values of the snapshot file."""
    content: dict[str, Any] = {
        "version": snapshot.version,
        "uuid": snapshot.uuid,
        "id": snapshot.id,
        "schemaId": snapshot.schema_id,
        "baseManifestList": snapshot.base_manifest_list,
        "baseManifestListSize": snapshot.base_manifest_list_size,
        "deltaManifestList": snapshot.delta_manifest_list,
        "deltaManifestListSize": snapshot.delta_manifest_list_size,
        "changelogManifestList": snapshot.changelog_manifest_list,
        "changelogManifestListSize": snapshot.changelog_manifest_list_size,
        "indexManifest": snapshot.index_manifest,
        "commitUser": snapshot.commit_user,
        "commitIdentifier": snapshot.commit_identifier,
        "commitKind": str(snapshot.commit_kind),
        "timeMillis": snapshot.time_ms,
        "totalRecordCount": snapshot.total_record_count,
        "deltaRecordCount": snapshot.delta_record_count,
        "changelogRecordCount": snapshot.changelog_record_count,
        "watermark": snapshot.watermark,
        "statistics": snapshot.statistics,
        "properties": dict(snapshot.properties) if snapshot.properties is not None else None,
        "nextRowId": snapshot.next_row_id,
        "operation": snapshot.operation,
    }
    return {key: value for key, value in content.items() if value is not None}


def decode_snapshot(data: bytes, path: str) -> Snapshot:
    """The snapshot in a snapshot file or tag.

    Raises `CorruptDataError` for bytes that are not a snapshot and `UnsupportedFeatureError` for a newer version.
    """
    content = _object(data, "snapshot", path)
    try:
        version = int(content.get("version") or SNAPSHOT_VERSION)
        if version > SNAPSHOT_VERSION:
            raise UnsupportedFeatureError(
                f"{path} has snapshot version {version}, this program reads up to {SNAPSHOT_VERSION}; "
                "upgrade Freshet to read the table, or write it with Apache Paimon 2.0 or older"
            )
        return _snapshot(content, version)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise CorruptDataError(f"the snapshot lacks or misspells a key: {error!r}", path=path) from error


def _snapshot(content: Mapping[str, Any], version: int) -> Snapshot:
    nullable: dict[str, Any] = {}
    for key, attribute in _NULLABLE:
        value = content.get(key)
        convert = _CONVERSIONS.get(attribute, partial(_long, key))
        nullable[attribute] = None if value is None else convert(value)
    properties = content.get("properties")
    return Snapshot(
        id=_long("id", content["id"]),
        schema_id=_number(content, "schemaId"),
        base_manifest_list=checked_file_name(content["baseManifestList"]),
        delta_manifest_list=checked_file_name(content["deltaManifestList"]),
        commit_user=str(content.get("commitUser") or ""),
        commit_identifier=_number(content, "commitIdentifier"),
        commit_kind=CommitKind(content.get("commitKind") or CommitKind.APPEND),
        time_ms=_number(content, "timeMillis"),
        total_record_count=_number(content, "totalRecordCount"),
        delta_record_count=_number(content, "deltaRecordCount"),
        properties=MappingProxyType({str(k): str(v) for k, v in properties.items()}) if properties else None,
        version=version,
        **nullable,
    )


def _number(content: Mapping[str, Any], key: str) -> int:
    value = content.get(key)
    return 0 if value is None else _long(key, value)


def _long(key: str, value: Any) -> int:
    number = int(value)
    if not -(2**63) <= number < 2**63:
        raise ValueError(f"{key} is {number}")
    return number


def encode_tag(tag: Tag) -> bytes:
    """Bytes of the tag file."""
    content = snapshot_content(tag.snapshot)
    if tag.created is not None and tag.retained is not None:
        content["tagCreateTime"] = _time_fields(tag.created)
        content["tagTimeRetained"] = orjson.Fragment(_seconds_text(tag.retained))
    return orjson.dumps(content, option=orjson.OPT_INDENT_2)


def decode_tag(name: str, data: bytes, path: str) -> Tag:
    """The tag of this name; `CorruptDataError` for bytes that are no tag."""
    snapshot = decode_snapshot(data, path)
    content: Mapping[str, Any] = orjson.loads(data)
    created, retained = content.get("tagCreateTime"), content.get("tagTimeRetained")
    try:
        return Tag(
            name,
            snapshot,
            None if created is None else _time(created),
            None if retained is None else _duration(retained),
        )
    except (TypeError, ValueError, OverflowError) as error:
        raise CorruptDataError(
            f"the tag's retention cannot be read (tagCreateTime {created!r}, tagTimeRetained {retained!r}): {error}; "
            "delete the tag, or remove both keys from its file",
            path=path,
        ) from error


def _time_fields(time: datetime) -> list[int]:
    fields = [time.year, time.month, time.day, time.hour, time.minute]
    if time.second or time.microsecond:
        fields.append(time.second)
    if time.microsecond:
        fields.append(time.microsecond * 1000)
    return fields


def _seconds_text(duration: timedelta) -> bytes:
    seconds = duration.days * 86_400 + duration.seconds
    return f"{seconds}.{duration.microseconds:06}000".encode()


def _time(value: Any) -> datetime:
    if isinstance(value, str):
        return datetime.fromisoformat(value)
    if not isinstance(value, list) or not 3 <= len(value) <= 7:
        raise ValueError("a local time has three to seven fields")
    fields = [int(field) for field in value]
    return datetime(*fields[:6], microsecond=fields[6] // 1000 if len(fields) == 7 else 0)  # type: ignore[arg-type,misc]


def _duration(value: Any) -> timedelta:
    if isinstance(value, str) and (found := _ISO_DURATION.fullmatch(value)):
        hours, minutes, seconds = (float(part or 0) for part in found.groups())
        return timedelta(hours=hours, minutes=minutes, seconds=seconds)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError("a retention is a number of seconds")
    # The longest timedelta is rounded up to a number of seconds that no timedelta has.
    return timedelta.max if value >= timedelta.max.total_seconds() else timedelta(seconds=value)
