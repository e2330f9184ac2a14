"""The last commits of every user, as snapshots carry them in their properties, and commits of a number that is used up:
which snapshot has it, and which numbers were passed over.

Every snapshot that this library writes carries, under one key of its `properties`, the last commit of every user, so
that snapshot expiry cannot forget one:

    freshet.commits = {"complete": true,
                       "users": {"orders-cdc": [17, "<query id or null>", <time_ms>]},
                       "digests": {"orders-cdc": [[17, "<hash>", "<range>"], [16, null, ""]]},
                       "carried": {"orders-cdc": "<text>"}}

`carried` holds a text that a user has given with a commit, until it gives another: what it needs to know of its
first commits after they have expired. `digests` holds the last few commits of users who give one, newest first;
null stands for a commit without. Releases that do not know a key ignore it, and drop it with the next snapshot they
write: from then on nothing is known of them.

Other writers of the format do not hand properties on. The map is therefore read by walking back from the latest
snapshot to the newest one that carries the key; snapshots of others passed on the way count as commits of their user
without a query id, of whatever kind they are (an empty append may have been skipped by its writer).

*Complete* means that no commit can have been forgotten: the walk ended at a carrier that says so, or at snapshot 1. No
user is ever dropped: one takes some 100 bytes of the snapshot file.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

import orjson

from freshet._frozen import Frozen
from freshet.storage.exceptions import UnknownOutcomeError
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.commit_message import DIGEST_TEXT_MAX, CommitDigest
from freshet.storage.model.snapshot import BATCH_COMMIT_IDENTIFIER, Snapshot

COMMITS_PROPERTY: Final = "freshet.commits"
"""Key of the carried map in a snapshot's properties; part of what we write, do not change."""

DIGESTS_KEPT: Final = 4
"""Digests carried for each user. A query restarts at its last batch or, where the checkpoint was not written, at the
one before; anything older is refused anyway."""

FIRST_SNAPSHOT_ID: Final = 1


class CommitTrace(Frozen):
    """The last commit of one user. `query_id` is None for plain writers and for snapshots of other libraries.

    `digests` are (identifier, digest) of its last commits, newest first; empty for users who never give any. `carried`
    is the text that it gave last.
    """

    identifier: int
    query_id: str | None
    time_ms: int
    digests: tuple[tuple[int, CommitDigest | None], ...] = ()
    carried: str | None = None


class LastCommits(Frozen):
    """Last commits by user. `is_complete` is False when a user may have been forgotten."""

    users: Mapping[str, CommitTrace]
    is_complete: bool
    has_carrier: bool = True
    """Whether a snapshot was found that carries the map; otherwise only snapshots of other libraries are known."""

    def with_commit(
        self,
        commit_user: str,
        identifier: int,
        query_id: str | None,
        time_ms: int,
        digest: CommitDigest | None = None,
        carried: str | None = None,
    ) -> LastCommits:
        """The same after one more commit."""
        before = self.users.get(commit_user)
        digests = () if before is None else before.digests
        if digest is not None and before is not None and not digests:
            digests = ((before.identifier, None),)  # what came before the first digest counts as equal to any
        if digest is not None or digests:
            digests = ((identifier, digest), *digests)[:DIGESTS_KEPT]
        if carried is None and before is not None:
            carried = before.carried
        trace = CommitTrace(identifier, query_id, time_ms, digests, carried)
        return LastCommits(MappingProxyType({**self.users, commit_user: trace}), self.is_complete)


NO_COMMITS: Final = LastCommits(MappingProxyType({}), is_complete=True)
"""The last commits of a table without snapshots."""


def last_commits_of(newest_first: Iterable[Snapshot]) -> LastCommits:
    """Reads the last commits from the snapshots of a table, newest first; stops at the first that carries the map.

    The iterable may be lazy and may end early where snapshots have expired.
    """
    passed: list[Snapshot] = []
    base = LastCommits(MappingProxyType({}), is_complete=False, has_carrier=False)
    is_empty = True
    for snapshot in newest_first:
        is_empty = False
        text = (snapshot.properties or {}).get(COMMITS_PROPERTY)
        if text is not None:
            base = parse_last_commits(text, snapshot.id)
            break
        passed.append(snapshot)
        if snapshot.id == FIRST_SNAPSHOT_ID:
            base = NO_COMMITS
            break
    if is_empty:
        return NO_COMMITS
    users = dict(base.users)
    for snapshot in reversed(passed):
        _overlay(users, snapshot)
    return LastCommits(MappingProxyType(users), base.is_complete, base.has_carrier)


