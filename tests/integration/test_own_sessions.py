"""Runs the suites that need a Spark session of their own, with the jars of its Kafka source, in processes of theirs
beside one broker.

A few tests of each suite are in every run of CI, the others are drawn: each process takes 12 to 28 s of CPU.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from freshet.jobs.demo.kafka_broker import ForeignBroker
from tests.kit import slow_time

pytestmark = [pytest.mark.spark, pytest.mark.kafka]


class Suite(NamedTuple):
    """Files of tests that run in one process."""

    files: tuple[str, ...]
    quick: str
    """Chooses what every run of CI has, as `-k` of pytest does."""


SUITES = {
    "direct reads": Suite(("direct_reads.py",), "small_batches or too_early"),
    "small batches": Suite(("small_batches.py",), "shrink or each_kind_of_table[keyed]"),
    "sources that change": Suite(
        (
            "sync_tables.py",
            "sync_rows.py",
            "sync_deaths.py",
            "sync_truncates.py",
            "sync_turns.py",
            "kafka_turns.py",
            "source_changes.py",
        ),
        "tables_are_created_and_follow_their_sources and python",
    ),
    "beside a sync": Suite(
        ("sync_compaction.py", "sync_beside.py", "transactions.py"),
        "put_back or (aborted_transactions_are_no_rows and table and not python)",
    ),
}
SUITE = pytest.mark.parametrize("suite", SUITES.values(), ids=SUITES)


def run(suite: Suite, chosen: str, broker: ForeignBroker, minutes: Mapping[str, str]) -> None:
    files = [str(Path(__file__).with_name(name)) for name in suite.files]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *files, "-k", chosen]
    environment = {name: value for name, value in os.environ.items() if name != slow_time.MINUTES}
    environment.update(minutes, KAFKA_BOOTSTRAP_SERVERS=broker.bootstrap_servers)
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=1150, check=False)
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]


@pytest.mark.always("crossing: Kafka", "crossing: sync")
@pytest.mark.slow
@SUITE
def test_the_quick_ones(suite: Suite, kafka_broker: ForeignBroker) -> None:
    run(suite, suite.quick, kafka_broker, {})


@pytest.mark.slow
@SUITE
def test_the_others(suite: Suite, kafka_broker: ForeignBroker) -> None:
    """Where the time of the run is limited, a minute of them."""
    minutes = {slow_time.MINUTES: "1"} if slow_time.MINUTES in os.environ else {}
    run(suite, f"not ({suite.quick})", kafka_broker, minutes)
