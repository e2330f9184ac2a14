"""The checkpoint of a query that runs here: which batch comes, where it ends, and that it is done.

    offsets/<N> created   batch N is planned: it ends there, however often it is run. It is created while the job of
                          the batch runs, and there before the tables know of the batch (`settle`)
    commits/<N> created   batch N is done; before that no other batch is planned

Of two runs that create one file at once, one goes on: the other ends with an error. So no batch has two plans, and two
runs of one batch, of which the table takes one, end there. Against a Spark that runs at the same time it holds as far
as Spark's own file systems do (it looks first, then renames).

What has to be on the disk when:

| file | when the machine dies | so |
|---|---|---|
| `offsets/<N>` | a table that holds batch N refuses another plan of it | on the disk before a table has the batch |
| `commits/<N>` | batch N comes again, and the tables know it | may be forgotten, but never be there in part |

Spark keeps a hundred entries of both and purges while it plans a batch; so does this, ten at a time.

The texts are those of version 1, as Spark 4.2.1 writes and reads them:

    metadata      {"id":"<uuid>"}                                     without it Spark refuses what else is there
    offsets/<N>   v1, {"batchWatermarkMs":0,"batchTimestampMs":…,"conf":{…}}, then a line for each source: its offset,
                  or `-` where it has none yet
    commits/<N>   v1, {"nextBatchWatermarkMs":0}

`conf` becomes that of Spark's query, whatever its session has; the one of the batch before is carried on. A key that is
missing gets the value of the versions before there was such a key, except `spark.sql.shuffle.partitions`, which then is
the session's. So a new checkpoint says all but that one: how many tasks a batch has is up to the machine it moves to.

Spark writes version 2 of `offsets` where sources are named (source evolution), and of `commits` for states with a
format of their own; both are refused, as are states: they are of queries that this engine does not run.

Source: Spark's `MicroBatchExecution`, `HDFSMetadataLog`, `OffsetSeqLog`, `OffsetSeqMetadata`, `CommitLog`; tried.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, Final
from uuid import uuid4

import orjson

from freshet._frozen import Frozen
from freshet.pipeline.errors.error_kind import ErrorKind
from freshet.pipeline.errors.failure import kind_of
from freshet.pipeline.errors.known_causes import full_checkpoint
from freshet.pipeline.exceptions import ConfigurationError, PipelineFailedError
from freshet.pipeline.identity.checkpoint_folder import WritableCheckpoint
from freshet.pipeline.identity.checkpoint_offsets import COMMITS, OFFSETS, second_run_error
from freshet.pipeline.identity.checkpoint_owner import SPARK_METADATA, query_id_of

BATCHES_KEPT: Final = 100
"""Spark's `spark.sql.streaming.minBatchesToRetain`."""
PURGED_AT_ONCE: Final = 10

_STATE: Final = "state"
COMMITTED: Final = 'v1\n{"nextBatchWatermarkMs":0}'
"""The text of each file below `commits`."""

CONF: Final[Mapping[str, str]] = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.mergeOperatorVersion": "2",
    "spark.sql.streaming.stateStore.rocksdb.formatVersion": "5",
    "spark.sql.streaming.queryEvolution.enableSourceEvolution": "false",
    "spark.sql.streaming.stateStore.encodingFormat": "unsaferow",
    "spark.sql.streaming.statefulOperator.useStrictDistribution": "true",
    "spark.sql.streaming.flatMapGroupsWithState.stateFormatVersion": "2",
    "spark.sql.streaming.multipleWatermarkPolicy": "min",
    "spark.sql.streaming.stateStore.rowChecksum.enabled": "false",
    "spark.sql.streaming.aggregation.stateFormatVersion": "2",
    "spark.sql.function.protobufExtensions.enabled": "false",
    "spark.sql.streaming.join.stateFormatVersion": "2",
    "spark.sql.streaming.stateStore.compression.codec": "lz4",
    "spark.sql.optimizer.pruneFiltersCanPruneStreamingSubplan": "false",
}
"""What Spark 4.2.1 writes down of a session that sets none of it."""
SHUFFLE_PARTITIONS: Final = "spark.sql.shuffle.partitions"

