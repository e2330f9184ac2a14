"""W9, the benchmark of record: a million Debezium records from a real broker into a keyed table.

Cold is a process from its start to its exit (`freshet run`; Flink: the first query of its JVM), warm is a later query
of a session that lives on, with a new table and a new checkpoint. All tables must hold the same rows in the end. The
variants measure what the schema with each payload, expressions for half of the columns, a hundred columns and ten per
cent of broken records cost.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

import yaml

from bench.cdc_records import columns_of, produce
from bench.digest import digest
from bench.flink import flink
from bench.measure import Answer, Contestant, check_equal, measure, report
from bench.peers import Peer, PeerError
from bench.results import Results
from freshet.jobs.demo.kafka_broker import ForeignBroker, KafkaBroker
from freshet.storage.catalog import Catalog

RECORDS: Final = 1_000_000
FLINK_CHECKPOINT_MS: Final = 2000
AT_STORE: Final = "freshet, object store"
SMALL_BATCHES: Final = 80
SMALL_RECORDS: Final = 1000
SELECTED: Final = {
    "id": "id",
    "customer_id": "customer_id + 1",
    "status": "upper(status)",
    "total": "total * 2",
    "quantity": "quantity",
    "weight": "weight",
    "paid": "paid",
    "city": "concat(city, '!')",
    "note": "note",
    "updated_at": "updated_at div 1000",
}
"""Expressions for half of the columns."""


def cdc(results: Results, folder: Path, factor: float, rounds: int, without: Sequence[str]) -> None:
    """W9 and its variants."""
    count = max(1000, int(RECORDS * factor))
    with KafkaBroker.start(folder / "kafka") as broker:
        session = Peer("freshet", [sys.executable, "-m", "bench.cdc_worker"], results.folder / "cdc.log")
        peer = None if "paimon-flink" in without else flink(results.folder)
        run = CdcRun(folder, broker, session, peer)
        try:
            run.topic("plain", count, "plain")
            plain_rate = _of_record(results, run, count, rounds)
            _select(results, run, count, rounds, plain_rate)
            _variants(results, run, count, rounds)
            _floor(results, run, count, rounds)
            _small_batches(results, run)
        finally:
            session.close()
            if peer is not None:
                peer.close()


@dataclass
class CdcRun:
    """Where the tables go, and who writes them; those of a run `at_store` go below its root."""

    folder: Path
    broker: ForeignBroker
    session: Peer
    flink: Peer | None
    sizes: dict[str, int] = field(default_factory=dict)
    last: dict[str, Catalog] = field(default_factory=dict)
    """Of the latest run, by who ran."""
    number: int = 0
    root: str = ""
    catalog: Mapping[str, str] = field(default_factory=dict)
    """Options of the root's catalogs."""

    def topic(self, name: str, count: int, variant: str) -> None:
        """Fills a topic with records of a variant."""
        started = time.perf_counter()
        self.sizes[name] = produce(self.broker, name, count, variant)
        seconds = time.perf_counter() - started
        report(f"topic {name}: {count} records of {self.sizes[name] / count:.0f} bytes in {seconds:.0f} s")

    def cold(self) -> Answer:
        """`freshet run`, the whole process."""
        file = self.pipeline_file("plain", "freshet, cold process")
        command = [sys.executable, "-m", "freshet.pipeline.commands.command_line", "run", str(file)]
        started = time.perf_counter()
        with file.with_suffix(".log").open("wb") as log:
            code = subprocess.run(command, stdout=log, stderr=log, check=False).returncode
        if code:
            raise PeerError(f"freshet run ended with {code}; its output is in {file.with_suffix('.log')}")
        return {"seconds": time.perf_counter() - started}

    def warm(self, variant: str = "plain", select: Mapping[str, str] | None = None, bucket: int = 2) -> Answer:
        """The same pipeline in the session that lives on."""
        return self.session.ask("run", self.pipeline_file(variant, "freshet", select, bucket=bucket))

    def at_store(self) -> Answer:
        """The same with the table in an object store."""
        return self.session.ask("run", self.pipeline_file("plain", AT_STORE))

    def on_flink(self, variant: str = "plain") -> Answer:
        """Flink until the latest offset."""
        assert self.flink is not None
        warehouse = self._folder("paimon-flink")
        columns = ";".join(f"{name}:{kind}" for name, kind in columns_of(variant).items())
        return self.flink.ask(
            "cdc", f"boot={self.broker.bootstrap_servers}", f"topic={variant}", f"warehouse={warehouse}",
            f"columns={columns}", "key=id", f"checkpoint_ms={FLINK_CHECKPOINT_MS}",
        )  # fmt: skip

    def pipeline_file(
        self,
        variant: str,
        who: str,
        select: Mapping[str, str] | None = None,
        batch_records: int | None = None,
        bucket: int = 2,
    ) -> Path:
        """A pipeline file with a new table and a new checkpoint."""
        folder = self._folder(who)
        source: dict[str, Any] = {
            "kafka": {
                "kafka.bootstrap.servers": self.broker.bootstrap_servers,
                "subscribe": variant,
                "startingOffsets": "earliest",
            },
            "format": "debezium-json",
        }
        if batch_records is not None:
            source["kafka"]["maxOffsetsPerTrigger"] = batch_records
        if select:
            source["select"] = dict(select)
        document = {
            "name": f"bench-{self.number}",
            "sources": [source],
            "table": {
                "warehouse": f"file://{folder}" if who != AT_STORE else self.last[who].warehouse,
                "name": "bench.t",
                "columns": columns_of(variant),
                "primary_key": ["id"],
                "options": {"bucket": bucket},
            },
            "trigger": {"available_now": True},
            "checkpoint": f"file://{folder}/_checkpoint",
            "dead_letters": "bench.dead_letters",
        }
        if who == AT_STORE:
            document["catalog"] = dict(self.catalog)
        file = folder / "pipeline.yaml"
        file.write_text(yaml.safe_dump(document, sort_keys=False))
        return file

    def digest_of(self, who: str) -> Answer:
        """Number of rows and digest of the table that was written last."""
        return digest(self.last[who].table("bench.t").scan().to_arrow().to_batches())

    def _folder(self, who: str) -> Path:
        """A new one for the checkpoint, and for the table unless that is in the store."""
        self.number += 1
        folder = self.folder / f"cdc-{self.number}"
        folder.mkdir(parents=True)
        is_at_store = who == AT_STORE
        place = f"{self.root}/cdc-{self.number}" if is_at_store else folder
        self.last[who] = Catalog(place, options=self.catalog if is_at_store else {})
        return folder


