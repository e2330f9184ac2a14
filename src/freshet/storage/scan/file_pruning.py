"""Which files of some buckets must be read for a filter: what metadata says of them first, files only of what is left.

| phase | asks | costs |
|---|---|---|
| 1, pure | statistics, and indexes in manifest entries, of all files of all buckets | no request |
| 2 | the index files next to those that are left, requested ahead together | a request each, many at a time |

Phase 2 asks the questions of phase 1 again: whether files of a bucket may be left out each by itself depends on which
of them are left.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from freshet.storage.codec.stats import ColumnStats
from freshet.storage.files.file_evidence import FileEvidence
from freshet.storage.filters.predicate import Predicate
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.data_file import DataFileMeta
from freshet.storage.model.manifest import BucketId
from freshet.storage.options.choices import MergeEngine
from freshet.storage.scan.pruning import FileStatistics, IndexTest, ScanFilter, bucket_files, partition_stats


@dataclass(frozen=True, slots=True)
class FilesOfBucket:
    """Files of one bucket. `keys_are_unique`: no key is in two of them, although their ranges may overlap."""

    bucket_id: BucketId
    files: Sequence[DataFileMeta]
    keys_are_unique: bool = False


class FilePruning:
    """The files to read for one filter of a table."""

    def __init__(self, store: TableStore, scan_filter: ScanFilter | None) -> None:
        self._store = store
        self._filter = scan_filter
        self._statistics = FileStatistics(store.schemas, store.schema)
        self._evidence = FileEvidence(store)
        self._makes_rows = store.options.merge_engine in (MergeEngine.PARTIAL_UPDATE, MergeEngine.AGGREGATE)

    def kept(self, buckets: Sequence[FilesOfBucket]) -> list[list[DataFileMeta]]:
        """Of each bucket the files in which a row can match, in their order."""
        if self._filter is None:
            return [list(bucket.files) for bucket in buckets]
        kept = [self._tested(bucket, bucket.files, self._evidence.may_match_by_manifest) for bucket in buckets]
        if self._filter.is_on_partitions_only:  # indexes say nothing of partition columns
            return kept
        left = [
            (bucket.bucket_id, file)
            for bucket, files in zip(buckets, kept, strict=True)
            for file in files
            if self._evidence.has_files_beside(file)
        ]
        if not left:
            return kept
        with self._evidence.ahead(left):
            return [self._tested_beside(bucket, files) for bucket, files in zip(buckets, kept, strict=True)]

    def _tested_beside(self, bucket: FilesOfBucket, files: list[DataFileMeta]) -> list[DataFileMeta]:
        if not any(map(self._evidence.has_files_beside, files)):
            return files

        def may_match(file: DataFileMeta, predicate: Predicate, stats: Mapping[str, ColumnStats]) -> bool:
            return self._evidence.may_match(bucket.bucket_id, file, predicate, stats)

        return self._tested(bucket, files, may_match)

    def _tested(self, bucket: FilesOfBucket, files: Sequence[DataFileMeta], by_index: IndexTest) -> list[DataFileMeta]:
        schema, (partition, _) = self._store.schema, bucket.bucket_id
        return bucket_files(
            files,
            self._filter,
            self._statistics,
            partition_stats(partition, schema.partition_keys, self._store.partition_types, row_count=1),
            keys_are_unique=bucket.keys_are_unique,
            makes_rows=self._makes_rows,
            by_index=by_index,
        )
