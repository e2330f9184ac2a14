"""`freshet status`: pipelines and tables from their files alone, with the job dead; exit codes, JSON, text."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from freshet.pipeline.commands import local_running
from freshet.pipeline.local.workers import WorkerPool
from freshet.pipeline.running.run_note import STATUS_FILE
from freshet.storage.catalog import Catalog
from tests.pipeline.commands.kit import Freshet

PIPELINE = """\
name: a
run_on: local
sources:
  - files: {path: "FOLDER/in"}
    format: json
table:
  warehouse: "FOLDER/w"
  name: s.a
  columns: {id: BIGINT, n: INT}
  primary_key: [id]
  options: {bucket: 1, freshet.freshness-target: 1 h}
trigger: {available_now: true}
checkpoint: "FOLDER/c"
dead_letters: s.dead
max_dead_letters: {count: 5}
"""


TARGET_OF_1_MS = "ALTER TABLE s.a SET TBLPROPERTIES ('freshet.freshness-target' = '1 ms')"


@pytest.fixture(autouse=True)
def inline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_running, "WorkerPool", lambda count, **_: WorkerPool(0))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    put(tmp_path, 1, {"id": 1, "n": 1}, {"id": 2, "n": "no number"})
    file = tmp_path / "a.yaml"
    file.write_text(PIPELINE.replace("FOLDER", str(tmp_path)))
    return file


def put(folder: Path, number: int, *rows: object) -> None:
    (folder / "in" / f"{number}.json").write_text("".join(f"{json.dumps(row)}\n" for row in rows))


def test_before_during_and_after_a_run(freshet: Freshet, path: Path) -> None:
    none = freshet.good("status", path)
    assert "a: unknown; no batch yet\n  checkpoint      nothing has run from it" in none.out
    freshet.good("run", path)
    put(path.parent, 2, {"id": 3, "n": 3})
    freshet.good("run", path)
    (facts,) = freshet.good("status", path, "--json").facts["pipelines"]
    assert (facts["state"], facts["batch"], facts["is_behind"]) == ("stopped", 1, False)
    batches = facts["batches"]
    assert (batches["batches"], batches["records"]) == (2, 3)
    assert list(batches["dead_letters"].values()) == [1]
    assert batches["event_to_commit_ms_p99"] >= batches["event_to_commit_ms_p50"] >= 0
    assert "job" in batches["phases_ms"]
    (table,) = facts["tables"]
    assert (table["name"], table["rows"], table["target_ms"]) == ("s.a", 2, 3_600_000)
    text = freshet.good("status", path).out
    assert "a: stopped, said" in text and "dead letters    1 ×" in text and "s.a: " in text
    assert all(len(line) <= 100 for line in text.splitlines())
    commits = Catalog(path.parent / "w").table("s.a").system("commits").scan().to_arrow().to_pylist()
    assert sum(row["records"] or 0 for row in commits) == 3
    assert sum(row["dead_letters"] or 0 for row in commits) == 1


def test_a_run_that_failed_and_one_that_is_gone(freshet: Freshet, path: Path) -> None:
    freshet.good("run", path)
    put(path.parent, 2, *({"id": number, "n": "none"} for number in range(6)))
    assert freshet("run", path).code != 0
    failed = freshet("status", path)
    assert failed.code == 3
    assert "a: BEHIND: failed" in failed.out and "last error" in failed.out and "dead letters" in failed.out
    note = path.parent / "c" / STATUS_FILE
    said = json.loads(note.read_text())
    ended = {**said, "state": "running", "error": None, "time_ms": said["time_ms"] - 120_000, "lag_records": 0}
    note.write_text(json.dumps(ended))
    gone = freshet("status", path, "--json")
    assert (gone.code, gone.facts["pipelines"][0]["state"]) == (3, "gone")
    assert gone.facts["pipelines"][0]["lag_ms"] is None, "records may have come since"
    assert "0 records behind when it was last heard of" in freshet("status", path).out
    note.write_text("{")
    assert freshet("status", path, "--json").facts["pipelines"][0]["state"] == "unknown"


def test_a_waiting_pipeline_is_not_behind(freshet: Freshet, path: Path) -> None:
    """Where nothing is to be read the newest rows may be old."""
    freshet.good("run", path)
    freshet.good("sql", path.parent / "w", TARGET_OF_1_MS)
    note = path.parent / "c" / STATUS_FILE
    said = json.loads(note.read_text())
    later_ms = said["time_ms"] + 3_600_000_000
    note.write_text(json.dumps({**said, "state": "idle", "lag_records": 0, "time_ms": later_ms}))
    (facts,) = freshet.good("status", path, "--json").facts["pipelines"]
    assert (facts["state"], facts["lag_ms"], facts["tables"][0]["freshness_ms"]) == ("idle", 0, 0)


def test_tables(freshet: Freshet, path: Path) -> None:
    freshet.good("run", path)
    warehouse = path.parent / "w"
    every = freshet.good("status", warehouse, "--json").facts["tables"]
    assert [(table["name"], table["detail"]) for table in every] == [("s.a", None), ("s.dead", None)]
    (one,) = freshet.good("status", warehouse, "s.a", "--json").facts["tables"]
    assert one["detail"]["history"]["snapshots"] >= 1
    freshet.good("sql", warehouse, TARGET_OF_1_MS)
    behind = freshet("status", warehouse)
    assert behind.code == 3
    assert "2 tables, 1 behind" in behind.out and "s.a     BEHIND: " in behind.out
    assert freshet("status", warehouse, "s.a").code == 3


def test_calls_that_are_wrong(freshet: Freshet, path: Path) -> None:
    assert freshet("status").code == 2
    assert freshet("status", path, path.parent / "w").code == 2
    assert freshet("status", path.parent / "w", "s.a", "s.b").code == 2
    assert freshet("status", path.parent / "w", "s.none").code == 2


def test_another_pipeline_is_not_spoken_for(freshet: Freshet, path: Path) -> None:
    """A file that is refused since the checkpoint is another's leaves its note alone."""
    freshet.good("run", path)
    note = path.parent / "c" / STATUS_FILE
    said = note.read_bytes()
    other = path.parent / "b.yaml"
    other.write_text(path.read_text().replace("name: a\n", "name: b\n"))
    assert freshet("run", other, "--keep-going").code != 0
    assert note.read_bytes() == said


