"""What a finding is, and how a rule gives one: a line of a table, and a function that gives a number.

A rule looks at the facts of one thing, a table or a pipeline. Its texts are written once, with names of `Sign.words` in
braces; `findings_of` fills them in. One cause is one finding: where nobody compacts, the files at level 0 are not
another. `note` is what to know before other programs read the table; it is no reason to act.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any, Generic, TypeVar

import msgspec

from freshet._frozen import Frozen, field

F = TypeVar("F")


class Severity(StrEnum):
    """The worst first."""

    ERROR = "error"
    """Readers or writers get something wrong, or nothing."""
    WARNING = "warning"
    """It costs more with time."""
    NOTE = "note"

    @property
    def rank(self) -> int:
        """Sorts the worst first."""
        return list(Severity).index(self)


class Finding(Frozen):
    """One thing that is wrong with a table. `evidence` is a number of what `unit` says; `command` mends it, None where
    no single one does."""

    table: str
    """`database.table`; of a pipeline its name, of what programs here need `this machine`."""
    name: str
    severity: Severity
    evidence: int | float
    unit: str
    cause: str
    remedy: str
    command: str | None

    @property
    def asks_to_act(self) -> bool:
        """False for a note."""
        return self.severity is not Severity.NOTE

    def with_arguments(self, text: str) -> Finding:
        """The same, with this behind its command."""
        return self if self.command is None else msgspec.structs.replace(self, command=self.command + text)

    def facts(self) -> dict[str, Any]:
        """The same for JSON."""
        found: dict[str, Any] = msgspec.to_builtins(self)
        return found


class Sign(Frozen):
    """What a rule has seen: the evidence, and what its texts name."""

    evidence: int | float
    words: Mapping[str, object] = field(default_factory=dict)


class Rule(Frozen, Generic[F]):
    """One thing that can be wrong. The texts are for `str.format`; `command` is words, each filled in by itself."""

    name: str
    severity: Severity
    sees: Callable[[F], Sign | int]
    """The sign; a plain number is evidence without words, and none where it is 0."""
    unit: str
    cause: str
    remedy: str
    command: tuple[str, ...] = ()


def findings_of(rules: Sequence[Rule[F]], facts: F, of: str, **words: str) -> Iterator[Finding]:
    """What the rules find of one thing; `words` are what all texts may name."""
    for rule in rules:
        seen = rule.sees(facts)
        if not seen:
            continue
        sign = seen if isinstance(seen, Sign) else Sign(seen)
        known = {**words, **sign.words}
        command = shlex.join(["freshet", *(word.format(**known) for word in rule.command)]) if rule.command else None
        unit, cause, remedy = (text.format(**known) for text in (rule.unit, rule.cause, rule.remedy))
        yield Finding(of, rule.name, rule.severity, sign.evidence, unit, cause, remedy, command)


def cannot_be_read(table: str, error: Exception, warehouse: str) -> Finding:
    """The finding of a table whose files say nothing to the rules."""
    return Finding(
        table,
        "cannot be read",
        Severity.ERROR,
        1,
        "table that no rule could look at",
        str(error),
        "Restore what is damaged from a copy, or mend what keeps it from being read; check-table looks for more",
        shlex.join(["freshet", "check-table", warehouse, table]),
    )
