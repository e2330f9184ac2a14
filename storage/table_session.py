"""A writer and its committer as one thing: write rows, commit them under an identifier, once.

    with table.writer("loader-1") as writer:
        writer.write(rows)
        writer.commit(identifier=7)      a second time, in any process: nothing happens

Rows written and not committed are gone when the session ends. Identifiers of one commit user must grow; the commit
user belongs to one program at a time. A commit that is known already discards the rows written for it.
"""

from __future__ import annotations

from operator import index
from types import TracebackType

import pyarrow as pa

from freshet.storage.commit.committer import CommitResult, Committer
from freshet.storage.commit.identity import check_identifier
from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.merge.merge_metrics import MergeMetrics
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.commit_message import CommitMessage
from freshet.storage.write.table_writer import TableWriter


class TableSession:
    """What `Table.writer` gives; not safe for use by several threads at once."""

    def __init__(self, store: TableStore, commit_user: str, *, parallelism: int) -> None:
        if not isinstance(commit_user, str) or not commit_user.isprintable():
            raise InvalidRequestError(
                f"the commit user is a name of printable characters such as 'loader-1', not {commit_user!r}"
            )
        self._store = store
        self._committer = Committer(store, commit_user)
        self._parallelism = parallelism
        self._writer = self._open_writer()
        self._has_rows = False
        self._is_closed = False
        self._pending: list[CommitMessage] = []

    @property
    def merge_metrics(self) -> MergeMetrics:
        """How many keys this session has merged, and for how many of them values were folded one by one."""
        return self._writer.merge_metrics

    def write(self, data: pa.Table | pa.RecordBatch) -> int:
        """Takes rows; an optional column `_ROW_KIND` says '+I', '-U', '+U' or '-D' (default '+I').

        Returns the rows accepted, which is less than given where the table ignores deletes. Raises
        `InvalidRequestError` before anything is taken when a column does not fit.
        """
        self._check_open()
        if self._pending:
            raise InvalidRequestError(
                f"the last commit to {self._store.location} failed and waits for its next try: commit again, or abort, "
                "before writing more",
                path=self._store.location,
            )
        if not self._has_rows:
            # Rows of others committed since our last commit are older than these: number ours after them.
            self._writer.rebase(self._store.snapshots.latest())
            self._has_rows = True
        return self._writer.write(data)

    def compact(self, *, full: bool = False) -> None:
        """Compacts the buckets written by this session with the next commit."""
        self._check_open()
        self._writer.compact(full=full)

    def commit(self, identifier: int | None = None) -> CommitResult:
        """Makes everything written since the last commit visible, exactly once per identifier.

        Without an identifier the one after the last of this commit user is taken: then a program that dies and starts
        again must find out by itself which rows it had committed. When making the snapshot fails, the rows are still
        there: commit again, under the same identifier if the outcome was unknown. When writing the files of the rows
        fails (a full disk), they may be lost: further calls are refused until `abort`, then write them again.
        """
        self._check_open()
        number = self._next_identifier() if identifier is None else _checked_identifier(identifier)
        if self._committer.has_committed(number).is_committed:
            self._writer.abort()
            self._forget()
            return CommitResult((), already_committed=True)
        if not self._pending:
            self._pending = self._writer.prepare_commit(number)
        result = self._committer.commit(number, self._pending)
        self._forget()
        self._writer.rebase(self._store.snapshots.latest())
        return result

    def abort(self) -> None:
        """Gives up what was written since the last commit and removes its files.

        Files of a commit that failed stay, since its outcome may be unknown; orphan cleaning takes them otherwise.
        """
        self._writer.abort()
        self._forget()

    def _forget(self) -> None:
        self._pending, self._has_rows = [], False

    def close(self) -> None:
        """Ends the session; uncommitted rows are gone."""
        self._is_closed = True
        self._writer.abort()

    def __enter__(self) -> TableSession:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _check_open(self) -> None:
        if self._is_closed:
            raise InvalidRequestError(
                f"this writer of {self._store.location} is closed; open another one", path=self._store.location
            )

    def _next_identifier(self) -> int:
        last = self._committer.has_committed(0).last
        return 0 if last is None else last.identifier + 1

    def _open_writer(self) -> TableWriter:
        return TableWriter(self._store, base_snapshot=self._store.snapshots.latest(), parallelism=self._parallelism)


def _checked_identifier(identifier: int) -> int:
    """Refused before any file is written: other libraries hold an identifier in 64 bits."""
    try:
        number = index(identifier)
    except TypeError as error:
        raise InvalidRequestError(f"a commit identifier is a whole number, not {identifier!r}") from error
    check_identifier(number)
    return number
