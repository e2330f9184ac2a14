"""Lines of files that a worker reads itself, and decodes: what Spark's source of texts gives, without Spark.

    spans of files ─ parts of whole lines ─ blocks of records ─ packer ─ packed outcomes

A line ends with `\n`, `\r\n` or `\r`, or with what `lineSep` says, and with the file. A byte order mark of UTF-8 before
the first line is none of it. A compressed file is read as its extension says.

A large file is read in spans, in several workers. A line belongs to the span in which it begins; one that begins with
the first byte of a span behind the first belongs to the span before, which reads on to its end. So no worker has to
know what another finds (as in Hadoop's `LineRecordReader`).

Lines of several files are put into one block, since a decoder pays for each block. Measured, lines of 200 bytes: 1.4
GB/s of processor time as bytes of Python, which structs are decoded from; as an Arrow column and out of it again 0.5.

Compressed files are read as Hadoop's codecs read them:

| extension | a file is |
|---|---|
| .gz, .bz2, .zst, .zstd | one stream after the other |
| .deflate | a stream of zlib's |
| .snappy, .lz4 | blocks of Hadoop's: length, then chunks (length, bytes) until they make so many |

An empty file is one of no bytes. Source: Hadoop's codecs, as Spark 4.2.1 has them; tried.
"""

from __future__ import annotations

import zlib
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, Final

import numpy as np
import pyarrow as pa

from freshet._frozen import Frozen
from freshet.pipeline.decode.outcomes import Tally
from freshet.pipeline.decode.record_block import MIXED_RECORDS, KafkaBlock
from freshet.pipeline.errors.known_causes import gone_text
from freshet.pipeline.errors.repeating_errors import error_document
from freshet.pipeline.query.task.batch_work import BatchWork, record_packer
from freshet.pipeline.query.wire.batch_pin import TaskPlace
from freshet.pipeline.query.wire.file_uris import place_of, topic_of
from freshet.pipeline.query.wire.kept_value import KeptValue
from freshet.pipeline.query.wire.packed_rows import packed_batches
from freshet.storage.exceptions import CorruptDataError, InvalidRequestError, NotFoundError
from freshet.storage.io.env import Env, store_env

SPAN_UNIT: Final = 1 << 16
"""Spans begin at multiples of it: a line's position has the number of the unit in its upper bits."""
POSITION_BITS: Final = 33
"""Lower bits of a position, in which the decoder counts the lines."""

PART_BYTES: Final = 1 << 20
"""Bytes that are read and split at once; a longer line is a part by itself."""
STORE_PART_BYTES: Final = 8 << 20
"""The same where each read is a request."""
TOGETHER: Final = 16
"""Small files of a store that are requested at the same time."""

_MARK: Final = b"\xef\xbb\xbf"

_Read = Callable[[int], bytes]
"""At most so many of the next bytes; none at the end."""

_ARROW: Final = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd", ".zstd": "zstd"}
_DEFLATE: Final = ".deflate"
_BLOCKS: Final = {".snappy": "snappy", ".lz4": "lz4_raw"}

_READ_BYTES: Final = 1 << 20


class FileSpan(Frozen):
    """Lines of a file: those that begin behind `start` (with the file, where that is 0), as far as `end`; None is the
    end of the file. `uri` is that of the file in the log of its source."""

    uri: str
    modified_ms: int
    start: int = 0
    end: int | None = None
    is_small: bool = False
    """It is a whole file, which may be read at once."""


@dataclass(frozen=True, slots=True)
class FileRule:
    """How the files of a source are read: what ends a line (None: any of the usual), the options of their store, and
    whether a file that is gone is passed over."""

    separator: bytes | None = None
    options: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    takes_losses: bool = False


class FilePiece(Frozen):
    """Spans of files to packed outcomes of their lines; a value that travels to the workers."""

    spans: tuple[FileSpan, ...]
    rule: FileRule
    work: KeptValue[BatchWork]
    source_index: int
    keeps_together: ClassVar[bool] = False

    def run(self, place: TaskPlace) -> Iterator[pa.RecordBatch]:
        """Batches of `PACKED_SCHEMA`."""
        packer = record_packer(place, self.work, self.source_index)
        try:
            yield from packed_batches(packer(line_blocks(self.spans, self.rule)))
        except (InvalidRequestError, CorruptDataError) as error:  # another attempt would not find it either
            yield from packed_batches(packer.tally(Tally(error=error_document(error))))


