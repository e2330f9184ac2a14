"""A changelog is a pure function of what was merged and what the merge reports.

The producers of `storage.changelog` are functions over a round of merging, without another look at any file; they are
compared with their truth tables (MERGING.md §4.2, §4.3, §4.4), read row by row next to the oracles. The world is small
and enumerated: every old row x up to two changes of every kind, for all engines.
"""

from __future__ import annotations

from itertools import product
from typing import Any

import pyarrow as pa
import pytest

from freshet.storage.changelog.producer import FirstRowChangelog, FullCompactionChangelog, LookupChangelog
from freshet.storage.merge.engine import lookup_merge_function, merge_function, row_order
from freshet.storage.merge.key_order import KeySegments, sort_segments
from freshet.storage.merge.merge_function import NO_ROW, without_retracts
from freshet.storage.merge.row_levels import LEVEL_FIELD, row_of_level, row_of_lowest_level
from freshet.storage.model.row_kind import KIND_TEXTS
from tests.kit.engine_merges import Engine, Record
from tests.storage.merge.engine_merge import EngineMerge

COLUMNS = "k INT, v INT, s INT"
ENGINES: dict[str, dict[str, str]] = {
    "deduplicate": {},
    "sequence field": {"sequence.field": "s"},
    "partial-update": {"merge-engine": "partial-update", "partial-update.remove-record-on-delete": "true"},
    "sequence groups": {
        "merge-engine": "partial-update",
        "fields.s.sequence-group": "v",
        "partial-update.remove-record-on-sequence-group": "s",
    },
    "aggregation": {
        "merge-engine": "aggregation",
        "fields.v.aggregate-function": "sum",
        "aggregation.remove-record-on-delete": "true",
    },
    "first-row": {"merge-engine": "first-row", "ignore-delete": "true"},
}
Change = tuple[str, int, int | None, int]
"""Kind, key, v, sequence number: a row of a changelog."""

MAX_LEVEL = 5
STORED = [{}, {1: "+I"}, {1: "-D"}, {4: "+I"}, {2: "+I", 4: "+I"}, {5: "+I"}, {1: "+I", 5: "+I"}]
"""Kind of the row in each level that has one."""
INCOMING = [kinds for length in (0, 1, 2) for kinds in product(KIND_TEXTS, repeat=length)]


def _changes(rows: pa.Table) -> list[Change]:
    columns = [rows.column(name).to_pylist() for name in ("_VALUE_KIND", "k", "v", "_SEQUENCE_NUMBER")]
    return [(KIND_TEXTS[kind], *values) for kind, *values in zip(*columns, strict=True)]


def _row(rows: pa.Table, position: int, kind: str) -> Change:
    key, value, number = (rows.column(name)[position].as_py() for name in ("k", "v", "_SEQUENCE_NUMBER"))
    return kind, key, value, number


def _world(levels_max: int = 2) -> tuple[pa.Table, dict[int, list[tuple[int, Record]]]]:
    """Every key's rows with their levels, as a table and as records; older rows have smaller sequence numbers."""
    records: dict[int, list[tuple[int, Record]]] = {}
    for key, (stored, incoming) in enumerate(
        product([stored for stored in STORED if len(stored) <= levels_max], INCOMING)
    ):
        kinds = [(level, kind) for level, kind in sorted(stored.items(), reverse=True)]
        kinds += [(0 if at else -1, kind) for at, kind in enumerate(incoming)]
        for number, (level, kind) in enumerate(kinds):
            # A late change: the second incoming row orders before the first where rows are ordered by s.
            order = None if number == 4 else (7 * key + 3 * number) % 5
            values = {"k": key, "v": 10 * key + number, "s": order}
            record = Record(values, KIND_TEXTS.index(kind), number)
            records.setdefault(key, []).append((level, record))
    flat = [(level, record) for rows in records.values() for level, record in rows]
    types = {"k": pa.int32(), "v": pa.int32(), "s": pa.int32()}
    columns: dict[str, pa.Array] = {
        "_SEQUENCE_NUMBER": pa.array([record.number for _, record in flat], pa.int64()),
        "_VALUE_KIND": pa.array([record.kind for _, record in flat], pa.int8()),
        **{name: pa.array([record.values[name] for _, record in flat], kind) for name, kind in types.items()},
    }
    levels = pa.array([level for level, _ in flat], pa.int8())
    return pa.table(columns).append_column(LEVEL_FIELD, levels), records


def _segments(made: EngineMerge, rows: pa.Table) -> KeySegments:
    return sort_segments(rows, row_order(made.schema, made.options))


