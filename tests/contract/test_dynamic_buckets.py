"""Tables with dynamic buckets (`bucket=-1`) in turns: Apache Paimon and Freshet continue what the other has written."""

from __future__ import annotations

import random
from collections.abc import Mapping
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest

from freshet import Catalog
from freshet.storage.table import Table
from tests.kit.paimon_judge import PaimonJudge
from tests.kit.paimon_table import PaimonTable
from tests.pipeline.query.task.test_assigner_task import World, found

pytestmark = pytest.mark.judge

TURNS = 20
COLUMNS = {"p": "STRING", "k": "BIGINT", "n": "BIGINT"}
SUM = {"merge-engine": "aggregation", "fields.n.aggregate-function": "sum"}
PARTIAL = {"merge-engine": "partial-update"}
FIRST = {"merge-engine": "first-row"}
CASES = [
    ("deduplicate", {}),
    ("sum", SUM),
    ("partial-update", PARTIAL),
    ("first-row", FIRST),
    ("input", {"changelog-producer": "input"}),
    ("lookup", {"changelog-producer": "lookup"}),
    ("vectors", {"deletion-vectors.enabled": "true"}),
    ("full-compaction", {"changelog-producer": "full-compaction"}),
]


def index_counts(table: Table) -> dict[tuple[bytes, int], int]:
    store = table.store
    latest = store.snapshots.latest()
    assert latest is not None
    files = store.hash_indexes.files(latest)
    return {(part, bucket): file.row_count for part, by_bucket in files.items() for bucket, file in by_bucket.items()}


@pytest.mark.slow
@pytest.mark.few(1)
@pytest.mark.parametrize(("name", "options"), CASES, ids=[name for name, _ in CASES])
def test_twenty_turns_of_writers_of_both_kinds(
    name: str, options: dict[str, str], tmp_path: Path, paimon: PaimonJudge
) -> None:
    judge = paimon.create_table(
        tmp_path / "db.db" / "t",
        COLUMNS,
        primary_keys=["p", "k"],
        partition_keys=["p"],
        options={"bucket": "-1", "dynamic-bucket.target-row-num": "40", **options},
    )
    chance, expected = random.Random(name), dict[tuple[str, int], int | None]()
    table = Catalog(str(tmp_path)).table("db.t")
    with table.writer("freshet") as writer:
        for turn in range(TURNS):
            rows = _rows(chance, turn, nulls=options is PARTIAL)
            if turn % 2 or chance.random() < 0.3:
                judge.write(rows, compact="full" if turn % 5 == 1 else None)
            else:
                writer.write([{"p": p, "k": k, "n": n} for p, k, n in rows])
                writer.commit()
            for p, k, n in rows:
                expected[p, k] = _merged(options, expected.get((p, k)), n)
            if turn % 4 == 3:
                _check(table, judge, expected, is_compacted="deletion-vectors.enabled" not in options)
    judge.compact()
    _check(table, judge, expected)
    check_every_snapshot(table, judge)
    counts = index_counts(table)
    assert sum(counts.values()) == len(expected), "each key is in the index of one bucket"
    assert max(counts.values()) == 40
    assert all(count == 40 for (part, bucket), count in counts.items() if (part, bucket + 1) in counts)


@pytest.mark.parametrize("is_ours", [True, False])
def test_a_keyed_table_without_the_option_is_dynamic(is_ours: bool, tmp_path: Path, paimon: PaimonJudge) -> None:
    options = {"dynamic-bucket.target-row-num": "10"}
    if is_ours:
        Catalog(str(tmp_path)).create_table("db.t", schema=COLUMNS, primary_keys=["p", "k"], options=options)
        judge = paimon.table(tmp_path / "db.db" / "t")
    else:
        judge = paimon.create_table(
            tmp_path / "db.db" / "t", COLUMNS, primary_keys=["p", "k"], partition_keys=[], options=options
        )
    assert "bucket" not in judge.schema()["options"]
    table = Catalog(str(tmp_path)).table("db.t")
    with table.writer("freshet") as writer:
        writer.write([{"p": "a", "k": key, "n": 1} for key in range(15)])
        writer.commit()
    judge.write([("a", key, 2) for key in range(10, 25)])
    _check(table, judge, {("a", key): 1 if key < 10 else 2 for key in range(25)})
    assert sorted(index_counts(table).values()) == [5, 10, 10]


