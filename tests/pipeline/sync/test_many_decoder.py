"""Records of many tables in one stream: each goes to its table, or is counted, or says what is new."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from freshet.pipeline.decode.described_table import SAMPLE
from freshet.pipeline.decode.source_table import SourceTable
from freshet.pipeline.errors.repeating_errors import error_of
from freshet.pipeline.exceptions import StoppedByRecordError
from freshet.pipeline.sync.table_decoding import HELD, NOTHING, ManyPlan
from tests.pipeline.records import Record, change
from tests.pipeline.sync.change_records import (
    COLUMNS,
    ITEMS,
    KEY,
    KNOWN,
    ORDERS,
    USERS,
    assert_counted,
    plain,
    typed,
)
from tests.pipeline.sync.kit import many_plan, run, schema_of, sync_config


@pytest.fixture(scope="module")
def config() -> Any:
    return sync_config()


# --- what is known ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wraps", [False, True])
def test_two_tables_mixed_in_one_block(config: Any, wraps: bool) -> None:
    make: Any = typed if wraps else plain
    records = []
    for number in range(300):
        if number % 3:
            records.append(make(ORDERS, {"id": number, "n": 7}, *(("id", "n") if wraps else ())))
        else:
            records.append(make(USERS, {"id": number, "name": "x"}, *(("id", "name") if wraps else ())))
    found = run(many_plan(config, KNOWN), records[:200], records[200:])
    assert_counted(found, 300)
    assert not found.tally.skipped and not found.seen
    assert found.texts(1) == [f"+I({number}, 7)" for number in range(300) if number % 3]
    assert found.texts(2) == [f"+I({number}, x)" for number in range(0, 300, 3)]
    assert {row["_topic"] for row in found.rows[1]} == {ORDERS}


def test_only_one_table(config: Any) -> None:
    found = run(many_plan(config, KNOWN), [plain(ORDERS, {"id": 1, "n": 2}), plain(ORDERS, {"id": 1, "n": 2}, "d")])
    assert found.texts(1) == ["+I(1, 2)", "-D(1, 2)"]
    assert_counted(found, 2)


def test_no_records_at_all(config: Any) -> None:
    found = run(many_plan(config, KNOWN), [])
    assert (found.rows, found.tally.read, found.seen) == ({}, 0, {})


def test_what_is_no_change_is_counted(config: Any) -> None:
    records = [
        Record(None, KEY),
        plain(ORDERS, {"id": 1, "n": 2}),
        Record({"ts_ms": 1}, topic="__debezium-heartbeat.shop"),
        Record({"status": "BEGIN", "id": "1", "event_count": None, "data_collections": None}, topic="shop.transaction"),
        Record(b"{", topic=ORDERS),
        Record(b"\xff", topic=ORDERS),
        Record(change("c", None, {"id": 1}, table=None), topic=ORDERS),
        Record(change("c", None, {"id": "x", "n": 1}), topic=ORDERS),
        Record(change("c", None, None), topic=ORDERS),
    ]
    found = run(many_plan(config, KNOWN), records)
    assert_counted(found, len(records))
    assert found.texts(1)[0] == "+I(1, 2)"
    assert sum(found.tally.skipped.values()) == 3 and found.tally.skipped["tombstone"] == 1
    dead = {row["_offset"]: row["_reason"] for rows in found.rows.values() for row in rows if row["_reason"]}
    assert sorted(dead) == [4, 5, 6, 7, 8]
    assert dead[6] == "the record does not say which table it is of"
    assert {row["_offset"] for row in found.rows[0]} >= {4, 5, 6}, "they are of no table"
    assert all(row["_raw_value"] for row in found.rows[0])


def test_tombstones_alone(config: Any) -> None:
    found = run(many_plan(config, KNOWN), [Record(None, KEY)] * 3)
    assert_counted(found, 3)
    assert found.tally.skipped == {"tombstone": 3}


def test_tables_that_are_held_back_excluded_or_that_no_rule_takes() -> None:
    config = sync_config([{"exclude": "shop.public.tmp_.*"}, {"from": "shop.public.(.*)", "to": "lake.$1"}])
    records = [
        plain("shop.public.tmp_1", {"id": 1}),
        plain(USERS, {"id": 1}),
        plain(USERS, {"id": 2}),
        Record(change("c", None, {"id": 1}, db="other"), topic="x"),
        plain(ORDERS, {"id": 1, "n": 2}),
    ]
    found = run(many_plan(config, {ORDERS: KNOWN[ORDERS], USERS: HELD}), records)
    assert_counted(found, 5)
    assert found.tally.skipped == {
        "excluded by a rule: shop.public.tmp_1": 1,
        f"{HELD}: {USERS}": 2,
        "no rule takes its table: other.public.orders": 1,
    }
    assert found.texts(1) == ["+I(1, 2)"] and not found.seen


def test_a_truncated_table_stops_the_run(config: Any) -> None:
    found = run(many_plan(config, KNOWN), [plain(USERS, {"id": 1}), Record(change("t"), topic=ORDERS)])
    assert found.tally.error is not None
    error = error_of(found.tally.error)
    assert isinstance(error, StoppedByRecordError) and "shop.public.orders partition 0 offset 1" in str(error)
    skipping = sync_config(source={"on_truncate": "skip"})
    found = run(many_plan(skipping, KNOWN), [plain(USERS, {"id": 1}), Record(change("t"), topic=ORDERS)])
    assert_counted(found, 2)
    assert found.tally.skipped == {"truncate": 1}


def test_tasks_are_those_of_table_and_bucket(config: Any) -> None:
    """Whatever comes for a bucket of a table comes to one task: the decoder's number of the bucket is there."""
    records = [plain(ORDERS, {"id": number, "n": 1}) for number in range(50)]
    found = run(many_plan(config, KNOWN), records)
    assert {row["_bucket"] for row in found.rows[1]} == {0, 1}


