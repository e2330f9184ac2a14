"""Builds the index of a share from the table, and says how far it is.

    a thread      reads the keys of the next piece, merged and sorted
    the caller    writes the piece before it into a table file, which RocksDB takes over as it is

To build 10 M keys of 8 bytes takes 3.5 s of processor time, 0.6 s of it in the thread where nothing has to be merged.
Writing holds the lock of the interpreter, so that more threads bring nothing; other processes build other shares.

An index follows where commits have put keys, instead of being built again:

| snapshot | what it changes |
|---|---|
| APPEND | its files say: a row that adds puts its key there; where no file of the commit has one, the key is gone |
| COMPACT, ANALYZE | nothing: keys stay in their buckets |
| OVERWRITE | rows of whole files went: the index is built again |

In one bucket the row that was written last counts. A row that moves a key between partitions has its -D in the bucket
that the key leaves, so of several buckets the one with a row that adds has the key.

A row that retracts removes the key where the merge engine removes its row, and nowhere else.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from freshet._frozen import Frozen
from freshet.storage.files.data_file_reader import DataFileRead
from freshet.storage.merge.read_ahead import made_ahead
from freshet.storage.metadata.live_files import deltas_at_once
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.manifest import BucketId, EntryKind, ManifestEntry
from freshet.storage.model.row_kind import RowKind
from freshet.storage.model.schema import SEQUENCE_NUMBER_COLUMN, VALUE_KIND_COLUMN
from freshet.storage.model.snapshot import CommitKind, Snapshot
from freshet.storage.model.split import Split
from freshet.storage.options.choices import MergeEngine
from freshet.storage.options.engine import engine_options
from freshet.storage.place_index.index_database import IndexDatabase, KeyShare, keys_of, place_value
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


GONE = -1


class ChangedKeys(Frozen):
    """Distinct keys, and where each is now."""

    keys: pa.Array[Any]
    places: tuple[tuple[BucketId, int], ...]
    """Where they are, and when that was written, in seconds since 1970."""
    place_of_key: Numbers
    """`GONE` for a key that was removed."""


def moves_keys(snapshot: Snapshot) -> bool:
    """False where all keys stay in their places."""
    return snapshot.commit_kind not in (CommitKind.COMPACT, CommitKind.ANALYZE)


def changed_keys(
    store: TableStore, snapshots: Sequence[Snapshot], share: KeyShare, *, row_count_max: int
) -> ChangedKeys | None:
    """What these snapshots, one after the other, have changed; None where that does not follow from their files, or
    they have more rows than `row_count_max`."""
    moving = [snapshot for snapshot in snapshots if moves_keys(snapshot)]
    if any(snapshot.commit_kind is not CommitKind.APPEND for snapshot in moving):
        return None
    deltas = deltas_at_once(store.manifests, moving)
    if any(entry.kind is not EntryKind.ADD for entries in deltas for entry in entries):
        return None
    if sum(entry.file.row_count for entries in deltas for entry in entries) > row_count_max:
        return None
    parts = _Parts(store, share)
    for snapshot, entries in zip(moving, deltas, strict=True):
        for entry in entries:
            parts.add(snapshot, entry)
    return parts.last()


class _Parts:
    """Rows of commits: of each the key, the commit, the place, the number in its bucket, and whether it adds."""

    def __init__(self, store: TableStore, share: KeyShare) -> None:
        self._store = store
        self._share = share
        self._keys: list[pa.Array[Any]] = [pa.array([], pa.large_binary())]
        self._places: dict[tuple[BucketId, int], int] = {}
        self._columns: list[Numbers] = [np.zeros((4, 0), np.int64)]
        options = store.options
        removes_by = {RowKind.DELETE}
        if options.merge_engine is MergeEngine.DEDUPLICATE:
            removes_by.add(RowKind.UPDATE_BEFORE)
        elif not engine_options(store.schema, options).remove_record_on_delete:
            removes_by = set()
        self._removes_by = sorted(removes_by)

    def add(self, snapshot: Snapshot, entry: ManifestEntry) -> None:
        place = self._places.setdefault((entry.bucket_id, snapshot.time_ms // 1000), len(self._places))
        names = self._store.schema.primary_keys
        for batch in DataFileRead(self._store, *entry.bucket_id, entry.file, names, system_columns=True).batches():
            is_own = self._share.has(batch, self._store.schema)
            rows = batch if is_own is None else batch.filter(pa.array(is_own))
            kinds = rows.column(VALUE_KIND_COLUMN).to_numpy(zero_copy_only=False)
            columns = np.empty((4, len(kinds)), np.int64)
            columns[0] = snapshot.id
            columns[1] = place
            columns[2] = rows.column(SEQUENCE_NUMBER_COLUMN).to_numpy(zero_copy_only=False)
            columns[3] = ~np.isin(kinds, self._removes_by)
            self._keys.append(keys_of(rows, self._store.schema))
            self._columns.append(columns)

    def last(self) -> ChangedKeys:
        """The place of each key after all of them."""
        encoded = pa.concat_arrays(self._keys).dictionary_encode()
        codes = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        commit, place, number, adds = np.concatenate(self._columns, axis=1)
        # The last row of each key in each place of each commit; of those of a commit a row that adds counts most.
        order = np.lexsort((number, place, commit, codes))
        is_last = np.ones(len(order), np.bool_)
        sorted_columns = [column[order] for column in (codes, commit, place)]
        is_last[:-1] = np.any([column[1:] != column[:-1] for column in sorted_columns], axis=0)
        rows = order[is_last]
        rows = rows[np.lexsort((adds[rows], commit[rows], codes[rows]))]
        place_of_key = np.full(len(encoded.dictionary), GONE, np.int64)
        place_of_key[codes[rows]] = np.where(adds[rows] == 1, place[rows], GONE)  # numpy keeps the last of a code
        return ChangedKeys(encoded.dictionary, tuple(self._places), place_of_key)
