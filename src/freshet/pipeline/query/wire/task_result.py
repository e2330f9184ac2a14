"""What one task reports to the driver: commit messages, counts and times, as one JSON document.

A task that ran twice reports twice, but Spark hands the driver only the result of the attempt that won; no message
names the files of the other. An error that a second attempt would meet again (bad rows, an unreadable file) is a result
too (`repeating_errors`), so that the driver can raise it under its class; any other ends the attempt and Spark may try
again.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from typing import Any, Final

import orjson
import pyarrow as pa

from freshet._frozen import Frozen, field
from freshet.pipeline.decode.outcomes import REASON, SeenSchema, SeenTable, TruncatedAt
from freshet.pipeline.errors.repeating_errors import ReportedError, error_document, error_of
from freshet.pipeline.query.wire.dead_letter_sample import merged_sample
from freshet.pipeline.query.wire.read_count import ReadCount
from freshet.storage.table_engine import CommitMessage, decode_commit_messages, encode_commit_messages

PLAIN_BYTES_MAX: Final = 4096
"""Longer results are compressed: one of more than 8 KiB comes from the JVM in two packets, the second 40 ms later. A
hundred of 8.3 KB took 4.4 s."""
_ZLIB: Final = b"\x78"
"""How zlib's bytes begin, and no JSON does."""

RESULT_COLUMN: Final = "result"
RESULT_SCHEMA: Final = pa.schema([pa.field(RESULT_COLUMN, pa.binary())])


class TaskResult(Frozen):
    """Result of one task, or the sum of several. Counts are of records, `row_count` of rows. A new count is a field
    here, and an argument where the task makes its result: it travels, and is added up, as the others are.

    `times_ms` says where the time of the tasks went, added up over them.
    """

    messages: Mapping[int, tuple[CommitMessage, ...]] = field(default_factory=dict)
    """Of the tables that rows were written to, by their index in the query (`query_run`)."""
    dead_letter_messages: tuple[CommitMessage, ...] = ()
    row_count: int = 0
    applied: int = 0
    dead: Mapping[str, int] = field(default_factory=dict)
    first_dead: tuple[Mapping[str, Any], ...] = ()
    """The first dead letters in input order: the columns of the order, reason and column."""
    broken: Mapping[str, int] = field(default_factory=dict)
    """Records that break a rule of `expect`, by `rule_key`; they are among `dead` or `skipped` too."""
    first_broken: tuple[Mapping[str, Any], ...] = ()
    """The first of each rule in input order, as `first_dead`; the reason is the key of the rule."""
    of_tables: Mapping[str, int] = field(default_factory=dict)
    """Records that were to be rows, by the index of their table."""
    read: ReadCount = field(default_factory=ReadCount)
    """What is known by the rows of the records that entered."""
    skipped: Mapping[str, int] = field(default_factory=dict)
    restored: int = 0
    """Rows whose unavailable values were filled in from the table."""
    notes: Mapping[str, int] = field(default_factory=dict)
    """What else was counted by name, for example unknown fields."""
    tables: tuple[SeenTable, ...] = ()
    """The tables that records name, of sources that may have only one."""
    seen: tuple[SeenSchema, ...] = ()
    """What is new of the tables of a source of many."""
    truncated: tuple[TruncatedAt, ...] = ()
    """Where source tables were truncated, of sources whose truncates are applied."""
    keys_merged: int = 0
    """Keys of which several rows were merged, at flush and in compaction; a key merged twice counts twice."""
    keys_in_python: int = 0
    """Those of them for which a column was folded value by value, which costs far more."""
    lookups: Mapping[str, int] = field(default_factory=dict)
    """How stored rows were looked up by key: the counters of `storage.lookup.lookup_metrics`."""
    waited_buckets: int = 0
    """Buckets with so many sorted runs that the batch had to compact them, though background compaction should have."""
    budget_spent_ms: float = 0.0
    """Of the time of a batch for compactions that are not required (`compaction.batch_budget`)."""
    times_ms: Mapping[str, float] = field(default_factory=dict)

    @property
    def dead_count(self) -> int:
        """Records that became dead letters."""
        return sum(self.dead.values())

    @property
    def read_count(self) -> int:
        """Records that entered."""
        return self.read.record_count()

    @property
    def skipped_count(self) -> int:
        """Records that were skipped."""
        return sum(self.skipped.values())

    @property
    def record_count(self) -> int:
        """Records reported, whatever became of them."""
        return self.applied + self.dead_count + self.skipped_count


class TableFailedError(Exception):
    """The work of a task for one table failed, and would fail again; `cause` is what is to be raised."""

    def __init__(self, table_index: int, cause: Exception) -> None:
        super().__init__(str(cause))
        self.table_index = table_index
        self.cause = cause


