"""Row kinds and their codes.

| code | text | meaning | add or retract |
|---|---|---|---|
| 0 | +I | insert | add |
| 1 | -U | the row before an update | retract |
| 2 | +U | the row after an update | add |
| 3 | -D | delete | retract |

The codes are part of the format (`_VALUE_KIND`, TINYINT), do not change them. Source: FORMAT.md §7.1.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final


class RowKind(IntEnum):
    """Kind of one row; the value is the code on disk."""

    INSERT = 0
    UPDATE_BEFORE = 1
    UPDATE_AFTER = 2
    DELETE = 3

    @property
    def text(self) -> str:
        """The two-character form, for example `+I`."""
        return KIND_TEXTS[self]

    @property
    def is_retract(self) -> bool:
        """True for -U and -D."""
        return self in (RowKind.UPDATE_BEFORE, RowKind.DELETE)


KIND_TEXTS: Final = ("+I", "-U", "+U", "-D")
"""Text of a kind, indexed by its code."""

ROW_KIND_COLUMN: Final = "_ROW_KIND"
"""Name of the optional column of kinds in what users write and read; values are `KIND_TEXTS` or the int8 codes."""

SNAPSHOT_ID_COLUMN: Final = "_SNAPSHOT_ID"
"""Name of the column that says which snapshot made a change."""
