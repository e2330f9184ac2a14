"""The part of `freshet resume` and `freshet resync` that needs an engine."""

from __future__ import annotations

from freshet.pipeline.commands.engine_jobs import OpenJobs
from freshet.pipeline.commands.output import complain
from freshet.pipeline.config.sync import SyncPipelineConfig
from freshet.pipeline.sync.resume import Resumed, held_back, resume_table

__all__ = ["held_back", "resume"]


def resume(config: SyncPipelineConfig, table: str, open_jobs: OpenJobs, *, anew: bool) -> Resumed:
    """Brings a table up on the engine of its file."""
    with open_jobs(config, "resume") as jobs:
        return resume_table(jobs, config, table, anew=anew, say=complain)
