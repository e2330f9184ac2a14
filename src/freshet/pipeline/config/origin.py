"""Where the values of a pipeline file are written: the file, and the line of each key."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from freshet.pipeline.exceptions import KeyPath, Problem


@dataclass(frozen=True, slots=True)
class Origin:
    """One file. A config that was made from values alone has no path."""

    path: str | None = None
    lines: Mapping[KeyPath, int] = field(default_factory=dict)

    def placed(self, problem: Problem) -> Problem:
        """The problem with its place: the line of the innermost of its keys that is in the file."""
        keys = problem.key_path
        ends = range(len(keys), -1, -1)
        line = next((self.lines[keys[:end]] for end in ends if keys[:end] in self.lines), None)
        return replace(problem, path=self.path, line=line)
