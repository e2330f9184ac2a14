"""Positions in the log of a server, as it writes them: `16/B374D848`."""

from __future__ import annotations

import re
from typing import Final

_LSN: Final = re.compile(r"([0-9A-Fa-f]{1,8})/([0-9A-Fa-f]{1,8})")


def lsn_text(lsn: int) -> str:
    """The text of a position."""
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


def lsn_of(text: str) -> int:
    """The position that a text is; raises `ValueError` where it is none."""
    match = _LSN.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is no position in a log, such as 16/B374D848")
    return int(match[1], 16) << 32 | int(match[2], 16)
