"""The log of a file source in a checkpoint, as Spark keeps it."""

from __future__ import annotations

from pathlib import Path

import pytest

from freshet.pipeline.exceptions import PipelineFailedError
from freshet.pipeline.identity.checkpoint_folder import LocalCheckpoint
from freshet.pipeline.local.file_log import CLEANUP_DELAY_S, FileLog
from freshet.pipeline.query.driver.read_digests import files_between


class Clock:
    """A clock that a test moves."""

    seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


def test_every_tenth_file_holds_those_before(tmp_path: Path) -> None:
    log = _log(tmp_path)
    for number in range(25):
        assert log.add([(f"file:///in/{number}", number)]) == number
    names = {path.name for path in _folder(tmp_path).iterdir()}
    assert names == {*(str(each) for each in range(25) if each not in (9, 19)), "9.compact", "19.compact"}
    assert (_folder(tmp_path) / "3").read_text() == 'v1\n{"path":"file:///in/3","timestamp":3,"batchId":3}'
    lines = (_folder(tmp_path) / "19.compact").read_text().split("\n")
    assert lines[0] == "v1" and [line.count('"batchId":') for line in lines[1:]] == [1] * 20
    again = _log(tmp_path)
    assert again.latest == 24
    assert [each.batch for each in again.restore()] == list(range(25))
    assert [each.uri for each in again.between(8, 10)] == ["file:///in/9", "file:///in/10"]


def test_a_batch_that_is_written_by_another_run_stops_this_one(tmp_path: Path) -> None:
    first, second = _log(tmp_path), _log(tmp_path)
    first.add([("file:///in/a", 1)])
    with pytest.raises(PipelineFailedError, match="another run of this pipeline is using its checkpoint"):
        second.add([("file:///in/a", 1)])


@pytest.mark.parametrize(
    ("there", "interval"),
    [
        ([], 10),
        (["4.compact"], 5),
        (["9.compact"], 10),
        (["11.compact"], 12),
        (["20.compact"], 21),
        (["21.compact"], 11),
        (["23.compact"], 12),
        (["5.compact", "11.compact"], 6),
        (["99.compact"], 10),
    ],
)
def test_a_log_keeps_an_interval_that_fits_what_is_there(tmp_path: Path, there: list[str], interval: int) -> None:
    _folder(tmp_path).mkdir(parents=True)
    for name in there:
        (_folder(tmp_path) / name).write_text('v1\n{"path":"file:///in/old","timestamp":1,"batchId":0}')
    log = _log(tmp_path)
    begun = log.latest
    while log.latest < begun + interval:
        log.add([("file:///in/a", 1)])
    compact = [int(path.name.split(".")[0]) for path in _folder(tmp_path).glob("*.compact")]
    assert max(compact) == (log.latest + 1) // interval * interval - 1
    assert next(_log(tmp_path).restore()).uri == ("file:///in/old" if there else "file:///in/a")


def test_old_files_go_once_a_hundred_batches_and_ten_minutes_are_behind_them(tmp_path: Path) -> None:
    clock = Clock()
    for _ in range(60):
        _log(tmp_path).add([("file:///in/a", 1)])
    log = _log(tmp_path, clock)
    while log.latest < 129:
        log.add([("file:///in/a", 1)])
    assert len(list(_folder(tmp_path).iterdir())) == 130
    clock.seconds = CLEANUP_DELAY_S
    while log.latest < 139:
        log.add([("file:///in/a", 1)])
    left = {path.name for path in _folder(tmp_path).iterdir()}
    assert {"38", "29.compact"}.isdisjoint(left)
    assert {"39.compact", "40", "139.compact"} <= left
    assert len(list(_log(tmp_path).restore())) == 140
    assert files_between(2, 4, lambda name: _read(tmp_path, name)) == (("file:///in/a", 1), ("file:///in/a", 1))


@pytest.mark.parametrize("text", ["v2\n{}", "", 'v1\n{"path":', 'v1\n{"path":"x"}', "v1\n\xff"])
def test_a_damaged_log_is_named(tmp_path: Path, text: str) -> None:
    _log(tmp_path).add([("file:///in/a", 1)])
    (_folder(tmp_path) / "0").write_bytes(text.encode("latin-1"))
    with pytest.raises(PipelineFailedError, match=r"sources/0.* is not as Spark 4.2.1 and this engine write it"):
        list(_log(tmp_path).restore())


def test_a_log_with_a_gap_is_refused(tmp_path: Path) -> None:
    log = _log(tmp_path)
    for _ in range(3):
        log.add([("file:///in/a", 1)])
    (_folder(tmp_path) / "1").unlink()
    with pytest.raises(PipelineFailedError, match=r"sources/0/1 is not there"):
        list(_log(tmp_path).restore())


def _log(root: Path, clock: Clock | None = None) -> FileLog:
    return FileLog(LocalCheckpoint(root), 0, now=clock or Clock())


def _folder(root: Path) -> Path:
    return root / "sources" / "0"


def _read(root: Path, name: str) -> str | None:
    return LocalCheckpoint(root).read("sources", "0", name)
