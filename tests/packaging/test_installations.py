"""Every way to install Freshet, next to a `pipeline.py`, `storage/` and so on of the user, and without Spark."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.kit.installations import LIBRARIES, LINKS, ROOT, Installation, built_wheel, checkout, environment, pip

pytestmark = pytest.mark.slow

FRAMES = ("pandas==2.3.3", "polars==1.44.2", "duckdb==2.0.0")
HOSTILE = ("storage", "pipeline", "logstore", "jobs", "config", "codec", "model", "tests")

TABLES = """
import sys
from freshet import Catalog, col
orders = Catalog(sys.argv[1]).create_table(
    "shop.orders", schema={"id": "BIGINT", "name": "STRING"}, primary_keys=["id"], options={"bucket": "2"}
)
with orders.writer("loader") as writer:
    writer.write([{"id": 1, "name": "a"}, {"id": 2, "name": "b"}])
    writer.commit()
assert orders.scan(filter=col("id") == 2).to_arrow().to_pylist() == [{"id": 2, "name": "b"}]
assert not {"pyspark", "storage", "pipeline", "logstore", "jobs"} & set(sys.modules), sorted(sys.modules)
import freshet
print("freshet is", freshet.__file__)
"""

SPARK = """
import sys
from pyspark.sql import SparkSession
from freshet import Catalog, register, table_sink
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").config(
    "spark.sql.python.filterPushdown.enabled", "true"
).getOrCreate()
Catalog(sys.argv[1]).create_table(
    "shop.orders", schema={"id": "BIGINT", "name": "STRING"}, primary_keys=["id"], options={"bucket": "2"}
)
rows = spark.createDataFrame([(1, "a"), (2, "b")], "id BIGINT, name STRING")
rows.write.parquet(sys.argv[1] + "/in")
stream = spark.readStream.schema(rows.schema).parquet(sys.argv[1] + "/in").writeStream
stream = stream.option("checkpointLocation", sys.argv[1] + "/checkpoint").trigger(availableNow=True)
assert stream.foreachBatch(table_sink(sys.argv[1], "shop.orders", commit_user="loader")).start().awaitTermination(300)
register(spark)
read = spark.read.format("freshet").option("warehouse", sys.argv[1]).option("table", "shop.orders").load()
assert sorted(tuple(row) for row in read.collect()) == [(1, "a"), (2, "b")]
import freshet
print("freshet is", freshet.__file__)
"""

WITHOUT_SPARK = """
import sys

class NotInstalled:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("pyspark", "py4j", "confluent_kafka"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, NotInstalled())
"""


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout as it was cloned: no build folders, links kept."""
    return checkout(tmp_path_factory.mktemp("checkout"))


