"""The edits of rows as a table offers them, for tables with a primary key and without: appends, upserts, deletes and
updates."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from freshet.storage.edits.append_edit import edit_files
from freshet.storage.edits.delete_rows import DeletePlan
from freshet.storage.edits.edit_commit import EDIT_USER
from freshet.storage.edits.edit_result import EditResult, result_of
from freshet.storage.edits.expression import Expression, columns_of
from freshet.storage.edits.filter_plans import FilterPlan
from freshet.storage.edits.given_columns import GivenColumnsPlan, given_rows
from freshet.storage.edits.keyed_edit import ATTEMPTS_MAX, edit_rows
from freshet.storage.edits.row_rules import check_deletes, update_rules
from freshet.storage.edits.update_rows import UpdatePlan
from freshet.storage.edits.updated_columns import checked_columns
from freshet.storage.exceptions import ConflictError, InvalidRequestError, OutdatedAssignmentError
from freshet.storage.filters.predicate import Predicate
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.arrow_types import arrow_schema
from freshet.storage.scan.pruning import ScanFilter
from freshet.storage.table_session import TableSession
from freshet.storage.write.input_rows import is_read_again


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
                return result_of(store, session.commit(), rows_inserted=count)
        return result_of(store, session.commit(), rows_inserted=count)


def delete_rows(store: TableStore, predicate: Predicate, dry_run: bool) -> EditResult:
    """Deletes the rows for which the filter is true."""
    bound = ScanFilter(store.schema, predicate.bind(arrow_schema(store.schema)))
    if not store.schema.has_primary_key:
        result = edit_files(store, FilterPlan(store, bound), dry_run=dry_run)
        return replace(result, rows_updated=None, rows_inserted=None)
    check_deletes(store)
    return edit_rows(store, DeletePlan(predicate), dry_run=dry_run)


def update_rows(store: TableStore, values: Mapping[str, Any], predicate: Predicate, dry_run: bool) -> EditResult:
    """Updates columns of the rows for which the filter is true."""
    named = checked_values(store, values)
    bound = ScanFilter(store.schema, predicate.bind(arrow_schema(store.schema)))
    if not store.schema.has_primary_key:
        result = edit_files(store, FilterPlan(store, bound, named), dry_run=dry_run)
        return replace(result, rows_deleted=None, rows_inserted=None)
    return edit_rows(store, UpdatePlan(predicate, named, update_rules(store, named)), dry_run=dry_run)


def upsert_given(store: TableStore, data: object) -> EditResult:
    """Updates the columns that the rows have, and adds those whose key is not there."""
    rows = given_rows(store, data)
    names = [name for name in rows.column_names if name not in store.schema.primary_keys]
    return edit_rows(store, GivenColumnsPlan(rows, update_rules(store, names)))


def checked_values(store: TableStore, values: Mapping[str, Any]) -> dict[str, Any]:
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
