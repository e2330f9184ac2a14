"""The outcome table of the Debezium formats: what becomes of each record that really arrives."""

# ruff: noqa: E501 - one line per record
from __future__ import annotations

import base64
import json

import pytest

from freshet.pipeline.exceptions import StoppedByRecordError
from tests.pipeline.records import (
    ORDER_SCHEMA,
    TOAST,
    Decoded,
    Record,
    change,
    decoded,
    flat_with_schema,
    pipeline_of,
    with_schema,
)

ROW = {"id": 1, "status": "new", "total": "AeJA", "at": 1700000000123456, "doc": "d"}  # AeJA = 123456 at scale 4
SHOWN = "1, new, 12.3456, 2023-11-14 22:13:20.123456, d"
ROW_2 = {**ROW, "id": 2}
SHOWN_2 = SHOWN.replace("1, new", "2, new")
KEY_ONLY = {"id": 1, "status": "", "total": "AA==", "at": 0, "doc": None}
"""`before` under REPLICA IDENTITY DEFAULT: NOT NULL columns are filled with made-up values."""
LONG = "x" * 40

# With a schema the same bytes and numbers mean what it says: scale 2, milliseconds.
SCHEMA_ROW = {"id": 1, "status": "new", "total": "MDk=", "at": 1700000000123, "doc": "d"}
SCHEMA_SHOWN = "1, new, 123.4500, 2023-11-14 22:13:20.123000, d"

