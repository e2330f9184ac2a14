"""Which tables a `foreachBatch` query has written: a small file for each in its checkpoint.

    freshet-table-<hash of the location>.json = {"table": location, "created_ms": creation time of the table}

The checkpoint goes on where it stopped. A table that was dropped and created again lacks what the batches before have
read, so it is refused. The file is written once the first batch of a run is committed: what a query has not committed
to the table comes again, and the table may be created again meanwhile. A table without a file is taken: a
`foreachBatch` function may write another table from some batch on, or leave batches out.

A checkpoint that only Spark can reach is given open (`checkpoint_folder`). Pipelines have an owner of their checkpoint
instead (`checkpoint_owner`).
"""

from __future__ import annotations

import hashlib
import json

from freshet.pipeline.errors.error_kind import ErrorKind
from freshet.pipeline.exceptions import PipelineFailedError
from freshet.pipeline.identity.checkpoint_folder import CheckpointPlace, as_folder, shown_place
from freshet.storage.table import Table


class CheckpointTables:
    """The tables of one run of a query."""

    def __init__(self, checkpoint: CheckpointPlace) -> None:
        self._checkpoint = shown_place(checkpoint)
        self._folder = as_folder(checkpoint)
        self._noted: set[str] = set()
        """Locations."""

    def refuse_recreated(self, table: Table, micro_batch_id: int) -> None:
        """Raises `PipelineFailedError` where the table is not the one that batches before this one were written to."""
        if self._folder is None or micro_batch_id == 0 or table.location in self._noted:
            return
        name = _file_of(table)
        file = self._folder.place(name)
        text = self._folder.read(name)
        if text is None:
            return
        try:
            created_ms = json.loads(text)["created_ms"]
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
        document = {"table": table.location, "created_ms": table.engine.created_ms()}
        self._folder.replace(_file_of(table), json.dumps(document))
        self._noted.add(table.location)


def _file_of(table: Table) -> str:
    return f"freshet-table-{hashlib.sha256(table.location.encode()).hexdigest()[:16]}.json"
