"""The offsets that a checkpoint goes on at, as Spark 4.2.1 writes them."""

from __future__ import annotations

from pathlib import Path

import pytest

from freshet.pipeline.identity.checkpoint_offsets import (
    CheckpointOffsets,
    checkpoint_offset_problems,
    checkpoint_offsets,
    lost_offset_problems,
    unfinished_batch,
)

HEAD = 'v1\n{"batchWatermarkMs":0,"batchTimestampMs":1795422618683,"conf":{}}\n'
A0, A1 = ("a", 0), ("a", 1)


def written(folder: Path, *, begun: str | None = None, offsets: tuple[str, ...] = (), commits: int = 0) -> str:
    for name in ("sources/1", "offsets", "commits"):
        (folder / name).mkdir(parents=True)
    if begun is not None:
        (folder / "sources" / "1" / "0").write_text("\0v1\n" + begun)
    for number, line in enumerate(offsets):
        (folder / "offsets" / str(number)).write_text(f'{HEAD}{{"logOffset":0}}\n{line}')
        (folder / "offsets" / f".{number}.crc").write_text("")
    for number in range(commits):
        (folder / "commits" / str(number)).write_text('v1\n{"nextBatchWatermarkMs":0}')
    return str(folder)


def test_what_a_checkpoint_goes_on_with(tmp_path: Path) -> None:
    ends = ('{"a":{"0":5}}', '{"a":{"0":9,"1":1}}')
    new = written(tmp_path / "new", begun='{"a":{"0":2}}')
    assert checkpoint_offsets(new, 1) == CheckpointOffsets({A0: 2}, {}, has_batches=False)
    planned = written(tmp_path / "planned", begun='{"a":{"0":2}}', offsets=ends[:1])
    assert checkpoint_offsets(planned, 1) == CheckpointOffsets({A0: 2}, {A0: 5}, has_batches=False)
    done = written(tmp_path / "done", begun='{"a":{"0":2}}', offsets=ends, commits=2)
    assert checkpoint_offsets(done, 1) == CheckpointOffsets({A0: 9, A1: 1}, {}, has_batches=True)
    half = written(tmp_path / "half", begun='{"a":{"0":2}}', offsets=ends, commits=1)
    assert checkpoint_offsets(half, 1) == CheckpointOffsets({A0: 5}, {A0: 9, A1: 1}, has_batches=True)
    assert [unfinished_batch(each) for each in (new, planned, done, half)] == [None, 0, None, 1]


def test_where_nothing_is_said(tmp_path: Path) -> None:
    files = written(tmp_path / "files", offsets=("-",))
    assert checkpoint_offsets(files, 0) is None, "a file source"
    assert checkpoint_offsets(files, 1) is None and checkpoint_offsets(files, 5) is None
    assert checkpoint_offsets(str(tmp_path / "nothing"), 0) is None
    assert checkpoint_offsets("s3://bucket/c", 0) is None


@pytest.mark.parametrize("has_batches", [False, True])
def test_offsets_that_cannot_be_are_named_with_the_remedy(has_batches: bool) -> None:
    found = CheckpointOffsets({A0: 99, A1: 1}, {A0: 99, ("b", 0): 4}, has_batches=has_batches)
    (text,) = checkpoint_offset_problems(found, {A0: 5, A1: 1}, checkpoint="/c")
    assert "topic a partition 0 at offset 99, which ends at 5; topic b partition 0 at offset 4, which is not" in text
    assert ("give the pipeline another name" if has_batches else "delete the folder /c and start again") in text
    assert not list(checkpoint_offset_problems(found, {A0: 99, A1: 1, ("b", 0): 4}, checkpoint="/c"))


def test_offsets_that_are_not_there_any_more_are_named() -> None:
    (text,) = lost_offset_problems({A0: 5, A1: 1}, {A0: (7, 9), A1: (1, 1)})
    assert text.startswith(
        "goes on with topic a partition 0 at offset 5, which has offsets 7 to 8: records were deleted"
    )
    (text,) = lost_offset_problems({A0: 5}, {A0: (7, 7)})
    assert "at offset 5, which has no records (its next offset is 7): " in text
