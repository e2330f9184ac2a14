"""Accepted rows that are kept for later.

    of a commit, until it is committed      where rows move between partitions
    of partitions without buckets           until all rows of the commit are known (`bucket=-2`)

What is written of a row that moves follows from where its key is. Where another writer has committed meanwhile, the
files of the commit cannot say any more what they were made of, so the rows are routed again from here.

They are on a scratch disk: rows in memory may be changed by whoever has given them. Used by one thread.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
import pyarrow as pa

from freshet.storage.io.env import Env
from freshet.storage.io.spill_file import Scratch, SpillFile
from freshet.storage.model.schema import VALUE_KIND_COLUMN
from freshet.storage.write.records import AcceptedRows

_KIND_FIELD: Final = pa.field(VALUE_KIND_COLUMN, pa.int8(), nullable=False)


class KeptInput:
    """Accepted rows, in order; `clear` it whatever happens."""

    def __init__(self, env: Env, memory_bytes: int = 0) -> None:
        """Up to `memory_bytes` are kept in memory."""
        self._scratch = Scratch(env)
        self._memory_bytes = memory_bytes
        self._files: list[SpillFile] = []
        self._chunks: list[pa.Table] = []
        self._chunk_bytes = 0

    def add(self, accepted: AcceptedRows) -> None:
        """Keeps rows."""
        kinds = np.zeros(accepted.rows.num_rows, np.int8) if accepted.kinds is None else accepted.kinds
        self._chunks.append(accepted.rows.append_column(_KIND_FIELD, pa.array(kinds)))
        self._chunk_bytes += self._chunks[-1].nbytes
        if self._chunk_bytes > self._memory_bytes:
            self._files.append(SpillFile(self._scratch.new_path(), self._chunks[0].schema, self._chunks))
            self._chunks, self._chunk_bytes = [], 0

    def read(self) -> Iterator[AcceptedRows]:
        """All of them."""
        for file in list(self._files):
            yield from map(_accepted, file.read())
        yield from map(_accepted, list(self._chunks))

    def take(self) -> Iterator[AcceptedRows]:
        """All of them, which are forgotten as they are given."""
        files, self._files = self._files, []
        for file in files:
            yield from map(_accepted, file.read())
            file.remove()
        chunks, self._chunks, self._chunk_bytes = self._chunks, [], 0
        yield from map(_accepted, chunks)

    def clear(self) -> None:
        """Forgets them."""
        self._files, self._chunks, self._chunk_bytes = [], [], 0
        self._scratch.release()


def _accepted(stored: pa.Table | pa.RecordBatch) -> AcceptedRows:
    rows = pa.Table.from_batches([stored]) if isinstance(stored, pa.RecordBatch) else stored
    kinds = rows.column(VALUE_KIND_COLUMN).to_numpy()
    return AcceptedRows(rows.drop_columns([VALUE_KIND_COLUMN]), kinds if kinds.any() else None)
