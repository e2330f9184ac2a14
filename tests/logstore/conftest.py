"""Fixtures of tests of the log."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from freshet.storage.table import Table
from tests.kit.fake_log import FakeLog
from tests.logstore.logged_tables import fake_kafka, make_logged


@pytest.fixture
def log() -> Iterator[FakeLog]:
    """`log.system=kafka` is a log in memory."""
    with fake_kafka() as found:
        yield found


@pytest.fixture(params=["committed", "speculative"])
def isolation(request: pytest.FixtureRequest) -> str:
    """Of a reader; each test that asks for it runs with both."""
    return str(request.param)


@pytest.fixture
def table(log: FakeLog, tmp_path: Path) -> Table:
    """An empty table with one bucket, `changelog-producer=lookup` and a log in memory."""
    return make_logged(tmp_path)
