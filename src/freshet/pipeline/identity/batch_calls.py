"""Calls of sinks in this process, by the run of a query: a batch goes into a table once for each commit user.

A second call for a batch looks to the table like a replay: it holds the batch, so that nothing would be written, and of
a frame that was cut in two one part would be lost. Within one run of a query Spark gives no batch again, so a second
call after one that returned, or beside one that has not ended, is a mistake. After an error the call may be made again.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Final, NamedTuple

from freshet.pipeline.exceptions import InvalidRequestError
from freshet.storage.table import Table


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
