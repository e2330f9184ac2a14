"""A table as people type it after a command: in remedies."""

from __future__ import annotations

from collections.abc import Mapping
from shlex import quote

from freshet.storage.catalog import shown_settings


def arguments_text(warehouse: str, table: str, options: Mapping[str, str]) -> str:
    """A table as commands take it, secrets hidden."""
    given = (f" --catalog-option {quote(f'{key}={text}')}" for key, text in shown_settings(options).items())
    return f"{quote(warehouse)} {quote(table)}{''.join(given)}"
