"""How the next schema and the next snapshot of one table are made: the catalog's part in a commit.

A claim asks for one id, once; it neither waits nor tries again, which is the committer's part. What it answers:

| outcome | means | then the committer |
|---|---|---|
| WON | the id is ours; what was claimed is visible, after a crash too | goes on |
| LOST | nothing of ours is there, nor will be | looks at the table again |
| UNKNOWN | what was claimed may be there, may appear yet, or not | asks again, and looks for its uuid |

An error that is raised says that nothing was created.

| claims | of | exclusive by |
|---|---|---|
| `FileClaims` | a warehouse folder, and tables opened by their location | the exclusive create of the store |
| `LockedClaims` | a catalog whose other users do not create exclusively | its lock, held around the exclusive create |
| `RefusedClaims` | a table that is read without the catalog that locks it | nothing: every claim is refused |

A catalog that commits on its own server has claims of its own. A new one runs `tests/storage/catalogs/test_claims.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from enum import Enum
from typing import Final, Protocol, TypeAlias, TypeVar

from freshet._frozen import Frozen
from freshet.storage.catalogs.coordination import (
    COORDINATION,
    CommitRules,
    Coordination,
    check_coordinated,
    commit_rules,
)
from freshet.storage.codec.metadata_json import encode_schema, encode_snapshot
from freshet.storage.exceptions import InvalidRequestError, NotFoundError, RetryableError, StorageError
from freshet.storage.io.file_io import Created, FileIO, NotCreatedError, create_or_ask
from freshet.storage.model.schema import TableSchema
from freshet.storage.model.snapshot import Snapshot
from freshet.storage.paths import TablePaths

T = TypeVar("T")


class ClaimOutcome(Enum):
    """What became of the claim of an id."""

    WON = "won"
    LOST = "lost"
    UNKNOWN = "unknown"


class ClaimAnswer(Frozen):
    """The outcome of a claim; `cause` is why it is UNKNOWN, where an error says so."""

    outcome: ClaimOutcome
    cause: StorageError | None = None


WON: Final = ClaimAnswer(ClaimOutcome.WON)
LOST: Final = ClaimAnswer(ClaimOutcome.LOST)


class TableClaims(Protocol):
    """Claims ids of one table. May be shared by threads."""

    @property
    def rules(self) -> CommitRules:
        """How the writers of the table are coordinated."""

    @property
    def has_lock(self) -> bool:
        """Whether the catalog's lock is held around each claim."""

    def by(self, rules: CommitRules) -> TableClaims:
        """The same by other rules."""

    def on_branch(self, branch: str) -> TableClaims:
        """Claims ids of a branch of the table by the same rules."""

    def check_writable(self) -> None:
        """Raises `InvalidRequestError` where nothing may be written to the table with these claims; no call."""

    def claim_schema(self, schema: TableSchema) -> bool:
        """Makes the schema the latest one; False when another writer has taken its id. `UnknownOutcomeError` when
        it is not known, `NotFoundError` where the table is gone."""

    def claim_snapshot(self, snapshot: Snapshot) -> ClaimAnswer:
        """Makes the snapshot visible under its id, if that is free."""

    def ask_again(self, snapshot: Snapshot) -> ClaimAnswer:
        """After UNKNOWN: whether the snapshot of this id is the one that was claimed, by its uuid; UNKNOWN when there
        is none, or no answer."""


class FileClaims:
    """Exclusive creates of `schema-N` and `snapshot-N`. The bytes of a snapshot are unique by its uuid."""

    def __init__(self, file_io: FileIO, paths: TablePaths, rules: CommitRules = CommitRules()) -> None:  # noqa: B008 - frozen
        self._file_io = file_io
        self._paths = paths
        self._rules = rules

    @property
    def rules(self) -> CommitRules:
        """The rules as they were given."""
        return self._rules

    @property
    def has_lock(self) -> bool:
        """A store has none."""
        return False

    def by(self, rules: CommitRules) -> FileClaims:
        """The same by other rules."""
        return FileClaims(self._file_io, self._paths, rules)

    def on_branch(self, branch: str) -> FileClaims:
        """Creates in the folders of the branch."""
        return FileClaims(self._file_io, self._paths.branch(branch), self._rules)

    def check_writable(self) -> None:
        """Refused on a store whose writers nothing coordinates."""
        check_coordinated(self._rules, self._paths.location)

    def claim_schema(self, schema: TableSchema) -> bool:
        """Creates the file of the schema. Where the one before it is gone, that made a table of this one alone: it is
        taken back."""
        path = self._paths.schema(schema.id)
        if not create_or_ask(self._file_io, path, encode_schema(schema)):
            return False
        if schema.id > 0 and not self._file_io.exists(self._paths.schema(schema.id - 1)):
            self._file_io.delete(path)
            location = self._paths.home
            raise NotFoundError(
                f"the table at {location} was dropped or renamed while it was open; nothing was changed",
                table=location,
                path=path,
            )
        return True

    def claim_snapshot(self, snapshot: Snapshot) -> ClaimAnswer:
        """Creates the file of the snapshot. A store that refuses the call has created nothing, nor has one that says
        so; any other error leaves it open."""
        try:
            return self._ask(self._file_io.create_exclusive, snapshot)
        except (InvalidRequestError, NotCreatedError):
            raise
        except StorageError as error:
            return ClaimAnswer(ClaimOutcome.UNKNOWN, error)

    def ask_again(self, snapshot: Snapshot) -> ClaimAnswer:
        """Compares the bytes that are there; an error says nothing of the claim."""
        try:
            return self._ask(self._file_io.asked_again, snapshot)
        except StorageError as error:
            return ClaimAnswer(ClaimOutcome.UNKNOWN, error)

    def _ask(self, call: Callable[[str, bytes], Created], snapshot: Snapshot) -> ClaimAnswer:
        created = call(self._paths.snapshot(snapshot.id), encode_snapshot(snapshot))
        return ClaimAnswer(ClaimOutcome(created.value))


