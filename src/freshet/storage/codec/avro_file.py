"""Avro object container files of versioned records: written, read, and read by those blocks that matter.

Every nullable field is the union ["null", T] with default null, null FIRST. Files of older versions are read as well,
of newer ones not: unknown fields are skipped, fields behind the required ones may be absent. Data files in
Avro are columns: `files.avro`.

Source: FORMAT.md §4.
"""

from __future__ import annotations

import bz2
import io
import sys
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, Final, TypeVar

import cramjam
import fastavro
from fastavro.schema import SchemaParseException

from freshet.storage.codec.varints import read_signed, signed
from freshet.storage.exceptions import CorruptDataError, OutOfMemoryError, UnsupportedFeatureError

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

BROKEN: Final = (
    ValueError,
    EOFError,
    LookupError,
    TypeError,
    AttributeError,
    ArithmeticError,
    zlib.error,
    zstd.ZstdError,
    cramjam.DecompressionError,
    SchemaParseException,
)
"""What fastavro, its codecs and the conversion of a record raise for bytes that are not such a file."""

T = TypeVar("T")

Field = dict[str, Any]

_CRC_BYTES: Final = 4


def zstd_frame(data: Any, level: int) -> bytes:
    """The bytes compressed by zstd with a checksum, which every reader compares: Avro has none of its own."""
    parameter = zstd.CompressionParameter
    return zstd.compress(data, options={parameter.compression_level: level, parameter.checksum_flag: 1})


def required(name: str, field_type: Any) -> Field:
    """A field that is in every file and never null."""
    return {"name": name, "type": field_type}


def nullable(name: str, field_type: Any) -> Field:
    """A field that may be null, or absent in files of older versions."""
    return {"name": name, "type": ["null", field_type], "default": None}


def record_type(path: str, fields: list[Field]) -> Field:
    """A record type; the path says where in the file's own record it is, `__A__B` being field `_B` of field `_A`."""
    schema: Field = {"type": "record", "name": f"record{path}", "fields": fields}
    if not path:
        schema["namespace"] = "org.apache.paimon.avro.generated"
    return schema


def file_schema(fields: list[Field]) -> Any:
    """The schema of a file whose records have these fields."""
    return fastavro.parse_schema(record_type("", fields))


def write_records(
    schema: Any, records: Iterator[Field], compression: str, properties: Mapping[str, str] | None = None
) -> bytes:
    """Bytes of a file; no record makes a file, too. `properties` go into its header, where readers pass over them."""
    buffer = io.BytesIO()
    level = 1 if compression == "zstandard" else None
    metadata = dict(properties or {})
    fastavro.writer(buffer, schema, records, codec=compression, codec_compression_level=level, metadata=metadata)
    return buffer.getvalue()


def read_records(data: bytes, path: str, convert: Callable[[Field], T], newest_version: int) -> list[T]:
    """What `convert` makes of the records, in file order; each has its version in the field `_VERSION`."""
    buffer = io.BytesIO(data)
    try:
        reader: Any = fastavro.reader(buffer)
        result = []
        for record in reader:
            if record["_VERSION"] > newest_version:
                raise UnsupportedFeatureError(
                    f"{path} has version {record['_VERSION']}, this program reads up to {newest_version}; "
                    "upgrade Freshet to read the table"
                )
            result.append(convert(record))
        sync = reader._header["sync"]
        is_whole = buffer.tell() == len(data) and data.endswith(sync) and (bool(result) or data.count(sync) == 1)
    except MemoryError as error:
        raise OutOfMemoryError(f"there is not enough memory to read {path}; try again with more", path=path) from error
    except BROKEN as error:
        raise CorruptDataError(
            f"the Avro file cannot be read ({type(error).__name__}: {str(error)[:200]}); it is truncated or was "
            "overwritten",
            path=path,
            byte_offset=buffer.tell(),
        ) from error
    if not is_whole:  # fastavro takes an end of file within a block's head for the end
        raise CorruptDataError(
            "the Avro file does not end with a block, or has a block without records; it is truncated or damaged",
            path=path,
            byte_offset=len(data),
        )
    return result


def file_property(data: bytes, key: str) -> str | None:
    """A property of the header of a file; None where it has none, or is no such file."""
    try:
        header: Any = fastavro.reader(io.BytesIO(data))
        text = header.metadata.get(key)
    except BROKEN:
        return None
    return text if isinstance(text, str) else None


def blocks_with(data: bytes, values: Collection[bytes]) -> bytes | None:
    """The file without the blocks in which none of the values (bytes, or a text as UTF-8) occurs.

    Empty when no block is left; None when the file is not what is expected: then reading all of it says why.
    """
    wanted = [sized(value) for value in values]
    buffer = io.BytesIO(data)
    try:
        header: Any = fastavro.block_reader(buffer)
        expand = EXPAND[header.codec]
        sync = header._header["sync"]
        start = data.index(sync) + len(sync)
        kept = [data[:start]]
        view = memoryview(data)
        while start < len(data):
            _, position = read_signed(data, start)
            size, position = read_signed(data, position)
            end = position + size
            if size < 0 or view[end : end + len(sync)] != sync:
                return None
            content = expand(view[position:end])
            if any(value in content for value in wanted):
                kept.append(data[start : end + len(sync)])
            start = end + len(sync)
    except (*BROKEN, MemoryError):
        return None
    return b"".join(kept) if len(kept) > 1 else b""


def sized(content: bytes) -> bytes:
    """A byte string as Avro writes it: its length, then itself."""
    return signed(len(content)) + content


def _unsnapped(content: memoryview) -> bytes:
    found = bytes(cramjam.snappy.decompress_raw(content[:-_CRC_BYTES]))
    if zlib.crc32(found) != int.from_bytes(content[-_CRC_BYTES:], "big"):
        raise ValueError("the checksum of a block does not match")
    return found


EXPAND: Final[Mapping[str, Callable[[memoryview], bytes]]] = {
    "null": bytes,
    "zstandard": zstd.decompress,
    "deflate": lambda content: zlib.decompress(content, -15),
    "bzip2": bz2.decompress,
    "snappy": _unsnapped,
}
"""What a block holds, by the codec of its file; files of other codecs are read by fastavro."""
