"""Arguments that several commands share, and how a table is opened from them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from freshet.storage.catalog import Catalog
from freshet.storage.exceptions import InvalidRequestError

if TYPE_CHECKING:
    from freshet.storage.table import Table

HOUR_MS: Final = 3_600_000
HOURS_MAX: Final = 1_000_000

PipelineFiles = Annotated[list[Path], typer.Argument(help="Pipeline files (YAML).", show_default=False)]
Warehouse = Annotated[str, typer.Argument(help="Folder or file: URI of the warehouse.")]
TableName = Annotated[str, typer.Argument(metavar="TABLE", help="Table as database.table.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]


def open_table(warehouse: str, table: str) -> Table:
    """The table; raises `InvalidRequestError` when there is none."""
    return Catalog(warehouse).table(table)


def age_ms(hours: float) -> int:
    """The value of --older-than-hours in milliseconds."""
    if not 0 <= hours <= HOURS_MAX:
        raise InvalidRequestError(
            f"--older-than-hours {hours}: give an age from 0 to {HOURS_MAX} hours, such as 24 or 0.5"
        )
    return int(hours * HOUR_MS)
