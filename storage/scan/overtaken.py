"""Says what happened when files that a scan needs are gone: expiry, a rollback or a drop has overtaken the reader.

| found on disk | error |
|---|---|
| no table, or another one of its name | `NotFoundError`: it was dropped while it was read |
| another snapshot of the same id | `RetryableError`: the table was rolled back, read it again |
| neither the snapshot nor a tag that holds it | `RetryableError`: it expired, read a newer one |
| the snapshot, or a tag that holds it | the error as it was: a file is missing that should be there |

Expiry removes the snapshot before the files that only it names, so a file that is missing while its snapshot is there
was lost in another way.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from freshet.storage.exceptions import ConflictError, MissingFileError, NotFoundError, RetryableError, StorageError
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.snapshot import Snapshot


@contextmanager
def explained(store: TableStore, snapshot: Snapshot | None) -> Iterator[None]:
    """Errors about missing files become errors that say why; `snapshot` is the one that is read."""
    try:
        yield
    except (MissingFileError, NotFoundError) as error:
        reason = _reason(store, snapshot)
        if reason is None:
            raise
        raise reason from error


def check_table_is_there(store: TableStore) -> None:
    """Raises `NotFoundError` when the table was dropped, and maybe created again, since it was opened; one call."""
    try:
        store.schemas.check_same(store.schema)
    except ConflictError as error:
        raise NotFoundError(
            f"the table at {store.location} was dropped and created again while it was open; open it anew",
            table=store.location,
        ) from error
    except NotFoundError as error:
        raise NotFoundError(
            f"the table at {store.location} was dropped while it was open", table=store.location
        ) from error


def _reason(store: TableStore, snapshot: Snapshot | None) -> StorageError | None:
    try:
        check_table_is_there(store)
    except NotFoundError as error:
        return error
    if snapshot is None or snapshot in store.snapshots.tags().values():
        return None
    try:
        found = store.snapshots.fresh(snapshot.id)
    except NotFoundError as error:
        return RetryableError(
            f"snapshot {snapshot.id} of {store.location} expired before it was read to its end ({error}): read the "
            "table again to see a newer one; to read for longer, keep snapshots longer (snapshot.time-retained, "
            "snapshot.num-retained.min) or read a tag, which expiry leaves alone",
            table=store.location,
        )
    if found == snapshot:
        return None
    return RetryableError(
        f"snapshot {snapshot.id} of {store.location} was replaced while it was read: the table was rolled back and "
        "has gone on since; read it again",
        table=store.location,
    )