def parse_last_commits(text: str, snapshot_id: int) -> LastCommits:
    """Reads the carried map; text that is not such a map is refused, because guessing could double a commit."""
    try:
        source = orjson.loads(text)
        digests = {
            str(user): tuple(
                (int(identifier), None if hashed is None else CommitDigest(str(hashed), str(shown)))
                for identifier, hashed, shown in items
            )
            for user, items in source.get("digests", {}).items()
        }
        carried = {str(user): str(text) for user, text in source.get("carried", {}).items()}
        users = {
            str(user): CommitTrace(
                int(identifier),
                None if query_id is None else str(query_id),
                int(time_ms),
                digests.get(user, ()),
                carried.get(user),
            )
            for user, (identifier, query_id, time_ms) in source["users"].items()
        }
        return LastCommits(MappingProxyType(users), is_complete=bool(source["complete"]))
    except (orjson.JSONDecodeError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise UnknownOutcomeError(
            f"snapshot {snapshot_id}: the property {COMMITS_PROPERTY} is unreadable ({error}); "
            "a newer version of this library may have written it: upgrade before writing"
        ) from error


def last_commits_to_text(known: LastCommits) -> str:
    """Writes the carried map; the inverse of `parse_last_commits`."""
    traces = sorted(known.users.items())
    source: dict[str, object] = {
        "complete": known.is_complete,
        "users": {user: [trace.identifier, trace.query_id, trace.time_ms] for user, trace in traces},
    }
    digests = {user: [_digest_item(*item) for item in trace.digests] for user, trace in traces if trace.digests}
    if digests:
        source["digests"] = digests
    carried = {user: trace.carried for user, trace in traces if trace.carried is not None}
    if carried:
        source["carried"] = carried
    return orjson.dumps(source).decode()


def _digest_item(identifier: int, digest: CommitDigest | None) -> list[object]:
    return [identifier, None, ""] if digest is None else [identifier, digest.hash, digest.text[:DIGEST_TEXT_MAX]]


def _overlay(users: dict[str, CommitTrace], snapshot: Snapshot) -> None:
    """Counts a snapshot of another library as a commit of its user, without a query id."""
    if snapshot.commit_identifier == BATCH_COMMIT_IDENTIFIER:
        return
    known = users.get(snapshot.commit_user)
    last = snapshot.commit_identifier if known is None else max(known.identifier, snapshot.commit_identifier)
    users[snapshot.commit_user] = CommitTrace(last, None, snapshot.time_ms)


def snapshot_of_commit(store: TableStore, commit_user: str, identifier: int) -> Snapshot | None:
    """The first snapshot of the commit of this number; None where it has expired, or the number was passed over."""
    found: Snapshot | None = None
    for snapshot in store.snapshots.newest_first(store.snapshots.latest()):
        if snapshot.commit_user != commit_user:
            continue
        if snapshot.commit_identifier == identifier:
            found = snapshot
        elif snapshot.commit_identifier < identifier:
            break
    return found


def was_passed_over(store: TableStore, commit_user: str, identifier: int) -> bool:
    """True where the snapshots show that a later number of the user was committed and this one never was: they reach
    back to a smaller one. False also where they do not reach back so far."""
    for snapshot in store.snapshots.newest_first(store.snapshots.latest()):
        if snapshot.commit_user == commit_user and snapshot.commit_identifier <= identifier:
            return snapshot.commit_identifier < identifier
    return False


def passed_over_text(store: TableStore, commit_user: str, identifier: int, last: int, row_count: int) -> str:
    """Why rows cannot be committed under a number that was passed over."""
    return (
        f"table {store.location}: user {commit_user!r} has committed {last} and never {identifier}: the numbers of a "
        f"user must grow. Nothing was committed; commit these rows ({row_count}) under a number above {last}, without "
        "a number, or by a writer of another commit user"
    )


def replay_text(store: TableStore, commit_user: str, identifier: int, row_count: int) -> str:
    """What became of the rows of a commit whose number is used up, and of the commit that has it."""
    found = snapshot_of_commit(store, commit_user, identifier)
    where = (
        "its snapshot has expired, or a later number was committed first"
        if found is None
        else f"snapshot {found.id} has it"
    )
    return (
        f"table {store.location}: commit {identifier} of user {commit_user!r} was made before ({where}), so this is "
        f"taken for a repetition: nothing was committed, the rows written for it ({row_count}) were discarded. "
        "Rows that are not in the table yet need a number that was not used, or commit() without one"
    )
