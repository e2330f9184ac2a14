"""What files cannot hold: texts that are no UTF-8, values longer than their types, and partition keys whose folders
would have too long a name."""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa

from freshet.storage.codec.partition_names import FOLDER_NAME_BYTES_MAX, folder_rule
from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.merge.merged_table import value_text
from freshet.storage.model.display import shortened
from freshet.storage.model.schema import TableSchema
from freshet.storage.model.value_length import RowMask, holds_text, limits_length, longer_than_type, no_utf8

VALUE_TEXT_MAX: Final = 60
"""Characters of a value in a message."""
_NO_TEXT: Final = "bytes there that are no text in UTF-8"


class ValueLimits:
    """The limits of one table's columns."""

    def __init__(self, schema: TableSchema, table: str, partition_default_name: str) -> None:
        self._table = table
        self._checked = [each for each in schema.fields if holds_text(each.type) or limits_length(each.type)]
        partition = [field for field in schema.fields if field.name in schema.partition_keys]
        rules = [folder_rule(field, partition_default_name) for field in partition]
        self._folders = [rule for rule in rules if rule is not None]

    def check(self, rows: pa.Table) -> None:
        """Raises `InvalidRequestError` naming column, row and value."""
        for field in self._checked:
            column = rows.column(field.name)
            if (no_text := no_utf8(column, field.type)) is not None:
                remedy = "clean them, or make the column BYTES"
                raise self._error(field.name, no_text, str(field.type), _NO_TEXT, remedy)
            if (too_long := longer_than_type(column, field.type)) is not None:
                held = f"{_shown(column, too_long)} there, which is longer"
                remedy = "shorten it, or make the column longer with ChangeType"
                raise self._error(field.name, too_long, str(field.type), held, remedy)
        for rule in self._folders:
            column = rows.column(rule.column)
            if (too_long := rule.too_long(column)) is not None:
                held = (
                    f"{_shown(column, too_long)} there, for which the name of the partition's folder, {rule.column}=…, "
                    f"would have more than {FOLDER_NAME_BYTES_MAX} bytes"
                )
                remedy = "shorten it, or use another column as partition key"
                raise self._error(rule.column, too_long, "a partition key", held, remedy)

    def _error(self, column: str, offends: RowMask, kind: str, held: str, remedy: str) -> InvalidRequestError:
        return InvalidRequestError(
            f"column {column!r} of {self._table} is {kind}, but row {offends.argmax()} of the input holds {held} "
            f"({offends.sum()} rows do); {remedy}",
            column=column,
            table=self._table,
        )


def _shown(column: pa.ChunkedArray[Any], offends: RowMask) -> str:
    return shortened(value_text(column[int(offends.argmax())]), VALUE_TEXT_MAX)
