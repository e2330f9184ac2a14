"""The errors of `storage`, by what the caller should do next.

    StorageError
    ├── RetryableError          try again
    ├── InvalidRequestError     fix the call, the option or the input; nothing was written
    │   ├── UnsupportedFeatureError   the table uses something this version does not read or write
    │   ├── NotFoundError             the database, table, snapshot, tag or file that was named is not there
    │   ├── DifferentInputError       a commit was made already under this identifier, from other input
    │   └── AlreadyExistsError        the thing to be created is there already
    ├── CorruptDataError        stop; carries the path and, where it is known, the byte offset
    │   ├── LostCommitError           another program's snapshot is in the place of one that was committed
    │   └── MissingFileError          a file that metadata names is not there: lost, or expired while it was in use
    │       └── MissingManifestError  the same of a manifest; a `NotFoundError` too
    ├── ConflictError           reread and replan: another writer committed
    │   └── OutdatedAssignmentError   commit again: `Table.writer` assigns its rows to dynamic buckets anew
    └── UnknownOutcomeError     find out first; never delete or retry blindly

Every error carries what it is about as attributes, each None where it is not known or not the point: `table` (its
name, or its folder where no name is known), `column`, `option` (the key), `path` (a file or folder). The message is
for people and names what to do; programs look at the class and the attributes. A class exists only where a caller acts
differently.
"""

from __future__ import annotations

from copy import copy
from typing import Final, Protocol, Self

_NEXT_LINE: Final = "\n  "


class Digest(Protocol):
    """What a commit was made from (`model.commit_message`)."""

    @property
    def hash(self) -> str:
        """Equal exactly when the input was."""

    @property
    def text(self) -> str:
        """The range that was read, for people."""


class StorageError(Exception):
    """Root of every error that `storage` raises on purpose."""

    def __init__(
        self,
        message: str = "",
        *,
        table: str | None = None,
        column: str | None = None,
        option: str | None = None,
        path: str | None = None,
    ) -> None:
        super().__init__(_as_text(message))
        self.table = table
        self.column = column
        self.option = option
        self.path = path

    def reworded(self, message: str, **facts: str | None) -> Self:
        """The same kind of error about the same things with another message; `facts` fill in what it did not know."""
        known = {name: value for name, value in vars(self).items() if value is not None}
        error = copy(self)
        error.args = (_as_text(message),)
        vars(error).update(facts | known)
        return error


def _as_text(message: str) -> str:
    """A message that shows what names have in them and does nothing to a terminal. Its own lines are indented ones."""
    if message.isprintable():
        return message
    lines = message.split(_NEXT_LINE)
    return _NEXT_LINE.join("".join(c if c.isprintable() else repr(c)[1:-1] for c in line) for line in lines)


class RetryableError(StorageError):
    """The call failed for a reason that may pass (a full retry budget, a busy disk); try again."""


class OutOfMemoryError(RetryableError):
    """Memory ran out. Another attempt may need less or find more; a pipeline whose batch ends so three times gives
    up."""


class OvertakenError(RetryableError):
    """Expiry or a rollback was faster than a reader. A reader that starts over gets past it, one that keeps its place
    does not."""


class InvalidRequestError(StorageError):
    """The call, an option or the input is wrong; nothing was written."""


class UnsupportedFeatureError(InvalidRequestError):
    """The table or the call uses a feature of the format that is not supported; named, never half-read."""


class NotFoundError(InvalidRequestError):
    """What was named (database, table, snapshot, tag, file) does not exist."""


class AlreadyExistsError(InvalidRequestError):
    """What was to be created exists already."""


class DifferentInputError(InvalidRequestError):
    """The identifier was committed already, from other input: a restored checkpoint, or two programs on one of them.

    `committed` and `given` are the digests of both sides; `committed` is None where it is forgotten.
    """

    def __init__(
        self,
        message: str = "",
        *,
        table: str | None = None,
        commit_user: str = "",
        identifier: int = -1,
        committed: Digest | None = None,
        given: Digest | None = None,
    ) -> None:
        super().__init__(message, table=table)
        self.commit_user = commit_user
        self.identifier = identifier
        self.committed = committed
        self.given = given


class CorruptDataError(StorageError):
    """Bytes on disk are not what the format says. `byte_offset` is None where it is unknown."""

    def __init__(self, message: str = "", *, path: str | None = None, byte_offset: int | None = None) -> None:
        at = f"{path} at byte {byte_offset}" if byte_offset is not None else path
        super().__init__(message if path is None else f"{message} [{at}]", path=path)
        self.byte_offset = byte_offset


class LostCommitError(CorruptDataError):
    """A commit was made, and another program has replaced its snapshot: its rows are not in the table. They are in
    `files`, which `Table.repair_lost_commit(manifest_list)` commits again."""

    def __init__(
        self,
        message: str = "",
        *,
        table: str | None = None,
        snapshot_id: int = 0,
        commit_user: str = "",
        identifier: int = -1,
        files: tuple[str, ...] = (),
        manifest_list: str = "",
    ) -> None:
        super().__init__(message)
        self.table = table
        self.snapshot_id = snapshot_id
        self.commit_user = commit_user
        self.identifier = identifier
        self.files = files
        self.manifest_list = manifest_list


class MissingFileError(CorruptDataError):
    """A file that metadata names is not there. Readers look whether it expired before they call the table damaged."""


class MissingManifestError(MissingFileError, NotFoundError):
    """The same of a manifest or manifest list: who asks for a snapshot that may have expired looks at a newer one."""


class ConflictError(StorageError):
    """Another writer committed something that this change does not fit on; reread and replan."""


class MisfitError(ConflictError):
    """Files or rows that the change is about are not there any more, or not as they were: no snapshot has any of it."""


class OutdatedAssignmentError(ConflictError):
    """Another writer has added keys to dynamic buckets of the same partitions: a new key may be in another bucket by
    now. Nothing was committed; the rows must be assigned to buckets again. `is_certain` is False where files of the
    commit must stay because a request about them may arrive yet."""

    def __init__(self, message: str = "", *, table: str | None = None, is_certain: bool = True) -> None:
        super().__init__(message, table=table)
        self.is_certain = is_certain


class UnknownOutcomeError(StorageError):
    """It is not known whether the change was committed; look at the table before doing anything else."""
