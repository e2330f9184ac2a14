"""Runs a page: its Python in this process, its commands each in their own, all in one folder."""

from __future__ import annotations

import contextlib
import doctest
import io
import os
import shlex
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from tests.docs.page import ROOT, Block, Page, commands, is_run

COMMAND_S: Final = 600
PLACE: Final = "/tmp/freshet"
"""Where pages with Spark put things: Spark's processes have another current folder. A run puts them into its own."""
_CHECK: Final = doctest.OutputChecker()


class PageError(AssertionError):
    """A block did not do, or did not print, what the page says."""


def run_page(page: Page, folder: Path, environment: Mapping[str, str]) -> int:
    """Runs all blocks in order, and returns how many were run; raises `PageError` with page and line.

    The current folder must be `folder`.
    """
    names: dict[str, Any] = {"__name__": "__main__"}
    count = 0
    for shown in page.blocks:
        block = replace(shown, text=shown.text.replace(PLACE, str(folder)))
        if block.title is not None:
            (folder / block.title).parent.mkdir(parents=True, exist_ok=True)
            (folder / block.title).write_text(block.text, encoding="utf-8")
        if not is_run(block):
            continue
        count += 1
        where = f"{page.name}:{block.line}"
        if block.language == "python":
            _run_python(block, names, where)
        else:
            for command, printed in commands(block):
                _expect(printed, _run_command(command, folder, environment, where), f"{where}: $ {command}")
    return count


def _run_python(block: Block, names: dict[str, Any], where: str) -> None:
    printed = io.StringIO()
    code = compile("\n" * block.line + block.text, where.partition(":")[0], "exec")
    with contextlib.redirect_stdout(printed):
        exec(code, names)
    _expect(block.printed or "", printed.getvalue(), where)


def _run_command(command: str, folder: Path, environment: Mapping[str, str], where: str) -> str:
    words = shlex.split(command)
    programs = {"freshet": [sys.executable, "-m", "freshet"], "python": [sys.executable]}
    programs["spark-submit"] = [str(Path(sys.executable).with_name("spark-submit"))]
    if words[0] not in programs:
        raise PageError(f"{where}: {words[0]} is not run by tests; say why above the block: <!-- not run: … -->")
    done = subprocess.run(
        [*programs[words[0]], *words[1:]],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src"), "COLUMNS": "100", "TERM": "dumb", **environment},
        capture_output=True,
        text=True,
        timeout=COMMAND_S,
        check=False,
    )
    if done.returncode:
        raise PageError(f"{where}: {command} ended with {done.returncode}: {done.stdout}{done.stderr}")
    return done.stdout


def _expect(expected: str, printed: str, where: str) -> None:
    wanted, got = (f"{text.rstrip()}\n" for text in (expected, _without_blank_ends(printed)))
    wanted_alone = wanted.removesuffix("...\n")  # nothing may be there as well
    if not any(_CHECK.check_output(each, got, doctest.ELLIPSIS) for each in (wanted, wanted_alone)):
        raise PageError(f"{where} prints:\n{got}\nand the page says:\n{wanted}")


def _without_blank_ends(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.splitlines())
