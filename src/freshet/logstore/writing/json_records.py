"""Rows as records for consumers that know nothing of this library: `log.format` json and debezium-json.

| row | json | debezium-json |
|---|---|---|
| +I, +U | the row | `{"before":null,"after":{…},"op":"c"}` |
| -U and its +U | only the +U is logged | one record: `{"before":{…},"after":{…},"op":"u"}` |
| -D, lone -U | no value (a tombstone) | `{"before":{…},"after":null,"op":"d"}` |

A record has one row, or a pair. The key is the primary key as a JSON object, none for append tables. Readers of this
library do not read them: they follow the snapshots of a table that is published.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import repeat
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from freshet.logstore.exceptions import LogConfigError
from freshet.logstore.protocol.record import DEBEZIUM_FORMAT, JSON_FORMAT
from freshet.logstore.writing.json_text import object_texts
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
            size = len(record.key or b"") + len(record.value or b"")
            if size > size_bytes_max:
                raise LogConfigError(
                    f"a row with key {record.key!r} takes {size} bytes in the log, and a record may have "
                    f"{size_bytes_max}; raise max.message.bytes of the topic and kafka.message.max.bytes of the table",
                    option="kafka.message.max.bytes",
                )
            yield record


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
    values = pc.if_else(pa.array(_IS_GONE[kinds]), pa.scalar(None, pa.string()), images).cast(pa.binary()).to_pylist()
    for key, value in zip(key_bytes, values, strict=False):
        yield JsonRecord(1, key, value)


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
    for pair, key, value in zip(pairs.tolist(), key_bytes, texts.cast(pa.binary()).to_pylist(), strict=False):
        yield JsonRecord(2 if pair else 1, key, value)
