"""Worlds in which a pipeline of files runs on the local engine or on Spark: what both have to do alike.

The local engine runs in this process where no other pool is given, in some milliseconds a batch. All that travels is
pickled, a call may fail (`Faults`), and what waits for a task comes in another order each time.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Final, Protocol
from uuid import uuid4

import pyarrow as pa

from freshet.pipeline.config.catalogs import target_catalog
from freshet.pipeline.config.model import PipelineConfig
from freshet.pipeline.config.pipeline_file import load_pipeline
from freshet.pipeline.decode import raw_records
from freshet.pipeline.identity.checkpoint_folder import CheckpointFolder, LocalCheckpoint
from freshet.pipeline.local.batch_calls import PackedToPacked, PackedToResults, PiecesToPacked, PiecesToResults
from freshet.pipeline.local.job import LocalJob
from freshet.pipeline.local.workers import LocalEngine, WorkerPool
from freshet.pipeline.query.driver.batch_report import BatchReport
from freshet.pipeline.query.driver.dead_letters import open_dead_letters
from freshet.pipeline.query.driver.engine import MicroBatch
from freshet.pipeline.query.driver.jobs import decoded_table
from freshet.pipeline.query.driver.query_run import Accepts, QueryRun
from freshet.pipeline.query.driver.table_commit import TableCommit
from freshet.pipeline.query.driver.table_setup import open_or_create, with_table
from freshet.pipeline.query.task.batch_work import BatchWork, RecordWork
from freshet.pipeline.query.wire.batch_pin import TaskPlace
from freshet.pipeline.query.wire.kept_value import KeptValue
from freshet.pipeline.running.local_pipeline import LocalJobs
from freshet.storage.table import Table

PARALLELISM: Final = 2


@dataclass
class Faults:
    """What goes wrong in the calls of a batch: errors that come once, before a call of a kind ends (`decode`, `stage`,
    `write`, `whole`)."""

    raised: list[tuple[str, Exception]] = field(default_factory=list)

    def met(self, kind: str) -> Exception | None:
        """What befalls a call of a kind that is about to end."""
        return self.raised.pop(0)[1] if self.raised and self.raised[0][0] == kind else None


CALL_KINDS: Final = {
    PiecesToPacked: "decode",
    PackedToPacked: "stage",
    PackedToResults: "write",
    PiecesToResults: "whole",
}


class InlinePool(WorkerPool):
    """Workers that are calls of this process: they fail as they are told, and what waits for a task comes in another
    order each time."""

    def __init__(self, faults: Faults, seed: int = 7) -> None:
        super().__init__(0)
        self._faults = faults
        self._chance = random.Random(seed)

    def submit(self, call: Any, *, worker: int | None = None, group: str | None = None) -> Future[Any]:
        """As `WorkerPool` says."""
        if isinstance(call, PackedToPacked | PackedToResults):
            call = replace(call, waiting=self._chance.sample(call.waiting, len(call.waiting)))
        future = super().submit(call, worker=worker, group=group)
        error = self._faults.met(CALL_KINDS.get(type(call), "call"))
        if error is not None:
            future = Future()
            future.set_exception(error)
        return future


@dataclass
class FolderQuery:
    """A run of a query, whose batches are planned in its checkpoint as Spark writes them; each is a file."""

    folder: CheckpointFolder
    run_id: str = field(default_factory=lambda: str(uuid4()))

    def output_mode(self) -> str:
        """As `PlannedQuery` says."""
        return "Append"

    def offsets(self, micro_batch_id: int) -> tuple[str | None, ...] | None:
        """As `PlannedQuery` says."""
        text = self.folder.read("offsets", str(micro_batch_id))
        return None if text is None else tuple(text.splitlines()[2:])

    def ignores_missing_files(self) -> bool:
        """As `PlannedQuery` says."""
        return False

    def takes_names_for_patterns(self) -> bool:
        """As `PlannedQuery` says."""
        return False


@dataclass(frozen=True)
class LinesPiece:
    """Half of a file, as a `Piece`."""

    work: KeptValue[BatchWork]
    index: int
    path: Path
    block: int

    keeps_together: ClassVar[bool] = False

    def run(self, place: TaskPlace) -> Iterator[pa.RecordBatch]:
        """As `Piece` says."""
        lines = self.path.read_bytes().splitlines()
        half = (len(lines) + 1) // 2
        lines = lines[half:] if self.block else lines[:half]
        if lines:
            yield from RecordWork(self.work, self.index).run(iter([_raw(self.path, lines, self.block)]), place)


class FileListSource:
    """A `PieceSource` of files, the numbers of which are its offsets."""

    def __init__(self, files: Sequence[Path]) -> None:
        self._files = files

    def pieces(
        self, start: str | None, end: str, work: KeptValue[BatchWork], index: int, count: int
    ) -> Sequence[LinesPiece]:
        """As `PieceSource` says."""
        return [LinesPiece(work, index, self._files[int(end)], block) for block in range(2)]


class World(Protocol):
    """A pipeline of files of JSON, each of which is a batch, on an engine."""

    config: PipelineConfig

    def put(self, *lines: Any) -> None:
        """One more file: each line is a value, or a text as it stands."""

    def run(self) -> list[BatchReport]:
        """Starts the query, and runs the batches that wait."""

    def begin_again(self, number: int) -> None:
        """The engine has not noted that this batch, the last one, is done: it comes again."""

    def rows(self) -> list[dict[str, Any]]:
        """The rows of the table."""

    def dead(self) -> list[dict[str, Any]]:
        """The dead letters."""


class FolderWorld:
    """What the worlds have in common."""

    def __init__(self, root: Path, text: str) -> None:
        self.root = root
        (root / "in").mkdir(parents=True)
        file = root / "pipeline.yaml"
        file.write_text(text.replace("FOLDER", str(root)))
        self.config = load_pipeline(file, {})
        self.files: list[Path] = []

    def put(self, *lines: Any) -> None:
        """As `World` says."""
        path = self.root / "in" / f"{len(self.files):04}.json"
        path.write_text("".join(f"{each if isinstance(each, str) else json.dumps(each)}\n" for each in lines))
        os.utime(path, (1000 + len(self.files), 1000 + len(self.files)))
        self.files.append(path)

    def table(self) -> Table:
        """The table, as it is now."""
        return target_catalog(self.config).table(self.config.table.name)

    def rows(self) -> list[dict[str, Any]]:
        """As `World` says."""
        found = self.table().scan().to_arrow().to_pylist()
        return sorted(found, key=lambda row: json.dumps(row, default=str))

    def dead(self) -> list[dict[str, Any]]:
        """As `World` says."""
        return target_catalog(self.config).table(self.config.dead_letter_table).scan().to_arrow().to_pylist()


class LocalWorld(FolderWorld):
    """A pipeline on the local engine, in this process where no other pool is given; its checkpoint is as Spark's."""

    def __init__(self, root: Path, text: str, pool: WorkerPool | None = None) -> None:
        super().__init__(root, text)
        self.faults = Faults()
        self._engine = LocalEngine(pool or InlinePool(self.faults), parallelism=PARALLELISM)
        self.query_id = str(uuid4())
        self._checkpoint = self.root / "c"

    def run(self) -> list[BatchReport]:
        """As `World` says."""
        reports, run = [], self._open()
        query = FolderQuery(LocalCheckpoint(self._checkpoint))
        try:
            for number in range(len(self.files)):
                if (self._checkpoint / "commits" / str(number)).exists():
                    continue
                self._plan(number)
                spans = [(str(number - 1) if number else None, str(number))]
                reports.append(run.write(MicroBatch(number, self._engine, self.query_id, query, spans)))
                self._note("commits", number, 'v1\n{"nextBatchWatermarkMs":0}')
            run.check_last()
        finally:
            run.close()
        return reports

    def begin_again(self, number: int) -> None:
        """As `World` says."""
        (self._checkpoint / "commits" / str(number)).unlink()

    def _open(self) -> QueryRun:
        config = with_table(self.config)
        table = open_or_create(config)
        letters = open_dead_letters(target_catalog(config), config.dead_letter_table)
        commit = TableCommit(table, config.name, decoded=config.table.table_schema, options=config.table.own_options)
        works, target = decoded_table(config, commit, self._engine, letters.handle)
        source: Any = FileListSource(self.files)
        job = LocalJob(works, [source], table.name)
        accepts = Accepts(config.max_dead_letters, every_batch=True, lost=config.accepted_loss)
        return QueryRun(target, job, config.name, accepts, dead_letters=letters)

    def _plan(self, number: int) -> None:
        path = self.files[number]
        entry = {"path": path.as_uri(), "timestamp": int(path.stat().st_mtime * 1000), "batchId": number}
        self._note("sources/0", number, f"v1\n{json.dumps(entry, separators=(',', ':'))}")
        self._note("offsets", number, f'v1\n{{"batchWatermarkMs":0}}\n{{"logOffset":{number}}}')

    def _note(self, folder: str, number: int, text: str) -> None:
        place = self._checkpoint / folder
        place.mkdir(parents=True, exist_ok=True)
        if not (place / str(number)).exists():  # a batch that is planned stays as it is
            (place / str(number)).write_text(text)


