"""Records of the log: a header that says whose they are, and Arrow batches as values.

Header `freshet` of every record, little-endian, part of the format:

| bytes | field | meaning |
|---|---|---|
| 1 | version | 1 |
| 1 | value format | 0: Arrow, 1: json, 2: debezium-json |
| 8 | user | hash of the commit user |
| 8 | epoch | which start of the writer |
| 8 | batch | the commit that the rows are for |
| 8 | attempt | which try of the batch |
| 8 | first sequence | position of the first row among those of (user, epoch, batch, attempt, table partition, bucket) |
| 4 | row count | rows in the value |
| 8 | schema id | of the table, in which the rows are |
| 8 | row hash | rolls over the values of the attempt in this bucket up to here |
| 4 | bucket | of the table partition |
| 2 + n | table partition | length, bytes |

The value in format Arrow is an Arrow record batch message without its schema: `_ROW_KIND` as int8, then the columns of
the table at the schema id; the other formats are those of `writing.json_records`, which no reader here reads. Bytes
after the table partition, which earlier versions wrote, are ignored. A -U and its +U are never in different records. A
record has whole rows only, so that dropping a record that came twice, or is of a dead attempt, drops whole rows.

Which attempt is later: the larger epoch, then the larger attempt.
"""

from __future__ import annotations

import hashlib
import itertools
import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from freshet.logstore.exceptions import LogConfigError, LogLostError
from freshet.storage.model.manifest import BucketId
from freshet.storage.model.row_kind import ROW_KIND_COLUMN, RowKind

HEADER_NAME: Final = "freshet"
"""Key of the one header of a record; part of the format, do not change."""

VERSION: Final = 1
ARROW_FORMAT: Final = 0
JSON_FORMAT: Final = 1
DEBEZIUM_FORMAT: Final = 2
NO_HASH: Final = bytes(8)
_FIXED: Final = struct.Struct("<BB8sqqqqiq8siH")

KIND_FIELD: Final = pa.field(ROW_KIND_COLUMN, pa.int8(), nullable=False)


class Attempt(NamedTuple):
    """One try to log one batch; a later one is larger."""

    epoch: int
    attempt: int


class RecordHeader(NamedTuple):
    """Whose rows a record holds, and where they are among those of their attempt. A tuple, as there may be one for
    each row."""

    user_hash: bytes
    attempt: Attempt
    batch: int
    bucket_id: BucketId
    first_sequence: int
    row_count: int
    schema_id: int
    row_hash: bytes
    value_format: int = ARROW_FORMAT

    @property
    def end_sequence(self) -> int:
        """The sequence after the last row."""
        return self.first_sequence + self.row_count


def user_hash(commit_user: str) -> bytes:
    """A commit user in headers."""
    return hashlib.blake2b(commit_user.encode(), digest_size=8).digest()


def rolled_hash(before: bytes, value: bytes) -> bytes:
    """The hash of the values up to and including this one."""
    found = hashlib.sha1(before, usedforsecurity=False)  # the fastest here; it is not for security
    found.update(value)
    return found.digest()[:8]


def encode_header(header: RecordHeader) -> bytes:
    """The bytes of a header."""
    partition, bucket = header.bucket_id
    return (
        _FIXED.pack(
            VERSION,
            header.value_format,
            header.user_hash,
            header.attempt.epoch,
            header.batch,
            header.attempt.attempt,
            header.first_sequence,
            header.row_count,
            header.schema_id,
            header.row_hash,
            bucket,
            len(partition),
        )
        + partition
    )


def decode_header(data: bytes) -> RecordHeader:
    """The inverse of `encode_header`; raises `LogLostError` for bytes that are none."""
    if len(data) < _FIXED.size or data[0] != VERSION or data[1] > DEBEZIUM_FORMAT:
        raise LogLostError(
            f"a record of the log has a header that this version does not know ({data[:2].hex()}…, {len(data)} bytes); "
            "a newer version of this library may have written it, or another program writes to the topic"
        )
    _, value_format, user, epoch, batch, attempt, first, count, schema_id, row_hash, bucket, length = (
        _FIXED.unpack_from(data)
    )
    end = _FIXED.size + length
    owner = (data[_FIXED.size : end], bucket)
    return RecordHeader(user, Attempt(epoch, attempt), batch, owner, first, count, schema_id, row_hash, value_format)


def encode_values(rows: pa.Table, *, size_bytes: int, size_bytes_max: int) -> Iterator[tuple[int, bytes]]:
    """(row count, value) of the records that hold the rows; `_ROW_KIND` is their first column.

    Records have about `size_bytes`; `LogConfigError` when rows that belong together need more than `size_bytes_max`.
    """
    rows = rows.combine_chunks()
    if not rows.num_rows:
        return
    step = max(1, min(rows.num_rows, rows.num_rows * size_bytes // max(1, rows.nbytes)))
    kinds = rows.column(0).combine_chunks().to_numpy(zero_copy_only=False)
    ends = list(range(step, rows.num_rows, step))
    cuts = sorted({0, rows.num_rows, *(_whole(kinds, end) for end in ends)})
    for start, end in itertools.pairwise(cuts):
        yield from _encoded(rows, kinds, start, end, size_bytes_max)


def decode_value(value: bytes, schema: pa.Schema) -> pa.RecordBatch:
    """The rows of a record; `schema` begins with `_ROW_KIND`."""
    try:
        return pa.ipc.read_record_batch(pa.py_buffer(value), schema)
    except (pa.ArrowInvalid, OSError) as error:
        raise LogLostError(f"a record of the log does not hold rows of this table: {error}") from error


def log_schema(table_schema: pa.Schema) -> pa.Schema:
    """Columns of the rows in records."""
    return pa.schema([KIND_FIELD, *table_schema])


def _encoded(
    rows: pa.Table, kinds: np.ndarray, start: int, end: int, size_bytes_max: int
) -> Iterator[tuple[int, bytes]]:
    [batch] = rows.slice(start, end - start).to_batches()
    value = batch.serialize().to_pybytes()
    if len(value) <= size_bytes_max:
        yield end - start, value
        return
    middle = start + _whole(kinds[start:end], (end - start) // 2)
    if middle in (start, end):
        raise LogConfigError(
            f"a row, or a -U with its +U, takes {len(value)} bytes in the log, and a record may have {size_bytes_max}; "
            "raise max.message.bytes of the topic and kafka.message.max.bytes of the table",
            option="kafka.message.max.bytes",
        )
    yield from _encoded(rows, kinds, start, middle, size_bytes_max)
    yield from _encoded(rows, kinds, middle, end, size_bytes_max)


def _whole(kinds: np.ndarray, end: int) -> int:
    """The end, moved back where it would separate a -U from its +U."""
    parts = 0 < end < len(kinds) and kinds[end - 1] == RowKind.UPDATE_BEFORE
    return end - 1 if parts else end
