"""`freshet report`: what it says is what `freshet status` and `freshet doctor` say of the same moment."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from functools import partialmethod
from pathlib import Path
from typing import Any

import pytest

from freshet import Catalog
from freshet.pipeline.commands import local_running
from freshet.pipeline.local.workers import WorkerPool
from freshet.pipeline.query.driver.dead_letters import DEAD_LETTER_COLUMNS
from freshet.pipeline.report.document import report_document
from freshet.pipeline.running.run_note import STATUS_FILE
from freshet.storage.io.env import Env
from tests.pipeline.commands.kit import Called, Freshet
from tests.pipeline.commands.test_status import PIPELINE, put

SECRET = "12345-not-for-everybody"


@pytest.fixture
def lake(freshet: Freshet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A warehouse with the table of a pipeline that was killed, its dead letters, and tables beside."""
    monkeypatch.setattr(local_running, "WorkerPool", lambda count, **_: WorkerPool(0))
    (tmp_path / "in").mkdir()
    put(tmp_path, 1, {"id": 1, "n": 1}, {"id": 2, "n": SECRET})
    (tmp_path / "a.yaml").write_text(PIPELINE.replace("FOLDER", str(tmp_path)))
    freshet.good("run", tmp_path / "a.yaml")
    note = tmp_path / "c" / STATUS_FILE
    said = json.loads(note.read_text())
    note.write_text(json.dumps({**said, "state": "running", "time_ms": said["time_ms"] - 120_000}))
    catalog = Catalog(tmp_path / "w")
    options = {"bucket": "1", "write-only": "true", "freshet.freshness-target": "1 ms"}
    table = catalog.create_table("s.b", schema={"id": "INT"}, primary_keys=["id"], options=options)
    with table.writer("loader") as writer:
        for number in range(6):
            writer.write([{"id": number}])
            writer.commit()
    catalog.create_table("s.empty", schema={"id": "INT"})
    return tmp_path / "w"


def document_of(called: Called) -> Any:
    assert (called.code, called.err) == (0, "")
    (found,) = re.findall(r'<script type="application/json" id="document">(.*?)</script>', called.out, re.DOTALL)
    return json.loads(found)


def freeze(monkeypatch: pytest.MonkeyPatch) -> None:
    now_ms = time.time_ns() // 1_000_000 + 5_000
    monkeypatch.setattr(Env, "now_ms", lambda _: now_ms)
    monkeypatch.setattr(time, "time_ns", lambda: now_ms * 1_000_000)


