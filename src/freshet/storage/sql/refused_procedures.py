"""Procedures of Apache Paimon that are not carried out, each with what does it instead.

Source: Apache Paimon 2.0.0, the procedures of its Spark module.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_FUNCTIONS: Final = "functions are those of DuckDB, or of the Spark session that is given as spark="
_GLOBAL_INDEX: Final = "global indexes are neither read nor written here; filters prune by the statistics of files"
_MIGRATION: Final = (
    "with a Spark session that reads the old table, CREATE TABLE … AS SELECT … copies it (freshet.sql(…, spark=spark))"
)

INSTEAD: Final[Mapping[str, str]] = {
    "alter_function": _FUNCTIONS,
    "alter_view_dialect": "there are no views; a Spark session that is given as spark= has its own",
    "compact_chain_table": "chain tables are not supported",
    "copy": "CREATE TABLE u LIKE t, then INSERT INTO u SELECT * FROM t; or create_tag and create_branch, which copy no "
    "files",
    "create_function": _FUNCTIONS,
    "create_global_index": _GLOBAL_INDEX,
    "drop_function": _FUNCTIONS,
    "drop_global_index": _GLOBAL_INDEX,
    "fast_forward": "INSERT OVERWRITE t SELECT * FROM t$branch_b puts the rows of the branch into the table, with "
    "dynamic-partition-overwrite=false also where it has partitions that the branch lacks",
    "merge_branch": "INSERT INTO t SELECT * FROM t$branch_b adds the rows of the branch to the table",
    "migrate_database": _MIGRATION,
    "migrate_table": _MIGRATION,
    "remove_unexisting_files": "it would make the loss of rows silent. freshet check-table names the files that are "
    "missing: restore them from a backup, or go back to a snapshot that has all of its own (CALL sys.rollback)",
    "repair_earliest_snapshot": "CALL sys.expire_snapshots takes away what lies below a gap of the snapshots, and "
    "writes the hint",
    "rewrite_file_index": "new files get the indexes that the table's options ask for, older files when they are "
    "compacted (CALL sys.compact)",
}
