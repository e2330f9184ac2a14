"""The texts of a checkpoint's log, version 1, as Spark 4.2.1 writes and reads them.

    metadata      {"id":"<uuid>"}                                     without it Spark refuses what else is there
    offsets/<N>   v1, {"batchWatermarkMs":0,"batchTimestampMs":…,"conf":{…}}, then a line for each source: its offset,
                  or `-` where it has none yet
    commits/<N>   v1, {"nextBatchWatermarkMs":0}

`conf` becomes that of Spark's query, whatever its session has; the one of the batch before is carried on. A key that is
missing gets the value of the versions before there was such a key, except `spark.sql.shuffle.partitions`, which then is
the session's. So a new checkpoint says all but that one: how many tasks a batch has is up to the machine it moves to.

Spark writes version 2 of `offsets` where sources are named (source evolution), and of `commits` for states with a
format of their own; both are refused, as are states: they are of queries that this engine does not run.

Source: Spark's `OffsetSeqLog`, `OffsetSeqMetadata`, `CommitLog`; tried.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import orjson

from freshet._frozen import Frozen
from freshet.pipeline.errors.error_kind import ErrorKind
from freshet.pipeline.exceptions import ConfigurationError, PipelineFailedError

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
