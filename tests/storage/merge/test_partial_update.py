"""The engine `partial-update`: MERGING.md §2.4 and §2.5, its corner cases, and random rows against the oracle."""

from __future__ import annotations

from decimal import Decimal
from random import Random

import pyarrow as pa
import pytest

from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.merge.engine import merge_function, row_order
from freshet.storage.merge.merge_reader import merge_table
from tests.storage.merge.engine_merge import EngineMerge, Row, check_random_rows, numbers

N = None
PLAIN = {"merge-engine": "partial-update"}
IGNORE = {**PLAIN, "ignore-delete": "true"}
REMOVE = {**PLAIN, "partial-update.remove-record-on-delete": "true"}
GROUP = {**PLAIN, "fields.s.sequence-group": "a,b"}
REMOVE_GROUP = {**GROUP, "partial-update.remove-record-on-sequence-group": "s"}

PAIR = "k INT, a INT, b INT"
GROUPED = "k INT, s INT, a INT, b INT, c INT"


@pytest.mark.parametrize(
    ("options", "rows", "expected"),
    [
        pytest.param(PLAIN, [("+I", 1, 5, N), ("+U", 1, N, 6), ("+I", 1, N, N)], ("+I", 1, 5, 6), id="newest value"),
        pytest.param(PLAIN, [("+I", 1, 5, N), ("+I", 1, 6, N)], ("+I", 1, 6, N), id="never given"),
        pytest.param(IGNORE, [("+I", 1, 5, N), ("-D", 1, 7, 7)], ("+I", 1, 5, N), id="delete ignored"),
        pytest.param(IGNORE, [("-D", 1, 7, 8), ("+I", 1, N, 9)], ("+I", 1, 7, 9), id="leading delete fills"),
        pytest.param(IGNORE, [("-D", 1, 7, 8), ("-U", 1, 9, 9)], ("-D", 1, 7, 8), id="deletes only"),
        pytest.param(REMOVE, [("+I", 1, 5, N), ("-D", 1, 5, N)], ("-D", 1, 5, N), id="removed"),
        pytest.param(REMOVE, [("+I", 1, 5, 6), ("-D", 1, 5, N), ("+I", 1, N, 7)], ("+I", 1, 5, 7), id="added again"),
        pytest.param(REMOVE, [("+I", 1, 5, 6), ("-D", 1, N, 7), ("+I", 1, N, N)], ("+I", 1, N, 7), id="row of delete"),
        pytest.param(REMOVE, [("+I", 1, 5, 6), ("-U", 1, 8, 8)], ("+I", 1, 5, 6), id="-U does nothing"),
        pytest.param(REMOVE, [("-U", 1, 8, 9), ("+I", 1, 5, N)], ("+I", 1, 5, 9), id="leading -U fills"),
        pytest.param(REMOVE, [("-U", 1, 8, 9), ("-U", 1, 5, N)], ("-D", 1, 8, 9), id="no add seen"),
        pytest.param(REMOVE, [("-D", 1, 8, 9), ("-U", 1, 5, N)], ("-D", 1, 8, 9), id="no add, -U last"),
    ],
)
def test_without_groups(options: dict[str, str], rows: list[Row], expected: Row) -> None:
    assert EngineMerge(PAIR, options).merge(rows) == [expected]


@pytest.mark.parametrize(
    ("options", "rows", "expected"),
    [
        pytest.param(GROUP, [("+I", 1, N, 5, 6, 7), ("+I", 1, N, 8, N, N)], ("+I", 1, N, N, N, 7), id="never ordered"),
        pytest.param(GROUP, [("+I", 1, 2, 5, 6, 7), ("+I", 1, 2, N, 9, N)], ("+I", 1, 2, N, 9, 7), id="equal replaces"),
        pytest.param(GROUP, [("+I", 1, 2, 5, 6, 7), ("+I", 1, 1, 8, 8, 8)], ("+I", 1, 2, 5, 6, 8), id="late"),
        pytest.param(GROUP, [("+I", 1, 2, 5, 6, 7), ("-D", 1, 3, 5, 6, 9)], ("+I", 1, 3, N, N, 7), id="group deleted"),
        pytest.param(GROUP, [("+I", 1, 2, 5, 6, 7), ("-D", 1, 1, 5, 6, 9)], ("+I", 1, 2, 5, 6, 7), id="late delete"),
        pytest.param(GROUP, [("-D", 1, N, 5, 6, 7), ("+I", 1, N, 8, 8, N)], ("+I", 1, N, 5, 6, 7), id="leading fills"),
        pytest.param(GROUP, [("-U", 1, 2, 5, 6, 7), ("+I", 1, 1, 8, 8, N)], ("+I", 1, 2, N, N, 7), id="leading orders"),
        pytest.param(GROUP, [("-U", 1, 2, 5, 6, 7), ("-D", 1, N, 8, 8, N)], ("-D", 1, 2, N, N, 7), id="no add"),
        pytest.param(
            {**GROUP, "ignore-delete": "true"},
            [("-D", 1, 2, 5, 6, 7), ("+I", 1, 1, 8, 8, N), ("-D", 1, 9, 9, 9, 9)],
            ("+I", 1, 2, 5, 6, 7),
            id="leading ignored delete orders and keeps its values",
        ),
        pytest.param(REMOVE_GROUP, [("+I", 1, 2, 5, 6, 7), ("-D", 1, 2, N, 6, 9)], ("-D", 1, 2, N, 6, 9), id="removed"),
        pytest.param(
            REMOVE_GROUP, [("+I", 1, 2, 5, 6, 7), ("-D", 1, 1, N, 6, 9)], ("+I", 1, 2, 5, 6, 7), id="too late"
        ),
        pytest.param(REMOVE_GROUP, [("+I", 1, 2, 5, 6, 7), ("-U", 1, 3, N, 6, 9)], ("+I", 1, 3, N, N, 7), id="only -D"),
        pytest.param(
            REMOVE_GROUP,
            [("+I", 1, 2, 5, 6, 7), ("-D", 1, 3, N, 6, 9), ("+I", 1, N, 1, 1, N), ("+I", 1, 2, 1, 1, N)],
            ("+I", 1, 3, N, 6, 9),
            id="removed, then nothing in order",
        ),
    ],
)
def test_groups(options: dict[str, str], rows: list[Row], expected: Row) -> None:
    assert EngineMerge(GROUPED, options).merge(rows) == [expected]


