"""A pytest plugin: the CPU time of each test, as lines of JSON in the file that `FRESHET_TEST_TIMES` names.

What a test costs others too, on a machine that is shared: of this process, of the processes that it has started, and of
theirs. A session's fixture counts for the first test that asks for it. `python -m tests.kit.cpu_times FILE` prints the
dearest tests and what each file costs.

Runs of the quick tests (`-m "not slow"`) name those that take more than half a second and have no marker `dear` that
says why; of the processes that a test has started they count those that have ended. None fails of it: on another
machine, or beside others, the same test takes several times as much.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import sys
import time
from collections import defaultdict
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

TIMES = "FRESHET_TEST_TIMES"
DEAREST = 300
QUICK = 0.5
"""Seconds of CPU on a quiet machine."""
REMEDY = "make it cheaper, mark it slow and keep a quick one, or say why in pytest.mark.dear(…)"
TICKS = os.sysconf("SC_CLK_TCK")
_USER, _SYSTEM, _USER_OF_CHILDREN, _SYSTEM_OF_CHILDREN = 11, 12, 13, 14


def _ticks(process: int | str) -> tuple[int, int]:
    """Of a process itself, and of those of its children that have ended."""
    fields = Path("/proc", str(process), "stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    own = int(fields[_USER]) + int(fields[_SYSTEM])
    return own, int(fields[_USER_OF_CHILDREN]) + int(fields[_SYSTEM_OF_CHILDREN])


def _children(process: int | str) -> Iterator[int]:
    for thread in Path("/proc", str(process), "task").iterdir():
        with contextlib.suppress(OSError):
            yield from map(int, (thread / "children").read_text(encoding="utf-8").split())


def _below(process: int | str) -> int:
    """Ticks of everything that a process has started and that goes on, and of what that has waited for."""
    total = 0
    for child in _children(process):
        with contextlib.suppress(OSError):  # it has ended meanwhile, and counts where it is waited for
            total += sum(_ticks(child)) + _below(child)
    return total


def spent() -> float:
    """Seconds of CPU so far, of this process and of those that it has started and that have ended."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + ended.ru_utime + ended.ru_stime


def spent_by_all() -> float:
    """Seconds of CPU so far, also of those that go on: milliseconds to ask, where there are many threads."""
    return spent() + (_below("self") / TICKS if _has_children() else 0.0)


def _has_children() -> bool:
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


class Times:
    """Of one process of tests."""

    def __init__(self, path: Path | None, *, checks: bool) -> None:
        self.path = path
        self.checks = checks
        self.dear: list[tuple[float, str]] = []

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        if self.path is None:
            return (yield)
        before = spent_by_all()
        done = yield
        line = json.dumps({"test": item.nodeid, "cpu": round(spent_by_all() - before, 3)})
        with self.path.open("a", encoding="utf-8") as file:
            file.write(f"{line}\n")
        return done

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, object, object]:
        before = spent()
        done = yield
        seconds = spent() - before
        if self.checks and seconds > QUICK and not is_dear(item):
            self.dear.append((seconds, item.nodeid))
        return done

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self.dear:
            terminalreporter.write_line(f"quick tests that took more than {QUICK} s of CPU: {REMEDY}")
        for seconds, test in sorted(self.dear, reverse=True):
            terminalreporter.write_line(f"{seconds:8.2f} {test}")


def is_dear(item: pytest.Item) -> bool:
    """Whether a test may take long: it says why, or has a marker that says it."""
    return any(item.get_closest_marker(marker) is not None for marker in ("dear", "spark", "kafka", "judge"))


def pytest_configure(config: pytest.Config) -> None:
    path = Path(os.environ[TIMES]).absolute() if TIMES in os.environ else None
    checks = config.option.markexpr == "not slow"
    if checks or path is not None:
        config.pluginmanager.register(Times(path, checks=checks))


def main(path: Path) -> None:
    times = [(each["cpu"], each["test"]) for each in map(json.loads, path.read_text(encoding="utf-8").splitlines())]
    files: defaultdict[str, list[float]] = defaultdict(list)
    for cpu, test in times:
        files[test.split("::")[0]].append(cpu)
    whole = sum(cpu for cpu, _ in times)
    dearest = sorted(times, reverse=True)[:DEAREST]
    for cpu, test in dearest:
        print(f"{cpu:8.2f} {test}")
    for name, of_file in sorted(files.items(), key=lambda each: -sum(each[1])):
        print(f"{sum(of_file):8.2f} {len(of_file):5} {name}")
    print(f"{len(times)} tests: {whole:.0f} s of CPU, the dearest {len(dearest)} {sum(c for c, _ in dearest):.0f} s")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
