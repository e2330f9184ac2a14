"""What the workers are told of a round: how records become rows of its tables, and the tasks that write them.

It travels by `KeptValue`: what is the same as in the round before is not sent again.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import Final

from freshet.pipeline.decode.expectations import lacking_column
from freshet.pipeline.decode.outcome_batches import outcome_schema
from freshet.pipeline.decode.outcomes import DATA_PREFIX
from freshet.pipeline.decode.plan import DecodePlan
from freshet.pipeline.decode.source_table import SourceTable
from freshet.pipeline.query.task.batch_work import BatchWork, TableWork
from freshet.pipeline.query.wire.kept_value import KeptValue
from freshet.pipeline.query.wire.packed_rows import PackRule
from freshet.pipeline.sync.known_tables import KnownTables, Target
from freshet.pipeline.sync.ledger import APART
from freshet.pipeline.sync.many_decoder import ManyDecoder
from freshet.pipeline.sync.many_plan import HELD, LEFT, NOTHING, Held, ManyPlan
from freshet.pipeline.sync.table_decoding import TableDecoding, nameless_plan, plan_table
from freshet.storage.table import Table, TableHandle

_STEP: Final = 7
"""Bucket 0 of the tables goes to different tasks."""


class RoundWork:
    """The plans and tasks of one run. `task_count` tasks write each batch."""

    def __init__(self, known: KnownTables, dead_letters: Table, task_count: int) -> None:
        self._known = known
        self._config = known.config
        self._dead_letters = dead_letters.handle
        self._task_count = task_count
        self._nameless = nameless_plan(known.config)
        self._kept: KeptValue[BatchWork] | None = None
        self._unjudged: set[tuple[str, str]] = set()

    def plan(self, targets: Sequence[Target], without_table: Set[SourceTable]) -> ManyPlan:
        """What the decoders know of a round of these tables, and of source tables that have none."""
        tables: dict[SourceTable, TableDecoding | Held] = {}
        rules = [PackRule((), False, self._task_count)]
        for number, target in enumerate(targets, 1):
            decoding = self._decoding(target, number)
            rules.append(self._rule(target, number))
            tables |= dict.fromkeys(target.sources, decoding)
        for row in self._known.state.rows.values():
            if row.state == APART and row.table_name not in self._known.targets:
                tables |= dict.fromkeys(row.source_tables, Held(HELD))
        tables |= dict.fromkeys(self._known.left - tables.keys(), Held(LEFT))
        tables |= dict.fromkeys(without_table, Held(NOTHING, is_nothing=True))
        sync = self._config.sync
        is_followed = sync.schema_evolution != "ignore"
        guesses = sync.of_schema == "infer"
        return ManyPlan(
            sync,
            self._nameless,
            tables,
            tuple(rules),
            is_followed,
            guesses,
            only=self._known.only,
            is_replay=self._known.is_replay,
        )

    def work(self, targets: Sequence[Target], without_table: Set[SourceTable]) -> KeptValue[BatchWork]:
        """All that is sent to the workers for a round of these tables, the ledger first."""
        ledger = self._known.ledger.table
        tables = {0: self._table(ledger.handle, ledger.schema.column_names, 1, 0, self._nameless)}
        for number, target in enumerate(targets, 1):
            plan = self._decoding(target, number).plan
            table = target.commit.table
            is_routed = self._has_buckets(target)
            bucket_count = table.options.bucket if is_routed else None
            tables[number] = self._table(table.handle, table.schema.column_names, bucket_count, number, plan)
        work = BatchWork({0: ManyDecoder(self.plan(targets, without_table))}, tables)
        self._kept = KeptValue(work) if self._kept is None else self._kept.following(work)
        return self._kept

    def _decoding(self, target: Target, number: int) -> TableDecoding:
        spellings = tuple(sorted(target.spellings.items()))
        identity = (target.commit.table.schema.id, number, frozenset(target.passed_over), spellings)
        if target.planned is None or target.planned[0] != identity:
            schema = target.commit.table.schema
            passed_over = frozenset(target.passed_over)
            planned = plan_table(self._config, target.route, schema, number, passed_over, dict(target.spellings))
            self._say_unjudged(target)
            target.planned = (identity, planned)
        return target.planned[1]

    def _say_unjudged(self, target: Target) -> None:
        """Says once which rules of `expect` wait for a column."""
        for rule, expected in target.route.expect.items():
            column = lacking_column(target.commit.table.schema.by_name, expected.sql)
            if column is not None and (target.name, rule) not in self._unjudged:
                self._unjudged.add((target.name, rule))
                text = f"table {target.name} has no column {column}: the rule {rule} of expect waits until it has one"
                self._known.events.append(text)

    def _rule(self, target: Target, number: int) -> PackRule:
        schema = target.commit.table.schema
        indexes = {name: index for index, name in enumerate(schema.column_names)}
        columns = tuple(f"{DATA_PREFIX}{indexes[name]}" for name in schema.partition_keys)
        return PackRule(columns, self._has_buckets(target), self._task_count, number * _STEP)

    @staticmethod
    def _has_buckets(target: Target) -> bool:
        """Whether the decoder's bucket is the row's. Else one task gets all rows of a partition, and finds it."""
        table = target.commit.table
        return table.options.bucket > 0 and not table.engine.is_rescaled()

    def _table(
        self, handle: TableHandle, columns: Sequence[str], bucket_count: int | None, number: int, plan: DecodePlan
    ) -> TableWork:
        return TableWork(
            table=handle,
            pipeline=self._config.name,
            columns=tuple(columns),
            bucket_count=bucket_count,
            schema=outcome_schema(plan),
            dead_letters=self._dead_letters,
            number=number,
        )
