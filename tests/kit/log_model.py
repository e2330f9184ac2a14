"""Random schedules of the log protocol: real encoder, writer, committer and reader, over a log and a disk in memory.

    run_schedule(seed, equal_replays=True)  ->  Counts      raises Violation, named by the invariant that does not hold

One step belongs to one actor, chosen by chance: a driver (claim an epoch, log chunk by chunk, retry a task, commit,
note it), a zombie (a driver that was replaced and goes on), or a reader (wait for records, take a snapshot or what was
fetched, restart from its state as JSON). Records come twice now and then, drivers die at any step, also
between the two snapshots of one commit. Drivers log in several formats.

The table is a dict. A batch is a list of changes that fit on what the last stable batch left; which of them count is
read from the snapshots.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from freshet.logstore.protocol.control import ControlKind, ControlRecord, claim_epoch, note
from freshet.logstore.protocol.record import KIND_FIELD
from freshet.logstore.protocol.topic import ensure_topics
from freshet.logstore.reading.reader_state import LogPosition, state_at
from freshet.logstore.reading.snapshot_steps import LogPiece, Piece
from freshet.logstore.reading.split_stream import LogSplitStream
from freshet.logstore.writing.writer import LogWriter, WriterSettings
from freshet.storage.commit.committer import Committer
from freshet.storage.exceptions import StorageError
from freshet.storage.io.env import CrashPoint
from freshet.storage.metadata.table_store import open_table_store
from freshet.storage.model.commit_message import CommitMessage
from freshet.storage.model.data_file import EMPTY_ROW
from freshet.storage.model.row_kind import RowKind
from freshet.storage.model.snapshot import Snapshot
from freshet.storage.model.snapshot_walk import StreamLimit
from freshet.storage.model.table_log import NO_BATCH, LogIdentity, LogProgress, log_of
from tests.kit.fake_log import FakeLog
from tests.kit.hand_made import make_table
from tests.kit.log_reader import SnapshotsAlone, reader_of
from tests.kit.sim_env import Crash, Fault, SimDisk

TOPIC = "model"
USER = "driver"
BUCKETS = 2
BATCHES = 4
KEYS = 6
SCHEMA = pa.schema([pa.field("k", pa.int64()), pa.field("v", pa.int64())])

Row = tuple[int, int, int]
"""(kind, key, value)."""


class Violation(AssertionError):
    """An invariant does not hold; the message begins with its name."""


@dataclass
class Counts:
    """What happened in a schedule."""

    replacements: int = 0
    zombie_steps: int = 0
    snapshots: int = 0
    shown: int = 0
    retracted: int = 0
    stable: int = 0
    lost_compactions: int = 0

    def __iadd__(self, other: Counts) -> Counts:
        for name in self.__dataclass_fields__:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        return self


def apply(state: dict[int, int], rows: Sequence[Row], invariant: str, updating: set[int]) -> None:
    """Folds changes; each must fit on what is there (I6: a well-formed stream). `updating` are keys after their -U."""
    for place, (kind, key, value) in enumerate(rows):
        what = f"{RowKind(kind).text} {key} {value} on {state.get(key)}"
        match RowKind(kind):
            case RowKind.INSERT if key in state or key in updating:
                raise Violation(f"{invariant}: {what} in {list(rows)} at {place}")
            case RowKind.UPDATE_AFTER if key in state or key not in updating:
                raise Violation(f"{invariant}: {what} in {list(rows)} at {place}")
            case RowKind.UPDATE_BEFORE | RowKind.DELETE if state.get(key) != value:
                raise Violation(f"{invariant}: {what} in {list(rows)} at {place}")
        if RowKind(kind).is_retract:
            del state[key]
            updating |= {key} if kind == RowKind.UPDATE_BEFORE else set()
        else:
            state[key] = value
            updating.discard(key)


@dataclass
class World:
    """What outlives actors, and what they all did."""

    seed: int
    equal_replays: bool
    chance: random.Random = field(init=False)
    log: FakeLog = field(default_factory=FakeLog)
    counts: Counts = field(default_factory=Counts)
    logged: dict[tuple[int, int, int], list[Row]] = field(default_factory=dict)
    """By (epoch, attempt, batch): what a driver meant to log."""
    states: dict[int, dict[int, int]] = field(default_factory=dict)
    """What the table holds once a batch is stable."""
    batch_of: dict[int, int] = field(default_factory=dict)
    """By snapshot: the last batch that is stable then."""

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)
        self.disk = SimDisk(seed=self.seed)
        self.store = make_table(self.disk.boot(), options={"write-only": "true"})
        client = self.log.client()
        facts = ensure_topics(client, TOPIC, BUCKETS, table="t")
        self.identity = LogIdentity(TOPIC, facts.topic_id, USER, {0: 0, 1: 0})
        self.log.duplicates = lambda: self.chance.random() < 0.1
        self.states[NO_BATCH] = {}
        self.seen = 0
        self.values = 0

    def look(self) -> None:
        """Takes note of the snapshots that came since, and of what they leave in the table."""
        latest = self.store.snapshots.latest()
        for snapshot_id in range(self.seen + 1, (0 if latest is None else latest.id) + 1):
            progress = progress_of(self.store.snapshots.snapshot(snapshot_id))
            batch_before = self.batch_of.get(snapshot_id - 1, NO_BATCH)
            self.batch_of[snapshot_id] = progress.batch
            if progress.batch > batch_before:
                table = dict(self.states[batch_before])
                for (_, bucket), won in progress.won.items():
                    rows = self.logged[won.epoch, won.attempt, progress.batch]
                    mine = [row for row in rows if row[1] % BUCKETS == bucket]
                    if len(mine) != won.row_count:
                        raise Violation(f"I11: {won.row_count} rows named, {len(mine)} logged")
                    apply(table, mine, "I11", set())
                self.states[progress.batch] = table
            self.seen = snapshot_id
            self.counts.snapshots += 1

    def snapshot(self, snapshot_id: int | None) -> Snapshot | None:
        """One of those that are there, or the latest."""
        self.look()
        wanted = self.seen if snapshot_id is None else snapshot_id
        return self.store.snapshots.snapshot(wanted) if 0 < wanted <= self.seen else None

    def last_stable(self) -> tuple[int, dict[int, int]]:
        """The last stable batch, and what the table holds then."""
        self.look()
        batch = self.batch_of.get(self.seen, NO_BATCH)
        return batch, self.states[batch]

    def changes(self, batch: int, variant: int, base: tuple[int, dict[int, int]]) -> list[Row]:
        """The changes of a batch, by bucket and key; the same for the same variant of the same state."""
        stable, table = base
        chance = random.Random(f"{self.seed}/{batch}/{stable}/{0 if self.equal_replays else variant}")
        rows: list[Row] = []
        for key in sorted(chance.sample(range(KEYS), chance.randrange(KEYS)), key=lambda key: (key % BUCKETS, key)):
            value = chance.randrange(1000)
            if key not in table:
                rows.append((RowKind.INSERT, key, value))
            elif chance.random() < 0.3:
                rows.append((RowKind.DELETE, key, table[key]))
            else:
                rows += [(RowKind.UPDATE_BEFORE, key, table[key]), (RowKind.UPDATE_AFTER, key, value)]
        return rows


def progress_of(snapshot: Snapshot) -> LogProgress:
    progress = log_of(snapshot.properties, snapshot.id)
    assert progress is not None
    return progress


def as_table(rows: Sequence[Row]) -> pa.Table:
    columns = [[row[place] for row in rows] for place in range(3)]
    types = [pa.int8(), pa.int64(), pa.int64()]
    arrays = [pa.array(column, kind) for column, kind in zip(columns, types, strict=True)]
    return pa.Table.from_arrays(arrays, schema=pa.schema([KIND_FIELD, *SCHEMA]))


def chunks(rows: list[Row], chance: random.Random) -> Iterator[list[Row]]:
    """Pieces of random sizes that part no -U from its +U; how a replay is cut is its own."""
    start = 0
    while start < len(rows):
        end = start + chance.randrange(1, 4)
        if end < len(rows) and rows[end - 1][0] == RowKind.UPDATE_BEFORE:
            end += 1
        yield rows[start:end]
        start = end


def driver(world: World, number: int) -> Iterator[None]:
    """One start of the writer, a step at a time; ends when all batches are committed or it dies."""
    chance = random.Random(f"{world.seed}/driver/{number}")
    client = world.log.client()
    producer = client.producer()
    epoch = claim_epoch(producer, TOPIC, USER, 0)
    fault = Fault(point=CrashPoint.COMMIT_BEFORE_COMPACT) if chance.random() < 0.3 else None
    env = world.disk.boot(fault)
    committer = Committer(open_table_store(env, world.store.location), USER, log=world.identity)
    writer = LogWriter(producer, WriterSettings(world.identity, epoch, 0, 1_000_000))
    attempt = -1
    yield
    while True:
        last = committer.has_committed(0).last
        batch = 0 if last is None else last.identifier + 1
        if world.last_stable()[0] >= BATCHES - 1:
            return
        base = world.last_stable()  # of the driver: a task that runs twice works upon the same
        rows = world.changes(batch, chance.randrange(10**9), base)
        for is_last in (False, True) if chance.random() < 0.2 else (True,):  # a task that runs twice
            attempt += 1
            writer.begin(batch, 0)
            world.logged[epoch, attempt, batch] = rows
            pieces = list(chunks(rows, chance))
            for piece in pieces if is_last else pieces[: chance.randrange(len(pieces) + 1)]:
                for bucket in range(BUCKETS):
                    mine = [row for row in piece if row[1] % BUCKETS == bucket]
                    if mine:
                        writer.log(EMPTY_ROW, bucket, as_table(mine))
                yield
            if not is_last and not world.equal_replays:
                rows = world.changes(batch, chance.randrange(10**9), base)
        increments = writer.finish()
        yield
        if world.last_stable()[0] != base[0]:
            continue  # another driver's batch became stable: what was logged does not fit on it any more, as a conflict
        by_compaction = chance.random() < 0.4
        messages = [
            CommitMessage(*bucket, BUCKETS, **{"compact_log" if by_compaction else "log": each})
            for bucket, each in sorted(increments.items())
        ]
        try:
            result = committer.commit(batch, messages)
        except Crash:
            world.counts.lost_compactions += 1
            return
        except StorageError:
            return
        world.look()
        yield
        if result.snapshots:
            record = ControlRecord(ControlKind.COMMIT, USER, epoch, batch, result.snapshots[-1].id)
            note(producer, TOPIC, record, 0)
        yield


class Reader:
    """Reads what others log, in one of the two isolations, as `Table.stream` does, and folds it."""

    def __init__(self, world: World, *, speculative: bool, number: int) -> None:
        self.world = world
        self.speculative = speculative
        self.chance = random.Random(f"{world.seed}/reader/{number}")
        world.look()
        at = self.chance.randrange(world.seen + 1)
        self.state = state_at(at, progress_of(world.store.snapshots.snapshot(at)) if at else None)
        self.table = dict(world.states[world.batch_of.get(at, NO_BATCH)])
        self.stream = self.opened()
        self.position = LogPosition(self.state)
        self.watermark = self.state.batch
        self.updating: set[int] = set()

    def opened(self) -> LogSplitStream:
        return reader_of(self.world.log, SnapshotsAlone(SCHEMA, self.world.snapshot), speculative=self.speculative)

    def step(self) -> None:
        what = self.chance.random()
        if what < 0.2:
            self.restart()
        elif what < 0.4:
            self.world.log.chunk = self.chance.randrange(1, 6)
            self.stream.wait(self.position, 0.0)
        else:
            self.move()

    def finish(self) -> None:
        """Reads everything that is there."""
        while self.move():
            pass

    def restart(self) -> None:
        self.stream = self.opened()
        self.position = self.stream.resumed(json.loads(json.dumps(self.stream.state_of(self.position))))

    def move(self) -> bool:
        """Hands out what comes next; False where that is nothing."""
        start = self.position
        end = self.stream.advance(start, StreamLimit(snapshots=1))
        self.note(self.stream.pieces(start, end))
        apply(self.table, rows_of(self.stream.read_between(start, end)), "I6", self.updating)
        self.stream.handed_over(end)
        self.position, self.state = end, end.state
        self.check()
        return end != start

    def note(self, pieces: Sequence[Piece]) -> None:
        for wanted in (wanted for piece in pieces if isinstance(piece, LogPiece) for wanted in piece.ranges):
            count = wanted.end_sequence - wanted.first_sequence
            if not wanted.is_retracted:
                self.world.counts.shown += count
                continue
            self.world.counts.retracted += count
            if not self.speculative:
                raise Violation(f"I3: a committed reader retracts {wanted}")
            if self.world.equal_replays and not self.world.counts.lost_compactions:
                raise Violation(f"I5: an equal replay retracts {wanted}")

    def check(self) -> None:
        """Where no batch is open the reader holds what the table holds."""
        if self.state.open_buckets:
            return
        if self.state.batch < self.watermark:
            raise Violation(f"I10: the watermark goes back from {self.watermark} to {self.state.batch}")
        self.watermark = self.state.batch
        wanted = self.world.states[self.state.batch]
        if self.updating:
            raise Violation(f"I6: a -U without its +U of keys {self.updating}")
        if self.table != wanted:
            raise Violation(f"I4/I1: at batch {self.state.batch} a reader holds {self.table}, the table {wanted}")
        self.world.counts.stable += 1


def rows_of(batches: Iterator[pa.RecordBatch]) -> list[Row]:
    return [row for each in batches for row in zip(*(column.to_pylist() for column in each.columns[:3]), strict=True)]


def run_schedule(
    seed: int,
    *,
    equal_replays: bool,
    replacements_max: int = 4,
    loss_probability: float = 0.0,
    reader_kind: Callable[..., Reader] = Reader,
) -> Counts:
    """One schedule to its end: the last driver has committed all batches, and every reader has read them.

    Records of rows are acknowledged and lost with some probability; then a reader that needs one raises `LogLostError`.
    """
    world = World(seed, equal_replays)
    world.log.losses = lambda: bool(loss_probability) and world.chance.random() < loss_probability
    chance = world.chance
    current = driver(world, 0)
    zombies: list[Iterator[None]] = []
    readers: list[Reader] = []
    is_done = False
    while not is_done:
        what = chance.random()
        if what < 0.45:
            is_done = not _goes_on(current)
            batch = world.last_stable()[0]
            if is_done and batch < BATCHES - 1:  # it died
                current, is_done = _replaced(world), False
        elif what < 0.50 and world.counts.replacements < replacements_max:
            if chance.random() < 0.4:
                zombies.append(current)
            current = _replaced(world)
        elif what < 0.60 and zombies:
            world.counts.zombie_steps += 1
            zombie = chance.choice(zombies)
            if not _goes_on(zombie):
                zombies.remove(zombie)
        elif what < 0.65 and len(readers) < 4:
            readers.append(reader_kind(world, speculative=chance.random() < 0.6, number=len(readers)))
        elif readers:
            chance.choice(readers).step()
    for reader in readers:
        reader.finish()
        if reader.state.batch != world.last_stable()[0]:
            raise Violation(f"I1: a reader stops at {reader.state.batch}, the table is at {world.last_stable()[0]}")
    return world.counts


def _goes_on(actor: Iterator[None]) -> bool:
    return next(actor, "ended") is None


def _replaced(world: World) -> Iterator[None]:
    world.counts.replacements += 1
    return driver(world, world.counts.replacements)
