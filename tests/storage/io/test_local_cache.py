"""Files that processes share: complete or not there, readable while they are mapped."""

from __future__ import annotations

import os
import re
import tempfile
from pathlib import Path

import pytest

from freshet.storage.exceptions import InvalidRequestError, StorageError
from freshet.storage.io.local_cache import LEFT_OVER_MS, MARK, CachedFile, CacheFolder, LocalCache

FOLDER = CacheFolder("stores", re.compile(r"([ab]/)*(one|two|three|empty)"))


def _cache(parent: Path) -> tuple[LocalCache, Path]:
    """A cache, and its root."""
    cache = LocalCache(str(parent), FOLDER)
    assert cache.root == str(parent / f"stores-{os.geteuid()}")
    return cache, Path(cache.root)


def _write(cache: LocalCache, name: str, content: bytes) -> None:
    with cache.writing(name) as sink:
        sink.write(content)


def test_a_file_is_there_when_it_is_complete(tmp_path: Path) -> None:
    cache, _ = _cache(tmp_path / "parent")
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
    cache, root = _cache(tmp_path)

    def fail_halfway() -> None:
        with cache.writing("a/one") as sink:
            sink.write(b"half")
            raise ValueError("enough")

    with pytest.raises(ValueError, match="enough"):
        fail_halfway()
    assert list((root / "a").iterdir()) == []


def test_a_mapped_file_outlives_its_removal_and_its_replacement(tmp_path: Path) -> None:
    cache, root = _cache(tmp_path)
    _write(cache, "a/one", b"first")
    first = cache.map("a/one")
    _write(cache, "a/one", b"second")
    second = cache.map("a/one")
    cache.remove("a/one")
    cache.remove("a/one")
    assert first is not None
    assert second is not None
    assert (first.to_pybytes(), second.to_pybytes()) == (b"first", b"second")
    assert not (root / "a").exists()  # the folder went with its last file


def test_files_and_when_they_were_used(tmp_path: Path) -> None:
    cache, _ = _cache(tmp_path)
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
    cache, root = _cache(tmp_path)
    _write(cache, "one", b"")
    cache.remove("one")
    left = root / f".one.{'0a' * 16}"
    left.write_bytes(b"half")
    os.utime(left, ns=(0, 5_000_000_000))
    assert cache.files(5000 + LEFT_OVER_MS) == []
    assert left.exists()
    assert cache.files(5001 + LEFT_OVER_MS) == []
    assert not left.exists()


@pytest.mark.parametrize("parent", ["cache", "./cache", "other/../cache", "cache/", ""])
def test_a_parent_that_is_spelled_in_another_way(parent: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    cache = LocalCache(parent, FOLDER)
    with cache.locked("a/one") as is_ours:
        assert is_ours
        _write(cache, "a/one", b"")
    assert [file.name for file in cache.files(0)] == ["a/one"]
    assert Path(cache.root).parent == tmp_path / Path(parent).name


def test_a_root_that_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "root").write_bytes(b"")
    cache, _ = _cache(tmp_path / "root")
    with pytest.raises(StorageError, match="root"):
        _write(cache, "one", b"")
    with pytest.raises(StorageError, match="root"):
        cache.map("one")
    with pytest.raises(StorageError, match="root"):
        cache.free_bytes()


def test_a_root_belongs_to_the_user(tmp_path: Path) -> None:
    cache, root = _cache(tmp_path)
    _write(cache, "one", b"")
    assert root.stat().st_mode & 0o777 == 0o700
    root.rename(tmp_path / "elsewhere")
    root.symlink_to(tmp_path / "elsewhere")
    for use in (lambda: cache.map("one"), lambda: _write(cache, "one", b"")):
        with pytest.raises(InvalidRequestError, match="link"):
            use()


def test_nothing_but_what_bears_a_name_of_ours_is_listed_or_removed(tmp_path: Path) -> None:
    """Old files of others among ours, their dot files, theirs behind links, and names that lead elsewhere."""
    cache, root = _cache(tmp_path)
    _write(cache, "a/one", b"")
    (tmp_path / "elsewhere").mkdir()
    others = [root / "a" / "two.txt", root / ".bashrc", root / f".{'0' * 32}", tmp_path / "elsewhere" / "one"]
    for path in others:
        path.write_bytes(b"theirs")
        os.utime(path, ns=(0, 0))
    (root / "b").symlink_to(tmp_path / "elsewhere")
    assert [file.name for file in cache.files(10 * LEFT_OVER_MS)] == ["a/one"]
    for name in ("a/two.txt", "../elsewhere/one", ".bashrc", str(others[-1]), "a/../one"):
        for use in (cache.map, cache.folder, cache.new_file, cache.new_folder, cache.kept_folder, cache.remove):
            with pytest.raises(InvalidRequestError, match="no name of a file"):
                use(name)
    with pytest.raises(InvalidRequestError, match="no name of a file"), cache.locked("../elsewhere/.one"):
        pass
    assert all(path.read_bytes() == b"theirs" for path in others)


@pytest.mark.parametrize(
    ("theirs", "is_ours"),
    [
        pytest.param((), True, id="empty"),
        pytest.param(("a/one", "b/a/two", f".one.{'0a' * 16}", "a/.one.lock"), True, id="of a head before"),
        pytest.param(("a/one", "notes.txt"), False, id="with a file of others"),
        pytest.param((".bashrc",), False, id="with a dot file of others"),
    ],
)
def test_a_folder_without_the_mark(theirs: tuple[str, ...], is_ours: bool, tmp_path: Path) -> None:
    """It gets the mark where all in it bears names of ours; else nothing is put there, and nothing removed."""
    cache, root = _cache(tmp_path)
    root.mkdir()
    for name in theirs:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(b"before")
        os.utime(root / name, ns=(0, 0))
    assert cache.files(10 * LEFT_OVER_MS) == []
    cache.remove("a/one")
    assert all((root / name).read_bytes() == b"before" for name in theirs)
    if is_ours:
        _write(cache, "three", b"")
        assert (root / MARK).is_file()
        assert len(cache.files(10 * LEFT_OVER_MS)) == 1 + sum("." not in name for name in theirs)
        return
    for use in (lambda: _write(cache, "three", b""), cache.free_bytes, lambda: cache.kept_folder("three")):
        with pytest.raises(InvalidRequestError, match=f"has no {MARK}"):
            use()
    assert not (root / MARK).exists()
