"""Rows on their way from records to outcomes: the inputs of each image of each record, as Arrow arrays.

An update of another key, or one whose row before it is retracted, has two images: sub 0 the old one, sub 1 the new.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from freshet._frozen import Frozen
from freshet._frozen import field as struct_field
from freshet.pipeline.decode.convert.converter import Mask
from freshet.pipeline.decode.source_table import SourceTable

RowIndexes = npt.NDArray[np.int64]

Subs = npt.NDArray[np.int32]
"""The number of each image in its record."""

Cause = tuple[str, str | None]
"""Reason and column of a dead letter."""


class Note(Frozen):
    """A text to be counted, and the records (indexes in the block) that it is about."""

    text: str
    records: Sequence[int] | RowIndexes


class Images(Frozen):
    """Some images of one block; all arrays are of one length.

    `records` are indexes in the block, `inputs` the arrays of `Inputs.all`, `missing` says of payload fields (by index)
    in which rows their value is unavailable, `absent` of those whose column has a default where the record lacks them.
    """

    records: RowIndexes
    kinds: npt.NDArray[np.int8]
    subs: Subs
    inputs: Sequence[pa.Array]
    ops: pa.Array | None
    ts_ms: pa.Array | None
    sources: pa.Array | None
    missing: Mapping[int, Mask]
    old_keys: Mapping[int, str] = struct_field(default_factory=dict)
    """Texts of the keys that rows had before (`outcomes.OldKey`), by their places here."""
    notes: Sequence[Note] = ()
    absent: Mapping[int, Mask] = struct_field(default_factory=dict)


@dataclass(slots=True)
class Findings:
    """The records of one block that gave no rows, and the tables that its records name."""

    skipped: Counter[str] = field(default_factory=Counter)
    dead: dict[int, Cause] = field(default_factory=dict)
    """By index in the block."""
    tables: dict[SourceTable, int] = field(default_factory=dict)
    """For each table that records name, the index of the first record."""
    truncates: list[int] = field(default_factory=list)
    """Indexes of the records that truncate a table, where that is applied."""
