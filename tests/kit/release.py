"""What a release is made of, in `dist/`: sdist, wheel, a bill of materials for each way to install, and their sizes.

    python -m tests.kit.release [--installed none,kafka,postgres,spark,all]

Both archives are built from a copy of the checkout in an environment of the build's own, checked as the package index
checks them, and looked into: every file that the repository has below `src` and every licence is in them, nothing else
is. Then the wheel is installed into one bare environment after the other, which runs the sentence of its way, and whose
bill of materials (CycloneDX) is written. Ends with 1 and names what is wrong.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.kit.installations import ROOT, checkout

WAYS: Final = {
    "none": "from freshet import Catalog; print(Catalog)",
    "kafka": "import confluent_kafka; from freshet.pipeline.local.workers import LocalEngine; print(LocalEngine)",
    "postgres": "import psycopg; import freshet.pipeline.postgres; print(psycopg.__version__)",
    "spark": "import pyspark; from freshet import table_sink; print(pyspark.__version__)",
    "all": "import pyspark, confluent_kafka, rocksdict; from freshet import register; print(register)",
}
"""What must run in an environment that was installed with an extra."""
_MEGABYTE: Final = 1_000_000


class ReleaseError(Exception):
    """A part of a release that could not be published as it is."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Builds, checks, installs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--installed", default=",".join(WAYS), help="ways to install that are tried; empty: none")
    chosen = [each for each in parser.parse_args(arguments).installed.split(",") if each]
    if unknown := sorted(set(chosen) - WAYS.keys()):
        parser.error(f"{unknown[0]!r} is no way to install; there are {', '.join(WAYS)}")
    dist = ROOT / "dist"
    dist.mkdir(exist_ok=True)
    for stale in (*dist.glob("freshet_lake-*"), *dist.glob("*.cdx.json")):
        stale.unlink()
    try:
        sdist, wheel = built(dist)
        for archive in (sdist, wheel):
            print(f"{archive.name}: {archive.stat().st_size / _MEGABYTE:.1f} MB, {len(names_in(archive))} files")
        for way in chosen:
            print(_installed(way, wheel, dist), flush=True)
    except ReleaseError as problem:
        print(f"release: {problem}", file=sys.stderr)
        return 1
    return 0


def built(dist: Path) -> tuple[Path, Path]:
    """The checked sdist and wheel of this checkout."""
    with tempfile.TemporaryDirectory() as scratch:
        sources = checkout(Path(scratch) / "checkout")
        _run("-m", "build", "--outdir", dist, sources)
    (sdist,), (wheel,) = dist.glob("freshet_lake-*.tar.gz"), dist.glob("freshet_lake-*.whl")
    _run("-m", "twine", "check", "--strict", sdist, wheel)
    for archive in (sdist, wheel):
        if missing := sorted(expected_files() - names_in(archive)):
            raise ReleaseError(
                f"{archive.name} lacks {missing[0]} and {len(missing) - 1} more: name it in package-data"
            )
        if odd := sorted(name for name in names_in(archive) if name.startswith(("tests/", "bench/", "build/"))):
            raise ReleaseError(f"{archive.name} has {odd[0]}, which nobody installs")
    return sdist, wheel


def expected_files() -> set[str]:
    """What git knows below `src/freshet`, without notes for developers."""
    listed = subprocess.run(
        ["git", "ls-files", "src/freshet"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.split("\n")
    return {name.removeprefix("src/") for name in listed if name and not name.endswith(".md")}


def names_in(archive: Path) -> set[str]:
    """The names of an archive's files, as they are installed."""
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            return set(wheel.namelist())
    with tarfile.open(archive) as sdist:
        inner = (each.name.partition("/")[2] for each in sdist if each.isfile())
        return {name.removeprefix("src/") for name in inner}


def _installed(way: str, wheel: Path, dist: Path) -> str:
    """Installs one way into a bare environment, runs it, writes its bill of materials; the line about it."""
    with tempfile.TemporaryDirectory() as scratch:
        environment = Path(scratch) / "env"
        _run("-m", "venv", environment)
        python = environment / "bin" / "python"
        before = _size_bytes(environment)
        wanted = str(wheel) if way == "none" else f"{wheel}[{way}]"
        constraint = ROOT / "requirements.lock"
        _run("-m", "pip", "install", "--quiet", "--constraint", constraint, wanted, python=python)
        _run("-I", "-c", WAYS[way], python=python)
        shown = _run("-m", "freshet", "--version", python=python).strip()
        packages = len(_run("-m", "pip", "list", "--format=freeze", python=python).splitlines()) - 2
        added = (_size_bytes(environment) - before) / _MEGABYTE
        bill = dist / f"freshet-{way}.cdx.json"
        _run("-m", "cyclonedx_py", "environment", "--output-file", bill, python)
        return f"pip install, extra {way}: freshet {shown}, {packages} packages, {added:.0f} MB; {bill.name}"


def _size_bytes(folder: Path) -> int:
    return sum((Path(place) / name).lstat().st_size for place, _, names in os.walk(folder) for name in names)


def _run(*arguments: object, python: Path | str = sys.executable) -> str:
    command = [str(python), *map(str, arguments)]
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(
        command, cwd=tempfile.gettempdir(), env=inherited, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise ReleaseError(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
