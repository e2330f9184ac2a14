"""Finds keys in the sorted runs of one bucket: in one run, or in the lowest of several levels that has them.

A run is cut by the key ranges of its files, which the manifest has: each file is asked for the keys within its range,
and files that no key can be in are not opened.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from freshet.storage.codec.binary_row import encode_row
from freshet.storage.files.column_bounds import plain_value
from freshet.storage.lookup.file_lookup import FileLookup, FoundRows
from freshet.storage.merge.gather import take_rows
from freshet.storage.merge.key_order import KeyComparator
from freshet.storage.merge.row_levels import with_level
from freshet.storage.merge.sorted_runs import LevelRun, SortedRun
from freshet.storage.model.data_file import DataFileMeta
from freshet.storage.model.data_type import DataType

FEW_KEYS: Final = 64
"""For so many keys the range of a file is found by comparing some of them, even if it is the only file."""


@dataclass(frozen=True, slots=True)
class RunLookup:
    """Lookups in the runs of one bucket. Keys are sorted by `key_columns`, each once."""

    files: FileLookup
    key_columns: tuple[str, ...]
    key_types: tuple[DataType, ...]
    comparator: KeyComparator

    def find(self, run: SortedRun, keys: pa.Table, columns: Sequence[str] | None) -> FoundRows | None:
        """What a run has of the keys; None if nothing. Rows are in key order, retracts included."""
        positions = np.full(keys.num_rows, -1, np.int64)
        parts: list[pa.Table] = []
        count = 0
        for file, start, end in self.files_of_keys(run.files, keys):
            found = self.files.find(file, keys.slice(start, end - start), columns)
            is_found = found.is_found
            if is_found.any():
                positions[start:end][is_found] = found.positions[is_found] + count
                parts.append(found.rows)
                count += found.rows.num_rows
        return FoundRows(pa.concat_tables(parts), positions) if parts else None

    def find_lowest(self, runs: Iterable[LevelRun], keys: pa.Table, columns: Sequence[str] | None) -> FoundRows | None:
        """What the lowest level that has it holds of each key; None if no level has any.

        `runs` come lowest level first. Rows have the column `_LEVEL` behind the others; those of one level are in key
        order. With None for columns there are no rows, only positions.
        """
        positions = np.full(keys.num_rows, -1, np.int64)
        parts: list[pa.Table] = []
        count = 0
        for run in runs:
            missing = np.flatnonzero(positions < 0)
            if not len(missing):
                break
            found = self.find(run.run, take_rows(keys, missing), columns)
            if found is not None:
                is_found = found.is_found
                positions[missing[is_found]] = found.positions[is_found] + count
                parts.append(found.rows if columns is None else with_level(found.rows, run.level))
                count += found.rows.num_rows
        return FoundRows(pa.concat_tables(parts), positions) if parts else None

    def overlapping(self, files: Iterable[DataFileMeta], low: Any, high: Any) -> list[DataFileMeta]:
        """The files whose key range meets [low, high], both as `KeyComparator` makes them."""
        return files_in_range(self.comparator, files, low, high)

    def files_of_keys(self, files: Iterable[DataFileMeta], keys: pa.Table) -> list[tuple[DataFileMeta, int, int]]:
        """The files that some key may be in, each with the range [start, end) of the keys within its key range.

        A file that is the only one is asked for all keys, unless they are few: to find the range would cost more than
        to ask. Four keys in 3000 dynamic buckets, any of which may have them, took 12 s when each file was asked.
        """
        if not keys.num_rows:
            return []
        known: dict[int, Any] = {}

        def key_at(row: int) -> Any:
            if row not in known:
                values: list[Any] = [plain_value(keys.column(name)[row]) for name in self.key_columns]
                known[row] = self.comparator.sort_key(encode_row(values, self.key_types))
            return known[row]

        sort_key, rows = self.comparator.sort_key, range(keys.num_rows)
        near = self.overlapping(files, key_at(0), key_at(keys.num_rows - 1))
        if len(near) == 1 and keys.num_rows > FEW_KEYS:
            return [(near[0], 0, keys.num_rows)]
        parts = []
        for file in near:
            start = bisect_left(rows, sort_key(file.min_key), key=key_at)
            end = bisect_right(rows, sort_key(file.max_key), key=key_at)
            if start < end:
                parts.append((file, start, end))
        return parts


def files_in_range(comparator: KeyComparator, files: Iterable[DataFileMeta], low: Any, high: Any) -> list[DataFileMeta]:
    """The files whose key range meets [low, high], both as the comparator makes them."""
    sort_key = comparator.sort_key
    return [file for file in files if sort_key(file.max_key) >= low and sort_key(file.min_key) <= high]
