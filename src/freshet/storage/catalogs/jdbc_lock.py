"""The lock of a table: a row of `paimon_distributed_locks`, taken as Apache Paimon 2.0 does, which waits for it too.

A lock is taken by deleting the row of a holder whose time is over, then inserting one, and released by deleting that.
It is not renewed: a holder that needs longer than `lock-acquire-timeout` has lost it without notice. So a holder here

- reads back when its row was made, and deletes no other one;
- looks at the clock just before it creates anything, and gives up when half of its time is over;
- creates exclusively all the same: a lock that was lost costs it another try, and no commit.

The JVM does none of these: one that stalls beyond its time goes on writing.

In PostgreSQL a row has the local time of the session that made it. Sessions are in `lock.time-zone`, which must be the
zone of the JVMs that share the catalog: otherwise their locks look hours old, and are taken away, or hours young.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import Final

from freshet._frozen import Frozen
from freshet.storage.catalogs.claims import LockExpiredError, LockTimeoutError
from freshet.storage.catalogs.jdbc_database import Pool
from freshet.storage.catalogs.jdbc_options import POSTGRESQL, SQLITE, LockOptions
from freshet.storage.catalogs.jdbc_rows import LOCKS, OF_TABLE, TABLES
from freshet.storage.catalogs.metastore import TableName, branch_name
from freshet.storage.exceptions import InvalidRequestError, RetryableError, StorageError
from freshet.storage.io.env import Env

_LOG: Final = logging.getLogger(__name__)

FIRST_WAIT_MS: Final = 100
"""Before the second try; each later wait is twice as long."""

FUTURE_S: Final = 60
"""A row that was made this much later than now was made in another time zone."""

RELEASES: Final = 3
"""Tries to delete the own row."""

AGE_S: Final[Mapping[str, str]] = MappingProxyType(
    {
        SQLITE: "strftime('%s', 'now') - strftime('%s', acquired_at)",
        POSTGRESQL: "EXTRACT(EPOCH FROM AGE(NOW(), acquired_at))",
    }
)
"""Age of a row in the table of locks, by the clock and in the time zone of the session."""
SWEEP_LOCK: Final[Mapping[str, str]] = MappingProxyType(
    {kind: f"DELETE FROM {LOCKS} WHERE {age} > expire_time_seconds and lock_id = :id" for kind, age in AGE_S.items()}
)
INSERT_LOCK: Final = f"INSERT INTO {LOCKS} (lock_id,expire_time_seconds) VALUES (:id, :expire_s)"
READ_LOCK: Final = f"SELECT acquired_at, (SELECT COUNT(*) FROM {TABLES} {OF_TABLE}) FROM {LOCKS} WHERE lock_id = :id"
"""When the own row was made, and whether the catalog knows the table."""
RELEASE_LOCK: Final = f"DELETE FROM {LOCKS} WHERE lock_id = :id AND acquired_at = :acquired_at"
LOCK_HOLDER: Final[Mapping[str, str]] = MappingProxyType(
    {
        kind: f"SELECT acquired_at, {age}, expire_time_seconds FROM {LOCKS} WHERE lock_id = :id"
        for kind, age in AGE_S.items()
    }
)


class HeldLock(Frozen):
    """A lock that was had: when its row was made, by the database's clock, and when it was asked for, by ours."""

    acquired_at: object
    asked_ms: int
    is_table: bool
    """Whether the catalog has a row of the table."""


