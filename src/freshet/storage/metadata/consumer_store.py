"""Consumers: streaming readers that have a name, and the next snapshot each of them wants.

    consumer/consumer-<id>    {"nextSnapshot": N}: everything before N was handed over

Snapshots from N on do not expire while the file is there. A file that was not written for longer than
`consumer.expiration-time` belongs to a reader that is gone.

Source: FORMAT.md §12; MERGING.md §7.3.
"""

from __future__ import annotations

from typing import Final

import orjson

from freshet._frozen import Frozen
from freshet.storage.exceptions import CorruptDataError, InvalidRequestError, NotFoundError
from freshet.storage.io.env import Env
from freshet.storage.io.file_io import FileStatus
from freshet.storage.io.removal import Removal
from freshet.storage.paths import CONSUMER_PREFIX, TablePaths

ID_BYTES_MAX: Final = 200
"""A file name has 255 at most, and one that is written has more than the id in it for a moment."""

_READ_ATTEMPTS: Final = 5
_READ_WAIT_S: Final = 0.05
"""Other programs may write the file in place: a reader can meet half of it."""


class Consumer(Frozen):
    """A streaming reader that has a name."""

    name: str
    next_snapshot_id: int
    moved_ms: int
    """When its position was written last, as the store says (epoch milliseconds)."""


class ConsumerStore:
    """The consumers of one table (or branch)."""

    def __init__(self, env: Env, paths: TablePaths) -> None:
        self._env = env
        self._paths = paths

    def all(self, *, within_ms: int | None = None) -> list[Consumer]:
        """The consumers by name; those alone whose file was written within a time, if one is given."""
        after_ms = None if within_ms is None else self._env.now_ms() - within_ms
        files = [status for status in self._files() if after_ms is None or status.modified_ms >= after_ms]
        found = [(status, self._position(status.path)) for status in files]
        return [Consumer(self._id_of(each), at, each.modified_ms) for each, at in found if at is not None]

    def positions(self, *, within_ms: int | None = None) -> dict[str, int]:
        """Next snapshot of each consumer, by id; `within_ms` as in `all`."""
        return {each.name: each.next_snapshot_id for each in self.all(within_ms=within_ms)}

    def min_next(self, *, within_ms: int | None = None) -> int | None:
        """The oldest snapshot that some of these consumers still want, or None without consumers."""
        return min(self.positions(within_ms=within_ms).values(), default=None)

    def position(self, consumer_id: str) -> int | None:
        """Next snapshot of one consumer, or None when it has no file."""
        return self._position(self._path(consumer_id))

    def reset(self, consumer_id: str, next_snapshot_id: int) -> None:
        """Says that everything before a snapshot was handed over; makes the consumer where there is none."""
        if isinstance(next_snapshot_id, bool) or not isinstance(next_snapshot_id, int) or next_snapshot_id < 1:
            raise InvalidRequestError(f"the next snapshot of a consumer is an id from 1 on, not {next_snapshot_id!r}")
        self._env.file_io.overwrite(self._path(consumer_id), orjson.dumps({"nextSnapshot": next_snapshot_id}))

    def delete(self, consumer_id: str) -> bool:
        """Removes a consumer; False when there was none. Snapshots are no longer held back for it."""
        return self._removal.delete(self._path(consumer_id))

    def expire(self, older_than_ms: int) -> list[str]:
        """Removes consumers whose file was last written longer ago than that, and returns their ids."""
        before_ms = self._env.now_ms() - older_than_ms
        gone = [status for status in self._files() if status.modified_ms < before_ms]
        return [self._id_of(status) for status in gone if self._removal.delete(status.path)]

    def active_since(self, time_ms: int) -> list[str]:
        """Ids of the consumers whose file was written at a time or after it."""
        return [self._id_of(status) for status in self._files() if status.modified_ms >= time_ms]

    @property
    def _removal(self) -> Removal:
        return Removal(self._env.file_io, self._paths.location)

    def _files(self) -> list[FileStatus]:
        statuses = self._env.file_io.entries(self._paths.consumer_folder)
        files = (status for status in statuses if status.name.startswith(CONSUMER_PREFIX) and not status.is_folder)
        return sorted(files, key=lambda status: status.name)

    def _id_of(self, status: FileStatus) -> str:
        return status.name.removeprefix(CONSUMER_PREFIX)

    def _path(self, consumer_id: str) -> str:
        is_name = isinstance(consumer_id, str) and consumer_id.strip() and consumer_id.isprintable()
        if not is_name or "/" in consumer_id or len(consumer_id.encode()) > ID_BYTES_MAX:
            raise InvalidRequestError(
                f"{consumer_id!r} cannot be a consumer id: it becomes part of the name of a file, so it is printable "
                f"text without /, not blank, of at most {ID_BYTES_MAX} bytes",
                option="consumer-id",
            )
        return self._paths.consumer(consumer_id)

    def _position(self, path: str) -> int | None:
        for attempt in range(_READ_ATTEMPTS):
            try:
                return int(orjson.loads(self._env.file_io.read_bytes(path))["nextSnapshot"])
            except NotFoundError:
                return None  # removed while we looked
            except (orjson.JSONDecodeError, KeyError, TypeError, ValueError) as error:
                if attempt == _READ_ATTEMPTS - 1:
                    raise CorruptDataError(
                        f"the consumer file cannot be read ({error!r}); remove it if the reader is gone", path=path
                    ) from error
                self._env.sleep_s(_READ_WAIT_S)
        return None
