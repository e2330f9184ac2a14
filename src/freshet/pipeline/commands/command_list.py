"""The commands: where each is, and what the list of them says; a module is loaded when a command of it is called."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import takewhile
from pathlib import Path
from typing import Final, NoReturn

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
REMOVED: Final[Mapping[str, Sequence[str]]] = {
    "alter": (
        *("ALTER TABLE {0} ADD COLUMN …", "ALTER TABLE {0} RENAME COLUMN …", "ALTER TABLE {0} ALTER COLUMN …"),
        "ALTER TABLE {0} SET TBLPROPERTIES (…)",
    ),
    "delete": ("DELETE FROM {0} WHERE …",),
    "update": ("UPDATE {0} SET … WHERE …",),
    "truncate": ("TRUNCATE TABLE {0}",),
    "drop-partition": ("ALTER TABLE {0} DROP PARTITION (…)",),
    "create-database": ("CREATE DATABASE {0}",),
    "create-table": ("CREATE TABLE {0} (…)",),
    "rename-table": ("ALTER TABLE {0} RENAME TO …",),
    "drop-table": ("DROP TABLE {0}",),
    "drop-database": ("DROP DATABASE {0}",),
    "branch": tuple(f"CALL sys.{action}_branch(…)" for action in ("create", "rename", "delete")),
    "compact-manifests": ("CALL sys.compact_manifest(table => '{0}')",),
    "mark-partition-done": ("CALL sys.mark_partition_done(table => '{0}', partitions => …)",),
}
"""Commands of earlier versions, and the SQL that does the same, `{0}` being the table or database; where a command did
several things, each."""


def summary_of(name: str) -> str:
    """The first paragraph of what the function of a command says of itself; its module is read, not loaded."""
    return " ".join((_texts(COMMANDS[name])[name.replace("-", "_")] or "").partition("\n\n")[0].split())


@cache
def _texts(module: str) -> dict[str, str | None]:
    tree = ast.parse(Path(__file__).with_name(f"{module}.py").read_bytes())
    return {each.name: ast.get_docstring(each) for each in tree.body if isinstance(each, ast.FunctionDef)}


def refuse_removed(name: str, arguments: Sequence[str]) -> NoReturn:
    """Raises `InvalidRequestError` for a command that is gone, with the SQL for the table that it names."""
    from freshet.pipeline.config.table_arguments import sql_command
    from freshet.storage.exceptions import InvalidRequestError
    from freshet.storage.model.display import sql_name

    places = list(takewhile(lambda argument: not argument.startswith("-"), arguments))
    warehouse, table = (*places, *("WAREHOUSE", "TABLE")[len(places) :])[:2]
    statements = [each.format(sql_name(*table.split(".", 1))) for each in REMOVED[name]]
    command = " or ".join(sql_command(warehouse, [statement]) for statement in statements)
    raise InvalidRequestError(f"freshet {name} is gone, SQL does the same: {command}")
