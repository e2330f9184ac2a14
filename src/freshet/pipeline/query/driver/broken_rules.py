"""What records that break rules of `expect` mean for their batch: whether it may be committed, and what is counted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from freshet._frozen import Frozen
from freshet.pipeline.config.expectations import Expectation
from freshet.pipeline.decode.outcomes import REASON
from freshet.pipeline.query.wire.dead_letter_sample import places_text
from freshet.pipeline.query.wire.task_result import TaskResult, rule_key


class TableRules(Frozen):
    """The rules of one table of a round. `name` is empty where the query has one table, of which all records are."""

    name: str
    rules: Mapping[str, Expectation]

    def shown(self, rule: str) -> str:
        """What a rule is called where it is counted."""
        return f"{self.name}.{rule}" if self.name else rule


def _broken(result: TaskResult, tables: Sequence[TableRules]) -> Iterator[tuple[int, TableRules, str, int]]:
    for number, table in enumerate(tables):
        for rule in table.rules:
            count = result.broken.get(rule_key(number, rule), 0)
            if count:
                yield number, table, rule, count


def broken_counts(result: TaskResult, tables: Sequence[TableRules]) -> dict[str, int]:
    """Records that break a rule, by what it is called."""
    return {table.shown(rule): count for _, table, rule, count in _broken(result, tables)}


def _otherwise(is_over: bool) -> str:
    return "a larger share takes such a batch" if is_over else "with or: quarantine such records become dead letters"


def stopping_text(result: TaskResult, tables: Sequence[TableRules], *, judges_shares: bool) -> str | None:
    """Why the batch must not be committed, with the first records that say so; None where it may be."""
    for number, table, rule, count in _broken(result, tables):
        expected = table.rules[rule]
        records = result.of_tables.get(str(number), 0) if table.name else result.read_count
        is_over = judges_shares and expected.is_exceeded(count, records)
        if expected.action != "stop" and not is_over:
            continue
        key = rule_key(number, rule)
        first = [row for row in result.first_broken if row[REASON] == key]
        of = f"of the {records} records of the batch{f' for table {table.name}' if table.name else ''}"
        why = f"which is more than share: {expected.share:g}" if is_over else "and it says or: stop"
        return (
            f"{count} {of} {'breaks' if count == 1 else 'break'} the rule {rule} of expect ({expected.sql}), {why}; "
            f"nothing was committed, the dead letters neither. The first are:\n{places_text(first)}\n"
            f"Correct the records at their source or the rule, then start again; {_otherwise(is_over)}"
        )
    return None
