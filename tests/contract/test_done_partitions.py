"""The marks of partitions that are done: either side goes on with those of the other."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from freshet import Catalog
from tests.kit.paimon_judge import PaimonJudge

pytestmark = pytest.mark.judge


def test_either_marks_a_partition_again_that_the_other_has_marked(tmp_path: Path, paimon: PaimonJudge) -> None:
    table = Catalog(tmp_path).create_table("db.t", schema={"id": "BIGINT", "dt": "STRING"}, partition_keys=["dt"])
    table.append([{"id": 1, "dt": "a"}])
    judge = paimon.table(table.location)
    mark = Path(table.location) / "dt=a" / "_SUCCESS"
    table.mark_partition_done({"dt": "a"})
    created = json.loads(mark.read_text())["creationTime"]
    for by_us in (False, True, False):
        before = json.loads(mark.read_text())
        if by_us:
            table.mark_partition_done({"dt": "a"})
        else:
            judge.mark_done("dt=a")
        after = json.loads(mark.read_text())
        assert set(after) == {"creationTime", "modificationTime"}
        assert after["creationTime"] == created
        assert after["modificationTime"] >= before["modificationTime"]
    judge.mark_done("dt=b")
    table.mark_partition_done({"dt": "b"})
    assert judge.read_rows() == [(1, "a")]
