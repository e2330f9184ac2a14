"""INT96 timestamps that 64-bit nanoseconds cannot carry are found, not cut."""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from freshet.storage.exceptions import UnsupportedFeatureError

_ARROW_CREATED_BY: Final = "parquet-cpp-arrow"
_WRAP_MICROS: Final = 2**64 // 1000
"""Microseconds after which 64-bit nanoseconds wrap around."""


def check_instants(
    name: str, nanos: pa.ChunkedArray[Any], micros: pa.ChunkedArray[Any], created_by: str, path: str
) -> None:
    """Refuses a column of INT96 values that 64-bit nanoseconds cannot carry; `micros` is the same column, cut.

    Only top-level columns are looked at. A column stored as 64-bit integers reads the same both ways and is fine.
    """
    if not pa.types.is_timestamp(nanos.type) or micros.type == nanos.type:
        return
    if not _same_instants(nanos, micros, has_negative_nanos=not created_by.startswith(_ARROW_CREATED_BY)):
        raise UnsupportedFeatureError(
            f"column {name!r} of {path} holds nanosecond timestamps outside 1677..2262, which Arrow cannot carry; read "
            "without that column"
        )


def _same_instants(nanos: pa.ChunkedArray[Any], micros: pa.ChunkedArray[Any], *, has_negative_nanos: bool) -> bool:
    """False when nanoseconds have wrapped around.

    Before 1970 the two may round to neighbouring microseconds. Paimon's writer gives an INT96 before 1970 a negative
    nanosecond of the day, which Arrow takes as unsigned when it reads microseconds: one wrap too much there. (Its years
    2262 to 2554 look the same and are read 584 years too early; nothing in the file distinguishes the two.)
    """
    cut = nanos.cast(pa.timestamp("us"), safe=False).cast(pa.int64())
    apart = pc.subtract(micros.cast(pa.timestamp("us")).cast(pa.int64()), cut)
    fits = pc.less_equal(pc.abs(apart), 1)
    if has_negative_nanos:
        one_wrap = pc.less_equal(pc.abs(pc.subtract(apart, _WRAP_MICROS)), 1)
        fits = pc.or_(fits, pc.and_(one_wrap, pc.less(nanos.cast(pa.int64()), 0)))
    return pc.all(fits, min_count=0).as_py() is not False
