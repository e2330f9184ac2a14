"""Sorted rows put aside on a local disk while a writer has no room for them: an Arrow IPC stream, compressed by LZ4.

    <scratch folder>/<name>.arrow     batches of about BATCH_BYTES; read back one at a time, in the order written

Spill files are scratch: never synced, of no use to another process, gone with their folder at the latest.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pyarrow as pa
import pyarrow.ipc as ipc

from storage.files.local_file_io import LocalFileIO, storage_error

BATCH_BYTES: Final = 1024 * 1024
"""Size of a batch in memory: what merging many spilled runs holds of each, twice."""

_BATCH_ROWS_MAX: Final = 64 * 1024


class SpillFile:
    """One run of rows on scratch disk."""

    def __init__(self, path: str, rows: pa.Table) -> None:
        """Writes the rows."""
        self.path = path
        self.row_count = rows.num_rows
        batch_rows = max(1, min(_BATCH_ROWS_MAX, BATCH_BYTES * rows.num_rows // max(1, rows.nbytes)))
        options = ipc.IpcWriteOptions(compression="lz4", use_threads=False)
        try:
            with pa.OSFile(path, "wb") as sink:
                with ipc.new_stream(sink, rows.schema, options=options) as stream:
                    stream.write_table(rows, max_chunksize=batch_rows)
                self.size_bytes = sink.tell()
        except OSError as error:
            raise storage_error(error, "write", path) from error

    def read(self) -> Iterator[pa.RecordBatch]:
        """The batches, in order."""
        try:
            with pa.OSFile(self.path, "rb") as source, ipc.open_stream(source) as stream:
                yield from stream
        except OSError as error:
            raise storage_error(error, "read", self.path) from error

    def remove(self) -> None:
        """Gives the disk space back."""
        LocalFileIO().delete(self.path)
