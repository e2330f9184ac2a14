"""What becomes of records whose table is not merged by deduplicate: sequence groups, ignored deletes, sums."""

# ruff: noqa: E501 - one line per record
from __future__ import annotations

from tests.pipeline.records import TOAST, Record, change, decoded, pipeline_of

WIDE = {"id": "BIGINT", "status": "STRING", "doc": "STRING", "lsn": "BIGINT", "paid": "INT", "paid_lsn": "BIGINT"}
GROUPS = {
    "merge-engine": "partial-update",
    "fields.lsn.sequence-group": "status,doc",
    "fields.paid_lsn.sequence-group": "paid",
}
SELECT = {"id": "id", "status": "status", "doc": "doc", "lsn": "_source.lsn"}
ROW = {"id": 1, "status": "new", "doc": "d"}
LONG = "x" * 40
UNORDERED = "dead lsn: NULL in the ordering of its sequence group (lsn): its values would never be taken"
NO_DELETION = "dead lsn: NULL in the ordering of the sequence group (lsn): the deletion would change nothing"

STREAM = [
    ("create", change("c", None, ROW, lsn=5), "+I(1, new, d, 5, None, None)"),
    ("update", change("u", None, ROW, lsn=6), "+U(1, new, d, 6, None, None)"),
    ("delete, whole row before", change("d", ROW, lsn=7), "-D(1, new, d, 7, None, None)"),
    ("delete, only the key before", change("d", {"id": 1}, lsn=7), "-D(1, None, None, 7, None, None)"),
    ("delete, key in the message key", Record(change("d", lsn=7), {"id": 1}), "-D(1, None, None, 7, None, None)"),
    ("delete without lsn", change("d", ROW, lsn=None), NO_DELETION),
    ("key change", change("u", ROW, {**ROW, "id": 2}, lsn=8),
     "-D(1, None, None, 8, None, None); +I(2, new, d, 8, None, None)"),
    ("row without lsn", change("r", None, ROW, lsn=None), UNORDERED),
    ("nothing but the key, without lsn", change("r", None, {"id": 1}, lsn=None), "+I(1, None, None, None, None, None)"),
    ("unavailable in the group", change("u", None, {**ROW, "doc": TOAST}, lsn=9), "+U(1, new, None, 9, None, None) keep 2"),
    ("unavailable, before has it", change("u", {**ROW, "doc": LONG}, {**ROW, "doc": TOAST}, lsn=9),
     f"+U(1, new, {LONG}, 9, None, None)"),
    ("unavailable without lsn", change("u", None, {"id": 1, "doc": TOAST}, lsn=None), UNORDERED),
    ("tombstone", Record(None, {"id": 1}), "skip tombstone"),
]  # fmt: skip


def test_one_stream_of_a_wide_table() -> None:
    config = pipeline_of(WIDE, options=GROUPS, select=SELECT)
    found = decoded(config, [record for _, record, _ in STREAM])
    titles = [title for title, _, _ in STREAM]
    expectations = ["" if expected.startswith("skip") else expected for _, _, expected in STREAM]
    assert dict(zip(titles, found.shown, strict=True)) == dict(zip(titles, expectations, strict=True))


def test_flat_records_delete_by_flag_or_tombstone_if_they_say_when() -> None:
    select = {"id": "id", "paid": "amount", "paid_lsn": "_source.lsn"}
    config = pipeline_of(WIDE, options=GROUPS, select=select, format="debezium-unwrapped")
    records = [
        {"id": 1, "amount": 5, "__source_lsn": 3, "__deleted": "false"},
        {"id": 1, "amount": None, "__source_lsn": 4, "__deleted": "true"},
        Record(None, {"id": 1}),
        {"id": 1, "amount": 5},
    ]
    dead = "dead paid_lsn: NULL in the ordering of "
    assert decoded(config, records).shown == [
        "+I(1, None, None, None, 5, 3)",
        "-D(1, None, None, None, None, 4)",
        dead + "the sequence group (paid_lsn): the deletion would change nothing",
        dead + "its sequence group (paid_lsn): its values would never be taken",
    ]
    by_offset = pipeline_of(WIDE, options=GROUPS, select={**select, "paid_lsn": "_offset"}, format="debezium-unwrapped")
    assert decoded(by_offset, records).shown[2:] == [
        "-D(1, None, None, None, None, 2)",
        "+I(1, None, None, None, 5, 3)",
    ]


