"""Expressions of `select` that the decoder computes: their values, dead letters, and both rows of an update."""

from __future__ import annotations

import time
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest
from pydantic import SecretStr

from freshet.pipeline.config.model import PipelineConfig
from freshet.pipeline.decode.decoder import RecordDecoder
from freshet.pipeline.decode.planning import plan_decoding
from freshet.pipeline.exceptions import ConfigurationError
from freshet.pipeline.expressions import evaluation
from freshet.pipeline.expressions.evaluation import ExpressionSql, evaluate
from tests.pipeline.binlog_records import canal
from tests.pipeline.records import TOAST, change, pipeline_of, raw_batch, run


def shown(config: PipelineConfig, records: list[Any]) -> list[str]:
    plan = plan_decoding(config, 0)
    assert not plan.expressions
    return run(RecordDecoder(plan), records).shown


def test_values_fit_their_columns_or_the_record_is_a_dead_letter() -> None:
    columns = {
        "id": "BIGINT", "a": "INT", "b": "STRING", "m": "DECIMAL(6,2)", "at": "TIMESTAMP(3)", "k": "INT",
        "short": "VARCHAR(3)", "time": "TIME(0)", "nanos": "TIMESTAMP(9)", "bytes": "BYTES",
    }  # fmt: skip
    select = {
        "id": "id", "a": "CAST(t AS INT)", "b": "upper(b) || _topic", "m": "n / 3", "at": "coalesce(s, '2024-01-01')",
        "k": "10 div n", "short": "n", "time": "n * 1000", "nanos": "n + 1", "bytes": "coalesce(b, 'é')",
    }  # fmt: skip
    config = pipeline_of(columns, format="json", select=select, schema={"n": "BIGINT"})
    good = {"id": 1, "t": "5", "b": "ß", "n": 1, "s": "2024-02-29 10:00:00.5"}
    value, *dead = shown(
        config, [good, {**good, "t": "x"}, {**good, "n": 0}, {**good, "n": 100_000}, {**good, "s": "soon"}]
    )
    assert value == ("+I(1, 5, SSshop.public.orders, 0.33, 2024-02-29 10:00:00.500000, 10, 1, 1000, 2, b'\\xc3\\x9f')")
    assert dead == [
        "dead a: a cast in 'CAST(t AS INT)' gave NULL for a value that was not NULL",
        "dead k: '10 div n' cannot be computed: a division by zero or a number out of range",
        "dead m: the value of 'n / 3' does not fit DECIMAL(6, 2)",
        "dead at: the value of \"coalesce(s, '2024-01-01')\" does not fit TIMESTAMP(3)",
    ]


@pytest.mark.parametrize(
    ("given", "wanted", "is_refused"),
    [
        ("TIME(3)", "STRING", True), ("TIME(3)", "VARCHAR(20)", True), ("TIME(3)", "TIMESTAMP(9)", True),
        ("TIMESTAMP(9)", "STRING", True), ("TIMESTAMP(7) WITH LOCAL TIME ZONE", "CHAR(3)", True),
        ("TIMESTAMP(9)", "TIME(3)", True), ("TIME(3)", "TIME(0)", False), ("TIME(3)", "BIGINT", False),
        ("TIMESTAMP(9)", "TIMESTAMP(9) WITH LOCAL TIME ZONE", False), ("BIGINT", "TIME(3)", False),
        ("TIMESTAMP(6)", "STRING", False),
    ],
)  # fmt: skip
@pytest.mark.parametrize("has_other", [False, True])
def test_the_count_of_a_time_is_neither_its_text_nor_another_time(
    given: str, wanted: str, *, is_refused: bool, has_other: bool
) -> None:
    # A declared type, or that of the column of the same name.
    columns = {"id": "BIGINT", "c": wanted, **({"v": given} if has_other else {})}
    select = {"id": "id", "c": "v", **({"v": "v"} if has_other else {})}
    config = pipeline_of(columns, format="json", select=select, schema={} if has_other else {"v": given})
    if not is_refused:
        plan_decoding(config, 0)
        return
    with pytest.raises(ConfigurationError, match=r"select\.c: 'v' is TIME.* counts .* in expressions"):
        plan_decoding(config, 0)


