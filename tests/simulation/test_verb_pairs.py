"""Two verbs at once: one has begun, another one is done whole in between, the first goes on. What is there then is what
one of the two orders gives; where a verb was refused, what the other one gives alone.

The first is interrupted before its first change of the disk, and before its first snapshot. In `test_two_processes`
both are processes.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest

from freshet import Catalog
from freshet.storage.exceptions import CorruptDataError, StorageError
from tests.kit.sim_env import SimDisk, SimEnv
from tests.simulation.test_verb_faults import VERBS, Seen, catalog_of, made, seen
from tests.soak.counts import VERB_PAIRS, chance_of

FIRST: Final = 0
KINDS: Final = {"keyed": True, "append": False}


NOT_TOGETHER: Final = {
    ("replace a tag", "rename a tag"),
    ("replace a tag", "delete a tag"),
    ("rename a tag", "rename the table"),
    ("replace a tag", "expire tags"),
    ("expire tags", "rename a tag"),
    ("expire tags", "rename the table"),
}
"""Files have no "replace if it is there still": a tag that goes is there again, under its old name as well. An expiry
removes the tags that it has found, one by one: what gets another name meanwhile, or is in another folder, stays until
the next one."""


def verbs_of(kind: str) -> list[str]:
    """Without the rollback that removes snapshots: nobody may have the table open then."""
    return [name for name, verb in VERBS.items() if (KINDS[kind] or not verb.keyed_only) and name != "cut"]


PAIRS: Final = [
    (kind, one, other)
    for kind in KINDS
    for one in verbs_of(kind)
    for other in verbs_of(kind)
    if (one, other) not in NOT_TOGETHER
]


@cache
def in_turn(kind: str, *names: str) -> Seen:
    """What is there after these verbs, one after the other; one that is refused does nothing."""
    disk = made(kind).copy()
    for name in names:
        done(disk.boot(), name)
    return seen(disk)


@cache
def changes_of(kind: str, name: str) -> tuple[str, ...]:
    """The changes of the disk that a verb makes alone."""
    env = made(kind).copy().boot()
    done(env, name)
    return tuple(env.file_io.journal)


def done(env: SimEnv, name: str) -> StorageError | None:
    """Does a verb; the error where it was refused: no damage, but for a table that is being dropped."""
    try:
        VERBS[name].act(catalog_of(env))
        env.finish_later()
    except StorageError as error:
        if isinstance(error, CorruptDataError) and "drop" not in str(error):
            raise
        return error
    return None


def tables_of(found: Seen, names: tuple[str, str]) -> Seen:
    """What is compared: where a table goes while the other verb writes, files of that one may bring its folder back."""
    if any("drop the" in name or "rename the" in name for name in names):
        return {name: rows for name, rows in found.items() if name != "databases"}
    return found


def interrupted(env: SimEnv, at: int, work: Callable[[], object]) -> None:
    """Lets something else happen before a change of the disk."""
    waiting = [work]
    file_io = env.file_io

    def hooked(call: Callable[..., Any]) -> Callable[..., Any]:
        def before(*arguments: Any, **named: Any) -> Any:
            if file_io.mutation_count == at and waiting:
                waiting.pop()()
            return call(*arguments, **named)

        return before

    # Not where the disk is locked: the other program needs it.
    for name in ("open_output", "create_exclusive", "overwrite", "copy_all", "delete", "delete_all", "delete_prefix"):
        setattr(file_io, name, hooked(getattr(file_io, name)))
    file_io.folders.rename = hooked(file_io.folders.rename)  # type: ignore[method-assign]


@pytest.mark.few(3)
@pytest.mark.parametrize(("kind", "one", "other"), PAIRS[::97])
def test_two_verbs_at_once(kind: str, one: str, other: str) -> None:
    check(kind, one, other)


@pytest.mark.parametrize(
    ("kind", "one", "other"),
    [("append", "rename a tag", "expire tags"), ("keyed", "drop the table", "write on a branch")],
)
def test_pairs_that_have_failed(kind: str, one: str, other: str) -> None:
    check(kind, one, other)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "one", "other"), PAIRS[7::41])
def test_more_pairs(kind: str, one: str, other: str) -> None:
    check(kind, one, other)


@pytest.mark.soak
def test_pairs_at_random() -> None:
    for pair in chance_of("verb pairs").sample(PAIRS, min(VERB_PAIRS.now(), len(PAIRS))):
        check(*pair)


def check(kind: str, one: str, other: str) -> None:
    """Does both, the other one at two places within the one."""
    changes = changes_of(kind, one)
    if not changes:
        pytest.fail(f"{one} changes nothing")
    claims = [number for number, change in enumerate(changes) if "/snapshot/snapshot-" in change]
    for at in sorted({FIRST, claims[0] if claims else len(changes) - 1}):
        disk = made(kind).copy()
        first, second = disk.boot(), disk.boot()
        refused: dict[str, StorageError | None] = {}

        def meanwhile(second: SimEnv = second, refused: dict[str, StorageError | None] = refused) -> None:
            refused["other"] = done(second, other)

        interrupted(first, at, meanwhile)
        refused["one"] = done(first, one)
        found = tables_of(seen(disk), (one, other))
        allowed = [in_turn(kind, one, other), in_turn(kind, other, one)]
        if refused["one"] is not None:
            allowed = [in_turn(kind, other)]
        if refused["other"] is not None:
            allowed = [in_turn(kind, one)]
        allowed = [tables_of(each, (one, other)) for each in allowed]
        assert found in allowed, (
            f"{kind}: before change {at} of {one} came {other}; refused: {refused}\n{found}\n{allowed}"
        )


# ------------------------------------------------------------------------------------------------------- two processes


def _many(table: Any, number: int) -> object:
    return table.append([{"id": 1000 + number, "n": number}])


TOGETHER: Final[dict[str, Callable[[Any, int], object]]] = {
    "append": _many,
    "delete": lambda table, number: table.delete(f"id = {number}"),
    "update": lambda table, number: table.update({"n": 7}, f"id = {100 + number}"),
    "tag": lambda table, number: table.tags.create(f"t{number}"),
    "rollback": lambda table, number: table.rollback(1),
    "compact": lambda table, number: table.compact(full=True),
    "expire": lambda table, number: table.expire_snapshots(retain_max=3, retain_min=2, older_than_ms=0),
}
ROUNDS: Final = 8


def _work(warehouse: str, name: str, start: Any, failures: Any) -> None:
    start.wait()
    for number in range(ROUNDS):
        try:
            TOGETHER[name](Catalog(warehouse).table("db.t"), number)
        except StorageError as error:
            failures.put((type(error).__name__, str(error)))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("names", "options"),
    [
        (("append", "delete"), {"bucket": "1"}),
        (("update", "delete"), {"bucket": "-1"}),
        (("tag", "expire"), {"bucket": "1"}),
        (("delete", "compact"), {"bucket": "1", "deletion-vectors.enabled": "true"}),
    ],
    ids=str,
)
def test_two_processes(tmp_path: Path, names: tuple[str, str], options: dict[str, str]) -> None:
    """Each does its verb again and again; neither undoes what the other one does."""
    keys = ["id"] if options["bucket"] == "1" else []
    table = Catalog(str(tmp_path)).create_table(
        "db.t", schema={"id": "INT NOT NULL", "n": "INT"}, primary_keys=keys, options=options
    )
    table.append([{"id": number, "n": 0} for number in range(200)])
    context = multiprocessing.get_context("spawn")
    start, failures = context.Barrier(2), context.Queue()
    workers = [context.Process(target=_work, args=(str(tmp_path), name, start, failures)) for name in names]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(600)
        assert worker.exitcode == 0
    found = []
    while not failures.empty():
        found.append(failures.get())
    assert not found, found
    table = Catalog(str(tmp_path)).table("db.t")
    rows = {row["id"]: row["n"] for row in table.scan().to_arrow().to_pylist()}
    expected = dict.fromkeys(range(200), 0)
    if "delete" in names:
        expected = {number: n for number, n in expected.items() if number >= ROUNDS}
    if "append" in names:
        expected |= {1000 + number: number for number in range(ROUNDS)}
    if "update" in names:
        expected |= {100 + number: 7 for number in range(ROUNDS)}
    assert rows == expected
    if "tag" in names:
        assert len(table.tags.list()) == ROUNDS
    assert not table.check(all_snapshots=True).damage


def test_the_disk_of_both_is_one() -> None:
    disk = made("keyed").copy()
    assert isinstance(disk, SimDisk)
    assert in_turn("keyed", "truncate", "append") != in_turn("keyed", "append", "truncate")
