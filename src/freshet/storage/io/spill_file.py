"""Sorted rows spilled to a local disk when memory is full: an Arrow IPC stream, compressed by LZ4.

    <scratch folder>/<name>.arrow     batches of at most BATCH_BYTES; read back one at a time, in the order written

Spill files are scratch: never synced, of no use to another process, gone with their folder at the latest.
`Scratch` gives out their names, in a folder that is made when the first one is needed.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from typing import Final

import pyarrow as pa
import pyarrow.ipc as ipc

from freshet.storage.io.env import Env
from freshet.storage.io.local_errors import storage_error
from freshet.storage.io.local_file_io import LocalFileIO

BATCH_BYTES: Final = 1024 * 1024
"""Size of a batch in memory: what merging many spilled runs holds of each, twice."""

_BATCH_ROWS_MAX: Final = 64 * 1024

_ROOM: Final = (
    "free some space on that scratch disk, choose another with the environment variable TMPDIR, or limit what a writer "
    "takes of it with write-buffer-spill.max-disk-size"
)


class SpillFile:
    """One run of rows on scratch disk."""

    def __init__(self, path: str, schema: pa.Schema, rows: Iterable[pa.Table | pa.RecordBatch]) -> None:
        """Writes the rows as they come."""
        self.path = path
        self.row_count = 0
        options = ipc.IpcWriteOptions(compression="lz4", use_threads=False)
        try:
            with pa.OSFile(path, "wb") as sink:
                with ipc.new_stream(sink, schema, options=options) as stream:
                    for part in rows:
                        for batch in _bounded(part):
                            stream.write_batch(batch)
                        self.row_count += part.num_rows
                self.size_bytes = sink.tell()
        except OSError as error:
            raise storage_error(error, "write", path, room=_ROOM) from error

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


def _bounded(rows: pa.Table | pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    table = rows if isinstance(rows, pa.Table) else pa.Table.from_batches([rows])
    batch_rows = BATCH_BYTES * table.num_rows // max(1, table.nbytes)
    yield from table.to_batches(max_chunksize=max(1, min(_BATCH_ROWS_MAX, batch_rows)))


class Scratch:
    """The scratch folder of one writer; may be shared by threads."""

    def __init__(self, env: Env) -> None:
        self._env = env
        self._lock = threading.Lock()
        self._folder: str | None = None
        self._count = 0

    def new_path(self) -> str:
        """A path that no spill file has had."""
        with self._lock:
            if self._folder is None:
                self._folder = self._env.scratch_folder()
            self._count += 1
            return f"{self._folder}/run-{self._count}.arrow"

    def release(self) -> None:
        """Removes the folder with all spill files."""
        with self._lock:
            if self._folder is not None:
                self._env.release_scratch(self._folder)
                self._folder = None
