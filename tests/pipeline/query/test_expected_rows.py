"""What is expected of rows, over whole batches on both engines: counts, dead letters, batches that stop, crashes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from freshet.pipeline.exceptions import PipelineFailedError
from freshet.pipeline.query.driver import dead_letters, table_commit
from freshet.storage.codec.commit_facts import parse_facts
from tests.kit.engine import LocalWorld, each_batch
from tests.pipeline.query.test_engine_contract import SparkWorld

PIPELINE = """\
name: orders
sources:
  - files: {path: "FOLDER/in", options: {maxFilesPerTrigger: "1"}}
    format: row-kind
    SELECT
table:
  warehouse: "FOLDER/w"
  name: s.t
  columns: {id: BIGINT, n: INT, kind: STRING}
  primary_key: [id]
  options: {OPTIONS, rowkind.field: kind}
  expect: {EXPECT}
trigger: {available_now: true}
checkpoint: "FOLDER/c"
"""
RULES = 'positive: {sql: "n >= 0"}, small: {sql: "n < 1000", or: drop}'
SPARKS = 'positive: {sql: "n >= 0"}, small: {sql: "size(sequence(0, n)) <= 1000", or: drop}'
"""The same, of which only Spark computes the second."""
OPTIONS = {"buckets": "bucket: 3", "assigners": "bucket: -1, dynamic-bucket.initial-buckets: 2"}


def row(number: int, n: int | None, kind: str = "+I") -> dict[str, Any]:
    return {"id": number, "n": n, "kind": kind}


BATCH = [*(row(number, number) for number in range(90)), row(90, -1), row(91, None), row(92, 5000), row(93, -7),
         row(0, -5, "-D"), "no JSON"]  # fmt: skip


def text_of(expect: str = RULES, options: str = OPTIONS["buckets"], select: str = "") -> str:
    text = PIPELINE.replace("EXPECT", expect).replace("OPTIONS", options)
    return text.replace("    SELECT\n", f"    select: {select}\n" if select else "")


def local(tmp_path: Path, *given: str) -> LocalWorld:
    return LocalWorld(tmp_path / "world", text_of(*given))


def is_right(there: Any, reports: list[Any]) -> None:
    (report,) = reports
    assert report.broken == {"positive": 2, "small": 1}
    assert (report.read_count, report.result.applied) == (96, 92)
    assert report.result.dead == {"positive": 2, "the value is not a JSON object": 1}
    assert report.result.skipped == {"dropped by small": 1}
    assert {each["id"] for each in there.rows()} == {*range(1, 90), 91}
    letters = sorted((each["reason"], each["column_name"], bytes(each["raw_value"])[:9]) for each in there.dead())
    assert [each[:2] for each in letters[:2]] == [("positive", "n")] * 2
    assert [each[2] for each in letters[:2]] == [b'{"id": 90', b'{"id": 93']
    facts = parse_facts(there.table().latest_snapshot().properties)
    batch = None if facts is None else facts.batch
    assert batch is not None and batch.broken == report.broken and batch.dead_letters == report.result.dead


@pytest.mark.parametrize("options", OPTIONS)
def test_records_that_break_a_rule_are_counted_by_it_and_those_quarantined_are_dead_letters(
    tmp_path: Path, options: str
) -> None:
    there = local(tmp_path, RULES, OPTIONS[options])
    there.put(*BATCH)
    is_right(there, there.run())


SPARK_CASES = {
    "by the decoder": (RULES, "", {}),
    "by Spark": (SPARKS, "", {}),
    "of columns that Spark computes": (RULES, '{id: id, n: "element_at(array(n), 1)", kind: kind}', {"n": "INT"}),
}


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize("case", SPARK_CASES)
def test_rules_mean_the_same_on_spark(tmp_path: Path, spark: Any, case: str) -> None:
    expect, select, types = SPARK_CASES[case]
    text = text_of(expect, OPTIONS["buckets"], select)
    if types:
        text = text.replace("format: row-kind\n", "format: row-kind\n    schema: {n: INT}\n")
    there = SparkWorld(tmp_path / "world", text, spark)
    there.put(*BATCH)
    is_right(there, there.run())


STOPPING: dict[str, tuple[str, list[Any], str]] = {
    "one record": (
        'whole: {sql: "n >= 0", or: stop}', [row(1, 1), row(2, -1)],
        "1 of the 2 records of the batch breaks the rule whole of expect (n >= 0), and it says or: stop; nothing was "
        "committed, the dead letters neither. The first are:\n  ",
    ),
    "though another rule is broken too": (
        'kept: {sql: "n >= 0"}, whole: {sql: "n > -1", or: stop}', [row(1, -1)],
        "1 of the 1 records of the batch breaks the rule whole",
    ),
    "a share of those quarantined": (
        'some: {sql: "n >= 0", share: 0.01}', [*(row(each, each) for each in range(98)), row(98, -1), row(99, -1)],
        "2 of the 100 records of the batch break the rule some of expect (n >= 0), which is more than share: 0.01",
    ),
    "a share of those dropped": (
        'some: {sql: "n >= 0", or: drop, share: 0}', [*(row(each, each) for each in range(99)), row(99, -1)],
        "1 of the 100 records of the batch breaks the rule some of expect (n >= 0), which is more than share: 0",
    ),
}  # fmt: skip


@pytest.mark.few(2)
@pytest.mark.parametrize("case", STOPPING)
def test_a_batch_that_must_stop_leaves_nothing_and_names_rule_count_and_records(tmp_path: Path, case: str) -> None:
    expect, rows, wanted = STOPPING[case]
    there = local(tmp_path, expect)
    there.put(row(1000, 1))
    there.run()
    before = sorted(path.name for path in (there.root / "w").rglob("*.parquet"))
    there.put(*rows)
    with pytest.raises(PipelineFailedError) as caught:
        there.run()
    assert wanted in str(caught.value) and "0001.json" in str(caught.value)
    assert caught.value.exit_code == 65
    assert [each["id"] for each in there.rows()] == [1000] and there.dead() == []
    assert sorted(path.name for path in (there.root / "w").rglob("*.parquet")) == before


GOING_ON: dict[str, tuple[str, list[Any]]] = {
    "a share that is reached": (
        'some: {sql: "n >= 0", share: 0.01}', [*(row(each, each) for each in range(99)), row(99, -1)],
    ),
    "a small batch": (
        'some: {sql: "n >= 0", share: 0.01}', [*(row(each, -1) for each in range(49)), row(98, 1), row(99, 1)],
    ),
    "a stop of deletions": ('some: {sql: "n >= 0", or: stop}', [row(1, -1, "-D"), row(2, -1, "-U")]),
}  # fmt: skip


@pytest.mark.parametrize("case", GOING_ON)
def test_a_batch_within_its_share_goes_on(tmp_path: Path, case: str) -> None:
    expect, rows = GOING_ON[case]
    there = local(tmp_path, expect)
    there.put(*rows)
    assert list(each_batch(there.run())) == [(0, False)]


@pytest.mark.parametrize("where", ["before the dead letters", "before the rows", "behind the rows"])
def test_quarantined_records_are_there_once_though_the_driver_dies(
    tmp_path: Path, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = local(tmp_path)
    there.put(row(1, 1))
    there.run()
    there.put(row(1, 10), row(2, -2), row(3, 5000), row(4, 4))
    owner: Any = dead_letters.DeadLetterCommit if where == "before the dead letters" else table_commit.TableCommit
    call: Callable[..., Any] = owner.commit

    def dying(*arguments: Any, **named: Any) -> Any:
        if where == "behind the rows":
            call(*arguments, **named)
        raise OSError("the driver dies here")

    with monkeypatch.context() as patched:
        patched.setattr(owner, "commit", dying)
        with pytest.raises((OSError, PipelineFailedError), match="the driver dies here"):
            there.run()
    assert list(each_batch(there.run())) == [(1, where == "behind the rows")]
    assert [(each["id"], each["n"]) for each in there.rows()] == [(1, 10), (4, 4)]
    assert [(each["reason"], each["micro_batch_id"]) for each in there.dead()] == [("positive", 1)]
    there.begin_again(1)
    assert list(each_batch(there.run())) == [(1, True)]
    assert len(there.dead()) == 1
