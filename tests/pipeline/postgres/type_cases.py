"""Columns of every type that PostgreSQL has: what they are declared as, their values, and what becomes of these."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from math import inf, nan
from typing import Any, Final

LOST: Final = "a dead letter"


@dataclass(frozen=True)
class TypeCase:
    """A column: its declaration, the type of its column in the lake, and values by their literals."""

    declared: str
    column: str
    values: dict[str, Any]
    line: str = ""
    """The line of the table that it shows; empty: what `declared` begins with."""
    since: int = 12

    @property
    def shows(self) -> str:
        return self.line or self.declared.split("(")[0]


def texts(declared: str, *values: str, line: str = "", since: int = 12) -> TypeCase:
    """A type whose column is STRING: values as PostgreSQL prints them."""
    return TypeCase(declared, "STRING", {value: value for value in values}, line, since)


def stamp(*parts: int) -> datetime:
    return datetime(*parts)  # type: ignore[arg-type]


def instant(*parts: int) -> datetime:
    return datetime(*parts, tzinfo=UTC)  # type: ignore[misc, arg-type]


def millis(hours: int, minutes: int, seconds: float) -> int:
    return round(((hours * 60 + minutes) * 60 + seconds) * 1000)


_DEAD_DATES: Final = {"infinity": LOST, "-infinity": LOST, "0044-03-15 BC": LOST, "12024-01-01": LOST}
_DEAD_STAMPS: Final = {
    "infinity": LOST, "-infinity": LOST, "0044-03-15 10:00:00 BC": LOST, "294276-12-31 23:59:59.999999": LOST,
}  # fmt: skip
_ZONED: Final = "WITH LOCAL TIME ZONE"

CASES: Final = (
    TypeCase("boolean", "BOOLEAN", {"true": True, "false": False}),
    TypeCase("smallint", "SMALLINT", {"-32768": -32768, "32767": 32767, "0": 0}),
    TypeCase("integer", "INT", {"-2147483648": -(2**31), "2147483647": 2**31 - 1}),
    TypeCase("bigint", "BIGINT", {"-9223372036854775808": -(2**63), "9223372036854775807": 2**63 - 1}),
    TypeCase("oid", "BIGINT", {"0": 0, "4294967295": 2**32 - 1}),
    TypeCase("xid", "BIGINT", {"4294967295": 2**32 - 1}),
    TypeCase("cid", "BIGINT", {"4294967295": 2**32 - 1}),
    TypeCase("xid8", "DECIMAL(20, 0)", {"18446744073709551615": Decimal(2**64 - 1), "5": Decimal(5)}, since=13),
    TypeCase(
        "real",
        "FLOAT",
        {
            "0.1": 0.10000000149011612,
            "NaN": nan,
            "Infinity": inf,
            "-Infinity": -inf,
            "-0": -0.0,
            "1e-45": 1.401298464324817e-45,
            "3.4028235e38": 3.4028234663852886e38,
        },
    ),
    TypeCase(
        "double precision",
        "DOUBLE",
        {
            "0.1": 0.1,
            "0.30000000000000004": 0.1 + 0.2,
            "NaN": nan,
            "Infinity": inf,
            "-Infinity": -inf,
            "-0": -0.0,
            "1e-320": 1e-320,
            "1.7976931348623157e308": 1.7976931348623157e308,
        },
    ),
    TypeCase(
        "numeric(14,4)",
        "DECIMAL(14, 4)",
        {
            "12345.67": Decimal("12345.6700"),
            "-9999999999.9999": Decimal("-9999999999.9999"),
            "0": Decimal("0.0000"),
            "NaN": LOST,
        },
    ),
    TypeCase("numeric(38,0)", "DECIMAL(38, 0)", {"9" * 38: Decimal("9" * 38), "-" + "9" * 38: Decimal("-" + "9" * 38)}),
    TypeCase("numeric(38,38)", "DECIMAL(38, 38)", {"0." + "9" * 38: Decimal("0." + "9" * 38)}),
    TypeCase("numeric(5,-2)", "DECIMAL(7, 0)", {"1234567": Decimal(1234600), "-9999949": Decimal(-9999900)}, since=15),
    TypeCase("numeric(3,5)", "DECIMAL(5, 5)", {"0.00999": Decimal("0.00999")}, since=15),
    TypeCase("numeric(39,2)", "STRING", {"9" * 37 + ".25": "9" * 37 + ".25", "NaN": "NaN"}),
    TypeCase("numeric", "STRING", {"12345.6700": "12345.6700", "1e50": "1" + "0" * 50, "NaN": "NaN"}),
    TypeCase("numeric", "STRING", {"Infinity": "Infinity", "-Infinity": "-Infinity"}, since=14),
    TypeCase(
        "money",
        "DECIMAL(19, 2)",
        {
            "1234.50": Decimal("1234.50"),
            "-0.01": Decimal("-0.01"),
            "92233720368547758.07": Decimal("92233720368547758.07"),
        },
    ),
    texts("text", "", "a,b", 'q"q', "two\nlines", "\\N", "äß€🎈", " ", "\t", "NULL", "\\.", "\r\n"),
    texts("varchar(10)", "", "0123456789"),
    TypeCase("char(5)", "STRING", {"ab": "ab   ", "": "     "}),
    texts('"char"', "x"),
    texts("name", "a_name"),
    texts("json", '{"a":  [1, 2.50], "a": "x"}', "null", '"\\u00e4"'),
    TypeCase("jsonb", "STRING", {'{"b":1,"a":[1,2.50]}': '{"a": [1, 2.50], "b": 1}'}),
    texts("jsonpath", '$."a"[*]'),
    texts("xml", '<a b="c">d</a>'),
    texts("uuid", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"),
    TypeCase("bytea", "BYTES", {"\\x": b"", "\\x00ff5c": b"\0\xff\\", "\\x" + "ab" * 3000: b"\xab" * 3000}),
    TypeCase(
        "date", "DATE", {"2024-02-29": date(2024, 2, 29), "0001-01-01": date.min, "9999-12-31": date.max, **_DEAD_DATES}
    ),
    TypeCase("time(0)", "TIME(0)", {"10:11:12": millis(10, 11, 12), "24:00:00": LOST}),
    TypeCase("time(3)", "TIME(3)", {"23:59:59.999": millis(23, 59, 59.999), "00:00:00": 0, "24:00:00": LOST}),
    texts("time(6)", "10:11:12.123456", "24:00:00"),
    texts("time", "10:11:12.123456", "24:00:00"),
    texts("timetz", "10:11:12.5+05:30", "24:00:00-12"),
    TypeCase(
        "timestamp",
        "TIMESTAMP(6)",
        {
            "2024-01-02 03:04:05.600001": stamp(2024, 1, 2, 3, 4, 5, 600001),
            "0001-01-01 00:00:00": datetime.min,
            "9999-12-31 23:59:59.999999": datetime.max,
            **_DEAD_STAMPS,
        },
    ),
    TypeCase("timestamp(0)", "TIMESTAMP(0)", {"2024-01-02 03:04:05": stamp(2024, 1, 2, 3, 4, 5), "infinity": LOST}),
    TypeCase("timestamp(3)", "TIMESTAMP(3)", {"1969-12-31 23:59:59.999": stamp(1969, 12, 31, 23, 59, 59, 999000)}),
    TypeCase(
        "timestamptz",
        f"TIMESTAMP(6) {_ZONED}",
        {
            "2024-01-02 03:04:05.6+05:30": instant(2024, 1, 1, 21, 34, 5, 600000),
            "1850-01-01 00:00:00+00:19:32": instant(1849, 12, 31, 23, 40, 28),
            **_DEAD_STAMPS,
        },
    ),
    TypeCase(
        "timestamptz(3)", f"TIMESTAMP(3) {_ZONED}", {"2024-01-02 03:04:05.678+00": instant(2024, 1, 2, 3, 4, 5, 678000)}
    ),
    texts("interval", "1 year 2 mons -3 days +04:05:06.7", "00:00:00"),
    texts("bit(5)", "10110"),
    texts("varbit", "101", ""),
    texts("inet", "192.168.1.5", "192.168.1.5/24", "::1"),
    texts("cidr", "192.168.1.0/24"),
    texts("macaddr", "08:00:2b:01:02:03"),
    texts("macaddr8", "08:00:2b:01:02:03:04:05"),
    texts("tsvector", "'fox':3 'quick':2"),
    texts("tsquery", "'fat' & 'rat'"),
    texts("point", "(1,2.5)"),
    texts("line", "{1,-1,0}"),
    texts("lseg", "[(0,0),(1,1)]"),
    TypeCase("box", "STRING", {"(0,0),(1,1)": "(1,1),(0,0)"}),
    texts("path", "((0,0),(1,1))", "[(0,0),(1,1)]"),
    texts("polygon", "((0,0),(1,1),(1,0))"),
    texts("circle", "<(0,0),2>"),
    texts("int4range", "[1,5)", "empty", "(,3)"),
    texts("int8range", "[1,5)"),
    texts("numrange", "[1.5,2]"),
    texts("daterange", "[2024-01-01,2024-02-01)"),
    texts("tsrange", '["2024-01-01 00:00:00","2024-02-01 00:00:00")'),
    texts("tstzrange", '["2024-01-01 00:00:00+00",)'),
    texts("int4multirange", "{[1,3),[5,6)}", "{}", since=14),
    texts("int8multirange", "{[1,3)}", since=14),
    texts("nummultirange", "{[1.5,2]}", since=14),
    texts("datemultirange", "{[2024-01-01,2024-02-01)}", since=14),
    texts("tsmultirange", '{["2024-01-01 00:00:00","2024-02-01 00:00:00")}', since=14),
    texts("tstzmultirange", '{["2024-01-01 00:00:00+00","2024-02-01 00:00:00+00")}', since=14),
    texts("pg_lsn", "16/B374D848"),
    texts("tid", "(1,2)"),
    texts("txid_snapshot", "10:20:10,14"),
    texts("pg_snapshot", "10:20:10,14", since=13),
    texts("refcursor", "a cursor"),
    texts("aclitem", "freshet=r/freshet"),
    texts("regclass", "pg_class"),
    texts("regproc", "now"),
    texts("regprocedure", "abs(integer)"),
    texts("regoper", "||/"),
    texts("regoperator", "+(integer,integer)"),
    texts("regtype", "integer"),
    texts("regconfig", "english"),
    texts("regdictionary", "english_stem"),
    texts("regnamespace", "pg_catalog"),
    texts("regrole", "freshet"),
    texts("regcollation", '"C"', since=13),
    texts("int2vector", "1 2 3"),
    texts("oidvector", "1 4294967295"),
    # --- arrays
    TypeCase(
        "integer[]",
        "ARRAY<INT>",
        {"{1,NULL,-3}": [1, None, -3], "{}": [], "{{1,2},{3,4}}": LOST, "[0:1]={5,6}": LOST},
        "arrays",
    ),
    TypeCase("boolean[]", "ARRAY<BOOLEAN>", {"{t,f,NULL}": [True, False, None]}, "arrays"),
    TypeCase(
        "numeric(6,2)[]",
        "ARRAY<DECIMAL(6, 2)>",
        {"{1.5,2}": [Decimal("1.50"), Decimal("2.00")], "{NaN}": LOST},
        "arrays",
    ),
    TypeCase("numeric[]", "ARRAY<STRING>", {"{1.50,NaN}": ["1.50", "NaN"]}, "arrays"),
    TypeCase(
        "text[]",
        "ARRAY<STRING>",
        {
            '{"a,b","NULL",NULL,"",plain}': ["a,b", "NULL", None, "", "plain"],
            '{"q\\"\\\\","{x}"," "}': ['q"\\', "{x}", " "],
            '{"two\nlines"}': ["two\nlines"],
            '{{"a"},{"b"}}': LOST,
        },
        "arrays",
    ),
    TypeCase(
        "timestamptz[]",
        f"ARRAY<TIMESTAMP(6) {_ZONED}>",
        {'{"2024-01-02 03:04:05+00",NULL}': [instant(2024, 1, 2, 3, 4, 5), None], "{infinity}": LOST},
        "arrays",
    ),
    TypeCase("bytea[]", "ARRAY<BYTES>", {'{"\\\\x00ff",NULL,"\\\\x"}': [b"\0\xff", None, b""]}, "arrays"),
    TypeCase("box[]", "ARRAY<STRING>", {"{(1,1),(0,0);(2,2),(1,1)}": ["(1,1),(0,0)", "(2,2),(1,1)"]}, "arrays"),
    TypeCase("time(3)[]", "ARRAY<TIME(3)>", {"{10:00:00,NULL}": [millis(10, 0, 0), None]}, "arrays"),
    TypeCase("jsonb[]", "ARRAY<STRING>", {'{"{\\"a\\": [1]}"}': ['{"a": [1]}']}, "arrays"),
    # --- types of users: `USER_SQL` makes them
    texts("mood", "sad", "so, so", line="enums"),
    TypeCase("mood[]", "ARRAY<STRING>", {'{sad,"so, so"}': ["sad", "so, so"]}, "arrays"),
    TypeCase("positive", "INT", {"5": 5}, "domains"),
    TypeCase("price", "DECIMAL(8, 3)", {"1.5": Decimal("1.500"), "NaN": LOST}, "domains"),
    TypeCase("dear_price", "DECIMAL(8, 3)", {"101.5": Decimal("101.500")}, "domains"),
    TypeCase("prices", "ARRAY<DECIMAL(8, 3)>", {"{1.5,NULL}": [Decimal("1.500"), None]}, "domains"),
    TypeCase("price[]", "ARRAY<DECIMAL(8, 3)>", {"{1.5,NULL}": [Decimal("1.500"), None]}, "arrays"),
    TypeCase("prices[]", "STRING", {'{"{1.500}"}': '{"{1.500}"}'}, "arrays"),
    texts("pair", '(1,"q"" ,",)', '(,"",)', line="composite types"),
    TypeCase("pair[]", "ARRAY<STRING>", {'{"(1,a,)"}': ["(1,a,)"]}, "arrays"),
    texts("floats", "[1.5,2.5]", line="other ranges, and types of extensions (citext, hstore, ltree, PostGIS)"),
    texts("citext", "MiXed", line="other ranges, and types of extensions (citext, hstore, ltree, PostGIS)"),
    texts(
        "hstore", '"a"=>"1", "b"=>NULL', line="other ranges, and types of extensions (citext, hstore, ltree, PostGIS)"
    ),
    texts("ltree", "a.b.c", line="other ranges, and types of extensions (citext, hstore, ltree, PostGIS)"),
)
USER_SQL: Final = (
    "CREATE EXTENSION citext", "CREATE EXTENSION hstore", "CREATE EXTENSION ltree",
    "CREATE TYPE mood AS ENUM ('sad', 'so, so')",
    "CREATE DOMAIN positive AS integer CHECK (VALUE > 0)",
    "CREATE DOMAIN price AS numeric(8,3)", "CREATE DOMAIN dear_price AS price CHECK (VALUE > 100)",
    "CREATE DOMAIN prices AS numeric(8,3)[]",
    "CREATE TYPE pair AS (number int, word text, other text)",
    "CREATE TYPE floats AS RANGE (subtype = float8)",
)  # fmt: skip
