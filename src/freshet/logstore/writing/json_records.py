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

from binascii import b2a_base64
from collections.abc import Callable, Iterator, Sequence
from itertools import repeat
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from freshet.logstore.exceptions import LogConfigError
from freshet.logstore.protocol.record import DEBEZIUM_FORMAT, JSON_FORMAT
from freshet.storage.model.arrow_types import decimal_texts
from freshet.storage.model.nested_arrays import Nested
from freshet.storage.model.row_kind import RowKind

FORMATS: Final = {"json": JSON_FORMAT, "debezium-json": DEBEZIUM_FORMAT}
"""By the value of `log.format`."""

SLICE_ROWS: Final = 16_384
"""Rows whose texts are made at once."""

SLICE_BYTES: Final = 8 * 1024 * 1024
"""And bytes of them, by the average: their texts are many times that."""

_IS_GONE: Final = np.array([False, True, False, True])
"""By kind: the row is the one before the change."""
_CONTROL: Final = {number: f"\\u{number:04x}" for number in range(0x20)}
_NULL: Final = "null"


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


def object_texts(names: Sequence[str], columns: Sequence[pa.Array]) -> pa.Array:
    """One JSON object per row, made column by column as the `json` format of Flink writes them. Raises
    `LogConfigError`, naming the column, for a value that JSON cannot hold.

    | type | JSON |
    |---|---|
    | BOOLEAN, integers | as they are |
    | FLOAT, DOUBLE | shortest number that is read back as the same; `"NaN"`, `"Infinity"`, `"-Infinity"` |
    | DECIMAL | number, every digit, no exponent |
    | CHAR, VARCHAR | text |
    | BINARY, VARBINARY | text, base64 |
    | DATE | `"2024-02-29"` |
    | TIME | `"12:34:56.789"` |
    | TIMESTAMP | `"2024-02-29 12:34:56.789"`, digits of the fraction as needed, up to nine |
    | TIMESTAMP WITH LOCAL TIME ZONE | the same in UTC with `Z` at the end |
    | ARRAY, ROW | list, object |
    | MAP | object; keys that are not texts as the text of their JSON; none may be there twice |
    | NULL | `null` |

    Source: Flink, formats/json and formats/debezium-json (timestamp format SQL).
    """
    parts: list[Any] = []
    for index, (name, column) in enumerate(zip(names, columns, strict=True)):
        parts.append(("," if index else "{") + quoted(name) + ":")
        parts.append(_value_texts(column, name))
    parts += ["}" if columns else "{}"]
    return pc.binary_join_element_wise(*parts, "")


def quoted(text: str) -> str:
    """A text as JSON."""
    return str(_string(pa.array([text]))[0])


def is_text(kind: pa.DataType) -> bool:
    """True for types whose values are texts in JSON."""
    return bool(pt.is_string(kind) or pt.is_binary(kind) or pt.is_temporal(kind))


def _value_texts(column: pa.Array, name: str) -> pa.Array:
    texts = _texts(column, name)
    return pc.fill_null(texts, _NULL) if texts.null_count else texts


def _texts(column: pa.Array, name: str) -> pa.Array:
    """Null where the column is null."""
    kind = column.type
    for is_of, to_texts in _SCALARS:
        if is_of(kind):
            return to_texts(column)
    if pt.is_date(kind) or pt.is_timestamp(kind):
        return _calendar(column, name)
    if pt.is_map(kind) or pt.is_list(kind) or pt.is_struct(kind):
        return _nested(Nested.of(column), name)
    raise LogConfigError(f"column {name}: values of type {kind} cannot be logged as JSON", option="log.format")


def _nested(whole: Nested, name: str) -> pa.Array:
    kind = whole.array.type
    if pt.is_struct(kind):
        texts = object_texts([field.name for field in kind], whole.children)
        return pc.if_else(whole.array.is_null(), pa.scalar(None, pa.string()), texts)
    if pt.is_map(kind):
        keys, items = _keys(whole.children[0], name), _value_texts(whole.children[1], name)
        _refuse_keys_twice(whole.lists(keys), name)
        return _joined(whole.lists(pc.binary_join_element_wise(keys, items, ":")), "{", "}")
    return _joined(whole.lists(_value_texts(whole.children[0], name)), "[", "]")


