"""A picture of a terminal, from the recording of a real run.

    python -m tests.docs.terminal      plays `freshet demo database` and records it in docs/pictures/demo.cast

A recording is an asciicast (version 2): a line of JSON about it, then [seconds, "o", text] for what was printed.
"""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import struct
import sys
import tempfile
import termios
import textwrap
import time
from collections.abc import Iterator
from html import escape
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from tests.docs.page import ROOT

RECORDING: Final = ROOT / "docs" / "pictures" / "demo.cast"
COMMAND: Final = ("freshet", "demo", "database")
COLUMNS: Final = 78
FONT_PX: Final = 13
LINE_PX: Final = 18
COLUMN_PX: Final = 7.9
CLOCK_COLUMNS: Final = 6

LEFT_OUT: Final = re.compile(
    r"^\s*$|^  freshet run|read so far|goes into table|created (for|in) |: new |: wider |lake; now|catches up"
    r"|was emptied|^  lake\.(order_lines|products|stock|payments|visits|odd_name|daily_totals) |^\d+ s in all"
)
"""Lines of which the picture has no room."""

OWN_CLOCK: Final = re.compile(r"^ +\d+\.\d s(?=  )")
"""In front of a line; the picture has a clock for all."""

MARKS: Final = (
    (re.compile(r"kill -9: the writer is gone"), "bad"),
    (re.compile(r"^\d\. .+"), "head"),
    (re.compile(r"equal|dead letters: 0"), "good"),
)
STYLE: Final = (
    f"text{{font:{FONT_PX}px ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace;fill:#dfe6ee;"
    "white-space:pre}.clock{fill:#8b98a7}.bad{fill:#ff8f80;font-weight:700}.good{fill:#5fd7a5}"
    ".head{fill:#7cc4ff;font-weight:700}.frame{fill:#12161c;stroke:#3a4450}"
)


def terminal(recording: str) -> str:
    """The SVG of a recording; a number at the left is the second in which the line was printed."""
    about, *events = (json.loads(line) for line in recording.splitlines())
    lines = [("", f"$ {about['command']}", "head"), *_shown(events)]
    rows = [row for seconds, text, mark in lines for row in _rows(seconds, text, mark)]
    width = round((COLUMNS + CLOCK_COLUMNS) * COLUMN_PX + 32)
    height = len(rows) * LINE_PX + 32
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'role="img" aria-label="{escape(about["title"])}">',
        f"<title>{escape(about['title'])}</title>",
        f"<style>{STYLE}</style>",
        f'<rect x="0.5" y="0.5" width="{width - 1}" height="{height - 1}" rx="8" class="frame"/>',
    ]
    for number, (seconds, text, mark) in enumerate(rows, 1):
        y = 10 + number * LINE_PX
        if seconds:
            parts.append(f'<text x="{16 + 4 * COLUMN_PX:g}" y="{y}" text-anchor="end" class="clock">{seconds}</text>')
        parts.append(f'<text x="{16 + CLOCK_COLUMNS * COLUMN_PX:g}" y="{y}">{_marked(text, mark)}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def _shown(events: list[Any]) -> Iterator[tuple[str, str, str]]:
    """(second, line, mark) of the lines that the picture has; a second stands where it is another one than before."""
    before = None
    lines = [(seconds, OWN_CLOCK.sub("", text)) for seconds, text in _printed(events) if not LEFT_OUT.search(text)]
    for seconds, text in lines:
        mark = next((mark for pattern, mark in MARKS if pattern.search(text)), "")
        clock = f"{seconds:.0f} s"
        yield "" if clock == before else clock, text, mark
        before = clock


def _printed(events: list[Any]) -> Iterator[tuple[float, str]]:
    text = ""
    ends: list[tuple[int, float]] = []
    for seconds, _, piece in events:
        text += piece.replace("\r\n", "\n")
        ends.append((len(text), seconds))
    at = 0
    for line in text.splitlines(keepends=True):
        at += len(line)
        yield next(seconds for end, seconds in ends if end >= at), line.rstrip()


def _rows(seconds: str, text: str, mark: str) -> Iterator[tuple[str, str, str]]:
    indent = " " * (len(text) - len(text.lstrip()) + 2)
    for number, row in enumerate(textwrap.wrap(text, COLUMNS, subsequent_indent=indent, drop_whitespace=True)):
        yield seconds if not number else "", row, mark


def _marked(text: str, mark: str) -> str:
    if mark != "good":
        return f'<tspan class="{mark}">{escape(text)}</tspan>' if mark else escape(text)
    pattern = next(pattern for pattern, name in MARKS if name == mark)
    cuts = [0, *(place for match in pattern.finditer(text) for place in match.span()), len(text)]
    return "".join(
        f'<tspan class="good">{escape(text[start:end])}</tspan>' if number % 2 else escape(text[start:end])
        for number, (start, end) in enumerate(pairwise(cuts))
    )


def record() -> int:
    """Plays the demo in a terminal of its own; returns its exit code. Paths of this machine are not recorded."""
    with tempfile.TemporaryDirectory() as folder:
        events, code = _played(Path(folder))
        hidden = {str(Path(folder).resolve()): "~", f"{ROOT}/src/freshet/jobs/demo/pipelines/": ""}
    title = f"A terminal that plays {' '.join(COMMAND)}: a writer is killed, and the tables are right"
    lines = [json.dumps({"version": 2, "width": 120, "height": 40, "command": " ".join(COMMAND), "title": title})]
    for seconds, text in events:
        for path, shown in hidden.items():
            text = text.replace(path, shown)
        lines.append(json.dumps([seconds, "o", text], ensure_ascii=False))
    if not code:
        RECORDING.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return code


def _played(folder: Path) -> tuple[list[tuple[float, str]], int]:
    began = time.monotonic()
    process, screen = pty.fork()
    if not process:
        os.chdir(folder)
        os.execv(sys.executable, [sys.executable, "-m", *COMMAND])
    fcntl.ioctl(screen, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
    events = []
    while True:
        try:
            printed = os.read(screen, 65536).decode("utf-8", "replace")
        except OSError:  # its end: the other side is closed
            break
        sys.stdout.write(printed)
        events.append((round(time.monotonic() - began, 2), printed))
    return events, os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


if __name__ == "__main__":
    sys.exit(record())
