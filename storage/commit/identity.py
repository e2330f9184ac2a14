"""Who committed what: decides whether a commit is new, known, foreign or not decidable.

A commit is (commit user, identifier, query id). Every snapshot that this library writes carries, under one key of its
`properties`, the last commit of every user, so that snapshot expiry cannot forget one:

    freshet.commits = {"complete": true, "users": {"orders-cdc": [17, "<query id or null>", <time_ms>]}}

Other writers of the format do not hand properties on. The history is therefore read by walking back from the latest
snapshot to the newest one that carries the key; snapshots of others passed on the way count as commits of their user
without a query id, of whatever kind they are (an empty append may have been skipped by its writer).

| trace of the user               | identifier | verdict            |
|---------------------------------|------------|--------------------|
| same query id, identifier <= last | any      | ALREADY_COMMITTED  |
| same query id, identifier > last  | any      | WRITE              |
| another query id                | any        | FOREIGN_QUERY      |
| none, history complete          | any        | WRITE              |
| none, history not complete      | 0          | WRITE              |
| none, history not complete      | > 0        | UNKNOWN_OUTCOME    |

*Complete* means that no commit can have been forgotten: the walk ended at a carrier that says so, or at snapshot 1.
The map is bounded (`USERS_MAX`): beyond it the users who have not committed for the longest time are dropped and the
history is no longer complete, so that a dropped user is refused, not doubled. The batch identifier
(9223372036854775807) has no order and leaves no trace: such a commit is never recognised as known.

Compactions that run beside a stream leave no trace either: repeating one is harmless, its inputs are gone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final

import orjson

from freshet.storage.exceptions import InvalidRequestError, UnknownOutcomeError
from freshet.storage.model.snapshot import BATCH_COMMIT_IDENTIFIER, Snapshot

COMMITS_PROPERTY: Final = "freshet.commits"
"""Key of the carried map in a snapshot's properties; part of what we write, do not change."""

USERS_MAX: Final = 200
"""Users carried at most; about 100 bytes each in every snapshot file."""

FIRST_SNAPSHOT_ID: Final = 1


@dataclass(frozen=True, slots=True)
class CommitIdentity:
    """Who commits. A commit that is not traced is never taken for a replay (compactions beside a stream)."""

    commit_user: str
    identifier: int
    query_id: str | None = None
    is_traced: bool = True


@dataclass(frozen=True, slots=True)
class CommitTrace:
    """The last commit of one user. `query_id` is None for plain writers and for snapshots of other libraries."""

    identifier: int
    query_id: str | None
    time_ms: int


@dataclass(frozen=True, slots=True)
class CommitHistory:
    """Last commits by user. `is_complete` is False when a user may have been forgotten."""

    users: Mapping[str, CommitTrace]
    is_complete: bool

    def with_commit(self, commit_user: str, trace: CommitTrace) -> CommitHistory:
        """The history after one more commit, pruned to `USERS_MAX` users."""
        if trace.identifier == BATCH_COMMIT_IDENTIFIER:
            return self
        users = {**self.users, commit_user: trace}
        if len(users) <= USERS_MAX:
            return CommitHistory(MappingProxyType(users), self.is_complete)
        newest_first = sorted(users, key=lambda user: (user == commit_user, users[user].time_ms), reverse=True)
        kept = {user: users[user] for user in newest_first[:USERS_MAX]}
        return CommitHistory(MappingProxyType(kept), is_complete=False)


EMPTY_HISTORY: Final = CommitHistory(MappingProxyType({}), is_complete=True)
"""History of a table without snapshots."""


class Verdict(StrEnum):
    """What a commit may do; see the truth table of the module."""

    WRITE = "write"
    ALREADY_COMMITTED = "already committed"
    FOREIGN_QUERY = "foreign query"
    UNKNOWN_OUTCOME = "unknown outcome"


