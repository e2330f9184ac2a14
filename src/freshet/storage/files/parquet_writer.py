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

Source: FORMAT.md §2.3, §7.1.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from freshet.storage.exceptions import InvalidRequestError, StorageError, UnsupportedFeatureError
from freshet.storage.files.opening import open_new_file
from freshet.storage.files.parquet_schema import needs_int96, parquet_schema
from freshet.storage.io.env import CrashPoint, Env
from freshet.storage.model.data_type import DataField
from freshet.storage.model.schema import KEY_COLUMN_PREFIX, SEQUENCE_NUMBER_COLUMN, VALUE_KIND_COLUMN

ROW_GROUP_BYTES: Final = 16 * 1024 * 1024
"""Arrow bytes of a row group unless `file.block-size` says how many."""

_PAGE_BYTES: Final = 64 * 1024
_DICTIONARY_PAGE_BYTES: Final = 128 * 1024
"""A larger dictionary is dropped by the writer: every open reader holds one per column."""
_SAMPLE_ROWS: Final = 512
_REPEATING_SHARE_MAX: Final = 0.8
"""A column is written with a dictionary if at most this share of the values of a sample is distinct: about 1100
values or fewer, where there are no NULLs."""

_CODECS: Final = {
    "zstd": "zstd",
    "snappy": "snappy",
    "gzip": "gzip",
    "lz4": "lz4",
    "none": "none",
    "uncompressed": "none",
}


@dataclass(frozen=True, slots=True)
class ParquetSummary:
    """A finished file."""

    size_bytes: int
    row_count: int


