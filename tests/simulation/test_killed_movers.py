"""Writers of a table whose rows move between partitions, killed by SIGKILL at any time.

Every commit that is there counts once, and the index of keys that is found agrees with the rows.

`python -m tests.simulation.test_killed_movers FOLDER FIRST` writes commits from number FIRST on, until it is killed.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from freshet.storage.place_index.index_database import KeyShare
from tests.storage.write.test_moving_rows import ENGINES, Oracle, Row, create, found, given_rows, indexed, opened

SEED = int(os.environ.get("FRESHET_SEED", "20261124"))
KILLS = 6


def batch(number: int) -> list[Row]:
    """The rows of a commit."""
    chance = random.Random(f"{SEED} {number}")
    return [(chance.randrange(60), chance.choice("abcd"), chance.randrange(100), "+I") for _ in range(20)]


def write_on(path: Path, first: int) -> None:
    """Commits one batch after the other, and says so each time."""
    with opened(path).writer("mover") as writer:
        number = first
        while True:
            writer.write(given_rows(batch(number)))
            writer.commit(number)
            print(number, flush=True)
            number += 1


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["deduplicate", "aggregation"])
def test_killed_writers(engine: str, tmp_path: Path) -> None:
    print(f"FRESHET_SEED={SEED}")
    create(tmp_path, **ENGINES[engine])
    chance, oracle, following = random.Random(SEED), Oracle(engine), 0
    for _ in range(KILLS):
        command = [sys.executable, "-m", "tests.simulation.test_killed_movers", str(tmp_path), str(following)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
            assert child.stdout is not None
            for number in range(following, following + chance.randint(1, 3)):
                assert child.stdout.readline() == f"{number}\n"
            time.sleep(chance.random() / 4)
            child.kill()
        table = opened(tmp_path)
        newest = max(each.commit_identifier for each in table.snapshots() if each.commit_user == "mover")
        for number in range(following, newest + 1):
            oracle.take(batch(number))
        following = newest + 1
        assert found(table) == oracle.rows
        keys = indexed(table, KeyShare(), tmp_path)
        assert len(keys) == len(oracle.rows)
        assert len(list((tmp_path / "index").rglob("*.rocks"))) == 1, "the lock of a killed writer is free"
    assert not table.check().damage
    assert following > KILLS, "some have made more than one commit"


if __name__ == "__main__":
    write_on(Path(sys.argv[1]), int(sys.argv[2]))
