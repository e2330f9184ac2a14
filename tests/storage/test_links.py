"""Folders of a table that are links: no verb removes anything behind one.

Who may write a table can put a link in the place of any folder of it; what it leads to may be somebody else's.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from itertools import product
from pathlib import Path

import pytest

from freshet import Catalog, Table
from freshet.storage.exceptions import StorageError
from tests.kit.quick import some_now

FOLDERS = (
    "p=1",
    "p=1/bucket-0",
    "index",
    "manifest",
    "snapshot",
    "changelog",
    "schema",
    "tag",
    "consumer",
    "branch",
    "branch/branch-b",
    "branch/branch-b/snapshot",
    "branch/branch-b/schema",
)
"""Below that of the table."""


def _commit(table: Table) -> object:
    with table.writer("w") as writer:
        writer.write([{"k": 1, "p": 1, "v": 1}])
        return writer.commit()


def _partitions(table: Table) -> object:
    table.drop_partition({"p": 1})
    return table.expire_snapshots(retain_max=1, retain_min=1)


VERBS: dict[str, Callable[[Catalog, Table], object]] = {
    "expire_snapshots": lambda _, table: table.expire_snapshots(retain_max=1, retain_min=1),
    "commit that expires": lambda _, table: (
        _commit(table.with_options({"snapshot.num-retained.max": "1", "snapshot.num-retained.min": "1"})),
        table.store.env.finish_later(),
    ),
    "commit that expires changelogs": lambda _, table: (
        _commit(
            table.with_options(
                {
                    "snapshot.num-retained.max": "1",
                    "snapshot.num-retained.min": "1",
                    "changelog.num-retained.max": "2",
                    "changelog.num-retained.min": "2",
                }
            )
        ),
        table.store.env.finish_later(),
    ),
    "drop_partition, expired": lambda _, table: _partitions(table),
    "remove_orphan_files": lambda _, table: table.remove_orphan_files(older_than_ms=-1000),
    "purge": lambda _, table: table.purge(orphans_older_than_ms=-1000),
    "rollback": lambda _, table: table.rollback(table.snapshots()[0].id, delete_newer=True, force=True),
    "tags.delete": lambda _, table: table.tags.delete("t"),
    "branches.drop": lambda _, table: table.branches.drop("b"),
    "delete_consumer": lambda _, table: table.delete_consumer("c"),
    "drop_table": lambda catalog, _: catalog.drop_table("db.t"),
    "drop_database": lambda catalog, _: catalog.drop_database("db", cascade=True),
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A warehouse with a table that has all of it, and an orphan in each folder."""
    folder = tmp_path_factory.mktemp("made")
    table = Catalog(str(folder)).create_table(
        "db.t",
        schema={"k": "BIGINT", "p": "INT", "v": "INT"},
        primary_keys=["k", "p"],
        partition_keys=["p"],
        options={
            "bucket": "1",
            "deletion-vectors.enabled": "true",
            "changelog-producer": "input",
            "snapshot.num-retained.max": "4",
            "snapshot.num-retained.min": "2",
            "changelog.num-retained.max": "8",
            "changelog.num-retained.min": "8",
            "snapshot.clean-empty-directories": "true",
        },
    )
    for number in range(6):
        with table.writer("w") as writer:
            writer.write([{"k": k, "p": k % 2, "v": number} for k in range(number % 3, 4)])
            writer.commit()
        if number == 2:
            table.tags.create("t")
            table.branches.create("b", from_tag="t")
    table.reset_consumer("c", 100)
    _commit(Catalog(str(folder)).table("db.t$branch_b"))
    table.store.env.finish_later()
    for name in ("", *FOLDERS):
        (folder / "db.db" / "t" / name / ".orphan.tmp").write_text("an orphan")
    return folder


def _files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def _run(verb: str, warehouse: Path) -> StorageError | None:
    """What a refusal says, if the verb is refused."""
    catalog = Catalog(str(warehouse))
    try:
        VERBS[verb](catalog, catalog.table("db.t"))
    except StorageError as error:
        return error
    return None


@pytest.mark.few(5)
@pytest.mark.parametrize(
    ("verb", "name"), [("drop_table", ""), ("drop_database", ""), *some_now(product(VERBS, FOLDERS), 5)]
)
def test_no_verb_removes_anything_behind_a_link(verb: str, name: str, made: Path, tmp_path: Path) -> None:
    warehouse, elsewhere = tmp_path / "warehouse", tmp_path / "elsewhere"
    shutil.copytree(made, warehouse)
    linked = warehouse / "db.db" / "t" / name
    shutil.move(linked, elsewhere)
    linked.symlink_to(elsewhere)
    before = _files(elsewhere)
    assert before
    error = _run(verb, warehouse)
    assert before - _files(elsewhere) == set(), error
    assert error is None or "leads out of the table" in str(error) or not verb.startswith("drop_")


@pytest.mark.slow
def test_the_commands_as_processes(made: Path, tmp_path: Path) -> None:
    """Orphans of a bucket that leads to a home, then a drop of its table."""
    warehouse, home = tmp_path / "warehouse", tmp_path / "home"
    shutil.copytree(made, warehouse)
    home.mkdir()
    (home / "thesis.txt").write_text("mine")
    os.utime(home / "thesis.txt", ns=(0, 0))
    (warehouse / "db.db" / "t" / "p=1" / "bucket-7").symlink_to(home)

    def run(*arguments: str) -> str:
        command = [sys.executable, "-m", "freshet", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        return done.stdout + done.stderr

    assert "bucket-7 leads out of the table" in run("orphans", str(warehouse), "db.t", "--delete")
    run("sql", str(warehouse), "DROP TABLE db.t")
    assert not (warehouse / "db.db" / "t").exists()
    assert [path.name for path in home.iterdir()] == ["thesis.txt"]


@pytest.mark.few(6)
@pytest.mark.parametrize(
    ("verb", "link"), some_now(product(VERBS, ("none", "warehouse", "parent", "database")), 3, first=2)
)
def test_a_warehouse_that_is_linked_loses_nothing_of_its_verbs(
    verb: str, link: str, made: Path, tmp_path: Path
) -> None:
    """What each verb removes, it removes there too; a database that is a link goes without what is behind it."""
    real = tmp_path / "disk" / "warehouse"
    shutil.copytree(made, real)
    if link == "warehouse":
        (tmp_path / "link").symlink_to(real)
    elif link == "parent":
        (tmp_path / "parent").symlink_to(tmp_path / "disk")
    elif link == "database":
        shutil.move(real / "db.db", tmp_path / "moved.db")
        (real / "db.db").symlink_to(tmp_path / "moved.db")
    given = {"warehouse": tmp_path / "link", "parent": tmp_path / "parent" / "warehouse"}.get(link, real)
    table = (tmp_path / "moved.db" if link == "database" else real / "db.db") / "t"
    before = _files(table)
    assert _run(verb, given) is None
    gone = before - _files(table)
    if (verb, link) == ("drop_database", "database"):
        assert not gone
        assert not (real / "db.db").exists()
    else:
        assert gone
