"""W12: a database of a hundred tables by one query, beside W9, one table with as many of the same records, on both
engines.

| figure | what |
|---|---|
| from nothing | tables are created, after a look at some of the records |
| running | the median batch of a quarter of the records, once all tables are there |
| small batches | a thousand records that touch about all hundred tables |

The last two are measured with compaction in the batches and in the background. On Spark runs share a warm session;
without it each run is a process, and its processor time is named.
"""

from __future__ import annotations

import resource
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Protocol

import yaml

from bench.cdc_records import columns_of, produce
from bench.database_records import TABLES, produce_database
from bench.local_bench import progress_of, run_to_the_end
from bench.measure import Answer, Contestant, measure, report, warm_ms
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
WANTED: Final = {"local": 0.75, "spark": 0.6}
"""Records a second of a hundred tables, of those of one table."""


def database(results: Results, folder: Path, factor: float, rounds: int, without: Sequence[str]) -> None:
    """The whole part, on the engines that are not left out."""
    count = max(10_000, int(RECORDS * factor))
    with KafkaBroker.start(folder / "kafka") as broker:
        engines: dict[str, _Engine] = {"local": _Processes()} if "local" not in without else {}
        if "spark" not in without:
            session = [sys.executable, "-m", "bench.cdc_worker"]
            engines["spark"] = Peer("freshet", session, results.folder / "database.log")
        try:
            files = _Files(folder, broker)
            produce(broker, "plain", count)
            produce_database(broker, DB, count)
            produce_database(broker, "small", SMALL_BATCHES * SMALL_RECORDS)
            whole = [each for name, engine in engines.items() for each in _whole(files, name, engine)]
            results.add(measure("W12 database", whole, count, rounds))
            _check(files, count)
            for number in range(rounds):
                for name, engine in engines.items():
                    _running(results, files, count // BATCHES, name, engine, f"round {number + 1}")
            for name, engine in engines.items():
                for kind, is_background in COMPACTIONS.items():
                    path = files.many("small", SMALL_RECORDS, is_background=is_background)
                    text = _said(engine.ask("run", path))
                    what = f"{SMALL_RECORDS} records of {TABLES} tables, {name}, compacted {kind}"
                    results.note(f"W12 database, {what}", text)
        finally:
            for engine in engines.values():
                engine.close()


class _Engine(Protocol):
    def ask(self, command: str, *words: object) -> Answer:
        """Runs a pipeline file to its end."""

    def close(self) -> None:
        """Ends what it has."""


class _Processes:
    """`freshet run` without Spark, a process for each run."""

    def ask(self, command: str, *words: object) -> Answer:
        (path,) = words
        assert isinstance(path, Path)
        before_s = _children_s()
        seconds, _ = run_to_the_end(path, "local")
        used_s = _children_s() - before_s
        batches = [(line["records"], line["batch_ms"]) for line in progress_of(path) if line.get("records")]
        return {"seconds": seconds, "batch_ms": warm_ms(batches), "used_s": used_s}

    def close(self) -> None:
        pass


def _whole(files: _Files, name: str, engine: _Engine) -> list[Contestant]:
    return [
        Contestant(f"{name}, one table", "2", lambda: engine.ask("run", files.one())),
        Contestant(f"{name}, {TABLES} tables, from nothing", "2", lambda: engine.ask("run", files.many(DB))),
    ]


def _running(results: Results, files: _Files, part: int, name: str, engine: _Engine, which: str) -> None:
    """One table beside the hundred, in batches of so many records."""
    one = engine.ask("run", files.one(part))
    for kind, is_background in COMPACTIONS.items():
        many = engine.ask("run", files.many(DB, part, is_background=is_background))
        rates = [1000 * part / float(each["batch_ms"]) for each in (many, one)]
        text = f"{rates[0]:,.0f} records/s, one table {rates[1]:,.0f}: {rates[0] / rates[1]:.2f}"
        if "used_s" in many:
            used_s = [float(each["used_s"]) for each in (many, one)]
            text += f", of processor time {used_s[1] / used_s[0]:.2f} ({used_s[0]:.1f} s, {used_s[1]:.1f} s)"
        results.note(f"W12 database, running, {name}, compacted {kind}, {which}", f"{text} (at least {WANTED[name]})")
        report(f"{name}, compacted {kind}: {text}")


def _said(answer: Answer) -> str:
    used = f", {float(answer['used_s']):.1f} s of processor time in all" if "used_s" in answer else ""
    return f"{float(answer['batch_ms']):.0f} ms (at most 3000){used}"


def _children_s() -> float:
    """Processor time of the processes that this one has waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


class _Files:
    """Pipeline files, each with a warehouse and a checkpoint of its own."""

    def __init__(self, folder: Path, broker: ForeignBroker) -> None:
        self._folder, self._broker = folder, broker
        self._number = 0
        self.last = self.before = folder

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
        self.before, self.last = self.last, self._folder / f"database-{self._number}"
        self.last.mkdir()
        return self.last

    def _write(self, document: Mapping[str, Any]) -> Path:
        path = self.last / "pipeline.yaml"
        own = {"name": f"run{self._number}", "checkpoint": str(self.last / "c"), "trigger": {"available_now": True}}
        path.write_text(yaml.safe_dump({**own, **document}))
        return path


def _check(files: _Files, count: int) -> None:
    """Both have the same rows, of the last run each."""
    last, before = (Catalog(str(folder / "w")) for folder in (files.last, files.before))
    rows = sum(last.table(f"lake.t{number:02}").scan().to_arrow().num_rows for number in range(TABLES))
    expected = before.table("lake.t").scan().to_arrow().num_rows
    report(f"W12 database: {rows} rows of {count} records in all tables, one table has {expected}")
    if rows != expected:
        raise ValueError(f"{rows} rows in all tables, {expected} in one")
