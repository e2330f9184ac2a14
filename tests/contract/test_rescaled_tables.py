"""Tables of which Apache Paimon has rescaled some partitions: each is written and compacted with the count it has."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from freshet import Catalog, col
from tests.kit.paimon_judge import PaimonJudge
from tests.kit.rescaled import counts, expected, held, rescaled, rows

pytestmark = pytest.mark.judge


def test_a_keyed_table_goes_on_partition_by_partition(paimon: PaimonJudge, tmp_path: Path) -> None:
    judge = rescaled(paimon, tmp_path / "db.db" / "t", ["p", "k"])
    table = Catalog(str(tmp_path)).table("db.t")
    assert sorted(map(tuple, (row.values() for row in table.scan().to_arrow().to_pylist()))) == expected(
        a="old", b="old"
    )
    everything = pa.concat_tables([rows(partition, "new", *range(20)) for partition in "abc"])
    with table.writer("freshet") as writer:
        for _ in range(2):
            writer.write(everything)
            writer.commit()
        writer.write(
            pa.concat_tables([rows("b", "x", 3), rows("a", "x", 3)]).append_column("_ROW_KIND", pa.array(["-D"] * 2))
        )
        writer.commit()
    want = [row for row in expected(a="new", b="new", c="new") if row[:2] not in (("a", 3), ("b", 3))]
    for _ in ("before", "after compaction"):
        assert counts(judge.location) == {"a": {4}, "b": {2}, "c": {4}}
        assert sorted(judge.read_rows()) == want
        assert held(table) == want
        for key in range(20):
            found = table.scan(filter=(col("k") == key) & (col("p") == "b")).to_arrow().num_rows
            assert found == (0 if key == 3 else 1), "a point lookup looks into the right bucket"
        assert table.compact(full=True).aborted_compactions == ()
    judge.write(rows("c", "paimon", *range(20)))
    assert ("c", 7, "paimon") in held(table)


def test_an_append_table_goes_on_partition_by_partition(paimon: PaimonJudge, tmp_path: Path) -> None:
    judge = rescaled(paimon, tmp_path / "db.db" / "t", [])
    table = Catalog(str(tmp_path)).table("db.t")
    with table.writer("freshet") as writer:
        for _ in range(6):
            writer.write(pa.concat_tables([rows(partition, "new", *range(20)) for partition in "ab"]))
            writer.commit()
    table.compact(full=True)
    assert counts(judge.location) == {"a": {4}, "b": {2}}
    assert sorted(judge.read_rows()) == sorted(expected(a="old", b="old") + 6 * expected(a="new", b="new"))