@pytest.fixture(scope="module")
def without_links(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout on a system that has no links: text files with the names of their targets."""
    folder = checkout(tmp_path_factory.mktemp("without_links"))
    for name in LINKS:
        target = os.readlink(folder / name)
        (folder / name).unlink()
        (folder / name).write_text(target, encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def wheel(sources: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    copy = tmp_path_factory.mktemp("build") / "checkout"  # building leaves folders behind
    shutil.copytree(sources, copy, symlinks=True)
    return built_wheel(copy, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def installations(
    sources: Path, without_links: Path, wheel: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Installation]:
    python = {name: environment(tmp_path_factory.mktemp("env") / name) for name in ("wheel", "editable", "strict")}
    pip("--python", python["wheel"], "install", "--quiet", "--no-deps", wheel)
    for name, settings in (("editable", ()), ("strict", ("--config-settings", "editable_mode=strict"))):
        copy = tmp_path_factory.mktemp(name) / "checkout"
        shutil.copytree(sources, copy, symlinks=True)
        pip(
            *("--python", python[name], "install", "--quiet", "--no-deps", "--no-build-isolation", *settings),
            *("--editable", copy),
        )
    borrowed = environment(tmp_path_factory.mktemp("env") / "checkout")
    return {
        **{name: Installation(path) for name, path in python.items()},
        "checkout": Installation(borrowed, str(sources / "src")),
        "without links": Installation(borrowed, str(without_links / "src")),
    }


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    """A folder of a user's own modules; importing one of them is an error."""
    folder = tmp_path / "mine"
    for name in HOSTILE:
        (folder / name).mkdir(parents=True)
        (folder / name / "__init__.py").write_text(f"raise RuntimeError('not freshet: {name}')", encoding="utf-8")
        (folder / f"{name}.py").write_text(f"raise RuntimeError('not freshet: {name}')", encoding="utf-8")
    (folder / "tables_script.py").write_text(TABLES, encoding="utf-8")
    (folder / "spark_script.py").write_text(SPARK, encoding="utf-8")
    return folder


WAYS = ["wheel", "editable", "strict", "checkout", "without links"]


@pytest.mark.parametrize("way", WAYS)
def test_a_script_beside_modules_of_our_names(
    way: str, installations: dict[str, Installation], hostile: Path, tmp_path: Path
) -> None:
    installation = installations[way]
    done = installation.run("tables_script.py", tmp_path / "warehouse", folder=hostile)
    assert done.returncode == 0, done.stderr
    where = done.stdout.split("freshet is ")[1].strip()
    assert str(ROOT) not in where, "this is the code of the environment that runs the tests"
    done = installation.run("-m", "freshet", "tables", tmp_path / "warehouse", folder=hostile)
    assert done.returncode == 0, done.stderr
    assert "orders" in done.stdout


@pytest.mark.parametrize("last", ["theirs", "ours"])
def test_one_folder_for_the_other_project_and_for_ours(last: str, wheel: Path, tmp_path: Path) -> None:
    """`freshet` on the package index, in both orders of installation, and the remedy that the error names."""
    python = environment(tmp_path / "env")
    theirs = tmp_path / "freshet-9.8.7-py3-none-any.whl"
    with zipfile.ZipFile(theirs, "w") as archive:
        archive.writestr("freshet/__init__.py", "class Freshet: pass")
        info = "freshet-9.8.7.dist-info"
        archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: freshet\nVersion: 9.8.7\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        names = ("freshet/__init__.py", f"{info}/METADATA", f"{info}/WHEEL", f"{info}/RECORD")
        archive.writestr(f"{info}/RECORD", "".join(f"{name},,\n" for name in names))
    for each in (wheel, theirs) if last == "theirs" else (theirs, wheel):
        pip("--python", python, "install", "--quiet", "--no-deps", each)

    def run(*command: object) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*map(str, command)], cwd=tmp_path, env={}, text=True, capture_output=True)

    command = python.parent / "freshet"
    failed = run(command, "--version") if last == "theirs" else run(python, "-c", "from freshet import Freshet")
    assert failed.returncode == 1
    assert "overwrote" in failed.stderr
    assert "'freshet' 9.8.7" in failed.stderr
    assert "pip uninstall freshet-lake freshet" in failed.stderr
    pip("--python", python, "uninstall", "--quiet", "--yes", "freshet-lake", "freshet")
    pip("--python", python, "install", "--quiet", "--no-deps", wheel)
    done = run(command, "--version")
    assert done.stdout == wheel.name.split("-")[1] + "\n", done.stderr


def test_the_demo_is_a_command_of_the_wheel(installations: dict[str, Installation], hostile: Path) -> None:
    """What it does is tested in integration/test_demo.py, from a wheel as well."""
    done = installations["wheel"].run("-m", "freshet", "demo", "--help", folder=hostile)
    assert done.returncode == 0, done.stderr
    assert "--output" in done.stdout
    done = installations["wheel"].run("-m", "freshet", "demo", "--variant", "one", folder=hostile)
    assert done.returncode == 2, done.stderr
    assert "freshet demo join" in done.stderr


def test_rows_of_and_for_other_libraries(tmp_path: Path) -> None:
    """The tests that need pandas, polars and duckdb, which the environment of the other tests does not have."""
    python = environment(tmp_path / "frames")
    pip("--python", python, "install", "--quiet", *FRAMES)
    suites = ["storage/scan/test_scan_consumers.py", "storage/write/test_input_rows.py"]
    done = Installation(python, str(ROOT / "src")).run(
        *("-m", "pytest", "-p", "no:cacheprovider", "-rs", "-k", "real_libraries or frames or pandas"),
        *(ROOT / "tests" / suite for suite in suites),
        folder=ROOT,
    )
    assert done.returncode == 0, done.stdout
    assert " passed" in done.stdout
    assert "skipped" not in done.stdout, done.stdout


@pytest.mark.spark
@pytest.mark.parametrize("way", ["wheel", "checkout"])
def test_spark_submit_beside_modules_of_our_names(
    way: str, installations: dict[str, Installation], hostile: Path, tmp_path: Path
) -> None:
    submit = Path(LIBRARIES) / "pyspark" / "bin" / "spark-submit"
    installation = installations[way]
    program = f"import os, sys; os.execv({str(submit)!r}, [{str(submit)!r}, *sys.argv[1:]])"
    done = installation.run("-c", program, "spark_script.py", tmp_path / "warehouse", folder=hostile)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "freshet is " in done.stdout


