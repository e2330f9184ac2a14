"""What an edit does to the files of a table without a primary key, whose rows are found by their positions.

| rows of a file that the plan chooses | deleted | updated |
|---|---|---|
| none | stays | stays |
| all | goes | goes, the rows are added with their new values |
| some, with `deletion-vectors.enabled` | stays, a deletion vector marks the rows | the same, and they are added |
| some | is written again without them | is written again, the rows in their places |

One file is read at a time, part by part; what is kept of it are the positions of the rows chosen. Where files go or
rows are marked the snapshot is an OVERWRITE, where rows are only added an APPEND. A file that another job has compacted
or edited meanwhile makes the commit fail. Rows that others append meanwhile count as later, unless the plan says
otherwise: a key that a merge adds may have come in between, and two merges of the same rows at once would add it twice;
a row that an overwrite replaces may have come, too. So each round of the commit reads some columns of files that were
added.

Source: FORMAT.md §3.6, §10.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NoReturn

import numpy as np
import pyarrow as pa

from freshet.storage.codec.roaring_bitmaps import Bitmap32
from freshet.storage.commit.commit_result import CommitResult
from freshet.storage.commit.committer import Committer
from freshet.storage.commit.round_change import Overwriting
from freshet.storage.edits.edit_commit import EditResult, LaterCommits, OutdatedPlanError
from freshet.storage.edits.edit_plan import Choice, EditPlan, RowEdit, in_parts, together
from freshet.storage.files.data_file_paths import delete_data_file, discard_messages
from freshet.storage.files.data_file_reader import ROW_POSITION_COLUMN, DataFileRead
from freshet.storage.files.data_file_writer import AppendFileWriter
from freshet.storage.io.removal import undone_on_failure
from freshet.storage.io.shown_work import advance_work
from freshet.storage.metadata.deletion_vector_store import BucketVectors
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.commit_message import CommitMessage
from freshet.storage.model.data_file import DataFileMeta, FileSource
from freshet.storage.model.manifest import BucketId, EntryKind, IndexFileMeta, ManifestEntry
from freshet.storage.model.snapshot import Snapshot
from freshet.storage.scan.planner import plan_scan
from freshet.storage.write.increment import marked_files
from freshet.storage.write.records import record_rules
from freshet.storage.write.task_writer import TaskWriter

BATCH_ROWS: Final = 65_536


class RowsByPosition:
    """The files that an edit writes, over all its attempts; `close` it whatever happens.

    `given` are the files of an overwrite, made before (`added_files`), which are committed with it in an OVERWRITE.
    """

    looks_again: Final = False

    def __init__(
        self, store: TableStore, edit: RowEdit, given: Sequence[CommitMessage] | None, *, dry_run: bool
    ) -> None:
        self._store = store
        self._given = given
        self._dry_run = dry_run
        self._edit = edit
        self._plan = EditPlan(store, edit)
        self._upon: Snapshot | None = None
        self._buckets: dict[BucketId, _BucketEdit] = {}
        self._added = 0
        self.messages: list[CommitMessage] = []
        """The files of the last attempt."""

    @property
    def counted(self) -> EditResult:
        """How many rows the last attempt changes."""
        buckets = self._buckets.values()
        return EditResult(
            rows_deleted=sum(each.rows_deleted for each in buckets),
            rows_updated=sum(each.rows_updated for each in buckets),
            rows_inserted=self._added,
        )

    def plan(self, snapshot: Snapshot | None, changed: pa.Table | None) -> bool:
        """Edits the files of a snapshot, each bucket that changes for itself; in a dry run counts rows. Returns whether
        there is anything to commit."""
        del changed
        self._plan.close()
        self._plan, self._upon = EditPlan(self._store, self._edit), snapshot
        self._buckets, self._added, self.messages = {}, 0, []
        writer = added_files(self._store, snapshot)
        with undone_on_failure(self._discard):
            with undone_on_failure(writer.abort):
                self._edit_files(snapshot, writer)
                for rows in self._plan.added():
                    self._added += rows.num_rows
                    if not self._dry_run:
                        writer.write(rows)
                self.messages += writer.prepare_commit()
            writer.close()
            for bucket in self._buckets.values():
                if bucket.is_changed:
                    self.messages.append(bucket.message())
                    bucket.new.clear()  # named by the message
        return bool(self.messages or self._given)

    def commit(self, committer: Committer, number: int) -> CommitResult:
        """Makes the commit, where files and rows are as they were planned upon."""
        check = _Arrivals(self._store, self._upon, self._plan)
        if self._given is not None:
            return committer.change(number, Overwriting([*self.messages, *self._given], check))
        return committer.commit(number, self.messages, check=check)

    def renumber(self, *_: object) -> NoReturn:
        """Has all planned again: raises."""
        raise OutdatedPlanError("others have committed rows to the same buckets, numbered as those of this edit")

    def close(self) -> None:
        """Ends the plan."""
        self._plan.close()

    def _edit_files(self, snapshot: Snapshot | None, writer: TaskWriter) -> None:
        if snapshot is None:
            return
        store, buckets = self._store, self._buckets
        marking = store.manifests.marking_files(snapshot.index_manifest)
        splits = plan_scan(store, snapshot, self._plan.filter)
        for number, split in enumerate(splits, 1):
            bucket_id = (split.partition, split.bucket)
            if bucket_id not in buckets:
                vectors = BucketVectors(store.vectors, tuple(marking.get(bucket_id, ())))
                buckets[bucket_id] = _BucketEdit(
                    store, bucket_id, split.total_buckets, vectors, self._plan, writer.write_stored, self._dry_run
                )
            for file in split.files:
                buckets[bucket_id].edit(file)
            advance_work(number, len(splits))

    def _discard(self) -> None:
        discard_messages(self._store, self.messages)
        for bucket in self._buckets.values():
            bucket.discard()


def added_files(store: TableStore, snapshot: Snapshot | None) -> TaskWriter:
    """A writer of rows that an edit adds: it compacts nothing, for the edit may delete the same files."""
    write_only = store.with_options({"write-only": "true"})
    return TaskWriter(write_only, base_snapshot=snapshot)


@dataclass(slots=True)
class _BucketEdit:
    """One bucket; `add` takes rows that the table gets somewhere, in its columns."""

    store: TableStore
    bucket_id: BucketId
    total_buckets: int
    vectors: BucketVectors
    plan: EditPlan
    add: Callable[[pa.Table], object]
    dry_run: bool
    rows_deleted: int = 0
    rows_updated: int = 0
    gone: list[DataFileMeta] = field(default_factory=list)
    new: list[DataFileMeta] = field(default_factory=list)
    marks: dict[str, Bitmap32] = field(default_factory=dict)

    @property
    def is_changed(self) -> bool:
        """Whether there is anything to commit."""
        return bool(self.gone or self.marks)

    def edit(self, file: DataFileMeta) -> None:
        """Has the plan choose rows of a file, and does with them what it says."""
        choice, count = self._chosen(file)
        is_deleted = self.plan.deletes(choice)
        deleted = int(np.count_nonzero(is_deleted))
        self.rows_deleted += deleted
        self.rows_updated += len(choice) - deleted
        if not len(choice) or self.dry_run:
            return
        is_all = len(choice) == count
        if not is_all and not self.store.options.deletion_vectors_enabled:
            self.new += self._rewritten(file, choice)
            self.gone.append(file)
            return
        if deleted < len(choice):
            self._add_updated(file, choice.of(~is_deleted))
        if is_all:
            self.gone.append(file)
        else:
            self.marks[file.file_name] = Bitmap32(array("I", choice.positions.astype(np.uint32).tobytes()))

    def message(self) -> CommitMessage:
        """What changes, with its deletion vectors written."""
        new_index, gone_index = self._index_files()
        return CommitMessage(
            *self.bucket_id,
            self.total_buckets,
            new_files=tuple(self.new),
            deleted_files=tuple(self.gone),
            new_index_files=new_index,
            deleted_index_files=gone_index,
        )

    def discard(self) -> None:
        """Removes what was written."""
        for file in self.new:
            delete_data_file(self.store, *self.bucket_id, file)

    def _chosen(self, file: DataFileMeta) -> tuple[Choice, int]:
        """The rows that the plan chooses, by their positions in the file, and how many the file has that count."""
        choices, count = [], 0
        for rows in in_parts(self._read(file, self.plan.columns)):
            count += rows.num_rows
            numbers = rows.column(ROW_POSITION_COLUMN).to_numpy()
            choice = self.plan.choose(rows)
            choices.append(choice.placed(numbers[choice.positions].astype(np.int64)))
        return together(choices), count

    def _add_updated(self, file: DataFileMeta, choice: Choice) -> None:
        for rows, part in self._with_choice(file, choice):
            if len(part):
                self.add(self._updated(rows, part))

    def _rewritten(self, file: DataFileMeta, choice: Choice) -> list[DataFileMeta]:
        writer = AppendFileWriter(self.store, *self.bucket_id, FileSource.APPEND, file.min_sequence_number)
        with undone_on_failure(writer.abort):
            for rows, part in self._with_choice(file, choice):
                writer.write(self._replaced(rows, part) if len(part) else rows)
            return writer.close()

    def _replaced(self, rows: pa.Table, choice: Choice) -> pa.Table:
        """The rows after the edit, in their order."""
        is_deleted = self.plan.deletes(choice)
        order = np.arange(rows.num_rows)
        kept = choice.of(~is_deleted)
        if len(kept):
            changed = self._updated(rows, kept)
            order[kept.positions] = rows.num_rows + np.arange(len(kept))
            rows = pa.concat_tables([rows.cast(changed.schema), changed])
        return rows.take(pa.array(np.delete(order, choice.positions[is_deleted])))

    def _updated(self, rows: pa.Table, choice: Choice) -> pa.Table:
        changed = self.plan.updated(rows.take(pa.array(choice.positions)), choice)
        record_rules(self.store).check_values(changed)
        return changed

    def _with_choice(self, file: DataFileMeta, choice: Choice) -> Iterator[tuple[pa.Table, Choice]]:
        """All columns of the file, part by part, with the choice among them by positions in the part."""
        for rows in in_parts(self._read(file, self.store.schema.column_names)):
            numbers = rows.column(ROW_POSITION_COLUMN).to_numpy()
            low, high = np.searchsorted(choice.positions, [numbers[0], numbers[-1] + 1])
            part = choice.of(slice(int(low), int(high)))
            yield rows.drop_columns(ROW_POSITION_COLUMN), part.placed(np.searchsorted(numbers, part.positions))

    def _read(self, file: DataFileMeta, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        return DataFileRead(
            self.store,
            *self.bucket_id,
            file,
            list(columns),
            deleted_rows=self.vectors.of(file.file_name),
            is_numbered=True,
            batch_rows=BATCH_ROWS,
            use_threads=True,
        ).batches()

    def _index_files(self) -> tuple[tuple[IndexFileMeta, ...], tuple[IndexFileMeta, ...]]:
        """Index files that come and go: a bucket has one, the partition of a table without buckets several, of which
        those stay that no file of the edit is in."""
        store, files = self.store, self.vectors.index_files
        gone = {file.file_name for file in self.gone}
        touched = tuple(file for file in files if marked_files(file) & (gone | self.marks.keys()))
        if not (self.marks or touched):
            return (), ()
        replaced = files if self.total_buckets > 0 else touched
        left = BucketVectors(store.vectors, replaced).marking(self.marks).without(gone)
        if not left:
            return (), replaced
        return (store.vectors.write(left, is_64_bit=store.options.deletion_vectors_bitmap64),), replaced


class _Arrivals(LaterCommits):
    """Raises `OutdatedPlanError` where others have added rows that change the outcome of a plan."""

    def __init__(self, store: TableStore, upon: Snapshot | None, plan: EditPlan) -> None:
        super().__init__(store, upon)
        self._plan = plan

    def _look_at(self, latest: Snapshot, later: Sequence[tuple[Snapshot, list[ManifestEntry]]]) -> None:
        del latest
        columns = self._plan.watched()
        if columns is None:
            return
        predicate = None if self._plan.filter is None else self._plan.filter.predicate
        for entry in [entry for _, entries in later for entry in entries if entry.kind is EntryKind.ADD]:
            for batch in DataFileRead(self._store, *entry.bucket_id, entry.file, columns, predicate).batches():
                if self._plan.is_outdated_by(pa.Table.from_batches([batch])):
                    raise OutdatedPlanError(
                        f"table {self._store.name}: others have added rows that this edit is about while it was made"
                    )
