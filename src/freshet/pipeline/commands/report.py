"""The command `report`: pipelines and tables as one HTML file, to look at or to attach to a ticket."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from threading import Thread
from typing import Annotated, Final

import typer

from freshet.pipeline.commands.arguments import CatalogOption, catalog_options, open_catalog, refuse_none
from freshet.pipeline.commands.output import complain
from freshet.pipeline.commands.status import document_of
from freshet.pipeline.config.table_arguments import options_text
from freshet.pipeline.exceptions import InvalidRequestError
from freshet.pipeline.running.seen import Seen
from freshet.pipeline.running.signals import when_asked_to_stop

PORT: Final = 9465


def report(
    warehouse: Annotated[
        str,
        typer.Argument(
            help="A folder, a URI such as s3://bucket/lake, or the name of a catalog (see freshet catalogs).",
            show_default=False,
        ),
    ],
    table: Annotated[
        str | None, typer.Argument(help="Table as database.table; default: every table.", show_default=False)
    ] = None,
    pipeline: Annotated[
        list[Path] | None,
        typer.Option(
            help="Pipeline file (YAML) whose state and lag are shown too; may be given several times. Of others there "
            "is what their commits say.",
            show_default=False,
        ),
    ] = None,
    no_samples: Annotated[
        bool, typer.Option("--no-samples", help="Without keys and values of dead letters: they are the users' data.")
    ] = False,
    serve: Annotated[
        bool, typer.Option("--serve", help="Serve it on this machine instead, made anew at each load, until Ctrl-C.")
    ] = False,
    port: Annotated[int, typer.Option(min=0, max=65535, help="With --serve: the port of 127.0.0.1.")] = PORT,
    catalog_option: CatalogOption = None,
) -> None:
    """Print a report of pipelines and tables as one HTML file, to look at or to attach to a ticket. Changes nothing.

    freshet report /data/lake > report.html. The worst come first, with what doctor finds and the commands that mend it.
    Of the 200 tables that are furthest behind there are curves, levels and history, of others what costs little. Reads
    files alone, so it works where nothing runs. Samples of dead letters hold data of users: see --no-samples.
    """
    if not serve and sys.stdout.isatty():
        raise InvalidRequestError("the report is a file for a browser: redirect it (> report.html), or --serve it")
    make = _maker(warehouse, table, pipeline or [], catalog_option, samples=not no_samples)
    if serve:
        _serve(make, port)
    else:
        sys.stdout.buffer.write(make().encode())


def _maker(
    warehouse: str, table: str | None, pipelines: list[Path], catalog_option: list[str] | None, *, samples: bool
) -> Callable[[], str]:
    from freshet.pipeline.report.document import dead_letters_of, report_document
    from freshet.pipeline.report.page import page

    catalog, options = open_catalog(warehouse, catalog_option), catalog_options(catalog_option)
    if table is None and not pipelines:  # a pipeline that failed before its first table has a report
        refuse_none(catalog)
    arguments = options_text(options)
    configs = []
    if pipelines:
        from freshet.pipeline.config.pipeline_file import load_pipelines

        configs = load_pipelines(pipelines)

    def make() -> str:
        reports = [each.with_arguments(arguments) for each in catalog.report(table, warehouse=warehouse)]
        statuses, found = [], []
        if configs:
            from freshet.pipeline.running.pipeline_findings import findings_but_of_tables
            from freshet.pipeline.running.pipeline_status import pipeline_statuses

            statuses = pipeline_statuses(configs, needs_one=False)
            for config, status in zip(configs, statuses, strict=True):
                found += findings_but_of_tables(config, status)
        document = report_document(
            reports,
            document_of(Seen(pipelines=statuses, tables=[each.status for each in reports])),
            dead_letters_of(catalog, reports, samples=samples),
            place=warehouse if table is None else f"{warehouse} {table}",
            now_ms=time.time_ns() // 1_000_000,
            options=options,
            samples=samples,
            of_pipelines=found,
        )
        return page(document)

    return make


def _serve(make: Callable[[], str], port: int) -> None:
    from freshet.pipeline.report.server import HOST, report_server

    server = report_server(make, port)
    thread = Thread(target=server.serve_forever, args=(0.2,), name="freshet-report", daemon=True)
    thread.start()
    complain(f"the report is at http://{HOST}:{server.server_port}/, until Ctrl-C")
    with when_asked_to_stop(server.shutdown):
        thread.join()
    server.server_close()
