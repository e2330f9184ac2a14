"""What every `FileIO` promises. A new implementation is one entry of `STORES`, and passes all of this."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

import pyarrow as pa
import pytest

from freshet.storage.exceptions import AlreadyExistsError, NotFoundError, StorageError, UnknownOutcomeError
from freshet.storage.io.env import Env
from freshet.storage.io.file_io import Created, Deleted, FileIO, Folders, create_or_ask, numbered_files, write_all
from freshet.storage.io.local_file_io import LocalFileIO
from freshet.storage.io.memory_file_io import MemoryFileIO
from freshet.storage.io.object_file_io import ObjectFileIO
from freshet.storage.io.ranges import ByteRange, read_ranges
from tests.kit.at_once import at_once
from tests.kit.lost_answers import LostAnswers
from tests.kit.s3_server import S3Place
from tests.kit.sim_env import SimDisk

T = TypeVar("T")

RACERS = 20
PAGE_ENTRIES = 7
"""Of a listing in memory, so that small ones have several pages."""

STORES: dict[str, Callable[[Path], tuple[FileIO, str]]] = {
    "local": lambda folder: (LocalFileIO(), str(folder)),
    "memory": lambda folder: (MemoryFileIO(page_entries=PAGE_ENTRIES), "memory:/w"),
    "simulated": lambda folder: (SimDisk().boot().file_io, "/w"),
}
"""A `FileIO`, and a path below which it has nothing yet."""

with_folders = pytest.mark.parametrize("store", ["local", "simulated"], indirect=True)


@dataclass(frozen=True)
class Store:
    """One implementation, with paths below its root."""

    io: FileIO
    root: str

    def path(self, name: str) -> str:
        return f"{self.root}/{name}"

    def put(self, name: str, data: bytes = b"x") -> str:
        self.io.overwrite(self.path(name), data)
        return self.path(name)

    def names(self, name: str = "") -> list[str]:
        return sorted(entry.name for entry in self.io.entries(self.path(name) if name else self.root))


@pytest.fixture(params=[*STORES, "s3", pytest.param("versitygw", marks=pytest.mark.slow)])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    if request.param in ("s3", "versitygw"):
        place: S3Place = request.getfixturevalue(request.param)
        return Store(ObjectFileIO(place.store_options), f"{place.root}/w")
    return Store(*STORES[request.param](tmp_path))


@pytest.fixture
def folders(store: Store) -> Folders:
    assert store.io.folders is not None
    return store.io.folders


def raced(call: Callable[[int], T], count: int = RACERS) -> list[T]:
    """The results of calls that begin at the same moment."""
    return at_once([partial(call, number) for number in range(count)])


# ------------------------------------------------------------------------------------------------------------ reading


def test_a_file_is_read_from_its_beginning_and_at_any_place(store: Store) -> None:
    path = store.put("f", b"0123456789")
    assert store.io.read_bytes(path) == b"0123456789"
    assert store.io.size(path) == 10
    with store.io.open_input(path) as first, store.io.open_input(path) as second:
        assert (first.read(3), second.read(1), first.tell(), second.tell()) == (b"012", b"0", 3, 1)
        first.seek(8)
        assert (first.read(), first.read(), first.tell()) == (b"89", b"", 10)
        first.seek(0)
        assert (first.read(1), second.read(1)) == (b"0", b"1")
        assert first.size() == 10


@pytest.mark.parametrize(
    ("offset", "length", "expected"),
    [(0, 4, b"0123"), (3, 2, b"34"), (8, 2, b"89"), (8, 5, b"89"), (10, 3, b""), (99, 3, b""), (2, 0, b"")],
)
def test_a_range_has_the_bytes_there_are(store: Store, offset: int, length: int, expected: bytes) -> None:
    found = store.io.read_range(store.put("f", b"0123456789"), ByteRange(offset, length))
    assert isinstance(found, pa.Buffer)
    assert found.to_pybytes() == expected


def test_ranges_are_read_by_the_plan_of_the_store(store: Store) -> None:
    content = bytes(number % 251 for number in range(300_000))
    path = store.put("f", content)
    wanted = [ByteRange(299_990, 99), ByteRange(0, 4), ByteRange(100_000, 50_000), ByteRange(120_000, 5)]
    read = partial(store.io.read_range, path)
    for size in (None, len(content)):
        found = read_ranges(read, wanted, store.io.read_costs, Env(store.io).together, size_bytes=size)
        assert [part.to_pybytes() for part in found] == [content[each.offset : each.end] for each in wanted]


def test_a_range_of_an_empty_file(store: Store) -> None:
    assert store.io.read_range(store.put("f", b""), ByteRange(0, 5)).size == 0


def test_a_missing_file_is_named(store: Store) -> None:
    missing = store.path("nothing/here")
    reads: list[Callable[[str], object]] = [store.io.read_bytes, store.io.size, store.io.open_input]
    for read in (*reads, lambda path: store.io.read_range(path, ByteRange(0, 1))):
        with pytest.raises(NotFoundError, match="nothing/here"):
            read(missing)
    assert not store.io.exists(missing)
    assert not store.io.exists_prefix(missing)


def test_what_files_lie_below_is_no_file(store: Store) -> None:
    store.put("a/f")
    assert not store.io.exists(store.path("a"))
    for read in (store.io.read_bytes, store.io.open_input):
        with pytest.raises(StorageError):
            read(store.path("a"))


def test_what_requests_cost_is_a_plan_for_ranges(store: Store) -> None:
    costs = store.io.read_costs
    assert min(costs.whole_bytes, costs.gap_bytes) >= 0
    assert costs.request_bytes > 0


# ------------------------------------------------------------------------------------------------------------ writing


def test_a_new_file_needs_nothing_above_it_and_is_there_once_closed(store: Store) -> None:
    path = store.path("p=1/bucket-0/data-1.parquet")
    output = store.io.open_output(path)
    assert output.tell() == 0
    assert output.write(b"ab") == 2
    output.write(pa.py_buffer(b"cd"))
    output.write(memoryview(b"e"))
    output.flush()
    assert (output.tell(), output.closed) == (5, False)
    output.close()
    output.close()
    output.abort()
    assert output.closed
    assert store.io.read_bytes(path) == b"abcde"


def test_a_file_is_written_by_arrow(store: Store) -> None:
    rows = pa.table({"a": [1, 2, 3]})
    output = store.io.open_output(store.path("f.arrow"))
    with pa.ipc.new_file(output, rows.schema) as writer:
        writer.write_table(rows)
    output.close()
    with store.io.open_input(store.path("f.arrow")) as file:
        assert pa.ipc.open_file(file).read_all() == rows


def test_a_file_that_is_there_is_not_written_again(store: Store) -> None:
    path = store.put("f", b"old")
    with pytest.raises(AlreadyExistsError, match="f exists already"):
        write_all(store.io.open_output(path), b"new")
    assert store.io.read_bytes(path) == b"old"


def test_of_two_writers_of_one_name_one_has_written_it(store: Store) -> None:
    def write(number: int) -> bool:
        try:
            write_all(store.io.open_output(store.path("f")), b"%d" % number)
        except AlreadyExistsError:
            return False
        return True

    assert sorted(raced(write))[-2:] == [False, True]
    assert len(store.io.read_bytes(store.path("f"))) in (1, 2)


def test_an_aborted_file_is_not_there(store: Store) -> None:
    output = store.io.open_output(store.path("f"))
    output.write(b"x")
    output.abort()
    output.close()
    assert output.closed
    assert store.names() == []


def test_overwriting_makes_and_replaces(store: Store) -> None:
    store.put("a/LATEST", b"1")
    store.io.overwrite(store.path("a/LATEST"), b"22", sync=False)
    assert store.io.read_bytes(store.path("a/LATEST")) == b"22"
    assert store.names("a") == ["LATEST"]


@pytest.mark.few(2)
def test_who_reads_while_others_overwrite_sees_one_content(store: Store) -> None:
    contents = [bytes([number]) * 20_000 for number in range(RACERS)]
    path = store.put("LATEST", contents[0])

    def write_or_read(number: int) -> bool:
        if number % 2:
            store.io.overwrite(path, contents[number], sync=False)
            return True
        return all(store.io.read_bytes(path) in contents for _ in range(20))

    assert all(raced(write_or_read))


# ---------------------------------------------------------------------------------------------------- exclusive creates


def test_a_name_is_won_once(store: Store) -> None:
    target = store.path("snapshot/snapshot-1")
    assert store.io.create_exclusive(target, b"one") is Created.WON
    assert store.io.create_exclusive(target, b"two") is Created.LOST
    assert store.io.create_exclusive(target, b"one") is Created.LOST, "who asks may have made it: that is asked_again"
    assert store.io.read_bytes(target) == b"one"
    assert store.names("snapshot") == ["snapshot-1"]
    assert store.io.delete(target)
    assert store.io.create_exclusive(target, b"two") is Created.WON


@pytest.mark.few(4)
@pytest.mark.parametrize("round_number", range(5))
def test_of_many_who_create_one_name_one_wins(store: Store, round_number: int) -> None:
    target = store.path(f"snapshot-{round_number}")
    outcomes = raced(lambda number: (store.io.create_exclusive(target, b"%d" % number), number))
    [winner] = [number for outcome, number in outcomes if outcome is Created.WON]
    assert {outcome for outcome, number in outcomes if number != winner} == {Created.LOST}
    assert store.io.read_bytes(target) == b"%d" % winner
    assert store.names() == [f"snapshot-{round_number}"]


def test_who_created_a_file_can_be_asked_again(store: Store) -> None:
    target = store.path("snapshot-1")
    assert store.io.asked_again(target, b"one") is Created.UNKNOWN, "it may appear yet"
    store.io.create_exclusive(target, b"one")
    assert store.io.asked_again(target, b"one") is Created.WON
    assert store.io.asked_again(target, b"two") is Created.LOST
    assert store.io.asked_again(target, b"on") is Created.LOST


def test_a_create_whose_answer_is_lost_is_asked_again(store: Store) -> None:
    lossy: FileIO = LostAnswers(store.io, takes_effect=True, left=2)
    assert create_or_ask(lossy, store.path("snapshot-1"), b"mine"), "it arrived"
    store.put("snapshot-2", b"another's")
    assert not create_or_ask(lossy, store.path("snapshot-2"), b"mine")
    lossy = LostAnswers(store.io, takes_effect=False)
    with pytest.raises(UnknownOutcomeError, match="snapshot-3 was to be created and the store does not say"):
        create_or_ask(lossy, store.path("snapshot-3"), b"mine")
    assert create_or_ask(lossy, store.path("snapshot-3"), b"mine"), "answered again"


def test_of_many_whose_answers_are_lost_one_finds_its_file(store: Store) -> None:
    target = store.path("snapshot-1")
    outcomes = raced(lambda number: create_or_ask(LostAnswers(store.io, takes_effect=True), target, b"%d" % number))
    assert outcomes.count(True) == 1


# ----------------------------------------------------------------------------------------------------------- listings


def test_a_listing_has_what_lies_directly_below(store: Store) -> None:
    for name in ("t/a", "t/a-b", "t/c/d/e", "t/c/f", "t/c-/g", "t/p=1%2F é/h", "tt/i", "t.db"):
        store.put(name, name.encode())
    found = {entry.name: entry for entry in store.io.entries(store.path("t"))}
    assert {name: entry.is_folder for name, entry in found.items()} == {
        "a": False,
        "a-b": False,
        "c": True,
        "c-": True,
        "p=1%2F é": True,
    }
    assert {name: entry.path for name, entry in found.items()} == {name: store.path(f"t/{name}") for name in found}
    assert (found["a-b"].size_bytes, found["a-b"].modified_ms > 0) == (5, True)
    assert [entry.name for entry in store.io.entries(found["c"].path)] == ["d", "f"]
    assert [entry.name for entry in store.io.entries(f"{store.path('t')}/c/")] == ["d", "f"]


def test_nothing_is_listed_below_what_is_not_there(store: Store) -> None:
    store.put("f")
    assert store.names("missing") == []
    assert store.names("f") == []
    assert store.names("missing/below") == []


def test_a_listing_goes_on_beyond_a_page(store: Store) -> None:
    files = [f"snapshot-{number}" for number in range(3 * PAGE_ENTRIES)]
    below = [f"bucket-{number}" for number in range(2 * PAGE_ENTRIES + 1)]
    for name in (*files, *(f"{name}/{part}" for name in below for part in "abc")):
        store.put(name)
    assert store.names() == sorted(files + below)
    assert list(numbered_files(store.io, store.root, "snapshot-")) == list(range(3 * PAGE_ENTRIES))


@pytest.mark.few(2)
def test_a_listing_has_what_stays_while_others_come_and_go(store: Store) -> None:
    staying = [store.put(f"staying-{number}") for number in range(3 * PAGE_ENTRIES)]

    def change_or_list(number: int) -> bool:
        if number % 2:
            for _ in range(10):
                store.io.delete(store.put(f"{number}-moving"))
            return True
        return all({entry.path for entry in store.io.entries(store.root)} >= {*staying} for _ in range(5))

    assert all(raced(change_or_list))


def test_a_listing_distinguishes_a_replaced_file(store: Store) -> None:
    store.put("a", b"1")
    [before] = store.io.entries(store.root)
    [same] = store.io.entries(store.root)
    store.put("a", b"2")
    [after] = store.io.entries(store.root)
    assert before.version == same.version != after.version


def test_there_is_a_prefix_where_files_lie_below(store: Store) -> None:
    path = store.put("a/b/c")
    assert store.io.exists(path)
    assert [store.io.exists_prefix(store.path(name)) for name in ("a", "a/b", "a/b/c", "a/", "a/x", "")] == [
        True,
        True,
        False,
        True,
        False,
        True,
    ]


# ----------------------------------------------------------------------------------------------------------- deleting


def test_a_file_is_deleted(store: Store) -> None:
    path = store.put("a/f")
    assert any(raced(lambda _: store.io.delete(path)))
    assert not store.io.exists(path)
    assert not store.io.delete(path)
    assert not store.io.delete(store.path("never/there"))


@pytest.mark.parametrize("in_turn", [False, True])
def test_many_are_deleted_and_counted(store: Store, in_turn: bool) -> None:
    paths = [store.put(f"p={part}/{name}") for part in "12" for name in "ab"]
    kept = paths.pop()
    missing = [store.path("p=1/none"), store.path("none/none")]
    deleted = store.io.delete_all([*missing, *paths], in_turn=in_turn)
    assert deleted.failed_count == 0
    assert deleted.deleted_count in (3, 5), "a store may count those that were not there"
    assert store.io.delete_all([]) == Deleted(0, 0)
    assert store.io.exists(kept)
    assert store.names("p=1") == []


def test_everything_below_a_path_is_deleted(store: Store) -> None:
    for name in ("a/f", "a/b/c/f", "ab/f", "a-/f", "b"):
        store.put(name)
    store.io.delete_prefix(store.path("a"))
    store.io.delete_prefix(store.path("b"))
    store.io.delete_prefix(store.path("never/there"))
    assert not store.io.exists_prefix(store.path("a"))
    assert store.names() == ["a-", "ab", "b"]


def test_everything_below_a_path_is_deleted_by_several_at_a_time(store: Store) -> None:
    for number in range(3 * PAGE_ENTRIES):
        store.put(f"a/{number}/f")
    raced(lambda _: store.io.delete_prefix(store.path("a")), count=4)
    assert store.names() == []


# ------------------------------------------------------------------------------------------ what disks can do: folders


@with_folders
def test_a_folder_shows_before_anything_lies_below(store: Store, folders: Folders) -> None:
    folders.make(store.path("shop.db/empty"))
    folders.make(store.path("shop.db"))
    assert store.io.exists_prefix(store.path("shop.db/empty"))
    assert [entry.is_folder for entry in store.io.entries(store.root)] == [True]
    assert store.names("shop.db/empty") == []


@with_folders
def test_folders_are_removed_while_they_are_empty(store: Store, folders: Folders) -> None:
    gone, kept = store.put("t/p=1/bucket-0/f"), store.put("t/p=2/bucket-0/f")
    store.io.delete(gone)
    for path in (gone, kept):
        folders.remove_empty(path.rpartition("/")[0], below=store.path("t"))
    folders.remove_empty(store.path("t/never/there"), below=store.path("t"))
    assert store.names("t") == ["p=2"]
    store.io.delete(kept)
    folders.remove_empty(store.path("t/p=2/bucket-0"), below=store.path("t"))
    assert (store.names("t"), store.io.exists_prefix(store.path("t"))) == ([], True)


@with_folders
def test_a_folder_gets_another_name_with_all_below_it(store: Store, folders: Folders) -> None:
    store.put("old.db/t/f", b"1")
    store.put("old.db/g", b"2")
    store.put("old.dbx/h")
    folders.rename(store.path("old.db"), store.path("new.db"))
    assert store.names() == ["new.db", "old.dbx"]
    assert store.io.read_bytes(store.path("new.db/t/f")) == b"1"
    assert store.names("new.db") == ["g", "t"]


@with_folders
def test_a_folder_takes_no_name_that_is_taken(store: Store, folders: Folders) -> None:
    store.put("a/f")
    store.put("b/g")
    for taken in ("b", "b/g"):
        with pytest.raises(AlreadyExistsError, match=f"{taken} exists already"):
            folders.rename(store.path("a"), store.path(taken))
    with pytest.raises(NotFoundError, match="missing"):
        folders.rename(store.path("missing"), store.path("c"))
    assert store.names() == ["a", "b"]


@pytest.mark.parametrize("store", ["memory"], indirect=True)
def test_a_store_without_folders_says_so(store: Store) -> None:
    assert store.io.folders is None
