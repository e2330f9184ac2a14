"""What an edit changes in one bucket of a table without a primary key, file by file.

| rows of a file that the plan chooses | deleted | updated |
|---|---|---|
| none | stays | stays |
| all | goes | goes, the rows are added with their new values |
| some, with `deletion-vectors.enabled` | stays, a deletion vector marks the rows | the same, and they are added |
| some | is written again without them | is written again, the rows in their places |

One file is read at a time, part by part; what is kept of it are the positions of the rows chosen.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pyarrow as pa

from freshet.storage.codec.roaring_bitmaps import Bitmap32
from freshet.storage.edits.file_plan import Choice, FilePlan, together
from freshet.storage.edits.row_parts import in_parts
from freshet.storage.files.data_file_paths import delete_data_file
from freshet.storage.files.data_file_reader import ROW_POSITION_COLUMN, read_data_file
from freshet.storage.files.data_file_writer import AppendFileWriter
from freshet.storage.io.undo import undone_on_failure
from freshet.storage.metadata.deletion_vector_store import BucketVectors
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.commit_message import CommitMessage
from freshet.storage.model.data_file import DataFileMeta, FileSource
from freshet.storage.model.manifest import BucketId, IndexFileMeta
from freshet.storage.write.append_index import marked_files
from freshet.storage.write.writer_factory import record_rules

BATCH_ROWS: Final = 65_536


@dataclass(slots=True)
class BucketEdit:
    """One bucket; `add` takes rows that the table gets somewhere, in its columns."""

    store: TableStore
    bucket_id: BucketId
    total_buckets: int
    vectors: BucketVectors
    plan: FilePlan
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
        is_deleted = self.plan.deletes(choice.clauses)
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
        is_deleted = self.plan.deletes(choice.clauses)
        order = np.arange(rows.num_rows)
        kept = choice.of(~is_deleted)
        if len(kept):
            changed = self._updated(rows, kept)
            order[kept.positions] = rows.num_rows + np.arange(len(kept))
            rows = pa.concat_tables([rows.cast(changed.schema), changed])
        return rows.take(pa.array(np.delete(order, choice.positions[is_deleted])))

    def _updated(self, rows: pa.Table, choice: Choice) -> pa.Table:
        changed = self.plan.updated(rows.take(pa.array(choice.positions)), choice)
        record_rules(self.store).check_lengths(changed)
        return changed

    def _with_choice(self, file: DataFileMeta, choice: Choice) -> Iterator[tuple[pa.Table, Choice]]:
        """All columns of the file, part by part, with the choice among them by positions in the part."""
        for rows in in_parts(self._read(file, self.store.schema.column_names)):
            numbers = rows.column(ROW_POSITION_COLUMN).to_numpy()
            low, high = np.searchsorted(choice.positions, [numbers[0], numbers[-1] + 1])
            part = choice.of(slice(int(low), int(high)))
            yield rows.drop_columns(ROW_POSITION_COLUMN), part.placed(np.searchsorted(numbers, part.positions))

    def _read(self, file: DataFileMeta, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        return read_data_file(
            self.store,
            *self.bucket_id,
            file,
            list(columns),
            deleted_rows=self.vectors.of(file.file_name),
            is_numbered=True,
            batch_rows=BATCH_ROWS,
            use_threads=True,
        )

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
