"""Judge: tables with deletion vectors. Apache Paimon reads, continues and compacts what Freshet marks, and the other
way round, in both widths of bitmaps; pypaimon reads the narrow ones.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from freshet import Catalog, SetOption, Table
from freshet.storage.io.env import local_env
from freshet.storage.metadata.table_store import open_table_store
from tests.contract.cases import arrow_rows, canonical
from tests.contract.test_lookup_tables import PLAIN, Row, Shape, create, drawn, same_rows
from tests.kit.paimon_judge import PaimonJudge
from tests.kit.pypaimon_judge import PypaimonJudge
from tests.kit.quick import some_now
from tests.storage.scan.scan_tables import PlacedTable
from tests.storage.scan.test_deletion_vector_scan import SCHEMA, mark, rows
from tests.storage.write.test_append_vectors import index_files
from tests.storage.write.test_append_vectors import mark as mark_rows

pytestmark = pytest.mark.judge

VECTORS = {"deletion-vectors.enabled": "true"}
WIDE = VECTORS | {"deletion-vectors.bitmap64": "true"}
SHAPES = [
    Shape("deduplicate", PLAIN, ("k",), VECTORS, deletes=True),
    Shape("deduplicate, wide, lookup", PLAIN, ("k",), WIDE | {"changelog-producer": "lookup"}, deletes=True),
    Shape("by sequence, few levels", PLAIN, ("k",), WIDE | {"sequence.field": "v", "num-levels": "3"}),
    Shape("partial-update", PLAIN, ("k",), VECTORS | {"merge-engine": "partial-update", "target-file-size": "1 kb"}),
    Shape(
        "sum",
        {"k": "BIGINT NOT NULL", "v": "BIGINT"},
        ("k",),
        WIDE | {"merge-engine": "aggregation", "fields.v.aggregate-function": "sum"},
        deletes=True,
    ),
]


def base(shape: Shape) -> list[Row]:
    """Enough rows that later commits stay below them."""
    return [{name: k if name == "k" else None for name in shape.columns} for k in range(1500)]


def marks(table: Table) -> int:
    return sum(table.engine.marked_rows().values())


@pytest.mark.few(1)
@pytest.mark.parametrize("shape", some_now(SHAPES), ids=lambda shape: shape.name)
def test_commits_of_both_sides_in_turn(shape: Shape, tmp_path: Path, paimon: PaimonJudge) -> None:
    """Two tables get the same commits: one only by Paimon, one by both in turn. They never differ."""
    table = create(shape, tmp_path / "turns")
    judge = paimon.table(table.location)
    reference = paimon.table(create(shape, tmp_path / "reference").location)
    source, seen = random.Random(len(shape.name)), {"freshet": 0, "paimon": 0}
    with table.writer("freshet") as writer:
        for identifier in range(1, 11):
            given = base(shape) if identifier == 1 else drawn(shape, source, 12, keys=1500)
            batch = arrow_rows(given, shape.columns)
            reference.write(batch)
            if identifier % 3 == 0:
                judge.write(batch)
            else:
                writer.write(batch)
                writer.commit(identifier)
            assert same_rows(table, judge) == canonical(reference.read_arrow())
            assert table.scan().count() == table.scan().to_arrow().num_rows
            seen["paimon" if identifier % 3 == 0 else "freshet"] += marks(table)
            if identifier == 7:
                table.compact(full=True)
                assert same_rows(table, judge) == canonical(reference.read_arrow())
                assert marks(table) == 0
    assert all(seen.values()), seen
    judge.compact(full=True)
    assert same_rows(table, judge) == canonical(reference.read_arrow())
    assert marks(table) == 0


def test_plans_are_paimons(tmp_path: Path, paimon: PaimonJudge) -> None:
    shape = SHAPES[0]
    table = create(shape, tmp_path)
    judge, source = paimon.table(table.location), random.Random(5)
    for identifier in range(1, 5):
        with table.writer("freshet") as writer:
            given = base(shape) if identifier == 1 else drawn(shape, source, 5, keys=1500)
            writer.write(arrow_rows(given, shape.columns))
            writer.commit(identifier)
        ours = {(f.file_name, split.raw_convertible) for split in table.scan().plan() for f in split.files}
        theirs = {(name, split["raw_convertible"]) for split in judge.plan() for name in split["files"]}
        assert ours == theirs
        assert {is_raw for _, is_raw in ours} == {True}


@pytest.mark.parametrize("options", [VECTORS, WIDE], ids=["narrow", "wide"])
def test_level_0_of_either_side_is_taken_up_by_the_other(
    options: Mapping[str, str], tmp_path: Path, paimon: PaimonJudge
) -> None:
    shape = replace(SHAPES[0], options={**options, "write-only": "true"})
    table = create(shape, tmp_path)
    judge, source = paimon.table(table.location), random.Random(3)
    with table.writer("freshet") as writer:
        writer.write(arrow_rows(base(shape), shape.columns))
        writer.commit(1)
    table.compact(full=False)
    expected = {row["k"]: row for row in base(shape)}
    for turn in range(4):
        given = drawn(shape, source, 9, keys=1500)
        if turn % 2:
            judge.write(arrow_rows(given, shape.columns))
        else:
            with table.writer("freshet") as writer:
                writer.write(arrow_rows(given, shape.columns))
                writer.commit()
        before = len(expected)
        assert table.scan().count() == before, "level 0 is not seen"
        for row in given:
            if row["_ROW_KIND"] in ("-D", "-U"):
                expected.pop(row["k"], None)
            else:
                expected[row["k"]] = row
        if turn % 2:
            table.compact(full=False)
        else:
            judge.copy({"write-only": "false"}).compact(full=False)
        same_rows(table, judge)
        assert {row["k"]: row["v"] for row in table.scan().to_arrow().to_pylist()} == {
            k: row["v"] for k, row in expected.items()
        }
    assert marks(table)


@pytest.mark.parametrize("wide", [False, True], ids=["narrow", "wide"])
def test_append_tables_with_vectors(wide: bool, tmp_path: Path, paimon: PaimonJudge) -> None:
    table = PlacedTable(tmp_path, SCHEMA, options=VECTORS, env=local_env())
    table.place(rows(range(50)))
    table.place(rows(range(50, 90), 1))
    mark(table, [0, 3, 49], [5], wide=wide)
    store = open_table_store(table.env, table.location)
    assert store.options.deletion_vectors_enabled
    theirs = paimon.table(table.location).read_arrow(sort_by=["k"])
    assert theirs["k"].to_pylist() == [k for k in range(90) if k not in (0, 3, 49, 55)]
    assert sorted(row["k"] for row in table.rows()) == theirs["k"].to_pylist()


@pytest.mark.parametrize("buckets", [{}, {"bucket": "1", "bucket-key": "k"}], ids=["no buckets", "one bucket"])
def test_append_tables_are_compacted_by_either_side(
    buckets: Mapping[str, str], tmp_path: Path, paimon: PaimonJudge
) -> None:
    """Rows marked come back neither after our compactions nor after Apache Paimon's upon them."""
    table = Catalog(str(tmp_path)).create_table(
        "db.t", schema={"k": "INT", "v": "STRING"}, options={**VECTORS, **buckets, "write-only": "true"}
    )
    judge, gone = paimon.table(table.location), set[int]()
    for turn in range(4):
        for first in (turn * 40, turn * 40 + 20):
            given = arrow_rows([{"k": k, "v": f"v{k}"} for k in range(first, first + 20)], {"k": "INT", "v": "STRING"})
            if first % 40:
                judge.write(given)
            else:
                with table.writer("freshet") as writer:
                    writer.write(given)
                    writer.commit()
        new = {turn * 40 + 3, turn * 40 + 25, turn * 40 + 39} | ({1} if turn == 2 else set())
        mark_rows(table, *new, replaces=index_files(table) if buckets else ())
        gone |= new
        expected = [k for k in range((turn + 1) * 40) if k not in gone]
        for _ in range(2):
            assert judge.read_arrow(sort_by=["k"])["k"].to_pylist() == expected
            assert sorted(table.scan().to_arrow()["k"].to_pylist()) == expected
            if turn % 2 == 0 or buckets == {}:
                table.compact(full=turn != 1)
            else:
                judge.copy({"write-only": "false"}).compact(full=True)