class JdbcLock:
    """Locks tables of one catalog. May be shared by threads."""

    def __init__(self, env: Env, pool: Pool, catalog_key: str, options: LockOptions) -> None:
        self._env = env
        self._pool = pool
        self._catalog_key = catalog_key
        self._options = options
        self._kind = pool.address.kind

    @contextmanager
    def held(self, name: TableName, branch: str | None = None) -> Iterator[HeldLock]:
        """Holds the lock of a table, or of a branch of it, which has its own; threads of this process wait in line,
        then one of them asks the database."""
        lock_id = self._id(name if branch is None else branch_name(name, branch))
        deadline_ms = self._env.now_ms() + self._options.acquire_timeout_ms
        mutex = self._pool.mutex(lock_id)
        if not mutex.acquire(timeout=self._options.acquire_timeout_ms / 1000):
            raise self._timeout(lock_id, "other threads of this process hold it")
        try:
            held = self._acquire(name, lock_id, deadline_ms)
            try:
                self._check_time(lock_id, held)
                yield held
            finally:
                self._release(lock_id, held)
        finally:
            mutex.release()

    def _acquire(self, name: TableName, lock_id: str, deadline_ms: int) -> HeldLock:
        wait_ms = FIRST_WAIT_MS
        while True:
            reason = "it is held"
            try:
                held = self._try(name, lock_id)
                if held is not None:
                    return held
                self._check_zone(lock_id)
            except RetryableError as error:  # the database may be back before the time is over
                reason = str(error)
            left_ms = deadline_ms - self._env.now_ms()
            if left_ms <= 0:
                raise self._timeout(lock_id, reason)
            self._env.sleep_s(min(wait_ms, self._options.check_max_sleep_ms, left_ms) / 1000)
            wait_ms *= 2

    def _try(self, name: TableName, lock_id: str) -> HeldLock | None:
        asked_ms = self._env.now_ms()
        with self._pool.session() as session:
            left = self._pool.unreleased.get(lock_id)
            if left is not None:
                session.run(RELEASE_LOCK, {"id": lock_id, "acquired_at": left})
                self._pool.unreleased.pop(lock_id, None)
            session.run(SWEEP_LOCK[self._kind], {"id": lock_id})
            expire_s = self._options.acquire_timeout_ms // 1000
            if not session.insert(INSERT_LOCK, {"id": lock_id, "expire_s": expire_s}):
                return None
            rows = session.rows(
                READ_LOCK, {"id": lock_id, "key": self._catalog_key, "db": name.database, "name": name.table}
            )
        # No row: a JVM whose lock had expired has deleted it.
        return HeldLock(rows[0][0], asked_ms, bool(rows[0][1])) if rows else None

    def _check_time(self, lock_id: str, held: HeldLock) -> None:
        """Just before the claim."""
        held_ms = self._env.now_ms() - held.asked_ms
        if held_ms > self._options.acquire_timeout_ms / 2:
            raise LockExpiredError(
                f"lock {lock_id} was had {held_ms / 1000:.1f} s ago and counts for "
                f"{self._options.acquire_timeout_ms / 1000:.1f} s; nothing was created under it. Try again; if it "
                "happens often, raise lock-acquire-timeout",
                option="lock-acquire-timeout",
            )

    def _release(self, lock_id: str, held: HeldLock) -> None:
        """Deletes the own row. One that cannot be deleted is deleted with the next lock of the table, or expires."""
        for _ in range(RELEASES):
            try:
                with self._pool.session() as session:
                    session.run(RELEASE_LOCK, {"id": lock_id, "acquired_at": held.acquired_at})
                return
            except StorageError as error:
                failure = error
        self._pool.unreleased[lock_id] = held.acquired_at
        _LOG.warning(
            "lock %s could not be released (%s); other programs wait until it expires, at most %d s",
            lock_id,
            failure,
            self._options.acquire_timeout_ms // 1000,
        )

    def _check_zone(self, lock_id: str) -> None:
        """Raises for a holder whose row was made in another time zone than this session is in."""
        holder = self._holder(lock_id)
        if holder is not None and holder[1] < -FUTURE_S:
            raise InvalidRequestError(
                f"lock {lock_id} was taken at {holder[0]}, {-holder[1] / 3600:.1f} hours from now: the program that "
                "has it is in another time zone, and each would take the lock of the other one away. Give "
                "lock.time-zone, the zone of the JVMs that use the catalog (-Duser.timezone), to all other programs",
                option="lock.time-zone",
            )

    def _holder(self, lock_id: str) -> tuple[object, float, int] | None:
        """When the row was made, its age and how long it counts, in seconds."""
        with self._pool.session() as session:
            rows = session.rows(LOCK_HOLDER[self._kind], {"id": lock_id})
        return (rows[0][0], float(rows[0][1]), int(rows[0][2])) if rows else None

    def _timeout(self, lock_id: str, reason: str) -> LockTimeoutError:
        waited = f"lock {lock_id} could not be had in {self._options.acquire_timeout_ms / 1000:g} s"
        try:
            holder = self._holder(lock_id)
        except StorageError:
            holder = None
        if holder is not None:
            acquired_at, age_s, expire_s = holder
            reason = f"it is held since {acquired_at} ({age_s:.0f} s) and expires {expire_s} s after that"
        return LockTimeoutError(
            f"{waited}: {reason}. Nothing was created; try again, or raise lock-acquire-timeout. If the program that "
            f"held it is dead and you cannot wait, delete its row of {LOCKS} in {self._pool.address.shown}",
            option="lock-acquire-timeout",
        )

    def _id(self, name: TableName) -> str:
        lock_id = f"{self._catalog_key}.{name.database}.{name.table}"
        if len(lock_id) > self._options.id_length_max:
            raise InvalidRequestError(
                f"the lock of table {name} has a name of {len(lock_id)} characters ({lock_id[:40]}…), and {LOCKS} "
                f"holds {self._options.id_length_max}; choose a shorter name or catalog-key, or widen the "
                "column lock_id and raise lock-key-max-length",
                table=str(name),
                option="lock-key-max-length",
            )
        return lock_id
