"""One table as Apache Paimon sees it: what `PaimonJudge` creates and opens."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from tests.kit.columns_file import ROW_KINDS
from tests.kit.paimon_changes import option_texts
from tests.kit.paimon_types import arrow_schema

if TYPE_CHECKING:
    from tests.kit.paimon_judge import PaimonJudge

ROW_KIND_COLUMN = "_ROW_KIND"


SNAPSHOT_ID_COLUMN = "_SNAPSHOT_ID"


# A table, or rows: mappings (with ROW_KIND_COLUMN if not +I), or tuples of values, a row kind first if there is one
# more value than the table has columns.
Rows = pa.Table | Sequence[Mapping[str, Any]] | Sequence[tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class RowKeyFacts:
    """Where Paimon puts a row: partition and trimmed primary key are serialized rows."""

    partition: bytes
    bucket: int
    key: bytes | None


@dataclass(frozen=True)
class PaimonTable:
    """One table as Paimon sees it. `options` are dynamic options of every call."""

    judge: PaimonJudge
    location: str
    options: Mapping[str, str]
    branch: str | None = None
    exclusive: bool = False
    catalog: Mapping[str, str] | None = None
    """Options of the catalog that the table is opened with, and committed to; else it is a folder."""
    name: str | None = None
    """In the catalog."""

    def copy(self, options: Mapping[str, Any]) -> PaimonTable:
        """The table with more dynamic options (`write-only`, `scan.snapshot-id`, `scan.tag-name`, …)."""
        return replace(self, options={**self.options, **option_texts(options)})

    # ---------------------------------------------------------------------------------------------- schemas, snapshots

    def schema(self, schema_id: int | None = None) -> dict[str, Any]:
        """A schema file's content, the latest by default."""
        return self._call("schema", id=schema_id)

    def arrow_schema(self) -> pa.Schema:
        """The Arrow schema of the table's columns now."""
        return arrow_schema(self.schema()["fields"])

    def snapshot(self, snapshot_id: int | None = None) -> dict[str, Any] | None:
        """A snapshot file's content, the latest by default; None where there is none yet."""
        return self._call("snapshot", id=snapshot_id)

    def alter(self, *changes: Mapping[str, Any]) -> dict[str, Any]:
        """Commits schema changes, see the functions below this class; returns the new schema."""
        return self._call("alter_table", changes=[dict(change) for change in changes])

    # ---------------------------------------------------------------------------------------------- writing

    def write(
        self,
        rows: Rows = (),
        *,
        user: str = "judge",
        identifier: int | None = None,
        compact: str | None = None,
        compact_buckets: Sequence[int] | None = None,
        bucket: int | None = None,
        overwrite: Mapping[str, str] | None = None,
        ignore_empty: bool = False,
        filter_committed: bool = False,
        options: Mapping[str, Any] | None = None,
        writer: int | None = None,
    ) -> dict[str, Any]:
        """Writes rows and commits them under (user, identifier); `compact` is "full" or "normal", for all buckets.
        `writer` is the number of the writer in names of files of bucket -2.

        The identifier is by default one more than the user's latest. Returns the snapshot ids `before` and `latest`,
        and how many commits were made (0 if `filter_committed` found it committed).
        """
        table = self if options is None else self.copy(options)
        identifier = table._next_identifier(user) if identifier is None else identifier
        return table._write(
            rows,
            user=user,
            identifier=identifier,
            compact=compact,
            compact_buckets=compact_buckets,
            bucket=bucket,
            overwrite=overwrite,
            ignore_empty=ignore_empty,
            filter_committed=filter_committed,
            writer=writer,
        )

    def prepare(self, rows: Rows, *, user: str, identifier: int, compact: str | None = None) -> list[str]:
        """Writes files but does not commit; returns the messages for `commit`."""
        return self._write(rows, user=user, identifier=identifier, compact=compact, commit=False)["messages"]

    def commit(
        self, messages: Sequence[str], *, user: str, identifier: int, filter_committed: bool = False
    ) -> dict[str, Any]:
        """Commits what `prepare` returned."""
        return self._call(
            "commit", messages=list(messages), user=user, identifier=identifier, filter_committed=filter_committed
        )

    def compact(self, *, full: bool = True, user: str = "judge-compact", buckets: Sequence[int] | None = None) -> None:
        """Compacts all buckets (or those named) and commits."""
        self.write((), user=user, compact="full" if full else "normal", compact_buckets=buckets, ignore_empty=True)

    def compact_postponed(self, user: str = "judge-postponed", identifier: int = 1) -> None:
        """Compacts rows of bucket -2 into buckets, with those that have files of level 0."""
        self._call("compact_postponed", user=user, identifier=identifier, ignore_empty=True)

    def compact_manifests(self, user: str = "judge") -> None:
        """Rewrites all manifests into few."""
        self._call("compact_manifests", user=user)

    # ---------------------------------------------------------------------------------------------- reading

    def read_arrow(
        self,
        columns: Sequence[str] | None = None,
        *,
        filter: Mapping[str, Any] | None = None,  # noqa: A002
        execute_filter: bool = False,
        limit: int | None = None,
        snapshot_id: int | None = None,
        tag: str | None = None,
        timestamp_ms: int | None = None,
        sort_by: Sequence[str] = (),
    ) -> pa.Table:
        """The merged rows.

        A filter is `{"column", "is", "value" | "values"}` with values as text, or `{"and" | "or": [filter, …]}`.
        Without `execute_filter` it only prunes, as Paimon's readers do.
        """
        travel = {"scan.snapshot-id": snapshot_id, "scan.tag-name": tag, "scan.timestamp-millis": timestamp_ms}
        table = self.copy({key: value for key, value in travel.items() if value is not None})
        # Paimon returns nothing, silently, when the projection lacks a column of the filter: read it, drop it here.
        read = None if columns is None else list(dict.fromkeys([*columns, *_filter_columns(filter)]))
        answer = table._call("read", projection=read, filter=filter, execute_filter=execute_filter, limit=limit)
        rows, _ = self.judge.take_rows(answer)
        rows = rows if columns is None else rows.select(list(columns))
        return rows.sort_by([(column, "ascending") for column in sort_by]) if sort_by else rows

    def read_rows(self, columns: Sequence[str] | None = None, **arguments: Any) -> list[tuple[Any, ...]]:
        """The merged rows as sorted tuples (by their texts, so that NULLs sort too)."""
        rows = self.read_arrow(columns, **arguments)
        tuples = list(zip(*(column.to_pylist() for column in rows.columns), strict=True))
        return sorted(tuples, key=repr)

    def system(self, name: str) -> pa.Table:
        """A system table: snapshots, files, manifests, schemas, partitions, buckets, options, tags, audit_log, ro, …"""
        rows, _ = self.judge.take_rows(self._call("read", system=name.removeprefix("$")))
        return rows

    def changelog(self, from_snapshot: int = 1, to_snapshot: int | None = None) -> pa.Table:
        """What a streaming reader sees from a snapshot on: the columns, ROW_KIND_COLUMN and SNAPSHOT_ID_COLUMN."""
        answer = self._call("changelog", **{"from": from_snapshot, "to": to_snapshot})
        rows, kinds = self.judge.take_rows(answer)
        named = pa.DictionaryArray.from_arrays(pa.array(kinds), pa.array(ROW_KINDS)).cast(pa.string())
        return _with_snapshot_ids(rows.append_column(ROW_KIND_COLUMN, named), answer)

    def audit_log(self, from_snapshot: int = 1, to_snapshot: int | None = None) -> pa.Table:
        """The same through the system table `$audit_log`, which has the kind as a column of its own."""
        answer = self._call("changelog", system="audit_log", **{"from": from_snapshot, "to": to_snapshot})
        rows, _ = self.judge.take_rows(answer)
        return _with_snapshot_ids(_with_our_kind(rows), answer)

    def audit_log_between(self, start: int, end: int) -> pa.Table:
        """The changes after one snapshot up to another, as a batch read of `$audit_log` has them: without their ids."""
        between = {"incremental-between": f"{start},{end}", "incremental-between-scan-mode": "changelog"}
        return _with_our_kind(self.copy(between).system("audit_log"))

    def plan(self, columns: Sequence[str] | None = None, **arguments: Any) -> list[dict[str, Any]]:
        """The splits of a scan: partition (base64), bucket, raw_convertible, files (names)."""
        return self._call("plan", projection=columns, **arguments)

    def row_keys(self, rows: Rows) -> list[RowKeyFacts]:
        """Partition, bucket and trimmed primary key of rows, as Paimon computes them."""
        table, _ = self._table_of(rows)
        with self.judge.columns_file(table) as path:
            answer = self._call("row_keys", rows=path)
        return [
            RowKeyFacts(
                base64.b64decode(row["partition"]),
                row["bucket"],
                base64.b64decode(row["key"]) if "key" in row else None,
            )
            for row in answer
        ]

    # ---------------------------------------------------------------------------------------------- maintenance

    def create_tag(self, name: str, snapshot_id: int | None = None, *, retained_ms: int | None = None) -> None:
        self._call("maintain", what="create_tag", name=name, snapshot=snapshot_id, retained_ms=retained_ms)

    def replace_tag(self, name: str, snapshot_id: int) -> None:
        self._call("maintain", what="replace_tag", name=name, snapshot=snapshot_id)

    def rename_tag(self, name: str, new_name: str) -> None:
        self._call("maintain", what="rename_tag", name=name, to=new_name)

    def make_auto_tags(self) -> None:
        """What follows a commit: tags that are due, then tags whose time is over."""
        self._call("maintain", what="auto_tags")

    def delete_tag(self, name: str) -> None:
        self._call("maintain", what="delete_tag", name=name)

    def expire_tags(self, *, older_than_ms: int | None = None) -> list[str]:
        """Tags whose time is over, and those made before a time (epoch milliseconds); the names of those that went."""
        return list(self._call("maintain", what="expire_tags", older_than_ms=older_than_ms))

    def mark_done(self, partition: str) -> None:
        """A partition as its folder is called."""
        self._call("maintain", what="mark_done", partition=partition)

    def create_branch(self, name: str, tag: str | None = None) -> None:
        self._call("maintain", what="create_branch", name=name, tag=tag)

    def rename_branch(self, name: str, to: str) -> None:
        self._call("maintain", what="rename_branch", name=name, to=to)

    def delete_branch(self, name: str) -> None:
        self._call("maintain", what="delete_branch", name=name)

    def rollback(self, to: int | str) -> None:
        """To a snapshot, or to that of a tag: later snapshots are removed."""
        self._call("maintain", what="rollback", **{"tag" if isinstance(to, str) else "snapshot": to})

    def truncate(self, *partitions: Mapping[str, str]) -> None:
        """Takes all rows away, or those of some partitions."""
        self._call("maintain", what="truncate", partitions=[dict(each) for each in partitions] or None)

    def remove_orphans(self, older_than_ms: int) -> int:
        """Removes files that nothing names and that are older than a time (epoch milliseconds); returns how many."""
        return self._call("maintain", what="remove_orphans", older_than=older_than_ms)

    def fast_forward(self, branch: str) -> None:
        """Puts a branch in the place of the table."""
        self._call("maintain", what="fast_forward", name=branch)

    def reset_consumer(self, name: str, next_snapshot_id: int) -> None:
        """A consumer that still needs snapshots from `next_snapshot_id` on (expiry must spare them)."""
        self._call("maintain", what="reset_consumer", name=name, snapshot=next_snapshot_id)

    def expire(
        self, *, retain_max: int | None = None, retain_min: int | None = None, time_retained_ms: int | None = None
    ) -> int:
        """Expires snapshots; returns how many."""
        return self._call(
            "maintain", what="expire", retain_max=retain_max, retain_min=retain_min, time_retained_ms=time_retained_ms
        )

    def expire_partitions(self) -> list[dict[str, str]]:
        """Deletes the partitions that have expired by the options; their values as texts. Needs
        `partition.expiration-check-interval` 0, or `end-input.check-partition-expire`."""
        return self._call("maintain", what="expire_partitions") or []

    # ---------------------------------------------------------------------------------------------- private

    def _call(self, op: str, **arguments: Any) -> Any:
        return self.judge.call(
            op,
            table=self.location,
            options=dict(self.options) or None,
            branch=self.branch,
            exclusive=self.exclusive or None,
            **({} if self.catalog is None else {"catalog": dict(self.catalog), "name": self.name}),
            **arguments,
        )

    def _write(self, rows: Rows, **arguments: Any) -> Any:
        if not isinstance(rows, pa.Table) and len(rows) == 0:
            return self._call("write", batches=[], **arguments)
        table, kinds = self._table_of(rows)
        with self.judge.columns_file(table, kinds) as path:
            return self._call("write", batches=[path], **arguments)

    def _table_of(self, rows: Rows) -> tuple[pa.Table, np.ndarray]:
        return rows_and_kinds(rows, self.arrow_schema())

    def _next_identifier(self, user: str) -> int:
        snapshots = self.system("snapshots")
        mine = [
            identifier
            for committer, identifier in zip(
                snapshots["commit_user"].to_pylist(), snapshots["commit_identifier"].to_pylist(), strict=True
            )
            if committer == user and identifier < 2**62
        ]
        return max(mine, default=0) + 1


