"""The keys of a whole table at a snapshot, with their places: what an index is built from.

Rows are merged as a scan merges them, so a deleted key has no place; level 0 counts in every table. Where entries
expire (`cross-partition-upsert.index-ttl`), splits all of whose files are older are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.manifest import BucketId
from freshet.storage.model.snapshot import Snapshot
from freshet.storage.model.split import Split
from freshet.storage.place_index.key_rows import KeyShare, keys_of
from freshet.storage.scan.planner import plan_scan
from freshet.storage.scan.split_reader import SplitReader

PIECE_KEYS: Final = 384 * 1024
"""Keys that are sorted at once: about 45 MB of them as Python has them. To build 10 M keys takes 270 MB at most, of
which 115 MB are there before; with 512 K keys at once 295 MB, and as much time."""

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class PlacedKeys:
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
    """The keys of a share, in pieces. `progress` is told how many rows of the table were read, and how many it has."""
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
