"""The errors of `logstore`, by what the caller should do next: each is one of the kinds of `storage.exceptions`.

LogUnavailableError   try again          the brokers did not answer, or did not take a record, in time
LogConfigError        fix the option     the topic or the options do not fit the table; nothing was written
LogTruncatedError     start again        retention has taken records that a reader had not read
LogLostError          stop               records of a committed batch are not in the log, or not as the snapshot says
"""

from __future__ import annotations

from typing import Final

from freshet.storage.exceptions import CorruptDataError, InvalidRequestError, NotFoundError, RetryableError

LOST: Final = (
    "records were deleted by retention, or the topic was deleted and made again. What was lost must come from the "
    "source once more (a snapshot of its tables); to go on without it, set failOnDataLoss: false"
)
"""Why offsets of a source are not in Kafka any more, and what to do."""


class LogUnavailableError(RetryableError):
    """The brokers did not answer, or did not acknowledge, in time."""


class LogConfigError(InvalidRequestError):
    """The options, or the topic as it is, cannot carry the log of the table."""


class LogTruncatedError(NotFoundError):
    """Records that a reader needs were deleted by retention."""


class LogLostError(CorruptDataError):
    """Committed records are missing, or are others than the snapshot says."""


class LogLakeOnlyError(InvalidRequestError):
    """A snapshot changed rows and was not logged, and the reader is to fail then."""
