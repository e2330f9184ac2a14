"""Whether topics can be read from where the pipeline's file, or its checkpoint, says: asked before a run.

A checkpoint that says it counts; else the options of the source (`config.starting_offsets`). Its topics are to be those
that it was written for (`identity.checkpoint_topics`), and what it goes on at is to be there still. Topics that are not
there are for `kafka_reach`. Clusters that only the Java client can reach are not asked, nor patterns that only Java
knows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from freshet.pipeline.checks.kafka_reach import ASK_S, Clusters, assigned_places, brokers_of, topics_of
from freshet.pipeline.config.catalogs import target_catalog
from freshet.pipeline.config.model import PipelineConfig, SourceConfig, revealed
from freshet.pipeline.config.rules import subscribed_topics
from freshet.pipeline.config.starting_offsets import assigned_problems, start_of, start_problems
from freshet.pipeline.exceptions import KeyPath, Problem
from freshet.pipeline.identity.checkpoint_folder import CheckpointFolder, as_folder
from freshet.pipeline.identity.checkpoint_offsets import (
    CheckpointOffsets,
    Positions,
    checkpoint_offset_problems,
    checkpoint_offsets,
    lost_offset_problems,
    unfinished_batch,
)
from freshet.pipeline.identity.checkpoint_owner import query_id_of
from freshet.pipeline.identity.checkpoint_topics import renewal_text, renewed_topics
from freshet.storage.exceptions import StorageError

_NO_LOSS: Final = "false"


def offset_problems(
    configs: Sequence[PipelineConfig],
    *,
    say: Callable[[str], None],
    folders: Mapping[str, CheckpointFolder] = MappingProxyType({}),
    clients: Clusters | None = None,
) -> list[Problem]:
    """What is wrong with the offsets of some pipelines; says of which sources it could not be found out.

    `folders` are the checkpoints that Spark has opened, by pipeline. One that only Spark can reach is not looked at
    without: whether it is new, so that the options of the source count, is not known.
    """
    found = []
    clients = clients or Clusters()
    for config in configs:
        folder = folders.get(config.name) or as_folder(config.checkpoint)
        for index, source in enumerate(config.sources if folder is not None else ()):
            assert folder is not None
            try:
                found += [config.origin.placed(each) for each in _source(config, index, source, folder, clients)]
            except (OSError, ValueError) as error:
                text = config.without_secrets(str(error))
                say(f"{config.name}: warning: the offsets of sources[{index}] were not looked at: {text}")
    return found


def _source(
    config: PipelineConfig, index: int, source: SourceConfig, folder: CheckpointFolder, clients: Clusters
) -> Iterator[Problem]:
    brokers = brokers_of(source)
    if brokers is None or brokers.settings.untranslated:
        return
    client = clients.of(brokers)
    answer = client.ask(ASK_S)
    if answer.failure or subscribed_topics(source) - answer.topics:
        return  # reported elsewhere
    key_path: KeyPath = ("sources", index, "kafka")
    options = revealed(source.kafka or {})
    lowered = {key.lower(): (key, value) for key, value in options.items()}
    there = {(topic, n) for topic in topics_of(source, answer) for n in range(answer.partition_counts[topic])}
    assigned = assigned_places(source)
    if assigned is not None:
        key, _ = lowered["assign"]
        yield from (Problem((*key_path, key), text) for text in assigned_problems(assigned, there))
        there &= assigned
    if not there:
        return  # a pattern that matches nothing yet, or that only Java knows
    takes_losses = lowered.get("failondataloss", ("", "true"))[1].lower() == _NO_LOSS
    renewed = renewed_topics(folder, client.topic_ids({topic for topic, _ in there}, ASK_S))
    if renewed:
        yield Problem(("checkpoint",), f"since it was written {renewal_text(folder, renewed)}")
        return
    kept = checkpoint_offsets(folder, index)
    if kept is not None:
        if not takes_losses:
            bounds = client.bounds(there, ASK_S)
            ends = {place: end for place, (_, end) in bounds.items()}
            texts = [*checkpoint_offset_problems(kept, ends, checkpoint=config.checkpoint)]
            for text in texts or lost_offset_problems(positions_of(config, folder, kept), bounds):
                yield Problem(("checkpoint",), f"sources[{index}] {text}")
        return
    start = start_of(options)
    if start is not None:
        bounds = client.bounds(there, ASK_S)
        matches = client.offsets_at(start.times(there), ASK_S, isolation=source.isolation)
        for text in start_problems(start, bounds, matches, takes_losses=takes_losses):
            yield Problem((*key_path, start.option), text)


def positions_of(config: PipelineConfig, folder: CheckpointFolder, kept: CheckpointOffsets) -> Positions:
    """Where the next run reads on: not what the batch that was planned last has, where the table holds it already."""
    planned = {**kept.planned, **kept.start}
    number = unfinished_batch(folder)
    if number is None:
        return planned
    try:
        engine = target_catalog(config).table(config.table.name).engine
        is_held = engine.has_committed(config.name, query_id_of(folder), number).is_committed
    except StorageError:
        is_held = False  # reported elsewhere
    return {**planned, **kept.planned} if is_held else planned