def is_splittable(uri: str, separator: bytes | None) -> bool:
    """Whether lines can be looked for from the middle of the file on."""
    if is_compressed(uri):
        return False
    return separator is None or not any(separator.startswith(separator[at:]) for at in range(1, len(separator)))


def line_blocks(spans: Sequence[FileSpan], rule: FileRule) -> Iterator[KafkaBlock]:
    """The lines of these spans, in their order, in blocks that are not small where there are enough."""
    kept: list[tuple[FileSpan, list[bytes]]] = []
    count = size = 0
    for span, content in _requested(spans, rule):
        for part in _parts(span, rule, content):
            lines = part.splitlines() if rule.separator is None else _split(part, rule.separator)
            kept.append((span, lines))
            count += len(lines)
            size += len(part)
            if count >= MIXED_RECORDS or size >= PART_BYTES:
                yield _block(kept)
                kept, count, size = [], 0, 0
    if count:
        yield _block(kept)


def _requested(spans: Sequence[FileSpan], rule: FileRule) -> Iterator[tuple[FileSpan, bytes | None]]:
    """The spans, with the content of small files where reading takes its time."""
    if not spans or not (env := _env_of(spans[0], rule)).is_remote:
        yield from ((span, None) for span in spans)
        return
    for begin in range(0, len(spans), TOGETHER):
        group = spans[begin : begin + TOGETHER]
        contents = env.together([partial(_content, env, span) for span in group])
        yield from zip(group, contents, strict=True)


def _content(env: Env, span: FileSpan) -> bytes | None:
    try:
        return env.file_io.read_bytes(place_of(span.uri)) if span.is_small else None
    except NotFoundError:
        return None  # whoever opens it says so


def _env_of(span: FileSpan, rule: FileRule) -> Env:
    return store_env(place_of(span.uri), dict(rule.options))


def _parts(span: FileSpan, rule: FileRule, content: bytes | None) -> Iterator[bytes]:
    place, file_io = place_of(span.uri), _env_of(span, rule).file_io
    try:
        with file_io.open_input(place) if content is None else pa.BufferReader(content) as file:
            is_store = file_io.read_costs.in_flight > 1
            read = uncompressed(file, place)
            if span.start:
                file.seek(span.start - _overlap(rule.separator))
            yield from whole_lines(
                read, span.start, span.end, rule.separator, STORE_PART_BYTES if is_store else PART_BYTES
            )
    except NotFoundError as error:
        if not rule.takes_losses:
            raise InvalidRequestError(gone_text(place)) from error
    except (OSError, zlib.error, pa.ArrowInvalid) as error:
        raise CorruptDataError(f"{place} cannot be read: {error}; put a whole file there under this name") from error


def whole_lines(
    read: _Read, start: int, end: int | None, separator: bytes | None, part_bytes: int = PART_BYTES
) -> Iterator[bytes]:
    """The lines of a span in parts, which end with the end of a line; `read` reads from `start` on, or so many bytes
    before as a separator that ends behind it may have there."""
    overlap = _overlap(separator)
    left, at, is_begun = b"", start - overlap if start else 0, start == 0
    while True:
        fresh = read(max(part_bytes, len(left)))
        data = left + fresh if left else fresh
        if at == 0 and is_begun and fresh and len(data) < len(_MARK):
            left = data
            continue
        if at == 0 and is_begun and data.startswith(_MARK):
            data, at = data[len(_MARK) :], len(_MARK)
        is_last = not fresh
        if not is_begun:
            begin = _line_behind(data, 0, separator, is_last)
            if begin < 0:  # none of these bytes is the begin of a line
                if is_last:
                    return
                left = data[len(data) - min(len(data), max(overlap, separator is None and data.endswith(b"\r"))) :]
                at += len(data) - len(left)
                continue
            data, at, is_begun = data[begin:], at + begin, True
            if end is not None and at > end:
                return
        if end is not None and at + len(data) > end:
            stop = _line_behind(data, max(0, end - overlap - at), separator, is_last)
            if stop >= 0:
                if stop:
                    yield data[:stop]
                return
        cut = len(data) if is_last else _last_line(data, separator)
        if cut:
            yield data if cut == len(data) else data[:cut]
        if is_last:
            return
        left = data[cut:]
        at += cut


def _overlap(separator: bytes | None) -> int:
    """Bytes of a separator that may lie in front of a place at which it is cut."""
    return len(separator or b" ") - 1


