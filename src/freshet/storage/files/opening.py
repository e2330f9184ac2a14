"""The first request of a data file at a store where each takes its time: a small file whole, of a large one the end.

    size of the file (its manifest entry has it: no request for that)
      up to `ReadCosts.whole_bytes`    all of it, one request                         kept locally as data, on request
      above                            the last `TAIL_BYTES`, one request; the rest   kept locally as metadata: the
                                       of the footer, where it is longer, another     footer alone

A footer of 20 columns and 8 row groups has 14 KB. Of a file that readers come back to (lookups read keys first, then
rows), the opening stays in memory: `KEPT_BYTES_MAX` of them. Reads of a scan are requested ahead (`openings_ahead`), so
that files that follow are on their way while one is decoded. A small file that this process has written stays too: the
next compaction of its bucket reads it.

As a file object for pyarrow (`PositionedFile`), which makes one read at a time, a file at a store has the bytes of each
by a request, or they are here already. What is requested ahead, the formats decide (`parquet/ranged_file`, and the
stripes of `orc/reader`).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any, Final, TypeAlias
from weakref import WeakKeyDictionary

import pyarrow as pa

from freshet._frozen import Frozen
from freshet.storage.exceptions import CorruptDataError, MissingFileError, NotFoundError
from freshet.storage.io.env import Env
from freshet.storage.io.file_cache import CacheKind
from freshet.storage.io.file_io import OutputFile, WriteOnly
from freshet.storage.io.object_files import PositionedReads
from freshet.storage.io.ranges import ByteRange
from freshet.storage.io.sized_cache import SizedCache
from freshet.storage.io.store_reads import ComingRead

TAIL_BYTES: Final = 64 * 1024
KEPT_BYTES_MAX: Final = 32 * 1024 * 1024

FooterBytes: TypeAlias = Callable[[pa.Buffer], int | None]
"""The length of a footer, given the end of its file; None where it is no end of such a file."""


class Opening(Frozen):
    """The bytes of a file from an offset to its end, the whole footer among them."""

    offset: int
    data: pa.Buffer

    @property
    def is_whole(self) -> bool:
        """Whether it is the whole file."""
        return self.offset == 0


_kept: WeakKeyDictionary[Env, SizedCache[tuple[str, int], Opening]] = WeakKeyDictionary()


def open_file(env: Env, path: str, size_bytes: int, footer_bytes: FooterBytes) -> Opening:
    """The opening of a file: kept in memory, requested ahead, kept locally or read now.

    `MissingFileError` where the file is not there, `CorruptDataError` where it is not of this size.
    """
    kept, key = _openings_of(env), (path, size_bytes)
    found = kept.get(key)
    if found is None:
        coming = None if env.reads is None else env.reads.take(key)
        found = _read(env, path, size_bytes, footer_bytes) if coming is None else coming.result()
        if footer_bytes(found.data) is not None:  # else it may be restored under its name
            kept.put(key, found)
    return found


def opened_input(env: Env, path: str, size_bytes: int | None, part: tuple[int, int] | None) -> Any:
    """The file (of `size_bytes`, where that is known), or the part of it at an offset with a length, for random reads.

    A part is held in memory.
    """
    try:
        if part is not None:
            found = env.file_io.read_range(path, ByteRange(*part))
            if size_bytes is not None and found.size != size_bytes:
                raise wrong_size(path, found.size, size_bytes)
            return pa.BufferReader(found)
        opened = env.file_io.open_input(path)
    except NotFoundError as error:
        raise missing_file(path) from error
    if size_bytes is not None and opened.size() != size_bytes:
        found_bytes = opened.size()
        opened.close()
        raise wrong_size(path, found_bytes, size_bytes)
    return opened


def no_footer(tail: pa.Buffer) -> int | None:
    """For files that are read from their start."""
    return 0


def open_new_file(env: Env, path: str) -> OutputFile:
    """A new data file, whose bytes stay in memory where reading a small file is a request to a store."""
    output = env.file_io.open_output(path)
    return output if env.reads is None else _KeptOutput(env, path, output)


def openings_ahead(env: Env, files: Iterable[tuple[str, int, FooterBytes | None]]) -> AbstractContextManager[None]:
    """While the block runs, the openings of these files, by path, size and footer (files without one only where they
    are read whole), are requested before they are needed, in
    this order; nothing where a request costs nothing."""
    if env.reads is None:
        return nullcontext()
    kept, whole_bytes = _openings_of(env), env.file_io.read_costs.whole_bytes
    return env.reads.ahead(
        ComingRead(
            (path, size),
            size if size <= whole_bytes else TAIL_BYTES,
            partial(_read, env, path, size, footer or no_footer),
        )
        for path, size, footer in files
        if (path, size) not in kept and (footer is not None or size <= whole_bytes)
    )


def read_part(env: Env, path: str, wanted: ByteRange, size_bytes: int) -> pa.Buffer:
    """Bytes of a data file, by one request at most; blocks of it come from the local cache where it keeps data."""
    cache = env.file_cache
    if cache is None or not cache.keeps(CacheKind.DATA):
        return _range(env, path, wanted, size_bytes)
    block = cache.settings.block_bytes
    spans = {
        start: ByteRange(start, min(block, size_bytes - start))
        for start in range(wanted.offset // block * block, wanted.end, block)
    }
    parts = {start: cache.get(CacheKind.DATA, f"{path}@{span}") for start, span in spans.items()}
    missing = [start for start, part in parts.items() if part is None]
    if missing:
        first, end = missing[0], spans[missing[-1]].end
        read = _range(env, path, ByteRange(first, end - first), size_bytes)
        for start in missing:
            parts[start] = read.slice(start - first, spans[start].length)
            cache.put(CacheKind.DATA, f"{path}@{spans[start]}", parts[start])
    found = [part for part in parts.values() if part is not None]
    joined = found[0] if len(found) == 1 else pa.py_buffer(b"".join(found))
    return joined.slice(wanted.offset - min(spans), wanted.length)


def _openings_of(env: Env) -> SizedCache[tuple[str, int], Opening]:
    return _kept.setdefault(env, SizedCache(KEPT_BYTES_MAX, lambda opening: opening.data.size))


def _read(env: Env, path: str, size_bytes: int, footer_bytes: FooterBytes) -> Opening:
    if size_bytes <= env.file_io.read_costs.whole_bytes:
        return Opening(0, read_part(env, path, ByteRange(0, size_bytes), size_bytes))
    cache, key = env.file_cache, f"{path}#{size_bytes}"
    footer = None if cache is None else cache.get(CacheKind.META, key)
    if footer is not None:
        return Opening(size_bytes - footer.size, footer)
    start = max(0, size_bytes - TAIL_BYTES)
    tail = _range(env, path, ByteRange(start, size_bytes - start), size_bytes)
    length = footer_bytes(tail)
    if length is None or length > size_bytes:
        _check_size(env, path, size_bytes)
        return Opening(size_bytes - tail.size, tail)  # the reader will say what is wrong with it
    if length > tail.size:
        rest = _range(env, path, ByteRange(size_bytes - length, length - tail.size), size_bytes)
        tail = pa.py_buffer(b"".join((rest, tail)))
    if cache is not None:
        cache.put(CacheKind.META, key, tail.slice(tail.size - length))
    return Opening(size_bytes - tail.size, tail)


def _range(env: Env, path: str, wanted: ByteRange, size_bytes: int) -> pa.Buffer:
    try:
        data = env.file_io.read_range(path, wanted)
        if data.size != wanted.length:
            _check_size(env, path, size_bytes)
            raise CorruptDataError(f"the store gave {data.size} bytes where {wanted.length} were asked for", path=path)
        return data
    except NotFoundError as error:
        raise missing_file(path) from error


def _check_size(env: Env, path: str, size_bytes: int) -> None:
    found = env.file_io.size(path)
    if found != size_bytes:
        raise wrong_size(path, found, size_bytes)


def missing_file(path: str) -> MissingFileError:
    """For a data file that is not there."""
    return MissingFileError(
        "the manifest names a file that is missing; was it expired or cleaned while this snapshot was still in "
        "use? Read a newer snapshot, or restore the file",
        path=path,
    )


def wrong_size(path: str, found_bytes: int, size_bytes: int) -> CorruptDataError:
    """For a data file that is not as long as its manifest entry says."""
    return CorruptDataError(
        f"the file has {found_bytes} bytes, its manifest entry says {size_bytes}: it was cut short or "
        "replaced; restore it from a copy",
        path=path,
    )


class _KeptOutput(WriteOnly):
    """A file being written, and its bytes as long as it is small."""

    def __init__(self, env: Env, path: str, output: OutputFile) -> None:
        self._env = env
        self._path = path
        self._output = output
        self._bytes: bytearray | None = bytearray()

    @property
    def closed(self) -> bool:
        """The state of the file."""
        return self._output.closed

    def write(self, data: bytes | memoryview | pa.Buffer) -> int:
        """Appends the bytes."""
        if self._bytes is not None:
            self._bytes += memoryview(data).cast("B")
            if len(self._bytes) > self._env.file_io.read_costs.whole_bytes:
                self._bytes = None
        return self._output.write(data)

    def tell(self) -> int:
        """Bytes written so far."""
        return self._output.tell()

    def flush(self) -> None:
        """The flush of the file."""
        self._output.flush()

    def close(self) -> None:
        """The file is there; a small one can be read without a request."""
        if self._output.closed:
            return
        self._output.close()
        if self._bytes is not None:
            data = pa.py_buffer(bytes(self._bytes))
            _openings_of(self._env).put((self._path, data.size), Opening(0, data))

    def abort(self) -> None:
        """The file is gone."""
        self._bytes = None
        self._output.abort()


class PositionedFile(PositionedReads):
    """What pyarrow reads of one file."""

    def __init__(self, env: Env, path: str, size_bytes: int, opening: Opening) -> None:
        assert env.reads is not None
        super().__init__(size_bytes)
        self._env = env
        self._reads = env.reads
        self._path = path
        self._opening = opening

    def _read_at(self, wanted: ByteRange) -> pa.Buffer:
        """Held, or by a request."""
        if wanted.offset >= self._opening.offset:
            return self._opening.data.slice(wanted.offset - self._opening.offset, wanted.length)
        return self._bytes(wanted)

    @abstractmethod
    def _bytes(self, wanted: ByteRange) -> pa.Buffer:
        """These bytes, which begin before the opening."""

    def _part(self, wanted: ByteRange) -> pa.Buffer:
        """By a request."""
        return read_part(self._env, self._path, wanted, self._size_bytes)
