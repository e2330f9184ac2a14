"""Compacting level 0 of tables that need lookup: by the rule as it is spoken, and what is read and moved for it."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import freshet.storage.compact.section_merge as section_merge_module
import freshet.storage.files.parquet.writer as parquet_writer
from freshet.storage.compact.picker import CompactionUnit, GentlePatience, PickRules, pick_force_up_level_0
from freshet.storage.compact.rewriter import CompactedFiles, Rewriter
from freshet.storage.exceptions import StorageError
from freshet.storage.files.data_file_reader import DataFileRead
from freshet.storage.lookup import cached_lookup
from freshet.storage.merge.engine import lookup_merge_function, merge_function, row_order
from freshet.storage.merge.key_order import KeyComparator
from freshet.storage.merge.merge_function import MergeFunction
from freshet.storage.merge.row_levels import LookupLevels
from freshet.storage.merge.sorted_runs import Levels, build_levels
from freshet.storage.model.data_file import EMPTY_ROW, DataFileMeta
from tests.kit.hand_made import data_files_on_disk
from tests.kit.hypothesis_profile import examples
from tests.kit.joined import Joined
from tests.storage.compact.shapes import levels_of
from tests.storage.scan.scan_tables import PlacedTable

KEY = pa.field("k", pa.int64(), nullable=False)
VALUE = pa.field("v", pa.string())


@dataclass
class Bucket:
    """The one bucket of a placed table, to be compacted by hand."""

    table: PlacedTable
    folder: Path
    function: MergeFunction | None = None
    lookup_function: MergeFunction | None = None

    @property
    def levels(self) -> Levels:
        store = self.table.store
        files = store.live.at(store.snapshots.latest()).files_of(EMPTY_ROW, 0)
        return build_levels(files, store.options.num_levels, KeyComparator(store.key_types).sort_key)

    def compact(self, output_level: int) -> CompactedFiles:
        """Takes every file at or below the level."""
        store, levels = self.table.store, self.levels
        numbers = itertools.count()
        rewriter = Rewriter(
            store=store,
            order=row_order(store.schema, store.options),
            function=self.function or merge_function(store.schema, store.options),
            lookup_function=self.lookup_function or lookup_merge_function(store.schema, store.options),
            comparator=KeyComparator(store.key_types),
            merge_bytes=1 << 20,
            new_spill_path=lambda: str(self.folder / f"spill-{next(numbers)}"),
        )
        files = tuple(file for file in levels.files if file.level <= output_level)
        return rewriter.compact(EMPTY_ROW, 0, levels, CompactionUnit(output_level, files))

    def rows(self, files: Any) -> list[dict[str, Any]]:
        store = self.table.store
        columns = store.schema.column_names
        read = (DataFileRead(store, EMPTY_ROW, 0, file, columns, system_columns=True).batches() for file in files)
        return [row for batches in read for batch in batches for row in batch.to_pylist()]


def bucket(folder: Path, *columns: pa.Field, joins: bool = False, **options: str) -> Bucket:
    """`joins` has texts joined, so that the result shows the rows merged."""
    if joins:
        options["merge_engine"] = "partial-update"
    schema = pa.schema(columns or (KEY, VALUE))
    spelled = {name.replace("__", ".").replace("_", "-"): value for name, value in options.items()}
    keys = [field.name for field in schema if not field.nullable]
    table = PlacedTable(folder, schema, keys=keys, options={"write-only": "true", **spelled})
    if not joins:
        return Bucket(table, folder)
    return Bucket(table, folder, LookupLevels(Joined()), LookupLevels(Joined(passes_lone_rows=False)))


def texts(rows: list[dict[str, Any]]) -> dict[Any, str]:
    return {row["k"]: row["v"] for row in rows}


def place(at: Bucket, level: int, **values: str) -> None:
    """Keys are given as `k3="text"`."""
    at.table.place([{"k": int(key[1:]), "v": value} for key, value in values.items()], level=level)


@contextmanager
def tiny_batches() -> Iterator[None]:
    """Rounds of a few rows, batches of two, and all runs but one put aside on scratch disk."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cached_lookup, "KEY_BATCH_ROWS", 2)
        patch.setattr(cached_lookup, "ROW_BATCH_ROWS", 2)
        patch.setattr(section_merge_module, "FILL_ROWS_MIN", 3)
        patch.setattr(section_merge_module, "FILL_ROWS_MAX", 3)
        patch.setattr(section_merge_module, "OPEN_COLUMNS_MAX", 1)
        patch.setattr(section_merge_module, "STRAIGHT_RUNS_MIN", 1)
        yield


