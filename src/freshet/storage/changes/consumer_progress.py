"""What a reader in pieces keeps from expiry: the snapshots from its position on, by a consumer.

| the reader is | the consumer | its pin, `<id>.state` |
|---|---|---|
| within the rows of the snapshot it begins with | as it was: rows that were not read come first | that snapshot |
| before the changes of a snapshot | that snapshot | none |
"""

from __future__ import annotations

from dataclasses import dataclass, field

from freshet.storage.metadata.table_store import TableStore

STATE_SUFFIX = ".state"


@dataclass(slots=True)
class ConsumerProgress:
    """Of one reader; without a consumer id it keeps nothing."""

    store: TableStore
    consumer_id: str | None
    _written: tuple[int, bool] | None = field(default=None, init=False)

    def moved(self, next_id: int, *, is_state: bool) -> None:
        """What lies before this snapshot will not be asked for again; `is_state`: its rows are still being read."""
        if self.consumer_id is None or self._written == (next_id, is_state):
            return
        self.store.check_is_there()  # or the file would bring the folder of a dropped table back
        pin = self.consumer_id + STATE_SUFFIX
        self.store.consumers.reset(pin if is_state else self.consumer_id, next_id)
        if not is_state and (self._written is None or self._written[1]):
            self.store.consumers.delete(pin)
        self._written = (next_id, is_state)
