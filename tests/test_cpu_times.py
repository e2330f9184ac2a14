"""The CPU time of tests: what they have started counts, at the latest once it has ended."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.kit import cpu_times
from tests.kit.cpu_times import spent, spent_by_all

BUSY = """
import time
while time.process_time() < 0.3: pass
print("done", flush=True)
input()
"""


@pytest.mark.dear("a process that keeps busy")
def test_a_process_counts_once_it_has_ended_and_with_a_file_of_times_before() -> None:
    before, before_by_all = spent(), spent_by_all()
    with subprocess.Popen([sys.executable, "-c", BUSY], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline() == b"done\n"
        assert spent() - before < 0.25 <= spent_by_all() - before_by_all
        process.communicate(b"\n")
    assert spent() - before >= 0.25


def test_a_run_without_a_file_of_times_looks_at_no_process(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That takes milliseconds where there are many threads, and would be done three times for each test."""
    monkeypatch.setattr(cpu_times, "_below", pytest.fail)
    with subprocess.Popen(["sleep", "60"]) as process:
        for hook in (cpu_times.Times(None, checks=True), cpu_times.Times(None, checks=False)):
            for step in (hook.pytest_runtest_protocol(request.node), hook.pytest_runtest_call(request.node)):
                next(step)
                with pytest.raises(StopIteration):
                    step.send(None)
        process.kill()
