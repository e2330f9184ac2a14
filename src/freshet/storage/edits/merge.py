"""A merge as people write it: a source, what it is matched on, clauses, and `execute`.

table.merge(source, on=["id"]).when_matched_update_all().when_not_matched_insert_all().execute()
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from freshet.storage.edits.clauses import Action, Clause, Side, clause_of, clause_of_text
from freshet.storage.edits.edit_commit import EditResult
from freshet.storage.edits.edit_plan import RowEdit
from freshet.storage.edits.expression import Expression, check_names
from freshet.storage.edits.row_edits import edit_rows
from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.filters.predicate import field_of
from freshet.storage.io.shown_work import shown_as
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.arguments import answering_callers
from freshet.storage.model.arrow_types import arrow_schema, conform
from freshet.storage.model.data_type import with_nullable
from freshet.storage.model.row_kind import ROW_KIND_COLUMN
from freshet.storage.write.input_rows import input_tables

Condition = str | Expression | None
"""SQL over `source.…` and `target.…`; None is always true."""


@answering_callers
@dataclass(frozen=True, slots=True)
class Merge:
    """A merge that is put together; each clause gives another one. `Table.merge` begins it.

    Values are values, or SQL: `{"total": expr("target.total + source.total")}`. Of the clauses for a row the first
    whose condition is true counts.
    """

    open_store: Callable[[], TableStore]
    source: pa.Table
    on: tuple[str, ...]
    clauses: tuple[Clause, ...] = ()

    def __repr__(self) -> str:
        texts = ", ".join(f"{each.side} {each.action}" for each in self.clauses) or "no clauses yet"
        return f"Merge(on {', '.join(self.on)}: {texts})"

    def when_matched_update_all(self, condition: Condition = None) -> Merge:
        """Rows that match get the values of all columns that the source has, but for those of keys, partitions and
        buckets, which stay."""
        return self._with(Side.MATCHED, Action.UPDATE, None, condition)

    def when_matched_update(self, values: Mapping[str, Any], condition: Condition = None) -> Merge:
        """Rows that match get these values."""
        return self._with(Side.MATCHED, Action.UPDATE, values, condition)

    def when_matched_delete(self, condition: Condition = None) -> Merge:
        """Rows that match are deleted."""
        return self._with(Side.MATCHED, Action.DELETE, None, condition)

    def when_not_matched_insert_all(self, condition: Condition = None) -> Merge:
        """Rows of the source that nothing matches are added, with all columns that both have."""
        return self._with(Side.NOT_MATCHED, Action.INSERT, None, condition)

    def when_not_matched_insert(self, values: Mapping[str, Any], condition: Condition = None) -> Merge:
        """Rows of the source that nothing matches are added with these values, such as `expr("source.id")`."""
        return self._with(Side.NOT_MATCHED, Action.INSERT, values, condition)

    def when_not_matched_by_source_update(self, values: Mapping[str, Any], condition: Condition = None) -> Merge:
        """Rows of the table that the source lacks get these values."""
        return self._with(Side.BY_SOURCE, Action.UPDATE, values, condition)

    def when_not_matched_by_source_delete(self, condition: Condition = None) -> Merge:
        """Rows of the table that the source lacks are deleted."""
        return self._with(Side.BY_SOURCE, Action.DELETE, None, condition)

    def when(self, text: str) -> Merge:
        """A clause as SQL's MERGE says it: `"matched and source.gone then delete"`, `"matched then update"` (all
        columns), `"matched then update set total = source.total"`, `"not matched then insert"`."""
        return replace(self, clauses=(*self.clauses, clause_of_text(text)))

    @shown_as("merging rows")
    def execute(self, *, dry_run: bool = False) -> EditResult:
        """Commits it, in one commit; a dry run counts the rows.

        What others change meanwhile is looked at again, as in `Table.delete`. Raises `InvalidRequestError` for a key
        that two rows of the source have, columns of the key or of partitions that are to be updated, and what the
        table's merge engine would not do; nothing is committed then.
        """
        store = self.open_store()
        if not self.clauses:
            raise InvalidRequestError("the merge has no clause: say what is done, such as when_matched_update_all()")
        on = tuple(field_of(name, arrow_schema(store.schema), "on").name for name in self.on)
        clauses = tuple(self._checked(store, clause) for clause in self.clauses)
        return edit_rows(store, RowEdit(clauses, source=self.source, on=on), dry_run=dry_run)

    def _checked(self, store: TableStore, clause: Clause) -> Clause:
        computed = [each for each in (clause.values or {}).values() if isinstance(each, Expression)]
        check_names(
            [*computed, *([] if clause.condition is None else [clause.condition])],
            {"source": self.source.column_names, "target": store.schema.column_names},
        )
        return clause.with_columns(store, self.source.column_names)

    def _with(self, side: Side, action: Action, values: Mapping[str, Any] | None, condition: Condition) -> Merge:
        return replace(self, clauses=(*self.clauses, clause_of(side, action, values, condition)))


def begin_merge(
    store: TableStore, open_store: Callable[[], TableStore], data: object, on: Sequence[str] | str
) -> Merge:
    """A merge of rows into a table, without clauses."""
    if not on:
        raise InvalidRequestError(f"say which columns rows of {store.name} are matched on, such as on=['id']")
    schema = arrow_schema(store.schema)
    names = [field_of(name, schema, "on").name for name in ([on] if isinstance(on, str) else on)]
    source = _named(store, pa.concat_tables(list(input_tables(data, store.schema.fields, table=store.name))))
    for name in names:
        if name not in source.column_names:
            raise InvalidRequestError(
                f"merge into {store.name}: the source has no column {name!r}; it has {', '.join(source.column_names)}",
                table=store.name,
                column=name,
            )
    for index, name in enumerate(source.column_names):
        if name in store.schema.by_name:
            source = source.set_column(index, name, _fitting_column(store, name, source.column(index)))
    return Merge(open_store, source, tuple(names))


def _named(store: TableStore, source: pa.Table) -> pa.Table:
    """The rows with the names that the table has for their columns; case does not matter."""
    known = {name.lower(): name for name in store.schema.column_names}
    lowered = [name.lower() for name in source.column_names]
    twice = next((name for name in source.column_names if lowered.count(name.lower()) > 1), None)
    if twice is not None or ROW_KIND_COLUMN in source.column_names:
        name = twice or ROW_KIND_COLUMN
        reason = "names it twice, but for case" if twice else "has row kinds, and clauses say what becomes of its rows"
        raise InvalidRequestError(
            f"merge into {store.name}: the source {reason} ({name!r}); leave the column out",
            table=store.name,
            column=name,
        )
    return source.rename_columns([known.get(name.lower(), name) for name in source.column_names])


def _fitting_column(store: TableStore, name: str, column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The column in the type of the table, without loss; it may have NULL."""
    field = store.schema.by_name[name]
    nullable = replace(field, type=with_nullable(field.type, True))
    return conform(pa.table({name: column}), [nullable], table=store.name).column(0)
