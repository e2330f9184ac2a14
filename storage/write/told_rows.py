"""Rows that are to be logged, kept from when they are written until their files are final.

They live with the files that repeat them: those of the rows written with the new files, those of a compaction with its
round; a round that is dropped takes its rows along. Beyond `TOLD_BYTES_MAX` they are not kept: they are read from those
files then, which costs time and no memory.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Final

import pyarrow as pa

from freshet.storage.options.core import ChangelogProducer, CoreOptions

TOLD_BYTES_MAX: Final = 64 * 1024 * 1024
"""Of one bucket, in each of the two halves of a commit."""


class Logged(Enum):
    """Which rows of a bucket are logged."""

    NOTHING = "nothing"
    ROWS = "rows"
    """Those of new files."""
    CHANGELOG = "changelog"
    """Those of changelog files."""


@dataclass(slots=True)
class ToldRows:
    """Rows in the order of their files; `is_complete` is False once there were too many to keep."""

    tables: list[pa.Table | pa.RecordBatch] = field(default_factory=list)
    size_bytes: int = 0
    is_complete: bool = True

    def add(self, rows: pa.Table | pa.RecordBatch) -> None:
        """Keeps some more, or none any more."""
        if not rows.num_rows:
            return
        self.size_bytes += rows.nbytes
        self.is_complete = self.is_complete and self.size_bytes <= TOLD_BYTES_MAX
        if self.is_complete:
            self.tables.append(rows)
        else:
            self.tables.clear()

    def join(self, other: ToldRows) -> None:
        """Rows that follow these."""
        self.size_bytes += other.size_bytes
        self.is_complete = self.is_complete and other.is_complete and self.size_bytes <= TOLD_BYTES_MAX
        self.tables = [*self.tables, *other.tables] if self.is_complete else []


def logged_rows(options: CoreOptions) -> Logged:
    """What is logged of a table; `schema.log_validation` has the table."""
    if not options.logs_changes:
        return Logged.NOTHING
    if options.has_primary_key and options.changelog_producer in (ChangelogProducer.LOOKUP, ChangelogProducer.INPUT):
        return Logged.CHANGELOG
    return Logged.ROWS
