"""Columns for fields that the records of a pipeline have and its one table does not (`on_unknown_field: add`).

The batch that meets them commits nothing. The columns are added, and the query is planned anew with the columns that
the table has by then (`table_setup.with_table`), which runs the batch once more.
"""

from __future__ import annotations

from collections.abc import Iterable

from freshet.pipeline.batch.table_commit import TableCommit
from freshet.pipeline.decode.described_table import NEW_COLUMNS_MAX, DescribedTable
from freshet.pipeline.decode.outcomes import SeenSchema
from freshet.pipeline.errors.error_kind import ErrorKind
from freshet.pipeline.exceptions import InvalidRequestError, PipelineFailedError
from freshet.storage import exceptions as storage
from freshet.storage.table import AddColumn


class NewColumnsError(PipelineFailedError):
    """The table has columns that the query was not planned for: nothing of the batch was committed, and the query has
    to be started again. `event` says which they are."""

    kind = ErrorKind.RETRYABLE

    def __init__(self, event: str) -> None:
        super().__init__(f"{event}; start the pipeline again, it goes on with this batch")
        self.event = event


def add_columns(commit: TableCommit, seen: Iterable[SeenSchema]) -> NewColumnsError:
    """Adds the columns of these fields that the table does not have yet; gives what is to be raised.

    Raises `InvalidRequestError` where there are more than are taken for a change of the source.
    """
    whole: DescribedTable | None = None
    for each in seen:
        described = DescribedTable.of(each.described)
        whole = described if whole is None else whole.joined(described)
    assert whole is not None
    while True:
        commit.follow_schema(is_planned=False)
        table = commit.table
        columns, _ = whole.as_columns(table.schema.by_name)  # the others stay counted
        added = {name: text for name, text in columns.items() if name not in table.schema.by_name}
        if len(added) > NEW_COLUMNS_MAX:
            raise InvalidRequestError(
                f"the records bring {len(added)} new fields at once (first record: {whole.where}); more than "
                f"{NEW_COLUMNS_MAX} are not taken for a change of the source. Nothing was committed. If they are "
                f"right, add the columns to table {table.name} with freshet alter and start again"
            )
        try:
            if added:
                table.alter(*(AddColumn(name, text) for name, text in added.items()))
        except storage.InvalidRequestError:
            if table.engine.latest_schema_id() == table.schema.id:
                raise
            continue  # another program has changed the table meanwhile
        if added:
            names = ", ".join(f"{name} {text}" for name, text in added.items())
            return NewColumnsError(f"table {table.name} follows its source: new {names} ({whole.where})")
        names = ", ".join(f"{name} {table.schema.by_name[name].type}" for name in columns)
        return NewColumnsError(f"table {table.name} has {names} by now, which another program added ({whole.where})")
