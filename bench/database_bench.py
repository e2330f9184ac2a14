"""W12: a database of a hundred tables by one query, beside W9, one table with as many of the same records.

| figure | what |
|---|---|
| from nothing | tables are created, after a look at some of the records |
| running | the median batch of a quarter of the records, once all tables are there |
| small batches | a thousand records that touch about all hundred tables |

The last two are measured with compaction in the batches and in the background.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from bench.cdc_records import columns_of, produce
from bench.database_records import TABLES, produce_database
from bench.measure import Contestant, measure, report
from bench.peers import Peer
from bench.results import Results
from freshet.jobs.demo.kafka_broker import ForeignBroker, KafkaBroker
from freshet.storage.catalog import Catalog

RECORDS: Final = 1_000_000
BATCHES: Final = 4
SMALL_RECORDS: Final = 1000
SMALL_BATCHES: Final = 60
DB: Final = "shop"
COMPACTIONS: Final = {"in the batches": False, "in the background": True}


def database(results: Results, folder: Path, factor: float, rounds: int) -> None:
    """The whole part."""
    count = max(10_000, int(RECORDS * factor))
    with KafkaBroker.start(folder / "kafka") as broker:
        session = Peer("freshet", [sys.executable, "-m", "bench.cdc_worker"], results.folder / "database.log")
        try:
            files = _Files(folder, broker)
            produce(broker, "plain", count)
            produce_database(broker, DB, count)
            small = SMALL_BATCHES * SMALL_RECORDS
            produce_database(broker, "small", small)
            whole = [
                Contestant("one table", "2", lambda: session.ask("run", files.one())),
                Contestant(f"{TABLES} tables, from nothing", "2", lambda: session.ask("run", files.many(DB))),
            ]
            results.add(measure("W12 database", whole, count, rounds))
            _check(files, count)
            part = count // BATCHES
            for number in range(rounds):
                one = part / session.ask("run", files.one(part))["batch_ms"]
                for kind, is_background in COMPACTIONS.items():
                    path = files.many(DB, part, is_background=is_background)
                    many = part / session.ask("run", path)["batch_ms"]
                    text = f"{1000 * many:,.0f} records/s, one table {1000 * one:,.0f}: {many / one:.2f} (at least 0.6)"
                    results.note(f"W12 database, running, compacted {kind}, round {number + 1}", text)
            for kind, is_background in COMPACTIONS.items():
                path = files.many("small", SMALL_RECORDS, is_background=is_background)
                took = session.ask("run", path)["batch_ms"]
                text = f"{took:.0f} ms (at most 3000)"
                results.note(f"W12 database, {SMALL_RECORDS} records of {TABLES} tables, compacted {kind}", text)
        finally:
            session.close()


class _Files:
    """Pipeline files, each with a warehouse and a checkpoint of its own."""

    def __init__(self, folder: Path, broker: ForeignBroker) -> None:
        self._folder, self._broker = folder, broker
        self._number = 0
        self.last = folder

    def one(self, batch_records: int | None = None) -> Path:
        document = {
            "sources": [{"kafka": self._kafka({"subscribe": "plain"}, batch_records), "format": "debezium-json"}],
            "table": {
                "warehouse": str(self._next() / "w"), "name": "lake.t", "columns": columns_of("plain"),
                "primary_key": ["id"], "options": {"bucket": 2},
            },
        }  # fmt: skip
        return self._write(document)

    def many(self, db: str, batch_records: int | None = None, *, is_background: bool = False) -> Path:
        kafka = self._kafka({"subscribePattern": f"{db}[.].*"}, batch_records)
        document = {
            "sync": {
                "source": {"kafka": kafka, "format": "debezium-json"},
                "schema": "infer",
                "tables": [{"from": f"{db}.public.(.*)", "to": "lake.$1", "options": {"bucket": 1}}],
            },
            "warehouse": str(self._next() / "w"),
            "dead_letters": "lake.dead",
            "compaction": {"background": is_background},
        }
        return self._write(document)

    def _kafka(self, topics: Mapping[str, str], batch_records: int | None) -> dict[str, Any]:
        limit = {} if batch_records is None else {"maxOffsetsPerTrigger": batch_records}
        servers = self._broker.bootstrap_servers
        return {"kafka.bootstrap.servers": servers, "startingOffsets": "earliest", **topics, **limit}

    def _next(self) -> Path:
        self._number += 1
        self.last = self._folder / f"database-{self._number}"
        self.last.mkdir()
        return self.last

    def _write(self, document: Mapping[str, Any]) -> Path:
        path = self.last / "pipeline.yaml"
        own = {"name": f"run{self._number}", "checkpoint": str(self.last / "c"), "trigger": {"available_now": True}}
        path.write_text(yaml.safe_dump({**own, **document}))
        return path


def _check(files: _Files, count: int) -> None:
    """Both have the same rows, of the last run each."""
    catalog = Catalog(str(files.last / "w"))
    rows = sum(catalog.table(f"lake.t{number:02}").scan().to_arrow().num_rows for number in range(TABLES))
    other = Catalog(str(files.last.parent / f"{files.last.name[:-1]}{int(files.last.name[-1]) - 1}" / "w"))
    expected = other.table("lake.t").scan().to_arrow().num_rows
    report(f"W12 database: {rows} rows of {count} records in all tables, one table has {expected}")
    if rows != expected:
        raise ValueError(f"{rows} rows in all tables, {expected} in one")
