"""The key that a row had before a change gave it another one, on its way from the decoder to the task of the row.

It travels with the list of unavailable columns (`outcomes.UNAVAILABLE`), as one more part of that text: a stream of
Arrow of one row, whose columns are the carriers of the primary key's, in base64.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import pyarrow as pa

from freshet.pipeline.decode.carriers import carrier_arrow_type
from freshet.storage.model.data_type import DataField

_MARK: Final = "@"
_FIRST: Final = "!"
"""Behind the mark of a key that no record of the batch has in front of its deletion."""


class OldKey(NamedTuple):
    """The values of the key's columns by their names, and whether its deletion is its first record in the batch."""

    values: Mapping[str, Any]
    is_first: bool


def old_key_text(fields: Sequence[DataField], values: Mapping[str, Any], *, is_first: bool = False) -> str:
    """The text of a key, whose columns have these values."""
    arrays = [pa.array([values[each.name]], carrier_arrow_type(each.type)) for each in fields]
    batch = pa.RecordBatch.from_arrays(arrays, names=[each.name for each in fields])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return _MARK + (_FIRST if is_first else "") + base64.b64encode(sink.getvalue()).decode()


def old_key_in(parts: Sequence[str]) -> OldKey | None:
    """The key, if one of the parts of an unavailable text is one."""
    for part in parts:
        if is_old_key(part):
            text = part.removeprefix(_MARK)
            (row,) = pa.ipc.open_stream(base64.b64decode(text.removeprefix(_FIRST))).read_all().to_pylist()
            return OldKey(row, text.startswith(_FIRST))
    return None


def is_old_key(part: str) -> bool:
    """Whether a part of an unavailable text is a key; the others are indexes of columns."""
    return part.startswith(_MARK)
