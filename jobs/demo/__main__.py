"""`make demo`: a broker, a shop's change stream, two pipelines into two tables, and Apache Paimon reads the result.

    1. broker and topics       2. Spark session and pipelines; a thread sends changes for some seconds
    3. when everything that was sent is in the tables, the pipelines are asked to stop, as SIGTERM would
    4. the tables are read by Freshet and by Apache Paimon (JVM) and compared with each other and with the shop
    5. so is the changelog of the orders, and that of one order is printed

Everything lies in `demo-output/`, which is emptied first, or in a new folder given as argument. Ctrl-C at any time ends
all of it.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import Producer

from freshet.jobs.demo.shop import CUSTOMERS_TOPIC, ORDERS_TOPIC, Shop
from freshet.pipeline.config.pipeline_file import PipelineConfig, load_pipelines
from freshet.pipeline.progress import Progress
from freshet.pipeline.progress_report import progress_line
from freshet.pipeline.runner import Runner, spark_settings, stop_on_signals
from freshet.pipeline.spark.jars import SPARK_GROUP, ensure_jars
from freshet.pipeline.spark.session import SHORT_LIVED, create_session
from freshet.storage.catalog import Catalog
from freshet.storage.table import Table
from tests.kit.kafka_broker import any_broker
from tests.kit.paimon_judge import ROW_KIND_COLUMN, SNAPSHOT_ID_COLUMN, PaimonJudge

ROOT: Final = Path(__file__).resolve().parents[2]
OUTPUT: Final = ROOT / "demo-output"
FILES: Final = ("demo-orders.yaml", "demo-customers.yaml")

CUSTOMER_COUNT: Final = 300
WAVE_COUNT: Final = 25
EVENTS_PER_WAVE: Final = 1000
WAVE_PAUSE_S: Final = 0.7
RUN_LIMIT_S: Final = 120.0
CHANGES_SHOWN_MAX: Final = 9
"""Of the orders with so many changes at most, the one with most is shown."""


class Demo:
    """One run; counts what the pipelines have read and asks them to stop when that is everything."""

    def __init__(self, shop: Shop) -> None:
        self._shop = shop
        self._read = {"demo-orders": 0, "demo-customers": 0}
        self._totals: dict[str, dict[str, int]] = {}
        self._has_begun = threading.Event()
        self._all_sent = threading.Event()
        self.ended = threading.Event()

    def take(self, progress: Progress) -> None:
        """Shows a batch and adds it up."""
        report = progress.report
        if report.read_count:
            print("  " + progress_line(progress), flush=True)
        self._has_begun.set()
        self._read[report.pipeline] += report.read_count
        totals = self._totals.setdefault(report.pipeline, {"applied": 0, "dead letters": 0, "skipped": 0})
        totals["applied"] += report.result.applied
        totals["dead letters"] += report.result.dead_count
        totals["skipped"] += report.result.skipped_count

    def send(self, bootstrap_servers: str) -> None:
        """Sends the stream in waves, the second when the first is in a table; runs in a thread of its own."""
        producer = Producer(
            {"bootstrap.servers": bootstrap_servers, "linger.ms": 20, "queue.buffering.max.messages": 10**6}
        )
        for wave in range(WAVE_COUNT + 1):
            messages = self._shop.open(CUSTOMER_COUNT) if wave == 0 else self._shop.trade(EVENTS_PER_WAVE)
            for message in messages:
                producer.produce(message.topic, message.value, message.key)
                producer.poll(0)
            producer.flush()
            while wave == 0 and not self._has_begun.wait(WAVE_PAUSE_S) and not self.ended.is_set():
                continue
            if self.ended.wait(WAVE_PAUSE_S):
                return
        self._all_sent.set()

    def stop_when_read(self, runner: Runner) -> None:
        """Waits until all that was sent has been read, then asks the pipelines to stop."""
        deadline = time.monotonic() + RUN_LIMIT_S
        while not self.ended.wait(0.2) and time.monotonic() < deadline:
            if self._all_sent.is_set() and self._read == self.expected():
                break
        runner.request_stop()

    def expected(self) -> dict[str, int]:
        """Records sent, by pipeline."""
        return {"demo-orders": self._shop.sent[ORDERS_TOPIC], "demo-customers": self._shop.sent[CUSTOMERS_TOPIC]}

    def is_complete(self) -> bool:
        """True when everything was sent and read."""
        return self._all_sent.is_set() and self._read == self.expected()

    def print_totals(self) -> None:
        """Records read = applied + dead letters + skipped, for each pipeline."""
        for name, totals in self._totals.items():
            parts = " + ".join(f"{count:,} {what}" for what, count in totals.items())
            print(f"  {name}: {self._read[name]:,} records read = {parts}")


def main(output: Path) -> int:
    """Runs the demo; 0 when both readers and the shop agree."""
    began = time.monotonic()
    if output == OUTPUT:
        shutil.rmtree(output, ignore_errors=True)
    warehouse = output / "warehouse"
    warehouse.mkdir(parents=True)
    shop = Shop()
    demo = Demo(shop)
    _title("1. a real Kafka broker")
    with any_broker() as broker:
        for topic in (ORDERS_TOPIC, CUSTOMERS_TOPIC):
            broker.create_topic(topic, kafka_partitions=2)
        print(f"  {broker.bootstrap_servers}, topics {ORDERS_TOPIC} and {CUSTOMERS_TOPIC}")
        _title("2. two pipelines in one Spark session")
        env = {"KAFKA_BOOTSTRAP_SERVERS": broker.bootstrap_servers, "WAREHOUSE": warehouse.as_uri()}
        configs = load_pipelines([ROOT / "conf" / "pipelines" / name for name in FILES], env)
        _run(demo, configs, broker.bootstrap_servers)
    demo.print_totals()
    if not demo.is_complete():
        print("\nstopped before everything was sent; nothing is left running")
        return 0
    are_equal = _show(Catalog(str(warehouse)), shop)
    print(f"\n{time.monotonic() - began:.0f} s in all; everything lies in {output}")
    return 0 if are_equal else 1


def _run(demo: Demo, configs: list[PipelineConfig], bootstrap_servers: str) -> None:
    settings = {**SHORT_LIVED, **spark_settings(configs)}
    spark = create_session("freshet-demo", settings=settings, jars=ensure_jars(SPARK_GROUP), master="local[2]")
    runner = Runner(spark, configs, on_progress=demo.take, say=lambda text: print("  " + text, flush=True))
    threads = [
        threading.Thread(target=demo.send, args=(bootstrap_servers,), name="shop"),
        threading.Thread(target=demo.stop_when_read, args=(runner,), name="end"),
    ]
    try:
        with stop_on_signals(runner):
            for thread in threads:
                thread.start()
            runner.run()
    finally:
        demo.ended.set()
        for thread in threads:
            if thread.ident is not None:
                thread.join()
        spark.stop()


def _show(catalog: Catalog, shop: Shop) -> bool:
    """Prints the result; True when Freshet, Apache Paimon and the shop agree on both tables."""
    agreed = True
    _title("3. the tables, read by Freshet and by Apache Paimon (JVM)")
    with PaimonJudge.start() as judge:
        for name, key, rows in (
            ("shop.orders", "order_id", shop.orders),
            ("shop.customers", "customer_id", shop.customers),
        ):
            table = catalog.table(name)
            ours = table.scan().to_arrow().sort_by(key)
            theirs = judge.table(table.location).read_arrow(sort_by=[key])
            is_equal = theirs.cast(ours.schema).equals(ours)
            is_right = _by_key(ours, key) == rows
            agreed &= is_equal and is_right
            print(
                f"  {name}: {ours.num_rows:,} rows by Freshet, {theirs.num_rows:,} by Apache Paimon: "
                f"{'equal' if is_equal else 'DIFFERENT'}; {'as in' if is_right else 'NOT AS IN'} the shop's database"
            )
            print("\n".join("    " + str(row) for row in ours.slice(0, 3).to_pylist()))
        agreed &= _show_changelog(catalog.table("shop.orders"), judge)
    _title("5. levels and snapshots")
    for name in ("shop.orders", "shop.customers"):
        print(_indented(catalog.table(name).describe()))
    _print_snapshots(catalog.table("shop.orders"))
    _title("6. dead letters")
    dead = catalog.table("shop.dead_letters").scan().to_arrow()
    agreed &= dead.num_rows == shop.broken
    print(f"  {dead.num_rows} records, {shop.broken} were sent broken:")
    for reason in dead.group_by(["reason", "column_name"]).aggregate([("log_offset", "count")]).to_pylist():
        where = f" ({reason['column_name']})" if reason["column_name"] else ""
        print(f"    {reason['log_offset_count']:>4}  {reason['reason']}{where}")
    _title("7. where the files lie")
    for name in ("shop.orders", "shop.customers", "shop.dead_letters"):
        print(f"  {catalog.table(name).location}")
    return agreed


def _show_changelog(table: Table, judge: PaimonJudge) -> bool:
    """Prints what became of one order, step by step, as both readers tell it; True when they tell the same of all."""
    _title("4. the changelog of the orders, read by Freshet and by Apache Paimon ($audit_log)")
    ours = table.changelog().to_arrow()
    theirs = judge.table(table.location).audit_log().select(ours.column_names).cast(ours.schema)
    order = [(name, "ascending") for name in (SNAPSHOT_ID_COLUMN, "order_id", "changed", ROW_KIND_COLUMN)]
    is_equal = theirs.sort_by(order).equals(ours.sort_by(order))
    counts = pc.value_counts(ours["order_id"]).to_pylist()
    told = max(counts, key=lambda each: (each["counts"] <= CHANGES_SHOWN_MAX, each["counts"], -each["values"]))
    print(
        f"  {ours.num_rows:,} changes by Freshet, {theirs.num_rows:,} by Apache Paimon: "
        f"{'equal' if is_equal else 'DIFFERENT'}; of order {told['values']}:"
    )
    for reader, changes in (("Freshet", ours), ("Apache Paimon", theirs)):
        print(f"    {reader}")
        for change in changes.filter(pc.equal(changes["order_id"], told["values"])).to_pylist():
            row = f"{change['status']:<10} {change['total']:>10} {change['ordered']:%Y-%m-%d}"
            print(f"      snapshot {change[SNAPSHOT_ID_COLUMN]:>3}  {change[ROW_KIND_COLUMN]}  {row}")
    return is_equal


def _by_key(rows: pa.Table, key: str) -> Mapping[int, dict[str, Any]]:
    return {row[key]: row for row in rows.to_pylist()}


def _print_snapshots(table: Table) -> None:
    snapshots = table.snapshots()
    print(f"  last of {len(snapshots)} snapshots of {table.name}:")
    for snapshot in snapshots[-5:]:
        print(
            f"    {snapshot.id:>4}  {snapshot.commit_kind:<8} batch {snapshot.commit_identifier:<4} "
            f"{snapshot.delta_record_count:+,} rows"
        )


def _indented(text: str) -> str:
    return "\n".join("  " + line for line in text.splitlines())


def _title(text: str) -> None:
    print(f"\n{text}", flush=True)


def _interrupted(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    os.chdir(ROOT)
    signal.signal(signal.SIGTERM, _interrupted)
    with suppress(KeyboardInterrupt):
        sys.exit(main(Path(sys.argv[1]).absolute() if len(sys.argv) > 1 else OUTPUT))
    print("\ninterrupted; nothing is left running")
