"""The key that a row had before a change gave it another one, on its way from the decoder to the task of the row.

It travels with the list of unavailable columns (`outcomes.UNAVAILABLE`), as one more part of that text: a stream of
Arrow of one row, whose columns are the carriers of the primary key's, in base64.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from freshet.pipeline.decode.carriers import carrier_arrow_type
from freshet.storage.model.data_type import DataField

_MARK: Final = "@"


def old_key_text(fields: Sequence[DataField], values: Mapping[str, Any]) -> str:
    """The text of a key, whose columns have these values."""
    arrays = [pa.array([values[each.name]], carrier_arrow_type(each.type)) for each in fields]
    batch = pa.RecordBatch.from_arrays(arrays, names=[each.name for each in fields])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return _MARK + base64.b64encode(sink.getvalue()).decode()


def old_key_in(parts: Sequence[str]) -> dict[str, Any] | None:
    """The values of the key by column, if one of the parts of an unavailable text is one."""
    for part in parts:
        if is_old_key(part):
            (row,) = pa.ipc.open_stream(base64.b64decode(part.removeprefix(_MARK))).read_all().to_pylist()
            return dict(row)
    return None


def is_old_key(part: str) -> bool:
    """Whether a part of an unavailable text is a key; the others are indexes of columns."""
    return part.startswith(_MARK)
