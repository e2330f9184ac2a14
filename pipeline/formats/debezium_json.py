"""Debezium's change envelope, with or without the `schema` beside it, told apart record by record.

| record | outcome |
|---|---|
| op r, c | `+I` of `after` |
| op u | `+U` of `after`; `before` goes along |
| op d | `-D` of `before`, else of the key's fields |
| no value, `payload` null | skipped: tombstone |
| an empty line of a file | skipped: blank line |
| op t | stops the run, or skipped: truncate |
| op m | skipped: message |
| `status` BEGIN or END | skipped: transaction |
| `databaseName` or `ddl` | skipped: schema change |
| nothing but `ts_ms` | skipped: heartbeat |
| no JSON, no envelope, an unknown op, a missing image | dead letter |

The value is parsed once. Source: Debezium 3.5/3.6 captures of PostgreSQL and MariaDB.
"""

from __future__ import annotations

from typing import Final

from freshet.pipeline.formats.record import (
    DEAD,
    FACTS,
    FACTS_TYPE,
    FIELD_MAP,
    IMAGE,
    KIND,
    OLD,
    OP,
    PREFIX,
    SKIP,
    SOURCE,
    TEXT,
    TS_MS,
    VALUE,
    Stage,
    Wanted,
    blank_line,
    is_whole,
    key_fields,
    truncate_stop,
    unwrapped,
)
from freshet.pipeline.sql_text import case, literal, name

_PARSED: Final = f"{PREFIX}p"
_BEFORE, _AFTER, _OTHER = f"{PREFIX}before", f"{PREFIX}after", f"{PREFIX}other"
_KEY_FIELDS: Final = f"{PREFIX}key_fields"
_TOMBSTONE: Final = f"{PREFIX}tombstone"
_CORRUPT: Final = "_corrupt"


def stages(wanted: Wanted) -> list[Stage]:
    """The stages from the raw record to its normal form."""
    return [
        {TEXT: f"CAST({VALUE} AS STRING)"},
        {_PARSED: f"from_json({TEXT}, {literal(_shape(wanted))}, map('columnNameOfCorruptRecord', '{_CORRUPT}'))"},
        {
            OP: _either("op"),
            TS_MS: _either("ts_ms"),
            SOURCE: _either("source") if wanted.source_text or wanted.source_fields else "CAST(NULL AS STRING)",
            _BEFORE: _either("before"),
            _AFTER: _either("after"),
            _OTHER: _other(),
            _TOMBSTONE: f"({TEXT} IS NULL OR {TEXT} = 'null' OR ({_PARSED}.schema IS NOT NULL "
            f"AND {_PARSED}.payload IS NULL AND {_PARSED}.{_CORRUPT} IS NULL))",
        },
        {_KEY_FIELDS: f"CASE WHEN {OP} = 'd' AND {_BEFORE} IS NULL THEN {key_fields()} END"},
        {
            SKIP: _skip(wanted),
            KIND: case([(f"{OP} = 'd'", "3Y"), (f"{OP} = 'u'", "2Y")], "0Y"),
            IMAGE: case([(f"{OP} = 'd'", f"coalesce({_BEFORE}, {unwrapped(_KEY_FIELDS)})")], _AFTER),
            OLD: f"CASE WHEN {OP} = 'u' THEN {_BEFORE} END",
            FACTS: _facts(wanted),
        },
        {DEAD: _dead()},
    ]


def _shape(wanted: Wanted) -> str:
    if wanted.source_text or not wanted.source_fields:
        source = "STRING"
    else:
        source = "STRUCT<" + ", ".join(f"{name(field)}: STRING" for field in wanted.source_fields) + ">"
    envelope = {
        "before": FIELD_MAP,
        "after": FIELD_MAP,
        "op": "STRING",
        "ts_ms": "STRING",
        "status": "STRING",
        "ddl": "STRING",
        "databaseName": "STRING",
    }
    if wanted.source_text or wanted.source_fields:
        envelope["source"] = source
    schema = (
        f"STRUCT<fields: ARRAY<STRUCT<field: STRING, fields: {FACTS_TYPE}>>>"
        if wanted.facts
        else "STRUCT<type: STRING>"
    )
    inner = ", ".join(f"{field}: {kind}" for field, kind in envelope.items())
    return f"STRUCT<schema: {schema}, payload: STRUCT<{inner}>, {inner}, {_CORRUPT}: STRING>"


def _either(field: str) -> str:
    return f"coalesce({_PARSED}.payload.{field}, {_PARSED}.{field})"


def _other() -> str:
    """What a record without an operation is, if it is something that Debezium writes."""
    return case(
        [
            (f"{_either('op')} IS NOT NULL", "NULL"),
            (f"{_either('status')} IN ('BEGIN', 'END')", "'transaction'"),
            (f"{_either('ddl')} IS NOT NULL OR {_either('databaseName')} IS NOT NULL", "'schema change'"),
            (
                f"coalesce({_either('before')}, {_either('after')}) IS NULL AND {_either('ts_ms')} IS NOT NULL",
                "'heartbeat'",
            ),
        ]
    )


def _skip(wanted: Wanted) -> str:
    return case(
        [
            (_TOMBSTONE, "'tombstone'"),
            blank_line(TEXT),
            (f"{_PARSED} IS NULL OR {_PARSED}.{_CORRUPT} IS NOT NULL", "CAST(NULL AS STRING)"),
            (f"{OP} = 't'", "'truncate'" if wanted.skip_truncate else truncate_stop()),
            (f"{OP} = 'm'", "'message'"),
        ],
        _OTHER,
    )


def _facts(wanted: Wanted) -> str:
    if not wanted.facts:
        return f"CAST(NULL AS {FACTS_TYPE})"
    # `before` and `after` have the same type; a delete's schema has both.
    fields = f"{_PARSED}.schema.fields"
    return f"get({fields}.fields, CAST(array_position({fields}.field, 'after') AS INT) - 1)"


def _dead() -> str:
    return case(
        [
            (f"{SKIP} IS NOT NULL", "CAST(NULL AS STRING)"),
            (f"{_PARSED} IS NULL", "'the value is empty'"),
            (
                f"{_PARSED}.{_CORRUPT} IS NOT NULL OR NOT {is_whole(TEXT)}",
                "'the value is not JSON of the form expected'",
            ),
            (f"{OP} IS NULL", "'no Debezium envelope: op is missing'"),
            (f"{OP} NOT IN ('r', 'c', 'u', 'd')", f"concat('unknown op ', left({OP}, 10))"),
            (f"{IMAGE} IS NULL AND {OP} = 'd'", "'a delete without before and without the key in the message key'"),
            (f"{IMAGE} IS NULL", "'no after in the record'"),
        ]
    )
