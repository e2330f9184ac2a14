"""Numbers rows of a batch again whose files lost a claim to another writer's rows, over the files, in the workers.

The one job of a batch has written them; meanwhile another writer has committed rows of the same buckets with numbers as
high. The frame is not computed again: each task takes the messages of some buckets, reads the files that they name and
writes them with larger numbers, compacts and logs them, and returns messages in their place. The identity of the batch
stays what it is.

Source: storage/commit/conflict.py.
"""

from __future__ import annotations

from freshet._frozen import Frozen
from freshet.pipeline.query.task.worker_table_cache import open_worker_table
from freshet.pipeline.query.wire.batch_pin import BatchPin, TaskPlace
from freshet.storage.table import TableHandle
from freshet.storage.table_engine import decode_commit_messages, encode_commit_messages


class RenumberWork(Frozen):
    """The work on some buckets in a Python worker; a value that travels there."""

    table: TableHandle
    pin: BatchPin
    base_snapshot_id: int
    headroom: int

    def __call__(self, messages: bytes, place: TaskPlace) -> bytes:
        """Takes and gives encoded commit messages."""
        made = open_worker_table(self.table).engine.renumbered(
            self.pin.micro_batch_id,
            decode_commit_messages(messages),
            base_snapshot_id=self.base_snapshot_id,
            headroom=self.headroom,
            log=place.log_of(self.pin),
            limit=self.pin.limit,
        )
        return encode_commit_messages(made)
