"""The command `status`: pipelines and tables at a moment, from their files alone."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Final

import typer

from freshet.pipeline.commands.arguments import (
    AsJson,
    CatalogOption,
    complain_of_none,
    files_or_warehouse,
    open_catalog,
    refuse_none,
)
from freshet.pipeline.commands.output import print_json, say
from freshet.pipeline.commands.status_text import pipeline_text, table_lines, table_text
from freshet.pipeline.running.seen import Seen
from freshet.storage.model.display import rfc3339

EXIT_BEHIND: Final = 3
"""Something is behind its target."""
_MOMENTS: Final = frozenset(
    {"observed_ms", "time_ms", "since_ms", "earliest_ms", "last_ms", "started_ms", "batch_done_ms", "last_event_ms"}
)


def status(
    places: Annotated[
        list[str],
        typer.Argument(
            metavar="FILES… | WAREHOUSE [TABLE]",
            help="Pipeline files (YAML); or a warehouse, as a folder, a URI or the name of a catalog, with a table as "
            "database.table.",
            show_default=False,
        ),
    ],
    watch: Annotated[bool, typer.Option("--watch", help="Look again and again, until Ctrl-C.")] = False,
    every: Annotated[float, typer.Option(min=0.5, help="Seconds between two looks of --watch.")] = 5.0,
    catalog_option: CatalogOption = None,
    as_json: AsJson = False,
) -> None:
    """Show how pipelines and tables are: fresh or behind, and why. Reads files alone, so it works where nothing runs.

    Exit code 3 where a table cannot be read or is less fresh than its option freshet.freshness-target, or a pipeline
    has failed, is gone or has set tables apart; else 0. With --watch and --json each look is a document.
    """
    look = look_of(places, catalog_option)
    if watch:
        _watch(look, every, as_json=as_json)
        return
    seen = look()
    if as_json:
        print_json(document_of(seen))
    else:
        say(_text(seen))
    if seen.is_behind:
        raise typer.Exit(EXIT_BEHIND)


def look_of(
    places: Sequence[str], catalog_option: Sequence[str] | None, *, detailed: int = 0, may_wait: bool = False
) -> Callable[[], Seen]:
    """Looks at the pipelines of files, at a table, or at those of a warehouse: at a glance, but for the first
    `detailed`. Whoever `may_wait` looks at a warehouse before it has a table."""
    files, warehouse, table = files_or_warehouse(places, "status")
    if files:
        from freshet.pipeline.config.pipeline_file import load_pipelines
        from freshet.pipeline.running.pipeline_status import pipeline_statuses

        configs = load_pipelines(files)
        return lambda: Seen(pipelines=pipeline_statuses(configs))
    catalog = open_catalog(warehouse, catalog_option)
    if table is not None:
        return lambda: Seen(tables=[catalog.table(table).status()])
    (complain_of_none if may_wait else refuse_none)(catalog)
    return lambda: Seen(tables=catalog.status(detailed=detailed), warehouse=catalog.warehouse)


def _text(seen: Seen) -> str:
    if seen.pipelines:
        return "\n\n".join(pipeline_text(each) for each in seen.pipelines)
    return table_text(seen.tables[0]) if seen.warehouse is None else table_lines(seen.tables, seen.warehouse)


def document_of(seen: Seen) -> dict[str, Any]:
    """The same for programs."""
    pipelines, tables = [each.facts() for each in seen.pipelines], [each.facts() for each in seen.tables]
    return {"pipelines": _with_times(pipelines), "tables": _with_times(tables)}


def _with_times(value: Any) -> Any:
    """Moments as programs read them: `observed_ms` is `observed`; spans stay milliseconds."""
    if isinstance(value, dict):
        moments = {key: rfc3339(each) for key, each in value.items() if key in _MOMENTS}
        return {
            key.removesuffix("_ms") if key in moments else key: moments[key] if key in moments else _with_times(each)
            for key, each in value.items()
        }
    return [_with_times(each) for each in value] if isinstance(value, list | tuple) else value


def _watch(look: Callable[[], Seen], every_s: float, *, as_json: bool) -> None:
    if as_json:
        while True:
            print_json(document_of(look()))
            time.sleep(every_s)
    from rich.live import Live
    from rich.text import Text

    with Live(auto_refresh=False, screen=True) as live:
        while True:
            live.update(Text(_text(look())), refresh=True)
            time.sleep(every_s)
