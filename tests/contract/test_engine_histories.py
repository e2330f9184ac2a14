"""Judge: random histories of every merge engine, by Freshet and by Apache Paimon, with the same schedule.

Three tables per history: Freshet writes the first, Paimon the second, both in turn the third, with full compactions at
the same places. After each step every table, read by either side, holds what the oracle says.

Left out, because Freshet refuses it at the write and Paimon trips over it later: retracts that a function or engine
cannot take. The last tests make such tables with Paimon and read them with Freshet.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from itertools import product
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from freshet import Catalog
from freshet.storage.exceptions import InvalidRequestError, StorageError
from tests.kit.engine_chance import any_shape
from tests.kit.engine_columns import Column
from tests.kit.engine_histories import ADDS, EVERY_KIND, Shape, Step, Story, can_be_merged_raw, history
from tests.kit.engine_layers import is_plain
from tests.kit.engine_merges import KIND_COLUMN, Values
from tests.kit.engine_shapes import AGGREGATION_SHAPES, ONE_FLUSH_SHAPES, SHAPES
from tests.kit.engine_tables import FreshetTable, arrow_rows, schedule_options, texts
from tests.kit.paimon_changes import set_option
from tests.kit.paimon_judge import PaimonError, PaimonJudge
from tests.kit.paimon_table import PaimonTable
from tests.kit.quick import some_now, those_now

pytestmark = pytest.mark.judge

FILE_FACTS = ["partition", "bucket", "level", "record_count", "deleteRowCount", "min_key", "max_key"]
FILE_FACTS += ["min_sequence_number", "max_sequence_number"]


@dataclass
class PaimonSide:
    """A table as Paimon writes and reads it."""

    table: PaimonTable
    columns: dict[str, str]
    identifier: int = 0

    def commit(self, rows: Sequence[Values], *, compact: str | None = None) -> None:
        self.identifier += 1
        given = arrow_rows(rows, self.columns) if rows else ()
        self.table.write(given, user="paimon", identifier=self.identifier, compact=compact, ignore_empty=not rows)

    def compact(self) -> None:
        self.commit((), compact="full")

    def read(self) -> pa.Table:
        return self.table.read_arrow()


@dataclass
class World:
    """The three tables of one history, each seen from both sides."""

    paimon: PaimonJudge
    shape: Shape
    folder: Path
    opened: list[FreshetTable] = field(default_factory=list)

    def by_freshet(self, name: str) -> tuple[FreshetTable, PaimonSide]:
        """A table that Freshet creates."""
        shape = self.shape
        table = FreshetTable.create(
            self.folder,
            shape.types,
            shape.primary_keys,
            shape.table_options,
            partition_keys=shape.partition_keys,
            name=name,
        )
        self.opened.append(table)
        return table, PaimonSide(self.paimon.table(table.table.location), shape.types)

    def by_paimon(self, name: str) -> tuple[FreshetTable, PaimonSide]:
        """A table that Paimon creates."""
        shape = self.shape
        made = self.paimon.create_table(
            self.folder / "db.db" / name,
            shape.types,
            primary_keys=shape.primary_keys,
            partition_keys=shape.partition_keys,
            options=schedule_options(shape.table_options),
        )
        table = FreshetTable(Catalog(str(self.folder)).table(f"db.{name}"), shape.types)
        self.opened.append(table)
        return table, PaimonSide(made, shape.types)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    (tmp_path / "db.db").mkdir()
    return tmp_path


@pytest.mark.few(4)
@pytest.mark.parametrize(
    "shape",
    those_now(SHAPES, lambda number, shape: number % 4 == 0 or (number % 4 == 2 and not can_be_merged_raw(shape))),
    ids=lambda shape: shape.name,
)
def test_the_same_history_gives_the_same_tables(paimon: PaimonJudge, shape: Shape, folder: Path) -> None:
    """Other shapes are quick in storage/write/test_engine_histories.py and storage/merge/test_engine_rounds.py."""
    assert_same_tables(paimon, shape, 11, folder)


MORE_SEEDS = int(os.environ.get("FRESHET_MORE_SEEDS", "0"))
"""Beyond what the suites run by themselves: every shape, and so many seeds more."""

BUSY = {
    "num-sorted-run.compaction-trigger": "2",
    "num-levels": "4",
    "target-file-size": "2 kb",
    "compaction.max-size-amplification-percent": "1000",
}
STAGED = [shape for shape in SHAPES if not shape.name.startswith(("aggregation, sum", "aggregation, product"))]
"""Without those whose numbers overflow in one schedule and not in another."""


@pytest.mark.few(5)
@pytest.mark.parametrize("shape", STAGED[::7], ids=lambda shape: shape.name)
def test_both_read_alike_whatever_was_compacted(paimon: PaimonJudge, shape: Shape, folder: Path) -> None:
    assert_read_alike(paimon, shape, 31, folder)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(32, 33 + MORE_SEEDS))
@pytest.mark.parametrize("shape", STAGED if MORE_SEEDS else STAGED[3::7], ids=lambda shape: shape.name)
def test_more_tables_are_read_alike(paimon: PaimonJudge, shape: Shape, seed: int, folder: Path) -> None:
    assert_read_alike(paimon, shape, seed, folder)


def assert_read_alike(paimon: PaimonJudge, shape: Shape, seed: int, folder: Path) -> None:
    """Automatic compactions of both sides, each by its own choice of level: no oracle, but one table, two readers."""
    shape, source = replace(shape, options={**shape.options, **BUSY}), Random(seed)
    table, side = World(paimon, shape, folder).by_freshet("t")
    levels = set()
    for number, step in enumerate(history(shape, source, keys=25, steps=9, rows=30)):
        _take((table, side)[source.random() < 0.5], step)
        levels |= {entry.file.level for entry in table.table.files()}
        theirs = texts(side.read(), shape.decoders)
        assert texts(table.read(), shape.decoders) == theirs, f"step {number}"
    assert theirs and len(levels) > 1
    table.close()


@pytest.mark.parametrize(
    "seeds",
    [
        range(3),
        *(pytest.param(range(at, at + 10), marks=pytest.mark.slow) for at in range(20, 30 + 10 * MORE_SEEDS, 10)),
    ],
    ids=str,
)
def test_tables_by_chance_are_the_same(paimon: PaimonJudge, seeds: range, folder: Path) -> None:
    """Any functions, groups and options together; the seed makes the table and its history."""
    for seed in seeds:
        (folder / str(seed) / "db.db").mkdir(parents=True)
        assert_same_tables(paimon, any_shape(Random(seed)), seed, folder / str(seed))


@pytest.mark.parametrize("shape", some_now(ONE_FLUSH_SHAPES), ids=lambda shape: shape.name)
def test_one_flush_gives_the_same_tables(paimon: PaimonJudge, shape: Shape, folder: Path) -> None:
    assert_same_tables(paimon, shape, 12, folder, keys=60, steps=1, rows=500)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 101 + MORE_SEEDS))
@pytest.mark.parametrize("shape", SHAPES if MORE_SEEDS else SHAPES[1::4], ids=lambda shape: shape.name)
def test_more_histories_give_the_same_tables(paimon: PaimonJudge, shape: Shape, seed: int, folder: Path) -> None:
    assert_same_tables(paimon, shape, seed, folder)


def assert_same_tables(paimon: PaimonJudge, shape: Shape, seed: int, folder: Path, **size: int) -> None:
    source, world = Random(seed), World(paimon, shape, folder)
    story = Story(shape, seed)
    ours, ours_seen = world.by_freshet("ours")
    theirs_seen, theirs = world.by_paimon("theirs")
    shared = world.by_paimon("shared") if seed % 2 else world.by_freshet("shared")
    try:
        for step in history(shape, source, **{"keys": 25, "steps": 4, "rows": 60, **size}):
            story.steps.append(step)
            _take(ours, step)
            _take(theirs, step)
            _take(shared[step.is_paimons], step)
            story.check(ours.read(), by="what Freshet wrote and read")
            story.check(ours_seen.read(), by="what Freshet wrote and Paimon read")
            story.check(theirs.read(), by="what Paimon wrote and read", expected=step.by_paimon)
            story.check(theirs_seen.read(), by="what Paimon wrote and Freshet read", expected=step.by_paimon)
            story.check(shared[0].read(), by="what both wrote and Freshet read", expected=step.shared)
            story.check(shared[1].read(), by="what both wrote and Paimon read", expected=step.shared)
        if is_plain(shape.oracle().engine):
            assert stored(ours_seen, shape) == stored(theirs, shape)
    finally:
        for table in world.opened:
            table.close()


def stored(side: PaimonSide, shape: Shape) -> tuple[list[str], list[str]]:
    """Every key's merged row with its kind, deletes as well; levels, counts and sequence numbers of the files.

    Where lookup compaction chooses among levels it does so by the sizes of files, and those differ.
    """
    kept = texts(side.table.system("audit_log"), shape.decoders)
    files = texts(side.table.system("files").select(FILE_FACTS)) if "num-levels" not in shape.options else []
    return kept, files


def _take(table: Any, step: Step) -> None:
    if step.rows is None:
        table.compact()
    else:
        table.commit(step.rows)


LEGACY = {
    "deduplicate": {"merge-engine": "deduplicate"},
    "aggregation": {"merge-engine": "aggregation", "fields.a.aggregate-function": "sum"},
    "partial-update": {"merge-engine": "partial-update"},
    "groups": {"merge-engine": "partial-update", "fields.g.sequence-group": "a"},
}


@pytest.mark.parametrize("engine", LEGACY)
def test_retracts_from_before_they_were_ignored(paimon: PaimonJudge, engine: str, folder: Path) -> None:
    """Files hold retracts, then `ignore-delete` is set: alone they are unseen, else the engine decides."""
    columns = {"a": Column("INT", (1, 2, 3)), "g": Column("INT", (0, 1, 2)), "b": Column("STRING")}
    shape, source = Shape(engine, columns, LEGACY[engine]), Random(8)
    table, side = World(paimon, shape, folder).by_paimon("t")
    oracle = replace(shape.oracle(), by_paimon=True)

    def commit(rows: Sequence[Values]) -> None:
        side.commit(rows)
        oracle.write(rows)
        oracle.commit()

    def check() -> None:
        wanted = texts(arrow_rows(list(oracle.rows().values()), shape.types))
        assert texts(side.read()) == wanted
        assert texts(Catalog(str(folder)).table("db.t").scan().to_arrow()) == wanted

    commit([{**shape.row(source, 12), "k": key} for key in range(12)])
    side.table.alter(set_option("ignore-delete", "true"))
    oracle.options = {**shape.table_options, "ignore-delete": "true"}
    for _ in range(2):
        check()
        commit([shape.row(source, 12) for _ in range(9)])
    check()
    Catalog(str(folder)).table("db.t").compact(full=True)
    oracle.compact()
    check()
    table.close()


def test_a_projection_shows_the_rows_that_all_columns_show(paimon: PaimonJudge, folder: Path) -> None:
    """Paimon 2.0.0 looks at removing groups only if their ordering columns are read, and shows removed rows else."""
    shape = Shape(
        "removing group",
        {"a": Column("INT"), "g": Column("INT"), "b": Column("INT")},
        {
            "merge-engine": "partial-update",
            "fields.g.sequence-group": "a",
            "partial-update.remove-record-on-sequence-group": "g",
        },
    )
    table, side = World(paimon, shape, folder).by_freshet("t")
    table.commit([{"k": 1, "a": 1, "g": 1, "b": 1}, {"k": 2, "a": 1, "g": 1, "b": 2}])
    table.commit([{"k": 1, "g": 2, KIND_COLUMN: "-D"}])
    assert side.table.read_rows(["b"]) == [(1,), (2,)]
    assert side.read()["k"].to_pylist() == [2]
    assert table.read(["b"])["b"].to_pylist() == [2]
    table.close()


MEMBERS = (
    [],
    [0],
    [1, 2, 3],
    [2, 3, 70_000],
    [*range(100)],
    [*range(50, 3000, 7)],
    [*range(0, 20_000, 3)],
    [2**31 - 1],
)
WIDE_MEMBERS = (*MEMBERS, [-1, 2**62, 2**33], [2**40 + one for one in range(300)])


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("kind", "engine", "lookup"),
    some_now(
        product(["rbm32", "rbm64", "hll_sketch", "theta_sketch"], ["aggregation", "partial-update"], ["", "lookup"]),
        stride=3,
    ),
)
def test_bitmaps_and_sketches_hold_the_same(
    paimon: PaimonJudge, kind: str, engine: str, lookup: str, folder: Path
) -> None:
    """What they hold is compared, by the library of Paimon; HLLs by precision and estimate, theta by hashes."""
    pool = paimon.make_sketches(kind, WIDE_MEMBERS if kind == "rbm64" else MEMBERS)
    ignore = {"aggregate-function": kind, "ignore-retract": "true"}
    columns = {"b": Column("BYTES", pool, ignore), "g": Column("INT", (0, 1, 2), nulls=0.2)}
    group = {"fields.g.sequence-group": "b"} if engine == "partial-update" else {}
    options = {"merge-engine": engine, **group, **({"force-lookup": "true"} if lookup else {})}
    kinds = ADDS if lookup else EVERY_KIND  # what follows a retract Freshet keeps apart
    shape, source = Shape(f"{engine}, {kind}", columns, options, kinds), Random(5)
    world = World(paimon, shape, folder)
    ours, ours_seen = world.by_freshet("ours")
    theirs_seen, theirs = world.by_paimon("theirs")
    shared = world.by_paimon("shared")

    def held(table: pa.Table) -> list[str]:
        table = table.sort_by("k")
        values = iter(paimon.read_sketches(kind, [value for value in table["b"].to_pylist() if value is not None]))
        read = [None if value is None else sorted(next(values)) for value in table["b"].to_pylist()]
        return [repr(row) for row in zip(table["k"].to_pylist(), table["g"].to_pylist(), read, strict=True)]

    try:
        for step in history(shape, source, keys=8, steps=4, rows=30):
            for one in (ours, theirs, shared[step.is_paimons]):
                _take(one, step)
            wanted = held(theirs.read())
            assert wanted
            assert held(theirs_seen.read()) == wanted
            if kinds is ADDS:
                assert held(ours.read()) == held(shared[0].read()) == wanted
            for both in ((ours, ours_seen), shared):
                assert held(both[0].read()) == held(both[1].read())
    finally:
        for table in world.opened:
            table.close()


@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES[5::20], ids=lambda shape: shape.name)
def test_large_commits_give_the_same_tables(paimon: PaimonJudge, shape: Shape, folder: Path) -> None:
    assert_same_tables(paimon, shape, 77, folder, keys=800, steps=4, rows=3000)


@dataclass(frozen=True)
class Unmergeable:
    """Records that Paimon stores and that fail its merge."""

    name: str
    columns: dict[str, str]
    options: dict[str, str]
    rows: tuple[Values, Values]


UNMERGEABLE = (
    Unmergeable(
        "partial-update without a rule for deletes",
        {"k": "INT NOT NULL", "v": "INT"},
        {"merge-engine": "partial-update"},
        ({"k": 42, "v": 1, KIND_COLUMN: "-D"}, {"k": 42, "v": 2}),
    ),
    Unmergeable(
        "max takes no retract",
        {"k": "INT NOT NULL", "v": "INT"},
        {"merge-engine": "aggregation", "fields.v.aggregate-function": "max"},
        ({"k": 42, "v": 1}, {"k": 42, "v": 2, KIND_COLUMN: "-U"}),
    ),
    Unmergeable(
        "listagg in a sequence group",
        {"k": "INT NOT NULL", "v": "STRING", "g": "INT"},
        {
            "merge-engine": "partial-update",
            "fields.g.sequence-group": "v",
            "fields.v.aggregate-function": "listagg",
        },
        ({"k": 42, "v": "a", "g": 1}, {"k": 42, "v": "b", "g": 2, KIND_COLUMN: "-D"}),
    ),
)


@pytest.mark.parametrize("case", UNMERGEABLE, ids=lambda case: case.name)
def test_an_unmergeable_record_is_named_when_read(paimon: PaimonJudge, case: Unmergeable, folder: Path) -> None:
    made = paimon.create_table(
        folder / "db.db" / "t", case.columns, primary_keys=["k"], options=schedule_options(case.options)
    )
    side = PaimonSide(made, case.columns)
    for row in case.rows:
        side.commit([row])
    with pytest.raises(PaimonError):
        side.read()
    table = Catalog(str(folder)).table("db.t")
    for attempt in (lambda: table.scan().to_arrow(), lambda: table.compact(full=True)):
        with pytest.raises(StorageError) as failure:
            attempt()
        assert "42" in str(failure.value)
        assert "db.t" in str(failure.value) or table.location in str(failure.value)


@pytest.mark.parametrize("case", UNMERGEABLE, ids=lambda case: case.name)
def test_freshet_refuses_it_at_the_write(case: Unmergeable, folder: Path) -> None:
    """Even if the record would be the only one of its key; nothing of the batch is committed."""
    table = FreshetTable.create(folder, case.columns, ["k"], case.options)
    retract = next(row for row in case.rows if row.get(KIND_COLUMN))
    with pytest.raises(StorageError) as failure:
        table.commit([{"k": 1}, retract, {"k": 43}])
    assert "42" in str(failure.value)
    assert table.table.snapshots() == []
    table.session.abort()
    table.commit([{"k": 43}])
    assert table.read()["k"].to_pylist() == [43]
    table.close()


@dataclass(frozen=True)
class Edge:
    """Values of one key (with a kind where it is not +I), commit by commit: what comes of them is an outcome each."""

    function: str
    type_text: str
    commits: Sequence[Sequence[Any]]

    @property
    def name(self) -> str:
        return f"{self.function} of {self.type_text}, {self.commits}"[:70]


D = Decimal
EDGES = (
    Edge("sum", "DECIMAL(9, 2)", [[D("9999999.99")], [D("0.01")], [D("9999999.99")], [D("-9999999.99")]]),
    Edge("sum", "DECIMAL(18, 4)", [[D("99999999999999.9999")] * 9, [D("1.0000")], [("-U", D("99999999999999.9999"))]]),
    Edge("sum", "DECIMAL(18, 4)", [[D("99999999999999.9999")] * 20, [D("1.0000")]]),
    Edge("sum", "DECIMAL(38, 10)", [[D("9999999999999999999999999999.9999999999")] * 2, [D("1.0000000000")]]),
    Edge("product", "DECIMAL(9, 2)", [[D("9999999.99"), D("2.00")], [D("3.00")]]),
    Edge("product", "DECIMAL(9, 2)", [[D("1.05")], [D("1.05")], [D("-0.05")]]),
    Edge("product", "DECIMAL(9, 2)", [[D("1.00")], [("-U", D("3.00"))]]),
    Edge("product", "DECIMAL(9, 2)", [[D("1.00")], [("-U", D("0.00"))]]),
    Edge("product", "INT", [[5], [("-U", 0)]]),
    Edge("product", "INT", [[-(2**31)], [("-U", -1)]]),
    Edge("product", "DOUBLE", [[5.0], [("-U", 0.0)], [("-U", -0.0)]]),
    Edge("sum", "TINYINT", [[127], [1]]),
    Edge("sum", "SMALLINT", [[None], [("-U", -(2**15))]]),
    Edge("sum", "INT", [[2**31 - 1, 1]]),
    Edge("sum", "BIGINT", [[2**63 - 1, 1, -1]]),
    Edge("sum", "BIGINT", [[2**63 - 1, -1, 1], [("-U", -1)]]),
    Edge("sum", "FLOAT", [[16777216.0, 1.0, 1.0], [0.1], [("-U", 0.1)]]),
)


@pytest.mark.few(6)
@pytest.mark.parametrize("edge", EDGES, ids=lambda edge: edge.name)
def test_numbers_at_the_edge_of_their_type(paimon: PaimonJudge, edge: Edge, folder: Path) -> None:
    """Where Paimon's arithmetic throws, Freshet refuses and names the key; else both read the same values."""
    columns = {"v": Column(edge.type_text, (), {"aggregate-function": edge.function})}
    shape = Shape("edge", columns, {"merge-engine": "aggregation"})
    world = World(paimon, shape, folder)
    ours, ours_seen = world.by_freshet("ours")
    theirs_seen, theirs = world.by_paimon("theirs")
    for values in edge.commits:
        rows = [
            {"k": 7, "v": value[1], KIND_COLUMN: value[0]} if isinstance(value, tuple) else {"k": 7, "v": value}
            for value in values
        ]
        found = [_outcome(side, rows) for side in (theirs, ours)]
        assert found[0] == found[1]
        if found[0] != "refused":
            assert [_outcome(side, None) for side in (theirs_seen, ours_seen)] == found
    found = [_outcome(side, "compact") for side in (theirs, ours)]
    assert found[0] == found[1]
    for table in world.opened:
        table.close()


