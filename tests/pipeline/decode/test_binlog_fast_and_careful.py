"""Messages of Canal and Maxwell: the fast path gives what the careful path gives, on any mixture of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from freshet.pipeline.decode.decoder import RecordDecoder
from tests.kit.hypothesis_profile import examples
from tests.pipeline.binlog_records import canal, maxwell
from tests.pipeline.records import decoder_of, octets, pipeline_of, run

COLUMNS = {
    "id": "BIGINT", "b": "BOOLEAN", "tiny": "TINYINT", "i": "INT", "f": "FLOAT", "d": "DOUBLE",
    "total": "DECIMAL(14,4)", "s": "STRING", "v": "VARCHAR(3)", "x": "BYTES", "day": "DATE", "t": "TIME(3)",
    "at": "TIMESTAMP(6)", "z": "TIMESTAMP_LTZ(3)",
}  # fmt: skip
_PLAIN: dict[str, Any] = {
    "id": "1", "b": "1", "tiny": "7", "i": "5", "f": "0.5", "d": "1.5", "total": "12.5", "s": "text",
    "v": "abc", "x": "q80=", "day": "2024-02-29", "t": "10:00:00", "at": "2024-02-29 10:00:00.123456",
    "z": "2024-02-29 10:00:00",
}  # fmt: skip
_TYPED = {**_PLAIN, "id": 1, "b": 1, "tiny": 7, "i": 5, "f": 0.5, "d": 1.5}
_TEXTS = st.sampled_from(
    ["", "abc", "äöü", "abcd", "12", "-1.5", "q80=", "NaN", "1234", "+123", "007", "-0", "-0.0", "0.1", "16777217",
     "1e3", "128", "-128", "2147483648", "9223372036854775807", "9223372036854775808", "999999999999999999", "true",
     "2", "TRUE", "3.4028235677973366e38", "00.50", " 5", "5 ", "2024-02-30", "0000-00-00", "0000-00-00 00:00:00",
     "10:00:00.5", "-01:00:00", "838:59:59", "2024-02-29 10:00:00", "2024-02-29T10:00:00Z",
     "2024-02-29 10:00:00.1234567", "\U0001f600", "123456789012345.123"]
)  # fmt: skip
_VALUES = st.one_of(
    st.none(),
    _TEXTS,
    _TEXTS,
    st.integers(-300, 300),
    st.sampled_from([2**63, -0.0, 1.25, True, ["a", "b"], {"k": [1]}]),
)


@st.composite
def _rows(draw: st.DrawFn, plain: dict[str, Any]) -> dict[str, Any]:
    row = dict(plain, id=type(plain["id"])(draw(st.integers(0, 3))))
    for name in draw(st.lists(st.sampled_from([*COLUMNS, "extra", "more"]), max_size=2)):
        row[name] = draw(_VALUES)
    for name in draw(st.lists(st.sampled_from(list(COLUMNS)), max_size=1)):
        row.pop(name, None)
    return row


@st.composite
def _olds(draw: st.DrawFn, plain: dict[str, Any]) -> Any:
    if draw(st.integers(0, 9)) == 0:
        return draw(st.sampled_from([None, 5, {}, {"gone": "x"}]))
    row = draw(_rows(plain))
    return {name: row[name] for name in draw(st.lists(st.sampled_from(["id", "i", "s", "at", "total"]))) if name in row}


_MEMBERS = st.fixed_dictionaries(
    {},
    optional={
        "table": st.sampled_from(["orders"] * 4 + ["users", "", None, 5]),
        "database": st.sampled_from(["shop"] * 3 + [None]),
        "ts": st.sampled_from([5, -5, None, "7", 1.5, 2**62, 2**64]),
        "es": st.sampled_from([5, None, "7", "x"]),
        "xid": st.sampled_from([5, None, "x"]),
    },
)


@st.composite
def _canal(draw: st.DrawFn) -> Any:
    kind = draw(
        st.sampled_from(["INSERT", "UPDATE", "UPDATE", "DELETE"] * 4 + ["TRUNCATE", "QUERY", "ALTER", "x", None])
    )
    rows: Any = draw(st.lists(_rows(_PLAIN), min_size=1, max_size=draw(st.sampled_from([1, 1, 4]))))
    old: Any = [draw(_olds(_PLAIN)) for _ in rows] if kind == "UPDATE" else None
    odd = draw(st.integers(0, 29))
    if odd == 0:
        rows = draw(st.sampled_from([None, [], [None], ["x"], {"id": "1"}, [*rows, None]]))
    elif odd == 1:
        old = draw(st.sampled_from([None, [], [{}], "x", [{}, {}]]))
    return canal(kind, rows, old, **draw(_MEMBERS))


@st.composite
def _maxwell(draw: st.DrawFn) -> Any:
    kinds = ["insert", "update", "update", "delete", "bootstrap-insert"] * 3 + [
        "bootstrap-start",
        "table-alter",
        "x",
        None,
    ]
    kind = draw(st.sampled_from(kinds))
    row: Any = draw(_rows(_TYPED)) if draw(st.integers(0, 19)) else draw(st.sampled_from([None, [], "x", {}]))
    return maxwell(kind, row, draw(_olds(_TYPED)) if kind == "update" else None, **draw(_MEMBERS))


_BROKEN = st.sampled_from(
    [b"{broken", b"", b"null", b"[1]", b'{"type":"INSERT","data":[{"id":"\xff"}]}', b'{"type":"insert"} x',
     b'{"type":"INSERT","data":[{"id":"1","id":"2"}]}', b'{"type":"insert","data":{"id":1,"s":"\\ud800"}}', None]
)  # fmt: skip

_ALL = {name: name for name in COLUMNS}
SOURCES: dict[str, dict[str, Any]] = {
    "plain": {},
    "input": {"options": {"changelog-producer": "input"}},
    "sums": {"options": {"merge-engine": "aggregation", "fields.i.aggregate-function": "sum"}},
    "partial": {"options": {"merge-engine": "partial-update"}},
    "no key": {"primary_key": ()},
    "ignore": {"options": {"ignore-delete": "true"}},
    "only": {"only": {"table": "orders", "db": "shop"}},
    "any": {"only": "any"},
    "metadata": {"select": {**_ALL, "i": "_source.es", "s": "_op", "d": "d", "id": "id", "tiny": "_source.xid"}},
    "its table": {"select": {**_ALL, "s": "_source.table", "v": "_source.database"}},
    "sequence": {"select": {**_ALL, "lsn": "_ts_ms"}, "options": {"sequence.field": "lsn"}},
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
        assert repr(left) == repr(right), octets(record)
        assert [row["_sub"] for row in left] == list(range(len(left)))
    tallies = fast.tally, careful.tally
    assert tallies[0].read == tallies[1].read == len(records)
    assert (tallies[0].skipped, tallies[0].notes) == (tallies[1].skipped, tallies[1].notes)
    assert sorted(tallies[0].tables) == sorted(tallies[1].tables)
    assert sum(map(bool, fast.rows)) + sum(fast.tally.skipped.values()) == len(records)


_SETTINGS = settings(
    max_examples=examples(15), deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
)


def _decoder(source: str, **keys: Any) -> RecordDecoder:
    columns = {**COLUMNS, "lsn": "BIGINT"} if source == "sequence" else COLUMNS
    return decoder_of(pipeline_of(columns, **keys, **SOURCES[source]))


@pytest.mark.few(4)
@pytest.mark.parametrize("source", SOURCES)
@_SETTINGS
@given(records=_mixtures(_canal()))
def test_messages_of_canal(source: str, records: list[Any]) -> None:
    _same(_decoder(source, format="canal-json", on_truncate="skip"), records)


@pytest.mark.few(4)
@pytest.mark.parametrize("source", SOURCES)
@_SETTINGS
@given(records=_mixtures(_maxwell()))
def test_messages_of_maxwell(source: str, records: list[Any]) -> None:
    _same(_decoder(source, format="maxwell-json"), records)
