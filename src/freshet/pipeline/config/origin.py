"""Where the values of a pipeline file stand: the file, and the line of each key."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from freshet.pipeline.errors.error_kind import ErrorKind
from freshet.pipeline.exceptions import Problem

KeyPath = tuple[str | int, ...]
"""A path of keys and list indexes, for example ("sources", 0, "select", "total")."""

Finding = tuple[KeyPath, str] | tuple[KeyPath, str, ErrorKind]
"""Where something is wrong, and what; the kind where it is not the file."""


@dataclass(frozen=True, slots=True)
class Origin:
    """One file. A config that was made from values alone has no path."""

    path: str | None = None
    lines: Mapping[KeyPath, int] = field(default_factory=dict)

    def problem(self, key_path: KeyPath, message: str, kind: ErrorKind = ErrorKind.INVALID_REQUEST) -> Problem:
        """A problem at the innermost key of `key_path` that stands in the file."""
        ends = range(len(key_path), -1, -1)
        line = next((self.lines[key_path[:end]] for end in ends if key_path[:end] in self.lines), None)
        name = ".".join(str(part) for part in key_path)
        return Problem(f"{name}: {message}" if name else message, self.path, line, kind)
