"""One data file, as manifests describe it.

`min_key` and `max_key` are serialized binary rows of the trimmed primary key, never truncated; empty rows for append
tables. `delete_row_count` counts rows of kind -U and -D exactly; None is "unknown" (files of old versions) and means
that the file must be merged, never read raw. `creation_time_ms` is the writer's local wall clock stored as if it were
UTC.

Source: FORMAT.md §4.2, §6, §7.1.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum

from freshet._frozen import Frozen
from freshet.storage.model.commit_facts import KindCounts


class FileSource(IntEnum):
    """Who wrote the file; the code is part of the format."""

    APPEND = 0
    COMPACT = 1


class SimpleStats(Frozen):
    """Minimum, maximum and null count per column; the rows are serialized binary rows, a null item is unknown."""

    min_values: bytes
    max_values: bytes
    null_counts: tuple[int | None, ...]


EMPTY_ROW = bytes(12)
"""Serialized binary row of arity 0."""

EMPTY_STATS = SimpleStats(EMPTY_ROW, EMPTY_ROW, ())


FileId = tuple[str, int]
"""(name, level): of one bucket, a file that was moved to another level is another one."""


@dataclass(frozen=True, slots=True)
class DataFileMeta:
    """A data or changelog file of one bucket. Field order is the order in manifests."""

    file_name: str
    file_size_bytes: int
    row_count: int
    min_key: bytes
    max_key: bytes
    key_stats: SimpleStats
    value_stats: SimpleStats
    min_sequence_number: int
    max_sequence_number: int
    schema_id: int
    level: int
    extra_files: tuple[str, ...] = ()
    creation_time_ms: int | None = None
    delete_row_count: int | None = None
    embedded_index: bytes | None = None
    file_source: FileSource | None = None
    value_stats_cols: tuple[str, ...] | None = None
    external_path: str | None = None
    first_row_id: int | None = None
    write_cols: tuple[str, ...] | None = None
    kind_counts: KindCounts | None = field(default=None, compare=False)
    """Rows by kind, of a file that was just written: manifests do not have it."""

    @property
    def file_id(self) -> FileId:
        """What distinguishes files of one bucket."""
        return self.file_name, self.level

    @property
    def is_delete_free(self) -> bool:
        """True when it is known that no row retracts."""
        return self.delete_row_count == 0
