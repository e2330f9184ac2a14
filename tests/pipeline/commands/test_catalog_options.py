"""Commands on tables in an object store: catalog options, names of catalogs, and no secret in what is printed."""

from __future__ import annotations

import json
import shlex
from inspect import signature
from pathlib import Path

import pytest

from freshet import Catalog, Table
from freshet.pipeline.commands.arguments import CatalogOption, Warehouse
from freshet.pipeline.commands.command_list import COMMANDS
from freshet.storage.catalogs.given import CATALOG_OPTIONS_VARIABLE
from freshet.storage.io.catalogs_file import CATALOGS_FILE_VARIABLE
from tests.kit.s3_server import SECRET_KEY, S3Place
from tests.pipeline.commands.kit import Freshet

OPTIONS = {"bucket": 1, "changelog-producer": "lookup"}
SECRET_VARIABLE = "FRESHET_TEST_S3_SECRET"


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No catalogs and no credentials of the machine; a folder of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / ".config"))
    monkeypatch.setenv(SECRET_VARIABLE, SECRET_KEY)
    for name in (CATALOG_OPTIONS_VARIABLE, CATALOGS_FILE_VARIABLE):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def table(s3: S3Place) -> Table:
    """Two commits."""
    table = Catalog(f"{s3.root}/w", options=s3.options).create_table(
        "shop.orders", schema={"id": "BIGINT", "note": "STRING"}, primary_keys=["id"], options=OPTIONS
    )
    with table.writer("loader") as writer:
        for note in "ab":
            writer.write([{"id": 1, "note": note}])
            writer.commit()
    return table


def arguments(s3: S3Place) -> list[str]:
    options = {**s3.options, "s3.secret-key": f"env:{SECRET_VARIABLE}"}
    return [part for key, text in options.items() for part in ("--catalog-option", f"{key}={text}")]


def test_every_command_that_takes_a_warehouse_takes_its_options() -> None:
    seen = 0
    for name, module_name in COMMANDS.items():
        module = __import__(f"freshet.pipeline.commands.{module_name}", fromlist=["_"])
        parameters = signature(getattr(module, name.replace("-", "_")), eval_str=True).parameters
        annotations = [each.annotation for each in parameters.values()]
        takes_one = Warehouse in annotations or name in ("status", "exporter", "doctor", "report")  # or pipeline files
        assert takes_one == (CatalogOption in annotations), name
        seen += Warehouse in annotations
    assert seen >= 14


@pytest.mark.slow
def test_commands_read_and_change_a_table_in_a_bucket(freshet: Freshet, s3: S3Place, table: Table) -> None:
    warehouse, given = f"{s3.root}/w", arguments(s3)
    said = freshet.good("tables", warehouse, *given)
    assert [line.split()[0] for line in said.out.splitlines()] == ["table", "shop.orders"]
    for command in ("describe", "snapshots", "files", "changelog", "check-table", "consumers", "orphans"):
        said = freshet.good(command, warehouse, "shop.orders", *given)
        assert SECRET_KEY not in said.out + said.err
    freshet.good("sql", warehouse, "ALTER TABLE shop.orders ADD COLUMN more INT", *given)
    newest = table.store.schemas.latest()
    assert newest is not None and newest.id == 1
    freshet.good("compact", warehouse, "shop", *given)
    freshet.good(
        "expire", warehouse, "shop.orders", "--retain-max", 1, "--retain-min", 1, "--older-than-hours", 0, *given
    )
    assert len(list(table.snapshots())) == 1
    rows = freshet.good("read", warehouse, "shop.orders", "--format", "json", *given).out
    assert json.loads(rows) == {"id": 1, "note": "b", "more": None}


@pytest.mark.dear("two commands at a store")
def test_the_environment_and_a_name_give_them_too(
    freshet: Freshet, s3: S3Place, table: Table, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(CATALOG_OPTIONS_VARIABLE, json.dumps(s3.options))
    by_environment = freshet.good("read", f"{s3.root}/w", "shop.orders", "--format", "csv").out
    monkeypatch.setenv(CATALOG_OPTIONS_VARIABLE, "")
    file = tmp_path / ".config" / "freshet" / "catalogs.yaml"
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps({"lake": {"warehouse": f"{s3.root}/w", **s3.options}}))
    file.chmod(0o600)
    assert freshet.good("read", "lake", "shop.orders", "--format", "csv").out == by_environment
    refused = freshet("read", "lake", "shop.orders", "--catalog-option", "s3.endpoint=http://127.0.0.1:1")
    assert refused.code != 0 and SECRET_KEY not in refused.out + refused.err  # the command's own goes first