@pytest.mark.slow
def test_partitions_that_are_dropped_and_filled_again(tmp_path: Path, paimon: PaimonJudge) -> None:
    """Open writers and assigners have the indexes of a partition that the other has dropped and filled meanwhile."""
    judge = paimon.create_table(
        tmp_path / "db.db" / "t",
        {"p": "INT", "k": "BIGINT", "v": "BIGINT"},
        primary_keys=["p", "k"],
        partition_keys=["p"],
        options={"bucket": "-1", "dynamic-bucket.target-row-num": "10"},
    )
    table, expected = Catalog(str(tmp_path)).table("db.t"), dict[tuple[int, int], int]()
    world = World(table, 4, 2)

    def put(writer: str, keys: range, value: int) -> None:
        rows = {(1, key): value for key in keys}
        if writer == "judge":
            judge.write([(p, k, v) for (p, k), v in rows.items()])
        elif writer == "assigners":
            world.commit(world.run(rows))
        else:
            ours.write([{"p": p, "k": k, "v": v} for (p, k), v in rows.items()])
            ours.commit()
        expected.update(rows)

    def drop(partition: int) -> None:
        judge.write((), overwrite={"p": str(partition)}, options={"dynamic-partition-overwrite": "false"})
        for key in [key for key in expected if key[0] == partition]:
            del expected[key]

    with table.writer("freshet") as ours:
        ours.write([{"p": 2, "k": key, "v": 0} for key in range(25)])
        ours.commit()
        expected |= {(2, key): 0 for key in range(25)}
        for turn, writers in enumerate(permutations(["freshet", "assigners", "judge"])):
            for step, writer in enumerate(writers):
                put(writer, range(step * 8, step * 8 + 20), turn * 3 + step)
            if turn == 2:
                drop(2)
            if turn % 2:
                judge.compact()
            assert found(table) == expected
            assert {(p, k): v for p, k, v in judge.read_rows()} == expected
            drop(1)
            assert found(table) == {key: value for key, value in expected.items() if key[0] == 2}
            put(writers[turn % 3], range(30, 45), turn)
            refilled = [
                count
                for (part, _), count in sorted(index_counts(table).items())
                if table.store.partition_path(part) == "p=1"
            ]
            assert sum(refilled) == 15, "nothing is known of the keys before"
    assert found(table) == expected
    assert sum(index_counts(table).values()) == len(expected)
    assert not table.check().damage


def _rows(chance: random.Random, turn: int, *, nulls: bool = False) -> list[tuple[str, int, int | None]]:
    """New keys and known ones, of two partitions; each key once."""
    keys = {(chance.choice("ab"), chance.randrange(15 * turn + 30)) for _ in range(25)}
    return [(p, k, None if nulls and chance.random() < 0.4 else chance.randrange(1000)) for p, k in sorted(keys)]


def _merged(options: Mapping[str, str], old: int | None, new: int | None) -> int | None:
    """What a table shows of two rows of a key."""
    if options is FIRST:
        return new if old is None else old
    if options is PARTIAL and new is None:
        return old
    return (old or 0) + (new or 0) if options is SUM else new


def check_every_snapshot(table: Table, judge: PaimonTable) -> None:
    """Both read every version of the table alike."""
    for snapshot in table.snapshots():
        ours = [tuple(row.values()) for row in table.scan(snapshot_id=snapshot.id).to_arrow().to_pylist()]
        theirs = [tuple(row) for row in judge.read_rows(snapshot_id=snapshot.id)]
        assert sorted(ours, key=repr) == sorted(theirs, key=repr), snapshot.id


def _check(
    table: Table, judge: PaimonTable, expected: Mapping[tuple[str, int], int | None], *, is_compacted: bool = True
) -> None:
    want = sorted(((p, k, n) for (p, k), n in expected.items()), key=repr)
    ours: list[tuple[Any, ...]] = [tuple(row.values()) for row in table.scan().to_arrow().to_pylist()]
    assert sorted(ours, key=repr) == sorted((tuple(row) for row in judge.read_rows()), key=repr)
    if is_compacted:
        assert sorted(ours, key=repr) == want
    assert not table.check().damage
