"""Ports for the servers of demos and tests."""

from __future__ import annotations

import contextlib
import random
import socket
from typing import Final

PORTS: Final = (10_000, 16_000)
"""Below those that Linux gives by itself (`ip_local_port_range`)."""


def free_ports(count: int) -> list[int]:
    """Ports that were free a moment ago, none of those that the system gives to outgoing connections: a client that
    tries to reach a broker that is down could be given the broker's own port, and hold it.
    """
    found: list[int] = []
    while len(found) < count:
        port = random.SystemRandom().randrange(*PORTS)
        with socket.socket() as one, contextlib.suppress(OSError):
            one.bind(("127.0.0.1", port))
            found += [port] if port not in found else []
    return found
