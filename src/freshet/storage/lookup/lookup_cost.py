"""Which way a lookup in one file goes, by what it costs.

| a store is there | the file | reading now, and what reading the file has cost so far, together | the way |
|---|---|---|---|
| yes | any | any | the store |
| no | smaller than `ROWS_MIN` | any | read |
| no | larger | below what building the store costs | read |
| no | larger, a store is built in `AT_ONCE_S` | at or above that | build the store, and use it |
| no | larger still | above half of that | read; the store is built in the background |

A store is of mapped columns, or, where the disk has no room for them, of RocksDB (`is_packed`), with the costs of that.

So a store is built when reading again and again has cost as much as having built it at once would have: whatever is
asked later, no more than twice the time of the best choice is spent. A file that few ask for never gets one.

No batch waits for the store of a large file: of 100 M rows in 16 buckets, on a machine without stores, a batch of
10,000 keys took 19.9 s when it built them, and 8.8 s when it read.

Costs are estimates in seconds of one core, from what manifests say of files, by these measurements (1 M rows of 137
bytes, 30 MB of Parquet; 10 000 keys at random): read and match 0.52 s, build 0.89 s, ask the store 0.006 s. Of RocksDB,
in another run of 42 MB: read and match 0.27 s, build 1.22 s where mapped columns took 0.31 s, ask the store 0.05 s.
"""

from __future__ import annotations

from dataclasses import replace
from enum import Enum
from typing import Final

from freshet._frozen import Frozen
from freshet.storage.files.file_format import CHUNK_BYTES

ROWS_MIN: Final = 1024
"""Smaller files are read. Those of the levels that small micro-batches fill are larger, and asked by each batch: one of
1000 rows took 126 ms of processor time when they were read, and about 100 ms with stores."""

MEMORY_PER_FILE_BYTE: Final = 4
"""Rows in memory, and in a store, take about this much more than in their compressed file."""

PACKED_PER_FILE_BYTE: Final = 2
"""The same of a store in RocksDB, which is compressed row by row."""
PACKED_FRAME_BYTES: Final = 32 * 1024
"""What its database takes besides rows."""

AT_ONCE_S: Final = 0.5
"""A batch waits for a store that costs no more, which is one of about half a million rows."""

_LATER_SHARE: Final = 0.5
"""What is made in the background begins earlier: the first lookup of many keys reads the whole file."""

_OPEN_S: Final = 0.003
_BUILD_S: Final = 0.010
_ROW_S: Final = 0.1e-6
_FILE_BYTE_S: Final = 15e-9
_BUILD_PER_READ: Final = 1.7
_PACKED_BUILD_S: Final = 0.05
_PACKED_BUILD_PER_READ: Final = 5.0


class LookupWay(Enum):
    """How one file is asked."""

    STORE = "store"
    READ = "read"
    BUILD = "build"
    READ_AND_BUILD_LATER = "read-and-build-later"


class FileCosts(Frozen):
    """What lookups in one file cost."""

    row_count: int
    size_bytes: int
    is_packed: bool = False
    """Whether its store is one of RocksDB."""

    def read_s(self, key_count: int) -> float:
        """Reading the chunks that so many keys at random are in."""
        chunk_rows = max(1, CHUNK_BYTES * self.row_count // max(1, MEMORY_PER_FILE_BYTE * self.size_bytes))
        return _OPEN_S + min(self.row_count, key_count * chunk_rows) * self._row_s

    def of_kind(self, *, is_packed: bool) -> FileCosts:
        """The same with a store of this kind."""
        return replace(self, is_packed=is_packed)

    @property
    def build_s(self) -> float:
        """Making a store: all columns of all rows are read once and written."""
        if self.is_packed:
            return _PACKED_BUILD_S + _PACKED_BUILD_PER_READ * self.row_count * self._row_s
        return _BUILD_S + _BUILD_PER_READ * self.row_count * self._row_s

    @property
    def store_bytes(self) -> int:
        """Size of the store."""
        if self.is_packed:
            return PACKED_PER_FILE_BYTE * self.size_bytes + PACKED_FRAME_BYTES
        return MEMORY_PER_FILE_BYTE * self.size_bytes

    @property
    def _row_s(self) -> float:
        return _ROW_S + _FILE_BYTE_S * self.size_bytes / max(1, self.row_count)


def choose(costs: FileCosts, key_count: int, *, has_store: bool, read_so_far_s: float) -> LookupWay:
    """The way for so many keys within the key range of the file; see the table above."""
    if has_store:
        return LookupWay.STORE
    spent_s = read_so_far_s + costs.read_s(key_count)
    if costs.row_count < ROWS_MIN:
        return LookupWay.READ
    if costs.build_s > AT_ONCE_S:
        return LookupWay.READ if spent_s < _LATER_SHARE * costs.build_s else LookupWay.READ_AND_BUILD_LATER
    return LookupWay.READ if spent_s < costs.build_s else LookupWay.BUILD
