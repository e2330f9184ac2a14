"""What is not carried out is refused naming the part, and nothing has changed."""

from __future__ import annotations

from pathlib import Path

import pytest

import freshet
from freshet import Catalog
from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.sql.procedures import PROCEDURES
from freshet.storage.sql.run import DuckDbEngine, SqlSession, run_all


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Catalog:
    made = Catalog(tmp_path_factory.mktemp("lake"))
    schema = {"id": "BIGINT", "dt": "STRING", "n": "INT"}
    table = made.create_table(
        "s.t", schema=schema, primary_keys=["id", "dt"], partition_keys=["dt"], options={"bucket": "1"}
    )
    table.append([{"id": 1, "dt": "a", "n": 1}])
    made.create_table("s.u", schema={"id": "BIGINT"})
    return made


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("", "no statement"),
        (" ; ", "no statement"),
        ("SELECT 1; SELECT 2", "2 statements"),
        ("SELEC 1", "'SELEC 1' is not supported"),
        ("SELECT * FRO t", "cannot be read.*line 1, column"),
        ("SELECT (", "cannot be read"),
        ("SELECT 'a", "cannot be read"),
        ("EXPLAIN SELECT 1", "'EXPLAIN SELECT 1'"),
        ("USE s", "database="),
        ("SET x = 1", "'SET x = 1'"),
        ("GRANT SELECT ON t TO me", "'GRANT.*where the files are"),
        ("SELECT * FROM t VERSION AS OF n", "VERSION AS OF n"),
        ("SELECT * FROM t TIMESTAMP AS OF now()", r"TIMESTAMP AS OF NOW\(\)"),
        ("SELECT * FROM t TIMESTAMP AS OF '22.11.2026'", "'22.11.2026' is no moment"),
        ("SELECT * FROM t TIMESTAMP AS OF 1764228574000", "whole seconds since 1970"),
        ("SELECT /*+ OPTIONS('a'='b') */ * FROM t", "OPTIONS"),
        ("SELECT :x", "not supported|cannot"),
        ("SELECT nothing FROM t", 'column "nothing" not found'),
        ("SELECT * FROM 'orders/day.csv'", "not a file: .*freshet append"),
        ("SELECT * FROM csv.`/in/day.csv`", "not a file: .*freshet append"),
        ("MERGE INTO t USING parquet.`/in/day` s ON t.id = s.id WHEN MATCHED THEN DELETE", "freshet merge"),
        ("SELECT * FROM read_csv('/in/day.csv')", "READ_CSV in the place of a table: .*freshet append"),
        ("SELECT * FROM table_changes('s.t', 1)", "changes_between"),
        ("BEGIN TRANSACTION", "each statement is a commit"),
        ("START TRANSACTION", "each statement is a commit"),
        ("COMMIT", "each statement is a commit"),
        ("ROLLBACK", "each statement is a commit"),
        ("DESCRIBE DETAIL t", r"t\$partitions"),
        ("ALTER TABLE t DROP PARTITION (dt < 'x')", "named by the value of its key.*DELETE FROM t WHERE"),
        ("TRUNCATE TABLE t PARTITION (dt < 'x')", "named by the value of its key"),
        ("SELECT no_such_function(1)", "no_such_function"),
        ("SELECT * FROM lake.s.t", "no catalog 'lake'"),
        ("SELECT * FROM a.b.c.d", "a.b.c.d"),
        ("WITH freshet_0 AS (SELECT 1) SELECT * FROM freshet_0", "freshet_0"),
        ("CREATE OR REPLACE TABLE q (id INT)", "replace"),
        ("CREATE VIEW v AS SELECT 1", "'CREATE VIEW v"),
        ("CREATE TABLE q (id INT) USING parquet", "USING PARQUET"),
        ("CREATE TABLE q (id INT) LOCATION '/x'", "LOCATION '/x'"),
        ("CREATE TABLE q (id INT DEFAULT 4)", "'DEFAULT 4'"),
        ("CREATE TABLE q (id INT) PARTITIONED BY (days(id))", r"DAYS\(id\)"),
        ("CREATE TABLE q (id VARIANT)", "VARIANT"),
        ("CREATE TABLE q (id INT, id INT)", "two columns"),
        ("CREATE TABLE q", "columns of the table"),
        ("CREATE TABLE q (id INT) AS SELECT 1", "AS SELECT"),
        ("CREATE TABLE q (id INT, PRIMARY KEY (id)) TBLPROPERTIES ('primary-key' = 'id')", "two primary keys"),
        ("CREATE TABLE q (id INT) TBLPROPERTIES ('bucket' = '1', 'bucket' = '2')", "two values"),
        ("CREATE TABLE q (id INT) TBLPROPERTIES ('no-such-option.x' = '1')", "no-such-option.x"),
        ("CREATE DATABASE q LOCATION '/x'", "LOCATION '/x'"),
        ("ALTER TABLE t FROB x", "'ALTER TABLE t FROB x'"),
        ("ALTER TABLE t ADD PARTITION (dt = 'x')", "ADD PARTITION.*when it has a row"),
        ("ALTER TABLE t ADD IF NOT EXISTS PARTITION (dt = 'x')", "when it has a row"),
        ("ALTER TABLE t PARTITION (dt = 'x') RENAME TO PARTITION (dt = 'y')", "DROP PARTITION"),
        ("ALTER TABLE t PARTITION (dt = 'x') SET LOCATION '/x'", "no name, place"),
        ("ALTER TABLE t RECOVER PARTITIONS", "sys.repair"),
        ("ALTER TABLE t SET LOCATION '/x'", "RENAME TO"),
        ("ALTER TABLE t SET FILEFORMAT ORC", "'file.format'"),
        ("ALTER TABLE t SET ('bucket' = '4')", "options are written as TBLPROPERTIES"),
        ("ALTER TABLE t SET ('bucket'='4')", "options are written as TBLPROPERTIES"),
        ("ALTER TABLE t SET SERDE 'x'", "'file.format'"),
        ("ALTER TABLE t ADD CONSTRAINT c CHECK (n > 0)", "SET NOT NULL"),
        ("DESCRIBE t PARTITION (dt = 'x')", r"t\$partitions"),
        ("DESCRIBE HISTORY t", r"t\$snapshots"),
        ("DESCRIBE QUERY SELECT 1", "schema"),
        ("RESTORE TABLE t TO VERSION AS OF 1", "sys.rollback"),
        ("REPLACE TABLE t (id INT)", "INSERT OVERWRITE"),
        ("COMMENT ON COLUMN t.n IS 'x'", "ALTER COLUMN c COMMENT"),
        ("CREATE FUNCTION f AS 'x'", "DuckDB"),
        ("CREATE TEMPORARY VIEW v AS SELECT 1", "no views"),
        ("FSCK REPAIR TABLE t", "check-table"),
        ("TABLE t", r"SELECT \* FROM t"),
        ("ALTER TABLE t DROP PARTITION (n = 1)", "'n' is no partition key"),
        ("ALTER TABLE t DROP PARTITION (dt)", "give the key a value"),
        ("ALTER TABLE t REPLACE COLUMNS (a INT)", "REPLACE COLUMNS.*ADD COLUMNS"),
        ("ALTER TABLE t ADD COLUMN n INT", "'n'"),
        ("ALTER TABLE t ALTER COLUMN n SET DEFAULT f(4)", "4"),
        ("ALTER TABLE t ALTER COLUMN n.m SET DEFAULT 4", "has no default"),
        ("ALTER TABLE t DROP PRIMARY KEY CASCADE", "CASCADE"),
        ("ALTER VIEW v RENAME TO w", "'ALTER VIEW"),
        ("DROP VIEW v", "'DROP VIEW v'"),
        ("DROP TABLE t, u", "one thing"),
        ("SHOW FUNCTIONS", "'FUNCTIONS'"),
        ("SHOW TABLES IN s x", "'x'"),
        ("DESCRIBE FUNCTION f", "DuckDB"),
        ("INSERT INTO t VALUES (1, 'a')", "2 columns, and 3"),
        ("INSERT INTO t (id, dt, id) VALUES (1, 'a', 2)", "'id' of table s.t is given twice"),
        ("INSERT INTO t PARTITION (dt = 'a') (id, dt) VALUES (1, 'b')", "'dt' of table s.t is given twice"),
        ("INSERT INTO t (nope) VALUES (1)", "no column 'nope'"),
        ("INSERT INTO t (id, dt, n) VALUES (1, 'a', DEFAULT)", "'DEFAULT'"),
        ("INSERT INTO t (id, dt, n) VALUES (1, 'a', 2.5)", "'n'"),
        ("INSERT INTO t (id, dt, n) VALUES (1, 'a', 99999999999)", "'n'"),
        ("INSERT INTO t (id, dt, n) VALUES (1, 'a', '2')", r"'n' of table s.t is INT, .*string.*CAST\(… AS INT\)"),
        ("INSERT INTO t REPLACE WHERE id = 1 SELECT 1, 'a', 1", "'id = 1'"),
        ("INSERT INTO t VALUES (1, 'a', 1) RETURNING *", "RETURNING"),
        ("INSERT OVERWRITE t PARTITION (dt = 'b') SELECT 1, 2 FROM nothere", "nothere"),
        ("INSERT INTO t$files VALUES (1)", "only read"),
        ("DELETE FROM t", "TRUNCATE TABLE"),
        ("DELETE FROM t USING u WHERE t.id = u.id", "not supported"),
        ("DELETE FROM t WHERE upper(dt) = 'A'", r"UPPER\(dt\).*MERGE takes any condition"),
        ("DELETE FROM t WHERE id IN (SELECT id FROM u)", r"id IN \(SELECT id FROM u\)"),
        ("DELETE FROM t WHERE nope = 1", "nope"),
        ("UPDATE t SET n = 1", "WHERE TRUE is all rows"),
        ("UPDATE t SET id = 1 WHERE n = 1", "id"),
        ("UPDATE t SET n = 1, n = 2 WHERE id = 1", "n has two values"),
        ("UPDATE t SET n.x = 1 WHERE id = 1", "'n.x'"),
        ("UPDATE t SET n = (SELECT 1) WHERE id = 1", "SELECT 1"),
        ("UPDATE t SET n = DEFAULT WHERE id = 1", "DEFAULT"),
        ("UPDATE t SET n = CAST(dt AS INT) WHERE id = 1", "Could not convert string 'a'"),
        ("UPDATE t SET n = 1 FROM u WHERE t.id = u.id", "FROM u"),
        ("MERGE INTO t USING u ON t.id = u.id AND t.n > 1 WHEN MATCHED THEN DELETE", "'t.n > 1'"),
        ("MERGE INTO t USING (SELECT 1 AS id) u ON id = id WHEN MATCHED THEN DELETE", "both sides have such a column"),
        ("MERGE INTO t USING (SELECT 1 AS k, 2 AS id) u ON t.id = u.k WHEN MATCHED THEN DELETE", "another column 'id'"),
        ("MERGE INTO t USING (SELECT 1 AS k) t ON t.id = t.k WHEN MATCHED THEN DELETE", "same name"),
        ("MERGE INTO t USING (SELECT 1 AS id) u ON t.id = u.id WHEN NOT MATCHED THEN DELETE", "NOT MATCHED THEN"),
        ("TRUNCATE TABLE t PARTITION (dt)", "give the key a value"),
        ("CALL sys.fast_forward('t', 'b')", r"'CALL sys.fast_forward'.*INSERT OVERWRITE t SELECT \* FROM t\$branch_b"),
        ("CALL sys.remove_unexisting_files('t')", "loss of rows silent.*check-table"),
        ("CALL sys.frob('t')", "'CALL sys.frob'.*procedures are"),
        ("CALL sys.repair('s')", r"CALL sys\.repair.*name tables"),
        ("CALL sys.repair('s.nothere')", r"table s\.nothere cannot be registered"),
        ("CALL sys.mark_partition_done('t', 'n=1')", "'n' is no partition key"),
        ("CALL sys.mark_partition_done('u', 'dt=1')", "not partitioned"),
        ("CALL sys.rename_branch('t', 'a', 'b')", "no branch 'a'"),
        ("CALL sys.rollback_to_watermark('t', 5)", "none of its snapshots has one"),
        ("CREATE OR REPLACE TABLE u (id INT)", "'CREATE OR REPLACE TABLE'.*DROP TABLE IF EXISTS.*INSERT OVERWRITE"),
        ("REPLACE TABLE u (id INT)", "DROP TABLE IF EXISTS"),
        ("CREATE VIEW v AS SELECT 1", "no views"),
        ("OPTIMIZE t", "CALL sys.compact"),
        ("VACUUM t", "CALL sys.expire_snapshots"),
        ("ANALYZE TABLE t COMPUTE STATISTICS", r"t\$files"),
        ("REFRESH TABLE t", "newest snapshot"),
        ("MSCK REPAIR TABLE t", "sys.repair"),
        ("CACHE TABLE t", "cached"),
        ("CALL compact('t')", "CALL sys.compact"),
        ("CALL sys.compact()", "argument table"),
        ("CALL sys.compact('t', frob => 1)", "frob"),
        ("CALL sys.compact('t', where => 'dt = 1')", "where"),
        ("CALL sys.compact('t', table => 't')", "twice"),
        ("CALL sys.compact('t') x", "'x'"),
        ("CALL sys.create_tag('t', 'x', 'y')", "snapshot => 'y'"),
        ("CALL sys.rollback('t')", "one of version"),
        ("CALL sys.rollback(table => 't', version => concat('a', 'b'))", "concat"),
    ],
)  # fmt: skip
def test_the_part_is_named(catalog: Catalog, text: str, part: str) -> None:
    before = catalog.table("s.t")
    with pytest.raises(InvalidRequestError, match=f"(?is){part}"):
        freshet.sql(text, catalog, database="s").to_arrow()
    after = catalog.table("s.t")
    assert (after.schema, after.snapshots(), after.tags.list()) == (
        before.schema,
        before.snapshots(),
        before.tags.list(),
    )
    assert catalog.list_tables("s") == ["t", "u"] and catalog.list_databases() == ["s"]