def _filter_columns(node: Mapping[str, Any] | None) -> list[str]:
    if node is None:
        return []
    if "column" in node:
        return [node["column"]]
    return [column for child in node.get("and") or node["or"] for column in _filter_columns(child)]


def rows_and_kinds(rows: Rows, schema: pa.Schema) -> tuple[pa.Table, np.ndarray]:
    """Rows in the table's own Arrow types and order, and their kind bytes."""
    if isinstance(rows, pa.Table):
        kinds = rows[ROW_KIND_COLUMN].to_pylist() if ROW_KIND_COLUMN in rows.column_names else ["+I"] * rows.num_rows
        missing = [pa.nulls(rows.num_rows, field.type) for field in schema if field.name not in rows.column_names]
        named = dict(zip([f.name for f in schema if f.name not in rows.column_names], missing, strict=True))
        columns = [named[field.name] if field.name in named else rows[field.name].cast(field.type) for field in schema]
    else:
        width = len(schema)
        mappings = [
            row if isinstance(row, Mapping) else dict(zip(schema.names, row[len(row) - width :], strict=True))
            for row in rows
        ]
        kinds = [
            row.get(ROW_KIND_COLUMN, "+I") if isinstance(row, Mapping) else row[0] if len(row) > width else "+I"
            for row in rows
        ]
        columns = [pa.array([row.get(field.name) for row in mappings], field.type) for field in schema]
    nullable = pa.schema([field.with_nullable(True) for field in schema])  # a delete may lack its NOT NULL values
    return pa.Table.from_arrays(columns, schema=nullable), np.array([ROW_KINDS.index(k) for k in kinds], dtype=np.int8)


def _with_snapshot_ids(rows: pa.Table, answer: Mapping[str, Any]) -> pa.Table:
    """With the snapshot of each row; the answer has their numbers, in order."""
    counts = answer["snapshots"]
    ids = np.repeat([snapshot_id for snapshot_id, _ in counts], [count for _, count in counts])
    return rows.append_column(SNAPSHOT_ID_COLUMN, pa.array(ids, pa.int64()))


def _with_our_kind(rows: pa.Table) -> pa.Table:
    """The kind as in a changelog, not as in the audit log."""
    return rows.rename_columns([ROW_KIND_COLUMN if name == "rowkind" else name for name in rows.column_names])
