"""The part of `freshet compact` that needs Spark: buckets are compacted in tasks, this process plans and commits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from freshet.pipeline.batch.worker_tables import open_worker_table
from freshet.pipeline.spark.session import session_of_a_command
from freshet.storage.table import Elsewhere, TableHandle
from freshet.storage.table_engine import BucketCompaction, CommitMessage, decode_commit_messages, encode_commit_messages


@dataclass(frozen=True, slots=True)
class CompactTask:
    """The work of one bucket in a Python worker; a value that travels there."""

    table: TableHandle

    def __call__(self, work: BucketCompaction) -> bytes:
        """Encoded commit messages."""
        return encode_commit_messages(open_worker_table(self.table).engine.run_compaction(work))


@contextmanager
def executors() -> Iterator[Elsewhere]:
    """Executors of the session that runs, or of one for as long as this lasts."""
    with session_of_a_command("freshet compact") as spark:
        context = spark.sparkContext

        def compact_buckets(table: TableHandle, works: Sequence[BucketCompaction]) -> Sequence[Sequence[CommitMessage]]:
            encoded = context.parallelize(list(works), len(works)).map(CompactTask(table)).collect()
            return [decode_commit_messages(messages) for messages in encoded]

        yield Elsewhere(compact_buckets, context.defaultParallelism)
