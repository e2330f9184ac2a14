"""What an operator reads: the line, the JSON, dead letters by reason, and that a stream waits."""

from __future__ import annotations

import json
from dataclasses import replace

from freshet.pipeline.batch.background_rounds import BackgroundReport
from freshet.pipeline.batch.batch_report import BatchReport
from freshet.pipeline.batch.task_result import TaskResult
from freshet.pipeline.running.progress import Progress
from freshet.pipeline.running.progress_report import SUMMARY_EVERY, ProgressReporter, progress_facts, progress_line

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
    assert [json.loads(line)["left_out_columns"] for line in said] == [[], ["more"], ["more", "other"], ["more"]]


def test_background_compaction() -> None:
    done = BackgroundReport(units=2, aborted=1, input_bytes=2048, failure="disk full")
    compacted = replace(PROGRESS, report=replace(REPORT, background=done))
    assert (
        "; 2 background compactions, 2.0 KB read; 1 background compaction dropped: another commit was faster; "
        "background compaction is failing; batches compact instead: disk full; "
    ) in progress_line(compacted)
    facts = progress_facts(compacted)
    assert facts["background"] == {"units": 2, "aborted": 1, "input_bytes": 2048, "failure": "disk full"}
    assert facts["beside"] == {"units": 2, "given_way": 1, "input_bytes": 2048, "failure": "disk full"}
    assert (progress_facts(PROGRESS)["background"], progress_facts(PROGRESS)["beside"]) == (None, None)


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


def test_one_json_object_per_batch() -> None:
    said: list[str] = []
    reporter(said, [], as_json=True).take(PROGRESS)
    (facts,) = map(json.loads, said)
    assert (facts["pipeline"], facts["batch"], facts["records"], facts["applied"]) == ("orders", 7, 1000, 900)
    assert facts["dead_letters"] == {"bad": 60, "worse": 4}
    assert facts["lookups"] == {"by_store": 2}
    assert (facts["lag"], facts["records_per_s"], facts["batch_ms"]) == (5, 2000.0, 500.0)
