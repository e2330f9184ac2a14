"""A page of README or site as blocks that can be run, in order, in one folder.

    ```python                           run in one namespace for all blocks of the page
    ```text                             after a block of Python: what it prints
    ```console                          lines that begin with `$ ` are run, those between are what they print
    ```yaml title="orders.yaml"         written into the folder; so is any block with a title
    <!-- needs: spark, kafka -->        the page needs these
    <!-- not run: why -->               of the next block

`...` in what is printed means any text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
LANGUAGES_RUN: Final = ("python", "console")
PROMPT: Final = "$ "

_FENCE: Final = re.compile(r'^(?P<indent> *)```(?P<language>\w*)(?: +title="(?P<title>[^"]+)")?.*$')
_NEEDS: Final = re.compile(r"^<!-- needs: (?P<names>[\w, ]+) -->$", re.MULTILINE)
_NOT_RUN: Final = re.compile(r"^ *<!-- not run: (?P<why>.+) -->$")


@dataclass(frozen=True, slots=True)
class Block:
    """One fenced block; `line` is that of its fence."""

    line: int
    language: str
    text: str
    title: str | None = None
    not_run: str | None = None
    """Why it is not run."""
    printed: str | None = None
    """What a block of Python prints; None where nothing is said."""


@dataclass(frozen=True, slots=True)
class Page:
    """One Markdown file."""

    path: Path
    needs: frozenset[str]
    blocks: tuple[Block, ...]

    @property
    def name(self) -> str:
        """Its path in the repository."""
        return self.path.relative_to(ROOT).as_posix()


def read_page(path: Path) -> Page:
    """A page of the repository."""
    text = path.read_text(encoding="utf-8")
    needs = {name.strip() for match in _NEEDS.finditer(text) for name in match["names"].split(",")}
    return Page(path, frozenset(needs), tuple(_with_printed(_blocks(text.splitlines()))))


def is_run(block: Block) -> bool:
    """True for code that a reader of the page would run."""
    return block.language in LANGUAGES_RUN and block.not_run is None


def commands(block: Block) -> Iterator[tuple[str, str]]:
    """(command, what it prints) of a console block."""
    command, printed = "", []
    for line in block.text.splitlines():
        if line.startswith(PROMPT):
            if command:
                yield command, "\n".join(printed)
            command, printed = line.removeprefix(PROMPT), []
        elif command.endswith("\\"):
            command = command[:-1] + line.strip()
        else:
            printed.append(line)
    if command:
        yield command, "\n".join(printed)


def _blocks(lines: list[str]) -> Iterator[Block]:
    number = 0
    why = None
    while number < len(lines):
        line = lines[number]
        number += 1
        if match := _NOT_RUN.match(line):
            why = match["why"]
        elif match := _FENCE.match(line):
            start, indent = number, len(match["indent"])
            while number < len(lines) and lines[number].strip() != "```":
                number += 1
            text = "\n".join(each[indent:] for each in lines[start:number])
            number += 1
            yield Block(start, match["language"], text + "\n", match["title"], why)
            why = None


def _with_printed(blocks: Iterator[Block]) -> Iterator[Block]:
    before: Block | None = None
    for block in blocks:
        if block.language == "text" and before is not None and before.language == "python":
            yield Block(before.line, before.language, before.text, before.title, before.not_run, block.text)
            before = None
            continue
        if before is not None:
            yield before
        before = block
    if before is not None:
        yield before
