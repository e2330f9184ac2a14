"""A table as people change its rows and its history: each call is one commit, which is there when the call returns.

`Table` adds what streams it and looks after it. Writers of programs that run for long are `Table.writer`: they commit
under numbers of their own, so that what is sent twice is in the table once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from freshet.storage.cleaning.orphan_files import DEFAULT_AGE_MS
from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.filters.predicate import Predicate
from freshet.storage.io.shown_work import at_work
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.arguments import answering_callers
from freshet.storage.model.snapshot import Snapshot
from freshet.storage.readable_table import ReadableTable
from freshet.storage.table_logs import TableLogs

if TYPE_CHECKING:
    from freshet.storage.edits.edit_commit import EditResult
    from freshet.storage.edits.expression import expr
    from freshet.storage.edits.history_cut import Purge
    from freshet.storage.edits.merge import Merge
    from freshet.storage.edits.rollback import RollbackTarget
    from freshet.storage.filters.filter_text import FilterGiven
    from freshet.storage.maintenance.partition_choice import PartitionValue

__all__ = ["EditResult", "EditableTable", "Purge", "expr"]
"""The table, and what its methods take and give."""


@answering_callers
class EditableTable(ReadableTable):
    """What changes the rows of a table, besides writers."""

    def append(self, data: object) -> EditResult:
        """Adds rows, in one commit; `data` is as for `TableSession.write`, such as a data frame or a list of dicts.

        In a table with a primary key its merge engine decides about keys that are there. No snapshot without rows.
        """
        from freshet.storage.edits.row_edits import add_rows

        return add_rows(self._edited(), data)

    def upsert(self, data: object, *, columns: Literal["all", "given"] = "all") -> EditResult:
        """Adds rows of a keyed table, or replaces those of their keys, in one commit.

        With `columns="given"` the columns that `data` has are updated and the others keep what is stored, whatever the
        merge engine; `data` has every column of the key, and each key once.

        Raises `InvalidRequestError` for a table without a primary key, and for columns whose stored value would be
        merged with the new one.
        """
        if not self.schema.has_primary_key:
            raise InvalidRequestError(
                f"table {self.name} has no primary key, by which rows could be replaced; append them", table=self.name
            )
        from freshet.storage.edits.row_edits import add_rows, upsert_given

        if columns == "all":
            return add_rows(self._edited(), data)
        if columns != "given":
            raise InvalidRequestError(f"columns= is 'all' or 'given', not {columns!r}", table=self.name)
        return upsert_given(self._edited(), data)

    def delete(self, filter: FilterGiven, *, dry_run: bool = False) -> EditResult:  # noqa: A002 - as in scan
        """Deletes the rows for which a filter is true (`scan` says what it may be), in one commit.

        Rows that others commit meanwhile count as later, but for those of the same keys: these are looked at again. A
        changelog gets each row as a -D, as its producer has it. A dry run counts the rows.

        Raises `InvalidRequestError` without a filter (`truncate` takes all rows away) and where the table cannot delete
        rows, naming the reason, `RetryableError` where others change the same rows all the time.
        """
        predicate = self._filter(filter, "deleted", "truncate() takes all rows away")
        with at_work(f"deleting rows of {self.name}"):
            from freshet.storage.edits.row_edits import delete_rows

            return delete_rows(self._edited(), predicate, dry_run)

    def update(
        self,
        values: Mapping[str, Any],
        filter: FilterGiven,  # noqa: A002 - as in scan
        *,
        dry_run: bool = False,
    ) -> EditResult:
        """Gives columns new values in the rows for which a filter is true, in one commit: `{"city": "Ulm"}`, or with
        SQL over the row `{"total": expr("total * 2")}`. `col("id") >= 0` and the like choose all rows.

        The rest is as in `delete`. Raises `InvalidRequestError` besides for columns of the key and of partitions, and
        where the merge engine would not take the new value as it is.
        """
        predicate = self._filter(filter, "updated", "write a filter that all rows pass, if all are meant")
        with at_work(f"updating rows of {self.name}"):
            from freshet.storage.edits.row_edits import update_rows

            return update_rows(self._edited(), values, predicate, dry_run)

    def merge(self, source: object, on: Sequence[str] | str) -> Merge:
        """Begins a merge of rows into this table: rows are matched on these columns, clauses say what becomes of them,
        `execute` commits it in one commit.

            table.merge(source, on=["id"]).when_matched_update_all().when_not_matched_insert_all().execute()

        Clauses count in their order: `when_matched_update_all`, `when_matched_update({column: value})`,
        `when_matched_delete`, `when_not_matched_insert_all`, `when_not_matched_insert({column: value})`,
        `when_not_matched_by_source_update({column: value})`, `when_not_matched_by_source_delete`, each with a condition
        if need be, such as `"source.gone"`; `when` takes them as SQL. `execute(dry_run=True)` only counts.

        `source` is as for `append`, and may have columns that the table lacks, for conditions. NULL matches nothing.
        Raises `InvalidRequestError` for columns that are missing.
        """
        from freshet.storage.edits.merge import begin_merge

        return begin_merge(self.store, self._edited, source, on)

    def overwrite(
        self,
        data: object,
        *,
        partition: Mapping[str, PartitionValue] | None = None,
        filter: FilterGiven | None = None,  # noqa: A002 - as in scan
        dynamic: bool | None = None,
        dry_run: bool = False,
    ) -> EditResult:
        """Puts rows in the place of what is there, in one OVERWRITE snapshot; `data` is as for `TableSession.write`.

        Without `partition` the partitions that occur in the rows are replaced, with `dynamic=False` the whole table, as
        `dynamic-partition-overwrite` says unless it is given; of a table without partitions always everything.
        `partition` (`{"dt": "2026-11-22"}`, a value of the column or its text; None is NULL) names what is replaced:
        the rows must be of it. Rows that others commit there meanwhile are replaced too. Where nothing comes or goes
        there is no snapshot.

        `filter` replaces the rows for which it is true, and must be true for each row of `data`. In a table with a
        primary key the commit is one of -D, +U and +I rows then, which its merge engine has to take, unless the filter
        is on partition keys alone; `data` has each key once and is held in memory.

        A dry run counts what would go and come. Raises `InvalidRequestError` for rows that do not fit, naming the first
        one, before anything is committed.
        """
        from freshet.storage.edits.overwrite import overwrite, overwrite_filtered

        if filter is None:
            return overwrite(self._edited(), data, partition=partition, dynamic=dynamic, dry_run=dry_run)
        if partition is not None or dynamic is not None:
            raise InvalidRequestError(
                "filter= says which rows are replaced; leave partition= and dynamic= out, or put the partition into "
                "the filter",
                table=self.name,
            )
        predicate = self._filter(filter, "replaced", "without a filter, overwrite replaces partitions or the table")
        return overwrite_filtered(self._edited(), data, predicate, dry_run=dry_run)

    def truncate(self, *, dry_run: bool = False) -> EditResult:
        """Takes every row away, in one OVERWRITE snapshot; none where the table is empty. Earlier snapshots keep the
        rows until they expire: `rollback` brings them back. A dry run says what would go."""
        from freshet.storage.edits.overwrite import replaced

        return replaced(self._edited(), lambda _: True, dry_run=dry_run)

    def drop_partition(self, *partitions: Mapping[str, PartitionValue], dry_run: bool = False) -> EditResult:
        """Takes the rows of some partitions away, each given as for `overwrite`; part of the keys is all that have
        these values. No snapshot where there are none, which a warning says; a dry run says what would go.

        `overwrite([], filter="dt < '2026-01-01'")` drops those that a filter on partition keys chooses.

        Raises `InvalidRequestError` for columns that are no partition keys, for what is no value of one, and without
        any partition.
        """
        store = self._edited()
        if not partitions or not all(partitions):
            raise InvalidRequestError(
                'name the partition to drop, such as {"dt": "2026-11-22"}; truncate() takes all rows away',
                table=self.name,
            )
        from freshet.storage.edits.overwrite import replaced
        from freshet.storage.maintenance.partition_choice import partition_test, warn_of_none

        tests = [partition_test(store, partition) for partition in partitions]
        warn_of_none(store, partitions, "nothing of it is dropped")
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

        Raises `NotFoundError` naming what there is, where there is no such snapshot, `ConflictError` where others roll
        the table back or change the tag meanwhile.
        """
        if (to is None) == (undo is None):
            raise InvalidRequestError("say where to go back to: to= or undo=, one of them", table=self.name)
        store = self._edited()

        def find() -> Snapshot | None:
            from freshet.storage.edits.rollback import before_commit, find_target

            return before_commit(store, *undo) if undo is not None else find_target(store, 0 if to is None else to)

        target = find()
        if not delete_newer:
            may_move = undo is not None or isinstance(to, str)
            with at_work(f"rolling {self.name} back"):
                from freshet.storage.edits.rollback import roll_back

                return roll_back(store, target, dry_run=dry_run, find=find if may_move else None)
        if target is None:
            raise InvalidRequestError(
                "delete_newer=True keeps a snapshot to go back to; truncate() empties the table", table=self.name
            )
        from freshet.storage.edits.edit_commit import EditResult
        from freshet.storage.edits.history_cut import cut_history

        gone = cut_history(store, target, force=force, dry_run=dry_run)
        return EditResult(is_dry_run=dry_run, snapshots_removed=gone)

    def purge(self, *, orphans_older_than_ms: int = DEFAULT_AGE_MS, dry_run: bool = False) -> Purge:
        """Empties the table for good: all rows, snapshots, tags, branches and consumers go, and their files.

        Nothing brings them back; `truncate` keeps the rows in earlier snapshots. The table with its columns and options
        stays, and batches that were committed are not committed again. Files that nothing names, such as those of
        the branches, go when they are older than an age, as in `remove_orphan_files`. A dry run says what would go.

        Raises `InvalidRequestError` on a branch, and where readers of the table need one of its branches; nothing has
        gone then. What is interrupted is done by the next call.
        """
        with at_work(f"emptying {self.name}"):
            from freshet.storage.edits.history_cut import purge

            return purge(self._edited(), orphans_older_than_ms=orphans_older_than_ms, dry_run=dry_run)

    def _filter(self, given: FilterGiven, verb: str, otherwise: str) -> Predicate:
        from freshet.storage.filters.filter_text import to_predicate

        predicate = to_predicate(given)
        if predicate is None:
            raise InvalidRequestError(f"say which rows of {self.name} are {verb}: {otherwise}", table=self.name)
        return predicate

    def _edited(self) -> TableStore:
        """The table at its newest schema, for a commit that is not logged."""
        store = self.store.at_latest_schema()
        store.check_writable()
        if store.options.logs_changes or store.options.publishes_changes:
            return store.with_options(TableLogs(store).options_without())
        return store
