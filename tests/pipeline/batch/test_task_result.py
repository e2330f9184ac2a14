"""Results of tasks on their way to the driver."""

from __future__ import annotations

import pytest

from freshet.pipeline.batch.task_result import encode_error, sum_results
from freshet.storage.exceptions import CorruptDataError, InvalidRequestError, StorageError


@pytest.mark.parametrize(
    "error",
    [
        InvalidRequestError("no such value", table="db.t", column="c", option="bucket"),
        CorruptDataError("torn [half]", path="/t/f", byte_offset=7),
    ],
)
def test_an_error_arrives_as_it_was_raised(error: StorageError) -> None:
    (row,) = encode_error(error).column(0).to_pylist()
    with pytest.raises(type(error)) as raised:
        sum_results([row])
    assert (str(raised.value), vars(raised.value)) == (str(error), vars(error))
