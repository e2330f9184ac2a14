"""Work of a batch that writes down the sizes of the Arrow batches it is given; it runs in a worker."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from freshet.pipeline.query.wire.batch_pin import TaskPlace
from freshet.pipeline.spark.engine import PlacedWork


@dataclass(frozen=True)
class NotedWork:
    """Does the work, and appends a line with a number of rows for each batch."""

    work: PlacedWork
    seen: Path

    def run(self, batches: Iterator[pa.RecordBatch], place: TaskPlace) -> Iterator[pa.RecordBatch]:
        """As `PlacedWork`."""
        return self.work.run(self._noted(batches), place)

    def _noted(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            with self.seen.open("a") as file:
                file.write(f"{batch.num_rows}\n")
            yield batch
