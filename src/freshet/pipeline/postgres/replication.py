"""One stream of a replication connection: frames in, confirmations out. Nothing is confirmed by itself.

    START_REPLICATION ─▶ drain() ─▶ frames: `w` …, `k` …
                     ◀─ confirm(lsn) ── `r`

Used by one thread. Data that flow do not keep the connection: only replies do (wal_sender_timeout).
"""

from __future__ import annotations

import contextlib
import select
import struct
import time
from typing import Any, Final

from freshet.pipeline.errors.error_kind import ErrorKind
from freshet.pipeline.exceptions import PipelineFailedError
from freshet.pipeline.postgres.lsn import lsn_text
from freshet.pipeline.postgres.server import NO_SLOT, ServerPlace, failure, psycopg
from freshet.pipeline.postgres.slots import START_OVER, Identity, identify
from freshet.pipeline.postgres.wire import EPOCH_US

FRAMES_MAX: Final = 20_000
"""Frames in one drain: joined, they are still in the cache of the processor when they are looked at."""
DRAINED_BYTES: Final = 8 << 20
_STATUS: Final = struct.Struct(">cQQQqc")
_TIMEOUT_S: Final = 60.0
_TIMEOUT_SHARE: Final = 4
_NAP_MS_MIN: Final = 100


class ReplicationStream:
    """A stream from a slot."""

    def __init__(self, place: ServerPlace, slot: str) -> None:
        """Connects; raises `PipelineFailedError`."""
        self._place, self._slot = place, slot
        self._connection = place.connect(replication=True)
        self._pgconn = self._connection.pgconn
        try:
            self.identity: Identity = identify(self._connection)
            row = self._connection.execute(
                b"SELECT setting FROM pg_settings WHERE name = 'wal_sender_timeout'"
            ).fetchone()
        except psycopg.Error as error:
            self._connection.close()
            raise failure(place, error) from error
        timeout_s = int(row[0]) / 1000 if row is not None else _TIMEOUT_S
        self.reply_every_s = min(timeout_s or _TIMEOUT_S, _TIMEOUT_S) / _TIMEOUT_SHARE
        self.begun_s = self.replied_s = time.monotonic()

    def start(self, publication: str, lsn: int) -> None:
        """Begins to stream at a position; raises `PipelineFailedError`."""
        named = publication.replace("'", "''").replace('"', '""')
        command = (
            f'START_REPLICATION SLOT "{self._slot}" LOGICAL {lsn_text(lsn)} '
            f"(proto_version '1', publication_names '\"{named}\"')"
        )
        result = self._pgconn.exec_(command.encode())
        if result.status != psycopg.pq.ExecStatus.COPY_BOTH:
            error = psycopg.errors.error_from_result(result)
            raise failure(self._place, error, f"slot {self._slot}")
        self._pgconn.nonblocking = 1
        self.begun_s = self.replied_s = time.monotonic()

    @property
    def socket(self) -> int:
        """What becomes readable as something comes."""
        found: int = self._pgconn.socket
        return found

    def drain(self) -> list[Any]:
        """The frames that are there, about `FRAMES_MAX` or `DRAINED_BYTES` at most: what libpq has read is taken, as
        its socket says nothing of that. Raises `PipelineFailedError` where the stream has ended."""
        get, frames, drained = self._pgconn.get_copy_data, list[Any](), 0
        try:
            while True:
                size, frame = get(1)
                if size > 0:
                    frames.append(frame)
                    drained += size
                elif size == 0:
                    if len(frames) >= FRAMES_MAX or drained >= DRAINED_BYTES or not self._has_more():
                        break
                    self._pgconn.consume_input()
                else:
                    self._raise_ended()
        except psycopg.Error as error:
            raise failure(self._place, error, f"slot {self._slot}") from error
        return frames

    def confirm(self, lsn: int, *, asks: bool = False) -> None:
        """Says that everything before a position is in the lake; may ask how far the server is."""
        now = time.time_ns() // 1000 - EPOCH_US
        try:
            self._pgconn.put_copy_data(_STATUS.pack(b"r", lsn, lsn, lsn, now, bytes([asks])))
            while self._pgconn.flush():
                select.select([], [self.socket], [], _NAP_MS_MIN / 1000)
        except psycopg.Error as error:
            with contextlib.suppress(psycopg.Error):
                size = 1
                while size > 0:  # what has come is sent again
                    size, _ = self._pgconn.get_copy_data(1)
                if size < 0:
                    self._raise_ended()  # the server has said why
            raise failure(self._place, error, f"slot {self._slot}") from error
        self.replied_s = time.monotonic()

    def close(self) -> None:
        """Ends the connection."""
        self._connection.close()

    def _has_more(self) -> bool:
        readable, _, _ = select.select([self.socket], [], [], 0)
        return bool(readable)

    def _raise_ended(self) -> None:
        """A result instead of data says why; without one the server went away in an orderly way."""
        result = self._pgconn.get_result()
        if result is not None and result.status == psycopg.pq.ExecStatus.FATAL_ERROR:
            error = psycopg.errors.error_from_result(result)
            if error.sqlstate == NO_SLOT and "publication" in str(error):
                raise PipelineFailedError(
                    f"slot {self._slot}: {error.diag.message_primary} at a change that is still to be sent: it was "
                    "dropped, and one that was made again since does not count for changes from before (PostgreSQL up "
                    f"to 17). {START_OVER}",
                    kind=ErrorKind.INVALID_REQUEST,
                ) from error
            raise failure(self._place, error, f"slot {self._slot}")
        raise failure(self._place, psycopg.OperationalError("the server has ended the stream"), f"slot {self._slot}")