def test_keys_of_level_0_are_merged_with_rows_above_the_output_level(tmp_path: Path) -> None:
    at = bucket(tmp_path, joins=True, force_lookup="true")
    place(at, 5, k1="top", k2="top", k3="top", k4="top", k9="top")
    place(at, 4, k2="mid", k4="mid")
    place(at, 1, k3="low", k4="low", k8="low")
    place(at, 0, k1="a", k2="b", k3="c", k4="d", k7="new")
    result = at.compact(1)
    assert texts(at.rows(result.after)) == {
        1: "(top+a)",
        2: "(mid+b)",
        3: "(low+c)",
        4: "(low+d)",
        7: "(new)",
        8: "(low)",
    }
    assert [file.level for file in result.after] == [1]
    assert len(result.before) == 2


def test_without_level_0_nothing_is_looked_up_and_lone_rows_pass(tmp_path: Path) -> None:
    at = bucket(tmp_path, joins=True, force_lookup="true")
    place(at, 5, k1="top", k2="top")
    place(at, 2, k1="two", k3="alone")
    place(at, 1, k1="one", k2="first")
    assert texts(at.rows(at.compact(2).after)) == {1: "(one)", 2: "first", 3: "alone"}


def test_to_the_highest_level_nothing_lies_above_and_lone_rows_are_merged(tmp_path: Path) -> None:
    at = bucket(tmp_path, joins=True, force_lookup="true")
    place(at, 5, k1="top", k2="top")
    place(at, 1, k1="one")
    place(at, 0, k3="zero", k1="nil")
    assert texts(at.rows(at.compact(5).after)) == {1: "(one+nil)", 2: "(top)", 3: "(zero)"}


def test_first_row_writes_keys_that_exist_nowhere_above(tmp_path: Path) -> None:
    at = bucket(tmp_path, merge_engine="first-row")
    place(at, 5, k1="first", k9="first")
    place(at, 1, k2="second", k3="third")
    place(at, 0, k1="late", k2="late", k4="new")
    place(at, 0, k4="later", k5="new too", k9="late")
    assert texts(at.rows(at.compact(1).after)) == {2: "second", 3: "third", 4: "new", 5: "new too"}


@dataclass(frozen=True)
class KeyKind:
    """Key columns and values that are near each other."""

    types: tuple[pa.DataType, ...]
    values: tuple[tuple[Any, ...], ...]


KEY_KINDS = [
    KeyKind((pa.int64(),), tuple((value,) for value in (-(2**63), -1, 0, 1, 2, 3, 4, 5, 2**63 - 1))),
    KeyKind((pa.string(),), tuple((value,) for value in ("", "a", "a\0", "ab", "é", "\U0001f600", "\uffff", "z" * 40))),
    KeyKind((pa.binary(),), tuple((value,) for value in (b"", b"\0", b"\x7f", b"\x80", b"\xff\xff", b"\xff" * 9))),
    KeyKind((pa.float64(),), tuple((value,) for value in (-1.0, -0.0, 0.0, 1.5, float("inf"), float("nan")))),
    KeyKind((pa.decimal128(20, 2),), tuple((Decimal(value),) for value in ("-1.00", "0.00", "0.01", "7.00"))),
    KeyKind((pa.timestamp("us"),), tuple((value,) for value in (-(2**50), -1, 0, 1, 5))),
    KeyKind((pa.int32(), pa.string()), tuple(itertools.product((0, 1, 2), ("", "a", "b")))),
]


