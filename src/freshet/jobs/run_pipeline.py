"""Runs pipeline files inside spark-submit: the same as `freshet run`, with Spark's own settings.

    spark-submit --master … --jars "$(freshet jars)" src/freshet/jobs/run_pipeline.py orders.yaml [more.yaml]

On executors of other machines the packages of Freshet and its libraries must be installed, or travel as an environment
(`--archives environment.tar.gz#environment` with `PYSPARK_PYTHON=./environment/bin/python`). All of them must reach the
warehouse, each with credentials of its own; the driver must reach the checkpoints. Exit codes are those of
`freshet run`.
"""

from __future__ import annotations

import sys

from freshet.pipeline.commands.command_line import main

if __name__ == "__main__":
    sys.argv.insert(1, "run")
    main()