def _refuse_keys_twice(texts: pa.Array, name: str) -> None:
    """Refuses a key that is twice in an object: readers keep one."""
    pairs = pa.table({"index": pc.list_parent_indices(texts), "key": pc.list_flatten(texts)})
    if pairs.group_by(["index", "key"]).aggregate([]).num_rows < pairs.num_rows:
        raise LogConfigError(
            f"column {name}: a map has a key twice, which JSON logs cannot hold; set "
            "log.consistency=eventual and log.format=arrow",
            option="log.format",
        )


def _keys(keys: pa.Array, name: str) -> pa.Array:
    """Keys of objects are texts, whatever type they have."""
    texts = _texts(keys, name)
    if is_text(keys.type):
        return texts
    return _string(pc.replace_substring(texts, '"', "") if pt.is_floating(keys.type) else texts)


def _joined(elements: pa.Array, opening: str, closing: str) -> pa.Array:
    """The elements of each list, between brackets."""
    return pc.binary_join_element_wise(opening, pc.binary_join(elements, ","), closing, "")


def _plain(column: pa.Array) -> pa.Array:
    return column.cast(pa.string())


def _floats(column: pa.Array) -> pa.Array:
    """Whole numbers keep a point, as -0.0 would lose its sign otherwise."""
    texts = column.cast(pa.string())
    texts = pc.if_else(pc.match_substring_regex(texts, r"^-?\d+$"), pc.binary_join_element_wise(texts, ".0", ""), texts)
    if pc.all(pc.is_finite(column)).as_py() is not False:
        return texts
    for shown, said in (("nan", '"NaN"'), ("-nan", '"NaN"'), ("inf", '"Infinity"'), ("-inf", '"-Infinity"')):
        texts = pc.if_else(pc.equal(texts, shown), said, texts)
    return texts


def _string(column: pa.Array) -> pa.Array:
    texts = pc.replace_substring(column, "\\", "\\\\")
    texts = pc.replace_substring(texts, '"', '\\"')
    if pc.any(pc.match_substring_regex(texts, r"[\x00-\x1f]")).as_py():
        for number, escape in _CONTROL.items():
            texts = pc.replace_substring(texts, chr(number), escape)
    return _between(texts)


def _between(texts: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise('"', texts, '"', "")


def _base64(column: pa.Array) -> pa.Array:
    """One value after the other: all of them at once, by numpy, took 2.5 times as long."""
    texts = [None if value is None else b2a_base64(value, newline=False).decode() for value in column.to_pylist()]
    return _between(pa.array(texts, pa.string()))


def _calendar(column: pa.Array, name: str) -> pa.Array:
    texts = column.cast(pa.string())
    if pc.all(pc.match_substring_regex(texts, r"^\d{4}-")).as_py() is False:
        raise LogConfigError(
            f"column {name}: a date or time lies outside the years 0 to 9999, which JSON logs cannot hold; set "
            "log.consistency=eventual and log.format=arrow",
            option="log.format",
        )
    if pt.is_timestamp(column.type) and column.type.unit != "s":
        texts = pc.replace_substring_regex(texts, r"\.?0+(Z?)$", r"\1")
    return _between(texts)


def _time(column: pa.Array) -> pa.Array:
    return _between(pc.replace_substring_regex(column.cast(pa.string()), r"\.?0+$", ""))


_SCALARS: Final[tuple[tuple[Callable[[pa.DataType], bool], Callable[[pa.Array], pa.Array]], ...]] = (
    (pt.is_boolean, _plain),
    (pt.is_integer, _plain),
    (pt.is_decimal, decimal_texts),
    (pt.is_floating, _floats),
    (pt.is_string, _string),
    (pt.is_binary, _base64),
    (pt.is_time, _time),
)