@st.composite
def shapes(draw: st.DrawFn) -> tuple[KeyKind, dict[int, list[list[int]]], int]:
    """A kind of key, the keys (by number) of each file of each level, and the output level."""
    kind = draw(st.sampled_from(KEY_KINDS))
    keys = st.lists(st.sampled_from(range(len(kind.values))), unique=True, max_size=len(kind.values))
    placed = {level: [draw(keys)] for level in (4, 3, 2, 1)}
    placed[0] = draw(st.lists(keys, min_size=1, max_size=3))
    return (
        kind,
        {level: [sorted(file) for file in files if file] for level, files in placed.items()},
        draw(st.integers(1, 4)),
    )


@pytest.mark.hypothesis
@pytest.mark.parametrize("engine", ["force-lookup", "first-row"])
def test_every_shape_agrees_with_the_rule_as_it_is_spoken(engine: str) -> None:
    @settings(max_examples=examples(30))
    @given(shape=shapes(), file_rows=st.sampled_from([1, 3, 100]))
    def run(shape: tuple[KeyKind, dict[int, list[list[int]]], int], file_rows: int) -> None:
        kind, placed, output = shape
        with tempfile.TemporaryDirectory() as folder, tiny_batches():
            check_shape(Path(folder), engine, kind, placed, output, file_rows)

    run()


def check_shape(
    folder: Path, engine: str, kind: KeyKind, placed: dict[int, list[list[int]]], output: int, file_rows: int
) -> None:
    is_first_row = engine == "first-row"
    if is_first_row:  # a key is once above level 0
        seen: set[int] = set()
        for level in sorted(placed, reverse=True):
            if level:
                placed[level] = [left for file in placed[level] if (left := [key for key in file if key not in seen])]
                seen.update(*placed[level])
    columns = [pa.field(f"k{at}", type_, nullable=False) for at, type_ in enumerate(kind.types)]
    options = {"merge_engine": "first-row"} if is_first_row else {"force_lookup": "true"}
    at = bucket(folder, *columns, VALUE, joins=not is_first_row, target_file_row_num=str(file_rows), **options)
    history: dict[int, list[tuple[int, str]]] = {}
    for level, files in placed.items():  # the highest level first: it is the oldest
        for number, file in enumerate(files):
            text = f"L{level}.{number}"
            rows = pa.table(
                {
                    **{
                        column.name: pa.array([kind.values[key][part] for key in file], column.type)
                        for part, column in enumerate(columns)
                    },
                    "v": pa.array([text] * len(file), pa.string()),
                }
            )
            at.table.place(rows, level=level)
            for key in file:
                history.setdefault(key, []).append((level, text))
    has_level_0 = any(level == 0 for rows in history.values() for level, _ in rows)
    if not has_level_0:
        return
    expected = {}
    for key, found in history.items():
        inputs = [row for row in found if row[0] <= output]
        above = sorted((row for row in found if row[0] > output), key=lambda row: row[0])[:1]
        if not inputs:
            continue
        inside = sorted(row for row in inputs if row[0] > 0)[:1]
        if is_first_row:
            if inside or not above:
                expected[key] = inputs[0][1]
        else:
            parts = [*(inside or above), *(row for row in inputs if row[0] == 0)]
            expected[key] = "+".join(text for _, text in parts)
    after = at.compact(output).after
    rows = at.rows(after)
    assert sum(file.row_count for file in after) == len(rows) == len(expected)
    found = sorted((repr(tuple(row[c.name] for c in columns)), row["v"].strip("()")) for row in rows)
    values = kind.values
    if kind.types == (pa.timestamp("us"),):
        values = tuple((pa.scalar(value[0], pa.timestamp("us")).as_py(),) for value in kind.values)
    assert found == sorted((repr(values[key]), text) for key, text in expected.items())


