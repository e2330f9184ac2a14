"""Messages of Maxwell: values in JSON's types, the old values of updates, what is no change."""

from __future__ import annotations

from typing import Any

import pytest

from freshet.pipeline.config.pipeline_file import PipelineConfig
from freshet.pipeline.decode.source_table import SourceTable
from tests.pipeline.binlog_records import maxwell
from tests.pipeline.records import Record, decoded, pipeline_of

COLUMNS = {"id": "BIGINT", "m": "DOUBLE", "c": "TIMESTAMP(6)", "comment": "STRING"}


def pipeline(columns: dict[str, str] = COLUMNS, **more: Any) -> PipelineConfig:
    return pipeline_of(columns, format="maxwell-json", **more)


def row(number: int, m: float | None = 4.25, comment: str = "light") -> dict[str, Any]:
    return {"id": number, "m": m, "c": "2016-10-21 05:33:37.523000", "comment": comment}


AT = "2016-10-21 05:33:37.523000"


def test_changes() -> None:
    records = [
        maxwell("insert", row(1)), maxwell("bootstrap-insert", row(2, None)),
        maxwell("update", row(1, 5.5), {"m": 4.25, "c": "2016-10-21 05:33:54.631000"}),
        maxwell("delete", row(1, 5.5)),
    ]  # fmt: skip
    assert decoded(pipeline(), records * 20).shown[:4] == [
        f"+I(1, 4.25, {AT}, light)", f"+I(2, None, {AT}, light)", f"+U(1, 5.5, {AT}, light)",
        f"-D(1, 5.5, {AT}, light)",
    ]  # fmt: skip
    whole = decoded(pipeline(options={"changelog-producer": "input"}), records * 20)
    assert whole.shown[2] == f"-U(1, 4.25, 2016-10-21 05:33:54.631000, light); +U(1, 5.5, {AT}, light)"


@pytest.mark.parametrize("many", [1, 40])
def test_another_key_in_old_deletes_the_row_of_that_key(many: int) -> None:
    records = [maxwell("update", row(2), {"id": 1, "comment": "dark"})] * many
    assert decoded(pipeline(), records).shown == [f"-D(1, None, None, None); +I(2, 4.25, {AT}, light)"] * many
    whole = decoded(pipeline(options={"changelog-producer": "input"}), records)
    assert whole.shown == [f"-D(1, 4.25, {AT}, dark); +I(2, 4.25, {AT}, light)"] * many


def test_values_have_the_types_of_json() -> None:
    columns = {
        "id": "BIGINT", "exact": "DECIMAL(10,2)", "text_exact": "DECIMAL(10,2)", "big": "DECIMAL(20,0)",
        "flag": "BOOLEAN", "day": "DATE", "time": "TIME(3)", "at": "TIMESTAMP(6)", "octets": "BYTES", "set": "STRING",
        "doc": "STRING", "year": "INT",
    }  # fmt: skip
    values = {
        "id": 1, "exact": 12.5, "text_exact": "12.50", "big": 18446744073709551615, "flag": 1, "day": "2020-02-29",
        "time": "10:11:12", "at": "2020-02-29 10:11:12", "octets": "q80=", "set": ["b_val", "c_val"],
        "doc": {"k": [1, 2.50]}, "year": 2020,
    }  # fmt: skip
    expected = (
        "+I(1, 12.50, 12.50, 18446744073709551615, True, 2020-02-29, 36672000, 2020-02-29 10:11:12, b'\\xab\\xcd', "
        '["b_val","c_val"], {"k":[1,2.5]}, 2020)'
    )
    for many in (1, 40):
        assert decoded(pipeline(columns), [maxwell("insert", values)] * many).shown == [expected] * many


@pytest.mark.parametrize("many", [1, 40])
def test_dates_that_are_none_are_dead_letters(many: int) -> None:
    records = [maxwell("insert", {**row(1), "c": "0000-00-00 00:00:00"}), maxwell("insert", row(1))] * many
    dead = "dead c: the value of field c does not fit TIMESTAMP(6)"
    assert decoded(pipeline(), records).shown == [dead, f"+I(1, 4.25, {AT}, light)"] * many


def test_what_is_no_change_is_counted() -> None:
    schema = [f"{what}-{how}" for what in ("table", "database") for how in ("create", "alter", "drop")]
    records = [
        maxwell("bootstrap-start", {}), *(maxwell(kind, None, sql="…", **{"def": {}}) for kind in schema),
        maxwell("bootstrap-complete", {}), Record(None),
    ]  # fmt: skip
    found = decoded(pipeline(), records)
    assert found.tally.skipped == {"bootstrap": 2, "schema change": 6, "tombstone": 1}


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (b"{broken", "the value is not JSON of the form expected"),
        (b"", "the value is empty"),
        ({"data": row(1)}, "no Maxwell message: type is missing"),
        (maxwell("truncate", None), "unknown type truncate"),
        (maxwell("insert", None, encrypted={"iv": "x", "bytes": "y"}), "no data in the record"),
        (maxwell("insert", [row(1)]), "the value is not JSON of the form expected"),
        (maxwell("update", row(1), "x"), "the value is not JSON of the form expected"),
    ],
)
def test_what_cannot_be_read_is_a_dead_letter(record: Any, reason: str) -> None:
    good = maxwell("insert", row(1))
    found = decoded(pipeline(), [*[good] * 20, record, *[good] * 20])
    assert found.shown[20] == f"dead None: {reason}" and found.shown.count(f"+I(1, 4.25, {AT}, light)") == 40


def test_metadata_and_table() -> None:
    columns = {"id": "BIGINT", "xid": "BIGINT", "op": "STRING", "ts": "BIGINT", "t": "STRING"}
    select = {"id": "id", "xid": "_source.xid", "op": "_op", "ts": "_ts_ms", "t": "_source.table"}
    records = [maxwell("insert", row(1)), maxwell("insert", row(1), ts=2**62, xid=None)] * 20
    found = decoded(pipeline(columns, select=select), records)
    assert found.shown[:2] == ["+I(1, 23396, insert, 1700000000000, orders)", "+I(1, None, insert, None, orders)"]
    assert [each.table for each in found.tally.tables] == [SourceTable("shop", "", "orders")]