class ParquetWriter:
    """Writes one new file. Nothing names the file until the caller does so after `close`."""

    def __init__(
        self,
        env: Env,
        path: str,
        fields: Sequence[DataField],
        *,
        compression: str = "zstd",
        zstd_level: int = 1,
        delta_columns: Sequence[str] = (),
        row_group_bytes: int | None = None,
    ) -> None:
        """`delta_columns` are integer columns whose neighbours are close (sorted keys), besides the system ones."""
        self._env = env
        self.path = path
        self._fields = tuple(fields)
        self._schema = parquet_schema(fields)
        self._codec = checked_codec(compression)
        self._zstd_level = zstd_level
        self._delta_columns = frozenset(delta_columns)
        self._row_group_bytes = row_group_bytes or ROW_GROUP_BYTES
        self._pending: list[pa.Table] = []
        self._pending_bytes = 0
        self._flushed_bytes = 0
        self.row_count = 0
        self._writer: pq.ParquetWriter | None = None
        self._output = open_new_file(env, path)
        env.reach(CrashPoint.DATA_FILE_OPENED)

    @property
    def written_bytes(self) -> int:
        """Estimated size of the file if it were closed now: bytes on disk and what is pending at the same ratio."""
        return self._output.tell() + int(self._pending_bytes * self.compression_ratio)

    @property
    def compression_ratio(self) -> float:
        """File bytes per Arrow byte so far; 1 before the first row group."""
        return self._output.tell() / self._flushed_bytes if self._flushed_bytes else 1.0

    def write(self, rows: pa.Table) -> None:
        """Appends rows whose columns are those of the file, by name."""
        table = self._in_file_schema(rows)
        self.row_count += table.num_rows
        start = 0
        while start < table.num_rows:
            rest = table.slice(start)
            rest_bytes = rest.nbytes
            room = self._row_group_bytes - self._pending_bytes
            # Slightly larger groups are better than a tiny last one.
            count = rest.num_rows if rest_bytes <= room * 5 // 4 else max(1, rest.num_rows * room // rest_bytes)
            self._pending.append(rest.slice(0, count))
            self._pending_bytes += rest_bytes * count // rest.num_rows
            start += count
            if self._pending_bytes >= self._row_group_bytes * 9 // 10:
                self.flush()

    def close(self) -> ParquetSummary:
        """Writes what is pending and the footer, and makes the file durable."""
        self.flush()
        if self._writer is None:
            self._writer = self._open(self._schema.empty_table())
        with _write_errors(self.path):
            self._writer.close()
        size_bytes = self._output.tell()
        self._output.close()
        self._env.reach(CrashPoint.DATA_FILE_CLOSED)
        return ParquetSummary(size_bytes, self.row_count)

    def abort(self) -> None:
        """Removes the unfinished file; does nothing after `close`."""
        self._pending.clear()
        if self._writer is not None and not self._output.closed:
            self._writer.is_open = False
        self._output.abort()

    def flush(self) -> None:
        """Writes the pending rows as a row group."""
        if not self._pending:
            return
        group = pa.concat_tables(self._pending)
        if self._writer is None:
            self._writer = self._open(group)
        with _write_errors(self.path):
            self._writer.write_table(group, row_group_size=max(1, group.num_rows))
        self._flushed_bytes += self._pending_bytes
        self._pending.clear()
        self._pending_bytes = 0

    def _open(self, first_rows: pa.Table) -> pq.ParquetWriter:
        delta = [name for name in self._schema.names if self._is_delta(name)]
        options: dict[str, Any] = {"compression_level": self._zstd_level} if self._codec == "zstd" else {}
        with _write_errors(self.path):
            return pq.ParquetWriter(
                self._output,
                self._schema,
                version="2.6",
                compression=self._codec,
                use_dictionary=_repeating_columns(
                    first_rows, [name for name in self._schema.names if name not in delta]
                ),
                column_encoding=dict.fromkeys(delta, "DELTA_BINARY_PACKED") or None,
                dictionary_pagesize_limit=_DICTIONARY_PAGE_BYTES,
                data_page_size=_PAGE_BYTES,
                write_batch_size=1024,
                write_page_checksum=True,
                use_deprecated_int96_timestamps=needs_int96(self._fields),
                store_schema=False,
                store_decimal_as_integer=True,
                write_time_adjusted_to_utc=True,
                **options,
            )

    def _is_delta(self, name: str) -> bool:
        if not pa.types.is_integer(self._schema.field(name).type) or name == VALUE_KIND_COLUMN:
            return False
        return name in self._delta_columns or name == SEQUENCE_NUMBER_COLUMN or name.startswith(KEY_COLUMN_PREFIX)

    def _in_file_schema(self, rows: pa.Table) -> pa.Table:
        columns = []
        for field in self._schema:
            column = rows.column(field.name)
            columns.append(column if column.type.equals(field.type) else column.cast(field.type))
        return pa.Table.from_arrays(columns, schema=self._schema)


def checked_codec(compression: str) -> str:
    """pyarrow's name of a codec as `file.compression` spells it."""
    codec = _CODECS.get(compression.lower())
    if codec is None:
        raise UnsupportedFeatureError(
            f"file.compression = {compression!r} cannot be written; use one of {', '.join(sorted(_CODECS))}"
        )
    return codec


def _repeating_columns(rows: pa.Table, candidates: Sequence[str]) -> list[str]:
    """Columns worth a dictionary, judged by evenly spread rows: neighbours of sorted rows resemble each other."""
    step = max(1, rows.num_rows // _SAMPLE_ROWS)
    positions = pa.array(np.arange(0, rows.num_rows, step)[:_SAMPLE_ROWS])
    names = []
    for field in (rows.schema.field(name) for name in candidates):
        if pa.types.is_boolean(field.type) or pa.types.is_nested(field.type):
            continue
        column = rows.column(field.name)
        values = column if step == 1 and rows.num_rows <= _SAMPLE_ROWS else column.take(positions)
        # NULL is in no dictionary: a column half NULL may well have no value twice.
        distinct = pc.count_distinct(values, mode="only_valid").as_py()
        if distinct <= _REPEATING_SHARE_MAX * (len(values) - values.null_count):
            names.append(field.name)
    return names


@contextmanager
def _write_errors(path: str) -> Iterator[None]:
    try:
        yield
    except StorageError:
        raise
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        raise InvalidRequestError(f"these rows cannot be written to {path}: {error}") from error
