"""Runs the suites that need a Spark session of their own, with the jars of its Kafka source, in processes of theirs.

A few tests of each suite are in every run, the others are slow.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.__main__ import NOTHING_COLLECTED
from tests.kit import slow_share, slow_time

pytestmark = [pytest.mark.spark, pytest.mark.kafka]


class Suite(NamedTuple):
    """Files of tests that run in one process."""

    files: tuple[str, ...]
    quick: str
    """Chooses what every run has, as `-k` of pytest does."""


SUITES = {
    "direct reads": Suite(("direct_reads.py",), "small_batches or too_early"),
    "small batches": Suite(("small_batches.py",), "shrink or each_kind_of_table[keyed]"),
    "sources that change": Suite(
        (
            "sync_tables.py",
            "sync_rows.py",
            "sync_deaths.py",
            "sync_renames.py",
            "sync_truncates.py",
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


def run(suite: Suite, chosen: str, *, share: float) -> int:
    files = [str(Path(__file__).with_name(name)) for name in suite.files]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *files, "-k", chosen]
    environment = {**os.environ, slow_share.SHARE: str(share)}
    environment.pop(slow_time.UNTIL, None)  # that of this test, which has begun
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=1150, check=False)
    assert done.returncode in (0, NOTHING_COLLECTED), done.stdout + done.stderr[-2000:]
    return done.returncode


@pytest.mark.few(1)
@SUITE
def test_the_quick_ones(suite: Suite) -> None:
    assert run(suite, suite.quick, share=1) == 0, "they are few, and run whole where this was chosen"


@pytest.mark.slow
@pytest.mark.takes_its_share
@SUITE
def test_the_others(suite: Suite) -> None:
    share = slow_share.share()
    assert run(suite, f"not ({suite.quick})", share=share) == 0 or share < 1
