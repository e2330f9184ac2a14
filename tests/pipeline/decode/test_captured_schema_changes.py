"""Records of the schema change topic as Debezium 3.5 sent them of MariaDB 10.11.

They differ from those that Debezium's documentation shows: there is no `previousId`, and none of the columns says
`hasDefaultValue`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from freshet.pipeline.decode.schema_changes import FoundRenames, renames_in
from freshet.pipeline.decode.source_table import SourceTable

PLACE = ("shop", 0, 22)
CAPTURED = r"""
{"source":{"version":"3.5.0.Final","connector":"mariadb","name":"shop","ts_ms":1795736504000,"snapshot":null,
"db":"shop","sequence":null,"ts_us":1795736504000000,"ts_ns":1795736504000000000,"table":"Odd.Täble \"x\"",
"server_id":1,"gtid":"0-1-24","file":"binlog.000001","pos":4662,"row":0,"thread":null,"query":null},
"ts_ms":1795736504965,"databaseName":"shop","schemaName":null,
"ddl":"ALTER TABLE `Odd.Täble \"x\"` CHANGE `a,b` `a)b` INT",
"tableChanges":[{"type":"ALTER","id":"\"shop\".Odd.Täble \"x\"","table":{"defaultCharsetName":"utf8mb4",
"primaryKeyColumnNames":["id"],"columns":[
{"name":"id","jdbcType":4,"nativeType":null,"typeName":"INT","typeExpression":"INT","charsetName":null,"length":11,
"scale":null,"position":1,"optional":false,"autoIncremented":false,"generated":false,"comment":null,
"defaultValueExpression":null,"enumValues":null},
{"name":"a)b","jdbcType":4,"nativeType":null,"typeName":"INT","typeExpression":"INT","charsetName":null,"length":null,
"scale":null,"position":2,"optional":true,"autoIncremented":false,"generated":false,"comment":null,
"defaultValueExpression":null,"enumValues":null},
{"name":"q`q","jdbcType":4,"nativeType":null,"typeName":"INT","typeExpression":"INT","charsetName":null,"length":11,
"scale":null,"position":3,"optional":true,"autoIncremented":false,"generated":false,"comment":null,
"defaultValueExpression":null,"enumValues":null}],"comment":null}}]}
"""


def body(ddl: str, table_id: str, columns: Sequence[str]) -> dict[str, Any]:
    """The record with another statement; its columns have these names."""
    found: dict[str, Any] = json.loads(CAPTURED)
    (change,) = found["tableChanges"]
    column = change["table"]["columns"][1]
    change["table"]["columns"] = [{**column, "name": name, "position": at} for at, name in enumerate(columns, 1)]
    change["id"] = table_id
    return found | {"ddl": ddl}


def test_a_table_with_a_quote_in_its_name_has_none_around_it() -> None:
    ((table, found),) = renames_in(json.loads(CAPTURED), PLACE)
    assert table == SourceTable("shop", "", 'Odd.Täble "x"')
    assert found.pairs == (("a,b", "a)b"),)
    assert found.columns == ("id", "a)b", "q`q")
    assert found.origin == "shop 0-1-24 1795736504000"
    assert FoundRenames.of(json.loads(json.dumps(found.to_document()))) == found


@pytest.mark.parametrize(
    ("ddl", "table_id", "columns", "pairs"),
    [
        (  # the client has taken the comments out
            "ALTER TABLE t \n CHANGE COLUMN b `b2` INT(11) DEFAULT '5' COMMENT 'it''s, CHANGE x y'",
            '"shop"."t"', ("id", "a2", "b2"), [("b", "b2")],
        ),
        (
            "ALTER TABLE t CHANGE COLUMN IF EXISTS `b 3` B3 INT, ALGORITHM=INSTANT",
            '"shop"."t"', ("id", "a2", "B3"), [("b 3", "B3")],
        ),
        ("ALTER TABLE t CHANGE B3 b3 INT", '"shop"."t"', ("id", "a2", "b3"), [("B3", "b3")]),
        ('ALTER TABLE "t" RENAME COLUMN "b2" TO "b 3"', '"shop"."t"', ("id", "a2", "b 3"), [("b2", "b 3")]),
        (
            "ALTER ONLINE TABLE IF EXISTS renamed RENAME COLUMN IF EXISTS f TO ff, ALTER COLUMN g SET DEFAULT 9, ADD "
            "INDEX (g)", '"shop"."renamed"', ("c d", "id", "bb", "e", "aa", "ff", "g"), [("f", "ff")],
        ),
        (
            "ALTER TABLE renamed RENAME COLUMN bb TO tmp, CHANGE aa bb BIGINT NOT NULL",
            '"shop"."renamed"', ("id", "bb", "e", "tmp", "c d"), [("bb", "tmp"), ("aa", "bb")],
        ),
        # One of two columns that swap their names is gone, and the connector stops at the next row.
        (
            "ALTER TABLE renamed RENAME COLUMN aa TO bb, RENAME COLUMN bb TO aa",
            '"shop"."renamed"', ("id", "aa", "e", "c d"), [],
        ),
        (
            "ALTER TABLE renamed RENAME COLUMN aa TO bb, RENAME COLUMN bb TO aa, CHANGE `c d` cd INT",
            '"shop"."renamed"', ("id", "aa", "e", "cd"), [("c d", "cd")],
        ),
        # A table that got another name, here in another database, is a new one.
        ("ALTER TABLE t RENAME TO other.t, RENAME COLUMN d TO dd", '"other"."t"', ("id", "a2", "b3", "c5", "dd"), []),
        ("ALTER TABLE emptied RENAME TO emptied2, RENAME COLUMN v TO w", '"shop"."emptied2"', ("id", "w"), []),
        # What tools that change tables while they are in use do last.
        ("RENAME TABLE _osc_new TO osc", '"shop"."osc"', ("id", "aa"), []),
    ],
)  # fmt: skip
def test_what_is_renamed(ddl: str, table_id: str, columns: Sequence[str], pairs: list[tuple[str, str]]) -> None:
    ((_, found),) = renames_in(body(ddl, table_id, columns), PLACE)
    assert list(found.pairs) == pairs
    assert found.columns == tuple(columns)


@pytest.mark.parametrize(
    ("source", "origin"),
    [
        ({"gtid": "0-1-9", "file": "binlog.000001", "pos": 1817, "ts_ms": 5}, "shop 0-1-9 5"),
        ({"gtid": None, "file": "binlog.000001", "pos": 1817, "ts_ms": 5}, "shop binlog.000001 1817 5"),
        ({"scn": "2290", "ts_ms": 5}, "shop 2290 5"),
        ({"file": "binlog.000001", "pos": 1817}, ""),
        ({"ts_ms": 5}, ""),
        (None, ""),
    ],
)
def test_what_tells_a_statement_that_is_sent_again(source: Any, origin: str) -> None:
    ((_, found),) = renames_in(json.loads(CAPTURED) | {"source": source}, PLACE)
    assert found.origin == origin


def test_statements_of_a_snapshot_say_nothing() -> None:
    dropped = json.loads(CAPTURED)
    dropped["ddl"] = "DROP TABLE IF EXISTS `shop`.`t`"
    dropped["tableChanges"] = [{"type": "DROP", "id": '"shop"."t"', "table": None}]
    setting = json.loads(CAPTURED) | {
        "databaseName": "", "tableChanges": [],
        "ddl": "SET character_set_server=utf8mb4, collation_server=utf8mb4_unicode_ci",
    }  # fmt: skip
    for found in (dropped, setting):
        assert list(renames_in(found, PLACE)) == []
