"""A pipeline that is killed with SIGKILL where its background compaction first comes to a point: run by a test.

python -m tests.integration.killed_compaction_program FILE POINT
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path
from unittest.mock import patch

from freshet.pipeline.config.pipeline_file import load_pipelines
from freshet.pipeline.running.spark_pipeline import spark_runner
from freshet.pipeline.spark.jars import SPARK_GROUP, ensure_jars
from freshet.pipeline.spark.session import create_session
from freshet.storage.io.env import CrashPoint, Env
from tests.integration.other_driver import SETTINGS


def main(file: str, point: str) -> None:
    def reach(_: Env, here: CrashPoint) -> None:
        if here.value == point and threading.current_thread().name.startswith("freshet-compaction"):
            os.kill(os.getpid(), signal.SIGKILL)

    spark = create_session("killed", settings=SETTINGS, jars=ensure_jars(SPARK_GROUP), master="local[2]")
    with patch.object(Env, "reach", reach):
        spark_runner(spark, load_pipelines([Path(file)])).run()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
