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


PANELS: Final[Mapping[str, Mapping[str, Listed]]] = {
    "Pipelines": {
        "run": Listed(
            "pipelines",
            "Run pipelines, in one Spark session or without Spark, until they end or are asked to stop.",
        ),
        "check": Listed("pipelines", "Say what is wrong with pipeline files. Starts no pipeline and writes nothing."),
        "resume": Listed(
            "resume",
            "Bring a table that its pipeline has set apart up to the others: what was held back is read from Kafka "
            "again.",
        ),
        "resync": Listed(
            "resume",
            "Start a table of a pipeline anew: it is dropped, and read from the first offset that Kafka has. The "
            "tables of a database are emptied, and copied again by the next run; all of them from a new slot.",
        ),
        "slots": Listed(
            "slots",
            "Show the replication slot of a pipeline that reads a database, and the WAL that the server keeps for it.",
        ),
        "drop-slot": Listed(
            "slots",
            "Drop the replication slot of a pipeline that is not needed any more, so that the server keeps no WAL for "
            "it.",
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
            "Play a demo on a real Kafka broker or PostgreSQL, and compare its tables with what should be in them; "
            "takes up to some minutes.",
        ),
    },
    "Watching": {
        "status": Listed(
            "status",
            "Show how pipelines and tables are: fresh or behind, and why. Reads files alone, so it works where nothing "
            "runs.",
        ),
        "exporter": Listed(
            "exporter",
            "Publish metrics of tables and pipelines that are read from their files, for Prometheus, until Ctrl-C; or "
            "write them into a file.",
        ),
        "doctor": Listed(
            "doctor",
            "Say what is wrong with pipelines and tables: how bad, by how much, why, and the command that mends it. "
            "Changes nothing.",
        ),
        "report": Listed(
            "report",
            "Print a report of pipelines and tables as one HTML file, to look at or to attach to a ticket. Changes "
            "nothing.",
        ),
    },
    "Tables": {
        "catalogs": Listed("tables", "List the catalogs that have names, and where they are."),
        "tables": Listed("tables", "List the tables of a warehouse."),
        "describe": Listed("tables", "Show columns, options, the latest snapshot, and the levels of each bucket."),
        "read": Listed("rows", "Print the rows of a table, merged, as of one snapshot."),
        "sql": Listed(
            "sql",
            "Carry out SQL statements, in Spark's dialect: CREATE, ALTER, DROP, SHOW, DESCRIBE, INSERT, DELETE, "
            "UPDATE, MERGE, TRUNCATE, CALL and SELECT.",
        ),
        "changelog": Listed(
            "changelog",
            "Print what commits changed: rows with their kind (+I -U +U -D) and the snapshot that brought them.",
        ),
        "tail": Listed("rows", "Follow the log of a table: rows with their kind (+I -U +U -D), until Ctrl-C."),
        "snapshots": Listed("tables", "List the snapshots that are still there, oldest first."),
        "files": Listed("tables", "List the data files of a snapshot."),
        "tags": Listed("tags", "List the tags: names of snapshots, which do not expire while they have one."),
        "dead-letters": Listed(
            "dead_letters", "Count dead letters by pipeline, column and reason, and show the last ones."
        ),
    },
    "Changes and care": {
        "append": Listed("edits", "Add the rows of a file to a table, in one commit."),
        "upsert": Listed("edits", "Add the rows of a file to a table, or replace those of their keys, in one commit."),
        "overwrite": Listed(
            "edits",
            "Put the rows of a file in the place of those of a table, of some partitions, or of a filter, in one "
            "commit.",
        ),
        "merge": Listed("edits", "Update, delete and add rows by those of a file, in one commit."),
        "rollback": Listed("edits", "Give a table the rows of an earlier snapshot, in a new snapshot."),
        "compact": Listed(
            "compact",
            "Compact a table, or a database, bucket by bucket. Streams that write to it meanwhile are not disturbed.",
        ),
        "rescale": Listed(
            "compact",
            "Give a table another fixed number of buckets, partition by partition. No row changes, readers go on.",
        ),
        "expire": Listed(
            "maintenance",
            "Remove old snapshots and the files that only they use. What is not given comes from the table's options.",
        ),
        "expire-partitions": Listed(
            "partitions",
            "Delete the rows of partitions older than an age. What is not given comes from the table's options.",
        ),
        "expire-tags": Listed(
            "tags", "Remove the tags whose time to stay is over, with the files that only they name."
        ),
        "orphans": Listed("maintenance", "List or remove files that no snapshot uses, as crashes leave them."),
        "purge": Listed(
            "maintenance", "Empty a table for good: rows, snapshots, tags, branches and consumers go, and their files."
        ),
        "check-table": Listed("maintenance", "Look for damage in a table: lost files and metadata that does not fit."),
        "repair": Listed(
            "maintenance",
            "Find commits that another program has replaced in an object store, and commit their files again; or build "
            "hash indexes of dynamic buckets again.",
        ),
        "tag": Listed("tags", "Create, replace, rename or delete a tag: a name that keeps a snapshot."),
        "register": Listed(
            "maintenance",
            "Make tables of a catalog in a database of files that lie where tables of these names would.",
        ),
        "branches": Listed("branches", "List the branches of a table, each with its latest snapshot."),
        "consumers": Listed(
            "changelog",
            "List the streaming readers that have a name, the snapshot each wants next and when it read on last; or "
            "reset or delete one.",
        ),
    },
}

COMMANDS: Final = {name: listed for commands in PANELS.values() for name, listed in commands.items()}
REMOVED: Final = frozenset(
    {"alter", "delete", "update", "truncate", "drop-partition", "create-database", "create-table"}
    | {"rename-table", "drop-table", "drop-database", "branch", "compact-manifests", "mark-partition-done"}
)
"""Commands of earlier versions: a call is told the SQL that does the same (`removed`)."""
