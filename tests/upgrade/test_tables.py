"""Tables that an earlier head left behind: read as they were, written on, compacted; nothing lost, nothing doubled."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from freshet import Catalog, Table
from tests.kit.quick import some_now
from tests.upgrade.archive import ARCHIVE, unpack
from tests.upgrade.make_tables import CONSUMER, TAG, write
from tests.upgrade.shapes import LATER_COLUMN, SHAPES, Commit, Row, Shape, folded, in_order


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The warehouse of the archive, once; each test has a table of its own."""
    folder = tmp_path_factory.mktemp("upgrade")
    unpack(ARCHIVE, folder, below="tables/")
    return folder / "tables"


@pytest.fixture(scope="module")
def manifest(warehouse: Path) -> dict[str, Any]:
    """What the tables held, and what else is written to them."""
    found: dict[str, Any] = json.loads((warehouse / "manifest.json").read_text())
    return found


@pytest.mark.parametrize("shape", some_now(SHAPES, stride=4), ids=lambda shape: shape.name)
def test_a_table_is_read_and_continued(warehouse: Path, manifest: dict[str, Any], shape: Shape) -> None:
    then = manifest[shape.name]
    table = Catalog(str(warehouse)).table(f"db.{shape.name}")
    assert table.check().damage == []
    written, rest = ([Commit(**commit) for commit in then[name]] for name in ("written", "rest"))
    assert _rows(shape, table.scan()) == then["rows"]
    assert _rows(shape, table.scan(tag=TAG)) == then["rows of the tag"]
    assert len(table.snapshots()) == then["snapshots"]
    if shape.has_changelog:
        assert table.changelog().to_arrow().to_pylist() == then["changelog"]
    for user in {commit.user for commit in written}:
        last = [commit for commit in written if commit.user == user][-1]
        write(table, last)
    assert len(table.snapshots()) == then["snapshots"], "a commit that was there already was made again"
    emitted = folded(shape, then["rows of the consumer"], _emitted(table))
    for commit in rest:
        write(table, commit)
    assert _rows(shape, table.scan()) == then["rows in the end"]
    table.compact(full=True)
    assert _rows(shape, table.scan()) == then["rows in the end"]
    assert table.check().damage == []
    if shape.has_changelog:
        assert folded(shape, emitted, _emitted(table)) == then["rows in the end"]
        assert folded(shape, [], table.changelog().to_arrow().to_pylist()) == then["rows in the end"]


def test_the_archive_holds_every_table(manifest: dict[str, Any]) -> None:
    assert list(manifest) == [shape.name for shape in SHAPES]


def _rows(shape: Shape, scan: Any) -> list[Row]:
    found = in_order({LATER_COLUMN: None, **row} for row in scan.to_arrow().to_pylist())
    keys = [row["k"] for row in found]
    assert shape.engine == "append" or len(keys) == len(set(keys)), f"{shape.name}: a key is there twice: {keys}"
    return found


def _emitted(table: Table) -> list[Row]:
    """What the consumer has not read yet."""
    if not table.consumers():
        return []
    stream = table.stream(consumer_id=CONSUMER, max_wait_s=0)
    return [row for batch in stream for row in batch.to_pylist()]