def _of_record(results: Results, run: CdcRun, count: int, rounds: int) -> float:
    """Both peers, cold and warm; returns Freshet's warm records per second."""
    cold = measure("W9 CDC, cold process", [Contestant("freshet", "2", run.cold)], count, 0)[0]
    warm = [Contestant("freshet", "2", run.warm)]
    if run.flink is not None:
        warm.append(Contestant("paimon-flink", "2", run.on_flink))
    figures = measure("W9 CDC", warm, count, rounds)
    results.add([cold, *figures])
    check_equal({who: run.digest_of(who) for who in run.last})
    for figure in figures[1:]:
        ratio = cold.cold_rate / figure.cold_rate
        results.note("W9 CDC, `freshet run` from process start to exit over Flink's first query", f"{ratio:.2f}×")
    return figures[0].warm_rate


def _select(results: Results, run: CdcRun, count: int, rounds: int, plain_rate: float) -> None:
    """Expressions for half of the columns, against the plain job on the same topic."""
    select = Contestant("freshet", "2", lambda: run.warm("plain", SELECTED))
    figures = measure("W9 CDC, select on half of the columns", [select], count, min(rounds, 2))
    results.add(figures)
    results.note(figures[0].measurement, f"{figures[0].warm_rate / plain_rate:.2f} of the plain job's records/s")


def _variants(results: Results, run: CdcRun, count: int, rounds: int) -> None:
    """What makes the job heavier, each compared with a plain job of as many records; of `wide`, whose records are
    larger, the bytes count.
    """
    for variant, records in (("schema", count // 4), ("broken", count // 4), ("wide", count // 8)):
        plain = f"plain-{records}"
        for topic in {variant, plain} - run.sizes.keys():
            run.topic(topic, records, "plain" if topic == plain else variant)
        contestants = [Contestant(name, "2", partial(run.warm, name)) for name in (plain, variant)]
        base, figure = measure(f"W9 CDC, {variant}", contestants, records, min(rounds, 2))
        results.add([base, figure])
        of_records = figure.warm_rate / base.warm_rate
        of_bytes = run.sizes[variant] / run.sizes[plain] * of_records
        results.note(
            figure.measurement, f"{of_records:.2f} of the plain job's records/s, {of_bytes:.2f} of its bytes/s"
        )


def _floor(results: Results, run: CdcRun, count: int, rounds: int) -> None:
    def once() -> Answer:
        return run.session.ask("floor", run.broker.bootstrap_servers, "plain")

    floor = Contestant("Kafka to Python and a shuffle, only counted", "2", once)
    results.add(measure("W9 CDC, floor", [floor], count, min(rounds, 2)))


def _small_batches(results: Results, run: CdcRun) -> None:
    """Micro-batches of a thousand records, compared with the floor job with batches of as many."""
    run.topic("small", SMALL_BATCHES * SMALL_RECORDS, "plain")
    for number in range(2):
        floor = run.session.ask("floor", run.broker.bootstrap_servers, "small", SMALL_RECORDS)
        ours = run.session.ask("run", run.pipeline_file("small", "freshet", batch_records=SMALL_RECORDS))
        ratio = ours["batch_ms"] / floor["batch_ms"]
        text = f"{ours['batch_ms']:.0f} ms, the floor job {floor['batch_ms']:.0f} ms: {ratio:.2f}×"
        results.note(f"W9 CDC, a micro-batch of {SMALL_RECORDS} records, round {number + 1}", text)
