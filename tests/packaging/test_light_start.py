"""What a start loads: libraries that a program does not use cost it nothing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import freshet
from freshet import Catalog
from freshet.pipeline.commands.command_list import COMMANDS

EXTRAS = {"pyspark", "py4j", "confluent_kafka"}
LIBRARIES = {"fastavro", "cramjam", "pyroaring", "datasketches", "msgspec", "sqlglot"}
ARROW = {"pyarrow", "numpy", "pydantic", "orjson"}
BARS = {"rich.console", "rich.progress"}
OF_ROWS = {"pyarrow.compute", "pyarrow.parquet", "freshet.storage.table", "freshet.storage.metadata.manifest_store"}


def loaded(program: str) -> set[str]:
    """Names of the modules that a process has loaded at its end."""
    at_end = "import atexit, sys; atexit.register(lambda: print('\\n', *sys.modules)); "
    command = [sys.executable, "-c", at_end + program]
    path = {"PYTHONPATH": str(Path(freshet.__file__).parents[1])}
    done = subprocess.run(command, env=path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.splitlines()[-1].split())


def of_command(*arguments: object) -> set[str]:
    words = ["freshet", *map(str, arguments)]
    return loaded(f"sys.argv = {words}; from freshet.pipeline.commands.command_line import main; main()")


@pytest.fixture
def warehouse(tmp_path: Path) -> Path:
    table = Catalog(tmp_path).create_table(
        "shop.orders", schema={"id": "BIGINT"}, primary_keys=["id"], options={"bucket": "1"}
    )
    with table.writer("loader") as writer:
        writer.write([{"id": 1}])
        writer.commit()
    return tmp_path


def test_the_import() -> None:
    modules = loaded("import freshet")
    assert "freshet" in modules
    assert not modules & (EXTRAS | LIBRARIES | ARROW | BARS | OF_ROWS | {"typer", "importlib.metadata"})


def test_the_version() -> None:
    modules = of_command("--version")
    assert "freshet._version" in modules
    assert not modules & (EXTRAS | LIBRARIES | ARROW | BARS | OF_ROWS)


def test_the_list_of_commands() -> None:
    modules = of_command("--help")
    assert "typer" in modules
    assert not modules & (EXTRAS | LIBRARIES | ARROW | OF_ROWS)


def test_a_list_of_tables(warehouse: Path) -> None:
    modules = of_command("tables", warehouse)
    assert "freshet.storage.catalog" in modules
    assert not modules & (EXTRAS | LIBRARIES | BARS | OF_ROWS)


def test_rows_load_what_they_need(warehouse: Path) -> None:
    """The names above are those of modules that rows load: a typing error here would make the other tests pass."""
    modules = of_command("read", warehouse, "shop.orders", "--filter", "id > 0")
    assert modules >= OF_ROWS | BARS | ARROW | LIBRARIES


def test_commands_load_neither_spark_nor_a_client_of_kafka() -> None:
    """The modules of all of them: those that need one load it when they are called."""
    modules = loaded(
        "from importlib import import_module\n"
        "from freshet.pipeline.commands.command_list import COMMANDS\n"
        "[import_module('freshet.pipeline.commands.' + listed.module) for listed in COMMANDS.values()]"
    )
    assert {f"freshet.pipeline.commands.{listed.module}" for listed in COMMANDS.values()} <= modules
    assert not modules & EXTRAS


def test_a_check_of_files(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    pipeline = tmp_path / "pipeline.yaml"
    pipeline.write_text(
        f"name: orders\nsources: [{{files: {{path: '{tmp_path}/in'}}, format: json}}]\n"
        f"table: {{warehouse: '{tmp_path}', name: shop.more, columns: {{id: BIGINT}}, primary_key: [id]}}\n"
        f"checkpoint: '{tmp_path}/checkpoint'\n",
        encoding="utf-8",
    )
    assert not of_command("check", pipeline) & EXTRAS
