"""Statements of Spark SQL, and of Delta's, that are not carried out, each with what does it instead.

Others that nothing carries out are refused too, naming the part that is not understood.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from sqlglot.tokens import Token, TokenType

from freshet.storage.sql.refusals import refused
from freshet.storage.sql.sql_text import Statement

_DETAIL: Final = "DESCRIBE EXTENDED t has place and options, SELECT * FROM t$partitions files and sizes"
_EACH: Final = "each statement is a commit of its own; a MERGE updates, deletes and inserts in one"
_FUNCTIONS: Final = "functions are those of DuckDB, or of the Spark session that is given as spark="
_GRANTS: Final = "who may read and write is said where the files are, and by the server of the catalog"
NO_VIEWS: Final = "there are no views: keep the query, or its rows by CREATE TABLE … AS SELECT"
REPLACE_ROWS: Final = (
    "DROP TABLE IF EXISTS and CREATE TABLE make another table of the name; INSERT OVERWRITE gives the same table other "
    "rows"
)
_PARTITIONS: Final = "partitions are those of the rows: one is there when it has a row"

_STATEMENTS: Final[Mapping[str, str]] = {
    "ADD": "there are no jars, files or archives here",
    "ALTER VIEW": NO_VIEWS,
    "ANALYZE": "queries need no statistics but those that each commit writes: SELECT * FROM t$files, t$partitions",
    "BEGIN": _EACH,
    "CACHE": "nothing is cached under a name; keep the result: freshet.sql(…).to_arrow()",
    "CLEAR": "nothing is cached under a name",
    "COMMENT ON COLUMN": "ALTER TABLE t ALTER COLUMN c COMMENT '…'",
    "COMMIT": _EACH,
    "COPY": "read the files and insert the rows: freshet append WAREHOUSE TABLE FILE, or Table.append",
    "CREATE FUNCTION": _FUNCTIONS,
    "DENY": _GRANTS,
    "DESC DETAIL": _DETAIL,
    "DESC FUNCTION": _FUNCTIONS,
    "DESC HISTORY": "SELECT * FROM t$snapshots has what was committed",
    "DESC QUERY": "the result of a query has a schema: freshet.sql(…).schema",
    "DESCRIBE DETAIL": _DETAIL,
    "DESCRIBE FUNCTION": _FUNCTIONS,
    "DESCRIBE HISTORY": "SELECT * FROM t$snapshots has what was committed",
    "DESCRIBE QUERY": "the result of a query has a schema: freshet.sql(…).schema",
    "DROP FUNCTION": _FUNCTIONS,
    "DROP VIEW": NO_VIEWS,
    "EXPLAIN": "a scan says what it reads: catalog.table('shop.orders').scan(filter=…).plan()",
    "FSCK": "freshet check-table WAREHOUSE TABLE looks for damage",
    "GRANT": _GRANTS,
    "LOAD": "read the files and insert the rows: freshet append WAREHOUSE TABLE FILE, or Table.append",
    "MSCK": "partitions are those of the rows; files that the catalog does not know become a table by CALL sys.repair",
    "OPTIMIZE": "CALL sys.compact(table => 'shop.orders')",
    "REFRESH": "each statement reads the newest snapshot",
    "REPAIR": "partitions are those of the rows; files that the catalog does not know become tables by CALL sys.repair",
    "REPLACE": REPLACE_ROWS,
    "RESET": "options are given in the statement's tables: ALTER TABLE t SET TBLPROPERTIES",
    "RESTORE": "CALL sys.rollback(table => 't', version => '7'), or of a time: sys.rollback_to_timestamp",
    "REVOKE": _GRANTS,
    "ROLLBACK": _EACH,
    "SET": "options of a table: ALTER TABLE t SET TBLPROPERTIES ('k' = 'v'); of one call: CALL … (options => 'k=v')",
    "START TRANSACTION": _EACH,
    "TABLE": "SELECT * FROM t",
    "UNCACHE": "nothing is cached under a name",
    "USE": "give the database as database=, or in the names of tables",
    "VACUUM": "CALL sys.expire_snapshots(table => 't'), then CALL sys.remove_orphan_files(table => 't')",
}
"""By their first words."""

_TABLE_CHANGES: Final[Mapping[str, str]] = {
    "ADD CONSTRAINT": "rows are checked for NULL alone: ALTER TABLE t ALTER COLUMN c SET NOT NULL",
    "ADD IF NOT EXISTS PARTITION": _PARTITIONS,
    "ADD PARTITION": _PARTITIONS,
    "PARTITION": "a partition has no name, place or format of its own: INSERT its rows with other values, then ALTER "
    "TABLE t DROP PARTITION (…)",
    "RECOVER PARTITIONS": "partitions are those of the rows; files that the catalog does not know become a table by "
    "CALL sys.repair",
    "REPLACE COLUMNS": "ADD COLUMNS, DROP COLUMN, RENAME COLUMN and ALTER COLUMN keep the values of the others",
    "SET FILEFORMAT": "ALTER TABLE t SET TBLPROPERTIES ('file.format' = 'orc')",
    "SET LOCATION": "a table lies where its catalog has it: ALTER TABLE t RENAME TO u, or CREATE TABLE u AS SELECT",
    "SET SERDE": "files are Parquet, ORC or Avro: ALTER TABLE t SET TBLPROPERTIES ('file.format' = 'orc')",
    "SET SERDEPROPERTIES": "files are Parquet, ORC or Avro: ALTER TABLE t SET TBLPROPERTIES ('file.format' = 'orc')",
}
"""By the first words behind the name of the table of ALTER TABLE."""


def refuse_known(statement: Statement) -> None:
    """Raises where it is one of the statements above."""
    _refuse(statement, statement.tokens, _STATEMENTS)


def refuse_known_change(statement: Statement, rest: Sequence[Token]) -> None:
    """The same of an ALTER TABLE, given what stands behind the name of the table."""
    _refuse(statement, rest, _TABLE_CHANGES)


def _refuse(statement: Statement, tokens: Sequence[Token], known: Mapping[str, str]) -> None:
    words = [word for token in tokens for word in _words(token)]
    for start, instead in known.items():
        wanted = start.split()
        if words[: len(wanted)] == wanted:
            raise refused(statement.text, instead)


def _words(token: Token) -> list[str]:
    """A token may be two words (MSCK REPAIR); names in backticks and texts are none of a statement's words."""
    is_given = token.token_type in (TokenType.STRING, TokenType.IDENTIFIER)
    return [""] if is_given else token.text.upper().split()
