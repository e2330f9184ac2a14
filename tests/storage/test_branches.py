"""Branches as a user sees them: tables of their own, under the name of the table and theirs."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from freshet import AddColumn, Catalog, InvalidRequestError, NotFoundError, SetOption, StorageError, Table
from freshet.storage.codec.metadata_json import encode_snapshot
from freshet.storage.io.env_settings import EnvSettings

ROWS = [{"id": 1, "v": "a"}, {"id": 2, "v": "b"}]


def catalog_with_branch(tmp_path: Path, **options: str) -> tuple[Catalog, Table, Table]:
    """Table `db.t` of two rows; its branch `b` begins with them."""
    catalog = Catalog(str(tmp_path))
    table = catalog.create_table(
        "db.t",
        schema={"id": "BIGINT", "v": "STRING"},
        primary_keys=["id"],
        options={"bucket": 1, "changelog-producer": "lookup", **options},
    )
    write(table, ROWS)
    put_tag(table, "t")
    table.branches.create("b", from_tag="t")
    return catalog, table, catalog.table("db.t$branch_b")


def put_tag(table: Table, name: str) -> None:
    latest = table.latest_snapshot()
    assert latest is not None
    table.store.env.file_io.overwrite(table.store.paths.tag(name), encode_snapshot(latest))


def write(table: Table, rows: list[dict[str, object]], user: str = "w") -> None:
    with table.writer(user) as writer:
        writer.write(rows)
        writer.commit()


def rows(table: Table) -> list[tuple[object, ...]]:
    return sorted(tuple(row.values()) for row in table.scan().to_arrow().to_pylist())


def test_what_is_written_to_a_branch_is_not_in_the_table(tmp_path: Path) -> None:
    catalog, table, branch = catalog_with_branch(tmp_path)
    write(branch, [{"id": 2, "v": "B"}, {"id": 3, "v": "c"}])
    write(table, [{"id": 4, "v": "d"}])
    assert rows(catalog.table("db.t$branch_b")) == [(1, "a"), (2, "B"), (3, "c")]
    assert rows(catalog.table("db.t")) == [(1, "a"), (2, "b"), (4, "d")]
    assert rows(catalog.table("db.t", options={"branch": "b"})) == rows(branch)
    assert rows(Table.open(table.location, options={"branch": "b"})) == rows(branch)
    assert rows(table.with_options({"branch": "b"})) == rows(branch)
    assert rows(catalog.table("db.t$branch_main")) == rows(catalog.table("db.t", options={"branch": "main"}))
    branch.compact()
    table.compact()
    assert rows(branch) == [(1, "a"), (2, "B"), (3, "c")]
    assert not branch.check(all_snapshots=True).damage
    assert not table.check(all_snapshots=True).damage


def test_a_branch_is_named_wherever_it_goes(tmp_path: Path) -> None:
    catalog, table, branch = catalog_with_branch(tmp_path)
    assert branch.name == "db.t$branch_b"
    assert branch.location == f"{table.location}/branch/branch-b"
    for other in (
        Table.of(pickle.loads(pickle.dumps(branch.handle))),
        pickle.loads(pickle.dumps(Table.of(branch.handle).store)),
        branch.with_options({"write-only": "true"}),
        branch.alter(SetOption("write-only", "false")),
    ):
        assert other.name == "db.t$branch_b"
        assert other.location == branch.location
    assert branch.handle.branch == "b"
    assert branch.handle.location == table.location
    assert catalog.summary("db.t$branch_b").snapshot == branch.latest_snapshot()
    assert catalog.has_table("db.t$branch_b")
    assert not catalog.has_table("db.t$branch_c")
    assert not catalog.has_table("db.u$branch_b")
    with pytest.raises(NotFoundError, match=r"no branch db\.t\$branch_c"):
        catalog.summary("db.t$branch_c")
    with pytest.raises(InvalidRequestError, match="names a branch"):
        catalog.drop_table("db.t$branch_b")
    assert catalog.list_tables("db") == ["t"]
    with pytest.raises(InvalidRequestError, match="branch/branch-b"):
        branch.scan(columns=["x"]).to_arrow()
    with pytest.raises(NotFoundError, match=r"db\.t\$branch_c"):
        catalog.table("db.t$branch_c")


@pytest.mark.parametrize(
    "call",
    [
        lambda catalog: catalog.create_table("db.t$branch_c", schema={"id": "INT"}),
        lambda catalog: catalog.create_table("db.t$branch_c", schema={"id": "INT"}, if_not_exists=True),
        lambda catalog: catalog.drop_table("db.t$branch_b"),
        lambda catalog: catalog.rename_table("db.t$branch_b", "db.u"),
        lambda catalog: catalog.rename_table("db.t", "db.u$branch_b"),
        lambda catalog: catalog.register_table("db.t$branch_b"),
        lambda catalog: catalog.table("db.t$branch_c"),
        lambda catalog: catalog.table("db.t$branch_1"),
        lambda catalog: catalog.table("db.u$branch_b"),
        lambda catalog: catalog.table("db.t$branch_b", options={"branch": "c"}),
        lambda catalog: catalog.summary("db.t$branch_c"),
    ],
)
def test_what_is_refused(tmp_path: Path, call: object) -> None:
    catalog, _, branch = catalog_with_branch(tmp_path)
    files = sorted(tmp_path.rglob("*"))
    with pytest.raises(InvalidRequestError):
        call(catalog)  # type: ignore[operator]
    assert sorted(tmp_path.rglob("*")) == files
    assert rows(branch) == [(1, "a"), (2, "b")]


def test_a_branch_has_a_schema_of_its_own(tmp_path: Path) -> None:
    catalog, table, branch = catalog_with_branch(tmp_path)
    wider = branch.alter(AddColumn("more", "INT"), SetOption("snapshot.num-retained.min", "2"))
    write(wider, [{"id": 1, "v": "z", "more": 7}])
    assert rows(catalog.table("db.t$branch_b")) == [(1, "z", 7), (2, "b", None)]
    assert catalog.table("db.t").schema.id == 0
    assert rows(catalog.table("db.t")) == [(1, "a"), (2, "b")]
    table.alter(AddColumn("other", "STRING"))
    write(catalog.table("db.t"), [{"id": 3, "v": "c", "other": "x"}])
    assert rows(catalog.table("db.t$branch_b")) == [(1, "z", 7), (2, "b", None)]


def test_streams_and_consumers_of_a_branch(tmp_path: Path) -> None:
    _, table, branch = catalog_with_branch(tmp_path)
    seen = [row for batch in branch.stream(consumer_id="c", max_wait_s=0) for row in batch.to_pylist()]
    assert [(row["id"], row["_ROW_KIND"]) for row in seen] == [(1, "+I"), (2, "+I")]
    write(table, [{"id": 9, "v": "not on the branch"}])
    write(branch, [{"id": 2, "v": "B"}])
    seen = [row for batch in branch.stream(consumer_id="c", max_wait_s=0) for row in batch.to_pylist()]
    assert [(row["v"], row["_ROW_KIND"]) for row in seen] == [("b", "-U"), ("B", "+U")]
    assert list(branch.consumers()) == ["c"]
    assert table.consumers() == {}
    assert (Path(branch.location) / "consumer" / "consumer-c").is_file()


def test_a_branch_has_no_log(tmp_path: Path) -> None:
    """Its changes would go into the topic of the table, whose readers would take them for the table's."""
    catalog, table, _ = catalog_with_branch(tmp_path)
    logged = table.alter(
        SetOption("log.system", "kafka"),
        SetOption("kafka.bootstrap.servers", "nowhere:9092"),
        SetOption("kafka.topic", "t"),
    )
    logged.branches.create("logged")
    branch = catalog.table("db.t$branch_logged")
    assert logged.options.logs_changes
    for each in (branch, Table.of(branch.handle), Table(branch.store.at_schema(branch.schema.id))):
        assert not each.options.logs_changes
    write(branch, [{"id": 1, "v": "x"}])
    assert rows(branch) == [(1, "x")]


