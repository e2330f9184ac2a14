"""A stream, its rivals and an oracle on one simulated disk: what the crash tests play with.

The stream writes batches 0, 1, 2, … as Spark does: it remembers (in `World.acknowledged`, which no crash touches) the
batches whose commit returned, and after a crash it runs the first batch that it does not remember again, with the same
rows, identifier and query id. Rows of a batch follow from (seed, batch), so the oracle needs no history.

A rival, where there is one, commits rows of other keys between the attempts and expires snapshots as it does so.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

import pyarrow as pa

from freshet.storage.catalogs.claims import FileClaims
from freshet.storage.cleaning.expire import expire_later, expire_snapshots
from freshet.storage.cleaning.orphan_files import remove_orphan_files
from freshet.storage.codec.metadata_json import decode_snapshot
from freshet.storage.commit.commit_result import CommitResult
from freshet.storage.commit.committer import Committer
from freshet.storage.io.env import Env
from freshet.storage.metadata.table_store import TableStore, open_table_store
from freshet.storage.model.data_type import DataField, ScalarType, TypeRoot
from freshet.storage.model.schema import TableSchema
from freshet.storage.paths import TablePaths
from freshet.storage.table import Table
from freshet.storage.write.task_writer import TaskWriter
from tests.kit.hand_made import assert_contiguous, assert_everything_named_is_there
from tests.kit.sim_env import Crash, Fault, SimDisk, SimEnv

LOCATION: Final = "/warehouse/db.db/t"
STREAM: Final = "stream"
RIVAL: Final = "rival"
QUERY_ID: Final = "query-1"
KEYS: Final = 30
ROWS_PER_BATCH: Final = 12

Rows = list[tuple[str, int, str]]
"""(row kind, key, value)."""

OPTIONS: Final[Mapping[str, str]] = {
    "num-sorted-run.compaction-trigger": "2",
    "snapshot.num-retained.min": "1",
    "snapshot.num-retained.max": "3",
    "snapshot.clean-empty-directories": "true",
    "manifest.merge-min-count": "4",
}


@dataclass
class World:
    """One disk, one table, one stream."""

    rival_turns: ClassVar[int] = 2
    """Calls of `run_rival` after a crash."""

    seed: int
    keyed: bool = True
    batch_count: int = 4
    options: Mapping[str, str] = field(default_factory=dict)
    disk: SimDisk = field(init=False)
    acknowledged: int = 0
    rival_batches: int = 0
    crash_count: int = 0

    def __post_init__(self) -> None:
        self.disk = SimDisk(self.seed)
        columns = (
            DataField(0, "id", ScalarType(TypeRoot.BIGINT, nullable=not self.keyed)),
            DataField(1, "v", ScalarType(TypeRoot.VARCHAR, length=2147483647)),
        )
        schema = TableSchema(
            id=0,
            fields=columns,
            highest_field_id=1,
            primary_keys=("id",) if self.keyed else (),
            options={"bucket": "2" if self.keyed else "-1", **OPTIONS, **self.options},
        )
        assert FileClaims(self.disk.boot().file_io, TablePaths(LOCATION)).claim_schema(schema)

    def rows(self, batch: int, user: str = STREAM) -> Rows:
        """Rows of a batch; the rival has keys of its own."""
        chance = random.Random(f"{self.seed}/{user}/{batch}")
        offset = 0 if user == STREAM else 1000
        kinds = ("+I", "+I", "+U", "-D") if self.keyed else ("+I",)
        return [
            (chance.choice(kinds), offset + chance.randrange(KEYS), f"{user}-{batch}-{number}")
            for number in range(ROWS_PER_BATCH)
        ]

    def run_stream(self, fault: Fault | None = None) -> SimEnv:
        """One process of the stream, until all batches are done or it dies (`Crash` is swallowed and counted)."""
        env = self.disk.boot(fault)
        try:
            while self.acknowledged < self.batch_count:
                self._commit_batch(env, STREAM, self.acknowledged, QUERY_ID)
                self.acknowledged += 1
        except Crash:
            self.crash_count += 1
        return env

    def run_rival(self) -> None:
        """One commit of another user, and expiry."""
        env = self.disk.boot()
        self._commit_batch(env, RIVAL, self.rival_batches, None)
        self.rival_batches += 1
        expire_snapshots(self.open(env), retain_max=2)

    def _commit_batch(self, env: Env, user: str, batch: int, query_id: str | None) -> CommitResult | None:
        store = self.open(env)
        committer = Committer(store, user, query_id, after_commit=expire_later)
        if committer.has_committed(batch).is_committed:
            return None
        writer = TaskWriter(store, base_snapshot=store.snapshots.latest(), parallelism=1)
        try:
            writer.write(self.arrow(self.rows(batch, user)))
            return committer.commit(batch, writer.prepare_commit(batch))
        finally:
            writer.close()

    def arrow(self, rows: Rows) -> pa.Table:
        """Rows as a writer takes them."""
        columns: dict[str, Any] = {
            "id": pa.array([key for _, key, _ in rows], pa.int64()),
            "v": pa.array([value for _, _, value in rows]),
        }
        if self.keyed:
            columns["_ROW_KIND"] = pa.array([kind for kind, _, _ in rows])
        return pa.table(columns)

    def open(self, env: Env | None = None) -> TableStore:
        """The table, as a new process sees it."""
        return open_table_store(env or self.disk.boot(), LOCATION)

    def oracle(self, batches: int | None = None) -> Counter[tuple[int, str]]:
        """Rows that the table must hold after the batches acknowledged (and those of the rival)."""
        history: Rows = []
        for batch in range(self.acknowledged if batches is None else batches):
            history += self.rows(batch)
        for batch in range(self.rival_batches):
            history += self.rows(batch, RIVAL)
        if not self.keyed:
            return Counter((key, value) for _, key, value in history)
        held: dict[int, str] = {}
        for kind, key, value in history:
            if kind == "-D":
                held.pop(key, None)
            else:
                held[key] = value
        return Counter(held.items())

    def assert_survives(self, crash: Fault, *, with_rival: bool) -> None:
        """The process dies once, and another one commits the rest: nothing is lost or doubled."""
        self.run_stream(crash)
        assert self.crash_count == 1, crash
        for _ in range(self.rival_turns if with_rival else 0):
            self.run_rival()
        self.run_stream()
        assert self.acknowledged == self.batch_count
        self.check()

    def check(self) -> None:
        """Asserts what must hold whatever happened: rows, ids, names, identities; also after orphan cleaning."""
        store = self.open()
        assert read(store) == self.oracle(), f"seed {self.seed}: the table does not equal the oracle"
        assert_contiguous(store)
        assert_everything_named_is_there(store)
        seen = Counter(
            (snapshot.commit_user, snapshot.commit_identifier, snapshot.commit_kind)
            for snapshot in (decode_snapshot(data, path) for path, data in self.disk.created if "/snapshot-" in path)
        )
        assert all(count == 1 for count in seen.values()), f"seed {self.seed}: committed twice: {seen}"
        remove_orphan_files(store, older_than_ms=-1_000_000)
        store = self.open()
        assert read(store) == self.oracle(), f"seed {self.seed}: orphan cleaning took a file in use"
        assert not remove_orphan_files(store, older_than_ms=-1_000_000).files


def read(store: TableStore) -> Counter[tuple[int, str]]:
    """Rows of the latest snapshot."""
    rows = Table(store).scan().to_arrow()
    return Counter(zip(rows.column("id").to_pylist(), rows.column("v").to_pylist(), strict=True))
