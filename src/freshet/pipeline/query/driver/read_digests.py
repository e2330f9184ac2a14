"""What a micro-batch read: Spark's offsets of it and of the batch before, and for files which files those are.

Two batches of one number are the same batch only if they read the same. After a checkpoint was restored from a backup,
or with two drivers on one checkpoint, Spark plans a batch of a known number with other records: the table's commit
would take it for a replay. The digest distinguishes the two (`storage.commit.identity` judges).

| source | what goes into the digest |
|---|---|
| any | the JSON of its offset at the end of this batch and of the batch before; none before batch 0 |
| a table | the same: where batch 0 begins is in its end (`change_batches`) |
| files | besides, path and modification time of each file, from `CHECKPOINT/sources/<i>/<N>`: their offset is only N |

Where a frame is handed to the sink by hand there is no query, and no digest.

The files that a source has read, in its log in a checkpoint: `sources/<i>/<N>` is the batch N of the source.

    v1
    {"path":"file:///in/a%20b.json","timestamp":1700000000123,"batchId":0}
    …

`timestamp` is the modification time of the file. Now and then (`spark.sql.streaming.fileSource.log.compactInterval`,
10), the file is called `<N>.compact` and holds what is in those before it as well, which may be gone.

Source: Spark's `FileStreamSourceLog`.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

import orjson

from freshet._frozen import Frozen
from freshet.pipeline.errors.error_kind import ErrorKind
from freshet.pipeline.errors.known_causes import gone_text, pattern_text
from freshet.pipeline.exceptions import PipelineFailedError
from freshet.pipeline.query.driver.engine import PlannedQuery
from freshet.pipeline.query.wire.file_uris import place_of
from freshet.storage.table_engine import CommitDigest

FILES_OFFSET: Final = "logOffset"
_FILES_SHOWN: Final = 2
_PATTERN: Final = re.compile(r"[?*\[\]{}\\]")

COMPACT: Final = ".compact"
"""End of the names of files that hold what is in those before."""
_COMPACT_INTERVAL_MAX: Final = 1000
"""Files of the log that are looked through for one that holds a batch of before."""

_HEAD: Final = "v1"


class SourceRange(Frozen):
    """What one source gave to a batch: its offsets, as Spark's JSON, and its files as (path, modification time)."""

    before: str | None
    end: str | None
    files: tuple[tuple[str, int], ...] = ()

    def identity(self) -> list[Any]:
        """Equal exactly when the same was read; the order of keys in the JSON does not count."""
        return [_parsed(self.before), _parsed(self.end), [list(file) for file in self.files]]

    def text(self) -> str:
        """The range for people."""
        if self.files:
            shown = [f"{path} ({time_ms})" for path, time_ms in self.files[:_FILES_SHOWN]]
            more = f" and {len(self.files) - _FILES_SHOWN} more files" if len(self.files) > _FILES_SHOWN else ""
            return f"files {', '.join(shown)}{more}"
        before, end = _parsed(self.before), _parsed(self.end)
        if _is_position(end):
            begun = end.get("begin") or before
            begin = _position_text(begun) if _is_position(begun) else "the beginning"
            return f"a table from {begin} to {_position_text(end)}"
        if isinstance(end, Mapping) and all(isinstance(offsets, Mapping) for offsets in end.values()):
            return "; ".join(_topic_text(topic, (before or {}).get(topic, {}), end[topic]) for topic in sorted(end))
        return f"offsets {self.before} to {self.end}"


def digest_of(ranges: Sequence[SourceRange]) -> CommitDigest:
    """The digest of a batch that read these ranges, one per source."""
    identity = json.dumps([each.identity() for each in ranges], sort_keys=True, separators=(",", ":"))
    return CommitDigest(hashlib.sha256(identity.encode()).hexdigest(), "; ".join(each.text() for each in ranges))


class ReadDigests:
    """Digests of the batches of one query; keeps what one batch has in common with the next."""

    def __init__(self, query: PlannedQuery) -> None:
        self._query = query
        self._last: tuple[int, tuple[str | None, ...]] | None = None
        self._files: tuple[str, ...] = ()

    def refuse_files(self) -> None:
        """Raises `PipelineFailedError` naming a file of the batch digested last that is not there any more, or that the
        engine would take for a pattern.

        Spark silently leaves out what is gone when it lists the files of a batch. Files that are not on a local
        disk are not looked at.
        """
        places = [place_of(uri) for uri in self._files]
        if self._query.takes_names_for_patterns():
            for place in filter(_PATTERN.search, places):
                raise PipelineFailedError(pattern_text(place), kind=ErrorKind.INVALID_REQUEST)
        for place in places:
            if "://" in place or os.path.exists(place):
                continue
            if self._query.ignores_missing_files():
                return
            raise PipelineFailedError(gone_text(place), kind=ErrorKind.INVALID_REQUEST)

    def digest(self, micro_batch_id: int) -> CommitDigest | None:
        """The digest of this batch; None where Spark has not written down what it reads."""
        self._files = ()
        end = self._query.offsets(micro_batch_id)
        if end is None:
            return None
        before = self._before(micro_batch_id, len(end))
        self._last = (micro_batch_id, end)
        ranges = []
        for index, (start, stop) in enumerate(zip(before, end, strict=True)):
            files: tuple[tuple[str, int], ...] = ()
            if _is_files(stop):
                read = partial(self._query.folder.read, "sources", str(index))
                files = files_between(_log_offset(start), _log_offset(stop), read)
                self._files += tuple(path for path, _ in files)
            ranges.append(SourceRange(start, stop, files))
        return digest_of(ranges)

    def _before(self, micro_batch_id: int, count: int) -> tuple[str | None, ...]:
        if micro_batch_id == 0:
            return (None,) * count
        if self._last is not None and self._last[0] == micro_batch_id - 1:
            return self._last[1]
        return self._query.offsets(micro_batch_id - 1) or (None,) * count