def test_a_branch_that_is_dropped_while_it_is_open(tmp_path: Path) -> None:
    _, table, branch = catalog_with_branch(tmp_path)
    with branch.writer("w2") as writer:
        writer.write([{"id": 5, "v": "e"}])
        table.branches.drop("b")
        with pytest.raises(NotFoundError, match="was dropped or renamed"):
            writer.commit()
        writer.abort()
    with pytest.raises(StorageError):
        rows(branch)
    assert not (Path(table.location) / "branch" / "branch-b").exists()
    assert rows(table) == [(1, "a"), (2, "b")]


def test_branches_in_a_catalog_with_locks_have_their_own(tmp_path: Path) -> None:
    """As the JVM takes them: the name of the lock ends with that of the branch."""
    uri = f"jdbc:sqlite:{tmp_path}/catalog.db"
    catalog = Catalog(uri, warehouse=str(tmp_path / "w"), options={"lock.enabled": "true"})
    table = catalog.create_table("db.t", schema={"id": "BIGINT", "v": "STRING"}, primary_keys=["id"])
    write(table, ROWS)
    put_tag(table, "t")
    table.branches.create("b", from_tag="t")
    branch = catalog.table("db.t$branch_b")
    assert branch.store.claims.has_lock
    write(branch, [{"id": 3, "v": "c"}])
    wider = branch.alter(AddColumn("more", "INT"))
    other = Table.of(pickle.loads(pickle.dumps(wider.handle)))
    assert other.store.claims.has_lock
    write(other, [{"id": 4, "v": "d", "more": 1}])
    assert len(rows(catalog.table("db.t$branch_b"))) == 4
    assert rows(catalog.table("db.t")) == [(1, "a"), (2, "b")]
    assert wider.handle.settings != EnvSettings()


