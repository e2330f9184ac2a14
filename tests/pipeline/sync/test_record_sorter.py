"""The source table of each record, read without the rest of it."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from freshet.pipeline.config.formats import Format
from freshet.pipeline.decode.record_block import block_of
from freshet.pipeline.decode.source_table import SourceTable
from freshet.pipeline.sync.record_sorter import RecordSorter
from tests.pipeline.records import Record, change, raw_batch, with_schema

ORDERS = SourceTable("shop", "public", "orders")
UNREAD = "unread"


def tables(format_name: Format, *records: Any) -> list[SourceTable | str | None]:
    batch = block_of(raw_batch([each if isinstance(each, Record) else Record(each) for each in records]))
    found: list[SourceTable | str | None] = [UNREAD] * len(records)
    for table, indexes in RecordSorter(format_name).sort(batch, np.arange(len(records))).by_table.items():
        for index in indexes.tolist():
            assert found[index] == UNREAD
            found[index] = table
    return found


def test_debezium() -> None:
    mysql = change("u", None, {"id": 1}, schema=None)
    assert tables("debezium-json", change("c", None, {}), with_schema(change("d", {}, None)), mysql, change("t")) == [
        ORDERS, ORDERS, SourceTable("shop", "", "orders"), ORDERS,
    ]  # fmt: skip


@pytest.mark.parametrize(
    "value",
    [
        b"{", b"", b"\xff", b"3", b"[]", b'{"op": 3}', {}, {"payload": None}, {"op": "c"}, {"op": "c", "source": {}},
        {"ts_ms": 1}, {"status": "BEGIN", "id": "1", "event_count": None}, {"source": {"db": "a", "table": "b"}},
        change("c", None, {}, table=None), change("c", None, {}, table=""), change("c", None, {}, table=7),
        b'{"op":"c","a":' + b"[" * 5000,
    ],
)  # fmt: skip
def test_what_only_the_careful_path_can_tell(value: Any) -> None:
    assert tables("debezium-json", value, change("c")) == [None, ORDERS]


def test_rows_that_look_like_envelopes_inside() -> None:
    inner = {"op": "c", "source": {"db": "x", "table": "y"}}
    assert tables("debezium-json", change("c", None, {"payload": inner, **inner})) == [ORDERS]
    assert tables("debezium-json", {"op": "c", **change("c"), "payload": inner}) == [ORDERS]


@pytest.mark.parametrize("format_name", ["canal-json", "maxwell-json"])
def test_binlogs(format_name: Format) -> None:
    message = {"type": "INSERT", "database": "shop", "table": "orders", "data": None}
    assert tables(format_name, message, {**message, "type": None}, {**message, "table": ""}, {"type": "x"}) == [
        SourceTable("shop", "", "orders"), None, None, None,
    ]  # fmt: skip


def test_plain_json_is_of_its_topic() -> None:
    records = [Record({"id": 1}, topic="a"), Record(b"{", topic="b"), Record({"table": "x"}, topic="a")]
    a, b = SourceTable("", "", "a"), SourceTable("", "", "b")
    assert tables("json", *records) == [a, b, a]


def test_a_part_of_a_block() -> None:
    batch = block_of(raw_batch([Record(None), change("c"), Record(None), change("c", table="users"), change("c")]))
    found = RecordSorter("debezium-json").sort(batch, np.array([1, 3, 4])).by_table
    assert {str(table): indexes.tolist() for table, indexes in found.items()} == {
        "shop.public.orders": [1, 4], "shop.public.users": [3],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("record", "may_be"),
    [
        (Record(change("c")), False),
        (Record(change("c", None, {"id": 1, "text": '"payload"', "payload": 1})), False),
        (Record(with_schema(change("c"))), True),
        (Record({**change("c"), "payload": {}}), True),
        (Record(b"{"), True),
        (Record({"payload": 1}), True),
    ],
)
def test_which_may_have_a_schema_beside_them(record: Record, may_be: bool) -> None:
    batch = block_of(raw_batch([Record(change("c")), record, Record(change("c"))]))
    assert RecordSorter("debezium-json").sort(batch, np.arange(3)).may_be_wrapped is may_be


def test_which_may_have_a_schema_is_not_known_of_other_formats() -> None:
    batch = block_of(raw_batch([Record({"id": 1})]))
    assert RecordSorter("debezium-unwrapped").sort(batch, np.arange(1)).may_be_wrapped


_NAMES = st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=3)


@given(st.lists(st.tuples(_NAMES, _NAMES, st.sampled_from(["a", "b", "ü", " "]), st.booleans()), min_size=1))
def test_every_record_is_of_the_table_that_it_names(named: list[tuple[str | None, str | None, str, bool]]) -> None:
    records = []
    for db, schema, table, wraps in named:
        record = change("c", None, {"id": 1}, db=db, schema=schema, table=table)
        records.append(json.dumps(with_schema(record) if wraps else record, ensure_ascii=wraps).encode())
    expected = [SourceTable(db or "", schema or "", table) for db, schema, table, _ in named]
    assert tables("debezium-json", *records) == expected
