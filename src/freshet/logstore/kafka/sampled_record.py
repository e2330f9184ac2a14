"""A record that a check looks at, by whatever it was read; without a client, so that a check of files needs none."""

from __future__ import annotations

from typing import NamedTuple


class SampledRecord(NamedTuple):
    """A record that is only looked at."""

    key: bytes | None
    value: bytes | None
    topic: str
