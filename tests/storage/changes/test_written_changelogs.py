"""Changelogs that writers of this package make, read back: folded from the beginning they are the table."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pytest

from freshet.storage.catalog import Catalog
from tests.storage.changes.change_tables import folded, read_changes


@pytest.mark.parametrize("options", [{}, {"deletion-vectors.enabled": "true"}], ids=["plain", "vectors"])
def test_a_stream_of_a_lookup_table_is_the_table(tmp_path: Path, options: dict[str, str]) -> None:
    table = Catalog(str(tmp_path)).create_table(
        "a.b",
        schema={"id": "BIGINT", "v": "STRING"},
        primary_keys=["id"],
        options={"bucket": "2", "changelog-producer": "lookup", "snapshot.num-retained.min": "100", **options},
    )
    chance = random.Random(7)
    seen = []
    with table.writer("writer") as writer:
        for number in range(6):
            keys = chance.sample(range(10), 5)
            kinds = [chance.choice(["+I", "+I", "-D"]) for _ in keys]
            writer.write(pa.table({"id": keys, "v": [str(number)] * 5, "_ROW_KIND": kinds}))
            writer.commit(number)
            if number % 2:
                seen += read_changes(table.stream(consumer_id="c", max_wait_s=0))
    rows = {row["id"]: row["v"] for row in table.scan().to_arrow().to_pylist()}
    assert folded(read_changes(table.changelog().to_arrow())) == rows
    assert folded(seen) == rows
    latest = table.snapshots()[-1].id
    for start in (0, 3, latest - 1):
        before = {} if start == 0 else {r["id"]: r["v"] for r in table.scan(snapshot_id=start).to_arrow().to_pylist()}
        assert folded(read_changes(table.changes_between(start, latest, mode="diff").to_arrow()), before) == rows