def test_a_source_of_two_groups_deletes_if_one_of_them_is_ordered() -> None:
    select = {**SELECT, "paid": "paid", "paid_lsn": "paid_at"}
    config = pipeline_of(WIDE, options=GROUPS, select=select)
    records = [
        change("d", {"id": 1}, lsn=7),
        change("d", {"id": 1}, lsn=None),
        change("c", None, {**ROW, "paid": 5}, lsn=7),
        change("c", None, {**ROW, "paid": 5, "paid_at": 1}, lsn=7),
    ]
    assert decoded(config, records).shown == [
        "-D(1, None, None, 7, None, None)",
        "dead lsn: NULL in the ordering of the sequence group (lsn; paid_lsn): the deletion would change nothing",
        "dead paid_lsn: NULL in the ordering of its sequence group (paid_lsn): its values would never be taken",
        "+I(1, new, d, 7, 5, 1)",
    ]


def test_unavailable_values_outside_groups_stay_null_and_are_noted() -> None:
    options = {"merge-engine": "partial-update", "fields.lsn.sequence-group": "status"}
    config = pipeline_of(WIDE, options=options, select=SELECT)
    found = decoded(config, [change("u", None, {**ROW, "status": TOAST, "doc": TOAST}, lsn=9)])
    assert found.shown == ["+U(1, None, None, 9, None, None) keep 1"]
    assert found.tally.notes == {"TOAST value left NULL: doc": 1}


def test_deletions_that_the_table_ignores_are_skipped() -> None:
    config = pipeline_of({"id": "BIGINT", "status": "STRING"}, options={"ignore-delete": "true"})
    records = [change("d", {"id": 1}), change("u", {"id": 1, "status": "new"}, {"id": 2, "status": "new"}), change("d")]
    assert decoded(config, records).shown == [
        "",
        "+U(2, new)",
        "dead None: a delete without before and without the key in the message key",
    ]
    kinds = pipeline_of(
        {"id": "BIGINT", "op": "STRING"}, format="row-kind",
        options={"rowkind.field": "op", "ignore-update-before": "true"},
    )  # fmt: skip
    found = decoded(kinds, [{"id": 1, "op": "-U"}, {"id": 1, "op": "+U"}, {"id": 1, "op": "-D"}])
    assert found.shown == ["", "+U(1, +U)", "-D(1, -D)"]


def test_what_adds_up_retracts_the_row_before_an_update() -> None:
    columns = {"id": "BIGINT", "n": "INT"}
    options = {"merge-engine": "aggregation", "fields.n.aggregate-function": "sum"}
    records = [
        change("c", None, {"id": 1, "n": 5}),
        change("u", {"id": 1, "n": 5}, {"id": 1, "n": 7}),
        change("u", None, {"id": 1, "n": 7}),
        change("u", {"id": 1}, {"id": 1, "n": 7}),
        change("u", {"id": 1, "n": 7}, {"id": 2, "n": 7}),
        change("d", {"id": 2, "n": 7}),
    ]
    dead = "dead n: the update does not carry the whole row before it, so its value would count twice"
    assert decoded(pipeline_of(columns, options=options), records).shown == [
        "+I(1, 5)", "-U(1, 5); +U(1, 7)", dead, dead, "-D(1, 7); +I(2, 7)", "-D(2, 7)",
    ]  # fmt: skip
    for key in ("fields.n.ignore-retract", "ignore-delete", "ignore-update-before"):
        found = decoded(pipeline_of(columns, options={**options, key: "true"}), records[1:3])
        assert found.shown == ["+U(1, 7)", "+U(1, 7)"], key
