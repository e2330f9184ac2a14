"""What a start loads: libraries that a program does not use cost it nothing."""

from __future__ import annotations

import subprocess
import sys
import uuid
from pathlib import Path

import pytest
from confluent_kafka import Producer

import freshet
from freshet import Catalog
from freshet.jobs.demo.kafka_broker import ForeignBroker
from freshet.pipeline.commands.command_list import COMMANDS

EXTRAS = {"pyspark", "py4j", "confluent_kafka"}
LIBRARIES = {"fastavro", "cramjam", "pyroaring", "datasketches", "sqlglot"}
OF_TABLES = {"pyarrow", "numpy", "pydantic", "orjson", "msgspec"}
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
    assert not modules & (EXTRAS | LIBRARIES | OF_TABLES | BARS | OF_ROWS | {"typer", "importlib.metadata"})


def test_the_version() -> None:
    modules = of_command("--version")
    assert "freshet._version" in modules
    assert not modules & (EXTRAS | LIBRARIES | OF_TABLES | BARS | OF_ROWS)


def test_the_list_of_commands() -> None:
    modules = of_command("--help")
    assert "typer" in modules
    assert not modules & (EXTRAS | LIBRARIES | OF_TABLES | OF_ROWS)


def test_a_list_of_tables(warehouse: Path) -> None:
    modules = of_command("tables", warehouse)
    assert "freshet.storage.catalog" in modules
    assert not modules & (EXTRAS | LIBRARIES | BARS | OF_ROWS)


@pytest.mark.dear("a process that imports all libraries")
def test_rows_load_what_they_need(warehouse: Path) -> None:
    """The names above are those of modules that rows load: a typing error here would make the other tests pass."""
    modules = of_command("read", warehouse, "shop.orders", "--filter", "id > 0")
    assert modules >= OF_ROWS | BARS | OF_TABLES | LIBRARIES


@pytest.mark.slow
def test_commands_load_neither_spark_nor_a_client_of_kafka() -> None:
    """The modules of all of them: those that need one load it when they are called."""
    modules = loaded(
        "from importlib import import_module\n"
        "from freshet.pipeline.commands.command_list import COMMANDS\n"
        "[import_module('freshet.pipeline.commands.' + module) for module in COMMANDS.values()]"
    )
    assert {f"freshet.pipeline.commands.{module}" for module in COMMANDS.values()} <= modules
    assert not modules & EXTRAS


@pytest.mark.slow
def test_a_check_and_a_run_of_files(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    pipeline = tmp_path / "pipeline.yaml"
    pipeline.write_text(
        f"name: orders\nsources: [{{files: {{path: '{tmp_path}/in'}}, format: json}}]\n"
        f"table: {{warehouse: '{tmp_path}', name: shop.more, columns: {{id: BIGINT}}, primary_key: [id]}}\n"
        f"checkpoint: '{tmp_path}/checkpoint'\n",
        encoding="utf-8",
    )
    assert not of_command("check", pipeline) & EXTRAS
    pipeline.write_text(f"{pipeline.read_text()}run_on: local\ntrigger: {{available_now: true}}\n")
    (tmp_path / "in" / "1.json").write_text('{"id": 1}\n')
    assert not of_command("run", pipeline) & EXTRAS
    assert Catalog(tmp_path).table("shop.more").scan().count() == 1


LOCAL = """\
name: orders
run_on: local
sources: [SOURCE]
table: {warehouse: "FOLDER", name: shop.more, columns: {id: BIGINT}, primary_key: [id], options: {bucket: 1}}
trigger: {available_now: true}
checkpoint: "FOLDER/checkpoint"
"""
NO_LIBRARIES_OF_LOCAL_RUNS = {
    "boto3", "botocore", "datasketches", "duckdb", "httpx", "obstore", "polars", "pyarrow.dataset",
    "pyarrow.orc", "requests", "rich.console", "rich.progress", "rocksdict", "sqlalchemy", "sqlglot",
}  # fmt: skip
NOT_OF_LOCAL_RUNS = (
    "sources", "spark", "storage.edits", "storage.sql", "storage.system_tables", "storage.merge.aggregate",
    "storage.lookup", "storage.changes", "storage.files.orc", "decode.avro.reader", "expressions",
)  # fmt: skip
"""Rooms and modules that it does without; tasks load what they need of them in their workers."""


MODULES_MAX = 420
"""Of ours, in the process of a local run; with all that tables can do there would be 700."""


def of_local_run(folder: Path, source: str) -> set[str]:
    """What a run without Spark loads where nobody can import Spark."""
    pipeline = folder / "pipeline.yaml"
    pipeline.write_text(LOCAL.replace("SOURCE", source).replace("FOLDER", str(folder)), encoding="utf-8")
    return loaded(
        "sys.modules |= dict.fromkeys(('pyspark', 'py4j')); "
        f"sys.argv = ['freshet', 'run', {str(pipeline)!r}, '--workers', '1']; "
        "from freshet.pipeline.commands.command_line import main; main()"
    )


def check_local_run(modules: set[str]) -> None:
    """None of the libraries and of the rooms that it does without."""
    assert not sorted(modules & NO_LIBRARIES_OF_LOCAL_RUNS)
    ours = {name.removeprefix("freshet.").removeprefix("pipeline.") for name in modules if name.startswith("freshet.")}
    found = {name for name in ours for room in NOT_OF_LOCAL_RUNS if name == room or name.startswith(f"{room}.")}
    assert not found, sorted(found)
    assert len(ours) <= MODULES_MAX, len(ours)


@pytest.mark.dear("a process that runs a pipeline")
def test_a_local_run_of_files_needs_no_spark(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1.json").write_text('{"id": 1}\n', encoding="utf-8")
    modules = of_local_run(tmp_path, f"{{files: {{path: '{tmp_path}/in'}}, format: json}}")
    assert Catalog(tmp_path).table("shop.more").scan().count() == 1
    check_local_run(modules)


@pytest.mark.kafka
@pytest.mark.slow
def test_a_local_run_of_kafka(tmp_path: Path, kafka_broker: ForeignBroker) -> None:
    topic = f"light-{uuid.uuid4()}"
    kafka_broker.create_topic(topic, kafka_partitions=1)
    producer = Producer({"bootstrap.servers": kafka_broker.bootstrap_servers})
    producer.produce(topic, '{"id": 1}')
    assert producer.flush(300) == 0
    servers = kafka_broker.bootstrap_servers
    source = f"{{kafka: {{kafka.bootstrap.servers: '{servers}', subscribe: {topic}, startingOffsets: earliest}}"
    modules = of_local_run(tmp_path, f"{source}, format: json}}")
    assert Catalog(tmp_path).table("shop.more").scan().count() == 1
    check_local_run(modules)
