"""Another driver: a process with a session of its own that runs pipelines while a test hangs in a batch.

    with OtherDriver.start() as driver:
        assert driver.run(file) is None         the file was run to its end

Run as a program it takes the paths of files from its input, and answers each with what became of it.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

from freshet.pipeline.config.pipeline_file import load_pipelines
from freshet.pipeline.exceptions import PipelineError
from freshet.pipeline.running.spark_pipeline import spark_runner
from freshet.pipeline.spark.jars import SPARK_GROUP, ensure_jars
from freshet.pipeline.spark.session import SHORT_LIVED, create_session

SETTINGS = {**SHORT_LIVED, "spark.sql.shuffle.partitions": "2"}
_ANSWER = "answer "


class OtherDriver:
    """The process."""

    def __init__(self, child: subprocess.Popen[Any]) -> None:
        self._child = child

    @classmethod
    @contextmanager
    def start(cls) -> Iterator[Self]:
        """Starts it, and ends it with the block."""
        command = [sys.executable, "-m", "tests.integration.other_driver"]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
            try:
                yield cls(child)
            finally:
                assert child.stdin is not None
                child.stdin.close()

    def run(self, file: Path) -> str | None:
        """Runs a file to its end; gives what it failed of, None where it did not."""
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        self._child.stdin.write(f"{file}\n")
        self._child.stdin.flush()
        for line in self._child.stdout:
            if line.startswith(_ANSWER):
                failure: str | None = json.loads(line.removeprefix(_ANSWER))
                return failure
        return "the process has ended"


def main() -> None:
    spark = create_session("other", settings=SETTINGS, jars=ensure_jars(SPARK_GROUP), master="local[2]")
    for line in sys.stdin:
        failure = None
        try:
            spark_runner(spark, load_pipelines([Path(line.strip())])).run()
        except PipelineError as error:
            failure = str(error)
        print(f"{_ANSWER}{json.dumps(failure)}", flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
