"""What a file source finds in its folders; what Spark 4.2.1 finds there is in test_files_as_spark.py."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from freshet.pipeline.exceptions import ConfigurationError
from freshet.pipeline.local.file_listing import FileListing, Where
from freshet.pipeline.query.wire.file_uris import place_of
from freshet.storage.io.env import store_env


def test_hidden_names_are_not_found(tmp_path: Path) -> None:
    seen = ["a", "_metadata", "_common_metadata.x", "_a=1", "b.crc", "x y"]
    _files(tmp_path, *seen, "_a", ".a", "._a=1", "a._COPYING_", "_h/x", ".h/x")
    assert _found(tmp_path) == sorted(seen)


def test_folders_below_are_read_if_asked_for(tmp_path: Path) -> None:
    _files(tmp_path, "a", "sub/b", "sub/deep/c", "_h/d", "_h=1/e")
    assert _found(tmp_path, below="sub") == ["sub/b"]
    assert _found(tmp_path, is_deep=True) == ["_h=1/e", "a", "sub/b", "sub/deep/c"]
    assert _found(tmp_path, is_deep=True, names="[ac]") == ["a", "sub/deep/c"]


def test_partitions_are_read(tmp_path: Path) -> None:
    _files(tmp_path, "a=1/b=2/x", "a=1/b=3/y", "A=2/b=4/sub/z", "_h/x")
    assert _found(tmp_path) == ["A=2/b=4/sub/z", "a=1/b=2/x", "a=1/b=3/y"]


@pytest.mark.parametrize(
    "names", [("a=1/x", "sub/y"), ("a=1/x", "b=1/y"), ("a=1/x", "a=1/b=1/y"), ("a=1/x", "s/a=2/y")]
)
def test_partitions_of_several_kinds_are_refused(tmp_path: Path, names: tuple[str, ...]) -> None:
    _files(tmp_path, *names)
    with pytest.raises(ConfigurationError, match="are not partitions of one kind"):
        _found(tmp_path)
    assert len(_found(tmp_path, is_deep=True)) == 2


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("a*", ["a1/n.txt", "a1/x.json", "a2/y.json"]),
        ("{a1,b}/*.json", ["a1/x.json", "b/z.json"]),
        ("[a-b]", ["b/z.json"]),
        ("*/?.json", ["_a/q.json", "a1/x.json", "a2/y.json", "b/z.json"]),
        ("{a1/x,b/z}.json", ["a1/x.json", "b/z.json"]),
        ("*1/x.json", ["a1/x.json"]),
        ("none*", []),
    ],
)
def test_patterns_are_followed(tmp_path: Path, pattern: str, found: list[str]) -> None:
    _files(tmp_path, "a1/x.json", "a2/y.json", "b/z.json", "a1/n.txt", "_a/q.json")
    assert _found(tmp_path, below=pattern) == found


def test_links_are_followed_and_those_to_nowhere_passed_over(tmp_path: Path) -> None:
    _files(tmp_path, "in/a", "other/b")
    os.symlink(tmp_path / "other" / "b", tmp_path / "in" / "l")
    os.symlink(tmp_path / "none", tmp_path / "in" / "dead")
    os.symlink(tmp_path / "in", tmp_path / "linked")
    assert _found(tmp_path, below="linked") == ["linked/a", "linked/l"]


def test_a_store_is_listed_as_a_disk_is() -> None:
    env = store_env("memory://listing", {})
    for name in ("a b.json", "_a", "day=1/b", "day=2/c"):
        env.file_io.create_exclusive(f"memory://listing/in/{name}", b"x")
    listing = FileListing(env, Where("memory://listing/{in,none}"))
    assert sorted(each.uri for each in listing.files()) == [
        "memory://listing/in/a%20b.json",
        "memory://listing/in/day=1/b",
        "memory://listing/in/day=2/c",
    ]
    assert listing.may_have_changed()


def test_a_folder_is_looked_at_by_its_time_alone_once_it_is_settled(tmp_path: Path) -> None:
    _files(tmp_path, "a=1/x")
    listing = FileListing(store_env(str(tmp_path), {}), Where(str(tmp_path)))
    listing.files()
    assert listing.may_have_changed(), "a file may come within the same tick of the clock"
    for folder in (tmp_path, tmp_path / "a=1"):
        os.utime(folder, (1000, 1000))
    listing.files()
    assert not listing.may_have_changed()
    _files(tmp_path, "a=1/y")
    assert listing.may_have_changed()


def _files(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("x")


def _found(folder: Path, *, below: str = "", is_deep: bool = False, names: str | None = None) -> list[str]:
    """The names of what is found at `below` in a folder."""
    where = Where(f"{folder}/{below}".rstrip("/"), names, is_deep)
    files = FileListing(store_env("/", {}), where).files()
    return sorted(place_of(each.uri).removeprefix(f"{folder}/") for each in files)
