"""Random histories of every merge engine: after each commit and each full compaction the table equals the oracle.

Quick runs take fixed seeds with many keys; the slow one is hypothesis's, with few keys, and shrinks what it finds.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from freshet import AddColumn, ChangeType, Predicate, SetOption, Table, col
from tests.kit.engine_chance import any_shape
from tests.kit.engine_columns import LISTS, MAPS, Column
from tests.kit.engine_histories import ADDS, Shape, Story, history
from tests.kit.engine_merges import Values
from tests.kit.engine_oracles import EngineOracle
from tests.kit.engine_shapes import LATER_SHAPES, SHAPES
from tests.kit.engine_tables import FreshetTable, arrow_rows, texts
from tests.kit.quick import some_now

SMALL_BUFFER = {"write-buffer-size": "2 kb", "write-buffer-spillable": "true"}
"""Rows of one commit are spilled several times, and are one flush all the same."""


def play(shape: Shape, source: Random, seed: Any, folder: Path, *, filters: int = 1, **size: int) -> None:
    """A history on a table of Freshet's; each step is read whole, in some columns and with some filters."""
    table = FreshetTable.create(
        folder, shape.types, shape.primary_keys, shape.table_options, partition_keys=shape.partition_keys
    )
    story = Story(shape, seed)
    states: dict[int, list[str]] = {}
    try:
        for step in history(shape, source, **size):
            story.steps.append(step)
            if step.rows is None:
                table.compact()
            else:
                half = source.randint(0, len(step.rows) - 1)
                if half:
                    table.write(step.rows[:half])
                table.commit(step.rows[half:])
            found = table.read()
            story.check(found)
            states[table.table.snapshots()[-1].id] = texts(found, shape.decoders)
            limit = source.randint(1, 5)
            assert table.table.scan(limit=limit).to_arrow().num_rows == min(limit, len(step.expected))
            some = [name for name in shape.types if source.random() < 0.4] or [next(iter(shape.types))]
            story.check(table.read(some), some)
            for _ in range(filters):
                _check_filter(table, story, source)
        for snapshot_id in source.sample(list(states), min(2, len(states))):
            found = table.table.scan(snapshot_id=snapshot_id).to_arrow()
            assert texts(found, shape.decoders) == states[snapshot_id], f"{shape.name}, snapshot {snapshot_id}"
    finally:
        table.close()


def _check_filter(table: FreshetTable, story: Story, source: Random) -> None:
    """A filter looks at merged rows, whatever the values of the rows that were merged; read without its columns."""
    kinds, rows = story.shape.types, story.steps[-1].expected
    plain = [name for name, kind in kinds.items() if kind.removesuffix(" NOT NULL") in ("INT", "STRING", "DATE")]
    names = source.sample(plain, min(len(plain), source.randint(1, 2)))
    predicate, wanted = None, rows
    for name in names:
        one, keeps = _condition(name, rows, source)
        predicate = one if predicate is None else predicate & one
        wanted = [row for row in wanted if keeps(row[name])]
    others = [other for other in kinds if other not in names] or ["k"]
    found = table.table.scan(others, predicate).to_arrow()
    sets = {name: None for name in story.shape.sets if name in others}
    expected = arrow_rows(wanted, {other: kinds[other] for other in others})
    assert texts(found, sets) == texts(expected, sets), f"{story.shape.name}: {predicate}"


def _condition(name: str, rows: list[Values], source: Random) -> tuple[Predicate, Callable[[Any], bool]]:
    """A condition on a column, with a value that some merged row has, and the same in Python."""
    values = [row[name] for row in rows if row[name] is not None]
    if not values or source.random() < 0.2:
        return col(name).is_null(), lambda found: found is None
    value = source.choice(values)
    if source.random() < 0.3 and not isinstance(value, str):
        return col(name) >= value, lambda found: found is not None and found >= value
    return col(name) == value, lambda found: found == value


def with_options(shape: Shape, options: Mapping[str, str]) -> Shape:
    return replace(shape, options={**shape.options, **options})


@pytest.mark.few(7)
@pytest.mark.parametrize(("seed", "filters"), [(1, 1), pytest.param(2, 5, marks=pytest.mark.slow)], ids=["1", "2"])
@pytest.mark.parametrize("shape", [*some_now(SHAPES, first=1), *LATER_SHAPES], ids=lambda shape: shape.name)
def test_the_table_equals_the_oracle(shape: Shape, seed: int, filters: int, tmp_path: Path) -> None:
    """The other shapes are quick in contract/test_engine_histories.py or storage/merge/test_engine_rounds.py."""
    play(shape, Random(seed), seed, tmp_path, filters=filters, keys=10, steps=5, rows=25)


@pytest.mark.few(3)
@pytest.mark.parametrize("shape", some_now(SHAPES[::3], stride=3), ids=lambda shape: shape.name)
def test_spilled_rows_are_one_flush(shape: Shape, tmp_path: Path) -> None:
    play(with_options(shape, SMALL_BUFFER), Random(3), 3, tmp_path, filters=3, keys=40, steps=3, rows=200)


