"""Files that processes share: complete or not there, readable while they are mapped."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from freshet.storage.exceptions import InvalidRequestError, StorageError
from freshet.storage.io.local_cache import LEFT_OVER_MS, CachedFile, LocalCache


def _write(cache: LocalCache, name: str, content: bytes) -> None:
    with cache.writing(name) as sink:
        sink.write(content)


def test_a_file_is_there_when_it_is_complete(tmp_path: Path) -> None:
    cache = LocalCache(str(tmp_path / "root"), "unused")
    assert cache.map("a/one") is None
    with cache.writing("a/one") as sink:
        sink.write(b"content")
        assert cache.map("a/one") is None
        assert cache.files(0) == []
    found = cache.map("a/one")
    assert found is not None
    assert found.to_pybytes() == b"content"
    _write(cache, "a/empty", b"")
    empty = cache.map("a/empty")
    assert empty is not None
    assert empty.size == 0


def test_nothing_stays_of_a_file_whose_writing_failed(tmp_path: Path) -> None:
    cache = LocalCache(str(tmp_path), "unused")

    def fail_halfway() -> None:
        with cache.writing("a/one") as sink:
            sink.write(b"half")
            raise ValueError("enough")

    with pytest.raises(ValueError, match="enough"):
        fail_halfway()
    assert list((tmp_path / "a").iterdir()) == []


def test_a_mapped_file_outlives_its_removal_and_its_replacement(tmp_path: Path) -> None:
    cache = LocalCache(str(tmp_path), "unused")
    _write(cache, "a/one", b"first")
    first = cache.map("a/one")
    _write(cache, "a/one", b"second")
    second = cache.map("a/one")
    cache.remove("a/one")
    cache.remove("a/one")
    assert first is not None
    assert second is not None
    assert (first.to_pybytes(), second.to_pybytes()) == (b"first", b"second")
    assert not (tmp_path / "a").exists()  # the folder went with its last file


def test_files_and_when_they_were_used(tmp_path: Path) -> None:
    cache = LocalCache(str(tmp_path), "unused")
    _write(cache, "a/b/one", b"123")
    _write(cache, "a/two", b"1")
    assert cache.note_use("a/b/one", 5000)
    assert cache.note_use("a/two", 7000)
    assert not cache.note_use("a/three", 7000)
    assert sorted(cache.files(8000), key=lambda file: file.used_ms) == [
        CachedFile("a/b/one", 3, 5000),
        CachedFile("a/two", 1, 7000),
    ]
    assert cache.files(8000, "a/b") == [CachedFile("a/b/one", 3, 5000)]
    assert cache.free_bytes() > 0


def test_unfinished_files_are_removed_when_they_are_old(tmp_path: Path) -> None:
    cache = LocalCache(str(tmp_path), "unused")
    left = tmp_path / ".one.abc"
    left.write_bytes(b"half")
    os.utime(left, ns=(0, 5_000_000_000))
    assert cache.files(5000 + LEFT_OVER_MS) == []
    assert left.exists()
    assert cache.files(5001 + LEFT_OVER_MS) == []
    assert not left.exists()


def test_a_root_that_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "root").write_bytes(b"")
    cache = LocalCache(str(tmp_path / "root"), "unused")
    with pytest.raises(StorageError, match="root"):
        _write(cache, "one", b"")
    with pytest.raises(StorageError, match="root"):
        cache.map("one")
    with pytest.raises(StorageError, match="root"):
        cache.free_bytes()


def test_a_default_root_belongs_to_the_user(tmp_path: Path) -> None:
    cache = LocalCache(None, "stores", str(tmp_path))
    _write(cache, "one", b"")
    root = tmp_path / f"stores-{os.geteuid()}"
    assert root.stat().st_mode & 0o777 == 0o700
    (tmp_path / "elsewhere").mkdir()
    (root / "one").unlink()
    root.rmdir()
    root.symlink_to(tmp_path / "elsewhere")
    for use in (lambda: cache.map("one"), lambda: _write(cache, "one", b"")):
        with pytest.raises(InvalidRequestError, match="link"):
            use()
