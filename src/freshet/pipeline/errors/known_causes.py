"""Failures that Spark reports in its own words, in those that an operator needs: the file or folder, what to do.

| Spark says | we say |
|---|---|
| a file that a batch was planned with is not there | the file, and how to go on with or without it |
| the scheme of a path (`s3a://`) is unknown, or the class for it is missing | the path, and which jar it wants |
| no space, or no more quota, while it writes its own notes between batches | the checkpoint's folder |
| another query has written the checkpoint | that two runs use it, and which one goes on |
| offsets are not in Kafka any more | which, and what to do: as the workers say it that read them themselves |

`kind_of_text` says of which kind such a failure is:

| Spark says | kind |
|---|---|
| two runs use one checkpoint | invalid |
| a file or folder is gone, a scheme unknown; an SQLSTATE of class 22 (data, loss in Kafka too) or 42 (call) | invalid |
| brokers refuse the user, the version or the call | invalid |
| brokers do not answer, do not lead, know no topic yet; sockets of Java; a full disk; a lost executor | retryable |
| S3A gets no answer | retryable |
| an input file cannot be read (SQLSTATE KD001) | corrupt |
| anything else | internal |
"""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import unquote

from freshet.logstore.exceptions import LOST
from freshet.pipeline.errors.error_kind import ErrorKind

_MISSING: Final = re.compile(
    r"FAILED_READ_FILE\.FILE_NOT_EXIST\].{0,200}?reading file\s+(?P<read>\S+?)\.?\s|"
    r"PATH_NOT_FOUND\] Path does not exist: (?P<planned>\S+?)\.?\s|"
    r"FileNotFoundException: File (?P<found>\S+) does not exist",
    re.DOTALL,
)
_FULL: Final = re.compile(r"No space left on device|Disk quota exceeded|There is not enough space on the disk")

_FULL_OF_OURS: Final = "free some space on that disk"
"""What our own errors say, which name the file."""
_SCRATCH: Final = "TMPDIR"
"""The same of errors of files on the scratch disk."""

_NO_FILE_SYSTEM: Final = re.compile(
    r"Class (?P<name>[\w.]+FileSystem) not found|No FileSystem for scheme \"?(?P<scheme>[\w+.-]+)"
)
_AT_PATH: Final = re.compile(r"for path=(\S+?)\.?\s")

_KAFKA: Final = r"org\.apache\.kafka\.common\.errors\."
_REFUSED_BY_KAFKA: Final = r"\w*(?:Authentication|Authorization|Sasl|Ssl|Unsupported|InvalidTopic|OutOfRange)\w*"
_TWO_RUNS: Final = re.compile(
    r"CONCURRENT_STREAM_LOG_UPDATE|CONCURRENT_QUERY\b|Multiple streaming jobs detected|"
    r"Multiple streaming queries are concurrently using"
)
_LOST: Final = re.compile(r"Some data may have been lost because.{0,500}?Reason:\s*(?P<reason>[^\n]*\S)", re.DOTALL)
_LOST_RANGES: Final = (
    (
        re.compile(r"Could not read records in offset \[(\d+), (\d+)\) for topic partition (\S+)-(\d+)"),
        r"topic \3 partition \4 offsets \1 to \2 are not in Kafka any more",
    ),
    (
        re.compile(r"Starting offset for (\S+)-(\d+) was (\d+) but consumer reset to (\d+)\."),
        r"topic \1 partition \2: offset \3 is not in Kafka, whose first one is \4",
    ),
    (
        re.compile(r"Partition (\S+)-(\d+) offset was changed from (\d+) to (\d+)\."),
        r"topic \1 partition \2 was read up to offset \3 and ends at \4",
    ),
)
"""How Spark names the offsets, and how they are named here."""
_KINDS: Final = (  # the first one that is found counts
    (_TWO_RUNS, ErrorKind.INVALID_REQUEST),
    (re.compile(r"SQLSTATE: 22\w{3}|Some data may have been lost"), ErrorKind.INVALID_REQUEST),
    (re.compile(_KAFKA + _REFUSED_BY_KAFKA), ErrorKind.INVALID_REQUEST),
    (
        re.compile(
            rf"{_KAFKA}|TimeoutException: Cannot fetch (?:record|offset)|{_FULL.pattern}|Stale file handle|"
            r"java\.net\.(?:\w*Connect|Socket|SocketTimeout|UnknownHost|NoRouteToHost|PortUnreachable)Exception|"
            r"ExecutorLostFailure|FetchFailed|MetadataFetchFailedException|"
            r"org\.apache\.hadoop\.(?:fs\.s3a\.AWS(?:Client|ServiceIO|ServiceThrottled|Status5)|net\.ConnectTimeout)"
        ),
        ErrorKind.RETRYABLE,
    ),
    (re.compile(r"SQLSTATE: KD001"), ErrorKind.CORRUPT_DATA),
    (re.compile(r"SQLSTATE: 42\w{3}"), ErrorKind.INVALID_REQUEST),
)
SECOND_RUN: Final = (
    "another run of this pipeline is using its checkpoint, and was ahead of this one with a batch: this one stops, "
    "whichever was started first; no row is lost or written twice. Look whether the other one still runs before "
    "you start this one again; two pipelines need a checkpoint each"
)
HEAP: Final = (
    "spark.driver.memory, 1g where it is not set (under spark: in the pipeline file; with spark-submit "
    "--driver-memory, on a cluster --executor-memory too)"
)
READ_LESS: Final = "read less at a time (maxOffsetsPerTrigger or maxFilesPerTrigger of the source)"
_OUT_OF_MEMORY: Final = re.compile(
    r"java\.lang\.OutOfMemoryError|Python worker exited unexpectedly|^MemoryError\b", re.MULTILINE
)
_DIED: Final = re.compile(r"^a worker process (?:was |has )?ended", re.M)
"""What the local engine says (`local/workers`)."""


