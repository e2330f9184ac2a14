"""Renamed columns in the texts of statements: whatever stands beside them is passed over."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from freshet.pipeline.decode.ddl_renames import renames_of

AB = [("a", "b")]
CASES: Sequence[tuple[str, list[tuple[str, str]]]] = (
    # the plain ones
    ("ALTER TABLE t RENAME COLUMN a TO b", AB),
    ("alter table t rename column a to b", AB),
    ("Alter  Table\n t\tRename\nColumn a To b ;", AB),
    ("ALTER TABLE `t` RENAME COLUMN `a` TO `b`", AB),
    ("ALTER TABLE `shop`.`t` RENAME COLUMN a TO b", AB),
    ("ALTER TABLE shop . t RENAME COLUMN a TO b", AB),
    ('ALTER TABLE "SHOP"."T" RENAME COLUMN "a" TO "b"', AB),
    ("ALTER TABLE t CHANGE a b INT", AB),
    ("ALTER TABLE t CHANGE COLUMN a b INT NOT NULL DEFAULT 0 COMMENT 'x' AFTER c", AB),
    ("ALTER TABLE t CHANGE COLUMN `a` `b` VARCHAR(5) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NULL", AB),
    ("ALTER TABLE t CHANGE COLUMN a b ENUM('x,y', 'RENAME COLUMN c TO d') FIRST", AB),
    ("ALTER TABLE t CHANGE a b DECIMAL(10,2) UNSIGNED ZEROFILL", AB),
    ("ALTER TABLE t CHANGE a b GEOMETRY SRID 4326", AB),
    ("ALTER TABLE t CHANGE a b BIT(1) DEFAULT b'0'", AB),
    # several clauses
    ("ALTER TABLE t RENAME COLUMN a TO b, RENAME COLUMN c TO d", [*AB, ("c", "d")]),
    ("ALTER TABLE t RENAME COLUMN a TO b, RENAME COLUMN b TO a", [*AB, ("b", "a")]),
    ("ALTER TABLE t ADD COLUMN x INT, CHANGE a b INT, DROP COLUMN y, RENAME COLUMN c TO d", [*AB, ("c", "d")]),
    ("ALTER TABLE t ADD (x INT, y INT), RENAME COLUMN a TO b", AB),
    ("ALTER TABLE t DROP PARTITION p0, RENAME COLUMN a TO b", AB),
    ("ALTER TABLE t RENAME COLUMN a TO b, ALGORITHM=INPLACE, LOCK=NONE", AB),
    ("ALTER TABLE t ROW_FORMAT=DYNAMIC, ADD INDEX i (a, c), RENAME COLUMN a TO b, ADD CHECK (c > 1 AND d < (2))", AB),
    ("ALTER TABLE t MODIFY c INT, CHANGE a b INT, RENAME TO u", AB),
    # words between
    ("ALTER ONLINE TABLE t RENAME COLUMN a TO b", AB),
    ("ALTER IGNORE TABLE t CHANGE a b INT", AB),
    ("ALTER ONLINE IGNORE TABLE IF EXISTS t WAIT 5 RENAME COLUMN IF EXISTS a TO b", AB),
    ("ALTER TABLE t NOWAIT CHANGE COLUMN IF EXISTS a b INT", AB),
    # comments
    ("/* ApplicationName=DBeaver 23 */ ALTER TABLE t RENAME COLUMN a TO b", AB),
    ("-- first, RENAME COLUMN x TO y\nALTER TABLE t RENAME COLUMN a /* not c */ TO b -- end", AB),
    ("# it's\nALTER TABLE t RENAME COLUMN a TO b # , RENAME COLUMN c TO d", AB),
    ("ALTER TABLE t CHANGE a b INT#, RENAME COLUMN c TO d\n, CHANGE e f INT", [*AB, ("e", "f")]),
    ("ALTER TABLE t /* RENAME COLUMN c TO d, */ RENAME COLUMN a TO b", AB),
    ("ALTER TABLE t /*!80000 RENAME COLUMN a TO b */", AB),
    ("ALTER TABLE t /*M!100501 RENAME COLUMN a TO b */, RENAME COLUMN c TO d", [*AB, ("c", "d")]),
    ("ALTER TABLE t RENAME COLUMN a TO b --5 is no comment", []),
    # texts that look like clauses
    ("ALTER TABLE t ADD x TEXT DEFAULT ', RENAME COLUMN c TO d', RENAME COLUMN a TO b", AB),
    ("ALTER TABLE t COMMENT 'it''s, CHANGE c d INT', CHANGE a b INT", AB),
    ("ALTER TABLE t COMMENT 'it\\'s, CHANGE c d INT', CHANGE a b INT", AB),
    ('ALTER TABLE t COMMENT "a, CHANGE c d INT", CHANGE a b INT', AB),
    # odd names
    ("ALTER TABLE t RENAME COLUMN `a b` TO `c, d`", [("a b", "c, d")]),
    ("ALTER TABLE t RENAME COLUMN `a``b` TO `TO`", [("a`b", "TO")]),
    ("ALTER TABLE t CHANGE `column` `change` INT", [("column", "change")]),
    ("ALTER TABLE t CHANGE COLUMN `column` b INT", [("column", "b")]),
    ("ALTER TABLE t RENAME COLUMN `to` TO `column`", [("to", "column")]),
    ("ALTER TABLE t RENAME COLUMN größe TO größe_cm, CHANGE 1a b$2 INT", [("größe", "größe_cm"), ("1a", "b$2")]),
    ("ALTER TABLE t RENAME COLUMN a TO A", [("a", "A")]),
    # several statements
    ("SET NAMES utf8; ALTER TABLE t RENAME COLUMN a TO b; DROP TABLE u;", AB),
    # no renames
    ("ALTER TABLE t CHANGE a a BIGINT", []),
    ("ALTER TABLE t CHANGE COLUMN a `a` BIGINT", []),
    ("ALTER TABLE t MODIFY a BIGINT, ADD COLUMN rename INT, ADD `change` INT", []),
    ("ALTER TABLE t RENAME TO u", []),
    ("ALTER TABLE t RENAME u, RENAME AS v", []),
    ("ALTER TABLE t RENAME INDEX a TO b, RENAME KEY c TO d", []),
    ("RENAME TABLE t TO u", []),
    ("CREATE TABLE t (a INT COMMENT 'ALTER TABLE t RENAME COLUMN a TO b')", []),
    ("ALTER VIEW v AS SELECT a AS b FROM t", []),
    ("ALTER TABLE t ADD CHECK (a IN (1, 2)), ALTER COLUMN a SET DEFAULT 1", []),
    # cut off, and no SQL
    ("ALTER TABLE t RENAME COLUMN a TO", []),
    ("ALTER TABLE t RENAME COLUMN a TO b, ADD x TEXT DEFAULT 'it", []),
    ("ALTER TABLE t RENAME COLUMN a TO b /* and", []),
    ("ALTER TABLE t RENAME COLUMN a TO `b", []),
    ("ALTER TABLE t CHANGE a b", []),
    ("ALTER TABLE", []),
    ("", []),
    ("N/A", []),
)  # fmt: skip


@pytest.mark.parametrize(("ddl", "pairs"), CASES)
def test_what_is_renamed(ddl: str, pairs: list[tuple[str, str]]) -> None:
    found = renames_of(ddl)
    assert [pair for each in found for pair in each.renames] == pairs
    assert all(each.table.upper() == "T" for each in found)


_WORDS = "ALTER TABLE t RENAME COLUMN CHANGE TO IF EXISTS a b INT ( ) , ; . ' \" ` /* */ /*! -- # \\ é"
_PIECES = st.sampled_from([*_WORDS.split(), "\n"])


@given(st.lists(_PIECES, max_size=30).map(" ".join))
def test_whatever_comes_is_read(ddl: str) -> None:
    for each in renames_of(ddl):
        assert each.renames and all(old != new for old, new in each.renames)