def _outcome(side: Any, rows: Any) -> str:
    """The value read after a commit (or none, or a full compaction), or that it was refused."""
    try:
        if rows == "compact":
            side.compact()
        elif rows is not None:
            side.commit(rows)
        return repr(side.read()["v"].to_pylist())
    except PaimonError as error:
        return "refused" if "ArithmeticException" in str(error) else str(error)
    except InvalidRequestError as error:
        return "refused" if "k=7" in str(error) and "'v'" in str(error) else str(error)
    except pa.ArrowInvalid as error:  # the judge checks digits; sums of small decimals may have more than their type
        digits = re.search(r"Decimal value (-?\d+) does not fit", str(error))
        assert digits is not None
        precision, scale = map(int, re.findall(r"\d+", side.columns["v"]))
        return repr([Decimal(digits[1]).scaleb(-scale)]) if len(digits[1]) > precision else "wrong"


def test_the_shapes_cover_every_function() -> None:
    functions = {
        value
        for shape in AGGREGATION_SHAPES
        for name, value in shape.table_options.items()
        if name.endswith(".aggregate-function")
    }
    assert len(functions) == 17  # with the alias first_not_null_value; the four of bitmaps and sketches have their own


def test_texts_tell_rows_apart() -> None:
    """The comparison itself: what must differ differs, what has no order does not."""
    columns = {"k": "INT", "a": "ARRAY<INT>", "m": "MAP<STRING, INT>", "d": "DOUBLE"}

    def of(**row: Any) -> list[str]:
        return texts(arrow_rows([{"k": 1, **row}], columns), {"a": None})

    assert of(a=[1, 2], m=[("x", 1), ("y", 2)]) == of(a=[2, 1], m=[("y", 2), ("x", 1)])
    assert of(a=[1, 1, 2]) != of(a=[1, 2])
    assert of(a=[]) != of(a=None)
    assert of(d=0.0) != of(d=-0.0)
    assert of(m=[("x", None)]) != of(m=[])
