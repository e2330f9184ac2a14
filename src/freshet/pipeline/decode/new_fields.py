"""Fields that records have and their table does not: what the records say of their types.

Decoders count them by name. Where they are to become columns, a few of the records that have them are read by the
careful path, for their schema or, without one, for their values.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from freshet.pipeline.decode import raw_records
from freshet.pipeline.decode.avro.wire import HEAD_BYTES
from freshet.pipeline.decode.careful import UNKNOWN_NOTE
from freshet.pipeline.decode.change import RawRecord
from freshet.pipeline.decode.described_table import DescribedTable, describe_records, is_column_name
from freshet.pipeline.decode.images import RowIndexes
from freshet.pipeline.decode.plan import DecodePlan

SAMPLE: Final = 200
"""Records whose values are looked at, where types are guessed: each takes 20 µs by the careful path."""
TYPED_SAMPLE: Final = 3
"""The same of records that bring a schema."""


def new_names(notes: Mapping[str, int], before: Mapping[str, int], known: Container[str]) -> Iterator[str]:
    """Fields that nothing reads and that were counted since `before`, less those known."""
    for note, count in notes.items():
        if note.startswith(UNKNOWN_NOTE) and count > before.get(note, 0):
            name = note.removeprefix(UNKNOWN_NOTE)
            if name not in known:
                yield name


def records_with(block: Any, name: str, count: int) -> Iterator[tuple[RawRecord, str]]:
    """The first records of a block in which a name stands, and their places."""
    values = block.column(raw_records.VALUE).cast(pa.large_binary())
    has_name: Any = pc.match_substring(values, f'"{name}"').fill_null(False)
    chosen = np.flatnonzero(has_name.to_numpy(zero_copy_only=False))
    return placed_records(block, chosen[:count])


def placed_records(block: Any, indexes: RowIndexes) -> Iterator[tuple[RawRecord, str]]:
    """Some records of a block, and their places."""
    for index, record in zip(indexes.tolist(), raw_records.each_of(block, indexes), strict=True):
        yield record, raw_records.where(block, index)


def described_fields(plan: DecodePlan, block: Any, names: Iterable[str]) -> DescribedTable | None:
    """What records of the block say of these fields; None where they say nothing that a column could be made of, such
    as a field that has been NULL only."""
    whole: DescribedTable | None = None
    for name in filter(is_column_name, names):
        records = first_records_by_id(block) if plan.is_avro else records_with(block, name, SAMPLE)
        described = describe_records(plan.format, records, plan.registry)
        if described is not None and name in described.columns:
            one = DescribedTable({name: described.columns[name]}, (), described.is_typed, described.where)
            whole = one if whole is None else whole.joined(one)
    return whole


def first_records_by_id(block: Any) -> Iterator[tuple[RawRecord, str]]:
    """The first record of each writer schema, by the id in front of it."""
    heads = pc.binary_slice(block.column(raw_records.VALUE), 0, HEAD_BYTES).dictionary_encode()
    firsts = [pc.index(heads.indices, code).as_py() for code in range(len(heads.dictionary))]
    return placed_records(block, np.array(sorted(firsts), np.int64))
