"""Folders of this machine that a table's schema names: somebody's home, in which nothing is put and nothing removed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from freshet import Catalog, Table
from freshet.storage.io.env import LOCAL_DIRS, Env
from freshet.storage.io.local_cache import SPILL_PREFIX
from freshet.storage.io.local_file_io import LocalFileIO
from freshet.storage.metadata.table_handle import handle_from_json
from freshet.storage.metadata.table_store import open_store
from freshet.storage.schema.change import SetOption
from tests.kit.cache_roots import files_of_cache, lookup_stores, place_indexes
from tests.storage.lookup.lookup_tables import eager

LOOKUP, INDEX = "lookup.cache-dir", "cross-partition-upsert.index-dir"
THEIRS = ("thesis.txt", ".bashrc", "photos/a.jpg", ".ssh/config", "v1.0/notes", f"{SPILL_PREFIX}mine/run-1.arrow")


@pytest.fixture(autouse=True)
def _eager(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Stores are built at the first lookup; nothing is allowed on this machine."""
    monkeypatch.delenv(LOCAL_DIRS)
    with eager():
        yield


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Files that are decades old."""
    folder = tmp_path / "home"
    for name in THEIRS:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("theirs")
        os.utime(folder / name, ns=(0, 0))
    for path in folder.rglob("*"):
        os.utime(path, ns=(0, 0))
    return folder


def _table(folder: Path, home: Path | None) -> Table:
    """A table with rows in level 0 and above, whose owner has named the home of another."""
    catalog = Catalog(str(folder / "warehouse"))
    table = catalog.create_table(
        "db.t",
        schema={"k": "BIGINT", "p": "INT", "v": "INT"},
        primary_keys=["k"],
        partition_keys=["p"],
        options={"bucket": "-1", "changelog-producer": "lookup"},
    )
    _write(table)
    if home is not None:
        table = table.alter(SetOption(LOOKUP, str(home)), SetOption(INDEX, str(home)))
    return catalog.table("db.t")


def _write(table: Table) -> None:
    with table.writer("w") as writer:
        writer.write([{"k": k, "p": k % 2, "v": k} for k in range(20)])
        writer.commit()


VERBS: dict[str, Callable[[Table], object]] = {
    "a commit": _write,
    "a lookup of a reader": lambda table: table.lookup(pa.table({"k": [1, 2]})),
    "an update": lambda table: table.update({"v": 7}, "k < 5"),
    "an alter of another option": lambda table: _write(table.alter(SetOption("num-levels", "4"))),
    "a compaction": lambda table: (_write(table), table.compact(full=True)),
    "a removal of orphans": lambda table: table.remove_orphan_files(older_than_ms=0),
}


@pytest.mark.parametrize("verb", VERBS)
def test_nothing_in_a_folder_that_a_schema_names_is_touched(
    verb: str, tmp_path: Path, home: Path, caplog: pytest.LogCaptureFixture
) -> None:
    table = _table(tmp_path, home)
    for _ in range(2):
        VERBS[verb](table)
    assert sorted(str(path.relative_to(home)) for path in home.rglob("*") if path.is_file()) == sorted(THEIRS)
    assert {path.read_text() for path in home.rglob("*") if path.is_file()} == {"theirs"}
    told = [record.getMessage() for record in caplog.records if LOCAL_DIRS in record.getMessage()]
    assert len(told) == len(set(told)), "each once"
    assert all("db.t" in text and str(home) in text for text in told)
    if verb != "a removal of orphans":
        assert told


def _kept(parent: Path) -> tuple[bool, bool]:
    """Whether lookup stores, and indexes, lie below a folder."""
    return bool(files_of_cache(lookup_stores(parent))), bool(files_of_cache(place_indexes(parent)))


@pytest.mark.parametrize("allowed", ["variable", "env", "options", "options given to create_table", "a handle"])
def test_a_folder_is_used_where_this_process_or_the_caller_says_so(
    allowed: str, tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    place, folders = str(tmp_path / "warehouse"), {LOOKUP: str(home), INDEX: str(home)}
    table = _table(tmp_path, home if allowed in ("variable", "env") else None)
    if allowed == "variable":
        (tmp_path / "link").symlink_to(tmp_path)
        monkeypatch.setenv(LOCAL_DIRS, f"{os.pathsep}/nowhere{os.pathsep}{tmp_path / 'link'}")
    elif allowed == "env":
        table = Catalog(place, env=Env(LocalFileIO(), local_dirs=[str(home)])).table("db.t")
    elif allowed == "options":
        table = Catalog(place).table("db.t", options=folders)
    elif allowed == "a handle":  # as a task of Spark gets it
        handle = table.with_options(folders).store.handle
        table = Table(open_store(handle_from_json(handle.to_json())))
    else:
        table = Catalog(place).create_table("db.t", schema={}, options=folders, if_not_exists=True)
    _write(table)
    table.lookup(pa.table({"k": [1]}))
    assert _kept(home) == (True, True)
    assert LOCAL_DIRS not in caplog.text
    assert {name: (home / name).read_text() for name in THEIRS} == dict.fromkeys(THEIRS, "theirs")


@pytest.mark.parametrize(
    ("folder", "allowed", "is_allowed"),
    [
        ("/a/b", "/a", True),
        ("/a", "/a", True),
        ("/a/b", "/", True),
        ("/ab", "/a", False),
        ("/a/../b", "/a", False),
        ("/a", "/a/b", False),
        ("a", "/a", False),
        ("/a", "", False),
        ("/a", ":", False),
    ],
)
def test_which_folders_are_allowed(
    folder: str, allowed: str, is_allowed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert Env(LocalFileIO(), local_dirs=[allowed]).allows_local_dir(folder) is is_allowed or ":" in allowed
    monkeypatch.setenv(LOCAL_DIRS, allowed)
    assert Env(LocalFileIO()).allows_local_dir(folder) is is_allowed


def test_spill_folders_of_others_are_left_alone(tmp_path: Path) -> None:
    """Of the name that ours have: one with files has to have our mark, one without has nothing to lose."""
    (tmp_path / f"{SPILL_PREFIX}notes").mkdir()
    (tmp_path / f"{SPILL_PREFIX}notes" / "run-1.arrow").touch()
    (tmp_path / f"{SPILL_PREFIX}empty").mkdir()
    (tmp_path / "other").mkdir()
    env = Env(LocalFileIO(), str(tmp_path))
    assert env.sweep_scratch() == [str(tmp_path / f"{SPILL_PREFIX}empty")]
    env.release_scratch(str(tmp_path / "other"))
    assert sorted(os.listdir(tmp_path)) == [f"{SPILL_PREFIX}notes", "other"]


@pytest.mark.slow
def test_a_process_that_only_reads_leaves_a_home_alone(tmp_path: Path, home: Path) -> None:
    """With nothing set: one line on stderr; the stores are in the folder for temporary files."""
    _table(tmp_path, home)
    code = (
        "import sys, pyarrow\n"
        "from freshet import Catalog\n"
        "from tests.storage.lookup.lookup_tables import eager\n"
        "with eager():\n"
        "    table = Catalog(sys.argv[1]).table('db.t')\n"
        "    print([table.lookup(pyarrow.table({'k': [k]})).by_key().to_pylist() for k in (1, 2)])\n"
    )
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    command = [sys.executable, "-c", code, str(tmp_path / "warehouse")]
    environment = {**os.environ, "TMPDIR": str(temporary)}
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert "'v': 2" in ran.stdout
    assert ran.stderr.count(f"{LOOKUP}={home} is not used") == 1, ran.stderr
    assert _kept(temporary)[0]
    assert sorted(str(path.relative_to(home)) for path in home.rglob("*") if path.is_file()) == sorted(THEIRS)
