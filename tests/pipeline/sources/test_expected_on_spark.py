"""Rules of `expect` that only Spark computes refuse the records that the same conditions refuse in the decoder."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession

from freshet.pipeline.exceptions import ConfigurationError
from tests.pipeline.decode.test_expectations import BY_KIND, COLUMNS, CREATED, GOOD
from tests.pipeline.records import change, decoder_of, pipeline_of, run
from tests.pipeline.spark_records import outcomes

pytestmark = [pytest.mark.spark, pytest.mark.slow]

SELECTS: dict[str, dict[str, str]] = {
    "of the decoder": {},
    "of Spark": {"id": "id", "amount": "element_at(array(amount), 1)", "note": "note"},
}
TYPES = {"id": "BIGINT", "amount": "INT"}


def sparks(sql: str) -> str:
    """The same condition as the decoder does not compute it."""
    return f"array_contains(array(true), {sql})"


@pytest.mark.parametrize("select", SELECTS)
@pytest.mark.parametrize("options", [{}, {"changelog-producer": "input"}], ids=["latest", "input"])
def test_kinds_of_rows(spark: SparkSession, select: str, options: dict[str, str]) -> None:
    conditions = {"amount_positive": "amount >= 0", "has_note": "note IS NOT NULL"}
    records = [record for record, _, _ in BY_KIND.values()]
    source: dict[str, Any] = {"select": SELECTS[select], "schema": TYPES} if SELECTS[select] else {}
    decoded = pipeline_of(COLUMNS, options=options, expect={name: {"sql": sql} for name, sql in conditions.items()})
    wanted = run(decoder_of(decoded), records).shown
    expect = {name: {"sql": sparks(sql)} for name, sql in conditions.items()}
    found = outcomes(spark, pipeline_of(COLUMNS, options=options, expect=expect, **source), records)
    stays = [text.replace(" keep 2", "") for text in found]  # of what Spark selects, the decoder says nothing more
    assert stays == [text.replace(" keep 2", "") for text in wanted]
    assert sum(text.startswith("quarantine amount: amount_positive") for text in found) == 3


def test_conditions(spark: SparkSession) -> None:
    cases = {name: case for name, case in CREATED.items() if name not in ("a constant", "a quoted name")}
    expect = {
        f"rule{number}": {"sql": sparks(f"id <> {number} OR ({sql})")}
        for number, (sql, _, _) in enumerate(cases.values())
    }
    records = [change("c", None, {**row, "id": number}) for number, (_, row, _) in enumerate(cases.values())]
    found = outcomes(spark, pipeline_of(COLUMNS, expect=expect), records)
    for number, (text, (_, _, wanted)) in enumerate(zip(found, cases.values(), strict=True)):
        is_refused = wanted.startswith("quarantine")
        assert text.startswith(f"quarantine None: rule{number}" if is_refused else f"+I({number}, "), text


REFUSED = {
    "no boolean": ("array(amount)", "expect.rule: 'array(amount)' is ARRAY<INT>, and a rule is a condition"),
    "unknown": ("size(array(amout)) > 0", "reads amout, which is no column of the table (did you mean 'amount'?)"),
    "no SQL": ("amount >", "expect.rule: not a Spark SQL expression"),
    "no such function": ("nothing(amount)", "expect.rule: 'nothing(amount)' cannot be analysed"),
    "an aggregate": ("max(amount) > 0", "expect.rule: 'max(amount) > 0' must give one value per row"),
    "chance": ("rand() > 0", "would give another value when a batch is replayed"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_no_condition_is_refused(spark: SparkSession, case: str) -> None:
    sql, wanted = REFUSED[case]
    with pytest.raises(ConfigurationError) as caught:
        outcomes(spark, pipeline_of(COLUMNS, expect={"rule": {"sql": sql}}), [change("c", None, GOOD)])
    assert wanted in str(caught.value)


def test_records_of_several_rows_have_rules_that_the_decoder_computes(spark: SparkSession) -> None:
    config = pipeline_of(COLUMNS, format="canal-json", expect={"rule": {"sql": sparks("amount > 0")}})
    with pytest.raises(ConfigurationError, match="expect.rule: only Spark computes .* several rows"):
        outcomes(spark, config, [])
