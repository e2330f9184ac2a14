"""Follows a table inside spark-submit: its rows, then each change, to the console, Parquet files or another table.

    spark-submit --master … src/freshet/jobs/hybrid_read.py WAREHOUSE shop.orders                        to the console
    … WAREHOUSE shop.orders --to parquet --path /data/changes --checkpoint /data/c           files of changes
    … WAREHOUSE shop.orders --to table --into shop.copy --checkpoint /data/c                 a table that follows

`--isolation speculative` reads changes from the log before their commit; `--available-now` ends when everything that
is there was read; `--help` has the other options. It runs until SIGTERM or Ctrl-C, and finishes its batch then. What
executors need is said in `src/freshet/jobs/run_pipeline.py`; exit codes are those of `freshet run`.
"""

from __future__ import annotations

import sys

from freshet.pipeline.commands.command_line import main

if __name__ == "__main__":
    sys.argv.insert(1, "hybrid-read")
    main()
