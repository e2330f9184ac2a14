"""What the demos share: their pipeline files, a folder for all they write, titles, and an end upon Ctrl-C."""

from __future__ import annotations

import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Final

from freshet.jobs.demo.paimon_reader import PAIMON_GROUP
from freshet.pipeline.exceptions import InvalidRequestError
from freshet.pipeline.spark.jars import ensure_jars

PIPELINES: Final = Path(__file__).with_name("pipelines")
OUTPUT: Final = Path("demo-output")
"""Below the current folder; each demo has a folder in it."""

_MARK: Final = ".freshet-demo"
"""This file says that a folder is a demo's own, which the next run may empty."""

EXIT_INTERRUPTED: Final = 130
"""As shells have it for Ctrl-C: nothing was compared, so nothing is known to be equal."""


class DemoError(Exception):
    """The demo cannot go on."""


def play(demo: Callable[[Path], bool | None], output: Path | None, default: str, *, fetches: bool = True) -> int:
    """Plays a demo in the folder `output`, or `default` below `OUTPUT`, in which it has a warehouse; returns its exit
    code. The demo gives whether all was equal, None where it was not compared.

    Apache Paimon, which judges, is fetched first.
    """
    folder = _empty_folder(output, OUTPUT / default)
    if fetches:
        ensure_jars(PAIMON_GROUP)  # it is needed last, too late to find that it cannot be fetched
    signal.signal(signal.SIGTERM, _interrupted)
    began = time.monotonic()
    (folder / "warehouse").mkdir()
    try:
        are_equal = demo(folder)
    except DemoError as error:
        print(f"\nthe demo has failed: {error}", flush=True)
        return 1
    except KeyboardInterrupt:
        print("\ninterrupted before the tables were compared; nothing is left running")
        return EXIT_INTERRUPTED
    if are_equal is not None:
        print(f"\n{time.monotonic() - began:.0f} s in all; everything lies in {folder}")
    return 0 if are_equal else 1


def headline(text: str) -> None:
    """Begins a part."""
    print(f"\n{text}", flush=True)


def _empty_folder(given: Path | None, default: Path) -> Path:
    folder = (given or default).absolute()
    if given is None and (folder / _MARK).is_file():
        shutil.rmtree(folder)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InvalidRequestError(
            f"{folder} is there already{'' if given else ' and no demo has made it'}; remove it, or name a new folder "
            "with --output"
        )
    folder.mkdir(parents=True, exist_ok=True)
    (folder / _MARK).touch()
    return folder


def _interrupted(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt
