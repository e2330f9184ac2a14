"""What an edit writes to a table with a primary key, and whether it still may.

Rows are found by a scan, or by lookups of the keys that a source has, and written as any writer writes them: what
merge engines, sequence fields, changelog producers and indexes do with the -D and +U of a stream they do with these.

Rows of other keys may be committed all the while. What others commit may be of the same keys, too: the edit would put
back a value that is no longer there, or delete a row that it has not seen. So each round of its commit looks at what
was added since:

| since the snapshot | then |
|---|---|
| rows of other keys | the edit counts as before them |
| rows of its keys | `KeysChangedError` with all keys that were written since: those are computed again |
| files were deleted by an overwrite, or snapshots have expired | `OutdatedPlanError`: everything is computed again |
| compactions | nothing: no row changes |

Only the key columns of the new files are read, and of the own ones in the same buckets.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from itertools import chain
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from freshet.storage.commit.commit_result import CommitResult
from freshet.storage.commit.committer import Committer
from freshet.storage.edits.clauses import Side
from freshet.storage.edits.edit_commit import EditResult, KeysChangedError, LaterCommits, OutdatedPlanError
from freshet.storage.edits.edit_plan import ROW, EditPlan, RowEdit, in_parts
from freshet.storage.edits.row_rules import as_updates, rules_of, with_kind
from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.files.data_file_reader import DataFileRead
from freshet.storage.io.env import Env
from freshet.storage.io.removal import undone_on_failure
from freshet.storage.io.spill_file import Scratch, SpillFile
from freshet.storage.lookup.stored_rows import find_stored_rows
from freshet.storage.maintenance.upkeep import show_hidden_rows
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.arrow_types import arrow_schema
from freshet.storage.model.commit_message import CommitMessage
from freshet.storage.model.data_file import DataFileMeta
from freshet.storage.model.manifest import BucketId, EntryKind, ManifestEntry
from freshet.storage.model.row_kind import ROW_KIND_COLUMN, RowKind
from freshet.storage.model.snapshot import CommitKind, Snapshot
from freshet.storage.options.choices import ChangelogProducer
from freshet.storage.scan.table_scan import TableScan
from freshet.storage.write.renumbering import renumbered
from freshet.storage.write.task_writer import TaskWriter

LOOKED_UP_ROWS: Final = 100_000
"""Keys that are looked up at a time."""


class RowsByKey:
    """The rows that an edit writes, over all its attempts; `close` it whatever happens."""

    def __init__(self, store: TableStore, edit: RowEdit, *, dry_run: bool) -> None:
        self._store = store
        self._edit = edit
        self._dry_run = dry_run
        self._rules = rules_of(store, edit.clauses)
        self._keys = list(store.schema.primary_keys)
        self._keeps_keys = edit.keeps_keys(self._keys)
        self._planned = _PlannedRows(store.env)
        self._check = _KeyCheck(store, None, ())

    @property
    def counted(self) -> EditResult:
        """How many rows the last attempt changes."""
        counts = self._planned.counts.tolist()
        return EditResult(
            rows_deleted=counts[RowKind.DELETE],
            rows_updated=counts[RowKind.UPDATE_AFTER],
            rows_inserted=counts[RowKind.INSERT],
        )

    @property
    def messages(self) -> Sequence[CommitMessage]:
        """The files of the last attempt."""
        return self._check.messages

    @property
    def looks_again(self) -> bool:
        """Whether rows of keys that others have changed can be computed alone; lookups do not see what is hidden."""
        return self._keeps_keys and not self._store.options.hides_level_0

    def plan(self, snapshot: Snapshot | None, changed: pa.Table | None) -> bool:
        """Writes the rows upon a snapshot, with `changed` keys those of these keys alone besides what was planned
        before; in a dry run counts them. Returns whether there is anything to commit."""
        rows = self._rows(snapshot, changed)
        kept = self._planned.kept(rows if changed is None else chain(self._planned.without(changed), rows))
        if self._dry_run:
            for _ in kept:
                pass
            return False
        writer = TaskWriter(self._store, base_snapshot=snapshot)
        with undone_on_failure(writer.close):
            for part in kept:
                writer.write(part)
            messages = writer.prepare_commit(covers_table=True)
        writer.close()
        self._check = _KeyCheck(self._store, snapshot, messages)
        return bool(messages)

    def commit(self, committer: Committer, number: int) -> CommitResult:
        """Makes the commit, whose rows readers see."""
        result = committer.commit(number, self.messages, check=self._check)
        return show_hidden_rows(self._store, committer, number, result)

    def renumber(
        self, identifier: int, lost: Sequence[CommitMessage], base_id: int, headroom: int
    ) -> Sequence[CommitMessage]:
        """Writes the rows of some messages again, above those of others."""
        base = self._store.snapshots.or_latest(base_id)
        made = renumbered(self._store, lost, base, identifier=identifier, headroom=headroom)
        buckets = {message.bucket_id for message in lost}
        kept = [each for each in self.messages if each.bucket_id not in buckets or each.assigned_upon is not None]
        self._check.messages = [*kept, *made]
        return made

    def close(self) -> None:
        """Forgets the rows."""
        self._planned.release()

    def _rows(self, snapshot: Snapshot | None, changed: pa.Table | None) -> Iterator[pa.Table]:
        store, edit = self._store, self._edit
        if changed is not None and edit.source is not None:
            edit = replace(edit, source=_with_keys(edit.source, changed))
        with closing(EditPlan(store, edit)) as plan:
            for rows in self._seen(plan, snapshot, changed):
                yield from self._changed(plan, rows)
            added = list(plan.added())
            if added:
                yield with_kind(self._new(plan, snapshot, pa.concat_tables(added)), RowKind.INSERT)

    def _seen(self, plan: EditPlan, snapshot: Snapshot | None, changed: pa.Table | None) -> Iterator[pa.Table]:
        """The rows of the table that may change: by a scan, or by lookups of the keys that can have any."""
        store, source, keys = self._store, plan.edit.source, changed
        if source is not None and self._keeps_keys and plan.edit.filter is None and not plan.edit.has(Side.BY_SOURCE):
            keys = source.select(self._keys).drop_null().group_by(self._keys).aggregate([])
        if keys is not None:
            for start in range(0, keys.num_rows, LOOKED_UP_ROWS):
                yield find_stored_rows(store, snapshot, keys.slice(start, LOOKED_UP_ROWS)).rows
        elif snapshot is not None:
            needed = {*self._deleted_columns(), *plan.columns}
            columns = None if self._rules else [name for name in store.schema.column_names if name in needed]
            predicate = None if plan.filter is None else plan.filter.predicate
            yield from in_parts(TableScan(store, columns=columns, filter=predicate, snapshot=snapshot).to_batches())

    def _changed(self, plan: EditPlan, rows: pa.Table) -> Iterator[pa.Table]:
        choice = plan.choose(rows)
        for number in np.unique(choice.clauses):
            part = choice.of(choice.clauses == number)
            before = rows.take(pa.array(part.positions))
            if number in self._rules:
                yield as_updates(self._store, before, plan.updated(before, part), self._rules[number])
            else:
                yield with_kind(before.select(self._deleted_columns()), RowKind.DELETE)

    def _deleted_columns(self) -> list[str]:
        """What a -D must have: all columns where readers of changes get it as it is, else the key, the partition and
        what orders rows."""
        schema, options = self._store.schema, self._store.options
        if options.changelog_producer in (ChangelogProducer.INPUT, ChangelogProducer.NONE):
            return list(schema.column_names)
        needed = {*schema.primary_keys, *schema.partition_keys, *options.sequence_field}
        return [name for name in schema.column_names if name in needed]

    def _new(self, plan: EditPlan, snapshot: Snapshot | None, rows: pa.Table) -> pa.Table:
        """Rows to add; raises for a key that the table has: its row, which was not chosen, would be replaced."""
        check_once(self._store, rows)
        if self._keeps_keys and set(plan.edit.on) == set(self._keys) and plan.edit.filter is None:
            return rows  # nothing was found under their keys
        stored = find_stored_rows(self._store, snapshot, rows).rows
        if stored.num_rows:
            key = {name: stored.column(name)[0].as_py() for name in self._keys}
            raise InvalidRequestError(
                f"a row would be added to {self._store.name} under the key {key}, which the table has: nothing matched "
                "that row, or the filter is not true for it, and it would be replaced. Match on the primary key, or "
                "leave the key out; nothing was committed",
                table=self._store.name,
            )
        return rows


def check_once(store: TableStore, rows: pa.Table) -> None:
    """Raises `InvalidRequestError` for a key that two of the rows have."""
    keys = list(store.schema.primary_keys)
    twice = rows.group_by(keys).aggregate([([], "count_all")]).filter(pc.field("count_all") > 1)
    if twice.num_rows:
        key = {name: twice.column(name)[0].as_py() for name in keys}
        raise InvalidRequestError(
            f"the key {key} is in the rows for {store.name} more than once: {twice.column('count_all')[0].as_py()} "
            "times; leave one of them, else it is chance which one counts",
            table=store.name,
        )


class _KeyCheck(LaterCommits):
    """Raises `KeysChangedError` where others have changed keys that the messages of one edit write."""

    def __init__(self, store: TableStore, upon: Snapshot | None, messages: Sequence[CommitMessage]) -> None:
        super().__init__(store, upon)
        self._added: list[ManifestEntry] = []
        self._seen_count = 0
        """How many of the files added since share no key with the edit."""
        self.messages = messages

    def _look_at(self, latest: Snapshot, later: Sequence[tuple[Snapshot, list[ManifestEntry]]]) -> None:
        store = self._store
        for snapshot, entries in later:
            if snapshot.commit_kind is CommitKind.OVERWRITE or any(each.kind is EntryKind.DELETE for each in entries):
                raise OutdatedPlanError(f"table {store.name}: rows were overwritten while this edit was made")
            self._added += entries
        if any(
            self._shares_keys(each) for each in sorted({each.bucket_id for each in self._added[self._seen_count :]})
        ):
            raise KeysChangedError(
                f"table {store.name}: others have changed rows of this edit while it was made",
                _distinct_keys(store, self._added),
                latest,
            )
        self._seen_count = len(self._added)

    def _shares_keys(self, bucket: BucketId) -> bool:
        own = [file for each in self.messages if each.bucket_id == bucket for file in each.new_files]
        if not own:
            return False
        names = list(self._store.schema.trimmed_primary_keys)
        mine = _keys(self._store, [(bucket, file) for file in own], names)
        others = _keys(
            self._store, [(each.bucket_id, each.file) for each in self._added if each.bucket_id == bucket], names
        )
        return bool(mine.join(others, names, join_type="left semi").num_rows)


def _distinct_keys(store: TableStore, entries: Iterable[ManifestEntry]) -> pa.Table:
    """The keys in some files, each once."""
    names = list(store.schema.primary_keys)
    keys = _keys(store, [(each.bucket_id, each.file) for each in entries], names)
    return keys.group_by(names).aggregate([])


class _PlannedRows:
    """Rows with `_ROW_KIND`, kept until they are committed, so that those alone are computed again whose keys others
    have changed. They are on a scratch disk, since there may be more than fit into memory; `release` them whatever
    happens."""

    def __init__(self, env: Env) -> None:
        self._scratch = Scratch(env)
        self._files: list[SpillFile] = []
        self.counts = np.zeros(len(RowKind), np.int64)
        """Rows by the code of their kind."""

    def kept(self, parts: Iterable[pa.Table]) -> Iterator[pa.Table]:
        """The parts as they come, each once it is kept, in the place of all that was kept before."""
        before, self._files = self._files, []
        self.counts[:] = 0
        for part in parts:
            if part.num_rows:
                self._files.append(SpillFile(self._scratch.new_path(), part.schema, [part]))
                self.counts += np.bincount(part.column(ROW_KIND_COLUMN).to_numpy(), minlength=len(RowKind))
                yield part
        for file in before:
            file.remove()

    def without(self, keys: pa.Table) -> Iterator[pa.Table]:
        """What was kept, less the rows of these keys."""
        files = list(self._files)  # read when others have taken their place
        return (_without_keys(pa.Table.from_batches([batch]), keys) for file in files for batch in file.read())

    def release(self) -> None:
        """Forgets them."""
        self._files.clear()
        self._scratch.release()


def _without_keys(rows: pa.Table, keys: pa.Table) -> pa.Table:
    """The rows whose key is not among these, in their order."""
    return _joined(rows, keys, "left anti")


def _with_keys(rows: pa.Table, keys: pa.Table) -> pa.Table:
    """The rows whose key is among these, in their order."""
    return _joined(rows, keys, "left semi")


def _joined(rows: pa.Table, keys: pa.Table, kind: str) -> pa.Table:
    """By positions: a join takes no nested columns along."""
    names = keys.column_names
    numbered = rows.select(names).append_column(ROW, pa.array(np.arange(rows.num_rows)))
    kept = numbered.join(keys, names, join_type=kind).column(ROW)
    return rows.take(kept.combine_chunks().sort()) if len(kept) else rows.slice(0, 0)


def _keys(store: TableStore, files: Collection[tuple[BucketId, DataFileMeta]], names: Sequence[str]) -> pa.Table:
    schema = pa.schema([arrow_schema(store.schema).field(name) for name in names])
    return pa.Table.from_batches(
        [
            batch.cast(schema)
            for (partition, bucket), file in files
            for batch in DataFileRead(store, partition, bucket, file, list(names)).batches()
        ],
        schema,
    )