_VERSION: Final = "v1"
_NONE: Final = "-"
_REMEDY: Final = (
    "go on with it on Spark (run_on: spark), or name a new checkpoint and give the pipeline another name: it then "
    "begins as a new writer"
)


class StreamCheckpoint:
    """The log of one query; used by its thread alone. To open it writes nothing."""

    def __init__(
        self,
        folder: WritableCheckpoint,
        source_count: int,
        conf: Mapping[str, str],
        second_run: ErrorKind = ErrorKind.INVALID_REQUEST,
    ) -> None:
        """Raises `ConfigurationError` where the engine cannot go on with it, `PipelineFailedError` where it is damaged.

        `conf` are settings of Spark's, which a new checkpoint gets. `second_run` is the kind of the error where another
        run goes on with it.
        """
        self.folder = folder
        self._kind_of_second = second_run
        self._source_count = source_count
        self._kept: dict[int, PlannedOffsets] = {}
        self._purged_to = 0
        self._is_committed_here = False
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="freshet-checkpoint")
        self._writing: Future[None] | None = None
        with self._reached():
            if folder.numbers(_STATE):
                raise refuse_state(folder.place(_STATE))
            done = max(folder.numbers(COMMITS), default=None)  # first: another run may go on meanwhile
            planned = sorted(folder.numbers(OFFSETS))
            self._check_numbers(planned, done)
            self._query_id = self._identity(is_new=not planned)
            self.next_number = 0 if done is None else done + 1
            """The batch that comes next: planned already, or not."""
            if done is not None:
                self._check_commit(done)
            self._begun = frozenset(planned[planned.index(self.next_number) :] if self.next_number in planned else ())
            self._newest = self._read(planned[-1]) if planned else first_offsets(conf)
            for number in (self.next_number - 1, self.next_number):
                if number in planned:
                    self._kept[number] = self._read(number)

    @property
    def query_id(self) -> str:
        """The id of the query, which a new checkpoint gets when it is asked for."""
        with self._reached():
            if self._query_id is None:  # of two runs that begin at once, one writes it
                self.folder.create(SPARK_METADATA, text=orjson.dumps({"id": str(uuid4())}).decode())
                self._query_id = self._identity(is_new=False)
        assert self._query_id is not None
        return self._query_id

    @property
    def is_planned(self) -> bool:
        """Whether the next batch has its end written down: it was begun by a run that has died, or by another one."""
        return self.next_number in self._kept

    def offsets(self, number: int) -> tuple[str | None, ...] | None:
        """Where each source ends in a batch; None where none is written down (any more)."""
        if number not in self._kept:
            with self._reached():
                text = self._text(OFFSETS, number)
            return None if text is None else self._parsed(text, number).offsets
        return self._kept[number].offsets

    def plan(self, offsets: Sequence[str | None], now_ms: int) -> None:
        """The next batch ends here; `settle` says when that is written down."""
        number, _ = self.next_number, self.query_id  # Spark refuses batches without it
        self._newest = self._kept[number] = self._newest.next(offsets, now_ms)
        self._writing = self._writer.submit(self._write, number, self._newest.text())

    def settle(self) -> None:
        """Returns once the plan of the next batch survives a crash of the machine. Raises `PipelineFailedError` where
        another run has planned the batch."""
        if self._writing is not None:
            self._writing.result()
            self._writing = None

    def commit(self) -> None:
        """The next batch is done. Raises `PipelineFailedError` where another run has said so."""
        self.settle()
        number = self.next_number
        with self._reached():
            if self._is_committed_here:
                is_first = self.folder.repeat(str(number), COMMITS, str(number - 1), text=COMMITTED)
            else:
                is_first = self.folder.create(COMMITS, str(number), text=COMMITTED)
        if not is_first:
            raise self._second_run(COMMITS, number)
        self._is_committed_here = True
        self._kept.pop(number - 1, None)
        self.next_number = number + 1
        if number + 1 in self._begun:
            with self._reached():
                self._kept[number + 1] = self._read(number + 1)

    def close(self) -> None:
        """Waits for what is being written."""
        self._writer.shutdown()

    def _write(self, number: int, text: str) -> None:
        with self._reached():
            if not self.folder.create(OFFSETS, str(number), text=text):
                raise self._second_run(OFFSETS, number)
        self._purge(number - BATCHES_KEPT)

    def _identity(self, *, is_new: bool) -> str | None:
        """The id of the query; None where the checkpoint is new."""
        if is_new and self.folder.read(SPARK_METADATA) is None:
            return None
        found = query_id_of(self.folder)
        if found is None:
            place = self.folder.place(SPARK_METADATA)
            raise PipelineFailedError(
                f"{place} does not say whose checkpoint it is (it is missing, empty or damaged): restore it from a "
                "backup. Tables know the batches by the id in it",
                kind=ErrorKind.CORRUPT_DATA,
            )
        return found

    def _check_numbers(self, planned: Sequence[int], done: int | None) -> None:
        """Raises where a batch that is to come, or the one before it, is not written down."""
        if not planned and done is None:
            return
        first = 0 if done is None else done
        missing = next((number for number in range(first, max(planned, default=first)) if number not in planned), None)
        if not planned or planned[-1] < first:
            missing = first
        if missing is not None:
            raise PipelineFailedError(
                f"{self.folder.place(OFFSETS, str(missing))} is missing: the checkpoint was changed by hand, or a "
                "backup of it is not whole. Restore the files below offsets and commits of one moment",
                kind=ErrorKind.CORRUPT_DATA,
            )

    def _check_commit(self, number: int) -> None:
        place = self.folder.place(COMMITS, str(number))
        check_committed(self._text(COMMITS, number) or "", place)

    def _read(self, number: int) -> PlannedOffsets:
        text = self._text(OFFSETS, number)
        if text is None:  # purged meanwhile, by another run
            raise self._second_run(OFFSETS, number)
        found = self._parsed(text, number)
        if len(found.offsets) != self._source_count:
            raise ConfigurationError(
                f"{self.folder.place(OFFSETS, str(number))} is of {len(found.offsets)} sources, and the pipeline has "
                f"{self._source_count}: a checkpoint belongs to its sources in their order. Give them back, or name a "
                "new checkpoint and give the pipeline another name: it then begins as a new writer"
            )
        return found

    def _text(self, folder: str, number: int) -> str | None:
        """What a file says; None where there is none, nothing where it is no text."""
        try:
            return self.folder.read(folder, str(number))
        except ValueError:
            return ""

    def _parsed(self, text: str, number: int) -> PlannedOffsets:
        place = self.folder.place(OFFSETS, str(number))
        if not text:
            raise damaged(place)
        return parsed_offsets(text, place)

    def _purge(self, end: int) -> None:
        """Removes the entries before a batch, some at a time."""
        if end < self._purged_to + PURGED_AT_ONCE:
            return
        with self._reached():
            for name in (OFFSETS, COMMITS):
                old = range(self._purged_to, end) if self._purged_to else self.folder.numbers(name)
                self.folder.forget(name, [number for number in old if number < end])
        self._purged_to = end

    def _second_run(self, *names: object) -> PipelineFailedError:
        return second_run_error(self.folder.place(*map(str, names)), self._kind_of_second)

    @contextmanager
    def _reached(self) -> Iterator[None]:
        """What cannot be read or written, as an error that names the checkpoint."""
        try:
            yield
        except OSError as error:
            place = self.folder.place()
            gone = isinstance(error, FileNotFoundError)
            what = "is gone, in whole or in part: restore it" if gone else f"cannot be read or written: {error}"
            text = full_checkpoint(str(error), place) or f"checkpoint {place} {what}"
            raise PipelineFailedError(text, kind=kind_of(error)) from error


