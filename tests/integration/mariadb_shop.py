"""A database in MariaDB for `test_mariadb_capture`: its tables, what happens to them, and how Debezium reads it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

from tests.kit.mariadb_server import PASSWORD, USER, MariadbServer

JARS: Final = "debezium-mariadb"
TABLES: Final = """
CREATE TABLE every_type (
  id INT PRIMARY KEY, tiny TINYINT, flag TINYINT(1), truth BOOLEAN NOT NULL DEFAULT TRUE, utiny TINYINT UNSIGNED,
  small SMALLINT, usmall SMALLINT UNSIGNED, medium MEDIUMINT, umedium MEDIUMINT UNSIGNED, uint INT UNSIGNED,
  big BIGINT, ubig BIGINT UNSIGNED, filled INT(5) ZEROFILL, amount DECIMAL(12, 4), huge DECIMAL(65, 30),
  single FLOAT, doubled DOUBLE, name VARCHAR(50), fixed CHAR(6), latin VARCHAR(20) CHARACTER SET latin1, note TEXT,
  doc JSON, born DATE, at0 DATETIME, at3 DATETIME(3), at6 DATETIME(6), stamp TIMESTAMP NULL, stamp6 TIMESTAMP(6) NULL,
  t0 TIME, t3 TIME(3), y YEAR, colour ENUM('red', 'gr''ün', 'blue, dark'), tags SET('a', 'b', 'c d'), four BINARY(4),
  varied VARBINARY(20), bytes BLOB, bit1 BIT, bit20 BIT(20), bit64 BIT(64), uid UUID, seven INT DEFAULT 7,
  twice INT AS (id * 2) VIRTUAL, thrice INT AS (id * 3) STORED);
CREATE TABLE pairs (`left` INT, `right` VARCHAR(20), v INT, PRIMARY KEY (`left`, `right`));
CREATE TABLE events (at DATETIME(6), what TEXT);
CREATE TABLE people (id INT PRIMARY KEY, name VARCHAR(20), score INT, `odd näme` VARCHAR(20), price DECIMAL(5, 2));
CREATE TABLE totals (day DATE PRIMARY KEY, n INT);
CREATE TABLE durations (id INT PRIMARY KEY, took TIME(6));
CREATE TABLE done (id INT PRIMARY KEY);
"""
EVERY_TYPE: Final = r"""
INSERT INTO every_type (id, tiny, flag, truth, utiny, small, usmall, medium, umedium, uint, big, ubig, filled, amount,
  huge, single, doubled, name, fixed, latin, note, doc, born, at0, at3, at6, stamp, stamp6, t0, t3, y, colour, tags,
  four, varied, bytes, bit1, bit20, bit64, uid, seven) VALUES
 ({id} + 1, -128, 1, TRUE, 255, -32768, 65535, -8388608, 16777215, 4294967295, -9223372036854775808,
  18446744073709551615, 42, -12345678.1234, 1.5, 1.1, 0.1, 'Größe 🌊 "x"\\', 'ab ', 'é', 'line\nline',
  '{{"a": [1, 2.50, "ü"]}}', '2024-02-29', '2024-02-29 12:34:56', '2024-02-29 12:34:56.789',
  '2024-02-29 12:34:56.789012', '2024-02-29 12:34:56', '2024-02-29 12:34:56.789012', '12:34:56', '12:34:56.789', 2024,
  'gr''ün', 'a,c d', x'00ff', x'00ff00', x'deadbeef00', b'1', b'10000000000000000001',
  b'1000000000000000000000000000000000000000000000000000000000000001', '4629bb7d-e9f1-11f1-90f4-02fc00000001', NULL),
 ({id} + 2, 127, 0, FALSE, 0, 32767, 0, 8388607, 0, 0, 9223372036854775807, 0, 0, 0, 0, -0.5, 1e308, '', '', '', '',
  'null', '0001-01-01', '1000-01-01 00:00:00', '9999-12-31 23:59:59.999', '9999-12-31 23:59:59.999999',
  '1970-01-01 00:00:01', '2038-01-19 03:14:07.999999', '00:00:00', '23:59:59.999', 1901, 'red', '', '', x'', '', b'0',
  0, 0, NULL, 1);
INSERT INTO every_type (id) VALUES ({id} + 3);
"""
ROWS: Final = f"""
{EVERY_TYPE.format(id=0)}
INSERT INTO pairs SELECT seq % 7, CONCAT('r', seq), seq FROM seq_1_to_70;
INSERT INTO events VALUES ('2024-01-01', 'one'), ('2024-01-01', 'one'), (NULL, NULL);
INSERT INTO people SELECT seq, CONCAT('näme ', seq), seq * 2, CONCAT('😀', seq), seq / 4 FROM seq_1_to_60;
INSERT INTO totals SELECT DATE_ADD('2024-01-01', INTERVAL seq DAY), seq FROM seq_1_to_20;
INSERT INTO durations VALUES (1, '838:59:59'), (2, '-838:59:59'), (3, '23:59:59.999999'), (4, NULL);
"""
WORK: Final = """
UPDATE every_type SET note = CONCAT('round ', {n}), amount = {n} WHERE id = 3;
UPDATE pairs SET v = v + {n} WHERE `left` = {n} % 7;
UPDATE pairs SET `right` = CONCAT(`right`, '+') WHERE `left` = ({n} + 1) % 7;
DELETE FROM pairs WHERE v % 11 = {n};
INSERT INTO pairs VALUES ({n}, 'new', {n}) ON DUPLICATE KEY UPDATE v = -1;
INSERT INTO events VALUES (NOW(6), 'round {n}');
INSERT INTO durations VALUES ({n} + 10, '-00:00:00.5');
DELETE FROM durations WHERE id = {n} + 9;
"""
"""Of every round."""

ROUNDS: Final = (
    f"""
{EVERY_TYPE.format(id=10)}
UPDATE people SET score = score + 1 WHERE id <= 10;
ALTER TABLE people ADD COLUMN mail VARCHAR(40), ADD COLUMN at DATETIME AFTER name;
UPDATE people SET mail = CONCAT(id, '@x'), at = '2024-05-05' WHERE id % 3 = 0;
""",
    """
