"""Clauses of merges as text: what people type is what the methods do, and what is none says what would be."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest

from freshet import expr
from freshet.storage.edits.merge import Merge
from freshet.storage.exceptions import InvalidRequestError


def never() -> None:
    raise AssertionError("nothing is opened before a merge is carried out")


MERGE = Merge(never, pa.table({"id": [1]}), ("id",))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("matched then update", lambda m: m.when_matched_update_all()),
        ("MATCHED THEN UPDATE SET *", lambda m: m.when_matched_update_all()),
        ("when matched then update all;", lambda m: m.when_matched_update_all()),
        ("matched and source.n > 3 then update", lambda m: m.when_matched_update_all("source.n > 3")),
        (
            "matched then update set target.n = target.n + source.n, `a b` = NULL",
            lambda m: m.when_matched_update({"n": expr("target.n + source.n"), "a b": expr("NULL")}),
        ),
        (
            "Matched And source.kind = 'x then delete' Then Delete",
            lambda m: m.when_matched_delete("source.kind = 'x then delete'"),
        ),
        ("not matched then insert", lambda m: m.when_not_matched_insert_all()),
        ("not matched by target then insert *", lambda m: m.when_not_matched_insert_all()),
        (
            "not matched and source.n IS NULL then insert (id, n) values (source.id, 5)",
            lambda m: m.when_not_matched_insert({"id": expr("source.id"), "n": expr("5")}, "source.n IS NULL"),
        ),
        ("not matched by source then delete", lambda m: m.when_not_matched_by_source_delete()),
        (
            "not matched by source and target.n = 1 then update set n = 0",
            lambda m: m.when_not_matched_by_source_update({"n": expr("0")}, "target.n = 1"),
        ),
    ],
)
def test_as_the_methods(text: str, same: Callable[[Merge], Merge]) -> None:
    assert MERGE.when(text).clauses == same(MERGE).clauses


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "cannot be read"),
        ("matched", "cannot be read"),
        ("matched then", "cannot be read"),
        ("matched then drop", "cannot be read"),
        ("matched then do nothing", "cannot be read"),
        ("then delete", "cannot be read"),
        ("matched update", "cannot be read"),
        ("then insert", "cannot be read"),
        ("matched then insert", "rows that are matched cannot be inserted"),
        ("not matched then delete", "rows that are not matched cannot be deleted"),
        ("not matched then update", "cannot be updated"),
        ("not matched by source then insert", "cannot be inserted"),
        ("not matched by source then update", "no row of the source has new values"),
        ("matched then delete when not matched then insert", "not one clause"),
        ("matched then update set n > 3", "columns and their values"),
        ("matched then update set n = 1, n = 2", "n has two values"),
        ("not matched then insert (id, n) values (1)", "2 columns have 1 values"),
        ("not matched then insert (id)", "insert .COLUMN"),
        ("matched and n = 1 then delete", "column of neither side"),
        ("matched and (SELECT 1) = 1 then delete", "a query"),
        ("matched then delete; DROP TABLE x", "merge clause"),
    ],
)
def test_refused(text: str, words: str) -> None:
    with pytest.raises(InvalidRequestError, match=words):
        MERGE.when(text)
