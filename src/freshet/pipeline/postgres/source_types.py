"""The types of PostgreSQL: what a column of each becomes, and why. `TYPES` is the table of the reference page.

A column has a type that holds every value of the source exactly, or STRING with the text that PostgreSQL prints. A
value that an exact type has no place for (infinity, NaN, a year beyond 9999) is a dead letter, never another value.

Types below oid 10000 are fixed; those that users make are looked up (`pg_type`), and are told by what they are: a
domain is its base type, all others are texts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from functools import cached_property
from typing import Final

from freshet._frozen import Frozen
from freshet.pipeline.decode.sql_types import DECIMAL_DIGITS_MAX, STRING

FIXED_OIDS: Final = 10_000
"""Types with an oid below are those of every server."""
NO_MODIFIER: Final = -1
_HEADER: Final = 4
_SCALE_BITS: Final = 0x7FF
_SCALE_SIGN: Final = 0x400
_TIME_DIGITS_MAX: Final = 3
_STAMP_DIGITS: Final = 6


class Form(Enum):
    """How PostgreSQL writes a value."""

    BOOLEAN = "t or f"
    WHOLE = "digits"
    DECIMAL = "digits with a point"
    FLOAT = "a number, NaN or Infinity"
    MONEY = "$1,234.50"
    BYTES = "hex behind \\x"
    DATE = "2024-02-29"
    TIME = "10:11:12.5"
    STAMP = "2024-02-29 10:11:12.5"
    ZONED = "2024-02-29 10:11:12.5+00"
    TEXT = "text"


class PostgresType(Frozen):
    """A line of the table. `column` gives the type of a column for the type's modifier (`numeric(14,4)` has one)."""

    name: str
    oid: int
    array: int
    form: Form
    column: str | Callable[[int], str]
    why: str = ""


def _decimal(modifier: int) -> str:
    """Since 15 a scale may be negative, or larger than the precision; then the type of all numbers that fit."""
    if modifier == NO_MODIFIER:
        return STRING
    precision, bits = (modifier - _HEADER) >> 16, (modifier - _HEADER) & _SCALE_BITS
    scale = (bits ^ _SCALE_SIGN) - _SCALE_SIGN
    digits = max(precision, scale) if scale >= 0 else precision - scale
    return f"DECIMAL({digits}, {max(scale, 0)})" if digits <= DECIMAL_DIGITS_MAX else STRING


def _digits(modifier: int) -> int:
    return _STAMP_DIGITS if modifier == NO_MODIFIER else modifier


def _time(modifier: int) -> str:
    digits = _digits(modifier)
    return f"TIME({digits})" if digits <= _TIME_DIGITS_MAX else STRING


def _stamp(modifier: int) -> str:
    return f"TIMESTAMP({_digits(modifier)})"


def _zoned(modifier: int) -> str:
    return f"TIMESTAMP({_digits(modifier)}) WITH LOCAL TIME ZONE"


