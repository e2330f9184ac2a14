"""`freshet demo join`: three change streams become one wide row each order, by one query and by several at once.

    1. broker and topics
    2. one query with three sources: the streams are sent in waves, after each the wide rows are shown as they grow
    3. three queries, write-only, with a compaction job, over the same topics into a table of their own
    4. both tables are read by Freshet and by Apache Paimon (JVM) and compared with each other and with the truth

`--variant one` or `--variant several` leaves out the other (several is then sent the waves). Exit code 1 on any
difference; Ctrl-C at any time ends all of it.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Final, TypeAlias

import pyarrow as pa
from confluent_kafka import Producer

from freshet._frozen import Frozen
from freshet.jobs.demo.child_process import start_child, stop_child
from freshet.jobs.demo.join_streams import COLUMNS, ORDERS, PAYMENTS, SHIPMENTS, STREAMS, JoinStreams, topic_of
from freshet.jobs.demo.kafka_broker import any_broker
from freshet.jobs.demo.paimon_reader import read_by_paimon
from freshet.jobs.demo.shop import Message
from freshet.jobs.demo.stage import PIPELINES, headline, play
from freshet.pipeline.config.pipeline_file import PipelineConfig, load_pipelines
from freshet.pipeline.config.sections import RunOn
from freshet.pipeline.query.driver.table_setup import open_or_create
from freshet.pipeline.running.progress import Progress
from freshet.pipeline.running.progress_report import progress_line
from freshet.pipeline.running.runner import Runner
from freshet.pipeline.running.signals import when_asked_to_stop
from freshet.pipeline.spark.jars import SPARK_GROUP, ensure_jars
from freshet.storage.catalog import Catalog
from freshet.storage.table import Table

_RunnerOf: TypeAlias = Callable[..., Runner]
"""Makes the runner of some pipelines on an engine."""

ONE: Final = ("join-one-query.yaml",)
SEVERAL: Final = tuple(f"join-several-{stream}.yaml" for stream in STREAMS)

ORDER_COUNT: Final = 1500
EARLY: Final = ORDER_COUNT + 1
"""An order whose payment comes first."""
SHOWN: Final = (1, 2, 3, EARLY)
RECORDS_PER_BATCH: Final = 500
"""Of each topic, so that the several queries have some batches to commit side by side."""
COMPACT_EVERY_S: Final = 1
_each: Final = chain.from_iterable
STOP_TIMEOUT_S: Final = 120.0
RUN_LIMIT_S: Final = 600.0


class Wave(Frozen):
    """What is sent before the rows are shown again."""

    title: str
    messages: Iterable[Message]


def waves(streams: JoinStreams) -> Iterator[Wave]:
    """The story: orders 1 to 3 and `EARLY` are followed by name, the others are the crowd."""
    crowd = range(4, ORDER_COUNT + 1)
    yield Wave("orders arrive", _each(streams.insert(ORDERS, number) for number in range(1, ORDER_COUNT + 1)))
    paid = [1, 2, 3, EARLY, *crowd[::2]]
    title = f"payments arrive, one for order {EARLY} that is not there yet"
    yield Wave(title, _each(streams.insert(PAYMENTS, number) for number in paid))
    shipped = [1, 2, 3, *crowd[::3]]
    late_shipments = _each(streams.insert(SHIPMENTS, number) for number in shipped)
    yield Wave(f"shipments come late, and so does order {EARLY}", chain(streams.insert(ORDERS, EARLY), late_shipments))
    out_of_order = chain(streams.update(ORDERS, 1), streams.swapped_updates(ORDERS, 2), streams.late_update(ORDERS, 3))
    changes = streams.anything(1200, crowd)
    title = "order 1 changes, two changes of order 2 are swapped, one of order 3 is late"
    yield Wave(title, chain(out_of_order, changes))
    deletes = chain(
        streams.delete(PAYMENTS, 2), streams.late_update(PAYMENTS, 2), streams.delete(ORDERS, 3),
        *(streams.without_order(number) for number in (1, 2)),
    )  # fmt: skip
    title = "payment 2 is deleted and a late change of it follows, order 3 is deleted; two payments say no time"
    yield Wave(title, chain(deletes, streams.anything(600, crowd)))


class DemoRun:
    """One run of one or several queries: sends the waves, shows the rows, and asks for the end when all is read."""

    def __init__(self, configs: Sequence[PipelineConfig], streams: JoinStreams) -> None:
        self._streams = streams
        self._table = open_or_create(configs[0])
        self._names = {config.name: _streams_of(config) for config in configs}
        self._read: Counter[str] = Counter()
        self._dead = 0
        self._keys_merged = 0
        self._has_read = threading.Condition()
        self._ended = False
        self.is_complete = False

    def take(self, progress: Progress) -> None:
        """Shows a batch and adds it up."""
        report = progress.report
        if report.read_count:
            print("  " + progress_line(progress), flush=True)
        with self._has_read:
            self._read[report.pipeline] += report.read_count
            self._dead += report.result.dead_count
            self._keys_merged += report.result.keys_merged
            self._has_read.notify_all()

    def feed(self, bootstrap_servers: str, story: Iterator[Wave], runner: Runner) -> None:
        """Sends wave after wave, each when the one before is in the table; runs in a thread of its own."""
        producer = Producer({"bootstrap.servers": bootstrap_servers, "linger.ms": 20})
        try:
            for number, wave in enumerate(story, 1):
                if self._ended:
                    return
                for message in wave.messages:
                    producer.produce(message.topic, message.value, message.key)
                    producer.poll(0)
                producer.flush()
                if not self._wait_until_read():
                    return
                print(f"\n  wave {number}: {wave.title}", flush=True)
                _show_rows(self._table)
            self.is_complete = self._watch_growth()
        finally:
            runner.request_stop()

    def end(self) -> None:
        """Nothing more will be read."""
        with self._has_read:
            self._ended = True
            self._has_read.notify_all()

    def totals(self) -> str:
        """What was read, and what of it could become no row."""
        count = self._read.total()
        return f"{count:,} records read, {self._dead} of them dead letters; {self._keys_merged:,} keys merged"

    def has_right_dead_letters(self) -> bool:
        """True when exactly the broken records are dead letters."""
        return self._dead == self._streams.broken

    def _wait_until_read(self) -> bool:
        with self._has_read:
            return self._has_read.wait_for(lambda: self._ended or self._is_all_read(), RUN_LIMIT_S) and not self._ended

    def _watch_growth(self) -> bool:
        """Shows how the rows grow while what was sent before is read; True when all of it was."""
        deadline = time.monotonic() + RUN_LIMIT_S
        while not (self._ended or self._is_all_read()) and time.monotonic() < deadline:
            with self._has_read:
                self._has_read.wait(RUN_LIMIT_S)
            _show_counts(self._table.scan(columns=[names[-1] for names in COLUMNS.values()]).to_arrow())
        return self._is_all_read()

    def _is_all_read(self) -> bool:
        sent = self._streams.sent
        return all(self._read[name] == sum(sent[each] for each in read) for name, read in self._names.items())


def play_join(output: Path | None, variant: str, on: RunOn) -> int:
    """Plays the demo in a new folder; 0 when both readers and the truth agree on every table."""
    return play(partial(_play, variant=variant, on=on), output, "join")


def _play(output: Path, variant: str, on: RunOn) -> bool | None:
    warehouse = output / "warehouse"
    streams = JoinStreams()
    story = waves(streams)
    tables: list[str] = []
    headline("1. a real Kafka broker, three topics")
    with _engine(on) as runner_of, any_broker() as broker:
        for stream in STREAMS:
            broker.create_topic(topic_of(stream), kafka_partitions=2)
        print(f"  {broker.bootstrap_servers}: {', '.join(map(topic_of, STREAMS))}")
        env = {"KAFKA_BOOTSTRAP_SERVERS": broker.bootstrap_servers, "WAREHOUSE": warehouse.as_uri()}
        for name, files, title in (
            ("one", ONE, "2. one query with three sources"),
            ("several", SEVERAL, "3. three queries write one table, a fourth process compacts it"),
        ):
            if variant not in (name, "both"):
                continue
            headline(title)
            print("\n".join(f"  {PIPELINES / file}" for file in files))
            bound = {"MAX_OFFSETS_PER_TRIGGER": str(RECORDS_PER_BATCH)} if files == SEVERAL else {}
            loaded = load_pipelines([PIPELINES / file for file in files], {**env, **bound})
            configs = [config.running_on(on) for config in loaded]
            run = _run(runner_of, configs, streams, story, broker.bootstrap_servers, output)
            print(f"  {run.totals()}")
            if not run.is_complete:
                print("\nstopped before everything was read; nothing is left running")
                return None
            if not run.has_right_dead_letters():
                print(f"  DIFFERENT: {streams.broken} records were sent broken")
                return None
            tables.append(configs[0].table.name)
    return compare(Catalog(str(warehouse)), tables, streams)


@contextmanager
def _engine(on: RunOn) -> Iterator[_RunnerOf]:
    """One session of Spark or the workers of this machine, for both variants. Belongs before the first client of Kafka:
    workers are forked from this process."""
    if on == "local":
        from freshet.pipeline.commands.local_running import started
        from freshet.pipeline.running.local_pipeline import LocalPipelines

        with started(None, ()) as pool:
            yield partial(Runner, LocalPipelines(pool))
        return
    from freshet.pipeline.running.spark_pipeline import SparkPipelines
    from freshet.pipeline.spark.session import SHORT_LIVED, create_session

    spark = create_session("freshet-demo-join", settings=SHORT_LIVED, jars=ensure_jars(SPARK_GROUP), master="local[2]")
    try:
        yield partial(Runner, SparkPipelines(spark))
    finally:
        spark.stop()


def _run(
    runner_of: _RunnerOf,
    configs: list[PipelineConfig],
    streams: JoinStreams,
    story: Iterator[Wave],
    bootstrap_servers: str,
    output: Path,
) -> DemoRun:
    assert not any(config.spark for config in configs), "both variants have one session"
    run = DemoRun(configs, streams)
    runner = runner_of(configs, on_progress=run.take, say=lambda text: print("  " + text, flush=True))
    thread = threading.Thread(target=run.feed, args=(bootstrap_servers, story, runner), name="streams")
    compacts = any(config.table.written_options.write_only for config in configs)
    try:
        with (
            when_asked_to_stop(runner.request_stop),
            _compaction_job(configs[0], output) if compacts else nullcontext(),
        ):
            thread.start()
            runner.run()
    finally:
        run.end()
        if thread.ident is not None:
            thread.join()
    return run


@contextmanager
def _compaction_job(config: PipelineConfig, output: Path) -> Iterator[None]:
    """`freshet compact … --every 1` in a process of its own, as long as the queries run."""
    arguments = ["compact", config.table.warehouse, config.table.name, "--every", str(COMPACT_EVERY_S)]
    print(f"  freshet {' '.join(arguments)}")
    with (output / "compaction.log").open("wb") as log:
        job = start_child([sys.executable, "-m", "freshet", *arguments], log=log)
        try:
            yield
        finally:
            stop_child(job, timeout_s=STOP_TIMEOUT_S)
    text = (output / "compaction.log").read_text()
    print(f"  compaction job: exit code {job.returncode}, {text.count('compacted in snapshot')} rounds found work")
    if job.returncode:
        raise RuntimeError(f"the compaction job failed:\n{text}")


def _streams_of(config: PipelineConfig) -> tuple[str, ...]:
    topics = {str((source.kafka or {}).get("subscribe")) for source in config.sources}
    return tuple(stream for stream in STREAMS if topic_of(stream) in topics)


def _show_rows(table: Table) -> None:
    """The rows that the story follows, and how many have something from which stream."""
    rows = table.scan().to_arrow()
    _show_counts(rows)
    names = ["order_id", "status", "total", "order_lsn", "paid", "method", "payment_lsn", "carrier", "shipment_lsn"]
    by_key = {row["order_id"]: row for row in rows.select(names).to_pylist()}
    texts = [names, *([_text(by_key[key][name]) for name in names] for key in SHOWN if key in by_key)]
    widths = [max(len(line[index]) for line in texts) for index in range(len(names))]
    for line in texts:
        print("    " + "  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip())
    sys.stdout.flush()


def _show_counts(rows: pa.Table) -> None:
    filled = {stream: rows.num_rows - rows.column(names[-1]).null_count for stream, names in COLUMNS.items()}
    parts = ", ".join(f"{stream} {count:,}" for stream, count in filled.items())
    print(f"    {rows.num_rows:,} wide rows; something is known from {parts}", flush=True)


def compare(catalog: Catalog, names: Sequence[str], streams: JoinStreams) -> bool:
    """Prints the end state; True when Freshet, Apache Paimon and the truth agree on all tables."""
    agreed = True
    truth = streams.expected()
    headline("4. the tables, read by Freshet and by Apache Paimon (JVM)")
    tables = [catalog.table(name) for name in names]
    for table, theirs in zip(tables, read_by_paimon([("rows", table) for table in tables]), strict=True):
        ours = table.scan().to_arrow().sort_by("order_id")
        found: Mapping[int, Any] = {row["order_id"]: row for row in ours.to_pylist()}
        is_equal, is_right = theirs.cast(ours.schema).sort_by("order_id").equals(ours), found == truth
        agreed &= is_equal and is_right
        print(
            f"  {table.name}: {ours.num_rows:,} rows by Freshet, {theirs.num_rows:,} by Apache Paimon: "
            f"{'equal' if is_equal else 'DIFFERENT'}; {'as' if is_right else 'NOT AS'} the streams say"
        )
        for key in [key for key in {*found, *truth} if found.get(key) != truth.get(key)][:3]:
            print(f"    order {key}: {found.get(key)}\n    truth:   {truth.get(key)}")
        _print_commits(table)
    return agreed


def _print_commits(table: Table) -> None:
    """Who committed what, a line for each writer."""
    counts: dict[str, Counter[str]] = {}
    for snapshot in table.snapshots():
        user = snapshot.commit_user if snapshot.commit_user.startswith("join-") else "freshet compact"
        counts.setdefault(user, Counter())[str(snapshot.commit_kind)] += 1
    for user, kinds in sorted(counts.items()):
        print(f"    {user}: " + ", ".join(f"{count} {kind} snapshots" for kind, count in sorted(kinds.items())))


def _text(value: object) -> str:
    return "-" if value is None else str(value)
