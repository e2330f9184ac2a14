"""Formats of data files, by the codecs that `file.compression` may name for each.

| format | refused by Apache Paimon | not written here |
|---|---|---|
| parquet | | brotli, lzo |
| orc | gzip, deflate, zstandard, null, uncompressed | lzo |
| avro | none, gzip, zlib, lz4 | xz |

Source: FORMAT.md §1.3, §2.3.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

CODECS: Final[Mapping[str, tuple[str, ...]]] = {
    "parquet": ("zstd", "snappy", "gzip", "none", "lz4", "uncompressed"),
    "orc": ("zstd", "snappy", "zlib", "none", "lz4"),
    "avro": ("zstd", "snappy", "deflate", "null", "zstandard", "bzip2"),
}
FILE_FORMATS: Final = tuple(CODECS)
ALL_CODECS: Final = tuple(dict.fromkeys(codec for codecs in CODECS.values() for codec in codecs))

AVRO_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
"""What Avro takes for the name of a field."""
