"""Small files of a folder that Spark's file systems reach (HDFS, S3A, …), read and written by the driver's JVM.

The settings are those of the session, so that what Spark can reach is reached here and in the same way. A file is
written under another name and renamed: on HDFS it would otherwise be visible before it is complete.

What does not answer at the moment raises `PipelineFailedError` of the kind retryable, any other failure `OSError`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from freshet.pipeline.errors.error_kind import ErrorKind
from freshet.pipeline.errors.known_causes import kind_of_text
from freshet.pipeline.exceptions import PipelineFailedError
from freshet.pipeline.identity.checkpoint_folder import CheckpointFolder, as_folder, uri_above


class HadoopFolder:
    """One folder; names are those below it."""

    def __init__(self, spark: SparkSession, uri: str) -> None:
        """Raises `OSError` where Spark has no file system for the URI."""
        classic: Any = spark
        self._spark, self._uri = spark, uri.rstrip("/")
        self._jvm: Any = classic._jvm
        self._settings = classic._jsparkSession.sessionState().newHadoopConf()
        renames = getattr(self._jvm.org.apache.hadoop.fs, "Options$Rename")
        gateway: Any = spark.sparkContext._gateway
        self._overwriting = gateway.new_array(renames, 1)
        self._overwriting[0] = renames.OVERWRITE
        with _as_os_error(self._uri):
            self._files = self._path().getFileSystem(self._settings)

    def place(self, *names: str) -> str:
        """The URI of a file."""
        return "/".join([self._uri, *names])

    def read(self, *names: str) -> str | None:
        """The text of a file; None where there is none."""
        with _as_os_error(self._uri):
            try:
                stream = self._files.open(self._path(*names))
            except Py4JJavaError as error:
                if _is_missing(error):
                    return None
                raise
            try:
                return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
            finally:
                stream.close()

    def replace(self, name: str, text: str) -> None:
        """Writes a file, which appears with all of the text."""
        unfinished, path = self._path(f".{name}.{os.getpid()}.tmp"), self._path(name)
        with _as_os_error(self._uri):
            self._write(unfinished, text)
            file_contexts = self._jvm.org.apache.hadoop.fs.FileContext
            file_contexts.getFileContext(path.toUri(), self._settings).rename(unfinished, path, self._overwriting)

    def numbers(self, *names: str) -> list[int]:
        """The names that are numbers in a folder below; none where it is not there."""
        with _as_os_error(self._uri):
            try:
                found = [str(each.getPath().getName()) for each in self._files.listStatus(self._path(*names))]
            except Py4JJavaError as error:
                if _is_missing(error):
                    return []
                raise
        return [int(name) for name in found if name.isdecimal()]

    def above(self) -> HadoopFolder | None:
        """The folder that it lies in; None at the top."""
        above = uri_above(self._uri)
        return None if above is None else HadoopFolder(self._spark, above)

    def write_problem(self) -> str | None:
        """Why nothing can be written here; None where it can."""
        probe = self._path(f".freshet-check-{uuid4()}")
        try:
            with _as_os_error(self._uri):
                self._write(probe, "")
                self._files.delete(probe, False)
        except OSError as error:
            return str(error)
        return None

    def _path(self, *names: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(self.place(*names))

    def _write(self, path: Any, text: str) -> None:
        stream = self._files.create(path, True)
        try:
            stream.write(text.encode("utf-8"))
        finally:
            stream.close()


def open_checkpoint(spark: SparkSession, checkpoint: str) -> CheckpointFolder:
    """The folder of a path or URI, through Spark's file systems where it is not on a local disk.

    Raises `OSError` where Spark has no file system for it.
    """
    return as_folder(checkpoint) or HadoopFolder(spark, checkpoint)


@contextmanager
def _as_os_error(uri: str) -> Iterator[None]:
    try:
        yield
    except Py4JJavaError as error:
        thrown: Any = error.java_exception
        lines = str(thrown.getMessage() or "").strip().splitlines()
        text = ": ".join([str(thrown.getClass().getSimpleName()), *lines[:1]])
        if kind_of_text(str(error)) is ErrorKind.RETRYABLE:
            raise PipelineFailedError(f"{uri} does not answer: {text}", kind=ErrorKind.RETRYABLE) from error
        raise OSError(text) from error


def _is_missing(error: Py4JJavaError) -> bool:
    return bool(error.java_exception.getClass().getSimpleName() == "FileNotFoundException")
