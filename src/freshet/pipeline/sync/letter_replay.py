"""Dead letters of a pipeline of many tables that go through it once more (`freshet dead-letters --replay`).

    1. the tables of the ledger that are not set apart; the job, until they fit the records (created, altered)
    2. `begun`: a commit to the ledger says of which snapshot of the dead letters, under which user, by which rules
    3. the dead letters that failed again, then each table that has rows, under that user and number
    4. `done`: another commit to the ledger. What was replayed is then removed from the dead letters by the caller

A replay that dies between 2 and 4 is gone on with by the next one, over the same letters and under the same user: a
table that has its rows does not get them again. The rules must be the same, or a letter would go to another table too.

Nothing is lost by it: letters of tables that are set apart, or that no rule takes, stay dead letters with that reason.
Nor is a table set apart here: what it fails of ends the replay.
"""

from __future__ import annotations

import hashlib
from contextlib import ExitStack
from dataclasses import replace
from typing import Final

import orjson

from freshet._frozen import Frozen
from freshet.pipeline.config.model import MaxDeadLetters
from freshet.pipeline.config.sync import SyncPipelineConfig
from freshet.pipeline.exceptions import InvalidRequestError
from freshet.pipeline.identity.batch_identity import BatchIdentity
from freshet.pipeline.query.driver.batch_check import BatchCheck
from freshet.pipeline.query.driver.batch_report import BatchReport
from freshet.pipeline.query.driver.broken_rules import broken_counts
from freshet.pipeline.query.driver.dead_letters import DeadLetterCommit
from freshet.pipeline.query.driver.engine import MicroBatch
from freshet.pipeline.query.driver.fitting_round import FittingRounds, OpenBatch
from freshet.pipeline.query.driver.jobs import Jobs, RecordParts
from freshet.pipeline.query.driver.replay_journal import QUERY_ID, ReplayJournal, replay_user
from freshet.pipeline.query.driver.table_commit import TableCommit
from freshet.pipeline.query.wire.stopwatch import Stopwatch
from freshet.pipeline.sync.sync_tables import SyncTables, task_count
from freshet.storage.table import Table
from freshet.storage.table_engine import Committer

_OF_PLACES: Final = {"source": {"kafka", "schema_registry", "read"}, "ledger": True}
"""Keys of `sync` that say where records are, not what becomes of them."""


class ReplayIdentity(Frozen):
    """Which dead letters are replayed, those live at a snapshot of their table, and the user of the commits."""

    snapshot_id: int
    commit_user: str
    after: int | None = None
    """The number of the replay that was the last one to begin when the snapshot was chosen."""


def unfinished_replay(config: SyncPipelineConfig, ledger: Table) -> ReplayIdentity | None:
    """The replay that has begun to commit and is not done. Raises `InvalidRequestError` where the file says something
    else now of where its letters go."""
    begun = ReplayJournal(ledger, config.name).last()
    if begun is None:
        return None
    snapshot_id, commit_user, rules = orjson.loads(begun.text)
    done = _done(config, ledger).last_commit()
    if done is not None and done.identifier >= snapshot_id:
        return None
    if rules != _rules(config):
        raise InvalidRequestError(
            f"a replay of the dead letters of {config.name!r} (up to snapshot {snapshot_id} of their table) died after "
            "it had begun to commit, and sync of the file says something else now. Put the file back as it was and "
            "replay once more, which finishes it; then change the file. Or give --all: then letters that it has "
            "applied are applied again"
        )
    return ReplayIdentity(snapshot_id, commit_user, begun.number)


class LetterReplay:
    """One replay."""

    def __init__(self, config: SyncPipelineConfig, ledger: Table, dead: Table, identity: ReplayIdentity) -> None:
        self._config, self._ledger, self._identity = config, ledger, identity
        self._dead = dead
        self._batch = BatchIdentity(identity.snapshot_id, QUERY_ID, None)
        self._letters = DeadLetterCommit(dead, identity.commit_user)
        self._check = BatchCheck(
            [TableCommit(ledger, config.name)],
            self._letters,
            MaxDeadLetters(share=1.0),
            commit_user=identity.commit_user,
            pipeline=config.name,
        )

    def write(self, jobs: Jobs, letters: RecordParts) -> BatchReport:
        """Puts the letters through the pipeline and commits what becomes of them, once."""
        number, user = self._identity.snapshot_id, self._identity.commit_user
        last = _done(self._config, self._ledger).last_commit()
        if user == replay_user(self._config.name) and last is not None and last.identifier >= number:
            return BatchReport(user, number, is_replay=True)
        count = task_count(jobs.engine)
        tables = SyncTables(self._config, self._ledger, self._dead, count, commit_user=user)
        job = jobs.of_parts(tables, self._ledger.name, letters)
        rounds = FittingRounds(tables, job, self._check, user, is_beside=True, takes_truncates=False)
        batch = OpenBatch(MicroBatch(number, jobs.engine), self._batch, Stopwatch())
        try:
            tables.take_all()
            with ExitStack() as turns:
                done = rounds.fit(batch, turns, lambda checks: False)
            assert done is not None
            rounds.judge(batch, done)
            tables.note_new()
            self._begin()
            self._letters.commit(self._batch, done.result.dead_letter_messages)
            reports = [
                commit.commit(self._batch, done.result.messages[index], None, batch.clock)
                for index, (commit, check) in enumerate(zip(done.tables, done.checks, strict=True))
                if index and index in done.result.messages and not check.is_committed
            ]
            self._finish()
            report = BatchReport.of_tables(
                user, number, done.result, reports, task_count=count, left_out=(), times_ms=batch.clock.times_ms
            )
            broken = broken_counts(done.result, tables.rules())
            return replace(report, broken=broken, table_events=tables.take_events({}), is_replay=False)
        finally:
            tables.close()

    def _begin(self) -> None:
        given = [self._identity.snapshot_id, self._identity.commit_user, _rules(self._config)]
        begun = ReplayJournal(self._ledger, self._config.name)
        begun.begin(orjson.dumps(given).decode(), after=self._identity.after)

    def _finish(self) -> None:
        _done(self._config, self._ledger).commit(self._identity.snapshot_id, ())


def _done(config: SyncPipelineConfig, ledger: Table) -> Committer:
    return ledger.engine.committer(replay_user(config.name), QUERY_ID)


def _rules(config: SyncPipelineConfig) -> str:
    """A digest of what the file says of where records go and what becomes of them."""
    said = config.sync.model_dump(mode="json", exclude=_OF_PLACES)  # type: ignore[arg-type]
    return hashlib.sha256(orjson.dumps(said, option=orjson.OPT_SORT_KEYS)).hexdigest()
