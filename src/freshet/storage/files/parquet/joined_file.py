"""One Parquet file out of several that were encoded by themselves: row groups as they are, behind each other.

    PAR1 | row groups of the first | row groups of the second | … | footer | length of the footer | PAR1

In the footer the row groups of all files follow each other. What it says of positions, and the number of a row group,
is counted anew; all else, the schema above all, is that of the first file. So the row groups of a file can be encoded
by several threads, which pyarrow's writer does not do.

Source: parquet.thrift.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pyarrow as pa

from freshet.storage.files.parquet import thrift
from freshet.storage.io.file_io import OutputFile, WriteOnly

MAGIC: Final = b"PAR1"
_LENGTH_BYTES: Final = 4

_FILE_ROWS: Final = 3
_FILE_GROUPS: Final = 4
_GROUP_COLUMNS: Final = 1
_GROUP_ORDINAL: Final = 7
_GROUP_POSITIONS: Final = (5,)
_COLUMN_CONTENTS: Final = 3
_COLUMN_POSITIONS: Final = (2,)
"""0 since pyarrow 15: there is no copy of the column's metadata in the file."""
_CONTENTS_POSITIONS: Final = (9, 10, 11)
"""Of the first data page, the index page and the dictionary. Page indexes and bloom filters, which have positions too,
we write none of."""


class EncodedFile(WriteOnly):
    """A Parquet file that is written into memory; has what pyarrow asks of a Python file object.

    Its bytes stay in the pieces in which they come, most of them pages. In one buffer that grows they would be copied
    and their memory be touched again and again, which takes half of the time of encoding once more.
    """

    closed = False

    def __init__(self) -> None:
        self.footer: thrift.Struct = {}
        self._pieces: list[bytes | pa.Buffer] = []
        self._footer_at = 0
        self._position = 0

    @property
    def row_groups(self) -> Sequence[bytes | pa.Buffer]:
        """All bytes between the first magic and the footer."""
        return self._pieces[1 : self._footer_at]

    def begin_footer(self) -> None:
        """What is written from now on is the footer."""
        assert self._pieces[0] == MAGIC, "a Parquet file"
        self._footer_at = len(self._pieces)

    def end(self) -> None:
        """Takes the footer apart, which is complete."""
        footer = b"".join(self._pieces[self._footer_at :])
        self.footer = thrift.decoded(footer[: -_LENGTH_BYTES - len(MAGIC)])

    def write(self, data: bytes | pa.Buffer) -> int:
        """Appends the bytes."""
        self._pieces.append(data)
        self._position += len(data)
        return len(data)

    def tell(self) -> int:
        """Bytes written so far."""
        return self._position

    def flush(self) -> None:
        """There is nowhere to flush to."""

    def close(self) -> None:
        """The bytes stay."""


class JoinedFile:
    """Writes the files it is given as one into `output`, which is empty; the caller closes that."""

    def __init__(self, output: OutputFile) -> None:
        self._output = output
        self._footer: thrift.Struct | None = None

    def add(self, file: EncodedFile) -> None:
        """Appends the row groups of a file, which has the schema of those before."""
        if self._footer is None:
            self._output.write(MAGIC)
        shift = self._output.tell() - len(MAGIC)
        for piece in file.row_groups:
            self._output.write(piece)
        added = file.footer
        groups = thrift.value(added, _FILE_GROUPS).values
        first = 0 if self._footer is None else len(thrift.value(self._footer, _FILE_GROUPS).values)
        for ordinal, group in enumerate(groups, first):
            _move(group, shift, ordinal)
        if self._footer is None:
            self._footer = added
            return
        thrift.value(self._footer, _FILE_GROUPS).values.extend(groups)
        rows = thrift.value(self._footer, _FILE_ROWS) + thrift.value(added, _FILE_ROWS)
        thrift.change(self._footer, _FILE_ROWS, rows)

    def finish(self) -> None:
        """Writes the footer."""
        assert self._footer is not None, "one file at least"
        footer = thrift.encoded(self._footer)
        self._output.write(footer + len(footer).to_bytes(_LENGTH_BYTES, "little") + MAGIC)


def _move(group: thrift.Struct, shift: int, ordinal: int) -> None:
    if _GROUP_ORDINAL in group:
        thrift.change(group, _GROUP_ORDINAL, ordinal)
    _shift(group, _GROUP_POSITIONS, shift)
    for column in thrift.value(group, _GROUP_COLUMNS).values:
        _shift(column, _COLUMN_POSITIONS, shift)
        _shift(thrift.value(column, _COLUMN_CONTENTS), _CONTENTS_POSITIONS, shift)


def _shift(struct: thrift.Struct, fields: tuple[int, ...], shift: int) -> None:
    for field in fields:
        if thrift.value(struct, field):
            thrift.change(struct, field, thrift.value(struct, field) + shift)
