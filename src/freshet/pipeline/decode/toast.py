"""Unchanged TOAST values: the placeholder in each form that it takes, and whether `before` really has the value.

| column of PostgreSQL | in place of its unchanged value (Debezium 2.7 to 3.6) |
|---|---|
| text, varchar, char, json, jsonb, xml, citext, ltree, tsvector; domains over them | the placeholder |
| numeric, with `decimal.handling.mode` string | the placeholder |
| bytea, by `binary.handling.mode`: bytes; hex; others | its octets; the placeholder; NULL |
| text[], varchar[], json[], jsonb[]; since 3.3 char[] | an array of the placeholder alone |
| bytea[], with `binary.handling.mode` bytes | an array of its octets alone |
| uuid[] | an array of the UUID (version 3) of its octets alone |
| integer[], bigint[]; date[], where dates are Debezium's numbers | an array of its octets, each a number |
| hstore | a map of the placeholder to itself, or the JSON of that |
| all others (`config.toast_columns` names some) | NULL, which cannot be told from NULL |

Octets come as base64, or, in other connectors and modes, as hex or as url-safe base64.

A placeholder may come with any operation: a row whose key has changed comes as a deletion and an insert, and rows that
are unwrapped need not say which operation it was.

An unavailable value is taken from the row before the change if it is really there: a value no longer than a TOAST
pointer (18 bytes) was never stored out of line, so Debezium made it up for a NOT NULL column whose value it
did not know.

Source: captures of Debezium 3.6.1 with PostgreSQL 15; its sources from 2.7.0 on.
"""

from __future__ import annotations

import base64
import hashlib
from contextlib import suppress
from functools import lru_cache
from typing import Final
from uuid import UUID

from freshet.pipeline.decode.json_value import JsonNumber, compact_json

_TOAST_POINTER_BYTES: Final = 18
_HEX: Final = "hex:"
"""Begins a placeholder that Debezium is given as octets."""


@lru_cache(64)
def placeholder_forms(placeholder: str | None) -> frozenset[str]:
    """The texts of the placeholder: as text, base64, hex, and within arrays and maps. None where there is none."""
    if placeholder is None:
        return frozenset()
    octets = _octets(placeholder)
    text = octets.decode(errors="replace")
    coded = [base64.b64encode(octets).decode(), base64.urlsafe_b64encode(octets).decode(), octets.hex()]
    uuid = str(UUID(bytes=hashlib.md5(octets, usedforsecurity=False).digest(), version=3))
    numbers = [JsonNumber(octet) for octet in memoryview(octets).cast("b")]
    nested = [{text: text}, numbers, *([each] for each in (text, uuid, *coded))]
    return frozenset([text, *coded, *map(compact_json, nested)])


def octet_forms(forms: frozenset[str]) -> set[bytes]:
    """The bytes that are one of the forms in base64."""
    found = set()
    for form in forms:
        with suppress(ValueError):
            found.add(base64.b64decode(form, validate=True))
    return {octets for octets in found if base64.b64encode(octets).decode() in forms}


def _octets(placeholder: str) -> bytes:
    if placeholder.startswith(_HEX):
        with suppress(ValueError):
            return bytes.fromhex(placeholder.removeprefix(_HEX))
    return placeholder.encode()


def is_really_there(old: str | None, forms: frozenset[str]) -> bool:
    """True when the text in `before` is the value itself."""
    return old is not None and old not in forms and len(old.encode(errors="replace")) > _TOAST_POINTER_BYTES