def history_of(newest_first: Iterable[Snapshot]) -> CommitHistory:
    """Reads the history from the snapshots of a table, newest first; stops at the first that carries the map.

    The iterable may be lazy and may end early where snapshots have expired.
    """
    passed: list[Snapshot] = []
    base = CommitHistory(MappingProxyType({}), is_complete=False)
    is_empty = True
    for snapshot in newest_first:
        is_empty = False
        text = (snapshot.properties or {}).get(COMMITS_PROPERTY)
        if text is not None:
            base = parse_history(text, snapshot.id)
            break
        passed.append(snapshot)
        if snapshot.id == FIRST_SNAPSHOT_ID:
            base = EMPTY_HISTORY
            break
    if is_empty:
        return EMPTY_HISTORY
    users = dict(base.users)
    for snapshot in reversed(passed):
        _overlay(users, snapshot)
    return CommitHistory(MappingProxyType(users), base.is_complete)


def decide(history: CommitHistory, commit_user: str, identifier: int, query_id: str | None) -> Verdict:
    """Applies the truth table of the module."""
    if identifier == BATCH_COMMIT_IDENTIFIER:
        return Verdict.WRITE
    trace = history.users.get(commit_user)
    if trace is None:
        return Verdict.WRITE if history.is_complete or identifier == 0 else Verdict.UNKNOWN_OUTCOME
    if trace.query_id != query_id:
        return Verdict.FOREIGN_QUERY
    return Verdict.ALREADY_COMMITTED if identifier <= trace.identifier else Verdict.WRITE


def is_committed(
    history: CommitHistory, commit_user: str, identifier: int, query_id: str | None, *, table: str
) -> bool:
    """True when the commit is there, False when it may be written; the two refusals raise, with the remedy."""
    match decide(history, commit_user, identifier, query_id):
        case Verdict.WRITE:
            return False
        case Verdict.ALREADY_COMMITTED:
            return True
        case Verdict.FOREIGN_QUERY:
            trace = history.users[commit_user]
            raise InvalidRequestError(
                f"table {table}: commit user {commit_user!r} last committed {trace.identifier} as "
                f"{_query_text(trace.query_id)}, this is {_query_text(query_id)}; nothing was written. Either the "
                "checkpoint was deleted or belongs to another query: restore it, or give this query another commit "
                "user (it then starts as a new writer and may repeat rows that are in the table already)"
            )
        case Verdict.UNKNOWN_OUTCOME:
            raise UnknownOutcomeError(
                f"table {table}: no snapshot says whether {identifier} of commit user {commit_user!r} was committed, "
                "because snapshots have expired since; nothing was written. Look whether the rows are in the table, "
                "then start with another commit user at 0; keep snapshots longer (snapshot.num-retained.min, "
                "snapshot.time-retained) than the stream may stand still"
            )


def parse_history(text: str, snapshot_id: int) -> CommitHistory:
    """Reads the carried map; text that is no such map is refused, because guessing could double a commit."""
    try:
        source = orjson.loads(text)
        users = {
            str(user): CommitTrace(int(identifier), None if query_id is None else str(query_id), int(time_ms))
            for user, (identifier, query_id, time_ms) in source["users"].items()
        }
        return CommitHistory(MappingProxyType(users), is_complete=bool(source["complete"]))
    except (orjson.JSONDecodeError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise UnknownOutcomeError(
            f"snapshot {snapshot_id}: the property {COMMITS_PROPERTY} is unreadable ({error}); "
            "a newer version of this library may have written it: upgrade before writing"
        ) from error


def history_to_text(history: CommitHistory) -> str:
    """Writes the carried map; the inverse of `parse_history`."""
    users = {user: [trace.identifier, trace.query_id, trace.time_ms] for user, trace in sorted(history.users.items())}
    return orjson.dumps({"complete": history.is_complete, "users": users}).decode()


def _overlay(users: dict[str, CommitTrace], snapshot: Snapshot) -> None:
    """Counts a snapshot of another library as a commit of its user, without a query id."""
    if snapshot.commit_identifier == BATCH_COMMIT_IDENTIFIER:
        return
    known = users.get(snapshot.commit_user)
    last = snapshot.commit_identifier if known is None else max(known.identifier, snapshot.commit_identifier)
    users[snapshot.commit_user] = CommitTrace(last, None, snapshot.time_ms)


def _query_text(query_id: str | None) -> str:
    return "a writer without a query id" if query_id is None else f"query {query_id}"
