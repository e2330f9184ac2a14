"""Which values make no partition: the name of its folder, `column=value`, has 255 bytes at most, on any file system.

Characters that are escaped take three bytes of it. Only texts can be that long: the names of columns are checked when
the table is created (`check_partition_columns`). The rule is of writers: object stores take longer names, and a table
that has such partitions is read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from freshet._frozen import Frozen
from freshet.storage.codec.partition_path import folder_name, partition_text
from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.model.data_type import TEXT_ROOTS, DataField, ScalarType
from freshet.storage.paths import escape_path_name

FOLDER_NAME_BYTES_MAX: Final = 255
_ESCAPED_BYTES: Final = 3
_CHARACTER_BYTES_MAX: Final = 4
_NO_TEXT_BYTES_MAX: Final = 64
"""The longest that a number, a date or a time becomes."""


class FolderRule(Frozen):
    """The rule of one partition column of texts."""

    column: str
    type: ScalarType
    default_name: str

    def bytes_of(self, value: str) -> int:
        """The length of the name of the folder."""
        return len(folder_name(self.column, partition_text(value, self.type, self.default_name)).encode())

    def too_long(self, values: pa.Array[Any] | pa.ChunkedArray[Any]) -> npt.NDArray[np.bool_] | None:
        """True for the rows whose folder's name would be too long; None where there is no such row. `values` are texts.

        Only distinct values that may be too long, if all they have were escaped, are looked at one by one.
        """
        lengths = pc.binary_length(values)
        longest = pc.max(lengths).as_py()
        short = (FOLDER_NAME_BYTES_MAX - _head_bytes(self.column)) // _ESCAPED_BYTES
        if longest is None or longest <= short:
            return None
        distinct = values.filter(pc.greater(lengths, short)).unique()
        found = [value for value in distinct.to_pylist() if self.bytes_of(value) > FOLDER_NAME_BYTES_MAX]
        if not found:
            return None
        return np.asarray(pc.is_in(values, value_set=pa.array(found, values.type)))


def folder_rule(field: DataField, default_name: str) -> FolderRule | None:
    """The rule of a partition column; None where no value can break it."""
    kind = field.type
    if not isinstance(kind, ScalarType) or kind.root not in TEXT_ROOTS:
        return None
    longest = _head_bytes(field.name) + (kind.length or 0) * _CHARACTER_BYTES_MAX
    return FolderRule(field.name, kind, default_name) if longest > FOLDER_NAME_BYTES_MAX else None


def check_partition_columns(names: Sequence[str], default_name: str) -> None:
    """Refuses columns of new tables whose names leave no room for a value."""
    wanted = max(_NO_TEXT_BYTES_MAX, len(escape_path_name(default_name).encode()))
    for name in names:
        if _head_bytes(name) + wanted > FOLDER_NAME_BYTES_MAX:
            raise InvalidRequestError(
                f"partition column {name!r}: names of folders, column=value, have {FOLDER_NAME_BYTES_MAX} bytes "
                f"at most, and a value needs {wanted}; shorten the column's name, or the option partition.default-name",
                column=name,
            )


def _head_bytes(column: str) -> int:
    return len(folder_name(column, "").encode())
