"""The job of a batch, run again as a whole where Spark could not repair it after an executor was lost.

Spark computes the shuffle output of a lost executor again. Where that output is not what it was (the report of an
assigner names other index files at each attempt, and frames of users need not be deterministic) and a task behind the
shuffle has ended already, Spark ends the job, since rows of both attempts would come together. Nothing of the batch is
committed then: the same job from the start gives one consistent result, and what the first has written are orphans.
Source: `spark.sql.shuffle.orderIndependentChecksum.enableFullRetryOnMismatch`, Spark 4.2.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final, TypeVar

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

ATTEMPTS_MAX: Final = 4
"""As often as Spark tries a task."""

_MIXED_ATTEMPTS: Final = "shuffle map stage with indeterminate output was failed and retried"
_LOG: Final = logging.getLogger(__name__)

_Result = TypeVar("_Result")


def retry_whole_job(run: Callable[[], _Result], *, table: str, micro_batch_id: int) -> _Result:
    """What `run` gives; called again where it fails because results of two attempts would come together."""
    for attempt in range(1, ATTEMPTS_MAX):
        try:
            return run()
        except (Py4JError, PySparkException) as error:
            if _MIXED_ATTEMPTS not in str(error):
                raise
            _LOG.warning(
                "table %s: the job of batch %d is run again from its start, since an executor was lost whose shuffle "
                "output cannot be computed as it was (attempt %d of %d)",
                table,
                micro_batch_id,
                attempt + 1,
                ATTEMPTS_MAX,
            )
    return run()