# --- what is new ------------------------------------------------------------------------------------------------------


def test_a_new_table_with_a_schema(config: Any) -> None:
    records = [typed(ITEMS, {"id": number, "n": 1}, "id", "n") for number in range(50)]
    found = run(many_plan(config, KNOWN), [plain(ORDERS, {"id": 1, "n": 2}), *records])
    assert (found.tally.read, found.tally.error) == (51, None)
    described = found.seen[ITEMS]
    assert (described.columns, described.keys, described.is_typed) == (COLUMNS, ("id",), True)
    assert described.where == f"{ITEMS} partition 0 offset 1"


def test_a_new_table_without_a_schema_is_described_by_a_sample(config: Any) -> None:
    """Of a block every so many records, of a stream no more than the sample."""
    rows = [{"id": number, "n": number, "late": None if number < 5000 else True} for number in range(6000)]
    found = run(many_plan(config, {}), [plain(ITEMS, row) for row in rows])
    described = found.seen[ITEMS]
    assert described.columns == {"id": "BIGINT", "n": "BIGINT", "late": "BOOLEAN"} and not described.is_typed
    assert found.tally.read == 6000
    parts = [[plain(ITEMS, {"id": number})] for number in range(SAMPLE + 1)]
    parts[-1] = [plain(ITEMS, {"id": 1, "unseen": 1})]
    assert "unseen" not in run(many_plan(config, {}), *parts).seen[ITEMS].columns


def test_deletions_alone_describe_a_table_as_far_as_they_do(config: Any) -> None:
    found = run(many_plan(config, {}), [Record(change("t", table="items"), topic=ITEMS)])
    assert found.seen[ITEMS].is_empty and found.seen[ITEMS].where == f"{ITEMS} partition 0 offset 0"
    found = run(many_plan(config, {}), [plain(ITEMS, {"id": 1}, "d")])
    assert found.seen[ITEMS].columns == {"id": "BIGINT"}


