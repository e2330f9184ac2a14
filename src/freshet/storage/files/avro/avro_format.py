"""Avro as a format of data files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from typing import Final

import pyarrow as pa

from freshet.storage.codec.stats import StatsRules
from freshet.storage.files.avro.reader import AvroReader
from freshet.storage.files.avro.writer import AvroWriter
from freshet.storage.files.file_format import FileSettings
from freshet.storage.io.env import Env
from freshet.storage.model.data_type import DataField

_STATS_RULES: Final = StatsRules(has_nano_bounds=True, has_nested_counts=True, has_system_modes=False)


class AvroFormat:
    """Groups of blocks are the chunks. Files have neither a footer nor statistics."""

    stats_rules: StatsRules = _STATS_RULES
    footer_bytes: Callable[[pa.Buffer], int | None] | None = None

    def open(
        self, env: Env, path: str, *, size_bytes: int | None = None, part: tuple[int, int] | None = None
    ) -> AvroReader:
        """Opens a file."""
        return AvroReader(env, path, size_bytes=size_bytes, part=part)

    def create(
        self,
        env: Env,
        path: str,
        fields: Sequence[DataField],
        settings: FileSettings,
        executor: Executor | None = None,
    ) -> AvroWriter:
        """Begins a file, which one thread writes."""
        return AvroWriter(env, path, fields, settings)
