"""Renamed columns: what records of the schema change topic say, what a table takes of it, which names a schema has."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from freshet.logstore.kafka.sampled_record import SampledRecord
from freshet.pipeline.decode.change import RawRecord
from freshet.pipeline.decode.described_table import DescribedTable
from freshet.pipeline.decode.schema_changes import FoundRenames, renames_in, schema_change_of, source_table_of
from freshet.pipeline.decode.source_table import SourceTable as SourceName
from freshet.pipeline.sync.rename_report import rename_warnings
from freshet.pipeline.sync.renames import NO_RENAMES, Renames, own_names, taken
from freshet.pipeline.sync.table_decoding import plan_table
from freshet.storage.table import RenameColumn
from tests.kit.source_database import SourceTable, schema_change
from tests.pipeline.records import change, flat_with_schema, octets, with_schema
from tests.pipeline.sync.kit import route_to, schema_of, sync_config

PLACE = ("shop", 0, 7)


def statement(offset: int, names: Mapping[str, str], *columns: str) -> FoundRenames:
    """A statement, and the columns behind it."""
    return FoundRenames("shop", 0, offset, tuple(names.items()), ("id", *columns))


def table(*columns: str) -> Any:
    return schema_of({"id": "INT", **dict.fromkeys(columns, "INT")}, options={"bucket": "1"})


# --- records of the topic ---------------------------------------------------------------------------------------------


def payload(ddl: str, *columns: str, **more: Any) -> dict[str, Any]:
    found = schema_change(SourceTable("shop", "", "t", {"id": "int", **dict.fromkeys(columns, "int")}), ddl)
    found["tableChanges"][0] |= more
    return found


@pytest.mark.parametrize(
    ("body", "pairs"),
    [
        (payload("ALTER TABLE t RENAME COLUMN a TO b", "b"), [("a", "b")]),
        (payload("ALTER TABLE `shop`.T CHANGE COLUMN A B INT", "b"), [("A", "b")]),
        (payload("ALTER TABLE t RENAME COLUMN a TO b, RENAME COLUMN b TO a", "b", "a"), [("a", "b"), ("b", "a")]),
        (payload("ALTER TABLE t RENAME COLUMN a TO A", "A"), [("a", "A")]),
        (payload("ALTER TABLE t RENAME COLUMN a TO b", "a", "b"), []),  # the table does not bear it out
        (payload("ALTER TABLE t RENAME COLUMN a TO b", "a"), []),
        (payload("ALTER TABLE other RENAME COLUMN a TO b", "b"), []),
        (payload("ALTER TABLE u RENAME COLUMN a TO b", "b", previousId='"shop"."u"'), []),
        (payload("ALTER TABLE t ADD COLUMN b INT", "a", "b"), []),
        (payload("CREATE TABLE t (b INT)", "b", type="CREATE"), []),
    ],
)
def test_what_is_renamed(body: dict[str, Any], pairs: list[tuple[str, str]]) -> None:
    ((found_table, found),) = renames_in(body, PLACE)
    assert found_table == SourceName("shop", "", "t")
    assert list(found.pairs) == pairs
    assert FoundRenames.of(json.loads(json.dumps(found.to_document()))) == found


@pytest.mark.parametrize(
    "body",
    [
        payload("DROP TABLE t", "b", type="DROP"),
        payload("ALTER TABLE t RENAME COLUMN a TO b", "b", id="t"),
        payload("ALTER TABLE t RENAME COLUMN a TO b", "b", table=None),
        {"ddl": "ALTER TABLE t RENAME COLUMN a TO b", "databaseName": "shop"},
        {"ddl": None, "tableChanges": [7]},
        {},
    ],
)
def test_what_says_nothing(body: dict[str, Any]) -> None:
    assert list(renames_in(body, PLACE)) == []


def test_names_of_tables_and_columns_in_their_order() -> None:
    assert source_table_of('"a"."b c"."d"') == SourceName("a", "b c", "d")
    assert source_table_of("a.b") is None and source_table_of('"a"') is None and source_table_of("") is None
    body = payload("ALTER TABLE t RENAME COLUMN a TO b", "c", "b")
    body["tableChanges"][0]["table"]["columns"].reverse()
    ((_, found),) = renames_in(body, PLACE)
    assert found.columns == ("id", "c", "b")


def test_records_without_a_schema_are_not_followed() -> None:
    source = SourceTable("shop", "public", "t", {"id": "int", "a": "int"})
    _, wrapped = source.rename_columns({"a": "b"})
    source.with_schema = False
    _, plain = source.rename_columns({"b": "c"})
    assert schema_change_of(RawRecord(None, wrapped), None) is not None
    assert schema_change_of(RawRecord(None, plain), None) is None
    for value in (b"{", b"7", None):
        assert schema_change_of(RawRecord(None, value), None) is None


# --- what a table takes -----------------------------------------------------------------------------------------------


def test_a_chain_of_names_is_one_rename_of_the_column() -> None:
    schema = table("a", "x")
    renames, texts = taken(NO_RENAMES, [statement(1, {"a": "b"}, "b", "x")], schema, ())
    assert not texts and renames.changes(schema) == (RenameColumn("a", "b"),)
    renames, _ = taken(renames, [statement(2, {"b": "c"}, "c", "x")], schema, ())
    assert renames.changes(schema) == (RenameColumn("a", "c"),)
    assert renames.changes(table("c", "x")) == ()
    assert renames.changes(table("by hand", "x")) == (), "somebody has named it otherwise"
    assert [renames.columns_of(version) for version in range(3)] == [{"a": "c"}, {"b": "c"}, {}]
    assert Renames.of(renames.to_text()) == renames and Renames.of(None) == NO_RENAMES
    assert renames.knows(statement(2, {"b": "c"})) and not renames.knows(statement(3, {"c": "d"}))


def test_a_swap_goes_through_names_that_are_free() -> None:
    schema = table("a", "b")
    renames, texts = taken(NO_RENAMES, [statement(1, {"a": "b", "b": "a"}, "b", "a")], schema, ())
    changes = renames.changes(schema)
    assert len(texts) == 2 and [each.new_name for each in changes[2:]] == ["b", "a"] and len(changes) == 4
    assert renames.version_of(("id", "a", "b")) == 0 and renames.version_of(("id", "b", "a")) == 1
    assert renames.columns_of(0) == {"a": "b", "b": "a"}


def test_a_name_that_becomes_another_column_is_said() -> None:
    """Records with the new names may have been read before: which column they mean, only the statement says."""
    said = "b is another column than before (shop partition 0 offset 2)"
    _, texts = taken(NO_RENAMES, [statement(2, {"a": "b", "b": "a"}, "b", "a")], table("a", "b"), ())
    assert len(texts) == 2 and texts[0].startswith(said) and "freshet resync" in texts[0]
    steps = [statement(1, {"a": "x"}, "x", "b"), statement(2, {"b": "a"}, "x", "a"), statement(3, {"x": "b"}, "b", "a")]
    known, texts = taken(NO_RENAMES, steps, table("a", "b"), ())
    assert [text.split(" (")[0] for text in texts] == [f"{name} is another column than before" for name in "ab"]
    back = [statement(4, {"a": "c"}, "b", "c"), statement(5, {"c": "a"}, "b", "a")]
    assert taken(NO_RENAMES, back, table("a", "b"), ())[1] == (), "its own name"
    assert taken(NO_RENAMES, steps, None, ())[1] == (), "no rows yet"
    assert known.newest == 3


def test_a_swap_that_is_sent_again_is_taken_once() -> None:
    """As a connector does that was killed (SIGKILL) before it had kept how far it was."""
    schema = table("a", "b")
    statements = [
        statement(1, {"a": "t"}, "t", "b")._replace(origin="0-1-9"),
        statement(2, {"b": "a"}, "t", "a")._replace(origin="0-1-10"),
        statement(3, {"t": "b"}, "b", "a")._replace(origin="0-1-11"),
    ]
    again = [each._replace(offset=each.offset + 3) for each in statements]
    renames, texts = taken(NO_RENAMES, statements, schema, ())
    assert len(texts) == 2 and [each.new_name for each in renames.changes(schema)][2:] == ["b", "a"]
    assert not any(renames.is_news(each, ()) for each in again)
    assert taken(NO_RENAMES, [*statements, *again], schema, ())[0].steps == renames.steps
    assert taken(Renames.of(renames.to_text()), again, table("b", "a"), ())[0].steps == renames.steps
    other = again[0]._replace(origin="0-1-12", columns=("id", "b", "t"))
    assert renames.is_news(other, ()), "another statement with the same names"


@pytest.mark.parametrize("is_merged", [False, True])
def test_shards_that_become_one_table_have_no_ranks(is_merged: bool) -> None:
    """Their key is renamed in one after the other: the older name may be in the newer record."""
    config = sync_config([{"from": "shop.public.(.*)", "to": "lake.all", "merge": is_merged}])
    renames, _ = taken(NO_RENAMES, [FoundRenames("shop", 0, 1, (("id", "number"),), ("number", "a"))], None, ())
    schema = schema_of({"number": "INT", "a": "INT"}, primary_key=["number"], options={"bucket": "1"})
    plan = plan_table(config, route_to(config, "shop.public.t"), schema, 1, frozenset(), renames)
    assert plan.ranks == (() if is_merged else (0, 1))


def test_a_ledger_from_before_statements_had_origins() -> None:
    renames, _ = taken(NO_RENAMES, [statement(1, {"a": "b"}, "b")], table("a"), ())
    document = json.loads(renames.to_text())
    del document["origins"]
    assert Renames.of(json.dumps(document)) == renames


@pytest.mark.parametrize(
    ("columns", "own", "more", "cause"),
    [
        (("a", "b"), (), {}, "it came too late, the table has a column b already; both stay"),
        (("a",), ("b",), {}, "the rule of the table means column b by that name"),
        (("a",), ("a",), {}, "the rule of the table means column a by that name"),
        (("a",), (), {"partition_by": ["a"], "primary_key": ["id", "a"]}, "it is a partition key"),
    ],
)
def test_what_a_table_does_not_follow(columns: Sequence[str], own: Sequence[str], more: Any, cause: str) -> None:
    schema = schema_of({"id": "INT", **dict.fromkeys(columns, "INT")}, **more)
    renames, (text,) = taken(NO_RENAMES, [statement(1, {"a": "b"}, "b")], schema, own)
    assert f"a is not renamed to b (shop partition 0 offset 1): {cause}" in text
    assert not renames.steps and renames.changes(schema) == () and renames.knows(statement(1, {"a": "b"}))


def test_a_swap_of_which_one_half_is_refused_is_refused() -> None:
    schema = table("a", "b")
    renames, texts = taken(NO_RENAMES, [statement(1, {"a": "b", "b": "a"}, "b", "a")], schema, ("a",))
    assert len(texts) == 2 and not renames.steps


def test_columns_that_the_table_does_not_have_yet() -> None:
    for schema in (None, table("x")):
        renames, texts = taken(NO_RENAMES, [statement(1, {"a": "b"}, "b", "x")], schema, ())
        assert not texts and renames.columns_of(0) == {"a": "b"}
        again, _ = taken(renames, [statement(2, {"a": "b"}, "b", "x")], schema, ())
        assert again.steps == renames.steps, "a connector tells it again"
        described = DescribedTable({"id": "INT", "a": "INT", "x": "INT"}, ("id", "a"), True, "here")
        assert renames.described(described).columns == {"id": "INT", "b": "INT", "x": "INT"}
        assert renames.described(described).keys == ("id", "b")


def test_upper_and_lower_case() -> None:
    schema = table("a")
    renames, _ = taken(NO_RENAMES, [statement(1, {"A": "b"}, "b")], schema, ())
    assert renames.changes(schema) == (RenameColumn("a", "b"),) and renames.columns_of(0) == {"a": "b"}
    renames, _ = taken(NO_RENAMES, [statement(1, {"a": "A"}, "A")], schema, ())
    assert renames.changes(schema) == (RenameColumn("a", "A"),)
    assert (renames.version_of(("id", "a")), renames.version_of(("id", "A"))) == (0, 1)


def test_a_name_that_is_used_again() -> None:
    schema = table("a")
    renames, _ = taken(NO_RENAMES, [statement(1, {"a": "b"}, "b")], schema, ())
    assert renames.version_of(("id", "b", "a")) == 1, "beside the other one"
    assert renames.version_of(("id", "a")) == 0
    back = FoundRenames("shop", 0, 5, (), ("id", "a"))  # b was dropped, a added
    assert renames.is_news(back, ()) and not renames.is_news(back._replace(columns=("id", "c")), ())
    renames, _ = taken(renames, [back], schema, ())
    assert renames.version_of(("id", "a")) == 2 and renames.columns_of(2) == {}


@pytest.mark.parametrize("is_there", [True, False])
def test_ranks_count_the_renames_of_the_key(is_there: bool) -> None:
    schema = table("a") if is_there else None
    statements = [
        FoundRenames("shop", 0, 1, (("a", "b"),), ("id", "b")),
        FoundRenames("shop", 0, 2, (("id", "no"),), ("no", "b")),
        FoundRenames("shop", 0, 3, (("b", "c"), ("no", "number")), ("number", "c")),
    ]
    renames, _ = taken(NO_RENAMES, statements, schema, ())
    assert renames.ranks(["number"]) == (0, 0, 1, 2) and renames.ranks(["c"]) == (0, 1, 1, 2)
    assert renames.ranks(()) == renames.ranks(["other"]) == (0, 0, 0, 0)
    assert NO_RENAMES.ranks(["id"]) == (0,)
    renames, _ = taken(renames, [FoundRenames("shop", 0, 4, (("number", "id"),), ("id", "c"))], schema, ())
    assert renames.ranks(["id"]) == (0, 0, 0, 0, 0), "records named id may be the oldest, or the newest"


def test_names_that_a_rule_means() -> None:
    rule = {"from": "shop.public.(.*)", "to": "lake.$1", "partition_by": ["dt"], "metadata_columns": {"_op": "op"}}
    config = sync_config([rule], computed_columns={"dt": "year(created)"})
    assert own_names(route_to(config, "shop.public.t")) == {"dt", "created", "_op"}


# --- check ------------------------------------------------------------------------------------------------------------


def record(connector: str, name: str, *, typed: bool = True) -> SampledRecord:
    row = {"id": 1}
    value = change("c", None, row)
    value["source"] = {**value["source"], "connector": connector, "name": name}
    field = {"type": "int64", "optional": False, "field": "id"}
    key = octets(flat_with_schema(row, [field]))
    return SampledRecord(key, octets(with_schema(value, [field]) if typed else value), name)


def test_where_renames_become_new_columns() -> None:
    config = sync_config(schema_evolution="evolve")
    records = [
        record("mysql", "good"), record("postgresql", "pg"), record("mariadb", "alone"), record("sqlserver", "ms"),
        record("mysql", "plain", typed=False), SampledRecord(None, None, "t"),
        SampledRecord(b"", b"{", "t"),
    ]  # fmt: skip
    texts = list(rename_warnings(config, records, {"good", "plain", "good.a.b"}))
    assert [text.removeprefix("schema_evolution: evolve: ")[:42] for text in texts] == [
        "the schema change topic alone is not among", "schema changes of SQL Server (ms) do not h",
        "PostgreSQL (pg) has no schema change topic", "records of plain bring no schema (value.co",
    ]  # fmt: skip
    assert all("renamed columns become new columns" in text for text in texts)
    assert list(rename_warnings(sync_config(), records, ())) == []
    canal = sync_config(of="canal-json", schema_evolution="evolve")
    assert "records of canal-json do not tell of renames" in next(rename_warnings(canal, (), ()))
