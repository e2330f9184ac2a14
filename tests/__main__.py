"""All tests, read once and run by six processes, four side by side: `python -m tests [arguments of pytest]`.

Most suites keep one core busy, and those that wait for a broker or a child process none. Tests that need nothing run in
three processes, those with Apache Paimon in another, and those with Spark or Kafka in two more; the next begins when
one of the others has ended. One process imports all files and forks the others, so that nothing may have been started
by then. What the first prints is seen at once, what the others printed follows when all are done.

Their files lie in memory where there is room: tests write some ten thousand small tables, each file synced. Those of
tests that failed are kept until the next run.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import MutableMapping, Sequence
from multiprocessing.sharedctypes import RawArray
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, NoReturn

import pytest

from tests.soak import counts

if TYPE_CHECKING:
    from tests.kit.slow_time import SlowTime  # which pytest imports, as it is a plugin

MEMORY = Path("/dev/shm")
MEMORY_MIN_BYTES = 8 * 1024**3
FOLDER_PREFIX = "freshet-tests-"
PROCESSES = 4
"""Side by side: whichever waits, two cores are busy until the end; of three, the last ones were alone for a minute."""
TIMED_PROCESSES = 3
"""The same where the time is limited, of which each then has half."""
COLLECTED_AT = 20_000
"""New objects, not 700: Python looked for circles for 7 % of the time of tests, and a fifth of that of reading them."""
NOTHING_COLLECTED = int(pytest.ExitCode.NO_TESTS_COLLECTED)


STORAGE = "of storage, without Spark, Kafka and Paimon"
BROKERS = "with Spark or Kafka"
REST = "of the rest, without Spark, Kafka and Paimon"
LOCAL = "of runs without Spark, of databases and of logs"
PAIMON = "with Paimon"
INTEGRATION = "of pipelines as users run them"
PARTS = (STORAGE, BROKERS, REST, LOCAL, PAIMON, INTEGRATION)
"""Tests that run in one process each. Those that take longest begin."""


def part_of(item: pytest.Item) -> str:
    """The part of a test, by its markers."""
    marks = {mark.name for mark in item.iter_markers()}
    if marks & {"spark", "kafka"}:
        return INTEGRATION if "integration" in marks else BROKERS
    if "judge" in marks:
        return PAIMON
    return STORAGE if "storage" in marks else LOCAL if "local" in marks else REST


class OtherReader:
    """The plugin of a process that reads all tests too, from the other end, until they are collected.

    What one process has compiled the other finds compiled: reading some 1,000 files of a fresh clone keeps a core busy
    for 25 s, and the second core has nothing to do yet.
    """

    def __init__(self) -> None:
        rooms = sorted((str(path.parent) for path in Path("tests").glob("*/__init__.py")), reverse=True)
        command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", *rooms]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def pytest_collection_finish(self) -> None:
        self._process.kill()
        self._process.wait()

    pytest_unconfigure = pytest_collection_finish  # where tests could not be read


class Division:
    """The plugin that divides the collected tests, in the process that forks and in those that run them."""

    def __init__(self) -> None:
        self.mine: str | None = None
        self.timed: SlowTime | None = None
        self.counted = RawArray("i", 2 * len(PARTS))
        """Slow tests that each part has drawn, and that it has left out: memory that the processes share."""
        self.lines: list[str] = []
        self.codes: list[int] | None = None
        """Of the parts, where they have run; None where the tests could not be read, or are only listed."""

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        options = session.config.option
        if options.collectonly or (session.testsfailed and not options.continue_on_collection_errors):
            return None
        if threading.active_count() > 1:
            raise pytest.UsageError(f"start no threads where files of tests are imported: {threading.enumerate()}")
        tests: dict[str, list[pytest.Item]] = {part: [] for part in PARTS}
        for item in session.items:
            tests[part_of(item)].append(item)
        with contextlib.ExitStack() as files:
            outputs = {part: files.enter_context(tempfile.TemporaryFile()) for part in PARTS[1:]}
            self._run(session, tests, outputs)
            if self.mine is None:
                sys.stdout.flush()
                for output in outputs.values():
                    output.seek(0)
                    sys.stdout.buffer.writelines(output)
        return True if self.mine is None else None  # those who run tests go on as pytest does

    def pytest_sessionfinish(self) -> None:
        if self.mine is not None and self.timed is not None:
            number = 2 * PARTS.index(self.mine)
            self.counted[number : number + 2] = [self.timed.drawn, self.timed.left_out]

    def _run(self, session: pytest.Session, tests: dict[str, list[pytest.Item]], outputs: dict[str, BinaryIO]) -> None:
        started = time.monotonic()
        gc.collect()
        gc.freeze()  # what is shared is not written to
        gc.set_threshold(COLLECTED_AT)
        gc.enable()
        waiting, running = [part for part in PARTS if tests[part]], dict[int, str]()
        self.timed = timed = session.config.pluginmanager.getplugin("slow time")
        side_by_side = PROCESSES if timed is None else TIMED_PROCESSES
        ends = [] if timed is None else timed.ends(len(waiting), side_by_side)
        codes = dict.fromkeys(PARTS, NOTHING_COLLECTED)
        seconds: dict[str, float] = {}
        while waiting or running:
            if waiting and len(running) < side_by_side:
                part = waiting.pop(0)
                sys.stdout.flush()
                process = os.fork()
                if process == 0:
                    self.mine = part
                    _become(part, session, tests[part], outputs.get(part))
                    if timed is not None:
                        timed.until = ends[-len(waiting) - 1]
                    return
                running[process] = part
                continue
            try:
                process, status = os.wait()
            except KeyboardInterrupt:  # the others have got the signal too and print what they know
                waiting.clear()
                continue
            except ChildProcessError:  # the signal came between the end of the last one and its number
                codes.update(dict.fromkeys(running.values(), int(pytest.ExitCode.INTERRUPTED)))
                break
            part = running.pop(process)
            codes[part], seconds[part] = os.waitstatus_to_exitcode(status), time.monotonic() - started
        gc.unfreeze()
        _remember_failures(session.config)
        if timed is not None:
            timed.drawn, timed.left_out = sum(self.counted[::2]), sum(self.counted[1::2])
        self.codes = list(codes.values())
        self.lines = [f"tests {part}: exit code {codes[part]} after {each:.0f} s" for part, each in seconds.items()]


def _become(part: str, session: pytest.Session, items: list[pytest.Item], output: BinaryIO | None) -> None:
    """Makes a process that was forked the one that runs the tests of that part."""
    session.items = items
    session.testscollected = len(items)
    config = session.config
    if config.cache is not None:
        config.cache._cachedir = _cache_of(config, part)
    if output is not None:  # those whose output comes later have a lower priority than the first
        os.nice(5)
        capture = config.pluginmanager.getplugin("capturemanager")
        capture.stop_global_capturing()  # its files are those of the process that collected
        os.dup2(output.fileno(), sys.stdout.fileno())
        os.dup2(output.fileno(), sys.stderr.fileno())
        capture.start_global_capturing()
        capture.suspend_global_capture()


def _cache_of(config: pytest.Config, part: str) -> Path:
    return config.cache._cachedir / f"part-{PARTS.index(part)}"


def _remember_failures(config: pytest.Config) -> None:
    """What `--last-failed` runs the next time: each process has noted those of its own tests."""
    last = config.pluginmanager.getplugin("lfplugin")
    if config.cache is None or last is None:
        return
    last.lastfailed = {}
    for part in PARTS:
        with contextlib.suppress(FileNotFoundError):
            noted = _cache_of(config, part) / "v" / "cache" / "lastfailed"
            last.lastfailed.update(json.loads(noted.read_text(encoding="utf-8")))


def prepare(environment: MutableMapping[str, str], folder: Path | None) -> None:
    """The environment of all processes, and of those that they start: each would compile its imports again."""
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    environment.setdefault("PYTHONFAULTHANDLER", "1")  # a process that crashes says where
    environment.setdefault(counts.SEED, str(counts.new_seed()))  # one for all parts
    if folder is not None:
        environment["TMPDIR"] = str(folder)


def has_room(memory: Path) -> bool:
    """Whether files of tests fit in there, and programs may be started from it."""
    if not os.access(memory, os.W_OK):
        return False
    facts = os.statvfs(memory)
    return facts.f_bavail * facts.f_frsize >= MEMORY_MIN_BYTES and not facts.f_flag & os.ST_NOEXEC


def temporary_folder(given: MutableMapping[str, str], memory: Path = MEMORY) -> Path | None:
    """A new folder for all temporary files, without those of runs that have ended; None to let Python choose."""
    if "TMPDIR" in given or not has_room(memory):
        return None
    for left in memory.glob(f"{FOLDER_PREFIX}*"):
        is_running = Path("/proc", left.name.removeprefix(FOLDER_PREFIX)).exists()
        if left.stat().st_uid == os.getuid() and not is_running:
            shutil.rmtree(left, ignore_errors=True)
    folder = memory / f"{FOLDER_PREFIX}{os.getpid()}"
    folder.mkdir(mode=0o700)
    return folder


def exit_code(codes: Sequence[int]) -> int:
    """Of all parts: what failed, if anything did; a part may have no tests, all may not."""
    failures = [code for code in codes if code not in (0, NOTHING_COLLECTED)]
    return failures[0] if failures else min(codes)


def _end(code: int) -> NoReturn:
    """Ends a process that was forked, without taking the interpreter apart.

    Tests of fatal errors and killed brokers leave clients of librdkafka behind, as confluent-kafka loses an exception
    there, and what its traceback holds; their threads and those of py4j go on while Python ends, and a request that is
    answered then ends the process with SIGSEGV. How programs of users end is tested where they are started as programs.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def main(arguments: Sequence[str]) -> int:
    folder = temporary_folder(os.environ)
    prepare(os.environ, folder)
    sys.dont_write_bytecode = False
    gc.disable()  # what is imported stays
    division = Division()
    are_all = not any(Path(each.partition("::")[0]).exists() for each in arguments)
    plugins = [division, OtherReader()] if are_all else [division]
    code = int(pytest.main(["-o", "tmp_path_retention_policy=failed", *arguments], plugins=plugins))
    if division.mine is not None:
        _end(code)
    if division.codes is not None:
        print(*division.lines, sep="\n")
        code = exit_code(division.codes) if code in (0, NOTHING_COLLECTED) else code
        if division.timed is not None and division.timed.is_below_its_floor():
            print(f"tests: {division.timed.remark()}; at least {division.timed.floor()} are expected")
            code = code or int(pytest.ExitCode.TESTS_FAILED)
    if folder is not None and code == 0:
        shutil.rmtree(folder, ignore_errors=True)
    elif folder is not None:
        print(f"tests: the files of those that failed lie in {folder} until the next run")
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
