"""What is refused of a statement, always naming the part."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from sqlglot import exp

from freshet.storage.exceptions import InvalidRequestError, UnsupportedFeatureError

_SHOWN_MAX: Final = 120

_INSTEAD: Final[Mapping[str, str]] = {
    "ADD": "there are no jars, files or archives here",
    "ANALYZE": "queries need no statistics but those that each commit writes: SELECT * FROM t$files, t$partitions",
    "CACHE": "nothing is cached under a name; keep the result: freshet.sql(…).to_arrow()",
    "CLEAR": "nothing is cached under a name",
    "EXPLAIN": "a scan says what it reads: catalog.table('shop.orders').scan(filter=…).plan()",
    "LOAD": "read the files and insert the rows: freshet append WAREHOUSE TABLE FILE, or Table.append",
    "MSCK": "partitions are those of the rows; files that the catalog does not know become a table by CALL sys.repair",
    "OPTIMIZE": "CALL sys.compact(table => 'shop.orders')",
    "REFRESH": "each statement reads the newest snapshot",
    "REPAIR": "partitions are those of the rows; files that the catalog does not know become tables by CALL sys.repair",
    "REPLACE": "DROP TABLE IF EXISTS and CREATE TABLE make another table of the name; INSERT OVERWRITE gives the same "
    "table other rows",
    "RESET": "options are given in the statement's tables: ALTER TABLE t SET TBLPROPERTIES",
    "SET": "options of a table: ALTER TABLE t SET TBLPROPERTIES ('k' = 'v'); of one call: CALL … (options => 'k=v')",
    "UNCACHE": "nothing is cached under a name",
    "VACUUM": "CALL sys.expire_snapshots(table => 't'), then CALL sys.remove_orphan_files(table => 't')",
}
"""By the first word of a statement that nothing carries out: what does it."""


def instead_of(start: str) -> str:
    """What does what a statement with this first word would do; nothing where there is none."""
    return _INSTEAD.get(start.upper().split()[0], "")


def refused(part: exp.Expr | str, why: str = "") -> UnsupportedFeatureError:
    """The error for a part of a statement that nothing here carries out."""
    return UnsupportedFeatureError(f"SQL: {shown(part)!r} is not supported{f': {why}' if why else ''}")


def wrong(part: exp.Expr | str, why: str) -> InvalidRequestError:
    """The error for a part that makes no sense where it is."""
    return InvalidRequestError(f"SQL: {shown(part)!r}: {why}")


def only(node: exp.Expr, *known: str) -> None:
    """Refuses what the parser understood of a node and the caller does not carry out."""
    for name, value in node.args.items():
        if value and name not in known:
            part = value if isinstance(value, exp.Expr) else node
            raise refused(part, "" if part is not node else f"its {name.strip('_').replace('_', ' ')}")


def shown(part: exp.Expr | str) -> str:
    """A part as messages show it."""
    return cut(part if isinstance(part, str) else part.sql(dialect="spark", comments=False))


def cut(text: str) -> str:
    """A text that fits into a message."""
    flat = " ".join(text.split())
    return flat if len(flat) <= _SHOWN_MAX else f"{flat[:_SHOWN_MAX]}…"
