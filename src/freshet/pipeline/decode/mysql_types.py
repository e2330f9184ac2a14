"""The SQL type of a column by MySQL's name of its type, such as `bigint(20) unsigned`, as Canal writes it.

| MySQL | type |
|---|---|
| tinyint, smallint, mediumint, int, bigint | TINYINT, SMALLINT, INT, INT, BIGINT |
| the same, unsigned | SMALLINT, INT, BIGINT, BIGINT, DECIMAL(20, 0) |
| decimal(p, s), numeric | DECIMAL(p, s); STRING above 38 digits |
| float, double | FLOAT, DOUBLE |
| date, datetime(n), timestamp(n), time | DATE, TIMESTAMP(n), TIMESTAMP(n), STRING (times may be negative) |
| year, bit | INT, DECIMAL(20, 0) |
| binary, varbinary, blobs | BYTES |
| all others | STRING |
"""

from __future__ import annotations

import re
from typing import Final

from freshet.pipeline.decode.connect_types import DECIMAL_DIGITS_MAX

_TYPE: Final = re.compile(
    r"\s*([a-z]+(?: precision)?)\s*(?:\(\s*([0-9]+)\s*(?:,\s*([0-9]+)\s*)?\))?(.*)", re.IGNORECASE
)
_UNSIGNED_BIGINT: Final = "DECIMAL(20, 0)"
_INTEGERS: Final = {
    "tinyint": ("TINYINT", "SMALLINT"), "smallint": ("SMALLINT", "INT"), "mediumint": ("INT", "BIGINT"),
    "int": ("INT", "BIGINT"), "integer": ("INT", "BIGINT"), "bigint": ("BIGINT", _UNSIGNED_BIGINT),
}  # fmt: skip
_PLAIN: Final = {
    "float": "FLOAT", "double": "DOUBLE", "double precision": "DOUBLE", "real": "DOUBLE", "date": "DATE", "year": "INT",
    "bit": _UNSIGNED_BIGINT, "boolean": "TINYINT", "bool": "TINYINT",
    **dict.fromkeys(("binary", "varbinary", "blob", "tinyblob", "mediumblob", "longblob"), "BYTES"),
}  # fmt: skip
UNSIZED_DECIMAL: Final = "DECIMAL"
"""Of a decimal without digits: MySQL's and Canal's always have them."""
_DECIMALS: Final = frozenset({"decimal", "numeric", "dec", "fixed"})
_STAMPS: Final = frozenset({"datetime", "timestamp"})
_DIGITS_READ: Final = 9


def sql_type_of_mysql(text: str) -> str:
    """The type; STRING for what is not known."""
    match = _TYPE.fullmatch(text)
    if match is None:
        return "STRING"
    name, first, second, rest = match[1].lower(), match[2], match[3], match[4].lower()
    if name in _INTEGERS:
        return _INTEGERS[name]["unsigned" in rest or "zerofill" in rest]
    if name in _DECIMALS and first is None:
        return UNSIZED_DECIMAL
    if name in _DECIMALS:
        precision, scale = _number(first), _number(second)
        return f"DECIMAL({precision}, {scale})" if scale <= precision <= DECIMAL_DIGITS_MAX else "STRING"
    if name in _STAMPS:
        return f"TIMESTAMP({min(_number(first), 6)})"
    return _PLAIN.get(name, "STRING")


def _number(digits: str | None) -> int:
    """Of the first nine digits: what has more is larger than any type, and so are they."""
    return int(digits[:_DIGITS_READ]) if digits else 0
