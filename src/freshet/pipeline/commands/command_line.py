"""The command `freshet`: which commands there are, and what an error prints and returns.

    freshet run FILE...            runs pipelines            freshet tables WAREHOUSE
    freshet check FILE...          says what is wrong        freshet describe | snapshots | files WAREHOUSE TABLE
    freshet jars                   jars for --jars           freshet read | changelog | tail WAREHOUSE TABLE
    freshet prepare                makes pipelines start sooner    freshet tags | tag WAREHOUSE TABLE
    freshet demo [join]
    freshet catalogs               catalogs that have names
    freshet dead-letters WAREHOUSE TABLE                     freshet compact | expire | orphans | consumers …

| exit code | meaning |
|---|---|
| 0 | done; also: asked to stop, and stopped after the batch that ran |
| 2 | the configuration or the call is wrong; nothing was started, nothing was written |
| 3 | done, and `status` has found something behind, or `doctor` something wrong |
| 65 | data or table damaged, or a record or an input that cannot be taken: a restart meets it again |
| 75 | worth another try: brokers or store away, disk full, another writer was faster |
| 1 | anything else |

An error is one message that names its kind (`error_kind`) and says what to do; `--debug`, anywhere in the call, adds
the traceback. With JSON output the error is printed as JSON too (`failure_report`).
"""

from __future__ import annotations

import gc
import logging
import os
import sys
import traceback
from importlib import import_module
from typing import Annotated, Any, Final

import typer
from typer.core import TyperGroup

from freshet.pipeline.commands.command_list import COMMANDS, DEBUG, PANELS, REMOVED, refuse_removed, summary_of
from freshet.pipeline.errors.error_kind import EXIT_DONE, EXIT_FAILED
from freshet.pipeline.exceptions import InvalidRequestError
from freshet.storage.model.display import printable

EXIT_CODES: Final = (
    "Exit codes: 0 done · 2 the configuration or the call is wrong, nothing was started or written · 3 status finds "
    "something behind, or doctor something wrong · 65 data or table damaged, or a record or an input that cannot be "
    "taken: a restart meets it again · 75 worth another try · 1 anything else. Of several pipelines: 65 if any, "
    "else 1, else 75."
)

GARBAGE_THRESHOLDS: Final = (50_000, 20, 100)
"""Of Python's collector: with its own, a fifth of a start is spent looking at modules that are there to stay."""

_STREAMS: Final = {"stdin": "r", "stdout": "w", "stderr": "w"}
"""By their numbers."""

_STYLE: Final[dict[str, Any]] = {
    "rich_markup_mode": "markdown",  # which joins the lines of a paragraph
    "pretty_exceptions_enable": False,
}


class _Commands(TyperGroup):
    """Lists commands without loading their modules; the one that is called is loaded."""

    def list_commands(self, ctx: Any) -> list[str]:
        for name, command in self.commands.items():
            command.help = summary_of(name)
        return list(self.commands)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and args[0] in REMOVED:
            refuse_removed(args[0], args[1:])
        name, command, rest = super().resolve_command(ctx, args)
        return name, _loaded(name) if name in COMMANDS else command, rest


def _loaded(name: str) -> Any:
    gc.disable()  # modules are there to stay
    module = import_module(f"freshet.pipeline.commands.{COMMANDS[name]}")
    gc.freeze()
    gc.enable()
    alone = typer.Typer(add_completion=False, **_STYLE)
    alone.command(name, epilog=EXIT_CODES)(getattr(module, name.replace("-", "_")))
    return typer.main.get_command(alone)


app = typer.Typer(
    cls=_Commands,
    no_args_is_help=True,
    help="Exactly-once streams into lake tables in the Apache Paimon format.",
    epilog=EXIT_CODES,
    **_STYLE,
)
for _panel, _commands in PANELS.items():
    for _name in _commands:
        app.command(_name, rich_help_panel=_panel)(lambda: None)


@app.callback()
def _options(
    debug: Annotated[bool, typer.Option(DEBUG, help="Show tracebacks of errors; may be anywhere in the call.")] = False,
    show_version: Annotated[
        bool,
        typer.Option(
            "--version", is_eager=True, callback=lambda given: _print_version(given), help="Print the version."
        ),
    ] = False,
) -> None:
    del debug, show_version  # both are done with before a command begins


def _print_version(given: bool) -> None:
    if given:
        from freshet._version import __version__

        print(__version__)
        raise typer.Exit


class _ShownText(logging.Formatter):
    """What is logged, on one line: names of files in it may have any characters."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - as logging calls it
        return printable(super().formatMessage(record))


def _open_standard_streams() -> None:
    """Opens those that were closed for us: files of ours would get their numbers, and be written to by what prints."""
    while (number := os.open(os.devnull, os.O_RDWR)) < len(_STREAMS):
        os.set_inheritable(number, True)
    os.close(number)
    for number, (name, mode) in enumerate(_STREAMS.items()):
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, mode))  # noqa: SIM115 - to the end of the process


def main() -> None:
    """Entry point of the command: errors become one message and an exit code."""
    _open_standard_streams()
    gc.set_threshold(*GARBAGE_THRESHOLDS)
    if logging.lastResort is not None:
        logging.lastResort.setFormatter(_ShownText())
    arguments = sys.argv[1:]
    is_debug = DEBUG in arguments
    try:
        sys.exit(_call([argument for argument in arguments if argument != DEBUG]))
    except BrokenPipeError:  # the reader of our output has seen enough, as `head` has
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(EXIT_DONE)
    except Exception as error:  # noqa: BLE001 - each ends as a message and an exit code
        from freshet.pipeline.commands.failure_report import report_failure

        if is_debug:
            traceback.print_exc()
        raise SystemExit(report_failure(error, arguments)) from None


def _call(arguments: list[str]) -> int:
    try:
        return app(arguments or ["--help"], standalone_mode=False) or EXIT_DONE
    except typer.Exit as error:
        return error.exit_code
    except typer.TyperException as error:  # an unknown command or option
        raise InvalidRequestError(" ".join(error.format_message().split())) from error
    except typer.Abort:
        return EXIT_FAILED


if __name__ == "__main__":
    main()
