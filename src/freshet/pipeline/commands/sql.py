"""The command sql: statements in Spark's dialect, by the verbs of catalogs and tables, queries in DuckDB."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from freshet.pipeline.commands.arguments import AsJson, CatalogOption, Warehouse, open_catalog
from freshet.pipeline.commands.edits import DryRun, edit_facts, report_edit
from freshet.pipeline.commands.output import complain, json_line, say
from freshet.pipeline.commands.rows import Limit, RowFormat, check_output, rows_wanted, write_rows
from freshet.storage.exceptions import InvalidRequestError, NotFoundError
from freshet.storage.merge.gather import limited
from freshet.storage.sql.run import DuckDbEngine, SqlResult, SqlSession, run_all

STDIN = "-"


def sql(
    warehouse: Warehouse,
    text: Annotated[
        str | None,
        typer.Argument(metavar="TEXT", help="The SQL, with a semicolon between statements; - reads it from the input."),
    ] = None,
    file: Annotated[Path | None, typer.Option("--file", help="Read the SQL from a file; - is the input.")] = None,
    database: Annotated[str | None, typer.Option("--database", help="Of names of tables without one.")] = None,
    dry_run: DryRun = False,
    allow_lossy: Annotated[
        bool,
        typer.Option(
            "--allow-lossy",
            help="Let ALTER TABLE change types and options though stored values may be lost or read otherwise.",
        ),
    ] = False,
    limit: Limit = None,
    output: RowFormat = "table",
    as_json: AsJson = False,
    catalog_option: CatalogOption = None,
) -> None:
    """Carry out SQL statements, in Spark's dialect: CREATE, ALTER, DROP, SHOW, DESCRIBE, INSERT, DELETE, UPDATE, MERGE,
    TRUNCATE, CALL and SELECT.

    All statements are read before the first one is carried out, one after the other; each is a commit of its own, and
    an error ends the call. Queries are computed by DuckDB. Write the text in single quotes, so that
    the shell leaves $ and backticks alone. `--json` is `--format json`: a line for each row, and for each statement
    without rows.

    `--dry-run` says what DELETE, UPDATE, MERGE, INSERT OVERWRITE, TRUNCATE, DROP and ALTER TABLE … DROP PARTITION would
    change. Pipelines go on over a column that ALTER TABLE adds: it is NULL in their rows until their file names it,
    unless it says `on_unknown_field: add` or has `sync`. One whose file names a column that was renamed, dropped or
    given another type stops before it writes more, until its file is changed too; with `sync` it goes on.
    """
    form = "json" if as_json else output
    check_output(form)
    session = SqlSession(open_catalog(warehouse, catalog_option), DuckDbEngine(), database, dry_run, allow_lossy)
    tables = 0
    for _, result in run_all(_given(text, file), session):
        if result.has_rows:
            tables += 1
            if tables > 1 and form in ("csv", "arrow"):
                raise InvalidRequestError(f"--format {form} prints the rows of one statement; give the others alone")
            wanted = rows_wanted(form, limit)
            write_rows(result.schema, limited(result.to_batches(), wanted), form, wanted)
        else:
            _report(result, form)


def _given(text: str | None, file: Path | None) -> str:
    if (text is None) == (file is None):
        raise InvalidRequestError("give the SQL, or --file, one of them")
    if text == STDIN or (file is not None and str(file) == STDIN):
        return sys.stdin.read()
    if file is None:
        return str(text)
    try:
        return file.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise NotFoundError(f"there is no file {file}", path=str(file)) from error
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidRequestError(f"{file} cannot be read as text: {error}", path=str(file)) from error


def _report(result: SqlResult, form: str) -> None:
    """What a statement without rows did; where rows are for a program, on standard error."""
    if form in ("csv", "arrow"):
        complain(repr(result.edit) if result.edit is not None else result.message)
    elif result.edit is not None and form == "table":
        report_edit(result.edit, result.table, as_json=False)
    elif result.edit is not None:
        say(json_line(edit_facts(result.edit, result.table)))
    else:
        say(json_line({"done": result.message}) if form == "json" else result.message)