def test_tables_without_spark(installations: dict[str, Installation], hostile: Path, tmp_path: Path) -> None:
    blocked = tmp_path / "blocked"
    blocked.mkdir()
    (blocked / "sitecustomize.py").write_text(WITHOUT_SPARK, encoding="utf-8")
    installation, warehouse = installations["wheel"], tmp_path / "warehouse"

    def run(*arguments: object) -> subprocess.CompletedProcess[str]:
        return installation.run(*arguments, folder=hostile, before=str(blocked))

    assert run("-c", "import pyspark").returncode == 1
    done = run("tables_script.py", warehouse)
    assert done.returncode == 0, done.stderr
    done = run("-m", "freshet", "read", warehouse, "shop.orders", "--format", "json")
    assert done.returncode == 0, done.stderr
    for name in ("register", "table_sink"):
        done = run("-c", f"from freshet import {name}")
        assert f"freshet.{name} needs pyspark" in done.stderr
        assert "pip install '.[spark]'" in done.stderr
    done = run("-m", "freshet", "demo")
    assert done.returncode == 2, done.stderr
    assert "pip install '.[kafka]'" in done.stderr
    (warehouse / "in").mkdir()
    (hostile / "p.yaml").write_text(PIPELINE.format(warehouse=warehouse), encoding="utf-8")
    assert run("-m", "freshet", "check", "p.yaml").returncode == 0
    done = run("-m", "freshet", "run", "p.yaml")
    assert done.returncode == 2, done.stderr
    assert "pip install '.[spark]'" in done.stderr


PIPELINE = """
name: orders
sources: [{{files: {{path: "{warehouse}/in"}}, format: json}}]
table:
  warehouse: "{warehouse}"
  name: shop.more
  columns: {{id: BIGINT}}
  primary_key: [id]
  options: {{bucket: 1}}
trigger: {{available_now: true}}
checkpoint: "{warehouse}/checkpoint"
"""


@pytest.mark.parametrize("checkout", ["sources", "without_links"])
def test_a_source_distribution_makes_the_same_wheel(
    checkout: str, wheel: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    copy = tmp_path / "checkout"
    shutil.copytree(request.getfixturevalue(checkout), copy, symlinks=True)
    program = "import sys; from setuptools.build_meta import build_sdist; build_sdist(sys.argv[1])"
    subprocess.run([sys.executable, "-c", program, str(tmp_path)], cwd=copy, check=True, capture_output=True)
    (archive,) = tmp_path.glob("*.tar.gz")
    built = built_wheel(archive, tmp_path)
    with zipfile.ZipFile(built) as ours, zipfile.ZipFile(wheel) as expected:
        assert sorted(ours.namelist()) == sorted(expected.namelist())


@pytest.mark.parametrize("name", LINKS)
def test_the_folders_at_the_top_are_relative_links(name: str) -> None:
    assert os.readlink(ROOT / name) == f"src/freshet/{name}"
    listed = subprocess.run(
        ["git", "ls-files", "--stage", name], cwd=ROOT, text=True, capture_output=True, check=True
    ).stdout
    assert listed.startswith("120000 "), listed


def test_what_is_in_the_wheel(sources: Path, wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        (metadata,) = (archive.read(name).decode() for name in names if name.endswith("/METADATA"))
    assert {name.split("/")[0] for name in names if ".dist-info/" not in name} == {"freshet"}
    assert not {name for name in names if "/tests/" in name}
    needed = (
        path.relative_to(sources / "src").as_posix()
        for pattern in ("*.py", "*.java", "*.yaml")
        for path in (sources / "src" / "freshet").rglob(pattern)
    )
    assert not set(needed) - names
    assert {"freshet/py.typed", "freshet/pipeline/spark/jars.toml", "freshet/pipeline/spark/log4j2.properties"} <= names
    assert {f"Provides-Extra: {extra}" for extra in ("spark", "kafka", "all", "dev")} <= set(metadata.splitlines())
    pyspark = [line for line in metadata.splitlines() if line.startswith("Requires-Dist: pyspark")]
    assert [line.split(";")[1].strip() for line in pyspark] == ['extra == "spark"']
