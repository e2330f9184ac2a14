"""What a source `postgres` must not be together with, as far as the file says it."""

from __future__ import annotations

from collections.abc import Iterator

from freshet.pipeline.config.model import PipelineConfig, PostgresConfig
from freshet.pipeline.exceptions import KeyPath, Problem

ON_SPARK = (
    "a database is read by run_on: local alone; write that, or have Debezium write its changes to Kafka "
    "(docs/how-to/sync-postgresql.md)"
)


def wrong_postgres(config: PipelineConfig, source: PostgresConfig, key_path: KeyPath) -> Iterator[Problem]:
    """What is wrong with one source."""
    if not config.is_local:
        yield Problem(key_path, ON_SPARK)
    for index, pattern in enumerate(source.tables):
        if pattern.count(".") < 1:
            yield Problem((*key_path, "tables", index), f"wants schema.table, such as public.*, not {pattern!r}")
    others = [each.postgres for each in config.sources if each.postgres is not None and each.postgres is not source]
    if any(each.slot == source.slot and each.dsn == source.dsn for each in others):
        yield Problem((*key_path, "slot"), f"{source.slot} is that of another source; each needs its own")
