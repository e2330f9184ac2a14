"""Expressions of Spark SQL over columns of every type, and edge values of these columns."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from itertools import product
from typing import Any, Final

import pyarrow as pa

from freshet.pipeline.expressions import values
from freshet.pipeline.expressions.grammar import NotOursError, parse
from freshet.pipeline.expressions.translator import Translator
from freshet.pipeline.expressions.values import Value, decimal_type
from freshet.storage.model.data_type import ScalarType

_TEXTS: Final = [
    "", " ", "a", "abc", "Straße", "ΑΣ ΣΑΣ", "İi", "ŉ ﬁ", "日本語", "🤦🏼\u200d♂️x", "a,b,,c", "  x  ", "\tx\n",
    "\xa0x\xa0", "1", "-1", "+5", " 12 ", "\x0012\x7f", "007", "3.7", "-3.5", ".5", "5.", "1e3", "-1E-2", "1d",
    "2.5F", "0x1p3", "0xFF", "1_000", "NaN", "-NaN", "nan", "Infinity", "+inf", "-INF", "2147483647", "2147483648",
    "9223372036854775808", "99999999.994", "99999999.995", "1e400", "1e-400", "0e999999999", "1e2147483648",
    "0.0049999999999999999999999999", "12345678901234567890123456789012345678", "true", "T", "no", "yes", " FALSE ",
    "on", "t\x00", "2024-02-29", "2023-02-29", "2024-2-3", "2024-02", "2024", "0000-01-01", "-0001-01-01",
    "+12345-01-01", "12345-1-1", "2024-01-01 10:00:00", "2024-01-01T", "2024/01/01", "24-01-01", " 2024-01-01 ",
    "2024-13-01", "epoch", "infinity", "x'y\\z", "%_", "٣", "²", "+", "-", "e5", "1e", "--1", "1 2", "1\u20002",
]  # fmt: skip
_NUMBERS: Final = [
    0.0, -0.0, 1.0, -1.5, 2.5, 0.1, 3.7, -3.7, 1e10, 2.0**31, -(2.0**31) - 0.5, 2.0**63, -(2.0**63), 1e300,
    float("nan"), float("inf"), float("-inf"), 5e-324, 1e-5, 127.5, 128.0,
]  # fmt: skip
_DATES: Final = [date(1970, 1, 1), date(2024, 2, 29), date(1, 1, 1), date(9999, 12, 31), date(2021, 1, 3),
                 date(1582, 10, 10), date(1900, 12, 31), date(2024, 1, 31)]  # fmt: skip
_MOMENTS: Final = [datetime(1970, 1, 1), datetime(2024, 2, 29, 23, 59, 59, 999999), datetime(1, 1, 1, 0, 0, 0, 1),
                   datetime(9999, 12, 31, 23, 59, 59), datetime(1969, 12, 31, 23, 59, 59, 500000),
                   datetime(2024, 1, 1, 1, 2, 3, 40)]  # fmt: skip

COLUMNS: Final[dict[str, tuple[ScalarType, pa.DataType, list[Any]]]] = {
    "y": (values.TINYINT, pa.int8(), [0, 1, -1, 127, -128, 5]),
    "h": (values.SMALLINT, pa.int16(), [0, 1, -1, 32767, -32768, 300]),
    "i": (values.INT, pa.int32(), [0, 1, -1, 2**31 - 1, -(2**31), 7, 1000]),
    "l": (values.BIGINT, pa.int64(), [0, 1, -1, 2**63 - 1, -(2**63), 10**12, 3, 1_700_000_000_123]),
    "d": (decimal_type(10, 2), pa.decimal128(10, 2),
          [Decimal(each) for each in ("0.00", "1.25", "-1.25", "99999999.99", "-99999999.99", "2.50", "3.00", "0.05")]),
    "w": (decimal_type(30, 10), pa.decimal128(30, 10),
          [Decimal(each) for each in ("0E-10", "1.0000000001", "-12345678901234567890.0123456789", "0.5", "-2.5")]),
    "m": (decimal_type(4, 4), pa.decimal128(4, 4), [Decimal(each) for each in ("0", "0.5", "-0.05", "0.9999")]),
    "f": (values.FLOAT, pa.float32(), [each for each in _NUMBERS if each != 1e300]),
    "g": (values.DOUBLE, pa.float64(), _NUMBERS),
    "s": (values.STRING, pa.string(), _TEXTS),
    "t": (values.STRING, pa.string(), ["a", "", "x", "b,", "1"]),
    "b": (values.BOOLEAN, pa.bool_(), [True, False]),
    "c": (values.BOOLEAN, pa.bool_(), [True, False, None]),
    "x": (values.BINARY, pa.binary(), [b"", b"abc", b"\xff\x00"]),
    "day": (values.DATE, pa.date32(), _DATES),
    "eve": (values.DATE, pa.date32(), _DATES[::-1][1:]),
    "n": (values.TIMESTAMP_NTZ, pa.timestamp("us"), _MOMENTS),
    "z": (values.TIMESTAMP, pa.timestamp("us", "UTC"), [each.replace(tzinfo=UTC) for each in _MOMENTS[::-1]]),
}  # fmt: skip
"""Type, Arrow type and values of each column."""

READ: Final = {(name,): Value(f"c{index}", kind) for index, (name, (kind, _, _)) in enumerate(COLUMNS.items())}


def translated(text: str) -> Value | None:
    """The translation of an expression over these columns; None for what only Spark computes."""
    try:
        return Translator(READ).value(parse(text).tree)
    except NotOursError:
        return None


def rows(count: int = 260) -> pa.Table:
    """Rows with every value of every column and NULL, the columns shifted against one another."""
    arrays = []
    for number, (_, kind, given) in enumerate(COLUMNS.values()):
        cycle = [*given, None]
        arrays.append(pa.array([cycle[(row + row // (7 + number)) % len(cycle)] for row in range(count)], kind))
    return pa.table(dict(zip(COLUMNS, arrays, strict=True)))


_WHOLES, _EXACT, _FLOATING = ("y", "h", "i", "l"), ("d", "w", "m"), ("f", "g")
_ALL_NUMBERS: Final = (*_WHOLES, *_EXACT, *_FLOATING)
_LITERALS: Final = ("0", "1", "-3", "2.50", "1e3", "10L", "NULL", "-2147483648", "9223372036854775807", "0.05")
_TYPES: Final = (
    "boolean", "tinyint", "smallint", "int", "bigint", "float", "double", "decimal(10,2)", "decimal(4,1)",
    "decimal(38,18)", "decimal(3,3)", "string", "binary", "date", "timestamp", "timestamp_ntz",
)  # fmt: skip

_PLAIN: Final = """
upper(s); lower(s); ucase(t); lcase(t); upper(s || 'ß'); lower(concat(s, 'Σ'))
concat(s, t); concat(s, i, d, b, day); concat(s, NULL); s || t || i; s || CAST(z AS STRING); concat_ws('-', s, t)
concat_ws(t, s, 'x')
length(s); char_length(s); character_length(t); octet_length(s); length(trim(s))
substring(s, 1, 2); substring(s, 0, 2); substring(s, -3, 2); substring(s, -100, 99); substring(s, 2); substr(s, -2)
substr(s, 2, 0)
substring(s, 3, -1); substring(s, i, 2); substring(s, 2, i); substring(s, i, i); substring(s, i); substring(s, y, h)
left(s, 2); left(s, -1); left(s, i); right(s, 2); right(s, 0); right(s, -5); right(s, i)
trim(s); ltrim(s); rtrim(s); lpad(s, 5, '*'); lpad(s, 3); rpad(s, 6, 'ab'); rpad(s, 0, 'x'); repeat(s, 2)
repeat(t, -1); repeat(t, 0)
replace(s, 'a', 'bc'); replace(s, 'a'); replace(s, 'ab', t); instr(s, t); instr(s, 'x'); locate('b', s)
contains(s, t)
startswith(s, t); endswith(s, t); contains(s, ''); split_part(s, ',', 1); split_part(s, ',', 4); split_part(s, ',', 9)
ascii(s); md5(s); sha1(s); sha(t); sha2(s, 256); sha2(s, 0); hex(s)
s LIKE 'a%'; s LIKE '_b_'; s NOT LIKE '%1%'; s LIKE '%'; s LIKE ''; NOT s LIKE 'a%'; s LIKE NULL
coalesce(i, 0); coalesce(s, t, 'x'); coalesce(i, d); coalesce(NULL, i, l); coalesce(g, i); coalesce(i, 10 / y)
nvl(s, t); ifnull(i, 1); nvl(d, 0)
nvl2(i, s, t); nvl2(s, 1, d); nullif(i, 1); nullif(s, t); nullif(d, 0); isnull(s); isnotnull(s); isnan(g); isnan(f)
if(b, i, 0); if(i > 0, s, t); if(c, i, d); if(i = 1, 10 / y, -1); if(c, CAST(s AS INT), 0)
CASE WHEN i > 0 THEN 'p' WHEN i < 0 THEN 'n' ELSE 'z' END; CASE WHEN b THEN i END
CASE s WHEN 'a' THEN 1 WHEN 'abc' THEN 2 ELSE 3 END
CASE WHEN y <> 0 THEN i / y ELSE 0 END
CASE WHEN s LIKE '1%' THEN CAST(s AS INT) WHEN CAST(t AS INT) = 1 THEN 9 ELSE -1 END
CASE WHEN i / y > 1 THEN 1 WHEN b THEN 2 ELSE i % y END; CASE i WHEN 1 THEN d WHEN 7 THEN l ELSE 0 END
CASE WHEN NULL THEN 1 ELSE 2 END
greatest(i, l); least(y, h, i); greatest(d, i); greatest(s, t); least(day, eve); greatest(i, NULL); least(n, n)
greatest(d, w)
i IN (1, 7, -1); s IN ('a', 'abc', '1'); i NOT IN (0, 1); i IN (1, NULL); l IN (1, 2.5); day IN (DATE'2024-02-29')
d IN (1.25, 3)
i BETWEEN 0 AND 10; i NOT BETWEEN 0 AND l; s BETWEEN 'a' AND 'b'; d BETWEEN 0 AND 2.5
day BETWEEN DATE'2000-01-01' AND eve; g BETWEEN -1 AND 1
b AND c; b OR c; NOT b; NOT c; !c; b AND c OR NOT b; b AND 10 / y > 1; c OR 10 / y > 1; i > 0 AND CAST(s AS INT) > 1
NOT (b AND c); c AND NULL
c IS TRUE; c IS NOT TRUE; c IS FALSE; i IS NULL; s IS NOT NULL; (i > 1) IS NULL; i > 1 IS NULL; i IS DISTINCT FROM l
d IS NOT DISTINCT FROM 1.25
abs(i); abs(l); abs(y); abs(d); abs(g); abs(f); -i; -l; -y; -d; -g; -(-i); - (5); sqrt(g); sqrt(i); sqrt(d)
round(d); round(d, 1); round(d, 3); round(w, 4); round(m, 2); round(i, 2); ceil(d); floor(d); ceiling(i); floor(w)
ceil(m); floor(l); round(d, 0)
mod(i, y); pmod(i, y); pmod(l, i); try_add(i, 1); try_subtract(l, i); try_multiply(i, i); try_divide(i, y)
try_divide(d, 2); try_add(y, y); try_mod(i, y)
i & 6; i | l; y & h; (i & 3) | 4; i = l = b; i div y; l div i; i div 2; l div -1; i % 3; -7 % 3; i + 1 - 2 * y
l div 0L; l % 0L; i / 0L; l div 1000; l div -7; l % -1; l % 10; y div 300
(i + 1) * 2; 2 * (l - 1); i / 2 + 1
year(day); month(day); day(day); dayofmonth(n); quarter(day); dayofyear(day); dayofweek(day); weekday(day)
weekofyear(day)
year(z); month(n); dayofweek(z); weekofyear(n); hour(z); minute(n); second(z); second(n); hour(n)
datediff(day, eve); date_diff(day, z); datediff(n, day); date_add(day, 1); date_sub(day, y); date_add(z, 30)
dateadd(day, h); day + 1; day - 7; day + y
add_months(day, 1); add_months(day, -13); add_months(n, 12); last_day(day); last_day(z); to_date(s); to_date(day)
to_date(n)
trunc(day, 'MM'); trunc(day, 'year'); trunc(z, 'week'); trunc(day, 'quarter'); date_trunc('day', z)
date_trunc('HOUR', n); date_trunc('month', day); date_trunc('second', z)
date_trunc('week', n); date_trunc('minute', z); date_trunc('YEAR', z); date_format(day, 'yyyy-MM-dd')
date_format(z, 'yyyyMMdd HH:mm:ss'); date_format(n, 'yyyy/MM'); date_format(z, 'HH')
unix_date(day); date_from_unix_date(i % 1000); date_from_unix_date(h); timestamp_seconds(i); timestamp_millis(h)
timestamp_millis(i); timestamp_micros(i)
timestamp_millis(l % 10000000000000); unix_seconds(z); unix_millis(z); unix_micros(z)
day > eve; day = DATE'2024-02-29'; day < z; z > n; n = n; day <> CAST(z AS DATE); z >= z; day IS NOT DISTINCT FROM eve
x = x
s = t; s > t; s <=> t; s < 'b'; s <> ''; b = c; b <=> c; b > c; i = l; i <=> NULL; d = 1.25; d > i; w < d; g = i
g > 0.1; f = 0.1; f > g; g <=> g
boolean(s); int(s); bigint(d); string(i); double(d); date(s); decimal(i); s::int; (i + 1)::string; d::int::string
tinyint(i); float(i)
CAST(CAST(s AS INT) AS TINYINT); CAST(s AS INT) + 1; 1 / CAST(s AS INT); i + CAST(s AS INT); CAST(s AS INT) / y
y / CAST(s AS INT); concat(s, CAST(s AS INT))
coalesce(try_cast(s AS INT), -1); upper(trim(s)) || '-' || lpad(string(i), 5, '0'); i * 100L; d * 2; d * d; d + d - 1
d / 3; d / d; m / m; d / i; i / d; d * 0.5; w + w; w * w
1; 1.5; -1.5; 0.05; 1e3; 'text'; true; NULL; DATE'2024-01-01'; 10L; 5S; 3Y; 2.5BD; 1.5D; 'a' || 'b'; 1 + 1
CAST('12' AS INT); CAST(NULL AS INT); "double"
"""

_SPARKS: Final = """
hash(i); xxhash64(s); rand(); uuid(); now(); current_date; current_timestamp(); current_date(); cast(g AS string)
cast(f AS string)
round(g, 2); exp(g); ln(g); pow(g, 2); sin(g); s RLIKE 'a.*'; regexp_replace(s, 'a', 'b'); split(s, ',')
split(s, ',')[0]; array(i); struct(i)
transform(array(i), v -> v + 1); named_struct('a', i); map('a', i); sum(i); count(*); max(i)
row_number() OVER (ORDER BY i); (SELECT 1); explode(array(i))
s = 1; i + '1'; i = '1'; date_format(z, 'EEE'); to_date(s, 'dd/MM/yyyy'); from_json(s, 'a INT')
get_json_object(s, '$.a'); to_timestamp(s); s LIKE t; s LIKE 'a' ESCAPE '!'
i | l & y; y ^ h & i; s || i + l; reverse(s); initcap(s); translate(s, 'a', 'b'); format_string('%d', i)
CAST(s AS VARCHAR(3)); CAST(s AS CHAR(3)); INTERVAL 1 DAY; day + INTERVAL 1 DAY
z - n; day - eve; w / w; '\\\\d'; i /* comment */ + 1; unknown(i); nothing; a.b.c; *
"""


def _listed(texts: str) -> list[str]:
    return [part.strip() for line in texts.strip().splitlines() for part in line.split("; ")]


def small_texts() -> list[str]:
    """One of each kind."""
    return _listed(_PLAIN)


def many_texts() -> Iterator[str]:
    """Every operator and cast over every pair of types."""
    for left, operator, right in product(_ALL_NUMBERS, ("+", "-", "*", "/", "%"), _ALL_NUMBERS):
        yield f"{left} {operator} {right}"
    for left, operator, right in product(_ALL_NUMBERS, ("+", "-", "*", "/", "%", "div", "=", "<", "<=>"), _LITERALS):
        yield f"{left} {operator} {right}"
        yield f"{right} {operator} {left}"
    for left, operator, right in product(COLUMNS, ("=", "<", ">=", "<>", "<=>"), COLUMNS):
        yield f"{left} {operator} {right}"
    for name, kind in product(COLUMNS, _TYPES):
        yield f"CAST({name} AS {kind})"
        yield f"try_cast({name} AS {kind})"
    for name, other in product(COLUMNS, COLUMNS):
        yield f"coalesce({name}, {other})"
        yield f"greatest({name}, {other})"


def spark_texts() -> list[str]:
    """What only Spark computes."""
    return _listed(_SPARKS)
