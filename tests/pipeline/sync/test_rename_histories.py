"""Random histories of a source whose columns get other names: in the end the table has its names and rows, whatever
came late, and whoever died in between. The source is the oracle. No Spark."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from freshet import Catalog
from freshet.pipeline.batch.dead_letters import open_dead_letters
from freshet.pipeline.batch.many_tables import ROUNDS_MAX
from freshet.pipeline.batch.packed_rows import unpacked
from freshet.pipeline.config.sync import LEDGER_COLUMNS, LEDGER_KEY, SyncPipelineConfig
from freshet.pipeline.decode.outcome_batches import outcome_schema
from freshet.pipeline.decode.outcomes import TAG, TAG_TALLY, SeenSchema, Tally
from freshet.pipeline.decode.schema_changes import FoundRenames
from freshet.pipeline.decode.source_table import SourceTable as SourceName
from freshet.pipeline.sync.ledger import LedgerRow, read_ledger, write_rows
from freshet.pipeline.sync.many_decoder import ManyDecoder
from freshet.pipeline.sync.many_plan import ManyPlan
from freshet.pipeline.sync.renames import Renames
from freshet.pipeline.sync.sync_tables import SyncTables
from freshet.storage.table_engine import CommitCheck
from tests.kit.hypothesis_profile import examples
from tests.kit.source_database import Row, SourceTable
from tests.pipeline.records import Record, raw_batch
from tests.pipeline.sync.kit import sync_config

LEDGER = "lake._freshet_ledger_shop"
NAMES = "abcde"
DELETE = 3

_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("row"), st.integers(0, 5), st.integers(0, 99)),
        st.tuples(st.just("rename"), st.integers(0, 4), st.integers(0, 4)),
        st.tuples(st.just("swap"), st.integers(0, 4), st.integers(0, 4)),
        st.tuples(st.just("add"), st.integers(0, 4), st.just(0)),
    ),
    max_size=25,
)


class World:
    """A warehouse, and what its one table holds: rows by key, values by the id of the column."""

    def __init__(self, folder: Path) -> None:
        config = sync_config(options={"bucket": 1}, schema_evolution="evolve")
        table = config.table.model_copy(update={"warehouse": str(folder)})
        self.config: SyncPipelineConfig = config.model_copy(update={"warehouse": str(folder), "table": table})
        self.catalog = Catalog(folder)
        self.catalog.create_table(LEDGER, schema=LEDGER_COLUMNS, primary_keys=[LEDGER_KEY], options={"bucket": "1"})
        self.dead_letters = open_dead_letters(self.catalog, "lake.dead_letters")
        self.held: dict[Any, dict[int, Any]] = {}
        self.offset = 0

    def write(self, number: int, records: Sequence[Record], *, dies: bool) -> None:
        """One batch; where it dies, another run finishes it."""
        tables = self._run(number)
        for _ in range(ROUNDS_MAX):
            tables.round(number, {})
            tally, rows = self._decoded(tables.plan(), records)
            assert tally.error is None
            if not tally.seen:
                break
            tables.follow(tally.seen, number, {})
            if dies:
                tables, dies = self._run(number), False
        else:
            pytest.fail(f"still new after {ROUNDS_MAX} rounds: {tally.seen}")
        assert tally.read == len(records)
        self.offset += len(records)
        if not self.catalog.has_table("lake.t"):
            return
        fields = self.catalog.table("lake.t").schema.fields
        for row in rows:
            assert not row["_reason"], row
            values = {column.id: row[f"_d{place}"] for place, column in enumerate(fields)}
            self.held.pop(values[0], None)
            if row["_kind"] != DELETE:
                self.held[values[0]] = values
        ledger = self.catalog.table(LEDGER)
        known = read_ledger(ledger).get("lake.t", LedgerRow("lake.t"))
        row = LedgerRow("lake.t", batch=number, renames=known.renames)
        write_rows(ledger, "shop", [row.with_sources([SourceName("shop", "public", "t")])])

    def _run(self, number: int) -> SyncTables:
        ledger = self.catalog.table(LEDGER)
        tables = SyncTables(self.config, ledger, self.dead_letters, 2)
        tables.begin(number, CommitCheck(is_committed=False, last=None, latest=ledger.latest_snapshot()), {})
        return tables

    def _decoded(self, plan: ManyPlan, records: Sequence[Record]) -> tuple[Tally, list[dict[str, Any]]]:
        schemas = {0: outcome_schema(plan.ledger)}
        schemas |= {each.index: outcome_schema(each.plan) for each in plan.tables.values() if hasattr(each, "plan")}
        tally, rows = Tally(), []
        for _, table, packed in ManyDecoder(plan)([raw_batch(records, first=self.offset)]):
            for row in unpacked(packed, schemas[table]).to_pylist():
                if row[TAG] == TAG_TALLY:
                    tally = Tally.decode(row["_raw_value"])
                else:
                    rows.append(row)
        return tally, sorted(rows, key=lambda row: (row["_offset"], row["_sub"]))

    def rows(self) -> dict[Any, Row]:
        names = {column.id: column.name for column in self.catalog.table("lake.t").schema.fields}
        return {key: {names[each]: values.get(each) for each in names} for key, values in self.held.items()}


def told(source: SourceTable, step: tuple[str, int, int], number: int) -> tuple[str, list[tuple[Any, Any]]]:
    """What the source tells of a step, and in which topic; nothing where it cannot be."""
    kind, one, other = step
    columns = [name for name in source.columns if name != "id"]
    free = [name for name in NAMES if name not in columns]
    match kind:
        case "row":
            if one == 0 and other % 2 in source.rows:
                return "t", list(source.delete(other % 2))
            return "t", list(source.upsert({"id": one, **{name: number * 10 + i for i, name in enumerate(columns)}}))
        case "rename" if free:
            return "shop", [source.rename_columns({columns[one % len(columns)]: free[other % len(free)]})]
        case "swap" if len(columns) > 1 and one % len(columns) != other % len(columns):
            first, second = columns[one % len(columns)], columns[other % len(columns)]
            return "shop", [source.rename_columns({first: second, second: first})]
        case "add" if free:
            source.add_column(free[one % len(free)], "int")
            return "shop", [source.schema_change(f"ALTER TABLE t ADD COLUMN {free[one % len(free)]} INT")]
    return "t", []


@settings(max_examples=examples(40))
@given(_STEPS, st.randoms(use_true_random=False))
def test_names_and_rows_are_those_of_the_source(steps: list[tuple[str, int, int]], chance: Any) -> None:
    """Rows of odd keys may come later than others, by whole batches; statements never come later than their rows."""
    source = SourceTable("shop", "public", "t", {"id": "int", "a": "int", "b": "int"})
    with TemporaryDirectory() as folder:
        world = World(Path(folder))
        batches: list[list[Record]] = [[]]
        late: list[Record] = []
        for number, step in enumerate([("row", 1, 1), *steps, ("row", 2, 2)]):
            topic, records = told(source, step, number)
            made = [Record(value, key, topic=topic) for key, value in records]
            if topic == "t" and step[0] == "row" and (late or chance.random() < 0.3) and _is_odd(step, records):
                late += made
            else:
                batches[-1] += made
            if late and chance.random() < 0.3:
                batches[-1] += late
                late = []
            if chance.random() < 0.3:
                batches.append([])
        batches[-1] += late
        for number, batch in enumerate(batches):
            world.write(number, batch, dies=chance.random() < 0.3)
        assert world.rows() == source.rows
        assert set(world.catalog.table("lake.t").schema.column_names) <= set(source.columns)


def _is_odd(step: tuple[str, int, int], records: Sequence[tuple[Any, Any]]) -> bool:
    _, one, other = step
    return (other if one == 0 and len(records) > 1 else one) % 2 == 1


def test_a_driver_that_was_late_keeps_what_another_has_written_meanwhile(tmp_path: Path) -> None:
    """The statement that the other one has taken is not read again."""
    world = World(tmp_path)
    late, other = world._run(0), world._run(0)
    source = SourceName("shop", "public", "t")
    for driver, offset, (old, new), columns in (
        (other, 1, ("a", "b"), ("id", "b", "c")),
        (late, 2, ("c", "d"), ("id", "b", "d")),
    ):
        found = FoundRenames("shop", 0, offset, ((old, new),), columns)
        driver.follow([SeenSchema(source, [], [found.to_document()])], 0, {})
    written = Renames.of(read_ledger(world.catalog.table(LEDGER))["lake.t"].renames)
    assert [step.pairs for step in written.steps] == [(("a", "b"),), (("c", "d"),)]
