"""What is wrong with a table, by the rules of all that it is made of."""

from __future__ import annotations

from operator import attrgetter
from typing import Final

from freshet.storage.status.bucket_rules import BUCKET_RULES
from freshet.storage.status.compaction_rules import COMPACTION_RULES, READ_RULES
from freshet.storage.status.examination import Examination
from freshet.storage.status.finding import Finding, Rule, findings_of
from freshet.storage.status.reader_rules import READER_RULES
from freshet.storage.status.writer_rules import WRITER_RULES

RULES: Final[tuple[Rule[Examination], ...]] = (
    *COMPACTION_RULES,
    *READER_RULES,
    *BUCKET_RULES,
    *WRITER_RULES,
    *READ_RULES,
)
"""In the order in which one looks. A name may have several rules, of which one finds at most."""


def findings(facts: Examination, warehouse: str = "WAREHOUSE") -> list[Finding]:
    """What the rules find, the worst first; `warehouse` is its place, for the commands."""
    name = facts.status.name
    found = findings_of(RULES, facts, name, warehouse=warehouse, table=name)
    return sorted(found, key=attrgetter("severity.rank"))
