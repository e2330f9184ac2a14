"""Records with values that are hard to convert, in every format of JSON, for columns of every type; no Spark.

A value is the text of a JSON value: Python's own `json` could not write a number of 5000 digits, nor 1e99999999.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any, Final

from freshet.pipeline.config.pipeline_file import PipelineConfig
from tests.pipeline.records import TOAST, pipeline_of

COLUMNS: Final = {
    "id": "BIGINT", "bool": "BOOLEAN", "tiny": "TINYINT", "int": "INT", "long": "BIGINT", "float": "FLOAT",
    "double": "DOUBLE", "dec": "DECIMAL(14,4)", "wide": "DECIMAL(38,20)", "whole": "DECIMAL(38,0)",
    "small": "DECIMAL(38,38)", "text": "STRING", "short": "VARCHAR(3)", "bytes": "BYTES", "few": "VARBINARY(4)",
    "day": "DATE", "time": "TIME(3)", "sec": "TIMESTAMP(0)", "milli": "TIMESTAMP(3)", "at": "TIMESTAMP(6)",
    "nano": "TIMESTAMP(9)", "zoned": "TIMESTAMP_LTZ(6)", "ints": "ARRAY<INT>", "decs": "ARRAY<DECIMAL(10,2)>",
    "map": "MAP<INT, DOUBLE>", "texts": "MAP<STRING, STRING>", "row": "ROW<q FLOAT, w DECIMAL(10,0), t TIMESTAMP(9)>",
}  # fmt: skip

MESSAGES: Final[Mapping[str, Callable[[str], str]]] = {
    "debezium-json": lambda row: f'{{"before":null,"after":{row},"op":"c","source":{{"table":"t"}}}}',
    "debezium-unwrapped": lambda row: row,
    "json": lambda row: row,
    "row-kind": lambda row: row[:-1] + ',"kind":"+I"}',
    "canal-json": lambda row: f'{{"data":[{row}],"type":"INSERT","table":"t","database":"d","isDdl":false,"old":null}}',
    "maxwell-json": lambda row: f'{{"data":{row},"type":"insert","table":"t","database":"d","ts":1}}',
}
"""By format the record that inserts a row."""


def odd_pipeline(form: str, **more: Any) -> PipelineConfig:
    """A pipeline of records in this format."""
    options = {"rowkind.field": "kind"} if form == "row-kind" else {}
    return pipeline_of(COLUMNS, format=form, options=options, **more)


def odd_record(form: str, values: Mapping[str, str]) -> bytes:
    """The record of a row, whose values are texts of JSON."""
    members = {"id": "1", **values}
    row = "{" + ",".join(f'"{name}":{text}' for name, text in members.items()) + "}"
    return MESSAGES[form](row).encode()


HARD_NUMBERS: Final = (
    "0e99999999", "1e-99999999", "1e99999999", "-0e400", "1e400", "1e-400", "1e-9999", "1e39", "1e38", "-1e-38",
    "9" * 5000, "-" + "9" * 5000, "0." + "0" * 5000 + "1", "1" + "0" * 5000 + "e-5000", "5." + "0" * 5000,
    "0e" + "9" * 5000, "1e-" + "9" * 5000, "1e" + "0" * 5000 + "1", "1." + "1" * 5000, "1e2147483648",
)  # fmt: skip
_NUMBERS: Final = (
    "0", "-0", "1", "-1", "0.5", "1.0", "12.50", "1e3", "1E-4", "127", "128", "-129", "2147483648",
    "9223372036854775807", "9223372036854775808", "-9223372036854775809", "86399999", "86400000", "1700000000123456",
    "-62135596800000001", "253402300800000000", "2932897", "1e22", "16777217", "3.4028235677973366e38",
)  # fmt: skip
TEXTS: Final = (
    "", " ", "abc", "true", "NaN", "Infinity", "-Infinity", "nan", "AeJA", "/w==", "1234", "12=4", "A===", "\u0000",
    "\ud800", "\U0001f600", "äöü", TOAST, "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ==", "2024-02-29", "2024-02-30",
    "0000-00-00", "9999-12-31", "10000-01-01", "0001-01-01T00:00:00Z", "1677-09-21 00:12:43.145224192",
    "2262-04-11T23:47:16.854775808", "2024-02-29T10:00:00.123456789Z", "2024-02-29 10:00:00." + "1" * 3000,
    "2024-02-29T10:00:00+18:01", "24:00:00", "838:59:59", "-01:00:00", "12:34:56.7891", "[1,2]", "[", '{"1":2}',
    "[" * 2000, "x" * 70_000, "٣٤", "1_000", "0x10", "１２", "+5", "1d", "2024", "\n", "\\", '"',
)  # fmt: skip
_OTHERS: Final = (
    "null", "true", "false", "[]", "{}", "[null]", "[1,null]", '{"1":1,"01":2,"1":3}', '{"scale":2,"value":"AeJA"}',
    '{"scale":9999,"value":"AeJA"}', '{"scale":-9999,"value":"AeJA"}', '{"scale":2147483647,"value":"AQ=="}',
    '{"scale":1e9,"value":"AQ=="}', '{"value":"AQ=="}', '{"q":1e-99999999,"w":9e99999999,"t":1}', '{"":{"":{}}}',
    "[" * 500 + "]" * 500, "[" * 3000 + "]" * 3000, '{"scale":0,"value":"' + "f" * 4000 + '"}', '["1e99999999"]',
)  # fmt: skip


def odd_value(chance: Random) -> str:
    """The text of some JSON value."""
    match chance.randrange(8):
        case 0:
            return chance.choice(HARD_NUMBERS)
        case 1:
            return json.dumps(chance.choice(HARD_NUMBERS))
        case 2:
            return chance.choice(_NUMBERS)
        case 3:
            return json.dumps(chance.choice(TEXTS + _NUMBERS))
        case 4:
            return chance.choice(_OTHERS)
        case 5:
            return _random_number(chance)
        case 6:
            return json.dumps(_random_number(chance))
        case _:
            inner = [odd_value(chance) for _ in range(chance.randrange(4))]
            members = [f"{json.dumps(chance.choice(TEXTS + _NUMBERS))}:{each}" for each in inner]
            return f"[{','.join(inner)}]" if chance.random() < 0.5 else "{" + ",".join(members) + "}"


def _random_number(chance: Random) -> str:
    digits = "".join(chance.choices("0123456789", k=chance.choice([1, 3, 18, 19, 38, 39, 77, 400])))
    text = chance.choice(["", "-"]) + (digits.lstrip("0") or "0")
    if chance.random() < 0.5:
        text += "." + "".join(chance.choices("0019", k=chance.choice([1, 4, 20, 38, 300])))
    if chance.random() < 0.5:
        exponent = chance.choice([0, 1, 9, 37, 38, 39, 308, 399, 401, 4300, 10**7, 10**20])
        text += f"e{chance.choice(['', '+', '-'])}{exponent}"
    return text


_FACTS: Final = (
    "", "org.apache.kafka.connect.data.Decimal", "io.debezium.data.VariableScaleDecimal", "io.debezium.time.Date",
    "io.debezium.time.MicroTime", "io.debezium.time.NanoTimestamp", "io.debezium.time.ZonedTimestamp",
    "org.apache.kafka.connect.data.Timestamp", "io.debezium.time.Year", "io.debezium.data.Bits", "no.such.Name",
)  # fmt: skip
_SCALES: Final = ("0", "4", "-4", "9999", "-9999", "99999999", "9" * 5000, "x", "")


def random_record(form: str, chance: Random) -> bytes:
    """A record with a few odd values, at times with a schema, with odd members, or broken."""
    names = chance.sample(list(COLUMNS), chance.choice([1, 1, 2, 4]))
    record = odd_record(form, {name: odd_value(chance) for name in names})
    if form.startswith("debezium") and chance.random() < 0.2:
        record = _with_schema(form, names, record, chance)
    if chance.random() < 0.1:
        name = chance.choice(
            ['"op"', '"type"', '"ts_ms"', '"ts"', '"source"', '"before"', '"after"', '"data"', '"old"']
        )
        record = record[:-1] + f",{name}:{odd_value(chance)}}}".encode()
    if chance.random() < 0.05:
        place = chance.randrange(len(record))
        record = record[:place] + chance.choice([b"", b"\xff", b'"', b"{", b"\x00"]) + record[place + 1 :]
    return record[: chance.randrange(len(record))] if chance.random() < 0.02 else record


def _with_schema(form: str, names: Sequence[str], record: bytes, chance: Random) -> bytes:
    fields = [
        {"field": name, "type": chance.choice(["bytes", "string", "int64", "array", "struct"]),
         "name": chance.choice(_FACTS), "parameters": {"scale": chance.choice(_SCALES)},
         "items": {"type": "bytes", "name": chance.choice(_FACTS), "parameters": {"scale": chance.choice(_SCALES)}}}
        for name in names
    ]  # fmt: skip
    if form == "debezium-json":
        fields = [{"field": each, "type": "struct", "fields": fields} for each in ("before", "after")]
    schema = json.dumps({"type": "struct", "fields": fields})
    return f'{{"schema":{schema},"payload":'.encode() + record + b"}"
