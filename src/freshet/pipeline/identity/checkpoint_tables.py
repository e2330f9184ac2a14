"""Which tables a `foreachBatch` query has written, as whom and how far: a small file for each in its checkpoint.

    freshet-table-<hash of the location>.json =
        {"table": location, "created_ms": creation time of the table, "users": {commit user: its last batch}}

The checkpoint goes on where it stopped. A table that was dropped and created again lacks what the batches before have
read, one that was rolled back or restored lacks some of it, and under another commit user the table does not know the
batch that is given again: all three are refused. The file is written once a batch is committed: what a query has not
committed to the table comes again, and the table may be created again meanwhile. A table without a file is taken, and
so is a file without users (of earlier versions): a `foreachBatch` function may write another table from some batch on,
or leave batches out.

A checkpoint that only Spark can reach is given open (`checkpoint_folder`). Pipelines have an owner of their checkpoint
instead (`checkpoint_owner`).

Within this process, a batch goes into a table once for each commit user (`one_call`). A second call for a batch looks
to the table like a replay: it holds the batch, so that nothing would be written, and of a frame that was cut in two one
part would be lost. Within one run of a query Spark gives no batch again, so a second call after one that returned, or
beside one that has not ended, is a mistake. After an error the call may be made again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Any, Final, NamedTuple

from freshet.pipeline.errors.error_kind import ErrorKind
from freshet.pipeline.exceptions import InvalidRequestError, PipelineFailedError
from freshet.pipeline.identity.checkpoint_folder import CheckpointPlace, as_folder, shown_place
from freshet.pipeline.identity.missing_batches import batches_text
from freshet.storage.table import Table

_WRITING: Final = Lock()
"""Sinks of one query share the file of a table."""


class CheckpointTables:
    """The tables of one run of a query, as the sink of one commit user writes them."""

    def __init__(self, checkpoint: CheckpointPlace, commit_user: str) -> None:
        self._checkpoint = shown_place(checkpoint)
        self._folder = as_folder(checkpoint)
        self._commit_user = commit_user
        self._last: dict[str, int | None] = {}
        """The last batch that this run knows to be committed, by location; None of a table without a file."""

    def refuse_other(
        self, table: Table, micro_batch_id: int, committed: int | None, called: Collection[str] = ()
    ) -> None:
        """Raises `PipelineFailedError` where the table is not as the batches before this one have left it.

        `committed` is the last batch that the table holds of this user; `called` are the users who have written this
        batch already in this run.
        """
        if self._folder is None:
            return
        if table.location not in self._last:
            self._last[table.location] = self._noted(table, micro_batch_id, called)
        noted = self._last[table.location]
        if noted is None or (committed is not None and committed >= noted):
            return
        missing = batches_text(0 if committed is None else committed + 1, noted)
        raise self._refused(
            f"table {table.name} does not hold {missing} of commit user {self._commit_user!r}, which checkpoint "
            f"{self._checkpoint} has noted, and the query goes on with batch {micro_batch_id}: the table was restored "
            "from a backup or rolled back, and what those batches read would be missing; nothing was written. Restore "
            "the checkpoint of the same time, or start with a new checkpoint and another commit user, which reads "
            f"everything again; to go on without those rows, remove {self._folder.place(_file_of(table))}",
            micro_batch_id,
        )

    def note(self, table: Table, micro_batch_id: int) -> None:
        """The table holds this batch. Raises `OSError` where the checkpoint cannot be written."""
        if self._folder is None:
            return
        created_ms = table.engine.created_ms()
        with _WRITING:
            known = self._document(table) or {}
            users = known.get("users") or {} if known.get("created_ms") == created_ms else {}
            document = {
                "table": table.location,
                "created_ms": created_ms,
                "users": {**users, self._commit_user: micro_batch_id},
            }
            self._folder.replace(_file_of(table), json.dumps(document))
        self._last[table.location] = micro_batch_id

    def _noted(self, table: Table, micro_batch_id: int, called: Collection[str]) -> int | None:
        """The last batch that the file has of this user, None where it knows none; refuses what it says of others."""
        assert self._folder is not None
        file = self._folder.place(_file_of(table))
        try:
            known = self._document(table)
            if known is None:
                return None
            created_ms, users = known["created_ms"], dict(known.get("users") or {})
        except (ValueError, LookupError, TypeError) as error:
            raise self._refused(
                f"checkpoint {self._checkpoint}: {file} is damaged: {error}. Where table {table.name} was not dropped "
                "and created again since the last run, remove that file",
                micro_batch_id,
            ) from error
        if created_ms != table.engine.created_ms():
            if micro_batch_id == 0:
                return None  # Spark gives all rows again
            raise self._refused(
                f"table {table.name} was dropped and created again since checkpoint {self._checkpoint} was written, "
                f"which goes on with batch {micro_batch_id}: the rows of the batches before would be missing; nothing "
                "was written. To read everything again, start with a new checkpoint and another commit user; to go on "
                f"without those rows, remove {file}",
                micro_batch_id,
            )
        others = {user: last for user, last in users.items() if user not in called}
        if users and self._commit_user not in users and others:
            user, last = max(others.items(), key=lambda each: each[1])
            raise self._refused(
                f"table {table.name}: checkpoint {self._checkpoint} was written as commit user {user!r} up to batch "
                f"{last}, and goes on with batch {micro_batch_id} as {self._commit_user!r}: a batch that is committed "
                f"under the other name would be written twice; nothing was written. Go on with commit_user={user!r}. "
                f"If this is one more sink of the query, call it after that of {user!r}; if {user!r} has ended and its "
                f"last batch was complete, remove {file}",
                micro_batch_id,
            )
        return users.get(self._commit_user)

    def _document(self, table: Table) -> dict[str, Any] | None:
        """What the file of the table says; None where there is none. Raises `ValueError` where it is damaged."""
        assert self._folder is not None
        text = self._folder.read(_file_of(table))
        if text is None:
            return None
        document = json.loads(text)
        if not isinstance(document, dict):
            raise ValueError(f"it is no object: {text[:100]}")
        return document

    @staticmethod
    def _refused(text: str, micro_batch_id: int) -> PipelineFailedError:
        return PipelineFailedError(text, micro_batch_id=micro_batch_id, kind=ErrorKind.INVALID_REQUEST)


def _file_of(table: Table) -> str:
    return f"freshet-table-{hashlib.sha256(table.location.encode()).hexdigest()[:16]}.json"


class _Call(NamedTuple):
    """The last call for a table in a run of a query."""

    micro_batch_id: int
    has_returned: bool


_CALLS: Final[dict[tuple[str, str, str], _Call]] = {}
"""By run, location of the table and commit user: as many as this process has had."""
_LOCK: Final = Lock()
"""A function may call its sinks in threads."""


@contextmanager
def one_call(run_id: str, micro_batch_id: int, table: Table, commit_user: str) -> Iterator[None]:
    """Surrounds a call; raises `InvalidRequestError` where it is the second one for this batch."""
    key, call = (run_id, table.location, commit_user), _Call(micro_batch_id, has_returned=False)
    with _LOCK:
        before = _CALLS.get(key)
        if before is not None and before.micro_batch_id == micro_batch_id:
            raise InvalidRequestError(
                f"table {table.name}: batch {micro_batch_id} was given to a sink of commit user {commit_user!r} "
                "before, so that this call would count as its replay and the rows of this frame would be lost; they "
                "were not written. Give one sink all rows of the batch (first.unionByName(second)), or the second "
                "sink another commit_user"
            )
        _CALLS[key] = call
    try:
        yield
    except BaseException:
        del _CALLS[key]
        raise
    _CALLS[key] = call._replace(has_returned=True)


def users_of(run_id: str, micro_batch_id: int, table: Table) -> set[str]:
    """The commit users whose call for this batch and table has returned."""
    done = _Call(micro_batch_id, has_returned=True)
    return {
        user
        for (run, place, user), call in [*_CALLS.items()]
        if (run, place) == (run_id, table.location) and call == done
    }
