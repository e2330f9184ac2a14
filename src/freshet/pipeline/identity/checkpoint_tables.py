"""Which tables a `foreachBatch` query has written: a small file for each in its checkpoint.

    freshet-table-<hash of the location>.json = {"table": location, "created_ms": creation time of the table}

The checkpoint goes on where it stopped. A table that was dropped and created again lacks what the batches before have
read, so it is refused. The file is written once the first batch of a run is committed: what a query has not committed
to the table comes again, and the table may be created again meanwhile. A table without a file is taken: a
`foreachBatch` function may write another table from some batch on, or leave batches out.

Folders on object stores are not looked at. Pipelines have an owner of their checkpoint instead (`checkpoint_owner`).
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

from freshet.pipeline.errors.error_kind import ErrorKind
from freshet.pipeline.exceptions import PipelineFailedError
from freshet.pipeline.identity.checkpoint_owner import local_folder
from freshet.storage.table import Table


class CheckpointTables:
    """The tables of one run of a query; `checkpoint` is a folder or its URI."""

    def __init__(self, checkpoint: str) -> None:
        self._checkpoint = checkpoint
        self._folder = local_folder(checkpoint)
        self._noted: set[str] = set()
        """Locations."""

    def refuse_recreated(self, table: Table, micro_batch_id: int) -> None:
        """Raises `PipelineFailedError` where the table is not the one that batches before this one were written to."""
        if self._folder is None or micro_batch_id == 0 or table.location in self._noted:
            return
        file = self._file(self._folder, table)
        try:
            created_ms = json.loads(file.read_text(encoding="utf-8"))["created_ms"]
        except FileNotFoundError:
            return
        except (ValueError, LookupError, TypeError) as error:
            raise PipelineFailedError(
                f"checkpoint {self._checkpoint}: {file} is damaged: {error}. Where table {table.name} was not dropped "
                "and created again since the last run, remove that file",
                micro_batch_id=micro_batch_id,
                kind=ErrorKind.INVALID_REQUEST,
            ) from error
        if created_ms != table.engine.created_ms():
            raise PipelineFailedError(
                f"table {table.name} was dropped and created again since checkpoint {self._checkpoint} was written, "
                f"which goes on with batch {micro_batch_id}: the rows of the batches before would be missing; nothing "
                "was written. To read everything again, start with a new checkpoint and another commit user; to go on "
                f"without those rows, remove {file}",
                micro_batch_id=micro_batch_id,
                kind=ErrorKind.INVALID_REQUEST,
            )

    def note(self, table: Table) -> None:
        """The table holds a batch of the query. Raises `OSError` where the checkpoint cannot be written."""
        if self._folder is None or table.location in self._noted:
            return
        file = self._file(self._folder, table)
        unfinished = file.with_name(f".{file.name}.{os.getpid()}.tmp")
        document = {"table": table.location, "created_ms": table.engine.created_ms()}
        unfinished.write_text(json.dumps(document), encoding="utf-8")
        unfinished.replace(file)
        self._noted.add(table.location)

    @staticmethod
    def _file(folder: Path, table: Table) -> Path:
        return folder / f"freshet-table-{hashlib.sha256(table.location.encode()).hexdigest()[:16]}.json"
