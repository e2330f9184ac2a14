"""A table and the SQL about it as people type them after a command: in remedies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from shlex import quote
from typing import Final

from freshet.storage.catalog import shown_settings
from freshet.storage.model.data_type import DataType
from freshet.storage.model.display import sql_name

_OF_SHELLS: Final = frozenset('"$`\\!')


def arguments_text(warehouse: str, table: str, options: Mapping[str, str]) -> str:
    """A table as commands take it, secrets hidden."""
    return f"{quote(warehouse)} {quote(table)}{options_text(options)}"


def sql_command(warehouse: str, statements: Sequence[str], options: Mapping[str, str] | None = None) -> str:
    """The command that carries SQL out, secrets hidden."""
    text = "; ".join(statements)
    quoted = quote(text) if _OF_SHELLS & set(text) else f'"{text}"'
    return f"freshet sql {quote(warehouse)}{options_text(options or {})} {quoted}"


def alter_statement(table: str, change: str) -> str:
    """ALTER TABLE of a table that is named `database.table`."""
    return f"ALTER TABLE {sql_name(*table.split('.', 1))} {change}"


def type_in_sql(data_type: DataType) -> str:
    """A type as SQL has it, which calls some otherwise."""
    from freshet.storage.sql.run import type_text

    return type_text(data_type)


def options_text(options: Mapping[str, str]) -> str:
    """Options of a catalog as commands take them, behind a blank, secrets hidden."""
    return "".join(f" --catalog-option {quote(f'{key}={text}')}" for key, text in shown_settings(options).items())
