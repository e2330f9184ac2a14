"""How long values may be: as their types say, and in partition keys as the name of a folder may be."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from freshet.storage.codec.partition_names import FOLDER_NAME_BYTES_MAX, folder_rule
from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.merge.merged_table import value_text
from freshet.storage.model.display import shortened
from freshet.storage.model.schema import TableSchema
from freshet.storage.model.value_length import limits_length, longer_than_type

VALUE_TEXT_MAX: Final = 60
"""Characters of a value in a message."""


class ValueLimits:
    """The limits of one table's columns."""

    def __init__(self, schema: TableSchema, table: str, partition_default_name: str) -> None:
        self._table = table
        self._limited = [field for field in schema.fields if limits_length(field.type)]
        partition = [field for field in schema.fields if field.name in schema.partition_keys]
        rules = [folder_rule(field, partition_default_name) for field in partition]
        self._folders = [rule for rule in rules if rule is not None]

    def check(self, rows: pa.Table) -> None:
        """Raises `InvalidRequestError` naming column, row and value."""
        for field in self._limited:
            too_long = longer_than_type(rows.column(field.name), field.type)
            if too_long is not None:
                remedy = "shorten it, or make the column longer with ChangeType"
                self._refuse(rows, field.name, too_long, str(field.type), "which is longer", remedy)
        for rule in self._folders:
            too_long = rule.too_long(rows.column(rule.column))
            if too_long is not None:
                what = (
                    f"for which the name of the partition's folder, {rule.column}=…, would have more than "
                    f"{FOLDER_NAME_BYTES_MAX} bytes"
                )
                remedy = "shorten it, or use another column as partition key"
                self._refuse(rows, rule.column, too_long, "a partition key", what, remedy)

    def _refuse(
        self, rows: pa.Table, column: str, offends: npt.NDArray[np.bool_], kind: str, what: str, remedy: str
    ) -> None:
        row = int(np.flatnonzero(offends)[0])
        shown = shortened(value_text(rows.column(column)[row]), VALUE_TEXT_MAX)
        raise InvalidRequestError(
            f"column {column!r} of {self._table} is {kind}, but row {row} of the input holds {shown} there, {what} "
            f"({offends.sum()} rows do); {remedy}",
            column=column,
            table=self._table,
        )
