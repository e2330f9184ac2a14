"""A small language for rows and shapes of the LSM tree, so that a test shows what it is about.

rows    "1, 7, +U, a | 2, 8, -D, b"      key, sequence number, kind, value; N is NULL, numbers are numbers
shapes  "L0: [1,5] [3,9] | L2: [1,9]"    levels with the key ranges of their files
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from freshet.storage.codec.binary_row import encode_row
from freshet.storage.model.data_file import EMPTY_STATS, DataFileMeta, FileSource
from freshet.storage.model.data_type import DataType, parse_data_type
from freshet.storage.model.row_kind import KIND_TEXTS
from freshet.storage.model.schema import SEQUENCE_NUMBER_COLUMN, VALUE_KIND_COLUMN

INT_KEY: tuple[DataType, ...] = (parse_data_type("INT NOT NULL"),)


def rows(text: str) -> list[tuple[Any, ...]]:
    """(key, sequence number, kind code, value…) for each row written."""
    result = []
    for part in text.split("|"):
        if not part.strip():
            continue
        key, sequence, kind, *values = (piece.strip() for piece in part.split(","))
        result.append((_value(key), int(sequence), KIND_TEXTS.index(kind), *map(_value, values)))
    return result


def kv_table(text: str, columns: Sequence[str] = ("k", "v"), types: Sequence[pa.DataType] | None = None) -> pa.Table:
    """The rows as a key-value table; `columns` names the key and the values."""
    parsed = rows(text)
    kinds = types or [pa.int64()] + [pa.string()] * (len(columns) - 1)
    names = (columns[0], SEQUENCE_NUMBER_COLUMN, VALUE_KIND_COLUMN, *columns[1:])
    arrow_types = (kinds[0], pa.int64(), pa.int8(), *kinds[1:])
    arrays = [pa.array([row[i] for row in parsed], kind) for i, kind in enumerate(arrow_types)]
    table = pa.table(arrays, names=list(names))
    return table.select([SEQUENCE_NUMBER_COLUMN, VALUE_KIND_COLUMN, *columns])


def shape(text: str) -> list[DataFileMeta]:
    """Files with INT keys, in the order written; size is the span of the range, sequence numbers grow."""
    files = []
    for part in text.split("|"):
        head, _, tail = part.partition(":")
        level = int(head.strip().removeprefix("L"))
        for low, high in re.findall(r"\[(-?\d+),\s*(-?\d+)\]", tail):
            files.append(data_file(int(low), int(high), level=level, number=len(files)))
    return files


def data_file(
    low: int, high: int, *, level: int = 0, number: int = 0, size_bytes: int | None = None, delete_rows: int | None = 0
) -> DataFileMeta:
    """A file with the INT key range [low, high]."""
    return DataFileMeta(
        file_name=f"data-{number}.parquet",
        file_size_bytes=high - low if size_bytes is None else size_bytes,
        row_count=high - low + 1,
        min_key=encode_row((low,), INT_KEY),
        max_key=encode_row((high,), INT_KEY),
        key_stats=EMPTY_STATS,
        value_stats=EMPTY_STATS,
        min_sequence_number=number * 1000,
        max_sequence_number=number * 1000 + 999,
        schema_id=0,
        level=level,
        creation_time_ms=0,
        delete_row_count=delete_rows,
        file_source=FileSource.APPEND,
        value_stats_cols=(),
    )


def _value(text: str) -> Any:
    if text == "N":
        return None
    return int(text) if re.fullmatch(r"-?\d+", text) else text
