"""Fetches the pinned jars, once per machine, with the Ivy that pyspark ships; no build tool and no host is named.

The list is `jars.toml` next to this file: groups of coordinates, each with the SHA-256 of its file. A jar is fetched
alone (`transitive="false"`, `usepoms="false"`: some parent POMs are missing where the jars are not), checked, and moved
into the cache folder under its final name, so

    a file in the cache folder is complete and is the pinned one.

Cache folder: `$XDG_CACHE_HOME/freshet/jars`, by default `~/.cache/freshet/jars`. Two processes may ask at once: a file
lock lets one fetch and the other find. `python -m freshet.pipeline.spark.jars [GROUP…]` prints the list for `--jars`.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from freshet._frozen import Frozen
from freshet.pipeline.errors.error_kind import ErrorKind
from freshet.pipeline.exceptions import InvalidRequestError, PipelineError

JAR_LIST = Path(__file__).with_name("jars.toml")
SPARK_GROUP = "spark-kafka"
S3A_GROUP = "s3a"
KAFKA_ARTIFACT = "spark-sql-kafka-0-10_"
S3A_ARTIFACT = "hadoop-aws-"
_JAR_SETTINGS = ("spark.jars", "spark.jars.packages", "spark.driver.extraClassPath")
JAVA_MIN = 17
ANSWER_S = 30.0
_JAVA_VERSION = re.compile(r'version "(?:1\.)?(\d+)')
"""Java 8 calls itself 1.8."""

FETCHED_LINE = re.compile(r"\[SUCCESSFUL \] \S+?#(?P<name>[^;]+);(?P<version>[^!]+)!")


class JarError(PipelineError):
    """A pinned jar could not be fetched, or what came is not what is pinned."""

    def __init__(self, message: str, kind: ErrorKind = ErrorKind.INVALID_REQUEST) -> None:
        super().__init__(message)
        self.kind = kind


class Jar(Frozen):
    """One pinned file of Maven Central."""

    organisation: str
    artifact: str
    version: str
    sha256: str

    @property
    def file_name(self) -> str:
        return f"{self.artifact}-{self.version}.jar"


def ensure_jars(group: str) -> list[Path]:
    """The paths of the group's jars, in the order of the list; fetches what this machine does not have yet."""
    jars = pinned_jars(group)
    folder = cache_folder()
    if _missing(jars, folder):
        folder.mkdir(parents=True, exist_ok=True)
        with exclusive(folder / ".lock"):
            missing = _missing(jars, folder)  # another process may have fetched them meanwhile
            if missing:
                _fetch(group, missing, folder)
    return [folder / jar.file_name for jar in jars]


def fetched_jars(group: str) -> list[Path] | None:
    """The paths of the group's jars where this machine has them all; fetches nothing."""
    jars, folder = pinned_jars(group), cache_folder()
    return None if _missing(jars, folder) else [folder / jar.file_name for jar in jars]


def names_kafka_source(settings: Mapping[str, str]) -> bool:
    """True when a session with these settings has Spark's Kafka source without our help."""
    return names_artifact(settings, KAFKA_ARTIFACT)


def names_artifact(settings: Mapping[str, str], artifact: str) -> bool:
    """True when a session with these settings has a jar whose name begins so.

    That is by `spark.jars` (`--jars`), `spark.jars.packages` (`--packages`), the class path, or the jars of Spark.
    """
    named = [name for key in _JAR_SETTINGS for name in re.split("[,:]", settings.get(key, ""))]
    folders = [Path(name[:-1]) for name in named if name.endswith("/*")]
    if os.environ.get("SPARK_HOME"):
        folders.append(Path(os.environ["SPARK_HOME"]) / "jars")
    files = [*pyspark_jars(), *(jar for folder in folders for jar in folder.glob("*.jar"))]
    return any(_is_of(name, artifact) for name in [*named, *map(str, files)])


def _is_of(name: str, artifact: str) -> bool:
    """Whether a path or Maven coordinates (`group:artifact:version`, of which `name` is a part) are of the artifact."""
    last = name.rpartition("/")[2]
    return last.startswith(artifact) or last == artifact.rstrip("-")


def pinned_jars(group: str) -> list[Jar]:
    """The group's entries in the pinned list."""
    groups = tomllib.loads(JAR_LIST.read_text(encoding="utf-8"))
    if group not in groups:
        raise InvalidRequestError(f"there is no group of jars {group!r}; choose from {', '.join(sorted(groups))}")
    return [_jar(coordinates, sha256) for coordinates, sha256 in groups[group].items()]


def cache_folder() -> Path:
    """Where the jars of this user lie; shared by all checkouts."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "freshet" / "jars"


def pyspark_jars(*prefixes: str) -> list[Path]:
    """The jars inside pyspark whose names are one of `prefixes` plus a version; all of them without a prefix."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise JarError("pyspark is not installed in this environment; run `make venv`")
    folder = Path(spec.origin).parent / "jars"
    if not prefixes:
        return sorted(folder.glob("*.jar"))
    found = [sorted(folder.glob(f"{prefix}-[0-9]*.jar")) for prefix in prefixes]
    for prefix, matches in zip(prefixes, found, strict=True):
        if not matches:
            raise JarError(f"pyspark's folder {folder} holds no {prefix} jar; reinstall pyspark as pinned")
    return [match for matches in found for match in matches]


