"""Numbers rows of a batch again whose files lost a claim to another writer's rows: a Spark job over the files.

The one job of a batch has written them; meanwhile another writer has committed rows of the same buckets with numbers as
high. The frame is not computed again: each task takes the messages of some buckets, reads the files that they name and
writes them with larger numbers, compacts and logs them, and returns messages in their place. The identity of the batch
stays what it is.

Source: storage/commit/numbering.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark import SparkContext

from freshet.pipeline.batch.batch_pin import BatchPin, task_log
from freshet.pipeline.batch.worker_tables import open_worker_table
from freshet.storage.table import TableHandle
from freshet.storage.table_engine import CommitMessage, decode_commit_messages, encode_commit_messages


@dataclass(frozen=True, slots=True)
class RenumberTask:
    """The work on some buckets in a Python worker; a value that travels there."""

    table: TableHandle
    pin: BatchPin
    base_snapshot_id: int
    headroom: int

    def __call__(self, messages: bytes) -> bytes:
        """Takes and gives encoded commit messages."""
        made = open_worker_table(self.table).engine.renumbered(
            self.pin.micro_batch_id,
            decode_commit_messages(messages),
            base_snapshot_id=self.base_snapshot_id,
            headroom=self.headroom,
            log=task_log(self.pin),
            limit=self.pin.limit,
        )
        return encode_commit_messages(made)


@dataclass(frozen=True, slots=True)
class RenumberJob:
    """Renumbers for one batch."""

    context: SparkContext
    table: TableHandle
    pin: BatchPin

    def run(self, messages: Sequence[CommitMessage], base_id: int, headroom: int) -> list[CommitMessage]:
        """The messages in place of those given."""
        task = RenumberTask(self.table, self.pin, base_id, headroom)
        works = [encode_commit_messages([message]) for message in messages]
        parts = min(len(works), self.context.defaultParallelism)
        made = self.context.parallelize(works, parts).map(task).collect()
        return [message for encoded in made for message in decode_commit_messages(encoded)]
