"""Renamed columns in the records of Debezium's schema change topic.

A record has the text of the statement (`ddl`) and what tables are after it (`tableChanges`). That a column was renamed
stands in the text alone; it counts where the table after it has the new name and not the old one.

| connector | `ddl` |
|---|---|
| MySQL, MariaDB, Oracle | the statement |
| SQL Server, Db2 | empty: no rename is known there |
| PostgreSQL | there is no such topic |

Source: Debezium's documentation of the schema change topics of its connectors.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from freshet._lazy import LazyModule
from freshet.pipeline.decode.change import RawRecord, parsed
from freshet.pipeline.decode.ddl_renames import renames_of
from freshet.pipeline.decode.json_value import JsonValue, text_of
from freshet.pipeline.decode.plan import RegistrySettings
from freshet.pipeline.decode.source_table import SourceTable

if TYPE_CHECKING:
    from freshet.pipeline.decode.avro import schemas as _schemas
else:
    _schemas = LazyModule("freshet.pipeline.decode.avro.schemas")

Pairs = tuple[tuple[str, str], ...]


class FoundRenames(NamedTuple):
    """What one statement renames in one table: (old, new), the columns after it in their order, and the place of the
    record. All of it happens at once: two columns may swap their names. One that renames nothing may still bring a name
    back that another has given away."""

    topic: str
    partition: int
    offset: int
    pairs: Pairs
    columns: tuple[str, ...]
    origin: str = ""
    """What tells the statement in the log of the database: a connector that dies sends statements again. Empty where
    nothing does."""

    def to_document(self) -> list[Any]:
        """As JSON takes it."""
        pairs = [list(pair) for pair in self.pairs]
        return [self.topic, self.partition, self.offset, pairs, list(self.columns), self.origin]

    @classmethod
    def of(cls, document: Sequence[Any]) -> FoundRenames:
        """The inverse of `to_document`."""
        topic, partition, offset, pairs, columns, origin = document
        return cls(topic, partition, offset, tuple((old, new) for old, new in pairs), tuple(columns), origin)


def schema_change_of(record: RawRecord, registry: RegistrySettings | None) -> dict[str, JsonValue] | None:
    """The members of a record of the schema change topic; None where it is another one, and where it brings no schema:
    then the records of its tables bring none either, and do not say which names they have."""
    if record.value is None:
        return None
    if registry is not None:
        try:
            body = _schemas.schemas_of(registry).read(record.value, record.topic).value
        except _schemas.UnreadableError:
            return None
        return body if isinstance(body, dict) else None
    try:
        top = parsed(record.value)
    except ValueError:
        return None
    if not isinstance(top, dict) or not isinstance(top.get("schema"), dict):
        return None
    payload = top.get("payload")
    return payload if isinstance(payload, dict) else None


def renames_in(body: dict[str, JsonValue], place: tuple[str, int, int]) -> Iterator[tuple[SourceTable, FoundRenames]]:
    """The tables that were created or altered, with what was renamed."""
    ddl, changes = text_of(body.get("ddl")) or "", body.get("tableChanges")
    if not isinstance(changes, list):
        return
    altered = renames_of(ddl) if "ALTER" in ddl.upper() else ()
    origin = _origin(body.get("source"), place[0])
    for change in changes:
        if not isinstance(change, dict) or text_of(change.get("type")) not in ("ALTER", "CREATE"):
            continue
        table, columns = source_table_of(text_of(change.get("id")) or ""), _columns(change.get("table"))
        if table is None or not columns:
            continue
        previous = source_table_of(text_of(change.get("previousId")) or "")
        named = [each for each in altered if each.table.casefold() == table.table.casefold()]
        # A table that got another name is a new one. MariaDB's records have no `previousId`: the text alone says so.
        is_same = previous in (None, table) and len(named) == 1 and not named[0].is_moved
        pairs = _confirmed(named[0].renames, columns) if is_same else ()
        yield table, FoundRenames(*place, pairs, columns, origin)


def source_table_of(table_id: str) -> SourceTable | None:
    """The table of `"db"."table"` or `"db"."schema"."table"`. A name that has a quote in it stands there without any:
    `"db".odd "table"`."""
    parts: list[str] = []
    rest = table_id
    while quoted := re.match(r'"([^"]*)"(?:\.|$)', rest):
        parts.append(quoted[1])
        rest = rest[quoted.end() :]
    if rest:
        parts.append(rest)
    if len(parts) == 2:
        return SourceTable(parts[0], "", parts[1])
    return SourceTable(*parts) if len(parts) == 3 else None


def _origin(source: JsonValue, topic: str) -> str:
    """A GTID is the same on every server. Places in a log, and GTIDs too, may begin anew: so the time stands beside
    them, and the topic, since two servers may count alike."""
    if not isinstance(source, dict):
        return ""
    for names in (("gtid", "ts_ms"), ("file", "pos", "ts_ms"), ("scn", "ts_ms")):
        parts = [text_of(source.get(name)) for name in names]
        if all(parts):
            return " ".join([topic, *map(str, parts)])
    return ""


def _columns(table: JsonValue) -> tuple[str, ...]:
    listed = table.get("columns") if isinstance(table, dict) else None
    found = [each for each in listed if isinstance(each, dict)] if isinstance(listed, list) else []
    positions = [text_of(each.get("position")) or "" for each in found]
    if all(position.isdecimal() for position in positions):
        found = [each for _, each in sorted(zip(map(int, positions), found, strict=True), key=lambda each: each[0])]
    names = (each.get("name") for each in found)
    return tuple(name for name in names if isinstance(name, str))


def _confirmed(renames: Pairs, columns: Sequence[str]) -> Pairs:
    """Those that the columns after the statement bear out, with the new names as they are spelled there. Names do not
    differ by upper and lower case alone.

    Where one takes a name that another gives away, all of them must be borne out: of two columns that swap their names
    in one statement Debezium's connector for MariaDB loses one.
    """
    spelled = {name.casefold(): name for name in columns}
    left = list(renames)
    while True:
        news = {new.casefold() for _, new in left}
        refused = {
            name.casefold()
            for old, new in left
            if new.casefold() not in spelled or (old.casefold() in spelled and old.casefold() not in news)
            for name in (old, new)
        }
        if not refused:
            break
        left = [pair for pair in left if not refused & {name.casefold() for name in pair}]
    return tuple((old, spelled[new.casefold()]) for old, new in left if old != spelled[new.casefold()])
