"""Deletes and updates rows of a table without a primary key.

| rows of a file that the filter chooses | delete | update |
|---|---|---|
| none | stays | stays |
| all | goes | is written again |
| some, with `deletion-vectors.enabled` | stays, a deletion vector marks the rows | is written again |
| some | is written again without them | is written again |

One OVERWRITE snapshot names what goes and what comes. A file that another job has compacted meanwhile makes the commit
fail, and all is done again; rows that others append meanwhile count as later. One file is read and written at a time.

Source: FORMAT.md §3.6, §10.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa

from freshet.storage.codec.roaring_bitmaps import Bitmap32
from freshet.storage.commit.committer import discard_messages
from freshet.storage.edits.edit_commit import commit_edit
from freshet.storage.edits.edit_result import EditResult, result_of
from freshet.storage.edits.update_rows import updated
from freshet.storage.exceptions import ConflictError, MissingFileError, NotFoundError, RetryableError
from freshet.storage.files.data_file_paths import delete_data_file
from freshet.storage.files.data_file_reader import ROW_POSITION_COLUMN, read_data_file
from freshet.storage.files.data_file_writer import AppendFileWriter
from freshet.storage.filters.predicate import Predicate
from freshet.storage.io.env import CrashPoint
from freshet.storage.io.shown_work import advance_work
from freshet.storage.io.undo import undone_on_failure
from freshet.storage.metadata.deletion_vector_store import BucketVectors
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.commit_message import CommitMessage
from freshet.storage.model.data_file import DataFileMeta, FileSource
from freshet.storage.model.manifest import BucketId, IndexFileMeta
from freshet.storage.model.snapshot import Snapshot
from freshet.storage.scan.planner import plan_scan
from freshet.storage.scan.pruning import ScanFilter
from freshet.storage.write.append_index import marked_files

_ROW: Final = "\0row"
"""No name of a column."""
ATTEMPTS_MAX: Final = 10
"""How often all is done again because another job has rewritten one of the files."""


def delete_appended(store: TableStore, predicate: Predicate, *, dry_run: bool = False) -> EditResult:
    """Deletes the rows for which the filter is true."""
    return _Edit(store, predicate, None, dry_run).run()


def update_appended(
    store: TableStore, values: Mapping[str, Any], predicate: Predicate, *, dry_run: bool = False
) -> EditResult:
    """Gives columns new values in the rows for which the filter is true."""
    return _Edit(store, predicate, values, dry_run).run()


@dataclass(slots=True)
class _Bucket:
    """What changes in one bucket."""

    total_buckets: int
    vectors: BucketVectors
    gone: list[DataFileMeta] = field(default_factory=list)
    new: list[DataFileMeta] = field(default_factory=list)
    marks: dict[str, Bitmap32] = field(default_factory=dict)


class _Edit:
    """One delete, or one update where there are values."""

    def __init__(
        self, store: TableStore, predicate: Predicate, values: Mapping[str, Any] | None, dry_run: bool
    ) -> None:
        self._store = store
        bound = ScanFilter.bind(store.schema, predicate)
        assert bound is not None, "there is a filter"
        self._filter = bound
        self._values = values
        self._dry_run = dry_run
        self._row_count = 0

    def run(self) -> EditResult:
        """Plans, writes and commits until it fits."""
        store = self._store
        for _ in range(ATTEMPTS_MAX):
            self._row_count = 0
            latest = store.snapshots.latest()
            try:
                messages = self._messages(latest)
            except (NotFoundError, MissingFileError):
                store.check_is_there()
                newer = store.snapshots.latest()
                if newer is None or latest is None or newer.id <= latest.id:
                    raise
                continue  # files were compacted and have expired
            deleted = self._row_count if self._values is None else None
            updated_count = None if self._values is None else self._row_count
            if self._dry_run or not messages:
                return EditResult(rows_deleted=deleted, rows_updated=updated_count, is_dry_run=self._dry_run)
            store.env.reach(CrashPoint.EDIT_WRITTEN)
            try:
                committed = commit_edit(
                    store,
                    lambda committer, number, made=messages: committer.commit(number, made),  # type: ignore[misc]
                    lambda made=messages: discard_messages(store, made),  # type: ignore[misc]
                )
            except ConflictError:
                continue
            return result_of(store, committed, rows_deleted=deleted, rows_updated=updated_count)
        raise RetryableError(
            f"table {store.name}: another edit or compaction has rewritten files of this one each of the "
            f"{ATTEMPTS_MAX} times that it was made; nothing was committed. Stop the others for so long",
            table=store.name,
        )

    def _messages(self, snapshot: Snapshot | None) -> list[CommitMessage]:
        """A message for each bucket that changes."""
        if snapshot is None:
            return []
        store, buckets = self._store, dict[BucketId, _Bucket]()
        marking = store.manifests.marking_files(snapshot.index_manifest)
        with undone_on_failure(lambda: _discard_new(store, buckets)):
            splits = plan_scan(store, snapshot, self._filter)
            for number, split in enumerate(splits, 1):
                bucket_id = (split.partition, split.bucket)
                if bucket_id not in buckets:
                    vectors = BucketVectors(store.vectors, tuple(marking.get(bucket_id, ())))
                    buckets[bucket_id] = _Bucket(split.total_buckets, vectors)
                for file in split.files:
                    self._edit_file(bucket_id, buckets[bucket_id], file)
                advance_work(number, len(splits))
            return [self._message(*each) for each in buckets.items() if each[1].gone or each[1].marks]

    def _edit_file(self, bucket_id: BucketId, bucket: _Bucket, file: DataFileMeta) -> None:
        positions, count = self._chosen(bucket_id, bucket, file)
        self._row_count += len(positions)
        if not len(positions) or self._dry_run:
            return
        if self._values is None and len(positions) == count:
            bucket.gone.append(file)
        elif self._values is None and self._store.options.deletion_vectors_enabled:
            bucket.marks[file.file_name] = Bitmap32(positions.tolist())
        else:
            bucket.new += self._rewritten(bucket_id, bucket, file)
            bucket.gone.append(file)

    def _chosen(
        self, bucket_id: BucketId, bucket: _Bucket, file: DataFileMeta
    ) -> tuple[np.ndarray[Any, np.dtype[np.int64]], int]:
        """Positions of the rows that the filter chooses, and how many rows the file has that count."""
        found, count = [np.empty(0, np.int64)], 0
        columns = sorted(self._filter.predicate.columns())
        for rows in self._read(bucket_id, bucket, file, columns, is_numbered=True):
            count += rows.num_rows
            kept = rows.filter(self._filter.predicate.to_arrow())
            found.append(kept.column(ROW_POSITION_COLUMN).to_numpy().astype(np.int64))
        return np.concatenate(found), count

    def _rewritten(self, bucket_id: BucketId, bucket: _Bucket, file: DataFileMeta) -> list[DataFileMeta]:
        writer = AppendFileWriter(self._store, *bucket_id, FileSource.APPEND, file.min_sequence_number)
        with undone_on_failure(writer.abort):
            for rows in self._read(bucket_id, bucket, file, list(self._store.schema.column_names)):
                writer.write(self._replaced(rows))
            return writer.close()

    def _replaced(self, rows: pa.Table) -> pa.Table:
        """The rows of a file after the edit, in their order."""
        numbered = rows.append_column(_ROW, pa.array(np.arange(rows.num_rows)))
        positions = numbered.filter(self._filter.predicate.to_arrow()).column(_ROW).combine_chunks()
        if self._values is None:
            is_chosen = np.zeros(rows.num_rows, np.bool_)
            is_chosen[positions.to_numpy()] = True
            return rows.filter(pa.array(~is_chosen))
        changed = updated(self._store, rows.take(positions), self._values)
        target = np.arange(rows.num_rows)
        target[positions.to_numpy()] = rows.num_rows + np.arange(len(positions))
        return pa.concat_tables([rows.cast(changed.schema), changed]).take(pa.array(target))

    def _read(
        self,
        bucket_id: BucketId,
        bucket: _Bucket,
        file: DataFileMeta,
        columns: Sequence[str],
        *,
        is_numbered: bool = False,
    ) -> Iterator[pa.Table]:
        deleted = bucket.vectors.of(file.file_name)
        for batch in read_data_file(
            self._store, *bucket_id, file, columns, deleted_rows=deleted, is_numbered=is_numbered
        ):
            yield pa.Table.from_batches([batch])

    def _message(self, bucket_id: BucketId, bucket: _Bucket) -> CommitMessage:
        """What changes in a bucket, with its deletion vectors written."""
        new_index, gone_index = self._index_files(bucket)
        return CommitMessage(
            *bucket_id,
            bucket.total_buckets,
            new_files=tuple(bucket.new),
            deleted_files=tuple(bucket.gone),
            new_index_files=new_index,
            deleted_index_files=gone_index,
        )

    def _index_files(self, bucket: _Bucket) -> tuple[tuple[IndexFileMeta, ...], tuple[IndexFileMeta, ...]]:
        """Index files that come and go: a bucket has one, the partition of a table without buckets several, of which
        those stay that no file of the edit is in."""
        store, files = self._store, bucket.vectors.index_files
        gone = {file.file_name for file in bucket.gone}
        touched = tuple(file for file in files if marked_files(file) & (gone | bucket.marks.keys()))
        if not (bucket.marks or touched):
            return (), ()
        replaced = files if bucket.total_buckets > 0 else touched
        left = BucketVectors(store.vectors, replaced).marking(bucket.marks).without(gone)
        if not left:
            return (), replaced
        return (store.vectors.write(left, is_64_bit=store.options.deletion_vectors_bitmap64),), replaced


def _discard_new(store: TableStore, buckets: Mapping[BucketId, _Bucket]) -> None:
    for bucket_id, bucket in buckets.items():
        for file in bucket.new:
            delete_data_file(store, *bucket_id, file)
