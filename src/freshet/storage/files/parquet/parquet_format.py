"""Parquet as a format of data files, the default of the format.

A timestamp finer than microseconds makes all timestamps of its file INT96: readers before 2.0 take INT64 nanoseconds
wrongly, and all take INT96 for every precision.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from typing import Final

import pyarrow as pa

from freshet.storage.codec.stats import StatsRules
from freshet.storage.files.file_format import FileSettings
from freshet.storage.files.parquet.footer import footer_bytes
from freshet.storage.files.parquet.reader import ParquetReader
from freshet.storage.files.parquet.writer import ParquetWriter
from freshet.storage.io.env import Env
from freshet.storage.model.data_type import DataField

_STATS_RULES: Final = StatsRules()


class ParquetFormat:
    """Row groups are the chunks."""

    stats_rules: StatsRules = _STATS_RULES
    footer_bytes: Callable[[pa.Buffer], int | None] | None = staticmethod(footer_bytes)

    def open(
        self, env: Env, path: str, *, size_bytes: int | None = None, part: tuple[int, int] | None = None
    ) -> ParquetReader:
        """Opens a file."""
        return ParquetReader(env, path, size_bytes=size_bytes, part=part)

    def create(
        self,
        env: Env,
        path: str,
        fields: Sequence[DataField],
        settings: FileSettings,
        executor: Executor | None = None,
    ) -> ParquetWriter:
        """Begins a file."""
        return ParquetWriter(
            env,
            path,
            fields,
            compression=settings.compression,
            zstd_level=settings.zstd_level,
            delta_columns=settings.delta_columns,
            row_group_bytes=settings.chunk_bytes,
            executor=executor,
        )
