"""Overwrites: rows in the place of all that some partitions hold, or of those for which a filter is true.

| call without a filter | partitions that are replaced, in one OVERWRITE |
|---|---|
| no partition, `dynamic` | those that occur in the rows; of a table without partitions everything |
| no partition, not `dynamic` | all |
| a partition | those that have its values; the rows must be of them |
| no rows | as above: without `dynamic` the table or the partition is emptied |

What replaces partitions is written as into an empty table: numbers, levels and indexes begin anew. Rows that others
commit to these partitions while it runs are replaced too. No changelog is written, as Paimon does; streams follow as
`streaming-read-overwrite` says.

By a filter, which each new row must satisfy, in one commit:

| table | filter | what is committed |
|---|---|---|
| any whose rows stay in their partition | on partition keys alone | an OVERWRITE of these partitions |
| without a primary key | any | an OVERWRITE: rows that go by position, as a delete's, and the new files |
| with a primary key | any | -D of rows that go, +U and +I of the new ones, as a delete and an upsert |

The third is no OVERWRITE: rows of a keyed table lie among others of their bucket, and to write a bucket again would
cost as much as the bucket has, would fail whenever a stream commits to it, and would tell no changelog. So the merge
engine has to take it (`row_rules`). A row of the table that the filter does not choose is never replaced: a new row
under its key is refused.

Source: FORMAT.md §3.6.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from freshet._frozen import Frozen
from freshet.storage.commit.changes import append_change
from freshet.storage.commit.round_change import IsReplaced, live_in
from freshet.storage.edits.clauses import Action, Clause, Side
from freshet.storage.edits.edit_commit import EDIT_USER, EditResult, commit_edit, preview_of, result_of
from freshet.storage.edits.edit_plan import RowEdit, passing
from freshet.storage.edits.row_edits import edit_rows, replacing
from freshet.storage.edits.rows_by_position import added_files
from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.files.data_file_paths import delete_data_file, discard_messages
from freshet.storage.files.data_file_reader import partition_constants
from freshet.storage.filters.predicate import Predicate
from freshet.storage.io.removal import undone_on_failure
from freshet.storage.maintenance.partition_choice import PartitionChoice, partition_name, partition_test
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.arrow_types import arrow_schema
from freshet.storage.model.commit_message import CommitMessage
from freshet.storage.scan.pruning import ScanFilter
from freshet.storage.write.bucket_state import BucketStates
from freshet.storage.write.records import record_rules
from freshet.storage.write.task_writer import TaskWriter
from freshet.storage.write.unmerged_bucket_writer import Staging


class ReplacedPartitions(Frozen):
    """Which partitions an overwrite replaces: those that `is_chosen` says, or those that occur in its rows."""

    store: TableStore
    is_chosen: IsReplaced
    by_rows: bool

    @classmethod
    def of(cls, store: TableStore, partition: PartitionChoice | None, dynamic: bool | None) -> ReplacedPartitions:
        """By the arguments of an overwrite; raises `InvalidRequestError` where they make no sense for the table."""
        is_dynamic = store.options.dynamic_partition_overwrite if dynamic is None else dynamic
        is_chosen = partition_test(store, partition)
        if partition is not None and dynamic:
            raise InvalidRequestError(
                "partition= names what is replaced, dynamic=True replaces what occurs in the rows; give one of them",
                table=store.name,
            )
        is_whole = not store.schema.partition_keys or (partition is None and not is_dynamic)
        if store.moves_rows and not is_whole:
            raise InvalidRequestError(
                f"table {store.name}: its rows move between partitions, so a key of the new rows may be in a partition "
                "that stays; overwrite the whole table (dynamic=False), or upsert the rows and delete the others",
                table=store.name,
            )
        return cls(store, is_chosen, by_rows=partition is None and not is_whole)

    def by(self, messages: Sequence[CommitMessage]) -> IsReplaced:
        """The test for rows that are written; removes their files and raises `InvalidRequestError` where some lie
        outside of what is replaced."""
        store, written = self.store, {message.partition for message in messages}
        outside = sorted(each for each in written if not self.is_chosen(each))
        if outside:
            discard_messages(store, messages)
            raise InvalidRequestError(
                f"table {store.name}: the rows have some of partition {partition_name(store, outside[0])}, which is "
                "not replaced; leave them out, or choose the partition that they are of",
                table=store.name,
            )
        return written.__contains__ if self.by_rows else self.is_chosen


def overwrite(
    store: TableStore,
    data: object,
    *,
    partition: PartitionChoice | None = None,
    dynamic: bool | None = None,
    dry_run: bool = False,
) -> EditResult:
    """Replaces rows; `dynamic` None is what `dynamic-partition-overwrite` says. No snapshot where nothing changes.

    Raises `InvalidRequestError` for rows that do not fit the table or lie outside of the partition.
    """
    partitions = ReplacedPartitions.of(store, partition, dynamic)
    messages = written_upon_nothing(store, record_rules(store).input_tables(data))
    return replaced(store, partitions.by(messages), messages, dry_run=dry_run)


def replaced(
    store: TableStore,
    is_replaced: IsReplaced,
    messages: Sequence[CommitMessage] = (),
    *,
    dry_run: bool = False,
) -> EditResult:
    """Commits the replacement of some partitions; in a dry run nothing, and the files of the messages go."""
    if dry_run:
        discard_messages(store, messages)
        gone, _ = live_in(store, store.snapshots.latest(), is_replaced)
        return preview_of([*gone, *append_change(messages).entries])
    committed = commit_edit(
        store,
        lambda committer, number: committer.replace(number, is_replaced, messages, force_empty=False),
        lambda: discard_messages(store, messages),
    )
    return result_of(store, committed)


def written_upon_nothing(store: TableStore, data: Iterable[pa.Table]) -> list[CommitMessage]:
    """Files of the rows, as of a table that holds nothing."""
    staging = Staging(EDIT_USER) if store.options.makes_commits_wait else None
    writer = TaskWriter(store, base_snapshot=None, states=BucketStates(), staging=staging)
    with undone_on_failure(writer.abort):
        for rows in data:
            writer.write(rows)
        messages = [as_one_change(store, message) for message in writer.prepare_commit()]
    writer.close()
    return messages


def as_one_change(store: TableStore, message: CommitMessage) -> CommitMessage:
    """The message with the outcome of its compactions in the place of what they compacted, without changelog files,
    which no overwrite commits.

    So one snapshot has all of it: where level 0 is hidden, a crash before a second one would leave nothing to see.
    """
    before = {(file.file_name, file.level) for file in message.compact_before}
    made = [*message.new_files, *message.compact_after]
    kept = tuple(file for file in made if (file.file_name, file.level) not in before)
    names = {file.file_name for file in kept}
    for file in (*message.new_files, *message.changelog_files, *message.compact_changelog_files):
        if file.file_name not in names:
            delete_data_file(store, message.partition, message.bucket, file)
    return replace(
        message,
        new_files=kept,
        changelog_files=(),
        compact_changelog_files=(),
        new_index_files=(*message.new_index_files, *message.compact_new_index_files),
        compact_before=(),
        compact_after=(),
        compact_new_index_files=(),
        compact_deleted_index_files=(),
    )


def overwrite_filtered(store: TableStore, data: object, predicate: Predicate, *, dry_run: bool = False) -> EditResult:
    """Replaces the rows for which the filter is true.

    Raises `InvalidRequestError` for the first row for which it is not, before anything is committed.
    """
    bound = ScanFilter(store.schema, predicate.bind(arrow_schema(store.schema)))
    rows = _fitting_rows(store, data, bound, predicate)
    if bound.is_on_partitions_only and store.schema.partition_keys and not store.moves_rows:
        return replaced(store, _PartitionTest(store, bound), written_upon_nothing(store, rows), dry_run=dry_run)
    if not store.schema.has_primary_key:
        return _by_position(store, rows, bound, dry_run)
    given = pa.concat_tables([arrow_schema(store.schema).empty_table(), *rows])
    return edit_rows(store, replacing(store, given, bound), dry_run=dry_run)


def _fitting_rows(store: TableStore, data: object, bound: ScanFilter, predicate: Predicate) -> Iterator[pa.Table]:
    """The rows in the columns and types of the table, once the filter is true for each of a part."""
    rules, number = record_rules(store), 0
    for part in rules.input_tables(data):
        accepted = rules.accept(part)
        if accepted.kinds is not None:
            raise InvalidRequestError(
                f"the rows for {store.name} have kinds that take rows away; leave _ROW_KIND out of an overwrite",
                table=store.name,
            )
        rows = accepted.rows
        is_fitting = np.zeros(rows.num_rows, np.bool_)
        is_fitting[passing(rows, bound)] = True
        if not is_fitting.all():
            first = int(np.flatnonzero(~is_fitting)[0])
            names = sorted(bound.predicate.columns())
            shown = {name: rows.column(name)[first].as_py() for name in names}
            raise InvalidRequestError(
                f"row {number + first} of the rows for {store.name} has {shown}, for which the filter is not true: it "
                "would not be replaced the next time. Leave it out, or append it; nothing was committed",
                table=store.name,
                column=names[0] if names else None,
            )
        number += rows.num_rows
        yield rows


def _by_position(store: TableStore, rows: Iterator[pa.Table], bound: ScanFilter, dry_run: bool) -> EditResult:
    count, messages = 0, list[CommitMessage]()
    writer = added_files(store, store.snapshots.latest())
    with undone_on_failure(writer.abort):
        for part in rows:
            count += writer.write(part)
        if not dry_run:
            messages = writer.prepare_commit()
    writer.close()
    edit = RowEdit((Clause(Side.BY_SOURCE, Action.DELETE),), bound, replaces=True)
    return replace(edit_rows(store, edit, dry_run=dry_run, given=messages), rows_inserted=count)


class _PartitionTest:
    """Whether the filter is true for the rows of a partition."""

    def __init__(self, store: TableStore, bound: ScanFilter) -> None:
        self._store = store
        self._filter = bound
        self._answers: dict[bytes, bool] = {}

    def __call__(self, partition: bytes) -> bool:
        if partition not in self._answers:
            values = partition_constants(self._store, partition)
            row = pa.table({name: pa.array([value.as_py()], value.type) for name, value in values.items()})
            self._answers[partition] = bool(len(passing(row, self._filter)))
        return self._answers[partition]
