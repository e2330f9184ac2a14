"""Which changes a reader of a log sees."""

from __future__ import annotations

from enum import StrEnum

from freshet.logstore.exceptions import LogConfigError
from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.logs.log_systems import LoggedTable


class Isolation(StrEnum):
    """Changes of committed batches only, or every change as soon as it is logged."""

    COMMITTED = "committed"
    SPECULATIVE = "speculative"


def isolation_for(table: LoggedTable, text: str) -> Isolation:
    """The isolation of that name for readers of a table.

    `InvalidRequestError` for another name, `LogConfigError` where the log of the table cannot be read so.
    """
    try:
        found = Isolation(text.lower())
    except ValueError:
        raise InvalidRequestError(
            f"isolation is one of {', '.join(Isolation)}, not {text!r}", option="log.read.isolation"
        ) from None
    if found is Isolation.SPECULATIVE and not table.options.logs_before_images:
        raise LogConfigError(
            f"table {table.name} logs no rows before updates (log.changelog-mode=upsert or log.ignore-delete), so "
            "what a speculative reader has seen cannot be retracted; read with isolation='committed', or set "
            "changelog-producer=lookup and leave these options out",
            table=table.name,
            option="log.read.isolation",
        )
    return found
