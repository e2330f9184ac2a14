"""ORC files written by pyarrow: each chunk is a stripe.

A stripe ends when a batch of rows has been added and `stripe_size` is reached, so a stripe size of one byte and batches
as large as a chunk let this module decide; chunks whose encoded rows still fit into the buffers of their streams share
a stripe. The level of zstd cannot be chosen. Source: FORMAT.md §2.3.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor
from typing import Any, Final

import pyarrow as pa
import pyarrow.orc

from freshet.storage.exceptions import UnsupportedFeatureError
from freshet.storage.files.file_format import CHUNK_BYTES, FileSettings, FileWriter
from freshet.storage.files.orc.schema import check_timestamps, orc_schema
from freshet.storage.io.env import Env
from freshet.storage.model.data_type import DataField
from freshet.storage.model.nested_arrays import Nested

_CODECS: Final = {"zstd": "zstd", "snappy": "snappy", "zlib": "zlib", "lz4": "lz4", "none": "uncompressed"}
_DICTIONARY_SHARE_MAX: Final = 0.8
"""As Paimon's writer has it: a column of more distinct values than this share gets no dictionary."""
_STRIPE_ROWS_MIN: Final = 1024


class OrcWriter(FileWriter):
    """Stripes are the chunks."""

    def __init__(
        self, env: Env, path: str, fields: Sequence[DataField], settings: FileSettings, executor: Executor | None = None
    ) -> None:
        codec = _CODECS.get(settings.compression.lower())
        if codec is None:
            raise UnsupportedFeatureError(
                f"file.compression = {settings.compression!r} is none of ORC files; use one of "
                f"{', '.join(sorted(_CODECS))}"
            )
        self._codec = codec
        self._writer: Any = None
        self._stripe_rows = 0
        super().__init__(env, path, orc_schema(fields), settings.chunk_bytes or CHUNK_BYTES)

    def _write_chunk(self, rows: pa.Table) -> None:
        for name, column in zip(rows.column_names, rows.columns, strict=True):
            check_timestamps(name, column)
        if self._writer is None:
            # The first chunk says how many rows make one; later ones may have somewhat more.
            self._stripe_rows = max(_STRIPE_ROWS_MIN, rows.num_rows * 5 // 4)
            self._writer = self._opened()
        whole = rows.combine_chunks()
        columns = [pa.chunked_array(map(_by_itself, column.chunks), column.type) for column in whole.columns]
        self._writer.write(pa.Table.from_arrays(columns, schema=rows.schema))

    def _finish(self) -> None:
        if self._writer is None:
            self._stripe_rows = _STRIPE_ROWS_MIN
            self._writer = self._opened()
            self._writer.write(self._schema.empty_table())
        self._writer.close()

    def _let_go(self) -> None:
        if self._writer is not None:
            self._writer.is_open = False

    def _opened(self) -> Any:
        return pyarrow.orc.ORCWriter(
            self._output,
            batch_size=self._stripe_rows,
            stripe_size=1,
            compression=self._codec,
            dictionary_key_size_threshold=_DICTIONARY_SHARE_MAX,
        )


def _by_itself(array: pa.Array[Any]) -> pa.Array[Any]:
    """The same values as an array that is no slice, with NULL under each NULL, at every depth.

    pyarrow 26 writes other values else: of a slice of structs the first ones of what it was cut from, and behind a NULL
    struct in a struct, list or map, whose fields hold some value there, that value in the place of the next.
    """
    if not pa.types.is_nested(array.type):
        return pa.concat_arrays([array])
    nested = Nested.of(array)
    return nested.over([_by_itself(child) for child in nested.children], array.type)
