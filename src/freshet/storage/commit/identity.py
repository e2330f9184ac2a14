"""Who committed what: decides whether a commit is new, known, foreign or not decidable.

A commit is (commit user, identifier, query id), and the digest of what it was made from, where its writer gives one. It
is judged by the last commits that the snapshot before carries (`commit.last_commits`):

| trace of the user                 | identifier | digest of that identifier      | verdict          |
|-----------------------------------|------------|--------------------------------|------------------|
| same query id, identifier <= last | any        | equal, or none on either side  | ALREADY_COMMITTED |
| same query id, identifier <= last | any        | another                        | OTHER_INPUT      |
| same query id, identifier < last  | any        | forgotten                      | OTHER_INPUT      |
| same query id, identifier > last  | any        | -                              | WRITE            |
| another query id                  | any        | -                              | FOREIGN_QUERY    |
| none, the map complete            | any        | -                              | WRITE            |
| none, the map not complete        | 0          | -                              | WRITE            |
| none, the map not complete        | > 0        | -                              | UNKNOWN_OUTCOME  |

*None on either side*: the writer gives no digest, or the user has never given one (an older release wrote).
*Forgotten*: the user gives digests, and that of this identifier is older than those which are kept.

The identifier 9223372036854775807 is what batch jobs of other libraries commit under, all of them. It has no order and
says nothing about a replay, so nothing here commits under it.

Background compactions leave no trace: repeating one is harmless, its inputs are gone.

Where the number cannot be trusted (a program did not see the end of its last try and comes with another number, or
took one that another program of the same user has used meanwhile), a commit is recognised by its new files, whose names
are random: the delta of a snapshot after the one that the commit was begun on has them, or none has. Snapshots that
expired meanwhile are looked for in the base of the latest one, where their entries stay until compaction and the
merging of manifests have both passed over them.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from operator import index

from freshet._frozen import Frozen
from freshet.storage.commit.last_commits import CommitTrace, LastCommits
from freshet.storage.commit.manifest_index import ManifestIndex
from freshet.storage.exceptions import DifferentInputError, InvalidRequestError, NotFoundError, UnknownOutcomeError
from freshet.storage.metadata.live_files import delta_entries
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.commit_message import CommitDigest
from freshet.storage.model.manifest import EntryKind, ManifestEntry
from freshet.storage.model.snapshot import BATCH_COMMIT_IDENTIFIER, Snapshot


class CommitIdentity(Frozen):
    """Who commits. A commit that is not traced is never taken for a replay (background compactions).

    `carried` is a text that snapshots keep for the user from now on; None leaves the one that it has.
    """

    commit_user: str
    identifier: int
    query_id: str | None = None
    digest: CommitDigest | None = None
    is_traced: bool = True
    carried: str | None = None


class Verdict(StrEnum):
    """What a commit may do; see the truth table of the module."""

    WRITE = "write"
    ALREADY_COMMITTED = "already committed"
    OTHER_INPUT = "other input"
    FOREIGN_QUERY = "foreign query"
    UNKNOWN_OUTCOME = "unknown outcome"


def decide(known: LastCommits, identity: CommitIdentity) -> Verdict:
    """Applies the truth table of the module."""
    trace = known.users.get(identity.commit_user)
    if trace is None:
        return Verdict.WRITE if known.is_complete or identity.identifier == 0 else Verdict.UNKNOWN_OUTCOME
    if trace.query_id != identity.query_id:
        return Verdict.FOREIGN_QUERY
    if identity.identifier > trace.identifier:
        return Verdict.WRITE
    return Verdict.ALREADY_COMMITTED if _has_same_input(trace, identity) else Verdict.OTHER_INPUT


def is_committed(known: LastCommits, identity: CommitIdentity, *, table: str) -> bool:
    """True when the commit is there, False when it may be written; the refusals raise, with the remedy."""
    commit_user, identifier = identity.commit_user, identity.identifier
    match decide(known, identity):
        case Verdict.WRITE:
            return False
        case Verdict.ALREADY_COMMITTED:
            return True
        case Verdict.OTHER_INPUT:
            raise _different_input(known.users[commit_user], identity, table)
        case Verdict.FOREIGN_QUERY:
            trace = known.users[commit_user]
            raise InvalidRequestError(
                f"table {table}: commit user {commit_user!r} last made commit {trace.identifier} as "
                f"{_query_text(trace.query_id)}, this is {_query_text(identity.query_id)}; nothing was written. Either "
                "the checkpoint was deleted or belongs to another query: restore it, or give this query another commit "
                "user (it then starts as a new writer and may repeat rows that are in the table already)"
            )
        case Verdict.UNKNOWN_OUTCOME:
            raise UnknownOutcomeError(
                f"table {table}: no snapshot says whether commit {identifier} of user {commit_user!r} is there, "
                "because snapshots have expired since; nothing was written. Look whether the rows are in the table, "
                "then start with another commit user at 0; keep snapshots longer (snapshot.num-retained.min, "
                "snapshot.time-retained) than the stream may be stopped"
            )


def check_identifier(identifier: int) -> int:
    """The number; refuses those that a commit cannot have before anything is written: other libraries hold an
    identifier in 64 bits."""
    try:
        identifier = index(identifier)
    except TypeError as error:
        raise InvalidRequestError(f"a commit identifier is a whole number, not {identifier!r}") from error
    if identifier < 0:
        raise InvalidRequestError(f"a commit identifier is 0 or more, not {identifier}")
    if identifier >= BATCH_COMMIT_IDENTIFIER:
        raise InvalidRequestError(
            f"a commit identifier is at most {BATCH_COMMIT_IDENTIFIER - 1}, not {identifier}: the number above is "
            "shared by the batch jobs of other libraries and cannot be distinguished from its repetition; count from 0"
        )
    return identifier


def snapshot_that_added(
    store: TableStore,
    index: ManifestIndex,
    entries: Sequence[ManifestEntry],
    *,
    after_id: int,
    latest: Snapshot | None,
) -> Snapshot | None:
    """The first snapshot with an id above `after_id` whose delta adds one of the files; None when there is none.

    Where that snapshot has expired, the latest one is returned. A file that only changes its level keeps its name, and
    two compactions may do that to the same file: it proves nothing.
    """
    moved = {entry.file.file_name for entry in entries if entry.kind is EntryKind.DELETE}
    added = [entry for entry in entries if entry.kind is EntryKind.ADD and entry.file.file_name not in moved]
    if latest is None or not added:
        return None
    identities = {entry.identity for entry in added}
    has_expired = False
    for snapshot_id in range(after_id + 1, latest.id + 1):
        try:
            snapshot = latest if snapshot_id == latest.id else store.snapshots.snapshot(snapshot_id)
            delta = delta_entries(store.manifests, snapshot)
        except NotFoundError:
            has_expired = True
            continue
        if any(entry.kind is EntryKind.ADD and entry.identity in identities for entry in delta):
            return snapshot
    return latest if has_expired and index.is_in_base(latest, added[0]) else None


def _has_same_input(trace: CommitTrace, identity: CommitIdentity) -> bool:
    if identity.digest is None or not trace.digests:
        return True
    for identifier, digest in trace.digests:
        if identifier == identity.identifier:
            return digest is None or digest.hash == identity.digest.hash
    return False


def _different_input(trace: CommitTrace, identity: CommitIdentity, table: str) -> DifferentInputError:
    given = identity.digest
    assert given is not None
    known = dict(trace.digests).get(identity.identifier)
    comes = (
        f"was committed from {known.shown}, and now comes again from {given.shown}"
        if known is not None
        else f"comes from {given.shown} and lies before {trace.identifier}, the last one committed; what it was "
        "committed from is no longer known"
    )
    return DifferentInputError(
        f"table {table}: commit {identity.identifier} of user {identity.commit_user!r} {comes}; nothing was written. "
        "A checkpoint was restored from a backup, or two programs run on one checkpoint: stop the other one and go on "
        "with the newest checkpoint; if that is lost, give this query another commit user and set where it starts to "
        "read (it may repeat rows that are in the table already)",
        table=table,
        commit_user=identity.commit_user,
        identifier=identity.identifier,
        committed=known,
        given=given,
    )


def _query_text(query_id: str | None) -> str:
    return "a writer without a query id" if query_id is None else f"query {query_id}"
