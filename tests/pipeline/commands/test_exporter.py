"""`freshet exporter`, and metrics of `freshet run`: what a scrape says is what `freshet status` says."""

from __future__ import annotations

import json
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from functools import reduce
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from freshet.pipeline.commands import exporter, local_running
from freshet.pipeline.commands.publishing import address_of
from freshet.pipeline.config.pipeline_file import load_pipeline
from freshet.pipeline.errors.error_kind import ErrorKind
from freshet.pipeline.local.workers import WorkerPool
from freshet.pipeline.running import metrics
from freshet.pipeline.running.progress import PipelineState
from freshet.pipeline.running.restarts import Restart
from freshet.pipeline.running.run_note import STATUS_FILE
from freshet.pipeline.running.run_totals import LOOK_LOST_S, RunTotals
from freshet.storage.catalog import Catalog
from tests.kit.metric_list import sample_names
from tests.pipeline.commands.kit import Freshet

PIPELINE = """\
name: NAME
run_on: local
sources:
  - files: {path: "FOLDER/in"}
    format: json
table:
  warehouse: "FOLDER/w"
  name: s.NAME
  columns: {id: BIGINT, n: INT}
  primary_key: [id]
  options: {bucket: 1, freshet.freshness-target: 1 h, changelog-producer: lookup}
trigger: {available_now: true}
checkpoint: "FOLDER/c-NAME"
dead_letters: s.dead
"""

OF_PIPELINES = {
    "pipeline_behind": "is_behind",
    "pipeline_batch": "batch",
    "source_lag_records": "lag_records",
    "source_lag_seconds": "lag_ms",
    "recent_records_per_second": "batches.records_per_s",
    "recent_event_to_commit_p50_seconds": "batches.event_to_commit_ms_p50",
    "recent_event_to_commit_p99_seconds": "batches.event_to_commit_ms_p99",
    "recent_batch_phase_seconds": "batches.phases_ms",
    "hour_dead_letters": "batches.dead_letters",
}
OF_TABLES = {
    "table_freshness_seconds": "freshness_ms",
    "table_freshness_target_seconds": "target_ms",
    "table_behind": "is_behind",
    "table_rows": "rows",
    "table_files": "files",
    "table_live_bytes": "live_bytes",
    "table_snapshot_id": "newest.snapshot_id",
    "level0_files_max": "detail.levels.level_0_max",
    "sorted_runs_max": "detail.levels.runs_max",
    "sorted_runs_stop": "detail.levels.runs_stop",
    "compaction_backlog_bytes": "detail.levels.backlog_bytes",
    "changelog_behind_snapshots": "detail.changelog_behind",
    "changelog_waiting_rows": "detail.levels.waiting_rows",
    "table_snapshots": "detail.history.snapshots",
    "table_kept_bytes": "detail.history.kept_bytes",
    "hour_commits": "detail.hour.commits",
    "hour_rows_written": "detail.hour.rows_written",
    "hour_conflicts": "detail.hour.conflicts",
    "hour_commit_p99_seconds": "detail.hour.commit_ms_p99",
    "hour_compactions": "detail.hour.reasons",
    "hour_compacted_bytes": "detail.hour.compacted_bytes",
}
"""Metric to the place of its value in `freshet status --json`; milliseconds there are seconds here."""

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


@pytest.fixture(autouse=True)
def inline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_running, "WorkerPool", lambda count, **_: WorkerPool(0))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1.json").write_text('{"id": 1, "n": 1}\n{"id": 2, "n": "no number"}\n')
    return pipeline_file(tmp_path, "a")


def pipeline_file(folder: Path, name: str, more: str = "") -> Path:
    file = folder / f"{name}.yaml"
    file.write_text(PIPELINE.replace("FOLDER", str(folder)).replace("NAME", name) + more)
    return file


def samples_of(text: str) -> Samples:
    found: Samples = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = frozenset((key, value) for key, value in sample.labels.items() if value)
            assert (sample.name, labels) not in found, "a series twice"
            found[sample.name, labels] = sample.value
    return found