ENVELOPE = [
    ("snapshot read", change("r", None, ROW, snapshot="true"), f"+I({SHOWN})"),
    ("create", change("c", None, ROW), f"+I({SHOWN})"),
    ("update", change("u", None, {**ROW, "status": "paid"}), f"+U({SHOWN.replace('new', 'paid')})"),
    ("update with before, producer not input", change("u", ROW, {**ROW, "doc": None}), f"+U({SHOWN[:-1]}None)"),
    ("update of the key", change("u", ROW, ROW_2), f"-D(1, None, None, None, None); +I({SHOWN_2})"),
    ("delete, full before", change("d", ROW, None), f"-D({SHOWN})"),
    ("delete, made-up values", change("d", KEY_ONLY), "-D(1, , 0.0000, 1970-01-01 00:00:00, None)"),
    ("delete, only the key", change("d", {"id": 1}), "-D(1, None, None, None, None)"),
    ("delete, value that does not fit", change("d", {**ROW, "total": "x"}), f"-D({SHOWN.replace('12.3456', 'None')})"),
    ("delete without before, key in the message key", Record(change("d"), {"id": 7}), "-D(7, None, None, None, None)"),
    ("the same with a schema", Record(change("d"), flat_with_schema({"id": 7})), "-D(7, None, None, None, None)"),
    ("delete without any key", change("d"), "dead None: a delete without before and without the key in the message key"),
    ("tombstone", Record(None, {"id": 1}), "skip tombstone"),
    ("tombstone as JSON null", b"null", "skip tombstone"),
    ("tombstone in a schema", with_schema(None), "skip tombstone"),
    ("message", {**change("m"), "message": {"prefix": "p", "content": "AQ=="}}, "skip message"),
    ("heartbeat", {"ts_ms": 1700000000000}, "skip heartbeat"),
    ("heartbeat with schema", with_schema({"ts_ms": 1700000000000}), "skip heartbeat"),
    ("transaction", {"status": "BEGIN", "id": "771:23480", "event_count": None, "data_collections": None, "ts_ms": 1},
     "skip transaction"),
    ("schema change", {"source": {}, "ts_ms": 1, "databaseName": "shop", "ddl": "CREATE TABLE t", "tableChanges": []},
     "skip schema change"),
    ("truncate, skipped", change("t"), "skip truncate"),
    ("key change as captured: d", change("d", {"id": 1}), "-D(1, None, None, None, None)"),
    ("with schema", with_schema(change("c", None, SCHEMA_ROW)), f"+I({SCHEMA_SHOWN})"),
    ("with schema, delete", with_schema(change("d", SCHEMA_ROW)), f"-D({SCHEMA_SHOWN})"),
    ("with schema, key change", with_schema(change("u", SCHEMA_ROW, {**SCHEMA_ROW, "id": 3})),
     f"-D(1, None, None, None, None); +I({SCHEMA_SHOWN.replace('1, new', '3, new')})"),
    ("decimal as struct", change("c", None, {**ROW, "total": {"scale": 1, "value": "Hg=="}}),
     f"+I({SHOWN.replace('12.3456', '3.0000')})"),
    ("decimal as string", change("c", None, {**ROW, "total": "12.5"}), f"+I({SHOWN.replace('12.3456', '12.5000')})"),
    ("decimal as double", change("c", None, {**ROW, "total": 12.5}), f"+I({SHOWN.replace('12.3456', '12.5000')})"),
    ("decimal not exact", change("c", None, {**ROW, "total": 1.23456}),
     "dead total: the value of field total does not fit DECIMAL(14, 4) (exactly)"),
    ("decimal NaN", change("c", None, {**ROW, "total": "NAN"}),
     "dead total: the value of field total does not fit DECIMAL(14, 4) (exactly)"),
    ("decimal Infinity", change("c", None, {**ROW, "total": "POSITIVE_INFINITY"}),
     "dead total: the value of field total does not fit DECIMAL(14, 4) (exactly)"),
    ("integer out of range", change("c", None, {**ROW, "id": 2**63}), "dead id: the value of field id does not fit BIGINT"),
    ("timestamp out of range", change("c", None, {**ROW, "at": 2**62}),
     "dead at: the value of field at does not fit TIMESTAMP(6)"),
    ("ISO timestamp", change("c", None, {**ROW, "at": "2023-11-14T22:13:20.123456Z"}), f"+I({SHOWN})"),
    ("TOAST, before has it", change("u", {**ROW, "doc": LONG}, {**ROW, "doc": TOAST}), f"+U({SHOWN[:-1]}{LONG})"),
    ("TOAST, before made it up", change("u", {**ROW, "doc": ""}, {**ROW, "doc": TOAST}), f"+U({SHOWN[:-1]}None) keep 4"),
    ("TOAST, no before", change("u", None, {**ROW, "doc": TOAST}), f"+U({SHOWN[:-1]}None) keep 4"),
    ("the placeholder in an insert", change("c", None, {**ROW, "doc": TOAST}), f"+I({SHOWN[:-1]}None) keep 4"),
    ("JSON object into a STRING", change("c", None, {**ROW, "doc": {"a": [1, None]}}), f'+I({SHOWN[:-1]}{{"a":[1,null]}})'),
    ("unknown field", change("c", None, {**ROW, "extra": 1}), f"+I({SHOWN})"),
    ("NULL in the key", change("c", None, {**ROW, "id": None}), "dead id: NULL in a key column"),
    ("missing key", change("c", None, {"status": "new"}), "dead id: NULL in a key column"),
    ("key change into a bad row", change("u", ROW, {**ROW_2, "total": "x"}),
     "dead total: the value of field total does not fit DECIMAL(14, 4) (exactly)"),
    ("no after", change("c"), "dead None: no after in the record"),
    ("no JSON", b"{broken", "dead None: the value is not JSON of the form expected"),
    ("something behind the JSON", json.dumps(change("c", None, ROW)).encode() + b" x",
     "dead None: the value is not JSON of the form expected"),
    ("line break behind the JSON", json.dumps(change("c", None, ROW)).encode() + b"\n", f"+I({SHOWN})"),
    ("not UTF-8", b'{"op":"c","after":{"id":"\xff\xfe"}}', "dead None: the value is not JSON of the form expected"),
    ("an array", [1], "dead None: the value is not JSON of the form expected"),
    ("empty", b"", "dead None: the value is empty"),
    ("no envelope", {"id": 1}, "dead None: no Debezium envelope: op is missing"),
    ("unknown op", change("z", None, ROW), "dead None: unknown op z"),
]  # fmt: skip


@pytest.fixture(scope="module", params=[1, 30], ids=["few", "many"])
def envelopes(request: pytest.FixtureRequest) -> tuple[Decoded, int]:
    """All of them at once: a few take the careful path, of many alike the fast path learns."""
    times = request.param
    config = pipeline_of(on_truncate="skip")
    return decoded(config, [record for _, record, _ in ENVELOPE for _ in range(times)]), times


@pytest.mark.parametrize("place", range(len(ENVELOPE)), ids=[title for title, _, _ in ENVELOPE])
def test_what_becomes_of_an_envelope(envelopes: tuple[Decoded, int], place: int) -> None:
    found, times = envelopes
    expected = ENVELOPE[place][2]
    shown = found.shown[place * times : (place + 1) * times]
    assert shown == ["" if expected.startswith("skip") else expected] * times


