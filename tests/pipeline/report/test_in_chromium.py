"""A report as Chromium shows it: what is shown is what `freshet status --json` says, and names are text."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from freshet import Catalog
from freshet.pipeline.commands.status import document_of as status_document
from freshet.pipeline.query.driver.dead_letters import DEAD_LETTER_COLUMNS
from freshet.pipeline.report.document import dead_letters_of, report_document
from freshet.pipeline.report.page import page
from freshet.pipeline.running.pipeline_status import PipelineStatus
from freshet.pipeline.running.run_note import RunNote, RunState
from freshet.pipeline.running.seen import Seen
from freshet.storage.model.commit_facts import BatchFacts
from freshet.storage.status.table_status import Batches, TableStatus
from tests.kit.chromium import Node, look, looked_at, with_script

pytestmark = pytest.mark.slow

EVIL = "<img src=x onerror=hit()>"
SCRIPT = "</script><script>hit()</script>"
BIDI = "a\u202eb\x1b[2J"
PROBE = """
addEventListener("load", () => setTimeout(() => {
  const say = (name, value) => { document.body.dataset[name] = value; };
  const root = document.documentElement;
  say("inner", innerWidth);
  say("wide", root.scrollWidth - root.clientWidth);
  say("background", getComputedStyle(document.body).backgroundColor);
  say("charts", document.querySelectorAll(".plot canvas").length);
  for (const row of document.querySelectorAll(".rows details, details.more")) row.open = true;
  setTimeout(() => {
    say("wideOpen", root.scrollWidth - root.clientWidth);
    const places = [...document.querySelectorAll(".plot")];
    say("cut", Math.max(...places.map((each) => each.scrollWidth - each.clientWidth)));
    say("chartsOpen", document.querySelectorAll(".plot canvas").length);
    const press = (key) => document.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
    press("/");
    say("focus", document.activeElement.type || document.activeElement.tagName);
    const some = [...document.querySelectorAll("summary, a, input, .scroll")];
    say("unreachable", some.filter((each) => each.tabIndex < 0).length);
    parent.postMessage({ ...document.body.dataset }, "*");
  }, 500);
}, 300));
function hit() { document.body.dataset.hit = "yes"; }
"""


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Catalog:
    catalog = Catalog(tmp_path_factory.mktemp("lake"))
    options = {"bucket": "2", "changelog-producer": "lookup", "freshet.freshness-target": "1 ms"}
    orders = catalog.create_table(
        "s.orders", schema={"id": "INT", EVIL: "STRING"}, primary_keys=["id"], options=options
    )
    with orders.writer(f"loader {SCRIPT}") as writer:
        for number in range(12):
            writer.write([{"id": key, EVIL: SCRIPT} for key in range(number, number + 9)])
            writer.commit()
    orders.tags.create(EVIL)
    orders.reset_consumer("reader-1", 3)
    odd = catalog.create_table(f"s.{EVIL}", schema={"id": "INT"}, options={"freshet.freshness-target": "1 h"})
    odd.engine.committer(BIDI).commit(1, [], batch=BatchFacts(7, {SCRIPT: 3}, (1, 2), {EVIL: 5}))
    catalog.create_table("s.empty", schema={"id": "INT"})
    for number in range(6):
        catalog.create_table(f"s.more{number}", schema={"id": "INT"}).append([{"id": number}])
    letters = catalog.create_table("s.dead", schema=DEAD_LETTER_COLUMNS)
    row = {"pipeline": EVIL, "topic": SCRIPT, "reason": SCRIPT, "column_name": EVIL, "micro_batch_id": 1}
    letters.append([{**row, "raw_key": EVIL.encode(), "raw_value": f"{SCRIPT}\x00".encode() + b"\xff"}])
    damaged = catalog.create_table("s.damaged", schema={"id": "INT"})
    damaged.append([{"id": 1}])
    damaged.store.env.file_io.overwrite(damaged.store.paths.snapshot(1), b"{")
    return catalog


def pipelines(now_ms: int) -> list[PipelineStatus]:
    gone = RunNote(RunState.RUNNING, now_ms - 90_000, now_ms - 9_000_000, "host", 7, 41, None, 5, None, SCRIPT)
    batches = Batches(3, 300, 12.5, 1_500, 61_000, {"job": 70, EVIL: 30}, {SCRIPT: 2}, now_ms)
    fresh = TableStatus("s.orders", now_ms, None, 0, 60_000, 5, 1, 9)
    return [
        PipelineStatus("well", now_ms, RunState.IDLE, 9, None, 0, 0, batches, None, (fresh,)),
        PipelineStatus(
            EVIL, now_ms, RunState.GONE, 41, gone, 12_345, 95_000, batches, SCRIPT, apart={f"s.{EVIL}": SCRIPT}
        ),
        PipelineStatus("lost", now_ms, RunState.UNKNOWN, None, None, None, None, Batches(), None, error=SCRIPT),
    ]


def report_of(catalog: Catalog, *names: str) -> dict[str, Any]:
    now_ms = time.time_ns() // 1_000_000
    reports = catalog.report(*names, warehouse=f"/lake {EVIL}")
    status = status_document(
        Seen(pipelines=[] if names else pipelines(now_ms), tables=[each.status for each in reports])
    )
    letters = dead_letters_of(catalog, reports, samples=True)
    return report_document(reports, status, letters, place=f"/lake {SCRIPT}", now_ms=now_ms, options={}, samples=True)


def value(row: Node, fact: str) -> str | None:
    """The first value that is shown of a fact."""
    found = [each for place in row.all(data_fact=fact) for each in place.all("data")]
    return found[0].attributes["value"] if found else None


def text_of(value: object) -> str | None:
    """As JavaScript has a number as text."""
    return None if value is None else json.dumps(value).removesuffix(".0")


@pytest.mark.always("reports in a browser")
def test_what_is_shown_is_what_status_says(catalog: Catalog, tmp_path: Path) -> None:
    document = report_of(catalog)
    shown, complaints = looked_at(page(document), tmp_path)
    assert complaints == []
    tables = document["status"]["tables"]
    for table in tables:
        row = shown.one("details", data_table=table["name"])
        for fact in ("freshness_ms", "target_ms", "rows", "live_bytes"):
            assert value(row, fact) == text_of(table[fact]), (table["name"], fact)
        detail = table["detail"]
        assert value(row, "runs_max") == text_of(None if detail is None else detail["levels"]["runs_max"])
        state = row.one("span", data_fact="is_behind").text
        assert (state in ("BEHIND", "CANNOT BE READ")) == table["is_behind"], state
    order = [each.attributes["data-table"] for each in shown.all("details", data_table=None)]
    assert order[0] == "s.damaged" and order[1] == "s.orders" and set(order) == {each["name"] for each in tables}
    for pipeline in document["status"]["pipelines"]:
        row = shown.one("details", data_pipeline=pipeline["name"])
        for fact in ("lag_records", "lag_ms", "batch"):
            assert value(row, fact) == text_of(pipeline[fact]), (pipeline["name"], fact)
        for fact in ("records_per_s", "event_to_commit_ms_p50", "event_to_commit_ms_p99"):
            assert value(row, fact) == text_of(pipeline["batches"][fact])
        assert value(row, "dead_letters") == text_of(sum(pipeline["batches"]["dead_letters"].values()))
    states = [each.one("span", data_fact="state").text for each in shown.all("details", data_pipeline=None)]
    assert states[:2] == ["GONE", "CANNOT BE READ"] or states[:2] == ["CANNOT BE READ", "GONE"]
    assert states[2:] == ["idle", "by its commits"]
    attention = shown.one("section", id="attention").text
    assert (
        "s.orders has rows that are" in attention
        and "its pipeline well waits for records and has read all" in attention
    )
    acted = [each for each in document["findings"] if each["severity"] != "note"]
    section = shown.one("section", id="findings")
    assert [each.attributes["data-finding"] for each in section.all("article")] == [each["name"] for each in acted]
    commands = [each.text for each in section.all("pre")]
    assert commands == [each["command"].replace("\n", "\\n") for each in acted if each["command"]]


DARK = "--blink-settings=preferredColorScheme=0"
FRAME = """
<body><iframe src="page.html" width="360" height="2000" style="border: 0"></iframe>
<script>onmessage = (event) => { Object.assign(document.body.dataset, event.data); };</script></body>
"""


def check_probed(found: Node, width: str, background: str) -> None:
    said = {name.removeprefix("data-"): each for name, each in found.one("body").attributes.items()}
    assert "hit" not in said
    assert (said["inner"], said["background"]) == (width, background)
    assert (said["wide"], said["wide-open"]) == ("0", "0"), "wider than the window"
    assert (said["charts"], said["focus"], said["unreachable"]) == ("0", "search", "0")
    assert int(said["charts-open"]) >= 3 * 8
    assert said["cut"] == "0", "charts are wider than their places"


@pytest.mark.always("reports in a browser")
def test_hostile_names_are_text(catalog: Catalog, tmp_path: Path) -> None:
    shown, complaints = looked_at(with_script(page(report_of(catalog)), PROBE), tmp_path, DARK)
    assert complaints == []
    check_probed(shown, "1280", "rgb(16, 21, 28)")
    assert shown.all("img") == [] and len(shown.all("script")) == 4
    report = shown.one("main").text
    assert EVIL in report and SCRIPT in report and r"a\u{202e}b\u{1b}" in report and r"\u{0}" in report
    assert not set("\u202e\x1b\x00") & set(report)


def test_a_window_of_360_pixels(catalog: Catalog, tmp_path: Path) -> None:
    """In a frame: without a window Chromium is never as narrow."""
    (tmp_path / "page.html").write_text(with_script(page(report_of(catalog)), PROBE), "utf-8")
    (tmp_path / "frame.html").write_text(FRAME)
    shown, complaints = look((tmp_path / "frame.html").as_uri(), tmp_path)
    assert complaints == []
    check_probed(shown, "360", "rgb(245, 246, 248)")


def test_one_table_is_open_and_says_everything(catalog: Catalog, tmp_path: Path) -> None:
    document = report_of(catalog, "s.orders")
    shown, complaints = looked_at(page(document), tmp_path)
    assert complaints == []
    (details,) = shown.all("details", data_table=None)
    assert "open" in details.attributes
    more, detail = document["details"]["s.orders"], document["status"]["tables"][0]["detail"]
    regions = {each.attributes["aria-label"]: each for each in details.all("div", role="region")}
    for name, key in (("Newest commits", "commits"), ("Newest compactions", "compactions"), ("Columns", "columns")):
        assert len(regions[name].one("tbody").all("tr")) == len(more[key]), name
    assert [each.all("td")[2].text for each in regions["Newest compactions"].one("tbody").all("tr")] == [
        each["reason"] for each in more["compactions"]
    ]
    text = details.text
    for hold in detail["holds"]:
        assert hold["name"] in text and f"at snapshot {hold['snapshot_id']}" in text
    assert f"{detail['hour']['commits']} commits, {detail['hour']['rows_written']} rows" in text
    assert len(details.all("div", class_="bucket")) == len(more["buckets"]) == 2
    assert len(details.all("canvas")) == 4


def test_a_pipeline_that_is_known_by_its_commits_alone_is_not_called_well(catalog: Catalog, tmp_path: Path) -> None:
    document = report_of(catalog)
    document["status"]["pipelines"] = []
    shown, complaints = looked_at(page(document), tmp_path)
    assert complaints == []
    assert "by their commits; --pipeline says whether they run" in shown.one("main").text


def test_a_warehouse_without_tables(tmp_path: Path) -> None:
    (tmp_path / "lake").mkdir()
    shown, complaints = looked_at(page(report_of(Catalog(tmp_path / "lake"))), tmp_path)
    assert complaints == []
    assert "There are no tables yet." in shown.one("main").text