def expected(names: Mapping[str, str], facts: Mapping[str, Any], labels: Mapping[str, str]) -> Samples:
    found: Samples = {}
    for name, place in names.items():
        value = reduce(lambda inner, key: None if inner is None else inner[key], place.split("."), facts)
        by = "phase" if "phase" in name else "cause"
        for cause, each in value.items() if isinstance(value, dict) else [("", value)]:
            if each is not None:
                own = {by: cause} if isinstance(value, dict) else {}
                found[f"freshet_{name}", frozenset({**labels, **own}.items())] = each / (1000 if "_ms" in place else 1)
    return found


def compare(found: Samples, wanted: Samples, names: Mapping[str, str]) -> None:
    shown = {key: value for key, value in found.items() if key[0].removeprefix("freshet_") in names}
    assert shown == wanted


@pytest.mark.dear("a pipeline runs twice, and is looked at four times")
def test_a_scrape_says_what_status_says(freshet: Freshet, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    freshet.good("run", path)
    (path.parent / "in" / "2.json").write_text('{"id": 3, "n": 1}\n')
    freshet.good("run", path)
    note, file = path.parent / "c-a" / STATUS_FILE, path.parent / "m.prom"
    note.write_text(json.dumps({**json.loads(note.read_text()), "lag_records": 5}))  # files do not know theirs
    now_ns = time.time_ns() + 7_000_000_000
    monkeypatch.setattr(time, "time_ns", lambda: now_ns)
    (facts,) = freshet.good("status", path, "--json").facts["pipelines"]
    freshet.good("exporter", path, "--file", file)
    found = samples_of(file.read_text())
    compare(found, expected(OF_PIPELINES, facts, {"pipeline": "a"}), OF_PIPELINES)
    labels = {"database": "s", "table": "a", "pipeline": "a"}
    compare(found, expected(OF_TABLES, facts["tables"][0], labels), OF_TABLES)
    assert found["freshet_table_snapshot_age_seconds", frozenset(labels.items())] >= 7
    names = {name for name, _ in found}
    assert {f"freshet_{name}" for name in (*OF_PIPELINES, *OF_TABLES)} <= names <= sample_names()
    assert not any(key in ("bucket", "partition") for _, labels in found for key, _ in labels)
    (table,) = freshet.good("status", path.parent / "w", "s.a", "--json").facts["tables"]
    freshet.good("exporter", path.parent / "w", "s.a", "--file", file)
    found = samples_of(file.read_text())
    compare(found, expected(OF_TABLES, table, {"database": "s", "table": "a"}), OF_TABLES)
    assert [each.name for each in path.parent.glob("m.prom*")] == ["m.prom"]


@pytest.mark.dear("a pipeline runs")
def test_a_warehouse_has_few_tables_in_detail(freshet: Freshet, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    freshet.good("run", path)
    file = path.parent / "m.prom"

    def tables(name: str) -> set[str]:
        freshet.good("exporter", path.parent / "w", "--file", file)
        return {dict(labels)["table"] for found, labels in samples_of(file.read_text()) if found == f"freshet_{name}"}

    assert tables("table_rows") == tables("level0_files_max") == {"a", "dead"}
    monkeypatch.setattr(exporter, "DETAILED_MAX", 1)
    assert tables("table_rows") == {"a", "dead"}
    assert len(tables("level0_files_max")) == 1


@pytest.mark.dear("two pipelines run")
def test_two_pipelines_of_a_run_do_not_mix(freshet: Freshet, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each at an address of its own; what the run adds up is there once its batches are done."""
    one = pipeline_file(path.parent, "a", "metrics: {port: 0}\n")
    other = pipeline_file(path.parent, "b", 'metrics: {port: 0, host: "localhost"}\n')
    said: list[str] = []
    serving = metrics.serving

    def noted(*arguments: Any, **named: Any) -> Any:
        return _Noted(serving(*arguments, **named), said)

    def forked(_: int, **_named: Any) -> WorkerPool:
        assert "freshet-metrics" not in [each.name for each in threading.enumerate()], "threads do not survive a fork"
        return WorkerPool(0)

    monkeypatch.setattr(local_running, "WorkerPool", forked)
    monkeypatch.setattr(metrics, "serving", noted)
    freshet.good("run", one, other, "--progress", "json")
    for text, name in zip(said, ("b", "a"), strict=True):  # the address that was opened last is closed first
        found = samples_of(text)
        assert {dict(labels).get("pipeline", name) for _, labels in found} == {name}
        label = frozenset({("pipeline", name)})
        assert found["freshet_records_read_total", label] == 2
        assert found["freshet_batch_seconds_count", label] >= 1
        assert found["freshet_event_to_commit_seconds_count", label] == 2
        assert found["freshet_commit_seconds_count", label] >= 1
        assert sum(value for (key, _), value in found.items() if key == "freshet_dead_letters_total") == 1
        assert {key for key, _ in found} <= sample_names()


class _Noted:
    """A server that is scraped just before it ends."""

    def __init__(self, serving: Any, said: list[str]) -> None:
        self._serving, self._said = serving, said

    def __enter__(self) -> str:
        self._address: str = self._serving.__enter__()
        return self._address

    def __exit__(self, *of_error: Any) -> Any:
        self._said.append(urllib.request.urlopen(self._address, timeout=10).read().decode())
        return self._serving.__exit__(*of_error)


@pytest.mark.parametrize("text", ["", "x", "0.0.0.0", "70000", "-1", "127.0.0.1:"])
def test_addresses_that_are_none(freshet: Freshet, path: Path, text: str) -> None:
    called = freshet("run", path, f"--metrics-port={text}")
    assert called.code == 2 and "write a port" in called.err
    assert not (path.parent / "w").exists()


@pytest.mark.parametrize(
    ("text", "address"),
    [("9464", ("127.0.0.1", 9464)), ("0.0.0.0:1", ("0.0.0.0", 1)), ("[::1]:0", ("::1", 0))],
)
def test_addresses(text: str, address: tuple[str, int]) -> None:
    assert address_of(text) == address


def test_a_port_that_is_taken_and_a_file_that_cannot_be(freshet: Freshet, path: Path) -> None:
    Catalog(path.parent / "w").create_table("s.t", schema={"id": "BIGINT"})
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        for call in (["run", path, "--metrics-port", port], ["exporter", path.parent / "w", "--port", port]):
            called = freshet(*call)
            assert called.code == 2 and f"127.0.0.1:{port}" in called.err and str(call[2]) in called.err
    called = freshet("exporter", path.parent / "w", "--file", path.parent / "none" / "m.prom")
    assert called.code == 2 and "m.prom" in called.err
    assert freshet("exporter", path.parent / "w", "--every", 5).code == 2
    assert freshet("exporter", path.parent / "w", "s.none", "--file", path.parent / "m").code == 2
    assert not (path.parent / "m").exists()


def test_a_run_that_is_started_again_at_once_gets_its_port(path: Path) -> None:
    """The connections of the run before linger for a minute."""
    config, port = load_pipeline(path), 0
    for _ in range(2):
        with metrics.serving_run([config], RunTotals(["a"], time.monotonic), ("127.0.0.1", port)) as (address,):
            port = int(address.removesuffix("/metrics").rpartition(":")[2])
            urllib.request.urlopen(address.replace("/metrics", "/live"), timeout=5).read()


def test_probes(path: Path) -> None:
    now_s = [0.0]
    totals = RunTotals(["a"], lambda: now_s[0])

    def answer(address: str, probe: str) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(address.replace("metrics", probe), timeout=10) as said:
                return said.status, said.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    with metrics.serving_run([load_pipeline(path)], totals, ("127.0.0.1", 0)) as (address,):
        assert answer(address, "ready") == (503, "a: starting\n")
        assert answer(address, "live")[0] == 200
        totals.look()
        totals.idle("a")
        assert answer(address, "ready") == (200, "a: idle\n")
        broken = PipelineState("a", 1, ErrorKind.RETRYABLE, "away", is_retryable=True, restart=Restart(1, 2.0))
        totals.state(broken)
        assert answer(address, "ready") == (503, "a: restarting\n")
        now_s[0] = LOOK_LOST_S
        assert answer(address, "live")[0] == 503
        assert answer(address, "else")[0] == 404
        assert 'freshet_restarts_total{cause="' in answer(address, "metrics")[1]
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(address, timeout=1)


def test_keys_that_are_wrong(freshet: Freshet, path: Path) -> None:
    for more in ("metrics: {port: 70000}\n", "metrics: {prot: 1}\n", 'metrics: {host: ""}\n', "metrics: 9464\n"):
        called = freshet("check", pipeline_file(path.parent, "a", more))
        assert called.code == 2 and "metrics" in called.err
