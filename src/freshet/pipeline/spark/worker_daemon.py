"""The daemon that forks Spark's Python workers, without one message of it.

A worker whose batch was cut short (a limit, the end of a session) finds the socket to the JVM closed when it flushes;
PySpark prints that as a traceback although nothing is wrong: the worker just ends. Other failures are still printed.

Sessions of ours name this module in `spark.python.daemon.module`. It must start no thread: workers are forked from it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from pyspark import daemon

_FLUSH_FAILED: Final = "PySpark daemon failed to flush the output"


def is_harmless(text: str) -> bool:
    """True for the message about a socket that the other side has closed."""
    return text.startswith(_FLUSH_FAILED) and text.rstrip().splitlines()[-1].startswith("BrokenPipeError")


def _print(*values: object, **options: Any) -> None:
    """In place of `print` within PySpark's daemon."""
    text = " ".join(map(str, values))
    if not is_harmless(text):
        print(text, **options)


def ending_quietly(worker: Callable[..., int]) -> Callable[..., int]:
    """A worker that ends with an exit code, and no traceback, when the other side has closed its socket."""

    def run(*arguments: Any) -> int:
        try:
            return worker(*arguments)
        except BrokenPipeError:
            return 1

    return run


def main() -> None:
    """Runs PySpark's daemon until the JVM closes its standard input."""
    daemon.worker = ending_quietly(daemon.worker)
    daemon.print = _print  # type: ignore[attr-defined]
    daemon.manager()


if __name__ == "__main__":
    main()