_F: Final = Form
_YEARS: Final = "infinity, years BC and after 9999 are dead letters"
TYPES: Final = (
    PostgresType("boolean", 16, 1000, _F.BOOLEAN, "BOOLEAN"),
    PostgresType("smallint", 21, 1005, _F.WHOLE, "SMALLINT"),
    PostgresType("integer", 23, 1007, _F.WHOLE, "INT"),
    PostgresType("bigint", 20, 1016, _F.WHOLE, "BIGINT"),
    PostgresType("oid", 26, 1028, _F.WHOLE, "BIGINT", "32 bits without a sign"),
    PostgresType("xid", 28, 1011, _F.WHOLE, "BIGINT", "32 bits without a sign"),
    PostgresType("cid", 29, 1012, _F.WHOLE, "BIGINT", "32 bits without a sign"),
    PostgresType("xid8", 5069, 271, _F.DECIMAL, "DECIMAL(20, 0)", "64 bits without a sign"),
    PostgresType("real", 700, 1021, _F.FLOAT, "FLOAT", "NaN and infinities are values"),
    PostgresType("double precision", 701, 1022, _F.FLOAT, "DOUBLE", "NaN and infinities are values"),
    PostgresType(
        "numeric", 1700, 1231, _F.DECIMAL, _decimal,
        "DECIMAL of its precision and scale, NaN is a dead letter; STRING without a precision and above 38 digits",
    ),
    PostgresType("money", 790, 791, _F.MONEY, "DECIMAL(19, 2)", "hundredths, whatever `lc_monetary` of the server is"),
    PostgresType("text", 25, 1009, _F.TEXT, STRING),
    PostgresType("varchar", 1043, 1015, _F.TEXT, STRING, "of any length: a column may become longer"),
    PostgresType("char", 1042, 1014, _F.TEXT, STRING, "with the blanks that fill it up"),
    PostgresType('"char"', 18, 1002, _F.TEXT, STRING),
    PostgresType("name", 19, 1003, _F.TEXT, STRING),
    PostgresType("json", 114, 199, _F.TEXT, STRING, "as it was written"),
    PostgresType("jsonb", 3802, 3807, _F.TEXT, STRING, "as PostgreSQL prints it: 2.50 stays 2.50"),
    PostgresType("jsonpath", 4072, 4073, _F.TEXT, STRING),
    PostgresType("xml", 142, 143, _F.TEXT, STRING),
    PostgresType("uuid", 2950, 2951, _F.TEXT, STRING),
    PostgresType("bytea", 17, 1001, _F.BYTES, "BYTES"),
    PostgresType("date", 1082, 1182, _F.DATE, "DATE", _YEARS),
    PostgresType(
        "time", 1083, 1183, _F.TIME, _time,
        "TIME up to three digits of a second, and 24:00:00 is a dead letter; STRING with more: no TIME holds them",
    ),
    PostgresType("timetz", 1266, 1270, _F.TEXT, STRING, "no type has a zone of its own"),
    PostgresType("timestamp", 1114, 1115, _F.STAMP, _stamp, _YEARS),
    PostgresType("timestamptz", 1184, 1185, _F.ZONED, _zoned, f"an instant; {_YEARS}"),
    PostgresType("interval", 1186, 1187, _F.TEXT, STRING, "months, days and seconds are three numbers"),
    PostgresType("bit", 1560, 1561, _F.TEXT, STRING),
    PostgresType("varbit", 1562, 1563, _F.TEXT, STRING),
    PostgresType("inet", 869, 1041, _F.TEXT, STRING),
    PostgresType("cidr", 650, 651, _F.TEXT, STRING),
    PostgresType("macaddr", 829, 1040, _F.TEXT, STRING),
    PostgresType("macaddr8", 774, 775, _F.TEXT, STRING),
    PostgresType("tsvector", 3614, 3643, _F.TEXT, STRING),
    PostgresType("tsquery", 3615, 3645, _F.TEXT, STRING),
    PostgresType("point", 600, 1017, _F.TEXT, STRING),
    PostgresType("line", 628, 629, _F.TEXT, STRING),
    PostgresType("lseg", 601, 1018, _F.TEXT, STRING),
    PostgresType("box", 603, 1020, _F.TEXT, STRING, "the upper corner first"),
    PostgresType("path", 602, 1019, _F.TEXT, STRING),
    PostgresType("polygon", 604, 1027, _F.TEXT, STRING),
    PostgresType("circle", 718, 719, _F.TEXT, STRING),
    PostgresType("int4range", 3904, 3905, _F.TEXT, STRING),
    PostgresType("int8range", 3926, 3927, _F.TEXT, STRING),
    PostgresType("numrange", 3906, 3907, _F.TEXT, STRING),
    PostgresType("daterange", 3912, 3913, _F.TEXT, STRING),
    PostgresType("tsrange", 3908, 3909, _F.TEXT, STRING),
    PostgresType("tstzrange", 3910, 3911, _F.TEXT, STRING),
    PostgresType("int4multirange", 4451, 6150, _F.TEXT, STRING),
    PostgresType("int8multirange", 4536, 6157, _F.TEXT, STRING),
    PostgresType("nummultirange", 4532, 6151, _F.TEXT, STRING),
    PostgresType("datemultirange", 4535, 6155, _F.TEXT, STRING),
    PostgresType("tsmultirange", 4533, 6152, _F.TEXT, STRING),
    PostgresType("tstzmultirange", 4534, 6153, _F.TEXT, STRING),
    PostgresType("pg_lsn", 3220, 3221, _F.TEXT, STRING),
    PostgresType("tid", 27, 1010, _F.TEXT, STRING),
    PostgresType("txid_snapshot", 2970, 2949, _F.TEXT, STRING),
    PostgresType("pg_snapshot", 5038, 5039, _F.TEXT, STRING),
    PostgresType("refcursor", 1790, 2201, _F.TEXT, STRING),
    PostgresType("aclitem", 1033, 1034, _F.TEXT, STRING),
    PostgresType("regclass", 2205, 2210, _F.TEXT, STRING, "and the other names of things of the catalogue"),
    PostgresType("regproc", 24, 1008, _F.TEXT, STRING),
    PostgresType("regprocedure", 2202, 2207, _F.TEXT, STRING),
    PostgresType("regoper", 2203, 2208, _F.TEXT, STRING),
    PostgresType("regoperator", 2204, 2209, _F.TEXT, STRING),
    PostgresType("regtype", 2206, 2211, _F.TEXT, STRING),
    PostgresType("regconfig", 3734, 3735, _F.TEXT, STRING),
    PostgresType("regdictionary", 3769, 3770, _F.TEXT, STRING),
    PostgresType("regnamespace", 4089, 4090, _F.TEXT, STRING),
    PostgresType("regrole", 4096, 4097, _F.TEXT, STRING),
    PostgresType("regcollation", 4191, 4192, _F.TEXT, STRING),
    PostgresType("int2vector", 22, 1006, _F.TEXT, STRING),
    PostgresType("oidvector", 30, 1013, _F.TEXT, STRING),
)  # fmt: skip
USER_TYPES: Final = (
    ("domains", "the type of its base type", ""),
    ("enums", STRING, "the label at the time of the change"),
    ("composite types", STRING, 'such as `(1,"a b",)`'),
    ("other ranges, and types of extensions (citext, hstore, ltree, PostGIS)", STRING, "what PostgreSQL prints"),
    (
        "arrays of all these",
        "ARRAY of the type of the elements",
        "an array of several dimensions, or that does not begin at 1, is a dead letter",
    ),
)
"""Types that are looked up, as the page shows them."""

