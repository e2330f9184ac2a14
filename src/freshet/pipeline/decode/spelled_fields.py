"""Fields that differ from those of the plan in the case of their letters alone: the source has renamed its column.

A record that has a field of the plan by its name is read as it is. Where it lacks the field, the one that is called so
without regard to case stands in its place; of two nobody knows which it is, and the record is a dead letter.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any

from freshet.pipeline.decode.change import Change, Dead, Reading, Several


class SpelledFields:
    """The fields of a plan, by their names without regard to case."""

    def __init__(self, names: Iterable[str]) -> None:
        self._by_lower: dict[str, list[str]] = {}
        for name in names:
            self._by_lower.setdefault(name.lower(), []).append(name)

    def may_have(self, name: str) -> bool:
        """Whether a field that is none of the plan's is called like one."""
        return name.lower() in self._by_lower

    def found(self, names: Collection[str]) -> Mapping[str, str] | Dead:
        """The fields of the plan by the names that a record of these names has for them, where those are others."""
        found: dict[str, str] = {}
        taken: dict[str, str] = {}
        for name in names:
            fields = self._by_lower.get(name.lower(), ())
            if name in fields:
                continue
            missing = [each for each in fields if each not in names]
            for each in missing:
                first = taken.setdefault(each, name)
                if first != name or len(missing) > 1:
                    both = (first, name) if first != name else tuple(missing[:2])
                    return Dead(f"fields {both[0]} and {both[1]} differ in the case of their letters alone", each)
                found[name] = each
        return found

    def reading(self, reading: Reading) -> Reading:
        """What a record says, by the names of the plan."""
        if isinstance(reading, Change):
            return self._change(reading)
        if not isinstance(reading, Several):
            return reading
        changes = []
        for each in reading.changes:
            change = self._change(each)
            if isinstance(change, Dead):
                return change
            changes.append(change)
        return Several(tuple(changes))

    def _change(self, change: Change) -> Change | Dead:
        names = self.found({**change.image, **(change.before or {})})
        if isinstance(names, Dead):
            return replace(names, source=change.source)
        if not names:
            return change
        before = None if change.before is None else _renamed(change.before, names)
        facts = None if change.facts is None else _renamed(change.facts, names)
        return replace(change, image=_renamed(change.image, names), before=before, facts=facts)


def _renamed(members: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    return {names.get(name, name): value for name, value in members.items()}
