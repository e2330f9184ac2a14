"""Commit messages as JSON, for the way from a task to the committer: versioned, bytes as base64, nulls left out.

A message of another version is refused: tasks and committer must run the same release.

Never pickled: a message may outlive the version that wrote it.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from typing import Any, Final

import orjson

from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.model.commit_message import COMMIT_MESSAGE_VERSION, CommitMessage
from freshet.storage.model.data_file import DataFileMeta, FileSource, SimpleStats
from freshet.storage.model.index_file import DeletionVectorRange, IndexFileMeta
from freshet.storage.model.table_log import LogIncrement

_FILE_LISTS: Final = (
    "new_files",
    "deleted_files",
    "changelog_files",
    "compact_before",
    "compact_after",
    "compact_changelog_files",
)
_INDEX_LISTS: Final = (
    "new_index_files",
    "deleted_index_files",
    "compact_new_index_files",
    "compact_deleted_index_files",
)
_LOGS: Final = ("log", "compact_log")
_PLAIN: Final = (
    "file_name",
    "file_size_bytes",
    "row_count",
    "min_sequence_number",
    "max_sequence_number",
    "schema_id",
    "level",
    "creation_time_ms",
    "delete_row_count",
    "external_path",
    "first_row_id",
)


def encode_commit_messages(messages: Iterable[CommitMessage]) -> bytes:
    """JSON array of messages."""
    return orjson.dumps([_message_to_json(message) for message in messages])


def decode_commit_messages(data: bytes | str) -> list[CommitMessage]:
    """The messages of a JSON array."""
    try:
        return [_message(source) for source in orjson.loads(data)]
    except (orjson.JSONDecodeError, KeyError, TypeError, ValueError) as error:
        raise InvalidRequestError(f"the commit messages cannot be read: {error!r}") from error


def _message_to_json(message: CommitMessage) -> dict[str, Any]:
    content: dict[str, Any] = {
        "version": message.version,
        "partition": _text(message.partition),
        "bucket": message.bucket,
        "total_buckets": message.total_buckets,
    }
    for name in _FILE_LISTS:
        files: tuple[DataFileMeta, ...] = getattr(message, name)
        if files:
            content[name] = [_file_to_json(file) for file in files]
    for name in _INDEX_LISTS:
        indexes: tuple[IndexFileMeta, ...] = getattr(message, name)
        if indexes:
            content[name] = [_index_to_json(file) for file in indexes]
    if message.compact_lookups:
        content["compact_lookups"] = list(message.compact_lookups)
    for name in _LOGS:
        log: LogIncrement | None = getattr(message, name)
        if log is not None:
            content[name] = [log.epoch, log.attempt, log.next_offset, log.row_count, log.row_hash]
    return content


def _message(source: Mapping[str, Any]) -> CommitMessage:
    version = int(source["version"])
    if version != COMMIT_MESSAGE_VERSION:
        raise InvalidRequestError(
            f"a commit message of version {version} where {COMMIT_MESSAGE_VERSION} is expected; "
            "tasks and committer must run the same release of Freshet"
        )
    lists: dict[str, Any] = {name: tuple(_file(file) for file in source.get(name, ())) for name in _FILE_LISTS}
    lists |= {name: LogIncrement(*source[name]) for name in _LOGS if name in source}
    lists |= {name: tuple(_index(file) for file in source.get(name, ())) for name in _INDEX_LISTS}
    return CommitMessage(
        partition=_bytes(source["partition"]),
        bucket=int(source["bucket"]),
        total_buckets=int(source["total_buckets"]),
        compact_lookups=tuple(str(name) for name in source.get("compact_lookups", ())),
        version=version,
        **lists,
    )


def _file_to_json(file: DataFileMeta) -> dict[str, Any]:
    content: dict[str, Any] = {name: getattr(file, name) for name in _PLAIN if getattr(file, name) is not None}
    content["min_key"] = _text(file.min_key)
    content["max_key"] = _text(file.max_key)
    content["key_stats"] = _stats_to_json(file.key_stats)
    content["value_stats"] = _stats_to_json(file.value_stats)
    if file.extra_files:
        content["extra_files"] = list(file.extra_files)
    if file.embedded_index is not None:
        content["embedded_index"] = _text(file.embedded_index)
    if file.file_source is not None:
        content["file_source"] = int(file.file_source)
    for name in ("value_stats_cols", "write_cols"):
        if getattr(file, name) is not None:
            content[name] = list(getattr(file, name))
    return content


def _file(source: Mapping[str, Any]) -> DataFileMeta:
    embedded, file_source = source.get("embedded_index"), source.get("file_source")
    plain: dict[str, Any] = {name: source.get(name) for name in _PLAIN}
    for name in ("value_stats_cols", "write_cols"):
        plain[name] = tuple(source[name]) if source.get(name) is not None else None
    return DataFileMeta(
        min_key=_bytes(source["min_key"]),
        max_key=_bytes(source["max_key"]),
        key_stats=_stats(source["key_stats"]),
        value_stats=_stats(source["value_stats"]),
        extra_files=tuple(source.get("extra_files", ())),
        embedded_index=_bytes(embedded) if embedded is not None else None,
        file_source=FileSource(file_source) if file_source is not None else None,
        **plain,
    )


def _index_to_json(file: IndexFileMeta) -> list[Any]:
    """As a list in the order of the fields; indexes of other programs are never part of a message."""
    vectors = file.deletion_vectors
    ranges = None if vectors is None else [[v.data_file_name, v.offset, v.length, v.cardinality] for v in vectors]
    return [file.index_type, file.file_name, file.file_size_bytes, file.row_count, ranges, file.external_path]


def _index(source: list[Any]) -> IndexFileMeta:
    index_type, file_name, size, count, ranges, external = source
    vectors = None if ranges is None else tuple(DeletionVectorRange(*item) for item in ranges)
    return IndexFileMeta(index_type, file_name, size, count, vectors, external)


def _stats_to_json(stats: SimpleStats) -> list[Any]:
    return [_text(stats.min_values), _text(stats.max_values), list(stats.null_counts)]


def _stats(source: list[Any]) -> SimpleStats:
    return SimpleStats(_bytes(source[0]), _bytes(source[1]), tuple(source[2]))


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def _bytes(text: str) -> bytes:
    return base64.b64decode(text, validate=True)
