"""Spark's side of the progress of its queries: what its listener hears goes to a hub.

`ProgressListener` may be added to any session: `spark.streams.addListener(ProgressListener(hub))`.
"""

from __future__ import annotations

import json
from typing import Any, Final

from pyspark import SparkContext
from pyspark.sql.streaming import StreamingQueryListener

from freshet.pipeline.running.progress import ProgressHub


class ProgressListener(StreamingQueryListener):
    """Spark's listener that feeds a hub. Its events are the JVM's own, of which one JSON text is read.

    PySpark would copy each event into Python field by field: of a stream of small batches on two cores, that took 40 %
    of a core in the JVM and a tenth of one in Python.
    """

    class Java:
        """What py4j asks for: the interface that the JVM calls."""

        implements: Final = ["org.apache.spark.sql.streaming.PythonStreamingQueryListener"]

    def __init__(self, hub: ProgressHub) -> None:
        self._hub = hub
        self._wrapper: Any = None

    @property
    def _jlistener(self) -> Any:
        """Where `addListener` and `removeListener` find the JVM's side; the version of PySpark is pinned."""
        if self._wrapper is None:
            jvm: Any = SparkContext._jvm
            self._wrapper = jvm.PythonStreamingQueryListenerWrapper(self)
        return self._wrapper

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802 - Spark's name
        """Idle queries are reported by their id alone."""
        self._hub.add_query(event.id().toString(), event.name() or "")

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802 - Spark's name
        """A micro-batch is over."""
        self._hub.add_engine_progress(json.loads(event.progress().json()))

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802 - Spark's name
        """No new records."""
        self._hub.add_idle(event.id().toString())

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802 - Spark's name
        """The runner sees this by itself."""