ORDERED = Column("INT", (0, 1, 2, 3), nulls=0)
SCHEDULE_FREE = (
    Shape(
        "aggregation",
        {
            "sums": Column("BIGINT", (1, -5, 7), {"aggregate-function": "sum"}),
            "products": Column("DOUBLE", (-1.0, 2.0, 0.5), {"aggregate-function": "product"}),
            "largest": Column("STRING", None, {"aggregate-function": "max"}),
            "smallest": Column("DATE", None, {"aggregate-function": "min"}),
            "texts": Column("STRING", ("a", "b,c"), {"aggregate-function": "listagg"}),
            "lists": Column("ARRAY<INT>", LISTS["ints"].pool, {"aggregate-function": "collect"}),
            "maps": Column("MAP<STRING, BIGINT>", MAPS["m0"].pool, {"aggregate-function": "merge_map"}),
            "first": Column("INT", None, {"aggregate-function": "first_non_null_value"}),
            "last": Column("INT"),
        },
        {"merge-engine": "aggregation"},
        ADDS,
    ),
    Shape("partial-update", {"a": Column("INT"), "b": Column("STRING")}, {"merge-engine": "partial-update"}, ADDS),
    Shape(
        "groups that are never null",
        {"a": Column("INT"), "g": ORDERED, "b": Column("STRING"), "h": ORDERED, "s": Column("INT", (1, 2, 3))},
        {
            "merge-engine": "partial-update",
            "fields.g.sequence-group": "a,b",
            "fields.h.sequence-group": "s",
            "fields.s.aggregate-function": "sum",
        },
        ADDS,
    ),
    Shape("first-row", {"a": Column("INT")}, {"merge-engine": "first-row"}, ADDS),
)


@pytest.mark.few(2)
@pytest.mark.parametrize(("seed", "filters"), [(0, 1), pytest.param(1, 5, marks=pytest.mark.slow)], ids=["0", "1"])
@pytest.mark.parametrize("trigger", ["2", "3"])
@pytest.mark.parametrize("shape", SCHEDULE_FREE, ids=lambda shape: shape.name)
def test_where_the_schedule_does_not_matter_any_compaction_gives_the_same(
    shape: Shape, trigger: str, seed: int, filters: int, tmp_path: Path
) -> None:
    """Automatic compactions into every level, small files, buffers that become several files of level 0."""
    options = {
        "num-sorted-run.compaction-trigger": trigger,
        "num-levels": "4",
        "target-file-size": "1 kb",
        "write-buffer-size": "1 kb",
        "write-buffer-spillable": "false",
        "compaction.max-size-amplification-percent": "10000",
    }
    play(with_options(shape, options), Random(seed), seed, tmp_path, filters=filters, keys=60, steps=9, rows=60)


@pytest.mark.parametrize("compacts", [False, True])
def test_a_filter_finds_values_that_no_file_holds(compacts: bool, tmp_path: Path) -> None:
    """A sum, and columns that come from different rows: statistics of files know nothing of them."""
    options = {"merge-engine": "aggregation", "fields.v.aggregate-function": "sum"}
    types = {"k": "INT NOT NULL", "v": "INT", "t": "STRING"}
    sums = FreshetTable.create(tmp_path, types, ["k"], options)
    wide = FreshetTable.create(tmp_path, types, ["k"], {"merge-engine": "partial-update"}, name="wide")
    for table in (sums, wide):
        table.commit([{"k": 1, "v": 30}, {"k": 9, "v": 1, "t": "z"}])
        table.commit([{"k": 1, "v": 3, "t": "a"}] if table is sums else [{"k": 1, "t": "a"}])
        if compacts:
            table.compact()
    for table, value in ((sums, 33), (wide, 30)):
        found = table.table.scan(filter=(col("v") == value) & (col("t") == "a")).to_arrow().to_pylist()
        assert found == [{"k": 1, "v": value, "t": "a"}]
        assert table.table.scan(["k"], col("v") == value).to_arrow()["k"].to_pylist() == [1]
        assert table.table.scan(filter=(col("k") == 1) & (col("v") == 3)).to_arrow().num_rows == 0
        table.close()


