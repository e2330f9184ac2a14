"""Records of several tables in one topic: skipped, reported, or taken on purpose."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from freshet.pipeline.config.pipeline_file import parse_pipeline
from freshet.pipeline.decode.source_table import SourceTable
from freshet.pipeline.exceptions import StoppedByRecordError
from tests.pipeline.records import SOURCE, Record, change, decoded, decoder_of, pipeline_of, run, with_schema

COLUMNS = {"id": "BIGINT", "status": "STRING"}
ORDERS, USERS = SourceTable("shop", "public", "orders"), SourceTable("shop", "public", "users")
_UNWRAPPED: dict[str, Any] = {"format": "debezium-unwrapped"}


def insert(number: int, table: str | None = "orders", **row: Any) -> dict[str, Any]:
    return change("c", None, {"id": number, "status": "new", **row}, table=table)


def unwrapped(number: int, table: str, mark: str = "__source_") -> dict[str, Any]:
    return {"id": number, "status": "new", f"{mark}db": "shop", f"{mark}schema": "public", f"{mark}table": table}


def tables(found: Any) -> Mapping[SourceTable, str]:
    return {each.table: each.where for each in found.tally.tables}


def test_all_tables_are_reported_with_the_place_of_their_first_record() -> None:
    records = [insert(number) for number in range(500)]
    records[70] = insert(70, "users", mail="x")
    found = decoded(pipeline_of(COLUMNS), records)
    topic = "shop.public.orders partition 0 offset"
    assert tables(found) == {ORDERS: f"{topic} 0", USERS: f"{topic} 70"}
    assert found.tally.read == 500 and len([row for row in found.rows if row]) == 500


@pytest.mark.parametrize("every", [2, 100])
@pytest.mark.parametrize("wraps", [False, True])
def test_records_of_other_tables_are_skipped_whatever_they_look_like(every: int, wraps: bool) -> None:
    """A quarter of them with other fields, wrong types, a missing image, truncated; in each of several blocks."""
    odd = [
        insert(1, "users", status=5), insert(1, "users", mail="x"), change("c", None, None, table="users"),
        change("t", table="users"), change("x", table="users"),
    ]  # fmt: skip
    records = [insert(number) if number % every else odd[number // every % 5] for number in range(600)]
    decoder = decoder_of(pipeline_of(COLUMNS, only={"table": "orders"}, on_unknown_field="fail"))
    for _ in range(2):
        found = run(decoder, [with_schema(each) if wraps else each for each in records])
        assert [bool(rows) for rows in found.rows] == [number % every > 0 for number in range(600)]
        assert found.tally.skipped == {"another table: shop.public.users": 600 // every}
        assert not found.tally.tables


def test_names_are_texts_or_patterns_and_what_is_left_out_takes_all() -> None:
    config = pipeline_of(COLUMNS, only={"db": "shop", "table": "orders_[0-9]+|orders"})
    records = [insert(1, "orders_2024"), insert(2), insert(3, "orders_old"), insert(4, "my_orders_1")]
    other = change("c", None, {"id": 5}, db="blog", schema=None, table="orders")
    found = decoded(config, [*records, other])
    assert [bool(rows) for rows in found.rows] == [True, True, False, False, False]
    assert sorted(found.tally.skipped) == [
        "another table: blog.orders", "another table: shop.public.my_orders_1", "another table: shop.public.orders_old"
    ]  # fmt: skip


def test_any_takes_all_and_reports_nothing() -> None:
    found = decoded(pipeline_of(COLUMNS, only="any"), [insert(1), insert(2, "users")])
    assert all(found.rows) and not found.tally.tables


def test_what_is_no_change_counts_as_before() -> None:
    heartbeat, message = {"ts_ms": 1}, {**change("m"), "source": {**SOURCE, "table": ""}}
    transaction = {"status": "BEGIN", "id": "1", "event_count": None, "data_collections": None, "ts_ms": 1}
    for only in ({}, {"only": {"table": "orders"}}):
        found = decoded(pipeline_of(COLUMNS, **only), [None, heartbeat, message, transaction, b"{", insert(1)])
        assert found.tally.skipped == {"tombstone": 1, "heartbeat": 1, "message": 1, "transaction": 1}
        assert found.shown[4].startswith("dead None: ") and found.shown[5] == "+I(1, new)"


def test_a_schema_that_mariadb_does_not_have_is_empty() -> None:
    records = [change("c", None, {"id": number}, schema=None, name="maria") for number in range(60)]
    del records[7]["source"]["schema"]
    assert list(tables(decoded(pipeline_of(COLUMNS), records))) == [SourceTable("shop", "", "orders")]


def test_records_that_name_no_table() -> None:
    """Without `only` they are taken, and report no table; with it, it is not known whether they are wanted."""
    bare = [{"op": "c", "after": {"id": number, "status": "new"}} for number in range(100)]
    taken = decoded(pipeline_of(COLUMNS), bare)
    assert all(taken.rows) and not taken.tally.tables
    dead = decoded(pipeline_of(COLUMNS, only={"table": "orders"}), bare)
    assert all("does not say which table it is of" in text for text in dead.shown)


@pytest.mark.parametrize("mark", ["__source_", "__"])
def test_unwrapped_rows_say_it_in_added_fields(mark: str) -> None:
    records = [unwrapped(number, "users" if number % 3 == 1 else "orders", mark) for number in range(300)]
    both = decoded(pipeline_of(COLUMNS, **_UNWRAPPED), records)
    assert set(tables(both)) == {ORDERS, USERS}
    gone = Record(None, key={"id": 1})
    found = decoded(pipeline_of(COLUMNS, only={"table": "orders"}, **_UNWRAPPED), [*records, gone, {"id": 2}])
    assert found.tally.skipped == {"another table: shop.public.users": 100}
    assert sum(bool(rows) for rows in found.rows[:300]) == 200
    assert all("add.fields=source.db" in text for text in found.shown[300:])


def test_unwrapped_rows_without_them_are_taken() -> None:
    config = pipeline_of(COLUMNS, **_UNWRAPPED)
    plain = [{"id": number, "status": "new"} for number in range(100)]
    assert not decoded(config, plain).tally.tables
    later = decoded(config, [*plain, unwrapped(1, "users")])  # what is refused for its fields is read all the same
    assert list(tables(later)) == [USERS] and all(later.rows)


def test_a_truncate_of_the_table_itself_still_stops() -> None:
    with pytest.raises(StoppedByRecordError, match="truncate record"):
        decoded(pipeline_of(COLUMNS, only={"table": "orders"}), [change("t")])


@pytest.mark.parametrize(
    ("source", "wanted"),
    [
        ("format: debezium-json, only: some", "wants any, or one or more of db, schema and table"),
        ("format: debezium-json, only: {}", "wants any, or one or more of db, schema and table"),
        ("format: debezium-json, only: {tabel: orders}", "unknown key (did you mean 'table'?)"),
        ('format: debezium-json, only: {table: "orders["}', "wants a name, or a regular expression"),
        ("format: json, only: any", "belongs to the Debezium formats, canal-json and maxwell-json, not to json"),
    ],
)
def test_what_only_may_be(source: str, wanted: str) -> None:
    text = (
        f"name: n\nsources:\n  - {{kafka: {{kafka.bootstrap.servers: h:1, subscribe: t}}, {source}}}\n"
        "table: {warehouse: /w, name: a.b, columns: {id: INT}, primary_key: [id], options: {bucket: 1}}\n"
        "checkpoint: /c\n"
    )
    config, problems = parse_pipeline(text, "p.yaml", {})
    assert config is None and [wanted in str(problem) and "p.yaml:3" in str(problem) for problem in problems] == [True]
