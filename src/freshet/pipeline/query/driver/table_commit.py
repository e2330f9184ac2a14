"""One table of a streaming query, on the driver: what batches are written upon, their commit, background compaction.

    pin      the base snapshot and the schema for the tasks of a batch
    commit   the rows, APPEND and then COMPACT; an empty batch is committed too. Files whose numbers lost the claim to
             another writer are written again by a job of their own (`renumber_work`). Where
             `full-compaction.delta-commits` has this batch compact the table, the driver compacts the buckets that no
             task wrote. Then the log gets the commit, or what is committed is published

What a batch read, and whether it may be committed, the query knows (`query_run`).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from typing import Final

from freshet.pipeline.config.sections import CompactionConfig
from freshet.pipeline.decode.outcomes import TruncatedAt
from freshet.pipeline.identity.batch_identity import BatchIdentity, is_same_input, unproven_replay_text
from freshet.pipeline.query.driver.background_rounds import BackgroundRounds, own_rounds
from freshet.pipeline.query.driver.batch_report import TableReport
from freshet.pipeline.query.driver.engine import Engine, MicroBatch
from freshet.pipeline.query.driver.schema_follow import refuse_other_columns
from freshet.pipeline.query.driver.table_rounds import BackgroundReport, TableRounds
from freshet.pipeline.query.driver.unread_columns import (
    carried_columns,
    case_variant_text,
    case_variants,
    unread_columns,
)
from freshet.pipeline.query.task.renumber_work import RenumberWork
from freshet.pipeline.query.wire.batch_pin import BatchPin
from freshet.pipeline.query.wire.stopwatch import Stopwatch
from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.model.schema import TableSchema
from freshet.storage.table import Table
from freshet.storage.table_engine import (
    BatchFacts,
    CommitCheck,
    CommitMessage,
    Committer,
    CommitTrace,
    TaskLog,
    decode_commit_messages,
    encode_commit_messages,
)
from freshet.storage.write.commit_compaction import CompactionLimit

_LOG: Final = logging.getLogger(__name__)


class TableCommit:
    """Commits the batches of one query into one table; `commit_user` is the name of the pipeline."""

    def __init__(
        self,
        table: Table,
        commit_user: str,
        *,
        decoded: TableSchema | None = None,
        options: Mapping[str, str] | None = None,
        compaction: CompactionConfig | None = None,
        background: BackgroundRounds | None = None,
    ) -> None:
        """`decoded` is the schema that frames of outcomes were decoded for, by default the table's of now; `options`
        override the table's own. `background` are the compaction rounds of a query of many tables, which closes them;
        a table that is alone has its own, as `compaction` says."""
        self.table = table.with_options(options) if options else table
        """At the schema of the batch that runs."""
        self.decoded = decoded or table.schema
        self._commit_user = commit_user
        self._warn(self.table.engine.warnings())
        self._committers: dict[str | None, Committer] = {}
        self._written_by: tuple[Engine, BatchPin] | None = None
        self._log = self.table.engine.log.open(commit_user) if self.table.options.logs_changes else None
        self._publisher = self.table.engine.log.open_publisher() if self.table.options.publishes_changes else None
        for source in (self._log, self._publisher):
            self._warn(() if source is None else source.warnings)
        self._variants: set[str] = set()
        self._background, self._own_background = background, own_rounds(commit_user, compaction)
        self._rounds = None if self._own_background is None else self._open_rounds(self._own_background)

    def _warn(self, warnings: Iterable[str]) -> None:
        for warning in warnings:
            _LOG.warning("table %s: %s", self.table.name, warning)

    def _open_rounds(self, background: BackgroundRounds) -> TableRounds | None:
        try:
            return background.open(self.table)
        except InvalidRequestError as error:
            _LOG.warning("%s: %s", self._commit_user, error)
            return None

    def follow_schema(self, *, is_planned: bool) -> None:
        """Follows a schema change made while the query runs; the plan of a query may not follow every one."""
        latest_id = self.table.engine.latest_schema_id()
        if latest_id is None or latest_id == self.table.schema.id:
            return
        self.table = self.table.with_options(self.table.engine.dynamic_options)
        self._committers.clear()
        if is_planned:
            self.refuse_other_columns()

    def refuse_other_columns(self) -> None:
        """Raises `InvalidRequestError` where the rows of a frame of outcomes do not fit the table any more."""
        refuse_other_columns(self.decoded, self.table.schema, self.table.name)

    def turn(self) -> AbstractContextManager[CompactionLimit | None]:
        """Belongs around a batch, from its pin to its commit; gives how much its tasks compact."""
        if self._background is not None and self._rounds is None:
            self._rounds = self._open_rounds(self._background)
            self._background = None if self._rounds is None else self._background
        return nullcontext() if self._rounds is None else self._rounds.batch(self.table)

    def pin(
        self,
        batch: MicroBatch,
        limit: CompactionLimit | None,
        check: CommitCheck,
        truncated: TruncatedAt | None = None,
    ) -> BatchPin:
        """What the tasks of a batch write upon, as `has_committed` has found it; `commit` takes the same batch next."""
        base, schema = check.latest, self.table.schema
        log = None if self._log is None else TaskLog(self._log.identity, self._log.epoch, 0)
        base_id = None if base is None else base.id
        pin = BatchPin(batch.number, schema.id, schema.time_ms, base_id, limit, log, check.is_committed, truncated)
        self._written_by = (batch.engine, pin)
        return pin

    def has_committed(self, batch: BatchIdentity) -> CommitCheck:
        """Whether the table holds the batch; raises where it holds another one of that number."""
        check = self._committer(batch.query_id).has_committed(batch.micro_batch_id, digest=batch.digest)
        if check.is_committed and not is_same_input(check, batch.micro_batch_id, batch.digest):
            _LOG.warning(unproven_replay_text(self.table.name, self._commit_user, batch.micro_batch_id))
        return check

    def truncate(self, batch: BatchIdentity) -> None:
        """Takes all rows away, unless the table holds the batch; `commit` of the same batch follows."""
        self._committer(batch.query_id).truncate(batch.micro_batch_id, digest=batch.digest)

    def commit(
        self,
        batch: BatchIdentity,
        messages: Sequence[CommitMessage],
        carried: str | None,
        clock: Stopwatch,
        begun_on: CommitCheck | None = None,
        facts: BatchFacts | None = None,
    ) -> TableReport:
        """Commits what the tasks wrote; `carried` is what the history is to carry, `facts` what people read of it.

        Raises `RetryableError` where batches that `begun_on` knows were rolled back since.
        """
        number, committer = batch.micro_batch_id, self._committer(batch.query_id)
        rest = self.table.engine.complete_compaction(number, messages)
        committed = committer.commit(
            number, (*messages, *rest), digest=batch.digest, carried=carried, begun_on=begun_on, batch=facts
        )
        committed = self.table.engine.show_hidden_rows(committer, number, committed)
        if self._log is not None and committed.snapshots:
            self._log.committed(number, committed.snapshots[-1].id)
        clock.lap("commit")
        if self._publisher is not None:
            self._publisher.publish()
            clock.lap("publish")
        buckets = {message.bucket_id for message in messages}
        level0 = self.table.engine.level0_counts(committed.snapshots[-1], buckets) if committed.snapshots else ()
        clock.lap("count")
        ids = tuple(snapshot.id for snapshot in committed.snapshots)
        return TableReport(ids, committed.already_committed, level0, committed.rewrite_count, committed.rewritten_bytes)

    def discard(self, messages: Sequence[CommitMessage]) -> None:
        """Removes what the tasks wrote."""
        self.table.engine.discard(messages)

    def left_out(self, notes: Mapping[str, int]) -> tuple[str, ...]:
        """Columns of the table that were not decoded, though records carry a field of the name."""
        return carried_columns(unread_columns(self.table.schema, self.decoded), notes)

    def new_case_variants(self, notes: Mapping[str, int]) -> list[str]:
        """What is to be said of fields that differ from a column in case only: of each once."""
        found = case_variants(self.table.schema.column_names, notes)
        new = [name for name in found if name not in self._variants]
        self._variants.update(new)
        return [case_variant_text(self.table.name, name, found[name]) for name in new]

    def last_commit_of(self, commit_user: str) -> CommitTrace | None:
        """The last commit of this user."""
        return self.table.engine.committer(commit_user).last_commit()

    def after_batch(self, engine: Engine, messages: Sequence[CommitMessage]) -> BackgroundReport | None:
        """The batch is over: background compaction goes on. Gives what it did, None where there is none of its own."""
        self.note_written(messages)
        if self._rounds is None or self._own_background is None:
            return None
        self._own_background.go_on(engine)
        return self._rounds.report()

    def note_written(self, messages: Sequence[CommitMessage]) -> None:
        """Tells background compaction which buckets a batch has put files into."""
        if self._rounds is not None:
            self._rounds.note({message.bucket_id for message in messages})

    def check_last(self) -> None:
        """Raises `LostCommitError` where another program has replaced the last batch."""
        for committer in self._committers.values():
            committer.check_last()

    def close(self) -> None:
        """Ends what runs in the background, and the commits (`end-input.check-partition-expire`)."""
        if self._background is not None and self._rounds is not None:
            self._background.leave(self._rounds)
        for each in (self._own_background, self._log, self._publisher):
            if each is not None:
                each.close()
        for committer in self._committers.values():
            committer.finish()

    def _committer(self, query_id: str | None) -> Committer:
        """Kept from batch to batch: a committer knows the live files and reads only what is new."""
        if query_id not in self._committers:
            log = None if self._log is None else self._log.identity
            self._committers[query_id] = self.table.engine.committer(
                self._commit_user, query_id, log=log, renumber=self._renumber
            )
        return self._committers[query_id]

    def _renumber(
        self, _identifier: int, messages: Sequence[CommitMessage], base_id: int, headroom: int
    ) -> Sequence[CommitMessage]:
        assert self._written_by is not None, "only batches are committed"
        engine, pin = self._written_by
        return renumbered(engine, RenumberWork(self.table.handle, pin, base_id, headroom), messages)


def renumbered(engine: Engine, work: RenumberWork, messages: Sequence[CommitMessage]) -> list[CommitMessage]:
    """The messages in place of those given, whose files are written again with larger numbers."""
    made = engine.each(work, [encode_commit_messages([message]) for message in messages])
    return [message for encoded in made for message in decode_commit_messages(encoded)]


def take_turns(tables: Sequence[TableCommit], turns: ExitStack) -> list[CompactionLimit | None]:
    """Takes the turns of these tables in the order of their locations, as all do (`alone_together`): else two queries
    of the same tables would wait for each other for ever. Gives how much the tasks of each compact."""
    ordered = sorted(enumerate(tables), key=lambda each: each[1].table.location)
    limits = {index: turns.enter_context(table.turn()) for index, table in ordered}
    return [limits[index] for index in range(len(tables))]