@pytest.mark.parametrize("seed", range(4))
def test_several_writers_build_one_wide_row(seed: int, tmp_path: Path) -> None:
    """Each writer has its columns and its order; rows of all wait at the same time and get the same numbers."""
    source, streams = Random(seed), ("a", "b", "c")
    types = {"k": "INT NOT NULL", **{f"{part}{one}": "INT" for one in streams for part in ("v", "s")}}
    groups = {f"fields.s{one}.sequence-group": f"v{one}" for one in streams}
    table = FreshetTable.create(tmp_path, types, ["k"], {"merge-engine": "partial-update", **groups}).table
    writers = {one: table.writer(f"writer-{one}") for one in streams}
    held: dict[str, list[Values]] = {one: [] for one in streams}
    newest: dict[int, Values] = {}
    orders = {one: source.sample(range(1000), 1000) for one in streams}
    for _ in range(30):
        one = source.choice(streams)
        if source.random() < 0.6:
            rows = [
                {"k": source.randrange(6), f"v{one}": source.choice((None, 1, 2)), f"s{one}": orders[one].pop()}
                for _ in range(source.randint(1, 5))
            ]
            writers[one].write(arrow_rows(rows, types))
            held[one] += rows
        elif source.random() < 0.3:
            table.compact(full=source.random() < 0.5)
        elif held[one]:
            writers[one].commit()
            for row in held[one]:
                wide = newest.setdefault(row["k"], dict.fromkeys(types) | {"k": row["k"]})
                if wide[f"s{one}"] is None or row[f"s{one}"] > wide[f"s{one}"]:
                    wide.update(row)
            held[one] = []
        assert texts(table.scan().to_arrow()) == texts(arrow_rows(list(newest.values()), types)), f"seed {seed}"
    assert len(newest) > 1
    for writer in writers.values():
        writer.close()


EVOLVING: Mapping[str, tuple[dict[str, str], dict[str, str]]] = {
    "aggregation": (
        {"k": "INT NOT NULL", "v": "INT", "t": "STRING"},
        {"merge-engine": "aggregation", "fields.v.aggregate-function": "sum"},
    ),
    "partial-update": (
        {"k": "INT NOT NULL", "v": "INT", "g": "INT", "t": "STRING"},
        {"merge-engine": "partial-update", "fields.g.sequence-group": "v", "fields.v.aggregate-function": "sum"},
    ),
    "first-row": ({"k": "INT NOT NULL", "v": "INT", "t": "STRING"}, {"merge-engine": "first-row"}),
}


@pytest.mark.parametrize("compacts", [False, True])
@pytest.mark.parametrize("engine", EVOLVING)
def test_rows_of_an_older_schema_are_merged_as_of_the_new_one(engine: str, compacts: bool, tmp_path: Path) -> None:
    """A new column in the middle with a function of its own, a wider sum: no overflow at what was the largest value."""
    columns, options = EVOLVING[engine]
    largest = 2**31 - 1
    table = FreshetTable.create(tmp_path, columns, ["k"], options)
    oracle = EngineOracle(columns, ["k"], options)
    _both(table, oracle, [{"k": 1, "v": largest, "g": 1, "t": "a"}, {"k": 2, "v": largest, "g": None}, {"k": 3}])
    table.close()
    changed: Table = table.table.alter(AddColumn("n", "ARRAY<INT>", after="k"), ChangeType("v", "BIGINT"))
    if engine == "aggregation":
        changed = changed.alter(SetOption("fields.n.aggregate-function", "collect"))
        options = {**options, "fields.n.aggregate-function": "collect"}
    wider = {"k": "INT NOT NULL", "n": "ARRAY<INT>", **{name: columns[name] for name in columns if name != "k"}}
    wider["v"] = "BIGINT"
    oracle.columns, oracle.options = wider, options
    for run in oracle.runs:
        run.records = {
            key: replace(record, values={name: record.values.get(name) for name in wider})
            for key, record in run.records.items()
        }
    table = FreshetTable(changed, wider, identifier=table.identifier)
    _check(table, oracle)
    for rows in (
        [{"k": 1, "n": [1], "v": 1, "g": 2}, {"k": 2, "v": 5, "g": 4}],
        [{"k": 1, "n": [2], "v": largest, "g": 1}, {"k": 2, "n": [7], "v": None, "g": None}],
    ):
        _both(table, oracle, rows)
        if compacts:
            table.compact()
            oracle.compact()
            _check(table, oracle)
    table.close()


def _both(table: FreshetTable, oracle: EngineOracle, rows: list[Values]) -> None:
    table.commit(rows)
    oracle.write(rows)
    oracle.commit()
    _check(table, oracle)


def _check(table: FreshetTable, oracle: EngineOracle) -> None:
    assert texts(table.read()) == texts(arrow_rows(list(oracle.rows().values()), table.columns))


@pytest.mark.parametrize("seeds", [range(6), pytest.param(range(6, 60), marks=pytest.mark.slow)], ids=["few", "many"])
def test_tables_by_chance_equal_the_oracle(seeds: range, tmp_path: Path) -> None:
    """Any functions, groups and options together; the seed makes the table and its history."""
    for seed in seeds:
        source = Random(seed)
        play(any_shape(source), source, seed, tmp_path / str(seed), filters=3, keys=8, steps=5, rows=25)


@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES[::3], ids=lambda shape: shape.name)
def test_the_table_equals_the_oracle_at_length(shape: Shape) -> None:
    @settings(max_examples=6)
    @given(source=st.randoms(use_true_random=False), keys=st.integers(1, 3), rows=st.integers(1, 10))
    def run(source: Random, keys: int, rows: int) -> None:
        with tempfile.TemporaryDirectory() as folder:
            play(shape, source, "hypothesis", Path(folder), filters=3, keys=keys, steps=5, rows=rows)

    run()
