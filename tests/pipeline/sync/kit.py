"""A file with `sync`, the plan of its decoders for some tables, and what a decoder makes of records; no Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import yaml

from freshet.pipeline.config.model import TableConfig
from freshet.pipeline.config.pipeline_file import parse_pipeline
from freshet.pipeline.config.sync import SyncPipelineConfig
from freshet.pipeline.decode.described_table import DescribedTable
from freshet.pipeline.decode.outcome_batches import outcome_schema
from freshet.pipeline.decode.outcomes import TAG, TAG_TALLY, Tally
from freshet.pipeline.decode.record_block import KafkaBlock
from freshet.pipeline.decode.source_table import SourceTable
from freshet.pipeline.query.wire.packed_rows import PackRule, unpacked
from freshet.pipeline.sync.many_decoder import ManyDecoder
from freshet.pipeline.sync.routes import Route, route_of
from freshet.pipeline.sync.table_decoding import NOTHING, Held, ManyPlan, TableDecoding, nameless_plan, plan_table
from freshet.storage.model.schema import TableSchema
from tests.pipeline.records import Record, kafka_block, raw_batch, shown

TASKS = 3
RULES: Sequence[Mapping[str, Any]] = ({"from": "shop.public.(.*)", "to": "lake.$1"},)


def sync_config(
    rules: Sequence[Mapping[str, Any]] = RULES, *, of: str = "debezium-json", **section: Any
) -> SyncPipelineConfig:
    """Of records of a format; `section` are further keys of `sync`, those of its source under `source`."""
    source = {
        "kafka": {"kafka.bootstrap.servers": "h:1", "subscribePattern": "shop.*"},
        "format": of,
        **section.pop("source", {}),
    }
    document = {
        "name": "shop",
        "sync": {"source": source, "tables": [dict(each) for each in rules], **section},
        "warehouse": "/w",
        "checkpoint": "/c",
        "dead_letters": "lake.dead_letters",
    }
    config, problems = parse_pipeline(yaml.safe_dump(document, sort_keys=False), "test.yaml", {})
    assert isinstance(config, SyncPipelineConfig), [str(problem) for problem in problems]
    return config


def schema_of(columns: Mapping[str, str], primary_key: Sequence[str] = ("id",), **more: Any) -> TableSchema:
    """The schema of a target; `more` are other keys of a table in a pipeline file."""
    more = {"options": {"bucket": "2"}, **more}
    table = TableConfig(warehouse="/w", name="lake.t", columns=columns, primary_key=tuple(primary_key), **more)
    return table.table_schema


def source_table(name: str) -> SourceTable:
    """`db.schema.table`."""
    db, schema, table = name.split(".")
    return SourceTable(db, schema, table)


def route_to(config: SyncPipelineConfig, name: str) -> Route:
    """The route of a source table that a rule takes."""
    route = route_of(config.sync, source_table(name))
    assert isinstance(route, Route)
    return route


def many_plan(
    config: SyncPipelineConfig,
    tables: Mapping[str, TableSchema | str],
    *,
    passed_over: Sequence[str] = (),
    nothing: Sequence[str] = (),
) -> ManyPlan:
    """Source tables by name: the schema of the target of each, or why its records are held back."""
    known: dict[SourceTable, TableDecoding | Held] = {
        source_table(name): Held(NOTHING, is_nothing=True) for name in nothing
    }
    rules = [PackRule((), False, TASKS)]
    for name, each in tables.items():
        if isinstance(each, str):
            known[source_table(name)] = Held(each)
            continue
        route = route_to(config, name)
        number = len(rules)
        known[source_table(name)] = plan_table(config, route, each, number, frozenset(passed_over))
        rules.append(PackRule((), True, TASKS, number))
    follows = config.sync.schema_evolution != "ignore"
    guesses = config.sync.of_schema == "infer"
    return ManyPlan(config.sync, nameless_plan(config), known, tuple(rules), follows, guesses)


@dataclass
class Result:
    """What crossed: rows by the number of their table, in input order; all counts in one tally."""

    rows: dict[int, list[dict[str, Any]]]
    tally: Tally
    seen: dict[str, DescribedTable]

    def texts(self, table: int) -> list[str]:
        """The rows of a table as text, each record's together."""
        by_offset: dict[Any, list[dict[str, Any]]] = {}
        for row in sorted(self.rows.get(table, ()), key=lambda row: (row["_offset"], row["_sub"])):
            by_offset.setdefault(row["_offset"], []).append(row)
        return [shown(rows) for rows in by_offset.values()]

    @property
    def record_count(self) -> int:
        """Records that are rows or dead letters, and those that are skipped."""
        there = {row["_offset"] for rows in self.rows.values() for row in rows}
        return len(there) + sum(self.tally.skipped.values())


def run(plan: ManyPlan, *batches: Sequence[Record | Any]) -> Result:
    """What one stream of the decoder gives for these batches of records, which is the same in both of their forms."""
    starts = [sum(map(len, batches[:place])) for place in range(len(batches))]
    pairs = list(zip(batches, starts, strict=True))
    found = _run(plan, [raw_batch(records, first=first) for records, first in pairs])
    again = _run(plan, [kafka_block(records, first=first) for records, first in pairs if records])
    assert repr(again) == repr(found)
    return found


def _run(plan: ManyPlan, batches: Sequence[pa.RecordBatch | KafkaBlock]) -> Result:
    schemas = {0: outcome_schema(plan.ledger)}
    for each in plan.tables.values():
        if isinstance(each, TableDecoding):
            schemas[each.index] = outcome_schema(each.plan)
    rows: dict[int, list[dict[str, Any]]] = {}
    tallies = []
    for task, table, packed in ManyDecoder(plan)(batches):
        assert 0 <= task < TASKS
        for row in unpacked(packed, schemas[table]).to_pylist():
            if row[TAG] == TAG_TALLY:
                assert table == 0
                tallies.append(Tally.decode(row["_raw_value"]))
            else:
                rows.setdefault(table, []).append(row)
    (tally,) = tallies or [Tally()]
    seen = {str(each.table): DescribedTable.of(each.described) for each in tally.seen}
    ordered = {table: sorted(rows[table], key=lambda row: (row["_offset"], row["_sub"])) for table in sorted(rows)}
    return Result(ordered, tally, seen)
