"""Which files of tests a process has to read: the names of markers are in the text of the files that use them."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from pathlib import Path

MARKED = "FRESHET_TESTS_MARKED"
"""Markers, one of which the tests of this process have; none where it runs tests of any kind."""


@functools.cache
def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def names_any(path: Path, markers: Iterable[str]) -> bool:
    """Whether tests in the file may have one of the markers."""
    return any(f"mark.{marker}" in _text(path) for marker in markers)
