"""The part of `freshet compact` and `freshet rescale` that needs Spark: tasks compact and write buckets, this process
plans and commits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from freshet._frozen import Frozen
from freshet.pipeline.query.task.worker_table_cache import open_worker_table
from freshet.pipeline.spark.session import session_of_a_command
from freshet.storage.maintenance.table_compaction import Elsewhere, Piece
from freshet.storage.table import TableHandle
from freshet.storage.table_engine import CommitMessage, decode_commit_messages, encode_commit_messages


class PieceTask(Frozen):
    """A piece of the work in a Python worker; a value that travels there."""

    table: TableHandle

    def __call__(self, piece: Piece) -> bytes:
        """Encoded commit messages."""
        return encode_commit_messages(open_worker_table(self.table).engine.run_piece(piece))


@contextmanager
def executors(command: str) -> Iterator[Elsewhere]:
    """Executors of the session that runs, or of one for as long as this lasts."""
    with session_of_a_command(command) as spark:
        context = spark.sparkContext

        def run(table: TableHandle, pieces: Sequence[Piece]) -> Sequence[Sequence[CommitMessage]]:
            encoded = context.parallelize(list(pieces), len(pieces)).map(PieceTask(table)).collect()
            return [decode_commit_messages(messages) for messages in encoded]

        yield Elsewhere(run, context.defaultParallelism)