def _line_behind(data: bytes, begin: int, separator: bytes | None, is_last: bool) -> int:
    """Where the first line begins whose predecessor ends at `begin` or behind it; -1 where that is not to be seen."""
    if separator is not None:
        found = data.find(separator, begin)
        return -1 if found < 0 else found + len(separator)
    feed = data.find(b"\n", begin)
    back = data.find(b"\r", begin, len(data) if feed < 0 else feed)
    if back < 0:
        return feed + 1 or -1
    if back + 1 == feed:
        return feed + 1
    return back + 1 if back + 1 < len(data) or is_last else -1


def _last_line(data: bytes, separator: bytes | None) -> int:
    """Where the last line begins that is seen to begin in these bytes; 0 for none."""
    if separator is not None:
        found = data.rfind(separator)
        return 0 if found < 0 else found + len(separator)
    feed = data.rfind(b"\n")
    return max(feed, data.rfind(b"\r", feed + 1, len(data) - 1)) + 1


def _split(part: bytes, separator: bytes) -> list[bytes]:
    lines = part.split(separator)
    if not lines[-1]:
        lines.pop()
    return lines


def _block(parts: Sequence[tuple[FileSpan, list[bytes]]]) -> KafkaBlock:
    spans, values = [span for span, _ in parts], [line for _, lines in parts for line in lines]
    codes = np.repeat(np.arange(len(spans)), [len(lines) for _, lines in parts])
    starts = np.array([span.start // SPAN_UNIT << POSITION_BITS for span in spans], np.int64)
    ranks = [span.modified_ms * 1000 for span in spans]
    times = np.array(ranks, np.int64)[codes]
    return KafkaBlock(
        [(topic_of(span.uri), None) for span in spans],
        codes if len(spans) > 1 else None,
        [None] * len(values),
        values,
        np.fromiter(map(len, values), np.int64, len(values)),
        starts[codes],
        lambda: pa.array(times).cast(pa.timestamp("us", "UTC")),
        lambda at: [None] * len(at),
        ranks,
    )


def is_compressed(name: str) -> bool:
    """Whether the extension of a file says so."""
    return _extension(name) in {*_ARROW, _DEFLATE, *_BLOCKS}


def uncompressed(file: pa.NativeFile, name: str) -> _Read:
    """What reads a file as it was before it was compressed. Raises `OSError`, `ArrowInvalid` or `zlib.error` where
    it is damaged, or ends before its end."""
    extension = _extension(name)
    if extension in _ARROW:
        stream: Any = pa.CompressedInputStream(file, _ARROW[extension])
        return stream.read  # type: ignore[no-any-return]
    if extension == _DEFLATE:
        return _pieces(_inflated(file))
    if extension in _BLOCKS:
        return _pieces(_blocks(file, pa.Codec(_BLOCKS[extension])))
    return file.read  # type: ignore[no-any-return]


def _extension(name: str) -> str:
    return name[name.rfind(".") :].lower() if "." in name else ""


def _pieces(parts: Iterator[bytes]) -> _Read:
    return lambda _: next(parts, b"")


def _inflated(file: pa.NativeFile) -> Iterator[bytes]:
    inflating = zlib.decompressobj()
    while data := file.read(_READ_BYTES):
        while data and not inflating.eof:
            if part := inflating.decompress(data, _READ_BYTES):
                yield part
            data = inflating.unconsumed_tail
    if part := inflating.flush():
        yield part
    if not inflating.eof and file.tell():
        raise OSError("it ends in the middle")


def _blocks(file: pa.NativeFile, codec: pa.Codec) -> Iterator[bytes]:
    while header := file.read(4):
        left = int.from_bytes(header)
        while left > 0:
            chunk = file.read(_size(file))
            part = _chunk(codec, chunk, left)
            left -= len(part)
            if part:
                yield part


def _size(file: pa.NativeFile) -> int:
    header = file.read(4)
    if len(header) < 4:
        raise OSError("it ends in the middle")
    return int.from_bytes(header)


def _chunk(codec: pa.Codec, chunk: bytes, left: int) -> bytes:
    """The bytes of a chunk of a block, `left` of which are to come. A chunk of LZ4 does not say how many it makes, and
    Arrow does not say how many it has made."""
    size = left
    if _fits(codec, chunk, left - 1):  # others of the block follow
        size = bisect_left(range(left), True, key=lambda each: _fits(codec, chunk, each))
    part: bytes = codec.decompress(chunk, size, asbytes=True)
    return part


def _fits(codec: pa.Codec, chunk: bytes, size: int) -> bool:
    try:
        codec.decompress(chunk, size)
    except (OSError, pa.ArrowInvalid):
        return False
    return True
