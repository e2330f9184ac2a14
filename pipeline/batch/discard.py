"""Removes the files of commit messages that will not be committed."""

from __future__ import annotations

from collections.abc import Sequence

from freshet.storage.files.discard import delete_data_file
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.commit_message import CommitMessage


def discard_messages(store: TableStore, messages: Sequence[CommitMessage]) -> None:
    """Removes what the messages made; a file that only changes its level is the table's and stays."""
    for message in messages:
        new = {file.file_name for file in message.new_files}
        upgraded = {file.file_name for file in message.compact_before} - new
        made = (*message.new_files, *message.changelog_files, *message.compact_after, *message.compact_changelog_files)
        for file in {file.file_name: file for file in made if file.file_name not in upgraded}.values():
            delete_data_file(store, message.partition, message.bucket, file)
