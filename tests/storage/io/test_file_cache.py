"""Files of a store kept on a local disk: found by all processes, bounded, checked, and never needed."""

from __future__ import annotations

import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.io import file_cache
from freshet.storage.io.env import EnvSettings, open_env
from freshet.storage.io.file_cache import (
    LOOKS,
    NOTE_MS,
    RETRY_MS,
    UNUSED_MS,
    CacheKind,
    CacheSettings,
    FileCache,
    cache_settings,
)
from freshet.storage.io.local_cache import LocalCache
from tests.kit.cache_roots import files_of_cache
from tests.kit.request_log import RequestLog, StoreEnv

META, DATA = CacheKind.META, CacheKind.DATA


class Clock:
    """A wall clock that is set by hand."""

    def __init__(self) -> None:
        self.ms = 1_800_000_000_000

    def __call__(self) -> int:
        return self.ms


@pytest.fixture
def clock() -> Clock:
    return Clock()


def cache_at(folder: Path, clock: Clock, max_bytes: int = 1 << 20, store: str = "s") -> FileCache:
    """As another process opens it."""
    files = LocalCache(str(folder), file_cache.FOLDER)
    return FileCache(files, CacheSettings(max_bytes=max_bytes), store, clock)


def found(cache: FileCache, key: str) -> bytes | None:
    data = cache.get(META, key)
    return None if data is None else data.to_pybytes()


def files_below(folder: Path) -> list[Path]:
    return files_of_cache(folder)


def test_what_one_process_keeps_another_finds(tmp_path: Path, clock: Clock) -> None:
    cache_at(tmp_path, clock).put(META, "a", b"content")
    cache_at(tmp_path, clock).put(META, "empty", b"")
    again = cache_at(tmp_path, clock)
    assert (found(again, "a"), found(again, "empty"), found(again, "b")) == (b"content", b"", None)
    assert found(cache_at(tmp_path, clock, store="another"), "a") is None
    again.drop(META, "a")
    again.drop(META, "a")
    assert found(again, "a") is None


def test_kinds_that_are_not_wanted_are_not_kept(tmp_path: Path, clock: Clock) -> None:
    cache = cache_at(tmp_path, clock)
    cache.put(DATA, "a", b"content")
    assert (cache.get(DATA, "a"), cache.keeps(DATA), files_below(tmp_path)) == (None, False, [])


@pytest.mark.parametrize("damage", ["cut", "longer", "flipped", "empty", "another's"])
def test_a_damaged_file_is_thrown_away(tmp_path: Path, clock: Clock, damage: str) -> None:
    cache = cache_at(tmp_path, clock)
    cache.put(META, "b", b"other")
    (other,) = files_below(tmp_path)
    cache.put(META, "a", b"content")
    (path,) = set(files_below(tmp_path)) - {other}
    content = path.read_bytes()
    damaged = {
        "cut": content[:-3],
        "longer": content + b"x",
        "flipped": bytes([content[0] ^ 1]) + content[1:],
        "empty": b"",
        "another's": other.read_bytes(),
    }
    path.write_bytes(damaged[damage])
    assert found(cache, "a") is None
    assert files_below(tmp_path) == [other]
    cache.put(META, "a", b"content")
    assert found(cache, "a") == b"content"


def test_what_was_used_longest_ago_goes_first(tmp_path: Path, clock: Clock) -> None:
    cache = cache_at(tmp_path, clock, max_bytes=LOOKS * 1000)
    for number in range(40):
        clock.ms += NOTE_MS + 1
        cache.put(META, str(number), b"x" * 900)
        assert found(cache, "0") is not None, f"used a moment ago, and gone after {number}"
        assert sum(path.stat().st_size for path in files_below(tmp_path)) <= LOOKS * 1000
    assert found(cache, "39") is not None
    assert found(cache, "1") is None


def test_two_processes_stay_near_the_bound(tmp_path: Path, clock: Clock) -> None:
    both = [cache_at(tmp_path, clock, max_bytes=LOOKS * 1000) for _ in range(2)]
    for number in range(100):
        clock.ms += 1
        both[number % 2].put(META, str(number), b"x" * 300)
        assert sum(path.stat().st_size for path in files_below(tmp_path)) <= (LOOKS + 2) * 1000