def test_several_removing_groups_reset_each_other() -> None:
    options = {
        **PLAIN,
        "fields.s.sequence-group": "a",
        "fields.t.sequence-group": "b",
        "partial-update.remove-record-on-sequence-group": "s,t",
    }
    engine = EngineMerge("k INT, s INT, t INT, a INT, b INT", options)
    rows: list[Row] = [("+I", 1, 1, 9, 1, 1), ("-D", 1, 2, N, 2, 2), ("-D", 1, N, 3, 3, 3), ("+I", 1, N, 3, 4, 4)]
    # The first delete, ordered by s, forgets t = 9, so that the second one, of t = 3, is in order.
    assert engine.merge(rows) == [("+I", 1, N, 3, 3, 4)]
    assert engine.metrics.keys_in_python == 1


def test_lone_rows_pass_as_they_are() -> None:
    rows: list[Row] = [("-D", 1, 1, 2), ("+U", 2, N, N), ("+I", 3, 1, N), ("+I", 3, N, 2), ("-U", 4, 5, 6)]
    engine = EngineMerge(PAIR, REMOVE)
    table = engine.merged(rows)
    assert engine.merge(rows) == [("-D", 1, 1, 2), ("+U", 2, N, N), ("+I", 3, 1, 2), ("-U", 4, 5, 6)]
    assert numbers(table) == [0, 1, 3, 4]
    assert engine.merge(rows, drop_delete=True) == [("+U", 2, N, N), ("+I", 3, 1, 2)]
    assert engine.merge(rows, lone=False)[1] == ("+I", 2, N, N)
    assert engine.metrics.keys_merged == 1 + 1 + 1 + 4


def test_ignored_rows_do_not_advance_the_sequence_number() -> None:
    engine = EngineMerge(PAIR, IGNORE)
    assert numbers(engine.merged([("+I", 1, 1, 1), ("+I", 1, 2, 2), ("-D", 1, 3, 3)])) == [1]
    assert numbers(engine.merged([("+I", 0, 1, 1), ("-D", 1, 1, 1), ("-D", 1, 3, 3)])) == [0, 0]


def test_a_retract_without_a_rule_names_table_key_and_remedy() -> None:
    engine = EngineMerge(PAIR, PLAIN)
    assert engine.merge([("-D", 7, 1, 1)]) == [("-D", 7, 1, 1)]
    with pytest.raises(InvalidRequestError, match=r"db\.t with key \(k=7\).*remove-record-on-delete"):
        engine.merge([("+I", 1, 1, 1), ("+I", 7, 1, 1), ("-D", 7, 1, 1)])
    with pytest.raises(InvalidRequestError, match="ignore-delete"):
        engine.merge([("-D", 7, 1, 1)], lone=False)


def test_null_in_a_not_null_column_is_refused() -> None:
    engine = EngineMerge("k INT, s INT, a INT NOT NULL", {**PLAIN, "fields.s.sequence-group": "a"})
    with pytest.raises(InvalidRequestError, match=r"\(k=3\).*column 'a' is NOT NULL"):
        engine.merge([("+I", 3, 1, 5), ("-D", 3, 2, 5)])