TYPES_BY_OID: Final = {each.oid: each for each in TYPES}
_BY_ARRAY: Final = {each.array: each for each in TYPES}
_DELIMITERS: Final = {603: ";"}
_TEXT: Final = TYPES_BY_OID[25]
_KIND_DOMAIN: Final = "d"
_NAMES_OF_Y: Final = {
    "bool": 16, "int2": 21, "int4": 23, "int8": 20, "float4": 700, "float8": 701, "bpchar": 1042,
} | {each.name: each.oid for each in TYPES}  # fmt: skip
_DEPTH_MAX: Final = 32


class SourceType(Frozen, dict=True):
    """The type of a column of the source: a line of the table with a modifier, or an array of those."""

    of: PostgresType
    modifier: int = NO_MODIFIER
    is_array: bool = False
    delimiter: str = ","

    @cached_property
    def sql_type(self) -> str:
        """The type of its column in SQL, such as DECIMAL(14, 4)."""
        column = self.of.column
        element = column if isinstance(column, str) else column(self.modifier)
        return f"ARRAY<{element}>" if self.is_array else element

    @property
    def element(self) -> SourceType:
        """The type of an array's elements."""
        return SourceType(self.of, self.modifier)


TEXT_TYPE: Final = SourceType(_TEXT)


class UserType(Frozen):
    """A line of `pg_type`: `kind` is its typtype, `base` that of a domain, `element` that of an array (0: none)."""

    oid: int
    name: str
    kind: str
    element: int
    base: int
    base_modifier: int
    delimiter: str


LOOK_UP: Final = """
SELECT t.oid::bigint, t.typname::text, t.typtype::text,
       (CASE WHEN t.typinput = 'pg_catalog.array_in'::regproc THEN t.typelem ELSE 0 END)::bigint,
       t.typbasetype::bigint, t.typtypmod, t.typdelim::text
FROM pg_catalog.pg_type t WHERE t.oid >= 10000 AND (t.typtype <> 'c' OR t.oid = ANY(%s))
"""
"""The types that a database has of its own, but for those of its tables' rows, which are asked for by their oids."""


class TypesSeen:
    """The types of a database by their oids. What was not looked up, or is gone by now, is a text, unless the message
    that names it (`Y`) names a type of pg_catalog, the base type of a domain: `named` has these by the oid."""

    def __init__(self, looked_up: Iterable[UserType] = (), named: Mapping[int, str] | None = None) -> None:
        self._by_oid = {each.oid: each for each in looked_up}
        self._named = dict(named or {})

    def unknown(self, oids: Iterable[int]) -> tuple[int, ...]:
        """Types that have to be looked up."""
        return tuple(sorted({oid for oid in oids if oid >= FIXED_OIDS and oid not in self._by_oid}))

    def source_type(self, oid: int, modifier: int = NO_MODIFIER) -> SourceType:
        """The type of a column of this type and modifier."""
        for _ in range(_DEPTH_MAX):
            found = TYPES_BY_OID.get(oid)
            if found is not None:
                return SourceType(found, modifier)
            if oid in _BY_ARRAY:
                element = _BY_ARRAY[oid]
                return SourceType(element, modifier, is_array=True, delimiter=_DELIMITERS.get(element.oid, ","))
            known = self._by_oid.get(oid)
            if known is None:
                named = _NAMES_OF_Y.get(self._named.get(oid, ""))
                return TEXT_TYPE if named is None else SourceType(TYPES_BY_OID[named], modifier)
            if known.kind == _KIND_DOMAIN:
                oid, modifier = known.base, known.base_modifier
            elif known.element:
                return self._array_of(known, modifier)
            else:
                return TEXT_TYPE
        return TEXT_TYPE

    def _array_of(self, array: UserType, modifier: int) -> SourceType:
        element = self.source_type(array.element, modifier)
        if element.is_array:
            return TEXT_TYPE  # of a domain over arrays: arrays within texts
        return SourceType(element.of, element.modifier, is_array=True, delimiter=array.delimiter)