def _is_files(offset: str | None) -> bool:
    parsed = _parsed(offset)
    return isinstance(parsed, Mapping) and set(parsed) == {FILES_OFFSET}


def _log_offset(offset: str | None) -> int:
    return int(_parsed(offset)[FILES_OFFSET]) if _is_files(offset) else -1


def _parsed(offset: str | None) -> Any:
    """The JSON of an offset; a source may write anything, which is then compared as text."""
    if offset is None:
        return None
    try:
        return json.loads(offset)
    except ValueError:
        return offset


def _is_position(offset: Any) -> bool:
    """A position in the changes of a table (`sources.stream_source`): it may be long, and is shown in brief."""
    return isinstance(offset, Mapping) and ("log" in offset or "snapshot_id" in offset)


def _position_text(position: Mapping[str, Any]) -> str:
    state = position.get("log") or position
    parts = [f"{'the rows of ' if position.get('is_state') else ''}snapshot {state.get('snapshot_id')}"]
    if position.get("taken"):
        parts.append(f"piece {position['taken']} of {position.get('of')}")
    if state.get("open_batch") is not None:
        offsets = sorted((state.get("positions") or {}).items(), key=lambda item: int(item[0]))
        parts.append("log " + ", ".join(f"{partition}: {offset}" for partition, offset in offsets))
    return " ".join(parts)


def _topic_text(topic: str, before: Mapping[str, int], end: Mapping[str, int]) -> str:
    """The partitions that gave something."""
    moved = [
        f"{partition} [{before.get(partition, '')}, {offset})"
        for partition, offset in sorted(end.items(), key=lambda item: int(item[0]))
        if before.get(partition) != offset
    ]
    return f"topic {topic}: {', '.join(moved) or 'nothing'}"


class FileEntry(NamedTuple):
    """A file that a batch of the source reads."""

    uri: str
    modified_ms: int
    batch: int


class UnknownLogError(ValueError):
    """The text is none of a log of version 1."""


def log_text(entries: Iterable[FileEntry], before: Iterable[str] = ()) -> str:
    """The text of a file of the log; `before` are the texts of those that it holds besides."""
    lines = [each.partition("\n")[2] for each in before]
    documents = ({"path": each.uri, "timestamp": each.modified_ms, "batchId": each.batch} for each in entries)
    lines += (orjson.dumps(each).decode() for each in documents)
    return "\n".join([_HEAD, *filter(None, lines)])


def entries_of(text: str, number: int | None = None) -> Iterator[FileEntry]:
    """The entries in the text of a file of the log, all of them or those of one batch. Raises `UnknownLogError`."""
    head, *lines = text.split("\n")
    if head != _HEAD:
        raise UnknownLogError(head)
    mark = "" if number is None else f'"batchId":{number}'
    for document in (orjson.loads(line) for line in lines if mark in line and line):
        if number is None or document["batchId"] == number:
            yield FileEntry(document["path"], int(document["timestamp"]), int(document["batchId"]))


def batch_entries(number: int, read: Callable[[str], str | None]) -> list[FileEntry]:
    """The entries of one batch; `read` gives a file of the log by its name, None where there is none."""
    for name in _names(number):
        text = read(name)
        if text is not None:
            return list(entries_of(text, number))
    return []


def files_between(before: int, end: int, read: Callable[[str], str | None]) -> tuple[tuple[str, int], ...]:
    """The files of the batches above `before` up to `end`, as (URI, modification time in ms), sorted."""
    numbers = range(before + 1, end + 1)
    return tuple(sorted(each[:2] for number in numbers for each in batch_entries(number, read)))


def _names(number: int) -> list[str]:
    later = range(number + 1, number + _COMPACT_INTERVAL_MAX)
    return [str(number), f"{number}{COMPACT}", *(f"{each}{COMPACT}" for each in later if each % 10 == 9)]