def test_every_record_is_counted_exactly_once(envelopes: tuple[Decoded, int]) -> None:
    found, times = envelopes
    firsts = [row for rows in found.rows for row in rows if row["_sub"] == 0]
    skipped: dict[str, int] = {}
    for _, _, expected in ENVELOPE:
        if expected.startswith("skip "):
            skipped[expected[5:]] = skipped.get(expected[5:], 0) + times
    assert found.tally.read == len(ENVELOPE) * times == len(firsts) + sum(skipped.values())
    assert found.tally.skipped == skipped
    assert found.tally.notes == {"unknown field extra": times, "TOAST value from before: doc": times}


def test_only_what_is_or_may_become_a_dead_letter_carries_the_raw_record(envelopes: tuple[Decoded, int]) -> None:
    found, times = envelopes
    for place, (title, record, _) in enumerate(ENVELOPE):
        for row in found.rows[place * times]:
            value = record.value if isinstance(record, Record) else record
            raw = value if isinstance(value, bytes) else json.dumps(value, ensure_ascii=False).encode()
            assert row["_raw_value"] == (raw if row["_tag"] == 1 or row["_unavailable"] else None), title


def test_truncate_stops_the_run_and_says_what_to_do() -> None:
    with pytest.raises(StoppedByRecordError) as caught:
        decoded(pipeline_of(), [change("c", None, ROW), change("t")])
    message = str(caught.value)
    assert "truncate record at shop.public.orders partition 0 offset 1" in message
    assert "on_truncate: skip" in message


def test_an_unknown_field_stops_the_run_where_it_should() -> None:
    with pytest.raises(StoppedByRecordError) as caught:
        decoded(pipeline_of(on_unknown_field="fail"), [change("c", None, {**ROW, "extra": 1, "more": 2})])
    assert "unknown field extra, more in the record at shop.public.orders partition 0 offset 0" in str(caught.value)


def test_with_producer_input_an_update_brings_its_before_image() -> None:
    records = [
        change("u", ROW, {**ROW, "status": "paid"}),
        change("u", None, ROW),
        change("u", {"id": 1}, ROW),
        change("u", ROW, ROW_2),
        change("u", {**ROW, "total": "x"}, ROW),
        change("d", ROW),
    ]
    found = decoded(pipeline_of(options={"changelog-producer": "input"}), records)
    assert found.shown == [
        f"-U({SHOWN}); +U({SHOWN.replace('new', 'paid')})",
        f"+U({SHOWN})",
        f"+U({SHOWN})",
        f"-D({SHOWN}); +I({SHOWN_2})",
        "dead total: the value of field total does not fit DECIMAL(14, 4) (exactly)",
        f"-D({SHOWN})",
    ]
    assert [row["_sub"] for row in found.rows[0]] == [0, 1]


def test_the_sequence_of_a_delete_comes_from_the_envelope_or_it_is_dead() -> None:
    config = pipeline_of(
        {"id": "BIGINT", "v": "STRING", "lsn": "BIGINT"},
        options={"sequence.field": "lsn"},
        select={"id": "id", "v": "status", "lsn": "_source.lsn"},
    )
    records = [
        change("c", None, ROW, lsn=5),
        change("r", None, ROW, lsn=None),
        change("d", {"id": 1}, lsn=6),
        change("d", {"id": 1}, lsn=None),
        change("u", ROW, ROW_2, lsn=9),
    ]
    dead = "dead lsn: the sequence field of a deletion is NULL: it would be ordered as the oldest change of its key"
    assert decoded(config, records).shown == [
        "+I(1, new, 5)",
        "+I(1, new, None)",
        "-D(1, None, 6)",
        dead,
        "-D(1, None, 9); +I(2, new, 9)",
    ]


def test_deletes_have_zeros_in_not_null_columns_and_other_rows_are_dead() -> None:
    columns = {
        "id": "BIGINT", "s": "STRING NOT NULL", "n": "DECIMAL(5,2) NOT NULL", "t": "TIMESTAMP(3) NOT NULL",
        "x": "TIMESTAMP(9) NOT NULL", "b": "BYTES NOT NULL", "a": "ARRAY<INT> NOT NULL", "d": "DATE NOT NULL",
    }  # fmt: skip
    found = decoded(pipeline_of(columns), [change("d", {"id": 1}), change("c", None, {"id": 1})])
    assert found.shown[0] == "-D(1, , 0.00, 1970-01-01 00:00:00, 0, b'', [], 1970-01-01)"
    assert found.shown[1] == "dead s: NULL in a NOT NULL column"


