"""Consumers on a disk in memory: positions, half-written files, ids, age."""

from __future__ import annotations

import pytest

from freshet.storage.exceptions import CorruptDataError, InvalidRequestError
from freshet.storage.metadata.consumer_store import ConsumerStore
from freshet.storage.paths import TablePaths
from tests.kit.sim_env import SimDisk, SimEnv

PATHS = TablePaths("/w/db.db/t")


@pytest.fixture
def env() -> SimEnv:
    return SimDisk().boot()


def test_positions(env: SimEnv) -> None:
    store = ConsumerStore(env, PATHS)
    assert store.positions() == {}
    assert store.min_next() is None
    assert store.position("a") is None
    store.reset("a", 7)
    env.file_io.overwrite(PATHS.consumer("b"), b'{\n  "nextSnapshot" : 4\n}')
    assert store.positions() == {"a": 7, "b": 4}
    assert store.min_next() == 4
    assert env.file_io.read_bytes(PATHS.consumer("a")) == b'{"nextSnapshot":7}'
    store.reset("a", 9)
    assert store.position("a") == 9
    assert store.delete("b")
    assert not store.delete("b")
    assert store.positions() == {"a": 9}


def test_a_file_that_cannot_be_read_is_named(env: SimEnv) -> None:
    env.file_io.overwrite(PATHS.consumer("a"), b"{}")
    with pytest.raises(CorruptDataError, match="consumer-a"):
        ConsumerStore(env, PATHS).positions()


def test_a_file_that_is_being_written_is_read_again(env: SimEnv, monkeypatch: pytest.MonkeyPatch) -> None:
    env.file_io.overwrite(PATHS.consumer("a"), b'{"next')
    monkeypatch.setattr(env, "sleep_s", lambda _: env.file_io.overwrite(PATHS.consumer("a"), b'{"nextSnapshot":3}'))
    assert ConsumerStore(env, PATHS).position("a") == 3


@pytest.mark.parametrize("consumer_id", ["", " ", "a/b", "../x", "a\0", "a\nb", "a\x1b[2J", "x" * 201, "é" * 101, 7])
def test_ids_that_are_no_file_names(env: SimEnv, consumer_id: str) -> None:
    with pytest.raises(InvalidRequestError, match="consumer id"):
        ConsumerStore(env, PATHS).reset(consumer_id, 1)


@pytest.mark.parametrize("consumer_id", ["a b", "..", "a:b", "日本", "a\\b", "x" * 200])
def test_ids_that_are_file_names(env: SimEnv, consumer_id: str) -> None:
    store = ConsumerStore(env, PATHS)
    store.reset(consumer_id, 2)
    assert store.positions() == {consumer_id: 2}


@pytest.mark.parametrize("position", [0, -1, 1.5, "3", True])
def test_positions_that_are_no_snapshots(env: SimEnv, position: int) -> None:
    with pytest.raises(InvalidRequestError, match="next snapshot"):
        ConsumerStore(env, PATHS).reset("a", position)


def test_readers_that_are_gone_expire(env: SimEnv) -> None:
    store = ConsumerStore(env, PATHS)
    store.reset("old", 1)
    env.sleep_s(100)
    store.reset("new", 2)
    assert store.expire(50_000) == ["old"]
    assert store.positions() == {"new": 2}
