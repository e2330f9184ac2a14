"""The commands: where each is, and what the list of them says; a module is loaded when a command of it is called.

The texts are the first paragraphs of the functions' own, which a test compares.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

DEBUG: Final = "--debug"
"""Anywhere in a call: with the traceback of the error that ends it."""


@dataclass(frozen=True, slots=True)
class Listed:
    """One command; the function of its name is in this module of the folder."""

    module: str
    text: str
    hidden: bool = False


PANELS: Final[Mapping[str, Mapping[str, Listed]]] = {
    "Pipelines": {
        "run": Listed("pipelines", "Run pipelines in one Spark session until they end or are asked to stop."),
        "check": Listed("pipelines", "Say what is wrong with pipeline files. Starts no pipeline and writes nothing."),
        "resume": Listed(
            "resume",
            "Bring a table that its pipeline has set apart up to the others: what was held back is read from Kafka "
            "again.",
        ),
        "resync": Listed(
            "resume",
            "Start one table of a pipeline anew: it is dropped, and read from the first offset that Kafka has.",
        ),
        "jars": Listed(
            "pipelines", "Print the jars that Spark needs, as --jars takes them; they are fetched once per machine."
        ),
        "prepare": Listed(
            "pipelines",
            "Make what this machine needs once, so that pipelines start sooner: the jars and an archive of Java's "
            "classes.",
        ),
        "demo": Listed(
            "demo",
            "Play a demo on a real Kafka broker, and compare its tables with what Apache Paimon reads; takes some "
            "minutes.",
        ),
    },
    "Tables": {
        "catalogs": Listed("catalogs", "List the catalogs that have names, and where they are."),
        "tables": Listed("tables", "List the tables of a warehouse."),
        "describe": Listed("tables", "Show columns, options, the latest snapshot, and the levels of each bucket."),
        "read": Listed("read", "Print the rows of a table, merged, as of one snapshot."),
        "sql": Listed(
            "sql",
            "Carry out SQL statements, in Spark's dialect: CREATE, ALTER, DROP, SHOW, DESCRIBE, INSERT, DELETE, "
            "UPDATE, MERGE, TRUNCATE, CALL and SELECT.",
        ),
        "changelog": Listed(
            "changelog",
            "Print what commits changed: rows with their kind (+I -U +U -D) and the snapshot that brought them.",
        ),
        "tail": Listed("tail", "Follow the log of a table: rows with their kind (+I -U +U -D), until Ctrl-C."),
        "snapshots": Listed("tables", "List the snapshots that are still there, oldest first."),
        "files": Listed("tables", "List the data files of a snapshot."),
        "tags": Listed("tags", "List the tags: names of snapshots, which do not expire while they have one."),
        "dead-letters": Listed(
            "dead_letters", "Count dead letters by pipeline, column and reason, and show the last ones."
        ),
        "hybrid-read": Listed(  # jobs/hybrid_read.py
            "hybrid_read",
            "Follow a table with Spark: its rows, then each change with its kind, into a sink, each once.",
            hidden=True,
        ),
    },
    "Changes and care": {
        "create-database": Listed(
            "catalog_changes",
            "Create a database. A table is created with its database, where there is none yet.",
        ),
        "create-table": Listed("catalog_changes", "Create a table, and its database where there is none yet."),
        "rename-table": Listed(
            "catalog_changes", "Give a table another name, maybe in another database, which must be there."
        ),
        "drop-table": Listed(
            "catalog_changes",
            "Remove a table with all of its files, snapshots, tags and branches; also what an interrupted call has "
            "left.",
        ),
        "drop-database": Listed("catalog_changes", "Remove a database; with tables in it only when --cascade says so."),
        "alter": Listed("alter", "Change the schema or the options of a table."),
        "append": Listed("row_edits", "Add the rows of a file to a table, in one commit."),
        "upsert": Listed(
            "row_edits", "Add the rows of a file to a table, or replace those of their keys, in one commit."
        ),
        "delete": Listed(
            "row_edits", "Delete rows of a table, in one commit. Earlier snapshots keep them until they expire."
        ),
        "update": Listed("row_edits", "Give columns new values in rows of a table, in one commit."),
        "overwrite": Listed(
            "row_edits",
            "Put the rows of a file in the place of those of a table, of some partitions, or of a filter, in one "
            "commit.",
        ),
        "merge": Listed("row_edits", "Update, delete and add rows by those of a file, in one commit."),
        "truncate": Listed(
            "edits",
            "Take all rows of a table away, in one snapshot. Earlier snapshots keep them until they expire.",
        ),
        "drop-partition": Listed(
            "edits",
            "Take the rows of some partitions away, in one snapshot. Earlier snapshots keep them until they expire.",
        ),
        "rollback": Listed("edits", "Give a table the rows of an earlier snapshot, in a new snapshot."),
        "compact": Listed(
            "compact",
            "Compact a table, or a database, bucket by bucket. Streams that write to it meanwhile are not disturbed.",
        ),
        "compact-manifests": Listed(
            "compact_manifests",
            "Merge the small manifests of a table, and those with deletes, in one snapshot. No row changes.",
        ),
        "rescale": Listed(
            "rescale",
            "Give a table another fixed number of buckets, partition by partition. No row changes, readers go on.",
        ),
        "expire": Listed(
            "maintenance",
            "Remove old snapshots and the files that only they use. What is not given comes from the table's options.",
        ),
        "expire-partitions": Listed(
            "expire_partitions",
            "Delete the rows of partitions older than an age. What is not given comes from the table's options.",
        ),
        "mark-partition-done": Listed(
            "mark_partition_done",
            "Mark partitions as done: a file _SUCCESS in the folder of each, for programs that wait for it.",
        ),
        "expire-tags": Listed(
            "expire_tags", "Remove the tags whose time to stay is over, with the files that only they name."
        ),
        "orphans": Listed("maintenance", "List or remove files that no snapshot uses, as crashes leave them."),
        "purge": Listed(
            "purge", "Empty a table for good: rows, snapshots, tags, branches and consumers go, and their files."
        ),
        "check-table": Listed("maintenance", "Look for damage in a table: lost files and metadata that does not fit."),
        "repair": Listed(
            "repair",
            "Find commits that another program has replaced in an object store, and commit their files again; or build "
            "hash indexes of dynamic buckets again.",
        ),
        "tag": Listed("tags", "Create, replace, rename or delete a tag: a name that keeps a snapshot."),
        "register": Listed(
            "register",
            "Make tables of a catalog in a database of files that lie where tables of these names would.",
        ),
        "branches": Listed("branches", "List the branches of a table, each with its latest snapshot."),
        "branch": Listed(
            "branches", "Create, rename or drop a branch of a table: rows beside it that share its files."
        ),
        "consumers": Listed(
            "changelog",
            "List the streaming readers that have a name and the snapshot each wants next; or reset or delete one.",
        ),
    },
}

COMMANDS: Final = {name: listed for commands in PANELS.values() for name, listed in commands.items()}
