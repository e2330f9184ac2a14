"""Folders of files as a source: new ones are found as they appear, and read once.

    folders ─ file_listing ─ those not seen ─ within the limits ─ file_log ─▶ pieces ─▶ query.task.file_lines

What is seen, in which order, and what a batch takes is as in Spark's file source, but for this: files of one time of
modification come by their path; what a run has written down and died before it was planned is the next batch, alone;
and a file whose name looks like a pattern (`a[1]`) is read once, where Spark 4.2.1 reads its folder once more for it.

An idle source looks at its folders ten times a second, by their time of modification alone, and lists them where that
has changed; every few seconds in any case. A store is listed once a second. A listing that is much work is made less
often: a tenth of a processor at most goes into it.

Options (`config.model.FILE_OPTIONS`) mean what they mean to Spark. `maxBytesPerTrigger` may have a unit as well
(`100m`), which Spark 4.2.1 refuses; `compression` says nothing of files that are read: their extension does.

Source: Spark's `FileStreamSource`.
"""

from __future__ import annotations

import codecs
import json
import logging
import os
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import MappingProxyType
from typing import Final
from urllib.parse import urlsplit

from freshet._frozen import Frozen
from freshet.pipeline.config.model import SourceConfig
from freshet.pipeline.exceptions import ConfigurationError
from freshet.pipeline.identity.checkpoint_folder import WritableCheckpoint, local_folder
from freshet.pipeline.local.file_listing import FileListing, FoundFile, Where
from freshet.pipeline.local.file_log import INTERVAL, FileLog
from freshet.pipeline.query.driver.read_digests import FILES_OFFSET, FileEntry
from freshet.pipeline.query.task.batch_work import BatchWork
from freshet.pipeline.query.task.file_lines import PART_BYTES, SPAN_UNIT, FilePiece, FileRule, FileSpan, is_splittable
from freshet.pipeline.query.wire.file_uris import place_of
from freshet.pipeline.query.wire.kept_value import KeptValue
from freshet.storage.exceptions import InvalidRequestError, NotFoundError, StorageError
from freshet.storage.io.env import Env, store_env

SPAN_BYTES_MAX: Final = 128 << 20
"""Spark's spark.sql.files.maxPartitionBytes."""
PIECE_BYTES_MIN: Final = 4 << 20
"""Less is one piece: what one worker decodes alone costs the others nothing."""
IGNORE_MISSING: Final = "spark.sql.files.ignoreMissingFiles"
COMPACT_INTERVAL: Final = "spark.sql.streaming.fileSource.log.compactInterval"

_LEFT_SHARE: Final = 0.2
"""Files of an earlier listing are taken before the next one if they make so much of a batch."""
_LOOK_S: Final = 0.1
_STORE_LOOK_S: Final = 1.0
_LIST_S: Final = 5.0
_QUICK_S: Final = 0.05
_LISTING_SHARE: Final = 10