class PlannedOffsets(Frozen):
    """What a file below `offsets` says: where each source ends, and the settings of its line before."""

    settings: Mapping[str, Any]
    offsets: tuple[str | None, ...]

    def text(self) -> str:
        """The whole file; the offsets byte for byte as they were given."""
        settings = orjson.dumps(self.settings).decode()
        return "\n".join([_VERSION, settings, *(_NONE if each is None else each for each in self.offsets)])

    def next(self, offsets: Sequence[str | None], now_ms: int) -> PlannedOffsets:
        """The offsets of the batch behind it, planned now."""
        return PlannedOffsets({**self.settings, "batchTimestampMs": now_ms}, tuple(offsets))


def first_offsets(conf: Mapping[str, str]) -> PlannedOffsets:
    """What a new checkpoint carries on; of `conf`, settings of Spark, those that Spark would write down."""
    given = {key: conf[key] for key in (*CONF, SHUFFLE_PARTITIONS) if key in conf}
    return PlannedOffsets({"batchWatermarkMs": 0, "batchTimestampMs": 0, "conf": {**CONF, **given}}, ())


def parsed_offsets(text: str, place: str) -> PlannedOffsets:
    """The content of a file below `offsets`, which is at a place.

    Raises `ConfigurationError` for another version, `PipelineFailedError` for what is damaged.
    """
    version, *lines = text.split("\n")
    _check_version(version, place, "the log of a query whose sources are named (source evolution)")
    try:
        settings = orjson.loads(lines[0].strip() or b"{}")
        if not isinstance(settings, dict):
            raise ValueError(lines[0])
        for each in lines[1:]:
            if each != _NONE and not isinstance(orjson.loads(each), dict):
                raise ValueError(each)
    except (IndexError, ValueError) as error:
        raise damaged(place) from error
    if str((settings.get("conf") or {}).get("spark.sql.streaming.queryEvolution.enableSourceEvolution")) == "true":
        raise ConfigurationError(f"{place} is of a query with source evolution, which Spark alone has: {_REMEDY}")
    return PlannedOffsets(settings, tuple(None if each == _NONE else each for each in lines[1:]))


