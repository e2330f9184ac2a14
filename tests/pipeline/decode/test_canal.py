"""Messages of Canal: several rows, the old values of updates, what is passed over, and what is a dead letter."""

from __future__ import annotations

from typing import Any

import pytest

from freshet.pipeline.config.pipeline_file import PipelineConfig
from freshet.pipeline.decode.source_table import SourceTable
from freshet.pipeline.exceptions import ConfigurationError, StoppedByRecordError
from tests.pipeline.binlog_records import canal
from tests.pipeline.records import Record, decoded, decoder_of, pipeline_of

COLUMNS = {"id": "BIGINT", "name": "STRING", "weight": "FLOAT"}


def pipeline(columns: dict[str, str] = COLUMNS, **more: Any) -> PipelineConfig:
    return pipeline_of(columns, format="canal-json", **more)


def row(number: int, name: str = "scooter", weight: str | None = "5.25") -> dict[str, str | None]:
    return {"id": str(number), "name": name, "weight": weight}


def test_each_row_of_a_message_is_a_change() -> None:
    records = [
        canal("INSERT", [row(1), row(2, "car", None)]),
        canal("UPDATE", [row(1, weight="5.5"), row(2, "bike", "3")], [{"weight": "5.25"}, {"name": "car"}]),
        canal("DELETE", [row(1, weight="5.5"), row(2, "bike", "3")]),
    ]  # fmt: skip
    found = decoded(pipeline(), records)
    assert found.shown == [
        "+I(1, scooter, 5.25); +I(2, car, None)",
        "+U(1, scooter, 5.5); +U(2, bike, 3.0)",
        "-D(1, scooter, 5.5); -D(2, bike, 3.0)",
    ]
    assert [row["_sub"] for row in found.rows[1]] == [0, 1] and found.tally.read == 3


def test_the_row_before_is_the_new_one_with_the_old_values_over_it() -> None:
    records = [canal("UPDATE", [row(1, weight="5.5"), row(2, "bike")], [{"weight": None}, {}])]
    found = decoded(pipeline(options={"changelog-producer": "input"}), records)
    assert found.shown == [
        "-U(1, scooter, None); +U(1, scooter, 5.5); -U(2, bike, 5.25); +U(2, bike, 5.25)",
    ]
    assert [row["_sub"] for row in found.rows[0]] == [0, 1, 2, 3]


@pytest.mark.parametrize("producer", ["none", "input"])
def test_another_key_in_old_deletes_the_row_of_that_key(producer: str) -> None:
    """In one of several rows; in the one that has the same key in `old`, as TiCDC writes it, it is not another one."""
    rows, olds = [row(7), row(8), row(9)], [{"name": "car"}, {"id": "3"}, row(9, "car")]
    config = pipeline(options={"changelog-producer": producer})
    for many in (1, 60):
        found = decoded(config, [canal("UPDATE", rows, olds)] * many).shown
        if producer == "none":
            split = "-D(3, None, None); +I(8, scooter, 5.25)"
            expected = f"+U(7, scooter, 5.25); {split}; +U(9, scooter, 5.25)"
        else:
            split = "-D(3, scooter, 5.25); +I(8, scooter, 5.25)"
            first, last = (f"-U({key}, car, 5.25); +U({key}, scooter, 5.25)" for key in (7, 9))
            expected = f"{first}; {split}; {last}"
        assert found == [expected] * many


def test_updates_whose_old_values_are_not_known() -> None:
    records = [canal("UPDATE", [row(1), row(2)], None), canal("UPDATE", [row(1), row(2)], [None, {"name": "x"}])]
    assert decoded(pipeline(options={"changelog-producer": "input"}), records).shown == [
        "+U(1, scooter, 5.25); +U(2, scooter, 5.25)",
        "+U(1, scooter, 5.25); -U(2, x, 5.25); +U(2, scooter, 5.25)",
    ]
    sums = {"merge-engine": "aggregation", "fields.weight.aggregate-function": "sum"}
    dead = "dead weight: the update does not carry the whole row before it, so its value would count twice"
    assert decoded(pipeline(options=sums), records).shown == [dead, dead]


