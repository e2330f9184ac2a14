"""What of a topic is unread, by the checkpoint: what a finished batch has read, not what was planned."""

from __future__ import annotations

import json
from pathlib import Path

from freshet.logstore.protocol.client import TopicPartition
from freshet.pipeline.checks.unread_records import finished_offsets


def planned(folder: Path, number: int, *offsets: object, is_finished: bool = True) -> None:
    for name in ("offsets", "commits"):
        (folder / name).mkdir(exist_ok=True)
    lines = ["v1", "{}", *(json.dumps(each) for each in offsets)]
    (folder / "offsets" / str(number)).write_text("\n".join(lines))
    if is_finished:
        (folder / "commits" / str(number)).write_text("v1\n{}")


def test_the_last_finished_batch_counts(tmp_path: Path) -> None:
    planned(tmp_path, 9, {"a": {"0": 5}})
    planned(tmp_path, 10, {"a": {"0": 10, "1": 20}}, {"b": {"0": 7}})
    planned(tmp_path, 11, {"a": {"0": 99, "1": 99}}, {"b": {"0": 99}}, is_finished=False)
    expected = {("a", 0): 10, ("a", 1): 20, ("b", 0): 7}
    assert finished_offsets(str(tmp_path)) == {TopicPartition(*place): end for place, end in expected.items()}
    assert finished_offsets(f"file://{tmp_path}") == finished_offsets(str(tmp_path))


def test_of_two_sources_of_one_topic_the_earlier_counts(tmp_path: Path) -> None:
    planned(tmp_path, 0, {"a": {"0": 10}}, {"a": {"0": 4}})
    assert finished_offsets(str(tmp_path)) == {TopicPartition("a", 0): 4}


def test_other_sources_and_checkpoints_without_batches_say_nothing(tmp_path: Path) -> None:
    assert finished_offsets(str(tmp_path / "none")) == {}
    assert finished_offsets("s3://bucket/checkpoint") == {}
    planned(tmp_path, 0, {"a": {"0": 1}}, is_finished=False)
    assert finished_offsets(str(tmp_path)) == {}
    planned(tmp_path, 1, {"logOffset": 3}, "text")
    assert finished_offsets(str(tmp_path)) == {}
