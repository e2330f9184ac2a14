"""MySQL's types as Canal and TiCDC write them."""

from __future__ import annotations

import pytest

from freshet.pipeline.decode.sql_types import sql_type_of_mysql
from freshet.storage.model.sql_type import parse_sql_type

UNSIGNED_BIGINT = "DECIMAL(20, 0)"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("tinyint", "TINYINT"),
        ("tinyint(1)", "TINYINT"),
        ("tinyint(4) unsigned", "SMALLINT"),
        ("smallint(6)", "SMALLINT"),
        ("smallint unsigned", "INT"),
        ("mediumint(9)", "INT"),
        ("mediumint(8) unsigned", "BIGINT"),
        ("int", "INT"),
        ("int(11)", "INT"),
        ("INT(10) UNSIGNED", "BIGINT"),
        ("int(10) unsigned zerofill", "BIGINT"),
        ("int(5) zerofill", "BIGINT"),
        ("integer", "INT"),
        ("bigint(20)", "BIGINT"),
        ("bigint(20) unsigned", UNSIGNED_BIGINT),
        ("bigint unsigned", UNSIGNED_BIGINT),
        ("decimal", "DECIMAL"),
        ("decimal(5)", "DECIMAL(5, 0)"),
        ("decimal(14,4)", "DECIMAL(14, 4)"),
        ("decimal( 14 , 4 ) unsigned", "DECIMAL(14, 4)"),
        ("numeric(38,10)", "DECIMAL(38, 10)"),
        ("decimal(39,0)", "STRING"),
        ("decimal(65,30)", "STRING"),
        ("float", "FLOAT"),
        ("float(7,4)", "FLOAT"),
        ("float unsigned", "FLOAT"),
        ("double", "DOUBLE"),
        ("double(10,2)", "DOUBLE"),
        ("double precision", "DOUBLE"),
        ("real", "DOUBLE"),
        ("date", "DATE"),
        ("datetime", "TIMESTAMP(0)"),
        ("datetime(3)", "TIMESTAMP(3)"),
        ("datetime(6)", "TIMESTAMP(6)"),
        ("timestamp", "TIMESTAMP(0)"),
        ("timestamp(6)", "TIMESTAMP(6)"),
        ("time", "STRING"),
        ("time(3)", "STRING"),
        ("year", "INT"),
        ("year(4)", "INT"),
        ("bit(1)", UNSIGNED_BIGINT),
        ("bit(64)", UNSIGNED_BIGINT),
        ("bool", "TINYINT"),
        ("binary(16)", "BYTES"),
        ("varbinary(255)", "BYTES"),
        ("blob", "BYTES"),
        ("longblob", "BYTES"),
        ("char(10)", "STRING"),
        ("varchar(20)", "STRING"),
        ("text", "STRING"),
        ("longtext", "STRING"),
        ("json", "STRING"),
        ("enum('a','b (1)')", "STRING"),
        ("set('unsigned','int')", "STRING"),
        ("geometry", "STRING"),
        ("point", "STRING"),
        ("", "STRING"),
        ("3", "STRING"),
        ("enum('a\n')", "STRING"),
    ],
)
def test_types(text: str, expected: str) -> None:
    assert sql_type_of_mysql(text) == expected
    parse_sql_type(expected)