def test_catalogs_are_listed_without_secrets(freshet: Freshet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert freshet.good("catalogs", "--json").facts == []
    file = tmp_path / "c.yaml"
    file.write_text(
        "lake:\n  warehouse: s3://b/lake\n  s3.secret-key: hunter2\n  s3.access-key: env:KEY\n"
        "base:\n  uri: jdbc:postgresql://me:hunter2@db/lake\n  warehouse: s3://b/base\n"
    )
    monkeypatch.setenv(CATALOGS_FILE_VARIABLE, str(file))
    monkeypatch.setenv("FRESHET_CATALOG__POND__WAREHOUSE", "/pond")
    said = freshet.good("catalogs")
    assert [line.split()[:2] for line in said.out.splitlines()[1:]] == [
        ["base", "s3://b/base"],
        ["lake", "s3://b/lake"],
        ["pond", "/pond"],
    ]
    facts = freshet.good("catalogs", "--json").facts
    assert facts[1] == {
        "catalog": "lake",
        "place": "s3://b/lake",
        "source": str(file),
        "options": {"s3.secret-key": "***", "s3.access-key": "env:KEY"},
    }
    assert facts[2]["source"] == "the environment"
    assert "hunter2" not in said.out + said.err + json.dumps(facts)


def test_a_database_is_a_place_of_commands_and_of_a_name(
    freshet: Freshet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri, warehouse = f"jdbc:sqlite:{tmp_path}/c.db", str(tmp_path / "w")
    Catalog(uri, warehouse=warehouse).create_table("shop.orders", schema={"id": "BIGINT"}, options={"bucket": -1})
    by_uri = freshet.good("tables", uri, "--catalog-option", f"warehouse={warehouse}", "--json").facts
    assert [each["table"] for each in by_uri] == ["shop.orders"]
    monkeypatch.setenv("FRESHET_CATALOG__BASE__URI", uri)
    refused = freshet("tables", "base")
    assert refused.code == 2 and "warehouse" in refused.err
    monkeypatch.setenv("FRESHET_CATALOG__BASE__WAREHOUSE", warehouse)
    assert freshet.good("tables", "base", "--json").facts == by_uri
    assert freshet.good("describe", "base", "shop.orders").out


def test_commands_of_findings_have_the_options(freshet: Freshet, tmp_path: Path) -> None:
    uri, option = f"jdbc:sqlite:{tmp_path}/c.db", f"warehouse={tmp_path}/w"
    options = {"bucket": 1, "write-only": "true"}
    left = Catalog(uri, warehouse=f"{tmp_path}/w").create_table(
        "shop.left", schema={"id": "BIGINT"}, primary_keys=["id"], options=options
    )
    for number in range(6):
        left.upsert([{"id": number}])
    command = f"freshet compact {uri} shop.left --catalog-option {option}"
    assert command in freshet("report", uri, "--catalog-option", option).out
    (found, *_) = freshet("doctor", uri, "--catalog-option", option, "--json").facts["findings"]
    assert found["command"] == command
    freshet.good(*shlex.split(command)[1:])


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["s3cret"], "--catalog-option number 1 is no KEY=VALUE"),
        (["=s3cret"], "--catalog-option number 1 is no KEY=VALUE"),
        (["s3.secret-key=s3cret", "s3.secret-key=other"], "gives s3.secret-key two values"),
        (["s3.secret-key=s3cret"], "option s3.secret-key: neither the catalog nor the store"),
        (["s3.secret-key=env:NOT_THERE_S3"], "option s3.secret-key"),
    ],
)
def test_wrong_options_are_refused_without_their_values(
    freshet: Freshet, tmp_path: Path, given: list[str], message: str
) -> None:
    said = freshet("tables", tmp_path, *[part for each in given for part in ("--catalog-option", each)])
    assert said.code == 2 and message in said.err
    assert "s3cret" not in said.out + said.err
