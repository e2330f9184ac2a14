"""`freshet.write`: the rows of a batch frame into a table, in one commit.

    write(df, table)                                             appends
    write(df, table, "upsert", commit_user="nightly", identifier=20261127)
    write(df, "shop.orders", "overwrite", warehouse="/data", partition={"day": "2026-11-27"})

The rows go the way of a micro-batch (`query_run`): shuffled to their buckets, written, compacted, their changes put
into the changelog, all in one Spark job; the driver commits. Of rows of one key the last counts, by Spark partition and
position in it.

| the driver or a task dies | the table |
|---|---|
| before the commit | is as it was; files of tasks are orphans, which `freshet orphans` removes |
| after it | has the rows; with an identifier a second call finds them and commits nothing |

Where another writer has put keys into buckets meanwhile that the rows go to (`bucket=-1`), the job is run again.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Final, Literal

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql.classic.dataframe import DataFrame as ClassicDataFrame

from freshet._frozen import Frozen
from freshet.pipeline.config.model import MaxDeadLetters
from freshet.pipeline.errors.known_causes import full_scratch
from freshet.pipeline.exceptions import InvalidRequestError as RefusedError
from freshet.pipeline.query.driver.batch_check import BatchCheck
from freshet.pipeline.query.driver.table_commit import TableCommit, renumbered
from freshet.pipeline.query.task.renumber_work import RenumberWork
from freshet.pipeline.query.wire.batch_pin import BatchPin
from freshet.pipeline.query.wire.task_result import TableFailedError
from freshet.pipeline.spark.column_fit import resolved_names
from freshet.pipeline.spark.column_way import ColumnWay
from freshet.pipeline.spark.engine import SparkEngine
from freshet.pipeline.spark.job import SparkJob
from freshet.pipeline.spark.worker_python import WORKER_FAILURE, other_python_hint, settle_python
from freshet.storage.catalog import Catalog, check_no_secrets
from freshet.storage.exceptions import InvalidRequestError, OutdatedAssignmentError
from freshet.storage.maintenance.partition_choice import PartitionValue
from freshet.storage.options import option_texts
from freshet.storage.table import Table
from freshet.storage.table_engine import CommitMessage, CommitResult

_LOG: Final = logging.getLogger(__name__)

ATTEMPTS_MAX: Final = 5
"""How often the job is run because other writers have added keys."""
_BY_CASE: Final = "spark.sql.caseSensitive"

WriteMode = Literal["append", "upsert", "overwrite"]
_MODES: Final = ("append", "upsert", "overwrite")


class WriteResult(Frozen):
    """What `freshet.write` did: `rows` that it has committed, and the snapshots, in order of their ids.

    `already_committed`: the table had the commit of this identifier before; nothing was written, and `snapshot_ids` is
    that of the earlier commit, where it has not expired.
    """

    rows: int
    snapshot_ids: tuple[int, ...] = ()
    already_committed: bool = False

    @property
    def snapshot_id(self) -> int | None:
        """The first of them; None where nothing was committed."""
        return self.snapshot_ids[0] if self.snapshot_ids else None


def write(
    df: DataFrame,
    table: Table | str,
    mode: WriteMode = "append",
    *,
    partition: Mapping[str, PartitionValue] | None = None,
    dynamic: bool | None = None,
    commit_user: str | None = None,
    identifier: int | None = None,
    warehouse: str | None = None,
    catalog_options: Mapping[str, object] | None = None,
) -> WriteResult:
    """Writes the rows of a batch DataFrame into a table, in one Spark job and one commit.

    `table` is a `Table`, or a name with its `warehouse` and the `catalog_options` of `Catalog`. The frame has the
    table's columns, in any order and by the case rules of the session; those that may be NULL may be missing. With a
    column `_ROW_KIND` ('+I' '-U' '+U' '-D') rows also update and delete.

    `mode` is `append`; `upsert`, which is the same and refuses a table without a primary key; or `overwrite`, one
    OVERWRITE snapshot with `partition` and `dynamic` as in `Table.overwrite`.

    `commit_user` and `identifier`, which belong together, make the write happen once: a second call with them commits
    nothing, and its result says so. Identifiers grow from one commit of the user to the next: a date such as 20261127.
    Without them each call writes, and a frame without rows makes no snapshot.

    Raises `InvalidRequestError` for columns that do not fit before anything is written, and for a NULL in a column that
    cannot be NULL, with nothing committed. Spark's own exceptions are passed on.
    """
    _check_arguments(df, table, mode, partition, dynamic, commit_user, identifier)
    settle_python(df.sparkSession)
    opened = _opened(table, warehouse, catalog_options)
    logs = opened.options.logs_changes or opened.options.publishes_changes
    target = opened.with_options(opened.engine.log.options_without() if logs else opened.engine.dynamic_options)
    if mode == "upsert" and not target.schema.has_primary_key:
        raise InvalidRequestError(
            f"table {target.name} has no primary key, by which rows could be replaced; append them", table=target.name
        )
    numbered = None if commit_user is None or identifier is None else (commit_user, identifier)
    return _FrameWrite(target, df, numbered, mode, partition, dynamic).run()


def _check_arguments(
    df: object,
    table: object,
    mode: str,
    partition: object,
    dynamic: object,
    commit_user: object,
    identifier: object,
) -> None:
    if not isinstance(df, ClassicDataFrame):
        raise InvalidRequestError(
            f"freshet.write takes a DataFrame of a session with a JVM of its own (not of Spark Connect), not "
            f"{type(df).__module__}.{type(df).__name__}; rows of another kind: Table.append, upsert, overwrite"
        )
    if df.isStreaming:
        raise InvalidRequestError(
            "the frame is a streaming one: df.writeStream.foreachBatch(freshet.table_sink(…)) writes it"
        )
    if mode not in _MODES:
        raise InvalidRequestError(f"mode is one of {', '.join(_MODES)}, not {mode!r}")
    if mode != "overwrite" and (partition is not None or dynamic is not None):
        raise InvalidRequestError(f"partition= and dynamic= say what mode='overwrite' replaces; the mode is {mode!r}")
    if (commit_user is None) != (identifier is None):
        raise InvalidRequestError(
            "give commit_user= and identifier= together: a number is one of its user, such as commit_user='nightly', "
            "identifier=20261127; without both each call is a commit of its own"
        )
    if not isinstance(table, Table | str):
        raise InvalidRequestError(f"table is a Table, or a name such as 'shop.orders' with warehouse=, not {table!r}")


def _opened(table: Table | str, warehouse: str | None, catalog_options: Mapping[str, object] | None) -> Table:
    if isinstance(table, Table):
        if warehouse is not None or catalog_options is not None:
            raise InvalidRequestError("warehouse= and catalog_options= go with the name of a table, not with a Table")
        return table
    if warehouse is None:
        raise InvalidRequestError(f"table {table!r} is a name: give warehouse= with it, or a Table")
    given = option_texts(catalog_options)
    check_no_secrets(given)
    return Catalog(warehouse, options=given).table(table)


class _FrameWrite:
    """One call."""

    def __init__(
        self,
        table: Table,
        df: DataFrame,
        numbered: tuple[str, int] | None,
        mode: str,
        partition: Mapping[str, PartitionValue] | None,
        dynamic: bool | None,
    ) -> None:
        edits = table.engine.edits
        self._table = table
        self._df = df
        self._is_overwrite = mode == "overwrite"
        partitions = edits.partitions(partition, dynamic) if self._is_overwrite else None
        self._edit = edits.begin(numbered, partitions=partitions, renumber=self._renumber)
        self._user = self._edit.user
        self._engine = SparkEngine(df.sparkSession)
        self._pin: BatchPin | None = None

    def run(self) -> WriteResult:
        """Writes and commits, unless the table holds the commit."""
        earlier = self._edit.earlier()
        if earlier is not None:
            _LOG.info("table %s: commit %s of %s is there", self._table.name, self._edit.number, self._user)
            return WriteResult(0, () if earlier.snapshot is None else (earlier.snapshot.id,), already_committed=True)
        frame = self._with_table_names()
        commit = TableCommit(self._table, self._user)
        job = SparkJob(ColumnWay(commit, self._engine, self._user))
        check = BatchCheck([commit], None, MaxDeadLetters(), commit_user=self._user, pipeline=self._user)
        for attempt in range(1, ATTEMPTS_MAX + 1):
            messages, rows = self._written(frame, job, check, commit)
            try:
                return self._result(self._edit.commit(messages), rows)
            except OutdatedAssignmentError as error:
                if error.is_certain:
                    self._table.engine.discard(messages)
                if attempt == ATTEMPTS_MAX:
                    raise
                _LOG.warning("%s: the job is run again (attempt %d of %d)", error, attempt + 1, ATTEMPTS_MAX)
                self._edit.earlier()
        raise AssertionError("the last attempt raises")

    def _written(
        self, frame: DataFrame, job: SparkJob, check: BatchCheck, commit: TableCommit
    ) -> tuple[Sequence[CommitMessage], int]:
        """The files of all rows, and how many rows these are."""
        schema, latest = self._table.schema, self._edit.latest
        base_id = None if latest is None or self._is_overwrite else latest.id
        self._pin = BatchPin(self._edit.number, schema.id, schema.time_ms, base_id, upon_nothing=self._is_overwrite)
        try:
            result, _ = job.run(self._engine.batch(frame, self._edit.number, None), {0: self._pin}, None)
        except RefusedError as error:  # columns that do not fit
            raise InvalidRequestError(f"table {self._table.name}: {error}", table=self._table.name) from error
        except TableFailedError as error:
            raise error.cause from None
        except (Py4JError, PySparkException) as error:
            text, session = str(error), self._df.sparkSession
            hint = other_python_hint(session) if WORKER_FAILURE.search(text) else ""
            hint += full_scratch(text, str(session.conf.get("spark.local.dir", "/tmp")))
            error.add_note(f"table {self._table.name}: nothing was committed{hint}")
            raise
        check.check(result, self._edit.number, None, None, [commit])
        return result.messages.get(0, ()), result.applied

    def _with_table_names(self) -> DataFrame:
        """The frame with its columns named as the table's."""
        by_case = str(self._df.sparkSession.conf.get(_BY_CASE, "false")).lower() == "true"
        given = self._df.columns
        try:
            names = resolved_names(given, self._table.schema, by_case=by_case)
        except RefusedError as error:
            raise InvalidRequestError(f"table {self._table.name}: {error}", table=self._table.name) from error
        return self._df if names == given else self._df.toDF(*names)

    def _renumber(
        self, _identifier: int, messages: Sequence[CommitMessage], base_id: int, headroom: int
    ) -> Sequence[CommitMessage]:
        assert self._pin is not None, "only what was written is committed"
        work = RenumberWork(self._table.handle, self._pin, base_id, headroom)
        return renumbered(self._engine, work, messages)

    def _result(self, committed: CommitResult, rows: int) -> WriteResult:
        ids = tuple(snapshot.id for snapshot in committed.snapshots)
        if committed.already_committed:  # another process with this number was faster
            earlier = self._edit.earlier()
            found = () if earlier is None or earlier.snapshot is None else (earlier.snapshot.id,)
            return WriteResult(0, found, already_committed=True)
        return WriteResult(rows, ids)
