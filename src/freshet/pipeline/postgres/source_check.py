"""What a server lacks so that a source can read it, each with the SQL that gives it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import psycopg

from freshet.pipeline.config.model import PostgresConfig
from freshet.pipeline.postgres.publications import PRIMARY_KEY, publication_problems, published_tables, quoted
from freshet.pipeline.postgres.server import ServerPlace
from freshet.pipeline.postgres.slots import PLUGIN, START_OVER, slot_named

VERSION_MIN: Final = 120_000
STANDBY_MIN: Final = 160_000
FAILOVER_MIN: Final = 170_000
LakeKey = Callable[[str, str], tuple[str, ...] | None]
"""The key, by the source's names, that the table of the lake has for the rows of a table; None where it takes the
source's."""

_TABLE: Final = (
    "SELECT EXISTS (SELECT FROM pg_attribute WHERE attrelid = c.oid AND attnum > 0 AND NOT attisdropped), "
    "c.relreplident::text, has_table_privilege(c.oid, 'SELECT'), row_security_active(c.oid), "
    f"{PRIMARY_KEY} FROM pg_class c WHERE c.oid = to_regclass(%s)"
)


def server_problems(config: PostgresConfig, lake_key: LakeKey) -> Iterator[str]:
    """All of it; raises `PipelineFailedError` where the server cannot be asked."""
    with ServerPlace.of(config).session() as session:
        yield from _of_server(session, config)
        problems = list(publication_problems(session, config))
        yield from problems
        for schema, table in [] if problems else published_tables(session, config.publication):
            if config.takes(schema, table):
                yield from _of_table(session, config, schema, table, lake_key(schema, table))


def server_warnings(config: PostgresConfig) -> Iterator[str]:
    """What should be known before a pipeline depends on a server."""
    with ServerPlace.of(config).session() as session:
        if session.info.parameter_status("server_encoding") == "SQL_ASCII":
            yield (
                f"database {session.info.dbname} has the encoding SQL_ASCII, so its texts may be anything: one that is "
                "no UTF-8 stops the copy and the stream. Leave tables that have such texts out of postgres.tables, and "
                "of the publication"
            )
        slot = slot_named(session, config.slot)
        if slot is not None and slot.safe_bytes is not None and slot.held_bytes is not None:
            yield (
                f"slot {config.slot} holds back {slot.held_bytes >> 20} MiB of WAL, and is lost once there are "
                f"{slot.safe_bytes >> 20} MiB more (max_slot_wal_keep_size)"
            )
        if slot is None:
            for (text,) in session.execute(
                b"SELECT 'the transaction of process ' || pid || ', since ' || xact_start FROM pg_stat_activity "
                b"WHERE backend_xid IS NOT NULL AND xact_start < now() - interval '5 s' "
                b"UNION ALL SELECT 'the prepared transaction ' || gid || ', since ' || prepared FROM pg_prepared_xacts"
            ).fetchall():
                yield f"the slot cannot be created before {text}, has ended"


def _of_server(session: psycopg.Connection[Any], config: PostgresConfig) -> Iterator[str]:
    if session.info.server_version < VERSION_MIN:
        yield f"PostgreSQL {session.info.server_version // 10_000} is too old: versions from 12 on are read"
    version, (is_standby,) = session.info.server_version, _row(session, "SELECT pg_is_in_recovery()")
    if is_standby and version < STANDBY_MIN:
        yield f"this is a standby of PostgreSQL {version // 10_000}, which decodes no log (16 does): name its primary"
    if is_standby and config.failover:
        yield "a standby makes no failover slot: name its primary, or leave failover out"
    if config.failover and version < FAILOVER_MIN:
        yield f"failover wants PostgreSQL 17, this is {version // 10_000}: leave it out"
    level, slots, used = _row(
        session,
        "SELECT current_setting('wal_level'), current_setting('max_replication_slots')::int, "
        "(SELECT count(*) FROM pg_replication_slots)",
    )
    if level != "logical":
        yield f"wal_level is {level}: ALTER SYSTEM SET wal_level = 'logical', then start the server again"
    role, may = _row(
        session, "SELECT rolname::text, rolreplication OR rolsuper FROM pg_roles WHERE rolname = current_user"
    )
    if not may:
        yield f"role {role} may not replicate: ALTER ROLE {quoted(role)} REPLICATION (or a role of a managed server)"
    slot = slot_named(session, config.slot)
    if slot is None and used >= slots:
        yield (
            f"all {slots} replication slots are in use: drop one that nobody needs (pg_drop_replication_slot), or "
            "ALTER SYSTEM SET max_replication_slots, then start the server again"
        )
    if slot is not None and (slot.plugin != PLUGIN or slot.database != session.info.dbname):
        yield (
            f"slot {config.slot} is that of plugin {slot.plugin} and database {slot.database}: give the source another "
            "slot"
        )
    elif slot is not None and slot.is_lost:
        yield (f"slot {config.slot} is lost, its WAL was removed (max_slot_wal_keep_size). {START_OVER}")


def _of_table(
    session: psycopg.Connection[Any], config: PostgresConfig, schema: str, table: str, lake_key: tuple[str, ...] | None
) -> Iterator[str]:
    name = f"{quoted(schema)}.{quoted(table)}"
    has_columns, identity, may_read, is_secured, key = _row(session, _TABLE, name)
    if not has_columns:
        yield without_columns(name)
    if identity == "n":
        yield f"{name} has REPLICA IDENTITY NOTHING: ALTER TABLE {name} REPLICA IDENTITY DEFAULT"
    if identity == "i":
        yield (
            f"{name} has REPLICA IDENTITY USING INDEX, and its deletions come without the primary key: ALTER TABLE "
            f"{name} REPLICA IDENTITY DEFAULT, or FULL"
        )
    if identity == "d" and not key:
        yield (
            f"{name} has no primary key (a DEFERRABLE one does not count), so its updates and deletions fail at the "
            f"source as long as it is published: ALTER TABLE {name} ADD PRIMARY KEY (…), ALTER TABLE {name} REPLICA "
            "IDENTITY FULL, or take it out of the publication"
        )
    if not may_read and config.snapshot != "never":
        yield f"{name} may not be read: GRANT SELECT ON {name} TO {quoted(str(session.info.user))}"
    if is_secured and config.snapshot != "never":
        role = quoted(str(session.info.user))
        yield (
            f"{name} has row-level security, which hides rows from the copy: ALTER ROLE {role} BYPASSRLS (as a "
            "superuser), or write snapshot: never"
        )
    if identity == "d" and key and lake_key is not None and set(lake_key) != set(key):
        yield (
            f"{name} has the key {', '.join(key)}, and the table of the lake {', '.join(lake_key)}, which its "
            f"deletions do not bring: ALTER TABLE {name} REPLICA IDENTITY FULL, or the same key"
        )


def without_columns(name: str) -> str:
    """What to say of a table whose rows are nothing."""
    return (
        f"table {name} has no columns, so no table of the lake can have its rows: leave it out of postgres.tables, or "
        "give it one"
    )


def _row(session: psycopg.Connection[Any], query: str, *parameters: Any) -> tuple[Any, ...]:
    row = session.execute(query.encode(), parameters or None).fetchone()
    assert row is not None
    return tuple(row)
