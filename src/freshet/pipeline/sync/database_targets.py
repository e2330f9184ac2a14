"""Where the rules of a pipeline file send the tables of a database, as a checkpoint remembers it."""

from __future__ import annotations

from freshet.pipeline.config.catalogs import target_catalog
from freshet.pipeline.config.model import PipelineConfig
from freshet.pipeline.config.sync import SyncPipelineConfig
from freshet.pipeline.decode.source_table import SourceTable
from freshet.pipeline.postgres.publications import LakeTargets
from freshet.pipeline.sync.routes import Route, route_of


def targets_of(config: PipelineConfig) -> LakeTargets:
    """LakeTargets of a pipeline of many tables; not known of one of one table."""
    if not isinstance(config, SyncPipelineConfig):
        return LakeTargets()

    def target(database: str, schema: str, table: str) -> str:
        route = route_of(config.sync, SourceTable(database, schema, table))
        return route.target if isinstance(route, Route) else ""

    def is_renamed(before: str, now: str) -> bool:
        catalog = target_catalog(config)
        return bool(before) and catalog.has_table(now) and not catalog.has_table(before)

    return LakeTargets(target, is_renamed)