_LOG: Final = logging.getLogger(__name__)
_TIME: Final = re.compile(r"(-?\d+)\s*(us|ms|s|m|min|h|d)?", re.IGNORECASE)
_UNIT_MS: Final = {"us": 0.001, "ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
_SIZE: Final = re.compile(r"(\d+)\s*([kmgtp]?)b?", re.IGNORECASE)
_WEEK: Final = "7d"
_FOREVER: Final = 2**63 - 1
_JAVA_BYTES: Final = {"utf-16": (b"\xfe\xff", "utf-16-be"), "utf-32": (b"", "utf-32-be")}
"""What Java writes where Python writes the bytes in the order of the machine."""


class SeenFiles:
    """The files that were read, as far back as `maxFileAge` says, by the time of the newest."""

    def __init__(self, age_max_ms: int) -> None:
        self._age_max_ms, self._seen = age_max_ms, dict[str, int]()
        self._newest = self._least = 0

    def add(self, files: Iterable[FoundFile | FileEntry]) -> None:
        """Files that are read now."""
        for each in files:
            self._seen[each.uri] = each.modified_ms
            self._newest = max(self._newest, each.modified_ms)

    def purge(self) -> None:
        """From now on files that are too old are none."""
        self._least = self._newest - self._age_max_ms

    def is_new(self, file: FoundFile) -> bool:
        """Whether a file is to be read."""
        if file.modified_ms < self._least:
            return False
        seen_ms = self._seen.get(file.uri)
        return seen_ms is None or seen_ms < self._least

    def is_passed_over(self, file: FoundFile) -> bool:
        """Whether a file was never read, and is too old to be."""
        return file.modified_ms < self._least and file.uri not in self._seen


class FolderSource:
    """One folder, or those of a pattern; a `Source`."""

    def __init__(
        self,
        options: FolderOptions,
        listing: FileListing,
        log: FileLog,
        env: Env,
        rule: FileRule,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._options, self._listing, self._log = options, listing, log
        self._io, self._rule, self._now = env.file_io, rule, now
        self._is_store = env.file_io.folders is None
        self._seen = SeenFiles(options.age_max_ms)
        self._seen.add(log.restore())
        self._seen.purge()
        self._new: list[FoundFile] = []
        self._passed_over: set[str] = set()
        self._looked_s: float | None = None
        self._is_bound = False
        self._sizes: dict[str, int] = {}
        self._done = log.latest
        self._cleaner: ThreadPoolExecutor | None = None

    def first(self) -> str | None:
        """`Source.first`: nothing."""
        return None

    def latest(self, start: str | None) -> str | None:
        """`Source.latest`."""
        begun = _number(start)
        if self._log.latest < begun:
            raise self._log.lacking(begun)
        if self._log.latest == begun:
            self._look()
            batch, self._new = self._taken()
            self._seen.add(batch)
            self._seen.purge()
            self._listing.leave_out(batch)
            if batch:
                self._log.add([(each.uri, each.modified_ms) for each in batch])
                self._sizes.update((each.uri, each.size) for each in batch)
        return None if self._log.latest < 0 else _offset(self._log.latest)

    def bound(self) -> None:
        """`Source.bound`."""
        self._look(at_once=True)
        self._is_bound = True

    def pieces(
        self, start: str | None, end: str, work: KeptValue[BatchWork], index: int, count: int
    ) -> Sequence[FilePiece]:
        """`Source.pieces`: pieces of about equally many bytes. Large files are cut."""
        files = self._log.between(_number(start), _number(end))
        sizes = [self._size(each.uri) for each in files]
        wanted = max(-(-sum(sizes) // max(1, count)), PIECE_BYTES_MIN)
        span_bytes = -(-min(wanted, SPAN_BYTES_MAX) // SPAN_UNIT) * SPAN_UNIT
        pieces: list[list[FileSpan]] = []
        left = 0
        for file, size in zip(files, sizes, strict=True):
            for span, span_size in self._spans(file, size, span_bytes):
                if left <= 0:
                    pieces.append([])
                    left = wanted
                pieces[-1].append(span)
                left -= span_size
        return [FilePiece(tuple(spans), self._rule, work, index) for spans in pieces]

    def done(self, end: str) -> None:
        """`Source.done`: files are removed or archived as `cleanSource` says, beside the batches that follow."""
        number = _number(end)
        files = self._log.between(min(self._done, number - 1), number)
        for each in files:
            self._sizes.pop(each.uri, None)
        if self._options.cleans != "off":
            if self._cleaner is None:
                self._cleaner = ThreadPoolExecutor(1, "cleaning-files")
            self._cleaner.submit(self._clean, [place_of(each.uri) for each in files])
        self._done = number

    def lag(self, end: str) -> int | None:
        """`Source.lag`: how many records a file has is not known before it is read."""
        return None

    def wait(self, start: str | None, timeout_s: float) -> bool:
        """`Source.wait`."""
        until = self._now() + timeout_s
        while True:
            if self._log.latest > _number(start):
                return True
            self._look()
            if self._new:
                return True
            left = until - self._now()
            if left <= 0:
                return False
            time.sleep(min(left, _STORE_LOOK_S if self._is_store else _LOOK_S))

    def close(self) -> None:
        """`Source.close`."""
        if self._cleaner is not None:
            self._cleaner.shutdown()

    def _look(self, *, at_once: bool = False) -> None:
        """Lists, where there may be something that was not there before."""
        if self._is_bound or not (at_once or self._is_due()):
            return
        found: list[FoundFile] = []
        others: list[FoundFile] = []
        for each in self._listing.files():
            is_new = self._seen.is_new(each) and self._listing.can_be_read(each)
            (found if is_new else others).append(each)
        self._warn_of(each for each in others if self._seen.is_passed_over(each))
        self._listing.leave_out(others)
        sign = -1 if self._options.latest_first else 1
        self._new = sorted(found, key=lambda each: (sign * each.modified_ms, each.uri))
        self._looked_s = self._now()

    def _warn_of(self, files: Iterable[FoundFile]) -> None:
        """Says once of each file that it is not read: Spark passes them over without a word."""
        new = sorted({each.uri for each in files} - self._passed_over)
        self._passed_over.update(new)
        if new:
            _LOG.warning(
                "%s%s not read: older than the newest file by more than maxFileAge (by default 7 days). To read "
                "such files give the source a larger maxFileAge, or new times to the files (touch)",
                place_of(new[0]),
                f" and {len(new) - 1} more files are" if len(new) > 1 else " is",
            )

    def _is_due(self) -> bool:
        if self._looked_s is None:
            return True
        if self._new and not self._options.latest_first and self._is_enough():
            return False
        passed = self._now() - self._looked_s
        if self._listing.took_s > _QUICK_S and passed < self._listing.took_s * _LISTING_SHARE:
            return False
        if self._is_store:
            return passed >= _STORE_LOOK_S
        return passed >= _LIST_S or self._listing.may_have_changed()

    def _is_enough(self) -> bool:
        if self._options.files_max is not None:
            return len(self._new) >= self._options.files_max * _LEFT_SHARE
        if self._options.bytes_max is not None:
            return sum(each.size for each in self._new) >= self._options.bytes_max * _LEFT_SHARE
        return False

    def _taken(self) -> tuple[list[FoundFile], list[FoundFile]]:
        """The files of the next batch, and the others."""
        count = len(self._new)
        if self._options.files_max is not None:
            count = self._options.files_max
        elif self._options.bytes_max is not None:
            size = count = 0
            for each in self._new:
                size += each.size
                if count and size > self._options.bytes_max:
                    break
                count += 1
        return self._new[:count], self._new[count:]

    def _size(self, uri: str) -> int:
        size = self._sizes.get(uri)
        if size is None:
            try:
                size = self._io.size(place_of(uri))
            except NotFoundError:
                size = 0  # whoever reads it says so
            self._sizes[uri] = size
        return size

    def _spans(self, file: FileEntry, size: int, span_bytes: int) -> Iterable[tuple[FileSpan, int]]:
        if size <= span_bytes or not is_splittable(file.uri, self._rule.separator):
            yield FileSpan(file.uri, file.modified_ms, is_small=size <= PART_BYTES), size
            return
        for start in range(0, size, span_bytes):
            end = start + span_bytes
            yield FileSpan(file.uri, file.modified_ms, start, end if end < size else None), min(size, end) - start

    def _clean(self, places: Sequence[str]) -> None:
        try:
            if self._options.archive is not None and self._options.cleans == "archive":
                archive = _absolute(self._options.archive)
                places = [each for each in places if self._io.exists(each)]
                self._io.copy_all([(each, archive.rstrip("/") + _path(each)) for each in places])
            removed = self._io.delete_all(places)
            if removed.cause is not None:
                _LOG.warning("%s files that were read could not be removed: %s", removed.failed_count, removed.cause)
        except StorageError as error:
            _LOG.warning("files that were read stay where they are (cleanSource): %s", error)


def file_source(
    config: SourceConfig,
    folder: WritableCheckpoint,
    index: int,
    *,
    options: Mapping[str, str] = MappingProxyType({}),
    conf: Mapping[str, str] = MappingProxyType({}),
) -> FolderSource:
    """The source of the files of a pipeline; `options` are those of the store that it lies in, `conf` settings of
    Spark's, of which `IGNORE_MISSING` and `COMPACT_INTERVAL` count. Raises `ConfigurationError` where the place cannot
    be reached."""
    if config.files is None:
        raise ConfigurationError("a source of files has the key files")
    given = file_options(config.files.options)
    path = _absolute(config.files.path)
    if given.archive is not None and _store(_absolute(given.archive)) != _store(path):
        raise ConfigurationError(
            f"sourceArchiveDir ({given.archive}) lies in another file system than path ({config.files.path}): files "
            "are moved there; choose a folder in the same one"
        )
    try:
        env = store_env(path, options)
    except InvalidRequestError as error:
        raise ConfigurationError(
            f"{error}: run the pipeline on Spark (run_on: spark), or copy the files to such a place"
        ) from error
    takes_losses = conf.get(IGNORE_MISSING, "").lower() == "true"
    rule = FileRule(given.separator, tuple(sorted(options.items())), takes_losses)
    log = FileLog(folder, index, _whole(COMPACT_INTERVAL, conf.get(COMPACT_INTERVAL, str(INTERVAL))))
    return FolderSource(given, FileListing(env, Where(path, given.names, given.is_deep)), log, env, rule)


def _absolute(location: str) -> str:
    """The path or pattern of a place, as `Env` takes it."""
    local = local_folder(location)
    return location.rstrip("/") if local is None else os.path.abspath(local)


def _store(place: str) -> str:
    return "" if "://" not in place else "://".join(urlsplit(place)[:2])


def _path(place: str) -> str:
    return place if "://" not in place else urlsplit(place).path


def _number(offset: str | None) -> int:
    return -1 if offset is None else int(json.loads(offset)[FILES_OFFSET])


def _offset(number: int) -> str:
    return json.dumps({FILES_OFFSET: number}, separators=(",", ":"))


class FolderOptions(Frozen):
    """What a source takes at once, in which order, and what becomes of files that are read."""

    files_max: int | None
    bytes_max: int | None
    latest_first: bool
    age_max_ms: int
    names: str | None
    is_deep: bool
    cleans: str
    archive: str | None
    separator: bytes | None

    @property
    def is_limited(self) -> bool:
        """Whether a batch may leave files to the next one."""
        return self.files_max is not None or self.bytes_max is not None


def file_options(options: Mapping[str, str]) -> FolderOptions:
    """The options of a source; raises `ConfigurationError` for a value that Spark would refuse."""
    files, size = options.get("maxFilesPerTrigger"), options.get("maxBytesPerTrigger")
    latest_first = _flag(options, "latestFirst")
    is_limited = files is not None or size is not None
    separator = options.get("lineSep")
    return FolderOptions(
        None if files is None else _whole("maxFilesPerTrigger", files),
        None if size is None else _bytes("maxBytesPerTrigger", size),
        latest_first,
        _FOREVER if latest_first and is_limited else _time_ms("maxFileAge", options.get("maxFileAge", _WEEK)),
        options.get("pathGlobFilter"),
        _flag(options, "recursiveFileLookup"),
        options.get("cleanSource", "off").lower(),
        options.get("sourceArchiveDir"),
        None if separator is None else _encoded(separator, options.get("encoding", "UTF-8")),
    )


def _flag(options: Mapping[str, str], name: str) -> bool:
    return options.get(name, "false").lower() == "true"


def _whole(name: str, text: str) -> int:
    if not text.strip().isdecimal() or not int(text):
        raise ConfigurationError(f"{name} wants a whole number above 0, not {text!r}")
    return int(text)


def _bytes(name: str, text: str) -> int:
    match = _SIZE.fullmatch(text.strip())
    if match is None or not int(match[1]):
        raise ConfigurationError(f"{name} wants a size such as 100m or 1g, not {text!r}")
    return int(match[1]) << 10 * " kmgtp".index(match[2].lower() or " ")


def _time_ms(name: str, text: str) -> int:
    match = _TIME.fullmatch(text.strip())
    if match is None or int(match[1]) < 0:
        raise ConfigurationError(f"{name} wants a time such as 7d or 12h, not {text!r}")
    return int(int(match[1]) * _UNIT_MS[(match[2] or "ms").lower()])


def _encoded(separator: str, encoding: str) -> bytes:
    try:
        mark, name = _JAVA_BYTES.get(codecs.lookup(encoding).name, (b"", encoding))
        return mark + separator.encode(name)
    except (LookupError, UnicodeEncodeError) as error:
        raise ConfigurationError(f"lineSep cannot be written in the encoding {encoding}: {error}") from error
