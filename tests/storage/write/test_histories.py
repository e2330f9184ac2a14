"""Random histories of writes, commits, compactions and rebases: after each commit the table equals a dict."""

from __future__ import annotations

import tempfile
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
from hypothesis import given, note
from hypothesis import strategies as st

from tests.storage.write.tables import WrittenTable

ARROW = pa.schema(
    [
        pa.field("k", pa.int32(), nullable=False),
        pa.field("p", pa.string(), nullable=False),
        ("s", pa.int64()),
        ("v", pa.int64()),
    ]
)

ROW = st.tuples(
    st.integers(-3, 6),
    st.sampled_from(["a", "bb"]),
    st.one_of(st.none(), st.integers(0, 3)),
    st.sampled_from(["+I", "-U", "+U", "-D"]),
)
STEP = st.one_of(
    st.tuples(st.just("write"), st.lists(ROW, min_size=1, max_size=12)),
    st.tuples(st.just("commit"), st.booleans()),
    st.tuples(st.just("compact"), st.booleans()),
    st.tuples(st.just("rebase"), st.none()),
    st.tuples(st.just("other writer"), st.lists(ROW, min_size=1, max_size=4)),
    st.tuples(st.just("abort"), st.none()),
    st.tuples(st.just("reopen"), st.none()),
)
OPTIONS = st.fixed_dictionaries(
    {
        "bucket": st.sampled_from(["1", "3"]),
        "num_sorted_run__compaction_trigger": st.sampled_from(["2", "3", "5"]),
        "write_buffer_size": st.sampled_from(["256 b", "1 mb"]),
        "write_buffer_spillable": st.sampled_from(["true", "false"]),
        "target_file_size": st.sampled_from(["1 b", "128 mb"]),
        "write_only": st.sampled_from(["false", "true"]),
        "ignore_delete": st.sampled_from(["false", "true"]),
        "force_lookup": st.sampled_from(["false", "true"]),
    }
)


class Oracle:
    """The rows there should be: committed, and on top of them what the writer holds."""

    def __init__(self, *, by_sequence: bool, ignore_delete: bool) -> None:
        self.by_sequence = by_sequence
        self.ignore_delete = ignore_delete
        self.history: list[tuple[Any, ...]] = []
        self.pending: list[tuple[Any, ...]] = []

    def rows(self) -> dict[tuple[int, str], tuple[Any, ...]]:
        newest: dict[tuple[int, str], tuple[Any, ...]] = {}
        for row in self.history:
            key, seen = row[:2], newest.get(row[:2])
            if self.by_sequence and seen is not None and _order(row[2]) < _order(seen[2]):
                continue
            newest[key] = row
        return {key: row for key, row in newest.items() if row[4] in ("+I", "+U")}


def _order(value: int | None) -> int:
    return -1 if value is None else value


@given(st.lists(STEP, max_size=25), OPTIONS, st.booleans())
def test_the_table_equals_the_dict(steps: list[tuple[str, Any]], options: dict[str, str], by_sequence: bool) -> None:
    if by_sequence:
        options = {**options, "sequence__field": "s"}
    with tempfile.TemporaryDirectory() as folder:
        table = WrittenTable(Path(folder), arrow=ARROW, keys=["k", "p"], **options)
        oracle = Oracle(by_sequence=by_sequence, ignore_delete=options["ignore_delete"] == "true")
        writer = table.writer()
        values = iter(range(10**6))
        for step, argument in [*steps, ("commit", True)]:
            note(f"{step} {argument}")
            match step:
                case "write":
                    rows = _rows(argument, values, with_retracts=not by_sequence)
                    accepted = [row for row in rows if not oracle.ignore_delete or row[4] in ("+I", "+U")]
                    assert writer.write(_table(rows)) == len(accepted)
                    oracle.pending += accepted
                case "commit":
                    messages = writer.prepare_commit()
                    snapshot = table.commit(messages, with_compaction=argument)
                    if not argument:
                        writer.rebase(snapshot)
                    oracle.history += oracle.pending
                    oracle.pending = []
                    _check(table, oracle)
                case "compact":
                    writer.compact(full=argument)
                case "rebase":
                    writer.rebase(table.snapshot)
                case "other writer" if not oracle.pending:
                    # Two writers of one key need an order; here the other one comes between two commits.
                    other = table.writer()
                    rows = _rows(argument, values, with_retracts=not by_sequence)
                    other.write(_table(rows))
                    writer.rebase(table.commit(other.prepare_commit()))
                    other.close()
                    oracle.history += [row for row in rows if not oracle.ignore_delete or row[4] in ("+I", "+U")]
                    _check(table, oracle)
                case "abort":
                    writer.abort()
                    writer.rebase(table.snapshot)
                    oracle.pending = []
                case "reopen":
                    writer.close()
                    writer = table.writer()
                    oracle.pending = []
        writer.close()
        live = {file.file_name for file in table.files()}
        assert live <= table.data_files_on_disk()


def _rows(drawn: list[tuple[Any, ...]], values: Any, *, with_retracts: bool) -> list[tuple[Any, ...]]:
    # A delete that a compaction dropped no longer holds off a row with an older sequence value.
    return [(key, part, sequence, next(values), kind if with_retracts else "+I") for key, part, sequence, kind in drawn]


def _table(rows: list[tuple[Any, ...]]) -> pa.Table:
    columns = list(zip(*rows, strict=True))
    arrays = [pa.array(columns[index], ARROW.field(index).type) for index in range(4)]
    return pa.table([*arrays, pa.array(columns[4])], names=["k", "p", "s", "v", "_ROW_KIND"])


def _check(table: WrittenTable, oracle: Oracle) -> None:
    found = {(row["k"], row["p"]): (row["k"], row["p"], row["s"], row["v"]) for row in table.rows()}
    assert found == {key: row[:4] for key, row in oracle.rows().items()}
    levels: dict[tuple[bytes, int, int], list[tuple[Any, Any]]] = {}
    for (partition, bucket), entries in table.committed.at(table.snapshot).by_bucket.items():
        for entry in entries.values():
            if entry.file.level > 0:
                levels.setdefault((partition, bucket, entry.file.level), []).append(table.key_range(entry.file))
    for ranges in levels.values():
        ranges.sort()
        assert all(left[1] < right[0] for left, right in pairwise(ranges))
