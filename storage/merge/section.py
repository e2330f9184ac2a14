"""Sorted runs, and sections: files that can be merged one section after the other, each in as few runs as possible.

    files      [0,9] [5,7] [9,15]   [16,22] [16,28] [24,32]
    sections   {[0,9]} {[5,7] [9,15]}   |   {[16,22] [24,32]} {[16,28]}

A sorted run is files that together hold each key at most once, in key order. Level 0: each file is a run of its own,
newest first by (max sequence number descending, min sequence number, creation time, name). Level 1 and above: one run
per level, key ranges disjoint. The key ranges of two sections never touch, so keys of one are all smaller than keys of
the next; the order of the runs of a section carries no meaning (`older_first` gives one).

Source: FORMAT.md §7.2; MERGING.md §3.3.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from freshet.storage.merge.key_order import KeyComparator
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
    return sorted(section, key=lambda run: (max(file.max_sequence_number for file in run.files), -run.files[0].level))


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
