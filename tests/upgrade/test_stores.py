"""Lookup stores that an earlier head left on a machine are used, or built again; never read as something else."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from freshet import Catalog
from tests.upgrade.archive import ARCHIVE, unpack
from tests.upgrade.shapes import LATER_COLUMN, Commit, in_order
from tests.upgrade.stores import NAMES, the_place, write_rows


def test_lookup_stores_are_continued(tmp_path: Path) -> None:
    unpack(ARCHIVE, tmp_path, below="stores/")
    manifest = json.loads((tmp_path / "stores" / "manifest.json").read_text())
    with the_place() as place:
        shutil.copytree(tmp_path / "stores", place, dirs_exist_ok=True)
        stores = {path.name for path in (place / "cache").rglob("*.rows")}
        assert stores
        for name in NAMES:
            table, then = Catalog(str(place)).table(f"db.{name}"), manifest[name]
            lookups = [write_rows(table, Commit(**commit)) for commit in then["rest"]]
            # The first commit has nothing but the stores of then to ask: the files it looks into are of then.
            assert lookups[0].get("by_store", 0) > 0 and lookups[0].get("stores_broken", 0) == 0, lookups
            table.compact(full=True)
            rows = in_order({LATER_COLUMN: None, **row} for row in table.scan().to_arrow().to_pylist())
            assert rows == then["rows in the end"]
