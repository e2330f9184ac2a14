"""Under which isolation batches were planned, and which of them are read under another one than the file says."""

from __future__ import annotations

from pathlib import Path

import pytest

from freshet.pipeline.config.model import SourceConfig
from freshet.pipeline.exceptions import ConfigurationError
from freshet.pipeline.identity.planned_isolation import ISOLATION_FILE, PlannedBefore, claim_isolation

COMMITTED, UNCOMMITTED = "read_committed", "read_uncommitted"


def source(isolation: str | None) -> SourceConfig:
    kafka = {"kafka.bootstrap.servers": "h:1", "subscribe": "a"}
    own = {} if isolation is None else {"kafka.Isolation.Level": isolation.upper()}
    return SourceConfig.model_validate({"kafka": {**kafka, **own}, "format": "json"})


def checkpoint(folder: Path, *, planned: int, done: int) -> str:
    for name, count in (("offsets", planned), ("commits", done)):
        (folder / name).mkdir(exist_ok=True)
        for number in range(count):
            (folder / name / str(number)).write_text("")
    return str(folder)


@pytest.mark.parametrize(
    ("planned", "done", "now", "before"),
    [
        (0, 0, None, None),  # new
        (3, 3, None, None),
        (3, 2, None, PlannedBefore(2, {0: UNCOMMITTED})),
        (1, 0, None, PlannedBefore(0, {0: UNCOMMITTED})),
        (3, 2, UNCOMMITTED, None),
        (3, 2, COMMITTED, None),  # what the file says, it has said before
    ],
)
def test_a_checkpoint_of_before(
    tmp_path: Path, planned: int, done: int, now: str | None, before: PlannedBefore | None
) -> None:
    place = checkpoint(tmp_path, planned=planned, done=done)
    assert claim_isolation(place, [source(now)]) == before
    assert claim_isolation(place, [source(now)]) == before, "it was not finished"
    checkpoint(tmp_path, planned=planned + 1, done=planned)
    assert claim_isolation(place, [source(now)]) is None, "the next one is planned as the file says"


def test_a_batch_keeps_its_isolation_whatever_a_file_says_meanwhile(tmp_path: Path) -> None:
    place = checkpoint(tmp_path, planned=0, done=0)
    assert claim_isolation(place, [source(None)]) is None
    checkpoint(tmp_path, planned=1, done=0)
    for _ in range(2):
        assert claim_isolation(place, [source(UNCOMMITTED)]) == PlannedBefore(0, {0: COMMITTED})
        assert claim_isolation(place, [source(None)]) is None
    claim_isolation(place, [source(UNCOMMITTED)])
    checkpoint(tmp_path, planned=2, done=1)
    assert claim_isolation(place, [source(None)]) == PlannedBefore(1, {0: UNCOMMITTED})


def test_files_have_none_and_a_damaged_note_is_reported(tmp_path: Path) -> None:
    files = SourceConfig.model_validate({"files": {"path": "/in"}, "format": "json"})
    assert claim_isolation(str(tmp_path), [files]) is None
    assert claim_isolation("s3://bucket/c", [source(None)]) is None
    assert not list(tmp_path.iterdir())
    (tmp_path / ISOLATION_FILE).write_text("{")
    with pytest.raises(ConfigurationError, match="is what it was at the last run, remove that file"):
        claim_isolation(str(tmp_path), [source(None)])
