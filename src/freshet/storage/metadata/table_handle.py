"""A table as a value that travels: where it is, at which schema, with which options, and how it is reached.

    handle = store.handle              a `TableStore` is pickled as its handle, and what holds one with it
    open_store(handle)                 the table, in any process (`table_store`)

Pickled or not, its form is one JSON text with a version; another version is refused. What the world is made from is
named there (`EnvSettings`), so that no process takes another one for it. No text of it shows a secret; of the options
that were given for this opening the keys alone are shown.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

import msgspec

from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.io.env import Env, process_env
from freshet.storage.io.env_settings import EnvSettings
from freshet.storage.options.secrets import shown_text

TABLE_HANDLE_VERSION: Final = 2


@dataclass(frozen=True, slots=True, repr=False)
class TableHandle:
    """One table at one schema. `name` is what its catalog calls it, or its location; `branch` is that of the table at
    the location, None for the table itself.

    `schema_time_ms` is when the schema was made: a table that was dropped and created again has one of the same id.
    `options` were given for this opening, sorted, besides those of the table.
    """

    location: str
    name: str
    schema_id: int
    schema_time_ms: int | None
    options: tuple[tuple[str, str], ...] = ()
    settings: EnvSettings = EnvSettings()  # noqa: RUF009 - a frozen value
    branch: str | None = None
    version: int = TABLE_HANDLE_VERSION

    @property
    def env(self) -> Env:
        """The world of the table, in this process; tables that are reached in the same way share it."""
        return process_env(self.location, self.settings)

    def at_schema(self, schema_id: int, schema_time_ms: int | None) -> TableHandle:
        """The same table at another of its schemas."""
        return replace(self, schema_id=schema_id, schema_time_ms=schema_time_ms)

    def to_json(self) -> bytes:
        """The handle as text; raises `InvalidRequestError` for a secret of its settings that cannot travel.

        Options that were given for the table are in it as they are: the text is not to be shown.
        """
        self.settings.check_travels()
        return _ENCODER.encode(self)

    def __reduce__(self) -> tuple[Callable[[bytes], TableHandle], tuple[bytes]]:
        return handle_from_json, (self.to_json(),)

    def __copy__(self) -> TableHandle:
        return self

    def __deepcopy__(self, _memo: object) -> TableHandle:
        return self

    def __repr__(self) -> str:
        options = ", ".join(key for key, _ in self.options)
        place = f"{self.name!r} at {shown_text(self.location)}, schema {self.schema_id}"
        return f"TableHandle({place}, options [{options}], {self.settings})"


def handle_from_json(text: bytes | str) -> TableHandle:
    """The handle in a text of `to_json`; `InvalidRequestError` for what is none, or one of another version."""
    try:
        version = _VERSIONED.decode(text).version
        if version == TABLE_HANDLE_VERSION:
            return _HANDLE.decode(text)
    except (msgspec.MsgspecError, ValueError) as error:
        raise InvalidRequestError(f"the handle of a table cannot be read: {error}") from error
    raise InvalidRequestError(
        f"the handle of a table has version {version} where {TABLE_HANDLE_VERSION} is expected; all processes of a "
        "program must run the same release of Freshet"
    )


class _Versioned(msgspec.Struct):
    """What every release finds in a handle."""

    version: int


_ENCODER: Final = msgspec.json.Encoder()
_VERSIONED: Final = msgspec.json.Decoder(_Versioned)
_HANDLE: Final = msgspec.json.Decoder(TableHandle)
