"""Which expressions are translated, and which are left to Spark."""

from __future__ import annotations

import pytest

from tests.pipeline.expressions.spark_texts import small_texts, spark_texts, translated

_NOT_YET = {"s LIKE NULL", "z > n", "x = x", "w * w", "CASE WHEN NULL THEN 1 ELSE 2 END"}


def test_expressions_of_every_kind_are_translated() -> None:
    texts = small_texts()
    assert len(texts) >= 300
    assert {text for text in texts if translated(text) is None} == _NOT_YET


@pytest.mark.parametrize("text", spark_texts())
def test_what_only_spark_computes_is_not(text: str) -> None:
    assert translated(text) is None


def test_a_date_that_is_none_is_refused_before_the_start_by_spark() -> None:
    assert translated("DATE'2023-02-29'") is None
