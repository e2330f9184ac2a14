"""The rows of a commit as they came, until they are committed: for tables whose rows move between partitions.

What is written of a row follows from where its key is. Where another writer has committed meanwhile, the files of the
commit cannot say any more what they were made of, so the rows are routed again from here.

They are on a scratch disk: rows in memory may be changed by whoever has given them. Used by one thread.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from freshet.storage.io.env import Env
from freshet.storage.io.spill_file import Scratch, SpillFile
from freshet.storage.model.row_kind import ROW_KIND_COLUMN
from freshet.storage.write.records import AcceptedRows


class KeptInput:
    """Accepted rows, in order; `clear` it whatever happens."""

    def __init__(self, env: Env) -> None:
        self._scratch = Scratch(env)
        self._files: list[SpillFile] = []

    def add(self, accepted: AcceptedRows) -> None:
        """Keeps rows."""
        rows = accepted.rows
        if accepted.kinds is not None:
            rows = rows.append_column(ROW_KIND_COLUMN, pa.array(accepted.kinds))
        self._files.append(SpillFile(self._scratch.new_path(), rows.schema, [rows]))

    def read(self) -> Iterator[AcceptedRows]:
        """All of them."""
        for file in list(self._files):
            for batch in file.read():
                rows = pa.Table.from_batches([batch])
                kinds = None
                if ROW_KIND_COLUMN in rows.column_names:
                    kinds = rows.column(ROW_KIND_COLUMN).to_numpy()
                    rows = rows.drop_columns([ROW_KIND_COLUMN])
                yield AcceptedRows(rows, kinds)

    def clear(self) -> None:
        """Forgets them."""
        self._files.clear()
        self._scratch.release()
