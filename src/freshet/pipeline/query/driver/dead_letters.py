"""The dead-letter table: records that did not become rows, kept with the reason and their raw bytes.

| column | type | |
|---|---|---|
| pipeline | STRING NOT NULL | name of the pipeline |
| topic | STRING | topic, or path of the file |
| kafka_partition | INT | |
| log_offset | BIGINT | offset of the record, or row of the file |
| record_time | TIMESTAMP(6) WITH LOCAL TIME ZONE | the record's timestamp |
| reason | STRING NOT NULL | why it is here |
| column_name | STRING | the column it failed at, if one did |
| raw_key, raw_value | BYTES | the message as it was |
| micro_batch_id | BIGINT NOT NULL | the batch that met it |

An append-only table without buckets, created when a pipeline that names it starts for the first time. Several pipelines
may share one. Dead letters are committed before the data of their batch and under the same identity, so a crash between
the two loses and doubles neither: the replay finds the one and writes the other.

A task writes them as they arrive, in no order (`write_task`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from freshet.pipeline.exceptions import InvalidRequestError
from freshet.pipeline.identity.batch_identity import BatchIdentity
from freshet.pipeline.query.driver.schema_follow import column_differences
from freshet.storage.catalog import Catalog
from freshet.storage.table import Table
from freshet.storage.table_engine import CommitMessage, Committer

DEAD_LETTER_COLUMNS: Final = {
    "pipeline": "STRING NOT NULL",
    "topic": "STRING",
    "kafka_partition": "INT",
    "log_offset": "BIGINT",
    "record_time": "TIMESTAMP(6) WITH LOCAL TIME ZONE",
    "reason": "STRING NOT NULL",
    "column_name": "STRING",
    "raw_key": "BYTES",
    "raw_value": "BYTES",
    "micro_batch_id": "BIGINT NOT NULL",
}

_OPTIONS: Final = {"bucket": "-1"}


def open_dead_letters(catalog: Catalog, name: str) -> Table:
    """The dead-letter table of this name, created if need be; refuses a table of another shape."""
    table = catalog.create_table(name, schema=DEAD_LETTER_COLUMNS, options=_OPTIONS, if_not_exists=True)
    schema = table.schema
    if schema.column_names != tuple(DEAD_LETTER_COLUMNS) or schema.has_primary_key:
        raise InvalidRequestError(
            f"table {name} is no dead-letter table: its columns are {', '.join(schema.column_names)}; "
            "name another table for the dead letters"
        )
    return table


class DeadLetterCommit:
    """Commits the dead letters of one query, whichever of its tables they are of."""

    def __init__(self, table: Table, commit_user: str) -> None:
        self._table = table
        self._commit_user = commit_user
        self._committers: dict[str | None, Committer] = {}

    def commit(self, batch: BatchIdentity, messages: Sequence[CommitMessage]) -> None:
        """Commits those of a batch, unless an earlier attempt at it has."""
        if not messages:
            return
        committer = self._committers.get(batch.query_id)
        if committer is None:
            committer = self._committers[batch.query_id] = self._table.engine.committer(
                self._commit_user, batch.query_id
            )
        if not committer.has_committed(batch.micro_batch_id, digest=batch.digest).is_committed:
            self._refuse_other_columns()
            committer.commit(batch.micro_batch_id, messages, digest=batch.digest)

    def _refuse_other_columns(self) -> None:
        """Letters lie in the columns that the table had at the start: of those that have gone they would lose all."""
        schema = self._table.schema
        if self._table.engine.latest_schema_id() in (None, schema.id):
            return
        differences = list(column_differences(schema, self._table.with_options({}).schema))
        if differences:
            raise InvalidRequestError(
                f"table {self._table.name} was changed while the stream ran: {'; '.join(differences)}. Nothing of this "
                "batch was written. Undo the change, or name another table under dead_letters, then start the pipeline "
                "again"
            )

    def check_last(self) -> None:
        """Raises `LostCommitError` where another program has replaced the last ones."""
        for committer in self._committers.values():
            committer.check_last()

    def discard(self, messages: Sequence[CommitMessage]) -> None:
        """Removes what the tasks wrote."""
        self._table.engine.discard(messages)
