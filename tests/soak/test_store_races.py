"""64 writers race for one id in an object store, as threads and as processes: exactly one wins, each time."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import pytest

from freshet.storage.io.object_file_io import ObjectFileIO
from tests.kit.s3_server import S3Place
from tests.soak.counts import STORE_RACES
from tests.soak.store_racer import race

pytestmark = [pytest.mark.soak, pytest.mark.timeout(3600)]

ROOT = Path(__file__).parents[2]
WRITERS = 64
PROCESSES = 8
EXPECTED = {"WON": 1, "LOST": WRITERS - 1}


def test_threads_race_for_one_id(versitygw: S3Place) -> None:
    rounds = race(ObjectFileIO(versitygw.store_options), versitygw.root, WRITERS, range(STORE_RACES.now()))
    assert [found for found in rounds.values() if found != EXPECTED] == []
    assert len(rounds) == STORE_RACES.now()


def test_processes_race_for_one_id(versitygw: S3Place) -> None:
    """Eight processes with eight threads each meet at each id; each process is let go first in its turn."""
    count, options = STORE_RACES.now(), json.dumps(versitygw.store_options)
    arguments = [versitygw.root, options, str(WRITERS // PROCESSES), "0", str(count)]
    command = [sys.executable, "-m", "tests.soak.store_racer", *arguments]
    with ExitStack() as stack:
        racers = [
            stack.enter_context(
                subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT)
            )
            for _ in range(PROCESSES)
        ]
        for racer in racers:
            stack.callback(racer.kill)
        for number in range(count):
            for racer in racers:
                assert racer.stdout is not None and racer.stdout.readline() == "ready\n"
            first = number % PROCESSES
            for racer in racers[first:] + racers[:first]:
                assert racer.stdin is not None
                racer.stdin.write("go\n")
                racer.stdin.flush()
        outcomes: dict[str, Counter[str]] = {}
        winners: Counter[int] = Counter()
        for number, racer in enumerate(racers):
            assert racer.stdout is not None
            for name, found in json.loads(racer.stdout.readline()).items():
                outcomes.setdefault(name, Counter()).update(found)
                winners[number] += found.get("WON", 0)
    assert len(outcomes) == count
    assert [found for found in outcomes.values() if found != EXPECTED] == []
    assert len(+winners) > 1, "one process was always first: that was no race"
