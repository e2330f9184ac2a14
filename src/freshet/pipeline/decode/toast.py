"""Unchanged TOAST values: the placeholder in each form that it takes, and whether `before` really has the value.

An unavailable value is taken from the row before the change if it is really there: a value no longer than a TOAST
pointer (18 bytes) was never stored out of line, so Debezium made it up for a NOT NULL column whose value it
did not know.
"""

from __future__ import annotations

import base64
from typing import Final

_TOAST_POINTER_BYTES: Final = 18


def placeholder_forms(placeholder: str) -> frozenset[str]:
    """The texts of the placeholder: as text, base64, hex, and within arrays and maps."""
    octets = placeholder.encode()
    return frozenset(
        {
            placeholder,
            base64.b64encode(octets).decode(),
            octets.hex(),
            f'["{placeholder}"]',
            f'{{"{placeholder}":"{placeholder}"}}',
            "[" + ",".join(str(octet) for octet in octets) + "]",
        }
    )


def is_really_there(old: str | None, forms: frozenset[str]) -> bool:
    """True when the text in `before` is the value itself."""
    return old is not None and old not in forms and len(old.encode(errors="replace")) > _TOAST_POINTER_BYTES
