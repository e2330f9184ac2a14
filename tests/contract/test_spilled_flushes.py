"""Judge: one large commit per engine. Freshet spills it in a dozen of runs, Paimon holds it in memory: equal rows.

The functions are chosen so that their results show in which order, and in how many merges, rows were merged.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pytest

from freshet import Catalog
from tests.contract.cases import canonical
from tests.kit.paimon_judge import PaimonJudge

pytestmark = pytest.mark.judge

COLUMNS = {"k": "INT NOT NULL", "d": "DOUBLE", "t": "STRING", "n": "BIGINT", "g": "INT", "m": "BIGINT", "s": "BIGINT"}
ENGINES = {
    "aggregation": {
        "merge-engine": "aggregation",
        "fields.d.aggregate-function": "sum",
        "fields.t.aggregate-function": "listagg",
        "fields.n.aggregate-function": "first_value",
        "fields.g.aggregate-function": "last_value",
        "fields.m.aggregate-function": "last_non_null_value",
        "fields.s.aggregate-function": "max",
    },
    "aggregation by a sequence field": {
        "merge-engine": "aggregation",
        "sequence.field": "s",
        "fields.d.aggregate-function": "sum",
        "fields.t.aggregate-function": "listagg",
        "fields.n.aggregate-function": "first_non_null_value",
    },
    "partial-update": {
        "merge-engine": "partial-update",
        "fields.g.sequence-group": "d,t,m",
        "fields.t.aggregate-function": "listagg",
        "fields.d.aggregate-function": "sum",
        "fields.m.aggregate-function": "first_value",
    },
    "first-row": {"merge-engine": "first-row"},
}


@pytest.mark.few(2)
@pytest.mark.parametrize("engine", ENGINES)
def test_a_flush_of_many_spilled_runs(engine: str, tmp_path: Path, paimon: PaimonJudge) -> None:
    options: Mapping[str, str] = {"bucket": "1", **ENGINES[engine]}
    table = Catalog(str(tmp_path)).create_table(
        "db.t", schema=COLUMNS, primary_keys=["k"], options={**options, "write-buffer-size": "64 kb"}
    )
    reference = paimon.create_table(tmp_path / "reference", COLUMNS, primary_keys=["k"], options=options)
    rows = random_rows(random.Random(len(engine)), 20_000)
    with table.writer("freshet") as writer:
        for start in range(0, rows.num_rows, 500):
            writer.write(rows.slice(start, 500))
        (only_bucket,) = writer._writer._buckets.writers.values()
        assert len(only_bucket._buffer._runs) > 10
        writer.commit(1)
    reference.write(rows)
    want = canonical(reference.read_arrow())
    assert len(want) > 300
    assert canonical(table.scan().to_arrow()) == want
    assert canonical(paimon.table(table.location).read_arrow()) == want


def random_rows(source: random.Random, count: int) -> pa.Table:
    def some(values: list[object]) -> list[object]:
        return [None if source.random() < 0.3 else value for value in values]

    keys = [source.choice([7, source.randrange(400)]) for _ in range(count)]
    return pa.table(
        {
            "k": pa.array(keys, pa.int32()),
            "d": pa.array(some([source.uniform(-1, 1) * 10 ** source.randrange(12) for _ in keys]), pa.float64()),
            "t": pa.array(some([f"{source.randrange(1000):x}" for _ in keys]), pa.string()),
            "n": pa.array(some(list(range(count))), pa.int64()),
            "g": pa.array(some([source.randrange(50) for _ in keys]), pa.int32()),
            "m": pa.array(some(list(range(count))), pa.int64()),
            "s": pa.array(some([source.randrange(100) for _ in keys]), pa.int64()),
        }
    )
