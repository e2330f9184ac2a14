"""Rows that were committed are seen: where level 0 is hidden, a commit compacts again what another one overtook."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from freshet.storage.catalog import Catalog
from freshet.storage.commit import change_fit
from freshet.storage.commit.changes import SnapshotChange
from freshet.storage.commit.conflict import Conflict
from freshet.storage.exceptions import ConflictError
from freshet.storage.maintenance import upkeep
from freshet.storage.model.snapshot import CommitKind
from freshet.storage.schema.change import AddColumn
from freshet.storage.table import Table

HIDING = [{"deletion-vectors.enabled": "true"}, {"merge-engine": "first-row"}]
PRODUCERS = [*HIDING, {"changelog-producer": "full-compaction"}, {"changelog-producer": "lookup"}]


def create(path: Path, options: dict[str, str]) -> Table:
    return Catalog(str(path)).create_table(
        "db.t", schema={"k": "INT NOT NULL", "v": "STRING"}, primary_keys=["k"], options={"bucket": "1"} | options
    )


def rows(*values: tuple[int, str]) -> pa.Table:
    return pa.Table.from_pylist([{"k": k, "v": v} for k, v in values])


def found(table: Table) -> dict[int, str]:
    return {row["k"]: row["v"] for row in table.scan().to_arrow().to_pylist()}


def lose_compactions(monkeypatch: pytest.MonkeyPatch, times: int) -> None:
    """The next compactions conflict with those of another writer, so often."""
    check, lost = change_fit.find_conflicts, []

    def find_conflicts(change: SnapshotChange, *arguments: Any, **options: Any) -> list[Conflict]:
        if change.kind is CommitKind.COMPACT and len(lost) < times:
            lost.append(change)
            return [Conflict(*bucket, "another compaction was first") for bucket in change.buckets]
        return check(change, *arguments, **options)

    monkeypatch.setattr(change_fit, "find_conflicts", find_conflicts)


@pytest.mark.parametrize("options", HIDING, ids=["vectors", "first-row"])
@pytest.mark.parametrize("times", [1, 3])
def test_a_commit_whose_compaction_was_lost_compacts_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, str], times: int
) -> None:
    table = create(tmp_path, options)
    with table.writer("first", parallelism=1) as session:
        session.write(rows((1, "a")))
        session.commit()
        session.write(rows((2, "b")))
        lose_compactions(monkeypatch, times)
        result = session.commit()
    assert found(table)[2] == "b"
    assert result.aborted_compactions
    assert result.hidden_buckets == ()


def test_what_is_hidden_in_the_end_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    table = create(tmp_path, HIDING[0])
    with table.writer("first", parallelism=1) as session:
        session.write(rows((2, "b")))
        lose_compactions(monkeypatch, 1 + upkeep.TRIES_MAX)
        with caplog.at_level(logging.WARNING):
            result = session.commit()
    assert [bucket for _, bucket in result.hidden_buckets] == [0]
    assert sum("do not see" in record.message for record in caplog.records) == 1
    table.compact(full=False)
    assert found(table)[2] == "b"


@pytest.mark.parametrize("options", PRODUCERS, ids=lambda options: "-".join(options.values()))
def test_rows_that_wait_while_the_table_is_altered_are_committed_and_seen(
    tmp_path: Path, options: dict[str, str]
) -> None:
    table = create(tmp_path, options)
    with table.writer("first", parallelism=1) as session:
        session.write(rows((1, "a")))
        session.commit()
        session.write(rows((2, "b")))
        altered = table.alter(AddColumn("w", "INT"))
        with altered.writer("other", parallelism=1) as other:
            other.write(pa.Table.from_pylist([{"k": 3, "v": "c", "w": 7}]))
            other.commit()
        with pytest.raises(ConflictError, match="commit them, then compact"):
            session.compact(full=True)
        session.commit()
        assert found(altered) == {1: "a", 2: "b", 3: "c"}
        session.write(pa.Table.from_pylist([{"k": 4, "v": "d", "w": 8}]))
        session.commit()
    state = {row["k"]: row for row in altered.scan().to_arrow().to_pylist()}
    assert state[4] == {"k": 4, "v": "d", "w": 8}
    assert state[3]["w"] == 7
    if "changelog-producer" in options:
        fold: dict[int, str] = {}
        for row in altered.changelog().to_arrow().to_pylist():
            if row["_ROW_KIND"] in ("+I", "+U"):
                fold[row["k"]] = row["v"]
            else:
                assert fold.pop(row["k"]) == row["v"]
        assert fold == found(altered)
