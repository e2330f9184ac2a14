"""The command `freshet`: which commands there are, and what an error prints and returns.

    freshet run FILE...            runs pipelines            freshet tables WAREHOUSE
    freshet check FILE...          says what is wrong        freshet describe | snapshots | files WAREHOUSE TABLE
    freshet jars                   jars for --jars           freshet read | changelog | tail | alter WAREHOUSE TABLE
    freshet prepare                makes pipelines start sooner
    freshet dead-letters WAREHOUSE TABLE                     freshet compact | expire | orphans | consumers …

| exit code | meaning |
|---|---|
| 0 | done; also: asked to stop, and stopped after the batch that ran |
| 1 | failed while running |
| 2 | the configuration or the call is wrong; nothing was started, nothing was written |

An error is one message that says what to do; `--debug`, anywhere in the call, adds the traceback.
"""

from __future__ import annotations

import os
import sys
import traceback
from typing import Annotated, Final

import pyarrow as pa
import typer

import freshet
from freshet.pipeline.commands.alter import alter
from freshet.pipeline.commands.changelog import changelog, consumers
from freshet.pipeline.commands.compact import compact
from freshet.pipeline.commands.dead_letters import dead_letters
from freshet.pipeline.commands.hybrid_read import hybrid_read
from freshet.pipeline.commands.maintenance import expire, orphans
from freshet.pipeline.commands.output import complain, say
from freshet.pipeline.commands.pipelines import check, jars, prepare, run
from freshet.pipeline.commands.read import read
from freshet.pipeline.commands.tables import describe, files, snapshots, tables
from freshet.pipeline.commands.tail import tail
from freshet.pipeline.exceptions import EXIT_DONE, EXIT_FAILED, EXIT_INVALID, PipelineError, brief_reason
from freshet.storage.exceptions import InvalidRequestError, StorageError

DEBUG: Final = "--debug"
_FOREIGN: Final = ("pyspark.", "py4j.")
"""Packages whose errors are told in brief: they carry query plans and Java traces."""

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="markdown",  # which joins the lines of a paragraph
    pretty_exceptions_enable=False,
    help="Exactly-once streams into lake tables in the Apache Paimon format.",
)
_PANELS: Final = {
    "Pipelines": (run, check, jars, prepare),
    "Tables": (tables, describe, read, changelog, tail, snapshots, files, dead_letters),
    "Changes and care": (alter, compact, expire, orphans, consumers),
}
for _panel, _commands in _PANELS.items():
    for _command in _commands:
        app.command(_command.__name__.replace("_", "-"), rich_help_panel=_panel)(_command)


app.command("hybrid-read", rich_help_panel="Tables", hidden=True)(hybrid_read)  # jobs/hybrid_read.py


@app.callback()
def _options(
    debug: Annotated[bool, typer.Option(DEBUG, help="Show tracebacks of errors; may stand anywhere.")] = False,
    show_version: Annotated[
        bool,
        typer.Option(
            "--version", is_eager=True, callback=lambda given: _print_version(given), help="Print the version."
        ),
    ] = False,
) -> None:
    del debug, show_version  # both are done with before a command begins


@app.command(rich_help_panel="Tables", hidden=True)
def version() -> None:
    """Print the version; the same as --version."""
    say(freshet.__version__)


def _print_version(given: bool) -> None:
    if given:
        version()
        raise typer.Exit


def main() -> None:
    """Entry point of the command: errors become one message and an exit code."""
    is_debug = DEBUG in sys.argv[1:]
    try:
        sys.exit(_call([argument for argument in sys.argv[1:] if argument != DEBUG]))
    except BrokenPipeError:  # whoever read our output has seen enough, as `head` has
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(EXIT_DONE)
    except Exception as error:
        if is_debug:
            traceback.print_exc()
        text = _message(error)
        if text is None:
            if is_debug:
                sys.exit(EXIT_FAILED)
            raise
        complain(text)
        raise SystemExit(exit_code(error)) from None


def exit_code(error: BaseException) -> int:
    """The exit code that an error that was raised before or while running stands for."""
    if isinstance(error, PipelineError):
        return error.exit_code
    return EXIT_INVALID if isinstance(error, InvalidRequestError) else EXIT_FAILED


def _call(arguments: list[str]) -> int:
    try:
        return app(arguments, standalone_mode=False) or EXIT_DONE
    except typer.Exit as error:
        return error.exit_code
    except typer.TyperException as error:  # an unknown command or option
        complain(error.format_message())
        return EXIT_INVALID
    except typer.Abort:
        return EXIT_FAILED


def _message(error: Exception) -> str | None:
    """What to tell of an error; None for one that nobody raised on purpose: that is a bug of ours."""
    if isinstance(error, PipelineError | StorageError | OSError | pa.ArrowException):
        return str(error)
    return brief_reason(error) if type(error).__module__.startswith(_FOREIGN) else None


if __name__ == "__main__":
    main()
