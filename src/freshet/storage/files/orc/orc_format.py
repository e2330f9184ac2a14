"""ORC as a format of data files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from typing import Final

import pyarrow as pa

from freshet.storage.codec.stats import StatsRules
from freshet.storage.files.file_format import FileSettings
from freshet.storage.files.orc.footer import footer_bytes
from freshet.storage.files.orc.reader import OrcReader
from freshet.storage.files.orc.writer import OrcWriter
from freshet.storage.io.env import Env
from freshet.storage.model.data_type import DataField

_STATS_RULES: Final = StatsRules(has_nano_bounds=True, has_binary_bounds=False, has_nested_counts=True)


class OrcFormat:
    """Stripes are the chunks."""

    stats_rules: StatsRules = _STATS_RULES
    footer_bytes: Callable[[pa.Buffer], int | None] | None = staticmethod(footer_bytes)

    def open(
        self, env: Env, path: str, *, size_bytes: int | None = None, part: tuple[int, int] | None = None
    ) -> OrcReader:
        """Opens a file."""
        return OrcReader(env, path, size_bytes=size_bytes, part=part)

    def create(
        self,
        env: Env,
        path: str,
        fields: Sequence[DataField],
        settings: FileSettings,
        executor: Executor | None = None,
    ) -> OrcWriter:
        """Begins a file, which one thread writes."""
        return OrcWriter(env, path, fields, settings)
