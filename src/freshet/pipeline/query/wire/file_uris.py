"""Files of a source by their URI, as Spark writes it into the log of the source, and by the path that opens them.

A URI is encoded as Java's `URI` does it: letters of other scripts stay as they are, spaces and control characters do
not. `_metadata.file_path` of Spark, the topic of a line, is the same text with one slash behind `file:`.
"""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import quote, unquote

_LOCAL: Final = "file:///"
_SPACES: Final = "\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ud800-\udfff"
_QUOTED: Final = re.compile(rf"[^A-Za-z0-9_\-!.~'()*:@&=+$,;/\u00a1-\U0010ffff]|[{_SPACES}]")


def uri_of(place: str) -> str:
    """The URI of a file, of its absolute path or of `scheme://bucket/key`."""
    scheme, separator, rest = place.partition("://")
    head, path = ("file://", place) if not separator or "/" in scheme else (f"{scheme}://", rest)
    return head + _QUOTED.sub(lambda match: quote(match[0], safe="", errors="surrogateescape"), path)


def place_of(uri: str) -> str:
    """The path by which `FileIO` opens the file of a URI."""
    scheme, separator, rest = uri.partition("://")
    if separator and scheme != "file":
        bucket, slash, key = rest.partition("/")
        return f"{scheme}://{bucket}{slash}{_unquoted(key)}"
    return _unquoted(f"/{uri.removeprefix('file:').lstrip('/')}")


def topic_of(uri: str) -> str:
    """The text of Spark's `_metadata.file_path` for a file."""
    return f"file:/{uri.removeprefix(_LOCAL)}" if uri.startswith(_LOCAL) else uri


def _unquoted(text: str) -> str:
    return unquote(text, errors="surrogateescape") if "%" in text else text
