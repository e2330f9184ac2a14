"""Which table a record of a change capture is of, as the record names it.

| format | db, schema, table |
|---|---|
| debezium-json, debezium-avro | members of `source` |
| debezium-unwrapped | `__source_db`, else `__db`, and so on, where the transformation adds them (`add.fields`) |
| canal-json, maxwell-json | `database`, none, `table` of the message |

MySQL and MariaDB have no schema: it is empty. A record that names no table (a heartbeat, an unwrapped row or tombstone
without added fields) has none. Where one topic stands for one table (`sync`), it names it instead (`table_of_topic`).

`TableSorter` reads only this of a record, for topics that do hold records of several tables; structs refuse all but one
table by their type (`json.structs`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from typing import Any, Final, Literal, NamedTuple

import msgspec

from freshet.pipeline.config.formats import BINLOG_FORMATS, PLAIN_FORMATS
from freshet.pipeline.decode.binlog import CANAL_KINDS, MAXWELL_KINDS
from freshet.pipeline.decode.flat import ADDED_PREFIX
from freshet.pipeline.decode.json_value import JsonValue, encodable, text_of

PARTS: Final[tuple[str, str, str]] = ("db", "schema", "table")
ADDED_NAMES: Final = tuple(f"{ADDED_PREFIX}{mark}{part}" for part in PARTS for mark in ("source_", ""))
"""The fields of an unwrapped row that name its table."""


_PARTS_OF_BINLOG: Final = ("database", "", "table")


def part_names(format_name: str) -> tuple[str, str, str]:
    """The members that name the table, in the order of `PARTS`; empty for what the format does not have."""
    return _PARTS_OF_BINLOG if format_name in BINLOG_FORMATS else PARTS


class SourceTable(NamedTuple):
    """A table as its records name it; what they do not name is empty."""

    db: str
    schema: str
    table: str

    def __str__(self) -> str:
        return ".".join(part for part in self if part)

    @property
    def as_only(self) -> str:
        """The form that `only` of a pipeline file takes."""
        parts = (f"{name}: {_as_yaml(part)}" for name, part in zip(PARTS, self, strict=True) if part)
        return f"{{{', '.join(parts)}}}"


UNREAD: Final = SourceTable("", "", "")
"""In place of the table of a record that has to take the careful path."""


def table_of(source: JsonValue, names: tuple[str, str, str] = PARTS) -> SourceTable | None:
    """The table that `source` (the added fields of an unwrapped row, the members of a message) names by the members of
    these names; None where it names none."""
    if not isinstance(source, dict):
        return None
    db, schema, table = (encodable(text_of(source.get(name)) or "") if name else "" for name in names)
    return SourceTable(db, schema, table) if table else None


def table_of_topic(format_name: str, topic: str) -> SourceTable | None:
    """The table that a topic stands for; None in formats whose records name theirs.

    Of plain rows it is called as the topic. Of rows that Debezium has unwrapped it has the parts of the topic, where
    these are two or three, so that it is the same whether a record names it or not.
    """
    if format_name in PLAIN_FORMATS:
        return SourceTable("", "", topic)
    if format_name != "debezium-unwrapped":
        return None
    parts = topic.split(".")
    if not all(parts) or not 2 <= len(parts) <= len(PARTS):
        return SourceTable("", "", topic)
    return SourceTable(parts[0], parts[1] if len(parts) == len(PARTS) else "", parts[-1])


def table_of_record(format_name: str, source: JsonValue, topic: str) -> SourceTable | None:
    """The table of a record of `sync`: the one that `source` names, else the one that its topic stands for."""
    named = None if format_name in PLAIN_FORMATS else table_of(source, part_names(format_name))
    return named or table_of_topic(format_name, topic)


_Parts = Sequence[str | None] | None


class TableSorter:
    """Reads the tables of many records of one format."""

    def __init__(self, format_name: str) -> None:
        self._known: dict[_Parts, SourceTable | None] = {}
        self._parts: Callable[[Any], _Parts] = msgspec.structs.astuple
        text = str | None
        if format_name == "debezium-json":
            source = msgspec.defstruct("Source", [(part, text, None) for part in PARTS], gc=False)
            op = Literal["r", "c", "u", "d"]
            shape = msgspec.defstruct("Envelope", [("op", op), ("source", source | None, None)], gc=False)
            self._parts = _parts_of_envelope
        elif format_name in BINLOG_FORMATS:
            kinds: Any = Literal[tuple(CANAL_KINDS if format_name == "canal-json" else MAXWELL_KINDS)]
            members: list[Any] = [("type", kinds), ("database", text, None), ("table", text, None)]
            shape = msgspec.defstruct("Message", members, gc=False)
            self._parts = _parts_of_message
        else:
            names = {f"m{index}": name for index, name in enumerate((*ADDED_NAMES, "__op"))}
            shape = msgspec.defstruct("Row", [(each, text, None) for each in names], rename=names, gc=False)
        self._decode = msgspec.json.Decoder(shape).decode

    def tables(self, values: Sequence[bytes]) -> list[SourceTable | None]:
        """The table of each record, None where it names none, `UNREAD` where it has to take the careful path."""
        return [self._table(value) for value in values]

    def _table(self, value: bytes) -> SourceTable | None:
        try:
            parts = self._parts(self._decode(value))
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return UNREAD
        try:
            return self._known[parts]
        except KeyError:
            found = self._known[parts] = _table(parts)
            return found


def _parts_of_envelope(envelope: Any) -> _Parts:
    source = envelope.source
    return None if source is None else (source.db, source.schema, source.table)


def _parts_of_message(message: Any) -> _Parts:
    return message.database, None, message.table


def _table(parts: _Parts) -> SourceTable | None:
    if parts is None:
        return None
    if len(parts) > len(PARTS):  # of an unwrapped row: both names of each part, then the operation
        if parts[-1] == "t":
            return UNREAD
        parts = [parts[2 * index] if parts[2 * index] is not None else parts[2 * index + 1] for index in range(3)]
    db, schema, table = (part or "" for part in parts)
    return SourceTable(db, schema, table) if table else None


def _as_yaml(text: str) -> str:
    is_plain = text.replace("_", "a").isalnum() and text.isascii() and not text[0].isdigit()
    if is_plain and text not in ("true", "false", "null"):
        return text
    try:
        re.compile(text)
    except re.error:
        text = re.escape(text)
    return json.dumps(text)
