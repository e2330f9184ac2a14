"""Builds the index of a share from the table, and says how far it is.

    a thread      reads the keys of the next piece, merged and sorted
    the caller    writes the piece before it into a table file, which RocksDB takes over as it is

To build 10 M keys of 8 bytes takes 3.5 s of processor time, 0.6 s of it in the thread where nothing has to be merged.
Writing holds the lock of the interpreter, so that more threads bring nothing; other processes build other shares.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from freshet._frozen import Frozen
from freshet.storage.merge.read_ahead import made_ahead
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.manifest import BucketId
from freshet.storage.model.snapshot import Snapshot
from freshet.storage.model.split import Split
from freshet.storage.place_index.index_database import IndexDatabase
from freshet.storage.place_index.key_rows import KeyShare, keys_of, place_value
from freshet.storage.scan.planner import plan_scan
from freshet.storage.scan.split_reader import SplitReader

PIECE_KEYS: Final = 384 * 1024
"""Keys that are sorted at once: about 45 MB of them as Python has them. To build 10 M keys takes 270 MB at most, of
which 115 MB are there before; with 512 K keys at once 295 MB, and as much time."""

Numbers = npt.NDArray[np.int64]


FIRST_REPORT_S: Final = 5.0
REPORT_EVERY_S: Final = 10.0

_LOG: Final = logging.getLogger(__name__)


class PlacedKeys(Frozen):
    """Keys in ascending order, none twice."""

    keys: pa.Array[Any]
    places: tuple[tuple[BucketId, int], ...]
    """Where they are, and when that was written, in seconds since 1970."""
    place_of_key: Numbers


def table_keys(
    store: TableStore,
    snapshot: Snapshot | None,
    share: KeyShare,
    *,
    since_s: int = 0,
    progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> Iterator[PlacedKeys]:
    """The keys of a share of a whole table at a snapshot, with their places, in pieces. `progress` is told how many
    rows of the table were read, and how many it has.

    Rows are merged as a scan merges them, so a deleted key has no place; level 0 counts in every table. Where entries
    expire (`cross-partition-upsert.index-ttl`), splits all of whose files are older are left out.
    """
    reader = SplitReader(store, store.schema.primary_keys)
    gathered = _Gathered()
    splits = [
        split
        for split in plan_scan(store, snapshot, keeps_level=lambda _: True)
        if not since_s or written_s(split) >= since_s
    ]
    ended, total = 0, sum(split.row_count_max for split in splits)
    with reader.ahead(splits):
        for split in splits:
            place, read = ((split.partition, split.bucket), written_s(split)), 0
            for batch in reader.read(split):
                is_own = share.has(batch, store.schema)
                rows = batch if is_own is None else batch.filter(pa.array(is_own))
                gathered.add(keys_of(rows, store.schema), place)
                read += batch.num_rows
                progress(ended + read, total)
                if gathered.count >= PIECE_KEYS:
                    yield gathered.take()
            ended += split.row_count_max
            progress(ended, total)
    if gathered.count:
        yield gathered.take()


def written_s(split: Split) -> int:
    """When the newest file of the split was made."""
    return max(file.creation_time_ms or 0 for file in split.files) // 1000


class _Gathered:
    def __init__(self) -> None:
        self.count = 0
        self._keys: list[pa.Array[Any]] = []
        self._places: dict[tuple[BucketId, int], int] = {}
        self._place_of_key: list[Numbers] = []

    def add(self, keys: pa.Array[Any], place: tuple[BucketId, int]) -> None:
        if not len(keys):
            return
        self.count += len(keys)
        self._keys.append(keys)
        self._place_of_key.append(np.full(len(keys), self._places.setdefault(place, len(self._places))))

    def take(self) -> PlacedKeys:
        """What was added, sorted; of a key that came twice one stays."""
        keys, place_of_key = pa.concat_arrays(self._keys), np.concatenate(self._place_of_key)
        places = tuple(self._places)
        self.__init__()  # type: ignore[misc]
        if len(keys) > 1 and not pc.all(pc.less(keys[:-1], keys[1:])).as_py():
            order = pc.sort_indices(keys).to_numpy()
            keys = keys.take(pa.array(order))
            is_last = np.ones(len(keys), np.bool_)
            is_last[:-1] = pc.not_equal(keys[:-1], keys[1:]).to_numpy(zero_copy_only=False)
            keys, place_of_key = keys.filter(pa.array(is_last)), place_of_key[order][is_last]
        return PlacedKeys(keys, places, place_of_key)


class BuildProgress(Frozen):
    """How far the index of a share is."""

    rows_done: int
    """Rows of the table that were read, those of other shares among them."""
    rows_total: int
    """The rows of the table as its files say: those that merging leaves out count."""


BuildCallback = Callable[[BuildProgress], None]
"""Called in another thread, each few thousand rows."""


def build_index(
    database: IndexDatabase,
    store: TableStore,
    snapshot: Snapshot | None,
    share: KeyShare,
    *,
    since_s: int,
    progress: BuildCallback,
) -> dict[BucketId, int]:
    """Puts the keys of the share into an empty index, and gives how many are in each bucket; settles nothing."""
    counts: dict[BucketId, int] = {}

    def note(rows_done: int, rows_total: int) -> None:
        progress(BuildProgress(rows_done, rows_total))

    with _ahead(table_keys(store, snapshot, share, since_s=since_s, progress=note)) as pieces:
        for piece in pieces:
            values = np.array([place_value(*place) for place in piece.places], dtype=object)
            database.load(piece.keys.to_numpy(zero_copy_only=False).tolist(), values[piece.place_of_key].tolist())
            for place, count in enumerate(np.bincount(piece.place_of_key, minlength=len(values)).tolist()):
                bucket_id = piece.places[place][0]
                counts[bucket_id] = counts.get(bucket_id, 0) + count
    return counts


@contextmanager
def _ahead(pieces: Iterator[PlacedKeys]) -> Iterator[Iterator[PlacedKeys]]:
    """One piece ahead; when the block ends nothing is read any more."""
    with ThreadPoolExecutor(1, "freshet-index") as executor:
        yield made_ahead(pieces, executor)


class LoggedBuild:
    """Says in the log how far an index is whose building takes long: a `BuildCallback`."""

    def __init__(self, table: str, share: KeyShare) -> None:
        self._name = table if share.count == 1 else f"{table}, share {share.number + 1} of {share.count}"
        self._started_s = time.monotonic()
        self._next_s = self._started_s + FIRST_REPORT_S
        self._level = logging.INFO

    def __call__(self, progress: BuildProgress) -> None:
        """From time to time a line."""
        now_s = time.monotonic()
        if now_s < self._next_s:
            return
        self._next_s, self._level = now_s + REPORT_EVERY_S, logging.WARNING
        done, total = progress.rows_done, progress.rows_total
        _LOG.warning(
            "%s: the index of its keys is built: %d of %d rows were read (%d %%)",
            self._name,
            done,
            total,
            100 * done // max(1, total),
        )

    def ended(self, key_count: int) -> None:
        """The last line, for those who have seen others."""
        taken_s = time.monotonic() - self._started_s
        if key_count:
            _LOG.log(self._level, "%s: built the index of %d keys in %.1f s", self._name, key_count, taken_s)
