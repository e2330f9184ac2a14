"""Records of one partition as the client gave them; columns are made of what is asked for."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from confluent_kafka import Message

from freshet._frozen import Frozen

RECORD_SCHEMA: Final = pa.schema(
    [
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("offset", pa.int64()),
        pa.field("timestamp", pa.timestamp("us", "UTC")),
    ]
)
"""Records of one range."""


TIMES_LOOKED_AT: Final = 32
"""Of the records of a poll."""


class PolledRecords(Frozen, dict=True):
    """Records of one partition as the client gave them, in the order of their offsets, no events; columns are made of
    what is asked for.

    A value that is decoded from Python's bytes need not be an Arrow value before: that costs 0.2 µs there and as much
    back.
    """

    messages: Sequence[Message]
    lengths: npt.NDArray[np.int64]
    """Bytes of each value; 0 for NULL."""

    def __len__(self) -> int:
        return len(self.messages)

    @cached_property
    def keys(self) -> list[bytes | None]:
        """The keys."""
        return list(map(Message.key, self.messages))

    @cached_property
    def values(self) -> list[bytes | None]:
        """The values."""
        return list(map(Message.value, self.messages))

    @cached_property
    def offsets(self) -> npt.NDArray[np.int64]:
        """The offsets, which rise."""
        messages = self.messages
        if not messages:
            return np.zeros(0, np.int64)
        first, last = offset_of(messages[0]), offset_of(messages[-1])
        if last - first == len(messages) - 1:
            return np.arange(first, last + 1, dtype=np.int64)
        return np.fromiter(map(offset_of, messages), np.int64, len(messages))

    def timestamps(self) -> Any:
        """The times of the records."""
        return self._timestamps

    @cached_property
    def _timestamps(self) -> Any:
        times = np.fromiter((message.timestamp()[1] for message in self.messages), np.int64, len(self.messages))
        return pa.array(times * 1000).cast(RECORD_SCHEMA.field("timestamp").type)

    def time_bounds(self) -> tuple[int, int] | None:
        """The earliest and the latest time among some of the records, in milliseconds: to ask each one takes a tenth of
        what reading it does. None where they have none."""
        step = max(1, len(self.messages) // TIMES_LOOKED_AT)
        times = [message.timestamp()[1] for message in (*self.messages[::step], *self.messages[-1:])]
        known = [each for each in times if each > 0]
        return (min(known), max(known)) if known else None

    def headers(self, name: str, indexes: npt.NDArray[np.int64]) -> list[bytes | None]:
        """The last header of this name of the records at these indexes."""
        found = (dict(self.messages[index].headers() or ()).get(name) for index in indexes.tolist())
        return [each.encode() if isinstance(each, str) else each for each in found]

    def batch(self) -> pa.RecordBatch:
        """All of it, of `RECORD_SCHEMA`."""
        columns = [
            pa.array(self.keys, pa.binary()),
            pa.array(self.values, pa.binary()),
            pa.array(self.offsets),
            self.timestamps(),
        ]
        return pa.RecordBatch.from_arrays(columns, schema=RECORD_SCHEMA)


def offset_of(message: Message) -> int:
    """The offset of a record, or of an event of a partition."""
    offset: int = message.offset()  # type: ignore[assignment]
    return offset
