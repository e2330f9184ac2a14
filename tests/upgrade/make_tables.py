"""The tables of a golden archive: several users, a consumer, an ALTER, a tag, and level 0 left as it is at the end."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from random import Random
from typing import Any

from freshet import AddColumn, Catalog, ChangeType, Table
from tests.upgrade.kinds import amid, check_kept, options_in
from tests.upgrade.shapes import COLUMNS, LATER_COLUMN, USERS, Commit, Row, Shape, drawn, folded, rows_after

ORDER = ((0, 1), (1, 1), (0, 2), (0, 3), (1, 2), (0, 4), (1, 3))
"""Who commits, under which number."""
ALTERED_AT = 3
STOPPED_AT = 5
CONSUMER = "audit"
TAG = "kept"
ENOUGH_LEVELS = {"num-sorted-run.compaction-trigger": "3"}


def make_tables(warehouse: Path, shapes: Sequence[Shape]) -> dict[str, Any]:
    """Makes them; returns what the manifest says of each."""
    catalog = Catalog(str(warehouse))
    logging.getLogger("freshet").setLevel(logging.ERROR)  # of write-only commits that emit no changelog
    return {shape.name: _made(catalog, shape, Random(number)) for number, shape in enumerate(shapes)}


def _made(catalog: Catalog, shape: Shape, source: Random) -> dict[str, Any]:
    users = [(USERS[user], identifier) for user, identifier in ORDER]
    commits = drawn(shape, source, users, later=ALTERED_AT)
    commits[STOPPED_AT - 1] = replace(commits[STOPPED_AT - 1], write_only=True)
    trigger = ENOUGH_LEVELS if shape.primary_keys else {}
    table = catalog.create_table(
        f"db.{shape.name}",
        schema=COLUMNS,
        primary_keys=shape.primary_keys,
        partition_keys=shape.partition_keys,
        options=options_in(Path(catalog.warehouse), {**trigger, **shape.table_options}),
    )
    emitted: list[Row] = []
    for index, commit in enumerate(commits[:STOPPED_AT]):
        if index == ALTERED_AT:
            if shape.has_changelog:
                emitted = _read_by_consumer(table)
            table = table.alter(AddColumn(LATER_COLUMN, "STRING"), ChangeType("s", "BIGINT"))
        if index == STOPPED_AT - 1:
            table = amid(table, shape)
        write(table, commit)
        if index == 0:
            _tag(table)
    rows = table.scan().to_arrow().to_pylist()
    possible = [shape.lasting(rows_after(shape, commits[:count])) for count in (STOPPED_AT - 1, STOPPED_AT)]
    found = folded(shape, [], [{**row, "_ROW_KIND": "+I"} for row in rows])
    assert shape.lasting(found) in possible, f"{shape.name}: {found}, expected one of {possible}"
    check_kept(table, shape)
    history = table.changelog().to_arrow().to_pylist() if shape.has_changelog else []
    return {
        "written": [asdict(commit) for commit in commits[:STOPPED_AT]],
        "rest": [asdict(commit) for commit in commits[STOPPED_AT:]],
        "rows": found,
        "rows of the tag": [] if shape.waits else rows_after(shape, commits[:1]),
        "rows in the end": shape.lasting(rows_after(shape, commits)),
        "rows of the consumer": folded(shape, [], emitted),
        "changelog": history,
        "snapshots": len(table.snapshots()),
    }


def write(table: Table, commit: Commit) -> Any:
    """Writes and commits."""
    table = table.with_options({"write-only": "true"}) if commit.write_only else table
    with table.writer(commit.user) as writer:
        writer.write(commit.rows)
        return writer.commit(commit.identifier)


def _read_by_consumer(table: Table) -> list[Row]:
    stream = table.stream(consumer_id=CONSUMER, max_wait_s=0)
    return [row for batch in stream for row in batch.to_pylist()]


def _tag(table: Table) -> None:
    """A tag is a copy of a snapshot's file; this head makes none."""
    latest, folder = table.latest_snapshot(), Path(table.location)
    assert latest is not None
    (folder / "tag").mkdir()
    shutil.copy(folder / "snapshot" / f"snapshot-{latest.id}", folder / "tag" / f"tag-{TAG}")
