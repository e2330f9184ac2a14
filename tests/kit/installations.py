"""Installations of Freshet that tests make: a checkout, a wheel, and environments of their own.

An environment borrows the libraries of this one: packages are found there, but no editable install, since path files of
a borrowed folder are not read.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
LIBRARIES = sysconfig.get_path("purelib")
LINKS = ("storage", "logstore", "pipeline", "jobs")
SOURCES = ("src", "pyproject.toml", "README.md", "LICENSE")


@dataclass(frozen=True)
class Installation:
    """An interpreter that can import freshet, and what its environment must say."""

    python: Path
    python_path: str = ""

    def run(self, *arguments: object, folder: Path, before: str = "") -> subprocess.CompletedProcess[str]:
        """Runs the interpreter in a folder; `before` goes in front of what is imported from."""
        command = [str(self.python), *map(str, arguments)]
        return subprocess.run(
            command, cwd=folder, env=self.variables(before), text=True, capture_output=True, timeout=900
        )

    def variables(self, before: str = "") -> dict[str, str]:
        """The environment of its processes, without the import settings of this process."""
        path = os.pathsep.join(part for part in (before, self.python_path) if part)
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        return {**inherited, "PYTHONPATH": path, "PYSPARK_PYTHON": str(self.python), "SPARK_LOCAL_IP": "127.0.0.1"}


def environment(folder: Path) -> Path:
    """The interpreter of a new environment with the libraries of this one."""
    base = Path(sys.base_prefix) / "bin" / f"python{sys.version_info.major}.{sys.version_info.minor}"
    subprocess.run([str(base), "-m", "venv", "--without-pip", str(folder)], check=True)
    own = next(folder.glob("lib/python*/site-packages"))
    (own / "borrowed.pth").write_text(LIBRARIES + "\n", encoding="utf-8")
    return folder / "bin" / "python"


def pip(*arguments: object) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pip", "--disable-pip-version-check", *map(str, arguments)],
        text=True,
        capture_output=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def checkout(folder: Path) -> Path:
    """A copy of the repository in a new folder, as it is cloned: no build folders, links kept."""
    folder.mkdir(exist_ok=True)
    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info", "build")
    for name in SOURCES:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, folder / name, symlinks=True, ignore=ignored)
        else:
            shutil.copy(source, folder / name)
    for name in LINKS:
        shutil.copy(ROOT / name, folder / name, follow_symlinks=False)
    return folder


def built_wheel(sources: Path, folder: Path) -> Path:
    """The wheel of a checkout, in which the build leaves folders behind."""
    pip("wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", folder, sources)
    (built,) = folder.glob("*.whl")
    return built
