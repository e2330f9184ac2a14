"""Dates and times: numbers by their unit and ISO texts, into carriers.

| type name in the record's schema | unit |
|---|---|
| io.debezium.time.Date, org.apache.kafka.connect.data.Date | days |
| io.debezium.time.Time, .Timestamp, org.apache.kafka.connect.data.Time, .Timestamp | milliseconds |
| io.debezium.time.MicroTime, .MicroTimestamp | microseconds |
| io.debezium.time.NanoTime, .NanoTimestamp | nanoseconds |

| no schema, mode | TIME(p) | TIMESTAMP(p) |
|---|---|---|
| adaptive | p <= 3 milli, <= 6 micro, else nano | the same |
| adaptive_time_microseconds | micro | by p |
| connect | milli | milli |
| microseconds, nanoseconds | as named | as named |
| isostring | numbers are refused | numbers are refused |

Steps: (1) the number, if it is one, (2) a count of the carrier's unit (days, milliseconds of the day, microseconds or
nanoseconds since 1970), (3) the carrier, if the count is in range and no finer than the declared precision.
A number in milliseconds is tested for its range before it is multiplied, so nothing wraps around.

Source: Debezium's PostgreSQL and MySQL connector documentation, temporal types.
"""

from __future__ import annotations

from typing import Final

from freshet.pipeline.formats.value import Dialect, Leaf, Step
from freshet.pipeline.sql_text import case, one_of
from freshet.storage.model.data_type import ScalarType, TypeRoot

_MILLI_NAMES: Final = (
    "io.debezium.time.Time",
    "io.debezium.time.Timestamp",
    "org.apache.kafka.connect.data.Time",
    "org.apache.kafka.connect.data.Timestamp",
)
_MICRO_NAMES: Final = ("io.debezium.time.MicroTime", "io.debezium.time.MicroTimestamp")
_NANO_NAMES: Final = ("io.debezium.time.NanoTime", "io.debezium.time.NanoTimestamp")

_DAY_MIN, _DAY_MAX = -719162, 2932896
"""0001-01-01 and 9999-12-31 in days since 1970."""
_MICRO_MIN, _MICRO_MAX = _DAY_MIN * 86_400_000_000, (_DAY_MAX + 1) * 86_400_000_000 - 1
_NANO_MICRO_MIN, _NANO_MICRO_MAX = -9223372036854775, 9223372036854774
"""Microseconds whose nanoseconds fit in 64 bits (1677-09-21 to 2262-04-11)."""
_DAY_MILLIS: Final = 86_400_000

_ISO_DATE: Final = "^[0-9]{4}-[0-9]{2}-[0-9]{2}Z?$"
_ISO_TIME: Final = "^([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9]([.][0-9]{1,3}0*)?)?Z?$"
_ZONE: Final = "(Z|[+-][0-9]{2}:[0-9]{2})"
_ISO_STAMP: Final = "^[0-9]{4}-[0-9]{2}-[0-9]{2}([T ][0-9]{2}:[0-9]{2}:[0-9]{2}([.][0-9]{1,%d}0*)?" + _ZONE + "?)?$"


def time_steps(data_type: ScalarType, dialect: Dialect) -> list[Step]:
    """The steps for DATE, TIME, TIMESTAMP and TIMESTAMP WITH LOCAL TIME ZONE."""
    precision = data_type.precision or 0
    match data_type.root:
        case TypeRoot.DATE:
            return [_number, lambda leaf, last: _date_count(leaf, last, dialect), _date]
        case TypeRoot.TIME:
            return [
                _number,
                lambda leaf, last: _counted(leaf, last, _time_scales(data_type, dialect), _time_text(leaf.text)),
                lambda _, last: _bounded(last, 0, _DAY_MILLIS - 1, 10 ** max(0, 3 - precision), last),
            ]
        case _ if precision > 6:
            return [
                _number,
                lambda leaf, last: _counted(leaf, last, _nano_scales(data_type, dialect), _nano_text(leaf.text)),
                lambda _, last: _bounded(last, None, None, 10 ** (9 - precision), last),
            ]
        case root:
            target = "TIMESTAMP" if root is TypeRoot.TIMESTAMP_LTZ else "TIMESTAMP_NTZ"
            return [
                _number,
                lambda leaf, last: _counted(leaf, last, _micro_scales(data_type, dialect), _micro_text(leaf.text, 6)),
                lambda _, last: _bounded(
                    last, _MICRO_MIN, _MICRO_MAX, 10 ** (6 - precision), f"CAST(timestamp_micros({last}) AS {target})"
                ),
            ]


def unit_without_schema(data_type: ScalarType, mode: str) -> str | None:
    """`ms`, `us`, `ns`, or None when numbers are refused."""
    fixed = {"connect": "ms", "microseconds": "us", "nanoseconds": "ns"}
    if mode in fixed:
        return fixed[mode]
    if mode == "isostring":
        return None
    if mode == "adaptive_time_microseconds" and data_type.root is TypeRoot.TIME:
        return "us"
    precision = data_type.precision or 0
    return "ms" if precision <= 3 else "us" if precision <= 6 else "ns"


