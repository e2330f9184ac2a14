"""The log as the snapshots of a table name it: how far it has come, and which topic it is in."""

from __future__ import annotations

from freshet.logstore.exceptions import LogConfigError, LogLakeOnlyError, LogTruncatedError
from freshet.logstore.protocol.client import LogClient, TopicFacts
from freshet.logstore.protocol.topic import existing_topic
from freshet.logstore.reading.reader_state import ReaderState
from freshet.storage.logs.readers import TableHistory
from freshet.storage.model.snapshot import Snapshot
from freshet.storage.model.table_log import LogProgress, log_of


def progress_at(history: TableHistory, snapshot: Snapshot) -> LogProgress | None:
    """How far the log has come with a snapshot, as the newest one up to it says: other libraries drop properties.

    None where no snapshot that is left says it: the next one that was logged does.
    """
    found: Snapshot | None = snapshot
    while found is not None:
        progress = log_of(found.properties, found.id)
        if progress is not None or found.id == 1:
            return progress
        found = history.find_left(found.id - 1)
    return None


def checked_topic(client: LogClient, state: ReaderState, *, table: str) -> TopicFacts:
    """The topic that a reader is in; `LogConfigError` where it is gone, or is another one of its name."""
    facts = existing_topic(client, state.topic, len(state.stable_offsets), table=table)
    if facts.topic_id != state.topic_id:
        raise LogConfigError(
            f"table {table}: topic {state.topic} is not the one that the snapshots name (id {state.topic_id}, it has "
            f"{facts.topic_id}): it was deleted and created again. Its offsets mean nothing; the writer must begin a "
            "new log (kafka.topic)",
            table=table,
            option="kafka.topic",
        )
    return facts


def check_bounds(client: LogClient, state: ReaderState, *, table: str) -> None:
    """Raises `LogTruncatedError` where retention has taken what comes next."""
    bounds = client.bounds(state.topic)
    for number, offset in state.stable_offsets.items():
        if not bounds[number].first <= offset <= bounds[number].end:
            raise LogTruncatedError(
                f"table {table}: topic {state.topic} partition {number} has offsets {bounds[number].first} to "
                f"{bounds[number].end}, and the log after snapshot {state.snapshot_id} begins at {offset}. Begin at a "
                "newer snapshot (scan_mode='latest-full'), read on from the files (log.on-truncated=fall-back), and "
                "raise retention.ms of the topic",
                table=table,
            )


def lake_only_error(snapshot: Snapshot, *, table: str, begin: str) -> LogLakeOnlyError:
    """For `log.on-lake-only=fail`; `begin` says how to begin after the snapshot."""
    return LogLakeOnlyError(
        f"table {table}: snapshot {snapshot.id} ({snapshot.commit_kind} by {snapshot.commit_user!r}) changes rows and "
        f"was not logged. Begin after it ({begin}), or set log.on-lake-only to apply, which reads such changes from "
        "their files, or skip",
        table=table,
        option="log.on-lake-only",
    )
