"""The options of a file source as this engine takes them (`config.model.FILE_OPTIONS`).

They mean what they mean to Spark. `maxBytesPerTrigger` may have a unit as well (`100m`), which Spark 4.2.1 refuses;
`compression` says nothing of files that are read: their extension does.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Mapping
from typing import Final

from freshet._frozen import Frozen
from freshet.pipeline.exceptions import ConfigurationError

_TIME: Final = re.compile(r"(-?\d+)\s*(us|ms|s|m|min|h|d)?", re.IGNORECASE)
_UNIT_MS: Final = {"us": 0.001, "ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
_SIZE: Final = re.compile(r"(\d+)\s*([kmgtp]?)b?", re.IGNORECASE)
_WEEK: Final = "7d"
_FOREVER: Final = 2**63 - 1
_JAVA_BYTES: Final = {"utf-16": (b"\xfe\xff", "utf-16-be"), "utf-32": (b"", "utf-32-be")}
"""What Java writes where Python writes the bytes in the order of the machine."""


class FolderOptions(Frozen):
    """What a source takes at once, in which order, and what becomes of files that are read."""

    files_max: int | None
    bytes_max: int | None
    latest_first: bool
    age_max_ms: int
    names: str | None
    is_deep: bool
    cleans: str
    archive: str | None
    separator: bytes | None

    @property
    def is_limited(self) -> bool:
        """Whether a batch may leave files to the next one."""
        return self.files_max is not None or self.bytes_max is not None


def file_options(options: Mapping[str, str]) -> FolderOptions:
    """The options of a source; raises `ConfigurationError` for a value that Spark would refuse."""
    files, size = options.get("maxFilesPerTrigger"), options.get("maxBytesPerTrigger")
    latest_first = _flag(options, "latestFirst")
    is_limited = files is not None or size is not None
    separator = options.get("lineSep")
    return FolderOptions(
        None if files is None else _number("maxFilesPerTrigger", files),
        None if size is None else _bytes("maxBytesPerTrigger", size),
        latest_first,
        _FOREVER if latest_first and is_limited else _time_ms("maxFileAge", options.get("maxFileAge", _WEEK)),
        options.get("pathGlobFilter"),
        _flag(options, "recursiveFileLookup"),
        options.get("cleanSource", "off").lower(),
        options.get("sourceArchiveDir"),
        None if separator is None else _encoded(separator, options.get("encoding", "UTF-8")),
    )


def _flag(options: Mapping[str, str], name: str) -> bool:
    return options.get(name, "false").lower() == "true"


def _number(name: str, text: str) -> int:
    if not text.strip().isdecimal() or not int(text):
        raise ConfigurationError(f"{name} wants a whole number above 0, not {text!r}")
    return int(text)


def _bytes(name: str, text: str) -> int:
    match = _SIZE.fullmatch(text.strip())
    if match is None or not int(match[1]):
        raise ConfigurationError(f"{name} wants a size such as 100m or 1g, not {text!r}")
    return int(match[1]) << 10 * " kmgtp".index(match[2].lower() or " ")


def _time_ms(name: str, text: str) -> int:
    match = _TIME.fullmatch(text.strip())
    if match is None or int(match[1]) < 0:
        raise ConfigurationError(f"{name} wants a time such as 7d or 12h, not {text!r}")
    return int(int(match[1]) * _UNIT_MS[(match[2] or "ms").lower()])


def _encoded(separator: str, encoding: str) -> bytes:
    try:
        mark, name = _JAVA_BYTES.get(codecs.lookup(encoding).name, (b"", encoding))
        return mark + separator.encode(name)
    except (LookupError, UnicodeEncodeError) as error:
        raise ConfigurationError(f"lineSep cannot be written in the encoding {encoding}: {error}") from error
