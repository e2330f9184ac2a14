"""Arguments of `table_sink` are refused where it is called, not by the first batch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from freshet.pipeline.exceptions import InvalidRequestError
from freshet.pipeline.spark.table_sink import table_sink
from freshet.storage.catalog import Catalog


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"commit_user": " "}, "commit_user must be text and not blank"),
        ({"commit_user": 5}, "commit_user must be text and not blank"),
        ({"tasks_max": 0}, "tasks_max must be a whole number of 1 or more, not 0"),
        ({"tasks_max": "4"}, "not '4'"),
        ({"max_dead_letters": 0.5}, r"must be such as MaxDeadLetters\(share=0.5, count=1000\), of .*, not 0.5"),
        ({"on_report": 3}, "on_report must be a function"),
    ],
)
def test_wrong_arguments_are_refused_at_once(tmp_path: Path, arguments: dict[str, Any], message: str) -> None:
    Catalog(tmp_path).create_table("s.t", schema={"id": "BIGINT"}, primary_keys=["id"], options={"bucket": "1"})
    with pytest.raises(InvalidRequestError, match=message):
        table_sink(str(tmp_path), "s.t", **{"commit_user": "u", **arguments})
