"""Columns of ORC files as Paimon writes them, and what of the format's types ORC cannot hold.

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

from collections.abc import Iterable
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.files.file_fields import NumberedFields
from freshet.storage.model.arrow_types import arrow_type
from freshet.storage.model.data_type import BYTES_ROOTS, DataField, DataType, TypeRoot
from freshet.storage.model.nested_arrays import Nested

_TICKS: Final = {"s": 1, "ms": 1000, "us": 1_000_000, "ns": 1_000_000_000}
NANOS_MAX: Final = 2**63 - 1


def orc_schema(fields: Iterable[DataField]) -> pa.Schema:
    """The Arrow schema from which pyarrow makes the columns of an ORC file."""
    return _NUMBERED.schema(fields)


def _scalar_type(data_type: DataType) -> pa.DataType:
    if data_type.root is TypeRoot.TIME:
        return pa.int32()
    return pa.binary() if data_type.root in BYTES_ROOTS else arrow_type(data_type)


_NUMBERED: Final = NumberedFields(b"paimon.id", _scalar_type, keeps_not_null=False)


def check_timestamps(name: str, column: pa.ChunkedArray[Any]) -> None:
    """Refuses values that would be read as others; parts of nested values are looked at, too."""
    if has_timestamps(column.type):
        for chunk in column.chunks:
            _check(name, chunk)


def has_timestamps(data_type: pa.DataType) -> bool:
    """True when a timestamp is in it, at any depth."""
    if pt.is_nested(data_type):
        return any(has_timestamps(data_type.field(at).type) for at in range(data_type.num_fields))
    return bool(pt.is_timestamp(data_type))


def _check(name: str, array: pa.Array[Any]) -> None:
    if pt.is_nested(array.type):
        for child in Nested.of(array).children:
            if has_timestamps(child.type):
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
