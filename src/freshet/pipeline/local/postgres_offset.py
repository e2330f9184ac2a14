"""The offset of a database as a checkpoint has it: a position in the log, and how far the copy of its tables is; and
whether a pipeline can go on from there: its checkpoint against the slot, without a stream."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from freshet.pipeline.checks.postgres_reach import sources_of
from freshet.pipeline.config.model import PipelineConfig, PostgresConfig
from freshet.pipeline.config.sync import SyncPipelineConfig
from freshet.pipeline.decode.planning import plan_decoding
from freshet.pipeline.exceptions import PipelineFailedError, Problem
from freshet.pipeline.identity.checkpoint_folder import CheckpointFolder
from freshet.pipeline.identity.checkpoint_offsets import CHANGES, SLOT, finished_lines
from freshet.pipeline.local.store_checkpoint import pipeline_checkpoint
from freshet.pipeline.postgres.copy_state import CopyState
from freshet.pipeline.postgres.lsn import lsn_of, lsn_text
from freshet.pipeline.postgres.publications import (
    LakeTargets,
    PublishedTable,
    PublishedTables,
    narrowed_problems,
    rekeyed_problems,
    remade_problems,
    taken_tables,
)
from freshet.pipeline.postgres.server import ServerPlace
from freshet.pipeline.postgres.slots import identify, refuse_identity, refuse_slot, slot_named

_COPY = "copy"


@dataclass(frozen=True)
class PostgresOffset:
    """The end of the last transaction, and how many numbers records had until there. `copy` is None once the log is
    past all that its chunks can hold."""

    slot: str
    systemid: str
    timeline: int
    lsn: int
    changes: int
    copy: CopyState | None = None

    @classmethod
    def of(cls, text: str) -> PostgresOffset:
        """What `text` has written."""
        document = json.loads(text)
        copy = document.get(_COPY)
        return cls(
            document[SLOT],
            document["systemid"],
            document["timeline"],
            lsn_of(document["lsn"]),
            document[CHANGES],
            None if copy is None else CopyState.of_document(copy),
        )

    @property
    def text(self) -> str:
        """The form in a checkpoint."""
        document = {SLOT: self.slot, "systemid": self.systemid, "timeline": self.timeline, "lsn": lsn_text(self.lsn)}
        own = {} if self.copy is None else {_COPY: self.copy.to_document()}
        return json.dumps({**document, CHANGES: self.changes, **own}, separators=(",", ":"))


def quiet_name(index: int) -> str:
    """The file of a checkpoint that says how far its source has confirmed where there was nothing to read."""
    return f"postgres-{index}-quiet"


def known_quiet(folder: CheckpointFolder, index: int) -> int:
    """The position up to which nothing came; 0 where there is none."""
    text = folder.read(quiet_name(index))
    return 0 if text is None else lsn_of(text.strip())


def ended_name(index: int) -> str:
    """The file of a checkpoint that says that its source has copied all, and nothing follows."""
    return f"postgres-{index}-ended"


def published_name(index: int) -> str:
    """The file of a checkpoint that says what the publication had when it was last looked at."""
    return f"postgres-{index}-published"


def published_before(folder: CheckpointFolder, index: int) -> PublishedTables:
    """What it says."""
    document = json.loads(folder.read(published_name(index)) or "[]")
    return {(schema, table): PublishedTable(*each) for schema, table, *each in document}


def lake_key(config: PipelineConfig, index: int) -> frozenset[str]:
    """The columns of a source's tables that the key of the pipeline's table is made of; none where `sync` compares keys
    itself, table by table."""
    return frozenset() if isinstance(config, SyncPipelineConfig) else plan_decoding(config, index).key_fields


def write_published(folder: CheckpointFolder, index: int, tables: PublishedTables) -> None:
    """Has it say these tables."""
    folder.replace(published_name(index), json.dumps([[*name, *each] for name, each in tables.items()]))


def going_on_problem(config: PipelineConfig, index: int, source: PostgresConfig, targets: LakeTargets) -> str | None:
    """Why the next run of a source cannot go on; None where it can, or begins. Raises `PipelineFailedError` where the
    server cannot be asked, `ConfigurationError` or `OSError` where the checkpoint cannot be read."""
    folder = pipeline_checkpoint(config)
    lines = finished_lines(folder)
    text = lines[index] if index < len(lines) else folder.read("sources", str(index), "0")
    if not text or not text.startswith("{") or folder.read(ended_name(index)) is not None:
        return None
    begun, place = PostgresOffset.of(text), ServerPlace.of(source)
    with place.session() as session:
        slot = slot_named(session, source.slot)
        before = published_before(folder, index)
        now = targets.sent(session.info.dbname, taken_tables(session, source))
        changed = [*narrowed_problems(session, source, before, now), *remade_problems(source, before, now)]
        changed += rekeyed_problems(lake_key(config, index), before, now)
        changed += [] if source.snapshot == "never" else targets.problems(before, now)
    with place.session(replication=True) as connection:
        identity = identify(connection)
    try:
        refuse_identity(identity, begun.systemid, begun.timeline, place, begun.lsn)
        refuse_slot(slot, source.slot, identity, begun.lsn, known_quiet(folder, index))
    except PipelineFailedError as error:
        return str(error)
    return "\n".join(changed) or None


def going_on_problems(
    configs: Sequence[PipelineConfig], targets_of: Callable[[PipelineConfig], LakeTargets] = lambda _: LakeTargets()
) -> list[Problem]:
    """The same of all sources of these pipelines, at their keys."""
    return [
        config.origin.placed(Problem(key_path, text))
        for config in configs
        for key_path, source in sources_of(config)
        if (text := going_on_problem(config, int(key_path[1]), source, targets_of(config))) is not None
    ]
