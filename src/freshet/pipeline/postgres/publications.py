"""Publications: which tables they have, and what keeps a stream from being complete.

A publication that was dropped and made again stops a slot for good up to 17, and 18 skips its changes without a word:
so it is looked at before each stream.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from freshet._frozen import Frozen
from freshet.pipeline.config.model import PostgresConfig
from freshet.pipeline.postgres.server import psycopg

_SINCE_15: Final = 150_000
_SHOWN_MAX: Final = 3
LEFT_OUT: Final = 0
"""The `entry_oid` of a table that `postgres.tables` does not have any more."""
_PART: Final = (
    b"SELECT attnames::text[], rowfilter FROM pg_publication_tables "
    b"WHERE pubname = %s AND schemaname = %s AND tablename = %s"
)
PRIMARY_KEY: Final = (
    "ARRAY(SELECT a.attname::text FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid "
    "AND a.attnum = ANY ((i.indkey::int2[])[0:i.indnkeyatts - 1]) "
    "WHERE i.indrelid = c.oid AND i.indisprimary AND i.indimmediate "
    "ORDER BY array_position(i.indkey::int[], a.attnum::int))"
)
"""The columns of the primary key of `c`, in SQL; a DEFERRABLE one does not count."""


class PublishedPart(Frozen):
    """What a publication has of a table: its columns (None: all) and the condition of its rows, in SQL."""

    columns: frozenset[str] | None = None
    row_filter: str | None = None


def published_part(session: psycopg.Connection[Any], publication: str | None, schema: str, table: str) -> PublishedPart:
    """All of the table where the publication has it not."""
    if publication is None or session.info.server_version < _SINCE_15:
        return PublishedPart()
    row = session.execute(_PART, (publication, schema, table)).fetchone()
    return PublishedPart() if row is None else PublishedPart(frozenset(row[0]), row[1])


def publication_problems(session: psycopg.Connection[Any], config: PostgresConfig) -> Iterator[str]:
    """What is wrong with the publication of a source, with the SQL that mends it."""
    name = config.publication
    row = session.execute(
        b"SELECT pubinsert, pubupdate, pubdelete, pubtruncate, puballtables FROM pg_publication WHERE pubname = %s",
        (name,),
    ).fetchone()
    if row is None:
        yield (
            f"publication {name} is not there: {create_sql(session, config)}\n(as the owner of the tables, with CREATE "
            "on the database; a slot that was read with one of this name that was dropped does not go on)"
        )
        return
    left_out = [word for word, has in zip(("insert", "update", "delete", "truncate"), row, strict=False) if not has]
    if left_out:
        yield (
            f"publication {name} leaves out {', '.join(left_out)}: ALTER PUBLICATION {quoted(name)} SET (publish = "
            "'insert, update, delete, truncate')"
        )
    published = published_tables(session, name)
    if not any(config.takes(*each) for each in published):
        matching = _matching(session, config)
        what = f"ALTER PUBLICATION {quoted(name)} ADD TABLE {', '.join(matching) or '<schema.table>'}"
        if published and not matching:
            what = (
                "they are names as schema.table, in which * is any part (public.*), and no regular expressions; it has "
                f"{', '.join(map('.'.join, published[:_SHOWN_MAX]))}{', …' if len(published) > _SHOWN_MAX else ''}"
            )
        yield f"publication {name} has no table of {', '.join(config.tables)}: {what}"


def published_tables(session: psycopg.Connection[Any], name: str) -> list[tuple[str, str]]:
    """The tables of a publication, as (schema, table)."""
    query = b"SELECT schemaname, tablename FROM pg_publication_tables WHERE pubname = %s ORDER BY 1, 2"
    return [(str(schema), str(table)) for schema, table in session.execute(query, (name,)).fetchall()]


class PublishedTable(NamedTuple):
    """A table of a publication: the condition of its rows, in SQL, which one of its name it is, which one of its name
    the publication is, since when it is in it: a number that is another one where it was taken out in between, the
    columns of its primary key, who owns the publication, and a number that is another one where that was altered in
    between; what becomes of its tables alters only them. `target` is the table of the lake that its rows go to, empty
    where they go nowhere, None where it is not known."""

    row_filter: str | None
    oid: int
    publication_oid: int
    entry_oid: int | None = None
    key: Sequence[str] | None = None
    publication_state: Sequence[int] | None = None
    target: str | None = None


PublishedTables = Mapping[tuple[str, str], PublishedTable]
"""By schema and table."""


def taken_tables(session: psycopg.Connection[Any], config: PostgresConfig) -> PublishedTables:
    """The tables of a publication that a source takes."""
    row_filter, schema_entry, of_schemas = "NULL", "NULL", ""
    if session.info.server_version >= _SINCE_15:
        row_filter, schema_entry = "p.rowfilter", "s.oid"
        of_schemas = "LEFT JOIN pg_publication_namespace s ON s.pnpubid = u.oid AND s.pnnspid = n.oid "
    query = (
        f"SELECT p.schemaname::text, p.tablename::text, {row_filter}, c.oid::bigint, u.oid::bigint, "
        f"coalesce(e.oid, {schema_entry})::bigint, {PRIMARY_KEY}, ARRAY[u.pubowner::bigint, u.xmin::text::bigint] "
        "FROM pg_publication_tables p "
        "JOIN pg_publication u USING (pubname) JOIN pg_namespace n ON n.nspname = p.schemaname "
        "JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = p.tablename "
        f"LEFT JOIN pg_publication_rel e ON e.prpubid = u.oid AND e.prrelid = c.oid {of_schemas}"
        "WHERE pubname = %s ORDER BY 1, 2"
    )
    rows = session.execute(query.encode(), (config.publication,)).fetchall()
    return {(schema, table): PublishedTable(*each) for schema, table, *each in rows if config.takes(schema, table)}


def narrowed_problems(
    session: psycopg.Connection[Any], config: PostgresConfig, before: PublishedTables, now: PublishedTables
) -> Iterator[str]:
    """Tables that a publication had `before`, and has no more, or not the same rows of: their changes do not come."""
    for (schema, table), held in before.items():
        found = now.get((schema, table))
        if not config.takes(schema, table) or (found is not None and found.row_filter == held.row_filter):
            continue
        name = f"{quoted(schema)}.{quoted(table)}"
        if found is not None:
            what = f"has other rows of {name} than before: WHERE {found.row_filter or 'true'}"
        elif _is_there(session, schema, table):
            what = f"does not have {name} any more"
        else:
            continue  # dropped, or renamed
        yield (
            f"publication {config.publication} {what}. Changes that it left out do not come again, and the table of "
            "the lake lacks them. Leave the table out of postgres.tables, and what the lake has of it stays as it is. "
            "Or give the publication what it is to have, and copy the table again: freshet resync FILE --table TABLE"
        )


def remade_problems(config: PostgresConfig, before: PublishedTables, now: PublishedTables) -> Iterator[str]:
    """A publication and tables that are others than those of their names before, or were out of it in between."""
    made = {each.publication_oid for each in before.values()}
    is_remade = bool(made) and made.isdisjoint(each.publication_oid for each in now.values())
    if is_remade:
        yield (
            f"publication {config.publication} is another one than before (dropped and made again): changes that came "
            "while there was none do not come again, and up to PostgreSQL 17 they stop the stream. Copy the tables "
            "again: freshet resync FILE"
        )
    elif any(_is_altered(before[name], found) for name, found in now.items() if name in before):
        yield (
            f"publication {config.publication} was altered (ALTER PUBLICATION … SET): where it left out updates or "
            "deletions, or sent those of partitions as their root's, they do not come again. Copy the tables again: "
            "freshet resync FILE"
        )
    for (schema, table), found in now.items():
        held = before.get((schema, table))
        if held is None:
            continue
        if held.oid != found.oid:
            yield remade_table(schema, table)
        elif held.entry_oid == LEFT_OUT:
            yield (
                f"table {quoted(schema)}.{quoted(table)} was left out of postgres.tables, and is there again: changes "
                "that came in between do not come again. Copy it again: freshet resync FILE --table TABLE. Or leave it "
                "out, and what the lake has of it stays"
            )
        elif not is_remade and _is_new_entry(held, found):
            yield (
                f"table {quoted(schema)}.{quoted(table)} was taken out of publication {config.publication} and given "
                "to it again: changes that came in between do not come again. Copy it again: freshet resync FILE "
                "--table TABLE. Or leave it out of postgres.tables, and what the lake has of it stays"
            )


def _is_altered(held: PublishedTable, found: PublishedTable) -> bool:
    """Not where it was given to another owner, which is no other way to alter it."""
    was, now = held.publication_state, found.publication_state
    is_same = None in (was, now) or held.publication_oid != found.publication_oid
    return not is_same and was != now and list(was or ())[:1] == list(now or ())[:1]


def _is_new_entry(held: PublishedTable, found: PublishedTable) -> bool:
    return None not in (held.entry_oid, found.entry_oid) and held.entry_oid != found.entry_oid


def remade_table(schema: str, table: str) -> str:
    """What to say of a table that has the name of another one."""
    return (
        f"table {quoted(schema)}.{quoted(table)} is another one than before (dropped and made again, or another was "
        "given its name): the lake has the rows of the one before, and may lack some of its own. Copy it again: "
        "freshet resync FILE --table TABLE. Or leave it out of postgres.tables, and what the lake has of it stays"
    )


class LakeTargets(Frozen):
    """Where rows go by the rules of a pipeline file: `of` the names of a database, a schema and a table, as in
    `PublishedTable`; `is_renamed` says whether a table of the lake has another name, the second, by now."""

    of: Callable[[str, str, str], str | None] = lambda *_: None
    is_renamed: Callable[[str, str], bool] = lambda *_: False

    def sent(self, database: str, tables: PublishedTables) -> PublishedTables:
        """Tables with where their rows go."""
        return {name: each._replace(target=self.of(database, *name)) for name, each in tables.items()}

    def problems(self, before: PublishedTables, now: PublishedTables) -> Iterator[str]:
        """Tables whose rows went elsewhere before."""
        for (schema, table), found in now.items():
            held = before.get((schema, table))
            was = None if held is None or held.oid != found.oid else held.target
            if was is None or not found.target or found.target == was or self.is_renamed(was, found.target):
                continue
            yield (
                f"rows of table {quoted(schema)}.{quoted(table)} go to {found.target} by the rules of sync.tables, and "
                f"went {f'to {was}' if was else 'nowhere'} before: what came until now is not there. Copy them: "
                f"freshet resync FILE --table {found.target}. Or have the rules send them where they went"
                f"{f', or give {was} the name {found.target}' if was else ''}"
            )


def rekeyed_problems(lake_key: Collection[str], before: PublishedTables, now: PublishedTables) -> Iterator[str]:
    """Tables whose rows are not kept apart any more in the table of the lake, whose key is made of these columns."""
    for name, found in now.items():
        held = before.get(name)
        if held is not None and held.oid == found.oid and found.key is not None:
            problem = rekeyed_table(lake_key, *name, held.key or (), found.key)
            yield from () if problem is None else [problem]


def rekeyed_table(
    lake_key: Collection[str], schema: str, table: str, before: Sequence[str], now: Sequence[str]
) -> str | None:
    """What to say of a table that had a key of these columns, and has another one, or none."""
    kept_apart, are_kept_apart = (bool(key) and set(key) <= set(lake_key) for key in (before, now))
    if are_kept_apart or not kept_apart:
        return None
    name, was, of = f"{quoted(schema)}.{quoted(table)}", ", ".join(before), ", ".join(sorted(lake_key))
    what = (
        f"the primary key of table {name} is {', '.join(now)}" if now else f"table {name} has no primary key any more"
    )
    return (
        f"{what} (it was {was}), and the key of the table of the lake is made of {of}: several rows of the source "
        f"would be one. If that is meant, or each row has {of} of its own, copy the rows again and go on: freshet "
        "resync FILE. Else give them a table with the other key, under another name, with another checkpoint and slot"
    )


def _is_there(session: psycopg.Connection[Any], schema: str, table: str) -> bool:
    query = b"SELECT to_regclass(format('%%I.%%I', %s::text, %s::text)) IS NOT NULL"
    return session.execute(query, (schema, table)).fetchone() == (True,)


def create_sql(session: psycopg.Connection[Any], config: PostgresConfig) -> str:
    """The statement that makes the publication."""
    tables = _matching(session, config)
    return f"CREATE PUBLICATION {quoted(config.publication)} FOR TABLE {', '.join(tables) or '<schema.table>'}"


def _matching(session: psycopg.Connection[Any], config: PostgresConfig) -> Sequence[str]:
    query = (
        b"SELECT n.nspname, c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
        b"WHERE c.relkind IN ('r', 'p') AND c.relpersistence = 'p' AND NOT c.relispartition "
        b"AND n.nspname NOT IN ('pg_catalog', 'information_schema') ORDER BY 1, 2"
    )
    rows = session.execute(query).fetchall()
    return [f"{quoted(schema)}.{quoted(table)}" for schema, table in rows if config.takes(schema, table)]


def quoted(name: str) -> str:
    """A name as SQL has it."""
    return name if name.isidentifier() and name.islower() and name.isascii() else '"' + name.replace('"', '""') + '"'
