"""What a file source has read, in `sources/<i>` of a checkpoint, as Spark keeps it; either engine goes on with it.

Every tenth file holds all entries of before (`query.driver.read_digests`): what a new run reads is the last of these
and what follows. A log that was begun with another interval keeps it, or one that fits. The others go at the next tenth
file once a hundred batches and ten minutes are behind them, counted from when this run has seen them first: Spark's
defaults, which look at the time of the file.

Source: Spark's `CompactibleFileStreamLog`, `FileStreamSourceLog`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final

from freshet.pipeline.errors.error_kind import ErrorKind
from freshet.pipeline.exceptions import PipelineFailedError
from freshet.pipeline.identity.checkpoint_folder import WritableCheckpoint
from freshet.pipeline.identity.checkpoint_offsets import second_run_error
from freshet.pipeline.query.driver.read_digests import (
    COMPACT,
    FileEntry,
    UnknownLogError,
    batch_entries,
    entries_of,
    log_text,
)

INTERVAL: Final = 10
RETAINED_BATCHES: Final = 100
CLEANUP_DELAY_S: Final = 600.0

_FOLDER: Final = "sources"


class FileLog:
    """The log of one source, written by its run alone."""

    def __init__(
        self,
        folder: WritableCheckpoint,
        index: int,
        interval: int = INTERVAL,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """`interval` is that of a log which is new."""
        self._folder, self._names, self._now = folder, (_FOLDER, str(index)), now
        numbers = self._numbers()
        self._interval = _interval(sorted(number for number, name in numbers if name.endswith(COMPACT)), interval)
        self._seen_at = {name: now() for _, name in numbers}
        self._last: tuple[int, list[FileEntry]] | None = None
        self.latest = max((number for number, _ in numbers), default=-1)

    def restore(self) -> Iterator[FileEntry]:
        """All entries."""
        for number in self._holding(self.latest):
            yield from self._entries(self._text(number))

    def add(self, files: Sequence[tuple[str, int]]) -> int:
        """Writes down what the next batch reads, as (URI, modification time in ms); gives its number. Raises where
        another run has written it."""
        number = self.latest + 1
        entries = [FileEntry(uri, modified_ms, number) for uri, modified_ms in files]
        before = [self._text(each) for each in self._holding(number - 1)] if self._is_compact(number) else []
        name = self._name(number)
        if not self._folder.create(*self._names, name, text=log_text(entries, before)):
            raise second_run_error(self._folder.place(*self._names, name))
        self.latest, self._last = number, (number, entries)
        self._seen_at[name] = self._now()
        if self._is_compact(number):
            self._clean(number)
        return number

    def between(self, before: int, end: int) -> list[FileEntry]:
        """The entries of the batches above `before` up to `end`."""
        if self._last is not None and before == end - 1 and end == self._last[0]:
            return self._last[1]
        read = partial(self._folder.read, *self._names)
        try:
            return [each for number in range(before + 1, end + 1) for each in batch_entries(number, read)]
        except (UnknownLogError, ValueError, KeyError) as error:
            raise self._damaged(f"{before + 1} to {end}") from error

    def lacking(self, number: int) -> Exception:
        """The error that a batch has read what this log does not have."""
        return self._damaged(self._name(number), "is not there")

    def _holding(self, number: int) -> range:
        """The numbers of the files that hold all entries up to one."""
        return range(max(0, (number + 1) // self._interval * self._interval - 1), number + 1)

    def _is_compact(self, number: int) -> bool:
        return (number + 1) % self._interval == 0

    def _name(self, number: int) -> str:
        return f"{number}{COMPACT}" if self._is_compact(number) else str(number)

    def _text(self, number: int) -> str:
        try:
            text = self._folder.read(*self._names, self._name(number))
        except ValueError as error:
            raise self._damaged(self._name(number)) from error
        if text is None:
            raise self._damaged(self._name(number), "is not there")
        return text

    def _entries(self, text: str) -> Iterator[FileEntry]:
        try:
            yield from entries_of(text)
        except (UnknownLogError, ValueError, KeyError) as error:
            raise self._damaged() from error

    def _damaged(self, name: str = "", what: str = "is not as Spark 4.2.1 and this engine write it") -> Exception:
        place = self._folder.place(*self._names, *filter(None, [name]))
        return PipelineFailedError(
            f"{place} {what}: which files were read is not known; restore the checkpoint from a copy, or begin with "
            "a new one",
            kind=ErrorKind.CORRUPT_DATA,
        )

    def _numbers(self) -> list[tuple[int, str]]:
        names = self._folder.names(*self._names)
        return [(int(text), name) for name in names if (text := name.removesuffix(COMPACT)).isdecimal()]

    def _clean(self, number: int) -> None:
        """Deletes what lies before the last file that a hundred batches follow, which holds it."""
        least = number + 1 - RETAINED_BATCHES
        if least < self._interval:
            return
        kept, now = least - least % self._interval - 1, self._now()
        for each, name in self._numbers():
            if each < kept and now - self._seen_at.setdefault(name, now) >= CLEANUP_DELAY_S:
                self._folder.delete(*self._names, name)
                del self._seen_at[name]


def _interval(compact: Sequence[int], wanted: int) -> int:
    """How many files there are from one that holds all before it to the next, by the numbers of those there are."""
    if len(compact) > 1:
        return compact[-1] - compact[-2]
    if not compact:
        return wanted
    count = compact[0] + 1
    if count // 2 > wanted:
        return next((each for each in range(wanted, count // 2 + 1) if count % each == 0), count)
    return count
