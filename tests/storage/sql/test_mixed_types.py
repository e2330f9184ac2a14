"""A text compared with a number: one rule, whatever the rows are and whoever computes; and whose words errors are."""

from __future__ import annotations

from pathlib import Path

import pytest

from freshet import Catalog, InvalidRequestError, sql

RULE = r"write the value as text, in quotes"


@pytest.fixture
def warehouse(tmp_path: Path) -> Path:
    columns = {"id": "BIGINT", "n": "INT", "s": "STRING", "d": "DATE", "x": "ROW<a STRING>"}
    table = Catalog(tmp_path).create_table("a.t", schema=columns, primary_keys=["id"], options={"bucket": "1"})
    table.upsert([{"id": 1, "n": 7, "s": "7"}, {"id": 2, "n": 2}])
    return tmp_path


def add_a_word(warehouse: Path) -> None:
    Catalog(warehouse).table("a.t").upsert([{"id": 3, "s": "seven"}])


@pytest.mark.parametrize("has_words", [False, True])
@pytest.mark.parametrize(
    ("query", "shown"),
    [
        ("SELECT id FROM a.t WHERE s = 7", "s = 7"),
        ("SELECT id FROM a.t WHERE 7 = S", "7 = S"),
        ("SELECT id FROM a.t WHERE s <> 7.5", "s <> 7.5"),
        ("SELECT id FROM a.t WHERE s <=> 7", "s IS NOT DISTINCT FROM 7"),
        ("SELECT id FROM a.t WHERE n = 7 AND s > 7", "s > 7"),
        ("SELECT id FROM a.t WHERE s IN ('8', 7)", r"s IN \('8', 7\)"),
        ("SELECT id FROM a.t WHERE s BETWEEN 1 AND 9", "s BETWEEN 1 AND 9"),
        ("SELECT id FROM a.t WHERE upper(s) = 7", r"UPPER\(s\) = 7"),
        ("SELECT id FROM a.t WHERE s = n", "s = n"),
        ("SELECT id FROM a.t WHERE s = (SELECT max(n) FROM a.t)", r"s = \(SELECT MAX\(n\) FROM a.t\)"),
        ("SELECT CASE WHEN s = 7 THEN 1 END FROM a.t", "s = 7"),
        ("SELECT l.id FROM a.t l JOIN a.t r ON l.n = r.s", "l.n = r.s"),
        ("SELECT i FROM (SELECT id AS i, s AS w FROM a.t) WHERE w = 7", "w = 7"),
        ("WITH c AS (SELECT s FROM a.t) SELECT * FROM c WHERE s = 7", "s = 7"),
        ("SELECT id FROM a.t GROUP BY id HAVING max(s) = 7", r"MAX\(s\) = 7"),
        ("SELECT id FROM a.t WHERE id IN (SELECT s FROM a.t)", r"id IN \(SELECT s FROM a.t\)"),
        ("UPDATE a.t SET n = 3 WHERE s = 7", "'s': 7"),
        ("DELETE FROM a.t WHERE s = 7", "'s': 7"),
    ],
)
def test_a_text_is_not_compared_with_a_number(warehouse: Path, query: str, shown: str, has_words: bool) -> None:
    if has_words:
        add_a_word(warehouse)
    with pytest.raises(InvalidRequestError, match=f"{shown}.*{RULE}") as caught:
        sql(query, warehouse)
    assert "freshet_" not in str(caught.value)


@pytest.mark.parametrize(
    ("query", "ids"),
    [
        ("SELECT id FROM a.t WHERE s = '7'", [1]),
        ("SELECT id FROM a.t WHERE n = '7'", [1]),
        ("SELECT id FROM a.t WHERE TRY_CAST(s AS INT) = 7", [1]),
        ("SELECT id FROM a.t WHERE s = CAST(n AS STRING)", [1]),
        ("SELECT id FROM a.t WHERE length(s) = 1", [1]),
        ("SELECT id FROM a.t WHERE s IN ('7', '8')", [1]),
        ("SELECT id FROM a.t WHERE d = '2024-01-01'", []),
        ("SELECT l.id FROM a.t l JOIN a.t r USING (id) WHERE l.n = 2", [2]),
        ("SELECT id FROM a.t WHERE EXISTS (SELECT 1) AND n = 7", [1]),
        ("SELECT y AS id FROM a.t LATERAL VIEW explode(array(1, 2)) AS y WHERE n = y", [2]),
    ],
)
def test_other_comparisons_are_computed(warehouse: Path, query: str, ids: list[int]) -> None:
    add_a_word(warehouse)
    assert sql(query, warehouse).to_arrow().column("id").to_pylist() == ids


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("SELECT CAST(s AS INT) FROM a.t", "Could not convert string 'seven'"),
        ("SELECT zz FROM a.t", 'column "zz" not found'),
        ("SELECT s + 1 FROM a.t", "explicit type casts"),
        ("SELECT id FROM a.t WHERE d = 7", "INTEGER -> DATE"),
        ("SELECT * FROM a.t, a.t", "Alias already used: t"),
        ("SELECT sum(s) FROM a.t", "No function matches"),
        ("SELECT u.id FROM a.t", "u"),
    ],
)
def test_messages_have_no_names_of_ours(warehouse: Path, query: str, message: str) -> None:
    add_a_word(warehouse)
    with pytest.raises(InvalidRequestError, match=message) as caught:
        sql(query, warehouse).to_arrow()
    assert not any(each in str(caught.value) for each in ("freshet_", "LINE 1", "Candidate functions"))