def test_a_name_without_a_database_says_so(catalog: Catalog) -> None:
    with pytest.raises(InvalidRequestError, match=r"database\.table"):
        freshet.sql("SELECT * FROM t", catalog)
    with pytest.raises(InvalidRequestError, match="SHOW TABLES IN"):
        freshet.sql("SHOW TABLES", catalog)


def test_all_statements_are_read_before_the_first_runs(tmp_path: Path) -> None:
    session = SqlSession(Catalog(tmp_path), DuckDbEngine())
    with pytest.raises(InvalidRequestError, match="FROB"):
        list(run_all("CREATE TABLE s.a (id INT); ALTER TABLE s.a FROB", session))
    assert session.catalog.list_databases() == []
    results = list(run_all("CREATE TABLE s.a (id INT); -- ;\nINSERT INTO s.a VALUES (1);\nSELECT * FROM s.a;", session))
    assert [result.has_rows for _, result in results] == [False, False, True]
    assert results[-1][0] == "SELECT * FROM s.a"


def test_another_catalog_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FRESHET_CATALOG__lake__warehouse", str(tmp_path / "other"))
    Catalog(tmp_path / "other").create_table("s.t", schema={"id": "INT"}).append([{"id": 5}])
    text = "CREATE TABLE s.copy AS SELECT * FROM lake.s.t"
    freshet.sql(text, tmp_path / "here")
    assert Catalog(tmp_path / "here").table("s.copy").scan().to_arrow().to_pylist() == [{"id": 5}]
    freshet.sql("DROP DATABASE lake.s CASCADE", tmp_path / "here")
    assert Catalog(tmp_path / "other").list_databases() == []