def test_values_are_texts() -> None:
    columns = {
        "id": "BIGINT", "whole": "INT", "exact": "DECIMAL(10,2)", "big": "DECIMAL(20,0)", "flag": "BOOLEAN",
        "bits": "INT", "real": "DOUBLE", "day": "DATE", "time": "TIME(3)", "at": "TIMESTAMP(6)",
        "zoned": "TIMESTAMP_LTZ(3)", "octets": "BYTES", "text": "STRING", "nothing": "INT", "doc": "STRING",
    }  # fmt: skip
    values = {
        "id": "9223372036854775807", "whole": "-7", "exact": "12.50", "big": "18446744073709551615", "flag": "1",
        "bits": "5", "real": "1.5E-5", "day": "2020-02-29", "time": "10:11:12.5", "at": "2020-02-29 10:11:12.123456",
        "zoned": "2020-02-29 10:11:12", "octets": "\u00ff\u0000a", "text": "Fürth", "nothing": None,
        "doc": '{"k": [1, 2]}',
    }  # fmt: skip
    expected = (
        "+I(9223372036854775807, -7, 12.50, 18446744073709551615, True, 5, 1.5e-05, 2020-02-29, 36672500, "
        "2020-02-29 10:11:12.123456, 2020-02-29 10:11:12, b'\\xff\\x00a', Fürth, None, {\"k\": [1, 2]})"
    )
    for many in (1, 40):
        assert (
            decoded(pipeline(columns), [canal("INSERT", [values, values])] * many).shown
            == [f"{expected}; {expected}"] * many
        )


@pytest.mark.parametrize(
    ("data_type", "text"),
    [("INT", "x"), ("INT", "2147483648"), ("DATE", "0000-00-00"), ("TIMESTAMP(6)", "0000-00-00 00:00:00"),
     ("TIMESTAMP(0)", "2020-02-30 00:00:00"), ("TIME(3)", "-01:00:00"), ("DECIMAL(4,2)", "100.00"), ("BYTES", "\u20ac"),
     ("BOOLEAN", "2"), ("VARCHAR(2)", "abc")],
)  # fmt: skip
@pytest.mark.parametrize("many", [1, 30])
def test_a_value_that_does_not_fit_makes_the_message_one_dead_letter(data_type: str, text: str, many: int) -> None:
    config = pipeline({"id": "BIGINT", "v": data_type})
    rows = [{"id": "1", "v": None}, {"id": "2", "v": text}, {"id": "3", "v": None}]
    found = decoded(config, [canal("INSERT", rows), canal("INSERT", rows[:1]), canal("INSERT", rows[1:2])] * many)
    for first, good, alone in zip(*[iter(found.rows)] * 3, strict=True):
        assert len(first) == len(alone) == 1 and first[0]["_sub"] == 0
        assert first[0]["_reason"].startswith("the value of field v does not fit ") and first[0]["_column"] == "v"
        assert first[0]["_raw_value"] is not None and "time_precision_mode" not in first[0]["_reason"]
        assert alone[0]["_reason"] == first[0]["_reason"] and good[0]["_kind"] == 0


def test_null_in_a_key_of_one_row_is_a_dead_letter_too() -> None:
    found = decoded(pipeline(), [canal("INSERT", [row(1), {**row(2), "id": None}, row(3)])] * 30)
    assert found.shown == ["dead id: NULL in a key column"] * 30


def test_what_is_no_change_is_counted() -> None:
    passed = ["CREATE", "ALTER", "ERASE", "RENAME", "CINDEX", "DINDEX"]
    records = [
        *(canal(kind, None, isDdl=True, sql=f"{kind.lower()} …") for kind in passed),
        canal("QUERY", None, isDdl=True, sql="create database shop", table=""),
        canal("QUERY", None, sql="delete from orders"),
        canal("GTID", None), canal("MHEARTBEAT", None), canal("TIDB_WATERMARK", None, _tidb={"watermarkTs": 1}),
        Record(None), b"null", canal("INSERT", [row(1)]),
    ]  # fmt: skip
    found = decoded(pipeline(), records)
    assert found.tally.skipped == {
        "schema change": 7, "statement": 1, "transaction": 1, "heartbeat": 2, "tombstone": 2,
    }  # fmt: skip
    assert found.shown[-1] == "+I(1, scooter, 5.25)" and found.tally.read == len(records)


