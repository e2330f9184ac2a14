"""The commands: where each is, and what the list of them says; a module is loaded when a command of it is called."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Final

DEBUG: Final = "--debug"
"""Anywhere in a call: with the traceback of the error that ends it."""

PANELS: Final[Mapping[str, Mapping[str, str]]] = {
    "Pipelines": {
        "run": "pipelines", "check": "pipelines", "resume": "resume", "resync": "resume", "slots": "slots",
        "drop-slot": "slots", "jars": "pipelines", "prepare": "pipelines", "demo": "demo",
    },
    "Watching": {"status": "status", "exporter": "exporter", "doctor": "doctor", "report": "report"},
    "Tables": {
        "catalogs": "tables", "tables": "tables", "describe": "tables", "read": "rows", "sql": "sql",
        "changelog": "changelog", "tail": "rows", "snapshots": "tables", "files": "tables", "tags": "tags",
        "dead-letters": "dead_letters",
    },
    "Changes and care": {
        "append": "edits", "upsert": "edits", "overwrite": "edits", "merge": "edits", "rollback": "edits",
        "compact": "compact", "rescale": "compact", "expire": "maintenance", "expire-partitions": "partitions",
        "expire-tags": "tags", "orphans": "maintenance", "purge": "maintenance", "check-table": "maintenance",
        "repair": "maintenance", "tag": "tags", "register": "maintenance", "branches": "tables",
        "consumers": "changelog",
    },
}  # fmt: skip
"""The function of a command, which has its name, is in this module of the folder."""

COMMANDS: Final = {name: module for commands in PANELS.values() for name, module in commands.items()}
REMOVED: Final = frozenset(
    {"alter", "delete", "update", "truncate", "drop-partition", "create-database", "create-table"}
    | {"rename-table", "drop-table", "drop-database", "branch", "compact-manifests", "mark-partition-done"}
)
"""Commands of earlier versions: a call is told the SQL that does the same (`removed`)."""


def summary_of(name: str) -> str:
    """The first paragraph of what the function of a command says of itself; its module is read, not loaded."""
    return " ".join((_texts(COMMANDS[name])[name.replace("-", "_")] or "").partition("\n\n")[0].split())


@cache
def _texts(module: str) -> dict[str, str | None]:
    tree = ast.parse(Path(__file__).with_name(f"{module}.py").read_bytes())
    return {each.name: ast.get_docstring(each) for each in tree.body if isinstance(each, ast.FunctionDef)}