def _by_the_table(key: int, old: Record | None, new: Record | None) -> list[Change]:
    """The truth table, for one key."""

    def change(kind: str, record: Record) -> Change:
        return kind, key, record.values["v"], record.number

    has_old = old is not None and KIND_TEXTS[old.kind] in ("+I", "+U")
    has_new = new is not None and KIND_TEXTS[new.kind] in ("+I", "+U")
    match has_old, has_new:
        case False, False:
            return []
        case False, True:
            assert new is not None
            return [change("+I", new)]
        case True, False:
            assert old is not None
            return [change("-D", old)]
        case _:
            assert old is not None and new is not None
            return [change("-U", old), change("+U", new)]


@pytest.mark.parametrize("drops", [True, False], ids=["retracts dropped", "retracts kept"])
@pytest.mark.parametrize("name", ENGINES)
def test_the_lookup_changelog(name: str, drops: bool) -> None:
    given = {"force-lookup": "true", **ENGINES[name]}
    made = EngineMerge(COLUMNS, given)
    engine = Engine(made.types, ["k"], given)
    rows, records = _world(1 if name == "first-row" else 2)  # there a key is once above level 0
    function = lookup_merge_function(made.schema, made.options)
    merged = function.merge(
        _segments(made, rows), keep=without_retracts if drops else None, previous_row=row_of_lowest_level
    )
    expected: list[Change] = []
    kept: list[tuple[str, Any, Any, int]] = []
    for key, leveled in records.items():
        high = min((pair for pair in leveled if pair[0] > 0), key=lambda pair: pair[0], default=None)
        counting = [record for level, record in leveled if level <= 0] + ([] if high is None else [high[1]])
        new = engine.merge(sorted(counting, key=engine.rank))
        if any(level <= 0 for level, _ in leveled):
            changes = _by_the_table(key, None if high is None else high[1], new)
            is_known = name == "first-row" and high is not None
            expected += [] if is_known else changes
        if new is not None and not (drops and KIND_TEXTS[new.kind] in ("-D", "-U")):
            kept.append((KIND_TEXTS[new.kind], key, new.values["v"], new.number))
    producer = FirstRowChangelog() if name == "first-row" else LookupChangelog()
    assert _changes(producer.changes(merged)) == expected
    assert len(expected) > 10
    kinds = [KIND_TEXTS[kind] for kind in merged.rows.column("_VALUE_KIND").to_pylist()]
    assert [_row(merged.rows, at, kind) for at, kind in enumerate(kinds)] == kept
    assert LEVEL_FIELD.name not in merged.rows.column_names


@pytest.mark.parametrize("name", [name for name in ENGINES if name != "first-row"])
def test_the_full_compaction_changelog(name: str) -> None:
    """Levels decide nothing but which row is the old one; a key with one row passes as it is."""
    given = ENGINES[name]
    made = EngineMerge(COLUMNS, given)
    engine = Engine(made.types, ["k"], given)
    rows, records = _world()
    merged = merge_function(made.schema, made.options).merge(
        _segments(made, rows), keep=without_retracts, previous_row=row_of_level(MAX_LEVEL)
    )
    expected: list[Change] = []
    for key, leveled in records.items():
        inputs = sorted((record for _, record in leveled), key=engine.rank)
        new = inputs[0] if len(inputs) == 1 else engine.merge(inputs)
        old = next((record for level, record in leveled if level == MAX_LEVEL), None)
        if any(level < MAX_LEVEL for level, _ in leveled):
            expected += _by_the_table(key, old, new)
    assert _changes(FullCompactionChangelog(MAX_LEVEL).changes(merged)) == expected
    assert len(expected) > 10


def test_of_every_key_also_of_those_without_a_row() -> None:
    """Nothing results, a retract results, a retract is not kept: each key has its kind, its place and its old row."""
    made = EngineMerge(COLUMNS, {"force-lookup": "true", "ignore-delete": "true"})
    rows = made.table([("-D", 1, 1, 1), ("+I", 2, 1, 1), ("-D", 2, 2, 2), ("+I", 3, 1, 1)])
    rows = rows.append_column(LEVEL_FIELD, pa.array([0, 1, 0, 0], pa.int8()))
    merged = lookup_merge_function(made.schema, made.options).merge(
        _segments(made, rows), previous_row=row_of_lowest_level
    )
    assert merged.kinds.tolist() == [NO_ROW, 0, 0]
    assert merged.positions.tolist() == [-1, 0, 1]
    assert merged.previous.tolist() == [-1, 1, -1]
    made = EngineMerge(COLUMNS, {"force-lookup": "true"})
    function = lookup_merge_function(made.schema, made.options)
    kept = function.merge(_segments(made, rows))
    assert kept.kinds.tolist() == [3, 3, 0]
    assert kept.positions.tolist() == [0, 1, 2]
    assert kept.previous.tolist() == [-1, -1, -1]  # nobody asked
    dropped = function.merge(_segments(made, rows), keep=without_retracts)
    assert dropped.kinds.tolist() == [3, 3, 0]
    assert dropped.positions.tolist() == [-1, -1, 0]
    assert dropped.rows.column("k").to_pylist() == [3]
