"""What is particular to a local disk; what it promises as every `FileIO` is in `test_contract`."""

from __future__ import annotations

import errno
import multiprocessing
import os
from pathlib import Path
from typing import Any

import pytest

from freshet.storage.exceptions import (
    InvalidRequestError,
    RetryableError,
    UnknownOutcomeError,
    UnsupportedFeatureError,
)
from freshet.storage.io import local_file_io, local_folders
from freshet.storage.io.file_io import Created, Deleted, create_or_ask
from freshet.storage.io.local_errors import storage_error
from freshet.storage.io.local_file_io import LocalFileIO

FILES = LocalFileIO()
NOBODY = 65534


def names(folder: Path) -> list[str]:
    return sorted(os.listdir(folder))


def test_a_claim_whose_answer_was_lost_is_recognised_by_its_second_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real_link = os.link

    def link_then_repeat(source: str, target: str) -> None:
        real_link(source, target)
        raise FileExistsError(errno.EEXIST, "exists", target)

    monkeypatch.setattr(local_file_io.os, "link", link_then_repeat)
    assert FILES.create_exclusive(str(tmp_path / "snapshot-1"), b"one") is Created.WON


def test_a_file_system_without_hard_links_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(source: str, target: str) -> None:
        raise OSError(errno.EOPNOTSUPP, "not supported")

    monkeypatch.setattr(local_file_io.os, "link", refuse)
    with pytest.raises(UnsupportedFeatureError, match="hard links"):
        FILES.create_exclusive(str(tmp_path / "snapshot-1"), b"one")
    assert names(tmp_path) == []


