"""Rows of a table by key at a snapshot: the answer is that of a scan, and reads no more than it must."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from freshet import Catalog
from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.lookup.lookup_metrics import LookupMetrics
from freshet.storage.lookup.stored_rows import find_stored_rows
from freshet.storage.merge.key_order import KeyComparator
from freshet.storage.model.data_file import EMPTY_ROW
from tests.kit.hypothesis_profile import examples
from tests.storage.scan.scan_tables import PlacedTable

COLUMNS = pa.schema(
    [
        pa.field("p", pa.string(), nullable=False),
        pa.field("k", pa.int64(), nullable=False),
        pa.field("s", pa.int64()),
        pa.field("v", pa.int64()),
    ]
)
ENGINES: dict[str, dict[str, str]] = {
    "deduplicate": {},
    "sequence": {"sequence.field": "s"},
    "partial-update": {
        "merge-engine": "partial-update",
        "fields.s.sequence-group": "v",
        "partial-update.remove-record-on-sequence-group": "s",
    },
    "aggregation": {
        "merge-engine": "aggregation",
        "fields.v.aggregate-function": "sum",
        "fields.s.aggregate-function": "max",
        "fields.s.ignore-retract": "true",
    },
    "force-lookup": {
        "force-lookup": "true",
        "merge-engine": "aggregation",
        "fields.v.aggregate-function": "sum",
        "fields.s.ignore-retract": "true",
    },
    "first-row": {"merge-engine": "first-row"},
}
KEYS = [(partition, key) for partition in ("a", "b") for key in range(6)]


@st.composite
def _histories(draw: st.DrawFn, takes_deletes: bool) -> list[tuple[int, list[dict[str, Any]]]]:
    """Files of levels, the oldest first: a key is once in a level above 0."""
    files = []
    for level in (5, 4, 0, 0):
        keys = draw(st.lists(st.sampled_from(KEYS), unique=True, max_size=8))
        kinds = ["+I", "+U", "-D"] if takes_deletes and level == 0 else ["+I"]
        rows = [
            {
                "p": partition,
                "k": key,
                "s": draw(st.one_of(st.none(), st.integers(0, 3))),
                "v": draw(st.integers(0, 99)),
                "_ROW_KIND": draw(st.sampled_from(kinds)),
            }
            for partition, key in sorted(keys)
        ]
        if rows:
            files.append((level, rows))
    return files


@pytest.mark.few(2)
@pytest.mark.hypothesis
@pytest.mark.parametrize("engine", ENGINES)
def test_what_is_found_is_what_a_scan_shows(engine: str) -> None:
    @settings(max_examples=examples(10))
    @given(
        history=_histories(takes_deletes=engine != "first-row"),
        asked=st.lists(st.sampled_from([*KEYS, ("c", 1)]), max_size=12),
        columns=st.sampled_from([None, ["v"], ["k", "s"], ["v", "p"]]),
    )
    def run(
        history: list[tuple[int, list[dict[str, Any]]]], asked: list[tuple[str, int]], columns: list[str] | None
    ) -> None:
        with tempfile.TemporaryDirectory() as folder:
            options = {"bucket": "2", "write-only": "true", **ENGINES[engine]}
            table = PlacedTable(Path(folder), COLUMNS, keys=["p", "k"], partitions=["p"], options=options)
            seen: set[tuple[str, int]] = set()
            for level, rows in history:
                if engine == "first-row" and level:  # a key is once above level 0
                    rows = [row for row in rows if (row["p"], row["k"]) not in seen]
                    seen |= {(row["p"], row["k"]) for row in rows}
                if rows:
                    table.place(rows, level=level)
            store = table.store
            snapshot = store.snapshots.latest()
            keys = pa.table({"k": pa.array([k for _, k in asked], pa.int64()), "p": pa.array([p for p, _ in asked])})
            found = find_stored_rows(store, snapshot, keys.cast(_key_schema(keys)), columns)
            names = columns or COLUMNS.names
            visible = {(row["p"], row["k"]): row for row in (table.rows() if snapshot else [])}
            expected = [
                {name: visible[key][name] for name in names} if key in visible else dict.fromkeys(names)
                for key in asked
            ]
            assert found.by_key().to_pylist() == expected
            assert found.is_found.tolist() == [key in visible for key in asked]
            assert found.rows.num_rows == len({key for key in asked if key in visible})

    run()


def _key_schema(keys: pa.Table) -> pa.Schema:
    return pa.schema([pa.field(name, COLUMNS.field(name).type) for name in keys.column_names])


@pytest.fixture
def placed(tmp_path: Path) -> PlacedTable:
    """One bucket, 100 files of ten keys each at the highest level."""
    columns = pa.schema([pa.field("k", pa.int64(), nullable=False), pa.field("v", pa.string())])
    options = {"write-only": "true", "target-file-row-num": "10"}
    table = PlacedTable(tmp_path, columns, keys=["k"], options=options)
    table.place([{"k": key, "v": f"v{key}"} for key in range(1000)], level=5)
    return table


def test_files_without_the_keys_are_not_opened(placed: PlacedTable) -> None:
    store = placed.store
    sort_key = KeyComparator(store.key_types).sort_key
    for file in store.live.at(store.snapshots.latest()).files_of(EMPTY_ROW, 0):
        if not any(sort_key(file.min_key) <= (key,) <= sort_key(file.max_key) for key in (3, 777)):
            store.env.file_io.delete(store.data_file(EMPTY_ROW, 0, file.file_name))
    keys = pa.table({"k": [777, 3, 777, -5]})
    found = find_stored_rows(store, store.snapshots.latest(), keys, ["v"])
    assert found.by_key()["v"].to_pylist() == ["v777", "v3", "v777", None]


def test_keys_of_another_width_are_taken_and_the_columns_come_as_asked(placed: PlacedTable) -> None:
    found = find_stored_rows(
        placed.store, placed.store.snapshots.latest(), pa.table({"x": ["?"], "k": pa.array([4], pa.int32())})
    )
    assert found.rows.to_pylist() == [{"k": 4, "v": "v4"}]
    assert find_stored_rows(placed.store, None, pa.table({"k": [4]}), ["v"]).positions.tolist() == [-1]


@pytest.mark.parametrize(
    ("keys", "columns", "message"),
    [
        ({"v": ["x"]}, None, "key column 'k' .* is missing"),
        ({"k": [1, None]}, None, "'k' .* holds NULL"),
        ({"k": ["one"]}, None, "'k' .* is int64, the keys asked have string"),
        ({"k": [1]}, ["w"], "no column 'w'"),
    ],
)
def test_a_question_that_makes_no_sense_is_refused(
    placed: PlacedTable, keys: dict[str, Any], columns: list[str] | None, message: str
) -> None:
    with pytest.raises(InvalidRequestError, match=message):
        find_stored_rows(placed.store, placed.store.snapshots.latest(), pa.table(keys), columns)


def test_a_table_without_a_primary_key_is_refused(tmp_path: Path) -> None:
    table = PlacedTable(tmp_path, pa.schema([pa.field("v", pa.int64())]))
    with pytest.raises(InvalidRequestError, match="has no primary key"):
        find_stored_rows(table.store, None, pa.table({"v": [1]}))


def test_few_keys_open_the_buckets_that_may_have_them(tmp_path: Path) -> None:
    """Of a table with dynamic buckets each may: the key ranges of their files say which do not."""
    options = {"bucket": "-1", "dynamic-bucket.target-row-num": "1", "write-only": "true"}
    table = Catalog(str(tmp_path)).create_table(
        "a.b", schema={"k": "BIGINT NOT NULL", "v": "STRING"}, primary_keys=["k"], options=options
    )
    with table.writer("loader") as writer:
        writer.write([{"k": number, "v": str(number)} for number in range(30)])
        writer.commit()
    assert len(table.files()) == 30
    keys = pa.table({"k": [3, 17, 40]}, schema=pa.schema([pa.field("k", pa.int64(), nullable=False)]))
    metrics = LookupMetrics()
    found = find_stored_rows(table.store, table.store.snapshots.latest(), keys, ["v"], metrics)
    assert found.by_key()["v"].to_pylist() == ["3", "17", None]
    assert metrics.counts() == {"keys": 2, "found": 2, "by_reading": 2}