def test_rows_of_a_branch_in_memory() -> None:
    catalog = Catalog("memory:///branches")
    table = catalog.create_table("db.t", schema={"id": "BIGINT"}, if_not_exists=True)
    table.branches.create("b")
    write(catalog.table("db.t$branch_b"), [{"id": 1}])
    assert rows(catalog.table("db.t$branch_b")) == [(1,)]
    assert rows(catalog.table("db.t")) == []


def test_who_has_a_branch_open_that_was_dropped_and_made_again_is_told(tmp_path: Path) -> None:
    catalog, table, branch = catalog_with_branch(tmp_path)
    write(branch, [{"id": 3, "v": "c"}])
    writer = branch.writer("late")
    writer.write([{"id": 4, "v": "d"}])
    table.branches.drop("b")
    table.branches.create("b", from_tag="t")
    with pytest.raises(StorageError, match="created again"):
        rows(branch)
    with pytest.raises(StorageError, match="created again"):
        writer.commit()
    for edit in (lambda: branch.append(ROWS), lambda: branch.delete("id = 1"), lambda: branch.compact()):
        with pytest.raises(StorageError, match="created again"):
            edit()
    assert rows(catalog.table("db.t$branch_b")) == rows(table)


def test_a_branch_of_a_tag_whose_changes_are_gone_is_not_damaged(tmp_path: Path) -> None:
    """Apache Paimon's expiry removes the changes of a tag with its snapshot; its rows stay."""
    catalog = Catalog(str(tmp_path))
    options = {"bucket": "1", "changelog-producer": "input"}
    table = catalog.create_table("db.t", schema={"id": "INT NOT NULL"}, primary_keys=["id"], options=options)
    table.append([{"id": 1}])
    table.tags.create("t")
    table.branches.create("b", from_tag="t")
    snapshot = table.latest_snapshot()
    assert snapshot is not None and snapshot.changelog_manifest_list is not None
    branch = catalog.table("db.t$branch_b")
    branch.append([{"id": 2}])
    lists = tmp_path / "db.db" / "t" / "manifest"
    (lists / snapshot.changelog_manifest_list).unlink()
    assert not branch.check(all_snapshots=True).damage
    assert table.check(all_snapshots=True).damage
    newest = branch.latest_snapshot()
    assert newest is not None and newest.changelog_manifest_list is not None
    (lists / newest.changelog_manifest_list).unlink()
    assert branch.check().damage