@pytest.mark.dear("a run of a pipeline, and some commands")
def test_equal_to_status_and_doctor(freshet: Freshet, lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    freeze(monkeypatch)
    file = lake.parent / "a.yaml"
    before = {str(each): each.stat().st_mtime_ns for each in lake.parent.rglob("*")}
    document = document_of(freshet("report", lake, "--pipeline", file))
    assert {str(each): each.stat().st_mtime_ns for each in lake.parent.rglob("*")} == before, "it changes nothing"
    assert document["status"]["pipelines"] == freshet("status", file, "--json").facts["pipelines"]
    assert document["status"]["pipelines"][0]["state"] == "gone"
    names = [each["name"] for each in freshet("status", lake, "--json").facts["tables"]]
    assert names == [each["name"] for each in document["status"]["tables"]] == ["s.b", "s.a", "s.dead", "s.empty"]
    for each in document["status"]["tables"]:
        assert [each] == freshet("status", lake, each["name"], "--json").facts["tables"]
    of_tables = freshet("doctor", lake, "--json").facts["findings"]
    of_pipeline = [each for each in freshet("doctor", file, "--json").facts["findings"] if each["table"] == "a"]
    assert {each["name"] for each in of_pipeline} == {"run gone", "bad records"} and of_tables
    assert sorted(map(str, document["findings"])) == sorted(map(str, [*of_tables, *of_pipeline]))
    (one,) = document_of(freshet("report", lake, "s.b"))["status"]["tables"]
    assert one == document["status"]["tables"][0]


@pytest.mark.dear("a run of a pipeline")
def test_dead_letters_with_and_without_samples(freshet: Freshet, lake: Path) -> None:
    for places in ((lake,), (lake, "s.dead")):
        (letters,) = document_of(freshet("report", *places))["dead_letters"]
        (cause,) = letters["causes"]
        assert (letters["table"], letters["count"], cause["count"], cause["column"]) == ("s.dead", 1, 1, "n")
        assert [SECRET in sample["value"] for sample in cause["samples"]] == [True]
        assert cause["samples"][0]["time"].endswith("Z")
        without = freshet("report", *places, "--no-samples")
        assert SECRET not in without.out
        (letters,) = document_of(without)["dead_letters"]
        assert [(each["count"], each["samples"]) for each in letters["causes"]] == [(1, [])]
    assert document_of(freshet("report", lake, "s.b"))["dead_letters"] == []


def test_the_dead_letters_of_a_table_by_their_usual_name(
    freshet: Freshet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog = Catalog(tmp_path)
    catalog.create_table("s.t", schema={"id": "INT"})
    letters = catalog.create_table("s.t_dead_letters", schema=DEAD_LETTER_COLUMNS)
    letters.append(
        [{"pipeline": "p", "reason": f"r{n % 2}", "raw_value": b"x" * 999, "micro_batch_id": 1} for n in range(9)]
    )
    catalog.create_table("s.like", schema=dict.fromkeys(DEAD_LETTER_COLUMNS, "INT")).append([{"reason": 1}])
    (found,) = document_of(freshet("report", tmp_path, "s.t"))["dead_letters"]
    assert [(each["reason"], each["count"], len(each["samples"])) for each in found["causes"]] == [
        ("r0", 5, 3),
        ("r1", 4, 3),
    ]
    assert found["causes"][0]["samples"][0]["value"] == "x" * 160 + "…"
    assert found["causes"][0]["last"] is None
    whole = document_of(freshet("report", tmp_path))
    monkeypatch.setattr(Catalog, "report", partialmethod(Catalog.report, detailed=0))
    glances = document_of(freshet("report", tmp_path))
    assert (len(whole["details"]), len(glances["details"])) == (3, 0)
    for each in (whole, glances):
        assert [letters["table"] for letters in each["dead_letters"]] == ["s.t_dead_letters"]


@pytest.mark.dear("a run of a pipeline")
def test_what_cannot_be_read_hides_nothing(freshet: Freshet, lake: Path) -> None:
    (lake / "s.db" / "b" / "snapshot" / "snapshot-6").write_text("{")
    shutil.rmtree(lake / "s.db" / "dead" / "manifest")
    text = (lake.parent / "a.yaml").read_text()
    (lake.parent / "away.yaml").write_text(text.replace('/c"', '/away"'))
    (lake.parent / "away").write_text("no folder")
    document = document_of(freshet("report", lake, "--pipeline", lake.parent / "away.yaml"))
    assert [each["error"] is not None for each in document["status"]["pipelines"]] == [True]
    assert {each["name"] for each in document["status"]["tables"] if each["error"]} == {"s.b", "s.dead"}
    assert "s.a" in document["details"]


def test_an_empty_warehouse_and_a_place_that_is_none(freshet: Freshet, tmp_path: Path) -> None:
    Catalog(str(tmp_path)).create_database("s")
    assert '"tables":[]' in freshet.good("report", tmp_path).out
    missing = freshet("report", tmp_path, "s.t")
    assert missing.code == 2 and missing.out == ""


def test_not_onto_a_terminal(freshet: Freshet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    called = freshet("report", tmp_path)
    assert called.code == 2 and "> report.html" in called.err


def test_no_secret_is_in_it() -> None:
    options = {"s3.secret-key": "hunter2"}
    status = {"tables": [{"name": "s.t", "error": "403 of key hunter2 at s3://me:hunter3@host/x"}], "pipelines": []}
    letters = [{"table": "s.d", "error": "hunter2"}]
    made = report_document(
        [], status, letters, place="jdbc://u:hunter4@host/db", now_ms=0, options=options, samples=True
    )
    assert "hunter" not in json.dumps(made)
    assert made["status"]["tables"][0]["error"] == "403 of key *** at s3://***@host/x"


@pytest.mark.slow
def test_served_until_it_is_asked_to_stop(lake: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "freshet.pipeline.commands.command_line",
        "report",
        str(lake),
        "--serve",
        "--port",
        "0",
    ]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=os.environ | {"PYTHONPATH": "src"}) as served:
        assert served.stderr is not None
        address = re.findall(r"http://127.0.0.1:\d+/", served.stderr.readline())[0]
        with urllib.request.urlopen(address) as first:
            text = first.read().decode()
        Catalog(lake).create_table("s.later", schema={"id": "INT"})
        with urllib.request.urlopen(address) as second:
            assert "s.later" in second.read().decode() and "s.later" not in text
        served.send_signal(signal.SIGTERM)
        assert served.wait(300) == 0


@pytest.mark.slow
def test_two_hundred_tables_and_ten_thousand_snapshots(freshet: Freshet, tmp_path: Path) -> None:
    options = {"bucket": "4", "changelog-producer": "lookup", "freshet.freshness-target": "5 min"}
    columns = {"id": "BIGINT", "v": "STRING", "n": "INT"}
    table = Catalog(tmp_path).create_table("s.t0", schema=columns, primary_keys=["id"], options=options)
    with table.writer("loader") as writer:
        for number in range(25):
            writer.write([{"id": number * 7 + key, "v": f"v{number}", "n": key} for key in range(20)])
            writer.commit()
    assert len(table.snapshots()) == 50
    for number in range(1, 200):
        shutil.copytree(tmp_path / "s.db" / "t0", tmp_path / "s.db" / f"t{number}")
    began_s = time.process_time()
    called = freshet.good("report", tmp_path)
    took_s = time.process_time() - began_s
    assert len(document_of(called)["details"]) == 200
    assert sum(each["commit_count"] for each in document_of(called)["details"].values()) == 10_000
    assert len(called.out) <= 10_000_000
    assert took_s <= 20, "seconds of the processor: 5 on a quiet machine"
