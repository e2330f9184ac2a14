"""Rows as records for consumers that know nothing of this library: `log.format` json and debezium-json.

| row | json | debezium-json |
|---|---|---|
| +I, +U | the row | `{"before":null,"after":{…},"op":"c"}` |
| -U and its +U | only the +U is logged | one record: `{"before":{…},"after":{…},"op":"u"}` |
| -D, lone -U | no value (a tombstone) | `{"before":{…},"after":null,"op":"d"}` |

A record has one row, or a pair. The key is the primary key as a JSON object, none for append tables. What the value
does not tell, the header does (`record`): kinds, and the whole row that a tombstone deletes; so readers of this library
have the same rows as from a log of Arrow batches.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import repeat
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from freshet.logstore.exceptions import LogConfigError
from freshet.logstore.json_rows import parsed, rows_of
from freshet.logstore.json_text import object_texts
from freshet.logstore.record import DEBEZIUM_FORMAT, JSON_FORMAT, RecordHeader
from freshet.storage.model.row_kind import RowKind

FORMATS: Final = {"json": JSON_FORMAT, "debezium-json": DEBEZIUM_FORMAT}
"""By the value of `log.format`."""

SLICE_ROWS: Final = 16_384
"""Rows whose texts are made at once."""

SLICE_BYTES: Final = 8 * 1024 * 1024
"""And bytes of them, by the average: their texts are many times that."""

_IS_GONE: Final = np.array([False, True, False, True])
"""By kind: the row is the one before the change."""


class JsonRecord(NamedTuple):
    """One record; `value` is None for a tombstone."""

    row_count: int
    key: bytes | None
    value: bytes | None
    tail: bytes


def json_records(
    rows: pa.Table, value_format: int, key_names: Sequence[str], *, size_bytes_max: int
) -> Iterator[JsonRecord]:
    """The records of rows, whose first column is `_ROW_KIND`; `LogConfigError` for a row that is too large."""
    start = 0
    slice_rows = max(1, min(SLICE_ROWS, rows.num_rows * SLICE_BYTES // max(1, rows.nbytes)))
    while start < rows.num_rows:
        piece = rows.slice(start, slice_rows + 1)
        count = min(slice_rows, piece.num_rows)
        if count < piece.num_rows and piece.column(0)[count - 1].as_py() == RowKind.UPDATE_BEFORE:
            count += 1  # with its +U
        start += count
        [batch] = piece.slice(0, count).combine_chunks().to_batches()
        for record in _records(batch, value_format, key_names):
            size = len(record.key or b"") + len(record.value or b"") + len(record.tail)
            if size > size_bytes_max:
                raise LogConfigError(
                    f"a row with key {record.key!r} takes {size} bytes in the log, and a record may have "
                    f"{size_bytes_max}; raise max.message.bytes of the topic and kafka.message.max.bytes of the table",
                    option="kafka.message.max.bytes",
                )
            yield record


def decoded(records: Sequence[tuple[RecordHeader, bytes]], schema: pa.Schema) -> pa.RecordBatch:
    """The rows of records of one format; `schema` begins with `_ROW_KIND`. `LogLostError` where they are others."""
    fields = list(schema)[1:]
    kinds = np.frombuffer(b"".join(header.tail[: header.row_count] for header, _ in records), np.int8)
    values = parsed(value or header.tail[header.row_count :] for header, value in records)
    images = values if records[0][0].value_format == JSON_FORMAT else _images(values, records)
    return pa.RecordBatch.from_arrays([pa.array(kinds), *rows_of(images, fields)], schema=schema)


def _images(envelopes: Sequence[Any], records: Sequence[tuple[RecordHeader, bytes]]) -> list[Any]:
    found: list[Any] = []
    for envelope, (header, _) in zip(envelopes, records, strict=True):
        sides = ("before", "after") if header.row_count == 2 else ("after",)
        if header.row_count == 1 and _IS_GONE[header.tail[0]]:
            sides = ("before",)
        found += [envelope.get(side) if isinstance(envelope, dict) else None for side in sides]
    return found


def _records(batch: pa.RecordBatch, value_format: int, key_names: Sequence[str]) -> Iterator[JsonRecord]:
    names, columns = batch.schema.names[1:], batch.columns[1:]
    kinds: npt.NDArray[np.int8] = batch.column(0).to_numpy(zero_copy_only=False)
    images = object_texts(names, columns)
    keys = None
    if key_names:
        keys = object_texts(key_names, [batch.column(name) for name in key_names])
    if value_format == DEBEZIUM_FORMAT:
        yield from _envelopes(kinds, images, keys)
        return
    key_bytes = repeat(None) if keys is None else keys.cast(pa.binary()).to_pylist()
    codes = kinds.tobytes()
    for index, (key, image) in enumerate(zip(key_bytes, images.cast(pa.binary()).to_pylist(), strict=False)):
        code = codes[index : index + 1]
        if _IS_GONE[code[0]]:
            yield JsonRecord(1, key, None, code + image)
        else:
            yield JsonRecord(1, key, image, code)


def _envelopes(kinds: npt.NDArray[np.int8], images: pa.Array, keys: pa.Array | None) -> Iterator[JsonRecord]:
    """A -U and the +U of the same key after it share a record."""
    is_pair = np.zeros(len(kinds), np.bool_)
    is_pair[:-1] = (kinds[:-1] == RowKind.UPDATE_BEFORE) & (kinds[1:] == RowKind.UPDATE_AFTER)
    if keys is not None and len(kinds) > 1:
        is_pair[:-1] &= pc.equal(keys.slice(0, len(keys) - 1), keys.slice(1)).to_numpy(zero_copy_only=False)
    is_second = np.concatenate([[False], is_pair[:-1]])
    starts = np.flatnonzero(~is_second)
    pairs = is_pair[starts]
    gone = _IS_GONE[kinds[starts]]
    first = images.take(pa.array(starts))
    second = images.take(pa.array(starts + pairs))
    null = pa.scalar("null")
    before = pc.if_else(pa.array(gone), first, null)
    after = pc.if_else(pa.array(gone & ~pairs), null, second)
    operations = pa.array(np.where(pairs, "u", np.where(gone, "d", "c")).tolist(), pa.string())
    texts = pc.binary_join_element_wise('{"before":', before, ',"after":', after, ',"op":"', operations, '"}', "")
    key_bytes = repeat(None) if keys is None else keys.take(pa.array(starts)).cast(pa.binary()).to_pylist()
    codes = kinds.tobytes()
    for start, pair, key, value in zip(
        starts.tolist(), pairs.tolist(), key_bytes, texts.cast(pa.binary()).to_pylist(), strict=False
    ):
        count = 2 if pair else 1
        yield JsonRecord(count, key, value, codes[start : start + count])
