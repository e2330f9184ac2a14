"""The defaults of a table's columns: each fills the column where a new row does not have it, and nothing else.

| the row | a column with a default is |
|---|---|
| has the column, NULL too | what the row has |
| lacks it, and is +I or +U of a merge engine that takes whole rows | the default |
| lacks it, and its engine merges columns (partial-update, aggregation) | not given, so that what is stored stays |
| lacks it, and is -U or -D | NULL: an image of a row that is there |

A row that lacks a NOT NULL column must have something there: it gets the default, and is refused where the engine
merges columns, since nobody can tell whether the default replaces a value. Key columns are filled in any engine: they
say which row it is.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.model.arrow_types import arrow_type
from freshet.storage.model.data_type import DataField
from freshet.storage.model.row_kind import ROW_KIND_COLUMN, RowKind
from freshet.storage.model.schema import TableSchema

_RETRACTS: Final = frozenset({"-U", "-D", int(RowKind.UPDATE_BEFORE), int(RowKind.DELETE)})


class ColumnDefaults:
    """The defaults of one schema; `takes_whole_rows` says whether its merge engine does."""

    def __init__(self, schema: TableSchema, *, takes_whole_rows: bool) -> None:
        self._values = {field.name: _scalar(field) for field in schema.fields if field.default_value is not None}
        self._fills = frozenset(
            name for name in self._values if takes_whole_rows or name in {*schema.primary_keys, *schema.partition_keys}
        )

    def fills(self, name: str) -> bool:
        """Whether rows that lack this column get a value."""
        return name in self._fills

    def is_left_out(self, name: str) -> bool:
        """Whether the column has a default that no row gets."""
        return name in self._values and name not in self._fills

    def column(self, field: DataField, is_new: npt.NDArray[np.bool_]) -> pa.Array[Any]:
        """The column of rows that lack it; `is_new` says of each whether it is +I or +U."""
        nulls = pa.nulls(len(is_new), arrow_type(field.type))
        if field.name not in self._fills or not is_new.any():
            return nulls
        filled = pa.repeat(self._values[field.name], len(is_new))
        return filled if is_new.all() or not field.type.nullable else pc.if_else(pa.array(is_new), filled, nulls)

    def in_rows(self, rows: Sequence[Mapping[Any, Any]], names: Collection[str]) -> Sequence[Mapping[Any, Any]]:
        """The same rows, of which each has some of these columns, with the defaults of those that it lacks."""
        for name in self._fills & set(names):
            if not all(name in row for row in rows):
                value = self._values[name].as_py()
                rows = [row if name in row or _is_retract(row) else {**row, name: value} for row in rows]
        return rows


def _is_retract(row: Mapping[Any, Any]) -> bool:
    return row.get(ROW_KIND_COLUMN) in _RETRACTS


def _scalar(field: DataField) -> pa.Scalar[Any]:
    try:
        return pa.array([field.default_value], pa.string()).cast(arrow_type(field.type))[0]
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise InvalidRequestError(
            f"the default value {field.default_value!r} of column {field.name!r} is not a valid {field.type}: {error}",
            column=field.name,
        ) from error
