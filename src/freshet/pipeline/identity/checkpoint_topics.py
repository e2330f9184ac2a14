"""Which Kafka topics a checkpoint's offsets belong to: one small file in the checkpoint folder.

    freshet-topics.json = {topic: its id}

A topic that is deleted and created again begins at offset 0. Spark's checkpoint knows topics by their names only: it
would go on at the offset where the old one was left, and the records before it would be missing in silence. The ids
are written when a run starts, so a topic that is created again between two runs is noticed; `kafka_reach` looks from
time to time while a pipeline runs.

Folders on object stores are not looked at.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import Final

from freshet.pipeline.exceptions import ConfigurationError
from freshet.pipeline.identity.checkpoint_owner import local_folder

TOPICS_FILE: Final = "freshet-topics.json"


def claim_topics(checkpoint: str, topic_ids: Mapping[str, str]) -> None:
    """Writes the ids of these topics next to those known; raises `ConfigurationError` where a topic has another id.

    The folder is there: its pipeline has claimed it.
    """
    folder = local_folder(checkpoint)
    if folder is None or not topic_ids:
        return
    file = folder / TOPICS_FILE
    try:
        known = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    except (OSError, ValueError) as error:
        raise ConfigurationError(
            f"checkpoint {checkpoint}: {file} cannot be read: {error}. Where no topic was deleted and created again "
            "since the last run, remove that file"
        ) from error
    renewed = sorted(topic for topic, topic_id in topic_ids.items() if known.get(topic, topic_id) != topic_id)
    if renewed:
        raise ConfigurationError(f"checkpoint {checkpoint}: since it was written {renewal_text(checkpoint, renewed)}")
    if known == {**known, **topic_ids}:
        return
    unfinished = folder / f".{TOPICS_FILE}.{os.getpid()}.tmp"
    try:
        unfinished.write_text(json.dumps({**known, **topic_ids}), encoding="utf-8")
        unfinished.replace(file)
    except OSError as error:
        raise ConfigurationError(f"checkpoint {checkpoint} cannot be written: {error}") from error


def renewal_text(checkpoint: str, topics: Sequence[str]) -> str:
    """That topics have other ids than before, and what to do."""
    folder = local_folder(checkpoint)
    go_on = "" if folder is None else f"; to go on at the old offset all the same, remove {folder / TOPICS_FILE}"
    return (
        f"{_were_created_again(topics)} (other ids in Kafka). The checkpoint's offsets belong to what was there: "
        "records of the new one up to the same offset would be missing. To read the new one from its beginning, name "
        f"another checkpoint and give the pipeline another name{go_on}"
    )


def _were_created_again(topics: Sequence[str]) -> str:
    if len(topics) == 1:
        return f"topic {topics[0]} was deleted and created again"
    return f"the topics {', '.join(topics)} were deleted and created again"