def test_what_nobody_uses_goes_after_a_while_and_large_files_are_not_kept(tmp_path: Path, clock: Clock) -> None:
    cache_at(tmp_path, clock, 1 << 20).put(META, "old", b"x")
    clock.ms += UNUSED_MS + 1
    cache_at(tmp_path, clock, 1 << 20).put(META, "new", b"x")
    fresh = cache_at(tmp_path, clock, 1 << 20)
    assert (found(fresh, "old"), found(fresh, "new")) == (None, b"x")
    fresh.put(META, "large", bytes((1 << 20) // LOOKS + 1))
    assert found(fresh, "large") is None


def test_a_folder_that_cannot_be_written_is_one_warning(
    tmp_path: Path, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_bytes(b"")
    cache = cache_at(tmp_path / "file", clock)
    for number in range(3):
        cache.put(META, str(number), b"x")
        assert found(cache, str(number)) is None
    (warning,) = caplog.records
    assert "local-cache.dir" in warning.getMessage()
    clock.ms += RETRY_MS + 1
    cache.put(META, "again", b"x")
    assert len(caplog.records) == 2


def test_a_folder_of_another_user_is_refused(
    tmp_path: Path, clock: Clock, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache_at(tmp_path, clock).put(META, "a", b"x")
    user = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: user + 1)
    (tmp_path / f"freshet-cache-{user}").rename(tmp_path / f"freshet-cache-{user + 1}")  # prepared by the first user
    cache = cache_at(tmp_path, clock)
    assert found(cache, "a") is None
    cache.put(META, "b", b"x")
    assert len(files_below(tmp_path)) == 1
    assert "is another user's" in caplog.text


def test_threads_that_keep_and_find_at_once(tmp_path: Path, clock: Clock) -> None:
    caches = [cache_at(tmp_path, clock, max_bytes=LOOKS * 500) for _ in range(4)]

    def work(number: int) -> None:
        cache, key = caches[number % 4], str(number % 20)
        cache.put(META, key, key.encode() * 100)
        assert found(cache, key) in (None, key.encode() * 100)

    with ThreadPoolExecutor(8) as executor:
        list(executor.map(work, range(400)))


# --- options -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "is_on", "expected"),
    [
        ({}, True, CacheSettings()),
        ({}, False, None),
        ({"local-cache.enabled": "false"}, True, None),
        ({"local-cache.enabled": "true"}, False, CacheSettings()),
        ({"local-cache.max-size": "0"}, True, None),
        (
            {
                "local-cache.dir": "/fast",
                "local-cache.max-size": "2 gb",
                "local-cache.block-size": "64 kb",
                "local-cache.whitelist": "meta, global-index,data",
            },
            True,
            CacheSettings("/fast", 2 * 1024**3, 64 * 1024, frozenset({META, DATA, CacheKind.GLOBAL_INDEX})),
        ),
    ],
)
def test_options(options: Mapping[str, str], is_on: bool, expected: CacheSettings | None) -> None:
    assert cache_settings(options, is_on=is_on) == expected


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("local-cache.max_size", "1 gb"),
        ("local-cache.max-size", "much"),
        ("local-cache.enabled", "yes"),
        ("local-cache.whitelist", "meta,snapshots"),
    ],
)
def test_options_that_make_no_sense_are_refused(key: str, text: str) -> None:
    with pytest.raises(InvalidRequestError, match=f"option {key}") as caught:
        open_env("/w", EnvSettings.of({key: text}))
    assert caught.value.option == key


def test_the_cache_is_on_for_stores_and_off_for_disks(tmp_path: Path) -> None:
    assert open_env("/w").file_cache is None
    assert open_env("memory:/w").file_cache is None
    assert open_env("s3://bucket/w").file_cache is not None
    assert open_env("s3://bucket/w", EnvSettings.of({"local-cache.enabled": "false"})).file_cache is None
    on_disk = open_env("/w", EnvSettings.of({"local-cache.enabled": "true", "local-cache.dir": str(tmp_path)}))
    assert on_disk.file_cache is not None


# --- at work -------------------------------------------------------------------------------------------------------


def test_metadata_is_read_from_the_store_once(tmp_path: Path) -> None:
    log, path = RequestLog(), "memory:/w/manifest-1"
    log.overwrite(path, b"content")
    settings = CacheSettings(str(tmp_path))
    with log.noted() as requests:
        for _ in range(3):
            assert StoreEnv(log, settings).immutable_bytes(path) == b"content"
    assert [str(each) for each in requests] == [f"get {path}"]
    env = StoreEnv(log, settings)
    env.forget_immutable(path)
    assert env.immutable_bytes(path) == b"content"
    assert file_cache.FOLDER.name in str(files_below(tmp_path)[0])
