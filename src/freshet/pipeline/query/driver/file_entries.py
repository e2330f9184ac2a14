"""The files that a source has read, in its log in a checkpoint: `sources/<i>/<N>` is the batch N of the source.

    v1
    {"path":"file:///in/a%20b.json","timestamp":1700000000123,"batchId":0}
    …

`timestamp` is the modification time of the file. Now and then (`spark.sql.streaming.fileSource.log.compactInterval`,
10), the file is called `<N>.compact` and holds what is in those before it as well, which may be gone.

Source: Spark's `FileStreamSourceLog`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

import orjson

COMPACT: Final = ".compact"
"""End of the names of files that hold what is in those before."""
COMPACT_INTERVAL_MAX: Final = 1000
"""Files of the log that are looked through for one that holds a batch of before."""

_HEAD: Final = "v1"


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
    later = range(number + 1, number + COMPACT_INTERVAL_MAX)
    return [str(number), f"{number}{COMPACT}", *(f"{each}{COMPACT}" for each in later if each % 10 == 9)]
