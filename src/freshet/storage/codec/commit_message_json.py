"""Commit messages as JSON, for the way from a task to the committer: the fields by their names, bytes as base64.

A message of another version is refused: tasks and committer must run the same release. Never pickled: a message may
outlive the version that wrote it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.model.commit_message import COMMIT_MESSAGE_VERSION, CommitMessage


class _Versioned(msgspec.Struct):
    """What every release finds in a message."""

    version: int


_ENCODER: Final = msgspec.json.Encoder()
_VERSIONS: Final = msgspec.json.Decoder(list[_Versioned])
_MESSAGES: Final = msgspec.json.Decoder(list[CommitMessage])


def encode_commit_messages(messages: Iterable[CommitMessage]) -> bytes:
    """JSON array of messages."""
    return _ENCODER.encode(list(messages))


def decode_commit_messages(data: bytes | str) -> list[CommitMessage]:
    """The messages of a JSON array."""
    try:
        versions = {message.version for message in _VERSIONS.decode(data)}
        if versions <= {COMMIT_MESSAGE_VERSION}:
            return _MESSAGES.decode(data)
    except (msgspec.MsgspecError, ValueError) as error:
        raise InvalidRequestError(f"the commit messages cannot be read: {error!r}") from error
    raise InvalidRequestError(
        f"a commit message of version {min(versions - {COMMIT_MESSAGE_VERSION})} where {COMMIT_MESSAGE_VERSION} is "
        "expected; tasks and committer must run the same release of Freshet"
    )
