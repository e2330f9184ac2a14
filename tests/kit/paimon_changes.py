"""Changes of a schema, as `PaimonTable.alter` takes them, and values of options as texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tests.kit.paimon_types import TypeJson, type_json


def add_column(name: str | Sequence[str], of: TypeJson, **move: Any) -> dict[str, Any]:
    """A change for `alter`; `move` is `first=True`, `last=True`, `after=NAME` or `before=NAME`; nested names: lists."""
    return {"change": "add_column", "column": _path(name), "type": type_json(of), **move}


def drop_column(name: str | Sequence[str]) -> dict[str, Any]:
    return {"change": "drop_column", "column": _path(name)}


def rename_column(name: str | Sequence[str], to: str) -> dict[str, Any]:
    return {"change": "rename_column", "column": _path(name), "to": to}


def column_type(name: str | Sequence[str], of: TypeJson, *, keep_nullability: bool = False) -> dict[str, Any]:
    return {"change": "column_type", "column": _path(name), "type": type_json(of), "keep_nullability": keep_nullability}


def column_nullable(name: str | Sequence[str], nullable: bool) -> dict[str, Any]:
    return {"change": "column_nullable", "column": _path(name), "nullable": nullable}


def column_default(name: str, value: str | None) -> dict[str, Any]:
    return {"change": "column_default", "column": _path(name), "value": value}


def column_comment(name: str | Sequence[str], comment: str) -> dict[str, Any]:
    return {"change": "column_comment", "column": _path(name), "comment": comment}


def move_column(name: str, **move: Any) -> dict[str, Any]:
    return {"change": "column_position", "column": _path(name), **move}


def set_option(key: str, value: Any) -> dict[str, Any]:
    return {"change": "set_option", "key": key, "value": option_text(value)}


def _path(name: str | Sequence[str]) -> list[str]:
    return [name] if isinstance(name, str) else list(name)


def option_texts(options: Mapping[str, Any]) -> dict[str, str]:
    return {key: option_text(value) for key, value in options.items()}


def option_text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
