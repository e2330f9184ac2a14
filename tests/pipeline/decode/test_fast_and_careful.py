"""The fast path gives what the careful path gives, on any mixture of records, whatever was learned before."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from freshet.pipeline.decode.decoder import RecordDecoder
from freshet.pipeline.exceptions import StoppedByRecordError
from tests.kit.hypothesis_profile import examples
from tests.pipeline.records import (
    ORDER_SCHEMA,
    TOAST,
    Record,
    change,
    decoder_of,
    flat_with_schema,
    octets,
    pipeline_of,
    run,
    with_schema,
)

COLUMNS = {
    "id": "BIGINT", "b": "BOOLEAN", "i": "INT", "f": "FLOAT", "d": "DOUBLE", "total": "DECIMAL(14,4)",
    "wide": "DECIMAL(38,6)", "s": "STRING", "v": "VARCHAR(3)", "x": "BYTES", "day": "DATE", "t": "TIME(3)",
    "at": "TIMESTAMP(6)", "z": "TIMESTAMP_LTZ(3)", "ns": "TIMESTAMP(9)", "a": "ARRAY<STRING>",
}  # fmt: skip

_TEXTS = st.sampled_from(
    ["", "abc", "äöü", "abcd", TOAST, "x" * 40, "12", "-1.5", "AeJA", "/w==", "Infinity", "NaN", "1234", "+123", "12=4",
     "A===", "AAAA=", "AAAAAAAAAAA=", "AAAAAAAAAAAA", "2024-02-29", "2024-02-30", "2024-02-29T10:00:00Z", "0000-01-01",
     "2024-02-29T10:00:00.123456789Z", "2024-02-29T10:00:00+01:00", "2024-02-29 10:00:00", "10:00:00", "24:00:00",
     "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ==", "1e3", "00.50", "1.00000", "\u00a0", "\U0001f600"]
)  # fmt: skip
_NUMBERS = st.one_of(
    st.integers(-(2**70), 2**70),
    st.integers(-200, 200),
    st.sampled_from([0, 1, -1, 2**63 - 1, -(2**63), 2**63, 19782, 86_399_999, 86_400_000, 1700000000123456, 10**38]),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from([0.5, 1.0, 12.5, 1.23456, 1e22, 1e-7, 1e39, 16777217.0]),
)
_VALUES = st.one_of(
    st.none(),
    _TEXTS,
    _NUMBERS,
    st.booleans(),
    st.lists(st.one_of(_TEXTS, st.none()), max_size=2),
    st.just([TOAST]),
    st.fixed_dictionaries({"scale": st.integers(-2, 6), "value": st.sampled_from(["AeJA", "/w==", "?", ""])}),
)
_PLAIN: dict[str, Any] = {
    "id": 1, "b": True, "i": 5, "f": 0.5, "d": 1.5, "total": "AeJA", "wide": "12.5", "s": "text", "v": "abc",
    "x": "q80=", "day": 19782, "t": 36000000, "at": 1700000000123456, "z": "2023-11-14T22:13:20.123Z",
    "ns": 1700000000123456789, "a": ["p"],
}  # fmt: skip

_FITTING: dict[str, list[Any]] = {
    "b": [True, 0, 1, "true", None],
    "i": [7, "7", 5.0, None],
    "f": [1, 0.1, "NaN", 16777217, -0.0],
    "d": [1, 1e300, "Infinity", 0.1],
    "total": ["AeJA", "/w==", "-1.5", 1.5, 7, {"scale": 1, "value": "AQ=="}, None],
    "wide": ["12.5", 12.5, "SztMqFqGxHoJ", "+1.50", "AAAAAAAAAAAB", "gAAAAAAAAAA="],
    "s": ["", 5, {"k": [1]}, TOAST, "x" * 40],
    "v": ["äöü", "", 12, None],
    "x": ["q80=", "", TOAST, None],
    "day": [0, "2024-02-29", "2024-02-29Z", None],
    "t": [0, "10:00", "10:00:00.5Z", None],
    "at": [0, "2024-02-29T10:00:00.5Z", "2024-02-29", "2024-02-29T10:00:00+01:00"],
    "z": [1700000000123, "2024-02-29T10:00:00Z", None],
    "ns": [0, "2024-02-29T10:00:00.123456789"],
    "id": [0, 1, 2, "3"],
    "a": [[], ["x", None], "[]", [TOAST], None],
}
"""Forms that fit, so that most records take the fast path once it knows them."""


@st.composite
def _rows(draw: st.DrawFn) -> dict[str, Any]:
    row = dict(_PLAIN, id=draw(st.integers(0, 3)))
    for name in draw(st.lists(st.sampled_from([*COLUMNS, "extra", "more", "__op", "lsn"]), max_size=4)):
        fits = name in _FITTING and draw(st.integers(0, 9)) > 0
        row[name] = draw(st.sampled_from(_FITTING[name]) if fits else _VALUES)
    for name in draw(st.lists(st.sampled_from(list(COLUMNS)), max_size=2)):
        row.pop(name, None)
    return row


@st.composite
def _envelopes(draw: st.DrawFn) -> Any:
    op = draw(st.sampled_from(["c", "r", "u", "d"] * 5 + ["m", "x", None]))
    before = draw(_rows() if op == "d" else st.one_of(st.none(), _rows(), st.just({"id": 1})))
    after = draw(_rows()) if op != "d" and draw(st.integers(0, 9)) else None
    if op == "u" and before and after and draw(st.booleans()):
        before = {**after, **{name: value for name, value in before.items() if name in ("s", "i")}}
    table = draw(st.sampled_from(["orders"] * 8 + ["users", "", None, 5]))
    record = change(op, before, after, table=table, lsn=draw(st.sampled_from([5, 6, None, "7", 2**64, "x"])))  # type: ignore[arg-type]
    if draw(st.integers(0, 4)) == 0:
        del record["source"]
    return with_schema(record) if draw(st.booleans()) else record


@st.composite
def _unwrapped(draw: st.DrawFn) -> Any:
    row = draw(_rows())
    marks = {"__op": ["c", "u", "d", "t"], "__deleted": ["true", "false", True, False, 5], "__lsn": [1, "2", None],
             "__source_lsn": [3, None, "x"], "__ts_ms": [1, "x"], "__table": ["orders", "orders", "users", None, 5],
             "__source_table": [None, "orders"]}  # fmt: skip
    for name, values in marks.items():
        if draw(st.booleans()):
            row[name] = draw(st.sampled_from(values))
    value = flat_with_schema(row) if draw(st.booleans()) else row
    return Record(draw(st.sampled_from([value, value, value, None])), draw(st.sampled_from([{"id": 9}, None])))


_BROKEN = st.sampled_from(
    [b"{broken", b"", b"null", b"[1]", b'{"op":"c","after":{"id":"\xff"}}', b'{"op":"c","after":{"id":1}} x',
     b'{"op":"c","after":{"id":1,"s":"a\nb"}}', b'{"op":"c","after":{"id":1,"s":"\\ud800"}}', b'{"id":1e400}',
     b'{"op":"c","after":{"id":1,"d":1e400}}', b'{"op":"c","after":{"id":1,"id":2}}', b'{"id":1,"id":"2"}']
)  # fmt: skip

SOURCES = {
    "plain": {},
    "input": {"options": {"changelog-producer": "input"}},
    "sums": {"options": {"merge-engine": "aggregation", "fields.i.aggregate-function": "sum"}},
    "partial": {"options": {"merge-engine": "partial-update"}},
    "no key": {"primary_key": ()},
    "ignore": {"options": {"ignore-delete": "true"}},
    "strings": {"decimal_handling_mode": "string", "time_precision_mode": "isostring", "binary_handling_mode": "hex"},
    "lsn": {"select": {**{name: name for name in COLUMNS}, "lsn": "_source.lsn"}, "options": {"sequence.field": "lsn"}},
    "only": {"only": {"table": "orders"}},
    "any": {"only": "any"},
    "whole source": {"select": {**{name: name for name in COLUMNS}, "s": "_source"}},
    "its table": {"select": {**{name: name for name in COLUMNS}, "s": "_source.table"}},
    "only of its table": {"select": {**{name: name for name in COLUMNS}, "s": "_source.table"}, "only": {"db": "shop"}},
}


@st.composite
def _mixtures(draw: st.DrawFn, one: st.SearchStrategy[Any]) -> list[Any]:
    """A few kinds of records, most of them often, so that there is something to learn."""
    kinds = draw(st.lists(one, min_size=1, max_size=4))
    odd = draw(st.lists(st.one_of(one, _BROKEN), max_size=4))
    records = [kinds[place % len(kinds)] for place in range(draw(st.sampled_from([40, 40, 3])))]
    for record in odd:
        records.insert(draw(st.integers(0, len(records))), record)
    return records


def _same(decoder: RecordDecoder, records: list[Any]) -> None:
    fast, careful = run(decoder, records), run(replace(decoder, is_careful=True), records)
    for record, left, right in zip(records, fast.rows, careful.rows, strict=True):
        value = record.value if isinstance(record, Record) else record
        assert repr(left) == repr(right), octets(value)
    assert (fast.tally.read, fast.tally.skipped, fast.tally.notes) == (
        careful.tally.read, careful.tally.skipped, careful.tally.notes,
    )  # fmt: skip
    assert sorted(fast.tally.tables) == sorted(careful.tally.tables)


_SETTINGS = settings(
    max_examples=examples(15), deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
)


@pytest.mark.few(4)
@pytest.mark.parametrize("source", SOURCES)
@_SETTINGS
@given(records=_mixtures(_envelopes()))
def test_envelopes(source: str, records: list[Any]) -> None:
    columns = {**COLUMNS, "lsn": "BIGINT"} if source == "lsn" else COLUMNS
    config = pipeline_of(columns, on_truncate="skip", **SOURCES[source])
    _same(decoder_of(config), records)


def _kinds() -> st.SearchStrategy[Any]:
    kinds = st.sampled_from(["+I", "-D", "+U", "-U", "x", 5])
    return st.builds(lambda row, kind: {**row, "kind": kind}, _rows(), kinds)


@_SETTINGS
@given(records=_mixtures(_unwrapped()))
def test_unwrapped_rows(records: list[Any]) -> None:
    select = {**{name: name for name in COLUMNS}, "lsn": "_source.lsn", "op": "_op", "ts": "_ts_ms"}
    columns = {**COLUMNS, "lsn": "BIGINT", "op": "STRING", "ts": "BIGINT"}
    for only in ({}, {"only": {"table": "orders|5"}}):
        config = pipeline_of(columns, format="debezium-unwrapped", on_truncate="skip", select=select, **only)
        _same(decoder_of(config), records)


@_SETTINGS
@given(records=_mixtures(_kinds()))
def test_plain_rows(records: list[Any]) -> None:
    kinds = pipeline_of({**COLUMNS, "kind": "STRING"}, format="row-kind", options={"rowkind.field": "kind"})
    plain = pipeline_of(COLUMNS, format="json")
    for config in (kinds, plain):
        _same(decoder_of(config), records)


def test_the_fields_of_a_schema_are_read_once_and_mean_what_it_says() -> None:
    """Records with two schemas and without one in a block: each decimal has the scale of its own."""
    columns = {"id": "BIGINT", "total": "DECIMAL(14,4)"}
    scaled = [{**each, "parameters": {"scale": "3"}} if each["field"] == "total" else each for each in ORDER_SCHEMA]
    payload = change("c", None, {"id": 1, "total": "AeJA"})
    records = [with_schema(payload), with_schema(payload, scaled), payload] * 40
    spaced = json.dumps(with_schema(payload), separators=(",", ":")).encode()
    found = run(decoder_of(pipeline_of(columns)), [*records, *([spaced] * 40)])
    assert found.shown == ["+I(1, 1234.5600)", "+I(1, 123.4560)", "+I(1, 12.3456)"] * 40 + ["+I(1, 1234.5600)"] * 40


@pytest.mark.parametrize("name", ['a"b', "a\\b", "a\nb", "\ud800", "\x7f", "", "\U0001f600"])
def test_a_field_may_have_any_name(name: str) -> None:
    """Also one that no struct can have as a member: known, and unknown in all of many records."""
    rows = [{"id": number, name: "text"} for number in range(300)]
    records = [json.dumps(change("c", None, row)).encode() for row in rows]
    found = run(decoder_of(pipeline_of({"id": "BIGINT"})), records)
    assert [row["_d0"] for record in found.rows for row in record] == list(range(300))
    assert list(found.tally.notes.values()) == [300]
    strict = pipeline_of({"id": "BIGINT"}, on_unknown_field="fail")
    with pytest.raises(StoppedByRecordError, match="unknown field "):
        run(decoder_of(strict), records)
    if name.isascii() and name.isprintable() and name:
        source = pipeline_of({"id": "BIGINT", name: "STRING"}, format="json")
        known = run(decoder_of(source), [{"id": 1, name: "text"}, {"id": 2}])
        assert [row["_d1"] for record in known.rows for row in record] == ["text", None]