def test_records_of_a_table_that_is_not_there_are_each_looked_at(config: Any) -> None:
    """A sample has seen deletions alone; what is none of them is not lost."""
    bad = [Record(change("zz", table="items"), topic=ITEMS), Record(change("c", None, "x", table="items"), topic=ITEMS)]
    gone = [plain(ITEMS, {"id": 1}, "d"), Record(change("t", table="items"), topic=ITEMS), Record(None, topic=ITEMS)]
    found = run(many_plan(config, {}, nothing=[ITEMS]), [*gone, *bad])
    assert not found.seen
    assert found.tally.skipped == {f"{NOTHING}: {ITEMS}": 2, "tombstone": 1}
    assert len(found.texts(0)) == 2 and all(text.startswith("dead ") for text in found.texts(0))
    assert_counted(found, 5)
    found = run(many_plan(config, {}, nothing=[ITEMS]), [*gone, *bad, plain(ITEMS, {"id": 1, "n": 2})])
    assert found.seen[ITEMS].columns == {"id": "BIGINT", "n": "BIGINT"}


@pytest.mark.parametrize("form", ["compact", "spaced", "payload first", "indented"])
def test_a_wider_type_in_the_middle_whatever_the_form_of_the_json(config: Any, form: str) -> None:
    def formed(record: Record) -> Record:
        tree = json.loads(record.value) if isinstance(record.value, bytes) else record.value
        if form == "payload first":
            tree = dict(reversed(tree.items()))
        separators = (",", ":") if form in ("compact", "payload first") else (", ", ": ")
        value = json.dumps(tree, separators=separators, indent=1 if form == "indented" else None)
        return replace(record, value=value.encode())

    small = typed(ORDERS, {"id": 1, "n": 1}, "id", "n")
    wide = typed(ORDERS, {"id": 2, "n": 1 << 40}, "id", "big")
    for records in ([small, wide, small], [wide, small], [small, plain(ORDERS, {"id": 1, "n": 1}), wide]):
        found = run(many_plan(config, KNOWN), list(map(formed, records)))
        assert found.seen[ORDERS].columns == {"n": "BIGINT"}
    assert not run(many_plan(config, KNOWN), [formed(small)] * 3).seen


def test_a_new_field_of_the_schema(config: Any) -> None:
    old = [typed(ORDERS, {"id": number, "n": 1}, "id", "n") for number in range(20)]
    new = [typed(ORDERS, {"id": number, "n": 1, "note": None}, "id", "n", "note") for number in range(20)]
    mixed = [record for pair in zip(old, new, strict=True) for record in pair]
    for records in ([*old, *new], [*new, *old], mixed):
        found = run(many_plan(config, KNOWN), records)
        described = found.seen[ORDERS]
        assert described.columns == {"note": "STRING"} and described.is_typed
        assert found.tally.read == 40 and found.tally.error is None
    assert not run(many_plan(config, KNOWN), old).seen


def test_a_plan_that_has_followed_sees_nothing_new(config: Any) -> None:
    followed = {**KNOWN, ORDERS: schema_of({**COLUMNS, "note": "STRING"})}
    record = typed(ORDERS, {"id": 1, "n": 1, "note": "x"}, "id", "n", "note")
    for _ in range(2):
        assert run(many_plan(config, KNOWN), [record]).seen
        found = run(many_plan(config, followed), [record])
        assert not found.seen and found.texts(1) == ["+I(1, 1, x)"]


def test_a_field_that_cannot_be_a_column_is_no_news_again(config: Any) -> None:
    """Though the same process has described it before that was known."""
    record = typed(ORDERS, {"id": 1, "n": 1, "note": "x"}, "id", "n", "note")
    assert run(many_plan(config, KNOWN), [record]).seen
    found = run(many_plan(config, KNOWN, passed_over=["note"]), [record])
    assert not found.seen and found.texts(1) == ["+I(1, 1)"]
    assert_counted(found, 1)


@pytest.mark.parametrize(
    ("field", "value", "news", "text"),
    [
        ("big", 1 << 40, {"n": "BIGINT"}, None),
        ("text", "x", None, "dead n: "),
        ("text", "5", None, "+I(1, 5)"),
    ],
)
def test_a_type_that_changes(config: Any, field: str, value: Any, news: dict[str, str] | None, text: str) -> None:
    """A wider one is followed; of another kind nothing is, and values that do not fit are dead letters."""
    found = run(many_plan(config, KNOWN), [typed(ORDERS, {"id": 1, "n": value}, "id", field)])
    if news is not None:
        assert found.seen[ORDERS].columns == news
        return
    assert not found.seen and found.texts(1)[0].startswith(text)
    assert_counted(found, 1)


