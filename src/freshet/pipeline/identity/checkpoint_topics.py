"""Which Kafka topics a checkpoint's offsets belong to: one small file in the checkpoint folder.

    freshet-topics.json = {topic: its id}

A topic that is deleted and created again begins at offset 0. Spark's checkpoint knows topics by their names only: it
would go on at the offset where the old one was left, and the records before it would be missing in silence. The ids
are written when a run starts, so a topic that is created again between two runs is noticed. While a pipeline runs,
`local/kafka_source` looks before each commit; on Spark `kafka_reach` does from time to time.

A folder that only Spark can reach is looked at once it runs (`checkpoint_folder`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Final

from freshet.pipeline.exceptions import ConfigurationError
from freshet.pipeline.identity.checkpoint_folder import CheckpointFolder, CheckpointPlace, as_folder, shown_place

TOPICS_FILE: Final = "freshet-topics.json"


def claim_topics(checkpoint: CheckpointPlace, topic_ids: Mapping[str, str]) -> None:
    """Writes the ids of these topics next to those known; raises `ConfigurationError` where a topic has another id.

    The folder is there: its pipeline has claimed it.
    """
    folder = as_folder(checkpoint)
    if folder is None or not topic_ids:
        return
    renewed = renewed_topics(checkpoint, topic_ids)
    if renewed:
        shown = shown_place(checkpoint)
        raise ConfigurationError(f"checkpoint {shown}: since it was written {renewal_text(checkpoint, renewed)}")
    known = known_topics(folder)
    if known == {**known, **topic_ids}:
        return
    try:
        folder.replace(TOPICS_FILE, json.dumps({**known, **topic_ids}))
    except OSError as error:
        raise ConfigurationError(f"checkpoint {shown_place(checkpoint)} cannot be written: {error}") from error


def renewed_topics(checkpoint: CheckpointPlace, topic_ids: Mapping[str, str]) -> list[str]:
    """The topics that had other ids when the checkpoint was written; raises `ConfigurationError` where its file is
    damaged."""
    folder = as_folder(checkpoint)
    known = {} if folder is None else known_topics(folder)
    return sorted(topic for topic, topic_id in topic_ids.items() if known.get(topic, topic_id) != topic_id)


def known_topics(folder: CheckpointFolder) -> dict[str, str]:
    """The topics of a checkpoint with their ids; raises `ConfigurationError` where their file is damaged."""
    try:
        known: dict[str, str] = json.loads(folder.read(TOPICS_FILE) or "{}")
        if not isinstance(known, dict):
            raise ValueError(f"it is no object: {known!r}")
    except (OSError, ValueError) as error:
        raise ConfigurationError(
            f"checkpoint {shown_place(folder)}: {folder.place(TOPICS_FILE)} cannot be read: {error}. Where no topic "
            "was deleted and created again since the last run, remove that file"
        ) from error
    return known


def renewal_text(checkpoint: CheckpointPlace, topics: Sequence[str]) -> str:
    """The text that topics have other ids than before, and what to do."""
    return (
        f"{_were_created_again(topics)} (other ids in Kafka). The checkpoint's offsets belong to what was there: "
        "records of the new one up to the same offset would be missing. To read the new one from its beginning, name "
        "another checkpoint and give the pipeline another name; to go on at the old offset all the same, remove "
        f"{shown_place(checkpoint, TOPICS_FILE)}"
    )


def _were_created_again(topics: Sequence[str]) -> str:
    if len(topics) == 1:
        return f"topic {topics[0]} was deleted and created again"
    return f"the topics {', '.join(topics)} were deleted and created again"
