"""A table as people change its rows and its history: each call is one commit, which is there when the call returns.

`Table` adds what streams it and looks after it. Writers of programs that run for long are `Table.writer`: they commit
under numbers of their own, so that what is sent twice is in the table once.
"""

from __future__ import annotations

from collections.abc import Mapping

from freshet.storage.edits.edit_result import EditResult
from freshet.storage.edits.history_cut import cut_history
from freshet.storage.edits.overwrite import overwrite, replaced
from freshet.storage.edits.rollback import RollbackTarget, before_commit, find_target, roll_back
from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.maintenance.compaction_plan import partition_test
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.readable_table import ReadableTable
from freshet.storage.table_logs import TableLogs

__all__ = ["EditResult", "EditableTable"]
"""The table, and what its methods give."""


class EditableTable(ReadableTable):
    """What changes the rows of a table, besides writers."""

    def overwrite(
        self, data: object, *, partition: Mapping[str, str] | None = None, dynamic: bool | None = None
    ) -> EditResult:
        """Puts rows in the place of what is there, in one OVERWRITE snapshot; `data` is as for `TableSession.write`.

        Without `partition` the partitions that occur in the rows are replaced, with `dynamic=False` the whole table, as
        `dynamic-partition-overwrite` says unless it is given; of a table without partitions always everything.
        `partition` (`{"dt": "2026-11-22"}`, values as folders write them) names what is replaced: the rows must be of
        it. Rows that others commit there meanwhile are replaced too. Where nothing comes or goes there is no snapshot.

        Raises `InvalidRequestError` for rows that do not fit, before anything is committed.
        """
        return overwrite(self._edited(), data, partition=partition, dynamic=dynamic)

    def truncate(self, *, dry_run: bool = False) -> EditResult:
        """Takes every row away, in one OVERWRITE snapshot; none where the table is empty. Earlier snapshots keep the
        rows until they expire: `rollback` brings them back. A dry run says what would go."""
        return replaced(self._edited(), lambda _: True, dry_run=dry_run)

    def drop_partition(self, *partitions: Mapping[str, str], dry_run: bool = False) -> EditResult:
        """Takes the rows of some partitions away, each given as for `overwrite`; part of the keys is all that have
        these values. No snapshot where there are none; a dry run says what would go.

        Raises `InvalidRequestError` for columns that are no partition keys, and without any partition.
        """
        store = self._edited()
        if not partitions or not all(partitions):
            raise InvalidRequestError(
                'name the partition to drop, such as {"dt": "2026-11-22"}; truncate() takes all rows away',
                table=self.name,
            )
        tests = [partition_test(store, partition) for partition in partitions]
        return replaced(store, lambda name: any(test(name) for test in tests), dry_run=dry_run)

    def rollback(
        self,
        to: RollbackTarget | None = None,
        *,
        undo: tuple[str, int] | None = None,
        delete_newer: bool = False,
        force: bool = False,
        dry_run: bool = False,
    ) -> EditResult:
        """Gives the table the rows of an earlier snapshot, in a new OVERWRITE snapshot; ids go on.

        `to` is a snapshot id (0: before the first), the name of a tag, or a datetime with a time zone; `undo` is a
        commit user and a number: back to before that commit, and with it all later ones. Later commits count as never
        made: a pipeline whose batches are gone stops at its next one, and what is sent again under their numbers is
        committed. Columns stay as they are now. No snapshot where the rows are the same; a dry run says what would
        change.

        `delete_newer` removes the later snapshots instead, whose ids are used again: nobody may have the table open. It
        is refused while a stream has used the table within the hour, unless `force` says that all were stopped.

        Raises `NotFoundError` naming what there is, where there is no such snapshot.
        """
        if (to is None) == (undo is None):
            raise InvalidRequestError("say where to go back to: to= or undo=, one of them", table=self.name)
        store = self._edited()
        target = before_commit(store, *undo) if undo is not None else find_target(store, to if to is not None else 0)
        if not delete_newer:
            return roll_back(store, target, dry_run=dry_run)
        if target is None:
            raise InvalidRequestError(
                "delete_newer=True keeps a snapshot to go back to; truncate() empties the table", table=self.name
            )
        gone = cut_history(store, target, force=force, dry_run=dry_run)
        return EditResult(is_dry_run=dry_run, snapshots_removed=gone)

    def _edited(self) -> TableStore:
        """The table at its newest schema, for a commit that is not logged."""
        store = self.store.at_latest_schema()
        store.check_writable()
        if store.options.logs_changes or store.options.publishes_changes:
            return store.with_options(TableLogs(store).options_without())
        return store
