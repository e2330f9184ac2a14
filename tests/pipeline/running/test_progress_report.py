"""What an operator reads: the line, the JSON, dead letters by reason, and that a stream waits."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from freshet.pipeline.errors.error_kind import ErrorKind
from freshet.pipeline.query.driver.background_rounds import BackgroundReport
from freshet.pipeline.query.driver.batch_report import BatchReport
from freshet.pipeline.query.wire.task_result import TaskResult
from freshet.pipeline.running.progress import PipelineState, Progress
from freshet.pipeline.running.progress_report import (
    SUMMARY_EVERY,
    ProgressReporter,
    progress_facts,
    progress_line,
    summed_line,
)
from freshet.pipeline.running.restarts import Restart
from tests.kit.json_shapes import json_shapes, misfits

RESULT = TaskResult(
    applied=900,
    dead={"bad": 60, "worse": 4},
    skipped={"tombstone": 36},
    notes={"unknown field more": 12},
    lookups={"by_store": 2},
    times_ms={"write": 12.0},
)
REPORT = BatchReport(
    pipeline="orders",
    micro_batch_id=7,
    result=RESULT,
    read_count=1000,
    level0_count=1,
    times_ms={"job": 200.0, "commit": 30.0},
)
PROGRESS = Progress(REPORT, 2000.0, 5, 500.0, {"walCommit": 20, "commitOffsets": 10})


def test_the_line() -> None:
    assert progress_line(PROGRESS) == (
        "orders: batch 7: 1,000 records in 0.50 s (2,000/s): 900 applied, 64 dead letters, 36 skipped; 5 behind; "
        "1 level-0 file; ms: job 200, commit 30, log 30 (tasks: write 12)"
    )


@pytest.mark.parametrize(
    ("width", "line"),
    [
        (120, "orders: batch 7: 1,000 records in 0.50 s (2,000/s): 900 applied, 64 dead letters, 36 skipped; 5 behind"),
        (80, "orders: batch 7: 1,000 records: 900 applied, 64 dead letters, 36 skipped"),
        (40, "orders: batch 7: 1,000 records: 900 app…"),
    ],
)
def test_the_line_of_a_terminal(width: int, line: str) -> None:
    assert progress_line(PROGRESS, width=width).startswith(line)


@pytest.mark.parametrize("width", range(20, 200, 7))
@pytest.mark.parametrize("name", ["o", "shop-orders", "a-name-that-is-much-longer-than-names-should-be"])
def test_a_batch_is_one_line(name: str, width: int) -> None:
    done = BackgroundReport(units=2, aborted=1, input_bytes=2048, failure="disk full")
    for background, dead in ((None, {}), (done, {"bad": 3})):
        result = replace(RESULT, dead=dead, keys_merged=1200, waited_buckets=1 if dead else 0)
        report = replace(REPORT, pipeline=name, result=result, background=background, rewrite_count=1)
        for several in (1, 3):
            assert len(summed_line([replace(PROGRESS, report=report)] * several, width=width)) <= width
    plain = replace(PROGRESS, report=replace(REPORT, pipeline="shop-orders", result=TaskResult(applied=1000)))
    assert "1,000 records in 0.50 s (2,000/s): 1,000 applied; 5 behind" in progress_line(plain, width=80)


def test_what_is_wrong_is_said_before_the_times() -> None:
    waits = replace(PROGRESS, report=replace(REPORT, result=TaskResult(applied=1000, waited_buckets=2)))
    assert "WAITED" in progress_line(waits, width=120) and " ms" not in progress_line(waits, width=120)


def test_slow_batches_have_a_speed_and_unknown_speeds_none() -> None:
    slow = replace(PROGRESS, records_per_s=0.12, batch_ms=25000.0, report=replace(REPORT, read_count=1))
    assert "1 record in 25.00 s (0.12/s): " in progress_line(slow)
    assert "(0" not in progress_line(replace(PROGRESS, records_per_s=0.0))


def test_the_line_says_what_merging_cost() -> None:
    merged = replace(PROGRESS, report=replace(REPORT, result=replace(RESULT, keys_merged=1200, keys_in_python=7)))
    assert "; 1,200 keys merged, 7 of them value by value; " in progress_line(merged)
    assert "merged" not in progress_line(PROGRESS)


def test_columns_that_the_file_leaves_out_are_reported_once_each() -> None:
    said: list[str] = []
    remarks: list[str] = []
    taking = reporter(said, remarks, as_json=True)
    for columns in ((), ("more",), ("more", "other"), ("more",)):
        taking.take(replace(PROGRESS, report=replace(REPORT, left_out=columns)))
    warned = [remark for remark in remarks if "warning" in remark]
    assert [remark.partition("carry a field ")[2].split(",")[0] for remark in warned] == ["more", "other"]
    assert "table.columns" in warned[0]
    assert [json.loads(line)["unread_columns"] for line in said] == [[], ["more"], ["more", "other"], ["more"]]


def test_background_compaction() -> None:
    done = BackgroundReport(units=2, aborted=1, input_bytes=2048, failure="disk full")
    compacted = replace(PROGRESS, report=replace(REPORT, background=done))
    assert (
        "; 2 background compactions, 2.0 KB read; 1 background compaction dropped: another commit was faster; "
        "background compaction is failing; batches compact instead: disk full; "
    ) in progress_line(compacted)
    facts = progress_facts(compacted, 0)
    assert facts["background"] == {"units": 2, "aborted": 1, "input_bytes": 2048, "failure": "disk full"}
    assert progress_facts(PROGRESS, 0)["background"] is None


def test_a_batch_that_was_committed_already() -> None:
    replay = replace(PROGRESS, report=BatchReport("orders", 7, is_replay=True))
    assert progress_line(replay) == "orders: batch 7: was committed already, nothing to do"


def reporter(said: list[str], remarks: list[str], *, as_json: bool = False) -> ProgressReporter:
    return ProgressReporter(
        said.append, remarks.append, dead_letter_tables={"orders": "shop.orders_dead_letters"}, as_json=as_json
    )


def test_dead_letters_are_named_when_a_reason_is_new_and_then_now_and_again() -> None:
    said: list[str] = []
    remarks: list[str] = []
    taking = reporter(said, remarks)
    taking.take(PROGRESS)
    assert remarks == [
        "orders: dead letters so far, in shop.orders_dead_letters: 60 × bad, 4 × worse",
        "orders: also seen so far: 12 × unknown field more",
    ]
    remarks.clear()
    for _ in range(SUMMARY_EVERY - 2):
        taking.take(PROGRESS)
    assert remarks == []
    taking.take(PROGRESS)
    assert remarks[0].endswith(f"{60 * SUMMARY_EVERY:,} × bad, {4 * SUMMARY_EVERY:,} × worse")
    remarks.clear()
    taking.take(replace(PROGRESS, report=replace(REPORT, result=TaskResult(applied=1, dead={"worst": 1}))))
    assert remarks == [
        f"orders: dead letters so far, in shop.orders_dead_letters: {60 * SUMMARY_EVERY:,} × bad, "
        f"{4 * SUMMARY_EVERY:,} × worse, 1 × worst"
    ]
    assert len(said) == SUMMARY_EVERY + 1


def test_nothing_more_is_said_where_nothing_is_wrong() -> None:
    remarks: list[str] = []
    taking = reporter([], remarks)
    for _ in range(2 * SUMMARY_EVERY):
        taking.take(replace(PROGRESS, report=replace(REPORT, result=TaskResult(applied=5))))
    assert remarks == []


def test_waiting_is_said_once_until_the_next_batch() -> None:
    remarks: list[str] = []
    taking = reporter([], remarks)
    taking.idle("orders")
    taking.idle("orders")
    assert remarks == ["orders: waiting for new records"]
    taking.take(replace(PROGRESS, report=replace(REPORT, result=TaskResult(applied=5))))
    taking.idle("orders")
    assert remarks == ["orders: waiting for new records"] * 2


def test_json_has_one_form_and_goes_on_while_a_pipeline_waits() -> None:
    said: list[str] = []
    now_s = 100.0
    taking = ProgressReporter(
        said.append,
        lambda text: None,
        dead_letter_tables={},
        as_json=True,
        clock=lambda: now_s,
        now_ms=lambda: 1_764_410_685_123 + int(now_s * 1000),
    )
    taking.idle("orders", None)
    taking.take(PROGRESS)
    for _ in range(13):  # every ten seconds
        taking.idle("orders", 3)
        now_s += 10
    for restart in (None, Restart(1, 2.0)):
        taking.state(PipelineState("orders", 7, ErrorKind.RETRYABLE, "gone", is_retryable=True, restart=restart))
    objects = [json.loads(line) for line in said]
    assert [each["state"] for each in objects] == ["idle", "running", *["idle"] * 3, "failed", "restarting"]
    assert [(each["batch"], each["lag"]) for each in objects[:5]] == [(None, None), (7, 5), *[(7, 3)] * 3]
    assert {tuple(each) for each in objects} == {tuple(objects[0])}
    shape = json_shapes()["freshet run --progress json"]
    assert [misfits(each, shape) for each in objects] == [[]] * len(objects)
    assert objects[0]["time"] == "2025-11-29T10:06:25.123Z"


def test_one_json_object_per_batch() -> None:
    said: list[str] = []
    reporter(said, [], as_json=True).take(PROGRESS)
    (facts,) = map(json.loads, said)
    assert (facts["pipeline"], facts["batch"], facts["records"], facts["applied"]) == ("orders", 7, 1000, 900)
    assert facts["dead_letters"] == {"bad": 60, "worse": 4}
    assert facts["lookups"] == {"by_store": 2}
    assert (facts["lag"], facts["records_per_s"], facts["batch_ms"]) == (5, 2000.0, 500.0)


def test_the_batches_of_a_second_are_one_line() -> None:
    said: list[str] = []
    now_s = 100.0
    summing = ProgressReporter(said.append, said.append, dead_letter_tables={}, sums_up=True, clock=lambda: now_s)
    plain = replace(RESULT, dead={}, notes={})
    batches = [
        replace(PROGRESS, lag=number, report=replace(REPORT, micro_batch_id=number, result=plain))
        for number in range(7, 12)
    ]
    summing.take(batches[0])
    assert said == [progress_line(batches[0])]
    for each in batches[1:]:
        summing.take(each)
    summing.look()
    assert len(said) == 1
    now_s += 1.0
    summing.look()
    assert said[1:] == [
        "orders: batches 8 to 11: 4,000 records in 2.00 s (2,000/s): 3,600 applied, 144 skipped; 11 behind; "
        "1 level-0 file; ms: job 800, commit 120, log 120 (tasks: write 48)"
    ]
    summing.look(is_last=True)
    assert len(said) == 2
    summing.take(batches[0])
    summing.idle("orders")
    assert said[2:] == [progress_line(batches[0]), "orders: waiting for new records"]


def test_a_sum_of_batches_that_were_committed_already_says_so() -> None:
    replayed = [replace(PROGRESS, report=replace(REPORT, micro_batch_id=number, is_replay=True)) for number in (1, 2)]
    assert summed_line(replayed) == "orders: batches 1 to 2: were committed already, nothing to do"
