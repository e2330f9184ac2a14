"""Judge: Apache Paimon on Flink, for which changelog files are packed, reads ours as Freshet does.

Needs Flink's jars (`make venv-flink`), which only this test and the benchmarks use.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from bench.flink import FLINK_ENVIRONMENT, flink
from freshet import Catalog
from tests.kit.components import missing

pytestmark = [
    pytest.mark.judge,
    pytest.mark.slow,
]

PRODUCERS = {
    "lookup": {"changelog-producer": "lookup"},
    "input": {"changelog-producer": "input"},
    "full-compaction": {"changelog-producer": "full-compaction", "full-compaction.delta-commits": "1"},
}


def test_flink_reads_packed_changelogs(tmp_path: Path) -> None:
    if not FLINK_ENVIRONMENT.is_dir():
        missing("Flink", "make venv-flink")
    emitted = {name: _write(tmp_path, name) for name in PRODUCERS}
    peer = flink(tmp_path)
    try:
        for name, changes in emitted.items():
            place = f"db.{name.replace('-', '_')}"
            read = peer.ask("changes", f"warehouse={tmp_path}", f"table={place}", f"rows={len(changes)}")["changes"]
            assert sorted(read) == changes, name
    finally:
        peer.close()


def _write(folder: Path, name: str) -> list[str]:
    """Three commits into four buckets of two partitions; the changes as Flink prints them."""
    table = Catalog(str(folder)).create_table(
        f"db.{name.replace('-', '_')}",
        schema={"p": "STRING NOT NULL", "k": "INT NOT NULL", "v": "STRING"},
        primary_keys=["p", "k"],
        partition_keys=["p"],
        options={"bucket": "4", "precommit-compact": "true", **PRODUCERS[name]},
    )
    with table.writer("w") as writer:
        for number in range(1, 4):
            keys = list(range(10 * number, 10 * number + 30))
            rows = {"p": ["a" if key % 2 else "b" for key in keys], "k": pa.array(keys, pa.int32())}
            writer.write(pa.table({**rows, "v": [f"v{number}"] * len(keys)}))
            writer.commit(number)
    packed = [path.name for path in Path(table.location).rglob("compacted-changelog-*")]
    assert len(packed) >= 6, packed
    assert not list(Path(table.location).rglob("changelog-*.parquet"))
    rows = table.changelog().to_arrow().to_pylist()
    return sorted(f"{row['_ROW_KIND']}[{row['p']}, {row['k']}, {row['v']}]" for row in rows)