def test_truncate_stops_the_run_or_is_skipped() -> None:
    records = [canal("INSERT", [row(1)]), canal("TRUNCATE", None, isDdl=True, sql="truncate table orders")]
    with pytest.raises(StoppedByRecordError, match="truncate record at"):
        decoded(pipeline(), records)
    assert decoded(pipeline(on_truncate="skip"), records).tally.skipped == {"truncate": 1}
    others = [records[0], {**records[1], "table": "users"}]
    assert decoded(pipeline(only={"table": "orders"}), others).tally.skipped == {"another table: shop.users": 1}


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (b"{broken", "the value is not JSON of the form expected"),
        (b"[1]", "the value is not JSON of the form expected"),
        (b" ", "the value is empty"),
        ({"data": [row(1)]}, "no Canal message: type is missing"),
        (canal("UPSERT", [row(1)]), "unknown type UPSERT"),
        (canal("INSERT", None), "no rows in data"),
        (canal("INSERT", []), "no rows in data"),
        (canal("DELETE", [None]), "the value is not JSON of the form expected"),
        ({**canal("INSERT", []), "data": row(1)}, "the value is not JSON of the form expected"),
        (canal("UPDATE", [row(1), row(2)], [{"name": "x"}]), "data and old have different numbers of rows"),
        (canal("UPDATE", [row(1)], ["x"]), "the value is not JSON of the form expected"),
    ],
)
def test_what_cannot_be_read_is_a_dead_letter(record: Any, reason: str) -> None:
    good = canal("INSERT", [row(1), row(2)])
    found = decoded(pipeline(), [*[good] * 20, record, *[good] * 20])
    assert found.shown == [
        *["+I(1, scooter, 5.25); +I(2, scooter, 5.25)"] * 20, f"dead None: {reason}",
        *["+I(1, scooter, 5.25); +I(2, scooter, 5.25)"] * 20,
    ]  # fmt: skip


def test_members_of_the_message_are_its_source() -> None:
    columns = {"id": "BIGINT", "es": "BIGINT", "op": "STRING", "ts": "BIGINT", "db": "STRING", "ids": "INT"}
    select = {
        "id": "id",
        "es": "_source.es",
        "op": "_op",
        "ts": "_ts_ms",
        "db": "_source.database",
        "ids": "_source.id",
    }
    found = decoded(pipeline(columns, select=select), [canal("INSERT", [row(1), row(2)])] * 20)
    rest = "1700000000000, INSERT, 1700000000798, shop, 9"
    assert found.shown == [f"+I(1, {rest}); +I(2, {rest})"] * 20
    for text in ("_source.type", "_source.ts", "_source.data", "_source.old"):
        with pytest.raises(ConfigurationError, match=f"{text} cannot be read"):
            decoder_of(pipeline({"id": "BIGINT", "op": "STRING"}, select={"id": "id", "op": text}))
    with pytest.raises(ConfigurationError, match="_source is read member by member"):
        decoder_of(pipeline({"id": "BIGINT", "op": "STRING"}, select={"id": "id", "op": "_source"}))


def test_the_tables_of_the_records_are_reported_and_others_passed_over() -> None:
    records = [canal("INSERT", [row(number)], table="orders" if number % 2 else "users") for number in range(60)]
    found = decoded(pipeline(), records)
    assert {each.table for each in found.tally.tables} == {
        SourceTable("shop", "", "orders"), SourceTable("shop", "", "users"),
    }  # fmt: skip
    chosen = decoded(pipeline(only={"db": "shop", "table": "orders"}), [*records, canal("INSERT", [row(1)], table="")])
    assert chosen.tally.skipped == {"another table: shop.users": 30} and not chosen.tally.tables
    assert chosen.shown[-1].startswith("dead None: the record does not say which table it is of")


def test_unknown_fields_are_noted_once_a_record_or_stop_the_run() -> None:
    rows = [{**row(number), "extra": "x"} for number in (1, 2)]
    found = decoded(pipeline(), [canal("UPDATE", rows, [{"extra": "y"}, {"extra": "z"}])] * 40)
    assert found.tally.notes == {"unknown field extra": 40} and found.shown[0].count("+U") == 2
    with pytest.raises(StoppedByRecordError, match="unknown field extra"):
        decoded(pipeline(on_unknown_field="fail"), [canal("INSERT", rows)])


def test_tables_without_a_key_or_without_deletions() -> None:
    update, delete = canal("UPDATE", [row(2)], [{"id": "1"}]), canal("DELETE", [row(2), row(3)])
    appended = decoded(pipeline(primary_key=()), [update, delete] * 20)
    assert appended.shown[:2] == ["+I(2, scooter, 5.25)", "dead None: a deletion, and the table has no primary key"]
    ignoring = decoded(pipeline(options={"ignore-delete": "true"}), [update, delete] * 20)
    assert ignoring.shown[:2] == ["+U(2, scooter, 5.25)", ""] and ignoring.tally.skipped == {"ignore-delete": 20}
