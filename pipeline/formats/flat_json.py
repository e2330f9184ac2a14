"""Records that are plain rows: one JSON object whose members are the fields.

`json` and `row-kind`: every record is a row (`+I`, or the kind that a field names); no value is skipped.

In all of them an empty line of a file is skipped.

`debezium-unwrapped` (ExtractNewRecordState), with or without the `schema` beside it:

| record | outcome |
|---|---|
| a row | `+I`, or by `__op` if it is there |
| `__deleted` true, `__op` d | `-D` of the row |
| no value, `payload` null | `-D` of the key's fields, with or without schema |
| `__op` t | stops the run, or skipped: truncate |
| heartbeats, transaction and schema-change records, which pass the transformation unchanged | skipped |

The fields `__…` that the transformation adds are never unknown fields; `_source.x` is `__source_x`, else `__x`.
"""

from __future__ import annotations

from typing import Final

from freshet.pipeline.formats.record import (
    DEAD,
    FACTS,
    FACTS_TYPE,
    FIELD_MAP,
    IMAGE,
    KEY,
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
    is_wrapped,
    key_fields,
    truncate_stop,
    unwrapped,
)
from freshet.pipeline.sql_text import case, literal, name

_ROOT: Final = f"{PREFIX}root"
_GONE: Final = f"{PREFIX}gone"
_SERVER_KEY: Final = f"contains(CAST({KEY} AS STRING), '\"serverName\"')"
_NO_TEXT: Final = "CAST(NULL AS STRING)"
ADDED_PREFIX: Final = "__"
"""Begins the names of the fields that ExtractNewRecordState adds."""

_KINDS: Final = {"+I": 0, "-U": 1, "+U": 2, "-D": 3}


def json_stages(wanted: Wanted) -> list[Stage]:
    """Plain JSON: every record inserts."""
    return [*_parsed(), _plain(wanted, "0Y"), {DEAD: case(_not_json())}]


def row_kind_stages(wanted: Wanted, kind_field: str) -> list[Stage]:
    """JSON whose field `kind_field` holds `+I`, `-U`, `+U` or `-D`."""
    given = f"CAST({_ROOT}[{literal(kind_field)}] AS STRING)"
    kind = case([(f"{given} = '{text}'", f"{code}Y") for text, code in _KINDS.items()])
    advice = literal(f"{kind_field} is no row kind (+I, -U, +U, -D): ")
    unknown = f"concat({advice}, coalesce(left({given}, 10), 'NULL'))"
    return [*_parsed(), _plain(wanted, kind), {DEAD: case([*_not_json(), (f"{KIND} IS NULL", unknown)])}]


def unwrapped_stages(wanted: Wanted) -> list[Stage]:
    """Rows as ExtractNewRecordState leaves them."""
    fields = f"{PREFIX}fields"
    op = f"CAST({fields}['__op'] AS STRING)"
    deleted = f"CAST({fields}['__deleted'] AS STRING) = 'true'"
    is_gone = f"({TEXT} IS NULL OR {TEXT} = 'null')"
    payload_null = f"({is_wrapped(_ROOT)} AND CAST({_ROOT}['payload'] AS STRING) IS NULL)"
    facts = f"try_variant_get({_ROOT}['schema'], '$.fields', '{FACTS_TYPE}')"
    return [
        {TEXT: f"CAST({VALUE} AS STRING)"},
        {_ROOT: f"from_json({TEXT}, '{FIELD_MAP}')"},
        {_GONE: f"({is_gone} OR coalesce({payload_null}, false))"},
        # A tombstone is read through its key, which has the same two forms.
        {_ROOT + "_k": f"CASE WHEN {_GONE} THEN {key_fields()} ELSE {_ROOT} END"},
        {
            fields: unwrapped(_ROOT + "_k"),
            FACTS: f"CASE WHEN {is_wrapped(_ROOT + '_k')} THEN {facts.replace(_ROOT, _ROOT + '_k')} END"
            if wanted.facts
            else f"CAST(NULL AS {FACTS_TYPE})",
        },
        {
            SKIP: case(
                [
                    (_GONE, _NO_TEXT),
                    blank_line(TEXT),
                    (f"{op} = 't'", "'truncate'" if wanted.skip_truncate else truncate_stop()),
                    (_has(fields, "status", "id", "event_count", "data_collections"), "'transaction'"),
                    (_has(fields, "source", "databaseName"), "'schema change'"),
                    (f"size({fields}) = 1 AND {_has(fields, 'ts_ms')} AND {_SERVER_KEY}", "'heartbeat'"),
                ]
            ),
            KIND: case([(f"{_GONE} OR {deleted} OR {op} = 'd'", "3Y"), (f"{op} = 'u'", "2Y")], "0Y"),
            IMAGE: fields,
            OLD: f"CAST(NULL AS {FIELD_MAP})",
            OP: op,
            TS_MS: f"CAST(coalesce({fields}['__ts_ms'], {fields}['__source_ts_ms']) AS STRING)",
            SOURCE: _added_source(wanted, fields),
        },
        {
            DEAD: case(
                [
                    (f"{SKIP} IS NOT NULL", _NO_TEXT),
                    (f"{_GONE} AND {IMAGE} IS NULL", "'a tombstone whose key is no JSON object'"),
                    (_GONE, _NO_TEXT),
                    *_not_json(),
                    (f"{IMAGE} IS NULL", "'the payload is no JSON object'"),
                ]
            )
        },
    ]  # fmt: skip


def _parsed() -> list[Stage]:
    return [{TEXT: f"CAST({VALUE} AS STRING)"}, {_ROOT: f"from_json({TEXT}, '{FIELD_MAP}')"}]


def _plain(wanted: Wanted, kind: str) -> Stage:
    return {
        SKIP: case([(f"{TEXT} IS NULL OR {TEXT} = 'null'", "'tombstone'"), blank_line(TEXT)]),
        KIND: kind,
        IMAGE: _ROOT,
        OLD: f"CAST(NULL AS {FIELD_MAP})",
        FACTS: f"CAST(NULL AS {FACTS_TYPE})",
        OP: _NO_TEXT,
        TS_MS: _NO_TEXT,
        SOURCE: _typed_source(wanted, [(field, _NO_TEXT) for field in wanted.source_fields]),
    }


def _not_json() -> list[tuple[str, str]]:
    return [
        (f"{SKIP} IS NOT NULL", _NO_TEXT),
        (f"{_ROOT} IS NULL OR NOT {is_whole(TEXT)}", "'the value is not a JSON object'"),
    ]


def _has(fields: str, *names: str) -> str:
    return "(" + " AND ".join(f"map_contains_key({fields}, '{field}')" for field in names) + ")"


def _added_source(wanted: Wanted, fields: str) -> str:
    def added(field: str) -> str:
        first, second = (f"{fields}[{literal(prefix + field)}]" for prefix in ("__source_", "__"))
        return f"CAST(coalesce({first}, {second}) AS STRING)"

    return _typed_source(wanted, [(field, added(field)) for field in wanted.source_fields])


def _typed_source(wanted: Wanted, fields: list[tuple[str, str]]) -> str:
    if wanted.source_text or not fields:
        return _NO_TEXT
    return "struct(" + ", ".join(f"{value} AS {name(field)}" for field, value in fields) + ")"
