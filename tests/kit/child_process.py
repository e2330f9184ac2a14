"""What a child process of the tests does when it has done its work."""

from __future__ import annotations

import signal
from typing import NoReturn


def wait_to_be_killed() -> NoReturn:
    """A child has done what it was started for; it does not end by itself, so that a kill meets it on every machine."""
    while True:
        signal.pause()