DAMAGE = {
    "schema that is lost": ("schema/schema-0", None),
    "schema that is torn": ("schema/schema-0", '{"half'),
    "snapshot that is torn": ("snapshot/snapshot-1", "{"),
    "snapshot that is lost": ("snapshot/snapshot-1", None),
    "manifests that are torn": ("manifest/*", "no Avro"),
    "manifests that are lost": ("manifest/*", None),
}


@pytest.mark.parametrize("what", DAMAGE)
def test_a_table_that_cannot_be_read_hides_no_other(freshet: Freshet, path: Path, what: str) -> None:
    freshet.good("run", path)
    lake, metrics = path.parent / "w", path.parent / "m.prom"
    Catalog(lake).create_table("s.well", schema={"id": "INT"})
    files, text = DAMAGE[what]
    for file in (lake / "s.db" / "a").glob(files):
        file.unlink() if text is None else file.write_text(text)
    findings = freshet("doctor", lake, "--json").facts["findings"]
    assert [(each["table"], each["name"]) for each in findings if each["severity"] == "error"] == [
        ("s.a", "cannot be read")
    ]
    is_seen_at_a_glance = not files.startswith("manifest")
    called = freshet("status", lake)
    assert called.code == (3 if is_seen_at_a_glance else 0)
    assert (called.out.splitlines()[1].startswith("  s.a     CANNOT BE READ: ")) == is_seen_at_a_glance
    assert "  s.well  no rows yet" in called.out
    called = freshet("status", path, "--json")
    ((pipeline,), (table,)) = called.facts["pipelines"], called.facts["pipelines"][0]["tables"]
    assert (called.code, pipeline["is_behind"], table["is_behind"], table["rows"]) == (3, True, True, None)
    assert table["error"]
    for place in (lake, path):
        freshet.good("exporter", place, "--file", metrics)
        lines = metrics.read_text()
        pipeline_label = "a" if place == path else ""
        assert f'freshet_table_readable{{database="s",pipeline="{pipeline_label}",table="a"}} 0.0' in lines
        assert f'freshet_table_rows{{database="s",pipeline="{pipeline_label}",table="a"}}' not in lines
    freshet.good("exporter", lake, "--file", metrics)
    assert 'freshet_table_rows{database="s",pipeline="",table="well"} 0.0' in metrics.read_text()


def test_long_names_and_errors_leave_the_screen_to_others(freshet: Freshet, tmp_path: Path) -> None:
    catalog, long = Catalog(tmp_path / "a" / ("b" * 200)), "s." + "n" * 100
    for name in ("s.lost", "s.well", long):
        catalog.create_table(name, schema={"id": "INT"}).append([{"id": 1}])
    (Path(catalog.warehouse) / "s.db" / "lost" / "snapshot" / "snapshot-1").unlink()
    (_, lost, *others) = freshet("status", catalog.warehouse).out.splitlines()
    assert lost.startswith("  s.lost ") and lost.endswith("…") and len(lost) <= 230
    assert all(len(line) <= 150 and " old; 1 row" in line for line in others)
    assert freshet("status", catalog.warehouse, "s.lost").code == 65


def test_a_pipeline_that_cannot_be_read_hides_no_other(freshet: Freshet, path: Path) -> None:
    other, metrics = path.parent / "b.yaml", path.parent / "m.prom"
    other.write_text(path.read_text().replace("name: a", "name: b").replace('/c"', '/d"'))
    (path.parent / "d").write_text("no folder")
    freshet.good("run", path)
    called = freshet("status", other, path)
    assert called.code == 3
    assert called.out.startswith("b: CANNOT BE READ: ") and "\na: stopped, said" in called.out
    (first, second) = freshet("status", other, path, "--json").facts["pipelines"]
    assert (first["is_behind"], second["is_behind"], second["error"]) == (True, False, None)
    freshet.good("exporter", other, path, "--file", metrics)
    lines = metrics.read_text().splitlines()
    shown = [line.removeprefix("freshet_pipeline_") for line in lines if line.startswith("freshet_pipeline_")]
    assert {'up{pipeline="a"} 0.0', 'readable{pipeline="b"} 0.0', 'behind{pipeline="b"} 1.0'} < set(shown)
    assert not any(line.startswith('up{pipeline="b"') for line in shown)
    assert freshet("status", other).code != 3, "alone it is an error"


@pytest.mark.parametrize("command", ["status", "doctor", "report"])
def test_a_place_that_is_no_warehouse(freshet: Freshet, tmp_path: Path, command: str) -> None:
    """A mistyped place is not told that all is well."""
    called = freshet(command, tmp_path / "mistyped")
    assert (called.code, called.out) == (2, "")
    assert f"no databases in {tmp_path}/mistyped; is that the folder of a warehouse?" in called.err
