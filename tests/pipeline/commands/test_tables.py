"""tables, describe, snapshots, files and the commands that look after a table: text for people, JSON for programs."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import freshet as front_door
from freshet import Catalog, Table
from freshet.pipeline.commands import tables
from freshet.pipeline.commands.command_list import REMOVED
from tests.pipeline.commands.kit import Freshet
from tests.storage.options.test_secrets import SECRETS, WITHIN, table_with


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """Three commits: 2 rows, 2 rows of which one is a deletion, a compaction."""
    table = Catalog(tmp_path / "w").create_table(
        "shop.orders",
        schema={"id": "BIGINT", "note": "STRING"},
        primary_keys=["id"],
        options={"bucket": 1, "write-only": True},
        comment="orders",
    )
    with table.writer("loader") as writer:
        writer.write(pa.table({"id": [1, 2], "note": ["a", "b"]}))
        writer.commit(1)
        writer.write(pa.table({"id": [2, 3], "note": ["b", "c"], "_ROW_KIND": ["-D", "+I"]}))
        writer.commit(2)
    table.compact()
    return table


def test_no_command_shows_a_secret_of_a_table(freshet: Freshet, tmp_path: Path) -> None:
    table_with(tmp_path, SECRETS | WITHIN)
    freshet.good("sql", tmp_path, "COMMENT ON TABLE db.t IS 'x'")
    for command in ("tables", "describe", "snapshots", "files"):
        arguments = [command, tmp_path] + ["db.t"] * (command != "tables")
        for how in ((), ("--json",)):
            answer = freshet.good(*arguments, *how)
            assert "hunter2" not in answer.out + answer.err
            assert command != "describe" or answer.out.count("***") == len(SECRETS) + len(WITHIN)


def test_tables_are_listed_with_those_that_cannot_be_read(freshet: Freshet, table: Table, tmp_path: Path) -> None:
    broken = Catalog(tmp_path / "w").create_table("other.log", schema={"text": "STRING"})
    lines = freshet.good("tables", tmp_path / "w").out.splitlines()
    assert [line.split()[0] for line in lines] == ["table", "other.log", "shop.orders"]
    facts = freshet.good("tables", tmp_path / "w", "shop", "--json").facts
    assert [(each["table"], each["snapshot"], each["records"]) for each in facts] == [("shop.orders", 3, 2)]
    (Path(broken.location) / "schema" / "schema-0").write_text("{")
    listed = freshet.good("tables", tmp_path / "w", "--json").facts
    assert "schema-0" in listed[0]["error"]
    assert listed[1]["table"] == "shop.orders"
    missing = freshet("tables", tmp_path / "w", "shops")
    assert missing.code == 2
    assert "there is no database 'shops'" in missing.err


def test_a_folder_that_is_no_warehouse(freshet: Freshet, tmp_path: Path) -> None:
    assert f"no databases in {tmp_path}/mistyped;" in freshet.good("tables", tmp_path / "mistyped").err
    called = freshet.good("tables", tmp_path / "mistyped", "--json")
    assert (called.facts, "no databases" in called.err) == ([], True)


def test_columns_are_below_each_other_whatever_the_script(freshet: Freshet, table: Table, tmp_path: Path) -> None:
    """Characters that take two columns of a terminal count two."""
    Catalog(tmp_path / "w").create_table("shop.注文", schema={"text": "STRING"})
    lines = freshet.good("tables", tmp_path / "w").out.splitlines()
    assert "shop.orders  id " in lines[1]
    assert "shop.注文    none " in lines[2]


def test_snapshots_say_what_was_written_and_deleted(freshet: Freshet, table: Table, tmp_path: Path) -> None:
    facts = freshet.good("snapshots", tmp_path / "w", "shop.orders", "--json").facts
    assert [(each["kind"], each["written"], each["deleted"], each["records"]) for each in facts] == [
        ("APPEND", 2, 0, 2),
        ("APPEND", 1, 1, 4),
        ("COMPACT", None, None, 2),
    ]
    header, *rows = freshet.good("snapshots", tmp_path / "w", "shop.orders").out.splitlines()
    assert header.split()[-3:] == ["written", "deleted", "records"]
    assert [row.split()[-3:] for row in rows] == [["2", "0", "2"], ["1", "1", "4"], ["-", "-", "2"]]


def test_describe_as_json(freshet: Freshet, table: Table, tmp_path: Path) -> None:
    facts = freshet.good("describe", tmp_path / "w", "shop.orders", "--json").facts
    assert facts["columns"][0] == {"name": "id", "type": "BIGINT NOT NULL", "comment": None}
    assert (facts["primary_key"], facts["comment"], facts["snapshot"]["id"]) == (["id"], "orders", 3)
    assert [(each["bucket"], each["rows"], [run["level"] for run in each["runs"]]) for each in facts["buckets"]] == [
        (0, 2, [5])
    ]


@pytest.mark.parametrize("threshold", ["1 mb", "0 b"], ids=["in the manifest", "beside the file"])
def test_files_shows_the_indexes_of_each_file(freshet: Freshet, tmp_path: Path, threshold: str) -> None:
    """Those written before the option have none; a column may have several."""
    table = Catalog(tmp_path / "w").create_table(
        "shop.logins", schema={"at": "INT", "user": "STRING"}, options={"file-index.in-manifest-threshold": threshold}
    )
    place = (tmp_path / "w", "shop.logins")
    indexes = {"file-index.bloom-filter.columns": "user,at", "file-index.bitmap.columns": "user"}
    indexes |= {f"file-index.bloom-filter.{column}.items": "10" for column in ("user", "at")}
    for number, of_writer in enumerate((table, table.with_options(indexes))):
        with of_writer.writer("loader") as writer:
            writer.write([{"at": number, "user": "me"}])
            writer.commit()
        (heading, *lines) = freshet.good("files", *place).out.splitlines()
        assert ("indexes" in heading) == bool(number), "no column of nothing"
    assert sorted(line.split(".parquet")[1].strip() for line in lines) == [
        "",
        "user (bitmap, bloom-filter), at (bloom-filter)",
    ]
    facts = freshet.good("files", *place, "--json").facts
    assert sorted((each["indexes"] for each in facts), key=len) == [
        {},
        {"user": ["bitmap", "bloom-filter"], "at": ["bloom-filter"]},
    ]
    beside = [path.name for path in Path(table.location).rglob("*.index")]
    assert len(beside) == (threshold == "0 b")
    for name in beside:
        next(Path(table.location).rglob(name)).unlink()
        assert "indexes" not in freshet.good("files", *place).out.splitlines()[0], "a lost one is not shown"


def test_files_as_json(freshet: Freshet, table: Table, tmp_path: Path) -> None:
    facts = freshet.good("files", tmp_path / "w", "shop.orders", "--snapshot", 2, "--json").facts
    assert [(each["level"], each["rows"], each["deletes"]) for each in facts] == [(0, 2, 0), (0, 2, 1)]


def test_care_as_json(freshet: Freshet, table: Table, tmp_path: Path) -> None:
    (Path(table.location) / "bucket-0" / "data-lost-0.parquet").write_bytes(b"lost")
    place = (tmp_path / "w", "shop.orders")
    nothing = freshet.good("compact", *place, "--json").facts
    assert (nothing["snapshots"], nothing["buckets"]) == ([], 0)
    now = ("--older-than-hours", 0)
    expired = freshet.good("expire", *place, "--retain-max", 1, "--retain-min", 1, *now, "--json").facts
    assert expired["snapshots"] == [1, 2]
    assert expired["data_files"] == 2
    listed = freshet.good("orphans", *place, *now, "--json").facts
    assert [(Path(file["path"]).name, file["size_bytes"]) for file in listed["files"]] == [("data-lost-0.parquet", 4)]
    assert listed["deleted"] is False
    assert freshet.good("orphans", *place, *now, "--delete", "--json").facts["deleted"] is True
    assert freshet.good("orphans", *place, *now).out == "no orphans\n"


def test_compaction_within_a_budget(freshet: Freshet, tmp_path: Path) -> None:
    table = Catalog(tmp_path / "w").create_table(
        "shop.two", schema={"id": "BIGINT"}, primary_keys=["id"], options={"bucket": 2, "write-only": True}
    )
    with table.writer("loader") as writer:
        for identifier in range(2):
            writer.write(pa.table({"id": list(range(100))}))
            writer.commit(identifier)
    place = (tmp_path / "w", "shop.two")
    assert freshet.good("compact", *place, "--seconds", 0).out == (
        "2 buckets did not fit into the budget; call again to go on\n"
    )
    done = freshet.good("compact", *place, "--megabytes", 1, "--json").facts
    assert (done["snapshots"], done["buckets"], done["buckets_left"]) == ([3], 2, 0)
    assert freshet.good("compact", *place).out == "nothing to compact\n"


def test_describe_is_for_terminals_of_100_columns(freshet: Freshet, tmp_path: Path) -> None:
    table = Catalog(tmp_path / "w").create_table(
        "shop.odd",
        schema={
            "name\x1b[31m": "STRING",
            "many": "ROW<" + ", ".join(f"field_{n} DECIMAL(14, 4)" for n in range(12)) + ">",
            "id": "BIGINT",
        },
        primary_keys=["name\x1b[31m", "id"],
        options={"bucket": 1, "sequence.field": "id"},
    )
    with table.writer("a loader with a name of some length") as writer:
        for identifier in range(2):
            key = "a long key \x07" * 3
            many = pa.nulls(1, table.arrow_schema.field("many").type)
            writer.write(pa.table([[key], many, [10**17 + identifier]], schema=table.arrow_schema))
            writer.commit(identifier)
    text = freshet.good("describe", tmp_path / "w", "shop.odd").out
    lines = [line for line in text.splitlines() if not line.startswith("at ")]
    assert max(map(len, lines)) <= 100
    assert all(line.isprintable() for line in lines)
    assert "\\x1b[31m" in text
    assert "a bar is the share of the bucket's bytes" in text
    assert "1 row " in text
    assert "2 runs, 2 rows" in text


@pytest.mark.parametrize("position", [0, 1, 3])
def test_debug_works_anywhere_in_the_call(freshet: Freshet, tmp_path: Path, position: int) -> None:
    call: list[object] = ["describe", tmp_path, "shop.nothing"]
    call.insert(position, "--debug")
    called = freshet(*call)
    assert called.code == 2
    assert "Traceback" in called.err
    assert "freshet: InvalidRequestError: there is no table shop.nothing" in called.err


@pytest.mark.parametrize("debug", [[], ["--debug"]])
def test_an_error_that_nobody_expected(
    freshet: Freshet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, debug: list[str]
) -> None:
    def fails(*_: object) -> None:
        raise KeyError("a key\nthat is missing")

    monkeypatch.setattr(tables, "open_table", fails)
    called = freshet("describe", tmp_path, "shop.t", "--json", *debug)
    hint = "report it with the traceback above" if debug else "run again with --debug and report the traceback"
    message = f"KeyError: 'a key\\nthat is missing'; {hint}"
    assert called.code == 1
    assert called.err.endswith(f"freshet: InternalError: {message}\n")
    assert called.err.count("Traceback") == len(debug)
    assert called.err.count("\n") == 1 or debug
    assert called.facts == {
        "error": message,
        "kind": "InternalError",
        "retryable": False,
        "exit_code": 1,
        "problems": [],
    }


def test_the_version(freshet: Freshet) -> None:
    assert freshet.good("--version").out == f"{front_door.__version__}\n"


def test_alter(freshet: Freshet, table: Table, tmp_path: Path) -> None:
    place = (tmp_path / "w", "shop.orders")
    text = """
        ALTER TABLE shop.orders RENAME COLUMN note TO remark; ALTER TABLE shop.orders ADD COLUMN total DECIMAL(10, 2);
        ALTER TABLE shop.orders ALTER COLUMN total COMMENT 'in EUR'; COMMENT ON TABLE shop.orders IS 'all orders';
        ALTER TABLE shop.orders SET TBLPROPERTIES ('snapshot.num-retained.max' = '20')
    """
    called = freshet.good("sql", tmp_path / "w", text)
    assert called.out.splitlines()[-1] == "table shop.orders has schema 5 now"
    facts = freshet.good("describe", *place, "--json").facts
    assert [(column["name"], column["comment"]) for column in facts["columns"]] == [
        ("id", None),
        ("remark", None),
        ("total", "in EUR"),
    ]
    assert facts["columns"][2]["type"] == "DECIMAL(10, 2)"
    assert (facts["comment"], facts["options"]["snapshot.num-retained.max"]) == ("all orders", "20")


def test_a_lossy_change_of_type_has_to_be_asked_for(freshet: Freshet, table: Table, tmp_path: Path) -> None:
    change = (tmp_path / "w", "ALTER TABLE shop.orders ALTER COLUMN note TYPE INT")
    refused = freshet("sql", *change)
    assert refused.code == 2, refused.err
    freshet.good("sql", *change, "--allow-lossy")


@pytest.mark.parametrize(
    ("call", "command"),
    [
        (["drop-table", "--if-exists"], "freshet sql 'my lake' \"DROP TABLE shop.orders\""),
        (
            ["compact-manifests", "--dry-run"],
            "freshet sql 'my lake' \"CALL sys.compact_manifest(table => 'shop.orders')\"",
        ),
        (
            ["branch", "drop", "b"],
            " or ".join(
                f"freshet sql 'my lake' \"CALL sys.{action}_branch(…)\"" for action in ("create", "rename", "delete")
            ),
        ),
    ],
)
def test_a_command_that_is_gone_names_the_sql(freshet: Freshet, call: list[str], command: str) -> None:
    called = freshet(call[0], "my lake", "shop.orders", *call[1:])
    assert called.code == 2
    assert f"freshet {call[0]} is gone, SQL does the same: {command}\n" in called.err


def test_commands_that_are_gone_without_a_table(freshet: Freshet) -> None:
    assert 'freshet sql WAREHOUSE "DELETE FROM TABLE WHERE …"' in freshet("delete").err
    for name in REMOVED:
        assert " is gone, SQL does the same: freshet sql lake " in freshet(name, "lake").err
