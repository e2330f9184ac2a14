"""One process of a race for names in an object store: its threads create the same keys as those of the others.

    python -m tests.soak.store_racer ROOT OPTIONS THREADS FIRST ROUNDS

It says "ready" before a block of rounds and waits for a line; then each thread creates each key once. It prints the
outcomes of the block as JSON: of each round, how many of its threads got which.
"""

from __future__ import annotations

import json
import sys
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

from freshet.storage.io.object_file_io import ObjectFileIO


def race(io: ObjectFileIO, root: str, threads: int, numbers: range) -> dict[str, dict[str, int]]:
    """The outcomes of each round, by its number."""
    start = threading.Barrier(threads)

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
    print("ready", flush=True)
    sys.stdin.readline()
    print(json.dumps(race(io, root, int(threads), range(int(first), int(first) + int(rounds)))), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
