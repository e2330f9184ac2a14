"""`freshet run --keep-going` with a file that is refused at the start: the others run, and the exit code is 2."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from freshet.storage.catalog import Catalog
from tests.kit.quick import those_now
from tests.pipeline.commands.kit import Freshet

pytestmark = pytest.mark.spark

PIPELINE = """
name: NAME
sources:
  - files: {path: "FOLDER/in"}
    format: json
    select: {id: id, n: "SELECT"}
table: {warehouse: "FOLDER/w", name: s.NAME, columns: {id: BIGINT, n: INT}, primary_key: [id], options: {bucket: 1}}
trigger: {available_now: true}
checkpoint: "FOLDER/c-NAME"
"""


@pytest.fixture
def freshet(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Freshet:
    return Freshet(monkeypatch, capsys)


def _file(folder: Path, name: str, select: str = "id + 1", **changes: str) -> Path:
    text = PIPELINE.replace("NAME", name).replace("FOLDER", str(folder)).replace("SELECT", select)
    for old, new in changes.items():
        text = text.replace(old, new)
    path = folder / f"{name}.yaml"
    path.write_text(text)
    return path


@pytest.fixture
def good(tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1.json").write_text(json.dumps({"id": 1}) + "\n")
    return _file(tmp_path, "good")


def _rows(folder: Path, name: str = "good") -> int:
    return Catalog(folder / "w").table(f"s.{name}").scan().count()


BAD = {
    "no YAML": ({"name: bad": "name: ["}, "is not YAML"),
    "an unknown key": ({"trigger:": "triggers:"}, "triggers"),
    "the checkpoint of another": ({"c-bad": "c-good"}, "the same as in"),
    "no folder": ({"/in": "/gone"}, "is not there"),
    "an expression that Spark refuses": ({"id + 1": "nothing_there(id)"}, "select"),
}


@pytest.mark.few(1)
@pytest.mark.parametrize("kind", those_now(BAD, lambda number, kind: number > 2))
def test_one_file_is_refused(spark: SparkSession, freshet: Freshet, tmp_path: Path, good: Path, kind: str) -> None:
    del spark
    changes, wanted = BAD[kind]
    bad = _file(tmp_path, "bad", **changes)
    alone = freshet("run", good, bad)
    assert (alone.code, (tmp_path / "w").exists()) == (2, False), alone.err
    called = freshet("run", "--keep-going", good, bad)
    assert called.code == 2, called.err
    assert wanted in called.err and "the others go on" in called.err + called.out
    assert _rows(tmp_path) == 1
    (tmp_path / "in" / "2.json").write_text(json.dumps({"id": 2}) + "\n")
    freshet.good("run", "--keep-going", good)
    assert _rows(tmp_path) == 2


def test_all_are_refused(spark: SparkSession, freshet: Freshet, tmp_path: Path, good: Path) -> None:
    del spark
    files = [_file(tmp_path, name, **{"/in": "/gone"}) for name in ("a", "b")]
    called = freshet("run", "--keep-going", *files, good.with_name("none.yaml"))
    assert called.code == 2
    assert all(name in called.err for name in ("a.yaml", "b.yaml", "none.yaml"))


@pytest.mark.slow
def test_a_failure_of_the_others_counts(spark: SparkSession, freshet: Freshet, tmp_path: Path, good: Path) -> None:
    del spark
    bad = _file(tmp_path, "bad", **{"/in": "/gone"})
    stopping = _file(tmp_path, "stopping", **{"format: json": "format: json\n    on_unknown_field: fail"})
    stopping.write_text(stopping.read_text().replace('    select: {id: id, n: "id + 1"}\n', ""))
    (tmp_path / "in" / "1.json").write_text(json.dumps({"id": 1, "more": 2}) + "\n")
    called = freshet("run", "--keep-going", good, bad, stopping)
    assert called.code == 65, called.err
    assert "gone is not there" in called.err
    assert _rows(tmp_path) == 1
