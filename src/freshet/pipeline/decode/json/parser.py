"""The parser of records in JSON: readers made from what the records of a source have shown.

What many careful records of a block have in common is learned: schemas, JSON types of fields, unknown fields, tables.
The next readers take it. One lenient struct in place of that, all fields raw, takes ten times as long as a good record:
with every tenth record broken, decoding costs 2.0 times as much as of good ones alone, by detours 1.4.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from itertools import chain
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from freshet.pipeline.decode import raw_records, record_block
from freshet.pipeline.decode.careful import CarefulReader, UnknownFields
from freshet.pipeline.decode.change import Change, Dead, Several, changes_of
from freshet.pipeline.decode.evaluator import RecordParser
from freshet.pipeline.decode.images import Findings, Images, RowIndexes
from freshet.pipeline.decode.inputs import FactsKey, facts_key
from freshet.pipeline.decode.json.reader import FastReader
from freshet.pipeline.decode.json.schemas_seen import SchemasSeen, schema_prefix
from freshet.pipeline.decode.json.structs import Slot, can_be_member, can_refuse_tables
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
_LEARN_ROUNDS: Final = 4
_UNKNOWN_MAX: Final = 500
"""Names of unknown fields that the fast path takes."""
_NEVER_LEARNED: Final = frozenset({"event_count", "data_collections", "databaseName", "ts_ms", "schema", "payload"})
"""Names by which flat records are known to be no rows."""
_OTHER_MARKS: Final = ({"event_count", "data_collections"}, {"source", "databaseName"}, {"schema", "payload"})
"""Names that such records have together: a row with fields of these names takes the careful path."""


class JsonParser(RecordParser):
    """Reads the records of one source."""

    def __init__(self, plan: DecodePlan, careful: CarefulReader, tables: TablesSeen) -> None:
        self._plan, self._careful, self._tables = plan, careful, tables
        self._schemas = SchemasSeen()
        self._kinds: dict[Slot, frozenset[str]] = {}
        self._unknown: dict[str, None] = {}
        self._readers: dict[tuple[FactsKey, tuple[SourceTable] | None], FastReader] = {}
        names = {each.name for each in plan.fields}
        is_flat = plan.format == "debezium-unwrapped"
        read = {each.name for each in careful.inputs(None).all} | {plan.kind_field or ""}
        looks_like_others = is_flat and any(marks <= names for marks in _OTHER_MARKS)
        self._is_unfit = looks_like_others or not all(map(can_be_member, read))
        self._heartbeats = is_flat and "ts_ms" in names

    def read(self, block: RecordBlock, indexes: RowIndexes, findings: Findings) -> tuple[list[Images], RowIndexes]:
        if self._is_unfit:
            return [], indexes
        for _ in range(_LEARN_ROUNDS):
            images, careful, detoured, read = self._read_once(block, indexes)
            if not self._learn(block, careful, detoured, len(indexes)):
                break
        if self._tables.decide():
            self._readers.clear()
        findings.skipped.update(read.skipped)
        findings.dead.update(read.dead)
        findings.tables.update(read.tables)
        return images, careful

    def _read_once(
        self, block: RecordBlock, indexes: RowIndexes
    ) -> tuple[list[Images], RowIndexes, RowIndexes, Findings]:
        able, careful = self._readable(block, indexes)
        images: list[Images] = []
        found = Findings()
        left, detoured = [careful], [careful[:0]]
        for group in self._schemas.groups(block, able):
            reader = self._reader(group.facts)
            if self._tables.must_sort(reader.only, self._careful.inputs(group.facts)):
                group, unread = self._tables.sort(group, found)
                left.append(unread)
            read = reader.read(group.values, group.indexes)
            self._tables.read_alone(reader.only, group.indexes, read.careful, found)
            left.append(read.careful)
            detoured.append(read.detoured)
            found.skipped.update(read.skipped)
            found.dead.update(read.dead)
            images += read.images
        return images, np.sort(np.concatenate(left)), np.sort(np.concatenate(detoured)), found

    def _readable(self, block: RecordBlock, indexes: RowIndexes) -> tuple[RowIndexes, RowIndexes]:
        """The indexes of values that are there and UTF-8 throughout, and the others."""
        there = block.present() if self._plan.format == "debezium-unwrapped" else indexes
        able = np.zeros(block.num_rows, bool)
        able[there] = True
        able[block.broken_texts(there)] = False
        if self._heartbeats:
            keys = block.column(raw_records.KEY).cast(pa.large_binary())
            marked = pc.match_substring(keys, b'"serverName"').fill_null(False)
            able &= ~marked.to_numpy(zero_copy_only=False)
        return np.flatnonzero(able), indexes[~able[indexes]]

    # --- records of one table alone -----------------------------------------------------------------------------------

    def can_presume(self) -> bool:
        return not self._is_unfit and can_refuse_tables(self._plan, self._careful.inputs(None), self._kinds)

    def read_presumed(
        self, block: RecordBlock, table: SourceTable, findings: Findings
    ) -> tuple[list[Images], RowIndexes]:
        able, left = self._readable(block, block.present())
        read = self._reader(None, (table,)).read(block.values(able), able)
        findings.skipped.update(read.skipped)
        findings.dead.update(read.dead)
        return list(read.images), np.concatenate([left, read.careful])

    # --- readers and what they are made from --------------------------------------------------------------------------

    def _reader(self, facts: FactsKey, presumed: tuple[SourceTable] | None = None) -> FastReader:
        """The reader of records under these facts; with `presumed`, it takes those of this table alone."""
        found = self._readers.get((facts, presumed))
        if found is None:
            inputs = self._careful.inputs(facts)
            only = presumed or self._tables.only_of(inputs, self._kinds)
            found = FastReader(self._plan, inputs, self._kinds, list(self._unknown), only=only)
            self._readers[facts, presumed] = found
        return found

    def _learn(self, block: RecordBlock, careful: RowIndexes, detoured: RowIndexes, count: int) -> bool:
        """True when the next readers take what many of these records of a block of `count` have in common."""
        return self._learn_from(block, careful, count, _LEARN_SHARE) or self._learn_from(
            block, detoured, count, _DETOUR_SHARE
        )

    def _learn_from(self, block: RecordBlock, careful: RowIndexes, count: int, share: float) -> bool:
        """Examines some of these records; a form that `share` of the block has is learned."""
        if len(careful) <= max(_CAREFUL_FEW, count * share):
            return False
        sample = careful[:: max(1, len(careful) // _SAMPLE)][:_SAMPLE]
        kinds: Counter[tuple[Slot, str]] = Counter()
        unknown: Counter[str] = Counter()
        prefixes: Counter[tuple[bytes, FactsKey]] = Counter()
        others = 0
        for record in record_block.each_of(block, sample):
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
            self._readers.clear()
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
            self._readers.clear()
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
