"""ORC files read: stripes are the chunks, and a stripe is decoded whole.

pyarrow reads a stripe by columns, but gives no batches within one: an open reader holds the columns of a stripe (16 MB
of rows in files of ours, 64 MB of bytes in those of Apache Paimon). At a store where requests take their time a small
file is read whole; of a large one the footer, and then each stripe by one request, the next one ahead.

Source: FORMAT.md §2.3, §7.1.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any

import cramjam
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.orc

from freshet.storage.codec.stats import ColumnStats
from freshet.storage.exceptions import CorruptDataError
from freshet.storage.files.file_format import READ_BATCH_ROWS
from freshet.storage.files.opening import open_file, opened_input
from freshet.storage.files.orc.footer import CHAR_KIND, footer_bytes, parse_footer
from freshet.storage.files.orc.stripe_file import StripeFile
from freshet.storage.files.orc.stripe_stats import check_readable, stripe_stats
from freshet.storage.files.read_errors import read_errors
from freshet.storage.files.stored_columns import StoredColumns
from freshet.storage.io.env import Env
from freshet.storage.model.arrow_types import arrow_schema
from freshet.storage.model.data_type import DataField
from freshet.storage.model.nested_arrays import converted

_TAIL_BYTES = 16 * 1024
_DECODED_PER_BYTE = 4
"""Rows in memory take about this much more than in their compressed stripe."""


class OrcReader:
    """One file open for reading."""

    def __init__(
        self, env: Env, path: str, *, size_bytes: int | None = None, part: tuple[int, int] | None = None
    ) -> None:
        self.path = path
        self._stripes: StripeFile | None = None
        if env.reads is not None and part is None and size_bytes is not None:
            opening = open_file(env, path, size_bytes, footer_bytes)
            self._input: Any = pa.BufferReader(opening.data)
            tail = opening.data
            if not opening.is_whole:
                self._stripes = StripeFile(env, path, size_bytes, opening)
                self._input = pa.PythonFile(self._stripes, mode="r")
        else:
            self._input = opened_input(env, path, size_bytes, part)
            tail = self._end(_TAIL_BYTES)
        try:
            with _read_errors(path):
                length = footer_bytes(tail)
                if length is None:
                    raise ValueError("it does not end as an ORC file does")
                if length > tail.size:
                    tail = self._end(length)
                self._footer = parse_footer(tail.slice(tail.size - length))
                self._file = pyarrow.orc.ORCFile(self._input)
                self._names = list(self._footer.columns)
        except BaseException:
            self._input.close()
            raise

    def _end(self, length: int) -> pa.Buffer:
        with _read_errors(self.path):
            start = max(0, self._input.size() - length)
            self._input.seek(start)
            return self._input.read_buffer(self._input.size() - start)

    def __enter__(self) -> OrcReader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the file."""
        self._input.close()

    @property
    def chunk_rows(self) -> Sequence[int]:
        """Rows of each stripe."""
        return [stripe.row_count for stripe in self._footer.stripes]

    @property
    def column_names(self) -> frozenset[str]:
        """Top-level columns that the file has."""
        return frozenset(self._names)

    def chunk_bytes(self, chunk: int) -> int:
        """An estimate of what the columns of the stripe take."""
        return self._footer.stripes[chunk].length * _DECODED_PER_BYTE

    def chunk_stats(self, chunk: int, source: DataField, wanted: DataField) -> ColumnStats:
        """Bounds by the statistics of the stripe."""
        with _read_errors(self.path):
            return stripe_stats(self._footer, chunk, source.name, source.type, wanted.type)

    def batches(
        self,
        fields: Sequence[DataField],
        *,
        chunks: Sequence[int] | None = None,
        batch_rows: int = READ_BATCH_ROWS,
        use_threads: bool = False,
    ) -> Iterator[pa.RecordBatch]:
        """Rows in file order; a stripe is held."""
        wanted = self._all() if chunks is None else list(chunks)
        for chunk in wanted:
            yield from self.table(fields, chunks=[chunk]).to_batches(batch_rows)

    def table(
        self, fields: Sequence[DataField], *, chunks: Sequence[int] | None = None, use_threads: bool = True
    ) -> pa.Table:
        """All rows of the stripes at once."""
        wanted = self._all() if chunks is None else list(chunks)
        present = [field.name for field in fields if field.name in self.column_names]
        columns = StoredColumns(fields, self.path)
        if not present:
            return columns.table({}, sum(self._footer.stripes[chunk].row_count for chunk in wanted))
        tables = []
        for chunk in wanted:
            with _read_errors(self.path):
                stored = self._stripe(chunk, present)
                tables.append(columns.table(stored, self._footer.stripes[chunk].row_count))
        return pa.concat_tables(tables) if tables else arrow_schema(fields).empty_table()

    def _stripe(self, chunk: int, names: Sequence[str]) -> dict[str, pa.ChunkedArray[Any]]:
        for name in names:
            check_readable(self._footer, chunk, name, self.path)
        # A dot in a name would be taken for a path into a struct.
        some = None if any("." in name for name in names) else list(names)
        if self._stripes is not None:
            self._stripes.ahead(self._footer.stripes, chunk)
        batch = self._file.read_stripe(chunk, columns=some)
        count = self._footer.stripes[chunk].row_count
        if batch.num_rows != count:
            raise CorruptDataError(
                f"stripe {chunk} has {batch.num_rows} rows, the footer says {count}: the file is damaged; restore it "
                "from a copy",
                path=self.path,
            )
        batch.validate(full=True)  # streams have no checksums: of damaged ones, texts would be no UTF-8
        found = dict(zip(batch.schema.names, batch.columns, strict=True))
        return {name: pa.chunked_array([self._unpadded(found[name], self._footer.columns[name])]) for name in names}

    def _unpadded(self, array: pa.Array[Any], node: int) -> pa.Array[Any]:
        """CHAR is stored with blanks up to its length; they are no part of the value."""
        one = self._footer.types[node]
        if one.kind == CHAR_KIND:
            return pc.utf8_rtrim(array, characters=" ")
        if not any(self._footer.types[leaf].kind == CHAR_KIND for leaf in self._footer.leaves(node)):
            return array
        children = iter(one.children)
        return converted(array, array.type, lambda child, _: self._unpadded(child, next(children)))

    def _all(self) -> list[int]:
        return list(range(len(self._footer.stripes)))


def _read_errors(path: str) -> AbstractContextManager[None]:
    return read_errors(path, "ORC", cramjam.DecompressionError, zlib.error)
