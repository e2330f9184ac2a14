"""An index that cannot be kept or is damaged: said as an error that can be tried again, or built again; no row is lost."""  # noqa: E501

from __future__ import annotations

import logging
import resource
import shutil
from pathlib import Path

import numpy as np
import pytest

from freshet.storage.exceptions import RetryableError
from freshet.storage.place_index.index_database import ALL_KEYS, IndexDatabase, KeyShare
from freshet.storage.place_index.share_index import ShareIndex
from freshet.storage.table import Table
from freshet.storage.write.partition_moves import PendingPlaces
from tests.kit.small_disk import file_size_limit
from tests.storage.write.test_moving_rows import create, found, given_rows, index_folders, write

KEYS = 5000
SHORT, SHORT_OF_A_FILE = 1000, 20_000
"""Bytes of a file at most: RocksDB cannot open an index; it opens one, and cannot write a table file."""


def filled(path: Path) -> Table:
    table = create(path, **{"dynamic-bucket.target-row-num": "100000"})
    write(table, *((key, "abc"[key % 3], key, "+I") for key in range(KEYS)))
    return table


def expected(*moved: tuple[int, str, int]) -> dict[int, tuple[str, int | None]]:
    return {key: ("abc"[key % 3], key) for key in range(KEYS)} | {key: (place, v) for key, place, v in moved}


@pytest.mark.parametrize("limit", [SHORT, SHORT_OF_A_FILE])
def test_a_disk_that_is_full_while_an_index_is_built(limit: int, tmp_path: Path) -> None:
    table = filled(tmp_path)
    shutil.rmtree(tmp_path / "index")
    with table.writer("w") as writer:
        with file_size_limit(limit), pytest.raises(RetryableError, match="cannot be kept: RocksDB .* Free some space"):
            writer.write(given_rows([(1, "z", -1, "+I")]))
        assert not index_folders(tmp_path), "what there was of it takes no room"
        writer.abort()
        writer.write(given_rows([(1, "z", -1, "+I")]))
        writer.commit()
    assert found(table) == expected((1, "z", -1))


@pytest.mark.parametrize("limit", [SHORT, SHORT_OF_A_FILE])
def test_a_disk_that_fills_up_while_an_index_is_brought_forward(limit: int, tmp_path: Path) -> None:
    table = filled(tmp_path)
    with table.writer("w") as writer:
        writer.write(given_rows([(1, "z", -1, "+I")]))
        writer.commit()
        writer.write(given_rows([(key, "z", -key, "+I") for key in range(2, 2000)]))
        writer.commit()
        with file_size_limit(limit), pytest.raises(RetryableError, match="cannot be kept: RocksDB .* Free some space"):
            writer.write(given_rows([(1, "y", -2, "+I")]))
        writer.abort()
        writer.write(given_rows([(1, "y", -2, "+I")]))
        writer.commit()
        assert [folder.name for folder in index_folders(tmp_path)] == ["0-of-1-0.rocks"], "its lock was given back"
    assert found(table) == expected((1, "y", -2), *((key, "z", -key) for key in range(2, 2000)))