_ADDED_UP: Final = frozenset(each.name for each in fields(TaskResult)) - {
    "messages", "dead_letter_messages", "first_dead", "first_broken", "read", "tables", "seen", "truncated",
}  # fmt: skip
"""Counts and times: numbers, or numbers by name."""


def summed_counts(results: Sequence[TaskResult]) -> TaskResult:
    """The counts and times of some results, added up; nothing else of them."""
    return TaskResult(**{name: _sum([getattr(each, name) for each in results]) for name in _ADDED_UP if results})


def encode_results(results: Sequence[TaskResult]) -> pa.RecordBatch:
    """The results of a task, one for each table, as one row for the driver to collect."""
    return _row([_document(result) for result in results])


def _document(result: TaskResult) -> dict[str, Any]:
    return {
        **{name: getattr(result, name) for name in _ADDED_UP},
        "messages": [[index, encode_commit_messages(each).decode()] for index, each in result.messages.items()],
        "dead_letter_messages": encode_commit_messages(result.dead_letter_messages).decode(),
        "first_dead": result.first_dead,
        "first_broken": result.first_broken,
        "read": result.read.to_document(),
        "tables": [[each.source_index, list(each.table), each.where] for each in result.tables],
        "seen": [each.to_document() for each in result.seen],
        "truncated": [list(each) for each in result.truncated],
    }


def encode_error(error: Exception, table_index: int | None = None) -> pa.RecordBatch:
    """An error that the same rows would meet again, as a result; of the table that it was met in, where one alone was
    written."""
    document = error.document if isinstance(error, ReportedError) else error_document(error)
    return _row(document if table_index is None else {**document, "table": table_index})


def sum_results(rows: Sequence[bytes]) -> TaskResult:
    """Adds up what the tasks reported; raises the first error among it, `TableFailedError` where it is of one table."""
    documents = [document for row in rows for document in _documents(row)]
    for document in documents:
        if "error" in document:
            error = error_of(document)
            if "table" in document:
                raise TableFailedError(document["table"], error) from error
            raise error
    return TaskResult(
        messages=_joined_messages(entry for document in documents for entry in document["messages"]),
        dead_letter_messages=tuple(m for d in documents for m in decode_commit_messages(d["dead_letter_messages"])),
        first_dead=tuple(merged_sample([d["first_dead"] for d in documents])),
        first_broken=tuple(_merged_by_reason([row for d in documents for row in d["first_broken"]])),
        read=_sum_read([d["read"] for d in documents]),
        tables=tuple(SeenTable.of(each) for d in documents for each in d["tables"]),
        seen=tuple(SeenSchema.of(each) for d in documents for each in d["seen"]),
        truncated=tuple(TruncatedAt(*each) for d in documents for each in d["truncated"]),
        **{name: _sum([d[name] for d in documents]) for name in _ADDED_UP if documents},
    )


def rule_key(table_index: int, name: str) -> str:
    """The key of a rule of a table in counts."""
    return f"{table_index}:{name}"


def _merged_by_reason(rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    reasons = dict.fromkeys(row[REASON] for row in rows)
    return [row for reason in reasons for row in merged_sample([[each for each in rows if each[REASON] == reason]])]


def _joined_messages(parts: Iterable[tuple[int, str]]) -> dict[int, tuple[CommitMessage, ...]]:
    joined: dict[int, list[CommitMessage]] = {}
    for index, encoded in parts:
        joined.setdefault(index, []).extend(decode_commit_messages(encoded))
    return {index: tuple(messages) for index, messages in joined.items() if messages}


def _sum_read(parts: Sequence[Mapping[str, Any]]) -> ReadCount:
    total = ReadCount()
    for part in parts:
        total.add(ReadCount.from_document(part))
    return total


def _sum(parts: Sequence[Any]) -> Any:
    """The sum of numbers, or of each key's."""
    if not isinstance(parts[0], Mapping):
        return sum(parts)
    total: dict[str, Any] = {}
    for part in parts:
        for key, number in part.items():
            total[key] = total.get(key, 0) + number
    return total


def _documents(row: bytes) -> list[Mapping[str, Any]]:
    found = orjson.loads(zlib.decompress(row) if row.startswith(_ZLIB) else row)
    return found if isinstance(found, list) else [found]


def _row(document: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> pa.RecordBatch:
    content = orjson.dumps(document)
    if len(content) > PLAIN_BYTES_MAX:
        content = zlib.compress(content, 1)
    return pa.RecordBatch.from_arrays([pa.array([content], pa.binary())], schema=RESULT_SCHEMA)
