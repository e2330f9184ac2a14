"""Golden archives: a folder that an earlier head left behind, packed so that it can be unpacked anywhere.

    pack(folder, archive, kafka="127.0.0.1:10234")
    unpack(archive, folder, kafka="127.0.0.1:12345")     the same folder elsewhere, its broker at another port

Schemas and checkpoints name absolute paths and the address of the broker. In the archive these are marks, which are
replaced in text files only; binary files that name them are refused. Checksum files of Spark's checkpoints (`.N.crc`)
would be wrong then: they are left out, which Spark takes as they come.
"""

from __future__ import annotations

import lzma
import tarfile
from collections.abc import Mapping
from io import BytesIO
from pathlib import Path
from typing import Final

FOLDER: Final = Path(__file__).resolve().parents[1] / "golden"
ENGINES_ARCHIVE: Final = FOLDER / "upgrade_7ac1e1e.tar.xz"
"""Every merge engine with every changelog producer in fixed buckets, streams, logs: `engines` of `upgrade.make`."""
KINDS_ARCHIVE: Final = FOLDER / "upgrade_4f5f963.tar.xz"
"""Every kind of buckets, formats and indexes of files: `kinds` of `upgrade.make`."""
HISTORIES_ARCHIVE: Final = FOLDER / "upgrade_72567c5.tar.xz"
"""Tables that are changed by hand later, and a pipeline whose batches are taken back: `histories` of `upgrade.make`."""

WORLD_MARK: Final = "@WORLD@"
KAFKA_MARK: Final = "@KAFKA@"
PRESET: Final = 9 | lzma.PRESET_EXTREME


def pack(folder: Path, archive: Path, *, kafka: str | None = None) -> None:
    """Packs the files of a folder; marks replace its path and the address of the broker."""
    marks = {str(folder): WORLD_MARK, **({kafka: KAFKA_MARK} if kafka else {})}
    paths = [path for path in folder.rglob("*") if path.suffix != ".crc"]
    # Files of one kind beside each other compress better.
    with tarfile.open(archive, "w:xz", preset=PRESET) as tar:
        for path in sorted(paths, key=lambda path: (path.suffix, path.name, str(path))):
            info = tar.gettarinfo(path, str(path.relative_to(folder)))
            info.uid = info.gid = 0
            info.uname = info.gname = ""
            if not path.is_file():
                tar.addfile(info)
                continue
            data = _replaced(path, path.read_bytes(), marks)
            info.size = len(data)
            tar.addfile(info, BytesIO(data))


def unpack(archive: Path, folder: Path, *, kafka: str = "127.0.0.1:1", below: str = "", but: str | None = None) -> None:
    """Unpacks an archive, or the part of it below a folder `but` for another, with its own values for the marks."""
    marks = {WORLD_MARK: str(folder), KAFKA_MARK: kafka}
    with tarfile.open(archive) as tar:
        for info in tar:
            if not info.name.startswith(below) or (but is not None and info.name.startswith(but)):
                continue
            path = folder / info.name
            if not info.isfile():
                path.mkdir(parents=True, exist_ok=True)
                continue
            path.parent.mkdir(parents=True, exist_ok=True)
            file = tar.extractfile(info)
            assert file is not None
            path.write_bytes(_replaced(path, file.read(), marks))


def _replaced(path: Path, data: bytes, marks: Mapping[str, str]) -> bytes:
    """Text with one mark for another."""
    found = [(old.encode(), new.encode()) for old, new in marks.items() if old.encode() in data]
    if not found:
        return data
    try:
        data.decode()
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is no text and names {[old for old, _ in found]}: it cannot be moved") from error
    for old, new in found:
        data = data.replace(old, new)
    return data
