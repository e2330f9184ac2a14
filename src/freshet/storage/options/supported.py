"""Whether a table may be created, written or read with its options; the refusals are declared with the options."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from freshet.storage.exceptions import UnsupportedFeatureError
from freshet.storage.options.core import CoreOptions
from freshet.storage.options.declaration import refusals
from freshet.storage.options.refusal import LATER, Access
from freshet.storage.options.secrets import shown_text

_REFUSALS: Final = tuple(refusals())


def check_access(options: CoreOptions, access: Access, where: str, keys: Collection[str] | None = None) -> None:
    """Raises `UnsupportedFeatureError` for the first option that forbids the access; `where` names the table.

    With `keys` only these options are looked at.
    """
    verb = ("read", "written", "created")[access]
    for key, refusal in _REFUSALS:
        if keys is not None and key not in keys:
            continue
        text = _value(options, key)
        if text is not None and refusal.access <= access and refusal.applies(text, options.has_primary_key):
            given = f"{key}={shown_text(text)}"
            raise UnsupportedFeatureError(
                f"table {where} cannot be {verb}: {given} is not supported ({refusal.reason}); {refusal.remedy}",
                option=key,
            )
    for key, text in options.given.items():
        if (keys is None or key in keys) and key.endswith(".map.storage-layout") and text.lower() != "default":
            raise UnsupportedFeatureError(
                f"table {where} cannot be {verb}: {key}={text} is not supported; {LATER}", option=key
            )


def _value(options: CoreOptions, key: str) -> str | None:
    """Text of an option; `bucket` and `file.format` also by their defaults."""
    if key == "bucket":
        return str(options.bucket)
    if key == "file.format":
        return options.file_format
    return options.given.get(key)
