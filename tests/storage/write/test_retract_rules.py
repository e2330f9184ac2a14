"""Retracts that a merge engine cannot take: refused with row, key and remedy, and nothing of their input is taken."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.schema.change import SetOption
from tests.kit.engine_tables import FreshetTable

COLUMNS = {"k": "INT NOT NULL", "s": "INT", "t": "INT", "a": "INT", "b": "INT"}
PARTIAL = {"merge-engine": "partial-update"}
GROUPS = {
    **PARTIAL,
    "fields.s.sequence-group": "a",
    "fields.t.sequence-group": "b",
    "fields.a.aggregate-function": "max",
}
REMOVING = {**GROUPS, "partial-update.remove-record-on-sequence-group": "t"}
AGGREGATION = {"merge-engine": "aggregation", "fields.a.aggregate-function": "max"}


def row(kind: str, key: int = 2, **values: int) -> dict[str, Any]:
    return {"k": key, **values, "_ROW_KIND": kind}


@pytest.mark.parametrize(
    ("options", "refused", "says"),
    [
        pytest.param(PARTIAL, row("-D"), "partial-update.remove-record-on-delete", id="no rule"),
        pytest.param(PARTIAL, row("-U"), "ignore-delete", id="no rule, -U"),
        pytest.param(GROUPS, row("-U", s=1), "fields.a.ignore-retract=true", id="group"),
        pytest.param(REMOVING, row("-D", s=1), "fields.a.ignore-retract=true", id="other group"),
        pytest.param(AGGREGATION, row("-D", b=1), "fields.a.ignore-retract=true", id="aggregation"),
        pytest.param(
            {**AGGREGATION, "aggregation.remove-record-on-delete": "true"},
            row("-U"),
            "max does not take rows of kind -U and -D",
            id="-U with removal",
        ),
        pytest.param({"merge-engine": "first-row"}, row("-D"), "ignore-delete", id="first-row"),
    ],
)
def test_refused_with_key_and_remedy(tmp_path: Path, options: dict[str, str], refused: Any, says: str) -> None:
    table = FreshetTable.create(tmp_path, COLUMNS, ["k"], options)
    table.commit([row("+I", 1)])
    with pytest.raises(InvalidRequestError, match=r"row 1 of the input, -[DU] with key \(k=2\)") as caught:
        table.commit([row("+I", 3), refused, row("+I", 4)])
    assert says in str(caught.value)
    table.compact()
    assert table.read().column("k").to_pylist() == [1]


@pytest.mark.parametrize(
    ("options", "taken"),
    [
        pytest.param({**PARTIAL, "ignore-delete": "true"}, row("-D"), id="ignore-delete"),
        pytest.param(GROUPS, row("-D", t=1), id="the group has no such function"),
        pytest.param(GROUPS, row("-D", a=1), id="no event of the group"),
        pytest.param(REMOVING, row("-D", s=1, t=1), id="may remove the record"),
        pytest.param({**AGGREGATION, "fields.a.ignore-retract": "true"}, row("-D"), id="ignore-retract"),
        pytest.param({**AGGREGATION, "aggregation.remove-record-on-delete": "true"}, row("-D"), id="removal"),
        pytest.param({"merge-engine": "aggregation"}, row("-D"), id="functions that take retracts"),
    ],
)
def test_taken(tmp_path: Path, options: dict[str, str], taken: Any) -> None:
    table = FreshetTable.create(tmp_path, COLUMNS, ["k"], options)
    table.commit([row("+I", 1), taken])
    assert table.read().column("k").to_pylist() == [1]


def test_an_overflow_while_merging_commits_nothing(tmp_path: Path) -> None:
    options = {"merge-engine": "aggregation", "fields.a.aggregate-function": "sum"}
    table = FreshetTable.create(tmp_path, COLUMNS, ["k"], options)
    table.commit([row("+I", 1, a=1)])
    with pytest.raises(InvalidRequestError, match=r"\(k=2\).*overflows INT"):
        table.commit([row("+I", 1, a=5), row("+I", a=1 << 30), row("+I", a=1 << 30)])
    assert table.read().column("a").to_pylist() == [1]


def test_the_session_counts_the_keys_it_merged(tmp_path: Path) -> None:
    functions = {"fields.a.aggregate-function": "product"}
    columns = {"k": "INT NOT NULL", "a": "DECIMAL(5, 0)"}
    table = FreshetTable.create(tmp_path, columns, ["k"], {"merge-engine": "aggregation", **functions})
    table.commit([row("+I", 1, a=2), row("+I", 2, a=2), row("+I", 2, a=3), row("+I", 3), row("+I", 3)])
    metrics = table.session.merge_metrics
    assert (metrics.keys_merged, metrics.keys_in_python) == (2, 1)


def test_a_table_that_holds_a_record_it_cannot_merge_is_read_with_an_error_naming_the_key(tmp_path: Path) -> None:
    """As Apache Paimon leaves it, and as a change of options does."""
    table = FreshetTable.create(
        tmp_path, COLUMNS, ["k"], {"merge-engine": "aggregation", "fields.a.aggregate-function": "sum"}
    )
    table.commit([row("+I", 1, a=1), row("-D", 2, a=1)])
    table.commit([row("+I", 1, a=1), row("+I", 2, a=1)])
    table.close()
    changed = table.table.alter(SetOption("fields.a.aggregate-function", "max"), allow_lossy=True)
    with pytest.raises(InvalidRequestError, match=r"\(k=2\) cannot be merged: column 'a'.*ignore-retract"):
        changed.scan().to_arrow()
    assert changed.scan(["k", "b"]).to_arrow().to_pylist() == [{"k": 1, "b": None}, {"k": 2, "b": None}]
    with pytest.raises(InvalidRequestError, match=r"\(k=2\) cannot be merged"):
        changed.compact(full=True)
    mended = changed.alter(SetOption("fields.a.ignore-retract", "true"), allow_lossy=True)
    assert mended.scan(["k", "a"]).to_arrow().to_pylist() == [{"k": 1, "a": 1}, {"k": 2, "a": 1}]


ALONE = r"was given -U rows without a row after them, of 1 keys such as \(k=1\).*ignore-update-before"
DELETED_ROWS_GO = {"merge-engine": "partial-update", "partial-update.remove-record-on-delete": "true"}


@pytest.mark.parametrize("producer", ["none", "lookup", "input", "full-compaction"])
def test_an_update_without_the_row_that_follows_is_refused(tmp_path: Path, producer: str) -> None:
    """As a filtered stream has it: the row stayed, and its changelog told an update that changed nothing."""
    table = FreshetTable.create(tmp_path, COLUMNS, ["k"], {**DELETED_ROWS_GO, "changelog-producer": producer})
    table.commit([row("+I", 1, a=5), row("+I", 2, a=6)])
    with pytest.raises(InvalidRequestError, match=ALONE):
        table.commit([row("-U", 2, a=6), row("+U", 2, a=7), row("-U", 1, a=5)])
    table.session.write([row("+U", 1, a=8)])  # what is missing may come, in this commit
    table.commit([])
    rows = table.table.scan(["k", "a"]).to_arrow().sort_by("k").to_pylist()
    assert rows == [{"k": 1, "a": 8}, {"k": 2, "a": 7}]
    with pytest.raises(InvalidRequestError, match=ALONE):
        table.commit([row("+U", 1, a=9), row("-U", 1, a=9)])
    table.session.abort()
    table.commit([row("-U", 1, a=8), row("-D", 1, a=8)])
    assert table.table.scan(["k"]).to_arrow().to_pylist() == [{"k": 2}]


def test_updates_alone_are_passed_over_where_the_table_says_so(tmp_path: Path) -> None:
    table = FreshetTable.create(tmp_path, COLUMNS, ["k"], {**DELETED_ROWS_GO, "ignore-update-before": "true"})
    table.commit([row("+I", 1, a=5)])
    table.commit([row("-U", 1, a=5)])
    assert table.table.scan(["k", "a"]).to_arrow().to_pylist() == [{"k": 1, "a": 5}]
