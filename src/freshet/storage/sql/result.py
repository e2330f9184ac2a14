"""What a statement gives: rows, or what it did."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from freshet._frozen import Frozen
from freshet.storage.edits.edit_commit import EditResult
from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.model.shown import note_html
from freshet.storage.scan.frame_outputs import FrameOutputs
from freshet.storage.scan.preview import COLUMNS, first_rows

if TYPE_CHECKING:
    from freshet.storage.table import Table


class Rows(Protocol):
    """Rows that are made when they are asked for, anew each time, of the snapshots that were there at first."""

    @property
    def schema(self) -> pa.Schema:
        """Their columns."""

    @property
    def given_names(self) -> Sequence[str]:
        """Names of the columns as a query has them, maybe twice, where `schema` may have made others of them."""

    def batches(self) -> Iterator[pa.RecordBatch]:
        """All of them."""


class GivenRows(Frozen):
    """Rows that are there already."""

    table: pa.Table

    @property
    def schema(self) -> pa.Schema:
        """Their columns."""
        schema: pa.Schema = self.table.schema
        return schema

    @property
    def given_names(self) -> Sequence[str]:
        """Names of the columns."""
        names: list[str] = self.table.column_names
        return names

    def batches(self) -> Iterator[pa.RecordBatch]:
        """All of them."""
        yield from self.table.to_batches()


_NOTHING = GivenRows(pa.table({}))


@dataclass(frozen=True, repr=False)
class SqlResult(FrameOutputs):
    """The result of one statement.

    A SELECT is computed when its rows are asked for, and anew each time, of the snapshots that there were when the
    statement was given; `to_batches` holds no more of them in memory than DuckDB needs. A statement that changes rows
    has an `edit`. Other statements have a `message`, and maybe rows.
    """

    rows: Rows = field(default=_NOTHING)
    edit: EditResult | None = None
    message: str = ""
    table: str = ""
    """The table that an edit changed."""

    @property
    def _place(self) -> str:  # type: ignore[override]
        return "the result"

    @property
    def schema(self) -> pa.Schema:
        """Columns of the rows; none of a statement that gives no rows."""
        return self.rows.schema

    @property
    def has_rows(self) -> bool:
        """Whether the statement gives rows, though there may be none."""
        return len(self.schema) > 0

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """The rows, batch by batch."""
        return self.rows.batches()

    def to_arrow(self) -> pa.Table:
        """All rows."""
        if isinstance(self.rows, GivenRows):
            return self.rows.table
        return super().to_arrow()

    def to_spark(self) -> Any:
        """The DataFrame of a query that was given to a Spark session; `InvalidRequestError` for other results."""
        frame = getattr(self.rows, "frame", None)
        if frame is None:
            raise InvalidRequestError("the result is not of Spark: it is the DataFrame of a SELECT with spark=session")
        return frame

    def __repr__(self) -> str:
        if self.edit is not None:
            return f"SqlResult({self.edit!r})"
        if not self.has_rows:
            return f"SqlResult({self.message or 'done'})"
        names = ", ".join(self.schema.names)
        if isinstance(self.rows, GivenRows):
            count = self.rows.table.num_rows
            return f"SqlResult({count:,} row{'' if count == 1 else 's'} of {names})"
        return f"SqlResult(rows of {names}: to_arrow(), to_pandas(), to_batches())"

    def _html(self) -> str:
        """What was done, or the first rows: a query is computed for them, but one that Spark has."""
        if self.edit is not None:
            return self.edit._repr_html_()
        if not self.has_rows:
            return note_html(self.message or "done")
        if getattr(self.rows, "frame", None) is not None:
            return note_html(
                f"rows of {', '.join(self.schema.names)}: .to_arrow() reads them, .to_spark() is the frame"
            )
        schema = pa.schema(list(self.schema)[:COLUMNS])
        return first_rows(self.to_batches(), None, schema, None).html(len(self.schema))


def given(columns: Mapping[str, Sequence[object]], types: Mapping[str, pa.DataType] | None = None) -> SqlResult:
    """A result with these rows, of texts unless `types` says otherwise."""
    arrays = {name: pa.array(values, (types or {}).get(name, pa.string())) for name, values in columns.items()}
    return SqlResult(GivenRows(pa.table(arrays)))


def said(message: str) -> SqlResult:
    """A result without rows."""
    return SqlResult(message=message)


def edited(table: Table, result: EditResult) -> SqlResult:
    """The result of a statement that changes the rows of a table."""
    return SqlResult(edit=result, table=table.name)
