"""Lookup stores and indexes of places that an earlier head left on a machine: used, or built again; the answers count.

A head may change what its stores are: those of another version are removed and made anew, which nobody sees.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from freshet import Catalog
from freshet.storage.io.local_cache import MARK
from tests.kit.cache_roots import lookup_stores, place_indexes
from tests.upgrade.archive import ENGINES_ARCHIVE, KINDS_ARCHIVE, unpack
from tests.upgrade.fixed_place import fixed_place
from tests.upgrade.shapes import LATER_COLUMN, Commit, Shape, folded, in_order
from tests.upgrade.stores import ENGINE_STORES, KIND_STORES, PLACE, stores_in, write_rows


@pytest.mark.parametrize(
    ("archive", "shapes", "kept"),
    [
        pytest.param(ENGINES_ARCHIVE, ENGINE_STORES, {"mapped"}, id="engines"),
        pytest.param(KINDS_ARCHIVE, KIND_STORES, {"mapped", "rocksdb", "places"}, id="kinds"),
    ],
)
def test_what_is_kept_on_a_machine_is_continued(
    archive: Path, shapes: Sequence[Shape], kept: set[str], tmp_path: Path
) -> None:
    unpack(archive, tmp_path, below="stores/")
    manifest = json.loads((tmp_path / "stores" / "manifest.json").read_text())
    assert list(manifest) == [shape.name for shape in shapes]
    with fixed_place(PLACE) as place:
        shutil.copytree(tmp_path / "stores", place, dirs_exist_ok=True)
        assert stores_in(place) == kept
        for name, own in (("cache", lookup_stores), ("index", place_indexes)):  # as in the folder for temporary files
            if (place / name).is_dir():
                (place / name).rename(place / "kept")
                own(place / name).parent.mkdir()
                (place / "kept").rename(own(place / name))
        for shape in shapes:
            table, then = Catalog(str(place)).table(f"db.{shape.name}"), manifest[shape.name]
            for commit in then["rest"]:
                write_rows(table, Commit(**commit))
            table.compact(full=True)
            rows = in_order({LATER_COLUMN: None, **row} for row in table.scan().to_arrow().to_pylist())
            assert rows == then["rows in the end"]
            assert folded(shape, [], table.changelog().to_arrow().to_pylist()) == rows
            assert table.check().damage == []
        assert (lookup_stores(place / "cache") / MARK).is_file()