def test_the_reference_has_every_procedure_with_its_arguments() -> None:
    page = (Path(__file__).parents[3] / "docs" / "reference" / "sql.md").read_text(encoding="utf-8")
    lines = [line for line in page.splitlines() if line.startswith("| `")]
    for name, procedure in PROCEDURES.items():
        line = next((line for line in lines if f"`{name}`" in line.split("|")[1]), "")
        taken = [key for key, kind in procedure.types.items() if kind is not type(None)]
        missing = [key for key in taken if f"`{key}`" not in line and name != "rollback_to_timestamp"]
        assert line and (not missing or "likewise" in line), f"{name}: {missing}"


def test_what_stands_for_procedures_of_branches_does_the_work(tmp_path: Path) -> None:
    """The statements that the refusals of `merge_branch`, `copy` and `fast_forward` name."""
    catalog = Catalog(tmp_path)

    def run(text: str) -> list[int]:
        freshet.sql(text, catalog=catalog)
        return sorted(catalog.table("s.t").scan().to_arrow()["id"].to_pylist())

    columns = "id BIGINT NOT NULL, dt STRING NOT NULL"
    run(f"CREATE TABLE s.t ({columns}) PARTITIONED BY (dt) TBLPROPERTIES ('primary-key'='id,dt')")
    run("INSERT INTO s.t VALUES (1, 'a'), (2, 'a'), (4, 'only in the table')")
    run("CALL sys.create_tag(table => 's.t', tag => 'begin')")
    run("CALL sys.create_branch(table => 's.t', branch => 'b', tag => 'begin')")
    run("INSERT INTO s.t$branch_b VALUES (3, 'a')")
    run("DELETE FROM s.t$branch_b WHERE id IN (2, 4)")
    assert run("INSERT INTO s.t SELECT * FROM s.t$branch_b") == [1, 2, 3, 4]
    run("CREATE TABLE s.u LIKE s.t")
    run("INSERT INTO s.u SELECT * FROM s.t")
    assert catalog.table("s.u").scan().to_arrow().num_rows == 4
    assert run("INSERT OVERWRITE s.t SELECT * FROM s.t$branch_b") == [1, 3, 4], "partitions that the branch lacks stay"
    run("ALTER TABLE s.t SET TBLPROPERTIES ('dynamic-partition-overwrite' = 'false')")
    assert run("INSERT OVERWRITE s.t SELECT * FROM s.t$branch_b") == [1, 3]
