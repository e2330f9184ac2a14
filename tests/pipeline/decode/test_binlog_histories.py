"""A random history of a MySQL table, as Canal and Maxwell write it: its rows come out.

The rows of the outcomes are applied one by one, in their order. With complete changes (`changelog-producer: input`)
each row that is taken back must be the one that is there.
"""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from freshet.pipeline.decode.carriers import restore_array
from freshet.pipeline.decode.decoder import RecordDecoder
from freshet.pipeline.decode.outcomes import DATA_PREFIX, TAG, TAG_TALLY, Tally
from freshet.pipeline.decode.planning import plan_decoding
from tests.kit.hypothesis_profile import examples
from tests.pipeline.binlog_records import canal, canal_value, maxwell, maxwell_value
from tests.pipeline.records import KINDS, pipeline_of, raw_batch

COLUMNS = {
    "shop": "INT", "id": "BIGINT", "s": "STRING", "total": "DECIMAL(12,3)", "flag": "BOOLEAN", "d": "DOUBLE",
    "at": "TIMESTAMP(6)", "day": "DATE", "octets": "BYTES",
}  # fmt: skip
KEY = ("shop", "id")

Row = dict[str, Any]
_VALUES: dict[str, st.SearchStrategy[Any]] = {
    "s": st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=6),
    "total": st.none() | st.integers(-(10**12) + 1, 10**12 - 1).map(lambda number: Decimal(number).scaleb(-3)),
    "flag": st.none() | st.booleans(),
    "d": st.none() | st.floats(allow_nan=False, allow_infinity=False),
    "at": st.none()
    | st.datetimes(datetime.datetime(1000, 1, 1), datetime.datetime(9999, 12, 31)).map(lambda at: at.replace(fold=0)),
    "day": st.none() | st.dates(datetime.date(1000, 1, 1), datetime.date(9999, 12, 31)),
    "octets": st.none() | st.binary(max_size=5),
}
_KEYS = st.tuples(st.integers(0, 1), st.integers(0, 4))


class History:
    """The rows of the table, and the statements that were written so far: kind, rows, old rows."""

    def __init__(self) -> None:
        self.rows: dict[tuple[int, int], Row] = {}
        self.statements: list[tuple[str, list[Row], list[Row]]] = []

    def add(self, draw: st.DrawFn) -> None:
        """One more statement, of one or more rows."""
        kind = draw(st.sampled_from(["insert", "update", "update", "delete"]))
        keys = draw(st.lists(_KEYS, min_size=1, max_size=3, unique=True))
        olds: list[Row] = []
        news: list[Row] = []
        for key in keys:
            is_there = key in self.rows
            if is_there == (kind == "insert"):
                continue
            old = self.rows.get(key, {})
            if kind == "insert":
                new = self.rows[key] = {**dict(zip(KEY, key, strict=True)), **draw(st.fixed_dictionaries(_VALUES))}
            elif kind == "delete":
                new = self.rows.pop(key)
            else:
                new = {**old, **draw(st.fixed_dictionaries({}, optional=_VALUES))}
                to = draw(_KEYS)
                if to not in self.rows:
                    new |= dict(zip(KEY, to, strict=True))
                    del self.rows[key]
                self.rows[new["shop"], new["id"]] = new
            olds.append({name: value for name, value in old.items() if repr(new[name]) != repr(value)})
            news.append(new)
        if news:
            self.statements.append((kind, news, olds))


@st.composite
def _histories(draw: st.DrawFn) -> History:
    history = History()
    for _ in range(draw(st.integers(1, 30))):
        history.add(draw)
    return history


def _canal(history: History) -> list[Any]:
    def written(rows: list[Row]) -> list[dict[str, str | None]]:
        return [{name: canal_value(value) for name, value in row.items()} for row in rows]

    return [
        canal(kind.upper(), written(rows), written(olds) if kind == "update" else None)
        for kind, rows, olds in history.statements
    ]


def _maxwell(history: History) -> list[Any]:
    def written(row: Row) -> dict[str, Any]:
        return {name: maxwell_value(value) for name, value in row.items()}

    return [
        maxwell(kind, written(row), written(old) if kind == "update" else None)
        for kind, rows, olds in history.statements
        for row, old in zip(rows, olds, strict=True)
    ]


def _folded(decoder: RecordDecoder, records: list[Any], *, is_whole: bool) -> dict[tuple[int, int], Row]:
    """The rows after the outcomes of the records, which come in batches of seven."""
    batches = [raw_batch(records[start : start + 7], first=start) for start in range(0, len(records), 7)]
    outcomes: list[Row] = []
    tally = Tally()
    for batch in decoder(iter(batches)):
        if batch.column(TAG)[0].as_py() == TAG_TALLY:
            tally = Tally.decode(batch.column("_raw_value")[0].as_py())
            continue
        columns = [
            restore_array(batch.column(f"{DATA_PREFIX}{index}"), column.field.type).to_pylist()
            for index, column in enumerate(decoder.plan.columns)
        ]
        heads = [batch.column(name).to_pylist() for name in ("_offset", "_sub", "_kind", "_reason")]
        outcomes += [
            {"place": (offset, sub), "kind": KINDS[kind], "row": dict(zip(COLUMNS, values, strict=True))}
            for offset, sub, kind, _, *values in zip(*heads, *columns, strict=True)
        ]
    assert tally.read == len(records) and tally.error is None and not tally.skipped
    rows: dict[tuple[int, int], Row] = {}
    for each in sorted(outcomes, key=lambda outcome: outcome["place"]):
        row = each["row"]
        key = row["shop"], row["id"]
        if each["kind"] in ("-U", "-D"):
            gone = rows.pop(key)
            assert not is_whole or repr(gone) == repr(row)
        else:
            assert not is_whole or key not in rows
            rows[key] = row
    return rows


@pytest.mark.few(2)
@pytest.mark.parametrize("is_careful", [False, True])
@pytest.mark.parametrize("producer", ["none", "input"])
@pytest.mark.parametrize("format_name", ["canal-json", "maxwell-json"])
@settings(max_examples=examples(60), deadline=None, suppress_health_check=list(HealthCheck))
@given(history=_histories())
def test_the_rows_of_a_history_come_out(format_name: str, producer: str, is_careful: bool, history: History) -> None:
    options = {"changelog-producer": producer}
    config = pipeline_of(COLUMNS, primary_key=KEY, format=format_name, options=options)
    records = _canal(history) if format_name == "canal-json" else _maxwell(history)
    if not records:
        return
    decoder = RecordDecoder(plan_decoding(config, 0), is_careful)
    rows = _folded(decoder, records, is_whole=producer == "input")
    expected = {key: {name: row[name] for name in COLUMNS} for key, row in history.rows.items()}
    assert {key: repr(row) for key, row in rows.items()} == {key: repr(row) for key, row in expected.items()}
