"""The edits of rows as a table offers them, for tables with a primary key and without, and the one place that makes
them: an edit is planned upon a snapshot, written, committed, and planned again where others have outdated the plan.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from typing import Any, Final

import pyarrow as pa

from freshet.storage.edits.clauses import Action, Clause, Side, Taken, checked_columns
from freshet.storage.edits.edit_commit import EDIT_USER, EditResult, KeysChangedError, commit_edit, result_of
from freshet.storage.edits.edit_plan import RowEdit
from freshet.storage.edits.expression import Expression, columns_of
from freshet.storage.edits.rows_by_key import RowsByKey, check_once
from freshet.storage.edits.rows_by_position import RowsByPosition
from freshet.storage.exceptions import (
    ConflictError,
    InvalidRequestError,
    MissingFileError,
    NotFoundError,
    OutdatedAssignmentError,
    RetryableError,
)
from freshet.storage.files.data_file_paths import discard_messages
from freshet.storage.filters.predicate import Predicate
from freshet.storage.io.env import CrashPoint
from freshet.storage.maintenance.table_compaction import compact_table
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.arrow_types import arrow_schema, conform
from freshet.storage.model.commit_message import CommitMessage
from freshet.storage.model.row_kind import ROW_KIND_COLUMN
from freshet.storage.model.snapshot import Snapshot
from freshet.storage.scan.pruning import ScanFilter
from freshet.storage.table_session import TableSession
from freshet.storage.write.input_rows import input_tables, is_read_again

ATTEMPTS_MAX: Final = 10
"""How often an edit is planned in all, because of what others have committed."""


def edit_rows(
    store: TableStore, edit: RowEdit, *, dry_run: bool = False, given: Sequence[CommitMessage] | None = None
) -> EditResult:
    """Commits an edit; no snapshot where it changes nothing. `given` are the files of an overwrite of a table without a
    primary key, which are removed where the edit is given up for certain.

    Raises `InvalidRequestError` for rows that the table cannot take, `RetryableError` where others have changed the
    same rows each time.
    """
    made = (
        RowsByKey(store, edit, dry_run=dry_run)
        if store.schema.has_primary_key
        else RowsByPosition(store, edit, given, dry_run=dry_run)
    )
    with closing(made):
        changed: KeysChangedError | None = None
        for _ in range(ATTEMPTS_MAX):
            upon = changed.snapshot if changed else store.snapshots.latest() if dry_run else _visible_snapshot(store)
            try:
                has_changes = made.plan(upon, changed.keys if changed else None)
            except (NotFoundError, MissingFileError):
                store.check_is_there()
                newer = store.snapshots.latest()
                if newer is None or upon is None or newer.id <= upon.id:
                    raise
                changed = None
                continue  # files were compacted and have expired
            if dry_run or not has_changes:
                return replace(made.counted, is_dry_run=dry_run)
            store.env.reach(CrashPoint.EDIT_WRITTEN)
            try:
                committed = commit_edit(
                    store, made.commit, lambda: discard_messages(store, made.messages), renumber=made.renumber
                )
            except ConflictError as conflict:
                changed = conflict if isinstance(conflict, KeysChangedError) and made.looks_again else None
            else:
                return result_of(store, committed, made.counted)
    if given and not store.env.is_remote:
        discard_messages(store, given)
    raise RetryableError(
        f"table {store.name}: others have changed the same rows, rewritten their files or added rows that this edit is "
        f"about, each of the {ATTEMPTS_MAX} times that it was made; nothing was committed. Choose fewer rows, or stop "
        "the others for so long",
        table=store.name,
    )


def _visible_snapshot(store: TableStore) -> Snapshot | None:
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


def add_rows(store: TableStore, data: object) -> EditResult:
    """Writes and commits rows; once more where what others have committed does not let them in, such as another number
    of buckets, unless the data can be read only once."""
    for _ in range(ATTEMPTS_MAX if is_read_again(data) else 0):
        try:
            return _add_rows(store, data)
        except OutdatedAssignmentError:
            raise
        except ConflictError:
            continue
    return _add_rows(store, data)


def _add_rows(store: TableStore, data: object) -> EditResult:
    with TableSession(store, EDIT_USER, parallelism=2) as session:
        count = session.write(data)
        if not count:
            session.abort()
            return EditResult(rows_inserted=0)
        for _ in range(ATTEMPTS_MAX):
            with suppress(OutdatedAssignmentError):  # the next commit assigns the rows to buckets anew
                return result_of(store, session.commit(), EditResult(rows_inserted=count))
        return result_of(store, session.commit(), EditResult(rows_inserted=count))


def delete_rows(store: TableStore, predicate: Predicate, dry_run: bool) -> EditResult:
    """Deletes the rows for which the filter is true."""
    return edit_rows(store, _of_table(store, predicate, Clause(Side.BY_SOURCE, Action.DELETE)), dry_run=dry_run)


def update_rows(store: TableStore, values: Mapping[str, Any], predicate: Predicate, dry_run: bool) -> EditResult:
    """Updates columns of the rows for which the filter is true."""
    clause = Clause(Side.BY_SOURCE, Action.UPDATE, _checked_values(store, values))
    return edit_rows(store, _of_table(store, predicate, clause), dry_run=dry_run)


def _of_table(store: TableStore, predicate: Predicate, clause: Clause) -> RowEdit:
    return RowEdit((clause,), ScanFilter.bind(store.schema, predicate))


def upsert_given(store: TableStore, data: object) -> EditResult:
    """Updates the columns that the rows have, and adds those whose key is not there: the others keep what is stored,
    whatever the merge engine."""
    return edit_rows(store, replacing(store, _given_rows(store, data)))


def replacing(store: TableStore, rows: pa.Table, filter: ScanFilter | None = None) -> RowEdit:  # noqa: A002 - as in scan
    """The edit that puts rows in the place of those of their keys, and with a filter takes away the others for which it
    is true; raises `InvalidRequestError` for a key that two of the rows have."""
    check_once(store, rows)
    names = [name for name in rows.column_names if name not in store.schema.primary_keys]
    clauses = (
        *([] if filter is None else [Clause(Side.BY_SOURCE, Action.DELETE)]),
        Clause(Side.MATCHED, Action.UPDATE, dict.fromkeys(names, Taken.FROM_SOURCE)),
        Clause(Side.NOT_MATCHED, Action.INSERT, dict.fromkeys(rows.column_names, Taken.FROM_SOURCE)),
    )
    return RowEdit(clauses, filter, rows, tuple(store.schema.primary_keys), is_by_key=True)


def _checked_values(store: TableStore, values: Mapping[str, Any]) -> dict[str, Any]:
    """The values by the names of the columns; raises `InvalidRequestError` for those that cannot be updated."""
    named = checked_columns(store, values)
    schema = arrow_schema(store.schema)
    known = {name.lower() for name in schema.names}
    for name in sorted(columns_of([each for each in named.values() if isinstance(each, Expression)])):
        if name.lower() not in known:
            raise InvalidRequestError(
                f"expr: table {store.name} has no column {name!r}; its columns are {', '.join(schema.names)}",
                table=store.name,
                column=name,
            )
    return named


def _given_rows(store: TableStore, data: object) -> pa.Table:
    """The rows in the types of the table; raises `InvalidRequestError` for a key that is missing, and for a row that
    lacks a column of the others: it is not to become NULL."""
    _refuse_uneven(store, data)
    schema, tables = store.schema, list(input_tables(data, store.schema.fields, table=store.name))
    names = tables[0].column_names
    for name in names:
        if name == ROW_KIND_COLUMN or name not in schema.by_name:
            raise InvalidRequestError(
                f"table {store.name} has no column {name!r} that could be given; its columns are "
                f"{', '.join(schema.column_names)}",
                table=store.name,
                column=name,
            )
    missing = [name for name in schema.primary_keys if name not in names]
    if missing:
        raise InvalidRequestError(
            f"the rows lack {missing[0]!r} of the primary key of {store.name}, by which rows are found",
            table=store.name,
            column=missing[0],
        )
    return conform(pa.concat_tables(tables), [schema.by_name[name] for name in names], table=store.name)


def _refuse_uneven(store: TableStore, data: object) -> None:
    rows = data if isinstance(data, Sequence) else ()
    names = {name: None for row in rows if isinstance(row, Mapping) for name in row}
    for number, row in enumerate(rows):
        lacked = next((name for name in names if isinstance(row, Mapping) and name not in row), None)
        if lacked is not None:
            raise InvalidRequestError(
                f"row {number} lacks column {lacked!r} of table {store.name}, which others of the rows have; upsert "
                "rows apart that have other columns",
                table=store.name,
                column=lacked,
            )