def test_both_rows_of_an_update_become_one_dead_letter_and_a_deletion_needs_its_key_alone() -> None:
    config = pipeline_of(
        {"id": "BIGINT", "n": "INT NOT NULL"}, select={"id": "CAST(id AS BIGINT)", "n": "CAST(t AS INT)"},
        schema={"id": "STRING"}, options={"changelog-producer": "input"},
    )  # fmt: skip
    bad, good = {"id": "1", "t": "x"}, {"id": "1", "t": "5"}
    reason = "dead n: a cast in 'CAST(t AS INT)' gave NULL for a value that was not NULL"
    found = shown(
        config,
        [change("u", bad, good), change("u", good, bad), change("u", good, {"id": "1", "t": "6"}), change("d", bad),
         change("d", {"id": "x"}), change("c", None, {"id": "1"})],
    )  # fmt: skip
    assert found[:4] == [reason, reason, "-U(1, 5); +U(1, 6)", "-D(1, 0)"]
    assert found[4].startswith("dead id: a cast in")
    assert found[5] == "dead n: NULL in a NOT NULL column"


def test_messages_of_several_rows_are_applied_as_a_whole() -> None:
    config = pipeline_of({"id": "BIGINT", "n": "INT"}, format="canal-json", select={"id": "id", "n": "CAST(t AS INT)"})
    rows = [{"id": "1", "t": "5"}, {"id": "2", "t": "x"}]
    found = shown(config, [canal("INSERT", rows[:1]), canal("INSERT", rows)])
    assert found[0] == "+I(1, 5)"
    assert found[1].startswith("dead n: a cast in")


def test_a_value_that_a_change_does_not_carry_stays() -> None:
    config = pipeline_of({"id": "BIGINT", "body": "STRING"}, select={"id": "id", "body": "upper(body)"})
    rows = run(RecordDecoder(plan_decoding(config, 0)), [change("u", None, {"id": 1, "body": TOAST})]).rows
    assert [row["_unavailable"] for row in rows[0]] == ["1"]


@pytest.mark.parametrize("setting", ["spark.sql.legacy.literal.pickMinimumPrecision", "spark.sql.timestampType"])
def test_settings_that_change_what_sql_means_leave_it_to_spark(setting: str) -> None:
    config = pipeline_of({"id": "BIGINT", "n": "STRING"}, select={"id": "id", "n": "upper(t)"})
    for given, expected in ((setting, (1,)), ("spark.sql.shuffle.partitions", ()), ("spark.executor.cores", ())):
        own = config.model_copy(update={"spark": {given: SecretStr("2")}})
        assert plan_decoding(own, 0).expressions == expected


def test_what_throws_all_the_same_is_found_by_halving() -> None:
    columns = {0: pa.array(["1", "2", "x", "4", None])}
    with patch.object(evaluation, "_at_once", wraps=evaluation._at_once) as asked:
        first, second = evaluate(columns, 5, [ExpressionSql("CAST(c0 AS INTEGER)"), ExpressionSql("length(c0)")])
    assert first.values.to_pylist() == [1, 2, None, 4, None]
    assert first.failed is not None
    assert first.failed.tolist() == [False, False, True, False, False]
    assert second.failed is None
    assert asked.call_count < 12


def test_every_tenth_record_failing_costs_at_most_twice_as_much() -> None:
    config = pipeline_of(
        {"id": "BIGINT", "n": "INT"}, format="json", select={"id": "id", "n": "100 div CAST(t AS INT)"}
    )
    decoder = RecordDecoder(plan_decoding(config, 0))
    records = [[{"id": i, "t": "x" if bad and i % 10 == 0 else "7"} for i in range(8000)] for bad in (False, True)]
    batches = [raw_batch(each) for each in records]

    def seconds(batch: pa.RecordBatch) -> float:
        started = time.process_time()
        list(decoder(iter([batch])))
        return time.process_time() - started

    clean, failing = (min(seconds(batch) for _ in range(5)) for batch in batches)
    assert failing < 2 * clean
