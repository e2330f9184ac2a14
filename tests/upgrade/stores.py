"""Tables with lookup stores in a golden archive. A store names the place of its table, so theirs is a fixed one."""

from __future__ import annotations

import fcntl
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from random import Random
from typing import Any, Final

from freshet import Catalog
from tests.upgrade.shapes import COLUMNS, ENGINES, LONG, USERS, WAYS, Commit, Shape, drawn, rows_after

PLACE: Final = Path("/tmp/freshet-golden-stores")
NAMES: Final = ("deduplicate", "sums")
COMMITS: Final = 6
STOPPED_AT: Final = 4


@contextmanager
def the_place() -> Iterator[Path]:
    """The place, empty, for one process at a time."""
    with PLACE.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        shutil.rmtree(PLACE, ignore_errors=True)
        PLACE.mkdir(mode=0o700)
        try:
            yield PLACE
        finally:
            shutil.rmtree(PLACE)


def make_stores(folder: Path) -> dict[str, Any]:
    """Makes the tables, and moves them and their stores into a folder; returns what the manifest says."""
    with the_place() as place:
        found = {name: _made(place, name, Random(number)) for number, name in enumerate(NAMES)}
        shutil.copytree(place, folder)
    return found


def _made(place: Path, name: str, source: Random) -> dict[str, Any]:
    options = {"bucket": "2", "lookup.cache-dir": str(place / "cache"), **LONG, **ENGINES[name], **WAYS["lookup"]}
    shape = Shape(name, name, options)
    commits = drawn(shape, source, [(USERS[0], number) for number in range(1, COMMITS + 1)], later=COMMITS)
    table = Catalog(str(place)).create_table(f"db.{name}", schema=COLUMNS, primary_keys=["k"], options=options)
    for commit in commits[:STOPPED_AT]:
        lookups = write_rows(table, commit)
    assert lookups.get("by_store"), f"no store was asked: {lookups}"
    return {"rest": [asdict(commit) for commit in commits[STOPPED_AT:]], "rows in the end": rows_after(shape, commits)}


def write_rows(table: Any, commit: Commit) -> dict[str, int]:
    """Writes and commits; returns how lookups went."""
    with table.writer(commit.user, parallelism=1) as writer:
        writer.write(commit.rows)
        writer.commit(commit.identifier)
        counts: dict[str, int] = writer.lookup_metrics.counts()
    return counts
