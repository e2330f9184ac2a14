"""Sorted runs: the files of a bucket as an LSM tree, and sections of them that are merged one after the other.

A sorted run is files that together hold each key at most once, in key order. Run order, newest first: level-0 files by
(max sequence number descending, min sequence number, creation time, name), each a run of its own, then one run per
level that has files, in ascending level, key ranges disjoint. `num_levels` is the configured one, or more if a file is
higher. A compaction unit is always a number of consecutive runs, from the first on unless it leaves out levels 0 and 1
(or files of one level alone), so that an older row never overtakes a newer one.

Sections are cut so that each is in as few runs as possible:

    files      [0,9] [5,7] [9,15]   [16,22] [16,28] [24,32]
    sections   {[0,9]} {[5,7] [9,15]}   |   {[16,22] [24,32]} {[16,28]}

The key ranges of two sections never touch, so keys of one are all smaller than keys of the next; the order of the runs
of a section carries no meaning (`older_first` gives one).

Source: FORMAT.md §7.2; MERGING.md §0, §3.1, §3.3.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from freshet._frozen import Frozen
from freshet.storage.merge.key_order import KeyComparator
from freshet.storage.model.data_file import DataFileMeta


class SortedRun(Frozen):
    """Files of one run, in key order."""

    files: tuple[DataFileMeta, ...]

    @property
    def size_bytes(self) -> int:
        """Bytes on disk."""
        return sum(file.file_size_bytes for file in self.files)


class LevelRun(Frozen):
    """A run at its level."""

    level: int
    run: SortedRun

    @property
    def size_bytes(self) -> int:
        """Bytes on disk."""
        return self.run.size_bytes


Section = list[SortedRun]

_Ranged = tuple[tuple[Any, ...], tuple[Any, ...], DataFileMeta]


def interval_partition(files: Iterable[DataFileMeta], comparator: KeyComparator) -> list[Section]:
    """Sections in key order."""
    ranged = [(comparator.sort_key(file.min_key), comparator.sort_key(file.max_key), file) for file in files]
    ranged.sort(key=lambda item: item[:2])
    sections: list[Section] = []
    current: list[_Ranged] = []
    largest: tuple[Any, ...] | None = None
    for low, high, file in ranged:
        if largest is not None and low > largest:
            sections.append(_runs(current))
            current, largest = [], None
        current.append((low, high, file))
        largest = high if largest is None or high > largest else largest
    if current:
        sections.append(_runs(current))
    return sections


def older_first(section: Sequence[SortedRun]) -> list[SortedRun]:
    """Runs by age, so that sequence numbers mostly grow from run to run and ties fall to the newer one."""
    return sorted(section, key=_age)


def _age(run: SortedRun) -> tuple[int, int, int]:
    newest = max(file.max_sequence_number for file in run.files)
    return newest, -run.files[0].level, max(file.creation_time_ms or 0 for file in run.files)


def files_of(section: Iterable[SortedRun]) -> list[DataFileMeta]:
    """All files of a section."""
    return [file for run in section for file in run.files]


def _runs(ranged: Sequence[_Ranged]) -> Section:
    """Gives each file, by smallest key, to the run that ends first, or to a new run if it ends too late."""
    runs: list[list[DataFileMeta]] = []
    ends: list[tuple[tuple[Any, ...], int]] = []
    for low, high, file in ranged:
        if ends and low > ends[0][0]:
            index = ends[0][1]
            runs[index].append(file)
            heapq.heapreplace(ends, (high, index))
        else:
            runs.append([file])
            heapq.heappush(ends, (high, len(runs) - 1))
    return [SortedRun(tuple(run)) for run in runs]


KeyOrder = Callable[[bytes], Any]
"""Makes a serialized key comparable with `<`."""


class Levels(Frozen):
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
        """The levels after files went and files came; (name, level) identifies a file."""
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
