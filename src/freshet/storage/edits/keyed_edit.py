"""Edits of the rows of a keyed table: rows are computed from a snapshot, written as any writer writes them, committed
where nobody has changed their keys meanwhile (`key_check`), else computed again.

So deletes and updates are rows of kind -D and +U: merge engines, sequence fields, changelog producers and indexes do
with them what they do with the rows of a stream. Rows of other keys may be committed all the while.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Final

import pyarrow as pa

from freshet.storage.commit.committer import CommitResult, Committer, discard_messages
from freshet.storage.edits.edit_commit import commit_edit
from freshet.storage.edits.edit_result import EditResult, preview_of_rows, result_of
from freshet.storage.edits.key_check import KeyCheck
from freshet.storage.edits.outdated_plan import KeysChangedError
from freshet.storage.edits.planned_rows import PlannedRows
from freshet.storage.edits.row_plan import RowPlan
from freshet.storage.exceptions import ConflictError, RetryableError
from freshet.storage.io.env import CrashPoint
from freshet.storage.io.undo import undone_on_failure
from freshet.storage.maintenance.hidden_rows import show_hidden_rows
from freshet.storage.maintenance.table_compaction import compact_table
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.commit_message import CommitMessage
from freshet.storage.model.row_kind import RowKind
from freshet.storage.model.snapshot import Snapshot
from freshet.storage.write.renumbering import renumbered
from freshet.storage.write.task_writer import TaskWriter

PARALLELISM: Final = 2
"""Threads that write."""
ATTEMPTS_MAX: Final = 10
"""How often rows are computed again in all, because of what others have committed."""


def edit_rows(store: TableStore, plan: RowPlan, *, dry_run: bool = False, by_keys: bool = True) -> EditResult:
    """Commits what a plan says; no snapshot where it has no rows. `by_keys`: the plan can look at some keys again.

    Raises `InvalidRequestError` for rows that the table cannot take, `RetryableError` where others have changed the
    same rows each time.
    """
    snapshot = store.snapshots.latest() if dry_run else visible_snapshot(store)
    planned = PlannedRows(store.env)
    try:
        rows: Iterable[pa.Table] = plan.of_table(store, snapshot)
        if dry_run:
            for _ in planned.kept(rows):
                pass
            return preview_of_rows(planned.counts)
        for _ in range(ATTEMPTS_MAX):
            try:
                committed = _Attempt(store, snapshot).commit(planned.kept(rows))
            except KeysChangedError as changed:
                if store.options.hides_level_0 or not by_keys:  # lookups do not see rows that are not compacted yet
                    snapshot = visible_snapshot(store)
                    rows = plan.of_table(store, snapshot)
                    continue
                snapshot = changed.snapshot
                rows = chain(planned.without(changed.keys), _again(plan, store, snapshot, changed.keys))
            except ConflictError:
                snapshot = visible_snapshot(store)
                rows = plan.of_table(store, snapshot)
            else:
                return result_of(
                    store,
                    committed,
                    rows_deleted=int(planned.counts[RowKind.DELETE]),
                    rows_updated=int(planned.counts[RowKind.UPDATE_AFTER]),
                    rows_inserted=int(planned.counts[RowKind.INSERT]),
                )
    finally:
        planned.release()
    raise RetryableError(
        f"table {store.name}: others have changed the same rows each of the {ATTEMPTS_MAX} times that this edit was "
        "made; nothing was committed. Choose fewer rows, or stop their writer for so long",
        table=store.name,
    )


def _again(plan: RowPlan, store: TableStore, snapshot: Snapshot, keys: pa.Table) -> Iterator[pa.Table]:
    yield plan.of_keys(store, snapshot, keys)


class _Attempt:
    """Rows written upon one snapshot, and their commit."""

    def __init__(self, store: TableStore, snapshot: Snapshot | None) -> None:
        self._store = store
        self._snapshot = snapshot

    def commit(self, rows: Iterator[pa.Table]) -> CommitResult:
        """Writes the rows and commits them; where that fails for certain, their files are removed."""
        store = self._store
        messages = self._written(rows)
        if not messages:
            return CommitResult(())
        store.env.reach(CrashPoint.EDIT_WRITTEN)
        check = KeyCheck(store, self._snapshot, messages)

        def renumber(
            identifier: int, lost: Sequence[CommitMessage], base_id: int, headroom: int
        ) -> Sequence[CommitMessage]:
            base = store.snapshots.or_latest(base_id)
            made = renumbered(store, lost, base, identifier=identifier, headroom=headroom, parallelism=PARALLELISM)
            buckets = {message.bucket_id for message in lost}
            kept = [each for each in check.messages if each.bucket_id not in buckets or each.assigned_upon is not None]
            check.messages = [*kept, *made]
            return made

        used: list[tuple[Committer, int]] = []

        def commit(committer: Committer, number: int) -> CommitResult:
            used.append((committer, number))
            return committer.commit(number, check.messages, check=check)

        result = commit_edit(store, commit, lambda: discard_messages(store, check.messages), renumber=renumber)
        return show_hidden_rows(store, *used[-1], result)

    def _written(self, rows: Iterator[pa.Table]) -> list[CommitMessage]:
        writer = TaskWriter(self._store, base_snapshot=self._snapshot, parallelism=PARALLELISM)
        with undone_on_failure(writer.close):
            for part in rows:
                writer.write(part)
            messages = writer.prepare_commit(covers_table=True)
        writer.close()
        return messages


def visible_snapshot(store: TableStore) -> Snapshot | None:
    """The latest snapshot, once it shows all rows that are committed: where level 0 is hidden, it is compacted."""
    for _ in range(ATTEMPTS_MAX):
        latest = store.snapshots.latest()
        if latest is None or not store.options.hides_level_0:
            return latest
        live = store.live.at(latest).by_bucket
        if not any(entry.file.level == 0 for files in live.values() for entry in files.values()):
            return latest
        compact_table(store, full=False)
    raise RetryableError(
        f"table {store.name}: rows were committed all the while that readers do not see before they are compacted; "
        "compact the table (freshet compact), or stop its writers for so long",
        table=store.name,
    )