def test_unavailable_binary_values_and_arrays_are_kept_and_partial_updates_leave_null() -> None:
    columns = {"id": "BIGINT", "b": "BYTES", "a": "ARRAY<STRING>", "t": "STRING"}
    coded = base64.b64encode(TOAST.encode()).decode()
    record = change("u", None, {"id": 1, "b": coded, "a": [TOAST], "t": "z"})
    (kept,) = decoded(pipeline_of(columns), [record]).shown
    assert kept == "+U(1, None, None, z) keep 1,2"
    left = decoded(pipeline_of(columns, options={"merge-engine": "partial-update"}), [record])
    assert left.shown == ["+U(1, None, None, z)"]
    assert left.tally.notes == {"TOAST value left NULL: b": 1, "TOAST value left NULL: a": 1}


def test_a_table_without_primary_key_appends_updates_and_refuses_deletes() -> None:
    records = [change("c", None, ROW), change("u", ROW, ROW_2), change("d", ROW)]
    assert decoded(pipeline_of(primary_key=()), records).shown == [
        f"+I({SHOWN})",
        f"+I({SHOWN_2})",
        "dead None: a deletion, and the table has no primary key",
    ]


UNWRAPPED = [
    ("row", ROW, f"+I({SHOWN})"),
    ("row with schema", flat_with_schema(SCHEMA_ROW), f"+I({SCHEMA_SHOWN})"),
    ("row with added fields", {**ROW, "__op": "u", "__source_lsn": 5, "__deleted": "false"}, f"+U({SHOWN})"),
    ("rewritten delete", {**ROW, "__deleted": "true"}, f"-D({SHOWN})"),
    ("rewritten delete as boolean", {"id": 4, "__deleted": True}, "-D(4, None, None, None, None)"),
    ("delete by op", {**ROW, "__op": "d"}, f"-D({SHOWN})"),
    ("tombstone", Record(None, {"id": 5}), "-D(5, None, None, None, None)"),
    ("tombstone, key with schema", Record(None, flat_with_schema({"id": 6}, ORDER_SCHEMA[:1])), "-D(6, None, None, None, None)"),
    ("tombstone in a schema", Record(flat_with_schema(None), {"id": 6}), "-D(6, None, None, None, None)"),
    ("tombstone without a key", Record(None, None), "dead None: a tombstone whose key is not a JSON object"),
    ("tombstone with a key that is no object", Record(None, b"abc"), "dead None: a tombstone whose key is not a JSON object"),
    ("tombstone whose key lacks the column", Record(None, {"other": 1}), "dead id: NULL in a key column"),
    ("heartbeat", Record({"ts_ms": 1}, {"serverName": "shop"}), "skip heartbeat"),
    ("transaction", {"status": "END", "id": "1", "event_count": 2, "data_collections": [], "ts_ms": 3}, "skip transaction"),
    ("schema change", {"source": {}, "databaseName": "shop", "ddl": "ALTER", "ts_ms": 1}, "skip schema change"),
    ("truncate", {"id": None, "__op": "t"}, "skip truncate"),
    ("TOAST", {**ROW, "doc": TOAST, "__op": "u"}, f"+U({SHOWN[:-1]}None) keep 4"),
    ("no JSON", b"x", "dead None: the value is not a JSON object"),
    ("payload no object", flat_with_schema(5), "dead None: the payload is not a JSON object"),
]  # fmt: skip


def test_what_becomes_of_unwrapped_records() -> None:
    config = pipeline_of(format="debezium-unwrapped", on_truncate="skip")
    found = decoded(config, [record for _, record, _ in UNWRAPPED])
    expectations = ["" if expected.startswith("skip") else expected for _, _, expected in UNWRAPPED]
    titles = [title for title, _, _ in UNWRAPPED]
    assert dict(zip(titles, found.shown, strict=True)) == dict(zip(titles, expectations, strict=True))
    assert found.tally.notes == {}
    assert found.tally.skipped == {"heartbeat": 1, "transaction": 1, "schema change": 1, "truncate": 1}


def test_metadata_of_unwrapped_records_comes_from_the_added_fields() -> None:
    config = pipeline_of(
        {"id": "BIGINT", "lsn": "BIGINT", "op": "STRING", "ts": "BIGINT"},
        format="debezium-unwrapped",
        select={"id": "id", "lsn": "_source.lsn", "op": "_op", "ts": "_ts_ms"},
    )
    records = [{"id": 1, "__op": "c", "__lsn": 7, "__ts_ms": 8}, {"id": 2, "__op": "u", "__source_lsn": 9}]
    assert decoded(config, records).shown == ["+I(1, 7, c, 8)", "+U(2, 9, u, None)"]