def kind_of_text(text: str) -> ErrorKind:
    """The kind of a failure that Spark, Kafka's client or Java report."""
    if missing_file(text) or missing_file_system(text):
        return ErrorKind.INVALID_REQUEST
    return next((kind for pattern, kind in _KINDS if pattern.search(text)), ErrorKind.INTERNAL)


def is_crash(text: str) -> bool:
    """True where a process or thread was out of memory, or a worker was killed: no better cause is known.

    The same batch may end in the same way, or may not.
    """
    return _OUT_OF_MEMORY.search(text) is not None or _DIED.search(text) is not None


def out_of_memory(text: str) -> str | None:
    """Where a text of Spark's says that memory was used up, or a worker was killed: what to do; else None."""
    match = _OUT_OF_MEMORY.search(text)
    if match is None:
        return None
    if match[0].startswith("java"):
        return (
            f"the heap of Spark's Java process was used up (java.lang.OutOfMemoryError). Raise {HEAP}, or {READ_LESS}"
        )
    what = "had no memory left" if match[0] == "MemoryError" else "was killed or crashed, most often by lack of memory"
    return (
        f"a Python worker {what}. Give the machine or the container more, or {READ_LESS}, or lower the table's "
        "write-buffer-size"
    )


def missing_file_system(text: str, path: str | None = None) -> str | None:
    """Where a text of Spark's says that it has nothing to reach a path with: the path, and what to do; else None.

    `path` is the one that was tried, where the text need not name it.
    """
    match = _NO_FILE_SYSTEM.search(text)
    if match is None:
        return None
    found = None if path else _AT_PATH.search(text)
    shown = path or (found[1] if found else "a path of the pipeline")
    what = f"scheme {match['scheme']}" if match["scheme"] else f"its class {match['name']}"
    return (
        f"this Spark cannot reach {shown}: there is no file system for {what}. "
        "Add the connector's jar, under spark: as spark.jars or spark.jars.packages, or with spark-submit --jars "
        "(freshet jars --s3 fetches and names those for s3a://, which is how Spark calls s3://); or write a path that "
        "Spark can reach"
    )


def missing_file(text: str) -> str | None:
    """Where a text of Spark's says that a file is not there: the file, and what to do; else None."""
    match = _MISSING.search(f"{text} ")
    if match is None:
        return None
    return gone_text(unquote(next(group for group in match.groups() if group)))


def gone_text(path: str) -> str:
    """The text that a file of a source is not there any more, and what to do."""
    return (
        f"{path.removeprefix('file://')} was there when a batch was planned and is gone now; nothing of the batch was "
        "committed. Put the file back under its name and start again, or go on without its records: under spark: set "
        'spark.sql.files.ignoreMissingFiles to "true". Files may be removed once their batch is committed (cleanSource '
        "of the source does it)"
    )


def pattern_text(path: str) -> str:
    """The text that Spark takes the name of a file for a pattern, and what to do."""
    return (
        f"{path} has one of ?, *, [, ], {{, }} and \\ in its name, which Spark takes for a pattern: it would read "
        "all files of the folder once more, and their records would be doubled. Nothing of the batch was committed. "
        "Run the pipeline without Spark once (--on local): it reads files of any name, and Spark goes on behind it. Or "
        'give the file another name and start with spark.sql.files.ignoreMissingFiles set to "true": it then comes '
        "as a new one"
    )


def second_run(text: str) -> str | None:
    """Where a text of Spark's says that another query has written the same checkpoint: what to do; else None."""
    return None if _TWO_RUNS.search(text) is None else SECOND_RUN


def lost_offsets(text: str) -> str | None:
    """Where a text of Spark's says that offsets are not in Kafka any more: which, and what to do; else None."""
    match = _LOST.search(text)
    if match is None:
        return None
    found = ((pattern.match(match["reason"]), shown) for pattern, shown in _LOST_RANGES)
    what = next((range_.expand(shown) for range_, shown in found if range_), match["reason"].rstrip("."))
    return f"{what}: {LOST}"


def full_scratch(text: str, local_dir: str) -> str:
    """Where Spark says, without a path, that a disk is full while it shuffles or sorts: which one, and what to do."""
    if _FULL.search(text) is None or _FULL_OF_OURS in text:
        return ""
    return (
        f". A disk that Spark itself writes to is full, here or of an executor: that of spark.local.dir ({local_dir}), "
        "or of SPARK_LOCAL_DIRS where it is set. Make room there, or name a larger folder, and write again"
    )


def full_checkpoint(text: str, checkpoint: str) -> str | None:
    """Where a text, raised between batches, says that a disk is full and not which: the checkpoint's; else None."""
    match = _FULL.search(text)
    if match is None or _FULL_OF_OURS in text or _SCRATCH in text:
        return None
    return (
        f"checkpoint {checkpoint} cannot be written: {match[0]}. Make room on its disk, or grow it, and start again: "
        "the run goes on where it stopped, nothing is lost or written twice. Do not delete files of the checkpoint"
    )


_NO_DAEMON: Final = re.compile(r"reading the port number from \S+ stdout(?: and terminated with code: (\d+))?")


def dead_worker(text: str) -> str | None:
    """The sentence for Python workers that end before they say anything; None for other texts."""
    found = _NO_DAEMON.search(text)
    if found is None:
        return None
    how = f" with exit status {found[1]}" if found[1] else ""
    return (
        f"Spark's Python workers end{how} before they start: the interpreter is the one of PYSPARK_PYTHON, else "
        "python3 of the PATH; run it by hand to see why"
    )