UPDATE people SET score = score + 1000 WHERE id % 2 = 0;
UPDATE people SET id = id + 1000 WHERE id % 10 = 0;
ALTER TABLE `people` MODIFY price DECIMAL(9, 3), MODIFY score BIGINT;
UPDATE people SET `odd näme` = 'x', score = 3000000000, price = 123456.789 WHERE id % 7 = 0;
""",
    """
CREATE TABLE later (no BIGINT UNSIGNED PRIMARY KEY, what MEDIUMTEXT);
INSERT INTO later SELECT 18446744073709551615 - seq, CONCAT('later ', seq) FROM seq_0_to_20;
DELETE FROM later WHERE no % 5 = 0;
ALTER TABLE people MODIFY at DATETIME(6), MODIFY name TEXT FIRST;
UPDATE people SET at = '2024-05-05 05:05:05.123456', name = REPEAT('lang ', 100) WHERE id % 6 = 0;
""",
    """
TRUNCATE TABLE totals;
INSERT INTO totals VALUES ('2025-01-01', 1), ('2025-01-02', 2);
TRUNCATE totals;
INSERT INTO totals VALUES ('2025-01-01', 11), ('2025-01-03', 3);
DELETE FROM totals WHERE n = 3;
""",
    """
ALTER TABLE pairs ADD COLUMN w BIGINT UNSIGNED;
UPDATE pairs SET w = 18446744073709551615 - v WHERE v % 2 = 0;
""",
)
END: Final = "INSERT INTO done VALUES (1);"


def connector(server: MariadbServer, prefix: str, folder: Path) -> dict[str, str]:
    """The settings that docs/how-to/sync-mariadb.md names, and where the server is."""
    return {
        "name": prefix,
        "connector.class": "io.debezium.connector.mariadb.MariaDbConnector",
        "tasks.max": "1",
        "database.hostname": "127.0.0.1",
        "database.port": str(server.port),
        "database.user": USER,
        "database.password": PASSWORD,
        "database.server.id": "4711",
        "database.include.list": server.database,
        "topic.prefix": prefix,
        "include.schema.changes": "false",
        "schema.history.internal": "io.debezium.storage.file.history.FileSchemaHistory",
        "schema.history.internal.file.filename": str(folder / "history"),
        "bigint.unsigned.handling.mode": "precise",
        "enable.time.adjuster": "false",
        "skipped.operations": "none",
        "key.converter": "org.apache.kafka.connect.json.JsonConverter",
        "key.converter.schemas.enable": "false",
        "value.converter": "org.apache.kafka.connect.json.JsonConverter",
        "value.converter.schemas.enable": "true",
        "value.converter.replace.null.with.default": "false",
        "topic.creation.default.replication.factor": "1",
        "topic.creation.default.partitions": "3",
        "topic.creation.groups": "one",
        "topic.creation.one.include": ".*[.](totals)",
        "topic.creation.one.replication.factor": "1",
        "topic.creation.one.partitions": "1",
    }


def rows_of(server: MariadbServer, table: str) -> list[dict[str, Any]]:
    """The rows of a table, each value as a table of the lake has it."""
    return server.rows(table, {name: _exact(f"`{name}`", kind) for name, kind in server.types(table).items()})


def _exact(column: str, kind: str) -> str:
    """What to ask of a column of this type for JSON to show it as Debezium sends it."""
    name, digits = re.fullmatch(r"(\w+)(?:\((\d+).*)?.*", kind, re.DOTALL).groups()  # type: ignore[union-attr]
    if name == "bit" and digits == "1":
        return f"JSON_EXTRACT(ELT({column} + 1, 'false', 'true'), '$')"
    if name == "bit":  # the lowest byte first
        return f"HEX(REVERSE(UNHEX(LPAD(HEX({column}), {(int(digits) + 7) // 8 * 2}, '0'))))"
    if name in ("binary", "varbinary", "blob"):
        return f"HEX({column})"
    if kind.endswith("zerofill"):
        return f"{column} + 0"
    if name == "timestamp":
        return f"CONCAT({column}, '+00:00')"
    if name == "time":  # without zeros at the end
        return f"TRIM(TRAILING '.' FROM TRIM(TRAILING '0' FROM CONCAT(CAST({column} AS TIME(6)))))"
    if name == "longtext" or (name == "decimal" and int(digits) > 38):
        return f"CONCAT({column})"
    return column
