"""Replication slots of a server: what there is, whether a stream may go on with one, and what to do where it may not.

The lake's position is the truth, a slot a lower bound. A slot that is ahead of the lake has lost changes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

from freshet._frozen import Frozen
from freshet.pipeline.errors.error_kind import ErrorKind
from freshet.pipeline.exceptions import PipelineFailedError
from freshet.pipeline.postgres.lsn import lsn_of, lsn_text
from freshet.pipeline.postgres.server import ServerPlace, failure, psycopg

PLUGIN: Final = "pgoutput"
_WAIT_MS: Final = 10_000
_HISTORY: Final = re.compile(rb"^(\d+)\t([0-9A-F]+/[0-9A-F]+)", re.MULTILINE)
START_OVER: Final = "To go on: freshet resync FILE, which takes a new slot and copies the tables again"
"""What to do where a slot cannot go on."""


class Identity(Frozen):
    """What `IDENTIFY_SYSTEM` says: a server that was restored or promoted may use positions again. `ended` are the
    timelines before its own, and where each ended."""

    systemid: str
    timeline: int
    lsn: int
    database: str
    ended: Mapping[int, int] = {}


class Slot(Frozen):
    """A row of `pg_replication_slots`; `held_bytes` of WAL stay for it, `behind_bytes` are not confirmed."""

    name: str
    plugin: str | None
    database: str | None
    active_pid: int | None
    confirmed: int | None
    restart: int | None
    is_lost: bool
    held_bytes: int | None
    behind_bytes: int | None
    safe_bytes: int | None

    def is_of(self, database: str) -> bool:
        """Whether a stream of this database can read it at all."""
        return self.plugin == PLUGIN and self.database == database


def identify(connection: psycopg.Connection[Any]) -> Identity:
    """The server of a replication connection."""
    row = connection.execute(b"IDENTIFY_SYSTEM").fetchone()
    assert row is not None
    timeline, history = int(row[1]), b""
    if timeline > 1:
        with suppress(psycopg.errors.UndefinedFile):  # it need not keep it
            (told,) = connection.execute(f"TIMELINE_HISTORY {timeline}".encode()).fetchall()
            history = told[1] if isinstance(told[1], bytes) else str(told[1]).encode()
    ended = {int(number): lsn_of(lsn.decode()) for number, lsn in _HISTORY.findall(history)}
    return Identity(str(row[0]), timeline, lsn_of(str(row[2])), str(row[3]), ended)


def slot_named(session: psycopg.Connection[Any], name: str) -> Slot | None:
    """A slot of the server; None where there is none."""
    has_status = session.info.server_version >= 130_000
    status = "wal_status, safe_wal_size" if has_status else "NULL, NULL"
    now = "CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_lsn() END"
    query = (
        f"SELECT plugin, database, active_pid, confirmed_flush_lsn::text, restart_lsn::text, {status}, "
        f"({now} - restart_lsn)::bigint, ({now} - confirmed_flush_lsn)::bigint "
        "FROM pg_replication_slots WHERE slot_name = %s"
    )
    row = session.execute(query.encode(), (name,)).fetchone()
    if row is None:
        return None
    plugin, database, pid, confirmed, restart, wal_status, safe, held, behind = row
    return Slot(
        name,
        plugin,
        database,
        pid,
        None if confirmed is None else lsn_of(confirmed),
        None if restart is None else lsn_of(restart),
        wal_status == "lost" or (has_status and restart is None and confirmed is not None),
        held,
        behind,
        safe,
    )


def create_slot(place: ServerPlace, name: str, *, is_failover: bool = False) -> int:
    """Creates a slot, which standbys may keep ready (`is_failover`, from 17 on); gives the position from which it has
    every change. Waits for all transactions that are open, but not for ever."""
    with place.session(replication=True) as connection:
        connection.execute(f"SET lock_timeout = {_WAIT_MS}; SET statement_timeout = {_WAIT_MS}".encode())
        try:
            more = " (FAILOVER true)" if is_failover else ""
            row = connection.execute(f'CREATE_REPLICATION_SLOT "{name}" LOGICAL {PLUGIN}{more}'.encode()).fetchone()
        except psycopg.Error as error:
            if error.sqlstate in ("57014", "55P03"):
                raise PipelineFailedError(
                    f"slot {name} was not created in {_WAIT_MS // 1000} s: it waits for every open transaction to end"
                    f"{_open_transactions(place)}. End them (an orphan of PREPARE TRANSACTION with ROLLBACK PREPARED), "
                    "and start again. A standby waits for word of its primary: SELECT pg_log_standby_snapshot() there",
                    kind=ErrorKind.RETRYABLE,
                ) from error
            raise failure(place, error, f"slot {name} cannot be created") from error
        assert row is not None
        return lsn_of(str(row[1]))


def _open_transactions(place: ServerPlace) -> str:
    rows = place.rows(
        "SELECT 'process ' || pid || ' (' || coalesce(usename, '?') || ', since ' || xact_start || ')' "
        "FROM pg_stat_activity WHERE backend_xid IS NOT NULL AND pid <> pg_backend_pid() "
        "UNION ALL SELECT 'prepared ' || gid || ' (since ' || prepared || ')' FROM pg_prepared_xacts LIMIT 5"
    )
    return f", of which there are: {', '.join(str(row[0]) for row in rows)}" if rows else ""


def drop_slot(place: ServerPlace, name: str) -> bool:
    """Drops a slot that nobody reads; False where there is none."""
    with place.session() as session:
        if slot_named(session, name) is None:
            return False
        session.execute(b"SELECT pg_drop_replication_slot(%s)", (name,))
        return True


def refuse_slot(slot: Slot | None, name: str, identity: Identity, start: int, known: int) -> None:
    """Raises where a stream cannot go on at `start` with a slot. `known` is how far the pipeline has confirmed where
    there was nothing to read."""
    if slot is None:
        raise _refused(
            f"slot {name} is not there any more, and the lake has the changes up to {lsn_text(start)}: those from "
            f"there to {lsn_text(identity.lsn)} are missing, and those that come. {START_OVER}"
        )
    if not slot.is_of(identity.database):
        raise _refused(
            f"slot {name} is that of plugin {slot.plugin} and database {slot.database}, not of {PLUGIN} and "
            f"{identity.database}: give the source another slot"
        )
    if slot.is_lost:
        raise _refused(
            f"slot {name} is lost: the server has removed WAL that it needed (max_slot_wal_keep_size). The lake has "
            f"the changes up to {lsn_text(start)}, and those from there to {lsn_text(identity.lsn)} are missing. "
            f"{START_OVER}"
        )
    if slot.confirmed is not None and slot.confirmed > max(start, known):
        raise _refused(
            f"slot {name} stands at {lsn_text(slot.confirmed)}, and the lake has the changes up to {lsn_text(start)}: "
            "what lies between was confirmed by somebody else, or the checkpoint is older than the slot, and the "
            f"server does not send it again. {START_OVER}"
        )


def refuse_active(slot: Slot | None) -> None:
    """Raises where another process reads a slot."""
    if slot is not None and slot.active_pid is not None:
        raise PipelineFailedError(
            f"slot {slot.name} is read by another process (process {slot.active_pid} of the server); end it, or wait: "
            "that of a machine that is gone ends after wal_sender_timeout",
            kind=ErrorKind.RETRYABLE,
        )


def refuse_identity(found: Identity, systemid: str, timeline: int, place: ServerPlace, lsn: int) -> None:
    """Raises where a server is not the one whose positions the checkpoint has, the last of which is `lsn`. A standby
    that was promoted is, if it had everything up to there."""
    is_heir = found.ended.get(timeline, -1) >= lsn
    if found.systemid != systemid or (found.timeline != timeline and not is_heir):
        raise _refused(
            f"{place.shown} is system {found.systemid}, timeline {found.timeline}, and the checkpoint was written from "
            f"system {systemid}, timeline {timeline}: another server, or one that was restored or promoted, uses "
            f"positions again for other changes. Name the server that it was. {START_OVER}"
        )


def _refused(text: str) -> PipelineFailedError:
    return PipelineFailedError(text, kind=ErrorKind.INVALID_REQUEST)
