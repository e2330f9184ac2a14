"""Edits whose rows many tasks of an engine have written: each has a number, and one commit.

    edit = BatchEdit(store, numbered=("nightly", 7))       or without a number: that of an edit
    edit.earlier()                                         whether the table holds it already
    edit.commit(messages)                                  an APPEND (and COMPACT), or the one OVERWRITE

A number of a caller's own is committed once, whoever comes with it again: a job that is run every night under its day.
It grows from one commit of its user to the next. One that is smaller than the last is only taken for a repetition where
the table knows its commit; else it is refused, as its rows may never have been committed.

Rows may come without a shuffle before: each task may have rows of every bucket, and of every key, and writes level 0
alone. Of two rows of a key the one with the larger number is the later one, and tasks number their rows without knowing
of one another: so a key that two of them hold is refused, unless `sequence.field` says which of its rows is the later
one. Only key columns are read, of buckets that several tasks have written, and in passes that bound how many are in
memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from freshet._frozen import Frozen
from freshet.storage.cleaning.partition_expiry import expire_partitions_at_end
from freshet.storage.codec.binary_row_arrays import row_hashes
from freshet.storage.commit.commit_result import CommitResult
from freshet.storage.commit.committer import Committer, Renumber
from freshet.storage.commit.identity import check_identifier
from freshet.storage.commit.last_commits import snapshot_of_commit
from freshet.storage.edits.edit_commit import EDIT_USER
from freshet.storage.edits.overwrite import ReplacedPartitions, as_one_change
from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.files.data_file_paths import discard_messages
from freshet.storage.files.data_file_reader import DataFileRead
from freshet.storage.maintenance.partition_choice import PartitionChoice
from freshet.storage.maintenance.table_compaction import complete_compaction
from freshet.storage.maintenance.upkeep import show_hidden_rows, show_rows_of, upkeep_later
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.commit_message import CommitDigest, CommitMessage
from freshet.storage.model.data_file import DataFileMeta
from freshet.storage.model.manifest import BucketId
from freshet.storage.model.snapshot import Snapshot
from freshet.storage.tags.automatic import leave_batch_tag
from freshet.storage.write.renumbering import renumbered

NUMBERED: Final = CommitDigest("freshet-batch-edit", "rows of a batch job")
"""What numbered edits are said to be made from: the table keeps the last numbers of a user that gives one. Part of what
we write, do not change."""
PASS_ROWS: Final = 4_000_000
"""Keys that are in memory at a time."""
_TASK: Final = "\0task"
"""No name of a column."""


class EarlierCommit(Frozen):
    """The commit of a number that the table holds; `snapshot` is None where it has expired."""

    snapshot: Snapshot | None


@dataclass(slots=True)
class BatchEdit:
    """One edit of a table; `numbered` is the commit user and the number, None for the next number of edits.

    `partitions` makes it an overwrite. `renumber` writes files again whose rows others have overtaken, by default in
    this process.
    """

    store: TableStore
    numbered: tuple[str, int] | None = None
    partitions: ReplacedPartitions | None = None
    renumber: Renumber | None = None
    compacts: bool = True
    """False where tasks have written level 0 alone, and the commit leaves it at that."""
    number: int = field(init=False, default=0)
    """The number that tasks write for."""
    latest: Snapshot | None = field(init=False, default=None)
    """The snapshot that they write upon."""
    _committer: Committer = field(init=False)

    def __post_init__(self) -> None:
        if self.numbered is not None:
            user, number = self.numbered
            if not isinstance(user, str) or not user.strip() or not user.isprintable() or user == EDIT_USER:
                raise InvalidRequestError(
                    f"the commit user is a name of your own, of printable characters such as 'nightly', not {user!r}"
                )
            if isinstance(number, bool) or not isinstance(number, int):
                raise InvalidRequestError(f"a commit identifier is a whole number such as 20261127, not {number!r}")
            check_identifier(number)
        self._committer = Committer(
            self.store,
            self.user,
            renumber=self.renumber or self._renumbered_here,
            after_commit=upkeep_later,
            at_end=expire_partitions_at_end,
        )

    @property
    def user(self) -> str:
        """The commit user."""
        return EDIT_USER if self.numbered is None else self.numbered[0]

    def earlier(self) -> EarlierCommit | None:
        """The commit of this number, where the table holds it; otherwise what tasks write upon is chosen.

        Where the process that made it died before readers see its rows, they are compacted here.

        Raises `InvalidRequestError` for a number below the last one of its user whose commit the table does not know.
        """
        last = self._committer.last_commit()
        self.latest = self.store.snapshots.latest()
        if self.numbered is None:
            self.number = 0 if last is None else last.identifier + 1
            return None
        user, number = self.numbered
        self.number = number
        if last is not None and last.query_id is None and number <= last.identifier:
            snapshot = snapshot_of_commit(self.store, user, number)
            if snapshot is None and number != last.identifier and number not in dict(last.digests):
                raise InvalidRequestError(
                    f"table {self.store.name}: user {user!r} has committed {last.identifier}, and of {number} nothing "
                    "is known any more: its rows may be in the table, or were never committed. Nothing was written. "
                    f"Look whether they are there; if not, write them under a number above {last.identifier}, or under "
                    "another commit user",
                    table=self.store.name,
                )
            if snapshot is not None and self.compacts:
                show_rows_of(self.store, self._committer, snapshot)
            return EarlierCommit(snapshot)
        self._committer.has_committed(number, digest=NUMBERED)  # raises where another query has this user
        return None

    def commit(self, messages: Sequence[CommitMessage]) -> CommitResult:
        """Makes one commit of the messages. Without a number of its own the edit makes no snapshot where nothing
        changes. Raises what commits raise, `OutdatedAssignmentError` where the rows have to be written again."""
        store, committer = self.store, self._committer
        if self.partitions is not None:
            messages = [as_one_change(store, message) for message in messages]
            is_replaced = self.partitions.by(messages)
        elif messages and self.compacts:
            messages = [*messages, *complete_compaction(store, self.number, messages)]
        elif not messages and self.numbered is None:
            return CommitResult(())
        digest = None if self.numbered is None else NUMBERED
        forced = self.numbered is not None
        number = self.number
        while True:
            if self.partitions is not None:
                result = committer.replace(number, is_replaced, messages, digest=digest, force_empty=forced)
            else:
                result = committer.commit(number, messages, digest=digest, force_empty=True)
            if self.numbered is not None or not result.already_committed:
                break
            base_id = 0 if self.latest is None else self.latest.id
            ours = committer.snapshot_with(messages, after_id=base_id) if messages else None
            if ours is not None:  # a try took effect whose end was not seen
                result = CommitResult((ours,), messages=tuple(messages))
                break
            last = committer.last_commit()  # another edit has taken the number meanwhile
            assert last is not None, "somebody has committed this number"
            number = last.identifier + 1
        if not result.already_committed and self.partitions is None and self.compacts:
            result = show_hidden_rows(store, committer, number, result)
        committer.finish()
        if result.snapshots:
            leave_batch_tag(store)
        committer.check_last()
        store.env.finish_later()
        return result

    def _renumbered_here(
        self, identifier: int, messages: Sequence[CommitMessage], base_id: int, headroom: int
    ) -> Sequence[CommitMessage]:
        options = self.store.dynamic_options
        store = self.store if self.compacts else self.store.with_options({**options, "write-only": "true"})
        base = store.snapshots.or_latest(base_id)
        return renumbered(store, messages, base, identifier=identifier, headroom=headroom)


class BatchEdits:
    """Edits of one table, which logs nothing (`TableLogs.options_without`)."""

    def __init__(self, store: TableStore) -> None:
        self._store = store

    def begin(
        self,
        numbered: tuple[str, int] | None = None,
        *,
        partitions: ReplacedPartitions | None = None,
        renumber: Renumber | None = None,
        compacts: bool = True,
    ) -> BatchEdit:
        """One edit: `numbered` is a commit user and a number of the caller's own, `partitions` makes it an overwrite,
        `renumber` is that of `TableEngine.committer`; without `compacts` level 0 is left as it is."""
        return BatchEdit(self._store, numbered, partitions, renumber, compacts)

    def partitions(self, partition: PartitionChoice | None, dynamic: bool | None) -> ReplacedPartitions:
        """What an overwrite replaces, by the arguments of `Table.overwrite`; raises as that does."""
        return ReplacedPartitions.of(self._store, partition, dynamic)

    @property
    def need_no_shuffle(self) -> bool:
        """Whether tasks may write level 0 of rows that were not brought to them by bucket (`joined_rows`): where no row
        is looked up, and a row says its bucket."""
        options = self._store.options
        return not options.has_primary_key or (options.bucket > 0 and not options.needs_lookup)

    def joined_rows(self, tasks: Sequence[Sequence[CommitMessage]]) -> list[CommitMessage]:
        """The messages of such tasks, in their order, as one for each bucket.

        Raises `InvalidRequestError`, with all files removed, for a key that several tasks hold, where nothing says
        which of its rows is the later one.
        """
        store, messages = self._store, [message for task in tasks for message in task]
        if store.options.has_primary_key:
            try:
                _check_keys(store, tasks)
            except InvalidRequestError:
                discard_messages(store, messages)
                raise
        joined: dict[BucketId, CommitMessage] = {}
        for message in messages:
            before = joined.get(message.bucket_id)
            joined[message.bucket_id] = message if before is None else _joined(store, before, message)
        return list(joined.values())


def _joined(store: TableStore, before: CommitMessage, message: CommitMessage) -> CommitMessage:
    files = message.new_files
    if store.options.numbers_rows and not store.options.has_primary_key:  # only entries have these numbers
        by = max(file.max_sequence_number for file in before.new_files) + 1
        by -= min(file.min_sequence_number for file in files)
        files = tuple(
            replace(
                file,
                min_sequence_number=file.min_sequence_number + by,
                max_sequence_number=file.max_sequence_number + by,
            )
            for file in files
        )
    ids = [each.numbered_at for each in (before, message) if each.numbered_at is not None]
    return replace(
        before,
        new_files=(*before.new_files, *files),
        changelog_files=(*before.changelog_files, *message.changelog_files),
        numbered_at=min(ids, default=None),
    )


def _check_keys(store: TableStore, tasks: Sequence[Sequence[CommitMessage]]) -> None:
    files: dict[BucketId, list[tuple[int, DataFileMeta]]] = {}
    for task, messages in enumerate(tasks):
        for message in messages:
            files.setdefault(message.bucket_id, []).extend((task, file) for file in message.new_files)
    for bucket, written in sorted(files.items()):
        if len({task for task, _ in written}) > 1:
            passes = -(-sum(file.row_count for _, file in written) // PASS_ROWS)
            for number in range(passes):
                _check_bucket(store, bucket, written, number, passes)


def _check_bucket(
    store: TableStore, bucket: BucketId, written: Sequence[tuple[int, DataFileMeta]], number: int, passes: int
) -> None:
    """Looks at the keys of one pass in one bucket."""
    keys = list(store.schema.trimmed_primary_keys)
    names = list(dict.fromkeys([*keys, *store.options.sequence_field]))
    parts = []
    for task, file in written:
        for batch in DataFileRead(store, *bucket, file, names).batches():
            rows = pa.Table.from_batches([batch])
            if passes > 1:
                hashes = row_hashes([rows.column(name) for name in keys], store.key_types)
                rows = rows.filter(pa.array(np.mod(hashes, passes) == number))
            parts.append(rows.append_column(_TASK, pa.array(np.full(rows.num_rows, task, np.int32))))
    found = pa.concat_tables(parts).group_by(names).aggregate([(_TASK, "count_distinct")])
    shared = found.filter(pc.field(f"{_TASK}_count_distinct") > 1)
    if not shared.num_rows:
        return
    key = {name: shared.column(name)[0].as_py() for name in keys}
    path = store.partition_path(bucket[0])
    where = f" of partition {path}" if path else ""
    has_order = bool(store.options.sequence_field)
    why = "and the same sequence.field" if has_order else "and nothing says which is the later one"
    raise InvalidRequestError(
        f"table {store.name}: the key {key}{where} is in rows of two Spark tasks, {why}: it would be chance which "
        f"one counts ({shared.num_rows:,} keys of this bucket are). Nothing was committed. Write the frame with "
        "freshet.write, which brings all rows of a key to one task, or df.repartition it by the key"
        + ("" if has_order else "; or set sequence.field on the table"),
        table=store.name,
    )