def _number(leaf: Leaf, _: str) -> str:
    """A JSON number. A text of digits is none: "2024" is a year to whoever wrote it, not a count of days."""
    return f"CASE WHEN NOT {leaf.is_string} THEN try_cast({leaf.text} AS BIGINT) END"


def _date_count(leaf: Leaf, number: str, dialect: Dialect) -> str:
    text = case(
        [(f"{leaf.text} RLIKE '{_ISO_DATE}'", f"CAST(unix_date(try_cast(left({leaf.text}, 10) AS DATE)) AS BIGINT)")]
    )
    if dialect.numeric_times == "isostring":
        return case([(f"{number} IS NULL OR {leaf.schema_name} IS NOT NULL", f"coalesce({number}, {text})")])
    return f"coalesce({number}, {text})"


def _date(_: Leaf, days: str) -> str:
    return _bounded(days, _DAY_MIN, _DAY_MAX, 1, f"date_from_unix_date(CAST({days} AS INT))")


def _counted(leaf: Leaf, number: str, scales: dict[str | None, str], text: str) -> str:
    """The count by the unit that the schema names, else by the unit of the mode, else from the text."""
    named = [
        (one_of(leaf.schema_name, names), scales[unit].format(n=number))
        for unit, names in (("us", _MICRO_NAMES), ("ms", _MILLI_NAMES), ("ns", _NANO_NAMES))
    ]
    default = scales.get(None)
    chosen = case(named, default.format(n=number) if default else None)
    return case([(f"{number} IS NOT NULL", chosen)], text)


def _with_default(scales: dict[str | None, str], data_type: ScalarType, dialect: Dialect) -> dict[str | None, str]:
    unit = unit_without_schema(data_type, dialect.numeric_times)
    return {**scales, None: scales[unit]} if unit else scales


def _time_scales(data_type: ScalarType, dialect: Dialect) -> dict[str | None, str]:
    scales: dict[str | None, str] = {"ms": "{n}", "us": _divided(1_000), "ns": _divided(1_000_000)}
    return _with_default(scales, data_type, dialect)


def _micro_scales(data_type: ScalarType, dialect: Dialect) -> dict[str | None, str]:
    scales: dict[str | None, str] = {
        "ms": _multiplied(1_000, _MICRO_MIN // 1_000, _MICRO_MAX // 1_000),
        "us": "{n}",
        "ns": _divided(1_000),
    }
    return _with_default(scales, data_type, dialect)


def _nano_scales(data_type: ScalarType, dialect: Dialect) -> dict[str | None, str]:
    scales: dict[str | None, str] = {
        "ms": _multiplied(1_000_000, _NANO_MICRO_MIN // 1_000 + 1, _NANO_MICRO_MAX // 1_000),
        "us": _multiplied(1_000, _NANO_MICRO_MIN, _NANO_MICRO_MAX),
        "ns": "{n}",
    }
    return _with_default(scales, data_type, dialect)


def _multiplied(factor: int, low: int, high: int) -> str:
    return f"(CASE WHEN {{n}} BETWEEN {low} AND {high} THEN {{n}} * {factor}L END)"


def _divided(divisor: int) -> str:
    """Exact division; NULL where something would be lost."""
    return f"(CASE WHEN {{n}} % {divisor} = 0 THEN {{n}} DIV {divisor} END)"


def _time_text(text: str) -> str:
    fraction = f"rpad(left(regexp_extract({text}, '[.]([0-9]+)', 1), 3), 3, '0')"
    seconds = f"coalesce(try_cast(substr({text}, 7, 2) AS BIGINT), 0L)"
    count = (
        f"((CAST(substr({text}, 1, 2) AS BIGINT) * 60 + CAST(substr({text}, 4, 2) AS BIGINT)) * 60 + {seconds}) * 1000"
        f" + CAST({fraction} AS BIGINT)"
    )
    return case([(f"{text} RLIKE '{_ISO_TIME}'", count)])


def _micro_text(text: str, digits: int) -> str:
    """Microseconds since 1970 of an ISO text of at most `digits` fraction digits, cut to six; no zone means UTC."""
    zoned = case(
        [
            (f"length({text}) = 10", f"concat({text}, 'T00:00:00Z')"),
            (f"{text} RLIKE '{_ZONE}$'", text),
        ],
        f"concat({text}, 'Z')",
    )
    return case([(f"{text} RLIKE '{_ISO_STAMP % digits}'", f"unix_micros(try_cast({zoned} AS TIMESTAMP))")])


def _nano_text(text: str) -> str:
    beyond = f"CAST(rpad(substr(regexp_extract({text}, '[.]([0-9]+)', 1), 7, 3), 3, '0') AS BIGINT)"
    return f"try_add(try_multiply({_micro_text(text, 9)}, 1000L), {beyond})"


def _bounded(count: str, low: int | None, high: int | None, step: int, carrier: str) -> str:
    conditions = [f"{count} BETWEEN {low}L AND {high}L"] if low is not None else []
    if step > 1:
        conditions.append(f"{count} % {step} = 0")
    return case([(" AND ".join(conditions), carrier)]) if conditions else carrier