def test_every_type_of_value() -> None:
    engine = EngineMerge("k INT, s BYTES, a INT, m INT, d DECIMAL(30, 2), e DOUBLE", PLAIN)
    values = {
        "s": pa.array([b"x", None, b""], pa.binary()),
        "a": pa.array([[1, None], None, [2]], pa.list_(pa.int32())),
        "m": pa.array([None, [("x", 1)], None], pa.map_(pa.string(), pa.int32())),
        "d": pa.array([Decimal("1.10"), None, None], pa.decimal128(30, 2)),
        "e": pa.array([-0.0, None, 1.0]),
    }
    system = {"_SEQUENCE_NUMBER": pa.array([0, 1, 2], pa.int64()), "_VALUE_KIND": pa.array([0, 0, 0], pa.int8())}
    table = pa.table({**system, "k": pa.array([1, 1, 2], pa.int32()), **values})
    merged = merge_table(table, row_order(engine.schema, engine.options), merge_function(engine.schema, engine.options))
    assert merged.schema == table.schema
    expected = [(b"x", [1, None], [("x", 1)], Decimal("1.10"), -0.0), (b"", [2], None, None, 1.0)]
    assert [tuple(row[name] for name in values) for row in merged.to_pylist()] == expected


def test_columns_needed_are_the_ordering_columns() -> None:
    options = {
        **PLAIN,
        "fields.s.sequence-group": "a",
        "fields.t,u.sequence-group": "b",
        "fields.r.sequence-group": "c",
        "partial-update.remove-record-on-sequence-group": "r",
    }
    engine = EngineMerge("k INT, s INT, t INT, u INT, r INT, a INT, b INT, c INT, d INT", options)
    function = merge_function(engine.schema, engine.options)
    assert function.columns_needed(("d",)) == ("d", "r")
    assert sorted(function.columns_needed(("b", "s"))) == ["b", "r", "s", "t", "u"]
    assert sorted(function.columns_needed(("u",))) == ["r", "t", "u"]


def test_a_projection_gives_what_all_columns_give() -> None:
    engine = EngineMerge(GROUPED, REMOVE_GROUP)
    rows: list[Row] = [("+I", 1, 2, 5, 6, 7), ("-D", 1, 3, N, 6, 9), ("+I", 1, 4, 1, N, N)]
    assert engine.merged(rows, columns=("b", "c")).to_pylist() == [{"b": N, "c": 9}]
    assert engine.merged(rows, columns=()).num_columns == 0


RANDOM_SHAPES = [
    pytest.param(PAIR, IGNORE, id="ignore-delete"),
    pytest.param(PAIR, REMOVE, id="remove-record-on-delete"),
    pytest.param(GROUPED, GROUP, id="one group"),
    pytest.param(GROUPED, {**GROUP, "ignore-delete": "true"}, id="one group, ignore-delete"),
    pytest.param(GROUPED, REMOVE_GROUP, id="one removing group"),
    pytest.param(
        "k INT, a INT, s INT, b INT, t STRING, u INT, c INT, d INT",
        {
            **PLAIN,
            "fields.s.sequence-group": "a,b",
            "fields.t,u.sequence-group": "c,d",
            "partial-update.remove-record-on-sequence-group": "u,s",
        },
        id="two removing groups",
    ),
    pytest.param(
        "k INT, a BIGINT, s BIGINT, b INT, e INT, t BIGINT, u INT, c INT, d INT, f INT, g INT",
        {
            **PLAIN,
            "fields.s.sequence-group": "a,b,e,g",
            "fields.t,u.sequence-group": "c,d",
            "fields.a.aggregate-function": "sum",
            "fields.b.aggregate-function": "first_non_null_value",
            "fields.b.ignore-retract": "true",
            "fields.e.aggregate-function": "last_value",
            "fields.c.aggregate-function": "last_non_null_value",
            "fields.d.aggregate-function": "first_value",
            "fields.d.ignore-retract": "true",
            "fields.f.aggregate-function": "last_non_null_value",
            "fields.g.aggregate-function": "min",
            "fields.g.ignore-retract": "true",
            "partial-update.remove-record-on-sequence-group": "u,s",
        },
        id="functions, two removing groups",
    ),
    pytest.param(
        "k INT, s BIGINT, a BIGINT, b INT",
        {**GROUP, "fields.a.aggregate-function": "product", "fields.b.aggregate-function": "sum"},
        id="product and sum",
    ),
    pytest.param(
        "k INT, s BIGINT, t INT, a INT, b INT, c INT, d INT",
        {
            **PLAIN,
            "fields.s.sequence-group": "a,b",
            "fields.t.sequence-group": "c,d",
            "fields.default-aggregate-function": "last_non_null_value",
            "fields.a.aggregate-function": "max",
            "fields.a.ignore-retract": "true",
            "fields.c.aggregate-function": "last_value",
            "ignore-delete": "true",
        },
        id="functions, ignore-delete",
    ),
]


@pytest.mark.few(24)
@pytest.mark.parametrize("lone", [True, False])
@pytest.mark.parametrize(("columns", "options"), RANDOM_SHAPES)
@pytest.mark.parametrize("seed", range(4))
def test_random_rows_against_the_oracle(columns: str, options: dict[str, str], lone: bool, seed: int) -> None:
    check_random_rows(EngineMerge(columns, options), lone, Random(seed), keys=40 if seed else 2, rows=300)
