"""What one look sees, of pipelines and of tables: the value that `freshet status` and metrics show."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from freshet._frozen import Frozen

if TYPE_CHECKING:  # a look at tables loads nothing of pipelines
    from freshet.pipeline.running.pipeline_status import PipelineStatus
    from freshet.storage.status.table_status import TableStatus


class Seen(Frozen):
    """Pipelines, and tables that were asked for by themselves, at a moment."""

    pipelines: Sequence[PipelineStatus] = ()
    tables: Sequence[TableStatus] = ()
    warehouse: str | None = None
    """Where these are all tables."""

    @property
    def is_behind(self) -> bool:
        """Whether something of it is behind."""
        return any(each.is_behind for each in self.pipelines) or any(each.is_behind for each in self.tables)
