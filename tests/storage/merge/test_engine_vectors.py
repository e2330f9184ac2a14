"""The test vectors of the merge engines: what the oracle says and what tables say, both against the sheet.

Vectors given as one merge run as one flush, each intermediate state as a table of its own; where Freshet makes several
files of that flush (`merge.retract_layers`), its tables read something else than the merge gives (`ours`). Vectors
given by a changelog check the state only, on tables with force-lookup: those merge like tables with a lookup changelog.

Source: MERGING.md §9.1 (5, 8, 9), §9.2, §9.3, §9.5.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from freshet.storage.exceptions import StorageError
from freshet.storage.merge.engine import lookup_merge_function, merge_function, row_order
from freshet.storage.merge.key_order import sort_segments
from freshet.storage.merge.merge_reader import merge_table
from freshet.storage.model.schema import SEQUENCE_NUMBER_COLUMN, VALUE_KIND_COLUMN
from tests.kit.aggregate_oracles import CannotMerge
from tests.kit.engine_merges import KIND_COLUMN, KINDS, Engine, Record, Values
from tests.kit.engine_oracles import EngineOracle
from tests.kit.engine_tables import FreshetTable, arrow_rows, texts
from tests.kit.oracle import INSERT, RETRACTS

N = None
COMPACT = "full compaction"
ERROR = "error"


@dataclass(frozen=True)
class Merged:
    """A vector of one merge: after the first n rows the merged row is `states[n]`."""

    number: str
    columns: str
    options: Mapping[str, str]
    rows: Sequence[tuple[Any, ...]]
    states: Mapping[int, tuple[Any, ...]]
    keys: tuple[str, ...] = ("k",)
    sets: tuple[str, ...] = ()
    ours: Mapping[int, tuple[Any, ...]] = field(default_factory=dict)
    """Where a table of ours keeps a retract and what follows it apart: what it reads."""

    @property
    def id(self) -> str:
        return self.number


@dataclass(frozen=True)
class Commits:
    """A vector of commits: pairs of rows (or COMPACT) and the rows to be read afterwards."""

    number: str
    columns: str
    options: Mapping[str, str]
    steps: Sequence[tuple[Any, Sequence[tuple[Any, ...]]]]
    keys: tuple[str, ...] = ("k",)
    partitions: tuple[str, ...] = ()
    sets: tuple[str, ...] = field(default=())
    ours: Mapping[int, Sequence[tuple[Any, ...]]] = field(default_factory=dict)
    """By step: where a table of ours keeps a retract and what follows it apart, what it reads."""

    @property
    def id(self) -> str:
        return self.number


def partial(**groups: str) -> dict[str, str]:
    """Options of a partial-update table; `f3="f1,f2"` is a sequence group, `f1__f2` two ordering columns."""
    named = {f"fields.{key.replace('__', ',')}.sequence-group": columns for key, columns in groups.items()}
    return {"merge-engine": "partial-update", **named}


def aggregation(default: str | None = None, **functions: str) -> dict[str, str]:
    """Options of an aggregation table."""
    named = {f"fields.{column}.aggregate-function": name for column, name in functions.items()}
    defaults = {} if default is None else {"fields.default-aggregate-function": default}
    return {"merge-engine": "aggregation", **defaults, **named}


G13 = partial(f3="f1,f2", f6="f4,f5")
R13 = [(1, 1, 1, 1, 1, 1, 1), (1, 2, 2, 2, 2, 2, N), (1, 3, 3, 1, 3, 3, 3)]
G18 = partial(f3__f4="f1,f2", f7__f8="f5,f6")
F6, F8 = "k f1 f2 f3 f4 f5 f6", "k f1 f2 f3 f4 f5 f6 f7 f8"
G21 = {
    **partial(f1="f2,f3"),
    "fields.f2.aggregate-function": "first_value",
    "fields.f3.aggregate-function": "last_value",
}
G23 = {
    **partial(f1="f2,f3,f4", f7="f6"),
    "fields.f2.aggregate-function": "sum",
    "fields.f3.aggregate-function": "last_value",
    "fields.f4.aggregate-function": "last_value",
    "fields.f4.ignore-retract": "true",
    "fields.f6.aggregate-function": "last_non_null_value",
    "fields.f6.ignore-retract": "true",
}
R23 = [
    (1, 1, 1, 1, 1, 1, 1, 1),
    (1, 2, 1, 2, 2, 2, 2, 0),
    (1, 1, 1, 1, 1, 1, 2, 0),
    (1, 1, -1, 1, 1, 2, 2, 0),
    (1, 3, N, N, N, N, N, 2),
    (1, 3, 1, 1, 1, 1, 1, 3),
]
G29 = {**partial(g1__g3="a", g2="c"), "fields.a.aggregate-function": "sum"}
NESTED = "k a:ARRAY<ROW<k0 INT, k1 INT, v STRING>>"
NESTED_SEQUENCE = "k a:ARRAY<ROW<k0 INT, k1 INT, v STRING, s INT>>"
TIMED = "k a:MAP<STRING, ROW<v STRING, ts STRING>>"


def nested(*rows: tuple[Any, ...]) -> list[dict[str, Any]]:
    return [dict(zip(("k0", "k1", "v", "s"), row, strict=False)) for row in rows]


def timed(**entries: tuple[str, str]) -> list[tuple[str, dict[str, str]]]:
    return [(key, {"v": value, "ts": time}) for key, (value, time) in entries.items()]


WHITE = " \t\n\r\n\u3000 "
SUM, PRODUCT = aggregation(v="sum"), aggregation(v="product")

MERGED = [
    Merged(
        "12",
        "k a:DOUBLE b c:STRING",
        partial(),
        [(1, 23.0, 10, N), (1, N, N, "book"), (1, 25.2, N, N)],
        {3: (1, 25.2, 10, "book")},
    ),
    Merged(
        "13 to 16",
        F6,
        G13,
        [
            *R13,
            ("-D", 1, 1, 1, 3, 1, 1, N),
            ("-D", 1, 1, 1, 3, 1, 1, 4),
            (1, 4, 4, 4, 5, 5, 5),
            ("-D", 1, 1, 1, 6, 1, 1, 6),
        ],
        {
            2: (1, 2, 2, 2, 1, 1, 1),
            3: (1, 2, 2, 2, 3, 3, 3),
            4: (1, N, N, 3, 3, 3, 3),
            5: (1, N, N, 3, N, N, 4),
            6: (1, 4, 4, 4, 5, 5, 5),
            7: (1, N, N, 6, N, N, 6),
        },
    ),
    Merged(
        "17",
        F6,
        {**G13, "partial-update.remove-record-on-sequence-group": "f6"},
        [*R13, ("-D", 1, 1, 1, 3, 1, 1, N), ("-D", 1, 1, 1, 3, 1, 1, 4), (1, 4, 4, 4, 5, 5, 5)],
        {4: (1, N, N, 3, 3, 3, 3), 5: ("-D", 1, 1, 1, 3, 1, 1, 4), 6: (1, 4, 4, 4, 5, 5, 5)},
    ),
    Merged(
        "18",
        F8,
        G18,
        [(1, N, N, N, N, 1, 1, 1, 3), (1, 2, 2, N, N, 2, 2, 1, 3)],
        {2: (1, N, N, N, N, 2, 2, 1, 3)},
    ),
    Merged(
        "19",
        F8,
        G18,
        [(1, 1, 1, 1, 1, 1, 1, 1, 3), (1, 2, 2, 2, 2, 2, 1, 1, N), (1, 1, 3, 1, 3, 3, 3, 3, 2)],
        {2: (1, 2, 2, 2, 2, 1, 1, 1, 3), 3: (1, 2, 2, 2, 2, 3, 3, 3, 2)},
    ),
    Merged(
        "20",
        F6,
        {**G13, "fields.default-aggregate-function": "last_non_null_value"},
        [*R13, (1, 4, N, 4, 5, N, 5)],
        {4: (1, 4, 2, 4, 5, 3, 5)},
    ),
    Merged(
        "21 and 22",
        "k f1 f2 f3",
        G21,
        [(1, 1, 1, 1), (1, 2, 2, 2), (1, 0, 3, 3), (1, 1, 4, 4)],
        {2: (1, 2, 1, 2), 3: (1, 2, 3, 2), 4: (1, 2, 4, 2)},
    ),
    Merged(
        "23 and 24",
        "k f1 f2 f3 f4 f5 f6 f7",
        G23,
        [*R23, ("-U", 1, 3, 2, 1, 1, 1, 1, 3), ("-D", 1, 3, 2, 1, 1, 1, 1, 3), ("-D", 1, 2, 2, 1, 1, 1, 1, 3)],
        {
            2: (1, 2, 2, 2, 2, 2, 1, 1),
            3: (1, 2, 3, 2, 2, 1, 1, 1),
            7: (1, 3, 1, N, 1, 1, 1, 3),
            8: (1, 3, -1, N, 1, 1, 1, 3),
            9: (1, 3, -3, N, 1, 1, 1, 3),
        },
    ),
    Merged(
        "29",
        "k a b g1 c:STRING g2 g3",
        G29,
        [(1, 1, 1, 1, "1", 1, 1), (1, 2, 2, 2, "2", N, 2), (1, 3, 3, 2, "3", 3, 1)],
        {2: (1, 3, 2, 2, "1", 1, 2), 3: (1, 6, 3, 2, "3", 3, 2)},
    ),
    Merged(
        "30",
        "k a:STRING b:STRING",
        {**partial(), "partial-update.remove-record-on-delete": "true"},
        [(1, "a", "b"), ("-D", 1, "a", "b"), (1, N, "c")],
        {2: ("-D", 1, "a", "b"), 3: (1, "a", "c")},
        ours={3: (1, N, "c")},
    ),
    Merged(
        "31",
        "k a b c d",
        aggregation("first_non_null_value", b="sum"),
        [(1, N, 1, 1, 1), (1, 2, N, 2, 2), (1, 3, 3, N, 3), (1, 4, 4, 4, N), (1, 5, 5, 5, 5)],
        {5: (1, 2, 13, 1, 1)},
    ),
    Merged(
        "32",
        "k a:STRING b:STRING",
        {**aggregation(a="listagg", b="listagg"), "fields.b.list-agg-delimiter": "-"},
        [(1, str(number), str(number)) for number in range(1, 6)],
        {5: (1, "1,2,3,4,5", "1-2-3-4-5")},
    ),
    Merged(
        "33",
        "k a:STRING",
        {**aggregation(a="listagg"), "fields.a.distinct": "true"},
        [(1, "abc,def,asd"), (1, "ab,xy")],
        {2: (1, "abc,def,asd,ab,xy")},
    ),
    Merged(
        "34",
        "k a:STRING",
        {**aggregation(a="listagg"), "fields.a.distinct": "true", "fields.a.list-agg-delimiter": " "},
        [(1, "k1=v1 k2=v2"), (1, " k1=v1  k3=v3"), (1, " ")],
        {3: (1, "k1=v1 k2=v2 k3=v3")},
    ),
    Merged(
        "35",
        "k a:STRING",
        aggregation(a="listagg"),
        [(1, text) for text in ("user1", "", " ", "\t", WHITE, "user2", "\u2000")],
        {7: (1, "user1,user2")},
    ),
    Merged("37", "k b c", aggregation(b="sum", c="max"), [(1, 3, 3), ("-U", 1, 3, 3)], {2: (ERROR,)}),
    Merged("38", "k b c", aggregation(), [(1, 3, 3), ("-D", 1, N, 3)], {2: (1, 3, N)}),
    Merged(
        "41",
        "k v",
        {**SUM, "aggregation.remove-record-on-delete": "true"},
        [(1, 5), ("-D", 1, 5), (1, 3)],
        {2: ("-D", 1, 5), 3: (1, 8)},
        ours={3: (1, 3)},
    ),
    Merged("44 sum, null and 10", "k v", SUM, [(1, N), (1, 10)], {2: (1, 10)}),
    Merged("44 sum, 10 less 5", "k v", SUM, [(1, 10), ("-U", 1, 5)], {2: (1, 5)}),
    Merged("44 sum, null less 5", "k v", SUM, [(1, N), ("-U", 1, 5)], {2: (1, -5)}),
    Merged("44 product, 10 by 5", "k v", PRODUCT, [(1, 10), ("-U", 1, 5)], {2: (1, 2)}),
    Merged("44 product, null by 5", "k v", PRODUCT, [(1, N), ("-U", 1, 5)], {2: (1, N)}),
    Merged("44 byte overflow", "k v:TINYINT", SUM, [(1, 127), (1, 1)], {2: (ERROR,)}),
    Merged("44 byte negation", "k v:TINYINT", SUM, [(1, N), ("-U", 1, -128)], {2: (ERROR,)}),
    Merged(
        "46",
        "k a:ARRAY<INT>",
        {**aggregation(a="collect"), "fields.a.distinct": "true"},
        [(1, N), (1, [1, 1, 2]), (1, [2, 3])],
        {2: (1, [1, 2]), 3: (1, [1, 2, 3])},
        sets=("a",),
    ),
    Merged(
        "47",
        "k f0:MAP<INT, STRING> f1",
        {**partial(f1="f0"), "fields.f0.aggregate-function": "merge_map"},
        [(1, N, 1), (1, [(1, "A")], 2), ("-U", 1, N, 1), ("+U", 1, [(2, "B")], 3)],
        {4: (1, [(1, "A"), (2, "B")], 3)},
    ),
    Merged(
        "48",
        TIMED,
        aggregation(a="merge_map_with_keytime"),
        [
            (1, timed(p=("iPhone", "100"), c=("Black", "100"))),
            (1, timed(p=("iPad", "200"), price=("999", "200"))),
            (1, timed(c=("White", "50"))),
        ],
        {3: (1, timed(p=("iPad", "200"), c=("White", "50"), price=("999", "200")))},
    ),
    Merged(
        "49",
        NESTED,
        {**aggregation(a="nested_update"), "fields.a.nested-key": "k0,k1", "fields.a.count-limit": "2"},
        [(1, nested(row)) for row in ((0, 1, "B"), (1, 2, "C"), (0, 1, "B_updated"), (2, 3, "D"))],
        {4: (1, nested((0, 1, "B_updated"), (1, 2, "C")))},
        sets=("a",),
    ),
    Merged(
        "50",
        NESTED_SEQUENCE,
        {**aggregation(a="nested_update"), "fields.a.nested-key": "k0,k1", "fields.a.nested-sequence-field": "s"},
        [
            *((1, nested(row)) for row in ((0, 0, "A", 1), (0, 1, "B", 2), (0, 1, "b", 3), (0, 1, "B_late", 2))),
            ("-U", 1, nested((0, 1, "b", 3))),
        ],
        {4: (1, nested((0, 0, "A", 1), (0, 1, "b", 3))), 5: (1, nested((0, 0, "A", 1)))},
        sets=("a",),
    ),
]

REMOVES_ON_DELETE = {**partial(), "partial-update.remove-record-on-delete": "true"}
LOOKUP = {"force-lookup": "true"}
FIRST_ROW = {"merge-engine": "first-row"}
AGGREGATED_3 = [(1, 1, 3, 3), (1, 1, 1, 1), (1, 1, 2, 2)]

COMMITS = [
    Commits(
        "5",
        "k s v:STRING",
        {"sequence.field": "s"},
        [([(1, 5, "x")], [(1, 5, "x")]), ([(1, N, "y")], [(1, 5, "x")])],
    ),
    Commits(
        "5, descending",
        "k s v:STRING",
        {"sequence.field": "s", "sequence.field.sort-order": "descending"},
        [([(1, 5, "x")], [(1, 5, "x")]), ([(1, N, "y")], [(1, 5, "x")])],
    ),
    Commits(
        "8",
        "k v",
        {**partial(), "ignore-delete": "true"},
        [([(10, 200), ("-D", 10, 100), ("-U", 10, 100), ("-D", 20, 400)], [(10, 200)])],
    ),
    Commits(
        "9",
        "k v:STRING",
        {"ignore-update-before": "true"},
        [([(1, "a")], [(1, "a")]), ([("-U", 1, "a")], [(1, "a")]), ([("-D", 1, "a")], [])],
    ),
    Commits(
        "25",
        "pt a b c",
        REMOVES_ON_DELETE,
        [
            (AGGREGATED_3, [(1, 1, 2, 2)]),
            ([("-U", 1, 1, 2, 2), ("+U", 1, 1, 2, 3)], [(1, 1, 2, 3)]),  # in two commits there: refused
            ([("-D", 1, 1, 2, 3)], []),
            ([(1, 1, 2, 2)], [(1, 1, 2, 2)]),
        ],
        keys=("pt", "a"),
        partitions=("pt",),
    ),
    Commits(
        "26",
        "pt a b seq1 c d seq2",
        {**partial(seq1="b", seq2="c,d"), "partial-update.remove-record-on-sequence-group": "seq2"},
        [
            (
                [(1, 1, 10, 1, 20, 20, 1), (1, 1, 11, 2, 25, 25, 0), (1, 1, 12, 1, 29, 29, 2)],
                [(1, 1, 11, 2, 29, 29, 2)],
            ),
            ([("-U", 1, 1, 11, 2, 29, 29, 2)], [(1, 1, N, 2, N, N, 2)]),
            ([("+U", 1, 1, 11, 2, 30, 30, 3)], [(1, 1, 11, 2, 30, 30, 3)]),
            ([("-D", 1, 1, 12, 3, 30, 30, 2)], [(1, 1, N, 3, 30, 30, 3)]),
            ([("-D", 1, 1, 12, 2, 30, 31, 5)], []),
            ([(1, 1, 11, 2, 30, 31, 6)], [(1, 1, 11, 2, 30, 31, 6)]),
        ],
        keys=("pt", "a"),
        partitions=("pt",),
        ours={3: [(1, 1, 11, 2, 30, 30, 3)]},  # late in the group that removes, a -D is no event of the others
    ),
    Commits(
        "27",
        "k a:STRING b:STRING",
        {**REMOVES_ON_DELETE, **LOOKUP},
        [
            ([(1, N, "apple")], [(1, N, "apple")]),
            ([("-D", 1, N, "apple")], []),
            ([(1, N, "apache")], [(1, N, "apache")]),
            ([(1, "A", N)], [(1, "A", "apache")]),
        ],
    ),
    Commits(
        "28",
        "k s v",
        {**partial(s="v"), "fields.default-aggregate-function": "sum"},
        [([(0, 1, 1)], [(0, 1, 1)]), ([(0, 2, 2)], [(0, 2, 3)])],
    ),
    Commits(
        "36",
        "pt a b c",
        {**aggregation(b="sum", c="max"), "fields.c.ignore-retract": "true"},
        [
            (AGGREGATED_3, [(1, 1, 6, 3)]),
            ([("-U", 1, 1, 1, 1), ("-U", 1, 1, 2, 2), ("-D", 1, 1, 1, 1)], [(1, 1, 2, 3)]),
        ],
        keys=("pt", "a"),
        partitions=("pt",),
    ),
    Commits(
        "39",
        "pt a b c",
        {**aggregation(), "aggregation.remove-record-on-delete": "true"},
        [
            (AGGREGATED_3, [(1, 1, 2, 2)]),
            ([("-U", 1, 1, 2, 2)], [(1, 1, N, N)]),
            ([("+U", 1, 1, 2, 3)], [(1, 1, 2, 3)]),
            ([("-D", 1, 1, 2, 3)], []),
            ([(1, 1, 2, 2)], [(1, 1, 2, 2)]),
        ],
        keys=("pt", "a"),
        partitions=("pt",),
    ),
    Commits(
        "40",
        "pt a b c",
        {**aggregation(), "aggregation.remove-record-on-delete": "true"},
        [([("-D", 1, 1, 2, 2)], []), ([("-D", 1, 1, 2, 2)], [])],
        keys=("pt", "a"),
    ),
    Commits("42", "k v", SUM, [([("-D", 1, 5)], []), ([(1, 7)], [(1, 2)])]),
    Commits("42, compacted between", "k v", SUM, [([("-D", 1, 5)], []), (COMPACT, []), ([(1, 7)], [(1, 7)])]),
    Commits("43", "k v", {**SUM, **LOOKUP}, [([("-D", 1, 5)], [(1, -5)])]),
    Commits(
        "45",
        "k a:ARRAY<STRING>",
        {**aggregation(a="collect"), **LOOKUP},
        [
            ([(1, ["A", "B"])], [(1, ["A", "B"])]),
            ([("-U", 1, ["A", "B"]), ("+U", 1, ["C", "D"])], [(1, ["A", "B", "C", "D"])]),
            ([("-D", 1, ["C", "D"])], [(1, ["A", "B"])]),
        ],
        ours={1: [(1, ["C", "D"])], 2: [(1, [])]},
    ),
    Commits(
        "70",
        "k s v",
        {**SUM, **LOOKUP, "sequence.field": "s", "num-sorted-run.compaction-trigger": "2"},
        [([(1, 7, 7)], [(1, 7, 7)]), ([(1, 8, 8)], [(1, 8, 15)]), ([(1, 6, 6)], [(1, 8, 21)])],
    ),
    Commits(
        "71",
        "k v",
        FIRST_ROW,
        [
            ([(1, 1), (2, 2), (1, 3), (1, 4)], [(1, 1), (2, 2)]),
            ([(1, 1), (2, 2), (1, 3), (3, 3), (4, 4)], [(1, 1), (2, 2), (3, 3), (4, 4)]),
            ([(4, 9), (8, 8)], [(1, 1), (2, 2), (3, 3), (4, 4), (8, 8)]),
        ],
    ),
    Commits("72", "k v", LOOKUP, [([(1, 100), (2, 200)], [(1, 100), (2, 200)]), ([("-D", 1, 100)], [(2, 200)])]),
    Commits("73 aggregation", "k v", {**SUM, **LOOKUP}, [([(1, 30)], [(1, 30)]), ([(1, 70)], [(1, 100)])]),
    Commits("73 partial-update", "k v", {**partial(), **LOOKUP}, [([(1, N)], [(1, N)]), ([(1, 100)], [(1, 100)])]),
    Commits("73 deduplicate", "k v", LOOKUP, [([(1, 50)], [(1, 50)]), ([(1, 100)], [(1, 100)])]),
    Commits("73 first-row", "k v", {**FIRST_ROW, **LOOKUP}, [([(1, 100)], [(1, 100)]), ([(1, 70)], [(1, 100)])]),
]


@pytest.mark.parametrize("vector", MERGED, ids=lambda vector: vector.id)
def test_the_oracle_merges_as_the_sheet_says(vector: Merged) -> None:
    columns = types_of(vector.columns)
    engine = Engine(columns, vector.keys, vector.options)
    records = [Record(as_row(row, columns), kind_of(row, columns), number) for number, row in enumerate(vector.rows)]
    for count, state in vector.states.items():
        with expected_error(state):
            merged = engine.merge(records[:count])
            assert merged is not None
            assert comparable([merged.values], vector) == comparable([as_row(state, columns)], vector)
            assert merged.kind == kind_of(state, columns)
            assert merged.number == count - 1


@pytest.mark.few(12)
@pytest.mark.parametrize("vector", MERGED, ids=lambda vector: vector.id)
def test_one_flush_gives_what_the_sheet_says(vector: Merged, tmp_path: Path) -> None:
    columns = types_of(vector.columns)
    for count, state in vector.states.items():
        table = FreshetTable.create(tmp_path, columns, vector.keys, vector.options, name=f"t{count}")
        with expected_error(state):
            table.commit([as_row(row, columns) for row in vector.rows[:count]])
            state = vector.ours.get(count, state)
            visible = [] if kind_of(state, columns) in RETRACTS else [as_row(state, columns)]
            assert texts(table.read(), dict.fromkeys(vector.sets)) == comparable(visible, vector)
            table.compact()
            assert texts(table.read(), dict.fromkeys(vector.sets)) == comparable(visible, vector)
        if state == (ERROR,):
            assert table.table.snapshots() == []
        table.close()


@pytest.mark.parametrize("vector", MERGED, ids=lambda vector: vector.id)
def test_the_merge_function_gives_kind_and_sequence_number(vector: Merged, tmp_path: Path) -> None:
    """The row before it meets a table: retracts are not dropped."""
    columns = types_of(vector.columns)
    store = FreshetTable.create(tmp_path, columns, vector.keys, vector.options).table.store
    order, function = row_order(store.schema, store.options), merge_function(store.schema, store.options)
    for count, state in vector.states.items():
        rows = system_rows([as_row(row, columns) for row in vector.rows[:count]], columns, vector)
        with expected_error(state):
            merged = merge_table(rows, order, function)
            assert merged[VALUE_KIND_COLUMN].to_pylist() == [kind_of(state, columns)]
            assert merged[SEQUENCE_NUMBER_COLUMN].to_pylist() == [count - 1]
            found = merged.drop_columns([VALUE_KIND_COLUMN, SEQUENCE_NUMBER_COLUMN])
            assert texts(found, dict.fromkeys(vector.sets)) == comparable([as_row(state, columns)], vector)


@pytest.mark.parametrize("vector", COMMITS, ids=lambda vector: vector.id)
def test_the_oracle_follows_commits_as_the_sheet_says(vector: Commits) -> None:
    columns = types_of(vector.columns)
    for by_paimon in (True, False):
        oracle = EngineOracle(columns, vector.keys, vector.options, by_paimon=by_paimon)
        for number, (rows, state) in enumerate(vector.steps):
            if rows == COMPACT:
                oracle.compact()
            else:
                oracle.write([as_row(row, columns) for row in rows])
                oracle.commit()
            wanted = state if by_paimon else vector.ours.get(number, state)
            expected = comparable([as_row(row, columns) for row in wanted], vector)
            assert comparable(list(oracle.rows().values()), vector) == expected


@pytest.mark.parametrize("vector", COMMITS, ids=lambda vector: vector.id)
def test_tables_follow_commits_as_the_sheet_says(vector: Commits, tmp_path: Path) -> None:
    columns = types_of(vector.columns)
    table = FreshetTable.create(tmp_path, columns, vector.keys, vector.options, partition_keys=vector.partitions)
    for number, (rows, state) in enumerate(vector.steps):
        if rows == COMPACT:
            table.compact()
        else:
            table.commit([as_row(row, columns) for row in rows])
        wanted = vector.ours.get(number, state)
        assert texts(table.read()) == comparable([as_row(row, columns) for row in wanted], vector)
    table.close()


def test_vector_72_the_tombstone_is_gone(tmp_path: Path) -> None:
    table = FreshetTable.create(tmp_path, {"k": "INT NOT NULL", "v": "INT"}, ["k"], LOOKUP)
    table.commit([{"k": 1, "v": 100}, {"k": 2, "v": 200}])
    table.commit([{"k": 1, "v": 100, KIND_COLUMN: "-D"}])
    latest = table.table.snapshots()[-1]
    assert latest.commit_kind.value == "COMPACT"
    assert latest.total_record_count == 1
    table.close()


@pytest.mark.parametrize("number", ["aggregation", "partial-update", "deduplicate", "first-row"])
def test_vector_73_each_commit_compacts(number: str, tmp_path: Path) -> None:
    (vector,) = [one for one in COMMITS if one.number == f"73 {number}"]
    columns = types_of(vector.columns)
    table = FreshetTable.create(tmp_path, columns, vector.keys, vector.options)
    for rows, _ in vector.steps:
        table.commit([as_row(row, columns) for row in rows])
    assert [snapshot.commit_kind.value for snapshot in table.table.snapshots()] == ["APPEND", "COMPACT"] * 2
    assert len(table.table.files()) == 1
    table.close()


@dataclass(frozen=True)
class Levels:
    """A vector of records at levels, merged by a compaction with lookup: (level, key, values…) in order of writing."""

    number: str
    columns: str
    options: Mapping[str, str]
    records: Sequence[tuple[Any, ...]]
    state: tuple[Any, ...]


LAST_BY_SEQUENCE = {**LOOKUP, **aggregation(v="last_value"), "sequence.field": "s"}
LEVELS = [
    Levels("60", "k v", LOOKUP, [(2, 1, 1), (1, 1, 2)], (1, 2)),
    Levels("61", "k v", LOOKUP, [(1, 1, 1), (0, 1, 2)], (1, 2)),
    Levels("63", "k v", LOOKUP, [(2, 1, 1), (0, 1, 2)], (1, 2)),
    Levels("66", "k v", LOOKUP, [(2, 1, 2), (0, 1, 2)], (1, 2)),
    Levels("67", "k v s", {**LOOKUP, "sequence.field": "s"}, [(2, 1, 1, 1), (0, 1, 1, 2)], (1, 1, 2)),
    Levels("68", "k v", {**SUM, **LOOKUP}, [(3, 1, 1), (2, 1, 1), (1, 1, 2), (0, 1, 2)], (1, 4)),
    Levels("69, 2 meets 3", "k v s", LAST_BY_SEQUENCE, [(1, 1, 3, 3), (0, 1, 2, 2)], (1, 3, 3)),
    Levels("69, 1 and 3 meet 2", "k v s", LAST_BY_SEQUENCE, [(1, 1, 2, 2), (0, 1, 1, 1), (0, 1, 3, 3)], (1, 3, 3)),
    Levels("lone record, sum of a retract", "k v", {**SUM, **LOOKUP}, [(0, "-D", 1, 5)], (1, -5)),
]


@pytest.mark.parametrize("vector", LEVELS, ids=lambda vector: vector.number)
def test_only_the_lowest_level_counts_besides_level_0(vector: Levels, tmp_path: Path) -> None:
    columns = types_of(vector.columns)
    store = FreshetTable.create(tmp_path, columns, ["k"], vector.options).table.store
    rows = system_rows([as_row(record[1:], columns) for record in vector.records], columns, vector)
    levels = pa.array([record[0] for record in vector.records], pa.int8())
    function = lookup_merge_function(store.schema, store.options)
    if function.reads_levels:
        rows = rows.append_column("_LEVEL", levels)
    segments = sort_segments(rows, row_order(store.schema, store.options))
    merged = function.merge(segments, columns=tuple(columns)).rows
    assert texts(merged.select(list(columns))) == comparable([as_row(vector.state, columns)], vector)


# ---------------------------------------------------------------------------------------------- notation


def types_of(text: str) -> dict[str, str]:
    """Columns written `k v:STRING`: INT if nothing is said; those of the key become NOT NULL when a table is made."""
    columns: dict[str, str] = {}
    for part in _words(text):
        name, _, type_text = part.partition(":")
        columns[name] = type_text or "INT"
    return columns


def _words(text: str) -> list[str]:
    words: list[str] = []
    for piece in text.split(" "):
        if words and words[-1].count("<") > words[-1].count(">"):
            words[-1] += " " + piece
        else:
            words.append(piece)
    return words


def as_row(row: tuple[Any, ...], columns: Mapping[str, str]) -> Values:
    """A row as a dict; a kind comes before the values."""
    kind, values = (row[0], row[1:]) if len(row) > len(columns) else ("+I", row)
    return {**dict(zip(columns, values, strict=False)), KIND_COLUMN: kind}


def kind_of(row: tuple[Any, ...], columns: Mapping[str, str]) -> int:
    """The kind's code; merged rows are +I or -D."""
    return KINDS.index(row[0]) if len(row) > len(columns) else INSERT


def comparable(rows: Sequence[Values], vector: Any) -> list[str]:
    """Rows in the form of `texts`."""
    return texts(arrow_rows(rows, types_of(vector.columns)), dict.fromkeys(getattr(vector, "sets", ())))


def system_rows(rows: Sequence[Values], columns: Mapping[str, str], vector: Any) -> pa.Table:
    """Rows as the merge sees them: sequence number, kind, columns."""
    table = arrow_rows(rows, columns).drop_columns([KIND_COLUMN])
    kinds = [KINDS.index(row[KIND_COLUMN]) for row in rows]
    table = table.add_column(0, VALUE_KIND_COLUMN, pa.array(kinds, pa.int8()))
    return table.add_column(0, SEQUENCE_NUMBER_COLUMN, pa.array(range(len(rows)), pa.int64()))


@contextmanager
def expected_error(state: tuple[Any, ...]) -> Iterator[None]:
    """An error if the vector says so."""
    if state == (ERROR,):
        with pytest.raises((CannotMerge, StorageError)):
            yield
    else:
        yield