@pytest.mark.dear("rows beyond a row group and a round")
def test_rounds_and_row_groups_of_many_rows(tmp_path: Path) -> None:
    """More keys than a round takes, more rows than a row group has, in two levels."""
    wide = pa.field("w", pa.string())
    at = bucket(tmp_path, KEY, VALUE, wide, joins=True, force_lookup="true")
    at.table.place(table_of(range(0, 300_000, 3), "top"), level=5)
    at.table.place(table_of(range(0, 300_000, 500), "mid"), level=4)
    at.table.place(table_of(range(0, 300_000, 2), "new"), level=0)
    rows = at.rows(at.compact(1).after)
    assert [row["k"] for row in rows] == list(range(0, 300_000, 2))
    for row in rows:
        old = "mid+" if row["k"] % 500 == 0 else "top+" if row["k"] % 3 == 0 else ""
        assert row["v"] == f"({old}new)"


def test_row_groups_between_the_keys_found_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet_writer, "ROW_GROUP_BYTES", 64 * 1024)
    monkeypatch.setattr(cached_lookup, "KEY_BATCH_ROWS", 500)
    read: list[int] = []

    class Counted(DataFileRead):
        def batches(self) -> Iterator[pa.RecordBatch]:
            for batch in super().batches():
                read.append(batch.num_rows if self.system_columns else 0)
                yield batch

    monkeypatch.setattr(cached_lookup, "DataFileRead", Counted)
    at = bucket(tmp_path, KEY, VALUE, pa.field("w", pa.string()), joins=True, force_lookup="true")
    at.table.place(table_of(range(0, 60_000, 2), "top"), level=5)
    keys = [*range(100), *range(30_001, 30_101, 2), *range(59_000, 59_100)]
    at.table.place(table_of(keys, "new"), level=0)
    found = texts(at.rows(at.compact(1).after))
    assert found == {key: "(new)" if key % 2 else "(top+new)" for key in keys}
    assert 100 <= sum(read) < 3000


def table_of(keys: Sequence[int], text: str) -> pa.Table:
    return pa.table({"k": list(keys), "v": [text] * len(keys), "w": [f"{key:0120d}" for key in keys]})


@pytest.mark.parametrize("engine", ["force-lookup", "first-row"])
def test_files_out_of_reach_of_the_keys_are_not_opened(tmp_path: Path, engine: str) -> None:
    options = {"merge_engine": "first-row"} if engine == "first-row" else {"force_lookup": "true"}
    at = bucket(tmp_path, joins=engine == "force-lookup", target_file_row_num="10", **options)
    at.table.place([{"k": key, "v": "old"} for key in range(0, 1000, 10)], level=5)
    place(at, 0, k555="a", k560="b")
    store = at.table.store
    needed = [file for file in at.levels.files if file.level == 0]
    sort_key = KeyComparator(store.key_types).sort_key
    for file in at.levels.files:
        if file.level == 5 and not (sort_key(file.min_key) <= (560,) and sort_key(file.max_key) >= (555,)):
            store.env.file_io.delete(store.data_file(EMPTY_ROW, 0, file.file_name))
        else:
            needed.append(file)
    assert len(needed) == 3
    found = texts(at.rows(at.compact(1).after))
    assert found == ({555: "a"} if engine == "first-row" else {555: "(a)", 560: "(old+b)"})


LARGE = {"target_file_size": "1 b"}  # every file is large enough to stay as it is


