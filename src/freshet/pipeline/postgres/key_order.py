"""The chunks that keys belong to, for keys whose order is known here; that of the others only the server knows.

| order of | is that of |
|---|---|
| whole numbers, numeric(p, s), date, timestamps | their values |
| uuid, bytea, boolean, time; texts whose collation is C | the bytes of their texts |
| other texts (a collation of a language), enums, numeric without a precision, … | `ChunkReader.places` |
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from freshet.pipeline.decode.convert.converter import Mask
from freshet.pipeline.postgres.copied_chunks import Bound, Places
from freshet.pipeline.postgres.copied_table import CopiedColumn
from freshet.pipeline.postgres.source_types import Form, SourceType
from freshet.pipeline.postgres.value_texts import text_converter
from freshet.storage.model.data_type import TEXT_ROOTS
from freshet.storage.model.sql_type import parse_sql_type

_BY_VALUE: Final = frozenset({Form.WHOLE, Form.DECIMAL, Form.DATE, Form.STAMP, Form.ZONED})
_BY_TEXT: Final = frozenset({Form.BOOLEAN, Form.BYTES, Form.TIME})
_COLLATED: Final = frozenset({"text", "varchar", "char", "name", "uuid"})
_BLANK_PADDED: Final = "char"


def places_of_keys(
    bounds: Sequence[Bound], keys: Sequence[pa.Array], columns: Sequence[CopiedColumn], types: Sequence[SourceType]
) -> Places | None:
    """How many of the bounds, which rise, are below each key; None where the order of a column, or of one of these
    values (infinity), is not known here. `keys` are the string arrays of the columns of the key."""
    count = len(keys[0])
    if not bounds or not count:
        return np.zeros(count, np.int64)
    sortable = []
    for index, (texts, column, source) in enumerate(zip(keys, columns, types, strict=True)):
        limits = pa.array([bound[index] for bound in bounds], pa.string())
        pair = _sortable(limits, column, source), _sortable(texts, column, source)
        if pair[0] is None or pair[1] is None:
            return None
        sortable.append(pair)
    low, high = np.zeros(count, np.int64), np.full(count, len(bounds), np.int64)
    for _ in range(len(bounds).bit_length()):
        middle = (low + high) // 2
        is_below = _are_below([(limits, values) for limits, values in sortable], np.minimum(middle, len(bounds) - 1))
        is_open = low < high
        low = np.where(is_open & is_below, middle + 1, low)
        high = np.where(is_open & ~is_below, middle, high)
    return low


def _are_below(columns: Sequence[tuple[pa.Array, pa.Array]], middle: Places) -> Mask:
    """Whether the bound at each place is below the key in the same row."""
    below, equal = np.zeros(len(middle), bool), np.ones(len(middle), bool)
    for limits, values in columns:
        bound = limits.take(pa.array(middle))
        below |= equal & pc.less(bound, values).to_numpy(zero_copy_only=False)
        equal &= pc.equal(bound, values).to_numpy(zero_copy_only=False)
    return below


def _sortable(texts: pa.Array, column: CopiedColumn, source: SourceType) -> pa.Array | None:
    """An array with the order of the source; None where it is not known."""
    form = source.of.form
    if source.is_array:
        return None
    if form in _BY_VALUE:
        data_type = parse_sql_type(source.sql_type)
        if data_type.root in TEXT_ROOTS:
            return None
        values, bad = text_converter(source, data_type).of_texts(texts)
        return values if bad is None else None
    if form in _BY_TEXT or (source.of.name in _COLLATED and column.is_byte_order and column.type_oid == source.of.oid):
        return pc.utf8_rtrim(texts, " ") if source.of.name == _BLANK_PADDED else texts
    return None
