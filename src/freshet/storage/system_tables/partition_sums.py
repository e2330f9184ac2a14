"""Sums over the data files of partitions and buckets, from the entries of manifests as they are.

    rows, bytes, files   ADD entries minus DELETE entries; what has no file left is left out
    last_update_time     the newest file of any entry, also of one that was deleted since
    total_buckets        of the last entry that added a file

No entry has to be matched with another one, so nothing is kept of single files.

Source: MERGING.md §6.6; FORMAT.md §4.2.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from freshet.storage.metadata.live_files import data_manifests_at_once, entries_of
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.manifest import EntryKind
from freshet.storage.model.snapshot import Snapshot

_SUMMED = ("record_count", "file_size_in_bytes", "file_count")


def file_sums(
    store: TableStore, snapshot: Snapshot | None, keys: Sequence[str], *, only_real_buckets: bool
) -> pa.Table:
    """One row for each `partition` (its serialized row), or `partition` and `bucket`, with the sums named above."""
    entries = []
    if snapshot is not None:
        manifests = data_manifests_at_once(store.manifests, snapshot)
        with store.manifests.ahead(manifests):
            entries = entries_of(store.manifests, manifests)
    if only_real_buckets:
        entries = [entry for entry in entries if entry.bucket >= 0]
    is_added = np.fromiter((entry.kind is EntryKind.ADD for entry in entries), np.bool_, len(entries))
    sign = np.where(is_added, 1, -1)
    rows = np.fromiter((entry.file.row_count for entry in entries), np.int64, len(entries))
    sizes = np.fromiter((entry.file.file_size_bytes for entry in entries), np.int64, len(entries))
    buckets = pa.array([entry.total_buckets for entry in entries], pa.int32())
    table = pa.table(
        {
            "partition": pa.array([entry.partition for entry in entries], pa.binary()),
            "bucket": pa.array([entry.bucket for entry in entries], pa.int32()),
            "record_count": rows * sign,
            "file_size_in_bytes": sizes * sign,
            "file_count": sign.astype(np.int64),
            "last_update_time": pa.array([entry.file.creation_time_ms for entry in entries], pa.int64()),
            "total_buckets": pc.if_else(pa.array(is_added), buckets, pa.scalar(None, pa.int32())),
        }
    )
    sums = table.group_by(list(keys), use_threads=False).aggregate(
        [*((name, "sum") for name in _SUMMED), ("last_update_time", "max"), ("total_buckets", "last")]
    )
    named = {f"{name}_sum": name for name in _SUMMED} | {
        "last_update_time_max": "last_update_time",
        "total_buckets_last": "total_buckets",
    }
    sums = sums.rename_columns([named.get(name, name) for name in sums.column_names])
    return sums.filter(pc.field("file_count") > 0).combine_chunks()
