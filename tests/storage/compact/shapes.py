"""Runs and files in a small notation: `"0:1 2:50"` is runs as level:size, `"L0[1,5] L1[7,7]"` files by key range."""

from __future__ import annotations

import re

from freshet.storage.merge.sorted_runs import LevelRun, Levels, SortedRun, build_levels
from freshet.storage.model.data_file import EMPTY_STATS, DataFileMeta


def key(value: int) -> bytes:
    """A fake serialized key that sorts as the number does."""
    return value.to_bytes(8, "big")


def a_file(
    name: str, *, level: int = 0, size: int = 1, low: int = 0, high: int = 0, sequence: int = 0, deletes: int | None = 0
) -> DataFileMeta:
    """A file entry."""
    return DataFileMeta(
        name, size, 1, key(low), key(high), EMPTY_STATS, EMPTY_STATS, sequence, sequence, 0, level,
        creation_time_ms=0, delete_row_count=deletes,
    )  # fmt: skip


def runs(text: str) -> tuple[LevelRun, ...]:
    """Runs of one file each, newest first."""
    pairs = [item.split(":") for item in text.split()]
    return tuple(
        LevelRun(int(level), SortedRun((a_file(f"f{number}", level=int(level), size=int(size)),)))
        for number, (level, size) in enumerate(pairs)
    )


def ranges(text: str) -> list[DataFileMeta]:
    """Files whose size is the span of their keys; later level-0 files are newer."""
    found = re.findall(r"L(\d+)\[(\d+),(\d+)\](-?)", text)
    return [
        a_file(
            f"f{number}", level=int(level), size=int(high) - int(low) + 1, low=int(low), high=int(high),
            sequence=number, deletes=1 if minus else 0,
        )
        for number, (level, low, high, minus) in enumerate(found)
    ]  # fmt: skip


def levels_of(text: str, num_levels: int) -> Levels:
    """Runs as levels; sequence numbers follow the order of the text, newest first."""
    items = [item.split(":") for item in text.split()]
    files = [
        a_file(f"f{number}", level=int(level), size=int(size), sequence=len(items) - number)
        for number, (level, size) in enumerate(items)
    ]
    return build_levels(files, num_levels, key_order=lambda serialized: serialized)


def sizes(files: tuple[DataFileMeta, ...]) -> list[int]:
    """Sizes of the files."""
    return [file.file_size_bytes for file in files]
