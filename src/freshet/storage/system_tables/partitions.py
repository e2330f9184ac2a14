"""`$partitions`: the partitions that have files at a snapshot, by name; one row with an empty name without partition
keys.

What only a metastore knows of partitions (who made them, whether they are done) is NULL, and `done` false.
`deleted_record_count` are the rows that deletion vectors mark.

100,000 files in 10,000 partitions take 0.1 s of processor time, and 3 s more where their manifests have to be read
first.

`$buckets`: the buckets that have files at a snapshot, by partition and number; -2 has rows that wait for theirs.

Sums over the data files of partitions and buckets, from the entries of manifests as they are.

    rows, bytes, files   ADD entries minus DELETE entries; what has no file left is left out
    last_update_time     the newest file of any entry, also of one that was deleted since
    total_buckets        of the last entry that added a file

No entry has to be matched with another one, so nothing is kept of single files.

Source: MERGING.md §6.6; FORMAT.md §4.2, §8, §10.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from freshet._frozen import Frozen
from freshet.storage.metadata.live_files import data_manifests_at_once, entries_of
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.manifest import DELETION_VECTORS_INDEX, EntryKind
from freshet.storage.model.snapshot import Snapshot
from freshet.storage.paths import POSTPONE_BUCKET
from freshet.storage.system_tables.definition import Values, metadata_table
from freshet.storage.system_tables.value_texts import PartitionTexts

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


class _Partitions(Frozen):
    """The partitions of a snapshot with their sums, by name."""

    snapshot: Snapshot | None
    names: pa.Array[Any]
    sums: pa.Table


def _partitions(store: TableStore, snapshot: Snapshot | None) -> _Partitions:
    only_real = store.options.bucket == POSTPONE_BUCKET
    sums = file_sums(store, snapshot, ["partition"], only_real_buckets=only_real)
    names = PartitionTexts(store).as_folders(sums["partition"].to_pylist())
    order = pc.array_sort_indices(names)
    return _Partitions(snapshot, names.take(order), sums.take(order))


def _sum(name: str) -> Values:
    return lambda store, found: found.sums[name]


def _always(value: object) -> Values:
    return lambda store, found: [value] * len(found.names)


def _deleted(store: TableStore, found: _Partitions) -> list[int | None]:
    marked = _marked_rows(store, found.snapshot)
    return [marked.get(partition, 0) for partition in found.sums["partition"].to_pylist()]


def _marked_rows(store: TableStore, snapshot: Snapshot | None) -> Mapping[bytes, int | None]:
    """Rows that deletion vectors mark, by partition; None where an index file does not say how many."""
    if snapshot is None or snapshot.index_manifest is None or not store.options.deletion_vectors_enabled:
        return {}
    counts: dict[bytes, int | None] = {}
    for entry in store.manifests.read_index_manifest(snapshot.index_manifest):
        if entry.file.index_type != DELETION_VECTORS_INDEX:
            continue
        for vector in entry.file.deletion_vectors or ():
            known = counts.get(entry.partition, 0)
            counts[entry.partition] = (
                None if known is None or vector.cardinality is None else known + vector.cardinality
            )
    return counts


PARTITIONS: Final = metadata_table(
    "partitions",
    "its partitions, with rows and bytes",
    _partitions,
    (
        ("partition", "STRING", lambda store, found: found.names),
        ("record_count", "BIGINT NOT NULL", _sum("record_count")),
        ("file_size_in_bytes", "BIGINT NOT NULL", _sum("file_size_in_bytes")),
        ("file_count", "BIGINT NOT NULL", _sum("file_count")),
        ("last_update_time", "TIMESTAMP(3)", _sum("last_update_time")),
        ("created_at", "TIMESTAMP(3)", _always(None)),
        ("created_by", "STRING", _always(None)),
        ("updated_by", "STRING", _always(None)),
        ("options", "STRING", _always(None)),
        ("total_buckets", "INT NOT NULL", _sum("total_buckets")),
        ("done", "BOOLEAN NOT NULL", _always(False)),
        ("deleted_record_count", "BIGINT", _deleted),
    ),
    travels=True,
)


def _buckets(store: TableStore, snapshot: Snapshot | None) -> pa.Table:
    sums = file_sums(store, snapshot, ["partition", "bucket"], only_real_buckets=False)
    texts = PartitionTexts(store).in_braces(sums["partition"].to_pylist())
    named = sums.set_column(sums.schema.get_field_index("partition"), "partition", texts)
    return named.sort_by([("partition", "ascending"), ("bucket", "ascending")])


def _named(name: str) -> Values:
    return lambda store, found: found[name]


BUCKETS: Final = metadata_table(
    "buckets",
    "its buckets, with rows and bytes",
    _buckets,
    (
        ("partition", "STRING", _named("partition")),
        ("bucket", "INT NOT NULL", _named("bucket")),
        ("record_count", "BIGINT NOT NULL", _named("record_count")),
        ("file_size_in_bytes", "BIGINT NOT NULL", _named("file_size_in_bytes")),
        ("file_count", "BIGINT NOT NULL", _named("file_count")),
        ("last_update_time", "TIMESTAMP(3)", _named("last_update_time")),
    ),
    travels=True,
)
