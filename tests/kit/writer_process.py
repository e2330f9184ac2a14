"""A writer, or a compactor, in a process of its own: `python -m tests.kit.writer_process WAREHOUSE TABLE USER …`.

    write USER FIRST_KEY COMMITS ROWS     commits rows FIRST_KEY … with v = USER; each commit repeats half of the last
compact USER ROUNDS                   full compactions, one after the other
"""

from __future__ import annotations

import sys

import pyarrow as pa

from freshet import Catalog, Table


def write(table: Table, user: str, first_key: int, commits: int, rows: int) -> None:
    """Keys [first_key, first_key + rows * (commits + 1) / 2), each with the number of its last commit as `n`."""
    with table.writer(user, parallelism=1) as writer:
        for number in range(commits):
            start = first_key + number * rows // 2
            keys = range(start, start + rows)
            writer.write(pa.table({"k": list(keys), "v": [user] * rows, "n": pa.array([number] * rows, pa.int32())}))
            writer.commit(number)


def expected(user: str, first_key: int, commits: int, rows: int) -> dict[int, tuple[str, int]]:
    """What `write` leaves in the table."""
    result = {}
    for number in range(commits):
        start = first_key + number * rows // 2
        result |= dict.fromkeys(range(start, start + rows), (user, number))
    return result


def main() -> None:
    """Runs one of the two."""
    what, warehouse, name, user, *numbers = sys.argv[1:]
    table = Catalog(warehouse).table(name)
    if what == "write":
        write(table, user, *(int(number) for number in numbers))
    else:
        for _ in range(int(numbers[0])):
            table.compact(full=True)


if __name__ == "__main__":
    main()
