"""A sorted run: files that together hold each key at most once, in key order.

Level 0: each file is a run of its own, newest first by (max sequence number descending, min sequence number, creation
time, name). Level 1 and above: one run per level, key ranges disjoint, in key order.

Source: FORMAT.md §7.2.
"""

from __future__ import annotations

from dataclasses import dataclass

from freshet.storage.model.data_file import DataFileMeta


@dataclass(frozen=True, slots=True)
class SortedRun:
    """Files of one run, in key order."""

    files: tuple[DataFileMeta, ...]

    @property
    def size_bytes(self) -> int:
        """Bytes on disk."""
        return sum(file.file_size_bytes for file in self.files)


@dataclass(frozen=True, slots=True)
class LevelRun:
    """A run at its level."""

    level: int
    run: SortedRun

    @property
    def size_bytes(self) -> int:
        """Bytes on disk."""
        return self.run.size_bytes