def test_pypaimon_reads_narrow_vectors(tmp_path: Path, pypaimon: PypaimonJudge) -> None:
    shape = SHAPES[0]
    table = create(shape, tmp_path)
    for identifier in range(1, 4):
        with table.writer("freshet") as writer:
            given = base(shape) if identifier == 1 else drawn(shape, random.Random(identifier), 20, keys=1500)
            writer.write(arrow_rows(given, shape.columns))
            writer.commit(identifier)
    assert sum(table.engine.marked_rows().values())
    ours: pa.Table = table.scan().to_arrow()
    assert canonical(pypaimon.read_arrow(table.location)) == canonical(ours)


def test_vectors_that_are_turned_on_and_off(tmp_path: Path, paimon: PaimonJudge) -> None:
    """Both sides see the same rows before and after, and Paimon goes on."""
    shape = Shape("plain", PLAIN, ("k",), {"deletion-vectors.modifiable": "true"}, deletes=True)
    nothing = dict.fromkeys(shape.columns)
    table = create(shape, tmp_path)
    judge = paimon.table(table.location)
    with table.writer("freshet") as writer:
        for rows_given in (base(shape)[:50], [{**nothing, "k": 3, "v": 5}]):
            writer.write(arrow_rows(rows_given, shape.columns))
            writer.commit()
    for value, turned in enumerate(("true", "false"), 6):
        before = same_rows(table, judge)
        table = table.alter(SetOption("deletion-vectors.enabled", turned))
        judge = paimon.table(table.location)
        assert same_rows(table, judge) == before
        judge.write(arrow_rows([{**nothing, "k": 4, "v": value}], shape.columns))
        table.update({"v": 7}, "k = 5")
        assert same_rows(table, judge) != before
