"""Parquet files written: the settings of pyarrow's writer.

What a file looks like, and why; measured on two cores, W1 = 100 k rows of 150 bytes, W2 = 50 k rows of 21 columns:

| setting | reason |
|---|---|
| dictionary only where a sample repeats itself | else W1 takes 51 ms, not 30, W2 82, not 26; 8 to 23 % larger |
| delta encoding of keys and sequence numbers | sorted integers take a quarter of the bytes, for nothing |
| data pages of 64 KB | a reader holds a page per column: 50 open files take 165 MB, with 1 MB pages 235 MB |
| row groups of 16 MB of Arrow data | what the writer gathers and pruning can skip; smaller ones write 5 % slower |
| checksums of pages, verified when read | a flipped byte of data is found; 50 MB: 0.16 s to write, with or without |
| statistics in the footer (5 %), no page index | row groups are pruned, pages are not |
| decimals up to 18 digits as integers, UTC flag on TIME | the file is what Paimon writes |

A timestamp finer than microseconds makes all timestamps of its file INT96: readers before 2.0 take INT64 nanoseconds
wrongly, and all take INT96 for every precision.

Source: FORMAT.md §2.3, §7.1.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import Executor
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from freshet.storage.files.file_columns import NumberedFields, has_nano_timestamps
from freshet.storage.files.file_format import CHUNK_BYTES, FileSettings, FileWriter, write_errors
from freshet.storage.io.env import Env
from freshet.storage.model.data_type import DataField
from freshet.storage.model.nested_arrays import has_not_null_parts, with_hidden_values
from freshet.storage.model.schema import KEY_COLUMN_PREFIX, SEQUENCE_NUMBER_COLUMN, VALUE_KIND_COLUMN
from freshet.storage.schema.data_files import checked_codec

ROW_GROUP_BYTES: Final = CHUNK_BYTES
"""Arrow bytes of a row group unless `file.block-size` says how many."""

_PAGE_BYTES: Final = 64 * 1024
_DICTIONARY_PAGE_BYTES: Final = 128 * 1024
"""A larger dictionary is dropped by the writer: every open reader holds one per column."""
_SAMPLE_ROWS: Final = 512
_REPEATING_SHARE_MAX: Final = 0.8
"""A column is written with a dictionary if at most this share of the values of a sample is distinct: about 1100
values or fewer, where there are no NULLs."""
_WITHOUT_NULL: Final = pc.CountOptions(mode="only_valid")

_SETTINGS: Final = FileSettings()


class ParquetWriter(FileWriter):
    """Row groups are the chunks."""

    def __init__(
        self,
        env: Env,
        path: str,
        fields: Sequence[DataField],
        settings: FileSettings = _SETTINGS,
        executor: Executor | None = None,
    ) -> None:
        self._fields = tuple(fields)
        codec = checked_codec("parquet", settings.compression)
        self._codec = "none" if codec == "uncompressed" else codec
        self._zstd_level = settings.zstd_level
        self._delta_columns = frozenset(settings.delta_columns)
        self._writer: pq.ParquetWriter | None = None
        schema = parquet_schema(fields)
        self._nested_not_null = [field.name for field in schema if has_not_null_parts(field.type)]
        super().__init__(env, path, schema, settings.chunk_bytes or ROW_GROUP_BYTES, executor)

    def _write_chunk(self, rows: pa.Table) -> None:
        for name in self._nested_not_null:
            column = rows.column(name)
            chunks = [with_hidden_values(chunk, column.type) for chunk in column.chunks]
            rows = rows.set_column(
                rows.column_names.index(name), rows.schema.field(name), pa.chunked_array(chunks, column.type)
            )
        if self._writer is None:
            candidates = [name for name in self._schema.names if not self._is_delta(name)]
            self._writer = self._open(_repeating_columns(rows, candidates))
        self._writer.write_table(rows, row_group_size=max(1, rows.num_rows))

    def _finish(self) -> None:
        if self._writer is None:
            self._writer = self._open([])
        self._writer.close()

    def _let_go(self) -> None:
        if self._writer is not None:
            self._writer.is_open = False

    def _open(self, repeating: Sequence[str]) -> pq.ParquetWriter:
        delta = [name for name in self._schema.names if self._is_delta(name)]
        options: dict[str, Any] = {"compression_level": self._zstd_level} if self._codec == "zstd" else {}
        with write_errors(self.path):
            return pq.ParquetWriter(
                self._output,
                self._schema,
                version="2.6",
                compression=self._codec,
                use_dictionary=list(repeating),
                column_encoding=dict.fromkeys(delta, "DELTA_BINARY_PACKED") or None,
                dictionary_pagesize_limit=_DICTIONARY_PAGE_BYTES,
                data_page_size=_PAGE_BYTES,
                write_batch_size=1024,
                write_page_checksum=True,
                use_deprecated_int96_timestamps=has_nano_timestamps(self._fields),
                store_schema=False,
                store_decimal_as_integer=True,
                write_time_adjusted_to_utc=True,
                **options,
            )

    def _is_delta(self, name: str) -> bool:
        if not pa.types.is_integer(self._schema.field(name).type) or name == VALUE_KIND_COLUMN:
            return False
        return name in self._delta_columns or name == SEQUENCE_NUMBER_COLUMN or name.startswith(KEY_COLUMN_PREFIX)


def _repeating_columns(rows: pa.Table, candidates: Sequence[str]) -> list[str]:
    """Columns worth a dictionary, judged by evenly spread rows: neighbours of sorted rows resemble each other.

    Small files are many where tables are: all columns are sampled at once, and a sample is one array. Eleven columns
    of 2500 rows take 0.90 ms of processor time like this, and 1.06 ms where each is sampled on its own (in turns, 150
    calls of each, other programs beside).
    """
    fields = [rows.schema.field(name) for name in candidates]
    names = [each.name for each in fields if not (pa.types.is_boolean(each.type) or pa.types.is_nested(each.type))]
    if not (names and rows.num_rows):
        return names
    sample = rows.select(names)
    if rows.num_rows > _SAMPLE_ROWS:
        step = rows.num_rows // _SAMPLE_ROWS
        sample = sample.take(pa.array(np.arange(0, rows.num_rows, step)[:_SAMPLE_ROWS]))
    repeating = []
    for name, values in zip(names, sample.combine_chunks().columns, strict=True):
        # NULL is in no dictionary: a column half NULL may well have no value twice.
        distinct = pc.call_function("count_distinct", [values], _WITHOUT_NULL).as_py()
        if distinct <= _REPEATING_SHARE_MAX * (len(values) - values.null_count):
            repeating.append(name)
    return repeating


_NUMBERED: Final = NumberedFields(b"PARQUET:field_id")


def parquet_schema(fields: Iterable[DataField]) -> pa.Schema:
    """Columns with their ids; NOT NULL columns are `required`."""
    return _NUMBERED.schema(fields)