def java_command() -> str:
    """The `java` to run: of JAVA_HOME if that is set, else of the PATH."""
    home = os.environ.get("JAVA_HOME")
    java = shutil.which(str(Path(home) / "bin" / "java")) if home else shutil.which("java")
    if java is None:
        raise JarError(f"no java {f'in JAVA_HOME={home}' if home else 'on the PATH'}; install Java 17")
    return java


def java_problem() -> str | None:
    """Why Spark cannot start with the Java of this machine; None where nothing is wrong, or its answer is not known."""
    try:
        java = java_command()
        done = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=ANSWER_S, check=False)
    except JarError as error:
        return str(error)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"`java -version` does not answer: {error}"
    found = _JAVA_VERSION.search(done.stderr + done.stdout)
    if found is None or int(found[1]) >= JAVA_MIN:
        return None
    return f"{java} is Java {found[1]}, and Spark needs Java {JAVA_MIN} or newer; install it, or set JAVA_HOME"


def _jar(coordinates: str, sha256: str) -> Jar:
    organisation, artifact, version = coordinates.split(":")
    return Jar(organisation, artifact, version, sha256)


def _missing(jars: Iterable[Jar], folder: Path) -> list[Jar]:
    return [jar for jar in jars if not (folder / jar.file_name).is_file()]


def _fetch(group: str, jars: Sequence[Jar], folder: Path) -> None:
    """1. Ivy retrieves into a folder of this call, 2. every file is checked, 3. each moves to its final name."""
    with tempfile.TemporaryDirectory(prefix=".fetch-", dir=folder) as scratch_name:
        scratch = Path(scratch_name)
        (scratch / "settings.xml").write_text(_ivy_settings(scratch / "ivy"), encoding="utf-8")
        (scratch / "ivy.xml").write_text(_ivy_module(jars), encoding="utf-8")
        _say(f"fetching {len(jars)} for {group} into {folder}")
        _run_ivy(scratch, total=len(jars))  # 1
        for jar in jars:  # 2
            _check(scratch / "out" / jar.file_name, jar)
        for jar in jars:  # 3
            (scratch / "out" / jar.file_name).replace(folder / jar.file_name)


def _run_ivy(scratch: Path, *, total: int) -> None:
    """Runs Ivy's own main class and prints what has arrived; its output is kept for the error message."""
    command = [
        java_command(),
        *("-jar", str(pyspark_jars("ivy")[0])),
        *("-settings", str(scratch / "settings.xml"), "-ivy", str(scratch / "ivy.xml")),
        *("-retrieve", f"{scratch}/out/[artifact]-[revision](-[classifier]).[ext]"),
    ]
    output: list[str] = []
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as ivy:
        assert ivy.stdout is not None
        fetched = 0
        for line in ivy.stdout:
            output.append(line)
            if arrived := FETCHED_LINE.search(line):
                fetched += 1
                _say(f"  {fetched}/{total} {arrived['name']} {arrived['version']}")
    if ivy.returncode != 0 or any("UNRESOLVED DEPENDENCIES" in line for line in output):
        said = "".join(line for line in output if line.strip(" .\t\n"))[-2000:]
        raise JarError(
            f"Ivy could not fetch the pinned jars (is the network there?); run `make jars` again. It said:\n{said}",
            ErrorKind.RETRYABLE,
        )


def _check(path: Path, jar: Jar) -> None:
    coordinates = f"{jar.organisation}:{jar.artifact}:{jar.version}"
    if not path.is_file():
        raise JarError(f"{coordinates} did not arrive; run `make jars` again", ErrorKind.RETRYABLE)
    with path.open("rb") as stream:
        found = hashlib.file_digest(stream, "sha256").hexdigest()
    if found != jar.sha256:
        raise JarError(f"{coordinates} is not the pinned file: SHA-256 {found}, pinned {jar.sha256}; do not use it")


def _ivy_settings(cache: Path) -> str:
    return (
        f'<ivysettings><caches defaultCacheDir="{cache}"/><settings defaultResolver="central"/>'
        '<resolvers><ibiblio name="central" m2compatible="true" usepoms="false"/></resolvers></ivysettings>'
    )


def _ivy_module(jars: Iterable[Jar]) -> str:
    dependencies = "".join(
        f'<dependency org="{jar.organisation}" name="{jar.artifact}" rev="{jar.version}"'
        ' transitive="false" conf="default->default"/>'
        for jar in jars
    )
    return (
        '<ivy-module version="2.0"><info organisation="freshet" module="jars"/>'
        '<configurations><conf name="default"/></configurations>'
        f"<dependencies>{dependencies}</dependencies></ivy-module>"
    )


@contextmanager
def exclusive(path: Path) -> Iterator[None]:
    """Holds an advisory lock; the kernel releases it when the process dies, so a crash blocks no other process."""
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _say(line: str) -> None:
    print(f"jars: {line}", file=sys.stderr, flush=True)


def main(groups: Sequence[str]) -> int:
    """Prints the comma list of the groups' jars (default: what `spark-submit --jars` needs)."""
    try:
        paths = [path for group in groups or [SPARK_GROUP] for path in ensure_jars(group)]
    except PipelineError as error:
        _say(str(error))
        return error.exit_code
    print(",".join(map(str, paths)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
