"""Commands of earlier versions that SQL has taken the place of, and what a call of one is told."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import Final, NoReturn

from freshet.pipeline.config.table_arguments import sql_command
from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.model.display import sql_name

_STATEMENTS: Final[Mapping[str, Sequence[str]]] = {
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
"""What each command did, `{0}` being its table or database; where it did several things, each."""


def refuse_removed(name: str, arguments: Sequence[str]) -> NoReturn:
    """Raises `InvalidRequestError` for a command that is gone, with the SQL for the table that it names."""
    places = list(takewhile(lambda argument: not argument.startswith("-"), arguments))
    warehouse, table = (*places, *("WAREHOUSE", "TABLE")[len(places) :])[:2]
    statements = [each.format(sql_name(*table.split(".", 1))) for each in _STATEMENTS[name]]
    command = " or ".join(sql_command(warehouse, [statement]) for statement in statements)
    raise InvalidRequestError(f"freshet {name} is gone, SQL does the same: {command}")
