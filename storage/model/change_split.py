"""A split of changes: what one reader of a changelog reads at a time, complete in itself.

| part | rows come out as |
|---|---|
| `removed` | the rows of a state that is gone, merged, each of kind -D |
| `added` | the rows of a state that is there now, merged, each of kind +I |
| both, `is_compared` | their difference: rows equal in both do not come out, others as +I, as -U before +U, or as -D |
| `files` | changes as they are stored, file by file: with their kinds in a keyed table, as +I in an append table |

Changelog files and the files that a commit added are `files`. A stream that begins with the rows of a snapshot gets
them as `added`; an overwrite is what it `removed` and what it `added`; of two snapshots, the keys of the split are the
same on both sides. Parts come in the order of the table.
"""

from __future__ import annotations

from dataclasses import dataclass

from freshet.storage.model.data_file import DataFileMeta
from freshet.storage.model.split import Split

SNAPSHOT_ID_COLUMN = "_SNAPSHOT_ID"
"""Name of the column that says which snapshot made a change."""


@dataclass(frozen=True, slots=True)
class ChangeSplit:
    """Changes that one snapshot made in one bucket. A value: it may be pickled and read by another process."""

    snapshot_id: int
    partition: bytes
    bucket: int
    files: tuple[DataFileMeta, ...] = ()
    removed: Split | None = None
    added: Split | None = None
    is_compared: bool = False

    @property
    def row_count_max(self) -> int:
        """Rows stored; fewer may come out of states that are merged, and of a filter."""
        states = sum(state.row_count_max for state in (self.removed, self.added) if state is not None)
        return states + sum(file.row_count for file in self.files)
