"""Fixtures of tests of the log."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.kit.fake_log import FakeLog
from tests.logstore.logged_tables import fake_kafka


@pytest.fixture
def log() -> Iterator[FakeLog]:
    """`log.system=kafka` is a log in memory."""
    with fake_kafka() as found:
        yield found
