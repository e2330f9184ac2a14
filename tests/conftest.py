"""Fixtures shared by every suite: the real parts, each started once per session and only when a test asks for it."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

import tests.kit.hypothesis_profile  # noqa: F401  loads it
from freshet.jobs.demo.kafka_broker import ForeignBroker
from freshet.storage.io.env import LOCAL_DIRS
from tests.kit.kafka_broker import any_broker
from tests.kit.paimon_judge import PaimonJudge
from tests.kit.postgres_programs import NEWEST, SYSTEM
from tests.kit.postgres_source import PostgresServers, PostgresSource, new_source
from tests.kit.pypaimon_judge import PypaimonJudge
from tests.kit.s3_server import VARIABLES, S3Place, moto_server, new_bucket
from tests.kit.versitygw import VersityGateway, versity_gateway

pytest_plugins = [
    "tests.kit.checked_claims",
    "tests.kit.components",
    "tests.kit.cpu_times",
    "tests.kit.few_cases",
    "tests.kit.soak_runs",
    "tests.kit.slow_time",
]

# A JVM of the tests lives for seconds or minutes: its second compiler takes more CPU there than it gives back.
os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1")

os.environ.update(VARIABLES)

# Tables of tests name folders of their own, below that for temporary files, for what is kept on the local disk.
os.environ.setdefault(LOCAL_DIRS, f"{tempfile.gettempdir()}{os.pathsep}/tmp")

TESTS = Path(__file__).parent
ROOMS = {TESTS / name: name for name in ("integration", "storage")} | {
    TESTS / name: "local"
    for name in ("logstore", "pipeline/local", "pipeline/postgres", "pipeline/running", "pipeline/sync")
}
"""Folders whose tests have a marker of this name: they run in a process of their own."""
MARKERS = {"spark": "spark", "paimon": "judge", "pypaimon": "judge", "kafka_broker": "kafka"}
"""The marker of tests with a fixture: it says in which process they run."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        for room, name in ROOMS.items():
            if item.path.is_relative_to(room):
                item.add_marker(name)
        for fixture, marker in MARKERS.items():
            if fixture in getattr(item, "fixturenames", ()) and item.get_closest_marker(marker) is None:
                raise pytest.UsageError(f"{item.nodeid} has the fixture {fixture}: give it the marker {marker}")


@pytest.fixture(scope="session")
def paimon() -> Iterator[PaimonJudge]:
    """Apache Paimon (JVM); one process for the whole session."""
    with PaimonJudge.start() as judge:
        yield judge


@pytest.fixture(scope="session")
def kafka_broker() -> Iterator[ForeignBroker]:
    """A real Kafka broker; tests take topics of their own. Tests that kill a broker start their own `KafkaBroker`."""
    with any_broker() as broker:
        yield broker


@pytest.fixture(scope="session")
def pypaimon() -> Iterator[PypaimonJudge]:
    """pypaimon, in its own environment and process."""
    with PypaimonJudge.start() as judge:
        yield judge


@pytest.fixture(scope="session")
def s3_endpoint() -> Iterator[str]:
    """An S3 server with data in memory; one process for the whole session."""
    with moto_server() as endpoint:
        yield endpoint


@pytest.fixture
def s3(s3_endpoint: str) -> S3Place:
    """A bucket of this test."""
    return new_bucket(s3_endpoint)


@pytest.fixture(scope="session")
def versity(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VersityGateway]:
    """An S3 server on a folder; one process for the whole session. Tests that kill a server start their own."""
    with versity_gateway(tmp_path_factory.mktemp("versitygw") / "buckets") as gateway:
        yield gateway


@pytest.fixture
def versitygw(versity: VersityGateway) -> S3Place:
    """A bucket of this test, on a server that checks signatures; for slow tests and soaks."""
    return versity.new_bucket()


@pytest.fixture(scope="session")
def postgres_servers() -> Iterator[PostgresServers]:
    """PostgreSQL by version, with logs that can be decoded; tests that stop a server start their own."""
    with ExitStack() as stack:
        yield PostgresServers(stack)


@pytest.fixture(params=[SYSTEM, pytest.param(NEWEST, marks=pytest.mark.slow)])
def postgres(request: pytest.FixtureRequest, postgres_servers: PostgresServers) -> Iterator[PostgresSource]:
    """A database of this test, on each version of the server; quick tests see the system's only."""
    with new_source(postgres_servers[request.param]) as source:
        yield source
