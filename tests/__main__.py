"""All tests in processes of their own, three side by side: `python -m tests [arguments of pytest]`.

Most suites keep one core busy, and those that wait for a broker or a child process none. Tests that need nothing run in
two processes, those with Apache Paimon in another, and those with Spark or Kafka in two more; the next begins when one
of the others has ended. What the first prints is seen at once, what the others printed follows when all are done.

Their files lie in memory where there is room: tests write some ten thousand small tables, each file synced. Those of
tests that failed are kept until the next run.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from tests.kit import slow_time
from tests.kit.marked_files import MARKED
from tests.soak import counts

NOTHING_COLLECTED = 5
MEMORY = Path("/dev/shm")
MEMORY_MIN_BYTES = 8 * 1024**3
FOLDER_PREFIX = "freshet-tests-"
PROCESSES = 3
"""Side by side: two keep two cores busy, one of three waits most of the time."""


@dataclass(frozen=True)
class Part:
    """Tests that run in one process."""

    name: str
    marks: str
    words: tuple[str, ...] = ()
    """Markers of which a file names at least one, or it has none of these tests and is not even read."""
    module: str = "pytest"


_BROKERS = ("spark", "kafka")
_ABRUPT = "tests.kit.abrupt_end"
PARTS = (
    Part("of storage, without Spark, Kafka and Paimon", "storage and not (spark or kafka or judge)"),
    Part("of the rest, without Spark, Kafka and Paimon", "not (storage or spark or kafka or judge)"),
    Part("with Paimon", "judge and not (spark or kafka)", ("judge",)),
    Part("of pipelines as users run them", "(spark or kafka) and integration", _BROKERS, _ABRUPT),
    Part("with Spark or Kafka", "(spark or kafka) and not integration", _BROKERS, _ABRUPT),
)


def command(part: Part, arguments: Sequence[str]) -> list[str]:
    """The command of one part; `-m` of the arguments narrows it."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("-m", default="")
    own, others = parser.parse_known_args(arguments)
    marks = f"({own.m}) and ({part.marks})" if own.m else part.marks
    cache = f"cache_dir=.pytest_cache/{PARTS.index(part)}"
    kept = "tmp_path_retention_policy=failed"
    return [sys.executable, "-m", part.module, "-m", marks, "-o", cache, "-o", kept, *others]


def environment(given: Mapping[str, str], folder: Path | None) -> dict[str, str]:
    """What the processes get, and the hundreds that they start: each of those would compile its imports again."""
    kept = {name: value for name, value in given.items() if name != "PYTHONDONTWRITEBYTECODE"}
    kept.setdefault("PYTHONFAULTHANDLER", "1")  # a process that crashes says where
    return kept if folder is None else {**kept, "TMPDIR": str(folder)}


def has_room(memory: Path) -> bool:
    """Whether files of tests fit in there, and programs may be started from it."""
    if not os.access(memory, os.W_OK):
        return False
    facts = os.statvfs(memory)
    return facts.f_bavail * facts.f_frsize >= MEMORY_MIN_BYTES and not facts.f_flag & os.ST_NOEXEC


def temporary_folder(given: Mapping[str, str], memory: Path = MEMORY) -> Path | None:
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


def run(
    part: Part, arguments: Sequence[str], output: BinaryIO | None, folder: Path | None, ends: Mapping[str, str]
) -> subprocess.Popen[bytes]:
    """Starts one part. Those whose output comes later have a lower priority than the first, which takes longest."""
    errors, first = (None, []) if output is None else (subprocess.STDOUT, ["nice", "-n", "5"])
    env = {**environment(os.environ, folder), MARKED: " ".join(part.words), **ends}
    return subprocess.Popen([*first, *command(part, arguments)], stdout=output, stderr=errors, env=env)


def main(arguments: Sequence[str]) -> int:
    started = time.monotonic()
    os.environ.setdefault(counts.SEED, str(counts.new_seed()))  # one for all parts
    ends = slow_time.ends(os.environ.get(slow_time.MINUTES), PROCESSES, len(PARTS))
    folder = temporary_folder(os.environ)
    with contextlib.ExitStack() as files:
        outputs = [None, *(files.enter_context(tempfile.TemporaryFile()) for _ in PARTS[1:])]
        running: list[subprocess.Popen[bytes]] = []
        seconds: dict[int, float] = {}
        try:
            while len(seconds) < len(PARTS):
                if len(running) < len(PARTS) and len(running) - len(seconds) < PROCESSES:
                    number = len(running)
                    running.append(run(PARTS[number], arguments, outputs[number], folder, ends[number]))
                    continue
                for number, child in enumerate(running):
                    if number not in seconds and child.poll() is not None:
                        seconds[number] = time.monotonic() - started
                time.sleep(0.2)
        except KeyboardInterrupt:  # the children have got the signal too and print what they know
            for child in running:
                child.wait()
        sys.stdout.flush()
        for output in outputs:
            if output is not None:
                output.seek(0)
                sys.stdout.buffer.writelines(output)
    for number, (part, child) in enumerate(zip(PARTS, running, strict=False)):
        spent = f" after {seconds[number]:.0f} s" if number in seconds else ""
        print(f"tests {part.name}: exit code {child.returncode}{spent}")
    code = exit_code([child.returncode for child in running])
    if folder is not None and code == 0:
        shutil.rmtree(folder, ignore_errors=True)
    elif folder is not None:
        print(f"tests: the files of those that failed lie in {folder} until the next run")
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
