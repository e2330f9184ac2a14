"""The normal form of a record: what every format produces and the transforms go on from.

A format is a list of stages. A stage maps column names to SQL text over the columns of the stages before it; each is a
projection of its own, so that what is read twice is computed once (Spark never merges a projection whose costly columns
are read more than once). Names begin with `PREFIX`, which no payload field may.

| column | type | meaning |
|---|---|---|
| SKIP | STRING | why the record is skipped and only counted; NULL: it is not |
| DEAD | STRING | why the whole record is a dead letter; NULL: it is not |
| KIND | TINYINT | row kind of the image |
| IMAGE | MAP<STRING, VARIANT> | the row: fields to JSON values; a deletion has what it has |
| OLD | MAP<STRING, VARIANT> | the row before an update, where the record brings it |
| FACTS | ARRAY<STRUCT<field, name, parameters.scale>> | the fields' types in the record's schema; NULL without one |
| OP, TS_MS | STRING | `_op` and `_ts_ms` |
| SOURCE | STRUCT or STRING | `_source`: the fields that `select` names, or the JSON text |

A record that must stop the run raises a message between `STOP` marks, which `exceptions.stop_message` finds again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from freshet.pipeline.exceptions import STOP
from freshet.pipeline.sql_text import literal

PREFIX: Final = "__f_"
KEY, VALUE, TOPIC, KAFKA_PARTITION, OFFSET, TIMESTAMP, HEADERS, SOURCE_INDEX, RANK = (
    f"{PREFIX}{part}"
    for part in ("key", "value", "topic", "partition", "offset", "timestamp", "headers", "source_index", "rank")
)
SKIP, DEAD, KIND, IMAGE, OLD, FACTS, OP, TS_MS, SOURCE = (
    f"{PREFIX}{part}" for part in ("skip", "dead", "kind", "image", "old", "facts", "op", "ts_ms", "source")
)
TEXT: Final = f"{PREFIX}text"
"""The value as text."""

FIELD_MAP: Final = "map<string,variant>"
FACTS_TYPE: Final = "array<struct<field:string,name:string,parameters:struct<scale:string>>>"

INSERT, UPDATE_AFTER, DELETE = 0, 2, 3
"""Row kinds, as in `freshet.storage.model.row_kind`."""

Stage = dict[str, str]
"""Column name to SQL text."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the transforms need of a record, so that formats parse no more than that.

    `facts`: the types in the record's schema matter. `source_fields`: the fields of `_source` that expressions name;
    `source_text`: an expression reads `_source` as a whole.
    """

    facts: bool
    source_fields: tuple[str, ...] = ()
    source_text: bool = False
    skip_truncate: bool = False


def stop(message: str) -> str:
    """SQL text that ends the run; `message` is SQL text too."""
    return f"raise_error(concat('{STOP}[', {message}, ']{STOP}'))"


def truncate_stop() -> str:
    """Stops at a truncate record, saying what can be done."""
    where = f"coalesce({TOPIC}, '?'), ' partition ', coalesce({KAFKA_PARTITION}, -1), ' offset ', {OFFSET}"
    advice = (
        ": the source table was truncated and on_truncate is fail; delete the rows of the table yourself, then set "
        "on_truncate: skip and start again"
    )
    return stop(f"concat('truncate record at ', {where}, {literal(advice)})")


def unwrapped(entries: str) -> str:
    """The fields of a message, which may stand under `payload` beside a `schema`."""
    return f"CASE WHEN {is_wrapped(entries)} THEN {payload_of(entries)} ELSE {entries} END"


def is_wrapped(entries: str) -> str:
    """True for a map of just `schema` and `payload`."""
    return f"(size({entries}) = 2 AND map_contains_key({entries}, 'schema') AND map_contains_key({entries}, 'payload'))"


def payload_of(entries: str) -> str:
    """The fields under `payload`; NULL when that is no object."""
    return f"try_variant_get({entries}['payload'], '$', '{FIELD_MAP}')"


def key_fields() -> str:
    """The fields of the record's key; NULL when the key is no JSON object."""
    return f"from_json(CAST({KEY} AS STRING), '{FIELD_MAP}')"


def blank_line(text: str) -> tuple[str, str]:
    """Skips what is nothing but blanks in a line of a file; in a Kafka record that would be a dead letter."""
    return f"{KAFKA_PARTITION} IS NULL AND trim({text}) = ''", "'blank line'"


def is_whole(text: str) -> str:
    """True for UTF-8 with nothing behind the closing brace: Spark's parser replaces the one and stops at the other."""
    return f"(is_valid_utf8({text}) AND (endswith({text}, '}}') OR {text} RLIKE '[}}][ \t\r\n]*$'))"
