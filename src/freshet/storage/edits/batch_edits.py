"""The edits of a table whose rows tasks of an engine write; `TableEngine.edits` gives it."""

from __future__ import annotations

from collections.abc import Sequence

from freshet.storage.commit.committer import Renumber
from freshet.storage.edits.batch_edit import BatchEdit
from freshet.storage.edits.overwrite import ReplacedPartitions
from freshet.storage.edits.task_rows import is_written_by_tasks, joined_rows
from freshet.storage.maintenance.partition_choice import PartitionChoice
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.commit_message import CommitMessage


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
        """Whether tasks may write level 0 of rows that were not brought to them by bucket (`joined_rows`)."""
        return is_written_by_tasks(self._store)

    def joined_rows(self, tasks: Sequence[Sequence[CommitMessage]]) -> list[CommitMessage]:
        """The messages of such tasks, in their order, as one for each bucket.

        Raises `InvalidRequestError`, with all files removed, for a key that two of them hold and nothing orders.
        """
        return joined_rows(self._store, tasks)
