"""Odd names in every call that takes a name: it works and gives the same name back, or is refused by an error of ours.

Nothing is put beside the warehouse, and no message does anything to a terminal.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from freshet import (
    AddColumn,
    Catalog,
    DropColumn,
    RenameColumn,
    SetColumnComment,
    SetComment,
    SetOption,
    StorageError,
    Table,
    col,
    sql,
)
from tests.kit.odd_names import FEW_NAMES, ODD_NAMES
from tests.soak import counts
from tests.soak.counts import chance_of

Made = Callable[[Catalog, Table, str], Any]
"""Does something with a name and gives the name back as it is found then; None where the call is not about one."""


def database(catalog: Catalog, table: Table, name: str) -> Any:
    catalog.create_database(name)
    found = [each for each in catalog.list_databases() if each != "d"]
    catalog.drop_database(name)
    return found[0]


def created(catalog: Catalog, table: Table, name: str) -> Any:
    catalog.create_table(f"d.{name}", schema={"k": "INT"}).append([{"k": 1}])
    found = [each for each in catalog.list_tables("d") if each != "t"]
    assert catalog.table(f"d.{name}").scan().count() == 1
    catalog.drop_table(f"d.{name}")
    return found[0]


def in_database(catalog: Catalog, table: Table, name: str) -> Any:
    catalog.create_table(f"{name}.t", schema={"k": "INT"})
    (found,) = [each for each in catalog.list_databases() if each != "d"]
    catalog.drop_database(found, cascade=True)
    return name if found == name.partition(".")[0] else found


def renamed(catalog: Catalog, table: Table, name: str) -> Any:
    catalog.create_table("d.before", schema={"k": "INT"})
    try:
        catalog.rename_table("d.before", f"d.{name}")
    except StorageError:
        catalog.drop_table("d.before")
        raise
    found = [each for each in catalog.list_tables("d") if each != "t"]
    catalog.drop_table(f"d.{name}")
    return found[0]


def opened(catalog: Catalog, table: Table, name: str) -> Any:
    catalog.has_table(f"d.{name}")
    catalog.table(f"d.{name}")


def summary(catalog: Catalog, table: Table, name: str) -> Any:
    catalog.summary(f"{name}.{name}")


def column(catalog: Catalog, table: Table, name: str) -> Any:
    made = catalog.create_table("d.new", schema={"one": "INT", name: "STRING"})
    try:
        made.append(pa.table({"one": pa.array([1], pa.int32()), name: ["x"]}))
        rows = made.scan(columns=[name], filter=col(name) == "x").to_arrow()
        assert rows.to_pylist() == [{name: "x"}]
        assert made.system("files").scan().to_arrow().num_rows == 1
        made.describe()
    finally:
        catalog.drop_table("d.new")
    return rows.column_names[0]


def key_column(catalog: Catalog, table: Table, name: str) -> Any:
    made = catalog.create_table("d.new", schema={name: "STRING", "n": "INT"}, primary_keys=[name])
    try:
        made.append(pa.table({name: ["x"], "n": pa.array([1], pa.int32())}))
        made.delete(col(name) == "y")
        made.update({"n": 2}, col(name) == "x")
        return made.scan().to_arrow().column_names[0]
    finally:
        catalog.drop_table("d.new")


def partition_column(catalog: Catalog, table: Table, name: str) -> Any:
    made = catalog.create_table("d.new", schema={name: "STRING", "n": "INT"}, partition_keys=[name])
    try:
        made.append(pa.table({name: ["x"], "n": pa.array([1], pa.int32())}))
        found = made.scan().to_arrow().column_names[0]
        made.drop_partition({name: "x"})
        return found
    finally:
        catalog.drop_table("d.new")


def field(catalog: Catalog, table: Table, name: str) -> Any:
    made = catalog.create_table("d.new", schema={"r": f"ROW<a INT, `{name}` INT>"})
    try:
        kind = pa.struct([("a", pa.int32()), (name, pa.int32())])
        made.append(pa.table({"r": pa.array([{"a": 1, name: 2}], kind)}))
        return list(made.scan().to_arrow().to_pylist()[0]["r"])[1]
    finally:
        catalog.drop_table("d.new")


def added(catalog: Catalog, table: Table, name: str) -> Any:
    changed = table.alter(AddColumn(name, "INT"))
    found = changed.schema.column_names[-1]
    changed.alter(DropColumn(name))
    return found


def renamed_column(catalog: Catalog, table: Table, name: str) -> Any:
    changed = table.alter(RenameColumn("v", name))
    found = changed.schema.column_names[1]
    changed.alter(RenameColumn(name, "v"))
    return found


def tag(catalog: Catalog, table: Table, name: str) -> Any:
    table.tags.create(name)
    found = [each.name for each in table.tags.list()]
    assert table.scan(tag=name).count() == 1
    table.tags.delete(name)
    return found[0]


def renamed_tag(catalog: Catalog, table: Table, name: str) -> Any:
    table.tags.create("before")
    try:
        table.tags.rename("before", name)
    except StorageError:
        table.tags.delete("before")
        raise
    found = [each.name for each in table.tags.list()]
    table.tags.delete(name)
    return found[0]


def read_tag(catalog: Catalog, table: Table, name: str) -> Any:
    table.scan(tag=name).count()


def rolled_back(catalog: Catalog, table: Table, name: str) -> Any:
    table.rollback(name, dry_run=True)


def branch(catalog: Catalog, table: Table, name: str) -> Any:
    table.branches.create(name)
    found = table.branches.list()
    assert catalog.table(f"d.t$branch_{name}").name == f"d.t$branch_{name}"
    table.branches.drop(name)
    return found[0]


def opened_branch(catalog: Catalog, table: Table, name: str) -> Any:
    catalog.table("d.t", options={"branch": name}).scan().count()


def consumer(catalog: Catalog, table: Table, name: str) -> Any:
    table.reset_consumer(name, 1)
    found = list(table.consumers())
    table.delete_consumer(name)
    return found[0]


def commit_user(catalog: Catalog, table: Table, name: str) -> Any:
    with table.writer(name) as writer:
        writer.write([{"k": 2, "v": "b", "p": "p"}])
        writer.commit()
    table.system("snapshots").scan().to_arrow()
    return table.snapshots()[-1].commit_user


def partition_value(catalog: Catalog, table: Table, name: str) -> Any:
    table.append([{"k": 5, "v": "b", "p": name}])
    found = table.scan(filter=col("p") == name).to_arrow().column("p").to_pylist()[-1]
    table.system("partitions").scan().to_arrow()
    table.drop_partition({"p": name})
    return found


def value(catalog: Catalog, table: Table, name: str) -> Any:
    table.append([{"k": 6, "v": name, "p": "p"}])
    return table.scan(filter=col("k") == 6).to_arrow().column("v").to_pylist()[-1]


def option_key(catalog: Catalog, table: Table, name: str) -> Any:
    table.alter(SetOption(name, "x"))


def file_prefix(catalog: Catalog, table: Table, name: str) -> Any:
    made = catalog.create_table("d.new", schema={"k": "INT"}, options={"data-file.prefix": name})
    try:
        made.append([{"k": 1}])
        assert made.scan().count() == 1
        return made.files()[0].file.file_name.removesuffix(".parquet")[: len(name)]
    finally:
        catalog.drop_table("d.new")


def data_folder(catalog: Catalog, table: Table, name: str) -> Any:
    made = catalog.create_table("d.new", schema={"k": "INT"}, options={"data-file.path-directory": name})
    try:
        made.append([{"k": 1}])
        assert made.scan().count() == 1
    finally:
        catalog.drop_table("d.new")


def default_partition(catalog: Catalog, table: Table, name: str) -> Any:
    options = {"partition.default-name": name}
    made = catalog.create_table("d.new", schema={"k": "INT", "p": "STRING"}, partition_keys=["p"], options=options)
    try:
        made.append([{"k": 1, "p": None}])
        assert made.scan().to_arrow().column("p").to_pylist() == [None]
    finally:
        catalog.drop_table("d.new")


def comment(catalog: Catalog, table: Table, name: str) -> Any:
    changed = table.alter(SetComment(name or "x"), SetColumnComment("v", name or "x"))
    changed.describe()
    return changed.schema.comment if name else name


def filter_text(catalog: Catalog, table: Table, name: str) -> Any:
    table.scan(filter=f"v = '{name}'").count()
    table.scan(filter=f"`{name}` = 'x'").count()


def named_columns(catalog: Catalog, table: Table, name: str) -> Any:
    table.scan(columns=[name]).to_arrow()


def updated(catalog: Catalog, table: Table, name: str) -> Any:
    table.update({name: "x"}, "k = 1", dry_run=True)


def merged(catalog: Catalog, table: Table, name: str) -> Any:
    table.merge([{name: 1}], on=[name]).when_matched_delete().execute(dry_run=True)


def system_table(catalog: Catalog, table: Table, name: str) -> Any:
    catalog.system_table(f"d.t${name}").scan().to_arrow()


def lost_commit(catalog: Catalog, table: Table, name: str) -> Any:
    table.repair_lost_commit(name)


def query(catalog: Catalog, table: Table, name: str) -> Any:
    sql(f"SELECT 1 AS `{name}`, `{name}` FROM d.t", catalog).to_arrow()


def statement(catalog: Catalog, table: Table, name: str) -> Any:
    sql(f"CREATE TABLE d.`{name}` (k INT)", catalog)
    found = [each for each in catalog.list_tables("d") if each != "t"]
    sql(f"DROP TABLE d.`{name}`", catalog)
    return found[0]


def warehouse(catalog: Catalog, table: Table, name: str) -> Any:
    Catalog(name).list_databases()


KINDS: dict[str, Made] = {
    made.__name__: made
    for made in (
        database, created, in_database, renamed, opened, summary, column, key_column, partition_column, field, added,
        renamed_column, tag, renamed_tag, read_tag, rolled_back, branch, opened_branch, consumer, commit_user,
        partition_value, value, option_key, file_prefix, data_folder, default_partition, comment, filter_text,
        named_columns, updated, merged, system_table, lost_commit, query, statement, warehouse,
    )
}  # fmt: skip
CLEANED = {"value", "partition_value", "commit_user"}


def test_there_are_many_names() -> None:
    assert len(ODD_NAMES) >= 150
    assert counts.ODD_NAMES.full == len(ODD_NAMES)
    assert set(FEW_NAMES) <= set(ODD_NAMES)
    assert len(KINDS) >= 29


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    return tmp_path / "a" / "b" / "lake"


def new_table(lake: Path) -> Catalog:
    shutil.rmtree(lake, ignore_errors=True)
    catalog = Catalog(lake)
    columns = {"k": "INT", "v": "STRING", "p": "STRING"}
    table = catalog.create_table("d.t", schema=columns, partition_keys=["p"])
    table.append([{"k": 1, "v": "a", "p": "p"}])
    return catalog


def faults(kind: str, names: tuple[str, ...], lake: Path) -> list[str]:
    """What went wrong, by name."""
    found = []
    catalog = new_table(lake)
    for name in names:
        try:
            back = KINDS[kind](catalog, catalog.table("d.t"), name)
            if back is not None and back != name:
                found.append(f"{name!a} is {back!a} afterwards")
        except StorageError as error:
            if not str(error).replace("\n  ", "").isprintable():
                found.append(f"{name!a} says {str(error)!a}")
        except Exception as error:  # noqa: BLE001 - what is raw is what is looked for
            found.append(f"{name!a} raises {type(error).__name__}: {str(error)[:200]!a}")
            catalog = new_table(lake)
        if kind in CLEANED and len(catalog.table("d.t").snapshots()) > 10:
            catalog = new_table(lake)
        outside = [each for each in lake.parents[1].rglob("*") if lake not in each.parents and each not in lake.parents]
        if outside != [lake]:
            found.append(f"{name!a} has put {outside} beside the warehouse")
            break
    if Path("/tmp/freshet-odd").exists():
        found.append("something is in /tmp")
    return found


@pytest.mark.few(6)
@pytest.mark.parametrize("kind", KINDS)
def test_odd_names(kind: str, lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake.parent.mkdir(parents=True)
    monkeypatch.chdir(lake.parent)
    assert faults(kind, FEW_NAMES, lake) == []


@pytest.mark.soak
@pytest.mark.parametrize("kind", KINDS)
def test_all_odd_names(kind: str, lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake.parent.mkdir(parents=True)
    monkeypatch.chdir(lake.parent)
    count = min(counts.ODD_NAMES.now(), len(ODD_NAMES))
    assert faults(kind, tuple(chance_of("odd names", kind).sample(ODD_NAMES, count)), lake) == []


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("d.$ref", r"table name '\$ref' cannot be used; avoid"),
        ("d.$", r"table name '\$' cannot be used"),
        ("d.$snapshots", r"table name '\$snapshots' cannot be used"),
        ("d.$branch_b", r"table name '\$branch_b' cannot be used"),
        ("d.t$branch_", r"table name 't\$branch_' cannot be used"),
        ("d.a$b", r"table name 'a\$b' cannot be used"),
        ("d.a$Files", r"d.a\$Files is the name of a system table, .*; name d.a, or a table without \$"),
        ("d.t$branch_b", r"d.t\$branch_b names a branch"),
        ("$d.t", r"database name '\$d' cannot be used"),
        ("d$.t", r"database name 'd\$' cannot be used"),
        ("d$x.t$files", r"database name 'd\$x' cannot be used"),
    ],
)
def test_what_is_said_of_a_name_with_a_dollar(tmp_path: Path, name: str, text: str) -> None:
    """That it is no name, or what it is the name of; never of a part of it that nobody has written."""
    catalog = Catalog(tmp_path)
    catalog.create_table("d.t", schema={"id": "INT"})
    calls: list[Callable[[], object]] = [
        lambda: catalog.create_table(name, schema={"id": "INT"}),
        lambda: catalog.drop_table(name),
        lambda: catalog.rename_table("d.t", name),
    ]
    if "cannot be used" in text and name != "d.a$b":
        calls += [lambda: catalog.table(name), lambda: catalog.has_table(name)]
    for call in calls:
        with pytest.raises(StorageError, match=text):
            call()
