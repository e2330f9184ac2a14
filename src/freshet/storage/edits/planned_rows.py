"""The rows that an edit writes, kept until it is committed: where others have changed some keys meanwhile, only those
are computed again. They are on a scratch disk, since there may be more than fit into memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa

from freshet.storage.edits.key_check import without_keys
from freshet.storage.io.env import Env
from freshet.storage.io.spill_file import Scratch, SpillFile
from freshet.storage.model.row_kind import ROW_KIND_COLUMN, RowKind


class PlannedRows:
    """Rows with `_ROW_KIND`; `release` it whatever happens."""

    def __init__(self, env: Env) -> None:
        self._scratch = Scratch(env)
        self._files: list[SpillFile] = []
        self.counts = np.zeros(len(RowKind), np.int64)
        """Rows by the code of their kind."""

    def kept(self, parts: Iterable[pa.Table]) -> Iterator[pa.Table]:
        """The parts as they come, each once it is kept, in the place of all that was kept before."""
        before, self._files = self._files, []
        self.counts[:] = 0
        for part in parts:
            if part.num_rows:
                self._files.append(SpillFile(self._scratch.new_path(), part.schema, [part]))
                self.counts += np.bincount(part.column(ROW_KIND_COLUMN).to_numpy(), minlength=len(RowKind))
                yield part
        for file in before:
            file.remove()

    def without(self, keys: pa.Table) -> Iterator[pa.Table]:
        """What was kept, less the rows of these keys."""
        files = list(self._files)  # read when others have taken their place
        return (without_keys(pa.Table.from_batches([batch]), keys) for file in files for batch in file.read())

    def release(self) -> None:
        """Forgets them."""
        self._files.clear()
        self._scratch.release()
