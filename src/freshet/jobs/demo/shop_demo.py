"""`freshet demo`: a broker, a shop's change stream, a writer that is killed, two readers, and Apache Paimon as judge.

    1. broker and topics
    2. `freshet run` brings changes into two tables; a speculative and a committed reader follow the log of the orders
    3. the writer is killed; what the speculative reader had seen too early is retracted; all recover (`live`)
    4. what the readers were shown, folded, is compared with the table
    5. the tables are read by Freshet and by Apache Paimon (JVM) and compared with each other and with the shop
    6. so is the changelog of the orders, and that of one order is printed

Ctrl-C at any time ends all of it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import Producer

from freshet.jobs.demo.kafka_broker import ForeignBroker, KafkaBroker, any_broker
from freshet.jobs.demo.live import ISOLATIONS, Live, Outcome
from freshet.jobs.demo.paimon_reader import read_by_paimon
from freshet.jobs.demo.reader import SEEN_COLUMN, TABLE, ShownRowsError, emitted_twice, folded, latencies, shown_rows
from freshet.jobs.demo.shop import CUSTOMERS_TOPIC, ORDERS_TOPIC, Shop
from freshet.jobs.demo.stage import PIPELINES, headline, play
from freshet.pipeline.errors.error_kind import EXIT_DONE
from freshet.pipeline.exceptions import InvalidRequestError
from freshet.pipeline.running.signals import when_asked_to_stop
from freshet.storage.catalog import Catalog
from freshet.storage.model.row_kind import ROW_KIND_COLUMN, SNAPSHOT_ID_COLUMN
from freshet.storage.table import Table

FILES: Final = ("demo-orders.yaml", "demo-customers.yaml")
CHANGES_SHOWN_MAX: Final = 9
"""Of the orders with so many changes at most, the one with most is shown."""
CUSTOMERS: Final = 20
EVENTS: Final = 1000
_FLUSH_S: Final = 300.0


def play_shop(output: Path | None, engine: str) -> int:
    """Plays the demo in a new folder; 0 when all readers and the shop agree."""
    return play(partial(_play, engine), output, "shop")


def _play(engine: str, output: Path) -> bool:
    shop = Shop()
    headline("1. a real Kafka broker")
    with any_broker() as broker:
        for topic in (ORDERS_TOPIC, CUSTOMERS_TOPIC):
            broker.create_topic(topic, kafka_partitions=2)
        print(f"  {broker.bootstrap_servers}, topics {ORDERS_TOPIC} and {CUSTOMERS_TOPIC}")
        headline("2. a writer (freshet run, two pipelines), a speculative and a committed reader of its log")
        files = [PIPELINES / name for name in FILES]
        print(f"  freshet run {' '.join(map(str, files))} --on {engine}")
        live = Live(output, broker.bootstrap_servers, shop, files, engine)
        live.run()
    _print_totals(live.outcome)
    catalog = Catalog(str(output / "warehouse"))
    are_equal = _show_readers({name: shown_rows(file) for name, file in live.shown.items()}, live.outcome, catalog)
    return are_equal & _show(catalog, shop)


def _print_totals(outcome: Outcome) -> None:
    """Records read = applied + dead letters + skipped, for each pipeline, as the batches reported."""
    for name, totals in outcome.totals.items():
        parts = " + ".join(f"{count:,} {what}" for what, count in totals.items() if what != "records read")
        print(f"  {name}: {totals['records read']:,} records read = {parts}")


def _show_readers(shown: Mapping[str, pa.Table], outcome: Outcome, catalog: Catalog) -> bool:
    """Prints what the readers were shown; True when each of them holds what the table holds."""
    headline("3. what the readers of the log were shown")
    held = _by_key(catalog.table(TABLE).scan().to_arrow(), "order_id")
    agreed = True
    for isolation in ISOLATIONS:
        sent, seconds = latencies(shown[isolation], outcome.waves)
        p50, p99 = np.percentile(seconds[sent > outcome.recovered_us], [50, 99])
        try:
            is_equal = folded(shown[isolation], "order_id") == held
            verdict = "as in the table" if is_equal else "NOT AS IN the table"
        except ShownRowsError as error:
            is_equal, verdict = False, f"ILL-FORMED: {error}"
        agreed &= is_equal
        print(
            f"  {isolation:<12} {shown[isolation].num_rows:>7,} changes; after the restart {p50:.2f} s after the event "
            f"(p50; p99 {p99:.2f} s); folded: {verdict}"
        )
    speculative, committed = (shown[isolation] for isolation in ISOLATIONS)
    if not outcome.open_batches:
        print("  each time the commit was faster than the kill: there was nothing to retract")
        return agreed
    retracted = (speculative.num_rows - committed.num_rows) // 2
    print(f"  the speculative reader was shown {retracted:,} changes that were then retracted")
    for key in emitted_twice(speculative, committed, "order_id")[:1]:
        for isolation in ISOLATIONS:
            print(f"    order {key}, {isolation}")
            _print_changes(shown[isolation], key)
    return agreed & (retracted > 0)


def _print_changes(shown: pa.Table, key: int) -> None:
    rows = shown.filter(pc.equal(shown["order_id"], key)).to_pylist()
    for row in rows:
        at = time.strftime("%H:%M:%S", time.localtime(row[SEEN_COLUMN] / 1e6))
        print(f"      {at}  {row[ROW_KIND_COLUMN]}  {row['status']:<10} {row['total']:>10}")


def _show(catalog: Catalog, shop: Shop) -> bool:
    """Prints the result; True when Freshet, Apache Paimon and the shop agree on both tables."""
    agreed = True
    headline("4. the tables, read by Freshet and by Apache Paimon (JVM)")
    orders, customers = catalog.table("shop.orders"), catalog.table("shop.customers")
    *paimon_rows, paimon_changes = read_by_paimon([("rows", orders), ("rows", customers), ("changes", orders)])
    for table, key, theirs, rows in (
        (orders, "order_id", paimon_rows[0], shop.orders),
        (customers, "customer_id", paimon_rows[1], shop.customers),
    ):
        ours = table.scan().to_arrow().sort_by(key)
        is_equal = theirs.cast(ours.schema).sort_by(key).equals(ours)
        is_right = _by_key(ours, key) == rows
        agreed &= is_equal and is_right
        print(
            f"  {table.name}: {ours.num_rows:,} rows by Freshet, {theirs.num_rows:,} by Apache Paimon: "
            f"{'equal' if is_equal else 'DIFFERENT'}; {'as in' if is_right else 'NOT AS IN'} the shop's database"
        )
        print("\n".join("    " + str(row) for row in ours.slice(0, 3).to_pylist()))
    agreed &= _show_changelog(orders, paimon_changes)
    headline("6. levels and snapshots")
    for name in ("shop.orders", "shop.customers"):
        print(_indented(catalog.table(name).describe()))
    _print_snapshots(catalog.table("shop.orders"))
    headline("7. dead letters")
    dead = catalog.table("shop.dead_letters").scan().to_arrow()
    agreed &= dead.num_rows == shop.broken
    print(f"  {dead.num_rows} records, {shop.broken} were sent broken:")
    for reason in dead.group_by(["reason", "column_name"]).aggregate([("log_offset", "count")]).to_pylist():
        where = f" ({reason['column_name']})" if reason["column_name"] else ""
        print(f"    {reason['log_offset_count']:>4}  {reason['reason']}{where}")
    headline("8. where the files lie")
    for name in ("shop.orders", "shop.customers", "shop.dead_letters"):
        print(f"  {catalog.table(name).location}")
    return agreed


def _show_changelog(table: Table, theirs: pa.Table) -> bool:
    """Prints what became of one order, step by step, as both readers show it; True when they show the same of all."""
    headline("5. the changelog of the orders, read by Freshet and by Apache Paimon ($audit_log)")
    ours = table.changelog().to_arrow()
    theirs = theirs.select(ours.column_names).cast(ours.schema)
    order = [(name, "ascending") for name in (SNAPSHOT_ID_COLUMN, "order_id", "changed", ROW_KIND_COLUMN)]
    is_equal = theirs.sort_by(order).equals(ours.sort_by(order))
    counts = pc.value_counts(ours["order_id"]).to_pylist()
    shown = max(counts, key=lambda each: (each["counts"] <= CHANGES_SHOWN_MAX, each["counts"], -each["values"]))
    print(
        f"  {ours.num_rows:,} changes by Freshet, {theirs.num_rows:,} by Apache Paimon: "
        f"{'equal' if is_equal else 'DIFFERENT'}; of order {shown['values']}:"
    )
    for reader, changes in (("Freshet", ours), ("Apache Paimon", theirs)):
        print(f"    {reader}")
        for change in changes.filter(pc.equal(changes["order_id"], shown["values"])).to_pylist():
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


def serve_shop() -> int:
    """Fills two topics; a broker of our own then runs until Ctrl-C."""
    with any_broker() as broker:
        sent = _filled(broker)
        print(f"topics {', '.join(f'{topic} ({count} records)' for topic, count in sent.items())}")
        if not isinstance(broker, KafkaBroker):
            return EXIT_DONE
        print("the broker runs until Ctrl-C; in another terminal:\n")
        print(f"export KAFKA_BOOTSTRAP_SERVERS={broker.bootstrap_servers}", flush=True)
        asked = threading.Event()
        with when_asked_to_stop(asked.set):
            asked.wait()
    return EXIT_DONE


def _filled(broker: ForeignBroker) -> dict[str, int]:
    there = broker.topics()
    for topic in (ORDERS_TOPIC, CUSTOMERS_TOPIC):
        if topic in there:
            raise InvalidRequestError(
                f"topic {topic} at {broker.bootstrap_servers} is there already: delete it, or unset "
                "KAFKA_BOOTSTRAP_SERVERS to start a broker"
            )
        broker.create_topic(topic, kafka_partitions=2)
    shop = Shop()
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "acks": "all"})
    for message in [*shop.open(CUSTOMERS), *shop.trade(EVENTS)]:
        producer.produce(message.topic, message.value, message.key)
    producer.flush(_FLUSH_S)
    return shop.sent
