"""The files of one bucket as an LSM tree, and the order of its sorted runs.

Run order, newest first: level-0 files by (max sequence number descending, min sequence number, creation time, name),
each a run of its own, then one run per level that has files, in ascending level; inside a level, files in key order.
`num_levels` is the configured one, or more if a file stands higher. A unit of compaction is always a number of
consecutive runs, from the first on unless it leaves out levels 0 and 1 (or files of one level alone), so that an older
row never overtakes a newer one.

Source: MERGING.md §0, §3.1; FORMAT.md §7.2.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from freshet.storage.merge.section import LevelRun, SortedRun
from freshet.storage.model.data_file import DataFileMeta

KeyOrder = Callable[[bytes], Any]
"""Makes a serialized key comparable with `<`."""


@dataclass(frozen=True, slots=True)
class Levels:
    """Runs of one bucket, newest first."""

    runs: tuple[LevelRun, ...]
    num_levels: int
    key_order: KeyOrder

    @property
    def max_level(self) -> int:
        """The level that holds the oldest rows."""
        return self.num_levels - 1

    @property
    def run_count(self) -> int:
        """Level-0 files plus levels that have files."""
        return len(self.runs)

    @property
    def highest_level(self) -> int:
        """Highest level that has files; -1 if there are none."""
        return self.runs[-1].level if self.runs else -1

    @property
    def files(self) -> tuple[DataFileMeta, ...]:
        """All files, in run order."""
        return tuple(file for run in self.runs for file in run.run.files)

    def changed(self, before: Iterable[DataFileMeta], after: Iterable[DataFileMeta]) -> Levels:
        """The levels after files went and files came; a file is told by (name, level)."""
        gone = {(file.file_name, file.level) for file in before}
        kept = [file for file in self.files if (file.file_name, file.level) not in gone]
        return build_levels([*kept, *after], self.num_levels, self.key_order)


def build_levels(files: Iterable[DataFileMeta], num_levels: int, key_order: KeyOrder) -> Levels:
    """Sorts files into runs."""
    by_level: dict[int, list[DataFileMeta]] = {}
    for file in files:
        by_level.setdefault(file.level, []).append(file)
    runs = [LevelRun(0, SortedRun((file,))) for file in sorted(by_level.pop(0, []), key=_newest_first)]
    for level, members in sorted(by_level.items()):
        runs.append(LevelRun(level, SortedRun(tuple(sorted(members, key=lambda file: key_order(file.min_key))))))
    highest = runs[-1].level if runs else 0
    return Levels(tuple(runs), max(num_levels, highest + 1), key_order)


def _newest_first(file: DataFileMeta) -> tuple[int, int, int, str]:
    return (-file.max_sequence_number, file.min_sequence_number, file.creation_time_ms or 0, file.file_name)
