"""The wire format of schema registries: a zero byte, the id of the writer schema in four bytes, the datum."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from freshet.pipeline.decode.images import RowIndexes

MAGIC: Final = 0
HEAD_BYTES: Final = 5
_BYTES_MAX: Final = 2**31 - 1
"""No value is longer. Arrow multiplies the end of a slice by the number of values, which must not overflow."""


class Datum(NamedTuple):
    """What a value in the wire format holds."""

    schema_id: int
    octets: bytes


def datum_of(value: bytes) -> Datum | None:
    """The id and the datum; None for what is not in the wire format."""
    if len(value) < HEAD_BYTES or value[0] != MAGIC:
        return None
    return Datum(int.from_bytes(value[1:HEAD_BYTES], "big"), value[HEAD_BYTES:])


class DatumGroup(NamedTuple):
    """Datums of one writer schema, and the indexes of their records in the block."""

    schema_id: int
    indexes: RowIndexes
    datums: Any
    """A binary array."""


def groups_of(values: Any, indexes: RowIndexes) -> Iterator[DatumGroup]:
    """The values at these indexes, none of them NULL, by schema; those not in the wire format are in no group."""
    part = values if len(indexes) == len(values) else values.take(pa.array(indexes))
    heads = pc.binary_slice(part, 0, HEAD_BYTES).dictionary_encode()
    numbers = heads.indices.to_numpy(zero_copy_only=False)
    for number, head in enumerate(heads.dictionary.to_pylist()):
        found = datum_of(head)
        if found is None:
            continue
        is_alone = len(heads.dictionary) == 1
        rows = np.arange(len(part)) if is_alone else np.flatnonzero(numbers == number)
        chosen = part if is_alone else part.take(pa.array(rows))
        yield DatumGroup(found.schema_id, indexes[rows], pc.binary_slice(chosen, HEAD_BYTES, _BYTES_MAX))
