"""The part of `freshet compact` and `freshet rescale` that needs Spark: tasks compact and write buckets, this process
plans and commits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from freshet.pipeline.batch.worker_tables import open_worker_table
from freshet.pipeline.spark.session import session_of_a_command
from freshet.storage.table import Elsewhere, TableHandle
from freshet.storage.table_engine import (
    BucketCompaction,
    BucketRescale,
    CommitMessage,
    PostponedPartition,
    decode_commit_messages,
    encode_commit_messages,
)


@dataclass(frozen=True, slots=True)
class CompactTask:
    """The work of one bucket in a Python worker; a value that travels there."""

    table: TableHandle

    def __call__(self, work: BucketCompaction) -> bytes:
        """Encoded commit messages."""
        return encode_commit_messages(open_worker_table(self.table).engine.run_compaction(work))


@dataclass(frozen=True, slots=True)
class RescaleTask:
    """Writes new buckets of a partition in a Python worker; a value that travels there."""

    table: TableHandle

    def __call__(self, work: BucketRescale) -> bytes:
        """Encoded commit messages."""
        return encode_commit_messages(open_worker_table(self.table).engine.run_rescale(work))


@dataclass(frozen=True, slots=True)
class PostponedTask:
    """Puts rows of a partition that wait into its buckets, in a Python worker; a value that travels there."""

    table: TableHandle

    def __call__(self, work: PostponedPartition) -> bytes:
        """Encoded commit messages."""
        return encode_commit_messages(open_worker_table(self.table).engine.run_postponed(work))


@contextmanager
def executors(command: str = "freshet compact") -> Iterator[Elsewhere]:
    """Executors of the session that runs, or of one for as long as this lasts."""
    with session_of_a_command(command) as spark:
        context = spark.sparkContext

        def compact_buckets(table: TableHandle, works: Sequence[BucketCompaction]) -> Sequence[Sequence[CommitMessage]]:
            encoded = context.parallelize(list(works), len(works)).map(CompactTask(table)).collect()
            return [decode_commit_messages(messages) for messages in encoded]

        def rescale_buckets(table: TableHandle, works: Sequence[BucketRescale]) -> Sequence[Sequence[CommitMessage]]:
            encoded = context.parallelize(list(works), len(works)).map(RescaleTask(table)).collect()
            return [decode_commit_messages(messages) for messages in encoded]

        def compact_postponed(
            table: TableHandle, works: Sequence[PostponedPartition]
        ) -> Sequence[Sequence[CommitMessage]]:
            encoded = context.parallelize(list(works), len(works)).map(PostponedTask(table)).collect()
            return [decode_commit_messages(messages) for messages in encoded]

        yield Elsewhere(compact_buckets, context.defaultParallelism, rescale_buckets, compact_postponed)
