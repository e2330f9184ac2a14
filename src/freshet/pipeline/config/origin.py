"""Where the values of a pipeline file are written: the file, and the line of each key."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from freshet._frozen import Frozen, field
from freshet.pipeline.exceptions import KeyPath, Problem


class Origin(Frozen):
    """One file. A config that was made from values alone has no path."""

    path: str | None = None
    lines: Mapping[KeyPath, int] = field(default_factory=dict)
    renamed: tuple[tuple[KeyPath, KeyPath], ...] = ()
    """Keys that the file has elsewhere than the model: the first pair whose keys a path begins with counts."""

    def placed(self, problem: Problem) -> Problem:
        """The problem with its place: the line of the innermost of its keys that is in the file."""
        keys = self.as_written(problem.key_path)
        ends = range(len(keys), -1, -1)
        line = next((self.lines[keys[:end]] for end in ends if keys[:end] in self.lines), None)
        return replace(problem, key_path=keys, path=self.path, line=line)

    def as_written(self, keys: KeyPath) -> KeyPath:
        """The keys as the file has them."""
        for model, written in self.renamed:
            if keys[: len(model)] == model:
                return (*written, *keys[len(model) :]) if len(model) > 1 else written
        return keys
