"""With lookup, what is emitted stays so: the row is the same when a compaction or a reader merges it again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.kit.changelog_files import changelog, folded
from tests.kit.engine_tables import FreshetTable

ROWS = "ARRAY<ROW<a INT, b INT>>"


def _table(folder: Path, column: str, options: dict[str, str], **more: str) -> FreshetTable:
    engine = {"merge-engine": "partial-update", "changelog-producer": "lookup", "fields.g.sequence-group": "v"}
    columns = {"k": "INT NOT NULL", "g": "INT", "v": column}
    return FreshetTable.create(folder, columns, ["k"], {**engine, **options, **more})


LATE: tuple[tuple[str, dict[str, str], Any, Any], ...] = (
    (ROWS, {"fields.v.aggregate-function": "nested_update"}, [None, {"a": 1, "b": 2}], [{"a": 1, "b": 2}]),
    (
        ROWS,
        {"fields.v.aggregate-function": "nested_update", "fields.v.nested-key": "a"},
        [{"a": 1, "b": 2}, {"a": 1, "b": 3}],
        [{"a": 1, "b": 3}],
    ),
    (
        ROWS,
        {"fields.v.aggregate-function": "nested_update", "fields.v.count-limit": "1"},
        [{"a": 1, "b": 2}, {"a": 2, "b": 3}],
        [{"a": 1, "b": 2}],
    ),
    (
        ROWS,
        {"fields.v.aggregate-function": "nested_partial_update", "fields.v.nested-key": "a"},
        [None, {"a": 1, "b": None}, {"a": 1, "b": 3}],
        [{"a": 1, "b": 3}],
    ),
    ("ARRAY<INT>", {"fields.v.aggregate-function": "collect", "fields.v.distinct": "true"}, [4, 4], [4]),
)


@pytest.mark.parametrize(
    ("column", "options", "late", "kept"), LATE, ids=["nulls", "keys", "limit", "partial", "collect"]
)
@pytest.mark.parametrize("levels", ["2", "4"])
def test_a_late_value_is_emitted_as_it_stays(
    column: str, options: dict[str, str], late: Any, kept: Any, levels: str, tmp_path: Path
) -> None:
    table = _table(tmp_path, column, options, **{"num-levels": levels})
    try:
        table.commit([{"k": 1, "g": 5}])
        table.commit([{"k": 1, "g": 3, "v": late}])
        table.commit([{"k": 2, "g": 1}])
        rows = {row["k"]: row for row in table.read().to_pylist()}
        assert rows[1] == {"k": 1, "g": 5, "v": kept}
        emitted = folded(changelog(table.table).values())
        assert {key[0]: dict(row) for key, row in emitted.items()} == rows
    finally:
        table.close()


def test_what_a_delete_below_the_highest_level_has_set_is_emitted_as_it_stays(tmp_path: Path) -> None:
    """The -D stays at a level that has another above it; the add brings no order, and so nothing to its group."""
    table = _table(tmp_path, "INT", {}, **{"num-levels": "4"})
    try:
        table.commit([{"k": 2, "g": 1, "v": 1}])
        table.compact()
        table.commit([{"k": 1, "v": 7, "_ROW_KIND": "-D"}])
        table.commit([{"k": 1}])
        table.commit([{"k": 2, "g": 2, "v": 2}])
        table.compact()
        rows = {row["k"]: row for row in table.read().to_pylist()}
        emitted = folded(changelog(table.table).values())
        assert {key[0]: dict(row) for key, row in emitted.items()} == rows
    finally:
        table.close()
