"""Index manifests: Avro files of version 1 with a record per live index file.

Source: FORMAT.md §4.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from freshet.storage.codec.avro_file import (
    Field,
    file_schema,
    nullable,
    read_records,
    record_type,
    required,
    write_records,
)
from freshet.storage.model.manifest import DeletionVectorRange, EntryKind, IndexEntry, IndexFileMeta
from freshet.storage.paths import checked_file_name

INDEX_MANIFEST_VERSION: Final = 1

INDEX_MANIFEST_FIELDS: Final = [
    required("_VERSION", "int"),
    required("_KIND", "int"),
    required("_PARTITION", "bytes"),
    required("_BUCKET", "int"),
    required("_INDEX_TYPE", "string"),
    required("_FILE_NAME", "string"),
    required("_FILE_SIZE", "long"),
    required("_ROW_COUNT", "long"),
    nullable(
        "_DELETIONS_VECTORS_RANGES",
        {
            "type": "array",
            "items": [
                "null",
                record_type(
                    "__DELETIONS_VECTORS_RANGES",
                    [
                        required("f0", "string"),
                        required("f1", "int"),
                        required("f2", "int"),
                        nullable("_CARDINALITY", "long"),
                    ],
                ),
            ],
        },
    ),
    nullable("_EXTERNAL_PATH", "string"),
    nullable(
        "_GLOBAL_INDEX",
        record_type(
            "__GLOBAL_INDEX",
            [
                required("_ROW_RANGE_START", "long"),
                required("_ROW_RANGE_END", "long"),
                required("_INDEX_FIELD_ID", "int"),
                nullable("_EXTRA_FIELD_IDS", {"type": "array", "items": "int"}),
                nullable("_INDEX_META", "bytes"),
                nullable("_SOURCE_META", "bytes"),
            ],
        ),
    ),
]

_SCHEMA: Final = file_schema(INDEX_MANIFEST_FIELDS)


def write_index_manifest(entries: Iterable[IndexEntry], compression: str = "zstandard") -> bytes:
    """Bytes of an index manifest: the live index files of a snapshot."""
    return write_records(_SCHEMA, (_to_record(entry) for entry in entries), compression)


def read_index_manifest(data: bytes, path: str) -> list[IndexEntry]:
    """Live index files named by an index manifest."""
    return read_records(data, path, _entry, INDEX_MANIFEST_VERSION)


def _to_record(entry: IndexEntry) -> Field:
    file = entry.file
    ranges = file.deletion_vectors
    return {
        "_VERSION": INDEX_MANIFEST_VERSION,
        "_KIND": int(entry.kind),
        "_PARTITION": entry.partition,
        "_BUCKET": entry.bucket,
        "_INDEX_TYPE": file.index_type,
        "_FILE_NAME": file.file_name,
        "_FILE_SIZE": file.file_size_bytes,
        "_ROW_COUNT": file.row_count,
        "_DELETIONS_VECTORS_RANGES": None
        if ranges is None
        else [
            {"f0": item.data_file_name, "f1": item.offset, "f2": item.length, "_CARDINALITY": item.cardinality}
            for item in ranges
        ],
        "_EXTERNAL_PATH": file.external_path,
        "_GLOBAL_INDEX": None if file.global_index is None else dict(file.global_index),
    }


def _entry(record: Field) -> IndexEntry:
    ranges = record.get("_DELETIONS_VECTORS_RANGES")
    return IndexEntry(
        kind=EntryKind(record["_KIND"]),
        partition=record["_PARTITION"],
        bucket=record["_BUCKET"],
        file=IndexFileMeta(
            index_type=record["_INDEX_TYPE"],
            file_name=checked_file_name(record["_FILE_NAME"]),
            file_size_bytes=record["_FILE_SIZE"],
            row_count=record["_ROW_COUNT"],
            deletion_vectors=None
            if ranges is None
            else tuple(
                DeletionVectorRange(checked_file_name(item["f0"]), item["f1"], item["f2"], item.get("_CARDINALITY"))
                for item in ranges
                if item is not None
            ),
            external_path=record.get("_EXTERNAL_PATH"),
            global_index=record.get("_GLOBAL_INDEX"),
        ),
    )
