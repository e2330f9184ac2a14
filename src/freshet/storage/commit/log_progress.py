"""How far the log of a table has come after a commit: a decision over where it was, the change and who commits.

| commit | what its snapshot says of the log |
|---|---|
| of anybody but the user who logs | what the one before said |
| APPEND, its COMPACT will bring nothing logged | its batch is stable, by what its rows logged |
| APPEND, its COMPACT will bring what was logged | the last batch before it is stable: what was not named is void |
| COMPACT that brings something logged | its batch is stable, by what the compactions logged that were not aborted |
| other COMPACT | what the one before said |

The rows of changelog files are logged, so the snapshot that names those files names what was logged. If a compaction is
aborted on conflict or lost in a crash, what it logged is void, and the next compaction emits these changes again.

A log has one user: offsets of two would not be in the order of the batches. Another topic begins a new log.

Source: MERGING.md §4 for which snapshot names changelog files.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from freshet.storage.exceptions import ConflictError, InvalidRequestError
from freshet.storage.model.manifest import BucketId
from freshet.storage.model.snapshot import CommitKind
from freshet.storage.model.table_log import NO_BATCH, LogIdentity, LogIncrement, LogProgress, with_stable_batch


@dataclass(frozen=True, slots=True)
class LogChange:
    """What a change has logged. `is_pending`: the COMPACT of the same commit brings more."""

    won: Mapping[BucketId, LogIncrement] = field(default_factory=dict)
    is_pending: bool = False

    def without(self, buckets: frozenset[BucketId]) -> LogChange:
        """The same less some buckets."""
        return LogChange({bucket: each for bucket, each in self.won.items() if bucket not in buckets}, self.is_pending)


NOTHING_LOGGED = LogChange()


def next_log(
    before: LogProgress | None,
    change: LogChange,
    kind: CommitKind,
    *,
    log: LogIdentity | None,
    identifier: int,
    last_identifier: int | None,
) -> LogProgress | None:
    """What the next snapshot says of the log.

    `log` is given by the user who logs, `last_identifier` is that user's last commit before this one, with or without
    its compaction.
    """
    if log is None:
        if change.won:
            raise InvalidRequestError("the commit has logged changes, but its committer was opened without the log")
        return before
    base = _of_this_log(before, log)
    if change.is_pending:
        last = NO_BATCH if last_identifier is None else last_identifier
        return base if last <= base.batch else with_stable_batch(base, last, {})
    if kind is CommitKind.COMPACT and not change.won:
        return base
    return with_stable_batch(base, identifier, change.won)


def check_log(before: LogProgress | None, log: LogIdentity, *, table: str) -> None:
    """Raises `InvalidRequestError` where a log cannot go on with this user and topic."""
    if before is None or before.identity.topic != log.topic:
        return
    known = before.identity
    if known.topic_id != log.topic_id:
        raise InvalidRequestError(
            f"table {table}: topic {log.topic} of its log was deleted and created again (its id was {known.topic_id}, "
            f"it is {log.topic_id}); what readers had not read of it is gone. Set kafka.topic to a new name: a new "
            "log begins there, and readers must start again too",
            table=table,
            option="kafka.topic",
        )
    if known.commit_user != log.commit_user:
        raise InvalidRequestError(
            f"table {table}: {known.commit_user!r} writes its log in topic {log.topic}, and a log has one commit "
            f"user; {log.commit_user!r} cannot. Commit as {known.commit_user!r}, or stop that writer and set "
            "kafka.topic to a new name",
            table=table,
            option="log.system",
        )


def _of_this_log(before: LogProgress | None, log: LogIdentity) -> LogProgress:
    if before is None:
        return LogProgress(log, 0, NO_BATCH, log.start, {})
    known = before.identity
    if known.topic != log.topic:
        return LogProgress(log, before.generation + 1, NO_BATCH, log.start, {})
    if (known.topic_id, known.commit_user) != (log.topic_id, log.commit_user):
        raise ConflictError(
            f"the log in topic {log.topic} is written by {known.commit_user!r} since, or the topic is another one; "
            "nothing was committed: stop one of the writers"
        )
    return before
