"""Whatever text is evaluated, DuckDB reaches no extension, file, network or setting."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import duckdb
import pytest

from freshet import Catalog, InvalidRequestError, Table, expr, sql
from freshet.storage.scan.locked_duckdb import LockedDuckDb

ROWS = [{"k": 1, "v": "<a>"}]


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    catalog = Catalog(tmp_path)
    for name, keys in (("d.t", ["k"]), ("d.appended", [])):
        table = catalog.create_table(name, schema={"k": "BIGINT", "v": "STRING"}, primary_keys=keys)
        table.append(ROWS)
    return catalog


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, str]]:
    """The settings of every connection that is opened."""
    found: list[dict[str, str]] = []
    connect = duckdb.connect

    def noted(*args: Any, config: dict[str, str] | None = None, **more: Any) -> Any:
        connection = connect(*args, config=config or {}, **more)
        found.append(config or {})
        return connection

    monkeypatch.setattr(duckdb, "connect", noted)
    return found


def merged(table: Table, value: str) -> Any:
    return table.merge([{"k": 1, "v": "b"}], on="k").when_matched_update({"v": expr(value.format("source.v"))})


EVALUATORS: dict[str, Callable[[Catalog, str], Any]] = {
    "update": lambda catalog, text: catalog.table("d.t").update({"v": expr(text.format("v"))}, "k = 1"),
    "update without key": lambda catalog, text: catalog.table("d.appended").update(
        {"v": expr(text.format("v"))}, "k = 1"
    ),
    "merge": lambda catalog, text: merged(catalog.table("d.t"), text).execute(),
    "merge without key": lambda catalog, text: merged(catalog.table("d.appended"), text).execute(),
    "merge, a condition": lambda catalog, text: (
        catalog.table("d.t").merge(ROWS, on="k").when_matched_delete(f"{text.format('source.v')} = 'x'").execute()
    ),
    "merge, a clause of text": lambda catalog, text: (
        catalog.table("d.t")
        .merge(ROWS, on="k")
        .when(f"matched then update set v = {text.format('source.v')}")
        .execute()
    ),
    "UPDATE": lambda catalog, text: sql(f"UPDATE d.t SET v = {text.format('v')} WHERE k = 1", catalog),
    "MERGE": lambda catalog, text: sql(
        f"MERGE INTO d.t USING d.appended a ON t.k = a.k WHEN MATCHED THEN UPDATE SET v = {text.format('a.v')}", catalog
    ),
    "SELECT": lambda catalog, text: sql(f"SELECT {text.format('v')} FROM d.t", catalog).to_arrow(),
    "INSERT": lambda catalog, text: sql(f"INSERT INTO d.t SELECT k, {text.format('v')} FROM d.t", catalog),
}
REACHING = ("ST_AsText(ST_GeomFromText({}))", "load_aws_credentials({})", "sql_auto_complete({})")


def check_refused(catalog: Catalog, evaluator: str, text: str) -> None:
    """An extension is neither fetched nor loaded, and the table stays as it was."""
    with pytest.raises(InvalidRequestError) as caught:
        EVALUATORS[evaluator](catalog, text)
    message = str(caught.value)
    assert "Failed to download" not in message and "trying to automatically" not in message
    assert message.isprintable()
    assert catalog.table("d.t").scan().to_arrow().to_pylist() == ROWS


@pytest.mark.few(4)
@pytest.mark.parametrize("evaluator", EVALUATORS)
def test_no_text_brings_an_extension(catalog: Catalog, opened: list[dict[str, str]], evaluator: str) -> None:
    check_refused(catalog, evaluator, "html_escape({})")
    EVALUATORS[evaluator](catalog, "concat({}, 'b')")
    assert len(opened) >= 2
    for config in opened:
        assert config["autoinstall_known_extensions"] == config["enable_external_access"] == "false"


@pytest.mark.parametrize("text", REACHING)
def test_no_function_of_an_extension_is_there(catalog: Catalog, text: str) -> None:
    check_refused(catalog, "update", text)


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT * FROM read_text('{file}')",
        "SELECT * FROM '{file}.csv'",
        "SELECT * FROM glob('{folder}/*')",
        "SELECT * FROM ours",
        "SELECT * FROM sniff_csv('https://127.0.0.1/x.csv')",
        "COPY (SELECT 1) TO '{folder}/new.csv'",
        "ATTACH '{folder}/new.db'",
        "EXPORT DATABASE '{folder}/new'",
        "INSTALL httpfs",
        "LOAD httpfs",
        "LOAD '{file}'",
        "SET enable_external_access = true",
        "SET autoinstall_known_extensions = true",
        "SET lock_configuration = false",
        "SET threads = 1",
        "SET temp_directory = '{folder}'",
        "PRAGMA enable_logging",
        "CREATE PERSISTENT SECRET s (TYPE s3)",
    ],
)
def test_a_connection_reaches_nothing(tmp_path: Path, statement: str) -> None:
    ours = [1]  # DuckDB reads variables of its callers, if it may
    file = tmp_path / "file"
    file.write_text("text")
    with closing(LockedDuckDb()) as duck, pytest.raises(duck.errors):
        duck.connection.execute(statement.format(file=file, folder=tmp_path)).fetchall()
    assert [each.name for each in tmp_path.iterdir()] == ["file"], ours
