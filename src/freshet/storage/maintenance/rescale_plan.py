"""What a rescale has to do: from metadata alone. Source: FORMAT.md §8."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd

from freshet.storage.exceptions import CorruptDataError, InvalidRequestError, UnsupportedFeatureError
from freshet.storage.maintenance.bucket_rescale import BucketRescale, OldBucket
from freshet.storage.maintenance.compaction_plan import levels_of
from freshet.storage.merge.overlaps import overlap_error, overlapping_levels
from freshet.storage.metadata.live_files import live_entries
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.commit_message import CommitMessage
from freshet.storage.model.data_file import DataFileMeta
from freshet.storage.model.manifest import ManifestEntry
from freshet.storage.model.snapshot import Snapshot
from freshet.storage.options.choices import DYNAMIC_BUCKET, LogSystem
from freshet.storage.options.core import CoreOptions
from freshet.storage.paths import POSTPONE_BUCKET
from freshet.storage.write.bucket_state import vector_files


@dataclass(frozen=True, slots=True)
class PartitionPlan:
    """What is written of a partition, and what it takes the place of."""

    partition: bytes
    works: tuple[BucketRescale, ...]
    removed: tuple[CommitMessage, ...]

    snapshot_id: int = 0
    """The snapshot whose files they are."""

    @property
    def input_bytes(self) -> int:
        """Bytes of the files that go."""
        return sum(file.file_size_bytes for message in self.removed for file in message.deleted_files)


def check_rescalable(store: TableStore, bucket: int) -> None:
    """Raises where the table cannot be rescaled to that number."""
    now, copied = store.options.bucket, "create another table with that option and copy the rows"
    where = f"table {store.name} cannot be rescaled from bucket={now} to {bucket}"
    if isinstance(bucket, bool) or not isinstance(bucket, int) or (bucket < 1 and bucket not in (-1, -2)):
        raise InvalidRequestError(f"bucket={bucket!r}: give the number of buckets, from 1 on", option="bucket")
    if CoreOptions.log_system.of(store.schema.options) is not LogSystem.NONE:
        raise UnsupportedFeatureError(
            f"{where}: it has a log (log.system), whose topic has a partition for each "
            "bucket. Stop its writer, take the log away (freshet alter --unset log.system), rescale, and give it a log "
            "again with another kafka.topic",
            table=store.name,
            option="log.system",
        )
    if now == bucket and bucket > 0:
        return
    if now == DYNAMIC_BUCKET and store.schema.has_primary_key:
        raise InvalidRequestError(
            f"{where}: an index assigns its keys to buckets, and their number grows with the keys. For a fixed number "
            f"{copied}",
            table=store.name,
            option="bucket",
        )
    if store.options.has_postponed_buckets:
        raise InvalidRequestError(
            f"{where}: rows wait, and a compaction gives each partition its number of buckets "
            "(postpone.default-bucket-num, postpone.target-row-num-per-bucket), which stays. For another number in a "
            f"partition take the rescale of Apache Paimon on Flink; for a fixed number everywhere {copied}",
            table=store.name,
            option="bucket",
        )
    if now < 1:
        raise InvalidRequestError(
            f"{where}: its rows are in no fixed buckets; {copied}", table=store.name, option="bucket"
        )
    if bucket == POSTPONE_BUCKET:
        raise InvalidRequestError(
            f"{where}: its rows are in buckets already, and none waits for one; {copied}",
            table=store.name,
            option="bucket",
        )
    if bucket < 1:
        raise InvalidRequestError(
            f"{where}: no index knows the buckets of its keys; {copied}", table=store.name, option="bucket"
        )


def partitions_to_rescale(store: TableStore, bucket: int, snapshot: Snapshot | None) -> dict[bytes, int]:
    """Bytes of the partitions that have another number of buckets."""
    found: dict[bytes, int] = {}
    for (name, _), entries in store.live.at(snapshot).by_bucket.items():
        files = [entry.file for entry in entries.values() if entry.total_buckets != bucket]
        if files:
            found[name] = found.get(name, 0) + sum(file.file_size_bytes for file in files)
    return found


def emits_in_compactions(store: TableStore) -> bool:
    """Whether files of level 0 hold changes that readers do not know yet."""
    return store.options.needs_lookup or store.options.changelog_producer.emits.in_compactions


def _is_emitted(store: TableStore, file: DataFileMeta) -> bool:
    if store.options.changelog_producer.emits.only_at_highest_level:
        return file.level == store.options.num_levels - 1
    return file.level > 0 or not emits_in_compactions(store)


def plan_partition(
    store: TableStore, name: bytes, count: int, buckets_max: int, snapshot: Snapshot | None
) -> PartitionPlan | None:
    """The work of a partition, at most so many new buckets in a piece: nothing where it has that number already, None
    where a compaction must come first."""
    entries = live_entries(store.manifests, snapshot, partition=name.__eq__)
    if all(entry.total_buckets == count for entry in entries):
        return PartitionPlan(name, (), ())
    if not all(_is_emitted(store, entry.file) for entry in entries):
        return None
    old_count = _count_of(store, name, entries)
    files: dict[int, list[DataFileMeta]] = {}
    for entry in entries:
        files.setdefault(entry.bucket, []).append(entry.file)
    marks = vector_files(store, snapshot)
    olds = {bucket: OldBucket(bucket, tuple(each), marks.get((name, bucket), ())) for bucket, each in files.items()}
    for bucket, each in files.items() if store.schema.has_primary_key else ():
        for reason in overlapping_levels(levels_of(store, each)).values():
            raise overlap_error(store.bucket_folder(name, bucket), reason)
    modulus = gcd(old_count, count)
    works = []
    for remainder in range(modulus):
        inputs = tuple(old for bucket, old in sorted(olds.items()) if bucket % modulus == remainder)
        targets = range(remainder, count, modulus)
        for start in range(0, len(targets) if inputs else 0, buckets_max):
            works.append(BucketRescale(name, tuple(targets[start : start + buckets_max]), count, old_count, inputs))
    removed = [
        CommitMessage(name, old.bucket, old_count, deleted_files=old.files, deleted_index_files=old.index_files)
        for old in olds.values()
    ]
    return PartitionPlan(name, tuple(works), tuple(removed), 0 if snapshot is None else snapshot.id)


def _count_of(store: TableStore, name: bytes, entries: Sequence[ManifestEntry]) -> int:
    """The number of buckets that all files of the partition were written with."""
    counts = sorted({entry.total_buckets for entry in entries})
    path = store.partition_path(name)
    where = f"partition {path} of {store.location}" if path else store.location
    if len(counts) > 1:
        raise CorruptDataError(
            f"{where} has files of {' and of '.join(map(str, counts))} buckets, so that keys may be in two of them: a "
            "program committed rows that it had routed before the partition was rescaled. Overwrite the partition with "
            "its own rows, read once, by Apache Paimon; stop such programs before a rescale",
            path=store.location,
        )
    if counts[0] < 1:
        raise InvalidRequestError(
            f"{where} was written with bucket={counts[0]}, its rows are in no fixed buckets; overwrite it with its own "
            "rows by Apache Paimon",
            path=store.location,
        )
    return counts[0]
