"""All tests in two processes side by side: `python -m tests [arguments of pytest]`.

Most suites keep one core busy. Tests that need nothing run in one process, and those with Spark, Kafka or Apache Paimon
in another, where each of these is started once. What the first prints is seen at once, what the second printed follows
when both are done.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import BinaryIO

WITH_PARTS = "spark or kafka or judge"
NOTHING_COLLECTED = 5


@dataclass(frozen=True)
class Half:
    """Tests that run in one process."""

    name: str
    marks: str


HALVES = (
    Half("without Spark, Kafka and Paimon", f"not ({WITH_PARTS})"),
    Half("with Spark, Kafka or Paimon", WITH_PARTS),
)


def command(half: Half, arguments: Sequence[str]) -> list[str]:
    """The command of one half; `-m` of the arguments narrows it."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("-m", default="")
    own, others = parser.parse_known_args(arguments)
    marks = f"({own.m}) and ({half.marks})" if own.m else half.marks
    cache = f"cache_dir=.pytest_cache/{HALVES.index(half)}"
    return [sys.executable, "-m", "pytest", "-m", marks, "-o", cache, *others]


def exit_code(codes: Sequence[int]) -> int:
    """Of both halves: what failed, if anything did; a half may have no tests, both may not."""
    failures = [code for code in codes if code not in (0, NOTHING_COLLECTED)]
    return failures[0] if failures else min(codes)


def run(half: Half, arguments: Sequence[str], output: BinaryIO | None) -> subprocess.Popen[bytes]:
    return subprocess.Popen(command(half, arguments), stdout=output, stderr=output and subprocess.STDOUT)


def main(arguments: Sequence[str]) -> int:
    started = time.monotonic()
    with tempfile.TemporaryFile() as later:
        running = [run(half, arguments, output) for half, output in zip(HALVES, (None, later), strict=True)]
        seconds: dict[int, float] = {}
        try:
            while len(seconds) < len(running):
                for number, child in enumerate(running):
                    if number not in seconds and child.poll() is not None:
                        seconds[number] = time.monotonic() - started
                time.sleep(0.2)
        except KeyboardInterrupt:  # the children have got the signal too and print what they know
            for child in running:
                child.wait()
        later.seek(0)
        sys.stdout.flush()
        for line in later:
            sys.stdout.buffer.write(line)
    for number, (half, child) in enumerate(zip(HALVES, running, strict=True)):
        spent = f" after {seconds[number]:.0f} s" if number in seconds else ""
        print(f"tests {half.name}: exit code {child.returncode}{spent}")
    return exit_code([child.returncode for child in running])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
