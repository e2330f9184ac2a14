"""What is reported of a micro-batch: both sides brought together, and the lag."""

from __future__ import annotations

import json

from freshet.pipeline.query.driver.batch_report import BatchReport
from freshet.pipeline.query.wire.task_result import TaskResult, encode_results, sum_results
from freshet.pipeline.running.progress import Progress, ProgressHub, lag_of

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


def test_a_batch_is_reported_when_both_sides_have_spoken() -> None:
    seen: list[Progress] = []
    hub = ProgressHub(seen.append)
    hub.add_engine_progress(_spark_progress(6, end=None, latest=None))
    hub.add_report(REPORT)
    assert seen == []
    hub.add_engine_progress(_spark_progress(7, end={"t": {"0": 5, "1": 5}}, latest={"t": {"0": 9, "1": 6}}))
    assert [(each.report, each.records_per_s, each.lag, each.batch_ms) for each in seen] == [(REPORT, 2000.0, 5, 500.0)]


def test_lag_counts_new_kafka_partitions_from_their_begin_and_leaves_other_sources_out() -> None:
    kafka = {"endOffset": {"t": {"0": 10}}, "latestOffset": {"t": {"0": 12, "1": 3}}}
    files = {"endOffset": {"logOffset": 4}, "latestOffset": None}
    assert lag_of({"sources": [kafka, files]}) == 5
    assert lag_of({"sources": [files]}) is None
    position = json.dumps({"log": {"snapshot_id": 8, "topic": "log-orders", "positions": {"0": 4}}, "is_state": True})
    table = {"endOffset": json.loads(position), "latestOffset": json.loads(position)}
    assert lag_of({"sources": [kafka, table]}) == 5
    assert lag_of({}) is None


def test_an_idle_query_is_reported_by_its_name() -> None:
    idle: list[tuple[str, int | None]] = []
    hub = ProgressHub(lambda progress: None, lambda name, lag: idle.append((name, lag)))
    hub.add_idle("unknown")
    hub.add_query("id-1", "orders")
    hub.add_idle("id-1")
    hub.add_idle("id-1", 7)
    hub.add_report(BatchReport("orders", 3))
    known = {"endOffset": {"t": {"0": 5}}, "latestOffset": {"t": {"0": 9}}}
    hub.add_engine_progress({"name": "orders", "batchId": 3, "sources": [known]})
    hub.add_idle("id-1")
    assert idle == [("orders", None), ("orders", 7), ("orders", 0)]


def test_what_tasks_tell_of_merging_is_added_up() -> None:
    results = [encode_results([TaskResult(keys_merged=number, keys_in_python=1)]) for number in (10, 20)]
    total = sum_results([batch.column(0)[0].as_py() for batch in results])
    assert (total.keys_merged, total.keys_in_python) == (30, 2)


def test_what_tasks_tell_of_lookups_is_added_up() -> None:
    results = [encode_results([TaskResult(lookups=counts)]) for counts in ({"keys": 2}, {"keys": 3, "by_store": 1}, {})]
    total = sum_results([batch.column(0)[0].as_py() for batch in results])
    assert total.lookups == {"keys": 5, "by_store": 1}