def test_a_narrower_type_is_none_of_ours(config: Any) -> None:
    wide = {ORDERS: schema_of({"id": "BIGINT", "n": "BIGINT"})}
    found = run(many_plan(config, wide), [typed(ORDERS, {"id": 1, "n": 5}, "id", "n")])
    assert not found.seen and found.texts(1) == ["+I(1, 5)"]


def test_fields_that_are_gone_are_null(config: Any) -> None:
    found = run(many_plan(config, KNOWN), [typed(ORDERS, {"id": 1}, "id"), plain(ORDERS, {"id": 2})])
    assert not found.seen and found.texts(1) == ["+I(1, None)", "+I(2, None)"]


def test_a_new_field_without_a_schema() -> None:
    """Its type can only be guessed, which the file has to want."""
    records = [plain(ORDERS, {"id": number, "n": 1}) for number in range(10)]
    records += [plain(ORDERS, {"id": 10, "n": 1, "flag": True, "text": 'a"b'}), plain(ORDERS, {"id": 11, "flag": None})]
    found = run(many_plan(sync_config(), KNOWN), records)
    assert_counted(found, 12)
    assert not found.seen and any("flag" in note for note in found.tally.notes)
    guessed = run(many_plan(sync_config(schema="infer"), KNOWN), records)
    assert guessed.seen[ORDERS].columns == {"flag": "BOOLEAN", "text": "STRING"}
    assert not guessed.seen[ORDERS].is_typed and guessed.tally.read == 12


def test_guessing_changes_no_types() -> None:
    found = run(many_plan(sync_config(schema="infer"), KNOWN), [plain(ORDERS, {"id": 1, "n": True})])
    assert not found.seen and len(found.texts(1)) == 1


def test_a_field_that_has_only_been_null_is_not_there_yet() -> None:
    found = run(many_plan(sync_config(schema="infer"), KNOWN), [plain(ORDERS, {"id": 1, "n": 1, "flag": None})])
    assert not found.seen and found.texts(1) == ["+I(1, 1)"]
    assert_counted(found, 1)


def test_ignore_counts_new_fields_and_creates_tables() -> None:
    config = sync_config(schema_evolution="ignore")
    record = typed(ORDERS, {"id": 1, "n": 1, "note": "x"}, "id", "n", "note")
    found = run(many_plan(config, KNOWN), [record])
    assert not found.seen and found.texts(1) == ["+I(1, 1)"]
    assert any("note" in note for note in found.tally.notes)
    assert set(run(many_plan(config, KNOWN), [typed(ITEMS, {"id": 1}, "id")]).seen) == {ITEMS}


def test_freeze_says_what_is_new_too() -> None:
    """The driver refuses it."""
    record = typed(ORDERS, {"id": 1, "n": 1, "note": "x"}, "id", "n", "note")
    assert run(many_plan(sync_config(schema_evolution="freeze"), KNOWN), [record]).seen


def test_several_tables_are_new_at_once(config: Any) -> None:
    records = [typed(f"shop.public.t{number}", {"id": 1}, "id") for number in range(20)]
    assert set(run(many_plan(config, {}), records).seen) == {f"shop.public.t{number}" for number in range(20)}


# --- other formats ----------------------------------------------------------------------------------------------------

CANAL = {
    "data": [{"id": "1", "n": "5"}, {"id": "2", "n": None}], "database": "shop", "table": "orders", "es": 1, "ts": 2,
    "isDdl": False, "mysqlType": {"id": "bigint(20)", "n": "int(11)"}, "old": None, "pkNames": ["id"], "type": "INSERT",
}  # fmt: skip


def plan_of(table: SourceTable, format_name: str, columns: Mapping[str, str] = COLUMNS, **section: Any) -> ManyPlan:
    """Of one table, whose name has other parts."""
    config = sync_config([{"from": ".*", "to": "lake.o"}], of=format_name, **section)
    plan = many_plan(config, {ORDERS: schema_of(columns)})
    return replace(plan, tables=dict.fromkeys([table], *plan.tables.values()))


MYSQL = SourceTable("shop", "", "orders")


