"""Compacts tables inside spark-submit: the same as `freshet compact --on-spark`, with Spark's own settings.

    spark-submit --master … src/freshet/jobs/compact_table.py WAREHOUSE shop.orders [--every '10 s'] …

Buckets are compacted by the executors, as many at a time as there are cores; the driver plans and commits. A table, its
partitions or a whole database; once or continuously; `freshet compact --help` has the options. What executors need is
said in `src/freshet/jobs/run_pipeline.py`. Exit codes are those of `freshet compact`.
"""

from __future__ import annotations

import sys

from freshet.pipeline.commands.command_line import main

if __name__ == "__main__":
    sys.argv[1:1] = ["compact", "--on-spark"]
    main()
