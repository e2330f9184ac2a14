"""docker/watch: rules and dashboard ask for metrics that there are, and each alert has its playbook."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from freshet.pipeline.decode.outcomes import EventTimes
from freshet.pipeline.query.driver.batch_report import BatchReport
from freshet.pipeline.query.wire.read_count import ReadCount
from freshet.pipeline.query.wire.task_result import TaskResult
from freshet.pipeline.running.metrics import FreshetCollector, KeptLook, registry_of, serving
from freshet.pipeline.running.pipeline_status import PipelineStatus
from freshet.pipeline.running.progress import Progress
from freshet.pipeline.running.run_note import RunState
from freshet.pipeline.running.run_totals import RunTotals
from freshet.pipeline.running.seen import Seen
from freshet.storage.catalog import Catalog
from freshet.storage.status.table_status import Batches
from tests.kit.components import missing
from tests.kit.metric_list import sample_names

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docker" / "watch"
PLAYBOOKS = ROOT / "docs" / "how-to" / "metrics-and-alerts.md"
LABELS = {"pipeline", "database", "table", "cause", "phase", "le", "job"}

RULES: list[dict[str, Any]] = [
    rule for group in yaml.safe_load((FOLDER / "rules.yaml").read_text("utf-8"))["groups"] for rule in group["rules"]
]
DASHBOARD = json.loads((FOLDER / "dashboard.json").read_text("utf-8"))
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
EXPRESSIONS = [rule["expr"] for rule in RULES] + [each["expr"] for panel in PANELS for each in panel["targets"]]


@pytest.mark.parametrize("expression", [*EXPRESSIONS, *(each["query"] for each in DASHBOARD["templating"]["list"])])
def test_expressions_name_metrics_and_labels_that_there_are(expression: str) -> None:
    assert set(re.findall(r"\bfreshet_\w+", expression)) <= sample_names()
    by = re.findall(r"\bby \(([^)]*)\)", expression)
    matched = re.findall(r"(\w+)=~?\"", expression)
    assert {label.strip() for labels in by for label in labels.split(",")} | set(matched) <= LABELS


def test_each_alert_has_a_playbook() -> None:
    """With its trigger, diagnosis and resolution, and no playbook is of another alert."""
    text = PLAYBOOKS.read_text("utf-8").partition("## Playbooks")[2]
    sections = dict(re.findall(r"^### (\w+)\n(.*?)(?=^### |\Z)", text, re.MULTILINE | re.DOTALL))
    assert list(sections) == [rule["alert"] for rule in RULES]
    for name, section in sections.items():
        assert re.findall(r"^\*\*(\w+)\*\*: ", section, re.MULTILINE) == ["Trigger", "Diagnosis", "Resolution"], name
    for rule in RULES:
        assert rule["annotations"]["playbook"] == f"{PLAYBOOKS.name}#{rule['alert'].lower()}"
        assert rule["labels"]["severity"] in ("warning", "critical")


def test_the_dashboard_has_two_rows_of_questions() -> None:
    assert [panel["title"] for panel in DASHBOARD["panels"] if panel["type"] == "row"] == ["Pipelines", "Tables"]
    titles = [panel["title"] for panel in PANELS]
    assert len(set(titles)) == len(titles) == 20
    assert all(title.endswith("?") for title in titles)
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(set(ids)) == len(ids)


def test_the_compose_file_mounts_what_is_there() -> None:
    services = yaml.safe_load((ROOT / "docker" / "compose.watch.yaml").read_text("utf-8"))["services"]
    mounted = [each.partition(":")[0] for service in services.values() for each in service.get("volumes", ())]
    for place in mounted:
        assert not place.startswith(".") or (ROOT / "docker" / place).exists(), place
    assert all(re.fullmatch(r"\$\{\w+_IMAGE:\?.+\}", each["image"]) for each in services.values() if "image" in each)


@pytest.mark.slow
def test_promtool_takes_rules_and_settings() -> None:
    _needs("promtool")
    for command in (["rules", "rules.yaml"], ["config", "prometheus.yaml"]):
        checked = subprocess.run(["promtool", "check", *command], cwd=FOLDER, capture_output=True, text=True)
        assert checked.returncode == 0, checked.stderr


@pytest.mark.slow
def test_expressions_give_something_in_a_prometheus(tmp_path: Path) -> None:
    _needs("prometheus")
    totals, look = RunTotals(["a"]), KeptLook(lambda: seen(tmp_path), share=1)
    registry = registry_of(FreshetCollector(look, totals, ["a"]))
    result = TaskResult(applied=9, dead={"bad": 1}, read=ReadCount(times=EventTimes(1, 2)))
    totals.take(Progress(BatchReport("a", 1, result, read_count=10, times_ms={"commit": 20.0}), 0.0, 5, 400.0))
    with serving(registry, "127.0.0.1", 0, ready=well, live=well) as address, prometheus(tmp_path, address) as asked:
        silent = set(EXPRESSIONS_ASKED)
        deadline_s = time.monotonic() + 60
        while silent and time.monotonic() < deadline_s:
            totals.take(Progress(BatchReport("a", 1, result, read_count=10, times_ms={"commit": 20.0}), 0.0, 5, 400.0))
            time.sleep(0.5)
            silent = {each for each in silent if not asked("query", query=each).get("result")}
        groups = asked("rules")["groups"]
    assert silent == set()
    assert sum(len(group["rules"]) for group in groups) == len(RULES)
    assert not [rule["lastError"] for group in groups for rule in group["rules"] if rule.get("lastError")]


EXPRESSIONS_ASKED = [re.sub(r"\$\w+", ".*", each["expr"]) for panel in PANELS for each in panel["targets"]]
EXPRESSIONS_ASKED += sorted({name for rule in RULES for name in re.findall(r"freshet_\w+", rule["expr"])})
"""Those of rules give nothing where all is well, and their metrics something."""


def well() -> tuple[bool, str]:
    return True, "well"


def seen(folder: Path) -> Seen:
    catalog = Catalog(folder / "w")
    if not catalog.has_table("s.a"):
        options = {"bucket": "1", "changelog-producer": "lookup", "freshet.freshness-target": "1 h"}
        table = catalog.create_table("s.a", schema={"id": "BIGINT"}, primary_keys=["id"], options=options)
        with table.writer("a") as writer:
            writer.write([{"id": 1}])
            writer.commit()
    status = catalog.table("s.a").status()
    batches = Batches(phases_ms={"job": 5}, dead_letters={"bad": 1})
    state = PipelineStatus("a", status.observed_ms, RunState.RUNNING, 1, None, 5, 700, batches, None, (status,))
    return Seen(pipelines=[state])


def _needs(program: str) -> None:
    if shutil.which(program) is None:
        missing(program, "apt-get install prometheus")


@contextmanager
def prometheus(folder: Path, address: str) -> Iterator[Callable[..., Any]]:
    """Scrapes this address every second with our rules; what it gives asks its API."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        own = f"127.0.0.1:{free.getsockname()[1]}"
    settings = yaml.safe_load((FOLDER / "prometheus.yaml").read_text("utf-8"))
    settings["global"] = {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"}
    settings["rule_files"] = [str(FOLDER / "rules.yaml")]
    settings["scrape_configs"][0]["static_configs"][0]["targets"] = [address.split("/")[2]]
    (folder / "prometheus.yaml").write_text(yaml.safe_dump(settings))
    places = [f"--config.file={folder}/prometheus.yaml", f"--storage.tsdb.path={folder}/tsdb"]
    with (
        (folder / "log").open("wb") as log,
        subprocess.Popen(["prometheus", *places, f"--web.listen-address={own}"], stderr=log) as process,
    ):

        def asked(what: str, **arguments: str) -> Any:
            try:
                url = f"http://{own}/api/v1/{what}?{urllib.parse.urlencode(arguments)}"
                with urllib.request.urlopen(url, timeout=10) as said:
                    return json.load(said)["data"]
            except urllib.error.HTTPError as error:
                raise AssertionError(f"{arguments}: {error.read().decode()}") from error
            except OSError:
                return {}  # it has not begun yet

        try:
            yield asked
        finally:
            process.terminate()
