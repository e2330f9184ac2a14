"""Where commits have put keys: what an index follows, instead of being built again.

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

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from freshet._frozen import Frozen
from freshet.storage.files.data_file_reader import DataFileRead
from freshet.storage.metadata.live_files import deltas_at_once
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.manifest import BucketId, EntryKind, ManifestEntry
from freshet.storage.model.row_kind import RowKind
from freshet.storage.model.schema import SEQUENCE_NUMBER_COLUMN, VALUE_KIND_COLUMN
from freshet.storage.model.snapshot import CommitKind, Snapshot
from freshet.storage.options.choices import MergeEngine
from freshet.storage.options.engine import engine_options
from freshet.storage.place_index.key_rows import KeyShare, keys_of

Numbers = npt.NDArray[np.int64]
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
