"""What a folder holds, to show that a refused call wrote nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def contents(folder: str | Path) -> dict[str, bytes | None]:
    """Every file below with its bytes, every folder with None."""
    root = Path(folder)
    return {
        str(path.relative_to(root)): path.read_bytes() if path.is_file() else None for path in sorted(root.rglob("*"))
    }


@contextmanager
def unchanged(folder: str | Path) -> Iterator[None]:
    """Fails when what happens inside adds, changes or removes a file or folder."""
    before = contents(folder)
    yield
    after = contents(folder)
    changed = sorted(name for name in before.keys() | after.keys() if before.get(name, b"") != after.get(name, b""))
    assert not changed, f"changed in {folder}: {changed}"