def _raw(path: Path, lines: Sequence[bytes], block: int) -> pa.RecordBatch:
    """The lines of one block of a file."""
    count, seconds = len(lines), int(path.stat().st_mtime)
    columns = {
        raw_records.KEY: pa.nulls(count, pa.binary()),
        raw_records.VALUE: pa.array(lines, pa.binary()),
        raw_records.TOPIC: pa.array([path.as_uri()] * count, pa.string()),
        raw_records.KAFKA_PARTITION: pa.nulls(count, pa.int32()),
        raw_records.OFFSET: pa.array([block << 33] * count, pa.int64()),
        raw_records.TIMESTAMP: pa.array([seconds * 1_000_000] * count, pa.timestamp("us", "UTC")),
        raw_records.OLD_KEY: pa.nulls(count, pa.binary()),
        raw_records.RANK: pa.array([seconds * 1_000_000] * count, pa.int64()),
    }
    return pa.RecordBatch.from_pydict(columns)


def each_batch(reports: Sequence[BatchReport]) -> Iterator[tuple[int, bool]]:
    """The numbers of the batches, and whether each was there already."""
    yield from ((each.micro_batch_id, each.is_replay) for each in reports)


def local_jobs() -> LocalJobs:
    """The jobs of workers that are calls of this process."""
    return LocalJobs(
        LocalEngine(InlinePool(Faults()), parallelism=PARALLELISM), lambda place: LocalCheckpoint(Path(place))
    )
