"""Which batches the targets of source tables have."""

from __future__ import annotations

from freshet.pipeline.config.catalogs import target_catalog
from freshet.pipeline.config.sync import SyncPipelineConfig
from freshet.pipeline.decode.source_table import SourceTable
from freshet.pipeline.sync.routes import Route, route_of


def last_batch_of(config: SyncPipelineConfig, source: SourceTable) -> int | None:
    """The last batch of a pipeline that the target of a source table has; None where there is none."""
    route, catalog = route_of(config.sync, source), target_catalog(config)
    if not isinstance(route, Route) or not catalog.has_table(route.target):
        return None
    last = catalog.table(route.target).engine.committer(config.name).last_commit()
    return None if last is None else last.identifier
