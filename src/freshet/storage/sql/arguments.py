"""What procedures make of their arguments, and what most of them answer."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from freshet.storage.maintenance.partition_choice import PartitionText
from freshet.storage.sql.names import SqlName, by_keys, moment_ms
from freshet.storage.sql.refusals import wrong
from freshet.storage.sql.result import SqlResult, given
from freshet.storage.sql.session import SqlSession

if TYPE_CHECKING:
    from freshet.storage.table import Table

Arguments = Mapping[str, Any]
"""What is given, by name: texts, whole numbers, truth values."""


def done() -> SqlResult:
    """What most procedures answer."""
    return given({"result": [True]}, {"result": pa.bool_()})


def table_of(session: SqlSession, text: str) -> Table:
    """The table that an argument names."""
    return session.table(SqlName.of([part.strip("`") for part in _NAME_PARTS.findall(text)] or [text]))


_NAME_PARTS: Final = re.compile(r"`[^`]+`|[^.`]+")


def with_options(table: Table, text: str | None) -> Table:
    """`key=value,key=value` for this call."""
    if not text:
        return table
    pairs = [pair.partition("=") for pair in text.split(",")]
    if not all(equals and key.strip() for key, equals, _ in pairs):
        raise wrong(text, "options are written as 'key=value,key=value'")
    return table.with_options({key.strip(): value.strip() for key, _, value in pairs})


def partitions_of(table: Table, text: str | None) -> list[dict[str, str | None] | None]:
    """`dt=a,hour=1;dt=b` as partitions; without a text all at once."""
    if not text:
        return [None]
    found: list[dict[str, str | None] | None] = []
    for part in filter(None, (each.strip() for each in text.split(";"))):
        pairs = [pair.partition("=") for pair in part.split(",")]
        if not all(equals and key.strip() for key, equals, _ in pairs):
            raise wrong(text, "partitions are written as 'dt=2026-11-22,hour=8;dt=2026-11-23'")
        found.append(by_keys(table, {key.strip(): PartitionText(value.strip()) for key, _, value in pairs}))
    return found


def age_ms(session: SqlSession, table: Table, text: str | None) -> int | None:
    """How long ago a moment was."""
    if text is None:
        return None
    return max(0, table.store.env.now_ms() - moment_ms(text, session.engine.zone))
