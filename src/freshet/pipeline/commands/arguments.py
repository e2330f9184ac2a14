"""Arguments that several commands share, and how a table is opened from them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal

import typer

from freshet.pipeline.commands.output import complain
from freshet.pipeline.config.record_place import RecordPlace
from freshet.pipeline.config.table_arguments import arguments_text
from freshet.storage.catalog import ADOPT, Catalog, is_system_name
from freshet.storage.exceptions import InvalidRequestError

if TYPE_CHECKING:
    from freshet.storage.catalog import SystemTable
    from freshet.storage.table import Table

PIPELINE_FILES: Final = (".yaml", ".yml")
HOUR_MS: Final = 3_600_000
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
HOURS_MAX: Final = 1_000_000

PipelineFiles = Annotated[list[Path], typer.Argument(help="Pipeline files (YAML).", show_default=False)]
RunsOn = Annotated[
    Literal["spark", "local"] | None,
    typer.Option(
        "--on", help="The engine, whatever run_on of the files says: Spark, or this process and its workers (local)."
    ),
]
Warehouse = Annotated[
    str,
    typer.Argument(help="A folder, a URI such as s3://bucket/lake, or the name of a catalog (see freshet catalogs)."),
]
Places = Annotated[
    list[str],
    typer.Argument(
        metavar="FILES… | WAREHOUSE [TABLE]",
        help="Pipeline files (YAML); or a warehouse, as a folder, a URI or the name of a catalog, with a table as "
        "database.table.",
        show_default=False,
    ),
]
TableName = Annotated[str, typer.Argument(metavar="TABLE", help="Table as database.table.")]
AtTime = Annotated[
    str | None,
    typer.Option(
        "--timestamp",
        metavar="TIME",
        help="The last snapshot that was committed at or before this time: milliseconds since 1970, or a time such as "
        "2026-03-01T12:00:00Z.",
    ),
]
CatalogOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="KEY=VALUE",
        help="Option of the catalog or its store, such as s3.endpoint=https://…; a secret as KEY=env:NAME, the name of "
        "an environment variable. May be repeated; goes before FRESHET_CATALOG_OPTIONS.",
        show_default=False,
    ),
]
Adopt = Annotated[
    bool,
    typer.Option(
        "--adopt",
        help="Take over a table that programs without conditional puts have written, which write no more "
        "(commit.coordination=exclusive-put). Needed once.",
    ),
]
ADOPTS: Final = f"{ADOPT}=true"
"""As --catalog-option."""
SkipRecord = Annotated[
    list[str] | None,
    typer.Option(
        "--skip-record",
        metavar="TOPIC/PARTITION/OFFSET",
        help="A record of Kafka that the pipeline cannot get past becomes a dead letter without being read; may be "
        "given several times.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]


def record_places(skip_record: Sequence[str] | None) -> list[RecordPlace]:
    """The records that --skip-record names."""
    try:
        return [RecordPlace.parse(text) for text in skip_record or ()]
    except ValueError as error:
        raise InvalidRequestError(f"--skip-record {error}") from error


def files_or_warehouse(places: Sequence[str], command: str) -> tuple[list[Path], str, str | None]:
    """What a command that takes either was given: pipeline files, or a warehouse and maybe a table of it."""
    files = [Path(place) for place in places if place.endswith(PIPELINE_FILES)]
    if len(files) == len(places):
        return files, "", None
    if files or len(places) > 2:
        raise InvalidRequestError(
            "give pipeline files (*.yaml), or a warehouse and at most one table: "
            f"freshet {command} orders.yaml, freshet {command} /data/lake shop.orders"
        )
    return [], places[0], places[1] if len(places) == 2 else None


def open_catalog(warehouse: str, catalog_option: Sequence[str] | None) -> Catalog:
    """The catalog of a warehouse, with what --catalog-option gives."""
    return Catalog(warehouse, options=catalog_options(catalog_option))


def refuse_none(catalog: Catalog) -> None:
    """Raises `InvalidRequestError` where a warehouse has no databases: a wrong place looks as if all were well."""
    if not catalog.list_databases():
        raise InvalidRequestError(_none_text(catalog))


def complain_of_none(catalog: Catalog) -> None:
    """The same, said by what lists or waits and goes on."""
    if not catalog.list_databases():
        complain(_none_text(catalog))


def _none_text(catalog: Catalog) -> str:
    return f"there are no databases in {catalog.warehouse}; is that the folder of a warehouse?"


def open_table(warehouse: str, table: str, catalog_option: Sequence[str] | None) -> Table:
    """The table; raises `InvalidRequestError` when there is none."""
    return open_catalog(warehouse, catalog_option).table(table)


def open_readable(warehouse: str, table: str, catalog_option: Sequence[str] | None) -> Table | SystemTable:
    """The table, or the system table of that name; raises `InvalidRequestError` when there is none."""
    catalog = open_catalog(warehouse, catalog_option)
    return catalog.system_table(table) if is_system_name(table) else catalog.table(table)


def catalog_options(given: Sequence[str] | None) -> dict[str, str]:
    """What --catalog-option gives; no message shows a value."""
    options: dict[str, str] = {}
    for number, pair in enumerate(given or (), 1):
        key, equals, text = pair.partition("=")
        if not equals or not key.strip():
            raise InvalidRequestError(
                f"--catalog-option number {number} is no KEY=VALUE; give one such as s3.endpoint=https://…"
            )
        if options.setdefault(key.strip(), text) != text:
            raise InvalidRequestError(f"--catalog-option gives {key.strip()} two values; give one")
    return options


def as_typed(warehouse: str, table: str, catalog_option: Sequence[str] | None) -> str:
    """The table as a remedy has it, to be typed again; secrets hidden."""
    return arguments_text(warehouse, table, catalog_options(catalog_option))


def age_ms(hours: float) -> int:
    """The value of --older-than-hours in milliseconds."""
    if not 0 <= hours <= HOURS_MAX:
        raise InvalidRequestError(
            f"--older-than-hours {hours}: give an age from 0 to {HOURS_MAX} hours, such as 24 or 0.5"
        )
    return int(hours * HOUR_MS)


def time_given(text: str, option: str) -> int | datetime:
    """A time as it is typed: milliseconds since 1970, or a moment with a time zone."""
    if text.isascii() and text.isdigit():
        return int(text)
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidRequestError(
            f"{option} {text}: give milliseconds since 1970, or a time such as 2026-03-01T12:00:00Z"
        ) from None
    if at.tzinfo is None:
        raise InvalidRequestError(f"{option} {text} says no time zone; add Z for UTC, or +01:00")
    return at


def time_ms(text: str, option: str) -> int:
    """The same in milliseconds since 1970."""
    at = time_given(text, option)
    return at if isinstance(at, int) else int((at - _EPOCH) / timedelta(milliseconds=1))
