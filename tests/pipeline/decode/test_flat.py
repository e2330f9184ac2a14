"""Records that are plain rows: JSON, row kinds, times, names of any kind; and where a row comes from."""

from __future__ import annotations

from tests.pipeline.records import Record, change, decoded, decoder_of, pipeline_of, raw_batch

WIDE = {"id": "BIGINT", "a": "STRING", "b": "STRING", "c": "STRING"}


def test_plain_json() -> None:
    records = [
        {"id": 1, "a": "x", "b": {"k": 1}, "c": None, "zz": 1},
        Record(None, {"id": 1}),
        b"  ",
        b"nonsense",
        [1],
        {"id": "one"},
    ]
    found = decoded(pipeline_of(WIDE, format="json"), records)
    assert found.shown == [
        '+I(1, x, {"k":1}, None)',
        "",
        "dead None: the value is not a JSON object",
        "dead None: the value is not a JSON object",
        "dead None: the value is not a JSON object",
        "dead id: the value of field id does not fit BIGINT",
    ]
    assert found.tally.notes == {"unknown field zz": 1}
    assert found.tally.skipped == {"tombstone": 1}


def test_a_field_carries_the_row_kind() -> None:
    config = pipeline_of({"id": "BIGINT", "a": "STRING"}, format="row-kind", options={"rowkind.field": "kind"})
    kinds = ["+I", "-U", "+U", "-D", "insert", None]
    records = [{"id": 1, "a": "x", "kind": kind} for kind in kinds]
    found = decoded(config, records)
    assert found.shown[:4] == [f"{kind}(1, x)" for kind in kinds[:4]]
    assert found.shown[4] == "dead None: kind is no row kind (+I, -U, +U, -D): insert"
    assert found.shown[5] == "dead None: kind is no row kind (+I, -U, +U, -D): NULL"
    assert found.tally.notes == {}


def test_numbers_that_are_times_need_a_unit_in_plain_json() -> None:
    columns = {"id": "BIGINT", "at": "TIMESTAMP(6)"}
    records = [{"id": 1, "at": 1700000000123}, {"id": 2, "at": "2023-11-14T22:13:20.123"}]
    plain = decoded(pipeline_of(columns, format="json"), records)
    assert plain.shown[0] == (
        "dead at: the value of field at does not fit TIMESTAMP(6) (numbers need time_precision_mode)"
    )
    assert plain.shown[1] == "+I(2, 2023-11-14 22:13:20.123000)"
    connect = decoded(pipeline_of(columns, format="json", time_precision_mode="connect"), records)
    assert connect.shown[0] == "+I(1, 2023-11-14 22:13:20.123000)"


def test_a_source_that_has_said_how_times_are_written_is_not_asked_to() -> None:
    """PostgreSQL's are texts, and its `infinity` no time."""
    config = pipeline_of({"id": "BIGINT", "at": "TIMESTAMP(6)"}, time_precision_mode="isostring")
    found = decoded(config, [change("c", None, {"id": 1, "at": "infinity"})])
    assert found.shown == ["dead at: the value of field at does not fit TIMESTAMP(6)"]


def test_a_change_in_one_part_of_a_composite_key_is_a_key_change() -> None:
    config = pipeline_of({"id": "BIGINT", "day": "DATE", "v": "DOUBLE"}, primary_key=("id", "day"))
    record = change("u", {"id": 1, "day": 19782, "v": 1.5}, {"id": 1, "day": 19783, "v": 2})
    assert decoded(config, [record]).shown == ["-D(1, 2024-02-29, None); +I(1, 2024-03-01, 2.0)"]


def test_names_of_any_kind() -> None:
    columns = {"id": "BIGINT", "odd name": "STRING", "a.b": "STRING", "Id2": "STRING", "it's": "STRING", "key": "INT"}
    record = {"id": 1, "odd name": "o", "a.b": "dot", "Id2": "I", "id2": "lower", "it's": "q", "key": 3}
    for times in (1, 30):
        found = decoded(pipeline_of(columns, format="json"), [record] * times)
        assert found.shown == ["+I(1, o, dot, I, q, 3)"] * times
        assert found.tally.notes == {"unknown field id2": times}, "JSON names are case-sensitive"


def test_rows_carry_their_source_and_place() -> None:
    config = pipeline_of()
    decoder = decoder_of(config)
    batches = [raw_batch([Record(change("c", None, {"id": 1}), partition=4)], first=7)]
    row, tally = (row for batch in decoder(iter(batches)) for row in batch.to_pylist())
    place = [row[name] for name in ("_source", "_rank", "_topic", "_kafka_partition", "_offset", "_sub")]
    assert place == [0, 0, "shop.public.orders", 4, 7, 0]
    assert tally["_source"] == 0


def test_lines_are_counted_over_batches_and_blank_ones_skipped() -> None:
    config = pipeline_of({"id": "BIGINT"}, format="json", kafka=None, files={"path": "/in"})
    batches = [raw_batch([{"id": 1}, b" ", {"id": 2}], is_file=True), raw_batch([b"{", {"id": 3}], is_file=True)]
    rows = [row for batch in decoder_of(config)(iter(batches)) for row in batch.to_pylist()]
    assert [(row["_offset"], row["_d0"]) for row in rows if row["_tag"] == 0] == [(0, 1), (2, 2), (4, 3)]
    assert [row["_offset"] for row in rows if row["_tag"] == 1] == [3]
    assert {row["_rank"] for row in rows if row["_tag"] < 2} == {7}