def test_a_disk_that_is_full_only_until_the_index_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody hears of it: the index is built again."""
    table = filled(tmp_path)
    builds = count_builds(monkeypatch)
    apply = IndexDatabase.apply

    def applied(database: IndexDatabase, *given: object) -> None:
        with file_size_limit(SHORT if given[0] else resource.RLIM_INFINITY):
            apply(database, *given)  # type: ignore[arg-type]

    with table.writer("w") as writer:
        writer.write(given_rows([(1, "z", -1, "+I")]))
        writer.commit()
        monkeypatch.setattr(IndexDatabase, "apply", applied)
        writer.write(given_rows([(key, "z", -key, "+I") for key in range(2, 2000)]))
        writer.commit()
        assert not builds
        writer.write(given_rows([(1, "y", -2, "+I")]))
        writer.commit()
    assert builds == [ALL_KEYS]
    assert found(table) == expected((1, "y", -2), *((key, "z", -key) for key in range(2, 2000)))


def test_a_disk_that_is_full_when_places_of_a_commit_are_spilled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("freshet.storage.write.partition_moves.PendingPlaces.__init__.__defaults__", (50,))
    put = PendingPlaces.put

    def short_put(places: PendingPlaces, *given: object) -> None:
        with file_size_limit(SHORT):
            put(places, *given)  # type: ignore[arg-type]

    table = filled(tmp_path)
    rows = [(key, "z", -key, "+I") for key in range(100)]
    with table.writer("w") as writer:
        with monkeypatch.context() as short:
            short.setattr(PendingPlaces, "put", short_put)
            with pytest.raises(RetryableError, match="rows of this commit cannot be kept"):
                writer.write(given_rows(rows))
        writer.abort()
        for _ in range(2):
            writer.write(given_rows(rows))
        writer.commit()
    assert found(table) == expected(*((key, "z", -key) for key in range(100)))


def test_spilled_places_that_cannot_be_read(tmp_path: Path) -> None:
    places = PendingPlaces(lambda: str(tmp_path), keys_max=1)
    keys = [number.to_bytes(8) for number in range(1000)]
    places.put(keys, np.arange(1000))
    places.put(keys[:2], np.arange(2))
    flip(tmp_path / sorted(path.name for path in tmp_path.glob("*.sst"))[0], 100)
    assert places._spilled is not None
    places._spilled.close()
    with pytest.raises(RetryableError, match="rows of this commit"):
        places.find(keys)
    places.close()


def flip(file: Path, place: int) -> None:
    """Changes one bit."""
    content = bytearray(file.read_bytes())
    content[place] ^= 1
    file.write_bytes(content)


def count_builds(monkeypatch: pytest.MonkeyPatch) -> list[KeyShare]:
    """The shares of indexes that are built from now on."""
    builds: list[KeyShare] = []
    built = ShareIndex._built

    def counted(index: ShareIndex, *given: object) -> object:
        builds.append(index._share)
        return built(index, *given)  # type: ignore[arg-type]

    monkeypatch.setattr(ShareIndex, "_built", counted)
    return builds


def loaded(path: Path) -> tuple[Table, Path]:
    """A table, and the file of its index, which was built at once; nothing is of later commits."""
    table = filled(path)
    shutil.rmtree(path / "index")
    index = ShareIndex(table.store, table.store.snapshots.latest())
    index.close()
    (folder,) = index_folders(path)
    file = max(folder.glob("*.sst"), key=lambda file: file.stat().st_size)
    return table, file


@pytest.mark.few(4)
@pytest.mark.parametrize("part", [0.02, 0.3, 0.6, 0.9, 0.98, 0.999])
@pytest.mark.parametrize("is_behind", [True, False])
def test_a_block_that_is_damaged(
    part: float, is_behind: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Met when the index is opened, when it is brought forward, or when keys are looked up."""
    table, file = loaded(tmp_path)
    size = file.stat().st_size
    if is_behind:
        kept = tmp_path / "kept"
        shutil.copytree(tmp_path / "index", kept)
        write(table, *((key, "y", -key, "+I") for key in range(0, KEYS, 5)))
        shutil.rmtree(tmp_path / "index")
        shutil.move(kept, tmp_path / "index")
    flip(file, int(size * part))
    builds = count_builds(monkeypatch)
    with caplog.at_level(logging.INFO, logger="freshet"):
        write(table, *((key, "z", -key, "+I") for key in range(0, KEYS, 7)))
    assert builds in ([], [ALL_KEYS]), "a bit that no look-up needs may stay"
    assert bool(builds) == ("is built again" in caplog.text)
    assert [folder.name for folder in index_folders(tmp_path)] == ["0-of-1-0.rocks"], "the damaged one is gone"
    former = [(key, "y", -key) for key in range(0, KEYS, 5)] if is_behind else []
    assert found(table) == expected(*former, *((key, "z", -key) for key in range(0, KEYS, 7)))
    if 0.1 < part < 0.8:
        assert builds, "the block of entries is read"


@pytest.mark.dear("every file of an index")
def test_any_file_of_an_index_with_a_bit_changed(tmp_path: Path) -> None:
    """Whatever it says then is what the table says."""
    table, _ = loaded(tmp_path)
    (folder,) = index_folders(tmp_path)
    kept = tmp_path / "kept"
    shutil.copytree(folder, kept)
    keys = range(0, KEYS, 50)
    moved: dict[int, tuple[int, str, int]] = {}
    for turn, file in enumerate(sorted(kept.iterdir())):
        size = file.stat().st_size
        for place in sorted({0, size // 3, size - 1} & set(range(size))):
            shutil.rmtree(folder)
            shutil.copytree(kept, folder)
            flip(folder / file.name, place)
            rows = [(key, "uvw"[(turn + place) % 3], turn) for key in keys]
            write(table, *((key, p, v, "+I") for key, p, v in rows))
            moved |= {row[0]: row for row in rows}
            assert found(table) == expected(*moved.values()), (file.name, place)
            assert index_folders(tmp_path) == [folder]


def test_the_damaged_share_alone_is_built_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = filled(tmp_path)
    latest = table.store.snapshots.latest()
    shares = [KeyShare(number, 2) for number in range(2)]
    builds = count_builds(monkeypatch)
    for share in shares:
        ShareIndex(table.store, latest, share).close()
    assert builds == shares
    (folder,) = (folder for folder in index_folders(tmp_path) if folder.name.startswith("1-of-2-"))
    for file in folder.glob("*.sst"):
        flip(file, file.stat().st_size // 2)
    builds.clear()
    write(table, *((key, "z", -key, "+I") for key in range(0, KEYS, 7)))
    builds.clear()  # that of all keys, which the writer needs
    for share in shares:
        index = ShareIndex(table.store, table.store.snapshots.latest(), share)
        assert index.snapshot_id == table.store.snapshots.latest().id  # type: ignore[union-attr]
        index.close()
    assert builds == [shares[1]]