def check_committed(text: str, place: str) -> None:
    """Raises where a file below `commits` is one that this engine does not write."""
    what = "the log of a query with states of a later format"
    remedy = "Remove it: the batch is run again, and tables that have it already say so"
    _check_version(text.partition("\n")[0].strip(), place, what, remedy)


def refuse_state(place: str) -> ConfigurationError:
    """The error for a checkpoint that holds states of aggregations, joins or the like."""
    return ConfigurationError(f"{place}: the checkpoint holds the state of a query that Spark alone runs: {_REMEDY}")


_REPLAN: Final = (
    "Where it is the newest of its folder and the batch is not below commits, remove it: the batch is planned again. "
    "Else restore it from a backup"
)


def damaged(place: str, remedy: str = _REPLAN) -> PipelineFailedError:
    """The error for a file that is neither what Spark nor what this engine writes; `remedy` is that of a plan."""
    text = f"{place} is empty or damaged, as a machine that died may leave it. {remedy}"
    return PipelineFailedError(text, kind=ErrorKind.CORRUPT_DATA)


def _check_version(version: str, place: str, what: str, remedy: str = _REPLAN) -> None:
    if version == _VERSION:
        return
    if version[:1] == "v" and version[1:].isdecimal():
        raise ConfigurationError(f"{place} is of version {version[1:]}, {what}, which Spark alone reads: {_REMEDY}")
    raise damaged(place, remedy)