class LockTimeoutError(RetryableError):
    """The lock of a table could not be had in the time that its catalog waits for it; nothing was created."""


class LockExpiredError(RetryableError):
    """The lock was had so long ago that another program may have it by now; nothing was created."""


def coordinated(claims: TableClaims, coordination: str | None, *, adopt: bool) -> TableClaims:
    """The claims by another `commit.coordination`, None for their own; `InvalidRequestError` for a value that there is
    not, and for `jdbc-lock` where the catalog has no lock."""
    chosen = (
        claims.rules if coordination is None else commit_rules({COORDINATION: coordination}, has_lock=claims.has_lock)
    )
    return claims.by(replace(chosen, adopts=claims.rules.adopts or adopt))


Lock: TypeAlias = Callable[[], AbstractContextManager[object]]
"""Gives a lock to be held. Entering waits for it, and raises where it cannot be had: `LockTimeoutError` after the wait,
`LockExpiredError` for one that would expire while it is used."""


class LockedClaims:
    """Other claims, each while a lock of the catalog is held; one whose lock expires too soon is lost.

    A release that fails takes no claim back: the answer is kept, or the committer would remove the files of a
    snapshot that is visible.
    """

    def __init__(self, claims: TableClaims, lock: Lock, branch_lock: Callable[[str], Lock] | None = None) -> None:
        """`branch_lock` gives the lock of a branch, where that has one of its own."""
        self._claims = claims
        self._lock = lock
        self._branch_lock = branch_lock

    @property
    def rules(self) -> CommitRules:
        """The rules of the claims, where some were chosen, else `jdbc-lock`: the only lock there is."""
        rules = self._claims.rules
        return rules if rules.coordination is not None else replace(rules, coordination=Coordination.JDBC_LOCK)

    @property
    def has_lock(self) -> bool:
        """Yes, whatever the rules are."""
        return True

    def by(self, rules: CommitRules) -> LockedClaims:
        """The same by other rules; the lock is held all the same."""
        return LockedClaims(self._claims.by(rules), self._lock, self._branch_lock)

    def on_branch(self, branch: str) -> LockedClaims:
        """The claims of the branch, with its lock."""
        lock = self._lock if self._branch_lock is None else self._branch_lock(branch)
        return LockedClaims(self._claims.on_branch(branch), lock)

    def check_writable(self) -> None:
        """The lock coordinates."""

    def claim_schema(self, schema: TableSchema) -> bool:
        """Claims as the claims do, with the lock."""
        return self._locked(lambda: self._claims.claim_schema(schema), expired=False)

    def claim_snapshot(self, snapshot: Snapshot) -> ClaimAnswer:
        """Claims as the claims do, with the lock."""
        return self._locked(lambda: self._claims.claim_snapshot(snapshot), expired=LOST)

    def ask_again(self, snapshot: Snapshot) -> ClaimAnswer:
        """The answer of the claims; needs no lock."""
        return self._claims.ask_again(snapshot)

    def _locked(self, claim: Callable[[], T], expired: T) -> T:
        answers: list[T] = []
        try:
            with self._lock():
                answers.append(claim())
        except LockExpiredError:
            return expired
        except Exception:
            if answers:
                return answers[0]
            raise
        return answers[0]


class RefusedClaims:
    """No claims: each is refused with the reason, and nothing is created."""

    def __init__(self, reason: str) -> None:
        self._reason = reason

    @property
    def rules(self) -> CommitRules:
        """None: there are no commits."""
        return CommitRules()

    @property
    def has_lock(self) -> bool:
        """The reason says whose lock it is."""
        return False

    def by(self, rules: CommitRules) -> RefusedClaims:
        """No rules allow a claim."""
        return self

    def on_branch(self, branch: str) -> RefusedClaims:
        """Nor is there one on a branch."""
        return self

    def check_writable(self) -> None:
        """Never: raises `InvalidRequestError`."""
        raise InvalidRequestError(self._reason)

    def claim_schema(self, schema: TableSchema) -> bool:
        """Raises `InvalidRequestError`."""
        raise InvalidRequestError(self._reason)

    def claim_snapshot(self, snapshot: Snapshot) -> ClaimAnswer:
        """Raises `InvalidRequestError`."""
        raise InvalidRequestError(self._reason)

    def ask_again(self, snapshot: Snapshot) -> ClaimAnswer:
        """LOST: nothing was claimed."""
        return LOST
