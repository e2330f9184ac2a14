"""How much `make soak` runs: the counts that issues name, the share of them for this run, and its seed.

    SCHEDULES = Count(10_000, "schedules of readers")
    for number in range(SCHEDULES.now()):                   all, or FRESHET_SOAK_SHARE of them, at least one
        chance = chance_of("readers", number)               the same for the same FRESHET_SOAK_SEED

The seed is new for each run of pytest, which prints it and hands it to the processes that tests start. Tests have the
marker `soak` wherever they lie; only `-m soak` or naming a path below `tests/soak` runs them.
"""

from __future__ import annotations

import os
import random
from dataclasses import dataclass

SHARE = "FRESHET_SOAK_SHARE"
SEED = "FRESHET_SOAK_SEED"
SEED_BITS = 32


@dataclass(frozen=True)
class Count:
    """A number of things to try, or of seconds."""

    full: int
    what: str

    def now(self) -> int:
        """Of this run: its share, and never nothing."""
        return max(1, round(self.full * share()))


TWO_WRITERS_SECONDS = Count(10, "seconds that two writers work on one table, for each kind of table")
TWO_WRITERS_KILLED = Count(46, "kinds of tables on which writers are killed while a third process compacts")
READERS = Count(5_000, "random schedules of a log's writers and readers, of each kind")
SPLIT_READERS = Count(1_000, "the same with readers that have the buckets divided between them, of each kind")
PUBLISHERS = Count(60, "random schedules of drivers that publish a changelog and die, 12 commits each")
KILLED_COMMITTERS = Count(12, "rounds in which two committers and a compactor are killed")
KILLED_STREAMS = Count(10, "rounds in which a stream with background compaction is killed, for each producer")
KILLED_RUNS = Count(16, "rounds in which freshet run is killed, for tables on a local disk and in a store")
KILLED_SYNCS = Count(
    16, "rounds in which freshet run of twenty tables is killed while their columns change and tables appear"
)
KILLED_DATABASES = Count(20, "times that freshet run of a database is killed, its copy among it, on a disk and in S3")
KILLED_WORKERS = Count(
    1000, "batches of a run before its workers are killed, ten times, with a log, on a disk and in S3"
)
LONG_RUN = Count(3600, "seconds of a run without Spark at 2,000 records a second, in which snapshots live for a fifth")
FIRST_BATCHES = Count(240, "first batches of streams that are planned again: readers, modes, limits and triggers")
KILLED_WRITERS = Count(4, "rounds in which writers, a compactor and a rescale are killed, for each kind of table")
JDBC_COMMITS = Count(200, "commits each, of a JVM and of us, through the lock of a JDBC catalog")
STORE_RACES = Count(500, "ids in an object store that 64 writers race for, threads and processes")
VERB_SEQUENCES = Count(50, "sequences of 30 verbs by both sides, for each of ten kinds of tables")
VERB_PAIRS = Count(1_100, "pairs of verbs, of which one is done while the other one is under way")
VERB_FAULTS = Count(
    200, "verbs with every named point, every change of the disk, or a disk that is full at any of them"
)
ODD_RECORDS = Count(100_000, "records with values that are hard to convert, in each format, for columns of all types")
CUT_HISTORIES = Count(10_000, "histories of any engine and function, cut into commits and compacted by chance")
ODD_NAMES = Count(173, "odd names in each of 36 kinds of calls")
ODD_COMMANDS = Count(45, "commands called as processes with odd names")
LARGE_RECORDS = Count(14_000, "records of 100 KB, hard to compress and easy")
VERY_LARGE_RECORDS = Count(300, "records of 5 MB, hard to compress and easy")


def share(variable: str = SHARE) -> float:
    """Of all counts, above 0 and at most 1; everything unless that variable of the environment says less."""
    text = os.environ.get(variable, "1")
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value <= 1:
        raise ValueError(f"{variable} is {text!r}: give a number above 0 and at most 1")
    return value


def new_seed() -> int:
    return random.SystemRandom().getrandbits(SEED_BITS)


def seed() -> int:
    """Of this run: that of the environment, where pytest's start puts a new one."""
    text = os.environ.get(SEED, "")
    if not text.isdecimal():
        raise ValueError(f"{SEED} is {text!r}: give a whole number")
    return int(text)


def chance_of(*names: object) -> random.Random:
    """Randomness of one case, which depends on the seed of the run and on the names only."""
    return random.Random("/".join(map(str, (seed(), *names))))


def seeds_of(count: Count, *names: object) -> range:
    """A seed for each of this run's; they follow each other, so that one alone is named by its number."""
    start = chance_of(*names).getrandbits(SEED_BITS)
    return range(start, start + count.now())


def remark() -> str:
    """What to know of this run in order to repeat it."""
    return f"soak: {SEED}={seed()} {SHARE}={share():g}"
