"""The place of a record of Kafka, as commands are given it: TOPIC/PARTITION/OFFSET."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

_PLACE: Final = re.compile(r"([A-Za-z0-9._-]{1,249})/([0-9]{1,9})/([0-9]{1,18})")


class RecordPlace(NamedTuple):
    """Topic, Kafka partition and offset."""

    topic: str
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}/{self.offset}"

    @classmethod
    def parse(cls, text: str) -> RecordPlace:
        """Raises `ValueError` for what is none."""
        found = _PLACE.fullmatch(text.strip())
        if found is None:
            raise ValueError(f"{text!r}: write topic, partition and offset, such as shop.public.orders/0/17")
        return cls(found[1], int(found[2]), int(found[3]))
