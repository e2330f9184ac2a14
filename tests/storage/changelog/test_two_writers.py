"""Two writers of one bucket whose compactions know nothing of each other: the changelog folds to the table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from freshet import Catalog, Table


def put(table: Table, user: str, *rows: dict[str, Any]) -> None:
    with table.writer(user) as writer:
        writer.write(list(rows))
        writer.commit()


def folded(table: Table) -> dict[int, str]:
    """The changelog from its beginning: -U and -D only of the row that is there, +I only where none is."""
    rows: dict[int, str] = {}
    for row in table.changelog().to_arrow().to_pylist():
        kind, key, value = row["_ROW_KIND"], row["id"], row["v"]
        if kind in ("-U", "-D"):
            assert rows.pop(key, None) == value, row
        else:
            assert key not in rows, row
            rows[key] = value
    return rows


@pytest.mark.parametrize("first", [None, {"id": 0, "v": "base"}], ids=["new key", "key that is there"])
@pytest.mark.parametrize("vectors", ["false", "true"])
def test_a_change_of_one_old_row_is_emitted_once(tmp_path: Path, vectors: str, first: dict[str, Any] | None) -> None:
    """The slower writer takes level 0 to the highest level; meanwhile the other has put a row between."""
    table = Catalog(tmp_path).create_table(
        "d.t",
        schema={"id": "INT", "v": "STRING"},
        primary_keys=["id"],
        options={"bucket": "1", "changelog-producer": "lookup", "deletion-vectors.enabled": vectors},
    )
    put(table, "a", *([first] if first else []), *({"id": key, "v": "base"} for key in range(1, 200)))
    table.compact()
    latest = table.latest_snapshot()
    assert latest is not None
    slow = table.engine.task_writer(base_snapshot_id=latest.id)
    keys = pa.array(range(400), pa.int32())
    kinds = pa.array(["-D", *["+I"] * 399])
    slow.write(pa.table({"id": keys, "v": pa.array(["A"] * 400), "_ROW_KIND": kinds}))
    message = slow.prepare_commit(0)
    slow.close()
    put(table, "b", {"id": 0, "v": "B"})
    table.engine.committer("c").commit(0, message)
    table.compact()
    rows = table.scan().to_arrow().to_pylist()
    assert folded(table) == {row["id"]: row["v"] for row in rows}
    assert len(rows) >= 399
