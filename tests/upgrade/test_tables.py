"""Tables that an earlier head left behind: read as they were, written on, compacted; nothing lost, nothing doubled."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from freshet import Catalog, Table
from tests.kit.quick import some_now
from tests.upgrade.archive import ENGINES_ARCHIVE, HISTORIES_ARCHIVE, KINDS_ARCHIVE, unpack
from tests.upgrade.histories import HISTORIES
from tests.upgrade.kinds import KINDS, check_filters, check_kept, finish
from tests.upgrade.make_tables import CONSUMER, TAG, write
from tests.upgrade.shapes import LATER_COLUMN, SHAPES, Commit, Row, Shape, folded, in_order

ARCHIVES = {ENGINES_ARCHIVE: SHAPES, KINDS_ARCHIVE: KINDS, HISTORIES_ARCHIVE: HISTORIES}
CASES = [
    *some_now([(ENGINES_ARCHIVE, shape) for shape in SHAPES], stride=4),
    *some_now([(KINDS_ARCHIVE, shape) for shape in KINDS], stride=3),
    *some_now([(HISTORIES_ARCHIVE, shape) for shape in HISTORIES], stride=8),
]
Warehouses = Mapping[Path, tuple[Path, dict[str, Any]]]


@pytest.fixture(scope="module")
def warehouses(tmp_path_factory: pytest.TempPathFactory) -> Warehouses:
    """The warehouse of each archive, once, and what its manifest says: what the tables held, and what else is written
    to them. Each test has a table of its own."""
    found = {}
    for archive in ARCHIVES:
        folder = tmp_path_factory.mktemp("upgrade") / "tables"
        unpack(archive, folder.parent, below="tables/")
        found[archive] = folder, json.loads((folder / "manifest.json").read_text())
    return found


@pytest.mark.always("upgrade archives")
@pytest.mark.parametrize(("archive", "shape"), CASES, ids=lambda value: getattr(value, "name", None))
def test_a_table_is_read_and_continued(warehouses: Warehouses, archive: Path, shape: Shape) -> None:
    warehouse, manifest = warehouses[archive]
    then = manifest[shape.name]
    table = Catalog(str(warehouse)).table(f"db.{shape.name}")
    assert table.check().damage == []
    written, rest = ([Commit(**commit) for commit in then[name]] for name in ("written", "rest"))
    assert _rows(shape, table.scan()) == then["rows"]
    check_kept(table, shape)
    assert _rows(shape, table.scan(tag=TAG)) == then["rows of the tag"]
    assert len(table.snapshots()) == then["snapshots"]
    if shape.has_changelog:
        emitted_then = table.changelog().to_arrow().to_pylist()
        if table.store.moves_rows:  # changes of keys that leave a bucket come first now
            assert _of_snapshots(emitted_then) == _of_snapshots(then["changelog"])
        else:
            assert emitted_then == then["changelog"]
    for user in {commit.user for commit in written}:
        last = [commit for commit in written if commit.user == user][-1]
        write(table, last)
    assert len(table.snapshots()) == then["snapshots"], "a commit that was there already was made again"
    emitted = folded(shape, then["rows of the consumer"], _emitted(table))
    for commit in rest:
        write(table, commit)
    table = finish(table, shape)
    assert shape.lasting(_rows(shape, table.scan())) == then["rows in the end"]
    table.compact(full=True)
    assert _rows(shape, table.scan()) == then["rows in the end"]
    check_filters(table, then["rows in the end"])
    assert table.check().damage == []
    if shape.has_changelog:
        assert folded(shape, emitted, _emitted(table)) == then["rows in the end"]
        assert folded(shape, [], table.changelog().to_arrow().to_pylist()) == then["rows in the end"]


@pytest.mark.parametrize("archive", ARCHIVES, ids=lambda archive: archive.name)
def test_an_archive_holds_every_table(warehouses: Warehouses, archive: Path) -> None:
    _, manifest = warehouses[archive]
    assert list(manifest) == [shape.name for shape in ARCHIVES[archive]]


def _rows(shape: Shape, scan: Any) -> list[Row]:
    found = in_order({LATER_COLUMN: None, **row} for row in scan.to_arrow().to_pylist())
    keys = [row["k"] for row in found]
    assert shape.engine == "append" or len(keys) == len(set(keys)), f"{shape.name}: a key is there twice: {keys}"
    return found


def _of_snapshots(changes: list[Row]) -> list[Row]:
    """In the order of the snapshots, whatever the order of each."""
    return sorted(changes, key=lambda row: (row["_SNAPSHOT_ID"], row["p"], row["k"], row["_ROW_KIND"], str(row)))


def _emitted(table: Table) -> list[Row]:
    """What the consumer has not read yet."""
    if not table.consumers():
        return []
    stream = table.stream(consumer_id=CONSUMER, max_wait_s=0)
    return [row for batch in stream for row in batch.to_pylist()]
