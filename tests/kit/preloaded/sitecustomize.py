"""Python imports this at its start where the tests put this folder on the path: PySpark's daemons load Freshet once.

For every frame of Freshet's source Spark starts Python workers that plan it, several for one query, each of them forked
from a daemon (`python -m pyspark.daemon pyspark.sql.worker.…`) that has imported PySpark alone: each then imports
Freshet again, which takes four times as long as the planning. In a session of the tests they find it loaded.
"""

import sys

if "pyspark.daemon" in sys.orig_argv and any(each.startswith("pyspark.sql.worker.") for each in sys.orig_argv):
    import freshet.pipeline.sources.batch_source
    import freshet.pipeline.sources.stream_source  # noqa: F401
