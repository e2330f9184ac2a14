"""What is told of a micro-batch: both sides brought together, the lag, one line for people."""

from __future__ import annotations

from dataclasses import replace

from freshet.pipeline.batch.micro_batch import BatchReport
from freshet.pipeline.batch.task_result import TaskResult, encode_result, sum_results
from freshet.pipeline.progress import Progress, ProgressHub, lag_of

REPORT = BatchReport(
    pipeline="orders",
    micro_batch_id=7,
    result=TaskResult(applied=900, dead={"bad": 60, "worse": 4}, skipped={"tombstone": 36}, times_ms={"write": 12.0}),
    read_count=1000,
    level0_count=3,
    times_ms={"job": 200.0, "commit": 30.0},
)


def _spark_progress(batch_id: int, *, end: object, latest: object) -> dict[str, object]:
    return {
        "name": "orders",
        "batchId": batch_id,
        "durationMs": {"triggerExecution": 500, "walCommit": 20, "commitOffsets": 10},
        "sources": [{"endOffset": end, "latestOffset": latest}],
    }


def test_a_batch_is_told_when_both_sides_have_spoken() -> None:
    told: list[Progress] = []
    hub = ProgressHub(told.append)
    hub.add_spark_progress(_spark_progress(6, end=None, latest=None))
    hub.add_report(REPORT)
    assert told == []
    hub.add_spark_progress(_spark_progress(7, end={"t": {"0": 5, "1": 5}}, latest={"t": {"0": 9, "1": 6}}))
    assert [(each.report, each.records_per_s, each.lag, each.batch_ms) for each in told] == [(REPORT, 2000.0, 5, 500.0)]
    line = told[0].line()
    for part in (
        "orders",
        "batch 7",
        "1,000 records",
        "900 applied",
        "64 dead letters",
        "36 skipped",
        "2,000/s",
        "lag 5",
    ):
        assert part in line
    assert "level 0: 3 files" in line
    assert "job 200, commit 30, log 30; tasks: write 12" in line


def test_lag_counts_new_kafka_partitions_from_their_begin_and_leaves_other_sources_out() -> None:
    kafka = {"endOffset": {"t": {"0": 10}}, "latestOffset": {"t": {"0": 12, "1": 3}}}
    files = {"endOffset": {"logOffset": 4}, "latestOffset": None}
    assert lag_of({"sources": [kafka, files]}) == 5
    assert lag_of({"sources": [files]}) is None
    assert lag_of({}) is None


def test_the_line_says_what_merging_cost() -> None:
    assert "merged" not in Progress(REPORT, 1.0, None, 1.0).line()
    merged = replace(REPORT, result=replace(REPORT.result, keys_merged=1200, keys_looped=0))
    assert " · 1,200 keys merged · level 0" in Progress(merged, 1.0, None, 1.0).line()
    looped = replace(REPORT, result=replace(REPORT.result, keys_merged=1200, keys_looped=7))
    assert " · 1,200 keys merged, 7 of them value by value · level 0" in Progress(looped, 1.0, None, 1.0).line()


def test_what_tasks_tell_of_merging_is_added_up() -> None:
    told = [encode_result(TaskResult(keys_merged=number, keys_looped=1)) for number in (10, 20)]
    total = sum_results([batch.column(0)[0].as_py() for batch in told])
    assert (total.keys_merged, total.keys_looped) == (30, 2)
