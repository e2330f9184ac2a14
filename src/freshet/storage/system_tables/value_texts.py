"""Values as the texts that system tables show.

| where | a value | NULL | several |
|---|---|---|---|
| keys of files | as Java prints it: DATE and TIME as numbers, `2023-11-14T22:13:20.5` | null | `[1, a]` |
| statistics of files | the same | null | `{id=1, name=a}` |
| partitions, bounds of them | as CAST(value AS STRING) gives it: `2023-11-14` | null | `{2023-11-14, 7}` |
| partitions of `$partitions` | the same | the name of the folder | `dt=2023-11-14/hour=7` |

Java prints BINARY and VARBINARY as the address of an object, which says nothing; here they are hexadecimal digits.

Source: MERGING.md §6.6.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from freshet.storage.casts.text_casts import to_text
from freshet.storage.codec.decoded_rows import decode_rows
from freshet.storage.codec.partition_path import partition_text
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.data_type import (
    BYTES_ROOTS,
    LENGTH_MAX,
    TEXT_ROOTS,
    TIMESTAMP_ROOTS,
    DataType,
    ScalarType,
    TypeRoot,
)

_STRING: Final = ScalarType(TypeRoot.VARCHAR, length=LENGTH_MAX)


def java_texts(values: pa.Array[Any], data_type: DataType) -> pa.Array[Any]:
    """Values as Java prints them, `null` for NULL."""
    return _java_texts(values, data_type).fill_null("null")


def _java_texts(values: pa.Array[Any], data_type: DataType) -> pa.Array[Any]:
    if values.null_count == len(values):
        return pa.nulls(len(values), pa.string())
    root = data_type.root
    if root in TEXT_ROOTS:
        return values
    if root in (TypeRoot.DATE, TypeRoot.TIME):
        return values.cast(pa.int32()).cast(pa.string())
    if root in BYTES_ROOTS:
        return pa.array([None if value is None else value.hex() for value in values.to_pylist()], pa.string())
    if root in TIMESTAMP_ROOTS:
        assert isinstance(data_type, ScalarType)
        return _each(values.cast(pa.int64()), data_type)
    return to_text(values, data_type, _STRING)


def _each(values: pa.Array[Any], data_type: DataType) -> pa.Array[Any]:
    """Texts as folders of partitions have them, which of timestamps are those of Java; each value once."""
    distinct = values.dictionary_encode()
    texts = [partition_text(value, data_type) for value in distinct.dictionary.to_pylist()]
    return pa.array(texts, pa.string()).take(distinct.indices)


def joined(parts: Sequence[pa.Array[Any] | str], count: int) -> pa.Array[Any]:
    """Parts of a text side by side; those that are no array are the same in all `count` rows."""
    if not any(isinstance(part, pa.Array) for part in parts):
        return pa.array(["".join(map(str, parts))] * count, pa.string())
    return pc.binary_join_element_wise(*parts, "")


def key_texts(rows: Sequence[bytes], types: Sequence[DataType]) -> pa.Array[Any]:
    """Serialized rows of these types as `[1, a]`."""
    parts: list[pa.Array[Any] | str] = ["["]
    for index, (values, kind) in enumerate(zip(decode_rows(rows, types), types, strict=True)):
        parts += [", " if index else "", java_texts(values, kind)]
    return joined([*parts, "]"], len(rows))


class PartitionTexts:
    """Partition rows of a table as texts; each is decoded once, however many files it has."""

    def __init__(self, store: TableStore) -> None:
        self._types = store.partition_types
        self._keys = store.schema.partition_keys
        self._options = store.options
        self._env = store.env

    def in_braces(self, partitions: Sequence[bytes]) -> pa.Array[Any]:
        """The form `{2023-11-14, 7}`; `{}` without partition keys."""
        distinct, indices = _distinct(partitions)
        parts: list[pa.Array[Any] | str] = ["{"]
        for index, texts in enumerate(self._texts(distinct)):
            parts += [", " if index else "", texts.fill_null("null")]
        return joined([*parts, "}"], len(distinct)).take(indices)

    def as_folders(self, partitions: Sequence[bytes]) -> pa.Array[Any]:
        """The form `dt=2023-11-14/hour=7`; an empty text without partition keys. Nothing is escaped."""
        distinct, indices = _distinct(partitions)
        default = self._options.partition_default_name
        parts: list[pa.Array[Any] | str] = []
        for index, (key, texts) in enumerate(zip(self._keys, self._texts(distinct), strict=True)):
            named = [partition_text(text, _STRING, default) for text in texts.to_pylist()]  # blanks share the name
            parts += ["/" if index else "", f"{key}=", pa.array(named, pa.string())]
        return joined(parts, len(distinct)).take(indices)

    def _texts(self, partitions: Sequence[bytes]) -> list[pa.Array[Any]]:
        columns = decode_rows(partitions, self._types)
        return [
            to_text(self._here(values, kind), kind, _STRING) for values, kind in zip(columns, self._types, strict=True)
        ]

    def _here(self, values: pa.Array[Any], kind: DataType) -> pa.Array[Any]:
        """Moments on the wall clock of this process, as a cast to a text shows them."""
        if kind.root is not TypeRoot.TIMESTAMP_LTZ:
            return values
        return pc.local_timestamp(values.cast(pa.timestamp(values.type.unit, self._env.time_zone())))


def _distinct(rows: Sequence[bytes]) -> tuple[list[bytes], pa.Array[Any]]:
    encoded = pa.array(rows, pa.binary()).dictionary_encode()
    return encoded.dictionary.to_pylist(), encoded.indices
