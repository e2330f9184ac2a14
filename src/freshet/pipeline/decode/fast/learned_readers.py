"""The fast readers of one source, made from what its records have shown: schemas, JSON types of fields, unknown fields.

What many careful records of a block have in common is learned, and the next readers take it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from itertools import chain
from typing import Any, Final

from freshet.pipeline.decode import raw_records
from freshet.pipeline.decode.careful import CarefulReader, UnknownFields
from freshet.pipeline.decode.change import Change, Dead, Several, changes_of
from freshet.pipeline.decode.fast.reader import FastReader
from freshet.pipeline.decode.fast.schemas_seen import Group, SchemasSeen, schema_prefix
from freshet.pipeline.decode.fast.structs import Slot, can_be_member, can_refuse_tables
from freshet.pipeline.decode.images import RowIndexes
from freshet.pipeline.decode.inputs import FactsKey, facts_key
from freshet.pipeline.decode.json_value import kind_of
from freshet.pipeline.decode.plan import DecodePlan
from freshet.pipeline.decode.record_block import RecordBlock
from freshet.pipeline.decode.source_table import ADDED_NAMES, SourceTable
from freshet.pipeline.decode.tables_seen import TablesSeen

_SAMPLE: Final = 64
"""Careful records of a block that are examined for what they have in common."""
_CAREFUL_FEW: Final = 8
"""Up to so many careful records, none are examined."""
_LEARN_SHARE: Final = 0.02
"""Share of a block that must have something in common before the fast path takes it."""
_DETOUR_SHARE: Final = 0.25
"""The same for records that are read by a detour: that costs a second decode, where a field that the fast path takes in
every form costs each of its values."""
_UNKNOWN_MAX: Final = 500
"""Names of unknown fields that the fast path takes."""
_NEVER_LEARNED: Final = frozenset({"event_count", "data_collections", "databaseName", "ts_ms", "schema", "payload"})
"""Names by which flat records are known to be no rows."""


class LearnedReaders:
    """The readers by the facts of the records' schemas."""

    def __init__(self, plan: DecodePlan, careful: CarefulReader, tables: TablesSeen) -> None:
        self._plan, self._careful, self._tables = plan, careful, tables
        self._schemas = SchemasSeen()
        self._kinds: dict[Slot, frozenset[str]] = {}
        self._unknown: dict[str, None] = {}
        self._readers: dict[tuple[FactsKey, tuple[SourceTable] | None], FastReader] = {}

    def groups(self, block: RecordBlock, indexes: RowIndexes) -> list[Group]:
        """The records at these indexes, whose values are not NULL, by the schema in front of them."""
        return self._schemas.groups(block, indexes)

    def reader(self, facts: FactsKey, presumed: tuple[SourceTable] | None = None) -> FastReader:
        """The reader of records under these facts; with `presumed`, it takes those of this table alone."""
        found = self._readers.get((facts, presumed))
        if found is None:
            inputs = self._careful.inputs(facts)
            only = presumed or self._tables.only_of(inputs, self._kinds)
            found = FastReader(self._plan, inputs, self._kinds, list(self._unknown), only=only)
            self._readers[facts, presumed] = found
        return found

    def can_refuse_tables(self) -> bool:
        """Whether readers of records without a schema can take those of one table alone."""
        return can_refuse_tables(self._plan, self._careful.inputs(None), self._kinds)

    def renew(self) -> None:
        """The next readers are made from what is known now."""
        self._readers.clear()

    def learn(self, block: Any, careful: RowIndexes, detoured: RowIndexes, count: int) -> bool:
        """True when the next readers take what many of these records of a block of `count` have in common."""
        return self._learn_from(block, careful, count, _LEARN_SHARE) or self._learn_from(
            block, detoured, count, _DETOUR_SHARE
        )

    def _learn_from(self, block: Any, careful: RowIndexes, count: int, share: float) -> bool:
        """Examines some of these records; a form that `share` of the block has is learned."""
        if len(careful) <= max(_CAREFUL_FEW, count * share):
            return False
        sample = careful[:: max(1, len(careful) // _SAMPLE)][:_SAMPLE]
        kinds: Counter[tuple[Slot, str]] = Counter()
        unknown: Counter[str] = Counter()
        prefixes: Counter[tuple[bytes, FactsKey]] = Counter()
        others = 0
        for record in raw_records.each_of(block, sample):
            reading = self._careful.read(record)
            if self._tables.is_other(reading):
                others += 1
                continue
            # What becomes a dead letter takes the careful path in any case.
            if not isinstance(reading, Change | Several) or isinstance(
                self._careful.rows(reading), Dead | UnknownFields
            ):
                continue
            changes = changes_of(reading)
            kinds.update(set().union(*map(self._kinds_in, changes)))
            unknown.update(list(dict.fromkeys(chain.from_iterable(map(self._unknown_in, changes)))))
            facts = changes[0].facts
            prefix = schema_prefix(record.value) if record.value is not None and facts is not None else None
            if prefix is not None:
                prefixes[prefix, facts_key(self._plan, facts)] += 1
        least = count * share * len(sample) / len(careful)
        if others and others >= least:
            self._tables.mix()
            self.renew()
            return True
        return self._take(kinds, unknown, prefixes, least)

    def _take(
        self,
        kinds: Mapping[tuple[Slot, str], int],
        unknown: Mapping[str, int],
        prefixes: Mapping[tuple[bytes, FactsKey], int],
        least: float,
    ) -> bool:
        learned = False
        for (prefix, facts), seen in prefixes.items():
            if seen >= least:
                learned |= self._schemas.learn(prefix, facts)
        if learned:
            return True
        for (slot, kind), seen in kinds.items():
            known = self._kinds.get(slot, frozenset())
            if seen >= least and kind not in known:
                self._kinds[slot] = known | {kind}
                learned = True
        for name, seen in unknown.items():
            if seen >= least and len(self._unknown) < _UNKNOWN_MAX and name not in self._unknown:
                self._unknown[name] = None
                learned = True
        if learned:
            self.renew()
        return learned

    def _kinds_in(self, change: Change) -> set[tuple[Slot, str]]:
        found = set()
        source = change.source if isinstance(change.source, dict) else {}
        for each in self._careful.inputs(None).all:
            slot = (each.is_member, each.name)
            given = [source] if each.is_member else [change.image, change.before or {}]
            for members in given:
                value = members.get(each.name)
                if value is not None:
                    found.add((slot, kind_of(value)))
        return found

    def _unknown_in(self, change: Change) -> list[str]:
        if self._plan.fails_on_unknown:
            return []
        names = dict.fromkeys([*change.image, *(change.before or {})])
        known = {each.name for each in self._plan.fields} | {self._plan.kind_field}
        never = _NEVER_LEARNED.union(ADDED_NAMES) if self._plan.format == "debezium-unwrapped" else frozenset()
        if self._careful.spelled is not None:  # the careful path says what they are
            known |= {name for name in names if self._careful.spelled.may_have(name)}
        return [name for name in names if name not in known and name not in never and can_be_member(name)]
