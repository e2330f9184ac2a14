"""`freshet demo database`: a PostgreSQL database and a lake that follows it, with neither broker nor JVM.

    1. a PostgreSQL server with twelve tables and rows
    2. `freshet run` of files with `sync`; the database changes meanwhile, and so do its tables (`database_live`)
    3. each table of the lake is compared with the database, row by row

Exit code 1 on any difference. Ctrl-C at any time ends all of it, with exit code 130. With Debezium: `debezium_demo`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

import pyarrow as pa

from freshet.jobs.demo.database_live import DatabaseLive, Feed
from freshet.jobs.demo.postgres_feed import EXACT, PIPELINES, PostgresFeed
from freshet.jobs.demo.postgres_server import PostgresServer, find_programs
from freshet.jobs.demo.row_texts import texts_of_json, texts_of_table
from freshet.jobs.demo.source_database import DATABASE, TARGETS, SourceDatabase
from freshet.jobs.demo.stage import PIPELINES as FOLDER
from freshet.jobs.demo.stage import DemoError, headline, play
from freshet.storage.catalog import Catalog
from freshet.storage.exceptions import NotFoundError
from freshet.storage.table import Table

DEAD_LETTERS: Final = "lake.dead_letters"
DIFFERENCES_SHOWN: Final = 2

Judge = Callable[[Sequence[Table]], Sequence[pa.Table]]
"""What another reader finds in tables."""


def play_database(output: Path | None) -> int:
    """Plays the demo in a new folder; 0 when the lake has what the database has."""
    find_programs()
    return play(_play, output, "database", fetches=False)


def _play(output: Path) -> int:
    began = time.monotonic()
    headline("1. a real PostgreSQL")
    (output / "warehouse").mkdir()
    with PostgresServer.start(DATABASE) as server:
        database = SourceDatabase(server, EXACT)
        database.play("tables")
        database.play("published")
        print(f"  PostgreSQL {server.version} at 127.0.0.1:{server.port}, with twelve tables", flush=True)
        source = follow(output, database, PostgresFeed(database), PIPELINES, "local")
    if source is None:
        return 1
    headline("3. the tables of the lake against the database, row by row")
    are_equal = compare(Catalog(str(output / "warehouse")), source)
    print(f"\n{time.monotonic() - began:.0f} s in all; everything lies in {output}")
    return 0 if are_equal else 1


def follow(
    output: Path, database: SourceDatabase, feed: Feed, pipelines: Sequence[str], engine: str
) -> dict[str, list[dict[str, object]]] | None:
    """The live part; what the database then has, by the names of the tables in the lake, or None when it has failed."""
    files = [FOLDER / f"{name}.yaml" for name in pipelines]
    headline("2. a writer (freshet run) follows the database")
    print(f"  freshet run {' '.join(map(str, files))} --on {engine}")
    live = DatabaseLive(output, database, feed, files, engine)
    try:
        live.run()
    except DemoError as error:
        print(f"\nthe demo has failed: {error}", flush=True)
        return None
    parts = " + ".join(f"{count:,} {what}" for what, count in live.totals.items() if what != "records read")
    print(f"  {live.totals['records read']:,} records read = {parts}, as the batches reported")
    return {target: list(database.rows(tables)) for target, tables in TARGETS.items()}


def compare(catalog: Catalog, source: Mapping[str, Sequence[Mapping[str, object]]], judge: Judge | None = None) -> bool:
    """Prints a line for each table of the lake; True when Freshet, and the judge, read what the source holds.

    `source` are the rows of the database by the names of the tables in the lake.
    """
    agreed = True
    names = [name for name in source if _is_there(catalog, name)]
    read = {} if judge is None else dict(zip(names, judge([catalog.table(name) for name in names]), strict=True))
    width = max(map(len, source))
    for name, rows in source.items():
        start = f"  {name:<{width}}  {len(rows):>6,} rows in the database"
        if name not in names:
            agreed = False
            print(f"{start}: DIFFERENT, the lake has no such table")
            continue
        ours = catalog.table(name).scan().to_arrow()
        readers = {"Freshet": ours}
        if name in read:
            readers["Apache Paimon"] = read[name].cast(ours.schema)
        found = {reader: differences(rows, table) for reader, table in readers.items()}
        agreed &= not any(found.values())
        verdicts = ", ".join(f"{'DIFFERENT' if lines else 'equal'} by {reader}" for reader, lines in found.items())
        print(f"{start}: {verdicts}")
        for line in [f"{reader}: {line}" for reader, lines in found.items() for line in lines]:
            print(f"    {line}")
    return agreed & _show_dead_letters(catalog)


def differences(rows: Sequence[Mapping[str, object]], table: pa.Table) -> list[str]:
    """What a table of the lake lacks of the rows of the database, and has beyond them; nothing where it is equal."""
    columns = list(rows[0]) if rows else table.column_names
    if missing := [name for name in columns if name not in table.column_names]:
        return [f"lacks columns: {', '.join(missing)}"]
    wanted, found = texts_of_json(rows, table.schema), texts_of_table(table, columns)
    parts = {"lacks": wanted - found, "has beyond them": found - wanted}
    return [
        f"{what} {each.total()} rows, such as {' '.join(list(each)[:DIFFERENCES_SHOWN])}"
        for what, each in parts.items()
        if each
    ]


def _show_dead_letters(catalog: Catalog) -> bool:
    """Prints records that could become no row; True when there are none."""
    if not _is_there(catalog, DEAD_LETTERS):
        print("  no dead letters")
        return True
    dead = catalog.table(DEAD_LETTERS).scan().to_arrow()
    print(f"  dead letters: {dead.num_rows}")
    for row in dead.slice(0, DIFFERENCES_SHOWN).to_pylist():
        print(f"    {row['topic']} at {row['log_offset']}: {row['reason']}")
    return bool(dead.num_rows == 0)


def _is_there(catalog: Catalog, name: str) -> bool:
    try:
        catalog.table(name)
    except NotFoundError:
        return False
    return True
