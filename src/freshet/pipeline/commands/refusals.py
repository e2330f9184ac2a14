"""Pipelines that are refused before they start, beside others that run all the same (`freshet run --keep-going`)."""

from __future__ import annotations

from collections.abc import Sequence

from freshet.pipeline.commands.output import complain
from freshet.pipeline.config.model import PipelineConfig
from freshet.pipeline.exceptions import ConfigurationError, Problem


class Refusals:
    """Those of one call."""

    def __init__(self, *, keeps_going: bool) -> None:
        self.keeps_going = keeps_going
        self._problems: list[Problem] = []

    def left(self, configs: Sequence[PipelineConfig], problems: Sequence[Problem]) -> list[PipelineConfig]:
        """The pipelines whose files have no problem. Raises `ConfigurationError` where none is left, or all end."""
        files = {problem.path for problem in problems}
        left = [config for config in configs if config.origin.path not in files]
        if problems and (not self.keeps_going or None in files or not left):
            raise ConfigurationError([*self._problems, *problems])
        self._problems += problems
        for problem in problems:
            complain(f"refused, the others go on: {problem}")
        return left

    def raise_any(self) -> None:
        """Raises `ConfigurationError` with what was refused, now that the others have ended."""
        if self._problems:
            raise ConfigurationError(self._problems)