def test_an_unsynced_claim_has_an_unknown_outcome(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(path: str) -> None:
        raise OSError(errno.EIO, "io")

    target = str(tmp_path / "snapshot-1")
    with monkeypatch.context() as patch:
        patch.setattr(local_file_io, "fsync_folder", fail)
        assert FILES.create_exclusive(target, b"one") is Created.UNKNOWN
        with pytest.raises(UnknownOutcomeError, match="snapshot-2"):
            create_or_ask(FILES, str(tmp_path / "snapshot-2"), b"two")
    assert FILES.asked_again(target, b"one") is Created.WON, "asked again, and synced this time"


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_says_so_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    def fail(descriptor: int) -> None:
        raise OSError(code, "full")

    monkeypatch.setattr(local_file_io.os, "fsync", fail)
    with pytest.raises(RetryableError, match=r"snapshot-1.*free some space"):
        FILES.create_exclusive(str(tmp_path / "snapshot-1"), b"one")
    with pytest.raises(RetryableError, match="LATEST"):
        FILES.overwrite(str(tmp_path / "LATEST"), b"1")
    output = FILES.open_output(str(tmp_path / "data-1.parquet"))
    output.write(b"half")
    with pytest.raises(RetryableError, match=r"data-1\.parquet"):
        output.close()
    assert output.closed
    assert names(tmp_path) == []


def test_a_limit_of_the_process_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(descriptor: int) -> None:
        raise OSError(errno.EFBIG, "File too large")

    monkeypatch.setattr(local_file_io.os, "fsync", fail)
    with pytest.raises(InvalidRequestError, match=r"snapshot-1.*File too large; raise .*ulimit -f"):
        FILES.create_exclusive(str(tmp_path / "snapshot-1"), b"one")
    assert names(tmp_path) == []


def test_a_really_full_disk_while_writing(tmp_path: Path) -> None:
    """/dev/full fails every write with ENOSPC, as a full disk does once the buffer is flushed."""
    output = local_file_io.LocalOutputFile(str(tmp_path / "x"))
    full = os.open("/dev/full", os.O_WRONLY)
    os.dup2(full, output._file.fileno())
    os.close(full)
    with pytest.raises(RetryableError, match="No space left"):
        output.write(b"x" * (local_file_io.WRITE_BUFFER_BYTES + 1))
    output.abort()
    assert names(tmp_path) == []


def _refusal(folder: Path, answers: Any) -> None:
    os.chdir(folder)
    if os.geteuid() == 0:  # root may write everywhere
        os.setresuid(NOBODY, NOBODY, NOBODY)
    try:
        FILES.create_exclusive("./snapshot-1", b"one")
    except InvalidRequestError as error:
        answers.put(str(error))
    else:
        answers.put("written")


def test_a_folder_without_rights(tmp_path: Path) -> None:
    if os.geteuid() == 0:
        os.chown(tmp_path, NOBODY, -1)
    tmp_path.chmod(0o500)
    context = multiprocessing.get_context("fork")
    answers = context.SimpleQueue()
    child = context.Process(target=_refusal, args=(tmp_path, answers))
    child.start()
    child.join(300)
    assert child.exitcode == 0
    assert "right" in answers.get()
    assert names(tmp_path) == []


@pytest.mark.parametrize("code", [errno.EACCES, errno.EPERM, errno.EROFS])
def test_missing_rights_name_the_path_and_the_remedy(code: int) -> None:
    error = storage_error(OSError(code, "denied"), "create", "/data/t/x")
    assert isinstance(error, InvalidRequestError)
    assert "/data/t/x" in str(error)
    assert "right" in str(error)


def test_links_to_nowhere_are_not_listed(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"")
    (tmp_path / "gone").symlink_to(tmp_path / "nothing")
    (tmp_path / "loop").symlink_to("loop")
    assert [entry.name for entry in FILES.entries(str(tmp_path))] == ["a"]


def test_a_tree_behind_a_link_stays(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Links go, that to the tree and those in a tree; what they lead to stays."""
    moved, outside = tmp_path / "moved", tmp_path / "outside"
    for folder in (moved, outside):
        folder.mkdir()
        (folder / "file").touch()
    (moved / "to-outside").symlink_to(outside)
    (tmp_path / "table").symlink_to(moved)
    FILES.delete_prefix(str(tmp_path / "table"))
    assert names(tmp_path) == ["moved", "outside"]
    assert f"{moved}, stays" in caplog.text
    FILES.delete_prefix(str(moved))
    assert names(tmp_path) == ["outside"]
    assert names(outside) == ["file"]


@pytest.mark.parametrize(
    ("path", "way_out"),
    [
        ("t/bucket-0/data", None),
        ("t/data", None),
        ("t/to-outside", None),
        ("t/to-outside/data", "t/to-outside"),
        ("t/bucket-0/to-outside/deep/data", "t/bucket-0/to-outside"),
        ("t/never/there/data", None),
        ("t/bucket-0/../data", "t/bucket-0/.."),
        ("t/../outside/data", "t/.."),
        ("t2/to-outside/data", None),
        ("outside/data", None),
    ],
)
def test_what_leads_out_of_a_folder_on_the_way_to_a_file(path: str, way_out: str | None, tmp_path: Path) -> None:
    """The folder itself is a link."""
    for folder in ("real/bucket-0", "outside/deep", "t2"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "t").symlink_to("real")
    for link in ("t/to-outside", "t/bucket-0/to-outside", "t2/to-outside"):
        (tmp_path / link).symlink_to(tmp_path / "outside")
    found = FILES.folders.way_out(f"{tmp_path}/{path}", below=f"{tmp_path}/t")
    assert found == (None if way_out is None else f"{tmp_path}/{way_out}")


def test_a_tree_goes_also_while_others_write_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The background of a process still writes hints of a table that is dropped."""
    folder, unlink = tmp_path / "a", os.unlink
    (folder / "snapshot").mkdir(parents=True)
    (folder / "snapshot" / "EARLIEST").touch()
    (folder / "schema").mkdir()
    (folder / "schema" / "schema-0").touch()
    others = {
        "EARLIEST": lambda: unlink(folder / "snapshot" / "EARLIEST"),
        "schema-0": lambda: (folder / "schema" / "new").touch(),
    }

    def meanwhile(name: str, **options: int) -> None:
        others.pop(name, lambda: None)()
        unlink(name, **options)

    monkeypatch.setattr(os, "unlink", meanwhile)
    FILES.delete_prefix(str(folder))
    assert not folder.exists() and not others


def test_a_tree_that_others_write_in_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def overtaken(path: str) -> None:
        raise FileNotFoundError(path)

    monkeypatch.setattr(local_folders.shutil, "rmtree", overtaken)
    FILES.delete_prefix(str(tmp_path / "never there"))
    with pytest.raises(RetryableError, match="was not deleted: other programs write in it"):
        FILES.delete_prefix(str(tmp_path))


def test_in_turn_nothing_is_removed_after_what_stays(tmp_path: Path) -> None:
    first, last = tmp_path / "1", tmp_path / "3"
    first.write_bytes(b"")
    last.write_bytes(b"")
    stays = tmp_path / "2"
    (stays / "below").mkdir(parents=True)  # a folder that holds something is no file that could be removed
    assert FILES.delete_all([str(first), str(stays), str(last)], in_turn=True) == Deleted(1, 1)
    assert not first.exists()
    assert last.exists()


def test_a_listing_is_sorted_and_has_the_times_of_the_disk(tmp_path: Path) -> None:
    (tmp_path / "b").write_bytes(b"123")
    (tmp_path / "a").mkdir()
    folder, file = FILES.entries(str(tmp_path))
    assert [(entry.name, entry.path) for entry in (folder, file)] == [(n, str(tmp_path / n)) for n in "ab"]
    assert abs(file.modified_ms - (tmp_path / "b").stat().st_mtime * 1000) < 2


def test_what_cannot_be_deleted_is_counted(tmp_path: Path) -> None:
    (tmp_path / "folder" / "below").mkdir(parents=True)
    gone = FILES.delete_all([str(tmp_path / name) for name in ("folder", "missing", "folder/below")])
    assert gone == Deleted(0, 2)
    assert "folder" in str(gone.cause)


def test_a_reader_keeps_the_file_that_was_overwritten(tmp_path: Path) -> None:
    target = str(tmp_path / "LATEST")
    FILES.overwrite(target, b"1")
    before = FILES.open_input(target)
    FILES.overwrite(target, b"22")
    assert before.read() == b"1"
    assert names(tmp_path) == ["LATEST"]