@pytest.mark.parametrize(
    ("options", "output", "is_moved"),
    [
        ({"force_lookup": "true"}, 1, True),  # deduplicate: the newest row is the result, whatever is above
        ({"force_lookup": "true", "sequence__field": "v"}, 1, False),
        ({"force_lookup": "true", "sequence__field": "v"}, 5, True),  # nothing is above
        ({"merge_engine": "first-row"}, 1, False),
        ({"merge_engine": "first-row"}, 5, True),
    ],
)
def test_a_file_moves_up_only_where_nothing_above_can_change_it(
    tmp_path: Path, options: dict[str, str], output: int, is_moved: bool
) -> None:
    at = bucket(tmp_path, **LARGE, **options)
    if output < 5:
        place(at, 5, k1="z", k3="z")
    place(at, 0, k1="a", k2="b")
    (level_0,) = [file for file in at.levels.files if file.level == 0]
    result = at.compact(output)
    assert result.before == (level_0,)
    if is_moved:
        assert result.after == (replace(level_0, level=output),)
    else:
        assert result.after[0].file_name != level_0.file_name
        kept = {2: "b"} if "merge_engine" in options else {1: "z", 2: "b"}
        assert texts(at.rows(result.after)) == kept


def test_files_above_level_0_move_without_lookup(tmp_path: Path) -> None:
    at = bucket(tmp_path, merge_engine="first-row", **LARGE)
    place(at, 5, k1="x")
    place(at, 1, k2="y")
    assert [(file.level, file.row_count) for file in at.compact(4).after] == [(4, 1)]


def test_a_retract_in_a_first_row_table_is_refused_and_named(tmp_path: Path) -> None:
    at = bucket(tmp_path, merge_engine="first-row")
    place(at, 5, k3="x")
    at.table.place([{"k": 3, "v": None, "_ROW_KIND": "-D"}, {"k": 4, "v": "y"}], level=0)
    names = data_files_on_disk(at.table.store)
    assert names
    with pytest.raises(StorageError, match="k=3.*ignore-delete"):
        at.compact(1)
    assert data_files_on_disk(at.table.store) == names


def test_ignore_delete_passes_over_retracts_of_old_files(tmp_path: Path) -> None:
    at = bucket(tmp_path, merge_engine="first-row", ignore_delete="true")
    place(at, 5, k3="x")
    at.table.place([{"k": 3, "_ROW_KIND": "-D"}, {"k": 4, "v": "y"}, {"k": 5, "_ROW_KIND": "-D"}], level=0)
    assert texts(at.rows(at.compact(1).after)) == {4: "y"}


def test_tombstones_hide_what_is_found_and_go_where_nothing_lies_below(tmp_path: Path) -> None:
    at = bucket(tmp_path, force_lookup="true")
    place(at, 5, k1="x", k2="y")
    at.table.place([{"k": 1, "_ROW_KIND": "-D"}, {"k": 3, "_ROW_KIND": "-D"}], level=0)
    below = at.compact(4)
    assert [(row["k"], row["_VALUE_KIND"]) for row in at.rows(below.after)] == [(1, 3), (3, 3)]
    assert texts(at.rows(at.compact(5).after)) == {2: "y"}


def test_gentle_patience_counts_picks_that_find_nothing() -> None:
    patience = GentlePatience(3)
    levels, rules = levels_of("0:1 2:100", 3), PickRules(5)
    picked = [pick_force_up_level_0(levels, rules, is_due=patience.is_over) for _ in range(7)]
    assert [unit is not None for unit in picked] == [False, False, True, False, False, True, False]
    many = levels_of("0:1 0:1 0:1 0:1 0:1", 6)
    assert pick_force_up_level_0(many, rules, is_due=patience.is_over) is not None
    assert patience.empty_picks == 1


def key_range(file: DataFileMeta, at: Bucket) -> tuple[Any, ...]:
    comparator = KeyComparator(at.table.store.key_types)
    return comparator.sort_key(file.min_key) + comparator.sort_key(file.max_key)


def test_outputs_of_several_sections_stay_in_order(tmp_path: Path) -> None:
    at = bucket(tmp_path, merge_engine="first-row")
    place(at, 5, k15="x")
    for low in (0, 10, 20):
        place(at, 0, **{f"k{low + 5}": "a", f"k{low}": "b"})
    result = at.compact(1)
    assert [key_range(file, at) for file in result.after] == [(0, 25)]
    assert sorted(texts(at.rows(result.after))) == [0, 5, 10, 20, 25]
