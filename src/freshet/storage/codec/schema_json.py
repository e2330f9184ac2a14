"""Schema files: a table's columns, keys and options as JSON.

Keys: version, id, fields, highestFieldId, partitionKeys, primaryKeys, options, comment, timeMillis.

Only version, comment and timeMillis may be absent. A missing version is 1. Versions below 3 have other defaults, which
are made explicit when the file is read: file format ORC, and below version 2 one bucket.

Source: FORMAT.md §2.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

import orjson

from freshet.storage.exceptions import CorruptDataError, InvalidRequestError, UnsupportedFeatureError
from freshet.storage.model.data_type import field_to_json, parse_field
from freshet.storage.model.schema import SCHEMA_VERSION, TableSchema

_VERSION_OF_PARQUET_DEFAULT: Final = 3
_VERSION_OF_BUCKET_DEFAULT: Final = 2


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
    try:
        content = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise CorruptDataError(f"the schema is not JSON ({error}); it is torn or was overwritten", path=path) from error
    if not isinstance(content, Mapping):
        raise CorruptDataError("the schema is not a JSON object", path=path)
    try:
        return _schema(content, path)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise CorruptDataError(f"the schema lacks or misspells a key: {error!r}", path=path) from error
    except UnsupportedFeatureError as error:
        raise UnsupportedFeatureError(f"{path}: {error}") from error
    except InvalidRequestError as error:
        raise CorruptDataError(str(error), path=path) from error


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