def test_canal() -> None:
    wide = {**CANAL, "mysqlType": {"id": "bigint(20)", "n": "bigint(20)", "c": "date"}}
    ddl = {**CANAL, "isDdl": True, "data": None, "mysqlType": None, "type": "ALTER", "sql": "ALTER TABLE orders"}
    plan = plan_of(MYSQL, "canal-json")
    found = run(plan, [CANAL, ddl, CANAL])
    assert found.texts(1) == ["+I(1, 5); +I(2, None)"] * 2
    assert_counted(found, 3)
    assert not found.seen
    (described,) = run(plan, [CANAL, ddl, wide]).seen.values()
    assert described.columns == {"n": "BIGINT", "c": "DATE"}
    new = run(plan, [{**CANAL, "table": "items"}]).seen
    assert {name: (each.columns, each.keys) for name, each in new.items()} == {"shop.items": (COLUMNS, ("id",))}


def test_maxwell() -> None:
    message = {"database": "shop", "table": "orders", "type": "insert", "ts": 1, "data": {"id": 1, "n": 5, "x": 1}}
    found = run(plan_of(MYSQL, "maxwell-json"), [message])
    assert found.texts(1) == ["+I(1, 5)"] and not found.seen
    (described,) = run(plan_of(MYSQL, "maxwell-json", schema="infer"), [message]).seen.values()
    assert described.columns == {"x": "BIGINT"}


def test_plain_json_by_topic() -> None:
    plan = plan_of(SourceTable("", "", "a"), "json", schema="infer")
    found = run(plan, [Record({"id": 1, "n": 2}, topic="a"), Record(None, topic="a")])
    assert found.texts(1) == ["+I(1, 2)"]
    assert_counted(found, 2)
    found = run(plan, [Record({"id": 1, "n": 2}, topic="a"), Record({"k": True}, {"k": True}, topic="b")])
    assert {name: (each.columns, each.keys) for name, each in found.seen.items()} == {"b": ({"k": "BOOLEAN"}, ("k",))}


# --- columns of the file ----------------------------------------------------------------------------------------------


def test_metadata_and_computed_columns() -> None:
    names = {
        "m_db": "db", "m_schema": "schema", "m_table": "table", "m_op": "op", "m_ts": "op_ts", "m_topic": "topic",
        "m_partition": "partition", "m_offset": "offset",
    }  # fmt: skip
    config = sync_config(metadata_columns=names, computed_columns={"half": "truncate(n, 10)", "gone": "year(nothing)"})
    kinds = {"m_partition": "INT", "m_offset": "BIGINT", "m_ts": "TIMESTAMP(3) WITH LOCAL TIME ZONE"}
    columns = {**COLUMNS, **{name: kinds.get(name, "STRING") for name in names}, "half": "INT"}
    for make in (plain, lambda *given: typed(*given, "id", "n")):
        found = run(many_plan(config, {ORDERS: schema_of(columns)}), [make(ORDERS, {"id": 1, "n": 17})])
        assert found.texts(1) == [f"+I(1, 17, shop, public, orders, c, 2023-11-14 22:13:20.123000, {ORDERS}, 0, 0, 10)"]


def test_a_field_that_is_called_as_a_computed_column_where_its_input_is_not() -> None:
    """`dt` of all tables, and a table that has a `dt` of its own and no `created`, or another type of it."""
    config = sync_config(computed_columns={"dt": "date_format(created, 'yyyy')"})
    record = plain(ORDERS, {"id": 1, "dt": "2024-02-03", "created": "2023-01-01"})
    for columns, expected in (
        ({"id": "BIGINT", "dt": "STRING"}, "1, 2024-02-03"),
        ({"id": "BIGINT", "dt": "DATE", "created": "DATE"}, "1, 2024-02-03, 2023-01-01"),
        ({"id": "BIGINT", "dt": "STRING", "created": "DATE"}, "1, 2023, 2023-01-01"),
    ):
        found = run(many_plan(config, {ORDERS: schema_of(columns)}), [record])
        assert found.texts(1) == [f"+I({expected})"]


