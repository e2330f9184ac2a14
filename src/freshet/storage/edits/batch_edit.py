"""An edit whose rows many tasks have written: its number, and its one commit.

    edit = BatchEdit(store, numbered=("nightly", 7))       or without a number: that of an edit
    edit.earlier()                                         whether the table holds it already
    edit.commit(messages)                                  an APPEND (and COMPACT), or the one OVERWRITE

A number of a caller's own is committed once, whoever comes with it again: a job that is run every night under its day.
It grows from one commit of its user to the next. One that is smaller than the last is only taken for a repetition where
the table knows its commit; else it is refused, as its rows may never have been committed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from freshet.storage.cleaning.partition_expiry import expire_partitions_at_end
from freshet.storage.commit.committer import CommitResult, Committer, Renumber
from freshet.storage.commit.identity import check_identifier
from freshet.storage.commit.replays import snapshot_of_commit
from freshet.storage.edits.edit_commit import EDIT_USER
from freshet.storage.edits.overwrite import ReplacedPartitions, as_one_change
from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.maintenance.hidden_rows import show_hidden_rows, show_rows_of
from freshet.storage.maintenance.table_compaction import complete_compaction
from freshet.storage.maintenance.upkeep import leave_batch_tag, upkeep_later
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.commit_message import CommitDigest, CommitMessage
from freshet.storage.model.snapshot import Snapshot
from freshet.storage.write.renumbering import renumbered

NUMBERED: Final = CommitDigest("freshet-batch-edit", "rows of a batch job")
"""What numbered edits are said to be made from: the table keeps the last numbers of a user that gives one. Part of what
we write, do not change."""


@dataclass(frozen=True, slots=True)
class EarlierCommit:
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

        Where the process that made it died before readers see its rows (`hidden_rows`), they are compacted here.

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
