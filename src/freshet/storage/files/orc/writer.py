"""ORC files written by pyarrow: each chunk is a stripe.

A stripe ends when a batch of rows has been added and `stripe_size` is reached, so a stripe size of one byte and batches
as large as a chunk let this module decide; chunks whose encoded rows still fit into the buffers of their streams share
a stripe. The level of zstd cannot be chosen.

Columns are those that Paimon writes; what of the format's types ORC cannot hold is refused.

| type | ORC | Arrow, as pyarrow reads and writes it |
|---|---|---|
| TIME | int, milliseconds | int32 |
| TIMESTAMP | timestamp | timestamp without a zone; read in nanoseconds |
| TIMESTAMP WITH LOCAL TIME ZONE | timestamp with local time zone | timestamp in UTC; read in nanoseconds |
| CHAR, VARCHAR | string; Paimon writes char(n), padded, and varchar(n) | string |
| BINARY, VARBINARY | binary | binary |
| others | of the same name | as everywhere |

All columns are nullable; each has its field id in the attribute `paimon.id`. Three kinds of timestamps are not written:

* a fraction of a millisecond or more in the last second before 1970: seconds and nanoseconds are stored apart, seconds
  cut towards zero, and there is no negative zero. Apache Paimon writes -1 ms and reads 999 ms;
* a part finer than a millisecond in any second before 1970: pyarrow writes negative nanoseconds, at which Apache Paimon
  fails to read the file. Java's writer writes them above the second, and such files are read;
* years outside 1677 to 2262: pyarrow reads nanoseconds in 64 bits.

Source: FORMAT.md §2.3.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import Executor
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.orc
import pyarrow.types as pt

from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.files.file_columns import NumberedFields
from freshet.storage.files.file_format import CHUNK_BYTES, FileSettings, FileWriter
from freshet.storage.io.env import Env
from freshet.storage.model.arrow_types import arrow_type
from freshet.storage.model.data_type import BYTES_ROOTS, DataField, DataType, TypeRoot
from freshet.storage.model.nested_arrays import Nested
from freshet.storage.schema.data_files import checked_codec

_DICTIONARY_SHARE_MAX: Final = 0.8
"""As Paimon's writer has it: a column of more distinct values than this share gets no dictionary."""
_STRIPE_ROWS_MIN: Final = 1024

_TICKS: Final = {"s": 1, "ms": 1000, "us": 1_000_000, "ns": 1_000_000_000}
NANOS_MAX: Final = 2**63 - 1


class OrcWriter(FileWriter):
    """Stripes are the chunks."""

    def __init__(
        self, env: Env, path: str, fields: Sequence[DataField], settings: FileSettings, executor: Executor | None = None
    ) -> None:
        codec = checked_codec("orc", settings.compression)
        self._codec = "uncompressed" if codec == "none" else codec
        self._writer: Any = None
        self._stripe_rows = 0
        super().__init__(env, path, _orc_schema(fields), settings.chunk_bytes or CHUNK_BYTES, executor)

    def _write_chunk(self, rows: pa.Table) -> None:
        for name, column in zip(rows.column_names, rows.columns, strict=True):
            check_timestamps(name, column)
        if self._writer is None:
            # The first chunk says how many rows make one; later ones may have somewhat more.
            self._stripe_rows = max(_STRIPE_ROWS_MIN, rows.num_rows * 5 // 4)
            self._writer = self._opened()
        whole = rows.combine_chunks()
        columns = [pa.chunked_array(map(_by_itself, column.chunks), column.type) for column in whole.columns]
        self._writer.write(pa.Table.from_arrays(columns, schema=rows.schema))

    def _finish(self) -> None:
        if self._writer is None:
            self._stripe_rows = _STRIPE_ROWS_MIN
            self._writer = self._opened()
            self._writer.write(self._schema.empty_table())
        self._writer.close()

    def _let_go(self) -> None:
        if self._writer is not None:
            self._writer.is_open = False

    def _opened(self) -> Any:
        return pyarrow.orc.ORCWriter(
            self._output,
            batch_size=self._stripe_rows,
            stripe_size=1,
            compression=self._codec,
            dictionary_key_size_threshold=_DICTIONARY_SHARE_MAX,
        )


def _by_itself(array: pa.Array[Any]) -> pa.Array[Any]:
    """The same values as an array that is no slice, with NULL under each NULL, at every depth.

    pyarrow 26 writes other values else: of a slice of structs the first ones of what it was cut from, and behind a NULL
    struct in a struct, list or map, whose fields hold some value there, that value in the place of the next.
    """
    if not pa.types.is_nested(array.type):
        return pa.concat_arrays([array])
    nested = Nested.of(array)
    return nested.over([_by_itself(child) for child in nested.children], array.type)


def _orc_schema(fields: Iterable[DataField]) -> pa.Schema:
    """The Arrow schema from which pyarrow makes the columns of an ORC file."""
    return _NUMBERED.schema(fields)


def _scalar_type(data_type: DataType) -> pa.DataType:
    if data_type.root is TypeRoot.TIME:
        return pa.int32()
    return pa.binary() if data_type.root in BYTES_ROOTS else arrow_type(data_type)


_NUMBERED: Final = NumberedFields(b"paimon.id", _scalar_type, keeps_not_null=False)


def check_timestamps(name: str, column: pa.ChunkedArray[Any]) -> None:
    """Refuses values that would be read as others; parts of nested values are looked at, too."""
    if _has_timestamps(column.type):
        for chunk in column.chunks:
            _check(name, chunk)


def _has_timestamps(data_type: pa.DataType) -> bool:
    """True when a timestamp is in it, at any depth."""
    if pt.is_nested(data_type):
        return any(_has_timestamps(data_type.field(at).type) for at in range(data_type.num_fields))
    return bool(pt.is_timestamp(data_type))


def _check(name: str, array: pa.Array[Any]) -> None:
    if pt.is_nested(array.type):
        for child in Nested.of(array).children:
            if _has_timestamps(child.type):
                _check(name, child)
        return
    if not pt.is_timestamp(array.type):
        return
    second = _TICKS[array.type.unit]
    ticks = array.cast(pa.int64())
    bounds = pc.min_max(ticks)
    low, high = bounds["min"].as_py(), bounds["max"].as_py()
    if low is None:
        return
    reach = NANOS_MAX // (_TICKS["ns"] // second)
    if low < -reach or high > reach:
        raise InvalidRequestError(
            f"column {name!r} holds a timestamp outside the years 1677 to 2262, which is not read back from an ORC "
            "file; use file.format=parquet, or clean the rows"
        )
    first_lost = second // 1000 - second
    if low >= 0 or second == 1:
        return
    if pc.any(pc.and_(pc.greater_equal(ticks, first_lost), pc.less(ticks, 0))).as_py():
        raise InvalidRequestError(
            f"column {name!r} holds a timestamp with a fraction in the last second before 1970, which ORC cannot hold; "
            "use file.format=parquet, or clean the rows"
        )
    values = ticks.fill_null(0).to_numpy(zero_copy_only=False)
    if ((values < 0) & (values % (second // 1000) != 0)).any():
        raise InvalidRequestError(
            f"column {name!r} holds a timestamp before 1970 that is finer than a millisecond, at which Apache Paimon "
            "would fail to read the ORC file; use file.format=parquet, or cut the values to milliseconds"
        )
