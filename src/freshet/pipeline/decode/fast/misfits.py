"""Values that their field conversion did not take, checked cell by cell: only the row of such a cell pays for it.

| found when | what is done |
|---|---|
| msgspec refuses a field of the row | the records refused for it are read again, that field kept raw (*a detour*) |
| the conversion of a column marks a cell | the cell is checked by its converter's `one` |
| `one` does not take it either | dead letter naming the column, as the careful path would have it |
| `one` takes it | the record takes the careful path |

Of several such cells in a row the first counts, as in the careful path. Deletions, for which values that are not vital
may be lost, and rows whose outcome depends on more than their values take the careful path.

Measured, ten columns: such a record costs 12 to 20 µs more than a good one, and 55 µs by the careful path.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import numpy as np

from freshet.pipeline.decode.convert.converter import LOST, Converter, Mask
from freshet.pipeline.decode.fast.structs import Slot
from freshet.pipeline.decode.images import Cause
from freshet.pipeline.decode.inputs import Inputs
from freshet.pipeline.decode.json_value import JsonNumber, parse_json

_PATH_MARK: Final = " - at `"


@dataclass(frozen=True, slots=True)
class Cells:
    """The cells of one input that its conversion did not take."""

    index: int
    values: Sequence[Any]
    lost: Mask


def causes_of(inputs: Inputs, found: Sequence[Cells], among: Mask) -> dict[int, Cause]:
    """The rows that are dead letters, with reason and column; rows not `among`, and undecided ones, are left out."""
    causes: dict[int, Cause] = {}
    undecided: set[int] = set()
    for cells in found:
        each = inputs.all[cells.index]
        for row in np.flatnonzero(cells.lost & among).tolist():
            if row in causes or row in undecided:
                continue
            if _is_lost(each.converter, cells.values[row]):
                causes[row] = (each.reason, each.column)
            else:
                undecided.add(row)
    return causes


def paths_of(slots: Sequence[Slot], prefixes: Sequence[str]) -> Mapping[str, Slot]:
    """The slots of the row by the path that msgspec names when it refuses a value of rows at these paths."""
    return {f"{prefix}.{slot[1]}`": slot for slot in slots if not slot[0] for prefix in prefixes}


def refused_path(error: Exception) -> str | None:
    """The path of the value that msgspec refused; None for errors that are not about a value."""
    if not isinstance(error, msgspec.ValidationError):
        return None
    _, _, path = str(error).rpartition(_PATH_MARK)
    return path


def _is_lost(converter: Converter, value: Any) -> bool:
    """True when no form of the type takes the value; false also where what was decoded does not decide it."""
    if isinstance(value, msgspec.Raw):
        try:
            return converter.one(parse_json(bytes(value).decode())) is LOST
        except RecursionError:
            return False
    if isinstance(value, int) and not isinstance(value, bool):
        return converter.one(JsonNumber(value)) is LOST
    return isinstance(value, str) and converter.one(value) is LOST
