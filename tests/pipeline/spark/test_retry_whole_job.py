"""A job that Spark gave up on, since results of two attempts would come together, is run again; others are not."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pyspark.errors import PySparkException

from freshet.pipeline.spark.job import ATTEMPTS_MAX, retry_whole_job

GIVEN_UP = (
    "Job aborted due to stage failure: A shuffle map stage with indeterminate output was failed and retried. However, "
    "Spark cannot rollback the ResultStage 11 to re-process the input data, and has to fail this job."
)


def failing(times: int, text: str) -> tuple[Callable[[], str], list[int]]:
    calls: list[int] = []

    def run() -> str:
        calls.append(len(calls))
        if len(calls) <= times:
            raise PySparkException(text)
        return "done"

    return run, calls


@pytest.mark.parametrize("times", [0, 1, ATTEMPTS_MAX - 1])
def test_run_again(times: int, caplog: pytest.LogCaptureFixture) -> None:
    run, calls = failing(times, GIVEN_UP)
    assert retry_whole_job(run, table="shop.orders", micro_batch_id=7) == "done"
    assert len(calls) == times + 1
    assert len(caplog.messages) == times
    assert all("shop.orders: the job of batch 7 is run again" in message for message in caplog.messages)


def test_not_for_ever() -> None:
    run, calls = failing(ATTEMPTS_MAX, GIVEN_UP)
    with pytest.raises(PySparkException, match="indeterminate"):
        retry_whole_job(run, table="shop.orders", micro_batch_id=7)
    assert len(calls) == ATTEMPTS_MAX


def test_other_failures_are_not_repeated() -> None:
    run, calls = failing(1, "Job aborted due to stage failure: Task 3 failed 4 times")
    with pytest.raises(PySparkException, match="failed 4 times"):
        retry_whole_job(run, table="shop.orders", micro_batch_id=7)
    assert len(calls) == 1
