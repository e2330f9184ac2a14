"""The Arrow schema from which pyarrow makes the columns of a Parquet file. Source: FORMAT.md §2.3, §7.1."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import pyarrow as pa

from freshet.storage.files.field_ids import NumberedFields
from freshet.storage.model.data_type import DataField

_NUMBERED: Final = NumberedFields(b"PARQUET:field_id")


def parquet_schema(fields: Iterable[DataField]) -> pa.Schema:
    """Columns with their ids; NOT NULL columns are `required`."""
    return _NUMBERED.schema(fields)
