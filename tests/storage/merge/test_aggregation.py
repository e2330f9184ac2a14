"""The engine `aggregation`: MERGING.md §2.6, its corner cases, and random rows against the oracle."""

from __future__ import annotations

from random import Random

import pytest

from freshet.storage.exceptions import InvalidRequestError
from tests.storage.merge.engine_merge import EngineMerge, Row, check_random_rows, numbers

N = None
PLAIN = {"merge-engine": "aggregation"}
REMOVE = {**PLAIN, "aggregation.remove-record-on-delete": "true"}
SUM = {"fields.a.aggregate-function": "sum"}
MAX = {"fields.b.aggregate-function": "max"}
PAIR = "k INT, a INT, b INT"


@pytest.mark.parametrize(
    ("options", "rows", "expected"),
    [
        pytest.param(PLAIN, [("+I", 1, 5, N), ("+U", 1, N, 6)], ("+I", 1, 5, 6), id="last value that is not null"),
        pytest.param({**PLAIN, **SUM}, [("+I", 1, 5, 1), ("-D", 1, 3, 1)], ("+I", 1, 2, N), id="-D takes back only"),
        pytest.param({**PLAIN, **SUM}, [("-U", 1, 5, 1), ("-D", 1, 3, 1)], ("+I", 1, -8, N), id="kind is +I"),
        pytest.param({**REMOVE, **SUM}, [("+I", 1, 5, 1), ("-D", 1, 3, N)], ("-D", 1, 3, N), id="removed"),
        pytest.param({**REMOVE, **SUM}, [("-D", 1, 5, 1), ("+I", 1, 3, N)], ("+I", 1, 8, 1), id="onto the removed row"),
        pytest.param({**REMOVE, **SUM}, [("+I", 1, 5, 1), ("-U", 1, 3, 1)], ("+I", 1, 2, N), id="-U takes back"),
        pytest.param(
            {**PLAIN, "fields.a.aggregate-function": "max", "fields.a.ignore-retract": "true"},
            [("+I", 1, 5, 1), ("-D", 1, 9, 1)],
            ("+I", 1, 5, N),
            id="ignore-retract",
        ),
    ],
)
def test_rows_of_a_key(options: dict[str, str], rows: list[Row], expected: Row) -> None:
    engine = EngineMerge(PAIR, options)
    assert engine.merge(rows) == [expected]
    assert numbers(engine.merged(rows)) == [1]


def test_a_sequence_field_takes_the_last_value() -> None:
    engine = EngineMerge("k INT, a INT, s INT", {**PLAIN, **SUM, "sequence.field": "s"})
    assert engine.merge([("+I", 1, 5, 7), ("+I", 1, 6, 3)]) == [("+I", 1, 11, 7)]
    assert engine.merge([("+I", 1, 5, 7), ("-U", 1, 5, 8)]) == [("+I", 1, 0, N)]


def test_lone_rows_pass_unless_the_table_needs_lookup() -> None:
    engine = EngineMerge(PAIR, {**PLAIN, **SUM})
    rows: list[Row] = [("-D", 1, 5, 1), ("+U", 2, N, 1), ("+I", 3, 1, 1), ("+I", 3, 2, N)]
    assert engine.merge(rows) == [("-D", 1, 5, 1), ("+U", 2, N, 1), ("+I", 3, 3, 1)]
    assert engine.merge(rows, drop_delete=True) == [("+U", 2, N, 1), ("+I", 3, 3, 1)]
    assert engine.merge(rows, lone=False) == [("+I", 1, -5, N), ("+I", 2, N, 1), ("+I", 3, 3, 1)]
    assert (engine.metrics.keys_merged, engine.metrics.keys_in_python) == (1 + 1 + 3, 0)


def test_refusals_name_table_key_column_and_remedy() -> None:
    engine = EngineMerge(PAIR, {**PLAIN, **SUM, **MAX})
    with pytest.raises(InvalidRequestError, match=r"db\.t with key \(k=2\).*'b': max.*fields\.b\.ignore-retract"):
        engine.merge([("+I", 1, 1, 1), ("+I", 2, 1, 1), ("-U", 2, 1, 1)])
    with pytest.raises(InvalidRequestError, match=r"\(k=2\).*'a': the sum overflows INT; give column a a wider type"):
        engine.merge([("+I", 1, 1, 1), ("+I", 2, 1 << 30, 1), ("+I", 2, 1 << 30, 1), ("+I", 2, -9, 1)])


def test_a_projection_merges_only_what_it_needs() -> None:
    engine = EngineMerge(PAIR, {**PLAIN, **SUM, **MAX})
    rows: list[Row] = [("+I", 1, 1 << 30, 1), ("+I", 1, 1 << 30, 4)]
    assert engine.merged(rows, columns=("b",)).to_pylist() == [{"b": 4}]


def test_keys_folded_one_by_one_are_counted() -> None:
    engine = EngineMerge("k INT, a DECIMAL(20, 0)", {**PLAIN, "fields.a.aggregate-function": "product"})
    assert engine.merge([("+I", 1, 2), ("+I", 1, 3), ("+I", 2, 5)]) == [("+I", 1, 6), ("+I", 2, 5)]
    assert (engine.metrics.keys_merged, engine.metrics.keys_in_python) == (1, 1)


FUNCTIONS = {
    "a": "sum",
    "b": "max",
    "c": "last_value",
    "d": "last_non_null_value",
    "e": "first_value",
    "f": "first_non_null_value",
    "g": "product",
    "h": "min",
}
COLUMNS = "k INT, a BIGINT, b INT, c INT, d STRING, e INT, f INT, g BIGINT, h STRING"
NO_RETRACTS = {f"fields.{name}.ignore-retract": "true" for name in "befh"}


@pytest.mark.parametrize("lone", [True, False])
@pytest.mark.parametrize("removes", [True, False])
@pytest.mark.parametrize("seed", range(4))
def test_random_rows_against_the_oracle(removes: bool, lone: bool, seed: int) -> None:
    named = {f"fields.{name}.aggregate-function": function for name, function in FUNCTIONS.items()}
    if removes:
        # Removal and ignore-retract exclude each other: columns that take no retract are left out.
        kept = {"a": "sum", "c": "last_value", "d": "last_non_null_value"}
        options = {**REMOVE, **{f"fields.{name}.aggregate-function": function for name, function in kept.items()}}
        engine = EngineMerge("k INT, a BIGINT, c INT, d STRING", options)
    else:
        engine = EngineMerge(COLUMNS, {**PLAIN, **named, **NO_RETRACTS})
    check_random_rows(engine, lone, Random(seed), keys=60 if seed else 3, rows=300)