@pytest.mark.parametrize(
    ("format_name", "record", "expected"),
    [
        ("canal-json", CANAL, "shop, None, orders, INSERT, 1970-01-01 00:00:00.001000"),
        ("maxwell-json", {**CANAL, "type": "insert", "data": {"id": 1, "n": 5}, "ts": 2},
         "shop, None, orders, insert, 1970-01-01 00:00:02"),
        ("json", {"id": 1, "n": 5, "m_db": "x", "m_op": "y"}, f"None, None, {ORDERS}, None, None"),
    ],
)  # fmt: skip
def test_metadata_of_other_formats(format_name: str, record: Any, expected: str) -> None:
    names = {"m_db": "db", "m_schema": "schema", "m_table": "table", "m_op": "op", "m_ts": "op_ts"}
    table = SourceTable("", "", ORDERS) if format_name == "json" else MYSQL
    columns = {**COLUMNS, **dict.fromkeys(names, "STRING"), "m_ts": "TIMESTAMP(3) WITH LOCAL TIME ZONE"}
    plan = plan_of(table, format_name, columns, metadata_columns=names)
    assert run(plan, [record]).texts(1)[0].startswith(f"+I(1, 5, {expected})")


@pytest.mark.parametrize(
    "columns", [{"metadata_columns": {"n": "offset"}}, {"computed_columns": {"n": "cast(0, BIGINT)"}}]
)
@pytest.mark.parametrize("section", [{}, {"schema": "infer"}])
def test_a_source_field_of_the_name_of_a_column_of_the_file(columns: Any, section: Any) -> None:
    """It does not fill the column, and is not new in each round."""
    config = sync_config(**columns, **section)
    plan = many_plan(config, {ORDERS: schema_of({"id": "BIGINT", "n": "BIGINT"})})
    for record in (plain(ORDERS, {"id": 1, "n": 17}), typed(ORDERS, {"id": 1, "n": 17}, "id", "n")):
        found = run(plan, [record])
        assert not found.seen and found.texts(1) == ["+I(1, 0)"]
        assert_counted(found, 1)


def test_a_new_field_of_a_schema_in_an_odd_form(config: Any) -> None:
    """With blanks, or the payload first: no prefix of the value is a schema."""
    plan = many_plan(config, KNOWN)
    record = typed(ORDERS, {"id": 1, "n": 1, "note": "x"}, "id", "n", "note")
    assert isinstance(record.value, bytes)
    document = json.loads(record.value)
    for value in (json.dumps(document), json.dumps({"payload": document["payload"], "schema": document["schema"]})):
        found = run(plan, [replace(record, value=value.encode())])
        assert {table: dict(each.columns) for table, each in found.seen.items()} == {ORDERS: {"note": "STRING"}}


def test_a_new_field_of_canal_in_the_middle_of_a_block() -> None:
    def message(number: int, **more: str) -> Record:
        types = {"id": "bigint", "n": "int", **dict.fromkeys(more, "varchar(9)")}
        row = {"id": str(number), "n": "1", **more}
        body = {"type": "INSERT", "database": "shop", "table": "orders", "data": [row], "mysqlType": types}
        return Record(body, {}, topic="t")

    orders = SourceTable("shop", "", "orders")
    found = run(plan_of(orders, "canal-json"), [message(1), message(2, note="x"), message(3)])
    assert {table: dict(each.columns) for table, each in found.seen.items()} == {str(orders): {"note": "STRING"}}


def test_a_wider_type_of_canal_in_the_middle_of_a_block() -> None:
    def message(number: int, kind: str, value: str) -> Record:
        types = {"id": "bigint", "n": kind}
        body = {"type": "INSERT", "database": "shop", "table": "orders", "data": [{"id": str(number), "n": value}]}
        return Record({**body, "mysqlType": types, "pkNames": ["id"]}, {}, topic="t")

    orders = SourceTable("shop", "", "orders")
    ddl = Record({"type": "ALTER", "isDdl": True, "database": "shop", "table": "orders", "sql": "x"}, {}, topic="t")
    found = run(
        plan_of(orders, "canal-json"),
        [message(1, "int", "1"), message(2, "bigint", "99999999999"), message(3, "int", "1"), ddl],
    )
    assert {table: dict(each.columns) for table, each in found.seen.items()} == {str(orders): {"n": "BIGINT"}}
