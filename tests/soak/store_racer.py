"""One process of a race for names in an object store: its threads create the same keys as those of the others.

    python -m tests.soak.store_racer ROOT OPTIONS THREADS FIRST ROUNDS

It says "ready" before each round and waits for a line; then each of its threads creates the key of the round. At last
it prints the outcomes as JSON: of each round, how many of its threads got which.
"""

from __future__ import annotations

import json
import sys
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from freshet.storage.io.object_file_io import ObjectFileIO


def race(
    io: ObjectFileIO, root: str, threads: int, numbers: range, meet: Callable[[], None] | None = None
) -> dict[str, dict[str, int]]:
    """The outcomes of each round, by its number; ``meet`` is called before a round, when all threads are there."""
    start = threading.Barrier(threads, action=meet)

    def run(writer: int) -> list[str]:
        outcomes = []
        for number in numbers:
            start.wait()
            outcomes.append(io.create_exclusive(f"{root}/race/snapshot-{number}", b"%d" % writer).name)
        return outcomes

    with ThreadPoolExecutor(threads) as executor:
        rounds = zip(*executor.map(run, range(threads)), strict=True)
        return {str(number): dict(Counter(found)) for number, found in zip(numbers, rounds, strict=True)}


def main(root: str, options: str, threads: str, first: str, rounds: str) -> None:
    io = ObjectFileIO(json.loads(options))
    io.exists(f"{root}/race")  # connects
    numbers = range(int(first), int(first) + int(rounds))
    print(json.dumps(race(io, root, int(threads), numbers, meet=_wait_for_the_others)), flush=True)


def _wait_for_the_others() -> None:
    print("ready", flush=True)
    sys.stdin.readline()


if __name__ == "__main__":
    main(*sys.argv[1:])
